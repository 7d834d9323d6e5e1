"""Newest statuses of tables by sensor: the page of a layout shows what both table sensors decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import dagster as dg

from dredge.orchestration.sensors.budget_claims import BudgetClaims
from dredge.orchestration.sensors.table_cache import OpenTable
from dredge.orchestration.sensors.table_states import find_conditions
from dredge.platform_core.policies import DecisionScope
from dredge.platform_core.policies.table_state import Condition, TableStatus, combine, judge_metadata
from dredge.platform_core.resources.warehouse import WarehouseResource

_CONDITIONS_SECONDS: Final = 60.0
"""Time for which conditions of tables are reused, because Dagster needs several queries for them."""


@dataclass
class StatusBoard:
    """Statuses that the table sensors of this process decided last, and their claims on the budget.

    Attributes:
        clock: monotonic clock, in seconds.
        claims: claims for runs that Dagster has not created yet.
    """

    clock: Callable[[], float] = time.monotonic
    claims: BudgetClaims = field(default_factory=BudgetClaims)
    _statuses: dict[tuple[DecisionScope, str], tuple[Hashable, tuple[TableStatus, ...]]] = field(default_factory=dict)
    _conditions: Mapping[str, Sequence[Condition]] = field(default_factory=dict)
    _read_s: float | None = None

    def conditions(
        self, instance: dg.DagsterInstance, warehouse: WarehouseResource, tables: Sequence[str]
    ) -> Mapping[str, Sequence[Condition]]:
        """Return the conditions of tables that hold whether or not work is due; they are at most a minute old.

        Args:
            instance: Dagster instance.
            warehouse: the warehouse.
            tables: full names of the tables.
        """
        if self._read_s is None or self.clock() - self._read_s >= _CONDITIONS_SECONDS:
            self._conditions, self._read_s = find_conditions(instance, warehouse, tables), self.clock()
        return self._conditions

    def put(self, scope: DecisionScope, table: OpenTable, statuses: Sequence[TableStatus]) -> None:
        """Store the statuses of a table's partitions that the sensor of one kind of compaction (scope) decided."""
        self._statuses[scope, table.name] = (_version(table), tuple(statuses))

    def status(self, table: OpenTable, conditions: Sequence[Condition] = ()) -> TableStatus:
        """Return the status of a table; decisions about an earlier commit are made again from metadata.

        Args:
            table: the table.
            conditions: conditions of the whole table.
        """
        statuses: list[TableStatus] = []
        for scope in (DecisionScope.SORTED_RUNS, DecisionScope.IDLE):
            version, known = self._statuses.get((scope, table.name), (None, ()))
            if version == _version(table):
                statuses += known
            else:
                statuses += judge_metadata(table.facts, table.policy_of, table.now, [scope])
        return combine(table.name, statuses, conditions)


def _version(table: OpenTable) -> Hashable:
    return (table.health.snapshot, table.health.commit)
