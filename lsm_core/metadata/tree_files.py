"""From manifest entries to the tree's plain values: files by bucket, their keys as bytes that compare in key order."""

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
    """Return (partition, bucket, total buckets, its entries) for each bucket, ordered by partition bytes and bucket.

    Entries of one bucket keep their order. Total buckets is the largest recorded in the bucket.
    """
    if entries.num_rows == 0:
        return []
    place = arrow_array(np.arange(entries.num_rows, dtype=np.int64))
    keyed = pa.table({"partition": entries.column("partition"), "bucket": entries.column("bucket"), "place": place})
    order = pc.sort_indices(keyed, sort_keys=[(name, "ascending") for name in ("partition", "bucket", "place")])
    ordered = entries.take(order)
    # Neighbours are compared rather than grouped by hash: Arrow's groups come in no promised order.
    partitions, buckets = (one_array(ordered.column(name)) for name in ("partition", "bucket"))
    rest = ordered.num_rows - 1
    differs = pc.or_(
        pc.not_equal(partitions.slice(1), partitions.slice(0, rest)),
        pc.not_equal(buckets.slice(1), buckets.slice(0, rest)),
    )
    starts = [0, *(np.flatnonzero(numpy_array(differs)) + 1).tolist(), ordered.num_rows]
    found: list[BucketGroup] = []
    for start, stop in pairwise(starts):  # one step a bucket, not a file
        part = ordered.slice(start, stop - start)
        total = pc.max(part.column("total_buckets")).as_py()
        found.append((partitions[start].as_py(), buckets[start].as_py(), total, part))
    return found


def tree_files(store: TableStore, entries: pa.Table) -> list[DataFile]:
    """Return one bucket's files as the tree wants them; keys are memcomparable bytes of the trimmed primary key.

    ``creation_ms`` is the recorded creation time (0 when unknown). Append tables get empty keys.
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
