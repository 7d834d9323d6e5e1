"""Index files of a snapshot and indexes of data files: location, partial reads and validation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array
from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.format.manifest import VECTORS_INDEX, DataFileMeta, IndexFileMeta, IndexManifestEntry
from lsm_core.format.partitions import partition_text
from lsm_core.format.side_files import decode_hash_index
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore

if TYPE_CHECKING:  # imported inside the functions: the libraries are slow to import, and most tables need neither
    from lsm_core.format.deletion_vector import DeletionVector
    from lsm_core.format.file_index import FileIndex

# -- index files -------------------------------------------------------------------------------------------------------


def index_file_path(store: TableStore, entry: IndexManifestEntry) -> str:
    """Return the path of an index file.

    The file is in `index/`, in its bucket's directory (option `index-file-in-data-file-dir`), or at an external path.

    Raises:
        InvalidData: the name would lead out of the directory.
        CorruptFile: the external path is not below a declared external path.
    """
    return index_path(store, entry.partition, entry.bucket, entry.file)


def index_path(store: TableStore, partition: bytes, bucket: int, file: IndexFileMeta) -> str:
    """Return the path of an existing or new index file in a bucket.

    Args:
        store: the table.
        partition: the partition as a serialised row.
        bucket: the bucket.
        file: the index file.

    Returns:
        The absolute path.
    """
    if file.external_path is not None:
        return store.data_path(partition, bucket, file.file_name, file.external_path)
    if store.options.get("index-file-in-data-file-dir"):
        return store.data_path(partition, bucket, file.file_name)
    return store.index_path(file.file_name)


def place_index_file(store: TableStore, partition: bytes, bucket: int, file: IndexFileMeta) -> IndexFileMeta:
    """Return a new index file with its external path, if the file belongs in an external path.

    Args:
        store: the table.
        partition: the partition as a serialised row.
        bucket: the bucket.
        file: the index file, which is not written yet.

    Raises:
        UnsupportedFeature: the operator does not allow the external path.
    """
    if not store.options.get("index-file-in-data-file-dir"):
        return file
    return replace(file, external_path=store.new_data_file(partition, bucket, file.file_name).external_path)


def read_part(store: TableStore, path: str, offset: int, length: int) -> bytes:
    """Return up to ``length`` bytes of a file from ``offset`` on; fewer if the file ends before.

    Raises:
        CorruptFile: the file is missing or ends before ``offset``.
    """
    try:
        with store.file_io.open_input(path) as source:
            size = source.size()
            if not 0 <= offset <= size or length < 0:
                raise CorruptFile(path, f"bytes {offset} to {offset + length} of a file of {size} bytes")
            return bytes(source.read_at(min(length, size - offset), offset))
    except FileNotFoundError as error:
        raise CorruptFile(path, "the file is missing") from error
    except pa.ArrowException as error:
        raise CorruptFile(path, str(error)) from error


def write_index_file(store: TableStore, partition: bytes, bucket: int, file: IndexFileMeta, data: bytes) -> None:
    """Write an index file of a bucket.

    After a failure no file is left, even if the storage created it and then reported an error.

    Args:
        store: the table.
        partition: the partition as a serialised row.
        bucket: the bucket.
        file: name and location of the index file.
        data: content of the index file.

    Raises:
        StorageFull: the storage is full.
        OSError: the file cannot be written.
    """
    path = index_path(store, partition, bucket, file)
    try:
        with store.file_io.open_output(path) as out:
            out.write(data)
    except BaseException:
        discard_index_file(store, partition, bucket, file)
        raise


def discard_index_file(store: TableStore, partition: bytes, bucket: int, file: IndexFileMeta) -> None:
    """Delete an index file that will not be committed; if the deletion fails, the file remains as an orphan.

    Args:
        store: the table.
        partition: the partition as a serialised row.
        bucket: number of the bucket.
        file: the index file.
    """
    with suppress(OSError, DredgeError):
        store.delete(index_path(store, partition, bucket, file))


# -- deletion vectors --------------------------------------------------------------------------------------------------


_FRAME_BYTES: Final = 8


@dataclass(frozen=True)
class DeletionFile:
    """Location of the deletion vector of one data file.

    Attributes:
        index_file: name of the index file that holds the vector.
        path: path of the index file.
        offset: start of the vector in the file (bytes).
        length: size of the vector (bytes).
        cardinality: number of deleted rows, or None if not recorded.
    """

    index_file: str
    path: str
    offset: int
    length: int
    cardinality: int | None = None


def deletion_vectors(
    store: TableStore,
    snapshot: Snapshot,
    partitions: Collection[bytes] | None = None,
    buckets: Collection[int] | None = None,
) -> dict[tuple[bytes, int], dict[str, DeletionFile]]:
    """Return the locations of the deletion vectors, by partition and bucket, then by data file.

    Args:
        store: the table.
        snapshot: the snapshot to read.
        partitions: partitions to include (serialised rows), or None for all.
        buckets: buckets to include, or None for all.

    Returns:
        The vectors of each bucket by name of the data file.

    Raises:
        CorruptFile: the index manifest is damaged.
    """
    return {
        place: deletion_files(store, *place, files)
        for place, files in vector_files(store, snapshot, partitions, buckets).items()
    }


def require_in_place(store: TableStore, snapshot: Snapshot, entries: pa.Table) -> None:
    """Check that the index lists each deletion vector in the partition and bucket of its data file.

    A misplaced vector would not be applied, and deleted rows would reappear. Every operation that reads, rewrites or
    compares files with deletion vectors therefore calls this function first. Vectors of data files that are no longer
    live are not checked; Java does not remove all of them.

    Args:
        store: the table.
        snapshot: the snapshot whose index manifest is checked.
        entries: live manifest entries with partition, bucket and file_name.

    Raises:
        CorruptFile: a vector is misplaced; the message names the index file.
    """
    listed: dict[str, list[IndexManifestEntry]] = {}
    for entry in manifests.index_entries(store, snapshot):
        for vector in (entry.deletion_vectors or ()) if entry.index_type == VECTORS_INDEX else ():
            listed.setdefault(vector.data_file, []).append(entry)
    if not listed:
        return
    marked = entries.filter(pc.is_in(entries.column("file_name"), arrow_array(list(listed), pa.string())))
    columns = (marked.column(name).to_pylist() for name in ("partition", "bucket", "file_name"))
    for partition, bucket, name in zip(*columns, strict=True):
        for entry in listed[name]:
            if (entry.partition, entry.bucket) != (partition, bucket):
                listed_place, actual_place = (
                    ", ".join(
                        filter(
                            None,
                            (partition_text(store.schema, entry_partition, store.options), f"bucket {entry_bucket}"),
                        )
                    )
                    for entry_partition, entry_bucket in ((entry.partition, entry.bucket), (partition, bucket))
                )
                raise CorruptFile(
                    index_file_path(store, entry),
                    f"table {store.name}: the index manifest lists it for {listed_place}, but it has a deletion vector "
                    f"of {name}, which is in {actual_place}",
                )


def vector_files(
    store: TableStore,
    snapshot: Snapshot,
    partitions: Collection[bytes] | None = None,
    buckets: Collection[int] | None = None,
) -> dict[tuple[bytes, int], tuple[IndexFileMeta, ...]]:
    """Return the index files with deletion vectors, by partition and bucket.

    Args:
        store: the table.
        snapshot: the snapshot to read.
        partitions: partitions to include (serialised rows), or None for all.
        buckets: buckets to include, or None for all.

    Returns:
        The index files of each bucket.

    Raises:
        CorruptFile: the index manifest is damaged.
    """
    files: dict[tuple[bytes, int], tuple[IndexFileMeta, ...]] = {}
    for entry in manifests.index_entries(store, snapshot):
        if (
            entry.index_type == VECTORS_INDEX
            and (partitions is None or entry.partition in partitions)
            and (buckets is None or entry.bucket in buckets)
        ):
            place = entry.partition, entry.bucket
            files[place] = (*files.get(place, ()), entry.file)
    return files


def deletion_files(
    store: TableStore, partition: bytes, bucket: int, files: Sequence[IndexFileMeta]
) -> dict[str, DeletionFile]:
    """Return the locations of the deletion vectors in some index files of one bucket, by data file.

    Raises:
        CorruptFile: two vectors belong to one data file.
    """
    locations: dict[str, DeletionFile] = {}
    for file in files:
        path = index_path(store, partition, bucket, file)
        for vector in file.deletion_vectors or ():
            if vector.data_file in locations:
                raise CorruptFile(path, f"a second deletion vector of {vector.data_file}")
            locations[vector.data_file] = DeletionFile(
                file.file_name, path, vector.offset, vector.length, vector.cardinality
            )
    return locations


def deleted_rows(files: Sequence[IndexFileMeta]) -> dict[str, int]:
    """Return the number of deleted rows of each data file that has a deletion vector.

    If the index manifest does not record a number, it is 1: the file then has at least one deleted row.
    """
    return {
        vector.data_file: 1 if vector.cardinality is None else vector.cardinality
        for file in files
        for vector in file.deletion_vectors or ()
    }


def read_vector(store: TableStore, file: DeletionFile, rows: int | None = None) -> DeletionVector:
    """Read one deletion vector: at most ``file.length`` bytes, plus 8 bytes for its size and checksum.

    Args:
        store: the table.
        file: location of the vector.
        rows: row count of the data file, or None; positions must be smaller.

    Returns:
        The deletion vector.

    Raises:
        CorruptFile: the vector is damaged or does not match its metadata; the message names the index file.
    """
    from lsm_core.format.deletion_vector import INDEX_FILE_VERSION, DeletionVector

    if file.offset < 1 or file.length < 0:
        raise CorruptFile(file.path, f"a deletion vector of {file.length} bytes at {file.offset}")
    version = read_part(store, file.path, 0, 1)
    if version != bytes([INDEX_FILE_VERSION]):
        raise CorruptFile(file.path, f"unknown version {version.hex() or '(empty file)'} of deletion vectors")
    # The older layout records a length without the frame (size and checksum), so 8 more bytes may belong to the vector.
    data = read_part(store, file.path, file.offset, file.length + _FRAME_BYTES)
    vector = DeletionVector.from_bytes(data, file.path, file.length)
    if file.cardinality is not None and vector.cardinality != file.cardinality:
        raise CorruptFile(
            file.path,
            f"a deletion vector of {vector.cardinality} rows, but the index manifest records {file.cardinality}",
        )
    if rows is not None and vector.max_position >= rows:
        raise CorruptFile(file.path, f"a deletion vector marks row {vector.max_position} of a file of {rows} rows")
    return vector


# -- hash indexes: the key hashes of a dynamic bucket ------------------------------------------------------------------


def hash_index(store: TableStore, entry: IndexManifestEntry) -> npt.NDArray[np.int32]:
    """Return the key hashes of a HASH index file.

    Returns:
        The hashes (int32), in file order.

    Raises:
        CorruptFile: size or row count differ from the index manifest; the message names the file.

    Source: ``HashIndexFile``.
    """
    path = index_file_path(store, entry)
    data = read_part(store, path, 0, entry.file_size + 1)
    if len(data) != entry.file_size:
        raise CorruptFile(path, f"the index manifest records {entry.file_size} bytes, but the file has another size")
    hashes = decode_hash_index(data, path)
    if len(hashes) != entry.row_count:
        raise CorruptFile(path, f"{len(hashes)} hashes, but the index manifest records {entry.row_count}")
    return hashes


# -- indexes of one data file: embedded in its manifest entry, or in a side file that is read in parts -----------------


_SUFFIX: Final = ".index"
_FIRST_BYTES: Final = 4096
"""Bytes of the first read of a file index; most index headers are not longer."""


def file_index(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta) -> FileIndex | None:
    """Return the indexes of a data file.

    Args:
        store: the table.
        partition: the partition as a serialised row.
        bucket: the bucket.
        file: the data file; columns in the index have the names and types of its schema ``file.schema_id``.

    Returns:
        The indexes, or None if the file has none or option `file-index.read.enabled` is off.

    Raises:
        CorruptFile: the index is damaged or its side file is missing; the message names the index.
        InvalidData: the name of the side file would lead out of the directory.

    Source: ``FileIndexEvaluator``.
    """
    return _open_index(store, partition, bucket, file) if store.options.get("file-index.read.enabled") else None


def indexes_in(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta) -> frozenset[tuple[str, str]]:
    """Return the (column, index type) pairs of a data file's indexes; a damaged or missing index file has none.

    Args:
        store: the table.
        partition: the partition as a serialised row.
        bucket: the bucket.
        file: the data file.
    """
    try:
        index = _open_index(store, partition, bucket, file)
    except CorruptFile:
        return frozenset()
    return frozenset((name, kind) for name, kinds in index.columns.items() for kind in kinds) if index else frozenset()


@dataclass(frozen=True)
class IndexContainer:
    """Indexes of one data file, with the place that holds them.

    Attributes:
        index: the indexes.
        path: path of the side file, or None if the indexes are embedded in the manifest entry.
        size: size of the container in bytes.
    """

    index: FileIndex
    path: str | None
    size: int


def index_container(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta) -> IndexContainer | None:
    """Return the indexes of a data file even if `file-index.read.enabled` is off; None if the file has none.

    Args:
        store: the table.
        partition: the partition as a serialised row.
        bucket: the bucket.
        file: the data file.

    Raises:
        CorruptFile: the index is damaged or its side file is missing.
        InvalidData: the name of the side file would lead out of the directory.
    """
    side_files = [name for name in file.extra_files if name.endswith(_SUFFIX)]
    if file.embedded_index is None and not side_files:
        return None
    from lsm_core.format.file_index import FileIndex, head_length, read_head

    if file.embedded_index is not None:
        index = FileIndex.decode(file.embedded_index, f"index of {file.file_name} in its manifest")
        return IndexContainer(index, None, len(file.embedded_index))
    path = store.data_path(partition, bucket, side_files[0], file.external_path)
    try:
        size = store.file_io.size(path)
    except FileNotFoundError as error:
        raise CorruptFile(path, "the file is missing") from error
    head = read_part(store, path, 0, _FIRST_BYTES)
    length = head_length(head, path)
    if length > len(head):
        head = read_part(store, path, 0, length)
    index = FileIndex(read_head(head, size, path), partial(read_part, store, path), path)
    return IndexContainer(index, path, size)


def _open_index(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta) -> FileIndex | None:
    container = index_container(store, partition, bucket, file)
    return None if container is None else container.index
