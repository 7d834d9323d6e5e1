"""Live files of large tables in bounded memory: one manifest at a time, or a search that reads few manifests.

Totals per partition or bucket are computed from manifests one at a time. Entries are converted to the files of the tree
package, grouped by bucket, with keys as order-preserving bytes. The module also decides for which tables batch reads
see only compacted files.

Source: ``PartitionEntry``, ``BucketEntry``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array, one_array
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.manifest import ADD, DELETE, ENTRY_SCHEMA, ManifestFileMeta, merge_entries
from lsm_core.format.snapshot import Snapshot
from lsm_core.merge import key_bytes
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions
from lsm_core.storage.allocator import release_free_memory
from lsm_core.tree import DataFile

NameOnLevel: TypeAlias = tuple[str, int]
_KEPT_BYTES: Final = 1 << 22
"""Largest bytes of decoded manifests with deletions that stay in memory while the other manifests are read."""
_KEPT_ENTRIES: Final = 5_000
"""Largest number of manifest entries of a snapshot that is decoded as a whole and cached."""


def live_parts(
    store: TableStore,
    snapshot: Snapshot,
    *,
    columns: Sequence[str],
    partitions: Collection[bytes] | None = None,
    only: Collection[str] | None = None,
    keep: Callable[[pa.Table], pa.Table] = lambda part: part,
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the live files of a snapshot as pairs (manifest name, entries), one manifest at a time.

    Files that some manifest deletes are left out of these pairs. They may be live (deleted and added again), so a last
    pair with the manifest name "" contains those that are live. A file that two manifests add is not detected.

    Args:
        store: the table.
        snapshot: the snapshot to read.
        columns: columns of `ENTRY_SCHEMA` to return.
        partitions: partitions to include (serialised rows), or None for all.
        only: names of the manifests to read, or None for all. If names are given, the last pair is incomplete.
        keep: function that filters tables of entries; its result for an entry must not depend on other entries.

    Yields:
        Name of the manifest (or "") and entries with ``columns``.

    Raises:
        CorruptFile: a manifest list or manifest is damaged; the message names it.
    """
    needed = [field.name for field in ENTRY_SCHEMA if field.name in {*columns, *manifests.IDENTITY_COLUMNS}]
    metas = manifests.data_manifests(store, snapshot)
    metas = manifests.prune(metas, store.schema.partition_types, partitions, None, None)
    deleted_names, preread = _read_deletions(store, metas, needed)
    possibly_deleted: list[pa.Table] = []

    def narrow(entries: pa.Table) -> pa.Table:
        """Return the entries of a manifest that pass the filter ``keep``.

        All entries of files that some manifest deletes stay: they are filtered after ADD and DELETE are merged.
        """
        part = manifests.keep_rows(entries.select(needed), partitions, None, None)
        if not len(deleted_names):
            return keep(part)
        is_deleted = pc.is_in(part.column("file_name"), deleted_names)
        return pa.concat_tables([keep(part.filter(pc.invert(is_deleted))), part.filter(is_deleted)])

    chosen = [meta for meta in metas if only is None or meta.file_name in only]
    others = manifests.iter_manifests(store, [meta for meta in chosen if meta.file_name not in preread], narrow)
    for meta in chosen:
        part = preread.pop(meta.file_name, None)
        part = next(others) if part is None else narrow(part)
        if len(deleted_names):
            is_deleted = pc.is_in(part.column("file_name"), deleted_names)
            possibly_deleted.append(part.filter(is_deleted))
            part = part.filter(pc.invert(is_deleted))
        # Arrays of a decoder are views of larger buffers, so a copy saves memory.
        yield meta.file_name, part.select(list(columns)).combine_chunks()
    if possibly_deleted:
        remaining = _keep_additions(merge_entries(pa.concat_tables(possibly_deleted), store.snapshot_path(snapshot.id)))
        yield "", keep(remaining.select(list(columns)))


def entries_of_buckets(
    store: TableStore, snapshot: Snapshot, partition: bytes, buckets: Collection[int] | None = None
) -> pa.Table:
    """Return the live entries (`ENTRY_SCHEMA`) of some buckets of one partition.

    Checks ask for bucket after bucket of the same few snapshots. So the entries of a small snapshot are decoded once
    and cached with the open table.

    Args:
        store: the table.
        snapshot: the snapshot to read.
        partition: the partition (serialised row).
        buckets: the buckets, or None for all of the partition.

    Raises:
        CorruptFile: a manifest list or manifest is damaged; the message names it.
    """
    count = sum(meta.num_added_files + meta.num_deleted_files for meta in manifests.data_manifests(store, snapshot))
    if count > _KEPT_ENTRIES:
        return manifests.live_entries(store, snapshot, partitions=[partition], buckets=buckets)
    key = ("live entries", snapshot.id, snapshot.base_manifest_list, snapshot.delta_manifest_list)
    entries: pa.Table | None = store.kept.get(key)
    if entries is None:
        entries = manifests.live_entries(store, snapshot).combine_chunks()
        store.kept.put(key, entries, entries.nbytes)
    return manifests.keep_rows(entries, [partition] if store.schema.partition_keys else None, buckets, None)


def _read_deletions(
    store: TableStore, metas: Sequence[ManifestFileMeta], needed: list[str]
) -> tuple[pa.Array, dict[str, pa.Table]]:
    """Return the names of all deleted files, and the decoded small manifests that contain deletions.

    Args:
        store: the table.
        metas: the manifests.
        needed: columns of `ENTRY_SCHEMA` to keep in the decoded manifests.

    Returns:
        Names of the files that some manifest deletes. Then the decoded manifests by file name, up to a total size.
    """
    names, decoded, free_bytes = [arrow_array([], pa.string())], {}, _KEPT_BYTES
    for meta in metas:
        if meta.num_deleted_files > 0:
            entries = manifests.read_manifest(store, meta, lambda part: part.select(needed))
            deleted_names = entries.column("file_name").filter(pc.equal(entries.column("kind"), arrow_scalar(DELETE)))
            names.append(one_array(deleted_names, pa.string()))
            if meta.file_size <= free_bytes:
                decoded[meta.file_name], free_bytes = entries, free_bytes - meta.file_size
    return pa.concat_arrays(names), decoded


@dataclass(frozen=True)
class Search:
    """Search for live files in the manifests of a snapshot: named files and, with ``tree``, all files above level 0.

    Manifests are read until all files of ``sought`` and ``anywhere`` are found to be live, or no manifest is left.
    A file that is only in ``names`` is returned if one of the manifests read contains it.

    Attributes:
        partitions: partitions to search (serialised rows).
        buckets: buckets to search.
        names: names of the files to return; with ``tree``, files above level 0 are returned under any name.
        sought: (name, level) of the files to search for.
        columns: columns of `ENTRY_SCHEMA` to return, including those of an entry's identity.
        anywhere: names of the files to search for on any level.
        tree: whether to return all files above level 0.
    """

    partitions: list[bytes]
    buckets: list[int]
    names: list[str]
    sought: frozenset[NameOnLevel]
    columns: list[str]
    anywhere: frozenset[str] = frozenset()
    tree: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is no file that the search must find."""
        return not (self.sought or self.anywhere or self.tree)

    def keep(self, entries: pa.Table) -> pa.Table:
        """Return the entries that match the search.

        The match depends only on an entry's identity, so the ADD and the DELETE entry of a file are kept or dropped
        together.
        """
        entries = manifests.keep_rows(entries.select(self.columns), self.partitions, self.buckets, None)
        matches = pc.is_in(entries.column("file_name"), arrow_array(self.names, pa.string()))
        if self.tree:
            matches = pc.or_(matches, pc.greater(entries.column("level"), arrow_scalar(0)))
        return manifests.filter_rows(entries, matches)

    def is_done(self, live: set[NameOnLevel]) -> bool:
        """Return whether all files that the search must find are among the live files found so far.

        Args:
            live: name and level of the live files found so far.
        """
        return self.sought <= live and self.anywhere <= {name for name, _ in live}


def find_live(
    store: TableStore, snapshot: Snapshot, search: Search, metas: Sequence[ManifestFileMeta] | None = None
) -> pa.Table:
    """Return the live entries that match a search, in manifest order.

    Only manifests that may list the searched buckets are read: all manifests with deletions, all that may list files
    above level 0 (with ``tree``), and as many remaining manifests as necessary. The remaining manifests are read
    alternately from the newest and the oldest end: compactions search the newest files, recoveries the oldest.

    Args:
        store: the table.
        snapshot: the snapshot to read.
        search: the files to find; a file that is not live has no entry in the result.
        metas: the snapshot's manifests if the caller has them, or None.

    Returns:
        A table with the columns of the search.

    Raises:
        CorruptFile: a manifest list or manifest is damaged; the message names it.
    """
    if search.is_empty:
        return manifests.NO_ENTRIES.select(search.columns)
    metas = manifests.data_manifests(store, snapshot) if metas is None else metas
    candidates = manifests.prune(metas, store.schema.partition_types, search.partitions, search.buckets, None)
    parts: dict[str, pa.Table] = {}
    others = []
    for meta in candidates:
        if meta.num_deleted_files > 0 or (search.tree and (meta.max_level is None or meta.max_level > 0)):
            parts[meta.file_name] = manifests.read_manifest(store, meta, search.keep)
        else:
            others.append(meta)
    deleted = _names_on_levels(parts.values(), DELETE)
    live = _names_on_levels(parts.values(), ADD) - deleted  # all deletions are known
    for meta in _from_both_ends(others):
        if search.is_done(live):
            break
        part = parts[meta.file_name] = manifests.read_manifest(store, meta, search.keep)
        live |= _names_on_levels([part], ADD) - deleted
    ordered = [parts[meta.file_name] for meta in candidates if meta.file_name in parts]
    no_entries = manifests.NO_ENTRIES.select(search.columns)
    return _keep_additions(merge_entries(pa.concat_tables([no_entries, *ordered]), store.snapshot_path(snapshot.id)))


def _keep_additions(entries: pa.Table) -> pa.Table:
    return manifests.filter_rows(entries, pc.equal(entries.column("kind"), arrow_scalar(ADD)))


def _names_on_levels(parts: Iterable[pa.Table], kind: int) -> set[NameOnLevel]:
    """Return the (name, level) of all entries of one kind.

    Args:
        parts: tables of manifest entries.
        kind: ADD or DELETE.
    """
    names: set[NameOnLevel] = set()
    for part in parts:
        entries = part.select(["kind", "file_name", "level"])
        entries = entries.filter(pc.equal(entries.column("kind"), arrow_scalar(kind)))
        names.update(zip(entries.column("file_name").to_pylist(), entries.column("level").to_pylist(), strict=True))
    return names


def _from_both_ends(metas: Sequence[ManifestFileMeta]) -> Iterator[ManifestFileMeta]:
    """Yield manifests alternately from both ends: the newest, the oldest, the second newest and so on."""
    half = len(metas) // 2
    for newer, older in zip_longest(reversed(metas[half:]), metas[:half]):
        yield from (meta for meta in (newer, older) if meta is not None)


_SUMS: Final = ("record_count", "file_size_in_bytes", "file_count")
NEWEST: Final = "last_update_time"
BUCKETS: Final = "total_buckets"


def totals(
    store: TableStore,
    snapshot: Snapshot,
    keys: Sequence[str],
    *,
    waiting: bool = False,
    partitions: Collection[bytes] | None = None,
) -> pa.Table:
    """Return the number of rows, bytes and files per partition or bucket, and attributes of the newest file.

    ADD and DELETE entries are summed with opposite signs, so they need not be matched by file. Memory holds one
    manifest and the totals. As in Java, the newest file is chosen among all manifest entries, including deleted files.
    Groups without files are left out.

    Args:
        store: the table.
        snapshot: the snapshot to read.
        keys: grouping columns: "partition" (bytes), "bucket".
        waiting: whether to include files that have no bucket yet (postponed rows). If ``keys`` contains "bucket", these
            files are always included.
        partitions: partitions to include (serialised rows), or None for all.

    Returns:
        One row per group, with the columns of ``keys``, `record_count` (rows), `file_size_in_bytes`, `file_count`,
        `last_update_time` (epoch ms) and `total_buckets`: the number of buckets that the last manifest entry of an
        added file records (after a rescale, the new number; -1 without fixed buckets).

    Raises:
        CorruptFile: a manifest list or manifest is damaged.
    """
    groups: pa.Table | None = None
    pending: list[pa.Table] = []
    metas = manifests.prune(
        manifests.data_manifests(store, snapshot), store.schema.partition_types, partitions, None, None
    )
    for meta in metas:

        def sign_entries(entries: pa.Table) -> pa.Table:
            return _to_signed_counts(manifests.keep_rows(entries, partitions, None, None), keys, waiting)

        pending.append(_aggregate(manifests.read_manifest(store, meta, sign_entries), keys))
        # Merging when the new groups are as many as the known ones keeps memory and work proportional to the groups.
        if groups is None or sum(part.num_rows for part in pending) >= groups.num_rows:
            groups, pending = _aggregate(pa.concat_tables([*([groups] if groups else []), *pending]), keys), []
    if groups is None:
        groups = _to_signed_counts(manifests.entries_of(store, []), keys, waiting)
    groups = _aggregate(pa.concat_tables([groups, *pending]), keys)
    return groups.filter(pc.greater(groups.column("file_count"), 0))


def _to_signed_counts(entries: pa.Table, keys: Sequence[str], waiting: bool) -> pa.Table:
    sign = pc.cast(pc.if_else(pc.equal(entries.column("kind"), 0), 1, -1), pa.int64())
    if "bucket" not in keys and not waiting:  # files that wait for a bucket cannot be read yet
        has_bucket = pc.greater_equal(entries.column("bucket"), 0)
        entries, sign = entries.filter(has_bucket), sign.filter(has_bucket)
    columns = {name: entries.column(name) for name in keys}
    columns["record_count"] = pc.multiply(entries.column("row_count"), sign)
    columns["file_size_in_bytes"] = pc.multiply(entries.column("file_size"), sign)
    columns["file_count"] = sign
    columns[NEWEST] = entries.column("creation_time_ms")
    columns[BUCKETS] = pc.if_else(pc.greater(sign, 0), entries.column("total_buckets"), None)
    return pa.table(columns)


def _aggregate(part: pa.Table, keys: Sequence[str]) -> pa.Table:
    # "last" needs the order of the entries, which threads do not keep
    aggregations = [*((name, "sum") for name in _SUMS), (NEWEST, "max"), (BUCKETS, "last")]
    groups = part.group_by(list(keys), use_threads=False).aggregate(aggregations)
    names = {f"{name}_{function}": name for name, function in aggregations}
    renamed = groups.rename_columns([names.get(name, name) for name in groups.column_names])
    return renamed.select([*keys, *_SUMS, NEWEST, BUCKETS])


BucketGroup = tuple[bytes, int, int, pa.Table]


def bucket_groups(entries: pa.Table) -> list[BucketGroup]:
    """Group entries by partition and bucket, ordered by partition bytes and bucket.

    The groups are slices of a sorted copy. A caller that passes its only reference to a large table needs the memory of
    one copy, because each column is freed as soon as it is copied.

    Args:
        entries: manifest entries.

    Returns:
        For each bucket: partition, bucket, total buckets (the largest recorded value) and entries in their original
            order.
    """
    if entries.num_rows == 0:
        return []
    positions = arrow_array(np.arange(entries.num_rows, dtype=np.int64))
    sort_columns = pa.table(
        {"partition": entries.column("partition"), "bucket": entries.column("bucket"), "place": positions}
    )
    order = pc.sort_indices(sort_columns, sort_keys=[(name, "ascending") for name in ("partition", "bucket", "place")])
    schema, columns, sorted_columns = entries.schema, entries.columns[::-1], []
    is_large = entries.num_rows >= _LARGE_ENTRIES
    del entries, sort_columns, positions
    while columns:
        if is_large:
            release_free_memory()
        sorted_columns.append(one_array(columns.pop()).take(order))
    ordered = pa.table(sorted_columns, schema=schema)
    del sorted_columns
    if is_large:
        release_free_memory()
    # Adjacent rows are compared, because Arrow's hash grouping does not guarantee an order.
    partitions, buckets = (one_array(ordered.column(name)) for name in ("partition", "bucket"))
    pair_count = ordered.num_rows - 1
    differs = pc.or_(
        pc.not_equal(partitions.slice(1), partitions.slice(0, pair_count)),
        pc.not_equal(buckets.slice(1), buckets.slice(0, pair_count)),
    )
    starts = np.r_[0, np.flatnonzero(numpy_array(differs)) + 1]
    totals = np.maximum.reduceat(numpy_array(ordered.column("total_buckets")), starts).tolist()
    firsts = arrow_array(starts)
    names: dict[bytes, bytes] = {}  # one object per partition, not per bucket
    places = zip(partitions.take(firsts).to_pylist(), buckets.take(firsts).to_pylist(), totals, strict=True)
    return [
        (names.setdefault(partition, partition), bucket, total, ordered.slice(start, stop - start))
        for (partition, bucket, total), (start, stop) in zip(
            places, pairwise([*starts.tolist(), ordered.num_rows]), strict=True
        )
    ]


def tree_files(store: TableStore, entries: pa.Table) -> list[DataFile]:
    """Return one bucket's files as :class:`DataFile` of the tree package.

    Keys are memcomparable bytes of the trimmed primary key. Append tables, and tables whose files are sorted by other
    columns (`pk-clustering-override`), get empty keys. ``creation_ms`` is the
    recorded creation time (0 if unknown).
    ``first_row_id`` is None if the entries have no such column.

    Args:
        store: the table.
        entries: manifest entries of one bucket.

    Returns:
        The files, in the order of the entries.
    """
    lows, highs = key_ranges(store, *(one_array(entries.column(name)) for name in ("min_key", "max_key")))
    names, levels, sizes, rows, lowest, highest, created, deletes, schema_ids = (
        entries.column(name).to_pylist() for name in _COLUMNS
    )
    tracked = "first_row_id" in entries.column_names
    first_ids = entries.column("first_row_id").to_pylist() if tracked else [None] * entries.num_rows
    created = [time or 0 for time in created]
    return list(
        map(
            DataFile, names, levels, sizes, lows, highs, rows, lowest, highest, created, deletes, schema_ids, first_ids
        )
    )  # fmt: skip


def key_ranges(store: TableStore, low: pa.Array, high: pa.Array) -> tuple[list[bytes], list[bytes]]:
    """Return the smallest and the largest keys of files as memcomparable bytes; empty for files without sorted keys.

    Args:
        store: the table.
        low: smallest key of each file (serialised row).
        high: largest key of each file (serialised row).
    """
    types = () if store.options.clusters_keys else store.schema.trimmed_key_types
    if not types:
        return [b""] * len(low), [b""] * len(low)
    # For few files, the number of calls takes most of the time; for many, the memory of a call matters.
    sides = [pa.concat_arrays([low, high])] if len(low) <= _TREE_FILES_AT_ONCE else [low, high]
    keys = [key for side in sides for key in key_bytes(decode_rows(side, types)).to_pylist()]
    return keys[: len(low)], keys[len(low) :]


def iter_tree_files(store: TableStore, groups: Sequence[pa.Table]) -> Iterator[list[DataFile]]:
    """Yield the result of :func:`tree_files` for each of many buckets; the keys of many buckets are decoded together.

    Args:
        store: the table.
        groups: manifest entries of each bucket, all with the same columns.
    """
    start = 0
    while start < len(groups):
        stop, rows = start + 1, groups[start].num_rows
        while stop < len(groups) and rows + groups[stop].num_rows <= _TREE_FILES_AT_ONCE:
            rows += groups[stop].num_rows
            stop += 1
        stored = set(groups[start].column_names)  # read once: each access creates the names again
        needed = [name for name in (*_COLUMNS, "min_key", "max_key", "first_row_id") if name in stored]
        together = pa.concat_tables([group.select(needed) for group in groups[start:stop]])
        files, at = tree_files(store, together), 0
        for group in groups[start:stop]:
            yield files[at : at + group.num_rows]
            at += group.num_rows
        start = stop


_TREE_FILES_AT_ONCE: Final = 10_000
_LARGE_ENTRIES: Final = 50_000
"""Number of entries from which freed memory is returned to the system between the copies of their columns."""
_COLUMNS = (
    "file_name",
    "level",
    "file_size",
    "row_count",
    "min_sequence_number",
    "max_sequence_number",
    "creation_time_ms",
    "delete_row_count",
    "schema_id",
)


TREE_COLUMNS: Final = ("partition", "bucket", "total_buckets", *_COLUMNS, "min_key", "max_key")
"""Columns of manifest entries from which :func:`bucket_groups` and :func:`tree_files` make the trees of buckets."""


def compacted_only(store: TableStore) -> bool:
    """Return whether batch reads skip level 0, so that they see only compacted files, with one row per key."""
    return store.options.batch_scan_skips_level0


def has_unmarked_levels(store: TableStore, entries: pa.Table) -> bool:
    """Return whether any bucket has, on several levels above 0, files from before `deletion-vectors.enabled` was set.

    Such levels may contain several versions of a key, and no deletion vector marks the older versions. Java would
    return each version as a row.

    Args:
        store: the table.
        entries: live manifest entries of any buckets.
    """
    if not store.has_primary_key or not store.options.deletion_vectors_enabled:
        return False
    schema_ids = pc.unique(entries.column("schema_id")).to_pylist()
    ids_before_vectors = [
        schema_id
        for schema_id in schema_ids
        if not TableOptions(store.schema_of(schema_id).options, store.name, stored=True).deletion_vectors_enabled
    ]
    if not ids_before_vectors:
        return False
    is_older = pc.is_in(
        entries.column("schema_id"), pa.array(ids_before_vectors, entries.schema.field("schema_id").type)
    )
    chosen = entries.filter(pc.and_(is_older, pc.greater(entries.column("level"), arrow_scalar(0))))
    levels = chosen.group_by(["partition", "bucket"], use_threads=False).aggregate([("level", "count_distinct")])
    return bool(pc.any(pc.greater(levels.column("level_count_distinct"), 1)).as_py())
