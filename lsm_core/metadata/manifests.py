"""Manifest lists and manifests of a snapshot, streamed and columnar, so that a table with 900,000 files stays fast.

Row tracking of append tables adds two columns: `_ROW_ID`, and `_SEQUENCE_NUMBER`, the snapshot that wrote the row
(format.md 8.3). An appended file stores neither column: its metadata has the first row's id and one sequence number for
all rows. A rewritten file stores both columns, so that rows keep their values.

Source: ``ManifestFile``, ``SpecialFields``, ``RowTrackingCommitUtils``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, empty_table, numpy_array, one_array
from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.format.avro import with_record_root
from lsm_core.format.binary_row import decode_row
from lsm_core.format.manifest import (
    ADD,
    DELETE,
    ENTRY_SCHEMA,
    SOURCE_APPEND,
    Cancelling,
    DataFileMeta,
    HashesMeet,
    IndexManifestEntry,
    ManifestFileMeta,
    change_index_manifest,
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    decode_manifest_lists,
    decode_manifests,
    encode_index_manifest,
    encode_manifest,
    encode_manifest_list,
    from_avro_table,
    identity_codes,
    manifest_meta,
    merge_entries,
)
from lsm_core.format.schema import ROW_ID, ROW_ID_ID, SEQUENCE_NUMBER, SEQUENCE_NUMBER_ID, DataField, TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata.store import TableStore
from lsm_core.storage import Kept, done_in_turn, place_of
from lsm_core.types import DataType, parse

_FAST_FROM = 500  # entries; below this, starting DataFusion costs more than it saves
_WHOLE_ROWS = 65_536  # batch size of DataFusion if all entries are kept
_SLICE_ROWS = 8_192  # batch size of DataFusion if each slice is narrowed
_REMEMBERED_BYTES = 16 * 1024  # largest file whose decoded form is cached
_FILES_TOGETHER = 8  # small manifests that `iter_manifests` decodes together
_KEPT_BYTES = 1 << 20  # largest file whose bytes are cached
_BYTES_A_ROW = 1_000  # of a decoded manifest list or manifest
# An expiry reads the lists of all snapshots several times. The bytes belong to the key, so a changed file is decoded.
_decoded_lists = Kept(32 << 20)
_decoded_manifests = Kept(4 << 20)
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
    """Return the manifests that a manifest list contains.

    Java trusts recorded sizes and silently loses rows if they are wrong, so the size is checked here.

    Args:
        store: the table.
        name: file name of the list.
        size: recorded size in bytes, or None if unknown.

    Returns:
        The metadata of each manifest, in the order of the list.

    Raises:
        CorruptFile: the list is missing, truncated, or its size is not ``size``.

    Source: ``ManifestList``.
    """
    return _read_lists(store, [(name, size)])[0]


def _read_lists(store: TableStore, lists: Sequence[tuple[str, int | None]]) -> list[list[ManifestFileMeta]]:
    """Return the result of :func:`read_list` for several manifest lists; small ones are decoded together.

    Args:
        store: the table.
        lists: file name and recorded size of each list.
    """
    paths = [store.manifest_path(name) for name, _ in lists]
    keys = [(_read(store, path, size), path) for path, (_, size) in zip(paths, lists, strict=True)]
    decoded: list[list[ManifestFileMeta] | None] = [_decoded_lists.get(key) for key in keys]
    missing = [key for key, metas in zip(keys, decoded, strict=True) if metas is None]
    if any(len(data) > _REMEMBERED_BYTES for data, _ in missing):
        new = iter([decode_manifest_list(*key) for key in missing])
    else:
        new = iter(decode_manifest_lists(missing))
    for place, key in enumerate(keys):
        if decoded[place] is None:
            decoded[place] = metas = next(new)
            _decoded_lists.put(key, metas, len(key[0]) + _BYTES_A_ROW * len(metas))
    return [list(metas or ()) for metas in decoded]


def write_list(store: TableStore, metas: Sequence[ManifestFileMeta]) -> tuple[str, int]:
    """Write a manifest list.

    Returns:
        The file name and the exact size in bytes of the new list.

    Raises:
        StorageFull: the storage is full.
    """
    name = store.new_file_name("manifest-list-")
    data = encode_manifest_list(list(metas))
    _write(store, store.manifest_path(name), data)
    return name, len(data)


Narrowing = Callable[[pa.Table], pa.Table]
"""Filter of rows and columns of manifest entries.

The filter is applied to slices of a table, so it must judge each entry independently of other entries.
"""


def read_manifest(store: TableStore, meta: ManifestFileMeta, narrow: Narrowing | None = None) -> pa.Table:
    """Return a manifest's entries (`ENTRY_SCHEMA`) in file order; ADD and DELETE entries are not merged.

    ``narrow`` is applied to a large manifest during decoding, some thousand entries at a time. So only one slice at a
    time is in memory with all columns.

    Args:
        store: the table.
        meta: the manifest.
        narrow: filter for the entries, or None to keep all.

    Returns:
        The entries that ``narrow`` keeps.

    Raises:
        CorruptFile: the manifest is missing or damaged; the message names it.
    """
    path = store.manifest_path(meta.file_name)
    data = _read(store, path, meta.file_size)
    return _decode_entries((data, path, meta.num_added_files + meta.num_deleted_files), narrow)


def iter_entries(
    store: TableStore, metas: Sequence[ManifestFileMeta], narrow: Narrowing | None = None
) -> Iterator[pa.Table]:
    """Yield the entries of the manifests in turn; only one large manifest is in memory at a time.

    The entries of neighbouring small manifests are in one table, because a filter takes as long for a few entries as
    for hundreds. In object stores, the next few files are requested in advance.

    Args:
        store: the table.
        metas: the manifests.
        narrow: filter for the entries, applied while a manifest is decoded; None to keep all.

    Yields:
        The entries of one manifest, or of several small ones.

    Raises:
        CorruptFile: a manifest is missing or damaged; the message names it.
    """
    small: list[_Stored] = []
    paths = [store.manifest_path(meta.file_name) for meta in metas]
    reads = [partial(_read, store, path, meta.file_size) for path, meta in zip(paths, metas, strict=True)]
    for meta, path, data in zip(metas, paths, done_in_turn(reads, at_once=bool(place_of(store.root))), strict=True):
        stored = data, path, meta.num_added_files + meta.num_deleted_files
        joins = _is_small(stored)
        if small and (not joins or sum(count for *_, count in small) + stored[2] > _FAST_FROM):
            yield _decode_small(small, narrow)
            small = []
        if joins:
            small.append(stored)
        else:
            yield _decode_entries(stored, narrow)
    if small:
        yield _decode_small(small, narrow)


_Stored = tuple[bytes, str, int]
"""Bytes and path of a manifest, and the number of its entries in the manifest list."""


def _is_small(stored: _Stored) -> bool:
    return stored[2] < _FAST_FROM and len(stored[0]) <= _REMEMBERED_BYTES


def _decode_entries(stored: _Stored, narrow: Narrowing | None) -> pa.Table:
    if _is_small(stored):
        return _decode_small([stored], narrow)
    data, path, expected = stored
    if expected >= _FAST_FROM:
        fast = fast_decode(data, path, expected, narrow)
        if fast is not None:
            return fast
    entries = decode_manifest(data, path, expected)
    return entries if narrow is None else narrow(entries)


def iter_manifests(
    store: TableStore, metas: Sequence[ManifestFileMeta], narrow: Narrowing | None = None
) -> Iterator[pa.Table]:
    """Yield the entries of each manifest in turn, as :func:`read_manifest` returns them.

    A few small manifests in a row are read and decoded together, which takes less time.

    Args:
        store: the table.
        metas: the manifests.
        narrow: filter for the entries, applied while a manifest is decoded; None to keep all.

    Yields:
        The entries of one manifest.

    Raises:
        CorruptFile: a manifest is missing or damaged; the message names it.
    """
    for start in range(0, len(metas), _FILES_TOGETHER):
        group = metas[start : start + _FILES_TOGETHER]
        if any(meta.file_size > _REMEMBERED_BYTES for meta in group) or sum(map(_count_entries, group)) > _FAST_FROM:
            yield from (read_manifest(store, meta, narrow) for meta in group)
            continue
        paths = [store.manifest_path(meta.file_name) for meta in group]
        files = [
            (_read(store, path, meta.file_size), path, _count_entries(meta))
            for path, meta in zip(paths, group, strict=True)
        ]
        _decode_small(files, None)  # the results are kept
        yield from (_decode_entries(file, narrow) for file in files)


def _count_entries(meta: ManifestFileMeta) -> int:
    return meta.num_added_files + meta.num_deleted_files


def _decode_small(files: Sequence[_Stored], narrow: Narrowing | None) -> pa.Table:
    """Return the entries of small manifests, one manifest after the other.

    They are decoded once, because a plan, its execution and its commit read the same files.
    """
    tables: list[pa.Table | None] = [_decoded_manifests.get(file) for file in files]
    missing = [file for file, table in zip(files, tables, strict=True) if table is None]
    decoded = iter(decode_manifests(missing))
    for place, file in enumerate(files):
        if tables[place] is None:
            tables[place] = table = next(decoded)
            _decoded_manifests.put(file, table, len(file[0]) + _BYTES_A_ROW * file[2])
    entries = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
    return entries if narrow is None else narrow(entries)


def write_manifests(store: TableStore, entries: pa.Table | Iterable[pa.Table]) -> list[ManifestFileMeta]:
    """Write entries in order into manifests of about ``manifest.target-file-size``.

    An iterator of tables is consumed in steps: at most the content of two manifests is in memory. If a write or the
    iterator raises an error, the files already written are deleted.

    Args:
        store: the table.
        entries: a table or an iterable of tables (`ENTRY_SCHEMA`).

    Returns:
        The new manifests; an empty list if there are no entries.

    Raises:
        StorageFull: the storage is full.
    """
    written: list[ManifestFileMeta] = []
    tables = [entries] if isinstance(entries, pa.Table) else entries
    parts = (table.select(ENTRY_SCHEMA.names) for table in tables)
    try:
        for part, data in _split_manifests(parts, store.options.manifest_target_size):
            name = store.new_file_name("manifest-")
            _write(store, store.manifest_path(name), data)
            written.append(manifest_meta(part, name, len(data), store.schema.partition_types, store.schema.id))
    except BaseException:
        for meta in written:
            store.delete(store.manifest_path(meta.file_name))
        raise
    return written


def base_list(store: TableStore, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """Return the manifests of the snapshot's base manifest list (the state before the snapshot's own changes).

    Raises:
        CorruptFile: the manifest list is missing or damaged.
    """
    return read_list(store, snapshot.base_manifest_list, snapshot.base_manifest_list_size)


def delta_list(store: TableStore, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """Return the manifests of the snapshot's delta manifest list (the snapshot's own changes).

    Raises:
        CorruptFile: the manifest list is missing or damaged.
    """
    return read_list(store, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)


def data_manifests(store: TableStore, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """Return all data manifests of a snapshot: base, then delta.

    Raises:
        CorruptFile: a manifest list is missing or damaged.
    """
    base = snapshot.base_manifest_list, snapshot.base_manifest_list_size
    delta = snapshot.delta_manifest_list, snapshot.delta_manifest_list_size
    return list(chain.from_iterable(_read_lists(store, [base, delta])))


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
    """Return the live files of a snapshot as merged ADD entries.

    ``partitions``, ``buckets`` and ``levels`` prune whole manifests by their recorded ranges, then single entries.

    Args:
        store: the table.
        snapshot: the snapshot to read.
        partitions: partitions to include (serialised rows), or None for all.
        buckets: buckets to include, or None for all.
        levels: levels to include, or None for all.
        columns: columns of `ENTRY_SCHEMA` to return, or None for all; fewer columns save memory on large tables.
        choose: selects the manifests to read, or None for all.
        keep: filters the entries of each manifest. The filter may use only partition, bucket and level; otherwise an
            ADD could be kept without the DELETE entry of the same file.

    Returns:
        One row per live file.

    Raises:
        CorruptFile: a manifest list or manifest is damaged; the message names it.
    """
    names = ENTRY_SCHEMA.names if columns is None else list(columns)
    if partitions is not None and partitions and not store.schema.partition_keys:
        partitions = None  # all entries are in the single empty partition
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
    return filter_rows(merged, added).select(names)  # a deletion without its addition is rare


def iter_live(store: TableStore, snapshot: Snapshot) -> Iterator[pa.Table]:
    """Yield the live files of a snapshot (`ENTRY_SCHEMA`) manifest by manifest; only deletions stay in memory.

    Raises:
        CorruptFile: a manifest list or manifest is damaged; the message names it.
    """
    metas = data_manifests(store, snapshot)
    with_deletions = [meta for meta in metas if meta.num_deleted_files]
    deletions = [read_manifest(store, meta, _select_deletions) for meta in with_deletions]
    try:
        cancelling = Cancelling(pa.concat_tables([NO_ENTRIES.select(IDENTITY_COLUMNS), *deletions]))
    except HashesMeet:
        yield live_entries(store, snapshot)
        return
    for entries in iter_entries(store, metas):
        yield cancelling.survivors(entries)


def _select_deletions(entries: pa.Table) -> pa.Table:
    return entries.filter(pc.equal(entries.column("kind"), 1)).select(IDENTITY_COLUMNS)


def delta_entries(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return the snapshot's own changes (`ENTRY_SCHEMA`), in order; ADD and DELETE entries are not merged.

    Raises:
        CorruptFile: a manifest list or manifest is damaged.
    """
    return entries_of(store, delta_list(store, snapshot))


def changelog_list(store: TableStore, snapshot: Snapshot) -> list[ManifestFileMeta] | None:
    """Return the manifests of the snapshot's changelog.

    Java deletes the changelog and its list when a snapshot expires, even if a tag keeps the snapshot
    (`SnapshotDeletion`). A rollback to the tag restores the snapshot, so a missing list means that the changelog has
    expired.

    Returns:
        The manifests; an empty list if the snapshot has no changelog; None if its manifest list no longer exists.

    Raises:
        CorruptFile: the list exists but cannot be read.
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
    """Return the snapshot's changelog files (`ENTRY_SCHEMA`); empty without a changelog or if it has expired.

    Raises:
        CorruptFile: a manifest list or manifest is damaged.
    """
    return entries_of(store, changelog_list(store, snapshot) or [])


def entries_of(store: TableStore, metas: Sequence[ManifestFileMeta]) -> pa.Table:
    """Return the entries of several manifests, one manifest after the other; ADD and DELETE entries are not merged.

    Raises:
        CorruptFile: a manifest is missing or damaged.
    """
    return pa.concat_tables([NO_ENTRIES, *iter_entries(store, metas)])


def index_entries(store: TableStore, snapshot: Snapshot) -> list[IndexManifestEntry]:
    """Return the entries of the snapshot's index manifest: one for each index file (hash index, deletion vectors).

    Raises:
        CorruptFile: the index manifest is missing or damaged.
    """
    if snapshot.index_manifest is None:
        return []
    path = store.manifest_path(snapshot.index_manifest)
    data = _read(store, path, None)
    return (
        list(_decode_indexes_cached(data, path))
        if len(data) <= _REMEMBERED_BYTES
        else decode_index_manifest(data, path)
    )


@lru_cache(maxsize=64)
def _decode_indexes_cached(data: bytes, path: str) -> tuple[IndexManifestEntry, ...]:
    """Return the entries of a small index manifest, from a cache if possible.

    A read decodes the same index manifest twice: for its deletion vectors, and for the check of their buckets.
    """
    return tuple(decode_index_manifest(data, path))


def write_index_manifest(
    store: TableStore,
    previous: str | None,
    keep: Sequence[bool],
    added: Sequence[IndexManifestEntry],
) -> str | None:
    """Write a new index manifest from the entries of an earlier one and new entries.

    Args:
        store: the table.
        previous: name of the earlier index manifest, or None.
        keep: for each entry of ``previous``, whether it stays.
        added: new entries.

    Returns:
        Name of the new index manifest; ``previous`` if nothing changes; None if no entry remains.

    Raises:
        CorruptFile: the earlier index manifest is damaged.
        UnsupportedFeature: the earlier index manifest has content that cannot be carried over.
        StorageFull: the storage is full.
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
    """Return the bytes of a manifest, manifest list or index manifest.

    Small files of object stores are cached, because a plan, its execution and its commit read the same manifests. The
    cache is safe because Paimon never reuses these file names.

    Args:
        store: the table.
        path: path of the file.
        size: exact size of the file in bytes, or None if unknown.
    """
    data: bytes | None = store.kept.get(("manifest", path))
    if data is None:
        try:
            data = store.file_io.read_bytes(path)
        except FileNotFoundError as error:
            raise CorruptFile(path, "the file is missing") from error
        _cache(store, path, data)
    if size is not None and len(data) != size:
        raise CorruptFile(path, f"has {len(data)} bytes, but {size} are recorded")
    return data


def _write(store: TableStore, path: str, data: bytes) -> None:
    with store.file_io.open_output(path) as out:
        out.write(data)
    _cache(store, path, data)


def _cache(store: TableStore, path: str, data: bytes) -> None:
    if len(data) <= _KEPT_BYTES and place_of(store.root):
        store.kept.put(("manifest", path), data, len(data))


# -- fast decoding: DataFusion's Avro reader is many times faster than decoding record by record -----------------------


_LOG = logging.getLogger(__name__)


def fast_decode(data: bytes, path: str, rows: int | None = None, narrow: Narrowing | None = None) -> pa.Table | None:
    """Decode a manifest with DataFusion, which is faster for large manifests.

    Args:
        data: the manifest's bytes.
        path: path of the manifest, for messages.
        rows: the recorded number of entries, or None if unknown. A truncated file may lose rows without an error, so
            the result is None if the number of decoded entries differs.
        narrow: filter for the entries, or None to keep all.

    Returns:
        The entries (`ENTRY_SCHEMA`). None if DataFusion cannot read them (the error is logged), if their number is not
        ``rows``, or on systems other than Linux.

    Raises:
        CorruptFile: the header is damaged.
    """
    if not hasattr(os, "memfd_create"):  # only Linux has it
        return None
    readable, wrapped = with_record_root(data, path)
    # DataFusion reads only files and interprets a path as pattern and URL; an in-memory file has a plain path.
    memory = os.memfd_create("manifest")
    try:
        with os.fdopen(os.dup(memory), "wb") as out:
            out.write(readable)
        from datafusion import SessionConfig, SessionContext  # slow to import, and most tables are small

        # One partition keeps the order of the records, on which the merge of adds and deletes depends.
        size = _WHOLE_ROWS if narrow is None else _SLICE_ROWS
        context = SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(size))
        parts, decoded_rows = [], 0
        for batch in context.read_avro(f"/proc/self/fd/{memory}", file_extension="").execute_stream():
            part = batch.to_pyarrow()
            if wrapped:
                entries = part.column("entry")
                if entries.null_count:
                    raise CorruptFile(path, "a manifest entry is null")
                part = pa.RecordBatch.from_struct_array(entries)
            decoded_rows += part.num_rows
            slice_entries = from_avro_table(pa.Table.from_batches([part]), path)
            parts.append(slice_entries if narrow is None else _copy(narrow(slice_entries)))
        if rows is not None and decoded_rows != rows:
            return None
        return pa.concat_tables(parts) if parts else None
    except BaseException as error:  # a panic inside the library arrives as a BaseException
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)):
            raise
        _LOG.warning("DataFusion cannot read manifest %s; it is decoded record by record: %s", path, error)
        return None
    finally:
        os.close(memory)


def _copy(table: pa.Table) -> pa.Table:
    """Return a copy of ``table`` with its own memory; a slice of it would keep all decoded columns in memory."""
    return pa.concat_tables([table, table.slice(0, 0)]).combine_chunks()


# -- pruning: skip manifests and entries by the ranges in the manifest list --------------------------------------------


Row = tuple[Any, ...]


def prune(
    metas: Sequence[ManifestFileMeta],
    types: Sequence[DataType],
    partitions: Collection[bytes] | None,
    buckets: Collection[int] | None,
    levels: Collection[int] | None,
) -> list[ManifestFileMeta]:
    """Return the manifests that may contain entries of the given partitions, buckets and levels.

    Args:
        metas: the manifests.
        types: types of the partition columns.
        partitions: partitions (serialised rows), or None for all.
        buckets: buckets, or None for all.
        levels: levels, or None for all.

    Returns:
        The remaining manifests, in order; a manifest without a recorded range remains.
    """
    partition_rows = None if partitions is None else [decode_row(p, types) for p in partitions]
    return [
        meta
        for meta in metas
        if _overlaps(meta.min_bucket, meta.max_bucket, buckets)
        and _overlaps(meta.min_level, meta.max_level, levels)
        and (partition_rows is None or _may_contain(meta, types, partition_rows))
    ]


def keep_rows(
    entries: pa.Table,
    partitions: Collection[bytes] | None,
    buckets: Collection[int] | None,
    levels: Collection[int] | None,
) -> pa.Table:
    """Return the manifest entries of some partitions, buckets and levels.

    All three belong to an entry's identity, so the ADD and the DELETE entry of a file are kept or dropped together.

    Args:
        entries: the manifest entries.
        partitions: partitions to keep (serialised rows), or None for all.
        buckets: buckets to keep, or None for all.
        levels: levels to keep, or None for all.
    """
    matches = None
    for name, values in (("partition", partitions), ("bucket", buckets), ("level", levels)):
        if values is not None:
            value_array = arrow_array(list(values), entries.schema.field(name).type)
            matches_column = pc.is_in(entries.column(name), value_set=value_array)
            matches = matches_column if matches is None else pc.and_(matches, matches_column)
    return entries if matches is None else filter_rows(entries, matches)


def filter_rows(entries: pa.Table, matches: pa.ChunkedArray) -> pa.Table:
    """Return the rows for which ``matches`` is true; without a copy if that is every row, as in most small tables."""
    return entries if pc.all(matches, min_count=0).as_py() else entries.filter(matches)


def _overlaps(low: int | None, high: int | None, numbers: Collection[int] | None) -> bool:
    if numbers is None or low is None or high is None:
        return True
    return any(low <= value <= high for value in numbers)


def _may_contain(meta: ManifestFileMeta, types: Sequence[DataType], partitions: Sequence[Row]) -> bool:
    stats = meta.partition_stats
    if not types:
        return bool(partitions)
    try:
        low, high = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    except (DredgeError, ValueError, IndexError) as error:  # statistics of other columns do not help
        _LOG.info("manifest %s is not pruned by its partition statistics: %s", meta.file_name, error)
        return True
    nulls = stats.null_counts or ()
    return any(_range_may_contain(row, low, high, nulls) for row in partitions)


def _range_may_contain(row: Row, low: Row, high: Row, nulls: Sequence[int | None]) -> bool:
    for column, value in enumerate(row):
        if value is None:
            if column < len(nulls) and nulls[column] == 0:
                return False
        elif low[column] is not None and high[column] is not None:
            # Every comparison with NaN is false, so NaN excludes nothing; values that cannot be compared do not either.
            with suppress(TypeError):
                if value < low[column] or value > high[column]:
                    return False
    return True


# -- writing: split entries into manifests of bounded size -------------------------------------------------------------


_FIRST_ROWS = 8_192  # entries of the first attempt, before the size of an entry is known
_AIM, _SLACK = 1.08, 1.2  # intended and largest size of a manifest, as factors of the target size
_MAX_ATTEMPTS = 4


def _split_manifests(parts: Iterator[pa.Table], target: int) -> Iterator[tuple[pa.Table, bytes]]:
    """Yield (slice of consecutive entries, manifest of the slice, encoded to slightly more than ``target`` bytes).

    The last manifest may be smaller. Each commit merges manifests that are smaller than ``target`` (`commit.attempt`),
    so all manifests except the last should have at least ``target`` bytes.

    Args:
        parts: tables of manifest entries, in order.
        target: target size of a manifest in bytes.
    """
    pending, rows, attempts = next(parts, NO_ENTRIES), _FIRST_ROWS, 0
    while True:
        while pending.num_rows <= rows and (next_part := next(parts, None)) is not None:
            pending = pa.concat_tables([pending, next_part]) if pending.num_rows else next_part
        if not pending.num_rows:
            return
        part = pending.slice(0, rows)
        data = encode_manifest(part)
        target_rows = max(1, int(target * _AIM * part.num_rows / len(data)))
        is_too_large = len(data) > target * _SLACK and target_rows < part.num_rows
        is_too_small = len(data) < target and part.num_rows < min(target_rows, pending.num_rows)
        rows, attempts = target_rows, attempts + 1
        if (is_too_large or is_too_small) and attempts < _MAX_ATTEMPTS:
            continue
        attempts = 0
        yield part, data
        pending = pending.slice(part.num_rows)


def difference(store: TableStore, old: Sequence[ManifestFileMeta], new: Sequence[ManifestFileMeta]) -> pa.Table:
    """Return the changes from the live files of the manifests ``old`` to the live files of the manifests ``new``.

    Manifests in both lists contribute no change and are not read. The entries of all other manifests are held in
    memory.

    Args:
        store: the table.
        old: manifests of the earlier state.
        new: manifests of the later state.

    Returns:
        Deletions, then additions (`ENTRY_SCHEMA`).

    Raises:
        CorruptFile: a manifest is damaged, or a file is added twice.
    """
    file_names = [{meta.file_name for meta in side} for side in (old, new)]
    old_entries = entries_of(store, [meta for meta in old if meta.file_name not in file_names[1]])
    new_entries = entries_of(store, [meta for meta in new if meta.file_name not in file_names[0]])
    entries = pa.concat_tables([old_entries.select(ENTRY_SCHEMA.names), new_entries.select(ENTRY_SCHEMA.names)])
    if not entries.num_rows:
        return entries
    signs = np.where(numpy_array(entries.column("kind")) == ADD, 1, -1)
    signs[: old_entries.num_rows] *= -1
    identities = identity_codes(entries)
    net = np.bincount(identities, weights=signs).astype(np.int64)
    _, first_rows = np.unique(identities, return_index=True)
    if (np.abs(net) > 1).any():
        row = int(first_rows[int(np.argmax(np.abs(net) > 1))])
        raise CorruptFile(store.manifest_dir, f"file {entries.column('file_name')[row].as_py()} is added twice")
    chosen = np.concatenate([first_rows[net == -1], first_rows[net == 1]])
    kinds = np.where(np.arange(len(chosen)) < int((net == -1).sum()), DELETE, ADD).astype(np.int8)
    changes = entries.take(arrow_array(chosen))
    kind_column = changes.schema.get_field_index("kind")
    return changes.set_column(kind_column, ENTRY_SCHEMA.field("kind"), arrow_array(kinds))


COLUMNS: Final = (ROW_ID, SEQUENCE_NUMBER)
_BLOB_EXTENSION: Final = ".blob"
DESCRIPTORS: Final = "blob-descriptor-field"
"""Option that lists BLOB columns whose data files hold descriptors of other files."""


def names_in(store: TableStore, key: str) -> set[str]:
    """Return the column names that an option lists."""
    return {name.strip() for name in str(store.options.get(key) or "").split(",")}


def tracks_rows(store: TableStore) -> bool:
    """Return whether the table has row tracking, so that each row has an id."""
    return bool(store.options.get("row-tracking.enabled")) and not store.has_primary_key


def evolves(store: TableStore) -> bool:
    """Return whether the rows of the table may be spread over several files, matched by row id (data evolution)."""
    return bool(store.options.get("data-evolution.enabled")) and tracks_rows(store)


def tracked_schema(schema: TableSchema, *, unnumbered: bool = False) -> TableSchema:
    """Return ``schema`` with `_ROW_ID` and `_SEQUENCE_NUMBER` (BIGINT) after its columns.

    Args:
        schema: the table's schema.
        unnumbered: whether `_SEQUENCE_NUMBER` may be null.

    Returns:
        The extended schema.
    """
    fields = (
        DataField(ROW_ID_ID, ROW_ID, parse("BIGINT NOT NULL")),
        DataField(SEQUENCE_NUMBER_ID, SEQUENCE_NUMBER, parse("BIGINT" if unnumbered else "BIGINT NOT NULL")),
    )
    return replace(schema, fields=(*schema.fields, *fields))


def with_row_ids(store: TableStore, *, unnumbered: bool = False) -> TableStore:
    """Return ``store`` with `_ROW_ID` and `_SEQUENCE_NUMBER` in its schema: reads return them, writes store them.

    Args:
        store: the table.
        unnumbered: whether written files may have a null `_SEQUENCE_NUMBER`, which stands for the snapshot that commits
            the file.

    Returns:
        The table with the extended schema.
    """
    return store.with_schema(tracked_schema(store.schema, unnumbered=unnumbered))


def stores_row_ids(schema: TableSchema) -> bool:
    """Return whether files of ``schema`` contain `_ROW_ID` and `_SEQUENCE_NUMBER` (added by :func:`with_row_ids`)."""
    return schema.has_field(ROW_ID)


def fill_tracking(
    batch: pa.RecordBatch, meta: DataFileMeta, positions: npt.NDArray[np.int64], path: str
) -> pa.RecordBatch:
    """Return ``batch`` with missing values of `_ROW_ID` and `_SEQUENCE_NUMBER` filled in from the file's metadata.

    Args:
        batch: rows of one file.
        meta: the file.
        positions: row positions within the file.
        path: the file's path, for messages.

    Returns:
        The completed batch.

    Raises:
        CorruptFile: the file has no row ids; the message names ``path``.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if ROW_ID in columns and columns[ROW_ID].null_count:
        if meta.first_row_id is None:
            raise CorruptFile(path, "a table with row tracking has a file whose rows have no ids")
        columns[ROW_ID] = pc.coalesce(columns[ROW_ID], pa.array(positions + meta.first_row_id))
    if SEQUENCE_NUMBER in columns and columns[SEQUENCE_NUMBER].null_count:
        columns[SEQUENCE_NUMBER] = pc.fill_null(columns[SEQUENCE_NUMBER], meta.max_sequence_number)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


def number_by_snapshot(entries: pa.Table, snapshot_id: int) -> pa.Table:
    """Return the entries of a commit with ``snapshot_id`` as smallest and largest sequence number of the added files.

    In a table with `sequence.snapshot-ordering`, readers use this number as the sequence number of all rows of the
    file.

    Args:
        entries: the commit's entries (`ENTRY_SCHEMA`).
        snapshot_id: id of the new snapshot.
    """
    added = np.asarray(entries.column("kind")) == ADD
    for name in ("min_sequence_number", "max_sequence_number"):
        position = entries.schema.get_field_index(name)
        numbers = np.where(added, snapshot_id, entries.column(name).to_numpy())
        entries = entries.set_column(position, entries.schema.field(position), pa.array(numbers))
    return entries


def _names_row_ids(entries: pa.Table) -> npt.NDArray[np.bool_]:
    """Return a mask of the entries whose `_WRITE_COLS` name `_ROW_ID`: their files store the ids of their rows."""
    columns = one_array(entries.column("write_cols"))
    hits = pc.equal(pc.list_flatten(columns), ROW_ID)
    mask = np.zeros(entries.num_rows, np.bool_)
    mask[np.asarray(pc.list_parent_indices(columns).filter(hits))] = True
    return mask


def assign(entries: pa.Table, snapshot_id: int, next_row_id: int) -> tuple[pa.Table, int]:
    """Assign row ids and sequence numbers to the files of one commit on a table with row tracking.

    Appended files get ``snapshot_id`` as their sequence number. Those without row ids get consecutive row ids from
    ``next_row_id`` on. A file that stores `_ROW_ID` and `_SEQUENCE_NUMBER` may have a largest sequence number of 0,
    because some row has none. It gets ``snapshot_id`` as its largest number, and as its smallest number if that is 0.
    A file of BLOB values gets the row ids of the file before it that has the other columns of the same rows.

    Args:
        entries: the commit's entries (`ENTRY_SCHEMA`).
        snapshot_id: id of the new snapshot.
        next_row_id: the first free row id.

    Returns:
        The numbered entries and the next free row id.
    """
    added = np.asarray(entries.column("kind")) == ADD
    names_columns = np.asarray(pc.is_valid(entries.column("write_cols")), np.bool_)
    stores_ids = names_columns & _names_row_ids(entries)
    from_writer = np.asarray(pc.equal(pc.fill_null(entries.column("file_source"), -1), SOURCE_APPEND))
    recorded_ids = entries.column("first_row_id")
    needs_ids = added & from_writer & ~stores_ids & np.asarray(pc.is_null(recorded_ids))
    appended = needs_ids | (added & from_writer & ~names_columns)
    min_numbers, max_numbers = (
        entries.column(name).to_numpy().copy() for name in ("min_sequence_number", "max_sequence_number")
    )
    unnumbered = added & names_columns & (max_numbers == 0)
    min_numbers[appended | (unnumbered & (min_numbers == 0))] = snapshot_id
    max_numbers[appended | unnumbered] = snapshot_id
    is_blob = np.asarray(pc.ends_with(entries.column("file_name"), _BLOB_EXTENSION))
    counts = entries.column("row_count").to_numpy()
    rows = np.where(needs_ids & ~is_blob, counts, 0)
    ends = next_row_id + np.cumsum(rows)
    starts = ends - rows
    blobs = np.flatnonzero(needs_ids & is_blob)
    if len(blobs):
        # Files of BLOB values follow the file of the other columns of the same rows, column by column.
        plain = np.flatnonzero(needs_ids & ~is_blob)
        holder = plain[np.searchsorted(plain, blobs) - 1]
        columns = pc.list_element(entries.column("write_cols").combine_chunks().take(pa.array(blobs)), 0)
        column = np.asarray(columns.dictionary_encode().indices)
        order = np.lexsort((blobs, column, holder))
        before = np.cumsum(counts[blobs][order]) - counts[blobs][order]
        begins = np.r_[True, (holder[order][1:] != holder[order][:-1]) | (column[order][1:] != column[order][:-1])]
        offset = before - np.repeat(before[begins], np.diff(np.r_[np.flatnonzero(begins), len(order)]))
        starts[blobs[order]] = starts[holder[order]] + offset
    first_row_ids = pc.if_else(pa.array(needs_ids), pa.array(starts), recorded_ids)
    for name, values in (
        ("min_sequence_number", pa.array(min_numbers)),
        ("max_sequence_number", pa.array(max_numbers)),
        ("first_row_id", first_row_ids),
    ):
        position = entries.schema.get_field_index(name)
        entries = entries.set_column(position, entries.schema.field(position), values)
    return entries, int(ends[-1]) if len(ends) else next_row_id
