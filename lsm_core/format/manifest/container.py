"""Avro container files as bytes: written with zstd, read with limits, since a manifest may be cut short or forged."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import fastavro
import numpy as np
from backports import zstd

from lsm_core.errors import CorruptFile
from lsm_core.format.manifest.codecs import decompress
from lsm_core.format.manifest.columnar_avro import Piece

Record = dict[str, Any]

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_ZSTD_LEVEL = 1
_MAX_EXPANSION = 200
_MIN_ALLOWANCE = 1 << 21
_RECORD_BYTES = 1 << 20
"""What a record may add: a file index kept in a manifest takes 600 KB by default, nearly all of them zeros for a small file."""
_MOST_BYTES = 1 << 30
_VARINT_BYTES = 10
_BLOCK_BYTES = 1 << 16


def write_container(schema: Mapping[str, Any], records: Iterable[Record]) -> bytes:
    """An Avro file of ``records`` (codec zstandard, level 1). The same records give the same bytes."""
    out = io.BytesIO()
    rows = list(records)
    marker = blake2b(json.dumps([len(rows), schema], sort_keys=True).encode(), digest_size=_SYNC_BYTES).digest()
    fastavro.writer(out, dict(schema), rows, codec="zstandard", codec_compression_level=_ZSTD_LEVEL, sync_marker=marker)
    return out.getvalue()


def write_rows(schema: Mapping[str, Any], pieces: Sequence[Piece]) -> bytes:
    """An Avro file of records already encoded, piece by piece."""
    digest = blake2b(digest_size=_SYNC_BYTES)
    for piece in pieces:
        digest.update(piece.data.tobytes())
    marker = digest.digest()
    out = io.BytesIO()
    _write_header(out, json.dumps(schema, separators=(",", ":")).encode(), b"zstandard", marker)
    for piece in pieces:
        ends = np.cumsum(piece.lengths)
        first = start = 0
        while first < len(ends):
            # As many records as fit a block, one at least.
            last = max(int(np.searchsorted(ends, start + _BLOCK_BYTES, side="right")), first + 1)
            end = int(ends[last - 1])
            block = zstd.compress(piece.data[start:end].tobytes(), _ZSTD_LEVEL)
            out.write(_varint(last - first) + _varint(len(block)) + block + marker)
            first, start = last, end
    return out.getvalue()


def _write_header(out: io.BytesIO, schema: bytes, codec: bytes, marker: bytes) -> None:
    out.write(_MAGIC + _varint(2))
    out.writelines(
        _varint(len(key)) + key + _varint(len(value)) + value
        for key, value in ((b"avro.schema", schema), (b"avro.codec", codec))
    )
    out.write(_varint(0) + marker)


def read_container(data: bytes, path: str, rows: int | None = None) -> tuple[dict[str, Any], list[Record]]:
    """The writer's schema and all records of an Avro file (codecs null, zstandard, deflate, snappy, bzip2, xz as Java knows them).

    Logical types are left as their plain numbers; ``rows`` is how many records there must be, where that is known. Raises
    :class:`CorruptFile` naming ``path`` for anything malformed.
    """
    try:
        schema, plain = _plain_container(data, path, rows)
        records = list(fastavro.reader(io.BytesIO(plain)))
    except CorruptFile:
        raise
    except Exception as error:  # fastavro raises whatever its parser met: IndexError, KeyError, struct.error ...
        raise CorruptFile(path, f"not a readable Avro file: {type(error).__name__}: {error}") from error
    if None in records:
        raise CorruptFile(path, "an Avro record is null")
    return schema, records


class _Cursor:
    """Reads Avro primitives out of a byte string, never beyond its end."""

    def __init__(self, data: bytes, path: str) -> None:
        self.data, self.path, self.at = data, path, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise CorruptFile(self.path, f"Avro file ends at byte {len(self.data)}, inside a value")
        self.at += count
        return self.data[self.at - count : self.at]

    def long(self) -> int:
        value = 0
        for index in range(_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise CorruptFile(self.path, "Avro number longer than 10 bytes")

    @property
    def ended(self) -> bool:
        return self.at == len(self.data)


def with_record_root(data: bytes, path: str) -> tuple[bytes, bool]:
    """The same Avro file for readers that know no root but a record, and whether it had to be changed.

    paimon-rust declares the root as a union of null and the record; a record of one field of that type has the same bytes,
    so only the header changes: each entry is then in its field ``entry``. Raises :class:`CorruptFile` naming ``path``.
    """
    cursor = _Cursor(data, path)
    try:
        members, sync = _header(cursor)
        schema = json.loads(members["avro.schema"])
    except (KeyError, ValueError, RecursionError) as error:
        raise CorruptFile(path, f"its Avro header is broken: {error!r}") from error
    if record_schema(schema, path) is schema:
        return data, False
    wrapper = {"type": "record", "name": "entry_or_null", "fields": [{"name": "entry", "type": schema}]}
    out = io.BytesIO()
    _write_header(out, json.dumps(wrapper).encode(), members.get("avro.codec", b"null"), sync)
    out.write(data[cursor.at :])
    return out.getvalue(), True


def _header(cursor: _Cursor) -> tuple[dict[str, bytes], bytes]:
    if cursor.take(len(_MAGIC)) != _MAGIC:
        raise CorruptFile(cursor.path, "not an Avro file")
    members: dict[str, bytes] = {}
    while count := cursor.long():
        if count < 0:
            cursor.long()  # byte size of the block, which a negative count announces
        for _ in range(abs(count)):
            key = cursor.take(cursor.long()).decode()
            members[key] = cursor.take(cursor.long())
    return members, cursor.take(_SYNC_BYTES)


def _plain_container(data: bytes, path: str, rows: int | None = None) -> tuple[dict[str, Any], bytes]:
    """The same file uncompressed and without logical types: fastavro then makes no datetime per record."""
    cursor = _Cursor(data, path)
    members, sync = _header(cursor)
    codec = members.get("avro.codec", b"null").decode()
    schema = json.loads(members["avro.schema"])
    text = _plain_schema(members["avro.schema"])
    out = io.BytesIO()
    _write_header(out, text, b"null", sync)
    # What a manifest may unfold to: real ones shrink by factors of tens, a bomb by many thousands.
    allowance = _MIN_ALLOWANCE + _MAX_EXPANSION * len(data)
    found = size = 0
    while not cursor.ended:
        count = cursor.long()
        found += count
        block = decompress(cursor.take(cursor.long()), codec, path)
        size += len(block)
        # A record of a manifest has at least its version: more records than bytes is a forgery that would loop for ever.
        if count < 0 or count > len(block) or found > allowance:
            raise CorruptFile(path, f"Avro block claims {count} records in {len(block)} bytes")
        if size > min(allowance + _RECORD_BYTES * found, max(allowance, _MOST_BYTES)):
            raise CorruptFile(path, f"its {len(data)} bytes unpack to {size} and more for {found} records")
        if cursor.take(_SYNC_BYTES) != sync:
            raise CorruptFile(path, "Avro sync marker is missing")
        out.write(_varint(count) + _varint(len(block)) + block + sync)
    if rows is not None and found != rows:  # said before millions of records are made of a page of zeros
        raise CorruptFile(path, f"holds {found} entries, its manifest list says {rows}")
    return record_schema(schema, path), out.getvalue()


def record_schema(schema: Any, path: str) -> dict[str, Any]:
    """The record at the root of a file's schema, which paimon-rust declares as a union of null and the record.

    Raises :class:`CorruptFile` naming ``path`` for any other root.
    """
    found = schema[1] if isinstance(schema, list) and len(schema) == 2 and schema[0] == "null" else schema
    if not isinstance(found, dict) or found.get("type") != "record":
        raise CorruptFile(path, "Avro schema is not a record")
    return found


@lru_cache(maxsize=32)
def _plain_schema(text: bytes) -> bytes:
    """A schema's text without logical types; the manifests of a table share one, and small ones are mostly schema."""
    return json.dumps(_without_logical_types(json.loads(text))).encode()


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    if isinstance(schema, list):
        return [_without_logical_types(item) for item in schema]
    return schema


def _varint(value: int) -> bytes:
    encoded = bytearray()
    value = value << 1 if value >= 0 else ((-value) << 1) - 1
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
