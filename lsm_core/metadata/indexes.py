"""A snapshot's index files: where the deletion vector of each data file lies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lsm_core.errors import CorruptFile
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore


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
    """Data files with deleted rows, by partition and bucket. Raises CorruptFile."""
    found: dict[tuple[bytes, int], dict[str, DeletionFile]] = {}
    for entry in manifests.index_entries(store, snapshot):
        if entry.index_type != "DELETION_VECTORS":
            continue
        if (partitions is not None and entry.partition not in partitions) or (
            buckets is not None and entry.bucket not in buckets
        ):
            continue
        path = entry.external_path or store.index_path(entry.file_name)
        known = found.setdefault((entry.partition, entry.bucket), {})
        for one in entry.deletion_vectors or ():
            if one.data_file in known:
                raise CorruptFile(path, f"a second deletion vector of {one.data_file}")
            known[one.data_file] = DeletionFile(entry.file_name, path, one.offset, one.length, one.cardinality)
    return found


__all__ = ["DeletionFile", "deletion_vectors"]
