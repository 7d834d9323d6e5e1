"""Thrift's compact protocol, as far as Parquet needs it: parsing structs from untrusted bytes, and writing them.

Integers that do not fit their type are rejected, where generated readers truncate them.

Source: the Thrift compact protocol specification.
"""

from __future__ import annotations

from typing import Any, Final

STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)
_LONG_LIST: Final = 15
_MOST_DEPTH: Final = 32
_VARINT_BITS: Final = 70
_BITS: Final = {I16: 16, I32: 32, I64: 64}
Struct = dict[int, tuple[int, Any]]
"""Field id: (Thrift type, value). Values are int, bool, bytes, a Struct, or a list of one of these."""


class Reader:
    """Parser of ``data`` from position ``at``.

    Every method raises ValueError or IndexError for bytes that are not Thrift.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def integer(self, kind: int) -> int:
        """Return a signed number of type ``kind``."""
        value, self.at = _integer(self.data, self.at, kind)
        return value

    def unsigned(self) -> int:
        """Return an unsigned number of at most 64 bits."""
        value, self.at = _varint(self.data, self.at)
        return value

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        if not 0 <= count <= len(self.data) - self.at:
            raise ValueError(f"{count} bytes beyond the end")
        self.at += count
        return self.data[self.at - count : self.at]

    def field(self, before: int) -> tuple[int, int]:
        """Return (id, type) of the next field; type 0 ends the struct."""
        head = self.data[self.at]
        self.at += 1
        kind, step = head & 15, head >> 4
        return (before + step if step or not kind else self.integer(I16)), kind

    def list_head(self) -> tuple[int, int]:
        """Return (length, type of the elements) of a list."""
        count, kind, self.at = _list_head(self.data, self.at)
        return count, kind

    def value(self, kind: int) -> Any:
        """Return the value of a field of type ``kind``; the type of a boolean is its value."""
        if kind in (TRUE, FALSE):
            return kind == TRUE
        value, self.at = _value(self.data, self.at, kind, 0)
        return value

    def struct(self) -> Struct:
        """Return all fields of a struct; the last of repeated fields counts."""
        fields, self.at = _struct(self.data, self.at, 0)
        return fields


def _struct(data: bytes, at: int, depth: int) -> tuple[Struct, int]:
    """Return a struct and its end.

    Numbers are parsed inline, because opening a table of many files spends most time here.
    """
    if depth > _MOST_DEPTH:
        raise ValueError("structs nested too deeply")
    fields: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head > 15:
            number += head >> 4
        else:
            number, at = _integer(data, at, I16)
        if 3 < kind < 7:
            value = data[at]
            at += 1
            if value > 127:
                shift = 7
                value &= 127
                while (byte := data[at]) > 127:
                    value |= (byte & 127) << shift
                    shift += 7
                    at += 1
                    if shift >= _VARINT_BITS:
                        raise ValueError("a number of more than ten bytes")
                value |= byte << shift
                at += 1
                if value >> _BITS[kind]:
                    raise ValueError("a number that is too large")
            fields[number] = kind, (value >> 1) ^ -(value & 1)
        elif kind == STRUCT:
            inner, at = _struct(data, at, depth + 1)
            fields[number] = kind, inner
        elif kind < BYTE:
            if not kind:
                return fields, at
            fields[number] = kind, kind == TRUE
        else:
            other, at = _value(data, at, kind, depth)
            fields[number] = kind, other
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a value of any type except a field's own boolean, and its end."""
    if kind == BINARY:
        size = data[at]
        at += 1
        if size > 127:
            size, at = _varint(data, at - 1)
        end = at + size
        if end > len(data):
            raise ValueError(f"{size} bytes beyond the end")
        return data[at:end], end
    if kind == STRUCT:
        return _struct(data, at, depth + 1)
    if kind in (LIST, SET):
        if depth > _MOST_DEPTH:
            raise ValueError("lists nested too deeply")
        count, kind, at = _list_head(data, at)
        values = []
        for _ in range(count):
            value, at = _value(data, at, kind, depth + 1)
            values.append(value)
        return values, at
    if I16 <= kind <= I64:
        small = data[at]
        return ((small >> 1) ^ -(small & 1), at + 1) if small < 128 else _integer(data, at, kind)
    if kind in (TRUE, FALSE):
        return data[at] == TRUE, at + 1
    width = {BYTE: 1, DOUBLE: 8}.get(kind)
    if width is None:
        raise ValueError(f"Thrift type {kind}, which Parquet does not use")
    if at + width > len(data):
        raise ValueError("a value beyond the end")
    return (
        data[at : at + 8] if kind == DOUBLE else int.from_bytes(data[at : at + 1], "little", signed=True)
    ), at + width


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Return (length, type of the elements, start) of a list; each element takes at least a byte."""
    head = data[at]
    count, at = (head >> 4, at + 1) if head < 0xF0 else _varint(data, at + 1)
    if count > len(data) - at:
        raise ValueError(f"a list of {count} elements in {len(data) - at} bytes")
    return count, head & 15, at


def _integer(data: bytes, at: int, kind: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    if value >> _BITS[kind]:
        raise ValueError("a number that is too large")
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        at += 1
        if shift >= _VARINT_BITS:
            raise ValueError("a number of more than ten bytes")
    return value | byte << shift, at + 1


def encode(struct: Struct) -> bytes:
    """Return the bytes of a struct of numbers, booleans, bytes, structs, and lists of numbers, bytes or structs."""
    out = bytearray()
    before = 0
    for number in sorted(struct):
        kind, value = struct[number]
        step = number - before
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + varint(number << 1)
        before = number
        if kind not in (TRUE, FALSE):
            out += _encode_value(kind, value)
    out.append(STOP)
    return bytes(out)


def list_head(count: int, kind: int) -> bytes:
    """Return the header of a list: the number of elements and their type."""
    return bytes([count << 4 | kind]) if count < _LONG_LIST else bytes([0xF0 | kind]) + varint(count)


def varint(value: int) -> bytes:
    """Return the bytes of an unsigned number."""
    encoded_bytes = bytearray()
    while value >= 0x80:
        encoded_bytes.append(value & 0x7F | 0x80)
        value >>= 7
    encoded_bytes.append(value)
    return bytes(encoded_bytes)


def _encode_value(kind: int, value: Any) -> bytes:
    if kind == BYTE:
        return int(value).to_bytes(1, "little", signed=True)
    if I16 <= kind <= I64:
        return varint((value << 1) ^ (value >> 63))
    if kind == BINARY:
        return varint(len(value)) + bytes(value)
    if kind == STRUCT:
        return encode(value)
    if kind == LIST:
        inner = (
            STRUCT if value and isinstance(value[0], dict) else BINARY if value and isinstance(value[0], bytes) else I32
        )
        return list_head(len(value), inner) + b"".join(_encode_value(inner, item) for item in value)
    raise ValueError(f"Thrift type {kind} is not written here")
