"""A table as a DataFrame: files that need no merge go to Spark's own Parquet reader, the rest through Dredge's merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lsm_core.files.formats import open_source
from lsm_core.metadata.row_tracking import stores_row_ids, with_row_ids
from lsm_core.metadata.store import TableStore
from lsm_core.read import Scan, Split, plan_scan, read_split
from lsm_core.read.changes import Choice, Span, span_of_options, span_parts, span_values
from lsm_core.spark.spark_columns import fields_of, quoted, spark_arrow_schema, spark_ddl, to_spark
from lsm_core.spark.spark_tasks import shipped, store_of, translated, use_this_python
from lsm_core.storage import place_of
from lsm_core.table.system.reader import ReadOnlyTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_BATCH_ROWS = 65_536


def read_table(
    spark: SparkSession,
    table: Any,
    *,
    columns: Sequence[str] | None = None,
    filter: object = None,  # noqa: A002  (the public name, engine.md)
    snapshot_id: int | None = None,
) -> DataFrame:
    """Return the merged rows of ``table`` at one snapshot (default: the latest, fixed at this call) as a DataFrame.

    Columns come in table order or as asked for; timestamps as TIMESTAMP_NTZ (LTZ: TIMESTAMP). ``filter`` (as in `Table.to_arrow`) keeps
    the rows for which it is true and prunes files; then all files go through Dredge. Options of the table that ask for another
    version or for changes (`Table.copy`) are obeyed. Of an append table that tracks rows `_ROW_ID` and `_SEQUENCE_NUMBER` may be named, too. Only metadata is read here. A system table is read by one task.
    Raises UnsupportedFeature, SnapshotNotFound, ColumnNotFound, InvalidFilter, CorruptFile (a missing file), SparkFailed.
    """
    use_this_python(spark)
    if isinstance(table, ReadOnlyTable):
        return _system_rows(spark, table, columns, filter, snapshot_id)
    store = store_of(table)
    span = span_of_options(store) if snapshot_id is None else None
    if span is not None:
        return _changes(spark, Choice.of(store, columns, filter), span)
    scan = plan_scan(store, snapshot_id=snapshot_id, columns=columns, filter=filter)
    store = scan.store
    ddl = spark_ddl(fields_of(store.schema, scan.columns, store.name), store.name)
    what = f"reading table {store.name}"
    with translated(what):
        if scan.snapshot is None:
            return spark.createDataFrame([], ddl)
        # Spark's own reader may know nothing of the store, or need its keys said another way.
        plain = scan.filter is None and not place_of(store.root)
        raw = [split for split in scan.splits if plain and _as_stored(store, split)]
        known = set(map(id, raw))
        rest = [split for split in scan.splits if id(split) not in known]
        frames: list[DataFrame] = []
        if raw:
            paths = [store.data_path(split.partition, split.bucket, file) for split in raw for file in split.files]
            frames.append(parquet(spark, paths, ddl).select(*map(quoted, scan.columns)))
        if rest:
            frames.append(_merged(spark, store, scan, rest, ddl))
        if not frames:
            return spark.createDataFrame([], ddl)
        return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])


def _system_rows(
    spark: SparkSession,
    table: ReadOnlyTable,
    columns: Sequence[str] | None,
    filter: object,  # noqa: A002
    snapshot_id: int | None,
) -> DataFrame:
    """The rows of a system table, made by one task."""
    fields = fields_of(table.schema_at(snapshot_id), columns, table.name)
    target = spark_arrow_schema(fields, table.name)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                for rows in table.to_batches(columns, filter, snapshot_id=snapshot_id):
                    yield to_spark(rows, target)

    with translated(f"reading table {table.name}"):
        return spark.range(0, 1, 1, 1).mapInArrow(shipped(run), spark_ddl(fields, table.name))


def _changes(spark: SparkSession, choice: Choice, span: Span) -> DataFrame:
    """The changed rows of a span without their kinds, a task a snapshot (a comparison is one task)."""
    ddl = spark_ddl(fields_of(choice.store.schema, choice.columns, choice.store.name), choice.store.name)
    store_text, names, predicate = choice.store.to_json(), choice.columns, choice.predicate

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = TableStore.from_json(store_text)
        choice = Choice.of(store, names, predicate)
        target = spark_arrow_schema(fields_of(store.schema, names, store.name), store.name)
        whole = span_of_options(store)
        assert whole is not None
        for batch in batches:
            for place in range(batch.num_rows):  # one per snapshot
                start, end = (batch.column(name)[place].as_py() for name in ("start", "end"))
                for rows in span_values(choice, replace(whole, start=start, end=end)):
                    yield to_spark(rows, target)

    parts = span_parts(span)
    with translated(f"reading changes of table {choice.store.name}"):
        if not parts:
            return spark.createDataFrame([], ddl)
        columns = [
            pa.array(range(len(parts)), pa.int32()),
            pa.array([one.start for one in parts], pa.int64()),
            pa.array([one.end for one in parts], pa.int64()),
        ]
        listed = spark.createDataFrame(pa.table(columns, names=["task", "start", "end"])).repartitionById(
            len(parts), "task"
        )
        return listed.mapInArrow(shipped(run), ddl)


def _as_stored(store: TableStore, split: Split) -> bool:
    """Whether Spark's own reader gives the split's rows: Parquet files of today's schema in which no row is deleted."""
    return (
        split.raw
        and not stores_row_ids(store.schema)  # metadata know them, as a rule the file does not
        and not any(split.deletions)
        and all(f.schema_id == store.schema.id and f.file_name.endswith(".parquet") for f in split.files)
    )


def parquet(spark: SparkSession, paths: Sequence[str], ddl: str) -> DataFrame:
    """Return the rows of Parquet files, columns as in ``ddl``.

    Paths are taken literally (a partition value may hold what Spark would read as a pattern), and directory names are not read as
    partition columns: the files hold them.
    """
    return spark.read.schema(ddl).option("__globPaths__", "false").parquet(*paths)


def stored_rows(spark: SparkSession, store: TableStore, paths: Sequence[str], fields: pa.Schema, ddl: str) -> DataFrame:
    """Return the rows of data files as they are stored, unmerged, and the name of each one's file in `__dredge_file`.

    ``fields`` and ``ddl`` tell the same columns. Spark reads files of this machine itself; those of an object store are opened, one by a
    task, as Dredge opens them.
    """
    if not place_of(store.root):
        return parquet(spark, paths, ddl).selectExpr("*", "_metadata.file_name AS __dredge_file")
    store_text = store.to_json()
    target = fields.append(pa.field("__dredge_file", pa.string()))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        file_io = TableStore.from_json(store_text).file_io
        for path in (path for batch in batches for path in batch.column("path").to_pylist()):  # one a file
            source = open_source(file_io, path)
            try:
                names = [name for name in target.names if name in source.schema.names]
                for rows in source.batches(names, _BATCH_ROWS):
                    count = rows.num_rows
                    columns = [
                        rows.column(name) if name in names else pa.nulls(count, target.field(name).type)
                        for name in target.names[:-1]
                    ]
                    columns.append(pa.array([path.rpartition("/")[2]]).take(pa.array(np.zeros(count, np.int32))))
                    yield to_spark(pa.RecordBatch.from_arrays(columns, names=target.names), target)
            finally:
                source.close()

    listed = pa.table([pa.array(range(len(paths)), pa.int32()), pa.array(paths, pa.string())], names=["task", "path"])
    spread = spark.createDataFrame(listed).repartitionById(max(len(paths), 1), "task")
    return spread.mapInArrow(shipped(run), f"{ddl}, __dredge_file STRING")


def _merged(spark: SparkSession, store: TableStore, scan: Scan, splits: Sequence[Split], ddl: str) -> DataFrame:
    """The rows of splits, each merged (or read) by one task; starting tasks costs less than planning a data source."""
    store_text, columns, predicate = store.to_json(), scan.columns, scan.filter
    tracked = stores_row_ids(store.schema)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = TableStore.from_json(store_text)
        store = with_row_ids(store) if tracked else store
        target = spark_arrow_schema(fields_of(store.schema, columns, store.name), store.name)
        for batch in batches:
            for place in range(batch.num_rows):  # one per split
                split = Split.from_bytes(batch.column("split")[place].as_py())
                for rows in read_split(store, split, columns, predicate):
                    yield to_spark(rows, target)

    rows = [pa.array(range(len(splits)), pa.int32()), pa.array([split.to_bytes() for split in splits], pa.binary())]
    listed = spark.createDataFrame(pa.table(rows, names=["task", "split"])).repartitionById(len(splits), "task")
    return listed.mapInArrow(shipped(run), ddl)


__all__ = ["parquet", "read_table", "stored_rows"]
