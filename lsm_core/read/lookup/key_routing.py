"""Keys that rows are looked up by: in order, each once, and the buckets and files that may hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, empty_table, numpy_array, one_array, slice_places
from lsm_core.errors import ColumnNotFound, InvalidFilter, UnsupportedFeature
from lsm_core.format.binary_row import EMPTY_ROW, decode_rows, encode_rows
from lsm_core.format.file_meta import ENTRY_SCHEMA, DataFileMeta, table_to_entries
from lsm_core.format.hashing import bucket_of
from lsm_core.format.snapshot import Snapshot
from lsm_core.merge import ByteKeys, IntKeys, NormalisedKeys, normalise_keys
from lsm_core.merge.comparable import Ints, Mask, flat
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors, require_in_place
from lsm_core.metadata.manifests import live_entries
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import bucket_groups
from lsm_core.read.compacted import compacted_only
from lsm_core.read.scan import visible
from lsm_core.types.checks import one_nan

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


def _bound(keys: NormalisedKeys, wanted: NormalisedKeys, *, through: bool) -> Ints:
    if isinstance(keys, IntKeys) and isinstance(wanted, IntKeys):
        return np.asarray(np.searchsorted(keys.values, wanted.values, "right" if through else "left"), np.int64)
    assert isinstance(keys, ByteKeys)
    assert isinstance(wanted, ByteKeys)
    # A binary search of every wanted key at once: log2(keys) steps of one comparison each.
    low = np.zeros(len(wanted), np.int64)
    high = np.full(len(wanted), len(keys), np.int64)
    active = np.flatnonzero(low < high)
    while len(active):
        middle = (low[active] + high[active]) >> 1
        order = _compared(keys, middle, wanted, active)
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
class LookupKeys:
    """The distinct primary keys of one lookup, a row each, in key order.

    ``columns``: the primary key's, in the table's types; ``first_rows``: the row of the caller's table where each key stands first.
    """

    store: TableStore
    columns: dict[str, pa.Array]
    first_rows: Ints

    def __len__(self) -> int:
        return len(self.first_rows)

    @staticmethod
    def of(store: TableStore, keys: Any) -> LookupKeys:
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
        names, wanted = keys.schema.names, ", ".join(schema.primary_keys)
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
        kinds = schema.arrow_schema
        columns = {
            name: _typed(flat(keys.column(name)), name, kinds.field(name).type, table) for name in schema.primary_keys
        }
        if not keys.num_rows:
            return LookupKeys(store, columns, np.zeros(0, np.int64))
        order, same = normalise_keys(list(columns.values())).order(sorted_runs=False)
        # Rows of equal keys come in the order in which they were given.
        first_rows = order[np.concatenate((np.ones(1, np.bool_), ~same))]
        places = arrow_array(first_rows)
        return LookupKeys(store, {name: column.take(places) for name, column in columns.items()}, first_rows)

    def partitions(self) -> tuple[Ints, pa.Array] | None:
        """A number per key and the serialised partition of every number; None where keys do not tell the partition."""
        schema = self.store.schema
        if not schema.partition_keys:
            return np.zeros(len(self), np.int64), arrow_array([EMPTY_ROW], pa.binary())
        if not set(schema.partition_keys) <= set(schema.primary_keys):
            return None
        rows = encode_rows([self.columns[name] for name in schema.partition_keys], schema.partition_types)
        encoded = pc.dictionary_encode(rows)
        return numpy_array(encoded.indices).astype(np.int64), encoded.dictionary

    def sorted_keys(self, rows: Ints) -> tuple[SortedKeys, Ints]:
        """The keys at ``rows``, all of one partition, in the order of data files (by the trimmed primary key); and ``rows`` in that order."""
        names, at = self.store.schema.trimmed_primary_keys, arrow_array(rows)
        columns = pa.RecordBatch.from_arrays([self.columns[name].take(at) for name in names], names=list(names))
        keys = normalise_keys(columns.columns)
        if names == self.store.schema.primary_keys:  # the order they are in
            return SortedKeys(keys, columns), rows
        order, _ = keys.order(sorted_runs=False)
        return SortedKeys(keys.take(order), columns.take(arrow_array(order))), rows[order]


def _typed(column: pa.Array, name: str, kind: pa.DataType, table: str) -> pa.Array:
    """The key column as the table's type ``kind``; raises InvalidFilter where that would change a value, and for nulls."""
    if column.null_count:
        raise InvalidFilter(f"table {table}: key column '{name}' holds a null")
    if column.type.equals(kind):
        return one_nan(column) if pa.types.is_floating(kind) else column
    if pa.types.is_null(column.type) and not len(column):
        return arrow_array([], kind)
    whole_to_decimal = pa.types.is_decimal(kind) and pa.types.is_integer(column.type)
    alike = any(
        any(test(kind) for test in family) and any(test(column.type) for test in family) for family in _FAMILIES
    )
    wrong = f"table {table}: key column '{name}' is {kind}, not {column.type}"
    if not (alike or whole_to_decimal):
        raise InvalidFilter(wrong)
    if pa.types.is_timestamp(kind) and (kind.tz is None) is not (column.type.tz is None):
        raise InvalidFilter(wrong)
    try:
        cast = (column.cast(_WIDE) if whole_to_decimal else column).cast(kind)
    except pa.ArrowException as error:
        raise InvalidFilter(f"{wrong}: {error}") from error
    if pa.types.is_floating(kind):  # Arrow rounds to narrower floating point types without a word
        before, after = (numpy_array(side).astype(np.float64) for side in (column, cast))
        if not ((before == after) | (np.isnan(before) & np.isnan(after))).all():
            raise InvalidFilter(f"{wrong}: a value that it cannot hold exactly")
        return one_nan(cast)
    return cast


_FAMILIES: Final[tuple[tuple[Callable[[pa.DataType], bool], ...], ...]] = (
    (pa.types.is_integer,),
    (pa.types.is_floating,),
    (pa.types.is_decimal,),
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
    (pa.types.is_timestamp,),
    (pa.types.is_date,),
    (pa.types.is_time,),
    (pa.types.is_boolean,),
)
"""Types whose values are of one kind: keys of any of them are cast to the table's."""
_WIDE: Final = pa.decimal256(76, 0)


@dataclass(frozen=True, eq=False)
class SortedKeys:
    """Keys of one bucket, ascending and distinct, with their columns: what files are searched for.

    ``columns``: the trimmed primary key's, in the table's types, row by row as ``keys``.
    """

    keys: NormalisedKeys
    columns: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, start: int, stop: int) -> SortedKeys:
        """Keys ``start`` to before ``stop``, without copying."""
        return SortedKeys(self.keys.slice(start, stop), self.columns.slice(start, stop - start))

    def filter(self, mask: Mask) -> SortedKeys:
        """The keys where ``mask`` is true."""
        rows = np.flatnonzero(mask)
        return (
            self if len(rows) == len(mask) else SortedKeys(self.keys.take(rows), self.columns.take(arrow_array(rows)))
        )


@dataclass(frozen=True, eq=False)
class BucketKeys:
    """The keys that can lie in one bucket, and its files that can hold some of them.

    ``rows``: which of the lookup's keys they are; ``spans``: by file name, the range of ``keys`` within the file's own.
    """

    partition: bytes
    bucket: int
    keys: SortedKeys
    rows: Ints
    files: tuple[DataFileMeta, ...]
    spans: Mapping[str, tuple[int, int]]
    deletions: Mapping[str, DeletionFile]


def buckets_of(
    store: TableStore,
    snapshot: Snapshot | None,
    keys: LookupKeys,
    *,
    everything: bool = False,
    newer_than_ms: int | None = None,
    pending: pa.Table | None = None,
) -> Iterator[BucketKeys]:
    """The buckets of ``snapshot`` that can hold ``keys``, by partition bytes and bucket. Raises CorruptFile.

    ``everything``: files that no batch reader sees yet, too. ``newer_than_ms``: buckets all of whose files are older are left out.
    ``pending``: entries (`ENTRY_SCHEMA`) of files on top, which are written and not committed; ``snapshot`` None: of these alone.
    """
    routing = _Routing(keys)
    keep = None if everything else partial(visible, store, compacted_only(store))
    entries = empty_table(ENTRY_SCHEMA)
    vectors: Mapping[tuple[bytes, int], Mapping[str, DeletionFile]] = {}
    if snapshot is not None:
        entries = live_entries(store, snapshot, partitions=routing.partitions, keep=keep)
        require_in_place(store, snapshot, entries)
        vectors = deletion_vectors(store, snapshot, routing.partitions)
    if pending is not None:
        entries = pa.concat_tables([entries, pending])
    key_types = list(store.schema.trimmed_key_types)
    for partition, bucket, _, part in bucket_groups(routing.entries(entries)):
        rows = routing.rows(partition, bucket, part)
        created = None if newer_than_ms is None else pc.max(part.column("creation_time_ms")).as_py()
        if not len(rows) or (newer_than_ms is not None and created is not None and created < newer_than_ms):
            continue
        here, rows = keys.sorted_keys(rows)
        low, high = (normalise_keys(decode_rows(part.column(name), key_types)) for name in ("min_key", "max_key"))
        starts, stops = lower_bound(here.keys, low), upper_bound(here.keys, high)
        held = np.flatnonzero(stops > starts)
        if not len(held):
            continue
        files = tuple(entry.file for entry in table_to_entries(part.take(arrow_array(held))))
        spans = {file.file_name: (int(starts[at]), int(stops[at])) for file, at in zip(files, held, strict=True)}
        yield BucketKeys(partition, bucket, here, rows, files, spans, vectors.get((partition, bucket), {}))


class _Routing:
    """Which partition and bucket each key of a lookup belongs to, for every number of buckets that files were written with.

    ``partitions``: the serialised partitions of the keys, None where keys do not tell them.
    """

    def __init__(self, keys: LookupKeys) -> None:
        self._keys = keys
        known = keys.partitions()
        self._codes = None if known is None else known[0]
        self.partitions: list[bytes] | None = None if known is None else known[1].to_pylist()
        self._numbers = {partition: number for number, partition in enumerate(self.partitions or ())}
        self._buckets: dict[int, Ints] = {}

    def _bucket_of(self, total: int) -> Ints | None:
        """A bucket per key among ``total``; None where keys do not tell it (dynamic buckets)."""
        if total <= 0:
            return None
        if total not in self._buckets:
            store = self._keys.store
            columns = [self._keys.columns[name] for name in store.schema.bucket_keys]
            function = store.options.bucket_function
            self._buckets[total] = bucket_of(columns, store.schema.bucket_key_types, total, function).astype(np.int64)
        return self._buckets[total]

    def entries(self, entries: pa.Table) -> pa.Table:
        """Manifest entries (`ENTRY_SCHEMA`) of the buckets that some key belongs to."""
        totals = numpy_array(entries.column("total_buckets"))
        buckets = numpy_array(entries.column("bucket")).astype(np.int64)
        if self._codes is None:
            of_entry = np.zeros(entries.num_rows, np.int64)
        else:
            encoded = pc.dictionary_encode(one_array(entries.column("partition")))
            known = np.array([self._numbers.get(one, -1) for one in encoded.dictionary.to_pylist()], np.int64)
            of_entry = known[numpy_array(encoded.indices)] if entries.num_rows else np.zeros(0, np.int64)
        kept = np.zeros(entries.num_rows, np.bool_)
        for total in np.unique(totals):
            route = self._bucket_of(int(total))
            if route is None:
                kept |= totals == total
                continue
            step = int(total)
            pairs = np.unique((0 if self._codes is None else self._codes) * step + route)
            kept |= (totals == total) & np.isin(of_entry * step + buckets, pairs)
        return entries if kept.all() else entries.filter(arrow_array(kept))

    def rows(self, partition: bytes, bucket: int, entries: pa.Table) -> Ints:
        """Which keys can lie in the bucket, given its ``entries``."""
        inside = np.zeros(len(self._keys), np.bool_)
        for total in pc.unique(entries.column("total_buckets")).to_pylist():
            route = self._bucket_of(total)
            inside |= True if route is None else route == bucket
        if self._codes is not None:
            inside &= self._codes == self._numbers[partition]
        else:
            # A key that holds some of the partition columns lies in partitions of these values
            schema = self._keys.store.schema
            values = decode_rows(pa.array([partition], pa.binary()), list(schema.partition_types))
            for name, kind, value in zip(schema.partition_keys, schema.partition_types, values, strict=True):
                if name in schema.primary_keys:
                    wanted = encode_rows([value], [kind])[0]
                    inside &= numpy_array(pc.equal(encode_rows([self._keys.columns[name]], [kind]), wanted))
        return np.flatnonzero(inside)


__all__ = [
    "BucketKeys",
    "LookupKeys",
    "SortedKeys",
    "buckets_of",
    "lower_bound",
    "places_of",
    "upper_bound",
]
