"""Jobs: one each for retention and expectations, a single op over all tables, one for the ranking; and their schedules. Layouts need no job of their own."""

from __future__ import annotations

from typing import Any, Final

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from checks.expectations import expectations_op
from orchestration import names
from orchestration.ops.retention_op import retention_op
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
    """Return the job that runs the great-expectations suites of all tables, in one process."""

    @dg.graph(
        name=names.EXPECTATIONS_JOB,
        description="Hold the data to its own rules: keys present and unique, NOT NULL columns without nulls.",
    )
    def expectations() -> None:
        expectations_op()

    return expectations.to_job(tags={names.TAG_ACTION: "expectations"}, executor_def=_EXECUTOR)


def warehouse_health_job(warehouse_path: str) -> UnresolvedAssetJobDefinition:
    """Return the job that ranks all tables."""
    return dg.define_asset_job(
        name=names.WAREHOUSE_HEALTH,
        selection=dg.AssetSelection.assets(names.warehouse_health_key(warehouse_path)),
        description="Rank all tables: what hurts most, what comes next and when, what is declined and why.",
        tags={names.TAG_ACTION: "rank"},
        executor_def=_EXECUTOR,
    )


def job_schedule(job: Any, cron: str, settings: Settings, description: str) -> dg.ScheduleDefinition:
    """Return the schedule of ``job``, named after it; a replay in flight makes its tick skip and say so."""

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
        return dg.RunRequest(run_key=context.scheduled_execution_time.isoformat())

    return due
