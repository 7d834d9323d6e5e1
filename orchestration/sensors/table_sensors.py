"""The two sensors that start compactions: sorted_run at the trigger, idle_partition for partitions without writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import dagster as dg

from dredge.orchestration.sensors.health_reports import HealthReporter, alert_lines
from dredge.orchestration.sensors.status_board import StatusBoard
from dredge.orchestration.sensors.table_sweep import TableSweep
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import resolve_annotations
from dredge.platform_core.policies import DecisionScope, PolicySource
from dredge.platform_core.resource_names import rename_resources
from dredge.platform_core.resources.settings import Settings
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.table_card import TableCard

SORTED_RUN_DESCRIPTION: Final = (
    "Counts the sorted runs of every bucket from metadata, and starts a compaction at the table's own "
    "num-sorted-run.compaction-trigger. Also reports health and the level-0 alert without a run."
)
IDLE_DESCRIPTION: Final = (
    "Finds partitions without appends for the policy's idle_after and merges each into one sorted run (append tables: "
    "merges their small files), so that closed partitions are fast to read. Ages come from the injected clock."
)


def sorted_run_sensor(
    cards: Sequence[TableCard],
    warehouse_names: names.WarehouseNames,
    policies: PolicySource,
    settings: Settings,
    board: StatusBoard | None = None,
) -> dg.SensorDefinition:
    """Return the sensor that compacts at the trigger and reports health, states and backlog checks of all tables.

    Args:
        cards: descriptions of the tables in the loaded definitions.
        warehouse_names: names of the warehouse in Dagster.
        policies: source of the current policies.
        settings: intervals and budgets.
        board: statuses that this sensor shares with the other table sensor, or None to share none.
    """
    reporter, shared = HealthReporter(warehouse_names), board or StatusBoard()
    sweep = TableSweep(cards, policies, settings, DecisionScope.SORTED_RUNS, reporter, alert_lines, board=shared)
    return _table_sensor(warehouse_names, names.SORTED_RUN_SENSOR, SORTED_RUN_DESCRIPTION, sweep)


def idle_sensor(
    cards: Sequence[TableCard],
    warehouse_names: names.WarehouseNames,
    policies: PolicySource,
    settings: Settings,
    board: StatusBoard | None = None,
) -> dg.SensorDefinition:
    """Return the sensor that compacts idle partitions.

    Args:
        cards: descriptions of the tables in the loaded definitions.
        warehouse_names: names of the warehouse in Dagster.
        policies: source of the current policies.
        settings: intervals and budgets.
        board: statuses that this sensor shares with the other table sensor, or None to share none.
    """
    sweep = TableSweep(cards, policies, settings, DecisionScope.IDLE, board=board or StatusBoard())
    return _table_sensor(warehouse_names, names.IDLE_SENSOR, IDLE_DESCRIPTION, sweep)


def _table_sensor(
    warehouse_names: names.WarehouseNames, name: str, description: str, sweep: TableSweep
) -> dg.SensorDefinition:
    @dg.sensor(
        name=warehouse_names.definition(name),
        # No own job: runs of layouts are those that "Materialize" starts. One selection covers any number of tables.
        asset_selection=dg.AssetSelection.key_prefixes([warehouse_names.first]),
        minimum_interval_seconds=sweep.settings.sensor_seconds,
        description=description,
        default_status=dg.DefaultSensorStatus.RUNNING if sweep.settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    @partial(rename_resources, warehouse_names=warehouse_names)
    @resolve_annotations
    def decide_tables(context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        return sweep.tick(context, warehouse)

    return decide_tables
