"""Writing ten commits against a plain encode into as many files, Java Paimon and pypaimon; memory of a writer."""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.data import SCHEMA, commits, rows
from bench.harness import Result, Timing, peak_of, ratio
from bench.limits import encode_file
from bench.table_life import BUCKETS, COMMITS, ROWS, new_table, scratch, with_system_columns
from lsm_core import Catalog, Schema
from tests.support.peers import PYPAIMON, PyPaimon, PyPaimonProcess, java_environment, peer_module

PYPAIMON_COMMITS = 2
SMALL, LARGE, STEP = 2_000_000, 10_000_000, 100_000
LIMIT_GROWTH = 1.1
SHUFFLED_TARGET = 2.2


def run(wanted: int | None, rounds: int) -> list[Result]:
    """Measure seconds of ten commits; missing peers are named on stderr and left out."""
    total = wanted or ROWS
    with scratch() as folder:
        data = list(commits(total, COMMITS))
        ours, limit = _beside(folder, data)
        with java_writer(folder, data) as java:
            seconds: dict[str, list[float]] = {"dredge": [], "limit": [], "java": []}
            for number in range(rounds + 1):
                durations = {"dredge": _timed(ours), "limit": _timed(limit), "java": java() if java else None}
                for name, spent in durations.items():
                    if number and spent is not None:
                        seconds[name].append(spent)
        timings = {name: Timing(tuple(spent)) for name, spent in seconds.items() if spent}
        name = "ten commits / plain encode into as many files"
        results = ratio("write", name, timings["dredge"], timings["limit"], 2.0, total)
        if "java" in timings:
            results += _faster("Java's writer", timings["java"], timings["dredge"].median, 4.0, "its reading left out")
        results += _pypaimon(folder, data, timings["dredge"].median)
    return results


def run_shuffled(wanted: int | None, rounds: int) -> list[Result]:
    """Measure the same commits with random 64-bit keys, whose order helps neither the sort nor the encoder."""
    total = wanted or ROWS
    order = np.random.default_rng(11)
    limits = np.iinfo(np.int64)
    data = [rows(order.integers(limits.min, limits.max, total // COMMITS), number) for number in range(COMMITS)]
    with scratch() as folder:
        ours, limit = _beside(folder, data)
        spent = [(_timed(ours), _timed(limit)) for _ in range(rounds + 1)][1:]
    timings = [Timing(tuple(side)) for side in zip(*spent, strict=True)]
    return ratio("write-shuffled", "ten commits / plain encode into as many files", *timings, SHUFFLED_TARGET, total)


def _beside(folder: Path, data: list[pa.Table]) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return functions that write ``data`` as commits of a new table and that encode it into as many files."""
    fresh = iter(range(1_000_000))

    def ours() -> None:
        table = new_table(folder / f"w{next(fresh)}")
        for part in data:
            table.write(part)

    def limit() -> None:
        for number, part in enumerate(data):
            for bucket, piece in enumerate(_by_file(part)):
                encode_file(with_system_columns(piece), str(folder / f"{number}-{bucket}"))

    return ours, limit


def _by_file(part: pa.Table) -> list[pa.Table]:
    """Split a commit into as many pieces as it has files."""
    each = -(-part.num_rows // BUCKETS)
    return [part.slice(bucket * each, each) for bucket in range(BUCKETS)]


def _faster(who: str, theirs: Timing, ours: float, target: float, note: str) -> list[Result]:
    low, high = min(theirs.seconds) / ours, max(theirs.seconds) / ours
    figure = Result("write", f"{who} / dredge", theirs.median / ours, "x", target, "higher", low, high, note).judged()
    return [figure, Result("write", f"{who}, the same commits", theirs.median, "s", None)]


def _timed(work: Callable[[], object]) -> float:
    gc.collect()
    pa.default_memory_pool().release_unused()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@contextmanager
def java_writer(folder: Path, data: list[pa.Table]) -> Iterator[Callable[[], float] | None]:
    """Yield a function that returns Java's seconds for the same commits from a table; None without Java Paimon."""
    java_environment()
    module = peer_module()
    try:
        with module.PaimonPeer(folder / "java", heap="2g", full_jit=True) as java:
            catalog = Catalog(str(folder / "java"))
            catalog.create_database("bench", ignore_if_exists=True)
            catalog.create_table("bench.source", Schema(SCHEMA, options={"bucket": "-1"}))
            for part in data:
                catalog.table("bench.source").write(part)
            fresh = iter(range(1_000_000))

            def once() -> float:
                name = f"bench.t{next(fresh)}"
                options = {"bucket": str(BUCKETS), "write-only": "true"}
                catalog.create_table(name, Schema(SCHEMA, primary_keys=["id"], options=options))
                answer: dict[str, Any] = java.call(
                    "bench_write", table=name, source="bench.source", rows_per_commit=data[0].num_rows
                )
                assert answer["commits"] == len(data)
                return float(answer["secs"] - answer["source_read_secs"])

            yield once
    except module.PeerMissing as error:
        print(f"bench: write: PEER MISSING: {error}", file=sys.stderr)
        yield None


def _pypaimon(folder: Path, data: list[pa.Table], ours: float) -> list[Result]:
    """Return pypaimon's seconds for the first commits, scaled to all, which would take minutes."""
    if not PYPAIMON.is_file():
        print("bench: write: PEER MISSING: no .peers/pypaimon", file=sys.stderr)
        return []
    chosen = data[:PYPAIMON_COMMITS]
    (folder / "pypaimon").mkdir()
    process = PyPaimonProcess()
    try:
        peer = PyPaimon(process, folder / "pypaimon", folder)
        peer.create("bench.t", chosen[0].slice(0, 1), ["id"], [], {"bucket": str(BUCKETS), "write-only": "true"})
        spent = [peer.write("bench.t", part) for part in chosen]
    finally:
        process.close()
    scaled = sum(spent) * len(data) / len(chosen)
    note = f"{len(chosen)} commits of {chosen[0].num_rows:,} rows, scaled to {len(data)}"
    return _faster("pypaimon", Timing((scaled,)), ours, 10.0, note)


def child(folder: str, count: int) -> None:
    """Write ``count`` rows in one commit, generated while they are written; :func:`memory` measures this process."""
    table = new_table(Path(folder)).copy({"write-buffer-size": "64 mb"})
    order = np.random.default_rng(1)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(count // STEP):
            yield from rows(order.integers(0, 1 << 40, STEP), number).to_batches()

    table.write(pa.RecordBatchReader.from_batches(SCHEMA, batches()))


def memory(wanted: int | None, _rounds: int) -> list[Result]:
    """Measure the peak RSS of a process that writes one commit, at two sizes; `--rows` is the larger one."""
    large = wanted or LARGE
    peaks: dict[str, float] = {}
    results = []
    for name, count in (("large", large), ("small", large * SMALL // LARGE)):
        with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
            program = f"from bench.writing import child; child({folder!r}, {count})"
            peaks[name], seconds = peak_of([sys.executable, "-c", program])
        note = f"{count:,} rows, buffer 64 MiB, {seconds:.1f} s"
        results.append(Result("write-memory", f"peak RSS, {name} commit", peaks[name], "MiB", None, note=note))
    grown = peaks["large"] / peaks["small"]
    return [
        *results,
        Result("write-memory", "peak of five times the rows", grown, "x", LIMIT_GROWTH).judged(),
    ]
