"""Check of the types in an ORC footer: Arrow's reader ends the process on some invalid types.

The module also computes the decoded size of values from the footer's statistics, because a few stored bytes can decode
to gigabytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from backports import zstd

from lsm_core.errors import CorruptFile, UnsupportedFeature, ValueTooLarge

_NONE, _ZLIB, _SNAPPY, _LZO, _LZ4, _ZSTD = range(6)
_LIST, _MAP, _STRUCT, _DECIMAL = 10, 11, 12, 14
_KNOWN: Final = frozenset(range(19)) - {13}
_FOOTER_LENGTH, _COMPRESSION, _BLOCK_SIZE = 1, 2, 3
_TYPES, _KIND, _CHILDREN, _NAMES, _PRECISION, _SCALE = 4, 1, 2, 3, 5, 6
_ROWS, _STATISTICS, _VALUES, _SUM_OF_TEXTS, _SUM_OF_BYTES = 6, 7, 1, 3, 1
_TEXTS: Final = {7: 4, 16: 4, 17: 4, 8: 8}
"""Field of a column's statistics by kind of variable length (STRING, VARCHAR, CHAR, BINARY)."""
_FIXED_BYTES: Final = 16
"""Largest bytes of a value of a kind that is not in `_TEXTS`: those of a decimal. A list or a map has one offset."""
BATCH_BYTES: Final = 64 << 20
"""Largest decoded bytes of a batch, as far as the footer's statistics show the size of values."""
_LARGEST_ROW: Final = 256 << 20
_MOST_FOOTER: Final = 1 << 26
_MOST_BLOCK: Final = 1 << 23
_MOST_TYPES: Final = 50_000
_MOST_DEPTH: Final = 64
_MOST_DIGITS: Final = 38
_VARINT_BYTES: Final = 10


def decoded_sizes(source: pa.NativeFile, path: str, table: str) -> dict[str, float]:
    """Return the average decoded bytes of a row, by top-level column; empty without usable statistics.

    Args:
        source: the open file.
        path: path of the file, for errors.
        table: name of the table, for errors.

    Raises:
        CorruptFile: the types of the footer are not valid.
        UnsupportedFeature: LZO, or a type unknown to Paimon.
        ValueTooLarge: the average value of a column does not fit into memory safely.
    """
    footer = _footer(source, path, table)
    types: list[_Type] = []
    statistics: list[bytes] = []
    rows = 0
    for number, value in _fields(footer, path):
        if number == _TYPES and isinstance(value, bytes):
            types.append(_Type(value, path))
        elif number == _STATISTICS and isinstance(value, bytes):
            statistics.append(value)
        elif number == _ROWS and isinstance(value, int):
            rows = value
        if len(types) > _MOST_TYPES:
            raise CorruptFile(path, "its ORC footer has too many types")
    _require_tree(types, path, table)
    if len(statistics) != len(types) or not rows:
        return {}
    decoded = [_decoded_bytes(kind, value, path) for kind, value in zip(types, statistics, strict=True)]
    for index in reversed(range(1, len(types))):  # children follow their parents
        decoded[index] += sum(decoded[child] for child in types[index].children)
    sizes = {name: decoded[child] / rows for name, child in zip(types[0].names, types[0].children, strict=True)}
    for name, size in sizes.items():
        if size > _LARGEST_ROW:
            raise ValueTooLarge(f"file {path}, column '{name}': values of {int(size):,} bytes")
    return sizes


def _require_tree(types: list[_Type], path: str, table: str) -> None:
    if not types or types[0].kind != _STRUCT:
        raise CorruptFile(path, "its ORC footer has no columns")
    depths = [0] * len(types)
    seen = [False] * len(types)
    for index, kind in enumerate(types):
        kind.check(path, table)
        for child in kind.children:
            # Types precede their children, and each child has one parent: no cycles, and no small file expands.
            if not index < child < len(types) or seen[child]:
                raise CorruptFile(path, "the types of its ORC footer are not a tree")
            seen[child] = True
            depths[child] = depths[index] + 1
            if depths[child] > _MOST_DEPTH:
                raise CorruptFile(path, "the types of its ORC footer are nested too deeply")


def _decoded_bytes(kind: _Type, statistics: bytes, path: str) -> int:
    """Return the decoded bytes of all values of one type, without the values of nested types.

    Args:
        kind: the type.
        statistics: the type's column statistics in the footer, as protocol buffers.
        path: path of the file, for messages.
    """
    values = total = 0
    for number, value in _fields(statistics, path):
        if number == _VALUES and isinstance(value, int):
            values = value
        elif number == _TEXTS.get(kind.kind) and isinstance(value, bytes):
            field = _SUM_OF_BYTES if number == _TEXTS[8] else _SUM_OF_TEXTS
            sums = [
                byte_sum for inner, byte_sum in _fields(value, path) if inner == field and isinstance(byte_sum, int)
            ]
            total = sum((byte_sum >> 1) ^ -(byte_sum & 1) for byte_sum in sums)
    return max(0, total) + _FIXED_BYTES * values


class _Type:
    """One type of the footer, parsed from protocol buffers.

    Attributes:
        kind: number of ORC's type kind.
        precision: precision of a decimal, else 0.
        scale: scale of a decimal, else 0.
        children: indexes of the inner types.
        names: field names of a struct.
    """

    def __init__(self, data: bytes, path: str) -> None:
        self.kind = self.precision = self.scale = 0
        self.children: list[int] = []
        self.names: list[str] = []
        for number, value in _fields(data, path):
            if number == _CHILDREN:
                self.children += list(_packed_integers(value, path)) if isinstance(value, bytes) else [value]
            elif number == _NAMES and isinstance(value, bytes):
                self.names.append(value.decode())
            elif isinstance(value, int):
                if number == _KIND:
                    self.kind = value
                elif number == _PRECISION:
                    self.precision = value
                elif number == _SCALE:
                    self.scale = value

    def check(self, path: str, table: str) -> None:
        """Check that the type is valid.

        Raises:
            UnsupportedFeature: the kind of type is unknown.
            CorruptFile: a decimal's precision or scale, or the number of inner types, is invalid.
        """
        if self.kind not in _KNOWN:
            raise UnsupportedFeature(f"ORC type number {self.kind} ({path})", table)
        if self.kind == _DECIMAL and not (
            self.precision <= _MOST_DIGITS and self.scale <= (self.precision or _MOST_DIGITS)
        ):
            raise CorruptFile(path, f"has a column of DECIMAL({self.precision}, {self.scale})")
        child_count = {_LIST: 1, _MAP: 2, _STRUCT: len(self.names)}.get(self.kind, 0)
        if len(self.children) != child_count:
            raise CorruptFile(path, f"an ORC type has {len(self.children)} inner types, not {child_count}")


def _footer(source: pa.NativeFile, path: str, table: str) -> bytes:
    """Return the uncompressed bytes of the footer."""
    size = source.size()
    source.seek(max(0, size - 256))
    tail = bytes(source.read(256))
    length = tail[-1] if tail else 0
    if length + 1 > len(tail):
        raise CorruptFile(path, "not an ORC file")
    values = {number: value for number, value in _fields(tail[-1 - length : -1], path) if isinstance(value, int)}
    stored, codec = values.get(_FOOTER_LENGTH, 0), values.get(_COMPRESSION, _NONE)
    block = values.get(_BLOCK_SIZE, 256 * 1024)
    if not 0 < stored <= min(size - length - 1, _MOST_FOOTER) or not 0 < block <= _MOST_BLOCK:
        raise CorruptFile(path, f"its ORC footer claims {stored} bytes in blocks of {block}")
    source.seek(size - 1 - length - stored)
    data = bytes(source.read(stored))
    if codec == _NONE:
        return data
    if codec not in (_ZLIB, _SNAPPY, _LZ4, _ZSTD):
        raise UnsupportedFeature(f"ORC compression number {codec} ({path})", table)
    # Chunks of a three-byte head (length, and whether the bytes are uncompressed) and that many bytes.
    plain = bytearray()
    at = 0
    while at + 3 <= len(data) and len(plain) <= _MOST_FOOTER:
        head = int.from_bytes(data[at : at + 3], "little")
        part = data[at + 3 : at + 3 + (head >> 1)]
        at += 3 + (head >> 1)
        try:
            plain += part if head & 1 else _decompress_chunk(part, codec, block)
        except (zlib.error, zstd.ZstdError, pa.ArrowException, OSError, ValueError, IndexError, EOFError) as error:
            raise CorruptFile(path, f"its ORC footer does not unpack: {error}") from error
    return bytes(plain)


def _decompress_chunk(part: bytes, codec: int, block: int) -> bytes:
    if codec == _ZLIB:
        return zlib.decompressobj(wbits=-zlib.MAX_WBITS).decompress(part, block)
    if codec == _ZSTD:
        return bytes(zstd.ZstdDecompressor().decompress(part, block))
    if codec == _LZ4:
        return bytes(pa.Codec("lz4_raw").decompress(part, decompressed_size=_lz4_size(part, block), asbytes=True))
    size = shift = 0
    for byte in part[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > block:
        raise ValueError(f"a block of {size} bytes")
    return bytes(pa.Codec("snappy").decompress(part, decompressed_size=size, asbytes=True))


def _lz4_size(part: bytes, most: int) -> int:
    """Return the number of uncompressed bytes of an LZ4 block, which the block does not record.

    The exact size is needed, because Arrow does not clear the end of a larger buffer.

    Raises:
        ValueError: the block has more than ``most`` uncompressed bytes.
    """
    size = position = 0
    while position < len(part):
        token = part[position]
        literals, position = _lz4_length(part, position + 1, token >> 4)
        size, position = size + literals, position + literals
        if position < len(part):  # the last sequence has no match
            match, position = _lz4_length(part, position + 2, token & 15)
            size += match + 4
        if size > most:
            raise ValueError(f"a block of more than {most} bytes")
    return size


def _lz4_length(part: bytes, position: int, length: int) -> tuple[int, int]:
    if length == 15:
        while part[position] == 255:
            length, position = length + 255, position + 1
        length, position = length + part[position], position + 1
    return length, position


def _fields(data: bytes, path: str) -> Iterator[tuple[int, Any]]:
    """Yield (field number, integer or bytes) of each field of a protocol buffers message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at, path)
        kind = tag & 7
        value: Any
        if kind == 0:
            value, at = _varint(data, at, path)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if kind == 2:
                size, at = _varint(data, at, path)
            if size is None or at + size > len(data):
                raise CorruptFile(path, "its ORC footer is broken")
            value, at = data[at : at + size], at + size
        yield tag >> 3, value


def _packed_integers(data: bytes, path: str) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at, path)
        yield value


def _varint(data: bytes, at: int, path: str) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[at : at + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise CorruptFile(path, "its ORC footer is cut")
