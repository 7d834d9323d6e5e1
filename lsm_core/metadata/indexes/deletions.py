"""A snapshot's deletion vectors: where the vector of each data file lies, and the vector itself."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from lsm_core.errors import CorruptFile
from lsm_core.format.deletion_vector import INDEX_FILE_VERSION, DeletionVector
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.indexes.places import index_file_path, read_part
from lsm_core.metadata.store import TableStore

_KIND: Final = "DELETION_VECTORS"
_FRAME: Final = 8


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
    found: dict[tuple[bytes, int], dict[str, DeletionFile]] = {}
    for entry in manifests.index_entries(store, snapshot):
        if entry.index_type != _KIND:
            continue
        if (partitions is not None and entry.partition not in partitions) or (
            buckets is not None and entry.bucket not in buckets
        ):
            continue
        path = index_file_path(store, entry)
        known = found.setdefault((entry.partition, entry.bucket), {})
        for one in entry.deletion_vectors or ():
            if one.data_file in known:
                raise CorruptFile(path, f"a second deletion vector of {one.data_file}")
            known[one.data_file] = DeletionFile(entry.file_name, path, one.offset, one.length, one.cardinality)
    return found


def read_vector(store: TableStore, file: DeletionFile) -> DeletionVector:
    """Return one deletion vector. Raises CorruptFile naming the index file; at most ``file.length`` bytes and a frame are read."""
    if file.offset < 1 or file.length < 0:
        raise CorruptFile(file.path, f"a deletion vector of {file.length} bytes at {file.offset}")
    version = read_part(store, file.path, 0, 1)
    if version != bytes([INDEX_FILE_VERSION]):
        raise CorruptFile(file.path, f"unknown version {version.hex() or '(empty file)'} of deletion vectors")
    # The older layout records a length without its frame of size and checksum: those 8 bytes may belong to it or not.
    data = read_part(store, file.path, file.offset, file.length + _FRAME)
    vector = DeletionVector.from_bytes(data, file.path, file.length)
    if file.cardinality is not None and vector.cardinality != file.cardinality:
        raise CorruptFile(
            file.path, f"a deletion vector of {vector.cardinality} rows, the index manifest records {file.cardinality}"
        )
    return vector


__all__ = ["DeletionFile", "deletion_vectors", "read_vector"]
