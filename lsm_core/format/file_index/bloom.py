"""Bloom filters of data files, bit-compatible with Java (format.md 9)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.errors import CorruptFile
from lsm_core.format.file_index.values import numbers_of
from lsm_core.format.xxhash64 import xxhash64
from lsm_core.types import DataType, TypeRoot

DEFAULT_ITEMS: Final = 1_000_000
DEFAULT_FPP: Final = 0.1
_TEXTS: Final = (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY)
_NUMBERS: Final = frozenset(
    {
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DATE,
        TypeRoot.TIME,
        TypeRoot.TIMESTAMP,
        TypeRoot.TIMESTAMP_LTZ,
    }
)
_HEAD: Final = 4
_DENSE: Final = 64
_MAX_BITS: Final = (1 << 31) - 9
_MAX_FUNCTIONS: Final = 1_024
"""Largest number of hash functions; even a false-positive probability near zero needs only about 1,000."""
I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]


def hashable(data_type: DataType) -> bool:
    """Return whether Paimon builds bloom filters for the type (not for BOOLEAN, DECIMAL and nested types)."""
    return data_type.root in _TEXTS or data_type.root in _NUMBERS


def hashes_of(array: pa.Array, data_type: DataType) -> I64:
    """Return the 64-bit hash of each non-null value (Java `FastHash`); ``array`` has the type's own Arrow type."""
    if array.null_count:
        array = array.drop_null()
    if data_type.root in _TEXTS:
        return xxhash64(array)
    # Thomas Wang's mix of 64 bits, with Java's arithmetic shifts.
    numbers = numbers_of(array, data_type)
    key = ~numbers + (numbers << np.int64(21))
    key = key ^ (key >> np.int64(24))
    key = (key + (key << np.int64(3))) + (key << np.int64(8))
    key = key ^ (key >> np.int64(14))
    key = (key + (key << np.int64(2))) + (key << np.int64(4))
    key = key ^ (key >> np.int64(28))
    mixed: I64 = key + (key << np.int64(31))
    return mixed


class BloomFilter:
    """A bloom filter; :meth:`add` adds values, :meth:`may_contain` tests them."""

    def __init__(self, bits: npt.NDArray[np.uint8], functions: int) -> None:
        self._bits, self._functions = bits, functions

    @staticmethod
    def sized(items: int = DEFAULT_ITEMS, fpp: float = DEFAULT_FPP) -> BloomFilter:
        """Return an empty filter with Java's size.

        Args:
            items: expected number of distinct values.
            fpp: probability of false positives.

        Returns:
            The filter.

        Raises:
            ValueError: ``items`` or ``fpp`` is out of range, or the filter would be too large.
        """
        if items < 1 or not 0 < fpp < 1:
            raise ValueError(f"a bloom filter needs items above 0 and fpp between 0 and 1, not {items} and {fpp}")
        ideal_bits = -items * math.log(fpp) / (math.log(2) * math.log(2))
        if ideal_bits > _MAX_BITS:
            raise ValueError(f"a bloom filter of {items} items with fpp {fpp} would have {ideal_bits:.3g} bits")
        bit_count = int(ideal_bits) + 8 - int(ideal_bits) % 8
        # Java's Math.round: half up.
        functions = max(1, math.floor(bit_count / items * math.log(2) + 0.5))
        return BloomFilter(np.zeros(bit_count // 8, np.uint8), functions)

    @staticmethod
    def from_bytes(data: bytes | memoryview, path: str) -> BloomFilter:
        """Decode a filter.

        Raises:
            CorruptFile: the filter is damaged; the message names ``path``.
        """
        functions = int.from_bytes(data[:_HEAD], "big", signed=True)
        if len(data) <= _HEAD or not 1 <= functions <= _MAX_FUNCTIONS:
            raise CorruptFile(path, f"bloom filter of {len(data)} bytes with {functions} hash functions")
        return BloomFilter(np.frombuffer(data, np.uint8, offset=_HEAD), functions)

    @staticmethod
    def build(array: pa.Array, data_type: DataType, items: int = DEFAULT_ITEMS, fpp: float = DEFAULT_FPP) -> bytes:
        """Return the encoded bloom filter of one column's values.

        Args:
            array: the values.
            data_type: type of the column.
            items: expected number of distinct values.
            fpp: probability of false positives.
        """
        bloom_filter = BloomFilter.sized(items, fpp)
        bloom_filter.add(hashes_of(array, data_type))
        return bloom_filter.to_bytes()

    def to_bytes(self) -> bytes:
        """Return the bloom filter as Paimon stores it."""
        return self._functions.to_bytes(_HEAD, "big") + self._bits.tobytes()

    def add(self, hashes: I64) -> None:
        """Add values by their hashes."""
        # Writing one byte per bit is several times faster, if the number of hashes justifies that many bytes.
        flags = np.zeros(8 * len(self._bits), np.bool_) if 8 * len(self._bits) <= _DENSE * len(hashes) else None
        for index in range(1, self._functions + 1):
            positions = self._positions(hashes, index)
            if flags is None:
                np.bitwise_or.at(
                    self._bits, positions >> 3, np.left_shift(np.uint8(1), (positions & 7).astype(np.uint8))
                )
            else:
                flags[positions] = True
        if flags is not None:
            self._bits |= np.packbits(flags, bitorder="little")

    def may_contain(self, hashes: I64) -> npt.NDArray[np.bool_]:
        """Return a mask with False for each value that was certainly never added."""
        matches = np.ones(len(hashes), np.bool_)
        for index in range(1, self._functions + 1):
            positions = self._positions(hashes, index)
            matches &= (self._bits[positions >> 3] >> (positions & 7).astype(np.uint8)) & 1 == 1
        return matches

    def _positions(self, hashes: I64, index: int) -> U32:
        """Return each hash's bit position for the ``index``-th function, computed in Java's 32-bit arithmetic.

        The position is low half + index * high half, inverted if negative, modulo the number of bits.
        """
        halves = np.ascontiguousarray(hashes).view("<i4")
        combined = halves[0::2] + np.int32(index) * halves[1::2]
        combined ^= combined >> np.int32(31)
        at: U32 = combined.view(np.uint32) % np.uint32(8 * len(self._bits))
        return at
