"""`$manifests` and `$table_indexes`: the metadata files that a version is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from lsm_core.format.manifest import ManifestFileMeta
from lsm_core.format.schema import TableSchema
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore
from lsm_core.table.system.entries import partition_texts, row_texts
from lsm_core.table.system.view import Version, View, Wanted, of_columns, table_schema

MANIFESTS: Final = table_schema(
    [
        ("file_name", "STRING NOT NULL"),
        ("file_size", "BIGINT NOT NULL"),
        ("num_added_files", "BIGINT NOT NULL"),
        ("num_deleted_files", "BIGINT NOT NULL"),
        ("schema_id", "BIGINT NOT NULL"),
        ("min_partition_stats", "STRING"),
        ("max_partition_stats", "STRING"),
        ("min_row_id", "BIGINT"),
        ("max_row_id", "BIGINT"),
    ]
)
INDEXES: Final = table_schema(
    [
        ("partition", "STRING"),
        ("bucket", "INT NOT NULL"),
        ("index_type", "STRING NOT NULL"),
        ("file_name", "STRING NOT NULL"),
        ("file_size", "BIGINT NOT NULL"),
        ("row_count", "BIGINT NOT NULL"),
        (
            "dv_ranges",
            "ARRAY<ROW<`f0` STRING NOT NULL, `f1` INT NOT NULL, `f2` INT NOT NULL, `_CARDINALITY` BIGINT>>",
        ),
    ]
)
_SAME: Final = [name for name in MANIFESTS.field_names if not name.endswith("partition_stats")]
_SAME_INDEX: Final = ["bucket", "index_type", "file_name", "file_size", "row_count"]


class Manifests(View):
    """One row a manifest of the version: carried over, its own, and those of its changelog."""

    def schema(self, store: TableStore) -> TableSchema:
        """The same for every table."""
        return MANIFESTS

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """All at once: a version has some hundred manifests. Raises CorruptFile."""
        store, snapshot = version.store, version.snapshot
        if snapshot is None:
            return
        metas = manifests.data_manifests(store, snapshot)
        if snapshot.changelog_manifest_list is not None:
            size = snapshot.changelog_manifest_list_size
            metas += manifests.read_list(store, snapshot.changelog_manifest_list, size)
        columns = {name: [getattr(meta, name) for meta in metas] for name in _SAME}
        table = of_columns(MANIFESTS, columns, store.manifest_dir)
        for side in ("min", "max"):
            place = MANIFESTS.field_names.index(f"{side}_partition_stats")
            table = table.set_column(place, table.field(place), _ranges(store, metas, side))
        yield table


def _ranges(store: TableStore, metas: list[ManifestFileMeta], side: str) -> pa.Array:
    return row_texts(store, pa.array([getattr(meta.partition_stats, f"{side}_values") for meta in metas], pa.binary()))


class TableIndexes(View):
    """One row an index file of the version: hash indexes, deletion vectors with the place of each."""

    def schema(self, store: TableStore) -> TableSchema:
        """The same for every table."""
        return INDEXES

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """All at once: there is one index file a bucket at most. Raises CorruptFile."""
        if version.snapshot is None:
            return
        found = manifests.index_entries(version.store, version.snapshot)
        columns: dict[str, list[object]] = {name: [getattr(one, name) for one in found] for name in _SAME_INDEX}
        columns["dv_ranges"] = [
            None
            if one.deletion_vectors is None
            else [
                {"f0": v.data_file, "f1": v.offset, "f2": v.length, "_CARDINALITY": v.cardinality}
                for v in one.deletion_vectors
            ]
            for one in found
        ]
        table = of_columns(INDEXES, columns, version.store.manifest_dir)
        partitions = pa.array([one.partition for one in found], pa.binary())
        yield table.set_column(0, table.field(0), partition_texts(version.store, partitions))


__all__ = ["Manifests", "TableIndexes"]
