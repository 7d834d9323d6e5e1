"""Bit-sliced numbers: one bitmap of rows per binary digit; and the index `bsi`, with slices for both signs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lsm_core.errors import CorruptFile
from lsm_core.format import roaring
from lsm_core.format.file_index.values import I64, Key, ValueEncoding, number, take

_MAX_DIGITS: Final = 64
_WORD, _LONG = 4, 8
_VERSION: Final = 1


@dataclass(frozen=True)
class Slices:
    """Bit slices of numbers.

    Attributes:
        filled: rows that have a number.
        digits: for each binary digit, lowest first, the rows in whose number the digit is 1.
    """

    filled: BitMap
    digits: Sequence[BitMap]

    def equal(self, value: int) -> BitMap:
        """Return the rows whose number is ``value``."""
        if value < 0 or value >> len(self.digits):
            return BitMap()
        rows = self.filled
        for place, digit in enumerate(self.digits):
            rows = rows & digit if value >> place & 1 else rows - digit
        return BitMap(rows)

    def below(self, value: int) -> BitMap:
        """Return the rows whose number is below ``value``."""
        if value <= 0:
            return BitMap()
        if value >> len(self.digits):
            return BitMap(self.filled)
        equal_prefix, smaller = self.filled, BitMap()
        for place in reversed(range(len(self.digits))):
            digit = self.digits[place]
            if value >> place & 1:
                smaller |= equal_prefix - digit
                equal_prefix = equal_prefix & digit
            else:
                equal_prefix = equal_prefix - digit
        return smaller


def read_bitmap(view: memoryview, at: int, rows: int, path: str, length: int | None = None) -> tuple[BitMap, int]:
    """Return the bitmap at position ``at`` of an index, and the position after the bitmap.

    Args:
        view: bytes of the index.
        at: start of the bitmap.
        rows: number of rows of the file.
        path: path of the index, for messages.
        length: size of the bitmap in bytes, or None if unknown.

    Returns:
        The bitmap and the position after it.

    Raises:
        CorruptFile: the bitmap is damaged, or has rows beyond ``rows``.
    """
    part = take(view, at, len(view) - at if length is None else length, path)
    bitmap, bitmap_bytes = roaring.decode(part, path)
    if len(bitmap) and bitmap.max() >= rows:
        raise CorruptFile(path, f"file index: row {bitmap.max()} of {rows}")
    return bitmap, at + bitmap_bytes


class SliceIndex:
    """The index `bsi`: slices of non-negative numbers, and slices of the magnitudes of negative numbers.

    Source: ``BitSliceIndexBitmapFileIndex``.
    """

    def __init__(self, data: bytes | memoryview, kind: ValueEncoding, path: str) -> None:
        view = memoryview(data)
        self.kind = kind
        if int(take(view, 0, 1, path)[0]) != _VERSION:
            raise CorruptFile(path, f"bsi index of version {view[0]}; known: {_VERSION}")
        self.rows = number(view, 1, path)
        at = 1 + _WORD
        self._minimums = [0, 0]
        self._signs: list[Slices] = []
        for sign in range(2):
            present = int(take(view, at, 1, path)[0])
            at += 1
            slices = Slices(BitMap(), ())
            if present:
                self._minimums[sign], slices, at = _read_slices(view, at, self.rows, path)
            self._signs.append(slices)

    def filled(self) -> BitMap:
        """Return the rows of the file in which the indexed column is not null."""
        return BitMap(self._signs[0].filled | self._signs[1].filled)

    def equal(self, key: Key) -> BitMap:
        """Return the rows of the file in which the indexed column has the value ``key``."""
        value = int(key)
        sign = int(value < 0)
        return self._signs[sign].equal(abs(value) - self._minimums[sign])

    def below(self, key: Key) -> BitMap:
        """Return the rows of the file in which the value of the indexed column is below ``key``."""
        value = int(key)
        positive, negative = self._signs
        if value >= 0:
            return BitMap(negative.filled | positive.below(value - self._minimums[0]))
        return BitMap(negative.filled - negative.below(-value + 1 - self._minimums[1]))


def encode_slices(numbers: I64, valid: npt.NDArray[np.bool_]) -> bytes | None:
    """Return the index `bsi` of a file's numbers.

    Args:
        numbers: one number per row; numbers of null rows are ignored.
        valid: mask of rows that are not null.

    Returns:
        The index, or None if a number is the smallest of 64 bits, which has no magnitude; Java's writer fails then.
    """
    parts = [struct.pack(">Bi", _VERSION, len(numbers))]
    for sign in (numbers >= 0, numbers < 0):
        rows = np.flatnonzero(sign & valid).astype(np.uint32)
        parts.append(struct.pack(">?", len(rows) > 0))
        if not len(rows):
            continue
        magnitudes = np.abs(numbers[rows])
        if (magnitudes < 0).any():
            return None
        largest = int(magnitudes.max())
        digits = encode_digits(rows, magnitudes, largest.bit_length())
        parts.append(struct.pack(">Bqq", _VERSION, 0, largest) + roaring.encode(BitMap(rows), runs=True))
        parts += [struct.pack(">i", len(digits)), *digits]
    return b"".join(parts)


def encode_digits(rows: npt.NDArray[np.uint32], values: I64, digits: int) -> list[bytes]:
    """Return for each binary digit, lowest first, the encoded bitmap of the rows in whose value the digit is 1.

    Args:
        rows: row numbers.
        values: the value of each of these rows.
        digits: number of binary digits.
    """
    bitmaps = []
    for digit in range(digits):
        bits = (values >> np.int64(digit)) & 1 == 1
        bitmaps.append(roaring.encode(BitMap(rows[bits]), runs=True))
    return bitmaps


def _read_slices(view: memoryview, at: int, rows: int, path: str) -> tuple[int, Slices, int]:
    if int(take(view, at, 1, path)[0]) != _VERSION:
        raise CorruptFile(path, f"bit slices of version {view[at]}; known: {_VERSION}")
    least = int.from_bytes(take(view, at + 1, _LONG, path), "big", signed=True)
    filled, at = read_bitmap(view, at + 1 + 2 * _LONG, rows, path)
    count = number(view, at, path)
    at += _WORD
    if not 0 <= count <= _MAX_DIGITS:
        raise CorruptFile(path, f"{count} bit slices")
    digits = []
    for _ in range(count):
        digit, at = read_bitmap(view, at, rows, path)
        digits.append(digit)
    return least, Slices(filled, digits), at
