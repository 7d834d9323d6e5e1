"""Logical types as Arrow types: the mapping, checks of a column's values, and nested arrays with replaced children.

Readers, writers and kernels share these functions. A check finds the first value of a column that violates its type:
a null in a NOT NULL child, a text that is too long, or a time with more fractional digits than its precision. ORC files
pad CHAR values with spaces; a function here removes them, as Paimon's reader does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import numpy_array
from lsm_core.errors import InvalidSchema
from lsm_core.types.data_type import MAX_DECIMAL_PRECISION, MAX_LENGTH, DataType, RowField, TypeRoot

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

    Unlike Arrow's cast, this function accepts a null ROW with NOT NULL fields.
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
    """Return the array without nulls; the content of a null slot is never read, because its ROW is null."""
    kind, count = array.type, len(array)
    if pa.types.is_struct(kind):
        return pa.Array.from_buffers(kind, count, [None], 0, 0, [array.field(at) for at in range(kind.num_fields)])
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        inner = array.values
        return pa.Array.from_buffers(kind, count, [None, array.buffers()[1]], 0, array.offset, [inner])
    return pa.Array.from_buffers(kind, count, [None, *array.buffers()[1:]], 0, array.offset)


def reshape(array: pa.Array, source: DataType, target: DataType, leaf: Leaf) -> pa.Array:
    """Convert values to another logical type.

    Fields of ROWs are matched by id, and missing fields become null. Atomic values are converted by ``leaf``.

    Args:
        array: the values.
        source: logical type of the values.
        target: the new logical type.
        leaf: function that converts atomic values.

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
        source: type to compare with ``target``.
        target: type to compare with ``source``.

    Returns:
        True if the types differ at most in nullability, field descriptions and defaults.
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
    """Return a list or map array without unused child values.

    The children of a sliced array also contain values before and after the slice; the result's children do not.
    """
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
    """Return a struct array of ``children``, null where ``array`` is null (without nulls if ``rows_only`` is true).

    Args:
        array: array whose nulls and length the result gets.
        children: arrays of the fields, each as long as ``array``.
        kind: the struct type.
        rows_only: whether only the length of ``array`` is used, so that the result has no nulls.

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
    """Return a list array with the offsets of ``array`` and new ``values`` (as many as ``array.values``)."""
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, [values])


def map_of(array: pa.Array, keys: pa.Array, items: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a map array with the offsets of ``array`` (a map, or a list of pairs) and new ``keys`` and ``items``."""
    pair = pa.struct([kind.key_field, kind.item_field])
    entries = struct_of(keys, [keys, items], pair, rows_only=True)
    return list_of(array, entries, kind)


_ARROW: dict[TypeRoot, pa.DataType] = {
    TypeRoot.CHAR: pa.string(),
    TypeRoot.VARCHAR: pa.string(),
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.BINARY: pa.binary(),
    TypeRoot.VARBINARY: pa.binary(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INT: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.DATE: pa.date32(),
    TypeRoot.TIME: pa.time32("ms"),
    TypeRoot.BLOB: pa.binary(),
    TypeRoot.GEOMETRY: pa.binary(),
    TypeRoot.GEOGRAPHY: pa.binary(),
    TypeRoot.UNKNOWN: pa.binary(),
    TypeRoot.VARIANT: pa.struct(
        [pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)]
    ),
}


def to_arrow(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a logical type.

    Args:
        kind: the logical type.

    Returns:
        The Arrow type: for example decimal128, date32, time32 in ms, or a timestamp in ms (precision <= 3), us (<= 6)
            or ns, with time zone UTC for LTZ.

    Raises:
        InvalidSchema: a nested type has no element type.
    """
    if kind.root in _ARROW:
        return _ARROW[kind.root]
    if kind.root is TypeRoot.DECIMAL:
        return pa.decimal128(kind.precision or 10, kind.scale or 0)
    if kind.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        precision = kind.precision or 0
        unit = "ms" if precision <= 3 else "us" if precision <= 6 else "ns"
        return pa.timestamp(unit, "UTC" if kind.root is TypeRoot.TIMESTAMP_LTZ else None)
    if kind.root is TypeRoot.ROW:
        return pa.struct([pa.field(f.name, to_arrow(f.type), f.type.nullable) for f in kind.fields])
    if kind.root is TypeRoot.MAP and kind.key is not None and kind.value is not None:
        return pa.map_(to_arrow(kind.key), pa.field("value", to_arrow(kind.value), kind.value.nullable))
    element = kind.element
    if element is None:
        raise InvalidSchema(f"{kind.root.value} has no element type")
    if kind.root is TypeRoot.MULTISET:
        return pa.map_(to_arrow(element), pa.field("value", pa.int32(), nullable=False))
    return pa.list_(pa.field("element", to_arrow(element), element.nullable))


_LOGICAL: dict[int, DataType] = {
    pa.lib.Type_BOOL: DataType(TypeRoot.BOOLEAN),
    pa.lib.Type_INT8: DataType(TypeRoot.TINYINT),
    pa.lib.Type_UINT8: DataType(TypeRoot.SMALLINT),
    pa.lib.Type_INT16: DataType(TypeRoot.SMALLINT),
    pa.lib.Type_UINT16: DataType(TypeRoot.INT),
    pa.lib.Type_INT32: DataType(TypeRoot.INT),
    pa.lib.Type_UINT32: DataType(TypeRoot.BIGINT),
    pa.lib.Type_INT64: DataType(TypeRoot.BIGINT),
    pa.lib.Type_UINT64: DataType(TypeRoot.DECIMAL, precision=20, scale=0),
    pa.lib.Type_HALF_FLOAT: DataType(TypeRoot.FLOAT),
    pa.lib.Type_FLOAT: DataType(TypeRoot.FLOAT),
    pa.lib.Type_DOUBLE: DataType(TypeRoot.DOUBLE),
    pa.lib.Type_STRING: DataType(TypeRoot.VARCHAR, length=MAX_LENGTH),
    pa.lib.Type_LARGE_STRING: DataType(TypeRoot.VARCHAR, length=MAX_LENGTH),
    pa.lib.Type_STRING_VIEW: DataType(TypeRoot.VARCHAR, length=MAX_LENGTH),
    pa.lib.Type_BINARY: DataType(TypeRoot.VARBINARY, length=MAX_LENGTH),
    pa.lib.Type_LARGE_BINARY: DataType(TypeRoot.VARBINARY, length=MAX_LENGTH),
    pa.lib.Type_BINARY_VIEW: DataType(TypeRoot.VARBINARY, length=MAX_LENGTH),
    pa.lib.Type_DATE32: DataType(TypeRoot.DATE),
    pa.lib.Type_DATE64: DataType(TypeRoot.DATE),
}
_FRACTION_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def from_arrow(kind: pa.DataType, nullable: bool = True) -> DataType:
    """Return the logical type of an Arrow type.

    Unsigned integers become the next wider signed type (uint64: DECIMAL(20, 0)), dictionaries their value type. Nested
    ROW fields are numbered 0, 1, 2 ... and get their table-wide ids when the table is created.

    Args:
        kind: the Arrow type.
        nullable: whether the result is nullable.

    Returns:
        The logical type.

    Raises:
        InvalidSchema: Paimon lacks the type (intervals, unions, null).
    """
    simple = _LOGICAL.get(kind.id)
    if simple is not None:
        return simple.with_nullable(nullable)
    if pa.types.is_fixed_size_binary(kind):
        return DataType(TypeRoot.BINARY, nullable, length=kind.byte_width)
    if pa.types.is_dictionary(kind):
        return from_arrow(kind.value_type, nullable)
    if pa.types.is_decimal(kind) and kind.precision <= MAX_DECIMAL_PRECISION and 0 <= kind.scale <= kind.precision:
        return DataType(TypeRoot.DECIMAL, nullable, precision=kind.precision, scale=kind.scale)
    if pa.types.is_time(kind):
        return DataType(TypeRoot.TIME, nullable, precision=_FRACTION_DIGITS[kind.unit])
    if pa.types.is_timestamp(kind):
        root = TypeRoot.TIMESTAMP if kind.tz is None else TypeRoot.TIMESTAMP_LTZ
        return DataType(root, nullable, precision=_FRACTION_DIGITS[kind.unit])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return DataType(
            TypeRoot.MAP, nullable, key=from_arrow(key.type, nullable=False), value=from_arrow(item.type, item.nullable)
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        child = kind.value_field
        return DataType(TypeRoot.ARRAY, nullable, element=from_arrow(child.type, child.nullable))
    if _is_variant(kind):
        return DataType(TypeRoot.VARIANT, nullable)
    if pa.types.is_struct(kind):
        fields = tuple(RowField(i, f.name, from_arrow(f.type, f.nullable)) for i, f in enumerate(kind))
        return DataType(TypeRoot.ROW, nullable, fields=fields)
    raise InvalidSchema(f"no column type for Arrow's {kind}")


def _is_variant(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is that of variants: Arrow's extension type, or a struct with Spark's mark."""
    if isinstance(kind, pa.BaseExtensionType):
        return bool(kind.extension_name == "arrow.parquet.variant")
    if not pa.types.is_struct(kind) or sorted(field.name for field in kind) != ["metadata", "value"]:
        return False
    return (kind.field("metadata").metadata or {}).get(b"variant") == b"true"


def holds_char(kind: DataType) -> bool:
    """Return whether the type is CHAR or contains it at any depth."""
    inner = (kind.element, kind.key, kind.value, *(field.type for field in kind.fields))
    return kind.root is TypeRoot.CHAR or any(part is not None and holds_char(part) for part in inner)


def unpadded(array: pa.Array, kind: DataType) -> pa.Array:
    """Return an array without the trailing spaces of CHAR values.

    Java writes ORC's CHAR type, in which all values have the full length. Writers that use plain text do not pad, and
    their values are not changed. Arrow has the same type for both, so the lengths of the values decide.

    Args:
        array: the values.
        kind: logical type of the values.

    Returns:
        The array with the same Arrow type.
    """
    if not holds_char(kind):
        return array
    if kind.root is TypeRoot.CHAR:
        has_full_length = pc.all(pc.equal(pc.utf8_length(array), kind.length), min_count=0)
        return pc.utf8_rtrim(array, characters=" ") if has_full_length.as_py() else array
    if kind.root is TypeRoot.ROW:
        positions = [(array.type.get_field_index(field.name), field.type) for field in kind.fields]
        parts = {position: unpadded(array.field(position), inner) for position, inner in positions if position >= 0}
        return struct_of(
            array, [parts.get(position, array.field(position)) for position in range(array.type.num_fields)], array.type
        )
    if pa.types.is_map(array.type):
        key, value = (kind.element, None) if kind.root is TypeRoot.MULTISET else (kind.key, kind.value)
        keys = array.keys if key is None else unpadded(array.keys, key)
        return map_of(array, keys, array.items if value is None else unpadded(array.items, value), array.type)
    if pa.types.is_list(array.type) and kind.element is not None:
        return list_of(array, unpadded(array.values, kind.element), array.type)
    return array


_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_VARIANT_HEADERS: Final = tuple(bytes([high << 4 | 1]) for high in range(16))
"""First bytes of a variant's metadata: the low half is the version of the encoding."""
_BINARIES: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_TIMES: Final = frozenset({TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_UNIT_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


@dataclass(frozen=True)
class Misfit:
    """A value that does not fit its type.

    Attributes:
        row: index of the row.
        path: position inside the row's value: "" for the value itself, ".x" for a field, "[]" for an element.
        value: the value.
        kind: the type that the value violates.
        reason: explanation for the user.
    """

    row: int
    path: str
    value: object
    kind: DataType
    reason: str


def find_misfit(array: pa.Array, kind: DataType) -> Misfit | None:
    """Return the first value that ``kind`` does not allow; nulls of the column itself are not checked.

    The check covers lengths of CHAR, VARCHAR, BINARY and VARBINARY (maximum in characters or bytes), digits of TIME and
    timestamps, NOT NULL inside nested values, and repeated keys of a map. Violations that Arrow's types exclude are not
    checked.

    Args:
        array: values with the type `to_arrow(kind)`.
        kind: the logical type.

    Returns:
        The first misfit, or None.
    """
    if not _has_limits(kind) or not len(array):
        return None
    if kind.root is TypeRoot.ROW:
        return _find_in_row(array, kind)
    if kind.root is TypeRoot.MAP and kind.key is not None and kind.value is not None:
        misfit = _find_in_elements(array, array.keys, kind.key.with_nullable(nullable=False), "{key}")
        return (
            misfit
            or _find_in_elements(array, array.items, kind.value, "{value}")
            or _find_repeated_key(array, kind.key)
        )
    if kind.root is TypeRoot.MULTISET and kind.element is not None:
        misfit = _find_in_elements(array, array.keys, kind.element.with_nullable(nullable=False), "{}")
        return misfit or _find_repeated_key(array, kind.element)
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        return _find_in_elements(array, array.values, kind.element, "[]")
    if kind.root is TypeRoot.VARIANT:
        return _find_in_variants(array, kind)
    return _find_in_atoms(array, kind)


def _find_in_variants(array: pa.Array, kind: DataType) -> Misfit | None:
    """Return the first VARIANT without a value, or whose metadata does not begin with the encoding's version."""
    value, metadata = array.field("value"), array.field("metadata")
    has_value = pc.greater(pc.fill_null(pc.binary_length(value), 0), 0)
    is_known = pc.is_in(pc.binary_slice(metadata, 0, 1), pa.array(_VARIANT_HEADERS, pa.binary()))
    is_bad = pc.and_(array.is_valid(), pc.invert(pc.and_(has_value, is_known)))
    if not pc.any(is_bad, min_count=0).as_py():
        return None
    row = int(np.flatnonzero(np.asarray(is_bad))[0])
    reason = "value and metadata are no variant in Parquet's binary encoding, version 1"
    return Misfit(row, "", array[row].as_py(), kind, reason)


def one_nan(array: pa.Array) -> pa.Array:
    """Return floating-point values with Java's bit pattern for every NaN.

    Otherwise NaN keys with different bit patterns would be in different buckets.
    """
    nan = pc.is_nan(array)
    return pc.if_else(nan, pa.scalar(float("nan"), array.type), array) if pc.any(nan).as_py() else array


def _find_repeated_key(array: pa.MapArray, kind: DataType) -> Misfit | None:
    """Return the first repeated key of a map, or None; keys of Java's maps are unique. Nested keys are not checked."""
    if pa.types.is_nested(array.keys.type):
        return None
    keys, rows = _elements(array, array.keys)
    if len(keys) < 2:
        return None
    encoded = keys.dictionary_encode()
    codes = np.asarray(encoded.indices.fill_null(-1)).astype(np.int64) + 1
    pairs = rows * (len(encoded.dictionary) + 1) + codes
    order = np.argsort(pairs, kind="stable")
    repeated = order[1:][pairs[order][1:] == pairs[order][:-1]]
    if not len(repeated):
        return None
    index = int(repeated.min())
    return Misfit(int(rows[index]), "{key}", keys[index].as_py(), kind, "the map has this key already")


@lru_cache(maxsize=4096)
def _has_limits(kind: DataType) -> bool:
    """Return whether a type has limits that its Arrow type does not enforce, such as a length or unique map keys."""
    if kind.root in _TEXTS or kind.root in _BINARIES:
        return (kind.length or MAX_LENGTH) < MAX_LENGTH
    if kind.root in _TIMES:
        return (kind.precision or 0) not in (3, 6, 9)
    if kind.root in (TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.VARIANT):
        return True
    inner = [field.type for field in kind.fields] + [part for part in (kind.element, kind.value) if part is not None]
    return any(not part.nullable or _has_limits(part) for part in inner)


def _find_in_row(array: pa.Array, kind: DataType) -> Misfit | None:
    valid = array.is_valid() if array.null_count else None
    misfits = []
    for index, field in enumerate(kind.fields):
        child = array.field(index)
        # Values below a null row are not part of the data.
        inner = _find_within(child if valid is None else child.filter(valid), field.type, f".{field.name}")
        if inner is not None:
            row = inner.row if valid is None else int(np.flatnonzero(np.asarray(valid))[inner.row])
            misfits.append(replace(inner, row=row))
    return min(misfits, key=lambda misfit: misfit.row, default=None)


def _find_in_elements(array: pa.Array, values: pa.Array, kind: DataType, path: str) -> Misfit | None:
    if kind.nullable and not _has_limits(kind):
        return None
    elements, rows = _elements(array, values)
    inner = _find_within(elements, kind, path)
    return None if inner is None else replace(inner, row=int(rows[inner.row]))


def _elements(array: pa.Array, values: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return (elements of lists or maps, row number of each element); elements of null lists or maps are left out.

    Args:
        array: lists or maps.
        values: child array to flatten, such as the keys of the maps.
    """
    valid = np.flatnonzero(np.asarray(array.is_valid()))
    lists = list_of(array, values, pa.list_(values.type))
    if array.null_count:
        lists = lists.drop_null()
    return lists.flatten(), valid[np.asarray(pc.list_parent_indices(lists)).astype(np.int64)]


def _find_within(array: pa.Array, kind: DataType, path: str) -> Misfit | None:
    """Return the first null that the type forbids, or the first misfit inside a nested value.

    Args:
        array: the values.
        kind: type of the values.
        path: path of the values below the column, such as ".a" or "{key}".

    Returns:
        The misfit with the lowest row, or None.
    """
    forbidden_null = None
    if array.null_count and not kind.nullable:
        forbidden_null = Misfit(int(np.argmax(np.asarray(array.is_null()))), path, None, kind, "null where none may be")
    inner = find_misfit(array, kind)
    if inner is None or (forbidden_null is not None and forbidden_null.row <= inner.row):
        return forbidden_null
    return replace(inner, path=path + inner.path)


def _find_in_atoms(array: pa.Array, kind: DataType) -> Misfit | None:
    """Return the first atomic value that is too long or has too many digits, or None."""
    if kind.root in _TIMES:
        unit = array.type.unit
        whole = pa.int32() if kind.root is TypeRoot.TIME else pa.int64()
        numbers = np.asarray(array.cast(whole).fill_null(0))
        surplus = _UNIT_DIGITS[unit] - min(kind.precision or 0, _UNIT_DIGITS[unit])
        is_misfit = numbers % 10**surplus != 0
    else:
        lengths = pc.utf8_length(array) if kind.root in _TEXTS else pc.binary_length(array)
        numbers = np.asarray(lengths.fill_null(0))
        is_misfit = numbers > (kind.length or 0)
    if array.null_count:
        is_misfit = is_misfit & np.asarray(array.is_valid())
    if not is_misfit.any():
        return None
    row = int(np.argmax(is_misfit))
    if kind.root in _TIMES:
        value = array[row : row + 1].cast(pa.string())[0].as_py()
        return Misfit(row, "", value, kind, f"more than {kind.precision} digits after the seconds")
    unit_name = "characters" if kind.root in _TEXTS else "bytes"
    return Misfit(row, "", array[row].as_py(), kind, f"{int(numbers[row])} {unit_name}")
