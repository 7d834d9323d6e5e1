"""Write a DataFrame into a table: route rows by a vectorised kernel, one shuffle by (partition, bucket), a writer per group, one commit."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import CommitMessage, Committer, abort, discard_on_failure
from lsm_core.errors import ColumnNotFound
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_writable
from lsm_core.spark.jobs import Outcome, shipped, spark_arrow_schema, spark_ddl, store_of, to_spark, translated
from lsm_core.spark.jobs.failures import BatchFunction
from lsm_core.spark.jobs.tasks import ANSWER_DDL, answer, collect, failure
from lsm_core.spark.sink import MODE_OF_SESSION, overwrite_scope
from lsm_core.types import kinds_from_text
from lsm_core.write import TableWrite
from lsm_core.write.bucket import route
from lsm_core.write.rows import RowNumbering, conform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KIND: Final = "__dredge_kind"
_PARTITION: Final = "__dredge_partition"
_BUCKET: Final = "__dredge_bucket"
_ORDER: Final = "__dredge_order"
_SLOT: Final = "__dredge_slot"
_ROUTING: Final = pa.schema(
    [
        (_KIND, pa.int8()),
        (_PARTITION, pa.binary()),
        (_BUCKET, pa.int32()),
        (_ORDER, pa.int64()),
        (_SLOT, pa.int32()),
    ]
)
_ROUTING_DDL: Final = f"{_KIND} TINYINT, {_PARTITION} BINARY, {_BUCKET} INT, {_ORDER} BIGINT, {_SLOT} INT"
_TASK_SHIFT: Final = 40  # a row's order = Spark task, then its place in it (below 2^40 rows a task)


def write_table(
    df: DataFrame,
    table: Any,
    *,
    row_kind_column: str | None = None,
    overwrite: bool | Mapping[str, Any] | None = None,
) -> int | None:
    """Write ``df`` as one commit and return its snapshot id (None: there was nothing to write).

    Columns are matched by name; missing ones take their default or null. ``row_kind_column`` names a column of ``df`` with "+I" "-U"
    "+U" "-D" per row. ``overwrite``: True or ``{}`` replaces the partitions that get rows (all of an unpartitioned table, or where
    option `dynamic-partition-overwrite` is false and `spark.sql.sources.partitionOverwriteMode` static), a mapping the partitions with these values. Rows of one key count in the order of ``df`` (its partitions one after
    the other), so a retry writes the same. The driver sees commit messages only.

    Raises InvalidData, ColumnNotFound, UnsupportedFeature, CommitConflict and SparkFailed after which nothing is committed and
    what finished tasks wrote is deleted (a killed worker leaves files that no snapshot names); CommitUnknown: nothing is deleted.
    """
    store = store_of(table)
    require_writable(store)
    names = [name for name in df.columns if name != row_kind_column]
    for name in names:
        if not store.schema.has_field(name):
            raise ColumnNotFound(store.name, name, store.schema.field_names)
    if row_kind_column is not None and row_kind_column not in df.columns:
        raise ColumnNotFound(store.name, row_kind_column, df.columns)
    what = f"writing table {store.name}"
    replaces = overwrite is not None and overwrite is not False
    with translated(what):
        routed = _routed(df, store, row_kind_column)
        outcomes = collect(routed.mapInArrow(shipped(_writer(store.to_json(), replaces)), ANSWER_DDL), what)
    return _commit(store, outcomes, overwrite, str(df.sparkSession.conf.get(MODE_OF_SESSION)))


def messages_of(store: TableStore, outcomes: Sequence[Outcome]) -> list[CommitMessage]:
    """Return the tasks' messages; when a task failed, delete what the others wrote and raise its error."""
    messages = [CommitMessage.from_bytes(outcome.answer) for outcome in outcomes if outcome.error is None]
    failed = next((outcome.error for outcome in outcomes if outcome.error is not None), None)
    if failed is not None:
        abort(store, messages)
        raise failed
    return messages


def _commit(
    store: TableStore, outcomes: Sequence[Outcome], overwrite: bool | Mapping[str, Any] | None, mode: str
) -> int | None:
    messages = messages_of(store, outcomes)
    committer = Committer(store)
    with discard_on_failure(store, messages):
        if overwrite is None or overwrite is False:
            return committer.commit(messages).snapshot_id
        spec = overwrite if isinstance(overwrite, Mapping) and overwrite else overwrite_scope(store, mode)
        return committer.overwrite(messages, spec).snapshot_id


def _routed(df: DataFrame, store: TableStore, kind_column: str | None) -> DataFrame:
    """The rows with their routing columns, every group of one (partition, bucket) whole in one task and in arrival order."""
    slots = _slots(df, store)
    ddl = f"{_ROUTING_DDL}, {spark_ddl(store.schema.fields, store.name)}"
    rows = df.mapInArrow(shipped(_router(store.to_json(), kind_column, slots)), ddl)
    if store.options.bucket < 1:
        return rows  # tables without buckets: any task may write any row
    return rows.repartitionById(slots, _SLOT).sortWithinPartitions(_PARTITION, _BUCKET, _ORDER)


def _slots(df: DataFrame, store: TableStore) -> int:
    """Writer tasks: one per bucket; for partitioned tables about `spark.sql.shuffle.partitions`, buckets kept apart."""
    buckets = max(1, store.options.bucket)
    if not store.schema.partition_keys:
        return buckets
    wanted = int(str(df.sparkSession.conf.get("spark.sql.shuffle.partitions", "8")))
    return buckets * max(1, -(-wanted // buckets))


def _router(store_text: str, kind_column: str | None, slots: int) -> BatchFunction:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = TableStore.from_json(store_text)
        values = spark_arrow_schema(store.schema.fields, store.name)
        schema = pa.schema([*_ROUTING, *values])
        task = _task_number()
        first, seen = task << _TASK_SHIFT, 0
        for batch in batches:
            given = RowNumbering(seen, f"partition {task} of the DataFrame")
            data, kinds = _split_kinds(batch, kind_column, store.name, given)
            rows = conform(data, store.schema, store.name, given)
            partition, bucket = route(store, rows)
            order = pa.array(np.arange(first + seen, first + seen + rows.num_rows, dtype=np.int64))
            slot = _slot(partition, bucket, slots, max(1, store.options.bucket))
            plain = to_spark(rows, values)
            yield pa.RecordBatch.from_arrays([kinds, partition, bucket, order, slot, *plain.columns], schema=schema)
            seen += rows.num_rows

    return run


def _split_kinds(
    batch: pa.RecordBatch, kind_column: str | None, table: str, given: RowNumbering
) -> tuple[pa.Table, pa.Array]:
    data = pa.Table.from_batches([batch])
    if kind_column is None:
        return data, pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows)
    kinds = kinds_from_text(batch.column(kind_column), table, kind_column, given.row)
    return data.drop_columns([kind_column]), kinds


def _slot(partition: pa.Array, bucket: pa.Array, slots: int, buckets: int) -> pa.Array:
    """The writer task of every row: buckets of one partition never share a task."""
    encoded = partition.dictionary_encode()
    lanes = slots // buckets
    lane = np.array(
        [zlib.crc32(encoded.dictionary[i].as_py()) % lanes for i in range(len(encoded.dictionary))], dtype=np.int32
    )
    numbers = lane[np.asarray(encoded.indices)] if len(lane) else np.zeros(0, np.int32)
    return pa.array(numbers * np.int32(buckets) + np.asarray(bucket), pa.int32())


def _writer(store_text: str, overwrite: bool) -> BatchFunction:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = TableStore.from_json(store_text)
        task = _task_number()
        write = TableWrite(store, overwrite=overwrite)
        done: list[CommitMessage] = []
        try:
            current: tuple[bytes, int] | None = None
            for place, rows, kinds in _groups(batches):
                if current is not None and place != current and store.options.bucket >= 1:
                    done += write.prepare_commit()  # rows are clustered: this group is complete, its memory can go
                    write = TableWrite(store, overwrite=overwrite)
                current = place
                write.write_bucket(*place, rows, kinds)
            done += write.prepare_commit()
        except Exception as error:  # noqa: BLE001  (an outcome: the driver then cleans up after all tasks)
            write.abort()
            abort(store, done)
            yield failure(task, error)
        except BaseException:
            write.abort()
            abort(store, done)
            raise
        else:
            for message in done:
                yield answer(task, message.to_bytes())

    return run


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[tuple[bytes, int], pa.Table, pa.Array]]:
    """Stretches of equal (partition, bucket): value columns and row kinds."""
    for batch in batches:
        if not batch.num_rows:
            continue
        partition, bucket = batch.column(_PARTITION), batch.column(_BUCKET)
        new = pc.or_(pc.not_equal(partition[1:], partition[:-1]), pc.not_equal(bucket[1:], bucket[:-1]))
        starts = np.r_[0, np.flatnonzero(np.asarray(new)) + 1]
        values = pa.Table.from_batches([batch]).drop_columns(_ROUTING.names)
        for start, end in zip(starts, np.r_[starts[1:], batch.num_rows], strict=True):
            place = partition[int(start)].as_py(), bucket[int(start)].as_py()
            count = int(end - start)
            yield place, values.slice(int(start), count), batch.column(_KIND).slice(int(start), count)


def _task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return int(context.partitionId()) if context is not None else 0


__all__ = ["messages_of", "write_table"]
