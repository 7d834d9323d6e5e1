"""Jobs: one for every action of maintenance, one each for what is done to all tables in a single op; and their schedules. Layouts need no job of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import dagster as dg

from checks.adoption import adopt_op
from checks.audit import Audit, TwoSnapshots, audit_op, verify_op
from checks.data_checks import DeepCheck, deep_check_op, rules_op
from checks.layout_checks import tell_checks
from lsm_core.maintenance.action import all_actions
from orchestration import names
from orchestration.ops.approval import APPLY_PLAN
from orchestration.ops.resume_op import ResumedTables, resume_op
from orchestration.ops.retention_op import retention_op
from orchestration.ops.table_ops import (
    PLAN_ONLY,
    ApprovedPlan,
    PlanOnly,
    apply_plan_op,
    config_of,
    table_op,
)
from orchestration.ops.warehouse_ops import Maintenance, maintain_op, orphan_plans_op
from orchestration.ops.what_if_op import WhatIf, what_if_op
from orchestration.quirks import UnresolvedAssetJobDefinition
from orchestration.resources.settings import Settings
from orchestration.resources.warehouse import WarehouseResource

_EXECUTOR: Final = dg.in_process_executor


def retention_job() -> dg.JobDefinition:
    """Return the job that expires snapshots and sweeps the trash of every table that the warehouse holds when it runs."""

    @dg.graph(
        name=names.RETENTION_JOB,
        description="Expire old snapshots of every table, then delete what the trash held long enough.",
    )
    def retention() -> None:
        retention_op()

    return retention.to_job(tags={names.TAG_ACTION: "expire"}, executor_def=_EXECUTOR)


def expectations_job() -> dg.JobDefinition:
    """Return the job that checks the data of all tables, great-expectations suites among it, in one process."""

    @dg.graph(
        name=names.EXPECTATIONS_JOB,
        description="Hold the data of all tables to their rules: keys, merge engines, changelogs, deletion vectors, the chain of snapshots, and what great-expectations is asked.",
    )
    def expectations() -> None:
        rules_op()

    return expectations.to_job(tags={names.TAG_ACTION: "expectations"}, executor_def=_EXECUTOR)


def action_jobs() -> list[dg.JobDefinition]:
    """Return a job for every action of maintenance, which takes the action's own arguments, `plan_only` for any of them, `apply_plan` and `what_if`."""
    made = [_table_job(action.name, action.help, config_of(action.name), action.name) for action in all_actions()]
    planning = "Plan any action and keep the plan: it waits for approval, and nothing is changed."
    asking = "What if: replay a table's own commits under other policies, and compare what they cost and bring."
    applying = "Apply a saved plan: exactly what its hash stands for, or nothing. It says who approved it."
    return [
        *made,
        _table_job(PLAN_ONLY, planning, PlanOnly),
        _job(APPLY_PLAN, applying, apply_plan_op(tell_checks), ApprovedPlan),
        _job(names.WHAT_IF_JOB, asking, what_if_op, WhatIf),
    ]


def _table_job(name: str, description: str, config: type[dg.Config], action: str = "") -> dg.JobDefinition:
    def spread(given: Mapping[str, Any]) -> Mapping[str, Any]:
        if action:
            return {"action": action, "given": dict(given)}
        return {"action": given["action"], "given": {**given["arguments"], "table": given["table"], "dry_run": True}}

    return _job(name, description, table_op(tell_checks), config, spread, action)


def _job(
    name: str,
    description: str,
    op: dg.OpDefinition,
    config: type[dg.Config],
    spread: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
    action: str = "",
) -> dg.JobDefinition:
    """Return a job of one op whose configuration is ``config`` and nothing around it; ``spread`` makes the op's of it."""
    return dg.GraphDefinition(name=names.part(name), description=description, node_defs=[op]).to_job(
        config=dg.ConfigMapping(
            config_schema=config.to_fields_dict(),
            config_fn=lambda given: {"ops": {op.name: {"config": dict(spread(given))}}},
        ),
        tags={names.TAG_ACTION: names.tag_value(action or name)},
        executor_def=_EXECUTOR,
    )


def resume_job() -> dg.JobDefinition:
    """Return the job that ends the suspension of tables whose runs failed one after the other."""
    text = "End the suspension of tables whose runs failed three times in a row: sensors start runs of them again."
    return _job(names.RESUME_JOB, text, resume_op, ResumedTables)


def warehouse_jobs() -> dict[str, dg.JobDefinition]:
    """Return the jobs over many tables but retention, expectations and the ranking, by name."""
    return {
        names.MAINTAIN_JOB: _job(
            names.MAINTAIN_JOB,
            "Look after many tables by one plan, the worst first, within bounds, by the decisions that sensors make: what they decline is left alone, with the same reason.",
            maintain_op(tell_checks),
            Maintenance,
        ),
        names.ORPHAN_PLANS_JOB: _plain_job(
            names.ORPHAN_PLANS_JOB,
            "Plan the removal of the files that nothing names; every plan waits for approval, nothing is deleted.",
            orphan_plans_op(),
        ),
        names.AUDIT_JOB: _job(
            names.AUDIT_JOB,
            "Compare the newest compaction of a sample of tables once more, by the second path (V3).",
            audit_op(),
            Audit,
        ),
        names.VERIFY_JOB: _job(
            names.VERIFY_JOB, "Compare what two snapshots of a table say.", verify_op(), TwoSnapshots
        ),
        names.DEEP_CHECK_JOB: _job(
            names.DEEP_CHECK_JOB,
            "Read every page of a table's data files; an interrupted run is resumed by the next one.",
            deep_check_op(),
            DeepCheck,
        ),
        names.ADOPT_JOB: _plain_job(
            names.ADOPT_JOB,
            "The first look at a warehouse: open every table, check its files, say what it needs; nothing is changed.",
            adopt_op(),
        ),
    }


def jobs_without_assets() -> frozenset[str]:
    """Return the names of the jobs that open the tables of their configuration, or of the warehouse, themselves: to run they need no definition of any asset."""
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
    }
    over_one = {PLAN_ONLY, APPLY_PLAN, names.WHAT_IF_JOB, *(action.name for action in all_actions())}
    return frozenset(map(names.part, over_many | over_one))


def _plain_job(name: str, description: str, op: dg.OpDefinition) -> dg.JobDefinition:
    graph = dg.GraphDefinition(name=name, description=description, node_defs=[op])
    return graph.to_job(tags={names.TAG_ACTION: names.tag_value(name)}, executor_def=_EXECUTOR)


def warehouse_health_job(warehouse_path: str) -> UnresolvedAssetJobDefinition:
    """Return the job that ranks all tables."""
    return dg.define_asset_job(
        name=names.WAREHOUSE_HEALTH,
        selection=dg.AssetSelection.assets(names.warehouse_health_key(warehouse_path)),
        description="Rank all tables: what hurts most, what comes next and when, what is declined and why.",
        tags={names.TAG_ACTION: "rank"},
        executor_def=_EXECUTOR,
    )


def job_schedule(
    job: Any, cron: str, settings: Settings, description: str, config: Mapping[str, Any] | None = None
) -> dg.ScheduleDefinition:
    """Return the schedule of ``job``, named after it, whose runs get ``config``; a replay in flight makes its tick skip and say so."""

    @dg.schedule(
        job=job,
        cron_schedule=cron,
        name=f"{job.name}_schedule",
        execution_timezone="UTC",
        description=description,
        default_status=dg.DefaultScheduleStatus.RUNNING if settings.schedules_on else dg.DefaultScheduleStatus.STOPPED,
    )
    def due(context: dg.ScheduleEvaluationContext, warehouse: WarehouseResource) -> dg.RunRequest | dg.SkipReason:
        replaying = warehouse.replaying()
        if replaying is not None:
            return dg.SkipReason(replaying)
        return dg.RunRequest(run_key=context.scheduled_execution_time.isoformat(), run_config=dict(config or {}))

    return due
