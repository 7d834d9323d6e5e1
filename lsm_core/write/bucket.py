"""Bucket of each row: by the hash of its bucket key, by an assigner, or 0 in a table without buckets. Vectorised.

Source: Paimon `RowKeyExtractor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.arrays import one_array
from lsm_core.format.binary_row import EMPTY_ROW, encode_rows
from lsm_core.format.hashing import bucket_of, hash_rows
from lsm_core.format.schema import TableSchema
from lsm_core.metadata.store import POSTPONE_BUCKET, TableStore

Assign = Callable[[bytes, np.ndarray[Any, Any]], np.ndarray[Any, Any]]
"""Function from a partition (BinaryRow) and the key hashes of its rows, in arrival order, to the bucket of each row."""


def groups(
    store: TableStore, batch: pa.Table, assign: Assign | None = None
) -> Iterator[tuple[bytes, int, np.ndarray[Any, Any]]]:
    """Yield (partition, bucket, row positions in arrival order) for every bucket that has rows in a batch.

    Args:
        store: the table.
        batch: rows with all columns of the table.
        assign: returns the buckets in a table of dynamic buckets.
    """
    if not batch.num_rows:
        return
    codes, partitions = partition_codes(store.schema, batch)
    if assign is None:
        bucket = buckets_of(store, batch)
    else:
        hashes = key_hashes(store, batch)
        bucket = np.empty(batch.num_rows, np.int32)
        for number, rows in same_numbers(codes):
            bucket[rows] = assign(partitions[number], hashes[rows])
    total = int(bucket.max()) + 1
    for code, rows in same_numbers(codes.astype(np.int64) * total + bucket):
        number, bucket_number = divmod(code, total)
        yield partitions[number], POSTPONE_BUCKET if store.options.bucket == POSTPONE_BUCKET else bucket_number, rows


def same_numbers(codes: np.ndarray[Any, Any]) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """Yield (number, positions) for each distinct number of the non-empty array ``codes``, both ascending."""
    # NumPy sorts 16-bit integers by radix, in linear time; more than 65,536 groups in one piece are rare
    small = codes.astype(np.uint16) if codes.max() < 1 << 16 else codes
    order = np.argsort(small, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    for start, end in zip(starts, np.r_[starts[1:], len(ordered)], strict=True):
        yield int(ordered[start]), order[start:end]


def key_hashes(store: TableStore, batch: pa.RecordBatch | pa.Table) -> np.ndarray[Any, Any]:
    """Return the Java hash (int32) of each row's trimmed primary key, which HASH indexes hold."""
    columns = [one_array(batch.column(name)) for name in store.schema.trimmed_primary_keys]
    return hash_rows(columns, store.schema.trimmed_key_types)


def partition_codes(schema: TableSchema, batch: pa.RecordBatch | pa.Table) -> tuple[np.ndarray[Any, Any], list[bytes]]:
    """Return (codes, partitions): each row's index into ``partitions``, the distinct partitions as BinaryRows."""
    if not schema.partition_keys:
        return np.zeros(batch.num_rows, dtype=np.int32), [EMPTY_ROW]
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in schema.partition_keys:
        encoded = one_array(batch.column(name)).dictionary_encode(null_encoding="encode")
        codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
        _, codes = np.unique(codes, return_inverse=True)  # dense again, so that many columns cannot overflow
    distinct_codes, first = np.unique(codes, return_index=True)
    rows = pa.array(first)
    distinct = [one_array(batch.column(name)).take(rows) for name in schema.partition_keys]
    blobs = encode_rows(distinct, schema.partition_types)
    return codes.astype(np.int32), [blobs[int(i)].as_py() for i in distinct_codes]


def buckets_of(store: TableStore, batch: pa.RecordBatch | pa.Table) -> np.ndarray[Any, Any]:
    """Return the bucket number (int32) of each row; 0 for all rows of a table without buckets."""
    schema = store.schema
    if store.options.bucket < 1:
        return np.zeros(batch.num_rows, dtype=np.int32)
    columns = [one_array(batch.column(name)) for name in schema.bucket_keys]
    return bucket_of(columns, schema.bucket_key_types, store.options.bucket, store.options.bucket_function)
