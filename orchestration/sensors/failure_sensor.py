"""Failures: the sensor that writes a failed run into the table's own ledger, so that the story survives Dagster's storage."""

from __future__ import annotations

import dagster as dg

from lsm_core.errors import DredgeError
from orchestration import names
from orchestration.resources.settings import Settings
from orchestration.resources.warehouse import LedgerResource

DESCRIPTION = "Writes every failed maintenance run into the ledger of its table, with the plan, the reason it ran for and the error."


def failure_sensor(settings: Settings) -> dg.SensorDefinition:
    """Return the sensor over all runs of this code location; those that belong to no single table are only named."""

    @dg.run_failure_sensor(
        name=names.FAILURE_SENSOR,
        description=DESCRIPTION,
        minimum_interval_seconds=settings.sensor_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    def failures(context: dg.RunFailureSensorContext, ledger: LedgerResource) -> dg.SkipReason:
        run = context.dagster_run
        table = names.table_of(run.tags)
        if table is None:
            return dg.SkipReason(f"run {run.run_id[:8]} of {run.job_name} failed; it belongs to no single table")
        try:
            asked = run.tags.get(names.TAG_ACTION, "")
            ledger.record_failure(table, run.run_id, run.tags.get(names.TAG_PLAN, ""), _cause(context), asked)
        except (DredgeError, OSError) as error:
            return dg.SkipReason(f"run {run.run_id[:8]} of {table} failed, and so did writing it down: {error}")
        return dg.SkipReason(f"run {run.run_id[:8]} of {table} failed: {_cause(context)}")

    return failures


def _cause(context: dg.RunFailureSensorContext) -> str:
    """Return the first step's own error where there is one: the run's event only counts failed steps."""
    for event in context.get_step_failure_events():
        error = event.step_failure_data.error
        if error is not None:
            innermost = error
            while innermost.cause is not None:
                innermost = innermost.cause
            return " ".join(innermost.message.split())[:500]
    return context.failure_event.message or "unknown"
