"""Expiry at scale: 2,000 snapshots of 100,000 files, of which 1,900 expire, and the deletion of their files.

The expiry and the deletion run in a process each.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

from bench.harness import Result, in_own_process
from lsm_core.commit.attempt import merge_manifests
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.format.manifest import ADD, DELETE, DataFileMeta, ManifestEntry, ManifestFileMeta, entries_to_table
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.format.stats import EMPTY_STATS
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore

FILES, SNAPSHOTS, KEPT, BUCKETS = 100_000, 2_000, 100, 10
EXPIRE_SECONDS, EXPIRE_MIB, FILES_A_SECOND = 60.0, 600.0, 5_000.0
_START = 1_700_000_000_000
_EXPIRE = """
import json, sys, time
from bench.harness import own_peak
from lsm_core import Catalog
table = Catalog(sys.argv[1]).table("bench.t")
started = time.perf_counter()
report = table.expire_snapshots(retain_max=int(sys.argv[2]), retain_min=1, older_than_ms=1, max_deletes=1_000_000)
seconds = time.perf_counter() - started
print(json.dumps([seconds, own_peak(), len(report.expired), report.files_recorded]))
"""
_SWEEP = """
import json, sys, time
from bench.harness import own_peak
from lsm_core import Catalog
table = Catalog(sys.argv[1]).table("bench.t")
started = time.perf_counter()
report = table.sweep_trash(now_ms=2**42)
seconds = time.perf_counter() - started
print(json.dumps([seconds, own_peak(), report.files_deleted, report.files_missing]))
"""


def build(warehouse: Path, files: int = FILES, snapshots: int = SNAPSHOTS) -> TableStore:
    """Create a table of empty files; each snapshot adds files and deletes all but one of the previous snapshot's."""
    from lsm_core import Catalog, Schema

    catalog = Catalog(str(warehouse))
    catalog.create_database("bench")
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    catalog.create_table("bench.t", Schema(schema, primary_keys=["k"], options={"bucket": str(BUCKETS)}))
    store = catalog.table("bench.t").store
    store.file_io.mkdirs(store.snapshot_dir)
    for bucket in range(BUCKETS):
        store.file_io.mkdirs(store.bucket_dir(EMPTY_ROW, bucket))
    metas: list[ManifestFileMeta] = []
    before: list[ManifestEntry] = []
    each = files // snapshots
    for number in range(1, snapshots + 1):
        new = [_entry(store, (number - 1) * each + place) for place in range(each)]
        deletes = [ManifestEntry(DELETE, EMPTY_ROW, old.bucket, BUCKETS, old.file) for old in before[1:]]
        metas = merge_manifests(store, metas)
        base = manifests.write_list(store, metas)
        own = manifests.write_manifests(store, entries_to_table([*deletes, *new]))
        delta = manifests.write_list(store, own)
        snapshot = Snapshot(
            number, store.schema.id, base[0], delta[0], "bench", number, CommitKind.COMPACT if deletes else CommitKind.APPEND,
            _START + number * 1000, base[1], delta[1], total_record_count=0, delta_record_count=0,
        )  # fmt: skip
        Path(store.snapshot_path(number)).write_bytes(snapshot.to_json())
        metas, before = [*metas, *own], new
    return store


def _entry(store: TableStore, number: int) -> ManifestEntry:
    name = f"data-4f5d7a0e-5b1c-4c5f-9d3a-0123456789ab-{number}.parquet"
    bucket = number % BUCKETS
    Path(f"{store.bucket_dir(EMPTY_ROW, bucket)}/{name}").touch()
    file = DataFileMeta(
        name, 4_096, 100, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, number * 100, number * 100 + 99, 0, 0,
        creation_time_ms=_START + number, delete_row_count=0, file_source=0,
    )  # fmt: skip
    return ManifestEntry(ADD, EMPTY_ROW, bucket, BUCKETS, file)


def run(files: int | None, _rounds: int) -> list[Result]:
    """Measure one expiry and one sweep; ``files`` scales files and snapshots."""
    total = files or FILES
    history = max(20, SNAPSHOTS * total // FILES)
    kept = max(1, history * KEPT // SNAPSHOTS)
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        build(Path(folder), total, history)
        seconds, peak, expired, recorded = in_own_process(_EXPIRE, folder, str(kept))
        swept, sweep_peak, deleted, missing = in_own_process(_SWEEP, folder)
    name = f"expire {expired:,} of {history:,} snapshots, {total:,} files"
    rate = deleted / swept
    note = f"{deleted:,} files in {swept:.1f} s, {missing} were gone"
    return [
        Result("expiry", name, seconds, "s", EXPIRE_SECONDS, note=f"{recorded:,} files recorded").judged(),
        Result("expiry", f"{name}, peak RSS", peak, "MiB", EXPIRE_MIB).judged(),
        Result("expiry", "files deleted a second", rate, "files/s", FILES_A_SECOND, "higher", note=note).judged(),
        Result("expiry", "sweep, peak RSS", sweep_peak, "MiB", EXPIRE_MIB).judged(),
    ]
