"""Small tables for tests of files and commits, created without catalog or writers and read without the read path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lsm_core.clock import Clock, FixedClock
from lsm_core.commit import CommitMessage
from lsm_core.files import AppendFileWriter, KeyValueFileWriter, open_append, open_kv
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.format.partitions import partition_bytes
from lsm_core.format.schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, DataField, TableSchema, kv_arrow_schema
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore, write_schema
from lsm_core.storage import FileIO, LocalFileIO
from lsm_core.types import parse

EMPTY = bytes(12)
NOON = 1_700_000_000_000


def make_store(
    root: Path | str,
    fields: Mapping[str, str] | None = None,
    *,
    primary_keys: Sequence[str] = ("k",),
    partition_keys: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    clock: Clock | str | None = None,
) -> TableStore:
    """Create a table at ``root`` (default: key k BIGINT, value v STRING, one bucket) and open it."""
    named = dict(fields or {"k": "BIGINT NOT NULL", "v": "STRING"})
    columns = tuple(DataField(i, name, parse(text)) for i, (name, text) in enumerate(named.items()))
    chosen = {"bucket": "1" if primary_keys else "-1", **(options or {})}
    schema = TableSchema(0, columns, len(columns) - 1, tuple(partition_keys), tuple(primary_keys), chosen, None, NOON)
    assert write_schema(LocalFileIO(), str(root), schema)
    return reopen(root, clock=clock if clock is not None else FixedClock(NOON))


def reopen(root: Path | str, file_io: FileIO | None = None, clock: Clock | str | None = None) -> TableStore:
    """Open the table at ``root`` without cached state."""
    return TableStore.open(file_io or LocalFileIO(), str(root), "db.t", clock or FixedClock(NOON))


def kv_batch(
    store: TableStore, rows: Mapping[str, Sequence[Any]], first_sequence: int = 0, kinds: Sequence[int] | None = None
) -> pa.RecordBatch:
    """Return a key-value batch of ``rows`` (values by column, in key order) with ascending sequence numbers."""
    schema = kv_arrow_schema(store.schema)
    count = len(next(iter(rows.values())))
    columns: list[pa.Array] = []
    for field in schema:
        if field.name == SEQUENCE_NUMBER:
            values: Sequence[Any] = range(first_sequence, first_sequence + count)
        elif field.name == VALUE_KIND:
            values = list(kinds or [0] * count)
        else:
            values = rows.get(field.name.removeprefix(KEY_PREFIX), [None] * count)
        columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def write_kv(
    store: TableStore,
    rows: Mapping[str, Sequence[Any]],
    *,
    first_sequence: int = 0,
    kinds: Sequence[int] | None = None,
    level: int = 0,
    bucket: int = 0,
    partition: bytes = EMPTY,
    source: int = 0,
) -> tuple[DataFileMeta, ...]:
    """Write one sorted run of a bucket; return its files."""
    writer = KeyValueFileWriter(store, partition, bucket, store.options.bucket, level, source)
    writer.write(kv_batch(store, rows, first_sequence, kinds))
    return tuple(writer.close())


def write_append(
    store: TableStore, rows: Mapping[str, Sequence[Any]], *, partition: bytes = EMPTY, source: int = 0
) -> tuple[DataFileMeta, ...]:
    """Write one file of an append table; return the file."""
    writer = AppendFileWriter(store, partition, 0, -1, source)
    schema = store.schema.arrow_schema
    writer.write(pa.RecordBatch.from_arrays([pa.array(rows[f.name], f.type) for f in schema], schema=schema))
    return tuple(writer.close())


def message(
    store: TableStore, *, bucket: int = 0, partition: bytes = EMPTY, **groups: Sequence[DataFileMeta]
) -> CommitMessage:
    """Return a commit message of one bucket; ``groups`` are the file lists of the message by name."""
    return CommitMessage(partition, bucket, store.options.bucket, **{k: tuple(v) for k, v in groups.items()})


def part(store: TableStore, **values: Any) -> bytes:
    """Return the serialised partition with these values."""
    return partition_bytes(store.schema, values)


def live_files(store: TableStore) -> list[tuple[bytes, int, DataFileMeta]]:
    """Return partition, bucket and metadata of every live file of the latest snapshot."""
    latest = snapshots.latest(store)
    if latest is None:
        return []
    return [(e.partition, e.bucket, e.file) for e in table_to_entries(manifests.live_entries(store, latest))]


def content(store: TableStore) -> list[tuple[Any, ...]]:
    """Return all rows, sorted; versions of a key are merged here: the highest sequence number wins."""
    if not store.schema.primary_keys:
        rows = [tuple(r.values()) for p, b, f in live_files(store) for r in _rows(open_append(store, p, b, f))]
        return sorted(rows, key=repr)
    newest: dict[tuple[Any, ...], tuple[int, dict[str, Any]]] = {}
    for partition, bucket, file in live_files(store):
        for row in _rows(open_kv(store, partition, bucket, file)):
            key = (partition, *(row[KEY_PREFIX + name] for name in store.schema.trimmed_primary_keys))
            if key not in newest or newest[key][0] <= row[SEQUENCE_NUMBER]:
                newest[key] = (row[SEQUENCE_NUMBER], row)
    kept = [row for _, row in newest.values() if row[VALUE_KIND] in {0, 2}]
    return sorted((tuple(row[name] for name in store.schema.field_names) for row in kept), key=repr)


def _rows(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def stray_files(store: TableStore) -> set[str]:
    """Return the names of metadata and data files on disk that no snapshot references."""
    used: set[str] = set()
    for snapshot_id in snapshots.list_ids(store):
        snapshot = snapshots.read(store, snapshot_id)
        lists = snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list
        for name in lists:
            if name is None:
                continue
            used.add(name)
            for meta in manifests.read_list(store, name):
                used.add(meta.file_name)
                used |= set(manifests.read_manifest(store, meta).column("file_name").to_pylist())
    root = Path(store.root)
    found = {p.name for p in root.rglob("*") if p.is_file() and p.parent.name not in {"schema", "snapshot"}}
    drafts = {p.name for p in (root / "snapshot").glob(".*")} if (root / "snapshot").is_dir() else set()
    return (found | drafts) - used
