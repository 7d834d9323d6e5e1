"""Column values as file indexes know them: whole numbers in the type's order, or bytes; and how dictionaries store them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import decimal_limbs, values_of
from lsm_core.errors import CorruptFile
from lsm_core.types import DataType, TypeRoot, to_arrow

I64 = npt.NDArray[np.int64]
Key = int | bytes
"""A value: bytes for texts, else a number. Floats are numbered in Java's order: -0.0 before 0.0, NaN last."""

_STORED: Final = {
    TypeRoot.BOOLEAN: ">i1",
    TypeRoot.TINYINT: ">i1",
    TypeRoot.SMALLINT: ">i2",
    TypeRoot.INT: ">i4",
    TypeRoot.DATE: ">i4",
    TypeRoot.TIME: ">i4",
    TypeRoot.FLOAT: ">i4",
    TypeRoot.BIGINT: ">i8",
    TypeRoot.DOUBLE: ">i8",
    TypeRoot.DECIMAL: ">i8",
    TypeRoot.TIMESTAMP: ">i8",
    TypeRoot.TIMESTAMP_LTZ: ">i8",
}
_TIMESTAMPS: Final = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_MICRO_DIGITS: Final = 6
_LONG_DIGITS: Final = 18
_WORD: Final = 4


@dataclass(frozen=True)
class Kind:
    """How values of one column type are numbered; ``stored``: NumPy type in a dictionary, None for texts."""

    type: DataType
    stored: np.dtype[Any] | None

    @property
    def is_float(self) -> bool:
        """Whether numbers stand for floating point values."""
        return self.type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE)

    @property
    def is_exact(self) -> bool:
        """Whether two values have one number only when they are equal (timestamps of nanoseconds are cut to micros)."""
        return self.type.root not in _TIMESTAMPS or (self.type.precision or 0) <= _MICRO_DIGITS


def kind_of(data_type: DataType) -> Kind | None:
    """How ``data_type`` is indexed by bitmaps and ranges, None where Paimon does not."""
    if data_type.root in (TypeRoot.CHAR, TypeRoot.VARCHAR):
        return Kind(data_type, None)
    stored = _STORED.get(data_type.root)
    if data_type.root is TypeRoot.DECIMAL and (data_type.precision or 0) > _LONG_DIGITS:
        return None
    return None if stored is None else Kind(data_type, np.dtype(stored))


def numbers_of(array: pa.Array, data_type: DataType) -> I64:
    """Raw numbers of a column (int64): bits of floats, days, ms of the day, ms or µs of timestamps, unscaled decimals.

    Null places hold anything. ``array`` has the type's own Arrow type.
    """
    root = data_type.root
    if root is TypeRoot.BOOLEAN:
        flags: I64 = array.fill_null(fill_value=False).to_numpy(zero_copy_only=False).astype(np.int64)
        return flags
    if root is TypeRoot.DECIMAL:
        return decimal_limbs(array)[1].view(np.int64)  # the whole value where it fits
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        # Java's floatToIntBits and doubleToLongBits: every NaN is the same one.
        wide = root is TypeRoot.DOUBLE
        values = values_of(array, "<f8" if wide else "<f4")
        bits: I64 = values.view("<i8" if wide else "<i4").astype(np.int64)
        bits[np.isnan(values)] = 0x7FF8000000000000 if wide else 0x7FC00000
        return bits
    raw: I64 = values_of(array, f"<i{array.type.bit_width // 8}").astype(np.int64, copy=False)
    if root in _TIMESTAMPS and array.type.unit == "ns":
        raw = np.floor_divide(raw, 1000)
    return raw


def _ordered(bits: I64, *, wide: bool) -> I64:
    """Bits of floats as numbers in the order of Float.compare and Double.compare."""
    flipped = bits ^ np.int64(0x7FFFFFFFFFFFFFFF if wide else 0x7FFFFFFF)
    ordered: I64 = np.where(bits < 0, flipped, bits)
    return ordered


def keys_of(array: pa.Array, data_type: DataType) -> list[Key]:
    """The values of a filter's literals as keys, nulls left out; ``array`` has the type's own Arrow type."""
    array = array.drop_null()
    if data_type.root in (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY):
        return list(array.cast(pa.binary()).to_pylist())
    numbers = numbers_of(array, data_type)
    if data_type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        numbers = _ordered(numbers, wide=data_type.root is TypeRoot.DOUBLE)
    return list(numbers.tolist())


def literals(values: pa.Array, data_type: DataType) -> pa.Array | None:
    """``values`` in the Arrow type of ``data_type``, None when that type may not hold them or not compare as they do."""
    wanted = to_arrow(data_type)
    if values.type == wanted:
        return values
    families = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_timestamp, pa.types.is_time)
    if not any(family(values.type) and family(wanted) for family in families):
        return None
    if pa.types.is_timestamp(wanted) and (values.type.tz is None) is not (wanted.tz is None):
        return None
    try:
        cast = values.cast(wanted)
        return cast if cast.cast(values.type).equals(values) else None
    except pa.ArrowException:
        return None


def read_keys(view: memoryview, at: int, count: int, kind: Kind, extra: int, path: str) -> tuple[list[Key], I64, int]:
    """``count`` dictionary entries from ``at`` on: their keys, the ``extra`` 4-byte numbers behind each, and the end.

    Raises :class:`CorruptFile` before memory is taken for more entries than the bytes can hold.
    """
    if kind.stored is None:
        take(view, at, count * _WORD * (1 + extra), path)
        texts: list[Key] = []
        numbers = np.empty((count, extra), np.int64)
        for index in range(count):  # distinct values of a dictionary, not rows
            length = number(view, at, path)
            texts.append(bytes(take(view, at + _WORD, length, path)))
            at += _WORD + length
            numbers[index] = np.frombuffer(take(view, at, _WORD * extra, path), ">i4")
            at += _WORD * extra
        return texts, numbers, at
    row = np.dtype([("key", kind.stored), ("extra", ">i4", (extra,))])
    part = np.frombuffer(take(view, at, count * row.itemsize, path), row)
    raw = part["key"].astype(np.int64)
    keys = _ordered(raw, wide=kind.stored.itemsize == 8) if kind.is_float else raw
    return list(keys.tolist()), part["extra"].astype(np.int64).reshape(count, extra), at + count * row.itemsize


def number(view: memoryview, at: int, path: str) -> int:
    """A big-endian 4-byte number."""
    return int.from_bytes(take(view, at, _WORD, path), "big", signed=True)


def take(view: memoryview, at: int, length: int, path: str) -> memoryview:
    """Bytes of an index; raises :class:`CorruptFile` when there are fewer."""
    if at < 0 or length < 0 or at + length > len(view):
        raise CorruptFile(path, f"file index: bytes {at} to {at + length} of {len(view)}")
    return view[at : at + length]


__all__ = ["Key", "Kind", "keys_of", "kind_of", "literals", "number", "numbers_of", "read_keys", "take"]
