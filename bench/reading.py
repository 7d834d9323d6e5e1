"""Merge-on-read against a plain decode on one core, Java's reader on two, pypaimon, and (cold) pypaimon-rust."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.compaction import pinned
from bench.data import SCHEMA, commits
from bench.harness import Result, Timing, alternate, ratio
from bench.limits import decode_files, files_by_bucket
from bench.table_life import BUCKETS, COMMITS, CORES, ROWS, filled, scratch
from bench.tables import written_by_dredge, written_by_java, written_by_pyarrow
from lsm_core import Catalog, Schema, Table
from tests.support.peers import PYPAIMON, PYPAIMON_RUST, PyPaimon, PyPaimonProcess, java_environment, peer_module

WARM_UP = 3
COLD_MIB = 260.0
COLD_TARGET = 1.25
PYPAIMON_SHARE = 10
"""pypaimon reads a tenth of the rows: it takes a Python object a row."""
_ORDERED = {"sequence.field": "n0"}


def read(rows: int | None, rounds: int) -> list[Result]:
    """Return all figures; a missing peer prints a warning and its figures are left out."""
    total = rows or ROWS
    results: list[Result] = []
    with scratch() as folder:
        results += _on_one_core("file metadata orders the rows", filled(folder / "plain", total), 1.45, total, rounds)
        ordered = _ordered(folder / "ordered", total)
        results += _on_one_core("a sequence field and deletes", ordered, 1.65, total, rounds)
        results += _cold(folder / "plain", rounds)
    return results + _beside_java(total, rounds) + _beside_pypaimon(total // PYPAIMON_SHARE, rounds)


def _with_threads(table: Table, threads: int) -> Table:
    return table.copy({"dredge.read.threads": str(threads)})


def _drain(table: Table) -> int:
    return sum(batch.num_rows for batch in table.to_batches())


def _on_one_core(name: str, table: Table, target: float, total: int, rounds: int) -> list[Result]:
    buckets, single = files_by_bucket(table), _with_threads(table, 1)

    def limit() -> None:
        for directory, files in buckets.values():
            decode_files(directory, files)

    timings = alternate({"dredge": lambda: _drain(single), "limit": limit}, rounds)
    called = f"merge-on-read / plain decode, one core, {name}"
    return ratio("read", called, timings["dredge"], timings["limit"], target, total)


def _ordered(warehouse: Path, total: int) -> Table:
    """Create a table with a sequence field and deletes, so that keys, sequence numbers and kinds are all needed."""
    catalog = Catalog(str(warehouse))
    catalog.create_database("bench", ignore_if_exists=True)
    options = {"bucket": str(BUCKETS), "write-only": "true", **_ORDERED}
    catalog.create_table("bench.t", Schema(SCHEMA, primary_keys=["id"], options=options))
    table = catalog.table("bench.t")
    for data in commits(total, COMMITS):
        deleted = data.num_rows // 20
        table.write(data, row_kinds=pa.array(["-D"] * deleted + ["+I"] * (data.num_rows - deleted)))
    return table


# -- a cold process ----------------------------------------------------------------------------------------------------


def _cold(warehouse: Path, rounds: int) -> list[Result]:
    """Measure one process per round on one core, with imports; alternate with pypaimon-rust if available.

    Modules are compiled in the first round, as `pip` does for installed packages.
    """
    programs = {"dredge": (sys.executable, _COLD_DREDGE), "pypaimon-rust": (str(PYPAIMON_RUST), _COLD_RUST)}
    if not PYPAIMON_RUST.is_file():
        print("bench: read: PEER MISSING: no .peers/pypaimon-rust", file=sys.stderr)
        del programs["pypaimon-rust"]
    answers_by_peer: dict[str, list[dict[str, float]]] = {who: [] for who in programs}
    with pinned(1):
        for number in range(rounds + 1):
            for who, (python, program) in programs.items():
                answer = _process(python, program, warehouse)
                if number:  # the first round brings the files into the machine's cache
                    answers_by_peer[who].append(answer)
    if len({answer["rows"] for answers in answers_by_peer.values() for answer in answers}) != 1:
        raise AssertionError(f"not the same rows: {answers_by_peer}")
    seconds, peaks = (
        {who: statistics.median(answer[figure] for answer in answers) for who, answers in answers_by_peer.items()}
        for figure in ("seconds", "mib")
    )
    name = "merge-on-read in a cold process, one core"
    # Without any import of Dredge, its process still takes 1.06 of the other's time (docs/kernels.md).
    limit = COLD_TARGET * seconds["pypaimon-rust"] if "pypaimon-rust" in seconds else None
    note = "" if limit is None else f"pypaimon-rust {seconds['pypaimon-rust']:.2f} s, {peaks['pypaimon-rust']:.0f} MiB"
    return [
        Result("read", name, seconds["dredge"], "s", limit, note=note).judged(),
        Result("read", f"{name}, peak RSS", peaks["dredge"], "MiB", COLD_MIB).judged(),
    ]


def _process(python: str, program: str, warehouse: Path) -> dict[str, float]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(warehouse / "compiled modules")
    command = [python, "-c", program, str(warehouse)]
    root = Path(__file__).resolve().parent.parent
    started = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root, env=environment)
    rows, mib = done.stdout.split()
    return {"rows": float(rows), "mib": float(mib), "seconds": time.perf_counter() - started}


_PEAK = """
import re
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read()).group(1)[:-3])
"""
_COLD_DREDGE = (
    """
import sys
from lsm_core import Catalog
table = Catalog(sys.argv[1]).table("bench.t").copy({"dredge.read.threads": "1"})
print(sum(batch.num_rows for batch in table.to_batches()))
"""
    + _PEAK
)
_COLD_RUST = (
    """
import sys
from pypaimon_rust.datafusion import PaimonCatalog
builder = PaimonCatalog({"warehouse": sys.argv[1]}).get_table("bench.t").new_read_builder()
print(sum(batch.num_rows for batch in builder.new_read().read(builder.new_scan().plan().splits())))
"""
    + _PEAK
)


# -- Java --------------------------------------------------------------------------------------------------------------


def _beside_java(total: int, rounds: int) -> list[Result]:
    java_environment()
    module = peer_module()
    try:
        with scratch() as folder, module.PaimonPeer(folder, heap="3g", full_jit=True) as java:
            ours = written_by_dredge(folder, total, COMMITS, BUCKETS)
            tables = [
                ours,
                written_by_java(folder, total, COMMITS, BUCKETS, java),
                written_by_pyarrow(folder, ours, BUCKETS),
            ]
            return [result for table in tables for result in _compared(java, table, total, rounds)]
    except module.PeerMissing as error:
        print(f"bench: read: PEER MISSING: {error}", file=sys.stderr)
        return []


def _compared(java: Any, table: Table, total: int, rounds: int) -> list[Result]:
    """Count the rows of the same files with Dredge and Java in turn, on two threads; Java is timed in its JVM."""
    several, who = _with_threads(table, CORES), f"files of {table.name.partition('.')[0]}"
    for _ in range(WARM_UP):
        java.call("bench_read", table=table.name, threads=CORES, reps=1)
    theirs: list[float] = []
    counted: set[int] = set()

    def their_turn() -> None:
        answer = java.call("bench_read", table=table.name, threads=CORES, reps=1)
        theirs.append(answer["secs"][0])
        counted.add(int(answer["rows"]))

    timings = alternate({"dredge": lambda: counted.add(_drain(several)), "java": their_turn}, rounds)
    if len(counted) != 1:
        raise AssertionError(f"{who}: {sorted(counted)} rows")
    name = f"merge-on-read / Java, two cores, {who}"
    return ratio("read", name, timings["dredge"], Timing(tuple(theirs[1:])), 1.0, total)


# -- pypaimon ----------------------------------------------------------------------------------------------------------


def _beside_pypaimon(total: int, rounds: int) -> list[Result]:
    if not PYPAIMON.is_file():
        print("bench: read: PEER MISSING: no .peers/pypaimon", file=sys.stderr)
        return []
    process = PyPaimonProcess()
    try:
        with scratch() as folder:
            table = _with_threads(filled(folder, total), CORES)
            peer = PyPaimon(process, folder, folder)
            subjects: dict[str, Callable[[], object]] = {
                "dredge": table.to_arrow,
                "pypaimon": lambda: peer.read("bench.t"),
            }
            timings = alternate(subjects, min(rounds, 2))
    finally:
        process.close()
    ours, theirs = timings["dredge"], timings["pypaimon"]
    times = theirs.median / ours.median
    note = f"{total:,} rows; pypaimon {theirs.median:.2f} s, its answer crossing a file included"
    return [Result("read", "pypaimon / merge-on-read, two cores", times, "x", 20, "higher", note=note).judged()]
