"""Iceberg metadata of a table of 100,000 files: a commit that changes ten files, metadata only, in a process of its own.

Seconds are processor time, which other work on the machine changes least.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.harness import Result, in_own_process
from bench.planning import FIELDS, entries
from lsm_core.arrays import numpy_array
from lsm_core.format.manifest import ADD, DELETE
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore

FILES, FILES_PER_MANIFEST, BUCKETS, CHANGED = 100_000, 2_000, 4, 10
TARGET_SECONDS, TARGET_RATIO = 0.5, 1.1
_START = 1_700_000_000_000
_PROGRAM = """
import json, sys, time
from bench import iceberg
from bench.harness import own_peak
from lsm_core import Catalog
from lsm_core.iceberg.writing import write_metadata
store = Catalog(sys.argv[1]).table("bench.t").store
files, partitions, rounds = map(int, sys.argv[2:])
seconds, elapsed = [], []
for number in range(2, rounds + 3):
    snapshot, changes = iceberg.commit_changes(store, number, files, partitions)
    started, started_at = time.process_time(), time.perf_counter()
    assert write_metadata(store, snapshot, changes)
    seconds.append(time.process_time() - started)
    elapsed.append(time.perf_counter() - started_at)
print(json.dumps([sorted(seconds[1:]), seconds[0], min(elapsed[1:]), own_peak()]))
"""
_BUILD = """
import json, sys, time
from pathlib import Path
from bench import iceberg
from bench.harness import own_peak
from lsm_core.iceberg.writing import write_metadata
store, snapshot = iceberg.build(Path(sys.argv[1]), *map(int, sys.argv[2:]))
started = time.process_time()
assert write_metadata(store, snapshot)
print(json.dumps([time.process_time() - started, own_peak()]))
"""


def build(warehouse: Path, files: int, partitions: int) -> tuple[TableStore, Snapshot]:
    """Create a table with one snapshot of ``files`` files on the last level; no data file exists."""
    from lsm_core import Catalog, Schema

    catalog = Catalog(str(warehouse))
    catalog.create_database("bench")
    options = {"bucket": str(BUCKETS), "metadata.iceberg.storage": "table-location", "snapshot.num-retained.min": "100"}
    schema = Schema(FIELDS, primary_keys=["dt", "k"], partition_keys=["dt"], options=options)
    store = catalog.create_table("bench.t", schema).store
    metas = []
    for part in np.array_split(np.arange(files), max(1, files // FILES_PER_MANIFEST)):
        metas += manifests.write_manifests(
            store,
            _last_level(
                store, entries(store, part, files, primary_key=True, partitions=partitions, bucket_count=BUCKETS)
            ),
        )
    base, base_size = manifests.write_list(store, metas)
    delta, delta_size = manifests.write_list(store, [])
    store.file_io.mkdirs(store.snapshot_dir)
    return store, _published(store, 1, base, delta, base_size, delta_size)


def _last_level(store: TableStore, table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("level")
    level = np.full(table.num_rows, store.options.num_levels - 1)
    return table.set_column(at, table.schema.field(at), pa.array(level, table.schema.field(at).type))


def _published(
    store: TableStore, number: int, base: str, delta: str, base_size: int | None, delta_size: int | None
) -> Snapshot:
    snapshot = Snapshot(
        number, store.schema.id, base, delta, "bench", number, CommitKind.COMPACT, _START + number, base_size, delta_size,
        total_record_count=0, delta_record_count=0,
    )  # fmt: skip
    assert store.file_io.write_exclusive(store.snapshot_path(number), snapshot.to_json())
    return snapshot


def commit_changes(store: TableStore, number: int, files: int, partitions: int) -> tuple[Snapshot, pa.Table]:
    """Publish a snapshot that replaces ten files, and return it with its entries.

    The files are those of one partition, and spread over all files in a table of one partition.
    """
    span = max(1, files // partitions)
    places = number + np.arange(CHANGED) * max(1, span // CHANGED // 2)
    if partitions > 1:
        places += span * (number % partitions)
    old = _last_level(
        store, entries(store, places, files, primary_key=True, partitions=partitions, bucket_count=BUCKETS)
    )
    names = pa.array([f"data-4f5d7a0e-5b1c-4c5f-9d3a-{number:012d}-{place}.parquet" for place in range(CHANGED)])
    new = old.set_column(old.schema.get_field_index("file_name"), old.schema.field("file_name"), names)
    kinds = numpy_array(old.column("kind")).copy()
    changes = pa.concat_tables([_of_kind(old, kinds * 0 + DELETE), _of_kind(new, kinds * 0 + ADD)])
    # Iceberg's metadata is extended by the entries alone, so the list of older manifests may be empty.
    first = manifests.write_list(store, [])
    delta = manifests.write_list(store, manifests.write_manifests(store, changes))
    return _published(store, number, first[0], delta[0], first[1], delta[1]), changes


def _of_kind(table: pa.Table, kinds: np.ndarray) -> pa.Table:
    at = table.schema.get_field_index("kind")
    return table.set_column(at, table.schema.field(at), pa.array(kinds, table.schema.field(at).type))


def run(files: int | None, rounds: int) -> list[Result]:
    """Measure commits to tables of ``files`` files, and of a tenth of them, in one partition and in a hundred."""
    total = files or FILES
    results, peaks = [], {}
    for count, partitions in ((total, 1), (total // 10, 1), (total, 100)):
        with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
            built, build_peak = in_own_process(_BUILD, folder, str(count), str(partitions))
            seconds, first, fastest, peaks[count, partitions] = in_own_process(
                _PROGRAM, folder, str(count), str(partitions), str(rounds)
            )
        name = f"{CHANGED} of {count:,} files in {partitions} partition{'s' if partitions > 1 else ''}"
        limits = {"low": seconds[0], "high": seconds[-1]}
        note = f"peak RSS {peaks[count, partitions]:.0f} MiB, fastest {fastest:.2f} s of wall-clock time"
        results.append(
            Result("iceberg", name, seconds[len(seconds) // 2], "s", TARGET_SECONDS, note=note, **limits).judged()
        )
        note = "after which most entries are no longer new"
        results.append(Result("iceberg", f"the first of these commits, {count:,} files", first, "s", None, note=note))
        note = f"peak RSS {build_peak:.0f} MiB"
        results.append(Result("iceberg", f"first metadata of {count:,} files", built, "s", None, note=note))
    ratio = peaks[total, 1] / peaks[total // 10, 1]
    note = f"{peaks[total, 1]:.0f} and {peaks[total // 10, 1]:.0f} MiB"
    results.append(
        Result("iceberg", "peak RSS over a tenth of the files", ratio, "x", TARGET_RATIO, note=note).judged()
    )
    return results
