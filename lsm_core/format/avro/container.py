"""Avro container files as streams of blocks; every length in the file is checked against its size before use."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.errors import CorruptFile
from lsm_core.format.avro.codecs import CODECS, compress, decompress
from lsm_core.format.avro.record_encoder import Piece
from lsm_core.json_reader import parse_json

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
_MAX_HEADER_BYTES: Final = 1 << 24
_VARINT_BYTES: Final = 10


@dataclass(frozen=True)
class Block:
    """One block of an Avro file.

    Attributes:
        rows: number of records.
        start: position in the file (bytes).
        size: compressed size (bytes).
    """

    rows: int
    start: int
    size: int


class Container:
    """An open Avro file.

    Attributes:
        schema_text: schema as JSON text.
        schema: parsed schema.
        codec: name of the codec.
        sync: sync marker.
        header_bytes: size of the header (bytes).
        blocks: its blocks in order.
        rows: number of records.
    """

    def __init__(self, source: pa.NativeFile, path: str) -> None:
        """Read the header and the frame of every block.

        Raises:
            CorruptFile: the file is damaged.
        """
        self._source, self._path = source, path
        self._end = int(source.size())
        if self._take(len(MAGIC)) != MAGIC:
            raise CorruptFile(path, "not an Avro file")
        members = self._members()
        try:
            self.schema_text = members["avro.schema"]
            self.schema: Any = parse_json(self.schema_text)
            self.codec = members.get("avro.codec", b"null").decode()
        except (KeyError, ValueError) as error:
            raise CorruptFile(path, f"its Avro header is broken: {type(error).__name__}: {error}") from error
        if self.codec not in CODECS:
            raise CorruptFile(path, f'its Avro codec is "{self.codec}"')
        self.sync = self._take(SYNC_BYTES)
        self.header_bytes = int(source.tell())
        self.blocks: list[Block] = []
        while source.tell() < self._end:
            rows, size = self._long(), self._long()
            start = int(source.tell())
            if rows < 0 or size < 0 or start + size + SYNC_BYTES > self._end:
                raise CorruptFile(path, f"an Avro block of {rows} records and {size} bytes does not fit the file")
            source.seek(start + size)
            if self._take(SYNC_BYTES) != self.sync:
                raise CorruptFile(path, "an Avro sync marker is missing")
            self.blocks.append(Block(rows, start, size))
        self.rows = sum(block.rows for block in self.blocks)

    def plain(self, block: Block) -> bytes:
        """Return the decompressed records of a block."""
        self._source.seek(block.start)
        records = decompress(self._take(block.size), self.codec, self._path)
        if block.rows > len(records):
            raise CorruptFile(self._path, f"an Avro block claims {block.rows} records in {len(records)} bytes")
        return records

    def _members(self) -> dict[str, bytes]:
        members: dict[str, bytes] = {}
        while count := self._long():
            if count < 0:
                self._long()  # a negative count is followed by the block's size in bytes
            for _ in range(abs(count)):
                key = self._take(self._long()).decode(errors="replace")
                members[key] = self._take(self._long())
                if self._source.tell() > _MAX_HEADER_BYTES:
                    raise CorruptFile(self._path, "its Avro header is too large")
        return members

    def _take(self, count: int) -> bytes:
        if count < 0 or self._source.tell() + count > self._end:
            raise CorruptFile(self._path, f"the Avro file ends at byte {self._end}, inside a value")
        data = bytes(self._source.read(count))
        if len(data) != count:
            raise CorruptFile(self._path, "the Avro file was truncated during the read")
        return data

    def _long(self) -> int:
        value = 0
        for index in range(_VARINT_BYTES):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise CorruptFile(self._path, "an Avro number is longer than 10 bytes")


def header(schema: Any, codec: str, sync: bytes) -> bytes:
    """Return a file's header, up to its first block."""
    text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False).encode()
    out = io.BytesIO()
    out.write(MAGIC + varint(2))
    for key, value in ((b"avro.schema", text), (b"avro.codec", codec.encode())):
        out.write(varint(len(key)) + key + varint(len(value)) + value)
    out.write(varint(0) + sync)
    return out.getvalue()


def varint(value: int) -> bytes:
    """Return the Avro encoding of a non-negative int or long."""
    value <<= 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def blocks(records: Piece, codec: str, level: int, sync: bytes, block_bytes: int) -> Iterator[bytes]:
    """Yield encoded records as blocks of a file, each with as many records as fit ``block_bytes`` (at least one)."""
    ends = np.cumsum(records.lengths)
    first = start = 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, start + block_bytes, side="right")), first + 1)
        end = int(ends[last - 1])
        packed = compress(records.data[start:end].tobytes(), codec, level)
        yield varint(last - first) + varint(len(packed)) + packed + sync
        first, start = last, end
