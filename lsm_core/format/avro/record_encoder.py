"""Encoding of Arrow columns as bytes of Avro records, by column instead of by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lsm_core.arrays import (
    I64,
    U8,
    U64,
    arrow_array,
    big_endian_digits,
    decimal_limbs,
    null_mask,
    numpy_array,
    offsets_from,
    slice_places,
    value_bytes,
    value_offsets,
)

_DECIMAL_BYTES = 16
_VARINT_BYTES = 10


@dataclass(frozen=True)
class Piece:
    """Encoded bytes of one field for all records.

    Attributes:
        lengths: number of bytes of each record.
        data: bytes of all records, concatenated.
    """

    lengths: I64
    data: U8


def join(pieces: Sequence[Piece]) -> Piece:
    """Combine fields: for each record, the bytes of the first piece, then of the second, and so on."""
    lengths: I64 = np.sum([piece.lengths for piece in pieces], axis=0, dtype=np.int64)
    starts = offsets_from(lengths)
    data = np.empty(int(starts[-1]), np.uint8)
    positions = starts[:-1].copy()
    for piece in pieces:
        # Most fields are small numbers of one byte each.
        single = len(piece.data) == len(positions) and bool((piece.lengths == 1).all())
        data[positions if single else slice_places(positions, piece.lengths)] = piece.data
        positions += piece.lengths
    return Piece(lengths, data)


def encode_rows(rows: pa.RecordBatch) -> Piece:
    """Return the encoded records of a batch.

    Their schema is that of :func:`lsm_core.format.avro.avro_schema.avro_schema` for its columns.
    """
    return encode_columns(rows.columns, rows.schema)


def encode_columns(columns: Sequence[pa.Array], schema: pa.Schema) -> Piece:
    """Return the encoded records of columns.

    ``schema`` decides which values are nullable in Avro (a union of null and the value), even inside lists, maps and
    structs; the arrays' own types do not.

    Args:
        columns: the columns.
        schema: their schema.

    Returns:
        The records.

    Raises:
        ValueError: a required value is null.
    """
    return join([piece for column, field in zip(columns, schema, strict=True) for piece in _field(column, field)])


def _field(array: pa.Array, field: pa.Field) -> list[Piece]:
    """Return the bytes of a column as pieces to be joined."""
    if not field.nullable:
        if array.null_count:
            raise ValueError(f"{array.null_count} nulls in the required Avro field '{field.name}'")
        return _values(array, field.type)
    # The branch of the union: 0 for null, 1 (zig-zag 2) for the value.
    nulls = null_mask(array)
    if nulls is None:
        return [Piece(np.ones(len(array), np.int64), np.full(len(array), 2, np.uint8)), *_values(array, field.type)]
    present = join(_values(array.filter(arrow_array(~nulls)), field.type))
    lengths = np.zeros(len(array), np.int64)
    lengths[~nulls] = present.lengths
    flags = np.where(nulls, 0, 2).astype(np.uint8)
    return [Piece(np.ones(len(array), np.int64), flags), Piece(lengths, present.data)]


def _values(array: pa.Array, declared: pa.DataType) -> list[Piece]:
    """Return the bytes of values without nulls; ``declared`` decides which nested parts are nullable."""
    kind = array.type
    if pa.types.is_struct(kind):
        if not kind.num_fields:  # a record without fields has no bytes
            return [Piece(np.zeros(len(array), np.int64), np.zeros(0, np.uint8))]
        return [piece for i, child in enumerate(array.flatten()) for piece in _field(child, declared.field(i))]
    if pa.types.is_list(kind):
        offsets = value_offsets(array)
        child = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        return _blocks(offsets, join(_field(child, declared.value_field)))
    if pa.types.is_map(kind):
        # A map is encoded as an array of its entries; keys that are not texts are nullable in Avro.
        offsets = value_offsets(array)
        count = int(offsets[-1] - offsets[0])
        keys, items = array.keys.slice(int(offsets[0]), count), array.items.slice(int(offsets[0]), count)
        key = (
            declared.key_field if pa.types.is_string(kind.key_type) else declared.key_field.with_nullable(nullable=True)
        )
        return _blocks(offsets, join([*_field(keys, key), *_field(items, declared.item_field)]))
    if pa.types.is_boolean(kind):
        return [_fixed(numpy_array(array.cast(pa.uint8())).view(np.uint8), 1)]
    if pa.types.is_floating(kind):
        return [_fixed(np.ascontiguousarray(numpy_array(array)).view(np.uint8), kind.bit_width // 8)]
    if pa.types.is_decimal(kind):
        # Length, then shortest big-endian two's complement of the unscaled value (Java `BigInteger.toByteArray`).
        digits, sizes = big_endian_digits(*decimal_limbs(array))
        last = _DECIMAL_BYTES * np.arange(1, len(array) + 1, dtype=np.int64)
        return [long_values(sizes), Piece(sizes, digits[slice_places(last - sizes, sizes)])]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets = value_offsets(array)
        lengths = np.diff(offsets)
        return [long_values(lengths), Piece(lengths, value_bytes(array)[offsets[0] : offsets[-1]])]
    width = pa.int64() if kind.bit_width == 64 else pa.int32()
    integers = array.view(width) if kind.bit_width in (32, 64) else array
    return [long_values(numpy_array(integers.cast(pa.int64())))]


def _blocks(offsets: I64, items: Piece) -> list[Piece]:
    """Return arrays as one block (count, items) and an end mark; an empty array is only the end mark."""
    counts = np.diff(offsets)
    ends = offsets_from(items.lengths)[offsets - offsets[0]]
    mark = Piece((counts > 0).astype(np.int64), np.zeros(int((counts > 0).sum()), np.uint8))
    return [long_values(counts), Piece(np.diff(ends), items.data), mark]


def _fixed(data: U8, width: int) -> Piece:
    return Piece(np.full(len(data) // width, width, np.int64), data)


def long_values(values: I64) -> Piece:
    """Return zig-zag variable-length integers (Avro's int and long have the same encoding)."""
    zigzag: U64 = ((values << 1) ^ (values >> 63)).view(np.uint64)
    largest = zigzag.max() if len(zigzag) else np.uint64(0)
    lengths = np.ones(len(values), np.int64)
    width = 1
    while width < _VARINT_BYTES and int(largest) >> (7 * width):
        lengths += zigzag >= np.uint64(1 << (7 * width))
        width += 1
    if width == 1:
        return Piece(lengths, zigzag.astype(np.uint8))
    group_index = np.arange(width)
    groups = (zigzag[:, None] >> (7 * group_index).astype(np.uint64)).astype(np.uint8) & np.uint8(0x7F)
    groups |= np.where(group_index < lengths[:, None] - 1, np.uint8(0x80), np.uint8(0))
    return Piece(lengths, groups[group_index < lengths[:, None]])
