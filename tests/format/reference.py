"""Encoder of binary rows, value by value, written from the specification to check the vectorised encoder."""

from __future__ import annotations

import struct
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from lsm_core.types import DataType, TypeRoot

_EPOCH = datetime(1970, 1, 1)
_FIXED = {
    TypeRoot.BOOLEAN: "<?",
    TypeRoot.TINYINT: "<b",
    TypeRoot.SMALLINT: "<h",
    TypeRoot.INT: "<i",
    TypeRoot.DATE: "<i",
    TypeRoot.TIME: "<i",
    TypeRoot.BIGINT: "<q",
    TypeRoot.FLOAT: "<f",
    TypeRoot.DOUBLE: "<d",
}


def pad8(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def plain(value: Any, kind: DataType) -> Any:
    """Convert a Python value to the internal form: days, milliseconds, unscaled integers or (millis, nanos)."""
    if isinstance(value, datetime):
        micros = (value.replace(tzinfo=None) - _EPOCH) // (datetime(1970, 1, 1, 0, 0, 0, 1) - _EPOCH)
        return micros // 1000, micros % 1000 * 1000
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        unscaled = int("".join(map(str, digits)) or "0") * 10 ** ((kind.scale or 0) + int(exponent))
        return -unscaled if sign else unscaled
    return value


def value_bytes(value: Any, kind: DataType, *, in_row: bool) -> tuple[bytes, bytes | None, int]:
    """Return the encoded parts of a value.

    Returns:
        The slot of a fixed-length value, the bytes of the variable part or None, and the low half of the slot that
        refers to the variable part.
    """
    value = None if value is None else plain(value, kind)
    root = kind.root
    if root in _FIXED:
        return (bytes(8) if value is None else pad8(struct.pack(_FIXED[root], value))), None, 0
    if root is TypeRoot.DECIMAL:
        if (kind.precision or 0) <= 18:
            return struct.pack("<q", value or 0), None, 0
        if value is None:
            return bytes(8), bytes(16) if in_row else None, 0
        size = (value if value >= 0 else ~value).bit_length() // 8 + 1
        return b"", value.to_bytes(size, "big", signed=True).ljust(16, b"\0"), size
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        millis, nanos = value or (0, 0)
        if (kind.precision or 0) <= 3:
            return struct.pack("<q", millis), None, 0
        if value is None:
            return bytes(8), bytes(8) if in_row else None, 0
        return b"", struct.pack("<q", millis), nanos
    if value is None:
        return bytes(8), None, 0
    if root in (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY):
        data = value.encode() if isinstance(value, str) else value
        if len(data) <= 7:
            return data.ljust(7, b"\0") + bytes([0x80 | len(data)]), None, 0
        return b"", pad8(data), len(data)
    data = nested_bytes(value, kind)
    return b"", pad8(data), len(data)


def nested_bytes(value: Any, kind: DataType) -> bytes:
    if kind.root is TypeRoot.ROW:
        return row([value[f.name] for f in kind.fields], [f.type for f in kind.fields])
    if kind.root is TypeRoot.VARIANT:
        return struct.pack("<i", len(value["value"])) + bytes(value["value"]) + bytes(value["metadata"])
    if kind.root is TypeRoot.ARRAY:
        assert kind.element is not None
        return array(value, kind.element)
    keys = array([k for k, _ in value], kind.key or kind.element)  # type: ignore[arg-type]
    items = array([v for _, v in value], kind.value or DataType(TypeRoot.INT))
    return struct.pack("<i", len(keys)) + keys + items


def array(values: list[Any], kind: DataType) -> bytes:
    width = struct.calcsize(_FIXED[kind.root]) if kind.root in _FIXED else 8
    bits = bytearray((len(values) + 31) // 32 * 4)
    fixed, tail = b"", b""
    start = (4 + len(bits) + width * len(values) + 7) // 8 * 8
    for index, value in enumerate(values):
        slot, variable, low = value_bytes(value, kind, in_row=False)
        if value is None:
            bits[index // 8] |= 1 << index % 8
        if variable is not None:
            slot = struct.pack("<II", low, start + len(tail))
            tail += variable
        fixed += slot[:width]
    return pad8(struct.pack("<i", len(values)) + bytes(bits) + fixed) + tail


def row(values: list[Any], types: list[DataType]) -> bytes:
    """Return the bytes of a row, without the arity."""
    header = bytearray((len(types) + 63 + 8) // 64 * 8)
    fixed, tail = b"", b""
    start = len(header) + 8 * len(types)
    for index, (value, kind) in enumerate(zip(values, types, strict=True)):
        slot, variable, low = value_bytes(value, kind, in_row=True)
        if value is None:
            header[(index + 8) // 8] |= 1 << (index + 8) % 8
        if variable is not None:
            slot = struct.pack("<II", low, start + len(tail))
            tail += variable
        fixed += slot
    return bytes(header) + fixed + tail


def serialised(values: list[Any], types: list[DataType]) -> bytes:
    return struct.pack(">i", len(types)) + row(values, types)


def murmur(data: bytes, seed: int = 42) -> int:
    """Return the signed Murmur3-32 hash of a whole number of little-endian words."""
    mask = 0xFFFFFFFF
    h = seed
    for (k,) in struct.iter_unpack("<I", data):
        k = k * 0xCC9E2D51 & mask
        k = (k << 15 | k >> 17) & mask
        h ^= k * 0x1B873593 & mask
        h = (h << 13 | h >> 19) & mask
        h = (h * 5 + 0xE6546B64) & mask
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
