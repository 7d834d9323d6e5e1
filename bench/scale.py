"""Plans of a driver for a table of 10 TB, metadata only: tasks, seconds, memory, network bytes, hours on a cluster."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from bench.harness import MIB, Result, in_own_process
from bench.planning import build
from bench.tables import written_by_dredge

BYTES, FILES, PARTITIONS, BUCKETS = 10**13, 1_000_000, 100, 100
EXECUTORS, CORES = 100, 4
FILES_PER_MANIFEST = 5_000
TARGET_FILES, TARGET_SECONDS, TARGET_MIB = 200_000, 12.0, 600.0
"""Targets of a full compaction's driver for a table of this number of files (``--rows``)."""
_SAMPLE_ROWS, _SAMPLE_COMMITS = 200_000, 10

_START = """
import json, sys, time
from bench.harness import own_peak
from lsm_core import Catalog
table = Catalog(sys.argv[1]).table("bench.t")
store = table.store
figures, last = {}, time.process_time()
def step(name):
    global last
    now = time.process_time()
    figures[name], last = [now - last, own_peak()], time.process_time()
"""
_COMPACTION = f"""{_START}
from lsm_core.maintenance.actions.compact.execution import tasks_of_plan
from lsm_core.maintenance.actions.compact.planning import plan_compaction
from lsm_core.compact.pieces import count_pieces, rewritten_sizes
from lsm_core.spark.compaction_job import pack_units
plan = plan_compaction(store, sys.argv[2] == "full")
step("plan")
figures["plan bytes"] = len(plan.to_json())
step("saved")
tasks = [task for _, task in tasks_of_plan(store, plan)[0]]
step("tasks")
slots = int(sys.argv[3])
sizes = rewritten_sizes(store, tasks, slots)
counts = count_pieces(sizes, slots, store.options.piece_size)
step("cuts")
payload = sum(len(task.to_bytes()) for task in tasks)
step("payloads")
units = [size // count for size, count in zip(sizes, counts) for _ in range(count)]
figures.update(
    units=len(tasks),
    spark=max(pack_units(units, 4 * slots), default=-1) + 1,
    payload=payload * len(units) // max(1, len(tasks)),
    bytes=sum(sizes),
)
print(json.dumps(figures))
"""
_READ = f"""{_START}
from lsm_core.read import plan_scan
from lsm_core.spark.spark_read import pack_splits
scan = plan_scan(store)
step("plan")
tasks = pack_splits(scan.splits, int(sys.argv[2]), store.options)
figures.update(units=len(scan.splits), spark=len(tasks), payload=sum(len(split.to_bytes()) for split in scan.splits))
step("payloads")
print(json.dumps(figures))
"""
_WRITE = f"""{_START}
from pickle import dumps
from lsm_core.spark.spark_write import WriteJob
job = WriteJob.plan(store, overwrite=False)
step("plan")
figures["payload"] = len(dumps(job))
job.end()
print(json.dumps(figures))
"""
_ONE_CORE = """
import json, sys, time
import pyarrow as pa
pa.set_cpu_count(1)
from lsm_core import Catalog
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.compact import run_bucket_task
from lsm_core.maintenance.actions.compact.execution import tasks_of_plan
from lsm_core.maintenance.actions.compact.planning import plan_compaction
store = Catalog(sys.argv[1]).table("dredge.t").store
tasks = [task for _, task in tasks_of_plan(store, plan_compaction(store, True))[0]]
started = time.process_time()
reports = [run_bucket_task(store, task, ReferenceJudge()).report for task in tasks]
print(json.dumps([sum(report.bytes_in for report in reports) / (time.process_time() - started), sum(report.rows_in for report in reports)]))
"""


def run(files: int | None, rounds: int) -> list[Result]:
    """Measure one round in processor seconds of the driver; ``files`` makes a smaller table of equally large files."""
    del rounds
    total = files or FILES
    slots, size = EXECUTORS * CORES, BYTES // FILES * total
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        sample = written_by_dredge(Path(folder), _SAMPLE_ROWS * _SAMPLE_COMMITS, _SAMPLE_COMMITS, 4)
        per_second, rows = in_own_process(_ONE_CORE, folder)
        arrow = sample.to_arrow()
        swollen = arrow.nbytes / arrow.num_rows * rows / sum(f["file_size_in_bytes"] for f in _files(folder))
    results = [_result("compaction of one core", per_second / MIB, "MiB/s", "processor time, verified (V2)")]
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        warehouse = Path(folder)
        build(
            warehouse,
            primary_key=True,
            files=total,
            manifest_count=max(1, total // FILES_PER_MANIFEST),
            partitions=PARTITIONS,
            buckets=BUCKETS,
            file_bytes=BYTES // FILES,
        )
        note = f"{total:,} files, {PARTITIONS * BUCKETS:,} buckets, {size / 1e12:g} TB"
        for kind in ("full", "minor"):
            answer = in_own_process(_COMPACTION, folder, kind, str(slots))
            judged = kind == "full" and total == TARGET_FILES
            results += _compaction(f"{kind} compaction", answer, per_second, slots, note, judged=judged)
        answer = in_own_process(_READ, folder, str(slots))
        results += _costs("whole read", answer, note)
        results.append(_result("whole read, splits", answer["units"], "", f"{answer['spark']:,} tasks"))
        answer = in_own_process(_WRITE, folder)
        results += _costs("write", answer, note)
        results.append(_result("write, a task's plan", answer["payload"] / MIB, "MiB", "sent to every task"))
        results.append(
            _result("write, rows through the shuffle", swollen, "x", "Arrow bytes a byte of the files they become")
        )
    return results


def _files(warehouse: str) -> list[dict[str, int]]:
    from lsm_core import Catalog

    return list(Catalog(warehouse).table("dredge.t$files").to_arrow(["file_size_in_bytes"]).to_pylist())


def _compaction(
    name: str, answer: dict[str, object], per_second: float, slots: int, note: str, *, judged: bool
) -> list[Result]:
    results = _costs(name, answer, note)
    if judged:
        seconds, peak, *others = results
        results = [
            replace(seconds, target=TARGET_SECONDS).judged(),
            replace(peak, target=TARGET_MIB).judged(),
            *others,
        ]
    units, tasks, payload, size = (int(str(answer[key])) for key in ("units", "spark", "payload", "bytes"))
    results.append(_result(f"{name}, buckets", units, "", f"{tasks:,} tasks of Spark, {size / 1e12:.3g} TB read"))
    results.append(
        _result(f"{name}, through the shuffle", payload / MIB, "MiB", "task descriptions only: no row crosses it")
    )
    hours = size / per_second / slots / 3600
    results.append(_result(f"{name}, on {EXECUTORS} executors", hours, "h", f"{CORES} cores each, if storage keeps up"))
    return results


def _costs(name: str, answer: dict[str, object], note: str) -> list[Result]:
    """Return seconds and peak memory of the driver, step by step."""
    results, seconds = [], 0.0
    for step, value in answer.items():
        if isinstance(value, list):
            seconds += float(value[0])
            results.append(
                _result(f"{name}, driver: {step}", float(value[0]), "s", f"peak RSS {float(value[1]):,.0f} MiB so far")
            )
    peak = max(float(value[1]) for value in answer.values() if isinstance(value, list))
    return [
        _result(f"{name}, driver", seconds, "s", note),
        _result(f"{name}, driver, peak RSS", peak, "MiB", note),
        *results,
    ]


def _result(name: str, value: float, unit: str, note: str) -> Result:
    return Result("scale", name, value, unit, None, note=note)
