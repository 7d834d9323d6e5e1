"""Arrow columns to BinaryRow slots and variable-part words, one column at a time, without looking at rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.format.binary_row.layout import I64, U8, U64, Bools, Kind, Layout, null_mask, ragged

_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
# Mask and tag by length modulo 8; index 0 of the mask keeps a whole word.
_TAIL_MASK = np.array([_ONES] + [np.uint64((1 << (8 * n)) - 1) for n in range(1, 8)], dtype=np.uint64)
_INLINE_MASK = np.array([(1 << (8 * n)) - 1 for n in range(8)], dtype=np.uint64)
_INLINE_TAG = np.array([(0x80 | n) << 56 for n in range(8)], dtype=np.uint64)
_SLOT_BYTES = 8
_WIDE_DECIMAL_WORDS = 2
_PER_MILLI = {"us": 1000, "ns": 1_000_000}


@dataclass
class Parts:
    """One encoded column: ``slots`` (uint64, without offsets), ``nulls`` (None: none), and what goes to the variable part.

    ``words[i]`` 8-byte words of value i lie one after another in ``payload``; a value with words gets its offset added
    to the upper half of its slot. ``words`` is None when the column never uses the variable part.
    """

    slots: U64
    nulls: Bools | None
    words: I64 | None = None
    payload: U64 | None = None


def encode_values(array: pa.Array, layout: Layout) -> Parts:
    """Encode one column, whose Arrow type is exactly ``layout.arrow``."""
    if layout.kind is Kind.FIXED:
        return _fixed(array, layout)
    if layout.kind is Kind.BYTES:
        return _bytes(array)
    if layout.kind is Kind.DECIMAL:
        return _wide_decimal(array)
    if layout.kind is Kind.TIMESTAMP:
        return _wide_timestamp(array)
    from lsm_core.format.binary_row.nested import encode_nested  # nested values call back into this module

    return encode_nested(array, layout)


def fixed_numpy(array: pa.Array, dtype: str) -> Any:
    """The value buffer of a fixed-width array as NumPy (no copy); null places hold anything."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype=dtype)[array.offset : array.offset + len(array)]


def _fixed(array: pa.Array, layout: Layout) -> Parts:
    arrow = layout.arrow
    if pa.types.is_boolean(arrow):
        filled = array.fill_null(fill_value=False) if array.null_count else array
        return Parts(filled.to_numpy(zero_copy_only=False).astype(np.uint64), null_mask(array))
    if pa.types.is_decimal(arrow):
        # Compact: the unscaled value fits the lower limb.
        buffer = array.buffers()[1]
        limbs = np.frombuffer(buffer, "<u8") if buffer is not None else np.zeros(0, np.uint64)
        slots = limbs[2 * array.offset : 2 * (array.offset + len(array)) : 2]
    else:
        slots = fixed_numpy(array, f"<u{layout.width}")
    nulls = null_mask(array)
    wide: U64 = slots.astype(np.uint64, copy=False)
    if nulls is not None:
        wide = np.where(nulls, np.uint64(0), wide)
    return Parts(wide, nulls)


def byte_ranges(array: pa.Array) -> tuple[U8, I64, I64]:
    """Bytes of a string or binary array (padded by 8 zeros), start and length of each value; null values have length 0."""
    offsets = np.frombuffer(array.buffers()[1], "<i4")[array.offset : array.offset + len(array) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + _SLOT_BYTES, np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(array.buffers()[2], np.uint8)[first:last]
    lengths = np.diff(offsets)
    nulls = null_mask(array)
    if nulls is not None:
        lengths[nulls] = 0
    return data, offsets[:-1] - first, lengths


def word_view(data: U8) -> U64:
    """All 8-byte little-endian words of ``data`` at every byte position (unaligned view)."""
    view: U64 = np.ndarray((max(len(data) - 7, 0),), "<u8", data.data, strides=(1,))
    return view


def pack_words(data: U8, starts: I64, lengths: I64) -> tuple[I64, U64]:
    """Copy byte ranges into whole zero-padded words: (words of each, words of all)."""
    counts = (lengths + 7) >> 3
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    source = np.repeat(starts - 8 * (ends - counts), counts)
    source += 8 * np.arange(total, dtype=np.int64)
    words = word_view(data)[source]
    some = counts > 0
    words[ends[some] - 1] &= _TAIL_MASK[lengths[some] & 7]
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
        where = np.flatnonzero(long)
        slots[where] = lengths[where].view(np.uint64)
        counts, payload = pack_words(data, starts[where], lengths[where])
        words = np.zeros(len(array), np.int64)
        words[where] = counts
    if nulls is not None:
        slots[nulls] = 0
    return Parts(slots, nulls, words, payload)


def _wide_timestamp(array: pa.Array) -> Parts:
    per_milli = _PER_MILLI[array.type.unit]
    nulls = null_mask(array)
    values = fixed_numpy(array, "<i8")
    if nulls is not None:
        values = np.where(nulls, 0, values)
    millis = values // per_milli
    nanos = (values - millis * per_milli) * (1_000_000 // per_milli)
    # A null keeps its 8 bytes and its offset: Java's writer reserves the room before it knows (format.md 6).
    return Parts(nanos.view(np.uint64), nulls, np.ones(len(array), np.int64), millis.view(np.uint64))


def _wide_decimal(array: pa.Array) -> Parts:
    count = len(array)
    nulls = null_mask(array)
    buffer = array.buffers()[1]
    limbs = np.frombuffer(buffer, "<u8") if buffer is not None and count else np.zeros(0, np.uint64)
    limbs = limbs[2 * array.offset : 2 * (array.offset + count)].reshape(count, 2)
    if nulls is not None:
        limbs = np.where(nulls[:, None], np.uint64(0), limbs)
    low, high = limbs[:, 0], limbs[:, 1]
    sizes = _minimal_bytes(low, high)
    # Big-endian bytes of the whole 128 bits, of which the last `sizes` are kept, moved to the front.
    big = np.empty((count, 2), ">u8")
    big[:, 0], big[:, 1] = high, low
    digits = big.view(np.uint8).reshape(count * 16)
    payload = np.zeros((count, 16), np.uint8)
    rows = 16 * np.arange(count, dtype=np.int64)
    payload.reshape(-1)[ragged(rows, sizes)] = digits[ragged(rows + 16 - sizes, sizes)]
    if nulls is not None:
        sizes = np.where(nulls, 0, sizes)
        payload[nulls] = 0
    words = np.full(count, _WIDE_DECIMAL_WORDS, np.int64)
    return Parts(sizes.view(np.uint64), nulls, words, payload.reshape(-1).view("<u8"))


def _minimal_bytes(low: U64, high: U64) -> I64:
    """Bytes of the shortest two's complement form of each 128-bit value (Java `BigInteger.toByteArray`)."""
    sign = (high.view(np.int64) >> 63).view(np.uint64)
    low, high = low ^ sign, high ^ sign
    sizes = np.ones(len(low), np.int64)
    for size in range(1, 16):
        bits = 8 * size - 1
        longer = (high != 0) | (low >> np.uint64(bits) != 0) if bits < 64 else high >> np.uint64(bits - 64) != 0
        sizes += longer
    return sizes
