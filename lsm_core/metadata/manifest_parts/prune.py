"""Leaving out manifests and entries that cannot matter, from the ranges that the manifest list records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import DredgeError
from lsm_core.format.binary_row import decode_row
from lsm_core.format.manifest import ManifestFileMeta
from lsm_core.types import DataType

Row = tuple[Any, ...]


def prune(
    metas: Sequence[ManifestFileMeta],
    types: Sequence[DataType],
    partitions: Collection[bytes] | None,
    buckets: Collection[int] | None,
    levels: Collection[int] | None,
) -> list[ManifestFileMeta]:
    """Return the manifests that may hold entries of the wanted partitions, buckets and levels; unknown ranges are kept."""
    wanted = None if partitions is None else [decode_row(p, types) for p in partitions]
    return [
        meta
        for meta in metas
        if _meets(meta.min_bucket, meta.max_bucket, buckets)
        and _meets(meta.min_level, meta.max_level, levels)
        and (wanted is None or _may_hold(meta, types, wanted))
    ]


def keep_rows(
    entries: pa.Table,
    partitions: Collection[bytes] | None,
    buckets: Collection[int] | None,
    levels: Collection[int] | None,
) -> pa.Table:
    """Return only the entries of the wanted partitions, buckets and levels.

    All three are part of an entry's identity, so an ADD and the DELETE that cancels it stay or go together.
    """
    for name, values in (("partition", partitions), ("bucket", buckets), ("level", levels)):
        if values is not None:
            wanted = pa.array(list(values), entries.schema.field(name).type)
            entries = entries.filter(pc.is_in(entries.column(name), value_set=wanted))
    return entries


def _meets(low: int | None, high: int | None, wanted: Collection[int] | None) -> bool:
    if wanted is None or low is None or high is None:
        return True
    return any(low <= value <= high for value in wanted)


def _may_hold(meta: ManifestFileMeta, types: Sequence[DataType], wanted: Sequence[Row]) -> bool:
    stats = meta.partition_stats
    if not types:
        return bool(wanted)
    try:
        low, high = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    except (DredgeError, ValueError, IndexError):
        return True  # statistics of another arity say nothing
    nulls = stats.null_counts or ()
    return any(_row_may_be_in(row, low, high, nulls) for row in wanted)


def _row_may_be_in(row: Row, low: Row, high: Row, nulls: Sequence[int | None]) -> bool:
    for at, value in enumerate(row):
        if value is None:
            if at < len(nulls) and nulls[at] == 0:
                return False
        elif low[at] is not None and high[at] is not None and _outside(value, low[at], high[at]):
            return False
    return True


def _outside(value: Any, low: Any, high: Any) -> bool:
    try:
        # Said this way a NaN proves nothing: every comparison with one is false.
        return bool(value < low or value > high)
    except TypeError:
        return False
