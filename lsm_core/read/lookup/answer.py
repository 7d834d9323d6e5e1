"""`Table.lookup`: the merged rows of some keys, found without reading the rest of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.format.file_meta import DataFileMeta
from lsm_core.merge import KeySpec
from lsm_core.merge.comparable import Ints
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_readable
from lsm_core.read.inputs import sections_of
from lsm_core.read.lookup.asked import asked_keys
from lsm_core.read.lookup.hits import open_hits
from lsm_core.read.lookup.places import BucketKeys, buckets_of
from lsm_core.read.lookup.search import places_of
from lsm_core.read.merge_read import Merging
from lsm_core.read.scan import chosen_columns
from lsm_core.read.versions import resolve


def lookup(store: TableStore, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """The merged rows of ``keys`` in the newest version; see `Table.lookup`.

    Raises UnsupportedFeature, ColumnNotFound, InvalidFilter (see :func:`asked_keys`), SnapshotNotFound, CorruptFile.
    """
    version = resolve(store)
    store, snapshot = version.store, version.snapshot
    asked = asked_keys(store, keys)
    require_readable(store, snapshot)
    names = chosen_columns(store, columns)
    names = (*(name for name in store.schema.primary_keys if name not in names), *names)
    target = pa.schema([store.schema.arrow_schema.field(name) for name in names])
    if snapshot is None or not len(asked):
        return target.empty_table()
    batches: list[pa.RecordBatch] = []
    places: list[Ints] = []
    for bucket in buckets_of(store, snapshot, asked):
        for batch, which in _merged(store, bucket, names):
            batches.append(pa.RecordBatch.from_arrays([batch.column(name) for name in names], schema=target))
            places.append(asked.first[which])
    if not batches:
        return target.empty_table()
    found, first = pa.Table.from_batches(batches, target), np.concatenate(places)
    if (first[1:] > first[:-1]).all():
        return found
    return found.take(pa.array(np.argsort(first, kind="stable")))


def _merged(store: TableStore, bucket: BucketKeys, names: tuple[str, ...]) -> Iterator[tuple[pa.RecordBatch, Ints]]:
    """Merged rows of the bucket's asked keys, and which of the asked keys each row has."""
    merging = Merging(
        store,
        bucket.partition,
        bucket.bucket,
        names,
        drop_delete=True,
        exact=False,
        deletions=bucket.deletions,
        opener=_Opener(bucket),
    )
    spec = KeySpec.of(store.schema, table=store.name)
    for section in sections_of(store, bucket.files):
        with closing(merging.section(section)) as merged:
            for batch in merged:
                where, _ = places_of(bucket.keys.keys, spec.keys(batch))
                yield batch, bucket.rows[where]


class _Opener:
    """Opens files of a bucket for the rows of asked keys alone, as `open_kv` opens them for all."""

    def __init__(self, bucket: BucketKeys) -> None:
        self._bucket = bucket

    def __call__(
        self, store: TableStore, partition: bytes, bucket: int, meta: DataFileMeta, **how: Any
    ) -> Iterator[pa.RecordBatch]:
        start, stop = self._bucket.spans[meta.file_name]
        return open_hits(store, partition, bucket, meta, self._bucket.keys.slice(start, stop), **how)


__all__ = ["lookup"]
