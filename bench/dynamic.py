"""Ten commits into dynamic buckets against fixed buckets and Java's writer; loading the index of ten million keys."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.data import SCHEMA, commits
from bench.harness import Result, Timing, in_own_process, own_peak, peak_of, ratio
from bench.table_life import BUCKETS, COMMITS, ROWS, scratch
from lsm_core import Catalog, Schema, Table
from lsm_core.write.assigner import AssignerRules, PartitionIndex
from tests.support.peers import java_environment, peer_module

MOST, FASTER = 1.35, 4.0
KEYS, MOST_MIB, MOST_SECONDS = 10_000_000, 400.0, 3.0


def run(wanted: int | None, rounds: int) -> list[Result]:
    """Measure ten commits into dynamic and fixed buckets and with Java, and the loading of the index of 10 M keys.

    Half of the rows of each later commit have known keys.

    Args:
        wanted: rows of all commits together, or None for `ROWS`.
        rounds: alternating rounds.
    """
    total = wanted or ROWS
    data = list(commits(total, COMMITS))
    keys = len(np.unique(np.concatenate([part["id"].to_numpy() for part in data])))
    kinds = {
        "fixed": {"bucket": str(BUCKETS)},
        "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": str(-(-keys // BUCKETS))},
    }
    seconds: dict[str, list[float]] = {"fixed": [], "dynamic": [], "wall": [], "java": []}
    with scratch() as folder, _java_writer(folder, data, kinds["dynamic"]) as java:
        for number in range(rounds + 1):
            durations = {}
            for name, options in kinds.items():
                started = time.perf_counter()
                durations[name] = _user(_ten_commits(folder / f"{name}{number}", options, data))
                durations["wall"] = time.perf_counter() - started
            if java is not None:
                durations["java"] = java()
            for name, spent in durations.items():
                if number:
                    seconds[name].append(spent)
    timings = {name: Timing(tuple(spent)) for name, spent in seconds.items() if spent}
    name = "ten commits into dynamic / into fixed buckets, user time"
    results = ratio("dynamic", name, timings["dynamic"], timings["fixed"], MOST, total)
    if "java" in timings:
        theirs, wall = timings["java"], timings["wall"].median
        note = f"dynamic buckets both; its reading left out; {wall:.2f} s here"
        figure = Result("dynamic", "Java's writer / dredge", theirs.median / wall, "x", FASTER, "higher", note=note)
        results += [figure.judged(), Result("dynamic", "Java's writer, the same commits", theirs.median, "s", None)]
    peak, load = in_own_process(_LOAD, str(KEYS))
    note = f"{KEYS:,} keys of one partition in five index files"
    results.append(Result("dynamic", "loading the index, user time", load, "s", MOST_SECONDS, note=note).judged())
    results.append(Result("dynamic", "peak RSS with the index loaded", peak, "MiB", MOST_MIB, note=note).judged())
    return results


@contextmanager
def _java_writer(folder: Path, data: list[pa.Table], options: dict[str, str]) -> Iterator[Callable[[], float] | None]:
    """Yield a function that returns Java's seconds for the same commits, without reads; None without Java."""
    java_environment()
    module = peer_module()
    try:
        jars, java = module.classpath(), module.java_command()
        compilers = sorted(Path(".peers/paimon-java").glob("ecj-*.jar"))
        if not compilers:
            raise module.PeerMissing("no ecj-*.jar in .peers/paimon-java")
    except module.PeerMissing as error:
        print(f"bench: dynamic: PEER MISSING: {error}", file=sys.stderr)
        yield None
        return
    classes, source = folder / "classes", Path(__file__).parent / "java" / "DynamicWriter.java"
    compiler = [java, "-jar", str(compilers[-1]), "-17", "-nowarn", "-proceedOnError"]
    subprocess.run([*compiler, "-cp", jars, "-d", str(classes), str(source)], check=False, capture_output=True)
    catalog = Catalog(str(folder / "java"))
    catalog.create_database("bench")
    catalog.create_table("bench.source", Schema(SCHEMA, options={"bucket": "-1"}))
    for part in data:
        catalog.table("bench.source").write(part)
    command = [
        java,
        "-Xmx2g",
        "-cp",
        os.pathsep.join([str(classes), jars]),
        "DynamicWriter",
        str(folder / "java"),
        "bench.source",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        fresh = iter(range(1_000_000))

        def once() -> float:
            name = f"bench.t{next(fresh)}"
            catalog.create_table(name, Schema(SCHEMA, primary_keys=["id"], options={"write-only": "true", **options}))
            stdin.write(f"{name} {data[0].num_rows}\n")
            stdin.flush()
            answer = next((line for line in stdout if line.startswith("SECONDS ")), None)
            if answer is None:
                raise RuntimeError("bench: dynamic: Java's writer ended; its error stands above")
            spent, reading, commits = answer.split()[1:]
            assert int(commits) == len(data), answer
            return float(spent) - float(reading)

        yield once
        stdin.close()


def _ten_commits(warehouse: Path, options: dict[str, str], data: list[pa.Table]) -> Callable[[], None]:
    def work() -> None:
        catalog = Catalog(str(warehouse))
        catalog.create_database("bench")
        table_options = {"write-only": "true", **options}
        table = catalog.create_table("bench.t", Schema(SCHEMA, primary_keys=["id"], options=table_options))
        for part in data:
            table.write(part)

    return work


def _user(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


_LOAD = """
import json, sys
from bench.dynamic import loaded
print(json.dumps(loaded(int(sys.argv[1]))))
"""


def loaded(keys: int) -> tuple[float, float]:
    """Return peak MiB and processor seconds of loading the index of a partition with ``keys`` known keys.

    The creation of the keys is not part of the seconds.
    """
    each = keys // 5
    made = np.arange(keys, dtype=np.uint32) * np.uint32(2_654_435_761)  # odd, so no hash comes twice
    files = [(bucket, made[bucket * each : (bucket + 1) * each].view(np.int32)) for bucket in range(5)]
    started = time.process_time()
    index = PartitionIndex(AssignerRules(each, None, "bench.t"), files)
    assert len(index) == 5 * each
    return own_peak(), time.process_time() - started


_KNOWN, _INCOMING, _CROSS_MIB, _CROSS_PARTITIONS = 20_000_000, 1_000_000, 1024.0, 8
_CROSS = pa.schema(
    [pa.field("p", pa.int32(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())]
)


def run_cross(wanted: int | None, _rounds: int) -> list[Result]:
    """Measure a write of 1 M rows whose keys may move to a new partition; `wanted` is the number of known keys."""
    known = wanted or _KNOWN
    with scratch() as folder:
        table = _movable(folder, create=True)
        for number in range(10):
            table.write(_movable_rows(np.arange(number, known, 10), number))
        program = f"from bench.dynamic import move; from pathlib import Path; move(Path({str(folder)!r}), {known})"
        peak, seconds = peak_of([sys.executable, "-c", program])
    note = (
        f"{_INCOMING:,} rows, half of them new keys and half of known ones into other partitions; {known:,} known keys"
    )
    results = [Result("cross-partition", "peak RSS", peak, "MiB", _CROSS_MIB, note=note).judged()]
    return [*results, Result("cross-partition", "writing, with the start of Python", seconds, "s", None)]


def move(folder: Path, known: int) -> None:
    """Write keys of which half are known; most known keys move to a new partition."""
    keys = np.random.default_rng(3).choice(2 * known, _INCOMING, replace=False)
    _movable(folder).write(_movable_rows(keys, 11))


def _movable(folder: Path, *, create: bool = False) -> Table:
    catalog = Catalog(str(folder))
    if create:
        catalog.create_database("bench")
        schema = Schema(_CROSS, primary_keys=["id"], partition_keys=["p"], options={"write-only": "true"})
        catalog.create_table("bench.t", schema)
    return catalog.table("bench.t")


def _movable_rows(keys: np.ndarray, number: int) -> pa.Table:
    partitions = ((keys * 7 + number) % _CROSS_PARTITIONS).astype(np.int32)
    return pa.table([pa.array(partitions), pa.array(keys), pa.array(np.full(len(keys), number))], schema=_CROSS)
