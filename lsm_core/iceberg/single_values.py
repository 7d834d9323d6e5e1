"""Values of columns as the bytes of Iceberg's bounds (binary single-value serialisation).

Source: ``IcebergConversions``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import (
    arrow_array,
    big_endian_digits,
    decimal_limbs,
    limbs_from_big_endian,
    null_mask,
    numpy_array,
    offsets_from,
    slice_places,
    value_bytes,
    value_offsets,
)
from lsm_core.errors import CorruptFile
from lsm_core.types import DataType, TypeRoot, to_arrow

_DECIMAL_BYTES: Final = 16
_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY})
_FOUR_BYTES: Final = frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.DATE})
_TIMESTAMPS: Final = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_WIDTHS: Final = {
    TypeRoot.BOOLEAN: (1, pa.uint8()),
    TypeRoot.FLOAT: (4, pa.float32()),
    TypeRoot.DOUBLE: (8, pa.float64()),
    TypeRoot.BIGINT: (8, pa.int64()),
    TypeRoot.TIME: (8, pa.int64()),
}
"""Width in bytes, and the Arrow type of the stored number."""


def has_bounds(kind: DataType) -> bool:
    """Return whether values of a type have bounds in Iceberg manifests."""
    known = kind.root in _TEXTS | _FOUR_BYTES | _TIMESTAMPS or kind.root in _WIDTHS
    return known or kind.root is TypeRoot.DECIMAL


def encode_values(values: pa.Array, kind: DataType) -> pa.Array:
    """Return values as bytes; nulls stay null.

    Args:
        values: values in the Arrow type of `to_arrow`.
        kind: the type; it must have bounds.
    """
    if kind.root in _TEXTS:
        return values.cast(pa.binary())
    if kind.root is TypeRoot.DECIMAL:
        nulls = null_mask(values)
        present = values if nulls is None else values.filter(arrow_array(~nulls))
        digits, sizes = big_endian_digits(*decimal_limbs(present))
        last = _DECIMAL_BYTES * np.arange(1, len(present) + 1, dtype=np.int64)
        data = digits[slice_places(last - sizes, sizes)]
        lengths = np.zeros(len(values), np.int64)
        lengths[slice(None) if nulls is None else ~nulls] = sizes
        return _binary(data, lengths, values)
    width, stored = _stored(kind)
    numbers = np.ascontiguousarray(numpy_array(_numbers(values, kind).cast(stored).fill_null(0)))
    data = numbers.astype(numbers.dtype.newbyteorder("<")).view(np.uint8)
    nulls = null_mask(values)
    if nulls is not None:
        data = data.reshape(-1, width)[~nulls].reshape(-1)
    lengths = np.full(len(values), width, np.int64)
    if nulls is not None:
        lengths[nulls] = 0
    return _binary(data, lengths, values)


def _binary(data: Any, lengths: Any, values: pa.Array) -> pa.Array:
    offsets = offsets_from(lengths).astype(np.int32)
    valid = arrow_array(~null_mask(values)).buffers()[1] if values.null_count else None  # type: ignore[operator]
    return pa.Array.from_buffers(pa.binary(), len(values), [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def _stored(kind: DataType) -> tuple[int, pa.DataType]:
    if kind.root in _FOUR_BYTES:
        return 4, pa.int32()
    return (8, pa.int64()) if kind.root in _TIMESTAMPS else _WIDTHS[kind.root]


def _numbers(values: pa.Array, kind: DataType) -> pa.Array:
    if kind.root in _TIMESTAMPS:  # Iceberg's timestamps are microseconds
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    if kind.root is TypeRoot.TIME:
        return pc.multiply(values.cast(pa.int32()).cast(pa.int64()), 1000)
    return values.cast(pa.int32()) if kind.root is TypeRoot.DATE else values


def decode_values(data: pa.Array, kind: DataType, path: str) -> pa.Array:
    """Return the values of :func:`encode_values`, in the Arrow type of `to_arrow`; nulls stay null.

    Args:
        data: the bytes of each value.
        kind: the type; it must have bounds.
        path: path of the file, for messages.

    Raises:
        CorruptFile: bytes are no value of the type; the message names ``path``.
    """
    target = to_arrow(kind)
    if kind.root in _TEXTS:
        try:
            return data.cast(target)
        except pa.ArrowInvalid as error:
            raise CorruptFile(path, f"a bound of a partition column is no text: {error}") from error
    nulls = null_mask(data)
    offsets = value_offsets(data)
    lengths = np.diff(offsets)
    valid = np.ones(len(data), np.bool_) if nulls is None else ~nulls
    validity = None if nulls is None else arrow_array(valid).buffers()[1]
    if kind.root is TypeRoot.DECIMAL:
        if (valid & ((lengths < 1) | (lengths > _DECIMAL_BYTES))).any():
            raise CorruptFile(path, "a bound of a partition column is no decimal")
        limbs = limbs_from_big_endian(value_bytes(data), offsets[:-1], np.where(valid, lengths, 0))
        return pa.Array.from_buffers(target, len(data), [validity, pa.py_buffer(limbs)])
    width, stored = _stored(kind)
    if (valid & (lengths != width)).any():
        raise CorruptFile(path, f"a bound of a partition column does not have {width} bytes")
    raw = np.zeros((len(data), width), np.uint8)
    places = slice_places(offsets[:-1][valid], lengths[valid])
    raw[valid] = value_bytes(data)[places].reshape(-1, width)
    numbers = pa.Array.from_buffers(pa.int8() if width == 1 else stored, len(data), [validity, pa.py_buffer(raw)])
    try:
        if kind.root in _TIMESTAMPS:
            return numbers.cast(pa.timestamp("us", target.tz)).cast(target)
        if kind.root is TypeRoot.TIME:
            return pc.divide(numbers, 1000).cast(pa.int32()).cast(target)
        return numbers.cast(pa.int32()).cast(target) if kind.root is TypeRoot.DATE else numbers.cast(target)
    except pa.ArrowInvalid as error:
        raise CorruptFile(path, f"a bound of a partition column is no {kind}: {error}") from error
