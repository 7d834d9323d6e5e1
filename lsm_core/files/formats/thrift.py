"""Thrift's compact protocol, as far as Parquet needs it: parsing structs from untrusted bytes, and writing them.

Integers that do not fit their type are rejected, where generated readers truncate them.

Column chunks and page headers in the usual form of writers are parsed by one regular expression each. A footer of forty
columns has a thousand fields, of which a tenth are needed; parsing them all takes most of the time of opening a small
file. Writers (Arrow's and Java's) write these fields in one order, so a pattern of their bytes finds the needed numbers
and skips the others. A pattern matches only bytes that the general parser reads as the same values. Bytes that match no
pattern are parsed by the general parser. The caller checks the values, whichever parser returned them.

Source: the Thrift compact protocol specification.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final, NamedTuple

STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)
_LONG_LIST: Final = 15
_MOST_DEPTH: Final = 32
_VARINT_BITS: Final = 70
_FIXED_BYTES: Final = {TRUE: 0, FALSE: 0, BYTE: 1, DOUBLE: 8}
_BITS: Final = {I16: 16, I32: 32, I64: 64}
Struct = dict[int, tuple[int, Any]]
"""Field id: (Thrift type, value). A value is an int, bool, bytes or Struct, or a list of values of one such type."""


class Reader:
    """Parser of ``data`` from position ``at``.

    Every method raises ValueError or IndexError for bytes that are not Thrift.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def integer(self, kind: int) -> int:
        """Return the next value, a signed number of type ``kind``."""
        value, self.at = _integer(self.data, self.at, kind)
        return value

    def unsigned(self) -> int:
        """Return the next value, an unsigned number of at most 64 bits."""
        value, self.at = _varint(self.data, self.at)
        return value

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        if not 0 <= count <= len(self.data) - self.at:
            raise ValueError(f"{count} bytes beyond the end")
        self.at += count
        return self.data[self.at - count : self.at]

    def field(self, before: int) -> tuple[int, int]:
        """Return (id, type) of the next field; type 0 ends the struct. ``before`` is the previous field's id, or 0."""
        head = self.data[self.at]
        self.at += 1
        kind, step = head & 15, head >> 4
        return (before + step if step or not kind else self.integer(I16)), kind

    def list_head(self) -> tuple[int, int]:
        """Return (length, type of the elements) of the next value, a list."""
        count, kind, self.at = _list_head(self.data, self.at)
        return count, kind

    def value(self, kind: int) -> Any:
        """Return the value of a field of type ``kind``; a boolean field has no bytes, because its type is its value."""
        if kind in (TRUE, FALSE):
            return kind == TRUE
        value, self.at = _value(self.data, self.at, kind, 0)
        return value

    def struct(self) -> Struct:
        """Return all fields of the next value, a struct; of repeated fields the last is used."""
        fields, self.at = _struct(self.data, self.at, 0)
        return fields


def _struct(data: bytes, at: int, depth: int) -> tuple[Struct, int]:
    """Return (struct, byte position after the struct).

    Numbers are parsed inline, because opening a table of many files spends most time here.

    Args:
        data: the bytes to parse.
        at: position of the struct's first field.
        depth: number of structs and lists around the struct.
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
    """Return a value of any type (except the boolean of a field, which is in its type), and the position after it.

    Args:
        data: the bytes to parse.
        at: position of the value.
        kind: Thrift type of the value.
        depth: number of structs and lists around the value.
    """
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


def skip(data: bytes, at: int, kind: int, depth: int = 0) -> int:
    """Return the position after a value, whose numbers are not parsed; a boolean field has no bytes.

    Args:
        data: the bytes that contain the value.
        at: position of the value.
        kind: Thrift type of the value.
        depth: number of structs and lists around the value.

    Raises:
        ValueError: the bytes are not Thrift.
        IndexError: the bytes are truncated.
    """
    if I16 <= kind <= I64:
        end = at + 1
        while data[end - 1] > 127:
            end += 1
        if end - at > _VARINT_BITS // 7:
            raise ValueError("a number of more than ten bytes")
        return end
    if depth > _MOST_DEPTH:
        raise ValueError("structs and lists nested too deeply")
    if kind == STRUCT:
        return _skip_struct(data, at, depth)
    if kind == BINARY:
        size, at = _varint(data, at)
        at += size
    elif kind in (LIST, SET):
        count, inner, at = _list_head(data, at)
        if inner in (TRUE, FALSE):
            at += count
        else:
            for _ in range(count):
                at = skip(data, at, inner, depth + 1)
    elif kind in _FIXED_BYTES:
        at += _FIXED_BYTES[kind]
    else:
        raise ValueError(f"Thrift type {kind}, which Parquet does not use")
    if at > len(data):
        raise IndexError("a value beyond the end")
    return at


def _skip_struct(data: bytes, at: int, depth: int) -> int:
    while head := data[at]:
        at += 1
        kind = head & 15
        if not kind:
            return at
        if head < 16:
            at = skip(data, at, I16)
        if kind > FALSE:
            at = skip(data, at, kind, depth + 1)
    return at + 1


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Return (length, type of the elements, position of the first element) of the list at position ``at``.

    Each element takes at least a byte.
    """
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
        out += field_header(number, before, kind)
        before = number
        if kind not in (TRUE, FALSE):
            out += _encode_value(kind, value)
    out.append(STOP)
    return bytes(out)


def list_head(count: int, kind: int) -> bytes:
    """Return the header of a list: the number of elements and their type."""
    return bytes([count << 4 | kind]) if count < _LONG_LIST else bytes([0xF0 | kind]) + varint(count)


def field_header(number: int, before: int, kind: int) -> bytes:
    """Return the bytes before the value of a field.

    Args:
        number: id of the field.
        before: id of the previous field; 0 for the first one.
        kind: type of the value.
    """
    step = number - before
    return bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + varint(number << 1)


def varint(value: int) -> bytes:
    """Return the bytes of an unsigned number in Thrift's variable-length encoding (7 bits per byte, lowest first)."""
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


_LONG: Final = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
"""A number of up to 64 bits, except the largest ones."""
_SHORT: Final = rb"[\x80-\xff]{0,3}[\x00-\x7f]"
_CHECKSUM: Final = rb"(?:[\x80-\xff]{0,3}[\x00-\x7f]|[\x80-\xff]{4}[\x00-\x0f])"
_BOOL: Final = rb"[\x11\x12]"
_ONE_BYTE, _TWO_BYTES, _THREE_BYTES = 1, 2, 3
_LONGEST_BOUND, _LONGEST_NAME = 64, 40
_COMMON_LENGTHS: Final = (8, 4, 1)
_MOST_ELEMENTS: Final = 6


class ChunkFields(NamedTuple):
    """Fields of a column chunk as stored, without validation (ColumnMetaData of parquet.thrift).

    Attributes:
        physical: number of the physical type.
        encodings: numbers of the encodings.
        codec: number of the compression codec.
        values: number of values, nulls included.
        plain_bytes: bytes before compression.
        stored_bytes: bytes in the file.
        data_at: byte position of the first data page in the file.
        dictionary_at: byte position of the dictionary page, or None.
        nulls: number of nulls, or None if unknown.
        low: smallest value as stored, or None if unknown.
        high: largest value as stored, or None if unknown.
    """

    physical: int
    encodings: tuple[int, ...]
    codec: int
    values: int
    plain_bytes: int
    stored_bytes: int
    data_at: int
    dictionary_at: int | None
    nulls: int | None
    low: bytes | None
    high: bytes | None


class RowGroupFields(NamedTuple):
    """Fields of a row group.

    Attributes:
        columns: the column chunks: ChunkFields if a pattern parsed the chunk, else its Struct.
        plain_bytes: bytes before compression.
        rows: number of rows.
    """

    columns: list[ChunkFields | Struct]
    plain_bytes: int
    rows: int


def row_groups(data: bytes, start: int) -> tuple[list[RowGroupFields | Struct], int]:
    """Return the list of row groups that starts at byte ``start``, and the position after the list.

    Raises:
        ValueError: the bytes are not Thrift.
        IndexError: the bytes are truncated.
    """
    reader = Reader(data, start)
    count, kind = reader.list_head()
    if kind != STRUCT:  # the caller refuses it once it has read all fields, as without patterns
        reader.at = start
        return reader.value(LIST), reader.at
    groups: list[RowGroupFields | Struct] = []
    for _ in range(count):
        group, reader.at = _row_group(data, reader.at)
        groups.append(group)
    return groups, reader.at


def _row_group(data: bytes, start: int) -> tuple[RowGroupFields | Struct, int]:
    reader = Reader(data, start)
    if reader.field(0) == (1, LIST):
        count, kind = reader.list_head()
        match, position = _chunk_pattern().match, reader.at
        columns: list[ChunkFields | Struct] = []
        for _ in range(count if kind == STRUCT else 0):
            chunk_match = match(data, position)
            if chunk_match is not None:
                columns.append(_chunk_fields(*chunk_match.groups()))
                position = chunk_match.end()
            else:
                reader.at = position
                columns.append(reader.struct())
                position = reader.at
        ending = _group_pattern().match(data, position)
        if kind == STRUCT and ending is not None:
            return RowGroupFields(columns, _plain_number(ending[1]), _plain_number(ending[2])), ending.end()
    reader.at = start
    return reader.struct(), reader.at


def _chunk_fields(
    physical: bytes,
    encodings: bytes,
    codec: bytes,
    values: bytes,
    plain: bytes,
    stored: bytes,
    data_at: bytes,
    dictionary_at: bytes | None,
    nulls: bytes | None,
    only_nulls: bytes | None,
    high: bytes | None,
    low: bytes | None,
    dictionary_only: bytes | None,
) -> ChunkFields:
    """Convert the groups of the chunk pattern, which are encoded fields of a ColumnChunk, to values.

    Args:
        physical: number of the physical type.
        encodings: list of the encodings' numbers, with the list's header byte.
        codec: number of the codec.
        values: number of values.
        plain: bytes before compression.
        stored: bytes in the file.
        data_at: position of the first data page.
        dictionary_at: position of the dictionary page, or None.
        nulls: number of nulls if the deprecated bounds are stored before it, or None.
        only_nulls: number of nulls if the deprecated bounds are not stored, or None.
        high: upper bound with a length byte before it, or None.
        low: lower bound with a length byte before it, or None.
        dictionary_only: position of the dictionary page of a chunk without statistics, or None.
    """
    dictionary_at = dictionary_at or dictionary_only
    nulls = nulls or only_nulls
    return ChunkFields(
        physical[0] >> 1,
        _small_numbers(encodings),
        codec[0] >> 1,
        _plain_number(values),
        _plain_number(plain),
        _plain_number(stored),
        _plain_number(data_at),
        _plain_number(dictionary_at) if dictionary_at else None,
        _plain_number(nulls) if nulls else None,
        low[1:] if low else None,
        high[1:] if high else None,
    )


@functools.lru_cache(maxsize=64)
def _small_numbers(encodings: bytes) -> tuple[int, ...]:
    """Return the numbers of an encoded list: the bytes after the list's header, one zig-zag number each."""
    return tuple(byte >> 1 for byte in encodings[1:])


def _plain_number(raw: bytes) -> int:
    """Return the signed number of at most 63 bits that ``raw`` encodes as zig-zag varint."""
    size = len(raw)
    if size == _ONE_BYTE:
        value = raw[0]
    elif size == _TWO_BYTES:
        value = raw[0] & 127 | raw[1] << 7
    elif size == _THREE_BYTES:
        value = raw[0] & 127 | (raw[1] & 127) << 7 | raw[2] << 14
    else:
        value = shift = 0
        for byte in raw:
            value |= (byte & 127) << shift
            shift += 7
    return (value >> 1) ^ -(value & 1)


class Page(NamedTuple):
    """Page header of the first version.

    Attributes:
        kind: number of the page type.
        plain_bytes: bytes before compression.
        stored_bytes: bytes in the file.
        values: number of values.
        encoding: number of the encoding.
        levels: encodings of the levels of definition and repetition; zeros for a dictionary.
        end: end of the header in the bytes that it was parsed from.
    """

    kind: int
    plain_bytes: int
    stored_bytes: int
    values: int
    encoding: int
    levels: tuple[int, int]
    end: int


def page_header(data: bytes) -> Page | None:
    """Parse the page header at the start of ``data``.

    Returns:
        The header, or None if no pattern matches.
    """
    match = _page_pattern().match(data)
    if match is None:
        return None
    plain, stored, values, encoding, defined, repeated, *dictionary = match.groups()
    if plain is not None:
        levels = defined[0] >> 1, repeated[0] >> 1
        return Page(
            0, _plain_number(plain), _plain_number(stored), _plain_number(values), encoding[0] >> 1, levels, match.end()
        )
    plain, stored, values, encoding = dictionary
    return Page(
        2, _plain_number(plain), _plain_number(stored), _plain_number(values), encoding[0] >> 1, (0, 0), match.end()
    )


def _list_pattern(kind: int, element: bytes, least: int = 0) -> bytes:
    """Return the regular expression of an encoded list of ``least`` to `_MOST_ELEMENTS` elements.

    The elements have Thrift type ``kind`` and pattern ``element``.
    """
    lists = []
    for count in range(least, _MOST_ELEMENTS + 1):
        # repetition keeps the pattern short: compiling it is most of the cost of reading a few footers
        elements = element if count == 1 else b"(?:%b){%d}" % (element, count)
        lists.append(re.escape(bytes([count << 4 | kind])) + elements)
    return b"(?:" + b"|".join(lists) + b")"


def _text_pattern(longest: int) -> bytes:
    """Return the regular expression of a length byte of at most ``longest``, followed by that many bytes."""
    lengths = [*_COMMON_LENGTHS, *(size for size in range(longest + 1) if size not in _COMMON_LENGTHS)]
    return b"(?:" + b"|".join(re.escape(bytes([size])) + b".{%d}" % size for size in lengths) + b")"


def _number_pattern(numbers: int) -> bytes:
    """Return the regular expression of one byte that encodes a number below ``numbers``."""
    return b"[" + b"".join(b"\\x%02x" % (number << 1) for number in range(numbers)) + b"]"


@functools.cache
def _chunk_pattern() -> re.Pattern[bytes]:
    """Return the pattern of a ColumnChunk.

    The pattern has groups for the fields that :func:`_chunk_fields` returns, and skips all further fields.
    """
    long, short, bound = _LONG, _SHORT, _text_pattern(_LONGEST_BOUND)
    described = (
        rb"\x26%b\x1c\x15(%b)\x19(%b)" % (long, _number_pattern(8), _list_pattern(I32, _number_pattern(10), 1))
        + rb"\x19%b\x15(%b)" % (_list_pattern(BINARY, _text_pattern(_LONGEST_NAME), 1), _number_pattern(8))
        + rb"\x16(%b)\x16(%b)\x16(%b)\x26(%b)" % (long, long, long, long)
    )
    counted = rb"(?:\x18%b\x18%b\x16(%b)|\x36(%b))" % (bound, bound, long, long)
    bounds = rb"(?:\x28(%b)\x18(%b)(?:%b%b)?)?\x00" % (bound, bound, _BOOL, _BOOL)
    statistics = rb"(?:(?:\x26(%b)\x1c|\x3c)%b%b\x19|\x26(%b)\x29|\x49)" % (long, counted, bounds, long)
    encoded = _list_pattern(STRUCT, rb"\x15%b\x15%b\x15%b\x00" % (short, short, short), 1)
    bloom = rb"(?:\x16%b(?:\x15%b\x1c|\x2c)|\x3c)" % (long, short)
    counts = _list_pattern(I64, long)
    sizes = rb"(?:%b(?:\x16%b)?(?:[\x19\x29\x39]%b){0,2}\x00)?\x00" % (bloom, long, counts)
    index = rb"(?:\x16%b\x15%b(?:\x16%b\x15%b)?)?\x00" % (long, short, long, short)
    return re.compile(described + statistics + encoded + sizes + index, re.DOTALL)


@functools.cache
def _group_pattern() -> re.Pattern[bytes]:
    """Return the pattern of a RowGroup after its columns."""
    placed = rb"(?:\x26%b(?:\x16%b(?:\x14[\x80-\xff]?[\x00-\x7f])?)?)?\x00" % (_LONG, _LONG)
    return re.compile(rb"\x16(%b)\x16(%b)" % (_LONG, _LONG) + placed, re.DOTALL)


@functools.cache
def _page_pattern() -> re.Pattern[bytes]:
    """Return the pattern of a PageHeader with a DataPageHeader without statistics or a DictionaryPageHeader."""
    short, small = _SHORT, _number_pattern(64)
    sizes = rb"\x15(%b)\x15(%b)" % (short, short)
    data = rb"\x15(%b)\x15(%b)\x15(%b)\x15(%b)\x00\x00" % (short, small, small, small)
    terms = rb"\x15(%b)\x15(%b)%b?\x00\x00" % (short, small, _BOOL)
    first = rb"\x15\x00%b(?:\x2c|\x15%b\x1c)%b" % (sizes, _CHECKSUM, data)
    return re.compile(rb"%b|\x15\x04%b(?:\x4c|\x15%b\x3c)%b" % (first, sizes, _CHECKSUM, terms), re.DOTALL)
