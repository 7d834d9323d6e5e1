"""`$files`: one row a live data file, with Paimon's columns as far as they are plain values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.format.partition_path import partition_text
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("file_path", pa.string(), nullable=False),
        pa.field("file_format", pa.string(), nullable=False),
        pa.field("schema_id", pa.int64(), nullable=False),
        pa.field("level", pa.int32(), nullable=False),
        pa.field("record_count", pa.int64(), nullable=False),
        pa.field("file_size_in_bytes", pa.int64(), nullable=False),
        pa.field("min_sequence_number", pa.int64()),
        pa.field("max_sequence_number", pa.int64()),
        pa.field("creation_time", pa.timestamp("ms")),
        pa.field("deleteRowCount", pa.int64()),
        pa.field("file_source", pa.string()),
    ]
)


def files_table(store: TableStore, snapshot_id: int | None = None) -> pa.Table:
    """Live files of a snapshot (default: the newest), by partition, bucket and path. Raises SnapshotNotFound, CorruptFile."""
    snapshot = snapshots.latest(store) if snapshot_id is None else snapshots.read(store, snapshot_id)
    if snapshot is None:
        return SCHEMA.empty_table()
    entries = manifests.live_entries(store, snapshot)
    names = entries.column("file_name").combine_chunks()
    columns = {
        "partition": _per_partition(entries, lambda p: partition_text(store.schema, p, store.options)),
        "file_path": pc.binary_join_element_wise(_folders(store, entries), names, "/"),
        "file_format": pc.list_element(pc.split_pattern(names, ".", max_splits=1, reverse=True), 1),
        "record_count": entries.column("row_count"),
        "file_size_in_bytes": entries.column("file_size"),
        "creation_time": pc.cast(entries.column("creation_time_ms"), pa.timestamp("ms")),
        "deleteRowCount": entries.column("delete_row_count"),
        "file_source": _source(entries.column("file_source")),
    }
    plain = {name: entries.column(name) for name in SCHEMA.names if name not in columns}
    table = pa.table({**columns, **plain}).select(SCHEMA.names).cast(SCHEMA)
    return table.sort_by([("partition", "ascending"), ("bucket", "ascending"), ("file_path", "ascending")])


def _per_partition(entries: pa.Table, text_of: Callable[[bytes], str]) -> pa.Array:
    """One text a partition, spread over its entries."""
    encoded = _whole(pc.dictionary_encode(_whole(entries.column("partition"))))
    texts = pa.array([text_of(value) for value in encoded.dictionary.to_pylist()], pa.string())  # one a partition
    return texts.take(encoded.indices)


def _folders(store: TableStore, entries: pa.Table) -> pa.Array:
    """Directory of every entry's bucket, made once a bucket."""
    partitions = _whole(pc.dictionary_encode(_whole(entries.column("partition"))))
    buckets = entries.column("bucket").to_numpy().astype(np.int64)
    pairs = np.stack([partitions.indices.to_numpy(zero_copy_only=False).astype(np.int64), buckets])
    places, inverse = np.unique(pairs, axis=1, return_inverse=True)
    known = partitions.dictionary.to_pylist()
    texts = [store.bucket_dir(known[code], bucket) for code, bucket in places.T.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(inverse.reshape(-1)))


def _source(source: pa.ChunkedArray) -> pa.Array:
    return pc.if_else(pc.equal(source, 1), "COMPACT", pc.if_else(pc.equal(source, 0), "APPEND", None))


def _whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(values, pa.ChunkedArray):
        return values
    joined = values.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined
