"""Writing through Spark: processor time of ten commits, and how much metadata a task reads."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from bench.harness import Result
from bench.table_life import scratch
from lsm_core import Catalog, Schema, Table

COMMITS, ROWS, BUCKETS, DAYS = 10, 200_000, 4, 4
FIELDS = pa.schema(
    [
        pa.field("day", pa.int32(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        ("s", pa.string()),
        ("x", pa.float64()),
        ("n", pa.int32()),
    ]
)
READS = {"read", "open", "list", "exists", "size"}


def run(wanted: int | None, rounds: int) -> list[Result]:
    """Seconds of processor time of this process, the JVM and its Python workers; rows go round the partitions of the table."""
    rows = wanted or ROWS
    from lsm_core.spark import spark_session, stop_session

    with scratch() as folder:
        trace = folder / "trace.jsonl"
        os.environ["DREDGE_TRACE"] = str(trace)
        spark = spark_session(app_name="dredge-bench", conf={"spark.sql.warehouse.dir": str(folder / "spark")})
        del os.environ["DREDGE_TRACE"]
        try:
            results = []
            for writer in ("write_table", "save"):
                _ten_commits(spark, folder, f"warm-{writer}", writer, rows)
                spent = []
                for turn in range(rounds):
                    trace.unlink(missing_ok=True)
                    spent.append(_ten_commits(spark, folder, f"{writer}-{turn}", writer, rows))
                cpu = sorted(spent)[len(spent) // 2]
                note = f"{COMMITS} commits of {rows:,} rows into {DAYS} partitions of {BUCKETS} buckets"
                name = f"{writer}: processor time of {COMMITS} commits"
                results.append(Result("write-spark", name, cpu, "s", None, low=min(spent), high=max(spent), note=note))
                reads, tasks = _metadata_reads(trace)
                name = f"{writer}: reads of metadata a writing task"
                results.append(Result("write-spark", name, reads / max(1, tasks), "", None, note=f"{tasks} tasks"))
        finally:
            stop_session(spark)
    return results


def _ten_commits(spark: Any, folder: Path, name: str, writer: str, rows: int) -> float:
    table = _new_table(folder / name)
    before = _processor_seconds()
    for number in range(COMMITS):
        first = number * rows // 2
        frame = spark.range(first, first + rows, 1, 4).selectExpr(
            f"int(id % {DAYS}) day", "id k", "concat('value ', id % 1000) s", "id / 7 x", "int(id % 100) n"
        )
        _write(frame, table, writer)
    return _processor_seconds() - before


def _new_table(root: Path) -> Table:
    catalog = Catalog(str(root))
    catalog.create_database("db")
    options = {"bucket": str(BUCKETS), "write-only": "true"}
    return catalog.create_table(
        "db.t", Schema(FIELDS, primary_keys=["day", "k"], partition_keys=["day"], options=options)
    )


def _write(frame: Any, table: Table, writer: str) -> None:
    from lsm_core.spark import write_table

    if writer == "write_table":
        write_table(frame, table)
        return
    warehouse = str(Path(table.store.root).parents[1])
    frame.write.format("dredge").option("warehouse", warehouse).option("table", table.name).mode("append").save()


def _processor_seconds() -> float:
    """User and system time of this process and of all below it, those that have ended among them."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def _metadata_reads(trace: Path) -> tuple[int, int]:
    """Steps in the workers that read what is no data file, and the writers among the tasks: each opens files of its own name."""
    found: Counter[str] = Counter()
    writers: set[str] = set()
    for line in trace.read_text("utf-8").splitlines():
        entry = json.loads(line)
        if entry["event"] != "begin":
            continue
        if "/bucket-" in entry["path"]:
            name = entry["path"].rpartition("/")[2]
            if name.startswith("data-"):
                writers.add(f"{entry['pid']} {entry['path'].split('/db.db/')[0]} {name[5:41]}")
        elif entry["step"] in READS:
            found[entry["step"]] += 1
    return found.total(), len(writers)
