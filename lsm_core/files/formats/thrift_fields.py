"""Fields of Thrift structs as encoded bytes: some fields are replaced, and all others are kept byte for byte.

Parquet's footers are changed in this way when row groups are copied: fields that this version of Dredge does not know
stay as their writer wrote them. :mod:`thrift` parses fields to values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from lsm_core.files.formats import thrift

Fields = dict[int, tuple[int, bytes]]
"""Field id: (Thrift type, encoded value). The value of a boolean is its type, so it has no bytes."""
Inner = Callable[[bytes, int, int], int]
"""Function from (bytes, position, Thrift type) of a value to the position after the value."""
_EMPTY: Final = (0, b"")
_NO_INNER: Final[Mapping[int, Inner]] = {}


def split_struct(data: bytes, at: int = 0, inner: Mapping[int, Inner] = _NO_INNER) -> tuple[Fields, int]:
    """Return the fields of the struct at byte ``at``, and the position after it.

    Args:
        data: the bytes to parse.
        at: position of the struct.
        inner: parser of the value of a field, by id of the field, if the value is split as well. It is called with
            ``data``, the position and the type of the value, and returns the position after the value.

    Raises:
        ValueError: the bytes are not Thrift, or a field occurs twice.
        IndexError: the bytes are truncated.
    """
    fields: Fields = {}
    number = 0
    while True:
        head = data[at]
        at += 1
        kind = head & 15
        if head > 15:  # the usual form: the difference to the previous id, and the type
            number += head >> 4
        elif kind:
            start = at
            at = thrift.skip(data, start, thrift.I16)
            number = thrift.Reader(data, start).integer(thrift.I16)
        if not kind:
            return fields, at
        if number in fields:  # readers differ in which of the two they use
            raise ValueError(f"field {number} occurs twice")
        end = inner[number](data, at, kind) if number in inner else thrift.skip(data, at, kind)
        fields[number] = kind, data[at:end]
        at = end


def split_list(data: bytes, at: int, kind: int, split: Callable[[bytes, int], int]) -> int:
    """Split each struct of the list at byte ``at``, and return the position after the list.

    Args:
        data: the bytes to parse.
        at: position of the list.
        kind: type of the value, which must be a list.
        split: function that is called with ``data`` and the position of a struct, and returns the position after it.

    Raises:
        ValueError: the value is not a list of structs.
        IndexError: the bytes are truncated.
    """
    reader = thrift.Reader(data, at)
    count, element = reader.list_head() if kind == thrift.LIST else (1, kind)
    if count and (element != thrift.STRUCT or kind != thrift.LIST):
        raise ValueError("a field that is not a list of structs")
    position = reader.at
    for _ in range(count):
        position = split(data, position)
    return position


def split_structs(data: bytes) -> list[bytes]:
    """Return the encoded structs of an encoded list.

    Raises:
        ValueError: the bytes are not a list of structs.
        IndexError: the bytes are truncated.
    """
    structs = []

    def split(data: bytes, at: int) -> int:
        end = thrift.skip(data, at, thrift.STRUCT)
        structs.append(data[at:end])
        return end

    if split_list(data, 0, thrift.LIST, split) != len(data):
        raise ValueError("bytes after a list")
    return structs


def split_elements(data: bytes) -> tuple[int, list[bytes]]:
    """Return the Thrift type of the elements of an encoded list, and the encoded elements.

    Raises:
        ValueError: the bytes are not one list.
        IndexError: the bytes are truncated.
    """
    reader = thrift.Reader(data)
    count, kind = reader.list_head()
    elements, at = [], reader.at
    for _ in range(count):
        # a boolean element, unlike a field, has a byte for its value
        end = at + 1 if kind in (thrift.TRUE, thrift.FALSE) else thrift.skip(data, at, kind)
        elements.append(data[at:end])
        at = end
    if at != len(data):
        raise ValueError("bytes after a list")
    return kind, elements


def join_elements(kind: int, elements: Sequence[bytes]) -> bytes:
    """Return the encoded list of encoded elements of the Thrift type ``kind``."""
    return thrift.list_head(len(elements), kind) + b"".join(elements)


def join_fields(fields: Fields) -> bytes:
    """Return the encoded struct of ``fields``, in the order of their ids."""
    out = bytearray()
    before = 0
    for number in sorted(fields):
        kind, value = fields[number]
        out += thrift.field_header(number, before, kind) + value
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
