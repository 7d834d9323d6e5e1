"""Reader of the data source `dredge`: the driver plans partitions, and tasks read splits, changes or system tables."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lsm_core.errors import DredgeError, InvalidOption, SparkFailed
from lsm_core.metadata.manifests import with_row_ids
from lsm_core.metadata.store import TableStore
from lsm_core.read import Split, parse_filter, read_split
from lsm_core.read.changes import Choice, span_of_options, span_parts, span_values
from lsm_core.read.fallback import plan_read
from lsm_core.read.read_tags import protected
from lsm_core.read.split_ranges import cut_for_workers
from lsm_core.spark.spark_columns import fields_of, spark_arrow_schema, to_spark
from lsm_core.spark.spark_read import pack_splits, require_kept
from lsm_core.spark.spark_tasks import OfOneRelease, Shipped, note_error, python_of, raises_typed_errors, typed_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lsm_core.table.system.reader import ReadOnlyTable


class SplitPartition(InputPartition):
    """Splits that one task reads, as bytes (none for an empty table), and the id of the planned snapshot."""

    def __init__(self, splits: tuple[bytes, ...] = (), snapshot_id: int | None = None) -> None:
        super().__init__((splits, snapshot_id))


class SpanPartition(InputPartition):
    """Part of the requested changes: the changes after snapshot ``start``, up to and including snapshot ``end``."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__((start, end))


class TableReader(OfOneRelease, DataSourceReader):
    """Reader of one snapshot as Arrow batches, with several splits per Spark partition (`pack_splits`).

    With a limit, one partition reads up to the limit.
    """

    def __init__(
        self,
        store: TableStore,
        columns: Sequence[str],
        filter: list[Any] | str | None = None,  # noqa: A002
        *,
        snapshot_id: int | None = None,
        limit: int | None = None,
        tracked: bool = False,
    ) -> None:
        """Prepare the read.

        Args:
            store: The table.
            columns: Columns to read.
            filter: Conditions on the rows, or None.
            snapshot_id: Snapshot to read. None for the version or the changes that the table's options choose, by
                default the newest snapshot.
            limit: Maximum number of rows; None for all.
            tracked: Whether ``columns`` or ``filter`` contains a column of row tracking, such as `_ROW_ID`.
        """
        # Spark ships this object to the tasks before it asks for partitions: all that `read` needs is known here.
        self._columns, self._filter, self._tracked = columns, filter, tracked
        self._snapshot_id, self._limit = snapshot_id, limit
        self._store_text = store.to_json()

    @raises_typed_errors
    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read: partitions of splits, or one per snapshot if changes are read."""
        store = TableStore.from_json(self._store_text)
        span = span_of_options(store) if self._snapshot_id is None else None
        if span is not None:
            Choice.of(store, self._columns, self._filter)
            if self._limit is not None:
                raise InvalidOption("limit", self._limit, "nothing where changes are read", store.name)
            return [SpanPartition(part.start, part.end) for part in span_parts(span)] or [SplitPartition()]
        scan = plan_read(
            store, snapshot_id=self._snapshot_id, columns=self._columns, filter=self._filter, limit=self._limit
        )
        scan = protected(scan)
        slots = os.cpu_count() or 1
        tasks = [list(scan.splits)]
        if self._limit is None:
            tasks = pack_splits(cut_for_workers(scan.store, scan.splits, slots), slots, scan.store.options)
        number = None if scan.snapshot is None else scan.snapshot.id
        partitions = [SplitPartition(tuple(split.to_bytes() for split in splits), number) for splits in tasks if splits]
        return partitions or [SplitPartition()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition in the Arrow types of `TableSource.schema`, filters applied.

        Raises:
            SnapshotNotFound: The snapshot on which the frame was planned has expired.
            CorruptFile: A file is missing or damaged.
        """
        try:
            yield from self._read(partition)
        except DredgeError as error:
            note_error(error)
            raise

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
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
        splits, number = partition.value
        require_kept(store, number)
        for data in splits:
            if left is not None and left <= 0:
                return
            for batch in read_split(store, Split.from_bytes(data), self._columns, predicate):
                yield from to_spark(batch if left is None else batch.slice(0, left), target)
                left = None if left is None else left - batch.num_rows
                if left is not None and left <= 0:
                    return


class SystemTableReader(OfOneRelease, DataSourceReader):
    """Reader of a system table ("db.t$files", "sys.tables") as one Spark partition, computed from metadata."""

    def __init__(
        self,
        table: ReadOnlyTable,
        columns: Sequence[str] | None,
        filter: list[Any] | str | None,  # noqa: A002
        snapshot_id: int | None,
    ) -> None:
        self._table, self._columns, self._filter, self._snapshot_id = table, columns, filter, snapshot_id

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the Arrow types of `TableSource.schema`, filter applied."""
        del partition
        try:
            yield from self._read()
        except DredgeError as error:
            note_error(error)
            raise

    def _read(self) -> Iterator[pa.RecordBatch]:
        table, snapshot_id = self._table, self._snapshot_id
        target = spark_arrow_schema(fields_of(table.schema_at(snapshot_id), self._columns, table.name), table.name)
        for batch in table.to_batches(self._columns, self._filter, snapshot_id=snapshot_id):
            yield from to_spark(batch, target)


def require_workers(session: SparkSession) -> None:
    """Run one task that imports this module, as the tasks of the data source do.

    Raises:
        SparkFailed: The workers cannot import this module, or have a different version of Dredge. The error names the
            workers' Python and the missing package.
    """
    try:
        session.range(0, 1, 1, 1).mapInArrow(Shipped(_pass_on), "id BIGINT").collect()
    except Exception as error:
        own_error = typed_error(error, "")
        if isinstance(own_error, SparkFailed) and own_error.operation == "comparing versions":
            raise own_error from error
        lines = re.findall(r"^\s*(?:\[?\w+(?:Error|Exception|MISMATCH)\b.*)$", str(error), re.MULTILINE)
        cause = lines[-1].strip() if lines else "it did not start"
        python = python_of(session) or "the server's"
        advice = (
            f"set PYSPARK_PYTHON to a Python that has dredge[spark] (such as {sys.executable}) "
            "before the session is made"
        )
        reason = f"the Python of Spark's workers ({python}) cannot use it: {cause}; {advice}"
        raise SparkFailed("registering the data source dredge", reason) from error


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
