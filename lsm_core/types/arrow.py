"""Mapping between logical types and Arrow types, shared by readers, writers and kernels."""

from __future__ import annotations

import pyarrow as pa

from lsm_core.errors import InvalidSchema
from lsm_core.types.data_type import MAX_DECIMAL_PRECISION, MAX_LENGTH, DataType, RowField, TypeRoot

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
        decimal128, date32, time32 in ms, timestamps in ms (precision <= 3), us (<= 6) or ns, with UTC for LTZ.

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
    if pa.types.is_struct(kind):
        fields = tuple(RowField(i, f.name, from_arrow(f.type, f.nullable)) for i, f in enumerate(kind))
        return DataType(TypeRoot.ROW, nullable, fields=fields)
    raise InvalidSchema(f"no column type for Arrow's {kind}")
