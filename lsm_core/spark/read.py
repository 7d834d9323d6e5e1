"""A table as a DataFrame: files that need no merge go to Spark's own Parquet reader, the rest through Dredge's merge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lsm_core.metadata.store import TableStore
from lsm_core.read import Scan, plan_scan
from lsm_core.spark.jobs import spark_ddl, store_of, translated
from lsm_core.spark.jobs.columns import fields_of
from lsm_core.spark.source import FORMAT, SPLITS_OPTION, STORE_OPTION, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GLOB: Final = frozenset("*?[]{}\\")


def read_table(
    spark: SparkSession, table: Any, *, columns: Sequence[str] | None = None, snapshot_id: int | None = None
) -> DataFrame:
    """Return the merged rows of ``table`` at one snapshot (default: the latest, fixed at this call) as a DataFrame.

    Columns come in table order or as asked for; timestamps as TIMESTAMP_NTZ (LTZ: TIMESTAMP). Only metadata is read here.
    Raises UnsupportedFeature, SnapshotNotFound, ColumnNotFound, CorruptFile (a missing file), SparkFailed.
    """
    store = store_of(table)
    scan = plan_scan(store, snapshot_id=snapshot_id, columns=columns)
    ddl = spark_ddl(fields_of(store.schema, scan.columns, store.name), store.name)
    what = f"reading table {store.name}"
    with translated(what):
        if scan.snapshot is None:
            return spark.createDataFrame([], ddl)
        raw = _raw_paths(store, scan)
        frames: list[DataFrame] = []
        if raw is not None and raw:
            frames.append(parquet(spark, raw, ddl).select(*_quoted(scan.columns)))
        if raw is None or any(not split.raw for split in scan.splits):
            frames.append(_through_source(spark, store, scan, "all" if raw is None else "merged"))
        if not frames:
            return spark.createDataFrame([], ddl)
        return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])


def parquet(spark: SparkSession, paths: Sequence[str], ddl: str) -> DataFrame:
    """Return the rows of Parquet files, columns as in ``ddl``; directory names are not read as partition columns."""
    return spark.read.schema(ddl).parquet(*paths)


def _raw_paths(store: TableStore, scan: Scan) -> list[str] | None:
    """Return the files of raw splits; ``None`` when a name would be a pattern to Spark (then Dredge reads them all)."""
    paths = [store.data_path(s.partition, s.bucket, file) for s in scan.splits if s.raw for file in s.files]
    return None if any(_GLOB & set(path) for path in paths) else paths


def _through_source(spark: SparkSession, store: TableStore, scan: Scan, splits: str) -> DataFrame:
    register(spark)
    reader = spark.read.format(FORMAT).option(STORE_OPTION, store.to_json()).option(SPLITS_OPTION, splits)
    if scan.snapshot is not None:
        reader = reader.option("snapshot-id", str(scan.snapshot.id))
    return reader.option("columns", json.dumps(scan.columns)).load()


def _quoted(columns: Sequence[str]) -> list[str]:
    return ["`" + name.replace("`", "``") + "`" for name in columns]


__all__ = ["parquet", "read_table"]
