"""Parquet files built from bytes, such as valid files with gigabytes of decoded data, which no writer creates."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lsm_core.files.formats import thrift
from lsm_core.files.formats.parquet_footer import Footer, parse_footer, stored_footer
from lsm_core.files.formats.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, varint

INT32, INT64, BYTE_ARRAY, FIXED = 1, 2, 6, 7
PLAIN, RLE, DELTA_BYTE_ARRAY, RLE_DICTIONARY = 0, 3, 7, 8
NONE, ZSTD = 0, 6
_MAGIC = b"PAR1"


def footer_of(data: bytes) -> Footer:
    """Return the footer of a file."""
    return parse_footer(stored_footer(pa.BufferReader(data), "x.parquet"), "x.parquet", len(data))


def packed(plain: bytes, codec: int) -> bytes:
    """Return ``plain`` compressed by ``codec``."""
    return bytes(pa.Codec("zstd").compress(plain, asbytes=True)) if codec == ZSTD else plain


def dictionary_page(values: Sequence[bytes], codec: int = ZSTD) -> bytes:
    """Return a dictionary page of texts."""
    plain = b"".join(len(value).to_bytes(4, "little") + value for value in values)
    body = packed(plain, codec)
    result: Struct = {1: (I32, len(values)), 2: (I32, PLAIN)}
    header: Struct = {1: (I32, 2), 2: (I32, len(plain)), 3: (I32, len(body)), 7: (STRUCT, result)}
    return thrift.encode(header) + body


def data_page(plain: bytes, count: int, encoding: int, codec: int = ZSTD, claims: int | None = None) -> bytes:
    """Return a data page.

    Args:
        plain: content of the page, including levels.
        count: number of values.
        encoding: encoding of the values.
        codec: compression codec.
        claims: uncompressed size in the header, or None for the true size.
    """
    body = packed(plain, codec)
    values: Struct = {1: (I32, count), 2: (I32, encoding), 3: (I32, RLE), 4: (I32, RLE)}
    size = len(plain) if claims is None else claims
    header: Struct = {1: (I32, 0), 2: (I32, size), 3: (I32, len(body)), 5: (STRUCT, values)}
    return thrift.encode(header) + body


def run(count: int, value: int, width: int = 1) -> bytes:
    """Return ``count`` equal values as one run of the RLE and bit-packing hybrid encoding."""
    return varint(count << 1) + value.to_bytes((width + 7) // 8, "little")


def levels(*runs: bytes) -> bytes:
    """Return levels in the form of version-1 data pages: with their length."""
    body = b"".join(runs)
    return len(body).to_bytes(4, "little") + body


def column(name: str, physical: int, length: int = 0) -> list[Struct]:
    """Return the schema elements of a required column."""
    element: Struct = {1: (I32, physical), 3: (I32, 0), 4: (BINARY, name.encode())}
    if length:
        element[2] = (I32, length)
    elif physical == BYTE_ARRAY:
        element[6] = (I32, 0)  # text
    return [element]


def list_column(name: str, physical: int) -> list[Struct]:
    """Return the schema elements of a required list of required values."""
    lists: Struct = {3: (I32, 0), 4: (BINARY, name.encode()), 5: (I32, 1), 6: (I32, 3)}
    inner: Struct = {3: (I32, 2), 4: (BINARY, b"list"), 5: (I32, 1)}
    return [lists, inner, *column("element", physical)]


def parquet_file(
    schema: Sequence[list[Struct]], pages: Sequence[bytes], values: Sequence[int], rows: int, codec: int = ZSTD
) -> bytes:
    """Return a file of one row group.

    Args:
        schema: schema elements of each column.
        pages: bytes of all pages of each column.
        values: number of values of each column.
        rows: number of rows.
        codec: compression codec.
    """
    out = bytearray(_MAGIC)
    chunks: list[Struct] = []
    for elements, stored, count in zip(schema, pages, values, strict=True):
        leaf = elements[-1]
        path = [element[4][1] for element in elements]
        described: Struct = {
            1: leaf[1],
            2: (LIST, [PLAIN, RLE, RLE_DICTIONARY]),
            3: (LIST, path),
            4: (I32, codec),
            5: (I64, count),
            6: (I64, len(stored)),
            7: (I64, len(stored)),
            9: (I64, len(out)),
        }
        chunks.append({2: (I64, len(out)), 3: (STRUCT, described)})
        out += stored
    group: Struct = {1: (LIST, chunks), 2: (I64, len(out)), 3: (I64, rows)}
    root: Struct = {4: (BINARY, b"paimon_schema"), 5: (I32, len(schema))}
    elements = [root, *(element for each in schema for element in each)]
    footer = thrift.encode({1: (I32, 2), 2: (LIST, elements), 3: (I64, rows), 4: (LIST, [group])})
    return bytes(out) + footer + len(footer).to_bytes(4, "little") + _MAGIC
