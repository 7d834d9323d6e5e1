"""Column values in file indexes: integers in the type's order, or bytes; and their encoding in dictionaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import (
    U8,
    arrow_scalar,
    decimal_limbs,
    numpy_array,
    offsets_from,
    one_array,
    valid_mask,
    value_bytes,
    value_offsets,
    values_of,
)
from lsm_core.errors import CorruptFile
from lsm_core.types import DataType, TypeRoot, to_arrow

I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
Key = int | bytes
"""A column value in an index: bytes for text, else an integer; floats map to integers in Java's order (NaN last)."""

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
class ValueEncoding:
    """Encoding of the values of one column type in file indexes.

    Attributes:
        type: the column type.
        stored: NumPy type in a dictionary, or None for texts.
    """

    type: DataType
    stored: np.dtype[Any] | None

    @property
    def is_float(self) -> bool:
        """Whether the numbers in an index represent floating-point values."""
        return self.type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE)

    @property
    def is_exact(self) -> bool:
        """Whether equal numbers in an index mean equal values (nanoseconds are truncated to microseconds)."""
        return self.type.root not in _TIMESTAMPS or (self.type.precision or 0) <= _MICRO_DIGITS


def kind_of(data_type: DataType) -> ValueEncoding | None:
    """Return the encoding of a type in bitmap and range indexes, or None if Paimon does not support it."""
    if data_type.root in (TypeRoot.CHAR, TypeRoot.VARCHAR):
        return ValueEncoding(data_type, None)
    stored = _STORED.get(data_type.root)
    if data_type.root is TypeRoot.DECIMAL and (data_type.precision or 0) > _LONG_DIGITS:
        return None
    return None if stored is None else ValueEncoding(data_type, np.dtype(stored))


def numbers_of(array: pa.Array, data_type: DataType) -> I64:
    """Return a column as int64: bits of floats, days, ms of the day, ms or µs of timestamps, unscaled decimals.

    Numbers at null positions are undefined. ``array`` has the type's own Arrow type.
    """
    root = data_type.root
    if root is TypeRoot.BOOLEAN:
        flags: I64 = numpy_array(array.fill_null(arrow_scalar(value=False))).astype(np.int64)
        return flags
    if root is TypeRoot.DECIMAL:
        return decimal_limbs(array)[1].view(np.int64)  # the whole value where it fits
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        # As in Java's floatToIntBits and doubleToLongBits, all NaN are equal.
        wide = root is TypeRoot.DOUBLE
        values = values_of(array, "<f8" if wide else "<f4")
        bits: I64 = values.view("<i8" if wide else "<i4").astype(np.int64)
        bits[np.isnan(values)] = 0x7FF8000000000000 if wide else 0x7FC00000
        return bits
    raw: I64 = values_of(array, f"<i{array.type.bit_width // 8}").astype(np.int64, copy=False)
    if root in _TIMESTAMPS and array.type.unit == "ns":
        raw = np.floor_divide(raw, 1000)
    return raw


def _to_ordered(bits: I64, *, wide: bool) -> I64:
    """Convert bits of floats to integers whose order is that of Java's Float.compare or Double.compare.

    Args:
        bits: bit patterns as integers.
        wide: whether these are the 64 bits of doubles instead of the 32 bits of floats.
    """
    flipped = bits ^ np.int64(0x7FFFFFFFFFFFFFFF if wide else 0x7FFFFFFF)
    ordered: I64 = np.where(bits < 0, flipped, bits)
    return ordered


def keys_of(array: pa.Array, data_type: DataType) -> list[Key]:
    """Return the literals of a filter in the form in which indexes compare values: integers, or bytes for texts.

    Nulls are left out. ``array`` has the type's own Arrow type.
    """
    array = array.drop_null()
    if data_type.root in (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY):
        return list(array.cast(pa.binary()).to_pylist())
    numbers = numbers_of(array, data_type)
    if data_type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        numbers = _to_ordered(numbers, wide=data_type.root is TypeRoot.DOUBLE)
    return list(numbers.tolist())


def literals(values: pa.Array, data_type: DataType) -> pa.Array | None:
    """Return ``values`` in the Arrow type of ``data_type``, or None.

    None means that the conversion is not exact or changes comparisons.
    """
    target = to_arrow(data_type)
    if values.type == target:
        return values
    families = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_timestamp, pa.types.is_time)
    if not any(family(values.type) and family(target) for family in families):
        return None
    if pa.types.is_timestamp(target) and (values.type.tz is None) is not (target.tz is None):
        return None
    try:
        cast = values.cast(target)
        return cast if cast.cast(values.type).equals(values) else None
    except pa.ArrowException:
        return None


def read_keys(
    view: memoryview, at: int, count: int, kind: ValueEncoding, extra: int, path: str
) -> tuple[list[Key], I64, int]:
    """Read entries of an index's dictionary of column values.

    Args:
        view: bytes of the index.
        at: start of the entries.
        count: number of entries.
        kind: encoding of the values.
        extra: number of 4-byte numbers after each key.
        path: path of the index, for messages.

    Returns:
        The keys, the ``extra`` numbers of each key, and the position after the last entry.

    Raises:
        CorruptFile: the index has too few bytes; checked before memory is allocated.
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
    keys = _to_ordered(raw, wide=kind.stored.itemsize == 8) if kind.is_float else raw
    return list(keys.tolist()), part["extra"].astype(np.int64).reshape(count, extra), at + count * row.itemsize


def write_keys(kind: ValueEncoding, keys: pa.Array, extra: I64) -> tuple[U8, I64]:
    """Encode entries of an index's dictionary of column values, for :func:`read_keys`.

    Args:
        kind: encoding of the values.
        keys: the keys in the form of :class:`Distinct`.
        extra: the 4-byte numbers after each key, one row per key.

    Returns:
        The bytes, and the start of each entry; the last item is the end of the last entry.
    """
    count, width = extra.shape
    tail = np.ascontiguousarray(extra.astype(">i4"))
    if kind.stored is not None:
        numbers = values_of(keys, "<i8")
        rows = np.empty(count, np.dtype([("key", kind.stored), ("extra", ">i4", (width,))]))
        rows["key"] = _to_ordered(numbers, wide=kind.stored.itemsize == 8) if kind.is_float else numbers
        rows["extra"] = tail
        return np.frombuffer(rows.tobytes(), np.uint8), np.arange(count + 1, dtype=np.int64) * rows.itemsize
    lengths = np.diff(value_offsets(keys)).astype(">i4")
    parts = [_words(lengths, 1), keys, *([_words(tail, width)] if width else []), pa.scalar(b"", pa.large_binary())]
    entries = pc.binary_join_element_wise(*parts)
    offsets = value_offsets(entries)
    return value_bytes(entries)[: offsets[-1]], offsets


def _words(numbers: npt.NDArray[Any], width: int) -> pa.Array:
    """Return rows of ``width`` 4-byte numbers as a binary array."""
    fixed = pa.binary(_WORD * width)
    return pa.Array.from_buffers(fixed, len(numbers), [None, pa.py_buffer(numbers.tobytes())]).cast(pa.large_binary())


@dataclass(frozen=True)
class Distinct:
    """The values of one column of a file: its distinct values, and for each row the index of its value.

    Attributes:
        kind: encoding of the values.
        keys: distinct values, ascending (large_binary, or int64 in the type's order).
        codes: index of each row's value in ``keys``, -1 for null (int64).
    """

    kind: ValueEncoding
    keys: pa.Array
    codes: I64

    @property
    def rows(self) -> int:
        """Number of rows of the file."""
        return len(self.codes)

    def rows_of_values(self) -> tuple[U32, I64]:
        """Return (non-null rows sorted by value, start of each value's rows); the last start is the end of the rows."""
        order = np.argsort(self.codes, kind="stable")
        counts = np.bincount(self.codes + 1, minlength=len(self.keys) + 1)
        return order[counts[0] :].astype(np.uint32), offsets_from(counts[1:])

    def nulls(self) -> U32:
        """Return the numbers of the rows whose value is null."""
        return np.flatnonzero(self.codes < 0).astype(np.uint32)


class ValueRows:
    """Collector of one column's values of one file; holds 4 bytes per row, and each array's distinct values."""

    def __init__(self, kind: ValueEncoding) -> None:
        self._kind = kind
        self._parts: list[pa.DictionaryArray] = []

    def add(self, array: pa.Array) -> None:
        """Add the column's values in the next rows of the file; ``array`` has the Arrow type of the column's type."""
        if self._kind.stored is None:
            values = array.cast(pa.large_binary())
        else:
            numbers = numbers_of(array, self._kind.type)
            if self._kind.is_float:
                numbers = _to_ordered(numbers, wide=self._kind.stored.itemsize == 8)
            valid = valid_mask(array)
            values = pa.array(numbers, mask=None if valid is None else ~valid)
        self._parts.append(values.dictionary_encode())

    def finish(self) -> Distinct:
        """Return the column's values in the whole file, and reset this collector for the next file."""
        kind = pa.large_binary() if self._kind.stored is None else pa.int64()
        parts, self._parts = self._parts, []
        unified = one_array(pa.chunked_array(parts, pa.dictionary(pa.int32(), kind)).unify_dictionaries())
        order = pc.sort_indices(unified.dictionary).to_numpy().astype(np.int64)
        rank = np.empty(len(order) + 1, np.int64)
        rank[order] = np.arange(len(order))
        rank[-1] = -1
        codes = unified.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return Distinct(self._kind, unified.dictionary.take(pa.array(order)), rank[codes])


def entries_until(begins: I64, at: int, most: int) -> int:
    """Return the index of the first entry that does not fit if entries from ``at`` on are put into ``most`` bytes.

    Args:
        begins: start of each entry; the last item is the end of the last entry.
        at: index of the first entry.
        most: available bytes.
    """
    return int(np.searchsorted(begins, begins[at] + most, "right")) - 1


def number(view: memoryview, at: int, path: str) -> int:
    """Return the signed big-endian 4-byte integer at position ``at`` of an index.

    Raises:
        CorruptFile: the index has too few bytes; the message names ``path``.
    """
    return int.from_bytes(take(view, at, _WORD, path), "big", signed=True)


def take(view: memoryview, at: int, length: int, path: str) -> memoryview:
    """Return ``length`` bytes of an index from position ``at`` on.

    Raises:
        CorruptFile: the index has fewer bytes; the message names ``path``.
    """
    if at < 0 or length < 0 or at + length > len(view):
        raise CorruptFile(path, f"file index: bytes {at} to {at + length} of {len(view)}")
    return view[at : at + length]
