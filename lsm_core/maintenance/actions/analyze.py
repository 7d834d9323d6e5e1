"""ANALYZE: choose columns, read the merged rows once, commit the statistics, and report them.

A column's statistics are counts, minimum and maximum, lengths, and the number of distinct values.

Source: `PaimonAnalyzeTableColumnCommand` of Paimon's Spark connector. The format of the statistics follows that class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar
from lsm_core.commit import Committer
from lsm_core.errors import ColumnNotFound, PlanStale, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.java_text import decimal_text, float_text, timestamp_text
from lsm_core.format.schema import DataField
from lsm_core.format.side_files import ColumnStatistics, Statistics
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    CommitReport,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    PlanItem,
    size_text,
)
from lsm_core.merge.digest import value_hashes
from lsm_core.merge.keys import flat
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_readable, require_writable
from lsm_core.read import Version, to_batches
from lsm_core.read.scan import plan_version
from lsm_core.types import DataType, TypeRoot

_FLOATS: Final = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})
_TIMESTAMPS: Final = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_BYTES: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
# Bytes that Spark assumes for a value: average and longest length of fixed-width types; of the types text and binary
# only if there is no value.
_WIDTHS: Final = {
    TypeRoot.BOOLEAN: 1,
    TypeRoot.TINYINT: 1,
    TypeRoot.SMALLINT: 2,
    TypeRoot.INT: 4,
    TypeRoot.BIGINT: 8,
    TypeRoot.FLOAT: 4,
    TypeRoot.DOUBLE: 8,
    TypeRoot.DATE: 4,
    TypeRoot.TIME: 4,
    TypeRoot.TIMESTAMP: 8,
    TypeRoot.TIMESTAMP_LTZ: 8,
    TypeRoot.CHAR: 20,
    TypeRoot.VARCHAR: 20,
    TypeRoot.BINARY: 100,
    TypeRoot.VARBINARY: 100,
}
_UNITS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_NANOS_PER_MILLI: Final = 1_000_000
_LONGEST_COMPACT_DECIMAL: Final = 18
_KEPT_HASHES: Final = 1 << 16
_HASHES: Final = float(1 << 64)


def can_be_analyzed(kind: DataType) -> bool:
    """Return whether columns of a type have statistics.

    Args:
        kind: type of the column.
    """
    return kind.root in _WIDTHS or kind.root is TypeRoot.DECIMAL


class ColumnValues:
    """Accumulator of one column's statistics, in memory that does not grow with the number of rows.

    As in Spark, strings and binaries have no minimum and maximum. The length of a string is in characters, of a binary
    in bytes. NaN is the greatest number. ``kind`` is the data type of the column.
    """

    def __init__(self, kind: DataType) -> None:
        self._kind, self._root = kind, kind.root
        self._valid = self._nulls = self._lengths = self._longest = 0
        self._least: Any = None
        self._greatest: Any = None
        self._distinct = DistinctValues()
        self._unit = 1

    def add(self, column: pa.Array) -> None:
        """Add values to the statistics.

        Args:
            column: values of the analyzed column, nulls included.
        """
        column = flat(column)
        self._nulls += column.null_count
        column = column.drop_null()
        if not len(column):
            return
        self._valid += len(column)
        if self._root in _FLOATS:
            column = pc.add(column, arrow_scalar(0.0, column.type))  # -0.0 becomes 0.0
        self._distinct.add(value_hashes(column))
        if self._root in _TEXTS or self._root in _BYTES:
            lengths = pc.utf8_length(column) if self._root in _TEXTS else pc.binary_length(column)
            self._lengths += pc.sum(lengths).as_py()
            self._longest = max(self._longest, pc.max(lengths).as_py())
            return
        bounds = pc.min_max(self._to_ordered_numbers(column)).as_py()
        low, high = bounds["min"], bounds["max"]
        if self._root in _FLOATS:
            has_nan = pc.any(pc.is_nan(column)).as_py()
            low, high = (math.nan if low is None else low), (math.nan if has_nan else high)
            known = [value for value in (self._least, low) if value is not None and not math.isnan(value)]
            self._least = min(known, default=math.nan)
            self._greatest = high if self._greatest is None else _greater(self._greatest, high)
            return
        self._least = low if self._least is None else min(self._least, low)
        self._greatest = high if self._greatest is None else max(self._greatest, high)

    def _to_ordered_numbers(self, column: pa.Array) -> pa.Array:
        """Return the values in a form whose minimum and maximum Arrow can compute; NaN is left out.

        Dates are days, times are milliseconds, and timestamps are in the unit of their Arrow type.
        """
        if self._root in (TypeRoot.DATE, TypeRoot.TIME):
            return column.cast(pa.int32())
        if self._root in _TIMESTAMPS:
            self._unit = _UNITS[column.type.unit]
            return column.cast(pa.int64())
        if self._root in _FLOATS:
            return column.filter(pc.invert(pc.is_nan(column)))
        return column

    def statistics(self, column_id: int) -> ColumnStatistics:
        """Return the statistics of the values added so far.

        Args:
            column_id: id of the column's field.
        """
        width = _WIDTHS.get(self._root, 8 if (self._kind.precision or 0) <= _LONGEST_COMPACT_DECIMAL else 16)
        average = longest = width
        if self._valid and (self._root in _TEXTS or self._root in _BYTES):
            average, longest = -(-self._lengths // self._valid), self._longest
        return ColumnStatistics(
            column_id,
            min(self._distinct.count(), self._valid),
            None if self._least is None else self._text(self._least),
            None if self._greatest is None else self._text(self._greatest),
            self._nulls,
            average,
            longest,
        )

    def _text(self, value: Any) -> str:
        """Return a minimum or maximum as text, formatted as by Java's serialisers of statistics."""
        if self._root is TypeRoot.BOOLEAN:
            return "true" if value else "false"
        if self._root in _FLOATS:
            return float_text(value, single=self._root is TypeRoot.FLOAT)
        if self._root is TypeRoot.DECIMAL:
            return decimal_text(value)
        if self._root in _TIMESTAMPS:
            millis, nanos = divmod(value * self._unit, _NANOS_PER_MILLI)
            return timestamp_text(millis, nanos, self._kind.precision or 0)
        return str(value)


def _greater(left: float, right: float) -> float:
    return math.nan if math.isnan(left) or math.isnan(right) else max(left, right)


class DistinctValues:
    """Counter of distinct values that keeps only the smallest of their 64-bit hashes ("k minimum values").

    Up to 65,536 distinct values the count is exact, except for hash collisions. Above that number the count is an
    estimate with a standard error of 0.4 percent.
    """

    def __init__(self) -> None:
        self._least: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        self._more = False

    def add(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Add values by their hashes.

        Args:
            hashes: 64-bit hash of each value.
        """
        if self._more:
            hashes = hashes[hashes < self._least[-1]]
        together = np.union1d(self._least, hashes)
        self._more = self._more or len(together) > _KEPT_HASHES
        self._least = together[:_KEPT_HASHES]

    def count(self) -> int:
        """Return the number of distinct values, exact or estimated."""
        if not self._more:
            return len(self._least)
        return round((_KEPT_HASHES - 1) * _HASHES / (float(self._least[-1]) + 1))


_NESTED: Final = "a nested type, which statistics do not cover"


@dataclass(frozen=True)
class AnalyzeItem(PlanItem):
    """Rows of one snapshot to analyze.

    Attributes:
        snapshot_id: id of the snapshot.
        names: names of the columns to analyze.
        time_ms: time of the snapshot's commit (epoch ms); 0 in plans of older versions, which did not record it.
    """

    item_kind: ClassVar[str] = "analyze"
    title: ClassVar[str] = "would analyze"
    columns: ClassVar[tuple[str, ...]] = ("snapshot", "columns")

    snapshot_id: int
    names: tuple[str, ...]
    time_ms: int = 0

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: snapshot id and column names."""
        return (self.snapshot_id, ", ".join(self.names) or "(rows alone)")

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> Self:
        """Return the item from the JSON values that :meth:`to_object` returned."""
        return cls(int(value["snapshot_id"]), tuple(value["names"]), int(value.get("time_ms", 0)))


@dataclass(frozen=True)
class AnalyzeReport(CommitReport):
    """Report of ANALYZE.

    Attributes:
        rows: number of rows after merging.
        size: bytes of these merged rows, estimated from the file sizes.
        columns: names of the analyzed columns.
    """

    rows: int = 0
    size: int = 0
    columns: tuple[str, ...] = ()

    def lines(self, table: str) -> list[str]:
        """Return one line with the snapshot, rows, bytes and number of columns."""
        if self.snapshot_id is None:
            return [f"{table} has nothing to analyze"]
        figures = f"{self.rows:,} rows ({size_text(self.size)}), {len(self.columns)} columns"
        return [
            (
                f"analyzed snapshot {self.base_snapshot} of {table}: {figures}; "
                f"snapshot {self.snapshot_id} holds the statistics"
            )
        ]


def plan_analysis(store: TableStore, columns: Sequence[str] | None = None) -> MaintenancePlan:
    """Plan the statistics of columns of the newest snapshot.

    Args:
        store: the table.
        columns: names of the columns, None for all columns whose type has statistics (:func:`can_be_analyzed`). With
            an empty list only rows are counted.

    Raises:
        ColumnNotFound: a column does not exist.
        UnsupportedFeature: the type of a named column has no statistics, or the table cannot be written.
    """
    require_writable(store)
    latest = snapshots.latest(store)
    if columns is None:
        chosen = [field for field in store.schema.fields if can_be_analyzed(field.type)]
    else:
        chosen = [_column(store, name) for name in dict.fromkeys(columns)]
    names = tuple(field.name for field in chosen)
    column_text = None if columns is None else ",".join(names)
    plan = MaintenancePlan.begin("analyze", store, None if latest is None else latest.id, {"columns": column_text})
    left = [field.name for field in store.schema.fields if columns is None and field.name not in names]
    declined = tuple(Declined(f"column {name}", "nested", f"{name} is of {_NESTED}") for name in left)
    if latest is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    size = pc.sum(manifests.live_entries(store, latest, columns=["file_size"]).column("file_size")).as_py() or 0
    cost = PlanEstimate(bytes_in=size, rows_in=latest.total_record_count, tasks=1)
    return replace(plan, items=(AnalyzeItem(latest.id, names, latest.time_millis),), declined=declined, estimate=cost)


def _column(store: TableStore, name: str) -> DataField:
    if not store.schema.has_field(name):
        raise ColumnNotFound(store.name, name, store.schema.field_names)
    field = store.schema.field(name)
    if not can_be_analyzed(field.type):
        raise UnsupportedFeature(f"statistics of column '{name}', which is of {_NESTED}", store.name)
    return field


def apply_analysis(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Read the planned snapshot once, batch by batch, and commit the statistics.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with an AnalyzeReport.

    Raises:
        PlanStale: the snapshot has expired, or a rollback removed it and a later commit has its id.
        ColumnNotFound: a planned column was dropped after planning.
        CommitConflict, CommitUnknown: the commit failed.
    """
    item = next(iter(plan.items_of(AnalyzeItem)), None)
    if item is None:
        return ApplyOutcome(AnalyzeReport(None, plan.base_snapshot, plan.hash, declined=plan.declined))
    require_writable(store)
    require_readable(store)
    fields = [_column(store, name) for name in item.names]
    try:
        snapshot = snapshots.read(store, item.snapshot_id)
        # If no column is analyzed, the first column is read to count the rows.
        names = list(item.names) or [store.schema.fields[0].name]
        scan = plan_version(Version(snapshot, store), columns=names, filter=None)
    except SnapshotNotFound as error:
        raise PlanStale(f"snapshot {item.snapshot_id} has expired", store.name) from error
    if item.time_ms not in (0, snapshot.time_millis):
        raise PlanStale(f"snapshot {snapshot.id} is another one since the table was rolled back", store.name)
    seen, rows = [ColumnValues(field.type) for field in fields], 0
    for batch in to_batches(scan.store, scan):
        rows += batch.num_rows
        for values, name in zip(seen, item.names, strict=True):
            values.add(batch.column(name))
    total = pc.sum(manifests.live_entries(store, snapshot, columns=["file_size"]).column("file_size")).as_py() or 0
    size = total * rows // snapshot.total_record_count if snapshot.total_record_count else 0
    by_column = {field.name: values.statistics(field.id) for field, values in zip(fields, seen, strict=True)}
    # Other engines parse minima and maxima by the types of the referenced schema.
    statistics = Statistics(snapshot.id, store.schema.id, rows, size, by_column)
    done = Committer(store).commit_statistics(statistics, properties={PLAN_PROPERTY: plan.hash})
    report = AnalyzeReport(
        done.snapshot_id, plan.base_snapshot, plan.hash, rows, size, item.names, declined=plan.declined
    )
    return ApplyOutcome(report, [{"event": "analyzed", "snapshot": snapshot.id, "rows": rows, "bytes": size}])


WORK: Final = ActionWork(plan_analysis, apply_analysis, AnalyzeReport, (AnalyzeItem,), commits=True)
