"""Column chunks and page headers in the usual form of writers, each parsed by one regular expression.

A footer of forty columns has a thousand fields, of which a tenth are needed; parsing them all as Thrift takes most of
the time of opening a small file. Writers (Arrow's and Java's) write these fields in one order, so a pattern of their
bytes finds the needed numbers and skips the others. A pattern matches only bytes that
:mod:`lsm_core.files.formats.thrift` reads as the same values. Values are not checked here: they go through the same
checks, and bytes that match no pattern are parsed as Thrift.
"""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from lsm_core.files.formats import thrift
from lsm_core.files.formats.thrift import Struct

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
    """Unchecked fields of a column chunk; see ColumnMetaData of parquet.thrift."""

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
    """Row group with its columns as patterns or Thrift parsed them."""

    columns: list[ChunkFields | Struct]
    plain_bytes: int
    rows: int


def row_groups(data: bytes, start: int) -> tuple[list[RowGroupFields | Struct], int]:
    """Return the list of row groups at byte ``start``, and its end.

    Raises:
        ValueError: the bytes are not Thrift.
        IndexError: the bytes are truncated.
    """
    reader = thrift.Reader(data, start)
    count, kind = reader.list_head()
    if kind != thrift.STRUCT:  # the caller refuses it once it has read all fields, as without patterns
        reader.at = start
        return reader.value(thrift.LIST), reader.at
    groups: list[RowGroupFields | Struct] = []
    for _ in range(count):
        group, reader.at = _row_group(data, reader.at)
        groups.append(group)
    return groups, reader.at


def _row_group(data: bytes, start: int) -> tuple[RowGroupFields | Struct, int]:
    reader = thrift.Reader(data, start)
    if reader.field(0) == (1, thrift.LIST):
        count, kind = reader.list_head()
        match, position = _chunk_pattern().match, reader.at
        columns: list[ChunkFields | Struct] = []
        for _ in range(count if kind == thrift.STRUCT else 0):
            chunk_match = match(data, position)
            if chunk_match is not None:
                columns.append(_chunk_fields(*chunk_match.groups()))
                position = chunk_match.end()
            else:
                reader.at = position
                columns.append(reader.struct())
                position = reader.at
        ending = _group_pattern().match(data, position)
        if kind == thrift.STRUCT and ending is not None:
            return RowGroupFields(columns, _number(ending[1]), _number(ending[2])), ending.end()
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
    """Return the groups of the chunk pattern as values; bounds have a length byte before them."""
    dictionary_at = dictionary_at or dictionary_only
    nulls = nulls or only_nulls
    return ChunkFields(
        physical[0] >> 1,
        _small_numbers(encodings),
        codec[0] >> 1,
        _number(values),
        _number(plain),
        _number(stored),
        _number(data_at),
        _number(dictionary_at) if dictionary_at else None,
        _number(nulls) if nulls else None,
        low[1:] if low else None,
        high[1:] if high else None,
    )


@functools.lru_cache(maxsize=64)
def _small_numbers(encodings: bytes) -> tuple[int, ...]:
    """Return a list of small numbers, without its head."""
    return tuple(byte >> 1 for byte in encodings[1:])


def _number(raw: bytes) -> int:
    """Return a signed number of at most 63 bits."""
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
        return Page(0, _number(plain), _number(stored), _number(values), encoding[0] >> 1, levels, match.end())
    plain, stored, values, encoding = dictionary
    return Page(2, _number(plain), _number(stored), _number(values), encoding[0] >> 1, (0, 0), match.end())


def _list_pattern(kind: int, element: bytes, least: int = 0) -> bytes:
    """Return the pattern of a list of ``least`` to `_MOST_ELEMENTS` elements.

    The elements have Thrift type ``kind`` and pattern ``element``.
    """
    lists = []
    for count in range(least, _MOST_ELEMENTS + 1):
        # repetition keeps the pattern short: compiling it is most of the cost of reading a few footers
        elements = element if count == 1 else b"(?:%b){%d}" % (element, count)
        lists.append(re.escape(bytes([count << 4 | kind])) + elements)
    return b"(?:" + b"|".join(lists) + b")"


def _text_pattern(longest: int) -> bytes:
    """Return the pattern of bytes with their length before them."""
    lengths = [*_COMMON_LENGTHS, *(size for size in range(longest + 1) if size not in _COMMON_LENGTHS)]
    return b"(?:" + b"|".join(re.escape(bytes([size])) + b".{%d}" % size for size in lengths) + b")"


def _number_pattern(numbers: int) -> bytes:
    """Return the pattern of a number below ``numbers``, of one byte."""
    return b"[" + b"".join(b"\\x%02x" % (number << 1) for number in range(numbers)) + b"]"


@functools.cache
def _chunk_pattern() -> re.Pattern[bytes]:
    """Return the pattern of a ColumnChunk.

    Fields 1 to 7 and 9, dictionary (11), statistics (12), and skipped fields.
    """
    long, short, bound = _LONG, _SHORT, _text_pattern(_LONGEST_BOUND)
    described = (
        rb"\x26%b\x1c\x15(%b)\x19(%b)" % (long, _number_pattern(8), _list_pattern(thrift.I32, _number_pattern(10), 1))
        + rb"\x19%b\x15(%b)" % (_list_pattern(thrift.BINARY, _text_pattern(_LONGEST_NAME), 1), _number_pattern(8))
        + rb"\x16(%b)\x16(%b)\x16(%b)\x26(%b)" % (long, long, long, long)
    )
    counted = rb"(?:\x18%b\x18%b\x16(%b)|\x36(%b))" % (bound, bound, long, long)
    bounds = rb"(?:\x28(%b)\x18(%b)(?:%b%b)?)?\x00" % (bound, bound, _BOOL, _BOOL)
    statistics = rb"(?:(?:\x26(%b)\x1c|\x3c)%b%b\x19|\x26(%b)\x29|\x49)" % (long, counted, bounds, long)
    encoded = _list_pattern(thrift.STRUCT, rb"\x15%b\x15%b\x15%b\x00" % (short, short, short), 1)
    bloom = rb"(?:\x16%b(?:\x15%b\x1c|\x2c)|\x3c)" % (long, short)
    counts = _list_pattern(thrift.I64, long)
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
