"""Arrow columns to the bytes of Avro records, a column at a time and never a row at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lsm_core.arrays import (
    I64,
    big_endian_digits,
    decimal_limbs,
    null_mask,
    offsets_from,
    slice_places,
    value_bytes,
    value_offsets,
)
from lsm_core.format.manifest.columnar_avro import Piece, join, long_values

_DECIMAL_BYTES = 16


def encode_rows(rows: pa.RecordBatch) -> Piece:
    """The records of ``rows``, one after another. The schema is :func:`.schema.avro_schema` of theirs."""
    pieces = [_field(column, field) for column, field in zip(rows.columns, rows.schema, strict=True)]
    return join(pieces)


def _field(array: pa.Array, field: pa.Field) -> Piece:
    if not field.nullable:
        if array.null_count:
            raise ValueError(f"{array.null_count} nulls in the NOT NULL column '{field.name}'")
        return _values(array)
    nulls = null_mask(array)
    if nulls is None:
        return join([_constant(2, len(array)), _values(array)])
    present = _values(array.filter(pa.array(~nulls)))
    lengths = np.zeros(len(array), np.int64)
    lengths[~nulls] = present.lengths
    # The branch of the union: 0 null, 1 (in zig-zag 2) the value.
    return join(
        [Piece(np.ones(len(array), np.int64), np.where(nulls, 0, 2).astype(np.uint8)), Piece(lengths, present.data)]
    )


def _values(array: pa.Array) -> Piece:
    """Values without nulls."""
    kind = array.type
    if pa.types.is_struct(kind):
        if not kind.num_fields:  # a record of nothing takes no bytes
            return Piece(np.zeros(len(array), np.int64), np.zeros(0, np.uint8))
        return join([_field(child, kind.field(i)) for i, child in enumerate(array.flatten())])
    if pa.types.is_list(kind):
        offsets = value_offsets(array)
        child = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        return _blocks(offsets, _field(child, kind.value_field))
    if pa.types.is_map(kind):
        return _maps(array)
    if pa.types.is_boolean(kind):
        return _fixed(array.cast(pa.uint8()).to_numpy().view(np.uint8), 1)
    if pa.types.is_floating(kind):
        return _fixed(np.ascontiguousarray(array.to_numpy()).view(np.uint8), kind.bit_width // 8)
    if pa.types.is_decimal(kind):
        return _decimals(array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets = value_offsets(array)
        lengths = np.diff(offsets)
        return join([long_values(lengths), Piece(lengths, value_bytes(array)[offsets[0] : offsets[-1]])])
    width = pa.int64() if kind.bit_width == 64 else pa.int32()
    integers = array.view(width) if kind.bit_width in (32, 64) else array
    return long_values(integers.cast(pa.int64()).to_numpy())


def _maps(array: pa.Array) -> Piece:
    """A map is as an array of its entries; keys are texts, or may be null in Avro's eyes."""
    kind = array.type
    offsets = value_offsets(array)
    count = int(offsets[-1] - offsets[0])
    keys, items = array.keys.slice(int(offsets[0]), count), array.items.slice(int(offsets[0]), count)
    key = kind.key_field if pa.types.is_string(kind.key_type) else kind.key_field.with_nullable(nullable=True)
    return _blocks(offsets, join([_field(keys, key), _field(items, kind.item_field)]))


def _blocks(offsets: I64, items: Piece) -> Piece:
    """An array is one block (count, items) and an end mark; an empty one is the end mark alone."""
    counts = np.diff(offsets)
    ends = offsets_from(items.lengths)[offsets - offsets[0]]
    mark = Piece((counts > 0).astype(np.int64), np.zeros(int((counts > 0).sum()), np.uint8))
    return join([long_values(counts), Piece(np.diff(ends), items.data), mark])


def _decimals(array: pa.Array) -> Piece:
    """The shortest big-endian two's complement of the unscaled value, after its length (Java `BigInteger.toByteArray`)."""
    digits, sizes = big_endian_digits(*decimal_limbs(array))
    last = _DECIMAL_BYTES * np.arange(1, len(array) + 1, dtype=np.int64)
    return join([long_values(sizes), Piece(sizes, digits[slice_places(last - sizes, sizes)])])


def _fixed(data: np.ndarray, width: int) -> Piece:
    return Piece(np.full(len(data) // width, width, np.int64), data)


def _constant(byte: int, count: int) -> Piece:
    return Piece(np.ones(count, np.int64), np.full(count, byte, np.uint8))


__all__ = ["encode_rows"]
