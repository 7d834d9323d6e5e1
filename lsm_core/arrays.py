"""Arrow arrays and the NumPy arrays behind them: joining chunks, reading buffers without a copy, places of ragged slices.

Every room may use this; nothing here knows tables, files or options.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

_DECIMAL_BYTES = 16


def one_array(column: pa.Array | pa.ChunkedArray, kind: pa.DataType | None = None) -> pa.Array:
    """The column as one Arrow array, copied only where it has several chunks; cast safely where it is not of type ``kind``.

    Raises pa.ArrowInvalid for a value that does not fit ``kind``, or for more than 2 GiB of text with 32-bit offsets.
    """
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            column = column.chunk(0)
        else:
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column if kind is None or column.type == kind else column.cast(kind)


# -- buffers -----------------------------------------------------------------------------------------------------------


def null_mask(array: pa.Array) -> Bools | None:
    """True where null, or None when nothing is."""
    valid = valid_mask(array)
    return None if valid is None else ~valid


def valid_mask(array: pa.Array) -> Bools | None:
    """True where a value is present, or None when all are."""
    if array.null_count == 0:
        return None
    bits = array.buffers()[0]
    if bits is None:  # nulls of another making: a null array, a union, a dictionary
        return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    count = array.offset + len(array)
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=count, bitorder="little")[array.offset :].view(np.bool_)


def values_of(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The fixed-width values of ``array`` as NumPy sees its buffer: no copy; what lies under nulls is undefined."""
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, count=array.offset + len(array))[array.offset :]


def decimal_limbs(array: pa.Array) -> tuple[I64, U64]:
    """High (signed) and low (unsigned) 8 bytes of decimal128 values; what lies under nulls is undefined."""
    halves = values_of(array, np.dtype((np.int64, (2,))))
    return np.ascontiguousarray(halves[:, 1]), np.ascontiguousarray(halves[:, 0]).view(np.uint64)


def value_offsets(array: pa.Array) -> I64:
    """Where the values of a string, binary, list or map array begin in its data or child, and the end: len(array) + 1 numbers."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    if len(array) == 0:
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32, count=array.offset + len(array) + 1)
    return offsets[array.offset :].astype(np.int64)


def value_bytes(array: pa.Array) -> U8:
    """The bytes that `value_offsets` of a string or binary array count in: no copy."""
    data = array.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def text_parts(array: pa.Array) -> tuple[U8, I64, I64]:
    """Bytes, start and length of each value of a string or binary array, also of fixed width (nulls: length as stored, normally 0)."""
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        data = array.buffers()[1]
        raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        starts = (np.arange(len(array), dtype=np.int64) + array.offset) * width
        return raw, starts, np.full(len(array), width, np.int64)
    bounds = value_offsets(array)
    return value_bytes(array), bounds[:-1], np.diff(bounds)


# -- ragged slices -----------------------------------------------------------------------------------------------------


def offsets_from(counts: npt.NDArray[Any]) -> I64:
    """Cumulative offsets of counts (or of flags): 0, c0, c0+c1, .."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def slice_places(starts: I64, counts: I64) -> I64:
    """Positions ``starts[i], starts[i]+1, ..`` (``counts[i]`` of them) of all i, one after another."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    places: I64 = np.repeat(starts - (ends - counts), counts)
    places += np.arange(total, dtype=np.int64)
    return places


def places_within(counts: I64) -> I64:
    """0, 1, .. ``counts[i]`` - 1 of all i, one after another."""
    return slice_places(np.zeros(len(counts), np.int64), counts)


# -- decimals of any length --------------------------------------------------------------------------------------------


def limbs_from_big_endian(data: U8, starts: I64, lengths: I64) -> U8:
    """decimal128 values (16 bytes each, little-endian) of two's complement numbers of 0 to 16 big-endian bytes in ``data``."""
    count = len(starts)
    some = lengths > 0
    first = np.zeros(count, np.uint8)
    first[some] = data[starts[some]]
    digits = np.where(first >= 0x80, np.uint8(0xFF), np.uint8(0)).repeat(_DECIMAL_BYTES)
    ends = _DECIMAL_BYTES * np.arange(1, count + 1, dtype=np.int64)
    digits[slice_places(ends - lengths, lengths)] = data[slice_places(starts, lengths)]
    return np.ascontiguousarray(digits.reshape(count, _DECIMAL_BYTES)[:, ::-1])


def big_endian_digits(high: I64, low: U64) -> tuple[U8, I64]:
    """16 big-endian bytes of each 128-bit number, one number after another, and how many of the last bytes its shortest form takes.

    The shortest two's complement form is that of Java's `BigInteger.toByteArray`.
    """
    count = len(high)
    big = np.empty((count, 2), ">u8")
    big[:, 0], big[:, 1] = high.view(np.uint64), low
    sign = (high >> 63).view(np.uint64)
    low, upper = low ^ sign, high.view(np.uint64) ^ sign
    sizes = np.ones(count, np.int64)
    for size in range(1, _DECIMAL_BYTES):
        bits = 8 * size - 1
        sizes += (upper != 0) | (low >> np.uint64(bits) != 0) if bits < 64 else upper >> np.uint64(bits - 64) != 0
    return big.view(np.uint8).reshape(count * _DECIMAL_BYTES), sizes
