"""Repeating text on one core: rewriting and reading five text columns of 2,000 values each against the plain limits."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from bench.compaction import compacting, copy_limit, pinned, rows_after
from bench.data import TEXT_SCHEMA, commits, text_rows
from bench.harness import Result, alternate, ratio
from bench.limits import decode_files, files_by_bucket
from bench.table_life import BUCKETS, COMMITS, ROWS, scratch
from lsm_core import Catalog, Schema, Table
from tests.support.peers import java_environment, peer_module

REWRITE, READ, JAVA = 1.05, 1.05, 1.05
WARM_UP = 2
_NAME = "dredge"


def run_compact(rows: int | None, rounds: int) -> list[Result]:
    """Measure the rewrite alone and fully verified against the copy limit, and Java's reads before and after."""
    total = rows or ROWS
    with scratch() as folder:
        table = _filled(folder, total)
        buckets, kept = files_by_bucket(table), rows_after(folder, _NAME)
        with pinned(1):
            timings = alternate(
                {
                    "counts": compacting(folder, _NAME, "counts"),
                    "full": compacting(folder, _NAME),
                    "limit": partial(copy_limit, buckets, kept, folder, 1),
                },
                rounds,
            )
        name = "repeating text: rewrite alone / copy limit, one core"
        results = ratio("compact-text", name, timings["counts"], timings["limit"], REWRITE, total)
        verified = timings["full"].median / timings["limit"].median
        results.append(
            Result("compact-text", "repeating text: fully verified / copy limit, one core", verified, "x", None)
        )
        return results + _java_reads_as_fast(folder, rounds)


def run_read(rows: int | None, rounds: int) -> list[Result]:
    """Measure merge-on-read as plain text and as dictionaries against a plain decode of the same files."""
    total = rows or ROWS
    with scratch() as folder:
        table = _filled(folder, total).copy({"dredge.read.threads": "1"})
        buckets = files_by_bucket(table)

        def limit() -> None:
            for directory, files in buckets.values():
                decode_files(directory, files)

        with pinned(1):
            timings = alternate(
                {
                    "text": lambda: sum(batch.num_rows for batch in table.to_batches()),
                    "dictionaries": lambda: sum(batch.num_rows for batch in table.to_batches(dictionaries=True)),
                    "limit": limit,
                },
                rounds,
            )
        name = "repeating text: merge-on-read / plain decode, one core"
        results = ratio("read-text", name, timings["text"], timings["limit"], READ, total)
        return results + ratio(
            "read-text", f"{name}, as dictionaries", timings["dictionaries"], timings["limit"], READ, total
        )


def _filled(warehouse: Path, total: int) -> Table:
    catalog = Catalog(str(warehouse))
    catalog.create_database(_NAME)
    options = {"bucket": str(BUCKETS), "write-only": "true"}
    catalog.create_table(f"{_NAME}.t", Schema(TEXT_SCHEMA, primary_keys=["id"], options=options))
    table = catalog.table(f"{_NAME}.t")
    for data in commits(total, COMMITS, made=text_rows):
        table.write(data)
    return table


def _java_reads_as_fast(folder: Path, rounds: int) -> list[Result]:
    """Measure Java's reads of the same compaction, written from dictionaries and from plain text, in turn."""
    java_environment()
    module = peer_module()
    catalog = Catalog(str(folder))
    try:
        with module.PaimonPeer(folder, heap="3g", full_jit=True) as java:
            seconds: dict[str, list[float]] = {"dictionaries": [], "text": []}
            for name in seconds:
                _compacted(folder, catalog, name)
            for number in range(rounds + WARM_UP):
                for name, durations in seconds.items():
                    answer: dict[str, Any] = java.call("bench_read", table=f"{name}.t", threads=1, reps=1)
                    if number >= WARM_UP:
                        durations.append(answer["secs"][0])
    except module.PeerMissing as error:
        print(f"bench: compact-text: PEER MISSING: {error}", file=sys.stderr)
        return []
    pairs = sorted(a / b for a, b in zip(seconds["dictionaries"], seconds["text"], strict=True))
    name = "repeating text: Java reads files of dictionaries / of plain text"
    figure = Result("compact-text", name, pairs[len(pairs) // 2], "x", JAVA, low=pairs[0], high=pairs[-1])
    return [figure.judged()]


def _compacted(folder: Path, catalog: Catalog, name: str) -> None:
    """Compact a copy of the table under ``name``; "text" uses no dictionaries in memory."""
    shutil.copytree(folder / f"{_NAME}.db", folder / f"{name}.db")
    table = catalog.table(f"{name}.t")
    if name == "text":
        with mock.patch("lsm_core.read.merge_read.repeating_texts", return_value=[]):
            table.compact(full=True)
    else:
        table.compact(full=True)
