"""A table as a DataFrame: files that need no merge go to Spark's own Parquet reader, the rest through Dredge's merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lsm_core.metadata.store import TableStore
from lsm_core.read import Predicate, Scan, Split, plan_scan, read_split
from lsm_core.spark.jobs import shipped, spark_arrow_schema, spark_ddl, store_of, to_spark, translated
from lsm_core.spark.jobs.columns import fields_of, quoted
from lsm_core.spark.jobs.failures import BatchFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(
    spark: SparkSession,
    table: Any,
    *,
    columns: Sequence[str] | None = None,
    filter: object = None,  # noqa: A002  (the public name, api.md)
    snapshot_id: int | None = None,
) -> DataFrame:
    """Return the merged rows of ``table`` at one snapshot (default: the latest, fixed at this call) as a DataFrame.

    Columns come in table order or as asked for; timestamps as TIMESTAMP_NTZ (LTZ: TIMESTAMP). ``filter`` (as in `Table.to_arrow`) keeps
    the rows for which it is true and prunes files; then all files go through Dredge. Only metadata is read here.
    Raises UnsupportedFeature, SnapshotNotFound, ColumnNotFound, InvalidFilter, CorruptFile (a missing file), SparkFailed.
    """
    store = store_of(table)
    scan = plan_scan(store, snapshot_id=snapshot_id, columns=columns, filter=filter)
    store = scan.store
    ddl = spark_ddl(fields_of(store.schema, scan.columns, store.name), store.name)
    what = f"reading table {store.name}"
    with translated(what):
        if scan.snapshot is None:
            return spark.createDataFrame([], ddl)
        raw = [split for split in scan.splits if scan.filter is None and _as_stored(store, split)]
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


def _as_stored(store: TableStore, split: Split) -> bool:
    """Whether Spark's own reader gives the split's rows: Parquet files of today's schema in which no row is deleted."""
    return (
        split.raw
        and not any(split.deletions)
        and all(f.schema_id == store.schema.id and f.file_name.endswith(".parquet") for f in split.files)
    )


def parquet(spark: SparkSession, paths: Sequence[str], ddl: str) -> DataFrame:
    """Return the rows of Parquet files, columns as in ``ddl``.

    Paths are taken literally (a partition value may hold what Spark would read as a pattern), and directory names are not read as
    partition columns: the files hold them.
    """
    return spark.read.schema(ddl).option("__globPaths__", "false").parquet(*paths)


def _merged(spark: SparkSession, store: TableStore, scan: Scan, splits: Sequence[Split], ddl: str) -> DataFrame:
    """The rows of splits, each merged (or read) by one task; starting tasks costs less than planning a data source."""
    rows = [pa.array(range(len(splits)), pa.int32()), pa.array([split.to_bytes() for split in splits], pa.binary())]
    listed = spark.createDataFrame(pa.table(rows, names=["task", "split"])).repartitionById(len(splits), "task")
    return listed.mapInArrow(shipped(_reader(store.to_json(), scan.columns, scan.filter)), ddl)


def _reader(store_text: str, columns: Sequence[str], predicate: Predicate | None) -> BatchFunction:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = TableStore.from_json(store_text)
        target = spark_arrow_schema(fields_of(store.schema, columns, store.name), store.name)
        for batch in batches:
            for place in range(batch.num_rows):  # one per split
                split = Split.from_bytes(batch.column("split")[place].as_py())
                for rows in read_split(store, split, columns, predicate):
                    yield to_spark(rows, target)

    return run


__all__ = ["parquet", "read_table"]
