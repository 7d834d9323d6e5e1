"""Compactions of ten commits into a large bucket: with files and row groups kept by exact keys, without, and by Java.

The commits differ in where their keys lie: new and recent keys with a few old ones, Zipf, uniform, two outliers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.compaction import peer
from bench.data import SCHEMA
from bench.data import rows as made_rows
from bench.harness import OnFresh, Result, alternate
from bench.table_life import scratch
from bench.tables import copied
from lsm_core import Catalog, Schema

ROWS: Final = 4_000_000
COMMITS: Final = 10
Keys = np.ndarray
_OUTSIDE: Final = 2**50
_LARGE: Final = 100
_SMALL: Final = 400


def _recent(share: int, random: np.random.Generator, known: int, number: int) -> Keys:
    """Return keys of which nine in ten are new, one in ten is recent, and few are any.

    Args:
        share: number of rows for each row of a commit.
        random: source of keys.
        known: number of rows of the bucket.
        number: number of the commit.
    """
    count = known // share
    first = known + number * count
    new = np.arange(first, first + count * 9 // 10)
    recent = first - 1 - random.integers(0, count, count // 10)
    # one in a thousand updates, or rows of a large commit
    spread = max(1, count // (10_000 if share > _LARGE else 1_000))
    return np.concatenate([new, recent, random.integers(0, known, spread)])


def _zipf(random: np.random.Generator, known: int, _: int) -> Keys:
    ranks = random.zipf(1.3, known // 100)
    return np.maximum(known - ranks[ranks <= known], 0)


def _uniform(random: np.random.Generator, known: int, _: int) -> Keys:
    return random.integers(0, known, known // 100)


def _outliers(_: np.random.Generator, known: int, number: int) -> Keys:
    return np.array([-1 - number, _OUTSIDE + known + number])


CASES: Final[
    dict[str, tuple[Callable[[np.random.Generator, int, int], Keys], float | None, float | None, float | None]]
] = {
    # 10,000 rows a commit, of which 1,000 are updates, of which one is any: ten keys for 31 row groups. The copied
    # bytes are read, written and compared, which takes a quarter of the processor time that is left.
    "new and recent keys, 0.1 % of updates any": (partial(_recent, _SMALL), 0.4, 0.35, 8.0),
    # 40 keys a commit that are any: 400 keys meet every one of 31 row groups, so nothing can be spliced
    "new and recent keys, 0.1 % of rows any": (partial(_recent, _LARGE), None, None, None),
    "Zipf, newest most often": (_zipf, None, None, None),
    "uniform": (_uniform, 1.03, 1.03, None),
    "two outliers": (_outliers, 0.1, 0.1, 20.0),
}
"""Keys of a commit, largest shares of the time and of the encoded bytes without exact keys, and smallest ratio of
Java's time to ours.
"""


def run(rows: int | None, rounds: int) -> list[Result]:
    """Measure bytes and seconds of a full compaction after ten commits, for each distribution of keys.

    Args:
        rows: rows of the compacted bucket; None for `ROWS`.
        rounds: rounds per case.
    """
    known = rows or ROWS
    results: list[Result] = []
    with scratch() as folder, peer(folder) as java:
        for case, (keys, most_seconds, most_bytes, java_least) in CASES.items():
            database = f"case{len(results)}"
            _fill(folder, database, known, keys)
            results += _compare(folder, database, case, rounds, most_seconds, most_bytes)
            if java is not None:
                results += _beside_java(folder, database, case, rounds, java, java_least)
    return results


def _fill(folder: Path, database: str, known: int, keys: Callable[..., Keys]) -> None:
    catalog = Catalog(str(folder))
    catalog.create_database(database)
    schema = Schema(SCHEMA, primary_keys=["id"], options={"bucket": "1", "write-only": "true"})
    table = catalog.create_table(f"{database}.t", schema)
    table.write(made_rows(np.arange(known, dtype=np.int64), 0))
    table.compact(full=True)
    random = np.random.default_rng(7)
    for number in range(COMMITS):
        table.write(made_rows(np.unique(keys(random, known, number)).astype(np.int64), number + 1))


def _compact(folder: Path, exact: str, written: list[int], database: str) -> None:
    table = Catalog(str(folder)).table(f"{database}.t").copy({"dredge.compaction.exact-keys": exact})
    report = table.compact(full=True)
    written.append(report.bytes_out - report.bytes_spliced)


def _compare(
    folder: Path, database: str, case: str, rounds: int, most_seconds: float | None, most_bytes: float | None
) -> list[Result]:
    written: dict[str, list[int]] = {"auto": [], "never": []}
    timings = alternate(
        {
            exact: OnFresh(lambda: copied(folder, database), partial(_compact, folder, exact, sizes))
            for exact, sizes in written.items()
        },
        rounds,
    )
    share = written["auto"][-1] / written["never"][-1]
    mine, today = (timings[exact] for exact in ("auto", "never"))
    pairs = [a / b for a, b in zip(mine.seconds, today.seconds, strict=True)]
    name, note = f"{case}: seconds / without exact keys", f"{mine.median:.2f} s and {today.median:.2f} s"
    ratio = mine.median / today.median
    seconds = Result("exact", name, ratio, "x", most_seconds, low=min(pairs), high=max(pairs), note=note)
    sizes = f"{written['auto'][-1] / 2**20:.1f} of {written['never'][-1] / 2**20:.1f} MiB"
    return [
        seconds.judged(),
        Result("exact", f"{case}: bytes encoded / without", share, "x", most_bytes, note=sizes).judged(),
    ]


def _beside_java(folder: Path, database: str, case: str, rounds: int, java: Any, least: float | None) -> list[Result]:
    pairs = []
    for number in range(rounds + 1):
        with copied(folder, database) as copy:
            theirs = float(java.call("bench_compact", table=f"{copy}.t", full=True, threads=2)["secs"])
        with copied(folder, database) as copy:
            started = time.perf_counter()
            _compact(folder, "auto", [], copy)
            ours = time.perf_counter() - started
        if number:
            pairs.append(theirs / ours)
    name = f"{case}: Java's full compaction / ours"
    median = statistics.median(pairs)
    return [Result("exact", name, median, "x", least, "higher", min(pairs), max(pairs)).judged()]
