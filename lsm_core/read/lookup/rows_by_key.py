"""Rows by key: of every file only those of the wanted keys are decoded, and the versions found are merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.files import kv_read_schema
from lsm_core.files.append_reader import BATCH_ROWS, open_source
from lsm_core.files.evolution import Evolution
from lsm_core.files.formats import FileSource
from lsm_core.files.positions import Deleted
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.kv_layout import key_name
from lsm_core.merge import KeySpec, NormalisedKeys, normalise_keys
from lsm_core.merge.comparable import Ints
from lsm_core.metadata.indexes import file_index
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_readable
from lsm_core.read.inputs import sections_of
from lsm_core.read.lookup.key_routing import (
    BucketKeys,
    KeyRuns,
    asked_keys,
    buckets_of,
    lower_bound,
    places_of,
    upper_bound,
)
from lsm_core.read.merge_read import Merging
from lsm_core.read.scan import chosen_columns
from lsm_core.read.table_versions import resolve
from lsm_core.types.nesting import refit

_GATHERED_ROWS: Final = 16_384
"""Hits that go out together, where the caller's batches are not smaller."""
_KEPT_BOUNDS: Final = "key bounds"


def open_hits(
    store: TableStore,
    partition: bytes,
    bucket: int,
    meta: DataFileMeta,
    asked: KeyRuns,
    *,
    columns: Any = None,
    need_sequence: bool = True,
    need_kind: bool = True,
    batch_rows: int = BATCH_ROWS,
    deleted: Deleted | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a key-value file whose keys are ``asked``: as :func:`lsm_core.files.open_kv` gives them, with its errors.

    ``asked`` may hold keys beyond the file's own. Raises CorruptFile also where rows are not in key order.
    """
    asked = not_ruled_out(store, partition, bucket, meta, asked)
    if not len(asked):
        return
    target = kv_read_schema(store, columns, need_sequence=need_sequence, need_kind=need_kind)
    source = open_source(store, partition, bucket, meta, keep=True)
    try:
        yield from _Search.of(store, meta, source, target, asked, batch_rows, deleted).batches()
    finally:
        source.close()


def not_ruled_out(store: TableStore, partition: bytes, bucket: int, meta: DataFileMeta, asked: KeyRuns) -> KeyRuns:
    """The asked keys without those that a bloom filter of the file says it never held. Raises CorruptFile naming the index."""
    index = file_index(store, partition, bucket, meta) if len(asked) else None
    if index is None:
        return asked
    written = {field.id: field for field in store.schema_of(meta.schema_id).fields}
    passed = np.ones(len(asked), np.bool_)
    for name in asked.columns.schema.names:
        now = store.schema.field(name)
        then = written.get(now.id)
        if then is not None and then.type.with_nullable(nullable=True) == now.type.with_nullable(nullable=True):
            passed &= index.may_contain(then.name, then.type, asked.columns.column(name))
    return asked.filter(passed)


@dataclass(frozen=True)
class _Search:
    """One open file being searched. ``keys``: its key columns, and what they serve; ``rest``: the columns read for hits only."""

    source: FileSource
    spec: KeySpec
    target: pa.Schema
    keys: Evolution
    rest: Evolution
    asked: KeyRuns
    batch_rows: int
    deleted: Deleted | None
    bounds: tuple[NormalisedKeys, NormalisedKeys] | None

    @staticmethod
    def of(
        store: TableStore,
        meta: DataFileMeta,
        source: FileSource,
        target: pa.Schema,
        asked: KeyRuns,
        batch_rows: int,
        deleted: Deleted | None,
    ) -> _Search:
        """Find out which stored columns the keys need and which only hits do."""
        whole = Evolution.of(store, meta, source.schema, target, source.path)
        names = [key_name(name) for name in store.schema.trimmed_primary_keys]
        stored = {column.stored for column in whole.columns if column.field.name in names}
        early = [not source.by_column or column.stored in stored for column in whole.columns]
        keys, rest = (_part(whole, [is_early is side for is_early in early]) for side in (True, False))
        spec = KeySpec.of(store.schema, table=store.name)
        bounds = _group_bounds(store, source, whole, names)
        return _Search(source, spec, target, keys, rest, asked, batch_rows, deleted, bounds)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Hits in key order, gathered over row groups."""
        most = min(self.batch_rows, _GATHERED_ROWS)
        held: list[pa.RecordBatch] = []
        for group, start, stop in self._groups():
            for batch in self._in_group(group, self.asked.keys.slice(start, stop)):
                if held and sum(one.num_rows for one in held) + batch.num_rows > most:
                    yield pa.concat_batches(held)
                    held = []
                held.append(batch)
        if held:
            yield pa.concat_batches(held)

    def _groups(self) -> list[tuple[int, int, int]]:
        """Row groups that can hold asked keys, and the range of these."""
        if self.bounds is None:
            return [(group, 0, len(self.asked)) for group in range(len(self.source.group_rows))]
        starts = lower_bound(self.asked.keys, self.bounds[0])
        stops = upper_bound(self.asked.keys, self.bounds[1])
        return [(int(at), int(starts[at]), int(stops[at])) for at in np.flatnonzero(stops > starts)]

    def _in_group(self, group: int, asked: NormalisedKeys) -> Iterator[pa.RecordBatch]:
        found = list(self._key_hits(group, asked))
        if not found:
            return
        places = np.concatenate([places for places, _ in found])
        rows = pa.concat_batches([rows for _, rows in found])
        if not self.rest.columns:
            yield self._joined(rows, None)
            return
        done = 0
        for values, count in self._values(group, places):
            yield self._joined(rows.slice(done, count), values)
            done += count

    def _key_hits(self, group: int, asked: NormalisedKeys) -> Iterator[tuple[Ints, pa.RecordBatch]]:
        """Positions in the row group that have asked keys, and their key columns."""
        offset = int(sum(self.source.group_rows[:group]))
        last_asked, before = asked.scalar(len(asked) - 1), None
        first = 0
        with closing(self.source.batches(self.keys.stored, self.batch_rows, [group])) as stream:  # type: ignore[type-var]
            for batch in stream:
                if not batch.num_rows:
                    continue
                rows = self.keys.apply(batch, self.source.path)
                keys = self.spec.keys(rows)
                if not keys.ascending() or (before is not None and keys.scalar(0) < before):  # type: ignore[operator]
                    raise CorruptFile(self.source.path, "its rows are not in key order")
                before = keys.scalar(len(keys) - 1)
                places, _ = places_of(keys, asked)
                if len(places) and self.deleted is not None:
                    gone = self.deleted.deleted_mask(offset + first, len(keys))
                    places = places[~gone[places]]
                if len(places):
                    yield first + places, rows.take(pa.array(places))
                first += len(keys)
                if before > last_asked:  # type: ignore[operator]
                    return

    def _values(self, group: int, places: Ints) -> Iterator[tuple[pa.RecordBatch, int]]:
        """The other columns of the rows at ``places`` of a row group, and of how many rows."""
        rows = min(self.batch_rows, int(places[-1]) + 1)
        first = done = 0
        with closing(self.source.batches(self.rest.stored, rows, [group])) as stream:  # type: ignore[type-var]
            for batch in stream:
                stop = int(np.searchsorted(places, first + batch.num_rows))
                if stop > done:
                    chosen = batch.take(pa.array(places[done:stop] - first))
                    yield self.rest.apply(chosen, self.source.path), stop - done
                first, done = first + batch.num_rows, stop
                if done == len(places):
                    return

    def _joined(self, keys: pa.RecordBatch, rest: pa.RecordBatch | None) -> pa.RecordBatch:
        parts = dict(zip(keys.schema.names, keys.columns, strict=True))
        if rest is not None:
            parts.update(zip(rest.schema.names, rest.columns, strict=True))
        return pa.RecordBatch.from_arrays([parts[name] for name in self.target.names], schema=self.target)


def _part(whole: Evolution, chosen: list[bool]) -> Evolution:
    columns = tuple(column for column, kept in zip(whole.columns, chosen, strict=True) if kept)
    return replace(whole, target=pa.schema([column.field for column in columns]), columns=columns)


def _group_bounds(
    store: TableStore, source: FileSource, evolution: Evolution, names: list[str]
) -> tuple[NormalisedKeys, NormalisedKeys] | None:
    """Between which keys each row group lies, None where the file does not tell; kept with the table.

    The smallest values of all key columns together are no larger than any key of the group, whatever row they come from.
    """
    if len(source.group_rows) < 2:
        return None
    kept = store.kept.get((_KEPT_BOUNDS, source.path, store.schema.id))
    if kept is not None:
        return kept[0]  # type: ignore[no-any-return]
    sides: tuple[list[pa.Array], list[pa.Array]] = ([], [])
    try:
        for column in (column for column in evolution.columns if column.field.name in names):
            found = None if column.stored is None or column.written is not None else source.group_bounds(column.stored)
            for side, values in zip(sides, found or (), strict=False):
                side.append(refit(values, column.field.type))
        known = len(sides[0]) == len(names)
        bounds = (normalise_keys(sides[0]), normalise_keys(sides[1])) if known else None
    except (pa.ArrowException, DredgeError):  # bounds that are no keys prove nothing
        bounds = None
    store.kept.put((_KEPT_BOUNDS, source.path, store.schema.id), (bounds,), 64 * len(source.group_rows))
    return bounds


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


__all__ = [
    "lookup",
    "not_ruled_out",
    "open_hits",
]
