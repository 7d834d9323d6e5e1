"""Pruning of files by keys, value statistics and embedded indexes, without hiding the newer version of a row.

A primary-key file may hold the version of a row that makes an older one disappear. So what is known about *values* may
leave out single files only where no two files share a key, else a whole bucket or nothing (Java `KeyValueFileStoreScan`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.metadata.store import TableStore
from lsm_core.read.predicate import Predicate
from lsm_core.read.prune.file_index import embedded_mask
from lsm_core.read.prune.guarantees import conjoin, possible, prunable
from lsm_core.read.prune.statistics import key_guarantees, partition_guarantees, value_guarantees

Mask = np.ndarray[Any, Any]
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
    places = partition_guarantees(schema, entries, predicate)
    if schema.primary_keys:
        places = conjoin([places, key_guarantees(schema, entries, predicate)])
        kept = possible(schema, places, predicate)
        if not kept.all():
            entries = entries.filter(pa.array(kept))
            places = [place for place, stays in zip(places, kept, strict=True) if stays]
    if not set(predicate.columns) - {*schema.trimmed_primary_keys, *schema.partition_keys} or not entries.num_rows:
        return entries if schema.primary_keys else entries.filter(pa.array(possible(schema, places, predicate)))
    mask = _by_values(store, entries, places, predicate)
    if schema.primary_keys and not disjoint:
        mask = _for_whole_buckets(store, entries, mask)
    return entries if mask.all() else entries.filter(pa.array(mask))


def _by_values(store: TableStore, entries: pa.Table, places: list[pc.Expression], predicate: Predicate) -> Mask:
    if prunable(store.schema, predicate, predicate.columns):
        guarantees = conjoin([places, value_guarantees(store, entries, predicate)])
        mask = possible(store.schema, guarantees, predicate)
    else:
        mask = np.ones(entries.num_rows, dtype=bool)
    return embedded_mask(store, entries, predicate, mask)


def _for_whole_buckets(store: TableStore, entries: pa.Table, mask: Mask) -> Mask:
    """The mask as far as a merge allows: single files of a bucket with one level above 0 (or one file), else all or none."""
    partitions = entries.column("partition").combine_chunks().dictionary_encode().indices.to_numpy()
    places = np.stack([partitions.astype(np.int64), entries.column("bucket").to_numpy().astype(np.int64)])
    _, bucket = np.unique(places, axis=1, return_inverse=True)
    bucket = bucket.reshape(-1)
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
