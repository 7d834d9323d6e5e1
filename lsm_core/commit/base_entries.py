"""Base of a commit: the live entries that its change may conflict with, read from as few manifests as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.changes import partitions_of
from lsm_core.commit.conflicts import NEEDED_COLUMNS, adds_above_level0
from lsm_core.commit.index_changes import IndexChange
from lsm_core.errors import CorruptFile, SnapshotNotFound
from lsm_core.format.manifest import ADD, DELETE, ManifestFileMeta, merge_entries
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.live_files import Search, find_live
from lsm_core.metadata.manifests import NO_ENTRIES
from lsm_core.metadata.store import TableStore

_MOST_DELTAS: Final = 256


@dataclass(frozen=True)
class _ListedEntry:
    """Live entry of a partition, and the manifest that lists it."""

    manifest: str
    entry: pa.Table


class BaseEntries:
    """Base of one change over its attempts.

    The first attempt reads manifests, later ones only the deltas committed since.
    """

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._snapshot_id = 0
        self._delta_list = ""
        self._search: Search | None = None
        self._near: pa.Table | None = None
        self._listed: dict[bytes, _ListedEntry] = {}
        self._seen: frozenset[str] = frozenset()

    def at(
        self,
        latest: Snapshot,
        metas: Sequence[ManifestFileMeta],
        entries: pa.Table,
        index: IndexChange,
        *,
        are_new: bool,
    ) -> pa.Table:
        """Return the live entries that a change may conflict with.

        One entry of each remaining partition is added, because it has the number of buckets.

        Args:
            latest: the snapshot.
            metas: all manifests of ``latest``.
            entries: entries of the change.
            index: index files of the change.
            are_new: whether none of the added files was in the table before.

        Returns:
            The columns `NEEDED_COLUMNS`, or all columns where files are added above level 0.

        Raises:
            CorruptFile: a manifest cannot be read.
        """
        search = _search_of(self._store, entries, index, are_new=are_new)
        near = None if search.is_empty else self._advanced(latest, search)
        if near is None:
            near = find_live(self._store, latest, search, metas)
        self._snapshot_id, self._delta_list = latest.id, latest.delta_manifest_list
        self._search, self._near = search, near
        needed_partitions, known_partitions = (
            set(partitions_of(side.filter(pc.greater(side.column("total_buckets"), 0)))) for side in (entries, near)
        )
        return pa.concat_tables([near, *self._one_of_each(metas, needed_partitions - known_partitions, search.columns)])

    def _one_of_each(
        self, metas: Sequence[ManifestFileMeta], partitions: set[bytes], columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        """Yield one live entry with a number of buckets for each partition, if the partition has such an entry.

        The newest manifests are read first. All live files of a partition have the same number (`conflicts.check`), so
        one entry is enough. An entry of an earlier attempt is still live if its manifest is listed and no manifest with
        deletions was added.
        """
        names = frozenset(meta.file_name for meta in metas)
        if any(meta.num_deleted_files > 0 and meta.file_name not in self._seen for meta in metas):
            self._listed.clear()
        self._seen = names
        left, later = set(partitions), NO_ENTRIES.select(list(columns))
        for partition in partitions:
            listed = self._listed.get(partition)
            if listed is not None and listed.manifest in names and listed.entry.column_names == list(columns):
                left.discard(partition)
                yield listed.entry
        for meta in reversed(metas):
            if not left:
                return
            if not manifests.prune([meta], self._store.schema.partition_types, list(left), None, None):
                continue

            def sought(entries: pa.Table) -> pa.Table:
                here = manifests.keep_rows(entries.select(list(columns)), list(left), None, None)
                return here.filter(pc.greater(here.column("total_buckets"), 0))

            here = manifests.read_manifest(self._store, meta, sought)
            # What was deleted later is not live.
            merged = merge_entries(pa.concat_tables([here, later]).combine_chunks())
            live = merged.filter(pc.equal(merged.column("kind"), ADD))
            for partition in partitions_of(live):
                left.discard(partition)
                entry = live.filter(pc.equal(live.column("partition"), pa.scalar(partition, pa.binary()))).slice(0, 1)
                self._listed[partition] = _ListedEntry(meta.file_name, entry)
                yield entry
            later = merged.filter(pc.equal(merged.column("kind"), DELETE))

    def _advanced(self, latest: Snapshot, search: Search) -> pa.Table | None:
        """Return the last base plus the deltas since, or None.

        None means that the deltas cannot be read: expired, rolled back, or too many.
        """
        until = latest.id
        known = self._search == search and self._snapshot_id <= until <= self._snapshot_id + _MOST_DELTAS
        if self._near is None or not known:
            return None
        tables = [self._near]
        try:
            # A rollback hands ids out again: names of manifest lists are unique.
            base = latest if until == self._snapshot_id else snapshots.read(self._store, self._snapshot_id)
            if base.delta_manifest_list != self._delta_list:
                return None
            for number in range(self._snapshot_id + 1, until + 1):
                delta = manifests.delta_entries(self._store, snapshots.read(self._store, number))
                tables.append(search.keep(delta))
            merged = merge_entries(pa.concat_tables(tables).combine_chunks())
        except (SnapshotNotFound, CorruptFile, OSError):
            return None
        return merged.filter(pc.equal(merged.column("kind"), ADD))


def _search_of(store: TableStore, entries: pa.Table, index: IndexChange, *, are_new: bool) -> Search:
    """Return the search for entries that a commit's entries and index files may conflict with.

    Where a bucket loses files, their deletion shows whether the commit was made before, so added files need no search.
    """
    columns = (entries.column(name).to_pylist() for name in ("kind", "partition", "bucket", "file_name", "level"))
    listed = list(zip(*columns, strict=True))  # a tuple a file of the commit
    losing = {(partition, bucket) for kind, partition, bucket, _, _ in listed if kind == DELETE}
    sought = frozenset(
        (name, level)
        for kind, partition, bucket, name, level in listed
        if kind == DELETE or not (are_new or (partition, bucket) in losing)
    )
    marked = frozenset(vector.data_file for entry in index.added for vector in entry.deletion_vectors or ())
    tree = bool(store.schema.primary_keys) and adds_above_level0(entries)
    return Search(
        partitions=list(dict.fromkeys(partitions_of(entries) + index.partitions)),
        buckets=sorted({bucket for _, _, bucket, _, _ in listed} | {entry.bucket for entry in index.added}),
        names=sorted({name for _, _, _, name, _ in listed} | marked),
        sought=sought,
        columns=NO_ENTRIES.column_names if tree else list(NEEDED_COLUMNS),
        anywhere=marked,
        tree=tree,
    )
