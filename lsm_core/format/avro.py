"""Avro for manifests and data files: schemas, codecs, records as Arrow columns, and container files (format.md 4.1).

Whole columns are encoded at once. No library decodes Avro into columns by Paimon's logical types, and the length of a
record is known only after reading it. So fastavro decodes record by record, in compiled code, a bounded number of
records at a time. (DataFusion reads large manifests even faster: `lsm_core.metadata.manifests`.)

Schemas follow Paimon's conventions instead of Avro's. `timestamp-*` is a timestamp without time zone and
`local-timestamp-*` one with a time zone, the reverse of Avro's meaning. A map with keys other than strings is an array
of records {key, value}. An Avro map and such an array have the same bytes, so both are read in the same way.

Files may be truncated or forged: every length is checked against the file's size, and decompression is limited.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa
from backports import zstd

from lsm_core.arrays import (
    I64,
    U8,
    U64,
    arrow_array,
    big_endian_digits,
    decimal_limbs,
    limbs_from_big_endian,
    null_mask,
    numpy_array,
    offsets_from,
    slice_places,
    value_bytes,
    value_offsets,
)
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.json_text import parse_json

_NAMESPACE, _ROOT = "org.apache.paimon.avro.generated", "record"
_MAX_DEPTH: Final = 64
_MAX_FIELDS: Final = 50_000
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "timestamp-millis"): pa.timestamp("ms"),
    ("long", "timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "local-timestamp-micros"): pa.timestamp("us", "UTC"),
}
_AVRO_TYPES: Final[Mapping[pa.DataType, Any]] = {
    **{arrow: name for name, arrow in _PLAIN.items()},
    pa.int8(): "int",
    pa.int16(): "int",
    **{arrow: {"type": name, "logicalType": logical} for (name, logical), arrow in _LOGICAL.items()},
}


@dataclass(frozen=True)
class AvroField:
    """Types of one field of an Avro record: in Avro, as decoded by fastavro, and in Arrow.

    Attributes:
        avro: Avro type that is passed to fastavro, without names and logical types.
        raw: Arrow type of fastavro's result.
        arrow: Arrow type of the value.
        nullable: whether the value may be null.
    """

    avro: Any
    raw: pa.DataType
    arrow: pa.DataType
    nullable: bool


def record_of(schema: Any, path: str) -> tuple[Mapping[str, Any], bool]:
    """Return the Avro record type at the root of a file's schema.

    Args:
        schema: the parsed schema.
        path: path of the file, for messages.

    Returns:
        The record type, and whether the root is a union of null and this record, as in files of paimon-rust.

    Raises:
        CorruptFile: the root is not a record; the message names ``path``.
    """
    in_union = isinstance(schema, list) and len(schema) == 2 and schema[0] == "null"
    record = schema[1] if in_union else schema
    if not isinstance(record, dict) or record.get("type") != "record":
        raise CorruptFile(path, "its Avro schema is not a record")
    return record, in_union


def fields_of(schema: Any, path: str, *, logical: bool = True) -> dict[str, AvroField]:
    """Return the top-level columns of a file's schema.

    Args:
        schema: the parsed schema.
        path: path of the file, for messages.
        logical: whether to apply logical types; otherwise dates, times and decimals are plain numbers and bytes.

    Returns:
        The fields by name.

    Raises:
        CorruptFile: the schema has a form that no Paimon writer produces.
    """
    record, _ = record_of(schema, path)
    return dict(_Parser(path, logical).record_fields(record, 0))


class _Parser:
    """Parser from Avro types to :class:`AvroField`, which resolves the named types of the schema."""

    def __init__(self, path: str, logical: bool) -> None:
        self._path, self._logical = path, logical
        self._named: dict[str, Any] = {}
        self._count = 0

    def record_fields(self, schema: Mapping[str, Any], depth: int) -> list[tuple[str, AvroField]]:
        if isinstance(schema.get("name"), str):
            self._named[schema["name"]] = schema
            self._named[f"{schema.get('namespace')}.{schema['name']}"] = schema
        members = schema.get("fields")
        # The partition of a table without partition columns is a record without fields in Iceberg's manifests.
        if not isinstance(members, list) or (not members and not depth):
            raise self._bad("a record has no fields")
        fields = []
        for member in members:
            if not isinstance(member, dict) or not isinstance(member.get("name"), str) or "type" not in member:
                raise self._bad("a field has no name or type")
            fields.append((member["name"], self.field(member["type"], depth + 1)))
        if len({name for name, _ in fields}) != len(fields):
            raise self._bad("two fields have one name")
        return fields

    def field(self, kind: Any, depth: int) -> AvroField:
        self._count += 1
        # Named types can contain themselves: without these limits a schema of a few bytes would expand forever.
        if depth > _MAX_DEPTH or self._count > _MAX_FIELDS:
            raise self._bad("it is nested too deeply")
        if isinstance(kind, list):
            types = [branch for branch in kind if branch != "null"]
            if len(types) != 1 or len(kind) != 2:
                raise self._bad("a union is not one of null and a type")
            inner = self.field(types[0], depth)
            avro = ["null", inner.avro] if kind[0] == "null" else [inner.avro, "null"]
            return AvroField(avro, inner.raw, inner.arrow, nullable=True)
        if isinstance(kind, str):
            if kind in _PLAIN:
                return AvroField(kind, _PLAIN[kind], _PLAIN[kind], nullable=False)
            kind = self._named.get(kind)
        if not isinstance(kind, dict):
            raise self._bad("it names an unknown type")
        return self._complex(kind, depth)

    def _complex(self, kind: Mapping[str, Any], depth: int) -> AvroField:
        root = kind.get("type")
        if root == "record":
            return self._record(self.record_fields(kind, depth))
        if root == "array" and kind.get("logicalType") == "map":
            return self._map(self.field(kind.get("items"), depth + 1))
        if root == "array":
            item = self.field(kind.get("items"), depth + 1)
            raw, arrow = (
                pa.list_(pa.field("element", element_type, item.nullable)) for element_type in (item.raw, item.arrow)
            )
            return AvroField({"type": "array", "items": item.avro}, raw, arrow, nullable=False)
        if root == "map":
            key = AvroField("string", pa.string(), pa.string(), nullable=False)
            return self._map(self._record([("key", key), ("value", self.field(kind.get("values"), depth + 1))]))
        if not isinstance(root, str) or root not in _PLAIN:
            # {"type": {"type": "array", ..}} is allowed by Avro
            return self.field(root, depth + 1)
        return self._scalar(root, kind)

    def _scalar(self, root: str, kind: Mapping[str, Any]) -> AvroField:
        logical = kind.get("logicalType") if self._logical else None
        if root == "bytes" and logical == "decimal":
            digits, scale = kind.get("precision"), kind.get("scale", 0)
            if (
                not isinstance(digits, int)
                or not isinstance(scale, int)
                or not 0 <= scale <= digits
                or not 1 <= digits <= 38
            ):
                raise self._bad(f"DECIMAL({digits}, {scale}) does not exist")
            return AvroField(root, pa.binary(), pa.decimal128(digits, scale), nullable=False)
        arrow = _LOGICAL.get((root, str(logical)), _PLAIN[root])
        return AvroField(root, _PLAIN[root], arrow, nullable=False)

    def _record(self, members: list[tuple[str, AvroField]]) -> AvroField:
        # Names of Paimon's columns may be invalid in Avro, so fields are identified by their position.
        self._count += 1
        avro = {
            "type": "record",
            "name": f"r{self._count}",
            "fields": [{"name": f"f{i}", "type": member.avro} for i, (_, member) in enumerate(members)],
        }
        raw = pa.struct([pa.field(f"f{i}", member.raw, member.nullable) for i, (_, member) in enumerate(members)])
        arrow = pa.struct([pa.field(name, member.arrow, member.nullable) for name, member in members])
        return AvroField(avro, raw, arrow, nullable=False)

    def _map(self, entry: AvroField) -> AvroField:
        if not pa.types.is_struct(entry.arrow) or entry.arrow.names != ["key", "value"] or entry.nullable:
            raise self._bad("a map is not made of keys and values")
        value = entry.arrow.field("value")
        arrow = pa.map_(entry.arrow.field("key").type, value)
        return AvroField(
            {"type": "array", "items": entry.avro},
            pa.list_(pa.field("e", entry.raw, nullable=False)),
            arrow,
            nullable=False,
        )

    def _bad(self, reason: str) -> CorruptFile:
        return CorruptFile(self._path, f"its Avro schema is not that of a table: {reason}")


def avro_schema(schema: pa.Schema, table: str = "") -> dict[str, Any]:
    """Return the Avro schema that Java's writer uses for these columns.

    Args:
        schema: Arrow schema of the columns.
        table: the table's name, for messages.

    Returns:
        The Avro schema as a JSON object.

    Raises:
        UnsupportedFeature: Java's writer does not support the type of a column.
    """
    return {**_record_schema(list(schema), _ROOT, table), "namespace": _NAMESPACE}


def _record_schema(fields: list[pa.Field], name: str, table: str) -> dict[str, Any]:
    members: list[dict[str, Any]] = []
    for field in fields:
        kind = _field_schema(field, f"{name}_{field.name}", table)
        members.append(
            {"default": None, "name": field.name, "type": kind}
            if field.nullable
            else {"name": field.name, "type": kind}
        )
    return {"type": "record", "name": name, "fields": members}


def _field_schema(field: pa.Field, name: str, table: str) -> Any:
    kind = _type_schema(field, name, table)
    return ["null", kind] if field.nullable else kind


def _type_schema(field: pa.Field, name: str, table: str) -> Any:
    kind = field.type
    if kind in _AVRO_TYPES:
        return _AVRO_TYPES[kind]
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_struct(kind):
        return _record_schema([kind.field(i) for i in range(kind.num_fields)], name, table)
    if pa.types.is_list(kind):
        return {"type": "array", "items": _field_schema(kind.value_field, name, table)}
    if pa.types.is_map(kind):
        if pa.types.is_string(kind.key_type):
            return {"type": "map", "values": _field_schema(kind.item_field, name, table)}
        key = pa.field("key", kind.key_type, nullable=True)
        entry = _record_schema([key, kind.item_field.with_name("value")], name, table)
        del entry["fields"][0]["default"]
        return {"type": "array", "logicalType": "map", "items": entry}
    raise UnsupportedFeature(f"column '{field.name}' of Arrow type {kind} in Avro files", table)


CODECS: Final = frozenset({"null", "zstandard", "deflate", "snappy", "bzip2", "xz"})
_CHECKSUM_BYTES: Final = 4
_MAX_BLOCK_BYTES: Final = 1 << 28
"""Largest decompressed bytes of a block.

Writers start a new block after some ten thousand bytes, but a block has at least one row, which may be large.
"""
_ALLOWANCE, _MAX_EXPANSION = 1 << 24, 200
"""Limit of a block's decompressed bytes: `_ALLOWANCE` plus `_MAX_EXPANSION` times its compressed size."""
_DECOMPRESSORS: Final[dict[str, Callable[[], Any]]] = {
    "zstandard": zstd.ZstdDecompressor,
    "deflate": lambda: zlib.decompressobj(wbits=-zlib.MAX_WBITS),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=_MAX_BLOCK_BYTES),
}


def decompress(data: bytes, codec: str, path: str) -> bytes:
    """Return the decompressed bytes of a block.

    Raises:
        CorruptFile: the codec is unknown, the data is damaged, or the result exceeds the limit.
    """
    if codec not in CODECS:
        raise CorruptFile(path, f'its Avro codec is "{codec}"')
    limit = min(_MAX_BLOCK_BYTES, _ALLOWANCE + _MAX_EXPANSION * len(data))
    try:
        if codec == "null":
            return data
        if codec == "snappy":
            return _decompress_snappy(data, limit, path)
        decompressor = _DECOMPRESSORS[codec]()
        plain: bytes = decompressor.decompress(data, limit)
    except (zlib.error, lzma.LZMAError, zstd.ZstdError, pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise CorruptFile(path, f"an Avro block does not unpack: {error}") from error
    if not decompressor.eof or decompressor.unused_data:
        raise CorruptFile(path, f"an Avro block is cut short or unpacks to more than {limit} bytes")
    return plain


def _decompress_snappy(data: bytes, limit: int, path: str) -> bytes:
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    size = shift = 0
    for byte in body[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > limit:
        raise CorruptFile(path, f"an Avro block unpacks to more than {limit} bytes")
    plain = bytes(pa.Codec("snappy").decompress(body, decompressed_size=size, asbytes=True))
    if zlib.crc32(plain).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
        raise CorruptFile(path, "an Avro block has another checksum")
    return plain


def compress(data: bytes, codec: str, level: int) -> bytes:
    """Return the compressed bytes of a block's records.

    Args:
        data: the encoded records.
        codec: Avro's name of the codec; unknown names do not compress.
        level: compression level of zstandard; other codecs ignore it.
    """
    if codec == "zstandard":
        # Every zstd decoder verifies this checksum of the block; Avro itself has none.
        parameters = zstd.CompressionParameter
        settings = {int(parameters.compression_level): level, int(parameters.checksum_flag): 1}
        return bytes(zstd.compress(data, options=settings))
    if codec == "deflate":
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        return packer.compress(data) + packer.flush()
    if codec == "snappy":
        packed = pa.Codec("snappy").compress(data, asbytes=True)
        return bytes(packed) + zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "big")
    if codec == "bzip2":
        return bz2.compress(data)
    return lzma.compress(data) if codec == "xz" else data


_DECIMAL_BYTES = 16
_VARINT_BYTES = 10


@dataclass(frozen=True)
class Piece:
    """Avro-encoded bytes of one field (or of whole records) for all records.

    Attributes:
        lengths: number of bytes of each record.
        data: bytes of all records, concatenated.
    """

    lengths: I64
    data: U8


def join(pieces: Sequence[Piece]) -> Piece:
    """Combine encoded fields (pieces) to encoded records: per record, the bytes of each field, in order."""
    lengths: I64 = np.sum([piece.lengths for piece in pieces], axis=0, dtype=np.int64)
    starts = offsets_from(lengths)
    data = np.empty(int(starts[-1]), np.uint8)
    positions = starts[:-1].copy()
    for piece in pieces:
        # Most fields are small numbers of one byte each.
        single = len(piece.data) == len(positions) and bool((piece.lengths == 1).all())
        data[positions if single else slice_places(positions, piece.lengths)] = piece.data
        positions += piece.lengths
    return Piece(lengths, data)


def encode_rows(rows: pa.RecordBatch) -> Piece:
    """Encode each row of a batch as one Avro record.

    The records have the schema that :func:`lsm_core.format.avro.avro_schema` returns for the batch's columns.
    """
    return encode_columns(rows.columns, rows.schema)


def encode_columns(columns: Sequence[pa.Array], schema: pa.Schema) -> Piece:
    """Encode columns as Avro records.

    ``schema`` decides which values are nullable in Avro (a union of null and the value), even inside lists, maps and
    structs; the arrays' own types do not.

    Args:
        columns: the columns.
        schema: Arrow schema of the columns.

    Returns:
        The encoded records.

    Raises:
        ValueError: a required value is null.
    """
    return join([piece for column, field in zip(columns, schema, strict=True) for piece in _field(column, field)])


def _field(array: pa.Array, field: pa.Field) -> list[Piece]:
    """Encode the values of one field; return the encoded parts in order, such as union branch and value.

    Args:
        array: values of the field.
        field: the Arrow field; if it is nullable, its Avro type is a union with null.
    """
    if not field.nullable:
        if array.null_count:
            raise ValueError(f"{array.null_count} nulls in the required Avro field '{field.name}'")
        return _values(array, field.type)
    # The branch of the union: 0 for null, 1 (zig-zag 2) for the value.
    nulls = null_mask(array)
    if nulls is None:
        return [Piece(np.ones(len(array), np.int64), np.full(len(array), 2, np.uint8)), *_values(array, field.type)]
    present = join(_values(array.filter(arrow_array(~nulls)), field.type))
    lengths = np.zeros(len(array), np.int64)
    lengths[~nulls] = present.lengths
    flags = np.where(nulls, 0, 2).astype(np.uint8)
    return [Piece(np.ones(len(array), np.int64), flags), Piece(lengths, present.data)]


def _values(array: pa.Array, declared: pa.DataType) -> list[Piece]:
    """Encode values without nulls; return the encoded parts in order, such as length and text.

    Args:
        array: the values.
        declared: Arrow type that decides which nested parts are nullable.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        if not kind.num_fields:  # a record without fields has no bytes
            return [Piece(np.zeros(len(array), np.int64), np.zeros(0, np.uint8))]
        return [piece for i, child in enumerate(array.flatten()) for piece in _field(child, declared.field(i))]
    if pa.types.is_list(kind):
        offsets = value_offsets(array)
        child = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        return _blocks(offsets, join(_field(child, declared.value_field)))
    if pa.types.is_map(kind):
        # A map is encoded as an array of its entries; keys that are not texts are nullable in Avro.
        offsets = value_offsets(array)
        count = int(offsets[-1] - offsets[0])
        keys, items = array.keys.slice(int(offsets[0]), count), array.items.slice(int(offsets[0]), count)
        key = (
            declared.key_field if pa.types.is_string(kind.key_type) else declared.key_field.with_nullable(nullable=True)
        )
        return _blocks(offsets, join([*_field(keys, key), *_field(items, declared.item_field)]))
    if pa.types.is_boolean(kind):
        return [_fixed(numpy_array(array.cast(pa.uint8())).view(np.uint8), 1)]
    if pa.types.is_floating(kind):
        return [_fixed(np.ascontiguousarray(numpy_array(array)).view(np.uint8), kind.bit_width // 8)]
    if pa.types.is_decimal(kind):
        # Length, then shortest big-endian two's complement of the unscaled value (Java `BigInteger.toByteArray`).
        digits, sizes = big_endian_digits(*decimal_limbs(array))
        last = _DECIMAL_BYTES * np.arange(1, len(array) + 1, dtype=np.int64)
        return [long_values(sizes), Piece(sizes, digits[slice_places(last - sizes, sizes)])]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets = value_offsets(array)
        lengths = np.diff(offsets)
        return [long_values(lengths), Piece(lengths, value_bytes(array)[offsets[0] : offsets[-1]])]
    width = pa.int64() if kind.bit_width == 64 else pa.int32()
    integers = array.view(width) if kind.bit_width in (32, 64) else array
    return [long_values(numpy_array(integers.cast(pa.int64())))]


def _blocks(offsets: I64, items: Piece) -> list[Piece]:
    """Encode each Avro array as one block (count, items) and an end mark; an empty array is only the end mark.

    Args:
        offsets: start of each array's items, and the end of the last array; the first start may exceed 0.
        items: the encoded items of all arrays, one item per entry of ``items.lengths``.
    """
    counts = np.diff(offsets)
    ends = offsets_from(items.lengths)[offsets - offsets[0]]
    mark = Piece((counts > 0).astype(np.int64), np.zeros(int((counts > 0).sum()), np.uint8))
    return [long_values(counts), Piece(np.diff(ends), items.data), mark]


def _fixed(data: U8, width: int) -> Piece:
    return Piece(np.full(len(data) // width, width, np.int64), data)


def long_values(values: I64) -> Piece:
    """Encode integers as zig-zag variable-length numbers (Avro's int and long have the same encoding)."""
    zigzag: U64 = ((values << 1) ^ (values >> 63)).view(np.uint64)
    largest = zigzag.max() if len(zigzag) else np.uint64(0)
    lengths = np.ones(len(values), np.int64)
    width = 1
    while width < _VARINT_BYTES and int(largest) >> (7 * width):
        lengths += zigzag >= np.uint64(1 << (7 * width))
        width += 1
    if width == 1:
        return Piece(lengths, zigzag.astype(np.uint8))
    group_index = np.arange(width)
    groups = (zigzag[:, None] >> (7 * group_index).astype(np.uint64)).astype(np.uint8) & np.uint8(0x7F)
    groups |= np.where(group_index < lengths[:, None] - 1, np.uint8(0x80), np.uint8(0))
    return Piece(lengths, groups[group_index < lengths[:, None]])


SYNC_BYTES: Final = 16
_SYNC = bytes(SYNC_BYTES)
_MAX_PURE_RECORDS = 4096
"""Largest number of records that are converted to columns without pandas, whose import takes longer for few records.

For more records, Arrow's conversion (which imports pandas) is up to three times as fast.
"""


class RecordDecoder:
    """Decoder for some columns of decompressed blocks; other columns are skipped in compiled code."""

    def __init__(
        self, fields: Mapping[str, AvroField], columns: Sequence[str], path: str, *, in_union: bool = False
    ) -> None:
        """Prepare the decoder.

        Args:
            fields: all fields of the file, in order.
            columns: columns to decode.
            path: path of the file, for messages.
            in_union: whether the root is a union of null and the record, as in files of paimon-rust.
        """
        self._path = path
        self._names = list(columns)
        self._fields = [fields[name] for name in columns]
        positions = {name: f"f{i}" for i, name in enumerate(fields)}
        stored = [(positions[name], field) for name, field in fields.items()]
        columns_at = [(positions[name], fields[name]) for name in columns]
        self._in_union = in_union
        self._prefix = header(self._root(stored), "null", _SYNC)
        self._reader_schema = None if len(columns_at) == len(stored) else self._root(columns_at)
        self._raw = pa.struct([pa.field(name, field.raw) for name, field in columns_at])

    def _root(self, members: Sequence[tuple[str, AvroField]]) -> dict[str, Any]:
        record = {"type": "record", "name": "r", "fields": [{"name": n, "type": f.avro} for n, f in members]}
        # A record with one field has the bytes of that field, so a union at the root can become a record.
        return in_record(["null", record]) if self._in_union else record

    def records(self, *blocks: tuple[bytes, int]) -> Any:
        """Return an iterator over the records of some blocks.

        Read the iterator only with :meth:`take`, which converts fastavro's errors to CorruptFile.

        Args:
            blocks: decompressed bytes and number of records of each block.
        """
        frames = (varint(rows) + varint(len(plain)) + plain + _SYNC for plain, rows in blocks)
        return fastavro.reader(io.BytesIO(b"".join([self._prefix, *frames])), self._reader_schema)

    def take(self, records: Any, count: int) -> list[Any]:
        """Return at most ``count`` more records of the iterator ``records`` as fastavro's objects.

        Raises:
            CorruptFile: a record cannot be decoded.
        """
        try:
            return list(islice(records, count))
        except (
            Exception
        ) as error:  # fastavro raises various errors of its parser: IndexError, struct.error, EOFError ...
            raise CorruptFile(self._path, f"an Avro record is broken: {type(error).__name__}: {error}") from error

    def batch(self, records: list[Any]) -> pa.RecordBatch:
        """Return the records of :meth:`take` as columns, in the order of the constructor's ``columns``.

        Raises:
            CorruptFile: a record is null or has an invalid value.
        """
        to_array = arrow_array if len(records) <= _MAX_PURE_RECORDS else pa.array
        try:
            if self._in_union:
                (raw,) = to_array(records, pa.struct([pa.field("entry", self._raw)])).flatten()
                if raw.null_count:
                    raise CorruptFile(self._path, "an Avro record is null")
            else:
                raw = to_array(records, self._raw)
            pairs = zip(raw.flatten(), self._fields, strict=True)
            columns = [_convert(child, field.arrow, self._path) for child, field in pairs]
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise CorruptFile(self._path, f"an Avro record is broken: {error}") from error
        if not columns:
            return pa.RecordBatch.from_struct_array(raw)
        schema = pa.schema([pa.field(n, f.arrow, f.nullable) for n, f in zip(self._names, self._fields, strict=True)])
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def in_record(schema: Any) -> dict[str, Any]:
    """Return the schema of a record with one field ``entry`` of the type ``schema``.

    A value has the same bytes in Avro whether it is encoded by ``schema`` or as this field.
    """
    return {"type": "record", "name": "root", "fields": [{"name": "entry", "type": schema}]}


def _convert(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Convert fastavro's plain numbers and bytes to ``target``, at every depth.

    Args:
        array: values as decoded by fastavro.
        target: Arrow type of the result.
        path: path of the file, for messages.

    Raises:
        CorruptFile: a value is invalid; the message names ``path``.
    """
    if array.type.equals(target):
        return array
    if pa.types.is_decimal(target):
        return _decimals(array, target, path)
    if pa.types.is_struct(target):
        children = [_convert(child, target.field(i).type, path) for i, child in enumerate(array.flatten())]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(
            children, fields=[target.field(i) for i in range(target.num_fields)], mask=mask
        )
    if pa.types.is_map(target):
        entries = array.values
        keys, items = entries.field(0), entries.field(1)
        if keys.null_count:
            raise CorruptFile(path, "the key of a map is null")
        mask = array.is_null() if array.null_count else None
        return pa.MapArray.from_arrays(
            array.offsets,
            _convert(keys, target.key_type, path),
            _convert(items, target.item_type, path),
            target,
            mask=mask,
        )
    if pa.types.is_list(target):
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(
            array.offsets, _convert(array.values, target.value_type, path), target, mask=mask
        )
    return array.view(target)


def _decimals(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Return decimals of type ``target`` from big-endian two's complement of 1 to 16 bytes."""
    count = len(array)
    valid = np.ones(count, bool) if not array.null_count else numpy_array(array.is_valid())
    offsets = value_offsets(array)
    lengths = np.where(valid, np.diff(offsets), 0)
    if (valid & ((lengths < 1) | (lengths > _DECIMAL_BYTES))).any():
        raise CorruptFile(path, "a decimal has no or over 16 bytes")
    little = limbs_from_big_endian(value_bytes(array), offsets[:-1], lengths)
    validity = arrow_array(valid).buffers()[1] if array.null_count else None
    decimals = pa.Array.from_buffers(target, count, [validity, pa.py_buffer(little)])
    decimals.validate(full=True)
    return decimals


MAGIC: Final = b"Obj\x01"
_MAX_HEADER_BYTES: Final = 1 << 24


def _broken_header(path: str, error: Exception) -> CorruptFile:
    return CorruptFile(path, f"its Avro header is broken: {type(error).__name__}: {error}")


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
    """An open Avro file, whose header and positions of blocks were read.

    Attributes:
        path: path of the file, for messages.
        schema_text: schema as JSON text.
        codec: name of the codec.
        sync: sync marker.
        header_bytes: size of the header (bytes).
        blocks: blocks of the file in order.
        rows: number of records.
    """

    def __init__(self, source: pa.NativeFile, path: str) -> None:
        """Read the header and the frame of every block.

        Raises:
            CorruptFile: the file is damaged.
        """
        self._source, self._path = source, path
        self.path = path
        self._end = int(source.size())
        if self._take(len(MAGIC)) != MAGIC:
            raise CorruptFile(path, "not an Avro file")
        members = self._members()
        try:
            self.schema_text = members["avro.schema"]
            self.codec = members.get("avro.codec", b"null").decode()
        except (KeyError, ValueError) as error:
            raise _broken_header(path, error) from error
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

    @cached_property
    def schema(self) -> Any:
        """The parsed schema.

        Raises:
            CorruptFile: the schema is not JSON.
        """
        try:
            return parse_json(self.schema_text)
        except ValueError as error:
            raise _broken_header(self.path, error) from error

    def plain(self, block: Block) -> bytes:
        """Return the decompressed records of a block.

        Raises:
            CorruptFile: the block cannot be decompressed, or is too small for its number of records.
        """
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
    """Return the bytes of an Avro file before its first block.

    Args:
        schema: Avro schema as a JSON value.
        codec: Avro's name of the codec.
        sync: marker that ends the header and each block.
    """
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
    """Yield encoded records as compressed blocks of a file.

    Args:
        records: the encoded records.
        codec: Avro's name of the codec.
        level: compression level of zstandard.
        sync: marker that ends each block.
        block_bytes: bytes of records per block before compression; a block has at least one record.
    """
    ends = np.cumsum(records.lengths)
    first = start = 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, start + block_bytes, side="right")), first + 1)
        end = int(ends[last - 1])
        packed = compress(records.data[start:end].tobytes(), codec, level)
        yield varint(last - first) + varint(len(packed)) + packed + sync
        first, start = last, end


Record = dict[str, Any]

_CODEC: Final = "zstandard"
_ZSTD_LEVEL: Final = 1
_BLOCK_BYTES: Final = 1 << 16
_MIN_ALLOWANCE: Final = 1 << 21
_RECORD_BYTES: Final = 1 << 20
"""Decompressed bytes allowed per record.

An index that is embedded in a manifest entry has 600 KB by default, and is mostly zeros for a small data file.
"""
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
    """Return a schema in the form that fastavro's writer needs; cached because fastavro validates every schema."""
    return fastavro.parse_schema(parse_json(text))


def records_piece(schema: Mapping[str, Any], records: Iterable[Record]) -> Piece:
    """Encode records one by one, which is faster for a few records than :func:`encode_columns`.

    Both functions return the same bytes.

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
    """Return an Avro file of encoded records, with the records of each piece in separate blocks."""
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
        arrow: Arrow columns of the schema.
        decoder: decoder for records of the schema.
    """

    arrow: pa.Schema
    decoder: RecordDecoder


@lru_cache(maxsize=64)
def _parse_schema(text: bytes, logical: bool = False) -> _ParsedSchema:
    """Parse a schema.

    Cached because all manifests of a table share one schema, which is the largest part of a small manifest.

    Args:
        text: the schema.
        logical: whether to apply logical types.

    Raises:
        CorruptFile: the schema is invalid; the error has no path.
    """
    try:
        schema = parse_json(text)
    except ValueError as error:
        raise _broken_header("", error) from error
    fields = fields_of(schema, "", logical=logical)
    arrow = pa.schema([pa.field(name, field.arrow, field.nullable) for name, field in fields.items()])
    return _ParsedSchema(arrow, RecordDecoder(fields, list(fields), "", in_union=record_of(schema, "")[1]))


def arrow_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """Return the Arrow columns of a schema's fields, with logical types as plain numbers."""
    return _parse_schema(json.dumps(schema).encode()).arrow


def read_table(data: bytes, path: str, rows: int | None = None, *, logical: bool = False) -> pa.Table:
    """Return the records of an Avro file as columns of the writer's schema.

    Args:
        data: content of the file.
        path: path of the file, for messages.
        rows: the expected number of records, or None if unknown.
        logical: whether to apply logical types; otherwise dates, times and decimals are plain numbers and bytes.

    Returns:
        The table.

    Raises:
        CorruptFile: the file is damaged, does not have ``rows`` records, or expands beyond the limits of a manifest;
            the message names ``path``.
    """
    parsed, blocks = _unpack(data, path, rows, logical=logical)
    decoder = parsed.decoder
    try:
        batches = [decoder.batch(_take(decoder, [block])) for block in blocks]
    except CorruptFile as error:  # the cached decoder has no path
        raise CorruptFile(path, error.reason) from error
    return pa.Table.from_batches(batches, parsed.arrow)


def read_joined(files: Sequence[tuple[bytes, str, int | None]]) -> tuple[pa.Table, list[int]] | None:
    """Return the records of several small Avro files, one file after the other, as columns of their common schema.

    The conversion of a few records to columns takes as long as that of some hundred records, and the decoder is set up
    once.

    Args:
        files: content, path and expected number of records of each file; None for an unknown number.

    Returns:
        The table, and the number of records of each file. None if the files have different schemas, or if a record has
        an invalid value.

    Raises:
        CorruptFile: a file is damaged, as :func:`read_table` describes; the message names its path.
    """
    unpacked = [_unpack(*file) for file in files]
    parsed = unpacked[0][0]
    if any(other is not parsed for other, _ in unpacked):
        return None
    try:
        batch = parsed.decoder.batch(_take(parsed.decoder, [block for _, blocks in unpacked for block in blocks]))
    except CorruptFile:
        return None
    counts = [sum(rows for _, rows in blocks) for _, blocks in unpacked]
    return pa.Table.from_batches([batch], parsed.arrow), counts


def _take(decoder: RecordDecoder, blocks: Sequence[tuple[bytes, int]]) -> list[Any]:
    """Return all records of some blocks (decompressed bytes, number of records) as fastavro's objects.

    Raises:
        CorruptFile: a record is broken, or there are fewer records; the error has no path.
    """
    count = sum(rows for _, rows in blocks)
    records = decoder.take(decoder.records(*blocks), count)
    if len(records) != count:
        raise CorruptFile("", f"an Avro block has {count - len(records)} records fewer than it claims")
    return records


def _unpack(
    data: bytes, path: str, rows: int | None, *, logical: bool = False
) -> tuple[_ParsedSchema, list[tuple[bytes, int]]]:
    """Return the schema of an Avro file, and the decompressed bytes and the number of records of each block.

    The arguments and errors are those of :func:`read_table`.
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
        parse = _parse_schema if len(text) <= _MAX_CACHED_SCHEMA else _parse_schema.__wrapped__
        parsed = parse(text, logical)
    except CorruptFile as error:  # the cached schema has no path
        raise CorruptFile(path, error.reason) from error
    blocks = []
    total_rows = size = 0
    for block in container.blocks:
        plain = container.plain(block)
        total_rows, size = total_rows + block.rows, size + len(plain)
        if size > min(allowance + _RECORD_BYTES * total_rows, max(allowance, _MAX_TOTAL_BYTES)):
            raise CorruptFile(path, f"its {len(data)} bytes unpack to {size} and more for {total_rows} records")
        blocks.append((plain, block.rows))
    return parsed, blocks


def decode_block(container: Container, plain: bytes, rows: int) -> pa.RecordBatch:
    """Return the records of decompressed bytes as columns, with logical types.

    Args:
        container: the file, whose schema the records have.
        plain: the bytes of the records.
        rows: number of records.

    Raises:
        CorruptFile: a record is broken, or there are fewer records.
    """
    decoder = _parse_schema(container.schema_text, logical=True).decoder
    try:
        return decoder.batch(_take(decoder, [(plain, rows)]))
    except CorruptFile as error:  # the cached decoder has no path
        raise CorruptFile(container.path, error.reason) from error


def read_records(data: bytes, path: str) -> tuple[Mapping[str, Any], list[Record]]:
    """Return (writer's schema of the record, all records) of an Avro file.

    The errors are those of :func:`read_table`.
    """
    return record_of(Container(pa.BufferReader(data), path).schema, path)[0], read_table(data, path).to_pylist()


def with_record_root(data: bytes, path: str) -> tuple[bytes, bool]:
    """Convert an Avro file for readers that accept only a record as root.

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
