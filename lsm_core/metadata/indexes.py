"""A snapshot's index files and the indexes of its data files: found, read whole or in part, and checked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array
from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.manifest import VECTORS_INDEX, IndexFileMeta, IndexManifestEntry
from lsm_core.format.partition_path import partition_text
from lsm_core.format.side_files import decode_hash_index
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore

if TYPE_CHECKING:  # most tables have neither, and their libraries are slow to import: see the functions
    from lsm_core.format.deletion_vector import DeletionVector
    from lsm_core.format.file_index import FileIndex

# -- index files -------------------------------------------------------------------------------------------------------


def index_file_path(store: TableStore, entry: IndexManifestEntry) -> str:
    """Return the path of an index file: `index/`, its bucket (option `index-file-in-data-file-dir`) or an external path.

    Raises InvalidData or CorruptFile for a name that would lead elsewhere.
    """
    return index_path(store, entry.partition, entry.bucket, entry.file)


def index_path(store: TableStore, partition: bytes, bucket: int, file: IndexFileMeta) -> str:
    """As :func:`index_file_path`, of a file in a bucket: also the path at which a new one is written."""
    if file.external_path is not None:
        return store.data_path(partition, bucket, file.file_name, file.external_path)
    if store.options.get("index-file-in-data-file-dir"):
        return store.data_path(partition, bucket, file.file_name)
    return store.index_path(file.file_name)


def read_part(store: TableStore, path: str, offset: int, length: int) -> bytes:
    """Return at most ``length`` bytes from ``offset`` on, never more than the file has. Raises CorruptFile when it is missing."""
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
    """Write ``data`` as the index file ``file`` of a bucket; a failed one is gone, also when it was made and then reported as failed.

    Raises StorageFull, OSError.
    """
    path = index_path(store, partition, bucket, file)
    try:
        with store.file_io.open_output(path) as out:
            out.write(data)
    except BaseException:
        discard_index_file(store, partition, bucket, file)
        raise


def discard_index_file(store: TableStore, partition: bytes, bucket: int, file: IndexFileMeta) -> None:
    """Delete an index file that will not be published; one that cannot be deleted stays as an orphan."""
    with suppress(OSError, DredgeError):
        store.delete(index_path(store, partition, bucket, file))


# -- deletion vectors --------------------------------------------------------------------------------------------------


_FRAME_BYTES: Final = 8


@dataclass(frozen=True)
class DeletionFile:
    """Where in an index file the deletion vector of one data file lies (bytes); ``cardinality`` None when not recorded."""

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
    """Return where the vectors of data files with deleted rows lie, by partition and bucket. Raises CorruptFile."""
    return {
        place: deletion_files(store, *place, files)
        for place, files in vector_files(store, snapshot, partitions, buckets).items()
    }


def require_in_place(store: TableStore, snapshot: Snapshot, entries: pa.Table) -> None:
    """Raise CorruptFile naming the index file when ``snapshot`` lists a vector of a file in ``entries`` for another place than the file's.

    Nobody would find it there, and rows that were deleted would come back: whoever reads, rewrites or compares files with their
    vectors asks first. Vectors of files that are gone may lie about (Java leaves some). ``entries``: live ones, with partition,
    bucket and file_name.
    """
    listed: dict[str, list[IndexManifestEntry]] = {}
    for entry in manifests.index_entries(store, snapshot):
        for one in (entry.deletion_vectors or ()) if entry.index_type == VECTORS_INDEX else ():
            listed.setdefault(one.data_file, []).append(entry)
    if not listed:
        return
    marked = entries.filter(pc.is_in(entries.column("file_name"), arrow_array(list(listed), pa.string())))
    columns = (marked.column(name).to_pylist() for name in ("partition", "bucket", "file_name"))
    for partition, bucket, name in zip(*columns, strict=True):
        for entry in listed[name]:
            if (entry.partition, entry.bucket) != (partition, bucket):
                said, really = (
                    ", ".join(filter(None, (partition_text(store.schema, p, store.options), f"bucket {b}")))
                    for p, b in ((entry.partition, entry.bucket), (partition, bucket))
                )
                raise CorruptFile(
                    index_file_path(store, entry),
                    f"table {store.name}: the index manifest lists it for {said}, but {name}, of which it has a deletion "
                    f"vector, lies in {really}",
                )


def vector_files(
    store: TableStore,
    snapshot: Snapshot,
    partitions: Collection[bytes] | None = None,
    buckets: Collection[int] | None = None,
) -> dict[tuple[bytes, int], tuple[IndexFileMeta, ...]]:
    """Return the index files that hold deletion vectors, by partition and bucket. Raises CorruptFile."""
    found: dict[tuple[bytes, int], tuple[IndexFileMeta, ...]] = {}
    for entry in manifests.index_entries(store, snapshot):
        if (
            entry.index_type == VECTORS_INDEX
            and (partitions is None or entry.partition in partitions)
            and (buckets is None or entry.bucket in buckets)
        ):
            place = entry.partition, entry.bucket
            found[place] = (*found.get(place, ()), entry.file)
    return found


def deletion_files(
    store: TableStore, partition: bytes, bucket: int, files: Sequence[IndexFileMeta]
) -> dict[str, DeletionFile]:
    """Return where the vectors in some index files of a bucket lie, by data file. Raises CorruptFile for two of one file."""
    known: dict[str, DeletionFile] = {}
    for file in files:
        path = index_path(store, partition, bucket, file)
        for one in file.deletion_vectors or ():
            if one.data_file in known:
                raise CorruptFile(path, f"a second deletion vector of {one.data_file}")
            known[one.data_file] = DeletionFile(file.file_name, path, one.offset, one.length, one.cardinality)
    return known


def deleted_rows(files: Sequence[IndexFileMeta]) -> dict[str, int]:
    """Return how many rows vectors mark, by data file; 1 where the index manifest does not record it."""
    return {
        one.data_file: 1 if one.cardinality is None else one.cardinality
        for file in files
        for one in file.deletion_vectors or ()
    }


def read_vector(store: TableStore, file: DeletionFile, rows: int | None = None) -> DeletionVector:
    """Return one deletion vector. Raises CorruptFile naming the index file; at most ``file.length`` bytes and a frame are read.

    ``rows``: of the data file, beyond which no position may lie.
    """
    from lsm_core.format.deletion_vector import INDEX_FILE_VERSION, DeletionVector

    if file.offset < 1 or file.length < 0:
        raise CorruptFile(file.path, f"a deletion vector of {file.length} bytes at {file.offset}")
    version = read_part(store, file.path, 0, 1)
    if version != bytes([INDEX_FILE_VERSION]):
        raise CorruptFile(file.path, f"unknown version {version.hex() or '(empty file)'} of deletion vectors")
    # The older layout records a length without its frame of size and checksum: those 8 bytes may belong to it or not.
    data = read_part(store, file.path, file.offset, file.length + _FRAME_BYTES)
    vector = DeletionVector.from_bytes(data, file.path, file.length)
    if file.cardinality is not None and vector.cardinality != file.cardinality:
        raise CorruptFile(
            file.path, f"a deletion vector of {vector.cardinality} rows, the index manifest records {file.cardinality}"
        )
    if rows is not None and vector.max_position >= rows:
        raise CorruptFile(file.path, f"a deletion vector marks row {vector.max_position} of a file of {rows} rows")
    return vector


# -- hash indexes: the key hashes that a dynamic bucket holds ----------------------------------------------------------


def hash_index(store: TableStore, entry: IndexManifestEntry) -> npt.NDArray[np.int32]:
    """Return the hashes (int32, in file order) of the HASH index file ``entry``. Raises CorruptFile naming it.

    Source class: ``HashIndexFile``.
    """
    path = index_file_path(store, entry)
    data = read_part(store, path, 0, entry.file_size + 1)
    if len(data) != entry.file_size:
        raise CorruptFile(path, f"the index manifest records {entry.file_size} bytes, the file has another size")
    found = decode_hash_index(data, path)
    if len(found) != entry.row_count:
        raise CorruptFile(path, f"{len(found)} hashes, the index manifest records {entry.row_count}")
    return found


# -- the indexes of one data file: inside its manifest entry, or in the file beside it, read no further than asked -----


_SUFFIX: Final = ".index"
_FIRST_BYTES: Final = 4096
"""Most heads fit into the first read."""


def file_index(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta) -> FileIndex | None:
    """Return the indexes of ``file``, None without any or when option `file-index.read.enabled` is off.

    Column names and types in it are those of the schema ``file.schema_id``. Raises CorruptFile naming the index (a side file
    that is missing, too) and InvalidData for a hostile name. Source class: ``FileIndexEvaluator``.
    """
    if not store.options.get("file-index.read.enabled"):
        return None
    beside = [name for name in file.extra_files if name.endswith(_SUFFIX)]
    if file.embedded_index is None and not beside:
        return None
    from lsm_core.format.file_index import FileIndex, head_length, read_head

    if file.embedded_index is not None:
        return FileIndex.decode(file.embedded_index, f"index of {file.file_name} in its manifest")
    path = store.data_path(partition, bucket, beside[0], file.external_path)
    try:
        size = store.file_io.size(path)
    except FileNotFoundError as error:
        raise CorruptFile(path, "the file is missing") from error
    head = read_part(store, path, 0, _FIRST_BYTES)
    length = head_length(head, path)
    if length > len(head):
        head = read_part(store, path, 0, length)
    return FileIndex(read_head(head, size, path), partial(read_part, store, path), path)


__all__ = [
    "DeletionFile",
    "deleted_rows",
    "deletion_files",
    "deletion_vectors",
    "discard_index_file",
    "file_index",
    "hash_index",
    "index_file_path",
    "index_path",
    "read_vector",
    "require_in_place",
    "vector_files",
    "write_index_file",
]
