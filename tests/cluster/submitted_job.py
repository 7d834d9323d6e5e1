"""Job that `spark-submit` runs in tests; Python has Dredge's dependencies, and Dredge comes only from --py-files.

`job.py WAREHOUSE` writes and reads. `job.py WAREHOUSE MARKER` also kills an executor once, creates the file MARKER, and
compacts on the remaining executors. Prints one line `ANSWER:{json}`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import lsm_core
from lsm_core import Catalog, Schema
from lsm_core.spark import compact_table, read_table, spark_session, verify_table, write_table

SOURCE, SECRET = "source STRING, spills BOOLEAN, secret STRING", "AWS_SECRET_ACCESS_KEY"


def told_by_a_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one row about a task: path of Dredge, whether it spills to the executor's folder, and its secret key."""
    import lsm_core as found
    from lsm_core.files import SpillSpace

    with SpillSpace() as space:
        run = space.spill([pa.record_batch({"x": [1]})], pa.schema([("x", pa.int64())]))
        spills = any(run.path.startswith(f"{place}/") for place in os.environ["SPARK_LOCAL_DIRS"].split(","))
    for _ in batches:
        pass
    values = {"source": [found.__file__], "spills": [spills], "secret": [os.environ.get(SECRET, "")]}
    yield pa.RecordBatch.from_pydict(values)


def executor_dies_once(batches: Iterator[pa.RecordBatch], marker: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches unchanged; the first task then kills the JVM of its executor."""
    yield from batches
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    process = os.getppid()
    while b"--executor-id" not in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0"):
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)


def main(root: str, marker: str = "") -> dict[str, Any]:
    """Write and read a table; with a marker, also kill an executor, compact and verify. Return facts for the test."""
    os.environ[SECRET] = "of the driver"
    spark = spark_session()
    catalog = Catalog(root)
    catalog.create_database("db")
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    options = {"bucket": "2", "write-only": "true"}
    table = catalog.create_table("db.t", Schema(fields, primary_keys=["k"], options=options))
    tasks = 2 if marker else 1
    answer: dict[str, Any] = {"driver": lsm_core.__file__, "master": spark.sparkContext.master}
    write_table(spark.range(0, 400, 1, tasks).selectExpr("id k", "'old' v"), table)
    if marker:
        frame = spark.range(200, 600, 1, tasks).selectExpr("id k", "'new' v")
        write_table(frame.mapInArrow(lambda batches: executor_dies_once(batches, marker), frame.schema), table)
        report = compact_table(spark, table, full=True)
        checked = verify_table(spark, table, report.base_snapshot, report.snapshot_id)
        answer |= {"died": os.path.exists(marker), "executors": report.executors, "verified": checked.ok}
        named = {row["file_path"].rpartition("/")[2] for row in catalog.table("db.t$files").to_arrow().to_pylist()}
        answer["live"] = sorted(named)
    result = spark.range(0, tasks, 1, tasks).mapInArrow(told_by_a_task, SOURCE).collect()
    found = read_table(spark, table).toArrow().sort_by("k").to_pydict()
    return answer | {
        "tasks": [row.asDict() for row in result],
        "keys": len(found["k"]),
        "new": found["v"].count("new"),
        "staged": [str(path) for path in Path(root).rglob("dredge/staged/*")],
        "commits": [snapshot.commit_kind for snapshot in table.snapshots()],
    }


if __name__ == "__main__":
    print("ANSWER:" + json.dumps(main(*sys.argv[1:]), default=str))
