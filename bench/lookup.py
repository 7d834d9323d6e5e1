"""Lookups in one bucket of 20 M rows with cached footers: one key, neighbouring keys, scattered keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import SCHEMA, rows
from bench.harness import Result, Timing, alternate
from bench.limits import files_by_bucket
from bench.table_life import scratch
from lsm_core import Catalog, Schema, Table
from lsm_core.files.formats import parquet as settings

ROWS, FILE_ROWS, STEP, LOOKUP_KEYS, POINTS = 20_000_000, 2_000_000, 3, 10_000, 9
LARGE_GROUPS = 1 << 20


def run(total: int | None, rounds: int) -> list[Result]:
    """Measure files as the engine writes them and, for single keys, a bucket in row groups of about a million rows."""
    count = total or ROWS
    with scratch() as folder:
        table = filled(folder / "ours", count)
        results = _ours(table, count, rounds)
        with (
            mock.patch("lsm_core.files.writer.ROW_GROUP_ROWS", LARGE_GROUPS),
            mock.patch("lsm_core.files.writer._GROUP_BYTES", 1 << 40),
        ):
            large = filled(folder / "large", count)
        results.append(_points("one key, row groups of 1 M rows", large, count, rounds, 0.25))
    return results


def filled(warehouse: Path, count: int) -> Table:
    """Create a bucket of one level in which every third number is a key.

    Commits are in key order, so the full compaction only moves the files to the top level.
    """
    catalog = Catalog(str(warehouse))
    catalog.create_database("bench", ignore_if_exists=True)
    options = {"bucket": "1", "write-only": "true", "write-buffer-size": "2 gb"}
    catalog.create_table("bench.t", Schema(SCHEMA, primary_keys=["id"], options=options))
    table = catalog.table("bench.t")
    for start in range(0, count, FILE_ROWS):
        table.write(rows(np.arange(start, min(count, start + FILE_ROWS), dtype=np.int64) * STEP, start))
    table.compact(full=True)
    return table


def _ours(table: Table, count: int, rounds: int) -> list[Result]:
    random = np.random.default_rng(5)
    width = max(1, count // 100)
    start = int(random.integers(0, count - width))
    near = random.integers(start, start + width, LOOKUP_KEYS) * STEP
    far = random.integers(0, count, LOOKUP_KEYS) * STEP
    timings = alternate(
        {
            "near": lambda: _look_up(table, near),
            "far, one column": lambda: _look_up(table, far, ["n0"]),
            "far": lambda: _look_up(table, far),
            "decode": lambda: _decoded(table, far),
        },
        min(rounds, 2),
    )
    ratios = [mine / plain for mine, plain in zip(timings["far"].seconds, timings["decode"].seconds, strict=True)]
    far_ratio = timings["far"].median / timings["decode"].median
    return [
        _points("one key", table, count, rounds, 0.05),
        _seconds("10,000 keys within 1 % of the range", timings["near"], 0.2),
        _seconds("10,000 random keys, one value column", timings["far, one column"], 1.0),
        Result(
            "lookup", "10,000 random keys / decode of the row groups hit", far_ratio, "x", 1.1,
            low=min(ratios), high=max(ratios),
        ).judged(),
        _seconds("10,000 random keys, all columns", timings["far"], None),
    ]  # fmt: skip


def _look_up(table: Table, numbers: np.ndarray, columns: Sequence[str] | None = None) -> None:
    rows = table.lookup(pa.table({"id": numbers}), columns)
    if rows.num_rows != len(np.unique(numbers)):
        raise AssertionError(f"{rows.num_rows} rows of {len(np.unique(numbers))} keys")


def _points(name: str, table: Table, count: int, rounds: int, target: float) -> Result:
    """Return the median over keys from the whole bucket, with one lookup each and cached footers."""
    keys = np.random.default_rng(6).integers(0, count, POINTS) * STEP
    subjects: dict[str, Callable[[], object]] = {
        f"key {key}": partial(_look_up, table, np.array([key])) for key in keys.tolist()
    }
    timings = alternate(subjects, rounds)
    return _seconds(name, Timing(tuple(seconds for t in timings.values() for seconds in t.seconds)), target)


def _seconds(name: str, timing: Timing, target: float | None) -> Result:
    return Result(
        "lookup", name, timing.median, "s", target, low=min(timing.seconds), high=max(timing.seconds)
    ).judged()  # fmt: skip


def _decoded(table: Table, numbers: np.ndarray) -> None:
    """Decode all columns of the row groups that hold a key, as a plain reader does."""
    for directory, files in files_by_bucket(table).values():
        for file in files:
            with pa.OSFile(f"{directory}/{file.file_name}") as source:
                opened = pq.ParquetFile(source, buffer_size=settings.BUFFER_SIZE, pre_buffer=False)
                hit = _groups_hit(opened.metadata, numbers)
                for _ in opened.iter_batches(settings.ROW_GROUP_ROWS, row_groups=hit, use_threads=False):
                    pass


def _groups_hit(footer: pq.FileMetaData, numbers: np.ndarray) -> list[int]:
    hit = []
    for group in range(footer.num_row_groups):
        known = footer.row_group(group).column(0).statistics
        if ((numbers >= known.min) & (numbers <= known.max)).any():
            hit.append(group)
    return hit
