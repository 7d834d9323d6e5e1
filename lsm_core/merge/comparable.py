"""Order-preserving numbers of Arrow columns, exactly as Java compares them; the basis of all sort keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar, decimal_limbs, numpy_array, one_array, valid_mask, values_of
from lsm_core.errors import UnsupportedFeature

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_SIGN64 = np.uint64(1 << 63)


def flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert a column to one contiguous array.

    Args:
        column: array, or chunks that are joined.

    Returns:
        The values; dictionaries are decoded, views and large offsets are converted.
    """
    column = one_array(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of the type are compared as unsigned bytes."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def width_of(kind: pa.DataType) -> int | None:
    """Return the bytes of the order-preserving number of a fixed-width type, or None for text.

    Raises:
        UnsupportedFeature: the type has no order.
    """
    if is_text(kind):
        return None
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_decimal128(kind):
        return 8 if kind.precision <= 18 else 16
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        width = int(kind.bit_width) // 8
        if width in {1, 2, 4, 8} and not pa.types.is_float16(kind) and not pa.types.is_interval(kind):
            return width
    raise UnsupportedFeature(f"ordering by a column of type {kind}")


def numbers(column: pa.Array) -> Ints:
    """Return int64 numbers in the order of the column's values.

    Floats follow Java's compare: -0.0 < 0.0, every NaN equal and greatest. Booleans: false < true.

    Args:
        column: values of a fixed-width type of at most 8 bytes.

    Returns:
        One number for each value; undefined at null positions.
    """
    kind = column.type
    if pa.types.is_boolean(kind):
        bits = numpy_array(pc.cast(column, pa.int8()).fill_null(arrow_scalar(0, pa.int8())))
        return np.asarray(bits, dtype=np.int64)
    if pa.types.is_floating(kind):
        return float_order(values_of(column, np.float32 if kind.bit_width == 32 else np.float64))
    if pa.types.is_decimal128(kind):
        return values_of(column, np.dtype((np.int64, (2,))))[:, 0].astype(np.int64)
    sign = "u" if pa.types.is_unsigned_integer(kind) else "i"
    raw = values_of(column, np.dtype(f"{sign}{kind.bit_width // 8}"))
    if sign == "u" and kind.bit_width == 64:
        return np.asarray((raw ^ _SIGN64).view(np.int64))
    return np.asarray(raw, dtype=np.int64)


def float_order(values: npt.NDArray[Any]) -> Ints:
    """Return numbers in the order in which Java compares the floats."""
    bits = values.astype(np.float64).view(np.int64)
    bits = np.where(np.isnan(values), np.int64(0x7FF8000000000000), bits)
    # IEEE total order: all bits of negative numbers except the sign are inverted
    return np.asarray(bits ^ ((bits >> np.int64(63)) & np.int64(0x7FFFFFFFFFFFFFFF)), dtype=np.int64)


def big_endian(column: pa.Array) -> Bytes:
    """Return order-preserving big-endian bytes of a fixed-width column.

    Args:
        column: values of a type for which :func:`width_of` returns a width.

    Returns:
        Matrix with one row a value and :func:`width_of` columns; zeros for nulls.
    """
    width = width_of(column.type)
    assert width is not None
    if width == 16:
        high, low = decimal_limbs(column)
        words = np.empty((len(column), 2), np.dtype(">u8"))
        words[:, 0] = high.view(np.uint64) ^ _SIGN64
        words[:, 1] = low
        matrix = words.view(np.uint8).reshape(len(column), 16)
    else:
        if pa.types.is_floating(column.type):
            width = 8
        wide = numbers(column) ^ np.int64(-(1 << (8 * width - 1)))
        whole = np.ascontiguousarray(wide).astype(np.dtype(">i8")).view(np.uint8).reshape(len(column), 8)
        matrix = whole[:, 8 - width :]
    valid = valid_mask(column)
    return matrix if valid is None else np.where(valid[:, None], matrix, np.uint8(0))


def any_null(columns: Sequence[pa.Array]) -> int | None:
    """Find a null in a list of columns.

    Returns:
        Index of the first column with a null, or None.
    """
    return next((i for i, column in enumerate(columns) if column.null_count), None)
