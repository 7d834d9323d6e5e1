"""Merge-on-read of a large bucket under ten small commits: with parts read as stored, and with everything merged.

The commits differ in where their keys lie: two outliers, new and recent keys, and uniform. Each is read on one thread
with all columns and with two, and on two threads with all columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from bench.data import SCHEMA
from bench.data import rows as made_rows
from bench.harness import Result, alternate, in_own_process
from bench.table_life import scratch
from lsm_core import Catalog, Schema, Table

ROWS: Final = 4_000_000
COMMITS: Final = 10
FILE_SIZE: Final = "64 mb"
"""Target size of files: the bucket has four of them."""
Keys = np.ndarray


def _outliers(_: np.random.Generator, known: int, number: int) -> Keys:
    return np.array([-1 - number, 2 * known + number])


def _recent(random: np.random.Generator, known: int, number: int) -> Keys:
    """Return new keys, a tenth as many of the newest hundredth, and one outlier."""
    count = known // 100
    first = known + number * count
    return np.concatenate(
        [[-1 - number], np.arange(first, first + count), known - 1 - random.integers(0, count, count // 10)]
    )


def _uniform(random: np.random.Generator, known: int, _: int) -> Keys:
    return random.integers(0, known, known // 100)


CASES: Final[dict[str, tuple[Callable[[np.random.Generator, int, int], Keys], dict[str, str], float, float]]] = {
    "two outliers": (_outliers, {}, 0.95, 0.8),
    "two outliers, a sequence field": (_outliers, {"sequence.field": "n0"}, 0.9, 0.7),
    "two outliers, sums": (_outliers, {"merge-engine": "aggregation", "fields.n0.aggregate-function": "sum"}, 0.8, 0.5),
    "new and recent keys": (_recent, {}, 0.95, 0.85),
    "uniform": (_uniform, {}, 1.03, 1.03),
}
"""Keys of a commit, options, and largest shares of the time without parts: all columns, and two columns."""
FEW: Final = ["n0", "x0"]


def run(rows: int | None, rounds: int) -> list[Result]:
    """Measure the seconds of a full read, for each distribution of keys, and the peaks of memory.

    Args:
        rows: rows of the compacted bucket; None for `ROWS`.
        rounds: rounds per case.
    """
    known = rows or ROWS
    results: list[Result] = []
    with scratch() as folder:
        for case, (keys, options, most, most_of_few) in CASES.items():
            database = f"case{len(results)}"
            _fill(folder, database, known, keys, options)
            results.append(_compare(folder, database, f"{case}, one thread", None, 1, most, rounds))
            results.append(_compare(folder, database, f"{case}, two columns, one thread", FEW, 1, most_of_few, rounds))
            if case == "two outliers":
                results.append(_compare(folder, database, f"{case}, two threads", None, 2, 0.75, rounds))
            results.append(_peaks(folder, database, case))
    return results


def _fill(folder: Path, database: str, known: int, keys: Callable[..., Keys], options: dict[str, str]) -> None:
    catalog = Catalog(str(folder))
    catalog.create_database(database)
    made = {"bucket": "1", "write-only": "true", "target-file-size": FILE_SIZE, **options}
    table = catalog.create_table(f"{database}.t", Schema(SCHEMA, primary_keys=["id"], options=made))
    table.write(made_rows(np.arange(known, dtype=np.int64), 0))
    table.compact(full=True)
    random = np.random.default_rng(7)
    for number in range(COMMITS):
        table.write(made_rows(np.unique(keys(random, known, number)).astype(np.int64), number + 1))


def _opened(folder: Path, database: str, mode: str, threads: int) -> Table:
    return (
        Catalog(str(folder))
        .table(f"{database}.t")
        .copy({"dredge.read.exact-keys": mode, "dredge.read.threads": str(threads)})
    )


def _drain(table: Table, columns: list[str] | None) -> int:
    return sum(batch.num_rows for batch in table.to_batches(columns))


def _compare(
    folder: Path, database: str, case: str, columns: list[str] | None, threads: int, most: float, rounds: int
) -> Result:
    tables = {mode: _opened(folder, database, mode, threads) for mode in ("auto", "never")}
    counts = {_drain(table, columns) for table in tables.values()}
    if len(counts) != 1:
        raise AssertionError(f"{case}: not the same rows: {counts}")
    timings = alternate({mode: partial(_drain, table, columns) for mode, table in tables.items()}, rounds)
    mine, today = timings["auto"], timings["never"]
    pairs = [a / b for a, b in zip(mine.seconds, today.seconds, strict=True)]
    note = f"{mine.median:.3f} s and {today.median:.3f} s"
    name = f"{case}: seconds / everything merged"
    return Result(
        "exact-reads", name, mine.median / today.median, "x", most, low=min(pairs), high=max(pairs), note=note
    ).judged()


def _peaks(folder: Path, database: str, case: str) -> Result:
    program = "import sys; from bench.exact_reads import peak; print(peak(*sys.argv[1:]))"
    mine, today = (float(in_own_process(program, str(folder), database, mode)) for mode in ("auto", "never"))
    note = f"{mine:.0f} and {today:.0f} MiB"
    return Result("exact-reads", f"{case}: peak RSS / everything merged", mine / today, "x", 1.1, note=note).judged()


def peak(folder: str, database: str, mode: str) -> float:
    """Return the peak resident MiB of this process after a read of all columns on one thread."""
    from bench.harness import own_peak

    _drain(_opened(Path(folder), database, mode, 1), None)
    return own_peak()
