"""Reading through Spark: a compacted table against Spark's own reader of the same files, and merged reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness import Result, alternate
from bench.table_life import scratch
from lsm_core import Catalog, Schema, Table

COMMITS, ROWS, BUCKETS = 10, 200_000, 4
FIELDS = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), *((f"v{n}", pa.float64()) for n in range(7)), ("s", pa.string())]
)
MOST_SLOWER = 1.10


def run(wanted: int | None, rounds: int) -> list[Result]:
    """Measure seconds to a sink that drops rows: `read_table`, the format, and Spark's `parquet` on the same files."""
    from lsm_core.spark import read_table, spark_session, stop_session
    from lsm_core.spark.spark_columns import spark_ddl

    with scratch() as folder:
        merged, table = (_table(folder / name, wanted or ROWS) for name in ("merged", "compacted"))
        table.compact(full=True)
        snapshot = table.latest_snapshot()
        assert snapshot is not None
        paths = [
            table.store.data_path(split.partition, split.bucket, file)
            for split in table.plan_scan()
            for file in split.files
        ]
        spark = spark_session(app_name="dredge-bench", conf={"spark.sql.warehouse.dir": str(folder / "spark")})
        stored = spark_ddl(table.schema.fields, table.name)  # with a schema, Spark reads no file to infer one
        place = {"warehouse": str(folder / "compacted"), "table": "db.t"}
        ways: dict[str, Callable[[], Any]] = {
            "Spark's own parquet reader": lambda: spark.read.schema(stored).parquet(*paths),
            "read_table, compacted": lambda: read_table(spark, table),
            "read_table, compacted, one key in a thousand": lambda: read_table(
                spark, table, filter=[("k", "<", ROWS // 200)]
            ),
            "format dredge, compacted": lambda: spark.read.format("dredge").options(**place).load(),
            "read_table, merged from ten runs": lambda: read_table(spark, merged),
        }
        try:
            subjects = {name: partial(_drop, frame) for name, frame in ways.items()}
            spent = {name: timing.seconds for name, timing in alternate(subjects, rounds).items()}
        finally:
            stop_session(spark)
    note = f"{COMMITS} commits of {wanted or ROWS:,} rows, {BUCKETS} buckets, to a sink that drops them"
    results = [
        Result("read-spark", name, float(np.median(times)), "s", None, low=min(times), high=max(times), note=note)
        for name, times in spent.items()
    ]
    own, ours = spent["Spark's own parquet reader"], spent["read_table, compacted"]
    ratios = [mine / theirs for mine, theirs in zip(ours, own, strict=True)]
    name = "read_table, compacted: against Spark's own parquet reader"
    results.append(
        Result(
            "read-spark", name, float(np.median(ratios)), "x", MOST_SLOWER, low=min(ratios), high=max(ratios), note=note
        )
    )
    return results


def _drop(frame: Callable[[], Any]) -> None:
    frame().write.format("noop").mode("overwrite").save()


def _table(root: Path, rows: int) -> Table:
    catalog = Catalog(str(root))
    catalog.create_database("db")
    options = {"bucket": str(BUCKETS), "write-only": "true"}
    table = catalog.create_table("db.t", Schema(FIELDS, primary_keys=["k"], options=options))
    random = np.random.default_rng(1)
    for number in range(COMMITS):
        keys = np.arange(number * rows // 2, number * rows // 2 + rows)
        values = [pa.array(random.random(rows)) for _ in range(7)]
        texts = pa.array([f"value {n}" for n in range(1000)]).take(pa.array(keys % 1000))
        table.write(pa.table([pa.array(keys), *values, texts], schema=FIELDS))
    return table
