"""The reader half of the data source `dredge`: the driver plans what each task reads, tasks read splits, changes or the rows of a system table.

Of the conditions of a query `PushingReader` takes those that Dredge tests as Spark does (see `data_source`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from lsm_core.errors import InvalidOption
from lsm_core.format.schema import TableSchema
from lsm_core.metadata.row_tracking import with_row_ids
from lsm_core.metadata.store import TableStore
from lsm_core.read import Split, parse_filter, plan_scan, read_split
from lsm_core.read.changes import Choice, span_of_options, span_parts, span_values
from lsm_core.spark.spark_columns import fields_of, spark_arrow_schema, to_spark
from lsm_core.spark.spark_read import EXACT_TYPES, packed

if TYPE_CHECKING:
    from lsm_core.table.system.reader import ReadOnlyTable


class SplitPartition(InputPartition):
    """Splits of the scan that one task reads, as bytes; none for an empty table."""

    def __init__(self, splits: tuple[bytes, ...] = ()) -> None:
        super().__init__(splits)


class SpanPartition(InputPartition):
    """A share of the changes that the options ask for: after one snapshot, up to and with another."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__((start, end))


class TableReader(DataSourceReader):
    """Reads one snapshot: a Spark partition for some splits (`packed`), Arrow batches out; with a limit one partition that stops there."""

    def __init__(
        self,
        store: TableStore,
        columns: Sequence[str],
        filter: list[Any] | None = None,  # noqa: A002
        *,
        snapshot_id: int | None = None,
        limit: int | None = None,
        tracked: bool = False,
    ) -> None:
        """``tracked``: columns or filter name those of row tracking."""
        # Spark ships this object to the tasks before it asks for partitions: all that `read` needs is known here.
        self._columns, self._filter, self._tracked = columns, filter, tracked
        self._snapshot_id, self._limit = snapshot_id, limit
        self._store_text = store.to_json()

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read: one partition per split, or per snapshot where changes are read."""
        store = TableStore.from_json(self._store_text)
        span = span_of_options(store) if self._snapshot_id is None else None
        if span is not None:
            Choice.of(store, self._columns, self._filter)
            if self._limit is not None:
                raise InvalidOption("limit", self._limit, "nothing where changes are read", store.name)
            return [SpanPartition(one.start, one.end) for one in span_parts(span)] or [SplitPartition()]
        scan = plan_scan(
            store, snapshot_id=self._snapshot_id, columns=self._columns, filter=self._filter, limit=self._limit
        )
        tasks = packed(scan.splits, os.cpu_count() or 1, scan.store.options) if self._limit is None else [scan.splits]
        found = [SplitPartition(tuple(split.to_bytes() for split in splits)) for splits in tasks if splits]
        return found or [SplitPartition()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition in the Arrow types of `TableSource.schema`, filters applied."""
        store = TableStore.from_json(self._store_text)
        store = with_row_ids(store) if self._tracked else store
        target = spark_arrow_schema(fields_of(store.schema, self._columns, store.name), store.name)
        if isinstance(partition, SpanPartition):
            whole, (start, end) = span_of_options(store), partition.value
            assert whole is not None
            choice = Choice.of(store, self._columns, self._filter)
            for batch in span_values(choice, replace(whole, start=start, end=end)):
                yield from to_spark(batch, target)
            return
        predicate = parse_filter(self._filter, store.schema, store.name)
        left = self._limit
        for data in partition.value:
            if left is not None and left <= 0:
                return
            for batch in read_split(store, Split.from_bytes(data), self._columns, predicate):
                yield from to_spark(batch if left is None else batch.slice(0, left), target)
                left = None if left is None else left - batch.num_rows
                if left is not None and left <= 0:
                    return


class PushingReader(TableReader):
    """Takes the conditions of the query that Dredge tests as Spark does; the others stay Spark's.

    Spark raises an error of its own unless `spark.sql.python.filterPushdown.enabled` is true.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Keep the conditions that can be tested here, and yield those that cannot."""
        schema = TableStore.from_json(self._store_text).schema
        taken: list[tuple[str, str, Any]] = []
        for one in filters:
            test = spark_test(one, schema)
            if test is None:
                yield one
            else:
                taken.append(test)
        if taken:
            given = self._filter or [[]]
            groups = given if isinstance(given[0], list) else [given]
            self._filter = [[*group, *taken] for group in groups]


class SystemTableReader(DataSourceReader):
    """Reads a system table ("db.t$files", "sys.tables"): one Spark partition, as its rows are made of metadata."""

    def __init__(
        self,
        table: ReadOnlyTable,
        columns: Sequence[str] | None,
        filter: list[Any] | None,  # noqa: A002
        snapshot_id: int | None,
    ) -> None:
        self._table, self._columns, self._filter, self._snapshot_id = table, columns, filter, snapshot_id

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the Arrow types of `TableSource.schema`, filter applied."""
        del partition
        table, snapshot_id = self._table, self._snapshot_id
        target = spark_arrow_schema(fields_of(table.schema_at(snapshot_id), self._columns, table.name), table.name)
        for batch in table.to_batches(self._columns, self._filter, snapshot_id=snapshot_id):
            yield from to_spark(batch, target)


_COMPARISONS: Final[Mapping[type[Filter], str]] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
    StringStartsWith: "starts with",
}


def spark_test(given: Filter, schema: TableSchema) -> tuple[str, str, Any] | None:
    """A condition of Spark's as one test of a filter; None where Spark compares otherwise, or may (`EXACT_TYPES`)."""
    if isinstance(given, Not):
        child = given.child
        return (
            (child.attribute[0], "is not null", None) if isinstance(child, IsNull) and _is_own(child, schema) else None
        )
    if not _is_own(given, schema):
        return None
    column = given.attribute[0]
    if isinstance(given, IsNull | IsNotNull):
        return column, "is null" if isinstance(given, IsNull) else "is not null", None
    operator = _COMPARISONS.get(type(given))
    if operator is None or schema.field(column).type.root not in EXACT_TYPES:
        return None
    values = list(given.value) if isinstance(given, In) else [given.value]
    if not values or any(not isinstance(one, int | str | date) or isinstance(one, bool | datetime) for one in values):
        return None
    return column, operator, values if isinstance(given, In) else values[0]


def _is_own(given: Any, schema: TableSchema) -> bool:
    """Whether the condition is on a column, not on a part of one."""
    path: tuple[str, ...] = getattr(given, "attribute", ())
    return len(path) == 1 and schema.has_field(path[0])


__all__ = ["PushingReader", "SystemTableReader", "TableReader", "spark_test"]
