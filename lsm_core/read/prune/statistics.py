"""What each file's statistics promise about today's columns, whichever schema the file was written with."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import DredgeError
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.metadata.store import TableStore
from lsm_core.read.predicate import ALWAYS, Predicate
from lsm_core.read.prune.guarantees import conjoin, equalities, prunable, ranges
from lsm_core.read.prune.places import decoded_rows
from lsm_core.types import DataType, TypeRoot, to_arrow

_ARITY_BYTES: Final = 4
_WHOLE: Final = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_DIGITS: Final = dict(zip(_WHOLE, (3, 5, 10, 19), strict=True))
_FLOAT_DIGITS: Final = {TypeRoot.FLOAT: _WHOLE[:2], TypeRoot.DOUBLE: _WHOLE[:3]}
"""Whole numbers that a floating point type holds exactly."""
_TEXT: Final = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_FRACTIONS: Final = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ, TypeRoot.TIME)
Guarantees = list[pc.Expression]


def partition_guarantees(schema: TableSchema, entries: pa.Table, predicate: Predicate) -> Guarantees:
    """Per file, the partition it lies in; always true where the filter does not ask for partition columns."""
    if not set(predicate.columns) & set(schema.partition_keys):
        return [ALWAYS] * entries.num_rows
    codes = pc.dictionary_encode(_flat(entries.column("partition")))
    columns = decoded_rows(codes.dictionary.cast(pa.binary()), schema.partition_types)
    each = conjoin([equalities(name, column) for name, column in zip(schema.partition_keys, columns, strict=True)])
    return [each[code] for code in codes.indices.to_pylist()]


def key_guarantees(schema: TableSchema, entries: pa.Table, predicate: Predicate) -> Guarantees:
    """Per file of a primary-key table, its key range: exact bounds of the first key column, statistics of the others."""
    columns = []
    for name in prunable(schema, predicate, schema.trimmed_primary_keys):
        position = schema.trimmed_primary_keys.index(name)
        sources = ("min_key", "max_key") if position == 0 else ("key_stats_min", "key_stats_max")
        sides = [_decoded(entries.column(source), schema.trimmed_key_types, position) for source in sources]
        columns.append(ranges(name, sides[0], sides[1], itertools.repeat(0)))
    return conjoin(columns) if columns else [ALWAYS] * entries.num_rows


def value_guarantees(store: TableStore, entries: pa.Table, predicate: Predicate) -> Guarantees:
    """Per file, what its value statistics say about the columns that the filter asks for."""
    schema = store.schema
    used = [name for name in prunable(schema, predicate, predicate.columns) if name not in schema.partition_keys]
    found: Guarantees = [ALWAYS] * entries.num_rows
    if not used:
        return found
    layouts: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}
    covers = entries.column("value_stats_cols").to_pylist()
    for row, (schema_id, names) in enumerate(zip(entries.column("schema_id").to_pylist(), covers, strict=True)):
        layouts.setdefault((schema_id, None if names is None else tuple(names)), []).append(row)
    for (schema_id, names), rows in layouts.items():
        written = store.schema_of(schema_id)
        part = entries.take(pa.array(rows))
        columns = [_of_column(schema.field(name), written, names or written.field_names, part) for name in used] if (
            names is None or names
        ) else [itertools.repeat(ALWAYS, len(rows))]
        for row, guarantee in zip(rows, conjoin(columns), strict=True):
            found[row] = guarantee
    return found


def keeps_order(old: DataType, new: DataType) -> bool:
    """Whether reading values of type ``old`` as ``new`` changes none of them, so that bounds stay bounds and nulls nulls."""
    if old.root in _WHOLE:
        if new.root in _WHOLE:
            return _WHOLE.index(old.root) <= _WHOLE.index(new.root)
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


def _of_column(field: DataField, written: TableSchema, names: Sequence[str], part: pa.Table) -> Iterable[pc.Expression]:
    """Guarantees about ``field`` for files whose statistics cover columns ``names`` of the schema ``written``."""
    unknown = itertools.repeat(ALWAYS, part.num_rows)
    old = next((one for one in written.fields if one.id == field.id), None)
    if old is None:  # added later: rows of such files have null there
        absent = ALWAYS if field.default is not None else pc.field(field.name).is_null()
        return itertools.repeat(absent, part.num_rows)
    if old.name not in names or not all(written.has_field(name) for name in names):
        return unknown
    if not keeps_order(old.type, field.type):
        return unknown
    position = names.index(old.name)
    types = [written.field(name).type for name in names]
    try:
        sides = [_decoded(part.column(side), types, position) for side in ("value_stats_min", "value_stats_max")]
        lows, highs = (side.cast(to_arrow(field.type)) for side in sides)
    except (DredgeError, pa.ArrowException):  # statistics that cannot be read prove nothing
        return unknown
    counts = (None if not c or position >= len(c) else c[position] for c in part.column("value_stats_nulls").to_pylist())
    return ranges(field.name, lows, highs, counts, part.column("row_count").to_pylist())


def _decoded(blobs: pa.ChunkedArray, types: Sequence[DataType], position: int) -> pa.Array:
    """Column ``position`` of serialised rows of ``types``; null where a row has another number of columns (none, mostly)."""
    flat = _flat(blobs)
    prefix = pc.binary_slice(flat, 0, _ARITY_BYTES)
    right = pc.equal(prefix, pa.scalar(len(types).to_bytes(_ARITY_BYTES, "big"), prefix.type))
    return decoded_rows(pc.if_else(right, flat, pa.scalar(None, flat.type)), types)[position]


def _flat(values: pa.ChunkedArray) -> pa.Array:
    joined = values.combine_chunks()
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined


__all__ = ["keeps_order", "key_guarantees", "partition_guarantees", "value_guarantees"]
