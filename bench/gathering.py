"""Gathering of small append files: with large row groups copied as they are, and with everything decoded."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from bench.data import SCHEMA
from bench.data import rows as made_rows
from bench.harness import OnFresh, Result, alternate
from bench.table_life import scratch
from bench.tables import copied
from lsm_core import Catalog, Schema

ROWS: Final = 2_000_000
FILES: Final = 10
TINY_ROWS: Final = 20_000
CASES: Final[dict[str, tuple[bool, float]]] = {"large row groups": (False, 0.35), "small files only": (True, 1.03)}
"""Whether all files are small, and largest share of the time with everything decoded."""


def run(rows: int | None, rounds: int) -> list[Result]:
    """Measure a full compaction of ten files, with row groups copied and decoded, and of as many small files.

    Args:
        rows: rows of the large files; None for `ROWS`.
        rounds: rounds per case.
    """
    results: list[Result] = []
    with scratch() as folder:
        for case, (is_tiny, most) in CASES.items():
            database = f"case{len(results)}"
            _fill(folder, database, TINY_ROWS if is_tiny else (rows or ROWS) // FILES)
            results.append(_compare(folder, database, case, rounds, most))
    return results


def _fill(folder: Path, database: str, each: int) -> None:
    catalog = Catalog(str(folder))
    catalog.create_database(database)
    options = {"bucket": "-1", "write-only": "true"}
    table = catalog.create_table(f"{database}.t", Schema(SCHEMA, options=options))
    for number in range(FILES):
        table.write(made_rows(np.arange(number * each, (number + 1) * each, dtype=np.int64), number))


def _compact(folder: Path, exact: str, database: str) -> None:
    table = Catalog(str(folder)).table(f"{database}.t").copy({"dredge.compaction.exact-keys": exact})
    table.compact(full=True)


def _compare(folder: Path, database: str, case: str, rounds: int, most: float) -> Result:
    subjects = {
        exact: OnFresh(lambda: copied(folder, database), partial(_compact, folder, exact))
        for exact in ("auto", "never")
    }
    timings = alternate(subjects, rounds)
    mine, today = timings["auto"], timings["never"]
    pairs = [a / b for a, b in zip(mine.seconds, today.seconds, strict=True)]
    note = f"{mine.median:.2f} s and {today.median:.2f} s"
    name = f"{case}: seconds / everything decoded"
    ratio = mine.median / today.median
    return Result("gather", name, ratio, "x", most, low=min(pairs), high=max(pairs), note=note).judged()
