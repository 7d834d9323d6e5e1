"""Avro files of metadata, whole in memory: written with zstd, read within limits, since a manifest may be cut short or forged."""

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
"""What a record may add: a file index kept in a manifest takes 600 KB by default, nearly all of them zeros for a small file."""
_MOST_BYTES: Final = 1 << 30
_REMEMBERED_BYTES: Final = 1 << 16
"""Of a schema's text: no larger one is kept."""


def write_records(schema: Mapping[str, Any], records: Iterable[Record]) -> bytes:
    """An Avro file of ``records`` (codec zstandard, level 1). The same records give the same bytes."""
    out, rows = io.BytesIO(), list(records)
    marker = blake2b(json.dumps([len(rows), schema], sort_keys=True).encode(), digest_size=SYNC_BYTES).digest()
    # A manifest list has a few records: encoding them column by column takes five times as long.
    fastavro.writer(out, dict(schema), rows, codec=_CODEC, codec_compression_level=_ZSTD_LEVEL, sync_marker=marker)
    return out.getvalue()


@lru_cache(maxsize=16)
def _writable(text: str) -> Any:
    """A schema as fastavro writes by it: checked once."""
    return fastavro.parse_schema(parse_json(text))


def records_piece(schema: Mapping[str, Any], records: Iterable[Record]) -> Piece:
    """The bytes of ``records`` one by one: the same as `record_encoder.encode_columns` makes of columns, and quicker for a few.

    Raises ValueError for a null in a required field.
    """
    out, ends, writable = io.BytesIO(), [0], _writable(json.dumps(schema))
    try:
        for record in records:
            fastavro.schemaless_writer(out, writable, record)
            ends.append(out.tell())
    except TypeError as error:
        raise ValueError(f"a required Avro field does not hold what it should: {error}") from error
    places = np.array(ends, np.int64)
    return Piece(places[1:] - places[:-1], np.frombuffer(out.getvalue(), np.uint8))


def write_pieces(schema: Mapping[str, Any], pieces: Iterable[Piece]) -> bytes:
    """An Avro file of records already encoded, those of one piece after those of another."""
    pieces = list(pieces)
    digest = blake2b(digest_size=SYNC_BYTES)
    for piece in pieces:
        digest.update(piece.data.tobytes())
    marker = digest.digest()
    frames = (frame for piece in pieces for frame in blocks(piece, _CODEC, _ZSTD_LEVEL, marker, _BLOCK_BYTES))
    return b"".join([header(schema, _CODEC, marker), *frames])


@dataclass(frozen=True)
class _Parsed:
    """A schema's Arrow columns, and the decoder of its records."""

    arrow: pa.Schema
    decoder: RecordDecoder


@lru_cache(maxsize=64)
def _parsed(text: bytes) -> _Parsed:
    """The manifests of a table share one schema, and small ones are mostly schema. Raises :class:`CorruptFile` without a path."""
    schema = parse_json(text)
    fields = fields_of(schema, "", logical=False)
    arrow = pa.schema([pa.field(name, field.arrow, field.nullable) for name, field in fields.items()])
    return _Parsed(arrow, RecordDecoder(fields, list(fields), "", in_union=record_of(schema, "")[1]))


def arrow_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """The Arrow columns of a schema's fields, logical types left as their plain numbers."""
    return _parsed(json.dumps(schema).encode()).arrow


def read_table(data: bytes, path: str, rows: int | None = None) -> pa.Table:
    """The records of an Avro file as columns of the writer's schema, logical types left as their plain numbers.

    ``rows`` is how many records there must be, where that is known. Raises :class:`CorruptFile` naming ``path`` for anything
    malformed, and for more bytes than a manifest can unfold to.
    """
    container = Container(pa.BufferReader(data), path)
    # What a manifest may unfold to: real ones shrink by factors of tens, a bomb by many thousands.
    allowance = _MIN_ALLOWANCE + _MAX_EXPANSION * len(data)
    if container.rows > allowance:
        raise CorruptFile(path, f"it claims {container.rows} records in {len(data)} bytes")
    if rows is not None and container.rows != rows:  # said before millions of records are made of a page of zeros
        raise CorruptFile(path, f"holds {container.rows} entries, its manifest list says {rows}")
    try:
        text = container.schema_text
        parsed = _parsed(text) if len(text) <= _REMEMBERED_BYTES else _parsed.__wrapped__(text)
        batches = []
        found = size = 0
        for block in container.blocks:
            plain = container.plain(block)
            found, size = found + block.rows, size + len(plain)
            if size > min(allowance + _RECORD_BYTES * found, max(allowance, _MOST_BYTES)):
                raise CorruptFile(path, f"its {len(data)} bytes unpack to {size} and more for {found} records")
            records = parsed.decoder.take(parsed.decoder.records(plain, block.rows), block.rows)
            if len(records) != block.rows:
                raise CorruptFile(path, f"an Avro block has {block.rows - len(records)} records fewer than it claims")
            batches.append(parsed.decoder.batch(records))
    except CorruptFile as error:  # the decoder, kept for many files, knows no path
        raise CorruptFile(path, error.reason) from error
    return pa.Table.from_batches(batches, parsed.arrow)


def read_records(data: bytes, path: str) -> tuple[Mapping[str, Any], list[Record]]:
    """The writer's schema (of the record) and all records of an Avro file, as :func:`read_table` has them."""
    return record_of(Container(pa.BufferReader(data), path).schema, path)[0], read_table(data, path).to_pylist()


def with_record_root(data: bytes, path: str) -> tuple[bytes, bool]:
    """The same Avro file for readers that know no root but a record, and whether it had to be changed.

    Where the root is a union of null and the record (paimon-rust), only the header changes: entries are in the field ``entry``
    of a record then. Raises :class:`CorruptFile` naming ``path``.
    """
    container = Container(pa.BufferReader(data), path)
    if not record_of(container.schema, path)[1]:
        return data, False
    start = header(in_record(container.schema), container.codec, container.sync)
    return start + data[container.header_bytes :], True


__all__ = [
    "Record",
    "arrow_schema",
    "read_records",
    "read_table",
    "records_piece",
    "with_record_root",
    "write_pieces",
    "write_records",
]
