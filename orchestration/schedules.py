"""Schedules: what is due by the clock on the wall: retention every hour, expectations every day; both rest during a replay."""

from __future__ import annotations

from typing import Any

import dagster as dg

from orchestration.resources.settings import Settings
from orchestration.resources.warehouse import WarehouseResource


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
