"""Pruning of files by keys, value statistics and embedded indexes, without hiding the newer version of a row.

A primary-key file may hold the version of a row that makes an older one disappear. So what is known about *values* may
leave out single files only where no two files share a key, else a whole bucket or nothing (Java `KeyValueFileStoreScan`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import one_array
from lsm_core.metadata.store import TableStore
from lsm_core.read.predicate import Predicate
from lsm_core.read.prune.bounds import Mask
from lsm_core.read.prune.file_index import embedded_mask
from lsm_core.read.prune.guarantees import possible
from lsm_core.read.prune.statistics import place_bounds, value_bounds

_WHOLE_ROWS: Final = frozenset({"deduplicate", "first-row"})
"""Merge engines that answer with a stored row, not with one put together from several files."""


def prune_files(
    store: TableStore, entries: pa.Table, predicate: Predicate | None, *, disjoint: bool = False
) -> pa.Table:
    """Entries (`ENTRY_SCHEMA`) whose file can hold a row for which the filter is true, or must be there for the merge.

    ``disjoint``: no two files hold visible rows of one key, whatever their levels (deletion vectors without level 0).
    """
    if predicate is None or not entries.num_rows:
        return entries
    schema = store.schema
    if schema.primary_keys:
        kept = possible(schema, place_bounds(schema, entries, predicate), entries.num_rows, predicate)
        entries = entries if kept.all() else entries.filter(pa.array(kept))
        if not set(predicate.columns) - {*schema.trimmed_primary_keys, *schema.partition_keys} or not entries.num_rows:
            return entries
    # What a file's place says is exact, its statistics may be cut: so the former goes over the latter.
    bounds = {**value_bounds(store, entries, predicate), **place_bounds(schema, entries, predicate)}
    mask = embedded_mask(store, entries, predicate, possible(schema, bounds, entries.num_rows, predicate))
    if schema.primary_keys and not disjoint:
        mask = _for_whole_buckets(store, entries, mask)
    return entries if mask.all() else entries.filter(pa.array(mask))


def _for_whole_buckets(store: TableStore, entries: pa.Table, mask: Mask) -> Mask:
    """The mask as far as a merge allows: single files of a bucket with one level above 0 (or one file), else all or none."""
    partitions = one_array(entries.column("partition")).dictionary_encode().indices.to_numpy().astype(np.int64)
    buckets = entries.column("bucket").to_numpy().astype(np.int64)
    combined = partitions * (buckets.max() - buckets.min() + 1) + (buckets - buckets.min())
    _, bucket = np.unique(combined, return_inverse=True)
    count = int(bucket.max()) + 1
    levels = entries.column("level").to_numpy()
    lowest, highest = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(lowest, bucket, levels)
    np.maximum.at(highest, bucket, levels)
    files, candidates = np.bincount(bucket, minlength=count), np.bincount(bucket, weights=mask, minlength=count)
    alone = (files == 1) | ((lowest == highest) & (lowest > 0))
    stays = candidates > 0 if store.options.merge_engine in _WHOLE_ROWS else np.ones(count, dtype=bool)
    kept: Mask = np.where(alone[bucket], mask, stays[bucket])
    return kept


__all__ = ["prune_files"]
