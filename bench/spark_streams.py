"""Spark streams: cost of an epoch that reads one commit of a table and writes it to another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness import Result
from bench.table_life import scratch
from lsm_core import Catalog, Schema, Table

EPOCHS, ROWS, BUCKETS = 50, 2_000, 2
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", pa.string()), ("x", pa.float64())])
_WARM = 3
"""Epochs that are not counted: Spark starts its Python workers in them."""


def run(wanted: int | None, rounds: int) -> list[Result]:
    """Measure seconds of an epoch from table to table, one commit each; ``rounds`` is ignored, as epochs are many."""
    del rounds
    rows = wanted or ROWS
    from lsm_core.spark import spark_session, stop_session

    with scratch() as folder:
        source, target = (_new_table(folder, name) for name in ("db.source", "db.target"))
        chance = np.random.default_rng(1)
        for _ in range(EPOCHS + _WARM):
            keys = chance.integers(0, 50 * rows, rows)
            source.write(pa.table({"k": keys, "s": [f"value {key % 1000}" for key in keys], "x": keys / 7}))
        conf = {"spark.sql.warehouse.dir": str(folder / "spark"), "spark.sql.streaming.numRecentProgressUpdates": "200"}
        spark = spark_session(app_name="dredge-bench", conf=conf)
        try:
            query = _copy(spark, folder)
            query.awaitTermination()
            progress_reports = [json.loads(report.json) for report in query.recentProgress]
        finally:
            stop_session(spark)
        if not target.to_arrow().sort_by("k").equals(source.to_arrow().sort_by("k")):
            raise RuntimeError("the copy is not the original")
    durations = [report["durationMs"] for report in progress_reports if report["numInputRows"]][_WARM:]
    whole = np.array([report["triggerExecution"] for report in durations]) / 1000
    # Spark's own: the log of offsets and that of commits, files of its checkpoint.
    own = whole - np.array([report.get("walCommit", 0) + report.get("commitOffsets", 0) for report in durations]) / 1000
    note = f"{len(durations)} epochs of {rows:,} rows, from table to table"
    return [
        Result(
            "stream", "an epoch's own work, p95", float(np.percentile(own, 95)), "s", 1.0,
            low=float(own.min()), high=float(own.max()), note=f"median {np.median(own):.2f} s; {note}",
        ).judged(),
        Result("stream", "an epoch with Spark's checkpoint, p95", float(np.percentile(whole, 95)), "s", None, note=note),
    ]  # fmt: skip


def _new_table(root: Path, name: str) -> Table:
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    options = {"bucket": str(BUCKETS), "write-only": "true"}
    return catalog.create_table(name, Schema(FIELDS, primary_keys=["k"], options=options))


def _copy(spark: Any, folder: Path) -> Any:
    place = {"warehouse": str(folder)}
    start = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1", "read.stream.maxFilesPerTrigger": str(BUCKETS)}
    changes = spark.readStream.format("dredge").options(table="db.source", **place, **start).load()
    copy = changes.writeStream.format("dredge").options(table="db.target", **place)
    return copy.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
