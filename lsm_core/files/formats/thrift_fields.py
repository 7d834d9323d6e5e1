"""Fields of Thrift structs as encoded bytes: some fields are replaced, and all others are kept byte for byte.

Parquet's footers are changed in this way when row groups are copied: fields that this version of Dredge does not know
stay as their writer wrote them. :mod:`thrift` parses fields to values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lsm_core.files.formats import thrift

Fields = dict[int, tuple[int, bytes]]
"""Field id: (Thrift type, encoded value). The value of a boolean is its type, so it has no bytes."""
_EMPTY: Final = (0, b"")


def split_struct(data: bytes, at: int = 0) -> tuple[Fields, int]:
    """Return the fields of the struct at byte ``at``, and the position after it.

    Raises:
        ValueError: the bytes are not Thrift, or a field occurs twice.
        IndexError: the bytes are truncated.
    """
    reader = thrift.Reader(data, at)
    fields: Fields = {}
    number = 0
    while True:
        number, kind = reader.field(number)
        if kind == thrift.STOP:
            return fields, reader.at
        if number in fields:  # readers differ in which of the two they use
            raise ValueError(f"field {number} occurs twice")
        start = reader.at
        reader.value(kind)
        fields[number] = kind, data[start : reader.at]


def split_structs(data: bytes) -> list[bytes]:
    """Return the encoded structs of an encoded list.

    Raises:
        ValueError: the bytes are not a list of structs.
        IndexError: the bytes are truncated.
    """
    reader = thrift.Reader(data)
    count, kind = reader.list_head()
    if kind != thrift.STRUCT and count:
        raise ValueError("a list whose elements are no structs")
    structs = []
    for _ in range(count):
        start = reader.at
        reader.value(thrift.STRUCT)
        structs.append(data[start : reader.at])
    if reader.at != len(data):
        raise ValueError("bytes after a list")
    return structs


def join_fields(fields: Fields) -> bytes:
    """Return the encoded struct of ``fields``, in the order of their ids."""
    out = bytearray()
    before = 0
    for number in sorted(fields):
        kind, value = fields[number]
        step = number - before
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + thrift.varint(number << 1)
        out += value
        before = number
    out.append(thrift.STOP)
    return bytes(out)


def join_structs(structs: Iterable[bytes]) -> bytes:
    """Return the encoded list of encoded structs."""
    structs = list(structs)
    return thrift.list_head(len(structs), thrift.STRUCT) + b"".join(structs)


def nested(fields: Fields, number: int, kind: int) -> bytes:
    """Return the encoded value of a required field of type ``kind``.

    Raises:
        ValueError: the field is missing or of another type.
    """
    stored_kind, value = fields.get(number, _EMPTY)
    if stored_kind != kind:
        raise ValueError(f"field {number} is missing")
    return value


def number_of(fields: Fields, number: int, kind: int = thrift.I64) -> int | None:
    """Return the value of a field of integer type ``kind``; None if the struct does not have the field.

    Raises:
        ValueError: the field has another type.
    """
    if number not in fields:
        return None
    return thrift.Reader(nested(fields, number, kind)).integer(kind)


def set_number(fields: Fields, number: int, value: int, kind: int = thrift.I64) -> None:
    """Replace or add a field of integer type ``kind``."""
    fields[number] = kind, thrift.varint((value << 1) ^ (value >> 63))
