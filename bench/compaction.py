"""Full compaction on one core and on two, against the copy limit and Java, for files of three writers.

Further cases are a table of one bucket and a bucket of many tiny files.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.data import rows as made_rows
from bench.harness import OnFresh, Result, Subject, Timing, alternate, ratio
from bench.limits import decode_files, encode_file, files_by_bucket
from bench.table_life import scratch
from bench.tables import copied, made, written_by_dredge, written_by_java, written_by_pyarrow
from lsm_core import Catalog, Table
from lsm_core.commit import CommitMessage, Committer
from lsm_core.files import KeyValueFileWriter
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.format.schema import kv_arrow_schema
from tests.support.peers import java_environment, peer_module

ROWS, COMMITS, BUCKETS = 2_000_000, 10, 4
LARGE_ROWS, LARGE_COMMITS = 20_000_000, 20
LIMITS = {
    "full": {1: 1.85, 2: 2.0},
    "sampled": {1: 1.5, 2: 1.75},
    "counts": {1: 1.4, 2: 1.6},
}
"""Full compaction / copy limit by `dredge.verification` and cores; counts is the rewrite alone, without V1 and V2.

kernels.md 12 says which parts of a compaction the copy limit leaves out, and what was tried against them.
"""
FASTER_THAN_JAVA = {"java": 2.5, "pyarrow": None}
"""Java's full compaction / ours, fully verified, by writer of the files; only Java's own files have a target."""
ONE_BUCKET = 1.3
TINY_FILES, TINY_ROWS = 5_000, 200


def run(rows: int | None, rounds: int) -> list[Result]:
    """Measure full compactions of 2 M rows in 10 commits over 4 buckets, in files of Dredge, Java and pyarrow.

    Java also compacts the files of Java and pyarrow.
    """
    return _by_origin("compact", rows or ROWS, COMMITS, rounds, with_peers=True)


def run_large(rows: int | None, rounds: int) -> list[Result]:
    """Measure full compactions of 20 M rows in 20 commits over 4 buckets, in files of Dredge."""
    return _by_origin("compact-large", rows or LARGE_ROWS, LARGE_COMMITS, rounds, with_peers=False)


def _by_origin(bench: str, rows: int, number: int, rounds: int, *, with_peers: bool) -> list[Result]:
    with scratch() as folder, peer(folder) if with_peers else nullcontext() as java:
        ours = written_by_dredge(folder, rows, number, BUCKETS)
        results = _beside_limits(bench, folder, "dredge", rows, rounds)
        if with_peers:
            written_by_pyarrow(folder, ours, BUCKETS)
            results += _beside_limits(bench, folder, "pyarrow", rows, rounds)
        if java is not None:
            written_by_java(folder, rows, number, BUCKETS, java)
            results += _beside_limits(bench, folder, "java", rows, rounds)
            for origin, target in FASTER_THAN_JAVA.items():
                results += _beside_java(bench, folder, origin, java, rounds, target)
        return results


@contextmanager
def peer(folder: Path) -> Iterator[Any]:
    """Yield the real Java Paimon; without one, print a warning and yield None."""
    java_environment()
    module = peer_module()
    try:
        peer = module.PaimonPeer(folder, heap="4g", full_jit=True)
    except module.PeerMissing as error:
        print(f"bench: compact: PEER MISSING: {error}", file=sys.stderr)
        yield None
        return
    with peer as java:
        yield java


def _beside_limits(bench: str, folder: Path, origin: str, rows: int, rounds: int) -> list[Result]:
    results: list[Result] = []
    buckets = files_by_bucket(Catalog(str(folder)).table(f"{origin}.t"))
    kept = rows_after(folder, origin)
    for cores in (1, 2):
        subjects: dict[str, Subject] = {
            **{setting: compacting(folder, origin, setting) for setting in LIMITS},
            "limit": partial(copy_limit, buckets, kept, folder, cores),
        }
        with pinned(cores):
            timings = alternate(subjects, rounds)
        name = f"files of {origin}: full compaction / copy limit, {cores} core{'s' * (cores > 1)}"
        for setting, targets in LIMITS.items():
            label = name if setting == "full" else f"{name}, verification {setting}"
            results += ratio(bench, label, timings[setting], timings["limit"], targets[cores], rows)
    return results


def _beside_java(bench: str, folder: Path, origin: str, java: Any, rounds: int, target: float | None) -> list[Result]:
    """Compact copies of one table with Dredge and Java in turn, on two threads each; Java is timed in its warm JVM."""
    seconds: dict[str, list[float]] = {"java": [], "dredge": []}
    for number in range(rounds + 2):
        with copied(folder, origin) as database:
            theirs = float(java.call("bench_compact", table=f"{database}.t", full=True, threads=2)["secs"])
        with copied(folder, origin) as database:
            started = time.perf_counter()
            _compact(folder, database)
            ours = time.perf_counter() - started
        if number > 1:
            seconds["java"].append(theirs)
            seconds["dredge"].append(ours)
    mine, other = (Timing(tuple(seconds[name])) for name in ("dredge", "java"))
    pairs = [b / a for a, b in zip(mine.seconds, other.seconds, strict=True)]
    name = f"files of {origin}: Java's full compaction / ours, 2 threads"
    return [
        Result(bench, name, other.median / mine.median, "x", target, "higher", min(pairs), max(pairs)).judged(),
        Result(bench, f"{name}: java", other.median, "s", None, low=min(other.seconds), high=max(other.seconds)),
    ]


def compacting(folder: Path, origin: str, verification: str = "full") -> OnFresh:
    return OnFresh(lambda: copied(folder, origin), lambda database: _compact(folder, database, verification))


def _compact(folder: Path, database: str, verification: str = "full") -> Table:
    """Plan, compact and commit a table."""
    table = Catalog(str(folder)).table(f"{database}.t").copy({"dredge.verification": verification})
    table.compact(full=True)
    return table


def rows_after(folder: Path, origin: str) -> dict[int, int]:
    with copied(folder, origin) as database:
        table = Catalog(str(folder)).table(f"{database}.t")
        table.compact(full=True)
        return {bucket: sum(f.row_count for f in files) for bucket, (_, files) in files_by_bucket(table).items()}


def copy_limit(buckets: dict[int, tuple[str, Any]], rows: dict[int, int], folder: Path, cores: int) -> None:
    """Run the copy limit: decode all files of a bucket and encode as many rows as its compaction writes."""

    def copy_bucket(bucket: int) -> None:
        directory, files = buckets[bucket]
        encode_file(decode_files(directory, files).slice(0, rows[bucket]), str(folder / f"limit-{bucket}.parquet"))

    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(copy_bucket, buckets))


@contextmanager
def pinned(cores: int) -> Iterator[None]:
    """Restrict this process to the given number of cores while the context is open."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(before)[:cores]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def run_one_bucket(rows: int | None, rounds: int) -> list[Result]:
    """Compare full compactions of one bucket on two cores and on one core."""
    total = rows or ROWS
    with scratch() as folder:
        written_by_dredge(folder, total, COMMITS, 1)

        def on(cores: int) -> OnFresh:
            def subject(database: str) -> None:
                with pinned(cores):
                    _compact(folder, database)

            return OnFresh(lambda: copied(folder, "dredge"), subject)

        timings = alternate({"one": on(1), "two": on(2)}, rounds)
        pairs = [a / b for a, b in zip(timings["one"].seconds, timings["two"].seconds, strict=True)]
        gain = timings["one"].median / timings["two"].median
        return [
            Result(
                "one-bucket",
                "one core / two cores, a lone bucket",
                gain,
                "x",
                ONE_BUCKET,
                "higher",
                min(pairs),
                max(pairs),
            ).judged(),
            *(
                Result("one-bucket", f"{name} core(s)", t.median, "s", None, low=min(t.seconds), high=max(t.seconds))
                for name, t in timings.items()
            ),
        ]


def run_tiny(rows: int | None, rounds: int) -> list[Result]:
    """Compare compactions of 5,000 and of 2,500 level-0 files of 200 rows: time must grow about as the rows do."""
    files = (rows or TINY_FILES * TINY_ROWS) // TINY_ROWS
    with scratch() as folder:
        counts = {"half": files // 2, "all": files}
        for name, count in counts.items():
            _tiny(made(folder, name, 1), count)
        timings = alternate(
            {name: compacting(folder, name) for name in counts},
            min(rounds, 3),
        )
    pairs = [a / b for a, b in zip(timings["all"].seconds, timings["half"].seconds, strict=True)]
    grown = statistics.median(pairs)
    note = f"{timings['all'].median / files * 1e3:.2f} ms a file of {TINY_ROWS} rows"
    return [
        Result(
            "compact-tiny",
            f"{files:,} level-0 files / {files // 2:,}",
            grown,
            "x",
            2.3,
            low=min(pairs),
            high=max(pairs),
            note=note,
        ).judged(),
        *(
            Result(
                "compact-tiny", f"{counts[name]:,} files", t.median, "s", None, low=min(t.seconds), high=max(t.seconds)
            )
            for name, t in timings.items()
        ),
    ]


def _tiny(table: Table, files: int) -> None:
    """Add level-0 files of random keys in one commit."""
    store, random = table.store, np.random.default_rng(5)
    layout = kv_arrow_schema(store.schema)
    made_files = []
    for number in range(files):
        keys = np.sort(random.choice(files * TINY_ROWS, TINY_ROWS, replace=False)).astype(np.int64)
        values = made_rows(keys, number).combine_chunks().to_batches()[0]
        system = [np.arange(number * TINY_ROWS, (number + 1) * TINY_ROWS), np.zeros(TINY_ROWS, np.int8)]
        columns = [values.column(0), *system, *values.columns]
        writer = KeyValueFileWriter(store, EMPTY_ROW, 0, 1, level=0, file_source=0)
        writer.write(_batch(columns, layout))
        made_files += writer.close()
    Committer(store).commit([CommitMessage(EMPTY_ROW, 0, 1, new_files=tuple(made_files))])


def _batch(columns: list[Any], layout: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, layout, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=layout)
