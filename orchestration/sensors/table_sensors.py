"""The two sensors that start compactions: sorted_run at a table's own trigger, idle_partition where nobody writes any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import dagster as dg

from orchestration import names
from orchestration.policies import Asked, PolicySource
from orchestration.resources.settings import Settings
from orchestration.resources.warehouse import WarehouseResource
from orchestration.sensors.health_reports import HealthReporter, alert_lines
from orchestration.sensors.table_sweep import TableSweep
from orchestration.table_card import TableCard

SORTED_RUN_DESCRIPTION: Final = (
    "Counts the sorted runs of every bucket (metadata only) and starts a compaction where the table's own "
    "num-sorted-run.compaction-trigger is reached; reports health and the level-0 alert without a run."
)
IDLE_DESCRIPTION: Final = (
    "Looks for partitions without appends for the policy's idle_after and merges each into one run (append tables: their small "
    "files), so that finished months read at full speed. Ages come from the injected clock."
)


def sorted_run_sensor(
    cards: Sequence[TableCard], warehouse_path: str, policies: PolicySource, settings: Settings
) -> dg.SensorDefinition:
    """Return the sensor over all tables; it also reports health and the level-0 alert."""
    reporter = HealthReporter(warehouse_path)
    sweep = TableSweep(cards, policies, settings, Asked.SORTED_RUNS, reporter, alert_lines)
    return _table_sensor(names.SORTED_RUN_SENSOR, SORTED_RUN_DESCRIPTION, sweep)


def idle_sensor(cards: Sequence[TableCard], policies: PolicySource, settings: Settings) -> dg.SensorDefinition:
    """Return the sensor over all tables."""
    return _table_sensor(names.IDLE_SENSOR, IDLE_DESCRIPTION, TableSweep(cards, policies, settings, Asked.IDLE))


def _table_sensor(name: str, description: str, sweep: TableSweep) -> dg.SensorDefinition:
    @dg.sensor(
        name=name,
        # No job of ours: runs of layouts are those that "Materialize" starts. One selection for all tables, however many there are.
        asset_selection=dg.AssetSelection.all(),
        minimum_interval_seconds=sweep.settings.sensor_seconds,
        description=description,
        default_status=dg.DefaultSensorStatus.RUNNING if sweep.settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    def look_at_tables(context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        return sweep.tick(context, warehouse)

    return look_at_tables
