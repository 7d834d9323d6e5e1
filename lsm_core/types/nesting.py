"""Nested Arrow arrays with replaced children: offsets and validity remain, no value is copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import numpy_array
from lsm_core.types.arrow import to_arrow
from lsm_core.types.data_type import DataType, TypeRoot

Leaf = Callable[[pa.Array, DataType, DataType], pa.Array]
"""Conversion of atomic values from one type to another."""
_LISTS: Final = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def refit(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert an array to another Arrow type at every depth without loss; ROW fields are matched by name.

    Args:
        array: the values.
        target: the Arrow type.

    Returns:
        The converted array.

    Raises:
        ArrowInvalid: a value does not fit.
        ArrowException: the types are incompatible.
    """
    if array.type.equals(target):
        return array
    kind = array.type
    if pa.types.is_struct(target) and pa.types.is_struct(kind):
        positions = [kind.get_field_index(field.name) for field in target]
        if -1 in positions:
            raise pa.ArrowInvalid(f"no field '{target[positions.index(-1)].name}' in {kind}")
        fields = [refit(array.field(position), field.type) for position, field in zip(positions, target, strict=True)]
        return struct_of(array, fields, target)
    if pa.types.is_map(target) and pa.types.is_map(kind):
        array = compact(array)
        return map_of(array, refit(array.keys, target.key_type), refit(array.items, target.item_type), target)
    if pa.types.is_list(target) and any(is_list(kind) for is_list in _LISTS):
        plain = compact(array if pa.types.is_list(kind) else array.cast(pa.list_(kind.value_field)))
        return list_of(plain, refit(plain.values, target.value_type), target)
    if pa.types.is_map(target) and pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        # File formats that lack maps with these keys store a list of pairs.
        array = compact(array)
        pairs = array.values
        if pairs.type.num_fields == 2:
            return map_of(
                array, refit(pairs.field(0), target.key_type), refit(pairs.field(1), target.item_type), target
            )
    return array.cast(target)


def refit_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert the columns of a table, in order, to the types of a schema.

    Arrow's cast fails for a null ROW of NOT NULL fields.
    """
    columns = []
    for column, field in zip(table.columns, schema, strict=True):
        chunks = [refit(chunk, field.type) for chunk in column.chunks]
        columns.append(pa.chunked_array(chunks, chunks[0].type if chunks else field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def without_hidden_nulls(array: pa.Array) -> pa.Array:
    """Return the array without nulls in NOT NULL fields below a null ROW, because Parquet's writer refuses them."""
    kind = array.type
    if pa.types.is_struct(kind):
        fields = [without_hidden_nulls(array.field(at)) for at in range(kind.num_fields)]
        for at, field in enumerate(fields):
            if not kind.field(at).nullable and field.null_count:
                is_visible = pc.any(pc.and_(field.is_null(), array.is_valid()), min_count=0).as_py()
                fields[at] = field if is_visible else _all_valid(field)
        return struct_of(array, fields, kind)
    if pa.types.is_map(kind):
        return map_of(array, without_hidden_nulls(array.keys), without_hidden_nulls(array.items), kind)
    if pa.types.is_list(kind):
        return list_of(array, without_hidden_nulls(array.values), kind)
    return array


def _all_valid(array: pa.Array) -> pa.Array:
    """Return the same slots without nulls; the content of a null slot is never read, because its ROW is null."""
    kind, count = array.type, len(array)
    if pa.types.is_struct(kind):
        return pa.Array.from_buffers(kind, count, [None], 0, 0, [array.field(at) for at in range(kind.num_fields)])
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        inner = array.values
        return pa.Array.from_buffers(kind, count, [None, array.buffers()[1]], 0, array.offset, [inner])
    return pa.Array.from_buffers(kind, count, [None, *array.buffers()[1:]], 0, array.offset)


def reshape(array: pa.Array, source: DataType, target: DataType, leaf: Leaf) -> pa.Array:
    """Convert values to another logical type.

    Fields of ROWs by id (missing ones become null), atomic values by ``leaf``.

    Args:
        array: the values.
        source: their logical type.
        target: the new logical type.
        leaf: conversion of atomic values.

    Returns:
        The converted array.

    Source: ``SchemaEvolutionUtil.createCastExecutor``.
    """
    if same_values(source, target):
        return refit(array, to_arrow(target))
    if source.root is not target.root or not target.is_nested:
        return leaf(array, source, target)
    kind = to_arrow(target)
    if target.root is not TypeRoot.ROW and target.root is not TypeRoot.VECTOR:
        array = compact(array)
    if target.root is TypeRoot.ROW:
        positions = {field.id: position for position, field in enumerate(source.fields)}
        fields = []
        for field in target.fields:
            position = positions.get(field.id)
            if position is None:
                fields.append(pa.nulls(len(array), to_arrow(field.type)))
            else:
                fields.append(reshape(array.field(position), source.fields[position].type, field.type, leaf))
        return struct_of(array, fields, kind)
    if target.root is TypeRoot.MAP and source.key and source.value and target.key and target.value:
        keys = reshape(array.keys, source.key, target.key, leaf)
        return map_of(array, keys, reshape(array.items, source.value, target.value, leaf), kind)
    if source.element is None or target.element is None:
        return leaf(array, source, target)
    if target.root is TypeRoot.MULTISET:
        return map_of(array, reshape(array.keys, source.element, target.element, leaf), array.items, kind)
    return list_of(array, reshape(array.values, source.element, target.element, leaf), kind)


def same_values(source: DataType, target: DataType) -> bool:
    """Return whether two types have the same values and field names.

    Args:
        source: a type.
        target: another type.

    Returns:
        True if they differ at most in nullability, field descriptions and defaults.
    """
    if source.root is not target.root or source.is_nested != target.is_nested:
        return False
    if not source.is_nested:
        return source.with_nullable(target.nullable) == target
    if len(source.fields) != len(target.fields) or source.length != target.length:
        return False
    if any((a.id, a.name) != (b.id, b.name) for a, b in zip(source.fields, target.fields, strict=True)):
        return False
    inner = [(source.element, target.element), (source.key, target.key), (source.value, target.value)]
    inner += [(a.type, b.type) for a, b in zip(source.fields, target.fields, strict=True)]
    return all(a is b or (a is not None and b is not None and same_values(a, b)) for a, b in inner)


def compact(array: pa.Array) -> pa.Array:
    """Return a list or map array whose children contain only referenced values; a slice would keep its whole array."""
    offsets = numpy_array(array.offsets)
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    is_map = pa.types.is_map(array.type)
    if not array.offset and not first and last == len(array.keys if is_map else array.values):
        return array
    validity = array.is_valid().buffers()[1] if array.null_count else None
    new_offsets = pa.py_buffer(np.ascontiguousarray(offsets - first))
    if is_map:
        pairs = [array.keys.slice(first, last - first), array.items.slice(first, last - first)]
        entries = struct_of(pairs[0], pairs, pa.struct([array.type.key_field, array.type.item_field]), rows_only=True)
    else:
        entries = array.values.slice(first, last - first)
    return pa.Array.from_buffers(array.type, len(array), [validity, new_offsets], array.null_count, 0, [entries])


# -- arrays with other children ----------------------------------------------------------------------------------------


def struct_of(array: pa.Array, children: Sequence[pa.Array], kind: pa.DataType, *, rows_only: bool = False) -> pa.Array:
    """Return a struct array with other children, null where ``array`` is null (never with ``rows_only``).

    Args:
        array: the array with the validity.
        children: arrays of the same length.
        kind: the struct type.
        rows_only: whether only the number of rows of ``array`` is used.

    Returns:
        The struct array.
    """
    nulls = 0 if rows_only else array.null_count
    validity = None
    if nulls:
        # The validity bits of a slice do not start at zero, but its children do.
        validity = array.is_valid().buffers()[1] if array.offset else array.buffers()[0]
    return pa.Array.from_buffers(kind, len(array), [validity], nulls, 0, list(children))


def list_of(array: pa.Array, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a list array with the offsets of ``array`` and other values (as many as ``array.values``)."""
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, [values])


def map_of(array: pa.Array, keys: pa.Array, items: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a map array with the offsets of ``array`` (a map, or a list of pairs) and other keys and items."""
    pair = pa.struct([kind.key_field, kind.item_field])
    entries = struct_of(keys, [keys, items], pair, rows_only=True)
    return list_of(array, entries, kind)
