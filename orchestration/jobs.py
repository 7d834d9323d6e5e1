"""Jobs: one per maintenance action, one per operation over all tables, and their schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import dagster as dg

from dredge.orchestration.ops.adopt_op import adopt_op
from dredge.orchestration.ops.approval import APPLY_PLAN
from dredge.orchestration.ops.audit_ops import AuditConfig, VerifyConfig, audit_op, compare_snapshots_op
from dredge.orchestration.ops.common import op_of
from dredge.orchestration.ops.data_check_ops import DataChecksConfig, DeepCheckConfig, data_checks_op, deep_check_op
from dredge.orchestration.ops.mute_op import ACKNOWLEDGE_OP, SNOOZE_OP, MuteConfig
from dredge.orchestration.ops.resume_op import ResumeConfig, resume_op
from dredge.orchestration.ops.retention_op import retention_op
from dredge.orchestration.ops.table_ops import (
    PLAN_ONLY,
    ApplyPlanConfig,
    PlanOnlyConfig,
    apply_plan_op,
    config_of,
    table_op,
)
from dredge.orchestration.ops.warehouse_ops import MaintainConfig, maintain_op, orphan_plans_op
from dredge.orchestration.ops.what_if_op import WhatIfConfig, what_if_op
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import resolve_annotations
from dredge.platform_core.resource_names import rename_resources
from dredge.platform_core.resources.settings import Settings
from dredge.platform_core.resources.warehouse import WarehouseResource
from lsm_core.maintenance.action import all_actions

_EXECUTOR: Final = dg.in_process_executor


def retention_job(warehouse_names: names.WarehouseNames) -> dg.JobDefinition:
    """Return the job that expires partitions, tags, snapshots and changelogs of every table, and empties the trash."""

    @dg.graph(
        name=warehouse_names.definition(names.RETENTION_JOB),
        description="Expire old snapshots of every table, then delete trash files whose grace period is over.",
    )
    def retention() -> None:
        op_of(retention_op, warehouse_names)()

    return retention.to_job(tags={names.TAG_ACTION: "expire"}, executor_def=_EXECUTOR)


def expectations_job(warehouse_names: names.WarehouseNames) -> dg.JobDefinition:
    """Return the job that checks the data of all or some tables, with great-expectations suites, in one process."""
    text = (
        "Check the data of all tables, or of the configured ones: keys, merge engines, changelogs, deletion vectors, "
        "the chain of snapshots, and the great-expectations suites."
    )
    return _job(warehouse_names, names.EXPECTATIONS_JOB, text, data_checks_op, DataChecksConfig)


def action_jobs(warehouse_names: names.WarehouseNames) -> list[dg.JobDefinition]:
    """Return a job per maintenance action with the action's arguments, and `plan_only`, `apply_plan` and `what_if`."""
    jobs = [
        _table_job(warehouse_names, action.name, action.help, config_of(action.name), action.name)
        for action in all_actions()
    ]
    planning = "Plan any action and store the plan for approval; nothing is changed."
    simulating = "Replay a table's own commits under other policies, and compare their costs and effects."
    applying = "Apply the stored plan of a hash unchanged, and record who approved it."
    return [
        *jobs,
        _table_job(warehouse_names, PLAN_ONLY, planning, PlanOnlyConfig),
        _job(warehouse_names, APPLY_PLAN, applying, apply_plan_op, ApplyPlanConfig),
        _job(warehouse_names, names.WHAT_IF_JOB, simulating, what_if_op, WhatIfConfig),
    ]


def _table_job(
    warehouse_names: names.WarehouseNames, name: str, description: str, config: type[dg.Config], action: str = ""
) -> dg.JobDefinition:
    def op_config(config_values: Mapping[str, Any]) -> Mapping[str, Any]:
        if action:
            return {"action": action, "given": dict(config_values)}
        return {
            "action": config_values["action"],
            "given": {**config_values["arguments"], "table": config_values["table"], "dry_run": True},
        }

    return _job(warehouse_names, name, description, table_op, config, op_config, action)


def _job(
    warehouse_names: names.WarehouseNames,
    name: str,
    description: str,
    op: dg.OpDefinition,
    config: type[dg.Config],
    op_config: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
    action: str = "",
) -> dg.JobDefinition:
    """Return a job with one op.

    Args:
        warehouse_names: names of the warehouse in Dagster.
        name: name of the job in a code location with one warehouse.
        description: description of the job.
        op: op of the job.
        config: class of the job's configuration.
        op_config: converts the job's configuration to the op's configuration.
        action: maintenance action of the job, or "" if the action has the name of the job.
    """
    op, job_name = op_of(op, warehouse_names), warehouse_names.definition(names.part(name))
    return dg.GraphDefinition(name=job_name, description=description, node_defs=[op]).to_job(
        config=dg.ConfigMapping(
            config_schema=config.to_fields_dict(),
            config_fn=lambda config_values: {"ops": {op.name: {"config": dict(op_config(config_values))}}},
        ),
        tags={names.TAG_ACTION: names.tag_value(action or name)},
        executor_def=_EXECUTOR,
    )


def resume_job(warehouse_names: names.WarehouseNames) -> dg.JobDefinition:
    """Return the job that ends the suspension of tables after repeated failures."""
    text = "End the suspension of tables whose runs failed three times in a row: sensors start runs of them again."
    return _job(warehouse_names, names.RESUME_JOB, text, resume_op, ResumeConfig)


def mute_jobs(warehouse_names: names.WarehouseNames) -> list[dg.JobDefinition]:
    """Return the jobs that snooze and acknowledge alerts."""
    snoozing = "Snooze alerts about tables: they are not sent before a time, and then only if they still hold."
    acknowledging = (
        "Acknowledge alerts: the channels are told once who works on them; they are sent again after a time."
    )
    return [
        _job(warehouse_names, names.SNOOZE_JOB, snoozing, SNOOZE_OP, MuteConfig),
        _job(warehouse_names, names.ACKNOWLEDGE_JOB, acknowledging, ACKNOWLEDGE_OP, MuteConfig),
    ]


def warehouse_jobs(warehouse_names: names.WarehouseNames) -> dict[str, dg.JobDefinition]:
    """Return the jobs maintain, orphan_plans, audit, verify_snapshots, deep_check and adopt_warehouse, by name."""
    return {
        names.MAINTAIN_JOB: _job(
            warehouse_names,
            names.MAINTAIN_JOB,
            "Maintain many tables by one plan, the most urgent first, within limits. "
            "Decisions are those of the sensors: declined tables are skipped with the same reason.",
            maintain_op,
            MaintainConfig,
        ),
        names.ORPHAN_PLANS_JOB: _plain_job(
            warehouse_names,
            names.ORPHAN_PLANS_JOB,
            "Plan the removal of orphan files; every plan waits for approval, and nothing is deleted.",
            orphan_plans_op,
        ),
        names.AUDIT_JOB: _job(
            warehouse_names,
            names.AUDIT_JOB,
            "Verify the newest compaction of a sample of tables again, with the independent reader (V3).",
            audit_op,
            AuditConfig,
        ),
        names.VERIFY_JOB: _job(
            warehouse_names,
            names.VERIFY_JOB,
            "Compare the merged rows of two snapshots of a table.",
            compare_snapshots_op,
            VerifyConfig,
        ),
        names.DEEP_CHECK_JOB: _job(
            warehouse_names,
            names.DEEP_CHECK_JOB,
            "Read every page of a table's data files; the next run resumes an interrupted one.",
            deep_check_op,
            DeepCheckConfig,
        ),
        names.ADOPT_JOB: _plain_job(
            warehouse_names,
            names.ADOPT_JOB,
            "Adopt a warehouse: open every table, check its files, and list what it needs; nothing is changed.",
            adopt_op,
        ),
    }


def jobs_without_assets() -> frozenset[str]:
    """Return the names of the jobs that open their tables themselves, so that their runs need no asset definitions."""
    over_many = {
        names.RETENTION_JOB,
        names.EXPECTATIONS_JOB,
        names.MAINTAIN_JOB,
        names.ORPHAN_PLANS_JOB,
        names.AUDIT_JOB,
        names.VERIFY_JOB,
        names.DEEP_CHECK_JOB,
        names.ADOPT_JOB,
        names.RESUME_JOB,
        names.SNOOZE_JOB,
        names.ACKNOWLEDGE_JOB,
    }
    over_one = {PLAN_ONLY, APPLY_PLAN, names.WHAT_IF_JOB, *(action.name for action in all_actions())}
    return frozenset(map(names.part, over_many | over_one))


def _plain_job(
    warehouse_names: names.WarehouseNames, name: str, description: str, op: dg.OpDefinition
) -> dg.JobDefinition:
    op = op_of(op, warehouse_names)
    graph = dg.GraphDefinition(name=warehouse_names.definition(name), description=description, node_defs=[op])
    return graph.to_job(tags={names.TAG_ACTION: names.tag_value(name)}, executor_def=_EXECUTOR)


def warehouse_health_job(warehouse_names: names.WarehouseNames) -> Any:  # Dagster does not export the type
    """Return the job that materialises the asset `warehouse_health`, the ranking of all tables by need."""
    return dg.define_asset_job(
        name=warehouse_names.definition(names.WAREHOUSE_HEALTH),
        selection=dg.AssetSelection.assets(warehouse_names.warehouse_health_key()),
        description="Rank all tables by need: problems, next actions with times, and declined tables with reasons.",
        tags={names.TAG_ACTION: "rank"},
        executor_def=_EXECUTOR,
    )


def job_schedule(
    warehouse_names: names.WarehouseNames,
    job: Any,
    cron: str,
    settings: Settings,
    description: str,
    config: Mapping[str, Any] | None = None,
) -> dg.ScheduleDefinition:
    """Return the schedule of a job, named after the job.

    Ticks are skipped while a replay of the demo's data is in progress (`WarehouseResource.replay_text`).

    Args:
        warehouse_names: names of the warehouse in Dagster.
        job: job that each tick starts.
        cron: cron expression, in UTC.
        settings: settings of the platform.
        description: description of the schedule.
        config: configuration of the schedule's runs.
    """

    @dg.schedule(
        job=job,
        cron_schedule=cron,
        name=f"{job.name}_schedule",
        execution_timezone="UTC",
        description=description,
        default_status=dg.DefaultScheduleStatus.RUNNING if settings.schedules_on else dg.DefaultScheduleStatus.STOPPED,
    )
    @partial(rename_resources, warehouse_names=warehouse_names)
    @resolve_annotations
    def schedule_run(
        context: dg.ScheduleEvaluationContext, warehouse: WarehouseResource
    ) -> dg.RunRequest | dg.SkipReason:
        replay = warehouse.replay_text()
        if replay is not None:
            return dg.SkipReason(replay)
        return dg.RunRequest(run_key=context.scheduled_execution_time.isoformat(), run_config=dict(config or {}))

    return schedule_run
