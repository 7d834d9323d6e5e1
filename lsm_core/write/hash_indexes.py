"""HASH index files of a writer: read at a partition's first row, used to choose buckets, rewritten with new keys.

Paimon's bucket assigner and its index maintainer are one class here, so each key hash is looked up only once.

Source: Paimon `HashBucketAssigner`, `DynamicBucketIndexMaintainer`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from lsm_core.commit import CommitMessage, index_state_of
from lsm_core.errors import CorruptFile
from lsm_core.format.manifest import ADD, HASH_INDEX, IndexFileMeta, IndexManifestEntry
from lsm_core.format.partitions import partition_text
from lsm_core.format.side_files import encode_hash_index
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.indexes import (
    discard_index_file,
    hash_index,
    index_file_path,
    place_index_file,
    write_index_file,
)
from lsm_core.metadata.store import TableStore
from lsm_core.write.assigner import (
    LARGEST_BUCKET,
    AssignerRules,
    Buckets,
    Hashes,
    Keep,
    Mask,
    PartitionIndex,
    assigner_of,
)
from lsm_core.write.restore import BucketHistory, hash_entries

_WHOLE: Final = -1
"""Key of an index in :class:`HashIndexes`, instead of a bucket number: the index of all buckets of a partition."""


@dataclass
class _LoadedIndex:
    """Hash index of a partition, or of one bucket of a partition.

    Attributes:
        index: hashes with their buckets.
        files: index files by bucket.
        states: fingerprints of the names of the partition's index files (`index_state_of`): when the files were read,
            and after each commit of this writer since then.
    """

    index: PartitionIndex
    files: dict[int, IndexFileMeta]
    states: list[str]


class HashIndexes:
    """Hash indexes of the partitions that one writer writes, with 8 bytes of memory per key of these partitions.

    A writer either assigns rows to buckets itself (:meth:`assign`), or receives rows whose bucket an assigner in a
    different task has chosen (:meth:`learn`), never both.
    """

    def __init__(
        self,
        store: TableStore,
        history: BucketHistory,
        rules: AssignerRules,
        *,
        ignore: bool = False,
        share: int | None = None,
    ) -> None:
        """Start without a loaded index.

        Args:
            store: the table.
            history: provides the snapshot whose index files are read.
            rules: rules of the assigner.
            ignore: start from an empty index, for an overwrite.
            share: number of an assigner (task that assigns buckets), if this writer receives only the keys of that
                assigner; None if it receives all keys.
        """
        self._share = share
        self._store, self._history, self._rules, self._ignore = store, history, rules, ignore
        self._loaded: dict[tuple[bytes, int], _LoadedIndex] = {}
        self._written: dict[tuple[bytes, int], IndexFileMeta] = {}
        self._entries: tuple[str | None, dict[bytes, list[IndexManifestEntry]]] = (None, {})

    def assign(self, partition: bytes, hashes: Hashes) -> Buckets:
        """Return the bucket of each key hash.

        Args:
            partition: BinaryRow of the partition.
            hashes: one key hash per row, in arrival order.

        Raises:
            CorruptFile: an index file is missing, truncated or has an invalid bucket number, or a bucket with files
                has no index.
            InvalidOption: all buckets are full.
        """
        return self._index_of(partition, _WHOLE).index.assign(hashes)

    def assign_apart(self, partition: bytes, hashes: Hashes) -> Buckets:
        """Return the bucket of each key hash; every task that reads the same index returns the same buckets.

        So several tasks can write a partition without communication. For this, all new keys of an assigner go to one
        bucket, even beyond its target size. If the limit allows no new bucket, they are divided among its buckets.

        Args:
            partition: BinaryRow of the partition.
            hashes: one key hash per row, in arrival order.
        """
        return self._index_of(partition, _WHOLE).index.assign_apart(
            hashes, partial(owner_of, self._rules.assigners, partition)
        )

    def learn(self, partition: bytes, bucket: int, hashes: Hashes) -> None:
        """Add the key hashes of rows whose bucket was chosen by an assigner in a different task.

        Raises the errors of :meth:`assign`.
        """
        self._index_of(partition, bucket).index.learn(hashes, bucket)

    def write(self) -> None:
        """Write the index file of every bucket that has new hashes since its index was last written.

        After a failure, :meth:`abort` deletes the written files.
        """
        for (partition, _), loaded in self._loaded.items():
            for bucket in loaded.index.changed:
                self._delete(partition, bucket, self._written.pop((partition, bucket), None))
                hashes = loaded.index.hashes_of(bucket)
                self._written[partition, bucket] = write_hash_index(self._store, partition, bucket, hashes)
                loaded.index.settled(bucket)

    def hand_out(self, partition: bytes, bucket: int) -> tuple[tuple[IndexFileMeta, ...], tuple[IndexFileMeta, ...]]:
        """Return the index file of a bucket for its commit message, once, and the file that it replaces.

        Returns:
            Two tuples of at most one file: the file that :meth:`write` wrote, and the replaced file. Both are empty if
                the bucket has no new index file; the second is also empty if the bucket had no index before.
        """
        new = self._written.pop((partition, bucket), None)
        if new is None:
            return (), ()
        loaded = self._loaded_for(partition, bucket)
        assert loaded is not None
        old = loaded.files.get(bucket)
        loaded.files[bucket] = new
        return (new,), () if old is None else (old,)

    def state_of(self, partition: bytes, bucket: int) -> str | None:
        """Return the fingerprint of the partition's index files on which the chosen buckets depend.

        The commit fails if the partition has other index files by then (`CommitMessage.index_state`).

        Returns:
            The fingerprint; None for an overwrite, or if the partition's index is not loaded.
        """
        loaded = self._loaded_for(partition, bucket)
        return None if self._ignore or loaded is None else loaded.states[-1]

    def handed_out(self) -> None:
        """Record that all messages of a commit are complete, so the next commit expects the index files in them."""
        for (_, bucket), loaded in self._loaded.items():
            if bucket == _WHOLE:
                state = index_state_of(file.file_name for file in loaded.files.values())
                if state != loaded.states[-1]:
                    loaded.states.append(state)

    def pending(self, partition: bytes) -> bool:
        """Return whether the partition has new key hashes that are in no commit message yet."""
        return any(loaded.index.changed for (owner, _), loaded in self._loaded.items() if owner == partition) or any(
            owner == partition for owner, _ in self._written
        )

    def follow(self, snapshot: Snapshot | None) -> None:
        """Forget the loaded indexes of partitions whose index files another writer has replaced.

        An index is kept if it has new key hashes that are in no commit message. The commit of these rows will fail with
        a conflict.

        Args:
            snapshot: the newest snapshot, or None for an empty table.
        """
        for place, loaded in list(self._loaded.items()):
            now = index_state_of(entry.file_name for entry in self._entries_of(snapshot, place[0]))
            if now in loaded.states:
                del loaded.states[: loaded.states.index(now)]
            elif not self.pending(place[0]):
                del self._loaded[place]

    def forget(self, partition: bytes) -> None:
        """Forget a partition's index, unless the index has new hashes that are in no commit message.

        A forgotten index is read again when the partition's next row arrives.
        """
        if not self.pending(partition):
            for place in [place for place in self._loaded if place[0] == partition]:
                del self._loaded[place]

    def abort(self) -> None:
        """Delete the written index files that are in no commit message, and discard all state."""
        for (partition, bucket), file in self._written.items():
            self._delete(partition, bucket, file)
        self._written.clear()
        self._loaded.clear()

    def _delete(self, partition: bytes, bucket: int, file: IndexFileMeta | None) -> None:
        if file is not None:
            discard_index_file(self._store, partition, bucket, file)

    def _loaded_for(self, partition: bytes, bucket: int) -> _LoadedIndex | None:
        return self._loaded.get((partition, _WHOLE)) or self._loaded.get((partition, bucket))

    def _index_of(self, partition: bytes, bucket: int) -> _LoadedIndex:
        loaded = self._loaded.get((partition, bucket))
        if loaded is None:
            loaded = self._loaded[partition, bucket] = self._load(partition, bucket)
        return loaded

    def _load(self, partition: bytes, bucket: int) -> _LoadedIndex:
        if self._ignore:
            return _LoadedIndex(PartitionIndex(self._rules), {}, [index_state_of(())])
        self._history.look_up([partition])
        entries = self._entries_of(self._history.snapshot, partition)
        state = index_state_of(entry.file_name for entry in entries)
        if bucket == _WHOLE:
            self._require_indexed(partition, entries)
        else:
            entries = [entry for entry in entries if entry.bucket == bucket]
        files = ((entry.bucket, hash_index(self._store, entry)) for entry in entries)
        keep: Keep | None = None
        if self._share is not None and bucket == _WHOLE:
            rules, number = self._rules, self._share

            def keep(hashes: Hashes) -> Mask:
                return np.asarray(owner_of(rules.assigners, partition, hashes) == number)

        return _LoadedIndex(
            PartitionIndex(self._rules, files, keep), {entry.bucket: entry.file for entry in entries}, [state]
        )

    def _entries_of(self, snapshot: Snapshot | None, partition: bytes) -> Sequence[IndexManifestEntry]:
        if self._history.hash_entries is not None:
            return self._history.hash_entries.get(partition, ())
        name = None if snapshot is None else snapshot.index_manifest
        if snapshot is None or name is None:
            return ()
        if self._entries[0] != name:
            self._entries = name, hash_entries(manifests.index_entries(self._store, snapshot))
        return self._entries[1].get(partition, ())

    def _require_indexed(self, partition: bytes, entries: Sequence[IndexManifestEntry]) -> None:
        """Raise CorruptFile for a bucket with data files but no index, whose keys would get a second bucket."""
        store, seen = self._store, set()
        for entry in entries:
            path = index_file_path(store, entry)
            if not 0 <= entry.bucket <= LARGEST_BUCKET:
                raise CorruptFile(
                    path, f"table {store.name}: it indexes bucket {entry.bucket}, which is not a valid bucket"
                )
            if entry.bucket in seen:
                raise CorruptFile(path, f"table {store.name}: a second hash index of bucket {entry.bucket}")
            seen.add(entry.bucket)
        bare = sorted(set(self._history.buckets_of(partition)) - seen)
        if bare:
            snapshot = self._history.snapshot
            assert snapshot is not None
            text = partition_text(store.schema, partition, store.options)
            where = f"partition {text}, bucket {bare[0]}" if text else f"bucket {bare[0]}"
            path = (
                store.manifest_path(snapshot.index_manifest)
                if snapshot.index_manifest
                else store.snapshot_path(snapshot.id)
            )
            raise CorruptFile(path, f"table {store.name}: no hash index of {where}, which holds files")


def owner_of(assigners: int, partition: bytes, hashes: Hashes) -> Buckets:
    """Return the number of the assigner (task that assigns buckets) that is responsible for each key hash.

    The number depends on the hash of the key; the hash of the partition shifts it.

    Args:
        assigners: number of assigners.
        partition: BinaryRow of the partition.
        hashes: key hashes of the partition.
    """
    return assigner_of(zlib.crc32(partition), hashes, assigners)


def join_index_files(store: TableStore, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
    """Merge the hash index files of each bucket that several writers wrote, and return all messages.

    In the returned messages each bucket has at most one new index file. The files that were merged are deleted. Raises
    :class:`CorruptFile`.
    """
    parts: dict[tuple[bytes, int], list[IndexFileMeta]] = {}
    for message in messages:
        parts.setdefault((message.partition, message.bucket), []).extend(message.new_index_files)
    index_files: dict[tuple[bytes, int], IndexFileMeta] = {}
    for (partition, bucket), files in parts.items():
        if len(files) < 2:
            continue
        entries = [IndexManifestEntry.of(ADD, partition, bucket, file) for file in files]
        together = np.unique(np.concatenate([hash_index(store, entry) for entry in entries]))
        index_files[partition, bucket] = write_hash_index(store, partition, bucket, together)
        for file in files:
            discard_index_file(store, partition, bucket, file)
    result = []
    for message in messages:
        place = message.partition, message.bucket
        if message.new_index_files and len(parts[place]) > 1:
            new = (index_files.pop(place),) if place in index_files else ()
            message = replace(
                message, new_index_files=new, deleted_index_files=message.deleted_index_files if new else ()
            )
        result.append(message)
    return result


def write_hash_index(store: TableStore, partition: bytes, bucket: int, hashes: Hashes) -> IndexFileMeta:
    """Write the HASH index file of a bucket and return its metadata; after a failure no file is left."""
    data = encode_hash_index(hashes)
    file = IndexFileMeta(HASH_INDEX, store.new_file_name("index-"), len(data), len(hashes))
    file = place_index_file(store, partition, bucket, file)
    write_index_file(store, partition, bucket, file, data)
    return file
