"""Decoder of the values in row files, column by column over many rows.

Every function takes the read positions of the rows that have a value, and returns the values with the positions after
them. No function loops over rows; only elements of variable length inside one array are read one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import arrow_array, limbs_from_big_endian, offsets_from, places_within, slice_places
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.types import DataType, TypeRoot

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Fields = Sequence[tuple[pa.DataType, DataType, bool]]

_FIXED: Final[dict[TypeRoot, np.dtype[Any]]] = {
    TypeRoot.BOOLEAN: np.dtype(np.uint8),
    TypeRoot.TINYINT: np.dtype(np.int8),
    TypeRoot.SMALLINT: np.dtype("<i2"),
    TypeRoot.INT: np.dtype("<i4"),
    TypeRoot.DATE: np.dtype("<i4"),
    TypeRoot.TIME: np.dtype("<i4"),
    TypeRoot.BIGINT: np.dtype("<i8"),
    TypeRoot.FLOAT: np.dtype("<f4"),
    TypeRoot.DOUBLE: np.dtype("<f8"),
}
_BYTES: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY})
_TIMESTAMPS: Final = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_INT: Final = DataType(TypeRoot.INT, nullable=False)
_LONG: Final = np.dtype("<i8")
_LONG_DIGITS: Final = 18
"""Most digits of a DECIMAL that is stored as a number of 8 bytes."""
_MILLIS: Final = 3
_VARINT_BYTES: Final = 5
_MOST_MILLIS: Final = {"ms": 2**63 - 1, "us": (2**63 - 1) // 1_000, "ns": (2**63 - 1) // 1_000_000}


class RowValues:
    """Decompressed blocks of one file, and the decoders of all types.

    Attributes:
        data: the bytes of the blocks.
        path: path of the file, for errors.
    """

    def __init__(self, data: npt.NDArray[np.uint8], path: str) -> None:
        self.data = data
        self.path = path

    def read_fields(self, fields: Fields, cursor: I64) -> tuple[list[pa.Array | None], I64]:
        """Read rows: a bitmap of nulls, then the values that are not null, field by field.

        Args:
            fields: Arrow type and logical type of each field, and whether its values are needed.
            cursor: start of each row.

        Returns:
            The values of each field (None if not needed), and the ends of the rows.

        Raises:
            CorruptFile: a value is outside the data.
            UnsupportedFeature: Arrow cannot represent a timestamp.
        """
        bitmap = cursor
        cursor = cursor + (len(fields) + 7) // 8
        arrays: list[pa.Array | None] = []
        for place, (arrow_type, kind, is_needed) in enumerate(fields):
            valid = ~self._bits(bitmap, np.full(len(bitmap), place, np.int64))
            if valid.all():
                values, cursor = self._read(arrow_type, kind, cursor, is_needed)
            else:
                values, after = self._read(arrow_type, kind, cursor[valid], is_needed)
                cursor = cursor.copy()
                cursor[valid] = after
                values = None if values is None else _with_nulls(values, valid)
            arrays.append(values)
        return arrays, cursor

    def _bits(self, starts: I64, places: I64) -> Bools:
        """Return bit ``places[i]`` of the bitmap that starts at ``starts[i]``."""
        flags: Bools = (self._at(starts + places // 8) >> (places % 8).astype(np.uint8)) & 1 != 0
        return flags

    def _at(self, places: I64) -> npt.NDArray[np.uint8]:
        """Return the bytes at ``places``, which are never negative.

        Raises:
            CorruptFile: a position is outside the data.
        """
        if len(places) and int(places.max()) >= len(self.data):
            raise CorruptFile(self.path, "a row is longer than its block")
        return self.data[places]

    def _numbers(self, cursor: I64, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        width = dtype.itemsize
        raw = self._at(cursor[:, None] + np.arange(width, dtype=np.int64))
        return np.ascontiguousarray(raw).reshape(-1).view(dtype)

    def _varints(self, cursor: I64) -> tuple[I64, I64]:
        """Return unsigned LEB128 numbers of at most 31 bits, and the positions after them."""
        values, cursor = np.zeros(len(cursor), np.int64), cursor.copy()
        open_rows = np.arange(len(cursor))
        for step in range(_VARINT_BYTES):
            octets = self._at(cursor[open_rows])
            values[open_rows] |= (octets & 0x7F).astype(np.int64) << (7 * step)
            cursor[open_rows] += 1
            open_rows = open_rows[octets >= 0x80]
            if not len(open_rows):
                break
        if len(open_rows) or (len(values) and int(values.max()) >= 1 << 31):
            raise CorruptFile(self.path, "a length has more than 31 bits")
        return values, cursor

    def _read(
        self, arrow_type: pa.DataType, kind: DataType, cursor: I64, is_needed: bool
    ) -> tuple[pa.Array | None, I64]:
        """Read one value at each position; all values are valid."""
        if kind.root in _FIXED:
            dtype = _FIXED[kind.root]
            if not is_needed:
                return None, cursor + dtype.itemsize
            return _fixed_array(self._numbers(cursor, dtype), arrow_type), cursor + dtype.itemsize
        if kind.root in _BYTES:
            return self._read_bytes(arrow_type, cursor, is_needed)
        if kind.root is TypeRoot.DECIMAL:
            return self._read_decimals(arrow_type, kind, cursor, is_needed)
        if kind.root in _TIMESTAMPS:
            return self._read_timestamps(arrow_type, kind, cursor, is_needed)
        if kind.root is TypeRoot.VARIANT:
            parts = []
            for field in arrow_type:
                part, cursor = self._read_bytes(field.type, cursor, is_needed)
                parts.append(part)
            return pa.StructArray.from_arrays(parts, fields=list(arrow_type)) if is_needed else None, cursor
        if kind.root is TypeRoot.ROW:
            inner = [(field.type, of.type, is_needed) for field, of in zip(arrow_type, kind.fields, strict=True)]
            columns, cursor = self.read_fields(inner, cursor)
            return pa.StructArray.from_arrays(columns, fields=list(arrow_type)) if is_needed else None, cursor
        if kind.root is TypeRoot.ARRAY and kind.element is not None:
            sizes, values, cursor = self._read_elements(arrow_type.value_type, kind.element, cursor, is_needed)
            return _list_array(arrow_type, sizes, [values]) if is_needed else None, cursor
        return self._read_maps(arrow_type, kind, cursor, is_needed)

    def _read_maps(
        self, arrow_type: pa.DataType, kind: DataType, cursor: I64, is_needed: bool
    ) -> tuple[pa.Array | None, I64]:
        """Read a MAP or MULTISET: an array of keys, then an array of values."""
        key, value = (kind.element, _INT) if kind.root is TypeRoot.MULTISET else (kind.key, kind.value)
        if key is None or value is None:
            raise UnsupportedFeature(f"a value of type {kind} in row files ({self.path})")
        sizes, keys, cursor = self._read_elements(arrow_type.key_type, key, cursor, is_needed)
        value_sizes, items, cursor = self._read_elements(arrow_type.item_type, value, cursor, is_needed)
        if not np.array_equal(sizes, value_sizes):
            raise CorruptFile(self.path, "a map has another number of keys than of values")
        if keys is not None and keys.null_count:
            raise UnsupportedFeature(f"null as key of a map ({self.path})")
        return _list_array(arrow_type, sizes, [keys, items]) if is_needed else None, cursor

    def _read_bytes(self, arrow_type: pa.DataType, cursor: I64, is_needed: bool) -> tuple[pa.Array | None, I64]:
        lengths, starts = self._varints(cursor)
        ends = starts + lengths
        if len(ends) and int(ends.max()) > len(self.data):
            raise CorruptFile(self.path, "a text is longer than its block")
        if not is_needed:
            return None, ends
        values = self.data[slice_places(starts, lengths)]
        offsets = offsets_from(lengths).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
        return pa.Array.from_buffers(arrow_type, len(lengths), buffers), ends

    def _read_decimals(
        self, arrow_type: pa.DataType, kind: DataType, cursor: I64, is_needed: bool
    ) -> tuple[pa.Array | None, I64]:
        if (kind.precision or 0) <= _LONG_DIGITS:
            if not is_needed:
                return None, cursor + _LONG.itemsize
            low = self._numbers(cursor, _LONG)
            limbs = np.stack([low, low >> 63], axis=1)
            cursor = cursor + _LONG.itemsize
        else:
            lengths, starts = self._varints(cursor)
            cursor = starts + lengths
            if len(lengths) and (int(lengths.max()) > 16 or int(cursor.max()) > len(self.data)):
                raise CorruptFile(self.path, "a decimal has more than 38 digits")
            if not is_needed:
                return None, cursor
            limbs = limbs_from_big_endian(self.data, starts, lengths)
        buffers = [None, pa.py_buffer(np.ascontiguousarray(limbs))]
        return pa.Array.from_buffers(arrow_type, len(cursor), buffers), cursor

    def _read_timestamps(
        self, arrow_type: pa.DataType, kind: DataType, cursor: I64, is_needed: bool
    ) -> tuple[pa.Array | None, I64]:
        """Read milliseconds, and with more than three fraction digits the nanoseconds within the millisecond."""
        start, cursor = cursor, cursor + _LONG.itemsize
        nanos = None
        if (kind.precision or 0) > _MILLIS:
            nanos, cursor = self._varints(cursor)
        if not is_needed:
            return None, cursor
        values = self._numbers(start, _LONG)
        most = _MOST_MILLIS[arrow_type.unit]
        if len(values) and (int(values.min()) < -most or int(values.max()) >= most):
            raise UnsupportedFeature(f"a timestamp that Arrow cannot store in '{arrow_type.unit}' ({self.path})")
        if nanos is not None:
            scale = 1_000 if arrow_type.unit == "us" else 1_000_000
            values = values * scale + nanos // (1_000_000 // scale)
        return _fixed_array(values, arrow_type), cursor

    def _read_elements(
        self, arrow_type: pa.DataType, kind: DataType, cursor: I64, is_needed: bool
    ) -> tuple[I64, pa.Array | None, I64]:
        """Read arrays: the number of elements, a bitmap of nulls, and the elements that are not null.

        Returns:
            The number of elements of each array, all elements (None if not needed), and the positions after the arrays.
        """
        sizes, bitmap = self._varints(cursor)
        cursor = bitmap + (sizes + 7) // 8
        if len(cursor) and int(cursor.max()) > len(self.data):
            raise CorruptFile(self.path, "an array is longer than its block")
        rows = np.repeat(np.arange(len(sizes)), sizes)
        within = places_within(sizes)
        valid = ~self._bits(bitmap[rows], within)
        if kind.root in _FIXED:
            before = offsets_from(valid)
            firsts = offsets_from(sizes)
            width = _FIXED[kind.root].itemsize
            starts = cursor[rows] + width * (before[:-1] - before[firsts[:-1]][rows])
            values, _ = self._read(arrow_type, kind, starts[valid], is_needed)
            cursor = cursor + width * np.diff(before[firsts])
        else:
            values, cursor = self._read_one_by_one(arrow_type, kind, cursor, (rows, within, valid), is_needed)
        if values is not None and not valid.all():
            values = _with_nulls(values, valid)
        return sizes, values, cursor

    def _read_one_by_one(
        self, arrow_type: pa.DataType, kind: DataType, cursor: I64, places: tuple[I64, I64, Bools], is_needed: bool
    ) -> tuple[pa.Array | None, I64]:
        """Read elements of variable length: the first ones of all arrays, then the second ones, and so on."""
        rows, within, valid = places
        order = np.flatnonzero(valid)
        order = order[np.argsort(within[order], kind="stable")]
        bounds = np.flatnonzero(np.diff(within[order], prepend=-1, append=-1)) if len(order) else np.zeros(1, np.int64)
        cursor, parts = cursor.copy(), []
        for places_of_step in np.split(order, bounds[1:-1]) if len(order) else ():
            chosen = rows[places_of_step]
            part, cursor[chosen] = self._read(arrow_type, kind, cursor[chosen], is_needed)
            parts.append(part)
        if not is_needed:
            return None, cursor
        if not parts:
            return pa.array([], arrow_type), cursor
        return pa.concat_arrays(parts).take(arrow_array(np.argsort(order, kind="stable"))), cursor


def _fixed_array(values: npt.NDArray[Any], arrow_type: pa.DataType) -> pa.Array:
    """Return numbers as an array of the type, which has the same width; BOOLEAN bytes become bits."""
    if pa.types.is_boolean(arrow_type):
        return arrow_array(values != 0)
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _with_nulls(values: pa.Array, valid: Bools) -> pa.Array:
    """Return ``values`` at the valid places, and null elsewhere."""
    places = np.cumsum(valid) - 1
    return values.take(pa.array(places, pa.int64(), mask=~valid))


def _list_array(arrow_type: pa.DataType, sizes: I64, values: list[pa.Array | None]) -> pa.Array:
    """Return an array of lists or maps with the given sizes and elements."""
    child = values[0] if len(values) == 1 else pa.StructArray.from_arrays(values, fields=_map_fields(arrow_type))
    offsets = pa.py_buffer(offsets_from(sizes).astype(np.int32))
    return pa.Array.from_buffers(arrow_type, len(sizes), [None, offsets], children=[child])


def _map_fields(arrow_type: pa.DataType) -> list[pa.Field]:
    """Return the fields of keys and values of a map."""
    return [arrow_type.key_field, arrow_type.item_field]
