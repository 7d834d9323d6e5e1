"""Avro files of metadata in memory.

Written with zstd, read within limits, because a manifest may be truncated or forged.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa

from lsm_core.errors import CorruptFile
from lsm_core.format.avro.avro_schema import fields_of, record_of
from lsm_core.format.avro.container import SYNC_BYTES, Container, blocks, header
from lsm_core.format.avro.record_decoder import RecordDecoder, in_record
from lsm_core.format.avro.record_encoder import Piece
from lsm_core.json_reader import parse_json

Record = dict[str, Any]

_CODEC: Final = "zstandard"
_ZSTD_LEVEL: Final = 1
_BLOCK_BYTES: Final = 1 << 16
_MAX_EXPANSION: Final = 200
_MIN_ALLOWANCE: Final = 1 << 21
_RECORD_BYTES: Final = 1 << 20
"""Allowance per record: an index embedded in a manifest has 600 KB by default, mostly zeros for a small file."""
_MAX_TOTAL_BYTES: Final = 1 << 30
_MAX_CACHED_SCHEMA: Final = 1 << 16
"""Largest schema text that is cached (bytes)."""


def write_records(schema: Mapping[str, Any], records: Iterable[Record]) -> bytes:
    """Return an Avro file of records (codec zstandard, level 1); equal records give equal bytes."""
    out, rows = io.BytesIO(), list(records)
    marker = blake2b(json.dumps([len(rows), schema], sort_keys=True).encode(), digest_size=SYNC_BYTES).digest()
    # A manifest list has few records; encoding them by column would take five times as long.
    fastavro.writer(out, dict(schema), rows, codec=_CODEC, codec_compression_level=_ZSTD_LEVEL, sync_marker=marker)
    return out.getvalue()


@lru_cache(maxsize=16)
def _prepare_schema(text: str) -> Any:
    """Return a schema in the form that fastavro writes with; cached because it is validated."""
    return fastavro.parse_schema(parse_json(text))


def records_piece(schema: Mapping[str, Any], records: Iterable[Record]) -> Piece:
    """Encode records one by one, which is faster for a few records than `record_encoder.encode_columns`.

    The bytes are equal.

    Raises:
        ValueError: a required field is null.
    """
    out, ends, prepared = io.BytesIO(), [0], _prepare_schema(json.dumps(schema))
    try:
        for record in records:
            fastavro.schemaless_writer(out, prepared, record)
            ends.append(out.tell())
    except TypeError as error:
        raise ValueError(f"a required Avro field has an invalid value: {error}") from error
    offsets = np.array(ends, np.int64)
    return Piece(offsets[1:] - offsets[:-1], np.frombuffer(out.getvalue(), np.uint8))


def write_pieces(schema: Mapping[str, Any], pieces: Iterable[Piece]) -> bytes:
    """Return an Avro file of encoded records, piece after piece."""
    pieces = list(pieces)
    digest = blake2b(digest_size=SYNC_BYTES)
    for piece in pieces:
        digest.update(piece.data.tobytes())
    marker = digest.digest()
    frames = (frame for piece in pieces for frame in blocks(piece, _CODEC, _ZSTD_LEVEL, marker, _BLOCK_BYTES))
    return b"".join([header(schema, _CODEC, marker), *frames])


@dataclass(frozen=True)
class _ParsedSchema:
    """A parsed schema.

    Attributes:
        arrow: its Arrow columns.
        decoder: decoder of its records.
    """

    arrow: pa.Schema
    decoder: RecordDecoder


@lru_cache(maxsize=64)
def _parse_schema(text: bytes) -> _ParsedSchema:
    """Parse a schema; cached because all manifests of a table share one, and small ones consist mostly of it.

    Raises:
        CorruptFile: the schema is invalid; the error has no path.
    """
    schema = parse_json(text)
    fields = fields_of(schema, "", logical=False)
    arrow = pa.schema([pa.field(name, field.arrow, field.nullable) for name, field in fields.items()])
    return _ParsedSchema(arrow, RecordDecoder(fields, list(fields), "", in_union=record_of(schema, "")[1]))


def arrow_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """Return the Arrow columns of a schema's fields, with logical types as plain numbers."""
    return _parse_schema(json.dumps(schema).encode()).arrow


def read_table(data: bytes, path: str, rows: int | None = None) -> pa.Table:
    """Return the records of an Avro file as columns of the writer's schema, with logical types as plain numbers.

    Args:
        data: the file.
        path: its path, for messages.
        rows: the expected number of records, or None if unknown.

    Returns:
        The table.

    Raises:
        CorruptFile: the file is damaged, or expands beyond the limits of a manifest; the message names ``path``.
    """
    container = Container(pa.BufferReader(data), path)
    # Real manifests are compressed by factors of tens, a decompression bomb by many thousands.
    allowance = _MIN_ALLOWANCE + _MAX_EXPANSION * len(data)
    if container.rows > allowance:
        raise CorruptFile(path, f"it claims {container.rows} records in {len(data)} bytes")
    if rows is not None and container.rows != rows:  # checked before a page of zeros becomes millions of records
        raise CorruptFile(path, f"holds {container.rows} entries, but its manifest list records {rows}")
    try:
        text = container.schema_text
        parsed = _parse_schema(text) if len(text) <= _MAX_CACHED_SCHEMA else _parse_schema.__wrapped__(text)
        batches = []
        total_rows = size = 0
        for block in container.blocks:
            plain = container.plain(block)
            total_rows, size = total_rows + block.rows, size + len(plain)
            if size > min(allowance + _RECORD_BYTES * total_rows, max(allowance, _MAX_TOTAL_BYTES)):
                raise CorruptFile(path, f"its {len(data)} bytes unpack to {size} and more for {total_rows} records")
            records = parsed.decoder.take(parsed.decoder.records(plain, block.rows), block.rows)
            if len(records) != block.rows:
                raise CorruptFile(path, f"an Avro block has {block.rows - len(records)} records fewer than it claims")
            batches.append(parsed.decoder.batch(records))
    except CorruptFile as error:  # the cached decoder has no path
        raise CorruptFile(path, error.reason) from error
    return pa.Table.from_batches(batches, parsed.arrow)


def read_records(data: bytes, path: str) -> tuple[Mapping[str, Any], list[Record]]:
    """Return the writer's schema (of the record) and all records of an Avro file; see :func:`read_table`."""
    return record_of(Container(pa.BufferReader(data), path).schema, path)[0], read_table(data, path).to_pylist()


def with_record_root(data: bytes, path: str) -> tuple[bytes, bool]:
    """Return the file for readers that accept only a record as root.

    If the root is a union of null and the record (paimon-rust), only the header changes, and entries are in the field
    ``entry`` of a new record.

    Returns:
        The file, and whether it was changed.

    Raises:
        CorruptFile: the header is damaged; the message names ``path``.
    """
    container = Container(pa.BufferReader(data), path)
    if not record_of(container.schema, path)[1]:
        return data, False
    start = header(in_record(container.schema), container.codec, container.sync)
    return start + data[container.header_bytes :], True
