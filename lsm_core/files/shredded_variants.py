"""Conversion of shredded VARIANT columns, whose values are partly in typed fields, to plain variants.

The typed fields are encoded again as Java does, so integers take the smallest size. The metadata (the dictionary of
field names) stays, because it names all fields.

Source: ``ShreddingUtils.rebuild``; Parquet's specification of variant shredding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.errors import CorruptFile, UnsupportedFeature

VARIANT_FIELDS: Final = ("value", "metadata")
TYPED: Final = "typed_value"
_NULL: Final = b"\x00"
_LONG_STRING, _BINARY = 16, 15
_OBJECT: Final = 2
_SHORT: Final = 63
_SMALL: Final = 255
_DECIMALS: Final = ((9, 8, 4), (18, 9, 8), (38, 10, 16))
"""Largest precision, type and bytes of each size of decimals."""
_INTEGERS: Final = ((1, 3), (2, 4), (4, 5), (8, 6))
"""Bytes and type of each size of integers."""
Values = list[bytes | None]


def is_shredded(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether ``stored`` holds variants, at any depth, whose values are partly in typed fields.

    Args:
        stored: type of a column in a file.
        kind: type of the column in the file's schema.
    """
    if pa.types.is_struct(stored) and pa.types.is_struct(kind):
        if _is_variant(stored, kind):
            return True
        pairs = [(field.type, kind.field(field.name).type) for field in stored if kind.get_field_index(field.name) >= 0]
    elif pa.types.is_map(stored) and pa.types.is_map(kind):
        pairs = [(stored.key_type, kind.key_type), (stored.item_type, kind.item_type)]
    elif pa.types.is_list(stored) and pa.types.is_list(kind):
        pairs = [(stored.value_type, kind.value_type)]
    else:
        return False
    return any(is_shredded(*pair) for pair in pairs)


def _is_variant(stored: pa.DataType, kind: pa.DataType) -> bool:
    return tuple(field.name for field in kind) == VARIANT_FIELDS and stored.get_field_index(TYPED) >= 0


def unshred(array: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    """Return a column with plain variants in place of shredded ones, at any depth.

    Args:
        array: values of the column as stored.
        kind: type of the column in the file's schema.
        path: path of the file, for errors.

    Raises:
        CorruptFile: a value is no valid shredded variant.
        UnsupportedFeature: a typed field has a type that is not supported.
    """
    if not is_shredded(array.type, kind):
        return array
    if pa.types.is_struct(kind) and _is_variant(array.type, kind):
        return _plain_variants(array, path)
    mask = pc.is_null(array)
    if pa.types.is_struct(kind):
        names = [field.name for field in array.type if kind.get_field_index(field.name) >= 0]
        parts = [unshred(array.field(name), kind.field(name).type, path) for name in names]
        return pa.StructArray.from_arrays(parts, names=names, mask=mask)
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    offsets = pc.subtract(array.offsets, first)
    if pa.types.is_map(kind):
        keys = array.keys.slice(first, last - first)
        items = unshred(array.items.slice(first, last - first), kind.item_type, path)
        return pa.MapArray.from_arrays(offsets, keys, items, mask=mask)
    values = unshred(array.values.slice(first, last - first), kind.value_type, path)
    return pa.ListArray.from_arrays(offsets, values, mask=mask)


def _plain_variants(array: pa.Array, path: str) -> pa.Array:
    """Return shredded variants as structs of value and metadata."""
    metadata = array.field("metadata")
    coded = one_array(pc.struct_field(array, ["metadata"])).dictionary_encode()
    dictionaries = [None if text is None else _ids_by_name(text, path) for text in coded.dictionary.to_pylist()]
    rows = np.asarray(pc.fill_null(coded.indices, 0), np.int64)
    encoder = _Encoder(dictionaries, path)
    values = encoder.encode(_Level(array, rows))
    is_null = np.asarray(pc.is_null(array))
    plain: list[Any] = [
        None if absent else (_NULL if value is None else value) for value, absent in zip(values, is_null, strict=True)
    ]
    fields = [pa.field("value", pa.binary()), pa.field("metadata", metadata.type)]
    return pa.StructArray.from_arrays([pa.array(plain, pa.binary()), metadata], fields=fields, mask=pa.array(is_null))


class _Level(NamedTuple):
    """Variants of one level of nesting.

    Attributes:
        array: structs with the fields `value` and `typed_value`, or one of them.
        rows: number of the metadata of each variant.
    """

    array: pa.StructArray
    rows: np.ndarray[tuple[int], np.dtype[np.int64]]

    def field(self, name: str) -> pa.Array | None:
        """Return a field with the nulls of its parent, or None if the structs have no such field."""
        place = self.array.type.get_field_index(name)
        return None if place < 0 else pc.struct_field(self.array, [place])


class _Encoder:
    """Encoder of the variants of one column of one file; it works level by level, on lists of encoded values."""

    def __init__(self, dictionaries: Sequence[dict[str, int] | None], path: str) -> None:
        self._dictionaries, self._path = dictionaries, path
        self._names: dict[int, dict[int, str]] = {}

    def encode(self, level: _Level) -> Values:
        """Return the encoded value of each variant; None for a variant that is missing."""
        typed, stored = level.field(TYPED), level.field("value")
        rest: Values = [None] * len(level.rows) if stored is None else pc.cast(stored, pa.binary()).to_pylist()
        if typed is None:
            return rest
        if pa.types.is_struct(typed.type):
            return self._objects(level, typed, rest)
        if pa.types.is_list(typed.type) or pa.types.is_large_list(typed.type):
            values = self._arrays(level, typed)
        else:
            values = _scalars(typed, self._path)
        return [other if value is None else value for value, other in zip(values, rest, strict=True)]

    def _arrays(self, level: _Level, typed: pa.Array) -> Values:
        """Return the encoded arrays; None where ``typed`` is null."""
        lengths = np.asarray(pc.fill_null(pc.list_value_length(typed), 0), np.int64)
        children = self.encode(_Level(pc.list_flatten(typed), np.repeat(level.rows, lengths)))
        ends = np.cumsum(lengths)
        valid = np.asarray(pc.is_valid(typed))
        return [
            _array(children[end - length : end]) if present else None
            for end, length, present in zip(ends.tolist(), lengths.tolist(), valid.tolist(), strict=True)
        ]

    def _objects(self, level: _Level, typed: pa.StructArray, rest: Values) -> Values:
        """Return the encoded objects, with the further fields of ``rest``; where ``typed`` is null, ``rest`` itself."""
        names = [field.name for field in typed.type]
        shredded = frozenset(names)
        columns = [
            self.encode(_Level(pc.struct_field(typed, [place]), level.rows)) for place in range(typed.type.num_fields)
        ]
        valid = np.asarray(pc.is_valid(typed))
        result: Values = []
        for place, (present, row, other) in enumerate(zip(valid.tolist(), level.rows.tolist(), rest, strict=True)):
            if not present:
                result.append(other)
                continue
            fields = {name: value for name, values in zip(names, columns, strict=True) if (value := values[place])}
            if other is not None:
                further = self._fields_of(other, row)
                if not shredded.isdisjoint(further):
                    raise CorruptFile(self._path, "a shredded VARIANT has the same field twice")
                fields |= further
            result.append(self._object(fields, row))
        return result

    def _object(self, fields: dict[str, bytes], row: int) -> bytes:
        ids = self._dictionaries[row]
        if ids is None or any(name not in ids for name in fields):
            raise CorruptFile(self._path, "the metadata of a shredded VARIANT lacks the name of a field")
        names = sorted(fields, key=_java_order)
        numbers = [ids[name] for name in names]
        values = [fields[name] for name in names]
        data = b"".join(values)
        id_size, offset_size = _size_of(max(numbers, default=0)), _size_of(len(data))
        large = len(names) > _SMALL
        head = (large << 4 | (id_size - 1) << 2 | (offset_size - 1)) << 2 | _OBJECT
        count = len(names).to_bytes(4 if large else 1, "little")
        coded = b"".join(number.to_bytes(id_size, "little") for number in numbers)
        return bytes([head]) + count + coded + _offsets(values, offset_size) + data

    def _fields_of(self, value: bytes, row: int) -> dict[str, bytes]:
        """Return the fields of an encoded object by name."""
        ids = self._dictionaries[row] or {}
        names = self._names.setdefault(row, {number: name for name, number in ids.items()})
        if not value or value[0] & 3 != _OBJECT:
            raise CorruptFile(self._path, "the rest of a shredded VARIANT is no object")
        head = value[0] >> 2
        offset_size, id_size, count_size = (head & 3) + 1, (head >> 2 & 3) + 1, 4 if head >> 4 & 1 else 1
        count = int.from_bytes(value[1 : 1 + count_size], "little")
        start = 1 + count_size
        data = start + count * id_size + (count + 1) * offset_size
        if data > len(value):
            raise CorruptFile(self._path, "an object of a VARIANT ends early")

        def number(at: int, size: int) -> int:
            return int.from_bytes(value[at : at + size], "little")

        numbers = [number(start + place * id_size, id_size) for place in range(count)]
        begin = start + count * id_size
        offsets = [number(begin + place * offset_size, offset_size) for place in range(count + 1)]
        ends = dict(zip(sorted(offsets), [*sorted(offsets)[1:], offsets[-1]], strict=True))
        if any(item not in names for item in numbers) or max(offsets) > len(value) - data:
            raise CorruptFile(self._path, "an object of a VARIANT names an unknown field or position")
        return {
            names[item]: value[data + offset : data + ends[offset]]
            for item, offset in zip(numbers, offsets[:-1], strict=True)
        }


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _size_of(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


def _offsets(values: Sequence[bytes], size: int) -> bytes:
    ends = np.cumsum([0, *map(len, values)])
    return b"".join(end.to_bytes(size, "little") for end in ends.tolist())


def _array(values: Sequence[bytes | None]) -> bytes:
    items = [_NULL if value is None else value for value in values]
    data = b"".join(items)
    size, large = _size_of(len(data)), len(items) > _SMALL
    head = (large << 2 | (size - 1)) << 2 | 3
    return bytes([head]) + len(items).to_bytes(4 if large else 1, "little") + _offsets(items, size) + data


def _ids_by_name(metadata: bytes, path: str) -> dict[str, int]:
    """Return the ids of the field names in the metadata of a variant."""
    size = (metadata[0] >> 6) + 1 if metadata else 0
    if not size or metadata[0] & 15 != 1:
        raise CorruptFile(path, "the metadata of a VARIANT is not of version 1")
    count = int.from_bytes(metadata[1 : 1 + size], "little")
    start = 1 + size * (count + 2)
    if start > len(metadata):
        raise CorruptFile(path, "the metadata of a VARIANT ends early")
    ends = [
        int.from_bytes(metadata[1 + size * (place + 1) : 1 + size * (place + 2)], "little")
        for place in range(count + 1)
    ]
    try:
        return {metadata[start + ends[place] : start + ends[place + 1]].decode(): place for place in range(count)}
    except UnicodeDecodeError as error:
        raise CorruptFile(path, "the metadata of a VARIANT has a name that is no text") from error


def _primitive(number: int, payload: bytes = b"") -> bytes:
    return bytes([number << 2]) + payload


def _integer(value: int) -> bytes:
    for size, number in _INTEGERS:
        if -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1):
            return _primitive(number, value.to_bytes(size, "little", signed=True))
    raise AssertionError(value)


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) <= _SHORT:
        return bytes([len(data) << 2 | 1]) + data
    return _primitive(_LONG_STRING, len(data).to_bytes(4, "little") + data)


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    precision = len(str(abs(unscaled)))
    for largest, number, size in _DECIMALS:
        if scale <= largest and precision <= largest:
            return _primitive(number, bytes([scale]) + unscaled.to_bytes(size, "little", signed=True))
    raise AssertionError(value)


def _fixed(number: int, kind: str) -> Callable[[pa.Array], Values]:
    def encode(array: pa.Array) -> Values:
        numbers = np.asarray(pc.fill_null(array, 0)).astype(kind)
        data, size = numbers.tobytes(), numbers.dtype.itemsize
        head = bytes([number << 2])
        coded: Values = [head + data[at : at + size] for at in range(0, len(data), size)]
        return _with_nulls(coded, array)

    return encode


def _with_nulls(values: Values, array: pa.Array) -> Values:
    if not array.null_count:
        return values
    valid = np.asarray(pc.is_valid(array)).tolist()
    return [value if present else None for value, present in zip(values, valid, strict=True)]


def _each(encode: Callable[[Any], bytes]) -> Callable[[pa.Array], Values]:
    return lambda array: [None if value is None else encode(value) for value in array.to_pylist()]


def _scalars(array: pa.Array, path: str) -> Values:
    """Return the encoded values of a typed field; None for nulls."""
    kind = array.type
    if pa.types.is_integer(kind):
        return _each(_integer)(array)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _each(_text)(array)
    if pa.types.is_boolean(kind):
        return _each(lambda value: _primitive(1 if value else 2))(array)
    if pa.types.is_float64(kind):
        return _fixed(7, "<f8")(array)
    if pa.types.is_float32(kind):
        return _fixed(14, "<f4")(array)
    if pa.types.is_decimal(kind):
        return _each(_decimal)(array)
    if pa.types.is_date32(kind):
        return _fixed(11, "<i4")(array.cast(pa.int32()))
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return _fixed(12 if kind.tz else 13, "<i8")(array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _each(lambda value: _primitive(_BINARY, len(value).to_bytes(4, "little") + value))(array)
    raise UnsupportedFeature(f"shredded VARIANT values with a typed field of type {kind} (file {path})")
