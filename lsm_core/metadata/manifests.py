"""Manifest lists and manifests of a snapshot, streamed and columnar: how a table with 900,000 files stays quick."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, empty_table, numpy_array
from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.format.avro.metadata_file import with_record_root
from lsm_core.format.binary_row import decode_row
from lsm_core.format.file_meta import ADD, DELETE, ENTRY_SCHEMA
from lsm_core.format.manifest import (
    Cancelling,
    HashesMeet,
    IndexManifestEntry,
    ManifestFileMeta,
    change_index_manifest,
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    encode_index_manifest,
    encode_manifest,
    encode_manifest_list,
    from_avro_table,
    identity_codes,
    manifest_meta,
    merge_entries,
)
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata.store import TableStore
from lsm_core.storage import done_in_turn, place_of
from lsm_core.types import DataType

_FAST_FROM = 500  # entries; below this, starting DataFusion costs more than it saves
_WHOLE_ROWS = 65_536  # entries that DataFusion decodes at a time where all are kept
_SLICE_ROWS = 8_192  # and where each slice is narrowed
_REMEMBERED_BYTES = 16 * 1024
_KEPT_BYTES = 1 << 20
NO_ENTRIES = empty_table(ENTRY_SCHEMA)
IDENTITY_COLUMNS = (
    "kind",
    "partition",
    "bucket",
    "level",
    "file_name",
    "extra_files",
    "embedded_index",
    "external_path",
)


def read_list(store: TableStore, name: str, size: int | None = None) -> list[ManifestFileMeta]:
    """Return the rows of a manifest list. Raises CorruptFile when it is missing, cut short or not ``size`` bytes long.

    Source class: ``ManifestList``. Java trusts recorded sizes and silently loses rows when they are wrong, so we check.
    """
    path = store.manifest_path(name)
    data = _read(store, path, size)
    return list(_decoded_list(data, path)) if len(data) <= _REMEMBERED_BYTES else decode_manifest_list(data, path)


def write_list(store: TableStore, metas: Sequence[ManifestFileMeta]) -> tuple[str, int]:
    """Write a manifest list and return its name and exact size in bytes. Raises StorageFull."""
    name = store.new_file_name("manifest-list-")
    data = encode_manifest_list(list(metas))
    _write(store, store.manifest_path(name), data)
    return name, len(data)


Narrowing = Callable[[pa.Table], pa.Table]
"""What is kept of entries, row by row and column by column: what it makes of slices is together what it makes of the whole."""


def read_manifest(store: TableStore, meta: ManifestFileMeta, narrow: Narrowing | None = None) -> pa.Table:
    """Return a manifest's entries (`ENTRY_SCHEMA`), unmerged and in order. Raises CorruptFile naming the file.

    ``narrow``: what is kept of them. A large manifest is then narrowed as it is decoded, some thousand entries at a time, so that no
    more than these are ever in memory with all that they hold.
    """
    path = store.manifest_path(meta.file_name)
    return _entries(meta, path, _read(store, path, meta.file_size), narrow)


def iter_entries(
    store: TableStore, metas: Sequence[ManifestFileMeta], narrow: Narrowing | None = None
) -> Iterator[pa.Table]:
    """Yield the entries of each manifest in turn: only one is held at a time. Raises CorruptFile. ``narrow``: as for `read_manifest`.

    Where reading is a request the next few are under way meanwhile.
    """
    paths = [store.manifest_path(meta.file_name) for meta in metas]
    reads = [partial(_read, store, path, meta.file_size) for path, meta in zip(paths, metas, strict=True)]
    for meta, path, data in zip(metas, paths, done_in_turn(reads, at_once=bool(place_of(store.root))), strict=True):
        yield _entries(meta, path, data, narrow)


def _entries(meta: ManifestFileMeta, path: str, data: bytes, narrow: Narrowing | None) -> pa.Table:
    expected = meta.num_added_files + meta.num_deleted_files
    if expected >= _FAST_FROM:
        fast = fast_decode(data, path, expected, narrow)
        if fast is not None:
            return fast
    entries = (_decoded if len(data) <= _REMEMBERED_BYTES else decode_manifest)(data, path, expected)
    if entries.num_rows != expected:
        raise CorruptFile(path, f"holds {entries.num_rows} entries, its manifest list says {expected}")
    return entries if narrow is None else narrow(entries)


# Small manifests and lists of them, decoded once: a plan, its execution and its commit read the same ones, and check them each time.
_decoded = lru_cache(maxsize=256)(decode_manifest)
_decoded_list = lru_cache(maxsize=64)(decode_manifest_list)


def write_manifests(store: TableStore, entries: pa.Table | Iterable[pa.Table]) -> list[ManifestFileMeta]:
    """Write entries (`ENTRY_SCHEMA`) in order into manifests of about ``manifest.target-file-size``; none for no entries.

    Of many tables, as they come, no more is held than fills two manifests. Files already written are removed when a later one, or a
    table, fails. Raises StorageFull.
    """
    written: list[ManifestFileMeta] = []
    tables = [entries] if isinstance(entries, pa.Table) else entries
    parts = (table.select(ENTRY_SCHEMA.names) for table in tables)
    try:
        for part, data in _rolled(parts, store.options.manifest_target_size):
            name = store.new_file_name("manifest-")
            _write(store, store.manifest_path(name), data)
            written.append(manifest_meta(part, name, len(data), store.schema.partition_types, store.schema.id))
    except BaseException:
        for meta in written:
            store.delete(store.manifest_path(meta.file_name))
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
    metas = prune(metas, store.schema.partition_types, partitions, buckets, levels)
    metas = metas if choose is None else choose(metas)
    needed = [field.name for field in ENTRY_SCHEMA if field.name in names or field.name in IDENTITY_COLUMNS]

    def narrow(entries: pa.Table) -> pa.Table:
        part = keep_rows(entries, partitions, buckets, levels)
        return (part if keep is None else keep(part)).select(needed)

    parts = list(iter_entries(store, metas, narrow))
    if not parts:
        return NO_ENTRIES.select(names)
    merged = merge_entries(pa.concat_tables(parts), store.snapshot_path(snapshot.id))
    added = pc.equal(merged.column("kind"), arrow_scalar(0))
    # A deletion without its addition is rare, and leaving out no row would still copy all of them.
    return (merged if pc.all(added, min_count=0).as_py() else merged.filter(added)).select(names)


def iter_live(store: TableStore, snapshot: Snapshot) -> Iterator[pa.Table]:
    """Yield the files that are live in ``snapshot`` (`ENTRY_SCHEMA`), manifest by manifest, in memory of the deletions alone.

    Raises CorruptFile naming the list or manifest.
    """
    metas = data_manifests(store, snapshot)
    with_deletions = [meta for meta in metas if meta.num_deleted_files]
    gone = [read_manifest(store, meta, _deletions) for meta in with_deletions]
    try:
        cancelling = Cancelling(pa.concat_tables([NO_ENTRIES.select(IDENTITY_COLUMNS), *gone]))
    except HashesMeet:
        yield live_entries(store, snapshot)
        return
    for entries in iter_entries(store, metas):
        yield cancelling.survivors(entries)


def _deletions(entries: pa.Table) -> pa.Table:
    return entries.filter(pc.equal(entries.column("kind"), 1)).select(IDENTITY_COLUMNS)


def delta_entries(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return the snapshot's own changes (`ENTRY_SCHEMA`), unmerged and in order. Raises CorruptFile."""
    return entries_of(store, delta_list(store, snapshot))


def changelog_list(store: TableStore, snapshot: Snapshot) -> list[ManifestFileMeta] | None:
    """Return the manifests of the snapshot's changelog; empty without a changelog.

    Java's expiry of a snapshot deletes its changelog with the list, also where a tag keeps the snapshot (`SnapshotDeletion`). A
    rollback to the tag makes it a snapshot again, so that a list that is missing means that the changelog expired.

    Returns:
        The manifests, None where the list is not there any more.

    Raises:
        CorruptFile: The list is there and cannot be read.
    """
    if snapshot.changelog_manifest_list is None:
        return []
    try:
        return read_list(store, snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)
    except CorruptFile as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def changelog_entries(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return the snapshot's changelog files (`ENTRY_SCHEMA`), empty without a changelog or where it expired. Raises CorruptFile."""
    return entries_of(store, changelog_list(store, snapshot) or [])


def entries_of(store: TableStore, metas: Sequence[ManifestFileMeta]) -> pa.Table:
    """Return the entries of several manifests one after the other, unmerged. Raises CorruptFile."""
    return pa.concat_tables([NO_ENTRIES, *iter_entries(store, metas)])


def index_entries(store: TableStore, snapshot: Snapshot) -> list[IndexManifestEntry]:
    """Return the snapshot's index files (hash indexes, deletion vectors). Raises CorruptFile."""
    if snapshot.index_manifest is None:
        return []
    path = store.manifest_path(snapshot.index_manifest)
    data = _read(store, path, None)
    return list(_decoded_indexes(data, path)) if len(data) <= _REMEMBERED_BYTES else decode_index_manifest(data, path)


@lru_cache(maxsize=64)
def _decoded_indexes(data: bytes, path: str) -> tuple[IndexManifestEntry, ...]:
    """The entries of a small index manifest, decoded once: a read asks for its vectors, and whether they are in place."""
    return tuple(decode_index_manifest(data, path))


def write_index_manifest(
    store: TableStore,
    previous: str | None,
    keep: Sequence[bool],
    added: Sequence[IndexManifestEntry],
) -> str | None:
    """Write the index manifest that follows ``previous`` (a name), whose entries stay where ``keep``, and return its name.

    None when nothing is left; the old name when nothing changes. Raises CorruptFile, UnsupportedFeature, StorageFull.
    """
    if all(keep) and not added:
        return previous
    if not any(keep) and not added:
        return None
    if previous is None:
        data = encode_index_manifest(added)
    else:
        path = store.manifest_path(previous)
        data = change_index_manifest(_read(store, path, None), path, keep, added)
    name = store.new_file_name("index-manifest-")
    _write(store, store.manifest_path(name), data)
    return name


def _read(store: TableStore, path: str, size: int | None) -> bytes:
    """The bytes of a manifest, a list of them or an index manifest, whose names are never given twice.

    In an object store small ones are asked for once: a plan, its execution and its commit read the same ones.
    """
    data: bytes | None = store.kept.get(("manifest", path))
    if data is None:
        try:
            data = store.file_io.read_bytes(path)
        except FileNotFoundError as error:
            raise CorruptFile(path, "the file is missing") from error
        _keep(store, path, data)
    if size is not None and len(data) != size:
        raise CorruptFile(path, f"has {len(data)} bytes, {size} are recorded")
    return data


def _write(store: TableStore, path: str, data: bytes) -> None:
    with store.file_io.open_output(path) as out:
        out.write(data)
    _keep(store, path, data)


def _keep(store: TableStore, path: str, data: bytes) -> None:
    if len(data) <= _KEPT_BYTES and place_of(store.root):
        store.kept.put(("manifest", path), data, len(data))


# -- decoding at speed: DataFusion's Avro reader is many times faster than going record by record ----------------------


_LOG = logging.getLogger(__name__)


def fast_decode(data: bytes, path: str, rows: int | None = None, narrow: Narrowing | None = None) -> pa.Table | None:
    """The entries (`ENTRY_SCHEMA`) of a manifest's bytes, or what ``narrow`` keeps of them; None where DataFusion cannot read them (the log says why).

    ``rows``: how many the manifest list recorded; None for another number, for a file cut short may come out with rows missing and no
    error. Raises :class:`CorruptFile` naming ``path`` for a broken header.
    """
    if not hasattr(os, "memfd_create"):  # Linux has it
        return None
    readable, wrapped = with_record_root(data, path)
    # DataFusion reads files only, and takes a table's own path as a pattern and an address; memory has a plain one.
    memory = os.memfd_create("manifest")
    try:
        with os.fdopen(os.dup(memory), "wb") as out:
            out.write(readable)
        from datafusion import SessionConfig, SessionContext  # slow to import, and most tables are small

        # One partition keeps the order of the records, on which the merge of adds and deletes depends.
        size = _WHOLE_ROWS if narrow is None else _SLICE_ROWS
        context = SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(size))
        parts, found = [], 0
        for batch in context.read_avro(f"/proc/self/fd/{memory}", file_extension="").execute_stream():
            part = batch.to_pyarrow()
            if wrapped:
                entries = part.column("entry")
                if entries.null_count:
                    raise CorruptFile(path, "a manifest entry is null")
                part = pa.RecordBatch.from_struct_array(entries)
            found += part.num_rows
            whole = from_avro_table(pa.Table.from_batches([part]), path)
            parts.append(whole if narrow is None else _copied(narrow(whole)))
        if rows is not None and found != rows:
            return None
        return pa.concat_tables(parts) if parts else None
    except BaseException as error:  # a panic inside the library arrives as a BaseException
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)):
            raise
        _LOG.warning("DataFusion cannot read manifest %s, so it is decoded record by record: %s", path, error)
        return None
    finally:
        os.close(memory)


def _copied(table: pa.Table) -> pa.Table:
    """``table`` in memory of its own: as long as one column of a decoder's batch is there, all of them are."""
    return pa.concat_tables([table, table.slice(0, 0)]).combine_chunks()


# -- pruning: manifests and entries that cannot matter, by the ranges that the manifest list records -------------------


Row = tuple[Any, ...]


def prune(
    metas: Sequence[ManifestFileMeta],
    types: Sequence[DataType],
    partitions: Collection[bytes] | None,
    buckets: Collection[int] | None,
    levels: Collection[int] | None,
) -> list[ManifestFileMeta]:
    """Return the manifests that may hold entries of the wanted partitions, buckets and levels; unknown ranges are kept."""
    wanted = None if partitions is None else [decode_row(p, types) for p in partitions]
    return [
        meta
        for meta in metas
        if _meets(meta.min_bucket, meta.max_bucket, buckets)
        and _meets(meta.min_level, meta.max_level, levels)
        and (wanted is None or _may_hold(meta, types, wanted))
    ]


def keep_rows(
    entries: pa.Table,
    partitions: Collection[bytes] | None,
    buckets: Collection[int] | None,
    levels: Collection[int] | None,
) -> pa.Table:
    """Return only the entries of the wanted partitions, buckets and levels.

    All three are part of an entry's identity, so an ADD and the DELETE that cancels it stay or go together.
    """
    for name, values in (("partition", partitions), ("bucket", buckets), ("level", levels)):
        if values is not None:
            wanted = arrow_array(list(values), entries.schema.field(name).type)
            entries = entries.filter(pc.is_in(entries.column(name), value_set=wanted))
    return entries


def _meets(low: int | None, high: int | None, wanted: Collection[int] | None) -> bool:
    if wanted is None or low is None or high is None:
        return True
    return any(low <= value <= high for value in wanted)


def _may_hold(meta: ManifestFileMeta, types: Sequence[DataType], wanted: Sequence[Row]) -> bool:
    stats = meta.partition_stats
    if not types:
        return bool(wanted)
    try:
        low, high = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    except (DredgeError, ValueError, IndexError) as error:  # statistics of another arity say nothing
        _LOG.info("manifest %s is not pruned by its partition statistics: %s", meta.file_name, error)
        return True
    nulls = stats.null_counts or ()
    return any(_row_may_be_in(row, low, high, nulls) for row in wanted)


def _row_may_be_in(row: Row, low: Row, high: Row, nulls: Sequence[int | None]) -> bool:
    for at, value in enumerate(row):
        if value is None:
            if at < len(nulls) and nulls[at] == 0:
                return False
        elif low[at] is not None and high[at] is not None:
            # Said this way a NaN proves nothing: every comparison with one is false. Nor do values that do not compare.
            with suppress(TypeError):
                if value < low[at] or value > high[at]:
                    return False
    return True


# -- writing: entries cut into manifests of bounded size ---------------------------------------------------------------


_FIRST_TRY = 8_192  # entries encoded before the size of one is known
_AIM, _SLACK = 1.08, 1.2
_MOST_TRIES = 4


def _rolled(parts: Iterator[pa.Table], target: int) -> Iterator[tuple[pa.Table, bytes]]:
    """Yield consecutive slices with their encoded form, each of ``target`` bytes and a little more, the last of less (order is kept).

    None is a little smaller than that, or every commit would merge it again (`commit.manifest_merge`).
    """
    waiting, rows, tries = next(parts, NO_ENTRIES), _FIRST_TRY, 0
    while True:
        while waiting.num_rows <= rows and (more := next(parts, None)) is not None:
            waiting = pa.concat_tables([waiting, more]) if waiting.num_rows else more
        if not waiting.num_rows:
            return
        part = waiting.slice(0, rows)
        data = encode_manifest(part)
        fitting = max(1, int(target * _AIM * part.num_rows / len(data)))
        too_much = len(data) > target * _SLACK and fitting < part.num_rows
        too_little = len(data) < target and part.num_rows < min(fitting, waiting.num_rows)
        rows, tries = fitting, tries + 1
        if (too_much or too_little) and tries < _MOST_TRIES:
            continue
        tries = 0
        yield part, data
        waiting = waiting.slice(part.num_rows)


def difference(store: TableStore, old: Sequence[ManifestFileMeta], new: Sequence[ManifestFileMeta]) -> pa.Table:
    """What turns the live files of ``old`` manifests into those of ``new`` ones: deletions, then additions (`ENTRY_SCHEMA`).

    Manifests that both sides have say the same on both, so only the others are read; their entries are held in memory. Raises CorruptFile.
    """
    names = [{meta.file_name for meta in side} for side in (old, new)]
    went = entries_of(store, [meta for meta in old if meta.file_name not in names[1]])
    came = entries_of(store, [meta for meta in new if meta.file_name not in names[0]])
    both = pa.concat_tables([went.select(ENTRY_SCHEMA.names), came.select(ENTRY_SCHEMA.names)])
    if not both.num_rows:
        return both
    signs = np.where(numpy_array(both.column("kind")) == ADD, 1, -1)
    signs[: went.num_rows] *= -1
    codes = identity_codes(both)
    net = np.bincount(codes, weights=signs).astype(np.int64)
    _, first = np.unique(codes, return_index=True)
    if (np.abs(net) > 1).any():
        row = int(first[int(np.argmax(np.abs(net) > 1))])
        raise CorruptFile(store.manifest_dir, f"file {both.column('file_name')[row].as_py()} is added twice")
    chosen = np.concatenate([first[net == -1], first[net == 1]])
    kinds = np.where(np.arange(len(chosen)) < int((net == -1).sum()), DELETE, ADD).astype(np.int8)
    found = both.take(arrow_array(chosen))
    place = found.schema.get_field_index("kind")
    return found.set_column(place, ENTRY_SCHEMA.field("kind"), arrow_array(kinds))
