"""Manifest lists and manifests of a snapshot, streamed and columnar: how a table with 900,000 files stays quick."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile
from lsm_core.format.file_meta import ENTRY_SCHEMA
from lsm_core.format.manifest import (
    IndexManifestEntry,
    ManifestFileMeta,
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    encode_manifest_list,
    manifest_meta,
    merge_entries,
)
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifest_parts
from lsm_core.metadata.store import TableStore

_FAST_FROM = 500  # entries; below this, starting DataFusion costs more than it saves
_REMEMBERED_BYTES = 16 * 1024
_IDENTITY = ("kind", "partition", "bucket", "level", "file_name", "extra_files", "embedded_index", "external_path")


def read_list(store: TableStore, name: str, size: int | None = None) -> list[ManifestFileMeta]:
    """Return the rows of a manifest list. Raises CorruptFile when it is missing, cut short or not ``size`` bytes long.

    Source class: ``ManifestList``. Java trusts recorded sizes and silently loses rows when they are wrong, so we check.
    """
    path = store.manifest_path(name)
    return decode_manifest_list(_read(store, path, size), path)


def write_list(store: TableStore, metas: Sequence[ManifestFileMeta]) -> tuple[str, int]:
    """Write a manifest list and return its name and exact size in bytes. Raises StorageFull."""
    name = store.new_file_name("manifest-list-")
    data = encode_manifest_list(list(metas))
    _write(store, store.manifest_path(name), data)
    return name, len(data)


def read_manifest(store: TableStore, meta: ManifestFileMeta) -> pa.Table:
    """Return a manifest's entries (`ENTRY_SCHEMA`), unmerged and in order. Raises CorruptFile naming the file."""
    path = store.manifest_path(meta.file_name)
    expected = meta.num_added_files + meta.num_deleted_files
    data = _read(store, path, meta.file_size)
    if expected >= _FAST_FROM:
        fast = manifest_parts.fast_decode(data, path)
        if fast is not None and fast.num_rows == expected:
            return fast
    entries = (_decoded if len(data) <= _REMEMBERED_BYTES else decode_manifest)(data, path, expected)
    if entries.num_rows != expected:
        raise CorruptFile(path, f"holds {entries.num_rows} entries, its manifest list says {expected}")
    return entries


@lru_cache(maxsize=256)
def _decoded(data: bytes, path: str, expected: int) -> pa.Table:
    """Small manifests, decoded once: a plan, its execution and its commit read the same ones, and check them each time."""
    return decode_manifest(data, path, expected)


def write_manifests(store: TableStore, entries: pa.Table) -> list[ManifestFileMeta]:
    """Write entries (`ENTRY_SCHEMA`) in order into manifests of about ``manifest.target-file-size``; none for no entries.

    Files already written are removed when a later one fails. Raises StorageFull.
    """
    written: list[ManifestFileMeta] = []
    try:
        for part, data in manifest_parts.rolled(entries.select(ENTRY_SCHEMA.names), store.options.manifest_target_size):
            name = store.new_file_name("manifest-")
            _write(store, store.manifest_path(name), data)
            written.append(manifest_meta(part, name, len(data), store.schema.partition_types, store.schema.id))
    except BaseException:
        for meta in written:
            store.file_io.delete(store.manifest_path(meta.file_name))
        raise
    return written


def base_list(store: TableStore, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """Return the manifests that the snapshot carried over. Raises CorruptFile."""
    return read_list(store, snapshot.base_manifest_list, snapshot.base_manifest_list_size)


def delta_list(store: TableStore, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """Return the manifests of the snapshot's own changes. Raises CorruptFile."""
    return read_list(store, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)


def data_manifests(store: TableStore, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """Return all manifests that make up the snapshot's state, in the order in which they merge. Raises CorruptFile."""
    return [*base_list(store, snapshot), *delta_list(store, snapshot)]


def live_entries(
    store: TableStore,
    snapshot: Snapshot,
    *,
    partitions: Collection[bytes] | None = None,
    buckets: Collection[int] | None = None,
    levels: Collection[int] | None = None,
    columns: Sequence[str] | None = None,
    choose: Callable[[list[ManifestFileMeta]], list[ManifestFileMeta]] | None = None,
    keep: Callable[[pa.Table], pa.Table] | None = None,
) -> pa.Table:
    """Return the files that are live in ``snapshot``: merged ADD entries, columns of `ENTRY_SCHEMA` (or ``columns``).

    ``partitions``, ``buckets`` and ``levels`` prune whole manifests by their recorded ranges, then entries. ``choose`` picks
    the manifests to read; ``keep`` filters the entries of each, by nothing but partition, bucket and level (else an ADD could
    stay without the DELETE that cancels it). Asking for fewer columns keeps large tables small in memory. Raises CorruptFile
    naming the list or manifest.
    """
    names = ENTRY_SCHEMA.names if columns is None else list(columns)
    if partitions is not None and partitions and not store.schema.partition_keys:
        partitions = None  # all entries have the one empty partition
    metas = data_manifests(store, snapshot)
    metas = manifest_parts.prune(metas, store.schema.partition_types, partitions, buckets, levels)
    metas = metas if choose is None else choose(metas)
    needed = [field.name for field in ENTRY_SCHEMA if field.name in names or field.name in _IDENTITY]
    parts = []
    for meta in metas:
        part = manifest_parts.keep_rows(read_manifest(store, meta), partitions, buckets, levels)
        parts.append((part if keep is None else keep(part)).select(needed))
    if not parts:
        return ENTRY_SCHEMA.empty_table().select(names)
    merged = merge_entries(pa.concat_tables(parts), store.snapshot_path(snapshot.id))
    added = pc.equal(merged.column("kind"), 0)
    # A deletion without its addition is rare, and leaving out no row would still copy all of them.
    return (merged if pc.all(added, min_count=0).as_py() else merged.filter(added)).select(names)


def delta_entries(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return the snapshot's own changes (`ENTRY_SCHEMA`), unmerged and in order. Raises CorruptFile."""
    return entries_of(store, delta_list(store, snapshot))


def changelog_entries(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return the snapshot's changelog files (`ENTRY_SCHEMA`), empty without a changelog. Raises CorruptFile."""
    if snapshot.changelog_manifest_list is None:
        return ENTRY_SCHEMA.empty_table()
    return entries_of(store, read_list(store, snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size))


def entries_of(store: TableStore, metas: Sequence[ManifestFileMeta]) -> pa.Table:
    """Return the entries of several manifests one after the other, unmerged. Raises CorruptFile."""
    return pa.concat_tables([ENTRY_SCHEMA.empty_table(), *iter_entries(store, metas)])


def iter_entries(store: TableStore, metas: Sequence[ManifestFileMeta]) -> Iterator[pa.Table]:
    """Yield the entries of each manifest in turn: only one is held at a time. Raises CorruptFile."""
    for meta in metas:
        yield read_manifest(store, meta)


def index_entries(store: TableStore, snapshot: Snapshot) -> list[IndexManifestEntry]:
    """Return the snapshot's index files (hash indexes, deletion vectors). Raises CorruptFile."""
    if snapshot.index_manifest is None:
        return []
    path = store.manifest_path(snapshot.index_manifest)
    return decode_index_manifest(_read(store, path, None), path)


def metadata_references(store: TableStore, snapshot: Snapshot) -> set[str]:
    """Return the bare names of all metadata files that ``snapshot`` uses: lists, manifests, indexes, statistics."""
    lists = [(snapshot.base_manifest_list, snapshot.base_manifest_list_size)]
    lists.append((snapshot.delta_manifest_list, snapshot.delta_manifest_list_size))
    if snapshot.changelog_manifest_list is not None:
        lists.append((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size))
    names = {name for name, _ in lists}
    for name, size in lists:
        names.update(meta.file_name for meta in read_list(store, name, size))
    if snapshot.index_manifest is not None:
        names.add(snapshot.index_manifest)
        names.update(entry.file_name for entry in index_entries(store, snapshot))
    if snapshot.statistics is not None:
        names.add(snapshot.statistics)
    return names


def all_references(store: TableStore, snapshot: Snapshot) -> set[str]:
    """Return the bare names of every file that ``snapshot`` uses: metadata, live data files and what lies beside them.

    Entries that the snapshot deletes count as used too (they are what time travel to the snapshot before still needs).
    Raises CorruptFile: whoever deletes must stop when a reference cannot be read.
    """
    names = metadata_references(store, snapshot)
    metas = data_manifests(store, snapshot)
    if snapshot.changelog_manifest_list is not None:
        metas += read_list(store, snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)
    for entries in iter_entries(store, metas):
        names.update(file_names(entries))
    return names


def file_names(entries: pa.Table) -> set[str]:
    """Return the names of the data files and their extra files in ``entries``."""
    beside = pc.list_flatten(entries.column("extra_files"))
    return set(pc.unique(entries.column("file_name")).to_pylist()) | set(pc.unique(beside).to_pylist())


def _read(store: TableStore, path: str, size: int | None) -> bytes:
    try:
        data = store.file_io.read_bytes(path)
    except FileNotFoundError as error:
        raise CorruptFile(path, "the file is missing") from error
    if size is not None and len(data) != size:
        raise CorruptFile(path, f"has {len(data)} bytes, {size} are recorded")
    return data


def _write(store: TableStore, path: str, data: bytes) -> None:
    with store.file_io.open_output(path) as out:
        out.write(data)
