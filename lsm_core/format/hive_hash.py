"""Hive's row hash, for tables whose buckets Hive should recognise (format.md 7).

Source: ``HiveBucketFunction``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import decimal_limbs, null_mask, one_array, values_of
from lsm_core.errors import InvalidOption
from lsm_core.format.binary_row.layout import Layout, layouts_of
from lsm_core.format.binary_row.row_encoder import byte_ranges
from lsm_core.types import DataType, TypeRoot

U32 = npt.NDArray[np.uint32]

_FACTOR = np.uint32(31)
_INTEGERS = frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT})
_BYTES = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY})


def hive_hash(columns: Sequence[Any], types: Sequence[DataType]) -> npt.NDArray[np.int32]:
    """Return ``h = 31 * h + hash(field)`` over the columns.

    Returns:
        The hashes as int32.

    Raises:
        InvalidOption: Hive's hash does not support a type.
    """
    layouts = layouts_of(types)
    arrays = [one_array(column, layout.arrow) for column, layout in zip(columns, layouts, strict=True)]
    total: U32 = np.zeros(len(arrays[0]) if arrays else 0, np.uint32)
    for array, kind, layout in zip(arrays, types, layouts, strict=True):
        field = _field_hash(array, kind, layout)
        nulls = null_mask(array)
        if nulls is not None:
            field = np.where(nulls, np.uint32(0), field)
        total = total * _FACTOR + field
    return total.view(np.int32)


def _field_hash(array: pa.Array, kind: DataType, layout: Layout) -> U32:
    if kind.root is TypeRoot.BOOLEAN:
        filled = array.fill_null(fill_value=False)
        booleans: U32 = filled.to_numpy(zero_copy_only=False).astype(np.uint32)
        return booleans
    if kind.root in _INTEGERS:
        integers: U32 = values_of(array, f"<i{layout.width}").astype(np.int32).view(np.uint32)
        return integers
    if kind.root is TypeRoot.BIGINT:
        return _fold_long(values_of(array, "<u8"))
    if kind.root is TypeRoot.FLOAT:
        singles = values_of(array, "<f4")
        return np.where(singles == 0, np.float32(0), _canonical(singles)).view(np.uint32)
    if kind.root is TypeRoot.DOUBLE:
        doubles = values_of(array, "<f8")
        return _fold_long(np.where(doubles == 0, np.float64(0), _canonical(doubles)).view(np.uint64))
    if kind.root in _BYTES:
        return _polynomial(array)
    if kind.root is TypeRoot.DECIMAL:
        return _decimals(array, kind)
    raise InvalidOption("bucket-function.type", "hive", f"for bucket key types that Hive hashes, not {kind}")


def _canonical(values: Any) -> Any:
    """Return the values with a single NaN pattern, as in Java's floatToIntBits."""
    return np.where(np.isnan(values), values.dtype.type(np.nan), values)


def _fold_long(values: npt.NDArray[np.uint64]) -> U32:
    folded: U32 = (values ^ (values >> np.uint64(32))).astype(np.uint32)
    return folded


def _polynomial(array: pa.Array) -> U32:
    """Return polynomial hashes (factor 31) of signed bytes.

    They are computed position by position over the rows that are long enough.
    """
    if len(array) == 0:
        return np.zeros(0, np.uint32)
    data, starts, lengths = byte_ranges(array)
    signed = data.view(np.int8).astype(np.int32).view(np.uint32)
    hashes = np.zeros(len(array), np.uint32)
    # With the longest rows first, the rows that have a j-th byte form a prefix.
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    remaining_rows = len(lengths) - np.searchsorted(lengths[::-1], np.arange(int(lengths[0])), side="right")
    for position, count in enumerate(remaining_rows.tolist()):
        hashes[:count] = hashes[:count] * _FACTOR + signed[starts[:count] + position]
    result = np.empty_like(hashes)
    result[order] = hashes
    return result


def _decimals(array: pa.Array, kind: DataType) -> U32:
    """Return ``31 * sign * (31 * high + low) + scale`` of the magnitude without trailing zeros (scale >= 0)."""
    if len(array) == 0:
        return np.zeros(0, np.uint32)
    high, low = decimal_limbs(array)
    unscaled = low.view(np.int64)
    nulls = null_mask(array)
    wide = (high != unscaled >> 63) if nulls is None else (high != unscaled >> 63) & ~nulls
    if wide.any():
        raise InvalidOption("bucket-function.type", "hive", "for decimals of at most 63 bits")
    magnitude = np.abs(unscaled)
    scale = np.full(len(array), kind.scale or 0, np.int64)
    for _ in range(kind.scale or 0):
        strip = (scale > 0) & (magnitude % 10 == 0)
        magnitude = np.where(strip, magnitude // 10, magnitude)
        scale -= strip
    bits = magnitude.view(np.uint64)
    inner = (bits >> np.uint64(32)).astype(np.uint32) * _FACTOR + bits.astype(np.uint32)
    sign = np.sign(unscaled).astype(np.int32).view(np.uint32)
    hashed: U32 = inner * sign * _FACTOR + scale.astype(np.uint32)
    return np.where(unscaled == 0, np.uint32(0), hashed)
