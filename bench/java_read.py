"""Java's reader on files of Dredge against files of Java with the same rows, alternating in one JVM."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.data import SCHEMA, commits
from bench.harness import ROUNDS, Result, Timing
from bench.table_life import scratch
from lsm_core import Catalog, Schema
from tests.support.peers import java_environment, peer_module

ROWS, COMMITS, TARGET, WARM_UP = 1_000_000, 4, 1.1, 3
_TABLES: dict[str, tuple[str, Mapping[str, str]]] = {
    "append table": ("distinct", {"bucket": "-1"}),
    "append table, values repeat": ("repeating", {"bucket": "-1"}),
    "key-value table after full compaction": ("keyed", {"bucket": "1"}),
}


def run(rows: int | None, rounds: int) -> list[Result]:
    """Measure seconds in the JVM, one thread, all columns; without Java Paimon, print a warning and return nothing."""
    java_environment()
    module = peer_module()
    results: list[Result] = []
    try:
        with scratch() as folder, module.PaimonPeer(folder, heap="2g", full_jit=True) as java:
            for name, (kind, options) in _TABLES.items():
                results += _compared(java, folder, name, kind, options, rows or ROWS, rounds)
    except module.PeerMissing as error:
        print(f"bench: java-read: PEER MISSING: {error}", file=sys.stderr)
    return results


def _compared(
    java: Any, folder: Path, name: str, kind: str, options: Mapping[str, str], rows: int, rounds: int
) -> list[Result]:
    catalog = Catalog(str(folder))
    catalog.create_database(kind, ignore_if_exists=True)
    keys = ["id"] if kind == "keyed" else []
    parts = list(_repeating(rows) if kind == "repeating" else commits(rows, COMMITS))
    for table, primary_keys, table_options in (
        ("source", [], {"bucket": "-1"}),
        ("ours", keys, options),
        ("theirs", keys, options),
    ):
        catalog.create_table(
            f"{kind}.{table}", Schema(parts[0].schema, primary_keys=primary_keys, options=table_options)
        )
    for part in parts:
        catalog.table(f"{kind}.source").write(part)
        catalog.table(f"{kind}.ours").write(part)
    java.call("bench_write", table=f"{kind}.theirs", source=f"{kind}.source", rows_per_commit=rows // COMMITS)
    if keys:
        catalog.table(f"{kind}.ours").compact(full=True)
        java.call("bench_compact", table=f"{kind}.theirs", full=True)
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    counted = set()
    for number in range(WARM_UP + max(rounds, ROUNDS)):
        for table, durations in seconds.items():
            answer = java.call("bench_read", table=f"{kind}.{table}", threads=1, reps=1)
            counted.add(answer["rows"])
            if number >= WARM_UP:
                durations.append(answer["secs"][0])
    if len(counted) != 1:
        raise AssertionError(f"{name}: Java reads {sorted(counted)} rows")
    return _figures(name, {table: Timing(tuple(durations)) for table, durations in seconds.items()}, counted.pop())


def _figures(name: str, timings: Mapping[str, Timing], rows: int) -> list[Result]:
    ours, theirs = timings["ours"], timings["theirs"]
    pairs = [mine / java for mine, java in zip(ours.seconds, theirs.seconds, strict=True)]
    judged = Result(
        "java-read", name, ours.median / theirs.median, "x", TARGET, low=min(pairs), high=max(pairs),
        note=f"{rows / ours.median / 1e6:.2f} M rows/s",
    ).judged()  # fmt: skip
    times = [
        Result("java-read", f"{name}: files of {who}", t.median, "s", None, low=min(t.seconds), high=max(t.seconds))
        for who, t in (("dredge", ours), ("java", theirs))
    ]
    return [judged, *times]


def _repeating(rows: int) -> list[pa.Table]:
    """Return the same columns with few distinct values and nulls, which Java itself writes as dictionaries."""
    random = np.random.default_rng(3)
    made = []
    for part in commits(rows, COMMITS):
        count = part.num_rows
        for i in range(4):
            numbers = pa.array(random.integers(0, 50, count), mask=random.random(count) < 0.1)
            part = part.set_column(part.column_names.index(f"n{i}"), SCHEMA.field(f"n{i}"), numbers)
        for i in range(2):
            words = pa.array([f"word number {n}" for n in range(200)]).take(pa.array(random.integers(0, 200, count)))
            part = part.set_column(part.column_names.index(f"s{i}"), SCHEMA.field(f"s{i}"), words)
        made.append(part)
    return made
