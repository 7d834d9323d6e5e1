"""Cost of page checksums: writes, compactions and reads with checksums against the same without."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from bench.data import commits
from bench.harness import OnFresh, Result, Subject, alternate, ratio
from bench.table_life import new_table
from lsm_core import Table

ROWS = 1_000_000
COMMITS = 5
TARGET = 1.03


def run(rows: int | None, rounds: int) -> list[Result]:
    """Return ratios of each operation with checksums to the same without, as medians of alternating rounds.

    Args:
        rows: rows of all commits together, or None for `ROWS`.
        rounds: rounds of each operation.
    """
    total = rows or ROWS
    data = list(commits(total, COMMITS))
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        places = iter(Path(folder) / f"t{number}" for number in range(1_000_000))

        @contextmanager
        def written() -> Iterator[Table]:
            table = new_table(next(places))
            for part in data:
                table.write(part)
            yield table

        def write(_: object) -> None:
            with written():
                return

        def compact(table: Table) -> None:
            table.compact(full=True)

        for name, made, work in (("five commits", _nothing, write), ("full compaction", written, compact)):
            subjects: dict[str, Subject] = {
                "with": OnFresh(made, work),
                "without": OnFresh(_plain(made), _unchecked(work)),
            }
            times = alternate(subjects, rounds)
            results += ratio("checksums", f"{name}: with / without", times["with"], times["without"], TARGET, total)
        with written() as with_checksums, _plain(written)() as plain:
            for table in (with_checksums, plain):
                table.compact(full=True)
            readers: dict[str, Subject] = {"with": with_checksums.to_arrow, "without": plain.to_arrow}
            times = alternate(readers, rounds)
            results += ratio("checksums", "read: with / without", times["with"], times["without"], TARGET, total)
    return results


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _without_checksums() -> Iterator[None]:
    """Make the engine write Parquet files without page checksums while the context is open."""
    import pyarrow.parquet as pq

    writer = pq.ParquetWriter

    def plain(*arguments: Any, **settings: Any) -> Any:
        return writer(*arguments, **{**settings, "write_page_checksum": False})

    with mock.patch.object(pq, "ParquetWriter", plain):
        yield


def _plain(made: Callable[[], Any]) -> Callable[[], Any]:
    @contextmanager
    def fresh() -> Iterator[Any]:
        with _without_checksums(), made() as value:
            yield value

    return fresh


def _unchecked(work: Callable[[Any], object]) -> Callable[[Any], object]:
    def act(value: Any) -> None:
        with _without_checksums():
            work(value)

    return act
