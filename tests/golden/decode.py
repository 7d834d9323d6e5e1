"""Decoder of a whole table: metadata of main and branches, indexes, and every row of every data file."""

from __future__ import annotations

import pyarrow as pa

from lsm_core.files import open_append, open_kv
from lsm_core.format.file_index import FileIndex
from lsm_core.format.manifest import DataFileMeta, ManifestEntry, table_to_entries
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests, snapshots, tags
from lsm_core.metadata.branches import all_stores
from lsm_core.metadata.consumers import list_consumers
from lsm_core.metadata.indexes import deletion_vectors, hash_index, read_vector
from lsm_core.metadata.store import TableStore, list_schema_ids
from lsm_core.read.table_versions import with_schema


def decode_everything(store: TableStore) -> int:
    """Decode every file that the table's metadata references; return the number of rows in the data files."""
    rows: dict[str, int] = {}
    for branch in all_stores(store):
        for number in list_schema_ids(branch.file_io, branch.root, branch.branch):
            assert branch.schema_of(number).id == number
        list_consumers(branch)
        for snapshot in [*snapshots.iterate(branch), *tags.list_tags(branch).values()]:
            _decode_version(with_schema(branch, snapshot.schema_id), snapshot, rows)
    return sum(rows.values())


def _decode_version(store: TableStore, snapshot: Snapshot, rows: dict[str, int]) -> None:
    entries = table_to_entries(manifests.live_entries(store, snapshot))
    changelog = table_to_entries(manifests.changelog_entries(store, snapshot))
    for entry in [*entries, *(one for one in changelog if one.kind == 0)]:
        if entry.file.file_name not in rows:
            rows[entry.file.file_name] = _decode_file(store, entry)
    for place in deletion_vectors(store, snapshot).values():
        for name, found in place.items():
            assert 0 < read_vector(store, found).cardinality <= rows[name]
    for index in manifests.index_entries(store, snapshot):
        if index.index_type == "HASH":
            assert len(hash_index(store, index)) == index.row_count


def _decode_file(store: TableStore, entry: ManifestEntry) -> int:
    """Decode all columns of a file with the schema of the file; return the number of rows.

    For key-value files, keys, sequence numbers and kinds are decoded, too.
    """
    own, file = with_schema(store, entry.file.schema_id), entry.file
    opened = open_kv if own.schema.primary_keys else open_append
    found = sum(batch.num_rows for batch in opened(own, entry.partition, entry.bucket, file))
    assert found == file.row_count
    _decode_index(own, entry, file)
    return found


def _decode_index(store: TableStore, entry: ManifestEntry, file: DataFileMeta) -> None:
    """Decode the embedded and external indexes of a data file, and check that they find every value of the file."""
    found = [] if file.embedded_index is None else [FileIndex.decode(file.embedded_index, file.file_name)]
    for name in file.extra_files:
        path = store.data_path(entry.partition, entry.bucket, name, file.external_path)
        found.append(FileIndex.decode(store.file_io.read_bytes(path), path))
    columns = {name: kinds for index in found for name, kinds in index.columns.items()}
    if not columns:
        return
    values = pa.Table.from_batches(list(open_append(store, entry.partition, entry.bucket, file, columns=list(columns))))
    for index in found:
        for name in index.columns:
            kind = store.schema.field(name).type
            for value in values.column(name):
                if value.is_valid:
                    assert index.may_match(name, kind, "=", value)
