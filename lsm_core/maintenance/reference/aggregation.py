"""Reference merge of `aggregation` (semantics.md 3.4): each column has a function that folds its versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lsm_core.format.schema import TableSchema
from lsm_core.maintenance.reference.functions import Function, function_of
from lsm_core.maintenance.reference.versions import DELETE, INSERT, Row


def function_name(schema: TableSchema, options: Mapping[str, str], column: str) -> str:
    """Return the name of a column's aggregate function.

    Args:
        schema: schema of the table.
        options: table options as they are stored.
        column: name of the column.
    """
    if column in [name.strip() for name in options.get("sequence.field", "").split(",")]:
        return "last_value"
    if column in schema.primary_keys:
        return "primary-key"
    own = options.get(f"fields.{column}.aggregate-function")
    return own or options.get("fields.default-aggregate-function") or "last_non_null_value"


class AggregationMerge:
    """Merge of the versions of one key: call :meth:`add` for each version, then :meth:`result`."""

    def __init__(self, schema: TableSchema, options: Mapping[str, str]) -> None:
        self._functions: list[Function] = [
            function_of(function_name(schema, options, field.name), field.name, field.type, options)
            for field in schema.fields
        ]
        self._remove_on_delete = options.get("aggregation.remove-record-on-delete", "false").lower() == "true"
        self._row: list[Any] = [None] * len(schema.fields)
        self._sequence = 0
        self._deleted = False

    def add(self, row: Row) -> None:
        """Apply the next version of the key, in merge order."""
        self._sequence = row.sequence
        self._deleted = self._remove_on_delete and row.kind == DELETE
        if self._deleted:
            self._row = list(row.values)
            return
        for i, function in enumerate(self._functions):
            step = function.retract if row.retracts else function.agg
            self._row[i] = step(self._row[i], row.values[i])

    def result(self) -> tuple[int, int, list[Any]]:
        """Return (sequence number, row kind, values) of the merged row."""
        return self._sequence, DELETE if self._deleted else INSERT, self._row
