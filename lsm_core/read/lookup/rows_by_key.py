"""Rows by key: only rows of the lookup keys are decoded from each file, and their versions are merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array, empty_table
from lsm_core.errors import CorruptFile, DredgeError, UnsupportedFeature
from lsm_core.files import kv_read_schema
from lsm_core.files.formats import FileSource
from lsm_core.files.positions import Deleted
from lsm_core.files.reader import BATCH_ROWS, Evolution, open_source
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import key_name
from lsm_core.format.snapshot import Snapshot
from lsm_core.merge import KeySpec, NormalisedKeys, normalise_keys
from lsm_core.merge.keys import Ints
from lsm_core.metadata.indexes import file_index
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_readable, require_sorted_keys
from lsm_core.read.lookup.key_routing import (
    BucketKeys,
    LookupKeys,
    SortedKeys,
    buckets_of,
    lower_bound,
    places_of,
    upper_bound,
)
from lsm_core.read.merge_read import BucketMerge, BucketSource, sections_of
from lsm_core.read.scan import chosen_columns
from lsm_core.read.table_versions import require_same_columns, resolve
from lsm_core.types.arrow import refit

_GATHERED_ROWS: Final = 16_384
"""Number of found rows that are returned in one batch, unless the caller's batches are smaller."""
_KEPT_BOUNDS: Final = "key bounds"


def open_hits(
    store: TableStore,
    partition: bytes,
    bucket: int,
    meta: DataFileMeta,
    keys: SortedKeys,
    *,
    columns: Any = None,
    need_sequence: bool = True,
    need_kind: bool = True,
    batch_rows: int = BATCH_ROWS,
    deleted: Deleted | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a key-value file whose key is in ``keys``, in key order.

    The batches have the `_KEY_*` columns, the system columns asked for, and the value columns.

    Args:
        store: the table.
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        meta: manifest entry of the file.
        keys: the keys to look up; they may be outside the file's key range.
        columns: value columns to return, in this order; None for all.
        need_sequence: whether to return `_SEQUENCE_NUMBER`.
        need_kind: whether to return `_VALUE_KIND`.
        batch_rows: number of rows that are decoded at once.
        deleted: deleted rows of the file; None if no row is deleted.

    Raises:
        CorruptFile: the file is damaged, or its rows are not in key order.
    """
    keys = not_ruled_out(store, partition, bucket, meta, keys)
    if not len(keys):
        return
    target = kv_read_schema(store, columns, need_sequence=need_sequence, need_kind=need_kind)
    source = open_source(store, partition, bucket, meta, keep=True)
    try:
        yield from _Search.of(store, meta, source, target, keys, batch_rows, deleted).batches()
    finally:
        source.close()


def not_ruled_out(store: TableStore, partition: bytes, bucket: int, meta: DataFileMeta, keys: SortedKeys) -> SortedKeys:
    """Return ``keys`` without those that a bloom filter of the file excludes.

    Raises:
        CorruptFile: the index is damaged; the error names it.
    """
    index = file_index(store, partition, bucket, meta) if len(keys) else None
    if index is None:
        return keys
    written = {field.id: field for field in store.schema_of(meta.schema_id).fields}
    possible = np.ones(len(keys), np.bool_)
    for name in keys.columns.schema.names:
        current_field = store.schema.field(name)
        written_field = written.get(current_field.id)
        if written_field is not None and written_field.type.with_nullable(
            nullable=True
        ) == current_field.type.with_nullable(nullable=True):
            possible &= index.may_contain(written_field.name, written_field.type, keys.columns.column(name))
    return keys.filter(possible)


@dataclass(frozen=True)
class _Search:
    """Search for keys in one open file.

    Attributes:
        source: the file.
        spec: key columns and order.
        target: columns of the returned rows.
        keys: columns that are decoded for every row, to compare keys.
        other_columns: columns that are decoded for returned rows only.
        lookup_keys: the keys to look up.
        batch_rows: number of rows that are decoded at once.
        deleted: deleted rows of the file; None if no row is deleted.
        bounds: lower and upper bound of the keys of each row group; None if they are unknown.
    """

    source: FileSource
    spec: KeySpec
    target: pa.Schema
    keys: Evolution
    other_columns: Evolution
    lookup_keys: SortedKeys
    batch_rows: int
    deleted: Deleted | None
    bounds: tuple[NormalisedKeys, NormalisedKeys] | None

    @staticmethod
    def of(
        store: TableStore,
        meta: DataFileMeta,
        source: FileSource,
        target: pa.Schema,
        lookup_keys: SortedKeys,
        batch_rows: int,
        deleted: Deleted | None,
    ) -> _Search:
        """Prepare a search: split the target's columns into key columns and columns of found rows only.

        Key columns are decoded first. ``deleted`` are the rows to leave out, or None.
        """
        whole = Evolution.of(store, meta, source.schema, target, source.path)
        names = [key_name(name) for name in store.schema.trimmed_primary_keys]
        stored = {column.stored for column in whole.columns if column.field.name in names}
        parts = [
            [column for column in whole.columns if (not source.by_column or column.stored in stored) is needed]
            for needed in (True, False)
        ]
        keys, other_columns = (
            replace(whole, target=pa.schema([column.field for column in part]), columns=tuple(part)) for part in parts
        )
        spec = KeySpec.of(store.schema, table=store.name)
        bounds = group_key_bounds(store, source, whole, names)
        return _Search(source, spec, target, keys, other_columns, lookup_keys, batch_rows, deleted, bounds)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the found rows in key order; small batches of several row groups are joined."""
        lookup_keys, groups = self.lookup_keys.keys, len(self.source.group_rows)
        starts, stops = np.zeros(groups, np.int64), np.full(groups, len(lookup_keys), np.int64)
        if self.bounds is not None:
            starts, stops = lower_bound(lookup_keys, self.bounds[0]), upper_bound(lookup_keys, self.bounds[1])
        most = min(self.batch_rows, _GATHERED_ROWS)
        held: list[pa.RecordBatch] = []
        for group in np.flatnonzero(stops > starts):
            for batch in self._in_group(int(group), lookup_keys.slice(int(starts[group]), int(stops[group]))):
                if held and sum(hits.num_rows for hits in held) + batch.num_rows > most:
                    yield pa.concat_batches(held)
                    held = []
                held.append(batch)
        if held:
            yield pa.concat_batches(held)

    def _in_group(self, group: int, lookup_keys: NormalisedKeys) -> Iterator[pa.RecordBatch]:
        """Yield the found rows of one row group; columns other than keys are decoded only up to the last found row."""
        hits = list(self._key_hits(group, lookup_keys))
        if not hits:
            return
        places = np.concatenate([places for places, _ in hits])
        rows = pa.concat_batches([rows for _, rows in hits])
        if not self.other_columns.columns:
            yield self._join_columns(rows, None)
            return
        done = 0
        for values, count in self._values(group, places):
            yield self._join_columns(rows.slice(done, count), values)
            done += count

    def _key_hits(self, group: int, lookup_keys: NormalisedKeys) -> Iterator[tuple[Ints, pa.RecordBatch]]:
        """Yield (positions in the row group of rows with a lookup key, key columns of these rows)."""
        offset = int(sum(self.source.group_rows[:group]))
        last_lookup, before = lookup_keys.scalar(len(lookup_keys) - 1), None
        first = 0
        key_batches = self.source.batches(self.keys.stored, self.batch_rows, [group])
        with closing(key_batches) as stream:  # type: ignore[type-var]
            for batch in stream:
                if not batch.num_rows:
                    continue
                rows = self.keys.apply(batch, self.source.path)
                keys = self.spec.keys(rows)
                if not keys.ascending() or (before is not None and keys.scalar(0) < before):  # type: ignore[operator]
                    raise CorruptFile(self.source.path, "its rows are not in key order")
                before = keys.scalar(len(keys) - 1)
                places, _ = places_of(keys, lookup_keys)
                if len(places) and self.deleted is not None:
                    deleted_mask = self.deleted.deleted_mask(offset + first, len(keys))
                    places = places[~deleted_mask[places]]
                if len(places):
                    yield first + places, rows.take(arrow_array(places))
                first += len(keys)
                if before > last_lookup:  # type: ignore[operator]
                    return

    def _values(self, group: int, places: Ints) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield ``other_columns`` of the rows at positions ``places`` of a row group, as (batch, number of rows)."""
        rows = min(self.batch_rows, int(places[-1]) + 1)
        first = done = 0
        with closing(self.source.batches(self.other_columns.stored, rows, [group])) as stream:  # type: ignore[type-var]
            for batch in stream:
                stop = int(np.searchsorted(places, first + batch.num_rows))
                if stop > done:
                    chosen = batch.take(arrow_array(places[done:stop] - first))
                    yield self.other_columns.apply(chosen, self.source.path), stop - done
                first, done = first + batch.num_rows, stop
                if done == len(places):
                    return

    def _join_columns(self, keys: pa.RecordBatch, other_columns: pa.RecordBatch | None) -> pa.RecordBatch:
        parts = dict(zip(keys.schema.names, keys.columns, strict=True))
        if other_columns is not None:
            parts.update(zip(other_columns.schema.names, other_columns.columns, strict=True))
        return pa.RecordBatch.from_arrays([parts[name] for name in self.target.names], schema=self.target)


def group_key_bounds(
    store: TableStore, source: FileSource, evolution: Evolution, names: list[str]
) -> tuple[NormalisedKeys, NormalisedKeys] | None:
    """Return bounds of the keys of each row group; cached with the table.

    The lower bound consists of the smallest value of each key column, even if these values come from different rows. It
    is never larger than a key of the row group.

    Returns:
        The lower and upper bounds. None if the file has only one row group or does not store these statistics.
    """
    if len(source.group_rows) < 2 or store.schema.nullable_key:  # statistics do not cover nulls
        return None
    kept = store.kept.get((_KEPT_BOUNDS, source.path, store.schema.id))
    if kept is not None:
        return kept[0]  # type: ignore[no-any-return]
    sides: tuple[list[pa.Array], list[pa.Array]] = ([], [])
    try:
        for column in (column for column in evolution.columns if column.field.name in names):
            column_bounds = (
                None if column.stored is None or column.written is not None else source.group_bounds(column.stored)
            )
            for side, values in zip(sides, column_bounds or (), strict=False):
                side.append(refit(values, column.field.type))
        has_all_bounds = len(sides[0]) == len(names)
        bounds = (normalise_keys(sides[0]), normalise_keys(sides[1])) if has_all_bounds else None
    except (pa.ArrowException, DredgeError):  # bounds that cannot be decoded as keys exclude nothing
        bounds = None
    store.kept.put((_KEPT_BOUNDS, source.path, store.schema.id), (bounds,), 64 * len(source.group_rows))
    return bounds


def lookup(store: TableStore, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the merged rows of ``keys``, in the order of ``keys``; keys without a row are left out.

    The newest version is read, unless the table's options name a version.

    Args:
        store: the table.
        keys: an Arrow table or batch with exactly the primary key columns, in any order.
        columns: columns to return in addition to the primary key; None for all.

    Raises:
        UnsupportedFeature: the table has no primary key, or cannot be read.
        ColumnNotFound: a column does not exist.
        InvalidFilter: a key column is missing, repeated, of an incompatible type, or contains a null.
        SnapshotNotFound: the version that the options name does not exist.
        CorruptFile: a file is missing or damaged.
        InvalidSchema: a column was dropped and added again.
    """
    if store.options.get("scan.fallback-branch") or store.options.get("scan.primary-branch"):
        raise UnsupportedFeature(
            "lookup in a table with a fallback branch; read it with a filter on its keys", store.name
        )
    version = resolve(store)
    store, snapshot = version.store, version.snapshot
    lookup_keys = LookupKeys.of(store, keys)
    names = chosen_columns(store, columns)
    require_readable(store, snapshot, names)
    require_sorted_keys(store, "lookup of keys")
    names = (*(name for name in store.schema.primary_keys if name not in names), *names)
    target = pa.schema([store.schema.arrow_schema.field(name) for name in names])
    if snapshot is None or not len(lookup_keys):
        return empty_table(target)
    batches: list[pa.RecordBatch] = []
    places: list[Ints] = []
    for bucket in buckets_of(store, snapshot, lookup_keys):
        require_same_columns(store, {file.schema_id for file in bucket.files}, names)
        for batch, rows_of_keys in _merge_bucket(store, bucket, names):
            batches.append(pa.RecordBatch.from_arrays([batch.column(name) for name in names], schema=target))
            places.append(lookup_keys.first_rows[rows_of_keys])
    if not batches:
        return empty_table(target)
    rows, first_rows = pa.Table.from_batches(batches, target), np.concatenate(places)
    if (first_rows[1:] > first_rows[:-1]).all():
        return rows
    return rows.take(arrow_array(np.argsort(first_rows, kind="stable")))


def places_of_keys(
    store: TableStore,
    snapshot: Snapshot | None,
    keys: pa.Table,
    newer_than_ms: int | None = None,
    pending: pa.Table | None = None,
) -> Iterator[tuple[bytes, int, Ints]]:
    """Find the keys that have a row at ``snapshot`` (level 0 included), and the buckets of these rows.

    Args:
        store: the table.
        snapshot: the version; None to search only the ``pending`` files.
        keys: distinct keys: a table with exactly the primary key columns, in any order.
        newer_than_ms: skip buckets whose files are all older than this epoch ms (`cross-partition-upsert.index-ttl`);
            None to skip no bucket.
        pending: entries (`ENTRY_SCHEMA`) of files that are treated as committed; None for none.

    Yields:
        Partition (BinaryRow bytes), bucket, and the row numbers in ``keys`` of keys that have a row in this bucket.

    Raises:
        UnsupportedFeature: the table has no primary key, or cannot be read.
        InvalidFilter: a key column is missing, repeated, of an incompatible type, or contains a null.
        CorruptFile: a file is missing or damaged.
    """
    lookup_keys, names = LookupKeys.of(store, keys), store.schema.trimmed_primary_keys
    if not len(lookup_keys):
        return
    for bucket in buckets_of(
        store, snapshot, lookup_keys, everything=True, newer_than_ms=newer_than_ms, pending=pending
    ):
        for _, which in _merge_bucket(store, bucket, names):
            yield bucket.partition, bucket.bucket, lookup_keys.first_rows[which]


def _merge_bucket(
    store: TableStore, bucket: BucketKeys, names: tuple[str, ...]
) -> Iterator[tuple[pa.RecordBatch, Ints]]:
    """Yield batches of merged rows of the bucket's keys, and for each row the position of its key in the lookup."""

    def open_file(
        store: TableStore, partition: bytes, number: int, meta: DataFileMeta, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of file ``meta`` in bucket ``number`` that have a lookup key, in key order."""
        start, stop = bucket.spans[meta.file_name]
        return open_hits(store, partition, number, meta, bucket.keys.slice(start, stop), **options)

    source = BucketSource(store, bucket.partition, bucket.bucket, deletions=bucket.deletions, opener=open_file)
    merge = BucketMerge(source, names, drop_delete=True, exact=False)
    spec = KeySpec.of(store.schema, table=store.name)
    for section in sections_of(store, bucket.files):
        with closing(merge.section(section)) as merged:
            for batch in merged:
                key_rows, _ = places_of(bucket.keys.keys, spec.keys(batch))
                yield batch, bucket.rows[key_rows]
