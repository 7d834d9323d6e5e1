"""Digest of the values of rows, independent of their order: the sum of 128-bit row hashes, computed on columns.

Sequence numbers, row kinds, levels and file layout are not included; the caller leaves out deleted rows. All NaNs are
equal, -0.0 and 0.0 differ, and null differs from every value. The digest detects mistakes, not attacks: the hash has no
secret key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import decimal_limbs, numpy_array, places_within, text_parts, valid_mask, values_of
from lsm_core.merge.keys import (
    ByteKeys,
    Bytes,
    Ints,
    flat,
    is_text,
    numbers,
    width_of,
)

Words = npt.NDArray[np.uint64]
_MASK = (1 << 64) - 1
_BLOCK_ROWS = 32_768  # a few columns of intermediate words stay in the processor's second cache
_LONG_TEXT = 128  # bytes; longer values are hashed word by word instead of column by column
_LONG_WORDS = 1 << 18
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_CHAIN = np.uint64(0xD6E8FEB86659FD93)
_POSITION = 0xA0761D6478BD642F
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_INFINITE = np.uint64(0x7FF0000000000000)
_FINAL = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
    (np.uint64(31), np.uint64(0)),
)
_NULL = np.uint64(0x5851F42D4C957F2D)


@dataclass(frozen=True, slots=True)
class Digest:
    """Number and hash of a set of rows; digests of disjoint sets of rows can be added.

    Attributes:
        rows: number of rows.
        value: sum of the rows' hashes mod 2^128.
    """

    rows: int = 0
    value: int = 0

    def add(self, other: Digest) -> Digest:
        """Add the digest of a disjoint set of rows.

        Returns:
            The digest of both sets of rows together.
        """
        return Digest(self.rows + other.rows, (self.value + other.value) % (1 << 128))

    def subtract(self, other: Digest) -> Digest:
        """Remove the digest of rows that this set contains.

        Returns:
            The digest of the other rows of the set.
        """
        return Digest(self.rows - other.rows, (self.value - other.value) % (1 << 128))

    def text(self) -> str:
        """Return the digest as records store it: `<rows>:<32 hex digits>`."""
        return f"{self.rows}:{self.value:032x}"

    @staticmethod
    def from_text(text: str) -> Digest:
        """Parse the result of :meth:`text`.

        Raises:
            ValueError: the text is not a digest.
        """
        rows, _, value = text.partition(":")
        return Digest(int(rows), int(value, 16))


def digest(batch: pa.RecordBatch | pa.Table, columns: Sequence[tuple[int, str]]) -> Digest:
    """Return the digest of the rows of ``batch``.

    A value is hashed with the field id of its column, so names and order of columns have no effect. Fields inside a ROW
    are hashed with their position. The order of a map's entries has no effect.

    Args:
        batch: the rows.
        columns: (field id, name) of the columns, in any order.

    Raises:
        UnsupportedFeature: values of a column's type cannot be hashed.
    """
    ordered = [(field_id, flat(batch.column(name))) for field_id, name in sorted(columns)]
    rows, total = batch.num_rows, Digest()
    work = np.empty((4, min(rows, _BLOCK_ROWS)), np.uint64)
    for start in range(0, rows, _BLOCK_ROWS):
        count = min(_BLOCK_ROWS, rows - start)
        block = [(field_id, column.slice(start, count)) for field_id, column in ordered]
        total = total.add(_block(block, work[:, :count]))
    return total


def _block(columns: Sequence[tuple[int, pa.Array]], work: Words) -> Digest:
    # all operations are in place, here and below: these few arrays stay in the processor's cache, new ones would not
    first, second, spread, scratch = work
    first.fill(0)
    second.fill(0)
    for field_id, column in columns:
        mixed = (field_id * int(_SPREAD) + _POSITION) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        factor = np.uint64(((mixed ^ (mixed >> 27)) & _MASK) | 1)
        valid = valid_mask(column)
        for raw in _raw_words(column):
            np.multiply(raw, _SPREAD, out=spread)
            np.right_shift(spread, _HALF, out=scratch)
            np.bitwise_xor(spread, scratch, out=spread)
            if valid is not None:
                spread[~valid] = _NULL
            np.multiply(spread, factor, out=scratch)
            np.add(first, scratch, out=first)
            np.bitwise_xor(second, spread, out=second)
            np.multiply(second, _CHAIN, out=second)
    # row hashes must not be linear in the values, else swapping the values of two rows would not change the sum
    _finish(first, scratch)
    np.add(second, first, out=second)
    _finish(second, scratch)
    high = int(second.sum())
    np.right_shift(first, _HALF, out=scratch)
    np.bitwise_and(first, _LOW_HALF, out=first)
    low = (int(scratch.sum()) << 32) + int(first.sum())
    return Digest(len(first), ((high << 64) + low) % (1 << 128))


def value_hashes(column: pa.Array) -> Words:
    """Return a 64-bit hash of each value; equal values have equal hashes, and all nulls have the same hash.

    Raises:
        UnsupportedFeature: values of the type cannot be hashed.
    """
    return _value_words(flat(column))


def _raw_words(column: pa.Array) -> list[Words]:
    """Return one or two arrays with a 64-bit word per value; equal values have equal words, nulls undefined words."""
    kind = column.type
    if is_text(kind):
        return [_text_hash(column)]
    if pa.types.is_decimal128(kind):
        high, low = decimal_limbs(column)
        return [low, high.view(np.uint64)]
    if pa.types.is_null(kind):
        return [np.zeros(len(column), np.uint64)]
    if pa.types.is_floating(kind) and not pa.types.is_float16(kind):
        return [_float_bits(column)]
    if pa.types.is_nested(kind):
        return [_nested_hash(column)]
    width_of(kind)
    return [numbers(column).view(np.uint64)]


def _nested_hash(column: pa.Array) -> Words:
    """Return a 64-bit hash of each list, map or struct, computed from the hashes of its elements."""
    if pa.types.is_struct(column.type):
        total = np.zeros(len(column), np.uint64)
        for child in column.flatten():
            total = (total ^ _value_words(child)) * _CHAIN
        return total
    offsets = numpy_array(column.offsets).astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    offsets, lengths = offsets - first, np.diff(offsets)
    if pa.types.is_map(column.type):
        keys, items = (_value_words(side.slice(first, count)) for side in (column.keys, column.items))
        words = _finish((keys * _CHAIN) ^ items, np.empty(count, np.uint64))
    else:
        position = places_within(lengths)
        words = _value_words(column.values.slice(first, count)) * _factor(position.astype(np.uint64))
    # Sums wrap around, and so do their differences.
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(words, dtype=np.uint64)))
    total = sums[offsets[1:]] - sums[offsets[:-1]]
    return np.asarray(total + lengths.astype(np.uint64) * np.uint64(_POSITION | 1))


def _value_words(column: pa.Array) -> Words:
    """Return a 64-bit hash of each value; all nulls have the same hash."""
    valid = valid_mask(column)
    total = np.zeros(len(column), np.uint64)
    for raw in _raw_words(column):
        words = _spread_words(raw)
        if valid is not None:
            words = np.where(valid, words, _NULL)
        total = (total ^ words) * _CHAIN
    return _finish(total, np.empty_like(total))


def _float_bits(column: pa.Array) -> Words:
    """Return the bits of each float as a number that sorts like the float in Java; all NaNs have equal bits.

    A float32 is converted to float64 first.
    """
    wide = column.type.bit_width == 64
    values = values_of(column, np.float64 if wide else np.float32)
    values = values if wide else values.astype(np.float64)
    if values.view(np.uint64).max(initial=0) <= _INFINITE:
        return np.asarray(values.view(np.uint64))  # no sign, no NaN
    is_nan = np.isnan(values)
    if is_nan.any():
        values = np.where(is_nan, np.nan, values)
    bits = values.view(np.int64)
    turned = bits >> np.int64(63)
    turned &= np.int64(0x7FFFFFFFFFFFFFFF)
    turned ^= bits
    return turned.view(np.uint64)


def _text_hash(column: pa.Array) -> Words:
    """Return a hash of each text: the sum of its length and its 8-byte words, each times a factor for its position."""
    raw, starts, lengths = text_parts(column)
    width = int(lengths[0]) if len(lengths) else 0
    if 8 <= width <= _LONG_TEXT and bool((lengths == width).all()):
        return _even_text_hash(raw, starts, width)
    keys = ByteKeys.of(raw, starts, lengths)
    result = lengths.astype(np.uint64) * np.uint64(_POSITION | 1)
    longest = int(lengths.max(initial=0))
    for position in range(0, min(longest, _LONG_TEXT), 8):
        result += _spread_words(keys.words(position)) * _factor(np.uint64(position))
    if longest > _LONG_TEXT:
        _add_long(keys, result)
    return result


def _even_text_hash(raw: Bytes, starts: Ints, width: int) -> Words:
    """Return :func:`_text_hash` of texts of equal length, which are contiguous, so only words are copied.

    Args:
        raw: bytes that contain the texts.
        starts: first byte of each text in ``raw``.
        width: length of each text (bytes).
    """
    result = np.full(len(starts), (width * (_POSITION | 1)) & _MASK, np.uint64)
    words, scratch = np.empty_like(result), np.empty_like(result)
    for position in range(0, width, 8):
        at = min(position, width - 8)  # the last word overlaps the one before; a shift drops the repeated bytes
        words[:] = np.ndarray((len(starts),), np.dtype(">u8"), raw, int(starts[0]) + at, (width,))
        if at < position:
            np.left_shift(words, np.uint64(8 * (position - at)), out=words)
        np.multiply(words, _SPREAD, out=words)
        np.right_shift(words, _HALF, out=scratch)
        np.bitwise_xor(words, scratch, out=words)
        np.multiply(words, _factor(np.uint64(position)), out=words)
        np.add(result, words, out=result)
    return result


def _add_long(keys: ByteKeys, result: Words) -> None:
    """Add hashes of the bytes beyond `_LONG_TEXT` of each long key to ``result``, which has one word for each key."""
    rows = np.flatnonzero(keys.lengths > _LONG_TEXT)
    counts = (keys.lengths[rows] - _LONG_TEXT + 7) // 8
    ends = np.cumsum(counts)
    for start in range(0, int(ends[-1]), _LONG_WORDS):
        number = np.arange(start, min(start + _LONG_WORDS, int(ends[-1])), dtype=np.int64)
        at = np.searchsorted(ends, number, side="right")
        position = (number - (ends[at] - counts[at])) * 8 + _LONG_TEXT
        words = keys.words_at(rows[at], position)
        parts = _spread_words(words) * _factor(position.astype(np.uint64))
        edges = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), at[1:] != at[:-1])))
        result[rows[at[edges]]] += np.add.reduceat(parts, edges)


def _spread_words(words: Words) -> Words:
    words = words * _SPREAD
    words ^= words >> _HALF
    return words


def _factor(position: Words | np.uint64) -> Words | np.uint64:
    """Return the odd number by which a word at each byte position of a text is multiplied in the hash."""
    with np.errstate(over="ignore"):
        return (position + np.uint64(1)) * np.uint64(_POSITION) | np.uint64(1)


def _finish(words: Words, scratch: Words) -> Words:
    """Apply Splitmix64's finaliser to ``words`` in place and return them: every result bit depends on every input bit.

    ``scratch``: array of the same size, whose content is overwritten.
    """
    for shift, factor in _FINAL:
        np.right_shift(words, shift, out=scratch)
        np.bitwise_xor(words, scratch, out=words)
        if factor:
            np.multiply(words, factor, out=words)
    return words
