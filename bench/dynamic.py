"""Ten commits into dynamic buckets beside the same rows into as many fixed ones, and Java's writer; loading the index of ten million keys."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.data import SCHEMA, commits
from bench.harness import Result, Timing, in_own_process, own_peak, ratio
from bench.table_life import BUCKETS, COMMITS, ROWS, scratch
from bench.writing import java_writer
from lsm_core import Catalog, Schema
from lsm_core.write.assigner import AssignerRules, PartitionIndex

MOST, FASTER = 1.35, 4.0
KEYS, MOST_MIB, MOST_SECONDS = 10_000_000, 400.0, 3.0


def run(wanted: int | None, rounds: int) -> list[Result]:
    """Processor seconds of ten commits (user time), half of whose rows are known keys; `--rows` is their sum."""
    total = wanted or ROWS
    data = list(commits(total, COMMITS))
    keys = len(np.unique(np.concatenate([part["id"].to_numpy() for part in data])))
    kinds = {
        "fixed": {"bucket": str(BUCKETS)},
        "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": str(-(-keys // BUCKETS))},
    }
    seconds: dict[str, list[float]] = {"fixed": [], "dynamic": [], "java": []}
    with scratch() as folder, java_writer(folder, data) as java:
        for number in range(rounds + 1):
            taken = {
                name: _user(_ten_commits(folder / f"{name}{number}", options, data)) for name, options in kinds.items()
            }
            if java is not None:
                taken["java"] = java()
            for name, spent in taken.items():
                if number:
                    seconds[name].append(spent)
    timings = {name: Timing(tuple(spent)) for name, spent in seconds.items() if spent}
    name = "ten commits into dynamic / into fixed buckets, user time"
    results = ratio("dynamic", name, timings["dynamic"], timings["fixed"], MOST, total)
    if "java" in timings:
        note = "Java's seconds for fixed buckets, which its assigner and index only add to; its reading left out"
        value = timings["java"].median / timings["dynamic"].median
        results.append(Result("dynamic", "Java's writer / dredge", value, "x", FASTER, "higher", note=note).judged())
    peak, load = in_own_process(_LOAD, str(KEYS))
    note = f"{KEYS:,} keys of one partition in five index files"
    results.append(Result("dynamic", "loading the index, user time", load, "s", MOST_SECONDS, note=note).judged())
    results.append(Result("dynamic", "peak RSS with the index loaded", peak, "MiB", MOST_MIB, note=note).judged())
    return results


def _ten_commits(warehouse: Path, options: dict[str, str], data: list[pa.Table]) -> Callable[[], None]:
    def work() -> None:
        catalog = Catalog(str(warehouse))
        catalog.create_database("bench")
        given = {"write-only": "true", **options}
        table = catalog.create_table("bench.t", Schema(SCHEMA, primary_keys=["id"], options=given))
        for part in data:
            table.write(part)

    return work


def _user(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


_LOAD = """
import json, sys
from bench.dynamic import loaded
print(json.dumps(loaded(int(sys.argv[1]))))
"""


def loaded(keys: int) -> tuple[float, float]:
    """Peak MiB and user seconds of the first row written to a partition of ``keys`` known keys, made outside of both."""
    each = keys // 5
    made = np.arange(keys, dtype=np.uint32) * np.uint32(2_654_435_761)  # odd, so no hash comes twice
    files = [(bucket, made[bucket * each : (bucket + 1) * each].view(np.int32)) for bucket in range(5)]
    started = time.process_time()
    index = PartitionIndex(AssignerRules(each, None, "bench.t"), files)
    assert len(index) == 5 * each
    return own_peak(), time.process_time() - started


__all__ = ["loaded", "run"]
