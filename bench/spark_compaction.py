"""Compactions through Spark: a thousand small buckets in one job, one bucket, memory, and a second core."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from bench.compaction import copy_limit, pinned
from bench.harness import MIB, Result, Timing, in_own_process
from bench.limits import files_by_bucket
from bench.table_life import scratch
from lsm_core import Catalog, Schema, Table

BUCKETS, BUCKET_BYTES, RUNS = 1_000, MIB, 2
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("n", pa.int64()), ("noise", pa.binary(200))])
_ROW_BYTES = 216
"""Bytes of a row, nearly all random, so that the size of a file is proportional to its rows."""
LONE_BYTES = 50 * MIB
MANY_ROWS, MANY_BUCKETS = 20_000_000, 64
NARROW = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), ("x", pa.float64()), ("n", pa.int32()), ("m", pa.int64())]
)
SECOND_CORE = 1.8
_CHUNK = 1_000_000

_ON_CORES = """
import json, sys, time
from bench.spark_compaction import made
from lsm_core import Catalog
from lsm_core.spark import compact_table, spark_session, stop_session
cores, place = sys.argv[1:]
spark = spark_session(master=f"local[{cores}]")
for name in ("first", "second"):
    compact_table(spark, Catalog(place).table(f"db.{name}"), full=True)
table, began = Catalog(place).table("db.t"), time.perf_counter()
report = compact_table(spark, table, full=True)
seconds = time.perf_counter() - began
stop_session(spark)
print(json.dumps([seconds, report.rows_in]))
"""


def made(root: Path, rows: int, buckets: int, name: str = "t", fields: pa.Schema = FIELDS) -> Table:
    """Create a table of ``rows`` rows in `RUNS` commits; each commit writes all keys."""
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    options = {"bucket": str(buckets), "write-only": "true", "dredge.merge-budget": "256 mb"}
    table = catalog.create_table(f"db.{name}", Schema(fields, primary_keys=["k"], options=options))
    each = rows // RUNS
    for turn in range(RUNS):
        chance = np.random.default_rng(turn)
        for start in range(0, each, _CHUNK):
            count = min(_CHUNK, each - start)
            keys = np.arange(start, start + count)
            columns: dict[str, Any] = {
                "k": keys,
                "n": chance.integers(0, 1000, count).astype(np.int32 if fields is NARROW else np.int64),
            }
            if fields is NARROW:
                columns |= {"x": chance.random(count), "m": chance.integers(0, 1 << 40, count)}
            else:
                noise = pa.py_buffer(chance.bytes(200 * count))
                columns["noise"] = pa.Array.from_buffers(pa.binary(200), count, [None, noise])
            table.write(pa.table({field.name: columns[field.name] for field in fields}, schema=fields))
    return table


def run(wanted: int | None, rounds: int) -> list[Result]:
    """Return all figures; ``wanted`` is the row count of the memory test, and scales the other tests in proportion."""
    share = 1.0 if wanted is None else wanted / MANY_ROWS
    from lsm_core.spark import spark_session, stop_session

    results: list[Result] = []
    with scratch() as folder:
        spark = spark_session(app_name="dredge-bench", conf={"spark.sql.warehouse.dir": str(folder / "spark")})
        try:
            results += _thousand(spark, folder, share)
            results += _lone(spark, folder, share, rounds)
            results += _memory(spark, folder, share)
        finally:
            stop_session(spark)
        results += _second_core(folder, share, rounds)
    return results


def _thousand(spark: Any, folder: Path, share: float) -> list[Result]:
    from lsm_core.spark import compact_table

    rows = int(BUCKETS * BUCKET_BYTES * share) // _ROW_BYTES
    table = made(folder / "thousand", rows, BUCKETS)
    before, began = _processor_seconds(), time.perf_counter()
    report = compact_table(spark, table, full=True)
    seconds, busy = time.perf_counter() - began, _processor_seconds() - before
    note = f"{len(report.units):,} buckets, {report.bytes_in / MIB:,.0f} MiB in {report.files_in:,} files, {report.commits} commit"
    shutil.rmtree(folder / "thousand")
    return [
        Result("spark-scale", "1,000 buckets of 1 MB in one job", seconds, "s", 60, note=note).judged(),
        Result("spark-scale", "1,000 buckets of 1 MB: processor time", busy, "s", None, note=note),
    ]


def _lone(spark: Any, folder: Path, share: float, rounds: int) -> list[Result]:
    """Compact a bucket of 50 MB on Spark and in this process in turn."""
    from lsm_core.spark import compact_table

    made(folder / "lone", int(LONE_BYTES * share) // _ROW_BYTES, 1)
    seconds: dict[str, list[float]] = {"spark": [], "process": []}
    for turn in range(rounds + 1):
        for kind, durations in seconds.items():
            shutil.copytree(folder / "lone", folder / "copy")
            table = Catalog(str(folder / "copy")).table("db.t")
            began = time.perf_counter()
            compact_table(spark, table, full=True) if kind == "spark" else table.compact(full=True)
            if turn:
                durations.append(time.perf_counter() - began)
            shutil.rmtree(folder / "copy")
    on_spark, here = (Timing(tuple(seconds[kind])) for kind in ("spark", "process"))
    most = here.median * 1.25 + 0.7
    low, high = min(on_spark.seconds), max(on_spark.seconds)
    name = "a bucket of 50 MB"
    return [
        Result("spark-scale", f"{name}, end to end", on_spark.median, "s", 1.5, low=low, high=high).judged(),
        Result("spark-scale", f"{name}, in this process", here.median, "s", None),
        Result("spark-scale", f"{name}, share of (in this process x 1.25 + 0.7 s)", on_spark.median / most, "x", 1.0).judged(),
    ]  # fmt: skip


def _memory(spark: Any, folder: Path, share: float) -> list[Result]:
    """Measure the peaks while 20 M rows in 64 buckets are compacted."""
    from lsm_core.spark import compact_table

    table = made(folder / "many", int(MANY_ROWS * share), MANY_BUCKETS, fields=NARROW)
    with _peaks() as peaks:
        report = compact_table(spark, table, full=True)
    note = f"{report.rows_in:,} rows in {len(report.units)} buckets, {report.seconds:.1f} s"
    shutil.rmtree(folder / "many")
    return [
        Result("spark-scale", "peak RSS of a Python worker", peaks["worker"], "MiB", 600, note=note).judged(),
        Result("spark-scale", "growth of the driver beside its JVM", peaks["driver"], "MiB", 600, note=note).judged(),
    ]


def _second_core(folder: Path, share: float, rounds: int) -> list[Result]:
    """Compact in sessions of one core and of two, in turn with the copy limit of the same files on as many cores.

    All processes of the one-core session, including the JVM, are restricted to that core.
    """
    rows = int(MANY_ROWS * share)
    place = folder / "cores"
    table = made(place, rows, MANY_BUCKETS, fields=NARROW)
    for name in ("first", "second"):
        made(place, 2_000, 4, name)
    files = files_by_bucket(table)
    kept = {bucket: sum(file.row_count for file in bucket_files) // RUNS for bucket, (_, bucket_files) in files.items()}
    gains: dict[str, list[float]] = {"limit": [], "sessions": []}
    for turn in range(min(rounds, 3) + 1):  # the first one warms up
        spent: dict[str, list[float]] = {"limit": [], "sessions": []}
        for cores in (1, 2):
            with pinned(cores):
                began = time.perf_counter()
                copy_limit(files, kept, folder, cores)
                spent["limit"].append(time.perf_counter() - began)
                shutil.copytree(place, folder / "copy")
                spent["sessions"].append(in_own_process(_ON_CORES, str(cores), str(folder / "copy"))[0])
                shutil.rmtree(folder / "copy")
        for kind, (on_one, on_two) in spent.items():
            gains[kind] += [on_one / on_two] if turn else []
    limit, sessions = (sorted(gains[kind])[len(gains[kind]) // 2] for kind in ("limit", "sessions"))
    low, high = min(gains["sessions"]), max(gains["sessions"])
    note = f"{rows:,} rows in {MANY_BUCKETS} buckets; the target is {SECOND_CORE:g}, or what the copy limit gains, and 1 at least"
    return [
        Result("spark-scale", "copy limit of the same files, one core to two", limit, "x", None, low=min(gains["limit"]), high=max(gains["limit"])),
        Result("spark-scale", "local[1] to local[2]", sessions, "x", max(1.0, min(SECOND_CORE, limit)), "higher", low, high, note).judged(),
    ]  # fmt: skip


@contextmanager
def _peaks() -> Iterator[dict[str, float]]:
    """Sample every 20 ms, in MiB, the largest Python worker and the growth of this process while the block runs."""
    peaks, over, me = {"worker": 0.0, "driver": 0.0}, threading.Event(), psutil.Process()
    began = me.memory_info().rss

    def sample() -> None:
        while not over.wait(0.02):
            for process in me.children(recursive=True):
                try:
                    if "python" in process.name():
                        peaks["worker"] = max(peaks["worker"], process.memory_info().rss / MIB)
                except psutil.Error:
                    continue
            peaks["driver"] = max(peaks["driver"], (me.memory_info().rss - began) / MIB)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield peaks
    finally:
        over.set()
        thread.join()


def _processor_seconds() -> float:
    """Return user and system time of this process and all its descendants, including ended ones."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)
