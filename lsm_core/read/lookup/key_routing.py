"""Keys that rows are looked up by: in order, each once, and the buckets and files that may hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array, slice_places
from lsm_core.errors import ColumnNotFound, InvalidFilter, UnsupportedFeature
from lsm_core.format.binary_row import EMPTY_ROW, decode_rows, encode_rows
from lsm_core.format.file_meta import DataFileMeta, table_to_entries
from lsm_core.format.hashing import bucket_of
from lsm_core.format.snapshot import Snapshot
from lsm_core.merge import ByteKeys, IntKeys, NormalisedKeys, normalise_keys
from lsm_core.merge.comparable import Ints, Mask, flat
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors
from lsm_core.metadata.manifests import live_entries
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import bucket_groups
from lsm_core.read.scan import compacted_only, visible

_WORD = 8


def lower_bound(keys: NormalisedKeys, wanted: NormalisedKeys) -> Ints:
    """For each of ``wanted`` the number of ``keys`` (ascending) below it. Both are of one kind (same column types)."""
    return _bound(keys, wanted, through=False)


def upper_bound(keys: NormalisedKeys, wanted: NormalisedKeys) -> Ints:
    """As :func:`lower_bound`, but the number of ``keys`` not above it."""
    return _bound(keys, wanted, through=True)


def places_of(keys: NormalisedKeys, wanted: NormalisedKeys) -> tuple[Ints, Ints]:
    """Rows of ``keys`` (ascending, may repeat) that are among ``wanted`` (ascending, distinct), and which one each is.

    Both outcomes ascend: (row of ``keys``, row of ``wanted``) per hit.
    """
    if not len(keys) or not len(wanted):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts = lower_bound(keys, wanted)
    counts = upper_bound(keys, wanted) - starts
    which = np.flatnonzero(counts)
    if not len(which):
        return np.zeros(0, np.int64), which
    starts, counts = starts[which], counts[which]
    if int(counts.max()) == 1:
        return starts, which
    return slice_places(starts, counts), np.repeat(which, counts)


def take(keys: NormalisedKeys, rows: Ints) -> NormalisedKeys:
    """The keys at ``rows``."""
    if isinstance(keys, IntKeys):
        return IntKeys(keys.values[rows])
    return ByteKeys(keys.data, keys.starts[rows], keys.lengths[rows])


def _bound(keys: NormalisedKeys, wanted: NormalisedKeys, *, through: bool) -> Ints:
    if isinstance(keys, IntKeys) and isinstance(wanted, IntKeys):
        return np.asarray(np.searchsorted(keys.values, wanted.values, "right" if through else "left"), np.int64)
    assert isinstance(keys, ByteKeys)
    assert isinstance(wanted, ByteKeys)
    return _halved(keys, wanted, np.arange(len(wanted)), through=through)


def _halved(keys: ByteKeys, wanted: ByteKeys, rows: Ints, *, through: bool) -> Ints:
    """Binary search of every row of ``wanted`` at once: log2(keys) steps of one comparison each."""
    low = np.zeros(len(rows), np.int64)
    high = np.full(len(rows), len(keys), np.int64)
    active = np.flatnonzero(low < high)
    while len(active):
        middle = (low[active] + high[active]) >> 1
        order = _compared(keys, middle, wanted, rows[active])
        up = order <= 0 if through else order < 0
        low[active] = np.where(up, middle + 1, low[active])
        high[active] = np.where(up, high[active], middle)
        active = active[low[active] < high[active]]
    return low


def _compared(left: ByteKeys, left_rows: Ints, right: ByteKeys, right_rows: Ints) -> Ints:
    """-1, 0 or 1 per pair of keys, comparing eight bytes at a time as long as they are equal."""
    lengths = left.lengths[left_rows], right.lengths[right_rows]
    order = np.sign(lengths[0] - lengths[1])
    shorter = int(np.minimum(*lengths).max(initial=0))
    tied = np.arange(len(left_rows))
    decided = np.zeros(len(left_rows), np.int64)
    position = 0
    while len(tied) and position < shorter:
        mine, theirs = left.words(position, left_rows[tied]), right.words(position, right_rows[tied])
        decided[tied] = (mine > theirs).astype(np.int64) - (mine < theirs)
        tied = tied[mine == theirs]
        position += _WORD
    decided[tied] = order[tied]
    return decided


@dataclass(frozen=True, eq=False)
class Asked:
    """Distinct keys, a row each: ``columns`` are the primary key's in the table's types, ``first`` where each was given first."""

    store: TableStore
    columns: dict[str, pa.Array]
    first: Ints

    def __len__(self) -> int:
        return len(self.first)

    def partitions(self) -> tuple[Ints, pa.Array] | None:
        """A number per key and the serialised partition of every number; None where keys do not tell the partition."""
        schema = self.store.schema
        if not schema.partition_keys:
            return np.zeros(len(self), np.int64), pa.array([EMPTY_ROW], pa.binary())
        if not set(schema.partition_keys) <= set(schema.primary_keys):
            return None
        rows = encode_rows([self.columns[name] for name in schema.partition_keys], schema.partition_types)
        encoded = pc.dictionary_encode(rows)
        return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary

    def of_rows(self, rows: Ints, names: tuple[str, ...]) -> pa.RecordBatch:
        """Key columns ``names`` of some of the keys."""
        at = pa.array(rows)
        return pa.RecordBatch.from_arrays([self.columns[name].take(at) for name in names], names=list(names))


def asked_keys(store: TableStore, keys: Any) -> Asked:
    """Check ``keys``: an Arrow table or batch with exactly the primary key's columns, in any order.

    Values of another width or unit count where the table's type holds them exactly. Raises UnsupportedFeature for a table
    without a primary key, ColumnNotFound for an unknown column, InvalidFilter naming table and column for one that is
    missing, is no key column or given twice, has another kind of values, or holds a null.
    """
    schema, table = store.schema, store.name
    if not schema.primary_keys:
        raise UnsupportedFeature("looking up rows of a table without a primary key", table)
    if not isinstance(keys, (pa.Table, pa.RecordBatch)):
        raise InvalidFilter(f"table {table}: the keys to look up are an Arrow table, not {type(keys).__name__}")
    _check_names(store, keys.schema.names)
    kinds = schema.arrow_schema
    columns = {
        name: _typed(flat(keys.column(name)), name, kinds.field(name).type, table) for name in schema.primary_keys
    }
    order, same = normalise_keys(list(columns.values())).order(sorted_runs=False) if keys.num_rows else _no_rows()
    # Rows of equal keys come in the order in which they were given.
    first = order[np.concatenate((np.ones(min(len(order), 1), np.bool_), ~same))]
    rows = pa.array(first)
    return Asked(store, {name: column.take(rows) for name, column in columns.items()}, first)


def _no_rows() -> tuple[Ints, Any]:
    return np.zeros(0, np.int64), np.zeros(0, np.bool_)


def _check_names(store: TableStore, names: list[str]) -> None:
    schema, table = store.schema, store.name
    wanted = ", ".join(schema.primary_keys)
    for name in names:
        if not schema.has_field(name):
            raise ColumnNotFound(table, name, schema.primary_keys)
        if name not in schema.primary_keys:
            raise InvalidFilter(f"table {table}: column '{name}' is no part of the primary key ({wanted})")
    if len(set(names)) != len(names):
        raise InvalidFilter(f"table {table}: a key column is given twice: {', '.join(names)}")
    missing = [name for name in schema.primary_keys if name not in names]
    if missing:
        raise InvalidFilter(f"table {table}: keys without column '{missing[0]}'; a key has {wanted}")


def _typed(column: pa.Array, name: str, kind: pa.DataType, table: str) -> pa.Array:
    if column.null_count:
        raise InvalidFilter(f"table {table}: key column '{name}' holds a null")
    if column.type.equals(kind):
        return column
    family = next((test for test in _FAMILIES if test(kind)), None)
    wrong = f"table {table}: key column '{name}' is {kind}, not {column.type}"
    if pa.types.is_null(column.type) and not len(column):
        return pa.array([], kind)
    if family is None or not (family(column.type) or (_is_decimal(kind) and pa.types.is_integer(column.type))):
        raise InvalidFilter(wrong)
    if pa.types.is_timestamp(kind) and (kind.tz is None) is not (column.type.tz is None):
        raise InvalidFilter(wrong)
    try:
        wide = column.cast(_WIDE) if _is_decimal(kind) and pa.types.is_integer(column.type) else column
        cast = wide.cast(kind)
    except pa.ArrowException as error:
        raise InvalidFilter(f"{wrong}: {error}") from error
    if pa.types.is_floating(kind) and not _same_floats(column, cast):
        raise InvalidFilter(f"{wrong}: a value that it cannot hold exactly")
    return cast


def _same_floats(given: pa.Array, cast: pa.Array) -> bool:
    """Arrow rounds to narrower floating point types without a word."""
    before, after = (side.to_numpy(zero_copy_only=False).astype(np.float64) for side in (given, cast))
    return bool(((before == after) | (np.isnan(before) & np.isnan(after))).all())


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


_FAMILIES: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_integer,
    pa.types.is_floating,
    _is_decimal,
    _is_text,
    _is_bytes,
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_boolean,
)
_WIDE: Final = pa.decimal256(76, 0)


@dataclass(frozen=True, eq=False)
class KeyRuns:
    """Keys of one bucket, ascending and distinct, with their columns: what files are searched for.

    ``columns``: the trimmed primary key's, in the table's types, row by row as ``keys``.
    """

    keys: NormalisedKeys
    columns: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, start: int, stop: int) -> KeyRuns:
        """Keys ``start`` to before ``stop``, without copying."""
        return KeyRuns(self.keys.slice(start, stop), self.columns.slice(start, stop - start))

    def filter(self, mask: Mask) -> KeyRuns:
        """The keys where ``mask`` is true."""
        rows = np.flatnonzero(mask)
        return self if len(rows) == len(mask) else KeyRuns(take(self.keys, rows), self.columns.take(pa.array(rows)))


@dataclass(frozen=True, eq=False)
class BucketKeys:
    """The keys that can lie in one bucket, and its files that can hold some of them.

    ``rows``: which of the asked keys they are; ``spans``: by file name, the range of ``keys`` within the file's own.
    """

    partition: bytes
    bucket: int
    keys: KeyRuns
    rows: Ints
    files: tuple[DataFileMeta, ...]
    spans: Mapping[str, tuple[int, int]]
    deletions: Mapping[str, DeletionFile]


def buckets_of(store: TableStore, snapshot: Snapshot, asked: Asked) -> Iterator[BucketKeys]:
    """The buckets of ``snapshot`` that can hold asked keys, by partition bytes and bucket. Raises CorruptFile."""
    found = asked.partitions()
    codes, partitions = found if found is not None else (None, None)
    wanted = None if partitions is None else partitions.to_pylist()
    numbers = {} if wanted is None else {partition: number for number, partition in enumerate(wanted)}
    entries = live_entries(
        store, snapshot, partitions=wanted, keep=partial(visible, store, compacted_only(store)), buckets=None
    )
    vectors = deletion_vectors(store, snapshot, wanted)
    routes = _Routes(asked)
    for partition, bucket, _, part in bucket_groups(_routed(entries, routes, codes, numbers)):
        inside = routes.into(bucket, part)
        if codes is not None:
            inside &= codes == numbers[partition]
        rows = np.flatnonzero(inside)
        if len(rows):
            yield from _bucket(store, (partition, bucket), part, asked, rows, vectors.get((partition, bucket), {}))


class _Routes:
    """Which bucket each asked key belongs to, for every number of buckets that files were written with."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._known: dict[int, Ints] = {}

    def of(self, total: int) -> Ints | None:
        """A bucket per key; None where keys do not tell it (dynamic buckets)."""
        if total <= 0:
            return None
        if total not in self._known:
            store = self._asked.store
            columns = [self._asked.columns[name] for name in store.schema.bucket_keys]
            function = store.options.bucket_function
            self._known[total] = bucket_of(columns, store.schema.bucket_key_types, total, function).astype(np.int64)
        return self._known[total]

    def into(self, bucket: int, entries: pa.Table) -> Mask:
        """The keys that can lie in ``bucket``, given its ``entries``."""
        inside = np.zeros(len(self._asked), np.bool_)
        for total in pc.unique(entries.column("total_buckets")).to_pylist():
            route = self.of(total)
            inside |= True if route is None else route == bucket
        return inside


def _routed(entries: pa.Table, routes: _Routes, codes: Ints | None, numbers: Mapping[bytes, int]) -> pa.Table:
    """Entries of the buckets that some asked key belongs to."""
    totals = entries.column("total_buckets").to_numpy()
    buckets = entries.column("bucket").to_numpy().astype(np.int64)
    if codes is None:
        of_entry = np.zeros(entries.num_rows, np.int64)
    else:
        encoded = pc.dictionary_encode(one_array(entries.column("partition")))
        known = np.array([numbers.get(one, -1) for one in encoded.dictionary.to_pylist()], np.int64)
        of_entry = known[encoded.indices.to_numpy()] if entries.num_rows else np.zeros(0, np.int64)
    kept = np.zeros(entries.num_rows, np.bool_)
    for total in np.unique(totals):
        route = routes.of(int(total))
        if route is None:
            kept |= totals == total
            continue
        step = int(total)
        pairs = np.unique((0 if codes is None else codes) * step + route)
        kept |= (totals == total) & np.isin(of_entry * step + buckets, pairs)
    return entries if kept.all() else entries.filter(pa.array(kept))


def _bucket(
    store: TableStore,
    place: tuple[bytes, int],
    entries: pa.Table,
    asked: Asked,
    rows: Ints,
    deletions: Mapping[str, DeletionFile],
) -> Iterator[BucketKeys]:
    keys, rows = ordered_keys(asked, rows)
    ends = [
        normalise_keys(decode_rows(entries.column(name), list(store.schema.trimmed_key_types)))
        for name in ("min_key", "max_key")
    ]
    starts, stops = lower_bound(keys.keys, ends[0]), upper_bound(keys.keys, ends[1])
    held = np.flatnonzero(stops > starts)
    if not len(held):
        return
    files = tuple(entry.file for entry in table_to_entries(entries.take(pa.array(held))))
    spans = {file.file_name: (int(starts[at]), int(stops[at])) for file, at in zip(files, held, strict=True)}
    yield BucketKeys(*place, keys, rows, files, spans, deletions)


def ordered_keys(asked: Asked, rows: Ints) -> tuple[KeyRuns, Ints]:
    """The asked keys ``rows`` in the order of files, and ``rows`` in that order."""
    columns = asked.of_rows(rows, asked.store.schema.trimmed_primary_keys)
    keys = normalise_keys(columns.columns)
    order, _ = keys.order(sorted_runs=False)
    return KeyRuns(take(keys, order), columns.take(pa.array(order))), rows[order]


__all__ = [
    "Asked",
    "BucketKeys",
    "KeyRuns",
    "asked_keys",
    "buckets_of",
    "lower_bound",
    "ordered_keys",
    "places_of",
    "take",
    "upper_bound",
]
