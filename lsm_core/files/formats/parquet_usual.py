"""Column chunks and page headers in the form that writers give them, each read by one regular expression.

A footer of forty columns has a thousand fields, of which a tenth matter: reading them all as Thrift takes most of the time of opening
a small file. Writers (Arrow's and Java's) put these fields in one order, so that a pattern of their bytes finds the numbers that matter
and skips the rest. A pattern takes only bytes that :mod:`lsm_core.files.formats.thrift` reads as the same values, so that nothing is
judged here: what is found goes through the same checks, and what no pattern takes is read as Thrift.
"""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from lsm_core.files.formats import thrift
from lsm_core.files.formats.thrift import Struct

_LONG: Final = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
"""A number of 64 bits, but for the largest ones."""
_SHORT: Final = rb"[\x80-\xff]{0,3}[\x00-\x7f]"
_CHECKSUM: Final = rb"(?:[\x80-\xff]{0,3}[\x00-\x7f]|[\x80-\xff]{4}[\x00-\x0f])"
_BOOL: Final = rb"[\x11\x12]"
_ONE_BYTE, _TWO_BYTES, _THREE_BYTES = 1, 2, 3
_LONGEST_BOUND, _LONGEST_NAME = 64, 40
_COMMON_LENGTHS: Final = (8, 4, 1)
_MOST_ELEMENTS: Final = 6


class ChunkFields(NamedTuple):
    """What the footer says of a column chunk, not yet checked: see parquet.thrift's ColumnMetaData."""

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
    """A row group, its columns as their patterns found them or as Thrift."""

    columns: list[ChunkFields | Struct]
    plain_bytes: int
    rows: int


def row_groups(data: bytes, at: int) -> tuple[list[RowGroupFields | Struct], int]:
    """The list of row groups that begins at ``at``, and where it ends. Raises ValueError or IndexError for bytes that are no Thrift."""
    reader = thrift.Reader(data, at)
    count, kind = reader.list_head()
    if kind != thrift.STRUCT:
        raise ValueError("row groups that are no structs")
    found: list[RowGroupFields | Struct] = []
    for _ in range(count):
        group, reader.at = _row_group(data, reader.at)
        found.append(group)
    return found, reader.at


def _row_group(data: bytes, start: int) -> tuple[RowGroupFields | Struct, int]:
    reader = thrift.Reader(data, start)
    if reader.field(0) == (1, thrift.LIST):
        count, kind = reader.list_head()
        match, at = _chunk_pattern().match, reader.at
        columns: list[ChunkFields | Struct] = []
        for _ in range(count if kind == thrift.STRUCT else 0):
            usual = match(data, at)
            if usual is not None:
                columns.append(_chunk_fields(*usual.groups()))
                at = usual.end()
            else:
                reader.at = at
                columns.append(reader.struct())
                at = reader.at
        ending = _group_pattern().match(data, at)
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
    """The groups of the chunks' pattern as values. Bounds have their length before them, in one byte."""
    dictionary_at = dictionary_at or dictionary_only
    nulls = nulls or only_nulls
    return ChunkFields(
        physical[0] >> 1,
        _listed(encodings),
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
def _listed(encodings: bytes) -> tuple[int, ...]:
    """A list of small numbers, its head left out."""
    return tuple(byte >> 1 for byte in encodings[1:])


def _number(raw: bytes) -> int:
    """A signed number of at most 63 bits."""
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
    """A page header of the first version."""

    kind: int
    plain_bytes: int
    stored_bytes: int
    values: int
    encoding: int
    levels: tuple[int, int]
    """Encodings of the levels of definition and repetition; of a dictionary nothing."""
    end: int
    """Where the header ends in the bytes it was read from."""


def page_header(data: bytes) -> Page | None:
    """The header that ``data`` begins with; None where no pattern takes it."""
    usual = _page_pattern().match(data)
    if usual is None:
        return None
    plain, stored, values, encoding, defined, repeated, *dictionary = usual.groups()
    if plain is not None:
        levels = defined[0] >> 1, repeated[0] >> 1
        return Page(0, _number(plain), _number(stored), _number(values), encoding[0] >> 1, levels, usual.end())
    plain, stored, values, encoding = dictionary
    return Page(2, _number(plain), _number(stored), _number(values), encoding[0] >> 1, (0, 0), usual.end())


def _times(kind: int, element: bytes, least: int = 0) -> bytes:
    """A list of ``least`` to `_MOST_ELEMENTS` elements of the Thrift type ``kind``, of which each has the pattern ``element``."""
    lists = []
    for count in range(least, _MOST_ELEMENTS + 1):
        # repeated, not written out: compiling is most of what reading a few footers costs
        elements = element if count == 1 else b"(?:%b){%d}" % (element, count)
        lists.append(re.escape(bytes([count << 4 | kind])) + elements)
    return b"(?:" + b"|".join(lists) + b")"


def _text(longest: int) -> bytes:
    """Bytes with their length before them."""
    lengths = [*_COMMON_LENGTHS, *(size for size in range(longest + 1) if size not in _COMMON_LENGTHS)]
    return b"(?:" + b"|".join(re.escape(bytes([size])) + b".{%d}" % size for size in lengths) + b")"


def _chosen(numbers: int) -> bytes:
    """A number below ``numbers``, of one byte."""
    return b"[" + b"".join(b"\\x%02x" % (number << 1) for number in range(numbers)) + b"]"


@functools.cache
def _chunk_pattern() -> re.Pattern[bytes]:
    """A ColumnChunk: what it is (fields 1 to 7 and 9), its dictionary (11), its statistics (12), and what nobody here asks for."""
    long, short, bound = _LONG, _SHORT, _text(_LONGEST_BOUND)
    described = (
        rb"\x26%b\x1c\x15(%b)\x19(%b)" % (long, _chosen(8), _times(thrift.I32, _chosen(10), 1))
        + rb"\x19%b\x15(%b)" % (_times(thrift.BINARY, _text(_LONGEST_NAME), 1), _chosen(8))
        + rb"\x16(%b)\x16(%b)\x16(%b)\x26(%b)" % (long, long, long, long)
    )
    counted = rb"(?:\x18%b\x18%b\x16(%b)|\x36(%b))" % (bound, bound, long, long)
    bounds = rb"(?:\x28(%b)\x18(%b)(?:%b%b)?)?\x00" % (bound, bound, _BOOL, _BOOL)
    statistics = rb"(?:(?:\x26(%b)\x1c|\x3c)%b%b\x19|\x26(%b)\x29|\x49)" % (long, counted, bounds, long)
    encoded = _times(thrift.STRUCT, rb"\x15%b\x15%b\x15%b\x00" % (short, short, short), 1)
    bloom = rb"(?:\x16%b(?:\x15%b\x1c|\x2c)|\x3c)" % (long, short)
    counts = _times(thrift.I64, long)
    sizes = rb"(?:%b(?:\x16%b)?(?:[\x19\x29\x39]%b){0,2}\x00)?\x00" % (bloom, long, counts)
    index = rb"(?:\x16%b\x15%b(?:\x16%b\x15%b)?)?\x00" % (long, short, long, short)
    return re.compile(described + statistics + encoded + sizes + index, re.DOTALL)


@functools.cache
def _group_pattern() -> re.Pattern[bytes]:
    """A RowGroup behind its columns."""
    placed = rb"(?:\x26%b(?:\x16%b(?:\x14[\x80-\xff]?[\x00-\x7f])?)?)?\x00" % (_LONG, _LONG)
    return re.compile(rb"\x16(%b)\x16(%b)" % (_LONG, _LONG) + placed, re.DOTALL)


@functools.cache
def _page_pattern() -> re.Pattern[bytes]:
    """A PageHeader with a DataPageHeader without statistics or a DictionaryPageHeader."""
    short, small = _SHORT, _chosen(64)
    sizes = rb"\x15(%b)\x15(%b)" % (short, short)
    data = rb"\x15(%b)\x15(%b)\x15(%b)\x15(%b)\x00\x00" % (short, small, small, small)
    terms = rb"\x15(%b)\x15(%b)%b?\x00\x00" % (short, small, _BOOL)
    first = rb"\x15\x00%b(?:\x2c|\x15%b\x1c)%b" % (sizes, _CHECKSUM, data)
    return re.compile(rb"%b|\x15\x04%b(?:\x4c|\x15%b\x3c)%b" % (first, sizes, _CHECKSUM, terms), re.DOTALL)


__all__ = ["ChunkFields", "Page", "RowGroupFields", "page_header", "row_groups"]
