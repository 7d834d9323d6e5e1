"""Writers that compact and expire by themselves, against Java's: time, write amplification, and concurrent reads."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.data import SCHEMA, commits
from bench.harness import Result
from bench.table_life import scratch
from lsm_core import Catalog, Schema, Table
from lsm_core.maintenance.observe import health
from lsm_core.metadata import manifests, snapshots
from tests.support.peers import java_environment, peer_module

ROWS, COMMITS, BUCKETS, TOGETHER = 5_000_000, 50, 4, 5
SMALL_COMMITS = 300
TARGET = 3.0
OPTIONS = {
    "bucket": str(BUCKETS),
    "dredge.compaction.inline": "follow",
    "snapshot.num-retained.min": "20",
    "snapshot.num-retained.max": "20",
}


def run(rows: int | None, rounds: int) -> list[Result]:
    """Measure 50 commits by writers of Dredge and of Java that compact and expire by themselves.

    The figures are seconds, write amplification, sorted runs and read times of both, the time of a small commit, and
    the time of a local SQL query.

    Args:
        rows: rows of all commits together, or None for `ROWS`.
        rounds: rounds; at most three are run.
    """
    results: list[Result] = []
    ratios, ours_seconds = [], []
    with scratch() as folder, java_tables(folder) as java:
        parts = list(commits(rows or ROWS, COMMITS))
        for number in range(min(rounds, 3)):
            ours = _Life(folder / f"ours{number}")
            theirs = None if java is None else _Life(folder / "java", f"t{number}")
            for at in range(0, COMMITS, TOGETHER):
                chosen = parts[at : at + TOGETHER]
                ours.write(chosen)
                if theirs is not None and java is not None:
                    theirs.let_java_write(java, chosen, f"bench.s{at}")
            ours_seconds.append(ours.seconds)
            if theirs is not None:
                ratios.append(theirs.seconds / ours.seconds)
        results.append(_result("50 commits with compaction and expiry", statistics.median(ours_seconds), "s"))
        if theirs is not None:
            results.append(
                Result(
                    "inline", "Java's writer / 50 commits", statistics.median(ratios), "x", TARGET, better="higher",
                    low=min(ratios), high=max(ratios), note="its reading of the rows left out",
                ).judged()
            )  # fmt: skip
        for who, life in (("dredge", ours), ("Java", theirs)):
            if life is not None:
                results += life.results(who)
        results.append(small_commits(folder / "small"))
        results.append(local_sql(folder / "ours0"))
    return results


def small_commits(warehouse: Path) -> Result:
    """Return the 99th percentile of a small commit that finds neither compaction nor expiry due, in ms."""
    catalog = Catalog(str(warehouse))
    catalog.create_database("bench")
    options = {**OPTIONS, "bucket": "1", "snapshot.num-retained.min": "1000", "snapshot.num-retained.max": "2000"}
    catalog.create_table("bench.small", Schema(SCHEMA, primary_keys=["id"], options=options))
    table = catalog.table("bench.small")
    times = []
    for part in commits(SMALL_COMMITS * 100, SMALL_COMMITS):
        started = time.perf_counter()
        table.write(part)
        elapsed = time.perf_counter() - started
        report = table.last_write
        if report is not None and report.compaction is None and not report.expired:
            times.append(elapsed * 1000)
    return Result(
        "inline", "p99 of a commit where nothing is due", float(np.percentile(times, 99)), "ms", 100.0,
        low=min(times), high=max(times), note=f"{len(times)} commits of 100 rows",
    ).judged()  # fmt: skip


def local_sql(warehouse: Path) -> Result:
    """Return the median seconds of ``dredge sql --engine local`` in a new process, over a table of few rows."""
    catalog = Catalog(str(warehouse))
    catalog.create_table("bench.few", Schema(SCHEMA, primary_keys=["id"], options={"bucket": "1"}))
    catalog.table("bench.few").write(next(iter(commits(1000, 1))))
    command = [sys.executable, "-m", "lsm_core.cli", "sql", "-w", str(warehouse), "--engine", "local"]
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([*command, "SELECT count(*) FROM bench.few WHERE id > 5"], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return Result(
        "inline", "dredge sql --engine local, cold", statistics.median(times), "s", 2.0,
        low=min(times), high=max(times),
    ).judged()  # fmt: skip


def _result(name: str, value: float, unit: str) -> Result:
    return Result("inline", name, value, unit, None)


class _Life:
    """One table during its commits: bytes written, most sorted runs of a snapshot, and seconds of writes and reads."""

    def __init__(self, warehouse: Path, name: str = "t") -> None:
        catalog = Catalog(str(warehouse))
        catalog.create_database("bench", ignore_if_exists=True)
        self.name = f"bench.{name}"
        catalog.create_table(self.name, Schema(SCHEMA, primary_keys=["id"], options=OPTIONS))
        self.table: Table = catalog.table(self.name)
        self.catalog, self.seconds = catalog, 0.0
        self._seen, self._runs = 0, 0
        self._added = {"APPEND": 0, "COMPACT": 0}
        self._reads: list[float] = []

    def write(self, parts: list[pa.Table]) -> None:
        """Write commits with Dredge, then time a read of the whole table."""
        started = time.perf_counter()
        for part in parts:
            self.table.write(part)
        self.seconds += time.perf_counter() - started
        self._look()
        started = time.perf_counter()
        for _ in self.table.to_batches():
            continue
        self._reads.append(time.perf_counter() - started)

    def let_java_write(self, java: Any, parts: list[pa.Table], source: str) -> None:
        """Write the same commits with Java, from the append table ``source``, then time reads by Java."""
        if source.removeprefix("bench.") not in self.catalog.list_tables("bench"):
            self.catalog.create_table(source, Schema(SCHEMA, options={"bucket": "-1", "write-only": "true"}))
            for part in parts:
                self.catalog.table(source).write(part)
        answer = java.call("bench_write", table=self.name, source=source, rows_per_commit=parts[0].num_rows)
        assert answer["commits"] == len(parts)
        self.seconds += answer["secs"] - answer["source_read_secs"]
        self._look()
        self._reads += java.call("bench_read", table=self.name, threads=2)["secs"]

    def _look(self) -> None:
        store = self.table.store
        for snapshot_id in snapshots.list_ids(store):
            if snapshot_id <= self._seen:
                continue
            snapshot = snapshots.read(store, snapshot_id)
            delta = manifests.delta_entries(store, snapshot)
            added = delta.filter(pc.equal(delta.column("kind"), 0))
            self._added[str(snapshot.commit_kind)] += pc.sum(added.column("file_size")).as_py() or 0
            runs = [bucket.sorted_runs for bucket in health(store, snapshot_id=snapshot_id)]
            self._runs = max(self._runs, *runs)
            self._seen = snapshot_id

    def results(self, who: str) -> list[Result]:
        """Return write amplification, most sorted runs of a snapshot, and the 95th percentile of the read times."""
        stop = self.table.store.options.stop_trigger
        amplification = (self._added["APPEND"] + self._added["COMPACT"]) / self._added["APPEND"]
        return [
            _result(f"{who}: write amplification", amplification, "x"),
            Result("inline", f"{who}: sorted runs a reader sees", self._runs, "runs", stop).judged(),
            _result(f"{who}: p95 of a whole read on two cores", float(np.percentile(self._reads, 95)), "s"),
        ]


@contextmanager
def java_tables(folder: Path) -> Iterator[Any]:
    """Yield a running Java Paimon on the warehouse ``folder / "java"``; None without one."""
    java_environment()
    module = peer_module()
    try:
        with module.PaimonPeer(folder / "java", heap="4g", full_jit=True) as java:
            yield java
    except module.PeerMissing as error:
        print(f"bench: inline: PEER MISSING: {error}", file=sys.stderr)
        yield None
