"""Pruning of manifests, partitions, buckets and files that hold no matching row, from metadata alone.

A filter that is an Arrow expression is evaluated by Arrow's "simplify with guarantee". Each manifest, bucket or file
has an expression that is true for all of its rows. The item is skipped if the filter cannot be true under this
expression. Manifests are pruned by their partition ranges. Files are pruned by bounds and null counts of their columns,
and by their file indexes. The module also finds files with expired rows (record-level expiry), for compactions.

Source: ``RecordLevelExpire.isExpireFile``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array, one_array
from lsm_core.errors import DredgeError
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.hashing import bucket_of
from lsm_core.format.manifest import DataFileMeta, ManifestEntry, ManifestFileMeta, entries_to_table
from lsm_core.format.schema import ROW_ID_ID, SEQUENCE_NUMBER_ID, DataField, TableSchema
from lsm_core.merge import RowExpiry
from lsm_core.merge.engines.expire_rows import Living
from lsm_core.metadata.indexes import file_index
from lsm_core.metadata.store import TableStore
from lsm_core.read.predicate import ALWAYS, Conjunct, Predicate, prefix_end
from lsm_core.types import DataType, TypeRoot, to_arrow

if TYPE_CHECKING:
    from lsm_core.format.file_index import FileIndex

Mask = np.ndarray[Any, Any]
_LONG_LIST: Final = 64
"""Largest `in` list whose values are tested one by one; of a longer list, only its minimum and maximum are tested."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of one column for a list of items; each item is a manifest, bucket or file.

    Attributes:
        lows: for each item, the lower bound of all values that are not null; null if unknown.
        highs: for each item, the upper bound of all values that are not null; null if unknown.
        nulls: for each item, whether some values may be null.
        only_nulls: for each item, whether all values are null.
    """

    lows: pa.Array
    highs: pa.Array
    nulls: Mask
    only_nulls: Mask

    @staticmethod
    def of(
        lows: pa.Array,
        highs: pa.Array,
        null_counts: Sequence[int | None] | npt.NDArray[Any] | None,
        rows: Mask | None = None,
    ) -> Bounds:
        """Return the bounds of one column in some items (manifests, buckets or files) from their statistics.

        A NaN bound counts as unknown: Java up to 1.3, and ORC, leave NaN values out of the statistics, whereas later
        writers treat NaN as the largest value.

        Args:
            lows: smallest value of each item; null if unknown.
            highs: largest value of each item; null if unknown.
            null_counts: number of nulls of each item; an item without a count has unknown bounds. None if no item has
                nulls.
            rows: number of rows of each item; None if unknown.
        """
        count = len(lows)
        counts = np.zeros(count) if null_counts is None else np.array(null_counts, dtype=np.float64)
        if pa.types.is_floating(lows.type):
            lows, highs = (pc.if_else(pc.is_nan(side), arrow_scalar(None), side) for side in (lows, highs))
        is_known = numpy_array(pc.and_(pc.is_valid(lows), pc.is_valid(highs))) & ~np.isnan(counts)
        lows, highs = (
            side if is_known.all() else pc.if_else(arrow_array(is_known), side, arrow_scalar(None))
            for side in (lows, highs)
        )
        only = np.zeros(count, np.bool_) if rows is None else (counts >= rows) & (rows > 0)
        return Bounds(lows, highs, ~(counts == 0), only)

    @staticmethod
    def exactly(values: pa.Array) -> Bounds:
        """Return the bounds of a column that is constant (or null) in each item (manifest, bucket or file).

        Args:
            values: the value of each item.
        """
        missing = numpy_array(pc.is_null(values))
        return Bounds.of(values, values, missing.astype(np.float64), np.ones(len(values)))

    @staticmethod
    def absent(kind: pa.DataType, count: int) -> Bounds:
        """Return the bounds of a column that is null in all rows of ``count`` items (manifests, buckets or files)."""
        nulls, all_true = pa.nulls(count, kind), np.ones(count, np.bool_)
        return Bounds(nulls, nulls, all_true, all_true)

    @staticmethod
    def unknown(kind: pa.DataType, count: int) -> Bounds:
        """Return the bounds of a column in ``count`` items (manifests, buckets or files) without statistics."""
        nulls = pa.nulls(count, kind)
        return Bounds(nulls, nulls, np.ones(count, np.bool_), np.zeros(count, np.bool_))

    def take(self, places: pa.Array) -> Bounds:
        """Return the bounds of the items (manifests, buckets or files) at positions ``places``."""
        at = numpy_array(places)
        return Bounds(self.lows.take(places), self.highs.take(places), self.nulls[at], self.only_nulls[at])

    @staticmethod
    def concat(parts: Sequence[Bounds]) -> Bounds:
        """Return the bounds of the items of all ``parts``, one part after the other, as one object."""
        lows, highs = (pa.concat_arrays([getattr(p, side) for p in parts]) for side in ("lows", "highs"))
        return Bounds(lows, highs, *(np.concatenate([getattr(p, m) for p in parts]) for m in ("nulls", "only_nulls")))

    def expressions(self, name: str) -> Iterator[pc.Expression]:
        """Yield for each item (manifest, bucket or file) an expression that is true for all of its rows.

        Args:
            name: name of the column that has these bounds.
        """
        field, is_null = pc.field(name), pc.field(name).is_null()
        for low, high, null, only in zip(self.lows, self.highs, self.nulls, self.only_nulls, strict=True):
            if only:
                yield is_null
            elif not low.is_valid or not high.is_valid:
                yield ALWAYS
            else:
                between = (field >= low) & (field <= high)
                yield between | is_null if null else between

    def may_hold(self, test: Conjunct) -> Mask:
        """Return a mask of the items (manifests, buckets or files); True if some row of the item can pass ``test``."""
        if test.op == "is null":
            return self.nulls | self.only_nulls
        if test.op == "is not null":
            return ~self.only_nulls
        try:
            matches = self._by_value(test)
        except pa.ArrowException:  # values that do not compare with the bounds exclude nothing
            return ~self.only_nulls
        # Unknown bounds and NaN compare to null; an unknown comparison excludes nothing.
        return numpy_array(pc.fill_null(matches, arrow_scalar(value=True))) & ~self.only_nulls

    def _by_value(self, test: Conjunct) -> Any:
        nothing = arrow_scalar(value=False)
        if test.op in ("in", "not in"):
            return self._among(test)
        assert isinstance(test.value, pa.Scalar)
        if not test.value.is_valid:
            return arrow_array(np.zeros(len(self.lows), np.bool_))
        if test.op == "starts with":
            end = prefix_end(test.value.as_py())
            below = pc.less(self.lows, arrow_scalar(end)) if end is not None else pc.is_valid(self.lows)
            return pc.and_kleene(pc.greater_equal(self.highs, test.value), pc.or_kleene(below, pc.is_null(self.lows)))
        return _COMPARE[test.op](self.lows, self.highs, test.value) if test.op in _COMPARE else nothing

    def _among(self, test: Conjunct) -> Any:
        values = list(test.others) if test.value is None else test.value
        if test.op == "not in":
            if test.value is None:
                return pa.nulls(len(self.lows), pa.bool_())
            single = pc.equal(self.lows, self.highs)
            return pc.invert(pc.and_kleene(single, pc.is_in(self.lows, value_set=test.value)))
        if isinstance(values, pa.Array) and len(values) > _LONG_LIST:
            ends = pc.min_max(values)
            return pc.and_kleene(pc.less_equal(self.lows, ends["max"]), pc.greater_equal(self.highs, ends["min"]))
        matches = arrow_array(np.zeros(len(self.lows), np.bool_))
        for value in values:
            matches = pc.or_kleene(matches, _inside(self.lows, self.highs, value))
        return matches


def _inside(lows: pa.Array, highs: pa.Array, value: pa.Scalar) -> Any:
    return pc.and_kleene(pc.less_equal(lows, value), pc.greater_equal(highs, value))


_COMPARE: Final[dict[str, Callable[[pa.Array, pa.Array, pa.Scalar], Any]]] = {
    "=": _inside,
    "==": _inside,
    "!=": lambda lows, highs, v: pc.invert(pc.and_kleene(pc.equal(lows, v), pc.equal(highs, v))),
    "<>": lambda lows, highs, v: pc.invert(pc.and_kleene(pc.equal(lows, v), pc.equal(highs, v))),
    "<": lambda lows, _, v: pc.less(lows, v),
    "<=": lambda lows, _, v: pc.less_equal(lows, v),
    ">": lambda _, highs, v: pc.greater(highs, v),
    ">=": lambda _, highs, v: pc.greater_equal(highs, v),
}


_NAN_SAFE: Final = frozenset({"=", "==", "<", "<=", ">", ">=", "in", "is null", "is not null"})
"""Operators for which bounds without NaN suffice: NaN fails the test, or null counts decide it (`is not null`)."""


def possible(schema: TableSchema, bounds: Mapping[str, Bounds], count: int, predicate: Predicate) -> Mask:
    """Return a mask of items (manifests, buckets or files); True if the filter can be true for some row of the item.

    Tests of a filter of tuples are evaluated over all items at once. An Arrow expression is simplified once for each
    item, under the assumption that the item's bounds hold, which costs far more.

    Args:
        schema: schema of the table.
        bounds: bounds of some columns in each item, by name of the column.
        count: number of items.
        predicate: the filter.
    """
    mask = np.zeros(count, dtype=bool)
    if predicate.groups is None:
        import pyarrow.dataset as ds  # slow to import, and most filters are tuples
        import pyarrow.fs as pafs

        file_format, nowhere = ds.ParquetFileFormat(), pafs.LocalFileSystem()
        guarantees = [bound.expressions(name) for name, bound in bounds.items()]
        fragments = [
            file_format.make_fragment(str(index), nowhere, partition_expression=guarantee)
            for index, guarantee in enumerate(conjoin(guarantees) if guarantees else [ALWAYS] * count)
        ]
        dataset = ds.FileSystemDataset(fragments, schema.arrow_schema, file_format, nowhere)
        mask[[int(fragment.path) for fragment in dataset.get_fragments(predicate.expression)]] = True
        return mask
    for group in predicate.groups:
        group_mask = np.ones(count, dtype=bool)
        for test in group:
            if test.column in bounds:
                group_mask &= bounds[test.column].may_hold(test)
        mask |= group_mask
    return mask


def conjoin(columns: Sequence[Iterable[pc.Expression]]) -> list[pc.Expression]:
    """Return for each item (manifest, bucket or file) one expression: its expressions of all columns, joined by AND.

    Args:
        columns: for each column, one expression per item.
    """
    total: list[pc.Expression] = []
    for parts in zip(*columns, strict=True):
        guarantee = ALWAYS
        for part in parts:
            if part is not ALWAYS:
                guarantee = part if guarantee is ALWAYS else guarantee & part
        total.append(guarantee)
    return total


def prunable(schema: TableSchema, predicate: Predicate, names: Iterable[str]) -> list[str]:
    """Return those columns of ``names`` for which the filter has a test that bounds can decide."""
    name_set = set(names)

    def is_comparable(name: str) -> bool:
        """Return whether Arrow orders the column's type as Paimon does."""
        kind = to_arrow(schema.field(name).type)
        if pa.types.is_floating(kind):
            # Only if NaN matters to no test, wherever NaN is in the order.
            tests = [test for group in predicate.groups or () for test in group if test.column == name]
            return predicate.groups is not None and all(test.op in _NAN_SAFE for test in tests)
        return not pa.types.is_nested(kind)

    return [name for name in predicate.columns if name in name_set and is_comparable(name)]


_MAX_COMBINATIONS: Final = 1000
_ARITY_BYTES: Final = 4


def manifest_chooser(
    schema: TableSchema, *predicates: Predicate | None
) -> Callable[[list[ManifestFileMeta]], list[ManifestFileMeta]]:
    """Return a function that keeps the manifests whose partition range can satisfy all filters."""
    useful = [p for p in predicates if p is not None and prunable(schema, p, schema.partition_keys)]

    def choose(metas: list[ManifestFileMeta]) -> list[ManifestFileMeta]:
        for predicate in useful:
            keep = possible(schema, _partition_ranges(schema, metas, predicate), len(metas), predicate)
            metas = [meta for meta, kept in zip(metas, keep, strict=True) if kept]
        return metas

    return choose


def _partition_ranges(
    schema: TableSchema, metas: Sequence[ManifestFileMeta], predicate: Predicate
) -> dict[str, Bounds]:
    stats = [meta.partition_stats for meta in metas]
    arity = len(schema.partition_keys).to_bytes(_ARITY_BYTES, "big")
    has_range = [s.min_values[:_ARITY_BYTES] == arity == s.max_values[:_ARITY_BYTES] for s in stats]
    sides = [
        arrow_array(
            [getattr(s, side) if usable else None for s, usable in zip(stats, has_range, strict=True)], pa.binary()
        )
        for side in ("min_values", "max_values")
    ]
    try:
        lows, highs = (decoded_rows(side, schema.partition_types) for side in sides)
    except DredgeError:  # ranges that cannot be read exclude nothing; the entries are pruned later
        return {}
    bounds = {}
    for name in prunable(schema, predicate, schema.partition_keys):
        position = schema.partition_keys.index(name)
        nulls = [
            None if not s.null_counts or position >= len(s.null_counts) else s.null_counts[position] for s in stats
        ]
        bounds[name] = Bounds.of(lows[position], highs[position], nulls)
    return bounds


def decoded_rows(blobs: pa.Array, types: Sequence[Any]) -> list[pa.Array]:
    """Return the columns of serialised rows; a row is null in all columns if its blob is null."""
    filled = pc.is_valid(blobs)
    values = decode_rows(blobs.filter(filled), list(types))
    mask = numpy_array(filled)
    slots = arrow_array(np.maximum(np.cumsum(mask) - 1, 0), mask=~mask)
    return [column.take(slots) for column in values]


def prune_partitions(schema: TableSchema, entries: pa.Table, predicate: Predicate | None) -> pa.Table:
    """Return the entries (`ENTRY_SCHEMA`) whose partition can hold a row that ``predicate`` matches (None: all)."""
    if predicate is None or not set(predicate.columns) & set(schema.partition_keys) or not entries.num_rows:
        return entries
    codes, bounds = partition_bounds(schema, entries, predicate)
    keep = possible(schema, bounds, len(codes.dictionary), predicate)
    return entries if keep.all() else entries.filter(arrow_array(keep[numpy_array(codes.indices)]))


def partition_bounds(
    schema: TableSchema, entries: pa.Table, predicate: Predicate
) -> tuple[pa.DictionaryArray, dict[str, Bounds]]:
    """Return (partition of each entry as dictionary array, bounds of the distinct partitions by filter column)."""
    codes = pc.dictionary_encode(one_array(entries.column("partition")))
    names = prunable(schema, predicate, schema.partition_keys)
    columns = decoded_rows(codes.dictionary.cast(pa.binary()), schema.partition_types) if names else []
    return codes, {name: Bounds.exactly(columns[schema.partition_keys.index(name)]) for name in names}


def prune_buckets(schema: TableSchema, entries: pa.Table, predicate: Predicate | None, function: str) -> pa.Table:
    """Return the entries of the buckets that equality tests on all bucket keys select, or all without such tests.

    An alternative of an `or` that cannot be true in a partition selects no bucket of this partition.

    Args:
        schema: schema of the table.
        entries: files (`ENTRY_SCHEMA`).
        predicate: the filter; None for no pruning.
        function: bucket function of the table (option `bucket-function.type`).
    """
    if predicate is None or not schema.bucket_keys or not entries.num_rows:
        return entries
    groups = predicate.groups or ()
    if len(groups) < 2 or not prunable(schema, predicate, schema.partition_keys):
        return entries.filter(arrow_array(_in_chosen_buckets(schema, entries, predicate, function)))
    codes, bounds = partition_bounds(schema, entries, predicate)
    satisfiable = np.array(
        [possible(schema, bounds, len(codes.dictionary), replace(predicate, groups=(group,))) for group in groups]
    )
    # Partitions in which the same sides can be true are pruned together.
    patterns, pattern_of_partition = np.unique(satisfiable, axis=1, return_inverse=True)
    pattern_of_entry = pattern_of_partition.reshape(-1)[numpy_array(codes.indices)]
    mask = np.zeros(entries.num_rows, dtype=bool)
    for number, pattern in enumerate(patterns.T):
        remaining = replace(predicate, groups=tuple(itertools.compress(groups, pattern)))
        mask |= (pattern_of_entry == number) & _in_chosen_buckets(schema, entries, remaining, function)
    return entries.filter(arrow_array(mask))


def _in_chosen_buckets(
    schema: TableSchema, entries: pa.Table, predicate: Predicate, function: str
) -> npt.NDArray[np.bool_]:
    bucket_keys = combinations(schema, predicate, schema.bucket_keys)
    if bucket_keys is None:
        return np.ones(entries.num_rows, dtype=bool)
    mask = np.zeros(entries.num_rows, dtype=bool)
    totals = numpy_array(entries.column("total_buckets"))
    buckets = numpy_array(entries.column("bucket"))
    for total in np.unique(totals):
        if total <= 0:
            mask |= totals == total
            continue
        hit = np.unique(bucket_of(bucket_keys, schema.bucket_key_types, int(total), function))
        mask |= (totals == total) & np.isin(buckets, hit)
    return mask


def combinations(schema: TableSchema, predicate: Predicate, keys: Sequence[str]) -> list[pa.Array] | None:
    """Return all combinations of values of the columns ``keys`` that equality tests allow.

    Returns:
        One array for each column of ``keys``; None if the filter does not restrict one of the columns, is an Arrow
        expression, or allows more than 1,000 combinations.
    """
    if predicate.groups is None:
        return None
    combination_set: set[tuple[Any, ...]] = set()
    for group in predicate.groups:
        choices = [_choices(group, name, schema.arrow_schema.field(name).type) for name in keys]
        if any(choice is None for choice in choices):
            return None
        pools = [choice for choice in choices if choice is not None]
        if len(combination_set) + int(np.prod([len(pool) for pool in pools], dtype=np.float64)) > _MAX_COMBINATIONS:
            return None
        combination_set.update(itertools.product(*pools))
    ordered = list(combination_set)
    kinds = [schema.arrow_schema.field(name).type for name in keys]
    return [arrow_array([row[i] for row in ordered], kind) for i, kind in enumerate(kinds)]


def _choices(group: Sequence[Conjunct], name: str, kind: pa.DataType) -> list[Any] | None:
    """Return the values of a column that pass all equality tests of ``group``.

    Returns:
        The values; empty for a test `= null`. None if no value restricts the column: without an equality test, for
        floating point columns, or if the tests contradict each other.
    """
    allowed: list[Any] | None = None
    for test in group:
        if test.column != name or test.value is None or test.value.type != kind or pa.types.is_floating(kind):
            continue
        if test.op in ("=", "=="):
            if not test.value.is_valid:
                return []
            values = [test.value.as_py()]
        elif test.op == "in":
            values = test.value.to_pylist()
        else:
            continue
        allowed = values if allowed is None else [value for value in allowed if value in values]
    # Contradictions are left to the row filter, as in Java's BucketSelector: planning for them saves nothing.
    return allowed or None


_INTEGERS: Final = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_DIGITS: Final = dict(zip(_INTEGERS, (3, 5, 10, 19), strict=True))
_FLOAT_DIGITS: Final = {TypeRoot.FLOAT: _INTEGERS[:2], TypeRoot.DOUBLE: _INTEGERS[:3]}
"""Integer types that each floating point type holds exactly."""
_TEXT: Final = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_FRACTIONS: Final = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ, TypeRoot.TIME)


def place_bounds(schema: TableSchema, entries: pa.Table, predicate: Predicate) -> dict[str, Bounds]:
    """Return the bounds of each file's partition columns and, in a primary-key table, key columns.

    Only columns that the filter uses are included. The bounds of the first key column come from the file's smallest and
    largest key, which are always recorded in full. The bounds of further key columns come from the key statistics.
    With `pk-clustering-override` the recorded keys are values of other columns, so there are no bounds of key columns.
    """
    codes, partitions = partition_bounds(schema, entries, predicate)
    by_column = {name: bounds.take(codes.indices) for name, bounds in partitions.items()}
    if clusters_keys(schema):
        return by_column
    for name in prunable(schema, predicate, schema.trimmed_primary_keys):
        position = schema.trimmed_primary_keys.index(name)
        sources = ("min_key", "max_key") if position == 0 else ("key_stats_min", "key_stats_max")
        lows, highs = (_decode_column(entries.column(source), schema.trimmed_key_types, position) for source in sources)
        nulls = _key_nulls(entries, position, lows, highs) if schema.nullable_key else None
        by_column[name] = Bounds.of(lows, highs, nulls, numpy_array(entries.column("row_count")))
    return by_column


def clusters_keys(schema: TableSchema) -> bool:
    """Return whether compacted files of a primary-key table are sorted by other columns (`pk-clustering-override`).

    The smallest and largest key of their manifest entries are values of `clustering.columns`.
    """
    return schema.options.get("pk-clustering-override", "false").strip().lower() == "true"


def _key_nulls(entries: pa.Table, position: int, lows: pa.Array, highs: pa.Array) -> npt.NDArray[np.float64]:
    """Return the number of nulls of a key column in each file; NaN if unknown.

    The first key column has no recorded number. Nulls come first in a file, so 1 is returned if the column's smallest
    value is null, and the file's number of rows if the largest is null too. Other columns have recorded numbers.

    Args:
        entries: files (`ENTRY_SCHEMA`).
        position: position of the column in the trimmed primary key.
        lows: smallest value of the column in each file, from the smallest key or the key statistics.
        highs: largest value of the column in each file, from the largest key or the key statistics.
    """
    if position == 0:
        some, only = numpy_array(lows.is_null()), numpy_array(highs.is_null())
        return np.where(only, numpy_array(entries.column("row_count")), some).astype(np.float64)
    recorded = one_array(entries.column("key_stats_nulls"))
    is_known = pc.fill_null(pc.greater(pc.list_value_length(recorded), position), arrow_scalar(value=False))
    counts = np.full(len(recorded), np.nan)
    known_counts = pc.list_element(recorded.filter(is_known), position)
    counts[numpy_array(is_known)] = pc.cast(known_counts, pa.float64()).to_numpy(zero_copy_only=False)
    return counts


def value_bounds(store: TableStore, entries: pa.Table, predicate: Predicate) -> dict[str, Bounds]:
    """Return the bounds of each file from its value statistics, for the columns that the filter uses."""
    schema = store.schema
    used = [name for name in prunable(schema, predicate, predicate.columns) if name not in schema.partition_keys]
    return column_bounds(store, entries, used)


def column_bounds(store: TableStore, entries: pa.Table, names: Sequence[str]) -> dict[str, Bounds]:
    """Return the bounds of each file from its value statistics, by column.

    Args:
        store: the table.
        entries: files (`ENTRY_SCHEMA`).
        names: columns of the current schema.

    Returns:
        The bounds by column; empty without files.
    """
    if not names or not entries.num_rows:
        return {}
    schema = store.schema
    parts: dict[str, list[Bounds]] = {name: [] for name in names}
    places: list[list[int]] = []
    # Files by the schema of their writer and by the columns that their statistics cover (None: all).
    layouts: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}
    covers = entries.column("value_stats_cols").to_pylist()
    for row, (schema_id, listed) in enumerate(zip(entries.column("schema_id").to_pylist(), covers, strict=True)):
        layouts.setdefault((schema_id, None if listed is None else tuple(listed)), []).append(row)
    for (schema_id, known), rows in layouts.items():
        written = store.schema_of(schema_id)
        part = entries if len(rows) == entries.num_rows else entries.take(arrow_array(rows))
        places.append(rows)
        covered = written.field_names if known is None else known
        for name in names:
            parts[name].append(_stats_bounds(schema.field(name), written, covered, part))
    order = arrow_array(np.argsort(np.concatenate(places), kind="stable"))
    return {name: Bounds.concat(bounds).take(order) for name, bounds in parts.items()}


def keeps_order(old: DataType, new: DataType) -> bool:
    """Return whether reading values of type ``old`` as ``new`` keeps them equal.

    If it does, bounds and null counts of a file stay valid after the change of type.
    """
    if old.root in _INTEGERS:
        if new.root in _INTEGERS:
            return _INTEGERS.index(old.root) <= _INTEGERS.index(new.root)
        if new.root is TypeRoot.DECIMAL:
            return (new.precision or 0) - (new.scale or 0) >= _DIGITS[old.root]
        return old.root in _FLOAT_DIGITS.get(new.root, ())
    if old.root in _TEXT and new.root is TypeRoot.VARCHAR:
        return (new.length or 0) >= (old.length or 0)
    if old.root is not new.root:
        return old.root is TypeRoot.FLOAT and new.root is TypeRoot.DOUBLE
    if old.root is TypeRoot.DECIMAL:
        scale = (old.scale or 0, new.scale or 0)
        return scale[0] <= scale[1] and (old.precision or 0) - scale[0] <= (new.precision or 0) - scale[1]
    if old.root in _FRACTIONS:
        return (old.precision or 0) <= (new.precision or 0)
    return old.with_nullable(nullable=True) == new.with_nullable(nullable=True)


def _stats_bounds(field: DataField, written: TableSchema, names: Sequence[str], part: pa.Table) -> Bounds:
    """Return the bounds of ``field`` for files whose statistics cover columns ``names`` of the schema ``written``.

    Args:
        field: column of the current schema.
        written: schema that the files were written with.
        names: columns of ``written`` in the files' value statistics, in their order.
        part: manifest entries of the files.
    """
    kind = to_arrow(field.type)
    unknown = Bounds.unknown(kind, part.num_rows)
    if field.id == ROW_ID_ID:  # files without stored ids have them in row order
        first = part.column("first_row_id").combine_chunks()
        last = pc.add(first, pc.subtract(part.column("row_count").combine_chunks(), 1))
        return Bounds.of(first, last, None)
    if field.id == SEQUENCE_NUMBER_ID:  # stored as null where a row was changed, which is not its value
        return unknown
    old = next((candidate for candidate in written.fields if candidate.id == field.id), None)
    if old is None:  # added later: the rows of these files have null in it
        return unknown if field.default is not None else Bounds.absent(kind, part.num_rows)
    if old.name not in names or not all(written.has_field(name) for name in names):
        return unknown
    if not keeps_order(old.type, field.type):
        return unknown
    position = names.index(old.name)
    types = [written.field(name).type for name in names]
    try:
        sides = [_decode_column(part.column(side), types, position) for side in ("value_stats_min", "value_stats_max")]
        lows, highs = (side.cast(kind) for side in sides)
    except (DredgeError, pa.ArrowException):  # statistics that cannot be read exclude nothing
        return unknown
    counts = part.column("value_stats_nulls").to_pylist()
    nulls = [None if not c or position >= len(c) else c[position] for c in counts]  # None: not known
    return Bounds.of(lows, highs, nulls, numpy_array(part.column("row_count")))


def _decode_column(blobs: pa.ChunkedArray, types: Sequence[DataType], position: int) -> pa.Array:
    """Return column ``position`` of serialised rows of ``types``; null for a row with a different number of columns."""
    rows = one_array(blobs)
    prefix = pc.binary_slice(rows, 0, _ARITY_BYTES)
    right = pc.equal(prefix, arrow_scalar(len(types).to_bytes(_ARITY_BYTES, "big"), prefix.type))
    if not pc.all(right, min_count=0).as_py():
        rows = pc.if_else(right, rows, arrow_scalar(None, rows.type))
    return decoded_rows(rows, types)[position]


def embedded_mask(store: TableStore, entries: pa.Table, predicate: Predicate, mask: Mask) -> Mask:
    """Return ``mask`` without the files whose index in the manifest proves that no row matches.

    Raises:
        CorruptFile: an index is damaged.
    """
    indexes = entries.column("embedded_index")
    if (
        predicate.groups is None
        or not store.options.get("file-index.read.enabled")
        or indexes.null_count == len(indexes)
    ):
        return mask
    from lsm_core.format.file_index import FileIndex

    mask = mask.copy()
    for row in np.flatnonzero(mask & numpy_array(pc.is_valid(indexes))):  # files, not rows of data
        schema = store.schema_of(entries.column("schema_id")[row].as_py())
        index = FileIndex.decode(indexes[row].as_py(), f"index of {entries.column('file_name')[row].as_py()}")
        mask[row] = _may_match(store.schema, schema, index, predicate)
    return mask


def passing_rows(
    store: TableStore, partition: bytes, bucket: int, file: DataFileMeta, predicate: Predicate
) -> Mask | None:
    """Return a mask of a file's rows that is False for rows that the file's indexes exclude.

    Args:
        store: the table.
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        file: the file.
        predicate: the filter.

    Returns:
        One boolean for each row; None if the indexes exclude no row.

    Raises:
        CorruptFile: an index is damaged; the error names it.

    Source: ``FileIndexEvaluator``.
    """
    if predicate.groups is None:
        return None
    index = file_index(store, partition, bucket, file)
    if index is None:
        return None
    written = store.schema_of(file.schema_id)
    # An index in the manifest was evaluated when the read was planned.
    if file.embedded_index is None and not _may_match(store.schema, written, index, predicate):
        return np.zeros(file.row_count, np.bool_)
    passing = np.zeros(file.row_count, np.bool_)
    for group in predicate.groups:
        masks = [_test_mask(store.schema, written, index, test, file.row_count) for test in group]
        usable_masks = [mask for mask in masks if mask is not None]
        if not usable_masks:
            return None
        passing |= np.logical_and.reduce(usable_masks)
    return None if passing.all() else passing


def _may_match(today: TableSchema, written: TableSchema, index: FileIndex, predicate: Predicate) -> bool:
    groups = predicate.groups or ()
    return any(all(_test_may_match(today, written, index, test) for test in group) for group in groups)


def _test_may_match(today: TableSchema, written: TableSchema, index: FileIndex, test: Conjunct) -> bool:
    """Return whether a row of the file can pass the test; True if the file lacks the column or has another type.

    Args:
        today: current schema of the table, whose column names the test uses.
        written: schema that the file was written with.
        index: file index of the file.
        test: the test of one column.
    """
    then = _same_column(today, written, test)
    return then is None or index.may_match(then.name, then.type, test.op, test.value)


def _test_mask(today: TableSchema, written: TableSchema, index: FileIndex, test: Conjunct, rows: int) -> Mask | None:
    """Return a mask of the rows of the file that can pass the test, or None if no index applies.

    Args:
        today: current schema of the table, whose column names the test uses.
        written: schema that the file was written with.
        index: file index of the file.
        test: the test of one column.
        rows: number of rows of the file.
    """
    then = _same_column(today, written, test)
    return None if then is None else index.row_mask(then.name, then.type, test.op, test.value, rows)


def _same_column(today: TableSchema, written: TableSchema, test: Conjunct) -> DataField | None:
    """Return the tested column in the schema ``written``, which a file was written with.

    The result is None if this schema does not have the column, or has it with another type than the current schema,
    ``today``. A different nullability is the same type.
    """
    now = today.field(test.column)
    then = next((field for field in written.fields if field.id == now.id), None)
    if then is None or then.type.with_nullable(nullable=True) != now.type.with_nullable(nullable=True):
        return None
    return then


_WHOLE_ROWS: Final = frozenset({"deduplicate", "first-row"})
"""Merge engines that return one of the stored rows unchanged, not a row built from several rows."""


def prune_files(
    store: TableStore, entries: pa.Table, predicate: Predicate | None, *, disjoint: bool = False
) -> pa.Table:
    """Return the files that can contain a matching row, and further files that the merge needs.

    Args:
        store: the table.
        entries: files (`ENTRY_SCHEMA`).
        predicate: the filter; None for no pruning.
        disjoint: whether no two files contain visible rows of the same key, on any level (deletion vectors without
            level 0).

    Returns:
        The remaining entries (`ENTRY_SCHEMA`).
    """
    if predicate is None or not entries.num_rows:
        return entries
    schema = store.schema
    if schema.primary_keys:
        kept = possible(schema, place_bounds(schema, entries, predicate), entries.num_rows, predicate)
        entries = entries if kept.all() else entries.filter(arrow_array(kept))
        sorted_by = () if clusters_keys(schema) else schema.trimmed_primary_keys
        if not set(predicate.columns) - {*sorted_by, *schema.partition_keys} or not entries.num_rows:
            return entries
    # Partition and key bounds are exact, but value statistics may be truncated: the former replace the latter.
    bounds = {**value_bounds(store, entries, predicate), **place_bounds(schema, entries, predicate)}
    mask = embedded_mask(store, entries, predicate, possible(schema, bounds, entries.num_rows, predicate))
    if schema.primary_keys and not disjoint:
        mask = _for_whole_buckets(store, entries, mask)
    return entries if mask.all() else entries.filter(arrow_array(mask))


def _for_whole_buckets(store: TableStore, entries: pa.Table, mask: Mask) -> Mask:
    """Extend a mask of matching files by the files that the merge needs.

    In a bucket with one file, or with files on only one level above 0, single files are pruned. Any other bucket keeps
    all files, but with engine deduplicate or first-row it keeps no file if no file matches.
    """
    partitions = numpy_array(one_array(entries.column("partition")).dictionary_encode().indices).astype(np.int64)
    buckets = numpy_array(entries.column("bucket")).astype(np.int64)
    combined = partitions * (buckets.max() - buckets.min() + 1) + (buckets - buckets.min())
    _, bucket = np.unique(combined, return_inverse=True)
    count = int(bucket.max()) + 1
    levels = numpy_array(entries.column("level"))
    lowest, highest = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(lowest, bucket, levels)
    np.maximum.at(highest, bucket, levels)
    files, candidates = np.bincount(bucket, minlength=count), np.bincount(bucket, weights=mask, minlength=count)
    alone = (files == 1) | ((lowest == highest) & (lowest > 0))
    stays = candidates > 0 if store.options.merge_engine in _WHOLE_ROWS else np.ones(count, dtype=bool)
    kept: Mask = np.where(alone[bucket], mask, stays[bucket])
    return kept


_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ExpiredFiles:
    """Names of files with expired rows; empty for tables whose rows do not expire.

    Attributes:
        known: files with at least one expired row, because their smallest time is expired. A full compaction rewrites
            these files.
        possible: the files of ``known``, and files without statistics of the time column.
    """

    known: frozenset[str] = _NONE
    possible: frozenset[str] = _NONE


def expiry_of(store: TableStore) -> RowExpiry | None:
    """Return the expiry rule of the table's rows, or None if they never expire.

    Raises:
        InvalidOption: an option of the expiry cannot be used.
    """
    if store.options.get("record-level.expire-time") is None or not store.has_primary_key:
        return None
    return RowExpiry.of(store.schema, store.options.raw, store.name)


def expired_files(store: TableStore, entries: pa.Table, now_ms: int) -> ExpiredFiles:
    """Return the names of the files of ``entries`` that have or may have expired rows.

    Args:
        store: the table.
        entries: files (`ENTRY_SCHEMA`).
        now_ms: time of the check (epoch ms).

    Raises:
        InvalidOption: an option of the expiry cannot be used.
    """
    expiry = expiry_of(store)
    if expiry is None or not entries.num_rows:
        return ExpiredFiles()
    bounds = column_bounds(store, entries, [expiry.field])[expiry.field]
    expired = expiry.expired(bounds.lows, now_ms)
    unknown = numpy_array(bounds.lows.is_null()) & ~bounds.only_nulls
    names = entries.column("file_name")
    return ExpiredFiles(
        *(frozenset(names.filter(arrow_array(mask)).to_pylist()) for mask in (expired, expired | unknown))
    )


def living_at(store: TableStore, now_ms: int | None) -> Living | None:
    """Return the function that removes rows that are expired at ``now_ms`` (epoch ms) from a batch.

    Returns:
        The function; None if the table's rows do not expire, or if ``now_ms`` is None.
    """
    expiry = None if now_ms is None else expiry_of(store)
    return None if expiry is None or now_ms is None else expiry.living(now_ms)


def expired_among(store: TableStore, files: Sequence[DataFileMeta], now_ms: int) -> ExpiredFiles:
    """Return the names of the files of one bucket that have or may have rows that are expired at ``now_ms``.

    Args:
        store: the table.
        files: metadata of the bucket's files.
        now_ms: time of the check (epoch ms).

    Raises:
        InvalidOption: an option of the expiry cannot be used.
    """
    return expired_files(store, entries_to_table([ManifestEntry(0, b"", 0, 0, file) for file in files]), now_ms)
