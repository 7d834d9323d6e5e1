"""Metadata written by hand: stores, entries and snapshots without any data file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from lsm_core.clock import FixedClock
from lsm_core.format.binary_row import EMPTY_ROW, encode_row
from lsm_core.format.manifest import DataFileMeta, ManifestEntry, entries_to_table
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.format.stats import EMPTY_STATS
from lsm_core.metadata import TableStore, manifests
from lsm_core.metadata.store import write_schema
from lsm_core.storage import FileIO, LocalFileIO
from lsm_core.types import parse

NOW = 1_700_000_000_000


def make_schema(
    fields: Mapping[str, str],
    keys: Sequence[str] = (),
    partitions: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> TableSchema:
    made = tuple(DataField(i, name, parse(kind)) for i, (name, kind) in enumerate(fields.items()))
    return TableSchema(0, made, len(made) - 1, tuple(partitions), tuple(keys), dict(options or {}), None, NOW)


def make_store(
    root: Path,
    fields: Mapping[str, str] | None = None,
    keys: Sequence[str] = ("k",),
    partitions: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    file_io: FileIO | None = None,
) -> TableStore:
    """Create the table ``db.t`` with key ``k`` and value ``v`` (or ``fields``), without commits."""
    fields = fields or {"k": "BIGINT NOT NULL", "v": "DOUBLE"}
    options = {"bucket": "2", **(options or {})}
    assert write_schema(LocalFileIO(), str(root), make_schema(fields, keys, partitions, options))
    return TableStore.open(file_io or LocalFileIO(), str(root), "db.t", FixedClock(NOW))


def entry(
    store: TableStore,
    name: str,
    kind: int = 0,
    partition: Sequence[object] = (),
    bucket: int = 0,
    level: int = 0,
    keys: tuple[int, int] = (0, 9),
) -> ManifestEntry:
    """Return a manifest entry of a file that need not exist."""
    types = store.schema.trimmed_key_types
    low, high = (encode_row([key], types) if types else EMPTY_ROW for key in keys)
    file = DataFileMeta(name, 100, 10, low, high, EMPTY_STATS, EMPTY_STATS, 0, 9, 0, level, (), NOW, 0, None, 0)
    row = encode_row(list(partition), store.schema.partition_types) if partition else EMPTY_ROW
    return ManifestEntry(kind, row, bucket, store.options.bucket, file)


def table_of(*entries: ManifestEntry) -> pa.Table:
    return entries_to_table(list(entries))


def publish(store: TableStore, snapshot_id: int, base: pa.Table | None, delta: pa.Table) -> Snapshot:
    """Write manifests, manifest lists and the snapshot file, but no hint files."""
    base_metas = manifests.write_manifests(store, base) if base is not None else []
    old, old_size = manifests.write_list(store, base_metas)
    new, new_size = manifests.write_list(store, manifests.write_manifests(store, delta))
    snapshot = Snapshot(
        snapshot_id, 0, old, new, "tester", 1, CommitKind.APPEND, NOW, old_size, new_size,
        total_record_count=0, delta_record_count=0,
    )  # fmt: skip
    store.file_io.mkdirs(store.snapshot_dir)
    assert store.file_io.write_exclusive(store.snapshot_path(snapshot_id), snapshot.to_json())
    return snapshot
