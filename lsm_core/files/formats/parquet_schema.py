"""Schema in a Parquet footer, converted to Java's form where Arrow's writer has no setting for it.

Arrow writes all timestamps of a file as INT96 or none, names the message "schema", and marks TIME as local time. So a
file with INT96 columns is written with its other timestamps as plain integers, and the footer then gets their types.
Only the list of schema elements is rewritten (Thrift's compact protocol); the remaining footer is unchanged, byte for
byte.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow._parquet import FileMetaData

from lsm_core.files.formats import thrift
from lsm_core.files.formats.parquet_reader import open_reader
from lsm_core.files.formats.thrift import Struct

MESSAGE_NAME: Final = b"paimon_schema"
_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8
_TYPE, _LENGTH, _REPETITION, _NAME, _CONVERTED, _LOGICAL = 1, 2, 3, 4, 6, 10
_INT96, _FIXED, _INT96_BYTES = 3, 7, 12
_TIME, _TIMESTAMP, _UTC, _UNIT, _MILLIS, _MICROS = 7, 8, 1, 2, 1, 2
_MAP_KEY_VALUE, _TIME_MILLIS, _TIMESTAMP_MILLIS, _TIMESTAMP_MICROS = 2, 7, 9, 10


def as_java(tail: bytes, schema: pa.Schema) -> bytes:
    """Return the end of a Parquet file with Java's schema elements.

    Args:
        tail: the end of the file: footer, its length, magic, and the bytes before it.
        schema: schema of the file.

    Raises:
        ValueError: the bytes are no end of a Parquet file of this schema.
    """
    if tail[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("not the end of a Parquet file")
    length = int.from_bytes(tail[-_TAIL_BYTES : -len(_MAGIC)], "little")
    start = len(tail) - _TAIL_BYTES - length
    reader, elements, begin = _parse(tail[start:-_TAIL_BYTES])
    elements[0][_NAME] = (thrift.BINARY, MESSAGE_NAME)
    elements[0].pop(_REPETITION, None)
    index = 1
    for field in schema:
        index = _describe(elements, index, field.type)
    if index != len(elements):
        raise ValueError("the footer has another schema than the file was written with")
    return tail[:start] + _build_tail(reader, elements, begin)


def int96_as_bytes(source: pa.NativeFile) -> FileMetaData:
    """Return the file's footer with INT96 columns declared as FIXED_LEN_BYTE_ARRAY(12).

    Arrow then returns their bytes.
    """
    size = source.size()
    source.seek(size - _TAIL_BYTES)
    length = int.from_bytes(source.read(4), "little")
    source.seek(size - _TAIL_BYTES - length)
    reader, elements, begin = _parse(source.read(length))
    for element in elements:
        if element.get(_TYPE) == (thrift.I32, _INT96):
            element[_TYPE], element[_LENGTH] = (thrift.I32, _FIXED), (thrift.I32, _INT96_BYTES)
    return open_reader(pa.BufferReader(_MAGIC + _build_tail(reader, elements, begin))).metadata


def schema_elements(footer: bytes) -> list[Struct]:
    """Return the schema elements of a footer, as field id: (Thrift type, value)."""
    return _elements(thrift.Reader(footer))[0]


def _parse(footer: bytes) -> tuple[thrift.Reader, list[Struct], int]:
    reader = thrift.Reader(footer)
    elements, begin = _elements(reader)
    return reader, elements, begin


def _build_tail(reader: thrift.Reader, elements: list[Struct], begin: int) -> bytes:
    """Return the footer with ``elements`` in place of the old ones, its length, and the magic."""
    written = b"".join(thrift.encode(element) for element in elements)
    footer = reader.data[:begin] + thrift.list_head(len(elements), thrift.STRUCT) + written + reader.data[reader.at :]
    return footer + len(footer).to_bytes(4, "little") + _MAGIC


def _elements(reader: thrift.Reader) -> tuple[list[Struct], int]:
    """Return all schema elements, and the offset of their list; ``reader`` is then behind the list."""
    if reader.field(0) != (1, thrift.I32):
        raise ValueError("a footer without version")
    reader.integer(thrift.I32)
    if reader.field(1) != (2, thrift.LIST):
        raise ValueError("a footer without schema")
    start = reader.at
    count, kind = reader.list_head()
    if kind != thrift.STRUCT:
        raise ValueError("a schema whose elements are no structs")
    return [reader.struct() for _ in range(count)], start


def _describe(elements: list[Struct], index: int, kind: pa.DataType) -> int:
    """Write the type ``kind`` into the element at ``index``; return the index of the next column's first element."""
    element = elements[index]
    if pa.types.is_time(kind):
        _annotate(element, _TIME, _TIME_MILLIS, _MILLIS, utc=True)
    elif pa.types.is_timestamp(kind) and kind.unit != "ns":
        micros = kind.unit == "us"
        converted = _TIMESTAMP_MICROS if micros else _TIMESTAMP_MILLIS
        _annotate(element, _TIMESTAMP, converted, _MICROS if micros else _MILLIS, utc=kind.tz is not None)
    if not pa.types.is_nested(kind):
        return index + 1
    if pa.types.is_struct(kind):
        inner = index + 1
        children = [kind.field(i).type for i in range(kind.num_fields)]
    else:
        inner = index + 2  # below the repeated group
        if pa.types.is_map(kind):
            elements[index + 1][_CONVERTED] = (thrift.I32, _MAP_KEY_VALUE)
        children = [kind.key_type, kind.item_type] if pa.types.is_map(kind) else [kind.value_type]
    for child in children:
        inner = _describe(elements, inner, child)
    return inner


def _annotate(element: Struct, logical: int, converted: int, unit: int, *, utc: bool) -> None:
    element[_CONVERTED] = (thrift.I32, converted)
    inner: Struct = {
        _UTC: (thrift.TRUE if utc else thrift.FALSE, utc),
        _UNIT: (thrift.STRUCT, {unit: (thrift.STRUCT, {})}),
    }
    element[_LOGICAL] = (thrift.STRUCT, {logical: (thrift.STRUCT, inner)})
