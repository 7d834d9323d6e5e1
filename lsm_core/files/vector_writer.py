"""Writing of deletion vector index files; an index file is replaced as a whole when one of its vectors changes.

Source: ``DeletionVectorsIndexFile``, ``BaseAppendDeleteFileMaintainer``, ``BucketedDvMaintainer``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lsm_core.errors import InvalidOption
from lsm_core.format.deletion_vector import DeletionVector, index_file
from lsm_core.format.manifest import VECTORS_INDEX, DeletionVectorRange, IndexFileMeta
from lsm_core.metadata.indexes import (
    deletion_files,
    discard_index_file,
    place_index_file,
    read_vector,
    write_index_file,
)
from lsm_core.metadata.store import TableStore

_MOST_SMALL: Final = 8
"""Largest number of index files below half the target size in a table without buckets; more of them are merged."""
_BITMAP64: Final = "deletion-vectors.bitmap64"


@dataclass(frozen=True)
class VectorChange:
    """Change of the index files with deletion vectors.

    Attributes:
        new: the new index files.
        deleted: the old index files that the new files replace.
    """

    new: tuple[IndexFileMeta, ...] = ()
    deleted: tuple[IndexFileMeta, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.new or self.deleted)


def change_vectors(
    store: TableStore,
    partition: bytes,
    bucket: int,
    live: Sequence[IndexFileMeta],
    changed: Mapping[str, DeletionVector | None],
    present: Collection[str],
) -> VectorChange:
    """Write the index files that replace ``live`` when the vectors of some data files change.

    A bucket has one index file. A table without buckets replaces the files in which a vector changes, and all small
    files once there are too many of them.

    Args:
        store: the table.
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        live: all index files of the bucket.
        changed: new vector by name of the data file; None if the data file has no vector any more.
        present: names of the data files that exist; vectors of all further data files are removed.

    Returns:
        The new index files, and the files of ``live`` that they replace; empty if no vector changes.

    Raises:
        CorruptFile: an index file cannot be read; the error names the file. No new file is left.
        StorageFull: the disk is full; no new file is left.
        InvalidOption: a row's position needs `deletion-vectors.bitmap64`, which is false; no new file is left.
    """
    places = deletion_files(store, partition, bucket, live)
    stale = {name for name in places if name not in present}
    if not any(vector is not None or name in places for name, vector in changed.items()) and not stale:
        return VectorChange()
    touched = live
    if store.options.bucket < 0 and not store.has_primary_key:
        moved = {places[name].index_file for name in (*changed, *stale) if name in places}
        small = [file for file in live if file.file_size < store.options.vectors_target_size // 2]
        if len(small) > _MOST_SMALL:
            moved |= {file.file_name for file in small}
        touched = [file for file in live if file.file_name in moved]

    def next_vectors() -> Iterator[tuple[str, DeletionVector]]:
        for file in touched:
            for vector_range in file.deletion_vectors or ():
                data_file = vector_range.data_file
                if data_file not in changed and data_file not in stale:
                    yield data_file, read_vector(store, places[data_file])
        yield from ((name, vector) for name, vector in changed.items() if vector is not None)

    new: list[IndexFileMeta] = []
    try:
        for packed in _pack_vectors(store, next_vectors()):
            new.append(_write(store, partition, bucket, packed))
    except BaseException:
        discard_index_files(store, partition, bucket, new)
        raise
    return VectorChange(tuple(new), tuple(touched))


def discard_index_files(store: TableStore, partition: bytes, bucket: int, files: Sequence[IndexFileMeta]) -> None:
    """Delete index files that will not be published; a file that cannot be deleted remains as an orphan.

    Args:
        store: the table.
        partition: the partition as a serialised row.
        bucket: number of the bucket.
        files: the index files.
    """
    for file in files:
        discard_index_file(store, partition, bucket, file)


def _pack_vectors(
    store: TableStore, vectors: Iterator[tuple[str, DeletionVector]]
) -> Iterator[list[tuple[str, DeletionVector]]]:
    """Yield the vectors of each index file.

    A bucket has one file; in a table without buckets, files have the target size.

    Args:
        store: the table.
        vectors: data file name and deletion vector.

    Yields:
        Data file name and deletion vector of each vector of one index file.
    """
    target = store.options.vectors_target_size if store.options.bucket < 0 and not store.has_primary_key else None
    held: list[tuple[str, DeletionVector]] = []
    size = 0
    for name, vector in vectors:
        held.append((name, vector))
        size += len(vector.to_bytes(bitmap64=True)[0])
        if target is not None and size > target:
            yield held
            held, size = [], 0
    if held:
        yield held


def _write(
    store: TableStore, partition: bytes, bucket: int, vectors: Sequence[tuple[str, DeletionVector]]
) -> IndexFileMeta:
    wide = bool(store.options.get(_BITMAP64))
    try:
        data, ranges = index_file([vector for _, vector in vectors], bitmap64=wide)
    except ValueError as error:
        raise InvalidOption(_BITMAP64, "false", f"true for files of so many rows ({error})", store.name) from error
    places = tuple(
        DeletionVectorRange(name, offset, length, vector.cardinality)
        for (name, vector), (offset, length) in zip(vectors, ranges, strict=True)
    )
    file = IndexFileMeta(VECTORS_INDEX, store.new_file_name("index-"), len(data), len(places), places)
    file = place_index_file(store, partition, bucket, file)
    write_index_file(store, partition, bucket, file, data)
    return file
