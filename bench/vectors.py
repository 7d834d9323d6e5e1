"""Deletion vectors of a primary-key table: reads against a plain decode, compactions against Java, memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.compaction import peer, pinned
from bench.harness import Result, Timing, alternate, peak_of, ratio
from bench.limits import decode_files, files_by_bucket
from bench.table_life import scratch
from bench.tables import compacted_with_new_versions, copied
from lsm_core import Catalog, Table

ROWS = 2_000_000
VECTORS = {"deletion-vectors.enabled": "true"}
READ_TARGET, FASTER_THAN_JAVA, MOST_MIB, MOST_GROWTH = 1.15, 2.5, 700.0, 1.2
_COMPACT = "import sys; from lsm_core import Catalog; Catalog(sys.argv[1]).table(sys.argv[2]).compact()"


def run(rows: int | None, rounds: int) -> list[Result]:
    """Measure tables with deletion vectors: 2 M compacted rows and 200,000 new rows on level 0.

    The figures are the time of a read, the time of a compaction, and the peak memory of a compaction at 2 M and at 8 M
    rows.

    Args:
        rows: compacted rows of the table, or None for 2 M.
        rounds: alternating rounds.
    """
    total = rows or ROWS
    with scratch() as folder, peer(folder) as java:
        table = compacted_with_new_versions(folder, "vectors", total, VECTORS)
        with copied(folder, "vectors") as database:
            merged = Catalog(str(folder)).table(f"{database}.t")
            merged.compact()
            results = _read(merged, total, rounds)
        if java is not None:
            results += _beside_java(folder, java, rounds)
        compacted_with_new_versions(folder, "large", 4 * total, VECTORS)
        peaks = [
            peak_of([sys.executable, "-c", _COMPACT, str(folder), f"{name}.t"])[0] for name in ("vectors", "large")
        ]
        name = "compaction of level 0 with vectors, peak RSS"
        results.append(Result("dv", name, peaks[0], "MiB", MOST_MIB, note=f"{table.name}, {total:,} rows").judged())
        grown = peaks[1] / peaks[0]
        return [
            *results,
            Result("dv", f"{name}, of four times the table / of the table", grown, "x", MOST_GROWTH).judged(),
        ]


def _read(table: Table, total: int, rounds: int) -> list[Result]:
    buckets, single = files_by_bucket(table), table.copy({"dredge.read.threads": "1"})

    def limit() -> None:
        for directory, files in buckets.values():
            decode_files(directory, files)

    read: Callable[[], int] = lambda: sum(batch.num_rows for batch in single.to_batches())  # noqa: E731
    if read() != total:
        raise AssertionError(f"{read()} rows of {total}")
    with pinned(1):
        timings = alternate({"dredge": read, "limit": limit}, rounds)
    name = "merge-on-read of a table with vectors / plain decode of its files, one core"
    return ratio("dv", name, timings["dredge"], timings["limit"], READ_TARGET, total)


def _beside_java(folder: Path, java: Any, rounds: int) -> list[Result]:
    """Compact copies of one table with Dredge and Java in turn, on two threads each; Java is timed in its warm JVM."""
    seconds: dict[str, list[float]] = {"java": [], "dredge": []}
    for number in range(rounds + 2):
        with copied(folder, "vectors") as database:
            theirs = float(java.call("bench_compact", table=f"{database}.t", full=False, threads=2)["secs"])
        with copied(folder, "vectors") as database:
            started = time.perf_counter()
            Catalog(str(folder)).table(f"{database}.t").compact()
            ours = time.perf_counter() - started
        if number > 1:
            seconds["java"].append(theirs)
            seconds["dredge"].append(ours)
    mine, other = (Timing(tuple(seconds[name])) for name in ("dredge", "java"))
    pairs = [b / a for a, b in zip(mine.seconds, other.seconds, strict=True)]
    name = "compaction of level 0 with vectors, 2 threads: Java / ours"
    value = other.median / mine.median
    return [
        Result("dv", name, value, "x", FASTER_THAN_JAVA, "higher", min(pairs), max(pairs)).judged(),
        Result("dv", f"{name}: java", other.median, "s", None, low=min(other.seconds), high=max(other.seconds)),
    ]
