"""Changelog producers: lookup compaction against Java with peak memory; full compaction with and without changelog."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.compaction import peer
from bench.harness import Result, Timing, peak_of
from bench.table_life import scratch
from bench.tables import compacted_with_new_versions, copied
from lsm_core import Catalog, Table
from lsm_core.files import KeyValueFileWriter, open_kv
from lsm_core.format.manifest import table_to_entries
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.live_files import bucket_groups

ROWS = 2_000_000
FASTER_THAN_JAVA, MOST_MIB, MOST_GROWTH, MOST_OVER_PLAIN = 2.5, 700.0, 1.2, 1.3
_COMPACT = "import sys; from lsm_core import Catalog; Catalog(sys.argv[1]).table(sys.argv[2]).compact()"


def run(rows: int | None, rounds: int) -> list[Result]:
    """Measure compactions of tables with a changelog.

    The figures are the time of a lookup compaction of 200,000 new rows over 2 M rows, its peak memory at 2 M and at 8 M
    rows, and the cost of a full compaction with and without changelog.

    Args:
        rows: rows of the table, or None for 2 M.
        rounds: alternating rounds.
    """
    total = rows or ROWS
    with scratch() as folder, peer(folder) as java:
        compacted_with_new_versions(folder, "lookup", total, {"changelog-producer": "lookup"})
        results = [] if java is None else _beside_java(folder, java, rounds)
        compacted_with_new_versions(folder, "large", 4 * total, {"changelog-producer": "lookup"})
        peaks = [peak_of([sys.executable, "-c", _COMPACT, str(folder), f"{n}.t"])[0] for n in ("lookup", "large")]
        name = "lookup compaction of level 0, peak RSS"
        results.append(Result("changelog", name, peaks[0], "MiB", MOST_MIB, note=f"{total:,} rows").judged())
        grown = Result(
            "changelog", f"{name}, of four times the table / of the table", peaks[1] / peaks[0], "x", MOST_GROWTH
        )
        for producer in ("full-compaction", "none"):
            compacted_with_new_versions(folder, producer.partition("-")[0], total, {"changelog-producer": producer})
        return [*results, grown.judged(), *_full(folder, rounds)]


def _beside_java(folder: Path, java: Any, rounds: int) -> list[Result]:
    """Compact copies of one table with Dredge and Java in turn, on two threads each; Java is timed in its warm JVM."""
    seconds: dict[str, list[float]] = {"java": [], "dredge": []}
    for number in range(rounds + 2):
        with copied(folder, "lookup") as database:
            theirs = float(java.call("bench_compact", table=f"{database}.t", full=False, threads=2)["secs"])
            change_count = _count_changes(Catalog(str(folder)).table(f"{database}.t"))
        with copied(folder, "lookup") as database:
            table = Catalog(str(folder)).table(f"{database}.t")
            started = time.perf_counter()
            table.compact()
            ours = time.perf_counter() - started
            if _count_changes(table) != change_count:
                raise AssertionError(f"Java wrote {change_count} changes, Dredge {_count_changes(table)}")
        if number > 1:
            seconds["java"].append(theirs)
            seconds["dredge"].append(ours)
    mine, other = (Timing(tuple(seconds[name])) for name in ("dredge", "java"))
    pairs = [b / a for a, b in zip(mine.seconds, other.seconds, strict=True)]
    name = "lookup compaction of level 0, 2 threads: Java / ours"
    value = other.median / mine.median
    return [
        Result("changelog", name, value, "x", FASTER_THAN_JAVA, "higher", min(pairs), max(pairs)).judged(),
        Result("changelog", f"{name}: java", other.median, "s", None, low=min(other.seconds), high=max(other.seconds)),
    ]


def _count_changes(table: Table) -> int:
    return int(table.snapshots()[-1].changelog_record_count or 0)


def _full(folder: Path, rounds: int) -> list[Result]:
    """Measure processor seconds of full compactions with and without changelog, and of encoding the changelog alone."""
    spent: dict[str, list[float]] = {"full": [], "none": [], "encode": []}
    for number in range(rounds + 1):
        durations: dict[str, float] = {}
        for name in ("full", "none"):
            with copied(folder, name) as database:
                table = Catalog(str(folder)).table(f"{database}.t")
                started = time.process_time()
                table.compact(full=True)
                durations[name] = time.process_time() - started
                if name == "full":
                    durations["encode"] = _encode(table)
        if number:
            for name, value in durations.items():
                spent[name].append(value)
    full, none, encode = (Timing(tuple(spent[name])).median for name in ("full", "none", "encode"))
    value = (full - encode) / none
    note = f"{full:.2f} s with, {none:.2f} s without, {encode:.2f} s to encode the changelog"
    name = "(full compaction with its changelog - encoding that) / full compaction, user time"
    return [Result("changelog", name, value, "x", MOST_OVER_PLAIN, note=note).judged()]


def _encode(table: Table) -> float:
    """Return the processor seconds of writing the newest changelog again from rows in memory."""
    store, newest = table.store, snapshots.latest(table.store)
    assert newest is not None
    parts: list[tuple[bytes, int, int, Sequence[pa.RecordBatch]]] = []
    for partition, bucket, total, entries in bucket_groups(manifests.changelog_entries(store, newest)):
        files = [entry.file for entry in table_to_entries(entries)]
        parts.append((partition, bucket, total, [b for f in files for b in open_kv(store, partition, bucket, f)]))
    started = time.process_time()
    for partition, bucket, total, batches in parts:
        writer = KeyValueFileWriter.of_changes(store, partition, bucket, total, store.options.num_levels - 1)
        for batch in batches:
            writer.write(batch)
        writer.close()
    return time.process_time() - started
