"""Which partitions, buckets and files a filter cannot touch: decided from metadata, by Arrow's own "simplify with guarantee".

A primary-key file may be left out only by what its *keys* say: a value test would also hide the newer version of a row
that makes an older one disappear. Append files have no such versions, so there value statistics prune as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from lsm_core.format.binary_row import decode_rows
from lsm_core.format.hashing import bucket_of
from lsm_core.format.schema import TableSchema
from lsm_core.read.predicate import ALWAYS, Conjunct, Predicate
from lsm_core.types import DataType, to_arrow

_MAX_COMBINATIONS: Final = 1000
_SMALLEST_ROW: Final = 12
"""Bytes of an arity-0 row with its prefix: anything that short holds no column."""


def prune_partitions(schema: TableSchema, entries: pa.Table, predicate: Predicate | None) -> pa.Table:
    """Entries whose partition can hold rows for which the filter is true (`ENTRY_SCHEMA` in and out)."""
    if predicate is None or not set(predicate.columns) & set(schema.partition_keys) or not entries.num_rows:
        return entries
    codes = entries.column("partition").combine_chunks().dictionary_encode()
    values = decode_rows(codes.dictionary.cast(pa.binary()), schema.partition_types)
    guarantees = _conjoin(
        [_equalities(name, column) for name, column in zip(schema.partition_keys, values, strict=True)]
    )
    keep = _possible(schema, guarantees, predicate)
    return entries.filter(pa.array(keep[codes.indices.to_numpy()]))


def prune_buckets(schema: TableSchema, entries: pa.Table, predicate: Predicate | None, function: str) -> pa.Table:
    """Entries of the buckets that equality tests on all bucket keys lead to; all entries when there are no such tests."""
    keys = schema.bucket_keys
    if predicate is None or not keys or not entries.num_rows:
        return entries
    wanted = combinations(schema, predicate, keys)
    if wanted is None:
        return entries
    mask = np.zeros(entries.num_rows, dtype=bool)
    totals = entries.column("total_buckets").to_numpy()
    buckets = entries.column("bucket").to_numpy()
    for total in np.unique(totals):
        if total <= 0:
            mask |= totals == total
            continue
        hit = np.unique(bucket_of(wanted, schema.bucket_key_types, int(total), function))
        mask |= (totals == total) & np.isin(buckets, hit)
    return entries.filter(pa.array(mask))


def prune_files(schema: TableSchema, entries: pa.Table, predicate: Predicate | None) -> pa.Table:
    """Entries whose file can hold a row for which the filter is true, by key ranges (append tables: value statistics)."""
    if predicate is None or not entries.num_rows:
        return entries
    if not schema.primary_keys:
        return _prune_by_values(schema, entries, predicate)
    used = [
        name
        for name in schema.trimmed_primary_keys
        if name in predicate.columns and _has_order(schema.field(name).type)
    ]
    if not used:
        return entries
    sides = [_bounds(schema, entries, name) for name in used]
    keep = _possible(schema, _conjoin(sides), predicate)
    return entries.filter(pa.array(keep))


def combinations(schema: TableSchema, predicate: Predicate, keys: Sequence[str]) -> list[pa.Array] | None:
    """Columns ``keys`` of all value combinations that equality tests allow; None when the filter does not pin them all."""
    if predicate.groups is None:
        return None
    found: set[tuple[Any, ...]] = set()
    for group in predicate.groups:
        choices = [_choices(group, name, schema.arrow_schema.field(name).type) for name in keys]
        if any(choice is None for choice in choices):
            return None
        pools = [choice for choice in choices if choice is not None]
        if len(found) + int(np.prod([len(pool) for pool in pools], dtype=np.float64)) > _MAX_COMBINATIONS:
            return None
        found.update(itertools.product(*pools))
    ordered = list(found)
    kinds = [schema.arrow_schema.field(name).type for name in keys]
    return [pa.array([row[i] for row in ordered], kind) for i, kind in enumerate(kinds)]


def _choices(group: Sequence[Conjunct], name: str, kind: pa.DataType) -> list[Any] | None:
    """Values that all equality tests of a column allow; None without such tests, or when they contradict each other."""
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
    # Contradictions are left to the rows, as Java's BucketSelector does: nothing is saved by planning for them.
    return allowed or None


def _possible(schema: TableSchema, guarantees: Sequence[pc.Expression], predicate: Predicate) -> np.ndarray[Any, Any]:
    """Mask of the guarantees under which the filter can still be true."""
    file_format, nowhere = ds.ParquetFileFormat(), pafs.LocalFileSystem()
    fragments = [
        file_format.make_fragment(str(index), nowhere, partition_expression=guarantee)
        for index, guarantee in enumerate(guarantees)
    ]
    dataset = ds.FileSystemDataset(fragments, schema.arrow_schema, file_format, nowhere)
    mask = np.zeros(len(guarantees), dtype=bool)
    mask[[int(fragment.path) for fragment in dataset.get_fragments(predicate.expression)]] = True
    return mask


def _conjoin(columns: Sequence[Iterator[pc.Expression]]) -> list[pc.Expression]:
    total: list[pc.Expression] = []
    for parts in zip(*columns, strict=True):
        guarantee = parts[0]
        for part in parts[1:]:
            guarantee = guarantee & part
        total.append(guarantee)
    return total


def _equalities(name: str, column: pa.Array) -> Iterator[pc.Expression]:
    field = pc.field(name)
    floating = pa.types.is_floating(column.type)
    for value in column:
        if not value.is_valid:
            yield field.is_null()
        else:
            yield ALWAYS if floating else field == value


def _has_order(kind: DataType) -> bool:
    """Whether Arrow compares this type as Paimon orders it (floats differ: NaN is greatest there)."""
    arrow = to_arrow(kind)
    return not (pa.types.is_floating(arrow) or pa.types.is_nested(arrow))


def _bounds(schema: TableSchema, entries: pa.Table, name: str) -> Iterator[pc.Expression]:
    """Guarantee on key column ``name`` per file: exact bounds for the first key column, key statistics for the others."""
    position = schema.trimmed_primary_keys.index(name)
    sources = ("min_key", "max_key") if position == 0 else ("key_stats_min", "key_stats_max")
    lows, highs = (_decoded(entries.column(source), schema.trimmed_key_types, position) for source in sources)
    yield from _ranges(name, lows, highs, itertools.repeat(0))


def _decoded(blobs: pa.ChunkedArray, types: Sequence[DataType], position: int) -> pa.Array:
    """Column ``position`` of serialised rows; null where a row is empty (statistics left out)."""
    flat = blobs.combine_chunks()
    if isinstance(flat, pa.ChunkedArray):
        flat = pa.concat_arrays(flat.chunks)
    filled = pc.greater(pc.binary_length(flat), _SMALLEST_ROW)
    full = flat.filter(filled)
    values = decode_rows(full, list(types))[position]
    slots = np.cumsum(np.asarray(filled)) - 1
    return values.take(pa.array(np.maximum(slots, 0), mask=~np.asarray(filled)))


def _ranges(name: str, lows: pa.Array, highs: pa.Array, nulls: Iterator[int | None]) -> Iterator[pc.Expression]:
    field = pc.field(name)
    for low, high, null_count in zip(lows, highs, nulls, strict=False):
        if not (low.is_valid and high.is_valid) or null_count is None:
            yield ALWAYS
        elif null_count:
            yield ((field >= low) & (field <= high)) | field.is_null()
        else:
            yield (field >= low) & (field <= high)


def _prune_by_values(schema: TableSchema, entries: pa.Table, predicate: Predicate) -> pa.Table:
    used = [
        name for name in predicate.columns if name not in schema.partition_keys and _has_order(schema.field(name).type)
    ]
    if not used:
        return entries
    per_file: list[pc.Expression] = [ALWAYS] * entries.num_rows
    layouts = entries.column("value_stats_cols").combine_chunks()
    for columns, rows in _by_layout(layouts, schema).items():
        part = entries.take(pa.array(rows))
        held = [name for name in used if name in columns]
        if not held:
            continue
        sides = [_value_ranges(schema, part, columns, name) for name in held]
        for row, guarantee in zip(rows, _conjoin(sides), strict=True):
            per_file[row] = guarantee
    return entries.filter(pa.array(_possible(schema, per_file, predicate)))


def _by_layout(layouts: pa.Array, schema: TableSchema) -> Mapping[tuple[str, ...], list[int]]:
    """Files grouped by the columns that their value statistics cover."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, names in enumerate(layouts):
        layout = tuple(names.as_py()) if names.is_valid else schema.field_names
        groups.setdefault(layout, []).append(index)
    return groups


def _value_ranges(schema: TableSchema, part: pa.Table, columns: tuple[str, ...], name: str) -> Iterator[pc.Expression]:
    types = [schema.field(column).type for column in columns]
    position = columns.index(name)
    lows, highs = (_decoded(part.column(side), types, position) for side in ("value_stats_min", "value_stats_max"))
    counts = (nulls.as_py() for nulls in part.column("value_stats_nulls"))
    return _ranges(name, lows, highs, (None if not c or position >= len(c) else c[position] for c in counts))
