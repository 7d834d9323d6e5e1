"""Pruning of files: by the bounds and null counts of their columns, and by their file indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array, one_array
from lsm_core.errors import DredgeError
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import ROW_ID_ID, SEQUENCE_NUMBER_ID, DataField, TableSchema
from lsm_core.metadata.indexes import file_index
from lsm_core.metadata.store import TableStore
from lsm_core.read.predicate import Conjunct, Predicate
from lsm_core.read.prune.column_bounds import Bounds, Mask, possible, prunable
from lsm_core.read.prune.partition_pruning import decoded_rows, partition_bounds
from lsm_core.types import DataType, TypeRoot, to_arrow

if TYPE_CHECKING:  # imported where a file has an index: see the functions
    from lsm_core.format.file_index import FileIndex

_ARITY_BYTES: Final = 4
_INTEGERS: Final = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_DIGITS: Final = dict(zip(_INTEGERS, (3, 5, 10, 19), strict=True))
_FLOAT_DIGITS: Final = {TypeRoot.FLOAT: _INTEGERS[:2], TypeRoot.DOUBLE: _INTEGERS[:3]}
"""Integer types that each floating point type holds exactly."""
_TEXT: Final = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_FRACTIONS: Final = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ, TypeRoot.TIME)


def place_bounds(schema: TableSchema, entries: pa.Table, predicate: Predicate) -> dict[str, Bounds]:
    """Return the bounds of each file's partition and, in a primary-key table, of its key range.

    The bounds of the first key column are exact; those of the others come from the key statistics.
    """
    codes, partitions = partition_bounds(schema, entries, predicate)
    by_column = {name: bounds.take(codes.indices) for name, bounds in partitions.items()}
    for name in prunable(schema, predicate, schema.trimmed_primary_keys):
        position = schema.trimmed_primary_keys.index(name)
        sources = ("min_key", "max_key") if position == 0 else ("key_stats_min", "key_stats_max")
        lows, highs = (_decode_column(entries.column(source), schema.trimmed_key_types, position) for source in sources)
        by_column[name] = Bounds.of(lows, highs, None)
    return by_column


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

    Bounds and null counts then stay valid.
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
    """Return the bounds of ``field`` for files whose statistics cover columns ``names`` of the schema ``written``."""
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
    """Return column ``position`` of serialised rows of ``types``; null where a row has another number of columns."""
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
    """Return a mask that is False for rows of a file that its indexes exclude.

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
    """Return whether a row of the file can pass; a column whose type changed since excludes nothing."""
    then = _same_column(today, written, test)
    return then is None or index.may_match(then.name, then.type, test.op, test.value)


def _test_mask(today: TableSchema, written: TableSchema, index: FileIndex, test: Conjunct, rows: int) -> Mask | None:
    """Return a mask of the rows of the file that can pass, or None if no index decides."""
    then = _same_column(today, written, test)
    return None if then is None else index.row_mask(then.name, then.type, test.op, test.value, rows)


def _same_column(today: TableSchema, written: TableSchema, test: Conjunct) -> DataField | None:
    """Return a test's column in the schema that a file was written with.

    None means that it is missing or of another type.
    """
    now = today.field(test.column)
    then = next((field for field in written.fields if field.id == now.id), None)
    if then is None or then.type.with_nullable(nullable=True) != now.type.with_nullable(nullable=True):
        return None
    return then


_WHOLE_ROWS: Final = frozenset({"deduplicate", "first-row"})
"""Merge engines that return a stored row, not a row built from several files."""


def prune_files(
    store: TableStore, entries: pa.Table, predicate: Predicate | None, *, disjoint: bool = False
) -> pa.Table:
    """Return the files that can hold a matching row, and those that the merge needs.

    Args:
        store: the table.
        entries: files (`ENTRY_SCHEMA`).
        predicate: the filter; None for no pruning.
        disjoint: whether no two files hold visible rows of one key, on any level (deletion vectors without
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
        if not set(predicate.columns) - {*schema.trimmed_primary_keys, *schema.partition_keys} or not entries.num_rows:
            return entries
    # Partition and key bounds are exact, but value statistics may be truncated: the former replace the latter.
    bounds = {**value_bounds(store, entries, predicate), **place_bounds(schema, entries, predicate)}
    mask = embedded_mask(store, entries, predicate, possible(schema, bounds, entries.num_rows, predicate))
    if schema.primary_keys and not disjoint:
        mask = _for_whole_buckets(store, entries, mask)
    return entries if mask.all() else entries.filter(arrow_array(mask))


def _for_whole_buckets(store: TableStore, entries: pa.Table, mask: Mask) -> Mask:
    """Restrict the mask as merging requires.

    In a bucket with one file, or with only one level above 0, single files are pruned; else all files or none.
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
