"""Sensor `failures`: it records a failed run in the table's ledger, which outlives Dagster's storage.

Checks that the run planned and never evaluated keep their earlier results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import dagster as dg

from dredge.checks.unevaluated import names_of, report_unevaluated
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import resolve_annotations
from dredge.platform_core.resource_names import rename_resources
from dredge.platform_core.resources.settings import Settings
from dredge.platform_core.resources.warehouse import LedgerResource
from dredge.platform_core.table_card import TableCard
from lsm_core.errors import DredgeError

DESCRIPTION = (
    "Records every failed maintenance run in the ledger of its table, with the plan and the error. "
    "Checks that the run did not reach keep their earlier results."
)


def failure_sensor(
    cards: Sequence[TableCard], warehouse_names: names.WarehouseNames, settings: Settings
) -> dg.SensorDefinition:
    """Return the sensor that records each failed run in the ledger (run history) of the run's table.

    For each failed run the sensor also logs which planned checks the run did not evaluate. A run of no single table is
    not recorded; only the tick's skip message names it. Runs and checks of other assets of the code location are left
    alone.

    Args:
        cards: descriptions of the tables in the loaded definitions.
        warehouse_names: names of the warehouse in Dagster.
        settings: intervals of the sensors.
    """
    own_assets = frozenset(
        key for card in cards for key in (warehouse_names.data_key(card.name), warehouse_names.layout_key(card.name))
    )

    @dg.run_failure_sensor(
        name=warehouse_names.definition(names.FAILURE_SENSOR),
        description=DESCRIPTION,
        minimum_interval_seconds=settings.sensor_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    @partial(rename_resources, warehouse_names=warehouse_names)
    @resolve_annotations
    def failures(context: dg.RunFailureSensorContext, ledger: LedgerResource) -> dg.SkipReason:
        run = context.dagster_run
        # The ops of the run may have added tags after the run was created.
        tagged_run = context.instance.get_run_by_id(run.run_id) or run
        kept = report_unevaluated(context.instance, warehouse_names, tagged_run, own_assets)
        if kept:
            text = f"run {run.run_id[:8]} did not evaluate {names_of(kept)}: earlier results still apply"
            context.log.info(text)
        table = warehouse_names.table_of(run.tags)
        if table is None:
            return dg.SkipReason(f"run {run.run_id[:8]} of {run.job_name} failed; it belongs to no single table")
        try:
            action = run.tags.get(names.TAG_ACTION, "")
            ledger.record_failure(table, run.run_id, run.tags.get(names.TAG_PLAN, ""), _cause(context), action)
        except (DredgeError, OSError) as error:
            return dg.SkipReason(
                f"run {run.run_id[:8]} of {table} failed, and its failure could not be recorded: {error}"
            )
        return dg.SkipReason(f"run {run.run_id[:8]} of {table} failed: {_cause(context)}")

    return failures


def _cause(context: dg.RunFailureSensorContext) -> str:
    """Return the innermost error of the first failed step, or else the message of the run's failure event."""
    for event in context.get_step_failure_events():
        error = event.step_failure_data.error
        if error is not None:
            innermost = error
            while innermost.cause is not None:
                innermost = innermost.cause
            return " ".join(innermost.message.split())[:500]
    return context.failure_event.message or "unknown"
