"""Writing through Spark: ten commits against Spark's own cost of delivering their rows, and metadata reads."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

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
WIDE = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("city", pa.string()),
        ("price", pa.float64()),
        ("amount", pa.int32()),
        ("total", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("flag", pa.bool_()),
    ]
)
"""Columns of the table in the reference runs of Java Paimon on Spark."""


def run_against_floor(wanted: int | None, rounds: int) -> list[Result]:
    """Measure ten commits, alternating with a job that scans the same rows and only passes them to Python.

    The rows are passed as Arrow batches. Both wall-clock and processor seconds (this process, the JVM and its Python
    workers) are measured.
    """
    rows = wanted or ROWS
    from lsm_core.spark import spark_session, stop_session

    kinds = ("floor", "write_table", "save")
    spent: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    with scratch() as folder:
        files = [_wide_file(folder, number, rows) for number in range(COMMITS)]
        spark = spark_session(app_name="dredge-bench", conf={"spark.sql.warehouse.dir": str(folder / "spark")})
        try:
            for turn in range(-1, rounds):  # the first one warms up
                for kind in kinds:
                    table = None if kind == "floor" else _new_table(folder / f"{kind}{turn}", WIDE, ("k",), ())
                    started, busy = time.perf_counter(), _processor_seconds()
                    for file in files:
                        frame = spark.read.parquet(file)
                        if table is None:
                            frame.mapInArrow(_drained, "n BIGINT").toArrow()
                        else:
                            _write(frame, table, kind)
                    if turn >= 0:
                        spent[kind].append((time.perf_counter() - started, _processor_seconds() - busy))
        finally:
            stop_session(spark)
    note = f"{COMMITS} commits of {rows:,} rows, {len(WIDE)} columns, {BUCKETS} buckets"
    results = []
    for place, measure in enumerate(("seconds", "processor time")):
        medians = {kind: sorted(sample[place] for sample in spent[kind])[rounds // 2] for kind in kinds}
        for kind in kinds:
            named = "scan and hand over to Arrow (the floor)" if kind == "floor" else kind
            low, high = (choose(sample[place] for sample in spent[kind]) for choose in (min, max))
            results.append(
                Result("spark", f"{named}: {measure}", medians[kind], "s", None, low=low, high=high, note=note)
            )
        for kind in kinds[1:]:
            target = 1.4 if place == 0 and kind == "write_table" else None
            ratio = medians[kind] / medians["floor"]
            results.append(
                Result("spark", f"{kind}: {measure} against the floor", ratio, "x", target, note=note).judged()
            )
    return results


def _drained(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"n": pa.array([rows], pa.int64())})


def _wide_file(folder: Path, number: int, rows: int) -> str:
    """Write a Parquet file with the rows of one commit; half of the keys are also in the previous file."""
    chance = np.random.default_rng(number)
    keys = chance.permutation(np.arange(number * rows // 2, number * rows // 2 + rows))
    words = pa.array([f"value {n}" for n in range(1000)])
    cities = pa.array([f"city {n}" for n in range(50)])
    columns = [
        pa.array(keys),
        words.take(pa.array(keys % 1000)),
        cities.take(pa.array(keys % 50)),
        pa.array(chance.random(rows)),
        pa.array(chance.integers(0, 100, rows), pa.int32()),
        pa.array(chance.integers(0, 1 << 40, rows)),
        pa.array((keys % 365).astype(np.int32)).cast(pa.date32()),
        pa.array(keys * 1_000_000, pa.timestamp("us")),
        pa.array(keys % 2 == 0),
    ]
    path = str(folder / f"rows-{number}.parquet")
    pq.write_table(pa.table(columns, schema=WIDE), path)
    return path


def run(wanted: int | None, rounds: int) -> list[Result]:
    """Measure processor seconds of ten commits (this process, JVM and workers), and metadata reads per writing task."""
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


def _new_table(
    root: Path, fields: pa.Schema = FIELDS, keys: tuple[str, ...] = ("day", "k"), partitions: tuple[str, ...] = ("day",)
) -> Table:
    catalog = Catalog(str(root))
    catalog.create_database("db")
    options = {"bucket": str(BUCKETS), "write-only": "true"}
    return catalog.create_table(
        "db.t", Schema(fields, primary_keys=list(keys), partition_keys=list(partitions), options=options)
    )


def _write(frame: Any, table: Table, writer: str) -> None:
    from lsm_core.spark import write_table

    if writer == "write_table":
        write_table(frame, table)
        return
    warehouse = str(Path(table.store.root).parents[1])
    frame.write.format("dredge").option("warehouse", warehouse).option("table", table.name).mode("append").save()


def _processor_seconds() -> float:
    """Return user and system time of this process and all its descendants, including ended ones."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def _metadata_reads(trace: Path) -> tuple[int, int]:
    """Return the number of reads in the workers that are not of data files, and the number of writing tasks.

    Each writing task is counted by the unique name of its files.
    """
    reads_by_step: Counter[str] = Counter()
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
            reads_by_step[entry["step"]] += 1
    return reads_by_step.total(), len(writers)
