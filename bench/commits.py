"""Commits: many files at once, one to a table of many manifests, and many small ones; each in its own process."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.harness import Result, in_own_process
from bench.planning import build as build_large

FILES, BUCKETS, MANIFESTS, SMALL = 10_000, 1_000, 5_000, 400
COMMIT_SECONDS, SMALL_P99 = 3.0, 0.1
_SHARED = """
import json, sys, time
from bench.harness import own_peak
from lsm_core import Catalog
from lsm_core.commit import CommitMessage, Committer, origin_of
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.format.manifest import EMPTY_STATS, DataFileMeta

def file(name, key=EMPTY_ROW):
    return DataFileMeta(name, 4096, 100, key, key, EMPTY_STATS, EMPTY_STATS, 0, 99, 0, 0, creation_time_ms=1, delete_row_count=0, file_source=0)
"""
_MANY = (
    _SHARED
    + """
from pathlib import Path
store = Catalog(sys.argv[1]).table("bench.many").store
files, buckets = int(sys.argv[2]), int(sys.argv[3])
taken = []
for round_number in range(3):
    messages, origin = [], origin_of(store)
    for bucket in range(buckets):
        folder = Path(store.bucket_dir(EMPTY_ROW, bucket))
        folder.mkdir(parents=True, exist_ok=True)
        names = [f"data-{round_number}-{bucket}-{number}.parquet" for number in range(files // buckets)]
        for name in names:
            (folder / name).touch()
        messages.append(CommitMessage(EMPTY_ROW, bucket, buckets, new_files=tuple(map(file, names)), origin=origin))
    started = time.perf_counter()
    Committer(store).commit(messages)
    taken.append(time.perf_counter() - started)
print(json.dumps([taken, own_peak()]))
"""
)
_LARGE = (
    _SHARED
    + """
from pathlib import Path
import pyarrow as pa
from lsm_core.format.partitions import partition_bytes
from lsm_core.storage import LocalFileIO

class Counting(LocalFileIO):
    opened = []
    def read_bytes(self, path):
        self.opened.append(path)
        return super().read_bytes(path)

store = Catalog(sys.argv[1]).table("bench.t").copy({"manifest.target-file-size": "1 kb"}).store
store.file_io = Counting()
partition = partition_bytes(store.schema, {"dt": "2024-0500"})
taken, read = [], []
for number in range(12):
    name = f"data-new-{number}.parquet"
    folder = Path(store.bucket_dir(partition, 0))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
    message = CommitMessage(partition, 0, 4, new_files=(file(name),), origin=origin_of(store))
    Counting.opened.clear()
    started = time.perf_counter()
    Committer(store).commit([message])
    taken.append(time.perf_counter() - started)
    read.append(sum("/manifest-" in path and "/manifest-list-" not in path for path in Counting.opened))
print(json.dumps([taken[2:], own_peak(), max(read)]))
"""
)
_SMALL = """
import json, sys, time
from bench.harness import own_peak
from lsm_core import Catalog
import pyarrow as pa
table = Catalog(sys.argv[1]).table("bench.small")
taken = []
for number in range(int(sys.argv[2]) + 20):
    with table.new_write() as writer:
        writer.write(pa.table({"k": pa.array(range(number, number + 10), pa.int64()), "v": [str(number)] * 10}))
        messages = writer.prepare_commit()
    commit = table.new_commit()
    started = time.perf_counter()
    commit.commit(messages)
    taken.append(time.perf_counter() - started)
print(json.dumps([taken[20:], own_peak()]))
"""


def run(files: int | None, rounds: int) -> list[Result]:
    """Measure a commit of many files, a commit to a table of many manifests, and many small commits.

    Args:
        files: files of the first benchmark, or None for `FILES`.
        rounds: not used; each benchmark repeats its commits.
    """
    del rounds
    return [*_many(files or FILES), *_large(), *_small()]


def _many(files: int) -> list[Result]:
    buckets = max(1, BUCKETS * files // FILES)
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        _table(folder, "many", buckets)
        durations, peak = in_own_process(_MANY, folder, str(files), str(buckets))
    name = f"commit of {files:,} files in {buckets:,} buckets"
    return [
        Result(
            "commit", name, float(np.median(durations)), "s", COMMIT_SECONDS, low=min(durations), high=max(durations)
        ).judged(),
        Result("commit", f"{name}, peak RSS", peak, "MiB", None),
    ]


def _large() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        build_large(Path(folder), primary_key=True, files=MANIFESTS * 20, manifest_count=MANIFESTS)
        durations, peak, read = in_own_process(_LARGE, folder)
    name = f"small commit to a table of {MANIFESTS:,} manifests"
    note = "those of its partition are five; the manifest list excludes the others"
    return [
        Result("commit", f"{name}, manifests read", float(read), "files", 10.0, note=note).judged(),
        Result("commit", name, float(np.median(durations)), "s", None, low=min(durations), high=max(durations)),
        Result("commit", f"{name}, peak RSS", peak, "MiB", None),
    ]


def _small() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        _table(folder, "small", 2)
        durations, _ = in_own_process(_SMALL, folder, str(SMALL))
    note = f"of {len(durations)} commits; median {np.median(durations) * 1e3:.1f} ms, slowest {max(durations) * 1e3:.1f} ms"
    return [
        Result(
            "commit", "small commit, 99th percentile", float(np.percentile(durations, 99)), "s", SMALL_P99, note=note
        ).judged()
    ]


def _table(folder: str, name: str, buckets: int) -> None:
    from lsm_core import Catalog, Schema

    catalog = Catalog(folder)
    catalog.create_database("bench", ignore_if_exists=True)
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    options = {"bucket": str(buckets), "write-only": "true"}
    catalog.create_table(f"bench.{name}", Schema(fields, primary_keys=["k"], options=options))
