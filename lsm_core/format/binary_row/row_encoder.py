"""Encoding of Arrow columns as serialised rows, for all rows at once.

Source: ``BinaryRowWriter``, ``BinaryArrayWriter``, ``BinaryMap``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.arrays import (
    I64,
    U8,
    U64,
    Bools,
    arrow_scalar,
    big_endian_digits,
    decimal_limbs,
    null_mask,
    numpy_array,
    offsets_from,
    one_array,
    slice_places,
    value_bytes,
    value_offsets,
    values_of,
)
from lsm_core.errors import ValueTooLarge
from lsm_core.format.binary_row.layout import Layout, ValueStorage, header_bytes, layouts_of
from lsm_core.types import DataType

_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
# Masks and tags by length modulo 8; mask 0 keeps the whole word.
_TAIL_MASK = np.array([_ALL_BITS] + [np.uint64((1 << (8 * n)) - 1) for n in range(1, 8)], dtype=np.uint64)
_INLINE_MASK = np.array([(1 << (8 * n)) - 1 for n in range(8)], dtype=np.uint64)
_INLINE_TAG = np.array([(0x80 | n) << 56 for n in range(8)], dtype=np.uint64)
_SLOT_BYTES = 8
_WIDE_DECIMAL_WORDS = 2
_PER_MILLI = {"us": 1000, "ns": 1_000_000}
_OFFSET_SHIFT = np.uint64(32)
_MAX_BYTES = 2**31 - 1
_COUNT_BYTES = 4


# -- rows --------------------------------------------------------------------------------------------------------------


def parts_of(columns: Sequence[Any], layouts: Sequence[Layout]) -> tuple[list[Parts], int]:
    """Return encoded columns and the number of rows.

    Raises:
        ValueError: the columns do not match the layouts, or have unequal lengths.
    """
    if len(columns) != len(layouts):
        raise ValueError(f"{len(columns)} columns for {len(layouts)} types")
    arrays = [one_array(column, layout.arrow) for column, layout in zip(columns, layouts, strict=True)]
    count = len(arrays[0]) if arrays else 0
    if any(len(array) != count for array in arrays):
        raise ValueError(f"columns of unequal length: {[len(array) for array in arrays]}")
    return [encode_values(array, layout) for array, layout in zip(arrays, layouts, strict=True)], count


def header_words(parts: Sequence[Parts]) -> list[U64 | None]:
    """Return the words of row kind and null bits before the slots; None for a word that is 0 in every row."""
    words: list[U64 | None] = [None] * (header_bytes(len(parts)) // 8)
    for index, part in enumerate(parts):
        if part.nulls is None:
            continue
        word, bit = divmod(index + 8, 64)
        bits = part.nulls.astype(np.uint64) << np.uint64(bit)
        previous = words[word]
        words[word] = bits if previous is None else previous | bits
    return words


def assemble(parts: Sequence[Parts], count: int) -> tuple[U64, I64]:
    """Return all rows as 8-byte words without arity, and the word offset of each row (``count + 1`` values).

    Raises:
        ValueTooLarge: the rows exceed 2 GiB.
    """
    headers = header_words(parts)
    fixed = len(headers) + len(parts)
    sizes = np.full(count, fixed, np.int64)
    for part in parts:
        if part.words is not None:
            sizes += part.words
    offsets = offsets_from(sizes)
    if int(offsets[-1]) * 8 > _MAX_BYTES:
        raise ValueTooLarge(f"{count} rows take {int(offsets[-1]) * 8} bytes as binary rows, more than {_MAX_BYTES}")
    if all(part.words is None for part in parts):
        matrix = np.zeros((count, fixed), np.uint64)
        for index, header in enumerate(headers):
            if header is not None:
                matrix[:, index] = header
        for index, part in enumerate(parts, len(headers)):
            matrix[:, index] = part.slots
        return matrix.reshape(-1), offsets
    words = np.zeros(int(offsets[-1]), np.uint64)
    starts = offsets[:-1]
    for index, header in enumerate(headers):
        if header is not None:
            words[starts + index] = header
    cursor = np.full(count, fixed, np.int64)
    for index, part in enumerate(parts, len(headers)):
        slots = part.slots
        if part.words is not None and part.payload is not None:
            byte_offset = np.where(part.words > 0, cursor * 8, 0).view(np.uint64)
            slots = slots | (byte_offset << _OFFSET_SHIFT)
            words[slice_places(starts + cursor, part.words)] = part.payload
            cursor += part.words
        words[starts + index] = slots
    return words, offsets


def serialise(words: U64, offsets: I64, arity: int | None) -> pa.BinaryArray:
    """Return rows of words as Arrow binary values, each after its big-endian arity unless that is None.

    Raises:
        ValueTooLarge: the rows exceed 2 GiB.
    """
    count = len(offsets) - 1
    if arity is None:
        ends = offsets * 8
        data = words.view(np.uint8)
    else:
        prefix = np.uint32(int.from_bytes(arity.to_bytes(4, "big"), "little"))
        quads = np.empty(2 * len(words) + count, np.uint32)
        is_prefix = np.zeros(len(quads), np.bool_)
        is_prefix[2 * offsets[:-1] + np.arange(count)] = True
        quads[is_prefix] = prefix
        quads[~is_prefix] = words.view(np.uint32)
        ends = offsets * 8 + 4 * np.arange(count + 1)
        data = quads.view(np.uint8)
    if int(ends[-1]) > _MAX_BYTES:
        raise ValueTooLarge(f"{count} rows take {int(ends[-1])} bytes as binary rows, more than {_MAX_BYTES}")
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def encode_rows(columns: Sequence[Any], types: Sequence[DataType], with_arity: bool = True) -> pa.BinaryArray:
    """Return the serialised BinaryRows of Arrow columns.

    Args:
        columns: arrays or chunked arrays; other Arrow types than the layout's are cast safely.
        types: types of the columns.
        with_arity: whether each row starts with its 4-byte big-endian column count, as in manifests. Bucket hashes use
            rows without it.

    Returns:
        The rows. A row without columns has no length here; use `EMPTY_ROW`.

    Raises:
        ValueError: the columns have unequal lengths.
        ArrowInvalid: a value does not fit its type.
        ValueTooLarge: the rows exceed 2 GiB.

    Source: `BinaryRowWriter`, `SerializationUtils.serializeBinaryRow`.
    """
    parts, count = parts_of(columns, layouts_of(types))
    words, offsets = assemble(parts, count)
    return serialise(words, offsets, len(types) if with_arity else None)


# -- columns -----------------------------------------------------------------------------------------------------------


@dataclass
class Parts:
    """One encoded column.

    Attributes:
        slots: slots of the values (uint64), without offsets.
        nulls: mask of null values, or None.
        words: number of 8-byte words of each value in the variable-length part, or None if the column never uses it.
            The offset of a value with words is added to the upper half of its slot.
        payload: words of all values, concatenated.
    """

    slots: U64
    nulls: Bools | None
    words: I64 | None = None
    payload: U64 | None = None


def encode_values(array: pa.Array, layout: Layout) -> Parts:
    """Encode one column, whose Arrow type is exactly ``layout.arrow``."""
    if layout.kind is ValueStorage.FIXED:
        return _fixed(array, layout)
    if layout.kind is ValueStorage.BYTES:
        return _bytes(array)
    if layout.kind is ValueStorage.DECIMAL:
        return _wide_decimal(array)
    if layout.kind is ValueStorage.TIMESTAMP:
        return _wide_timestamp(array)
    return encode_nested(array, layout)


def _fixed(array: pa.Array, layout: Layout) -> Parts:
    arrow = layout.arrow
    if pa.types.is_boolean(arrow):
        filled = array.fill_null(arrow_scalar(value=False)) if array.null_count else array
        return Parts(numpy_array(filled).astype(np.uint64), null_mask(array))
    # Compact decimals: the unscaled value fits the lower half.
    slots = decimal_limbs(array)[1] if pa.types.is_decimal(arrow) else values_of(array, f"<u{layout.width}")
    nulls = null_mask(array)
    wide: U64 = slots.astype(np.uint64, copy=False)
    if nulls is not None:
        wide = np.where(nulls, np.uint64(0), wide)
    return Parts(wide, nulls)


def byte_ranges(array: pa.Array) -> tuple[U8, I64, I64]:
    """Return the bytes of a string or binary array (padded by 8 zeros), and the range of each value.

    A range is start and length, 0 for null.
    """
    offsets = value_offsets(array)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + _SLOT_BYTES, np.uint8)
    data[: last - first] = value_bytes(array)[first:last]
    lengths = np.diff(offsets)
    nulls = null_mask(array)
    if nulls is not None:
        lengths[nulls] = 0
    return data, offsets[:-1] - first, lengths


def word_view(data: U8) -> U64:
    """Return a view of the 8-byte little-endian words at every byte position of ``data`` (unaligned)."""
    view: U64 = np.ndarray((max(len(data) - 7, 0),), "<u8", data.data, strides=(1,))
    return view


def pack_words(data: U8, starts: I64, lengths: I64) -> tuple[I64, U64]:
    """Copy byte ranges into zero-padded words, and return the number of words of each range and all words."""
    counts = (lengths + 7) >> 3
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    source = np.repeat(starts - 8 * (ends - counts), counts)
    source += 8 * np.arange(total, dtype=np.int64)
    words = word_view(data)[source]
    has_words = counts > 0
    words[ends[has_words] - 1] &= _TAIL_MASK[lengths[has_words] & 7]
    return counts, words


def _bytes(array: pa.Array) -> Parts:
    if len(array) == 0:
        return Parts(np.zeros(0, np.uint64), None)
    data, starts, lengths = byte_ranges(array)
    nulls = null_mask(array)
    short = lengths & 7
    slots = word_view(data)[starts]
    slots &= _INLINE_MASK[short]
    slots |= _INLINE_TAG[short]
    long = lengths > 7
    words: I64 | None = None
    payload: U64 | None = None
    if long.any():
        long_rows = np.flatnonzero(long)
        slots[long_rows] = lengths[long_rows].view(np.uint64)
        counts, payload = pack_words(data, starts[long_rows], lengths[long_rows])
        words = np.zeros(len(array), np.int64)
        words[long_rows] = counts
    if nulls is not None:
        slots[nulls] = 0
    return Parts(slots, nulls, words, payload)


def _wide_timestamp(array: pa.Array) -> Parts:
    per_milli = _PER_MILLI[array.type.unit]
    nulls = null_mask(array)
    values = values_of(array, "<i8")
    if nulls is not None:
        values = np.where(nulls, 0, values)
    millis = values // per_milli
    nanos = (values - millis * per_milli) * (1_000_000 // per_milli)
    # A null keeps its 8 bytes and its offset, because Java's writer reserves the space first (format.md 6).
    return Parts(nanos.view(np.uint64), nulls, np.ones(len(array), np.int64), millis.view(np.uint64))


def _wide_decimal(array: pa.Array) -> Parts:
    count = len(array)
    nulls = null_mask(array)
    high, low = decimal_limbs(array)
    if nulls is not None:
        high, low = np.where(nulls, 0, high), np.where(nulls, np.uint64(0), low)
    digits, sizes = big_endian_digits(high, low)
    payload = np.zeros((count, 16), np.uint8)
    rows = 16 * np.arange(count, dtype=np.int64)
    payload.reshape(-1)[slice_places(rows, sizes)] = digits[slice_places(rows + 16 - sizes, sizes)]
    if nulls is not None:
        sizes = np.where(nulls, 0, sizes)
        payload[nulls] = 0
    words = np.full(count, _WIDE_DECIMAL_WORDS, np.int64)
    return Parts(sizes.view(np.uint64), nulls, words, payload.reshape(-1).view("<u8"))


# -- nested values: BinaryArray, BinaryMap, rows in rows, VARIANT -----------------------------------------------------


def encode_nested(array: pa.Array, layout: Layout) -> Parts:
    """Encode an array, map, row or variant column; its values are in the variable-length part, nulls use no space."""
    nulls = null_mask(array)
    present = array if nulls is None else array.filter(pa.array(~nulls))
    sizes, payload = _ENCODERS[layout.kind](present, layout)
    counts = (sizes + 7) >> 3
    if nulls is None:
        return Parts(sizes.view(np.uint64), None, counts, payload)
    slots = np.zeros(len(array), np.uint64)
    words = np.zeros(len(array), np.int64)
    slots[~nulls] = sizes.view(np.uint64)
    words[~nulls] = counts
    return Parts(slots, nulls, words, payload)


def _array(array: Any, layout: Layout) -> tuple[I64, U64]:
    offsets = value_offsets(array)
    child = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return binary_arrays(offsets - offsets[0], child, layout.children[0])


def binary_arrays(offsets: I64, child: pa.Array, layout: Layout) -> tuple[I64, U64]:
    """Return the BinaryArrays of a list column: bytes of each (a multiple of 8), and words of all."""
    child = child if child.type == layout.arrow else child.cast(layout.arrow)
    part = _without_reserved_nulls(encode_values(child, layout))
    counts = np.diff(offsets)
    headers = array_header(counts)
    fixed = (headers + counts * layout.width + 7) >> 3
    child_words = part.words if part.words is not None else np.zeros(len(child), np.int64)
    before = offsets_from(child_words)
    tails = before[offsets[1:]] - before[offsets[:-1]]
    starts = offsets_from(fixed + tails)
    out = np.zeros(int(starts[-1]), np.uint64)
    data = out.view(np.uint8)
    out.view("<u4")[2 * starts[:-1]] = counts
    owner = np.repeat(np.arange(len(counts)), counts)
    position = np.arange(len(child), dtype=np.int64) - offsets[:-1][owner]
    if part.nulls is not None:
        null = np.flatnonzero(part.nulls)
        bits = np.left_shift(1, position[null] & 7).astype(np.uint8)
        np.bitwise_or.at(data, 8 * starts[:-1][owner[null]] + _COUNT_BYTES + (position[null] >> 3), bits)
    tail_start = fixed[owner] + before[:-1] - before[offsets[:-1]][owner]
    slots = part.slots
    if part.payload is not None:
        slots = slots | (np.where(child_words > 0, 8 * tail_start, 0).view(np.uint64) << np.uint64(32))
        out[slice_places(starts[:-1] + fixed, tails)] = part.payload
    # Write the low bytes of each slot; their positions are multiples of min(width, 4).
    at = (8 * starts[:-1] + headers)[owner] + position * layout.width
    if layout.width == 8:
        halves = out.view("<u4")
        halves[at >> 2] = slots.astype(np.uint32)
        halves[(at >> 2) + 1] = (slots >> np.uint64(32)).astype(np.uint32)
    else:
        data.view(f"<u{layout.width}")[at // layout.width] = slots.astype(f"<u{layout.width}")
    return 8 * np.diff(starts), out


def array_header(counts: I64) -> I64:
    """Return the bytes of element count and null bits of BinaryArrays."""
    return _COUNT_BYTES + ((counts + 31) >> 5) * 4


def _without_reserved_nulls(part: Parts) -> Parts:
    """Remove the space of null decimals and timestamps, which is reserved in rows but not in arrays."""
    if part.nulls is None or part.words is None or part.payload is None or not part.words[part.nulls].any():
        return part
    keep = np.repeat(~part.nulls, part.words)
    words = np.where(part.nulls, 0, part.words)
    return Parts(np.where(part.nulls, np.uint64(0), part.slots), part.nulls, words, part.payload[keep])


def _map(array: Any, layout: Layout) -> tuple[I64, U64]:
    offsets = value_offsets(array)
    first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    sides = [array.keys.slice(first, length), array.items.slice(first, length)]
    encoded = [binary_arrays(offsets - first, side, child) for side, child in zip(sides, layout.children, strict=True)]
    (key_sizes, keys), (item_sizes, items) = encoded
    sizes = _COUNT_BYTES + key_sizes + item_sizes
    starts = offsets_from((sizes + 7) >> 3)
    out = np.zeros(int(starts[-1]), np.uint64)
    quads = out.view("<u4")
    at = 2 * starts[:-1]
    quads[at] = key_sizes
    quads[slice_places(at + 1, key_sizes >> 2)] = keys.view("<u4")
    quads[slice_places(at + 1 + (key_sizes >> 2), item_sizes >> 2)] = items.view("<u4")
    return sizes, out


def _row(array: Any, layout: Layout) -> tuple[I64, U64]:
    if not layout.children:
        return np.full(len(array), 8, np.int64), np.zeros(len(array), np.uint64)
    parts, count = parts_of(array.flatten(), layout.children)
    words, offsets = assemble(parts, count)
    return 8 * np.diff(offsets), words


def _variant(array: Any, _layout: Layout) -> tuple[I64, U64]:
    """Encode VARIANT as the int32 length of the value, the value, and the metadata."""
    (value, value_at, value_sizes), (meta, meta_at, meta_sizes) = (
        byte_ranges(array.field(index)) for index in range(2)
    )
    sizes = _COUNT_BYTES + value_sizes + meta_sizes
    starts = offsets_from(sizes)
    data = np.zeros(int(starts[-1]) + 8, np.uint8)
    prefix = value_sizes.astype("<u4").view(np.uint8)
    data[slice_places(starts[:-1], np.full(len(array), _COUNT_BYTES, np.int64))] = prefix
    data[slice_places(starts[:-1] + _COUNT_BYTES, value_sizes)] = value[slice_places(value_at, value_sizes)]
    data[slice_places(starts[:-1] + _COUNT_BYTES + value_sizes, meta_sizes)] = meta[slice_places(meta_at, meta_sizes)]
    return sizes, pack_words(data, starts[:-1], sizes)[1]


_ENCODERS: dict[ValueStorage, Callable[[Any, Layout], tuple[I64, U64]]] = {
    ValueStorage.ARRAY: _array,
    ValueStorage.MAP: _map,
    ValueStorage.ROW: _row,
    ValueStorage.VARIANT: _variant,
}
