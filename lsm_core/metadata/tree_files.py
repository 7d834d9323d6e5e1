"""Conversion of manifest entries to values of the tree: files by bucket, keys as bytes that compare in key order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, numpy_array, one_array
from lsm_core.format.binary_row import decode_rows
from lsm_core.merge import key_bytes
from lsm_core.metadata.store import TableStore
from lsm_core.tree import DataFile

BucketGroup = tuple[bytes, int, int, pa.Table]


def bucket_groups(entries: pa.Table) -> list[BucketGroup]:
    """Group entries by partition and bucket, ordered by partition bytes and bucket.

    Args:
        entries: manifest entries.

    Returns:
        Partition, bucket, total buckets (the largest recorded in the bucket) and the bucket's entries in their order.
    """
    if entries.num_rows == 0:
        return []
    positions = arrow_array(np.arange(entries.num_rows, dtype=np.int64))
    sort_columns = pa.table(
        {"partition": entries.column("partition"), "bucket": entries.column("bucket"), "place": positions}
    )
    order = pc.sort_indices(sort_columns, sort_keys=[(name, "ascending") for name in ("partition", "bucket", "place")])
    ordered = entries.take(order)
    # Adjacent rows are compared, because Arrow's hash grouping does not guarantee an order.
    partitions, buckets = (one_array(ordered.column(name)) for name in ("partition", "bucket"))
    pair_count = ordered.num_rows - 1
    differs = pc.or_(
        pc.not_equal(partitions.slice(1), partitions.slice(0, pair_count)),
        pc.not_equal(buckets.slice(1), buckets.slice(0, pair_count)),
    )
    starts = [0, *(np.flatnonzero(numpy_array(differs)) + 1).tolist(), ordered.num_rows]
    groups: list[BucketGroup] = []
    for start, stop in pairwise(starts):  # one step per bucket, not per file
        part = ordered.slice(start, stop - start)
        total = pc.max(part.column("total_buckets")).as_py()
        groups.append((partitions[start].as_py(), buckets[start].as_py(), total, part))
    return groups


def tree_files(store: TableStore, entries: pa.Table) -> list[DataFile]:
    """Return one bucket's files as values of the tree.

    Keys are memcomparable bytes of the trimmed primary key; append tables get empty keys. ``creation_ms`` is the
    recorded creation time (0 if unknown).

    Args:
        store: the table.
        entries: manifest entries of one bucket.

    Returns:
        The files, in the order of the entries.
    """
    types = store.schema.trimmed_key_types
    lows, highs = (
        list(key_bytes(decode_rows(entries.column(name), types)).to_pylist()) if types else [b""] * entries.num_rows
        for name in ("min_key", "max_key")
    )
    columns = {name: entries.column(name).to_pylist() for name in _COLUMNS}
    return [
        DataFile(
            name=columns["file_name"][i],
            level=columns["level"][i],
            size=columns["file_size"][i],
            min_key=lows[i],
            max_key=highs[i],
            row_count=columns["row_count"][i],
            min_sequence=columns["min_sequence_number"][i],
            max_sequence=columns["max_sequence_number"][i],
            creation_ms=columns["creation_time_ms"][i] or 0,
            delete_row_count=columns["delete_row_count"][i],
            schema_id=columns["schema_id"][i],
        )
        for i in range(entries.num_rows)
    ]


_COLUMNS = (
    "file_name",
    "level",
    "file_size",
    "row_count",
    "min_sequence_number",
    "max_sequence_number",
    "creation_time_ms",
    "delete_row_count",
    "schema_id",
)
