"""Distinct, sorted keys of a lookup, and the buckets and files that may contain these keys."""

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
from lsm_core.format.hashing import bucket_of
from lsm_core.format.manifest import ENTRY_SCHEMA, DataFileMeta, table_to_entries
from lsm_core.format.snapshot import Snapshot
from lsm_core.merge import ByteKeys, IntKeys, NormalisedKeys, normalise_keys
from lsm_core.merge.keys import Ints, Mask, flat
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors, require_in_place
from lsm_core.metadata.live_files import bucket_groups, compacted_only
from lsm_core.metadata.manifests import live_entries
from lsm_core.metadata.store import TableStore
from lsm_core.read.scan import visible
from lsm_core.types.arrow import one_nan

_WORD = 8


def lower_bound(keys: NormalisedKeys, lookup_keys: NormalisedKeys) -> Ints:
    """Return, for each key of ``lookup_keys``, the number of ``keys`` that are smaller.

    Args:
        keys: keys in ascending order.
        lookup_keys: keys of the same column types.
    """
    return _search_bound(keys, lookup_keys, through=False)


def upper_bound(keys: NormalisedKeys, lookup_keys: NormalisedKeys) -> Ints:
    """Return, for each key of ``lookup_keys``, the number of ``keys`` that are smaller or equal.

    Args:
        keys: keys in ascending order.
        lookup_keys: keys of the same column types.
    """
    return _search_bound(keys, lookup_keys, through=True)


def places_of(keys: NormalisedKeys, lookup_keys: NormalisedKeys) -> tuple[Ints, Ints]:
    """Return the rows of ``keys`` whose key is among ``lookup_keys``, and the row of each in ``lookup_keys``.

    Args:
        keys: keys in ascending order; they may repeat.
        lookup_keys: distinct keys in ascending order.

    Returns:
        Two ascending arrays with one number per match: the row in ``keys``, and the row in ``lookup_keys``.
    """
    if not len(keys) or not len(lookup_keys):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts = lower_bound(keys, lookup_keys)
    counts = upper_bound(keys, lookup_keys) - starts
    matched = np.flatnonzero(counts)
    if not len(matched):
        return np.zeros(0, np.int64), matched
    starts, counts = starts[matched], counts[matched]
    if int(counts.max()) == 1:
        return starts, matched
    return slice_places(starts, counts), np.repeat(matched, counts)


def _search_bound(keys: NormalisedKeys, lookup_keys: NormalisedKeys, *, through: bool) -> Ints:
    if isinstance(keys, IntKeys) and isinstance(lookup_keys, IntKeys):
        return np.asarray(np.searchsorted(keys.values, lookup_keys.values, "right" if through else "left"), np.int64)
    assert isinstance(keys, ByteKeys)
    assert isinstance(lookup_keys, ByteKeys)
    # One binary search for all lookup keys at once: log2(keys) vectorised comparisons.
    low = np.zeros(len(lookup_keys), np.int64)
    high = np.full(len(lookup_keys), len(keys), np.int64)
    active = np.flatnonzero(low < high)
    while len(active):
        middle = (low[active] + high[active]) >> 1
        order = _compare_keys(keys, middle, lookup_keys, active)
        up = order <= 0 if through else order < 0
        low[active] = np.where(up, middle + 1, low[active])
        high[active] = np.where(up, high[active], middle)
        active = active[low[active] < high[active]]
    return low


def _compare_keys(left: ByteKeys, left_rows: Ints, right: ByteKeys, right_rows: Ints) -> Ints:
    """Return -1, 0 or 1 for each pair of keys: left smaller, equal, or larger.

    Eight bytes are compared at a time, until a pair differs.

    Pair i is the key at row ``left_rows[i]`` of ``left`` and the key at row ``right_rows[i]`` of ``right``.
    """
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
    """Distinct primary keys of one lookup, in key order.

    Attributes:
        store: the table.
        columns: the primary key columns, in the table's types.
        first_rows: for each key, the first row of the caller's table that has it.
    """

    store: TableStore
    columns: dict[str, pa.Array]
    first_rows: Ints

    def __len__(self) -> int:
        return len(self.first_rows)

    @staticmethod
    def of(store: TableStore, keys: Any) -> LookupKeys:
        """Check and sort the keys of a lookup.

        Args:
            store: the table.
            keys: an Arrow table or batch with exactly the primary key columns, in any order. Values of another width or
                unit are accepted if the table's type can store them exactly.

        Raises:
            UnsupportedFeature: the table has no primary key.
            ColumnNotFound: a column does not exist.
            InvalidFilter: a key column is missing, repeated, of an incompatible type, or contains a null; or a column
                is not a key column.
        """
        schema, table = store.schema, store.name
        if not schema.primary_keys:
            raise UnsupportedFeature("looking up rows of a table without a primary key", table)
        if not isinstance(keys, (pa.Table, pa.RecordBatch)):
            raise InvalidFilter(f"table {table}: the keys to look up must be an Arrow table, not {type(keys).__name__}")
        names, key_columns = keys.schema.names, ", ".join(schema.primary_keys)
        for name in names:
            if not schema.has_field(name):
                raise ColumnNotFound(table, name, schema.primary_keys)
            if name not in schema.primary_keys:
                raise InvalidFilter(f"table {table}: column '{name}' is not part of the primary key ({key_columns})")
        if len(set(names)) != len(names):
            raise InvalidFilter(f"table {table}: the keys to look up have a column twice: {', '.join(names)}")
        missing = [name for name in schema.primary_keys if name not in names]
        if missing:
            raise InvalidFilter(
                f"table {table}: the keys to look up lack column '{missing[0]}'; the primary key is {key_columns}"
            )
        kinds = schema.arrow_schema
        columns = {
            name: _cast_key_column(flat(keys.column(name)), name, kinds.field(name).type, table, schema.nullable_key)
            for name in schema.primary_keys
        }
        if not keys.num_rows:
            return LookupKeys(store, columns, np.zeros(0, np.int64))
        order, same = normalise_keys(list(columns.values()), nullable=schema.nullable_key).order(sorted_runs=False)
        # The sort is stable: rows of equal keys keep the caller's order.
        first_rows = order[np.concatenate((np.ones(1, np.bool_), ~same))]
        places = arrow_array(first_rows)
        return LookupKeys(store, {name: column.take(places) for name, column in columns.items()}, first_rows)

    def partitions(self) -> tuple[Ints, pa.Array] | None:
        """Return a partition number for each key, and the serialised partitions by number.

        Returns:
            Both arrays; None if the primary key does not contain all partition columns.
        """
        schema = self.store.schema
        if not schema.partition_keys:
            return np.zeros(len(self), np.int64), arrow_array([EMPTY_ROW], pa.binary())
        if not set(schema.partition_keys) <= set(schema.primary_keys):
            return None
        rows = encode_rows([self.columns[name] for name in schema.partition_keys], schema.partition_types)
        encoded = pc.dictionary_encode(rows)
        return numpy_array(encoded.indices).astype(np.int64), encoded.dictionary

    def sorted_keys(self, rows: Ints) -> tuple[SortedKeys, Ints]:
        """Return (keys of ``rows`` sorted by trimmed primary key, the row numbers ``rows`` in the order of the keys).

        Args:
            rows: rows of :attr:`columns`, all of one partition.
        """
        names, at = self.store.schema.trimmed_primary_keys, arrow_array(rows)
        columns = pa.RecordBatch.from_arrays([self.columns[name].take(at) for name in names], names=list(names))
        keys = normalise_keys(columns.columns, nullable=self.store.schema.nullable_key)
        if names == self.store.schema.primary_keys:  # already in this order
            return SortedKeys(keys, columns), rows
        order, _ = keys.order(sorted_runs=False)
        return SortedKeys(keys.take(order), columns.take(arrow_array(order))), rows[order]


def _cast_key_column(column: pa.Array, name: str, kind: pa.DataType, table: str, nullable: bool) -> pa.Array:
    """Cast a key column to the table's type ``kind``.

    Args:
        column: the keys.
        name: name of the column.
        kind: type of the table's column.
        table: name of the table, for errors.
        nullable: whether keys may be null.

    Raises:
        InvalidFilter: a key is null but not ``nullable``, or a value would change.
    """
    if column.null_count and not nullable:
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
    if pa.types.is_floating(kind):  # Arrow rounds to narrower floating point types without an error
        before, after = (numpy_array(side).astype(np.float64) for side in (column, cast))
        if not ((before == after) | (np.isnan(before) & np.isnan(after))).all():
            raise InvalidFilter(f"{wrong}: the column's type cannot represent the value exactly")
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
"""Families of Arrow types: a key column is cast to the table's type only within the same family."""
_WIDE: Final = pa.decimal256(76, 0)


@dataclass(frozen=True, eq=False)
class SortedKeys:
    """Distinct keys of one bucket in ascending order, used to search its files.

    Attributes:
        keys: the keys.
        columns: the trimmed primary key columns of each key, in the table's types.
    """

    keys: NormalisedKeys
    columns: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, start: int, stop: int) -> SortedKeys:
        """Return the keys from ``start`` up to, but not including, ``stop``, without copying."""
        return SortedKeys(self.keys.slice(start, stop), self.columns.slice(start, stop - start))

    def filter(self, mask: Mask) -> SortedKeys:
        """Return the keys where ``mask`` is true."""
        rows = np.flatnonzero(mask)
        return (
            self if len(rows) == len(mask) else SortedKeys(self.keys.take(rows), self.columns.take(arrow_array(rows)))
        )


@dataclass(frozen=True, eq=False)
class BucketKeys:
    """Keys that may be in one bucket, and the bucket's files that may contain these keys.

    Attributes:
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        keys: the keys.
        rows: for each key, its row in :class:`LookupKeys`.
        files: files whose key range contains some of the keys.
        spans: by file name, the range of ``keys`` within the file's key range.
        deletions: deletion vectors by file name.
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
    """Yield the buckets that may contain ``keys``, ordered by partition bytes and bucket.

    Args:
        store: the table.
        snapshot: the version; None to search only the ``pending`` files.
        keys: the keys of the lookup.
        everything: include files that batch readers do not see yet.
        newer_than_ms: skip buckets whose files are all older than this epoch ms; None to skip no bucket.
        pending: entries (`ENTRY_SCHEMA`) of written files that are not committed yet; None for none.

    Raises:
        CorruptFile: a metadata file is missing or damaged.
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
        bucket_keys, rows = keys.sorted_keys(rows)
        low, high = (
            normalise_keys(decode_rows(part.column(name), key_types), nullable=store.schema.nullable_key)
            for name in ("min_key", "max_key")
        )
        starts, stops = lower_bound(bucket_keys.keys, low), upper_bound(bucket_keys.keys, high)
        matching = np.flatnonzero(stops > starts)
        if not len(matching):
            continue
        files = tuple(entry.file for entry in table_to_entries(part.take(arrow_array(matching))))
        spans = {
            file.file_name: (int(starts[place]), int(stops[place])) for file, place in zip(files, matching, strict=True)
        }
        yield BucketKeys(partition, bucket, bucket_keys, rows, files, spans, vectors.get((partition, bucket), {}))


class _Routing:
    """Partition and bucket of each key of a lookup, for each number of buckets that files were written with.

    ``partitions``: the serialised partitions of the keys; None if the keys do not determine the partition.
    """

    def __init__(self, keys: LookupKeys) -> None:
        self._keys = keys
        partition_codes = keys.partitions()
        self._codes = None if partition_codes is None else partition_codes[0]
        self.partitions: list[bytes] | None = None if partition_codes is None else partition_codes[1].to_pylist()
        self._numbers = {partition: number for number, partition in enumerate(self.partitions or ())}
        self._buckets: dict[int, Ints] = {}

    def _bucket_of(self, total: int) -> Ints | None:
        """Return each key's bucket of ``total`` buckets, or None if keys do not determine it (dynamic buckets)."""
        if total <= 0:
            return None
        if total not in self._buckets:
            store = self._keys.store
            columns = [self._keys.columns[name] for name in store.schema.bucket_keys]
            function = store.options.bucket_function
            self._buckets[total] = bucket_of(columns, store.schema.bucket_key_types, total, function).astype(np.int64)
        return self._buckets[total]

    def entries(self, entries: pa.Table) -> pa.Table:
        """Return the manifest entries (`ENTRY_SCHEMA`) of the buckets that may contain at least one of the keys."""
        totals = numpy_array(entries.column("total_buckets"))
        buckets = numpy_array(entries.column("bucket")).astype(np.int64)
        if self._codes is None:
            of_entry = np.zeros(entries.num_rows, np.int64)
        else:
            encoded = pc.dictionary_encode(one_array(entries.column("partition")))
            code_of_partition = np.array(
                [self._numbers.get(value, -1) for value in encoded.dictionary.to_pylist()], np.int64
            )
            of_entry = code_of_partition[numpy_array(encoded.indices)] if entries.num_rows else np.zeros(0, np.int64)
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
        """Return the positions, among the lookup's keys, of the keys that may be in a bucket.

        Args:
            partition: BinaryRow bytes of the bucket's partition.
            bucket: number of the bucket.
            entries: manifest entries of the bucket, with the number of buckets that each file was written with.
        """
        inside = np.zeros(len(self._keys), np.bool_)
        for total in pc.unique(entries.column("total_buckets")).to_pylist():
            route = self._bucket_of(total)
            inside |= True if route is None else route == bucket
        if self._codes is not None:
            inside &= self._codes == self._numbers[partition]
        else:
            # A key with some of the partition columns belongs to partitions with these values.
            schema = self._keys.store.schema
            values = decode_rows(pa.array([partition], pa.binary()), list(schema.partition_types))
            for name, kind, value in zip(schema.partition_keys, schema.partition_types, values, strict=True):
                if name in schema.primary_keys:
                    partition_bytes = encode_rows([value], [kind])[0]
                    inside &= numpy_array(pc.equal(encode_rows([self._keys.columns[name]], [kind]), partition_bytes))
        return np.flatnonzero(inside)
