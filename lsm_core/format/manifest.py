"""Manifests, manifest lists and index manifests: the files that list a snapshot's files (format.md 4, 10).

A manifest contains entries: data files that a commit added or deleted. An ADD and a DELETE entry of the same file
cancel each other. A manifest list contains a snapshot's manifests, with statistics for skipping manifests. An index
manifest contains the complete set of a snapshot's index files.

Entries are flat Arrow columns (`ENTRY_SCHEMA`). Only the entries of buckets that are being processed become objects.
The Avro schemas are compatible with Java 1.3 to 2.1.

Source: ``ManifestEntry``, ``FileEntry.mergeEntries``, ``ManifestFileMeta``, ``IndexManifestEntry``.
"""

from __future__ import annotations

import io
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate, pairwise
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array, one_array, places_within
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.format.avro import (
    Container,
    Piece,
    Record,
    arrow_schema,
    encode_columns,
    read_joined,
    read_records,
    read_table,
    record_of,
    records_piece,
    write_pieces,
    write_records,
)
from lsm_core.format.binary_row import EMPTY_ROW, decode_rows, encode_rows
from lsm_core.format.stats import SimpleStats, stats_of_columns
from lsm_core.format.xxhash64 import xxhash64
from lsm_core.json_text import parse_json
from lsm_core.types import MAX_LENGTH, DataType, TypeRoot

_ROOT = "org.apache.paimon.avro.generated.record"

VERSION: Final = 2
"""Serializer version of manifest entries and lists."""
INDEX_VERSION: Final = 1
"""Serializer version of index manifests."""


def _nullable(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def _required(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def _array(item: Any) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _stats_schema(name: str) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            _required("_MIN_VALUES", "bytes"),
            _required("_MAX_VALUES", "bytes"),
            _nullable("_NULL_COUNTS", _array(["null", "long"])),
        ],
    }


_FILE = {
    "type": "record",
    "name": f"{_ROOT}__FILE",
    "fields": [
        _required("_FILE_NAME", "string"),
        _required("_FILE_SIZE", "long"),
        _required("_ROW_COUNT", "long"),
        _required("_MIN_KEY", "bytes"),
        _required("_MAX_KEY", "bytes"),
        _required("_KEY_STATS", _stats_schema(f"{_ROOT}__FILE__KEY_STATS")),
        _required("_VALUE_STATS", _stats_schema(f"{_ROOT}__FILE__VALUE_STATS")),
        _required("_MIN_SEQUENCE_NUMBER", "long"),
        _required("_MAX_SEQUENCE_NUMBER", "long"),
        _required("_SCHEMA_ID", "long"),
        _required("_LEVEL", "int"),
        _required("_EXTRA_FILES", _array("string")),
        _nullable("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
        _nullable("_DELETE_ROW_COUNT", "long"),
        _nullable("_EMBEDDED_FILE_INDEX", "bytes"),
        _nullable("_FILE_SOURCE", "int"),
        _nullable("_VALUE_STATS_COLS", _array("string")),
        _nullable("_EXTERNAL_PATH", "string"),
        _nullable("_FIRST_ROW_ID", "long"),
        _nullable("_WRITE_COLS", _array("string")),
    ],
}

MANIFEST_ENTRY: Final[dict[str, Any]] = {
    "type": "record",
    "name": _ROOT,
    "fields": [
        _required("_VERSION", "int"),
        _required("_KIND", "int"),
        _required("_PARTITION", "bytes"),
        _required("_BUCKET", "int"),
        _required("_TOTAL_BUCKETS", "int"),
        _required("_FILE", _FILE),
    ],
}

_LIST_FIELDS = [
    _required("_VERSION", "int"),
    _required("_FILE_NAME", "string"),
    _required("_FILE_SIZE", "long"),
    _required("_NUM_ADDED_FILES", "long"),
    _required("_NUM_DELETED_FILES", "long"),
    _required("_PARTITION_STATS", _stats_schema(f"{_ROOT}__PARTITION_STATS")),
    _required("_SCHEMA_ID", "long"),
    _nullable("_MIN_BUCKET", "int"),
    _nullable("_MAX_BUCKET", "int"),
    _nullable("_MIN_LEVEL", "int"),
    _nullable("_MAX_LEVEL", "int"),
]

MANIFEST_LIST: Final[dict[str, Any]] = {"type": "record", "name": _ROOT, "fields": _LIST_FIELDS}
"""Avro schema of manifest lists in Paimon 1.3."""

MANIFEST_LIST_WITH_ROW_IDS: Final[dict[str, Any]] = {
    "type": "record",
    "name": _ROOT,
    "fields": [*_LIST_FIELDS, _nullable("_MIN_ROW_ID", "long"), _nullable("_MAX_ROW_ID", "long")],
}
"""Avro schema of manifest lists in Paimon 1.4 and later, used only if a range of row ids must be kept."""

_RANGE = {
    "type": "record",
    "name": f"{_ROOT}__DELETIONS_VECTORS_RANGES",
    "fields": [
        _required("f0", "string"),
        _required("f1", "int"),
        _required("f2", "int"),
        _nullable("_CARDINALITY", "long"),
    ],
}

INDEX_MANIFEST: Final[dict[str, Any]] = {
    "type": "record",
    "name": _ROOT,
    "fields": [
        _required("_VERSION", "int"),
        _required("_KIND", "int"),
        _required("_PARTITION", "bytes"),
        _required("_BUCKET", "int"),
        _required("_INDEX_TYPE", "string"),
        _required("_FILE_NAME", "string"),
        _required("_FILE_SIZE", "long"),
        _required("_ROW_COUNT", "long"),
        _nullable("_DELETIONS_VECTORS_RANGES", _array(["null", _RANGE])),
        _nullable("_EXTERNAL_PATH", "string"),
    ],
}
"""Avro schema of index manifests in Paimon 1.3; 1.4 adds `GLOBAL_INDEX`, which only global indexes need."""
GLOBAL_INDEX: Final = _nullable(
    "_GLOBAL_INDEX",
    {
        "type": "record",
        "name": f"{_ROOT}__GLOBAL_INDEX",
        "fields": [
            _required("_ROW_RANGE_START", "long"),
            _required("_ROW_RANGE_END", "long"),
            _required("_INDEX_FIELD_ID", "int"),
            _nullable("_EXTRA_FIELD_IDS", _array("int")),
            _nullable("_INDEX_META", "bytes"),
            _nullable("_SOURCE_META", "bytes"),
        ],
    },
)
"""Avro field of index manifests for global indexes, as Paimon 2.0 writes it."""


ADD: Final = 0
DELETE: Final = 1
SOURCE_APPEND: Final = 0
SOURCE_COMPACT: Final = 1


@dataclass(frozen=True)
class DataFileMeta:
    """One data file (Java `DataFileMeta`).

    Attributes:
        file_name: name of the file.
        file_size: size in bytes.
        row_count: number of rows, including deletes.
        min_key: smallest key, a serialised BinaryRow of the trimmed primary key (`EMPTY_ROW` for append files).
        max_key: largest key, in the same form.
        key_stats: statistics of the key columns.
        value_stats: statistics of the value columns.
        min_sequence_number: smallest sequence number.
        max_sequence_number: largest sequence number.
        schema_id: id of the file's schema.
        level: level in the LSM tree.
        extra_files: names of side files (indexes).
        creation_time_ms: time of creation (ms), or None. Java stores local time encoded as if it were UTC; Dredge
            stores epoch ms.
        delete_row_count: number of delete rows, or None if unknown.
        embedded_index: content of an embedded index, or None.
        file_source: 0 for append, 1 for compact, None if unknown.
        value_stats_cols: columns with value statistics, or None for all.
        external_path: path of a file outside the table's folder, or None.
        first_row_id: id of the first row with row tracking, or None.
        write_cols: columns that the file contains, or None for all.
        unknown: comma-separated names of non-null entry fields that this version does not know, or None. An entry with
            unknown fields can be read and deleted, but not written as an addition.
    """

    file_name: str
    file_size: int
    row_count: int
    min_key: bytes
    max_key: bytes
    key_stats: SimpleStats
    value_stats: SimpleStats
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int
    extra_files: tuple[str, ...] = ()
    creation_time_ms: int | None = None
    delete_row_count: int | None = None
    embedded_index: bytes | None = None
    file_source: int | None = None
    value_stats_cols: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: int | None = None
    write_cols: tuple[str, ...] | None = None
    unknown: str | None = None

    def upgrade(self, level: int) -> DataFileMeta:
        """Return the same file on another level; only metadata changes (Java `DataFileMeta.upgrade`)."""
        return replace(self, level=level)


@dataclass(frozen=True)
class ManifestEntry:
    """One change to the set of files (Java `ManifestEntry`).

    Attributes:
        kind: 0 adds the file, 1 deletes it.
        partition: partition as a serialised BinaryRow.
        bucket: bucket of the file.
        total_buckets: number of buckets of the partition at the time of writing.
        file: the data file.
    """

    kind: int
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFileMeta

    @property
    def identity(self) -> tuple[Any, ...]:
        """Values that are equal for two entries of the same file (Java `FileEntry.Identifier`)."""
        file = self.file
        return (
            self.partition,
            self.bucket,
            file.level,
            file.file_name,
            file.extra_files,
            file.embedded_index,
            file.external_path,
        )


_LONGS = pa.list_(pa.int64())
_TEXTS = pa.list_(pa.string())

BLOB_EXTENSION: Final = ".blob"
"""End of the names of files with the values of one BLOB column."""


def is_blob_file(file_name: str) -> bool:
    """Return whether a data file contains the values of one BLOB column."""
    return file_name.endswith(BLOB_EXTENSION)


ENTRY_SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("partition", pa.binary(), nullable=False),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("total_buckets", pa.int32(), nullable=False),
        pa.field("file_name", pa.string(), nullable=False),
        pa.field("file_size", pa.int64(), nullable=False),
        pa.field("row_count", pa.int64(), nullable=False),
        pa.field("min_key", pa.binary(), nullable=False),
        pa.field("max_key", pa.binary(), nullable=False),
        pa.field("key_stats_min", pa.binary(), nullable=False),
        pa.field("key_stats_max", pa.binary(), nullable=False),
        pa.field("key_stats_nulls", _LONGS),
        pa.field("value_stats_min", pa.binary(), nullable=False),
        pa.field("value_stats_max", pa.binary(), nullable=False),
        pa.field("value_stats_nulls", _LONGS),
        pa.field("min_sequence_number", pa.int64(), nullable=False),
        pa.field("max_sequence_number", pa.int64(), nullable=False),
        pa.field("schema_id", pa.int64(), nullable=False),
        pa.field("level", pa.int32(), nullable=False),
        pa.field("extra_files", _TEXTS, nullable=False),
        pa.field("creation_time_ms", pa.int64()),
        pa.field("delete_row_count", pa.int64()),
        pa.field("embedded_index", pa.binary()),
        pa.field("file_source", pa.int8()),
        pa.field("value_stats_cols", _TEXTS),
        pa.field("external_path", pa.string()),
        pa.field("first_row_id", pa.int64()),
        pa.field("write_cols", _TEXTS),
        pa.field("unknown", pa.string()),
    ]
)
"""Arrow schema of manifest entries as flat columns, which plans, pruning, health and expiry use."""

_SAME_NAME = (
    "file_name",
    "file_size",
    "row_count",
    "min_key",
    "max_key",
    "min_sequence_number",
    "max_sequence_number",
    "schema_id",
    "level",
    "creation_time_ms",
    "delete_row_count",
    "embedded_index",
    "file_source",
    "external_path",
    "first_row_id",
    "unknown",
)


def entries_to_table(entries: Sequence[ManifestEntry]) -> pa.Table:
    """Return entry objects as a table (`ENTRY_SCHEMA`), in the same order."""
    files = [entry.file for entry in entries]
    columns: dict[str, list[Any]] = {name: [getattr(file, name) for file in files] for name in _SAME_NAME}
    columns["kind"] = [entry.kind for entry in entries]
    columns["partition"] = [entry.partition for entry in entries]
    columns["bucket"] = [entry.bucket for entry in entries]
    columns["total_buckets"] = [entry.total_buckets for entry in entries]
    for name, stats in (("key_stats", [f.key_stats for f in files]), ("value_stats", [f.value_stats for f in files])):
        columns[f"{name}_min"] = [s.min_values for s in stats]
        columns[f"{name}_max"] = [s.max_values for s in stats]
        columns[f"{name}_nulls"] = [s.null_counts for s in stats]
    for name in ("extra_files", "value_stats_cols", "write_cols"):
        columns[name] = [getattr(file, name) for file in files]
    return pa.table([arrow_array(columns[f.name], f.type) for f in ENTRY_SCHEMA], schema=ENTRY_SCHEMA)


def table_to_entries(table: pa.Table) -> list[ManifestEntry]:
    """Return the entries of an `ENTRY_SCHEMA` table as objects, one per row.

    Objects are slow, so call this function only for the entries of buckets that are processed.
    """
    places = (table.column(name).to_pylist() for name in ("kind", "partition", "bucket", "total_buckets"))
    return list(map(ManifestEntry, *places, columns_to_files(table)))


def columns_to_files(columns: pa.Table | pa.RecordBatch) -> list[DataFileMeta]:
    """Return the files of manifest entries as objects, one per row.

    Args:
        columns: the columns of `ENTRY_SCHEMA`; nullable ones and those of the place may be absent.
    """
    stored, count = set(columns.schema.names), columns.num_rows
    values: dict[str, Sequence[Any]] = {
        field.name: columns.column(field.name).to_pylist() if field.name in stored else [None] * count
        for field in ENTRY_SCHEMA
        if field.name not in ("kind", "partition", "bucket", "total_buckets")
    }
    for name in ("value_stats_cols", "write_cols", "key_stats_nulls", "value_stats_nulls"):
        values[name] = [None if value is None else tuple(value) for value in values[name]]
    values["extra_files"] = [tuple(names or ()) for names in values["extra_files"]]
    for name in ("key_stats", "value_stats"):
        values[name] = list(map(SimpleStats, *(values[f"{name}_{part}"] for part in ("min", "max", "nulls"))))
    return list(map(DataFileMeta, *(values[name] for name in _MEMBERS)))


_MEMBERS: Final = tuple(member.name for member in fields(DataFileMeta))


# Avro field inside _FILE, ENTRY_SCHEMA column; statistics are one level deeper.
_FILE_FIELDS: tuple[tuple[str, str], ...] = (
    ("_FILE_NAME", "file_name"),
    ("_FILE_SIZE", "file_size"),
    ("_ROW_COUNT", "row_count"),
    ("_MIN_KEY", "min_key"),
    ("_MAX_KEY", "max_key"),
    ("_MIN_SEQUENCE_NUMBER", "min_sequence_number"),
    ("_MAX_SEQUENCE_NUMBER", "max_sequence_number"),
    ("_SCHEMA_ID", "schema_id"),
    ("_LEVEL", "level"),
    ("_EXTRA_FILES", "extra_files"),
    ("_CREATION_TIME", "creation_time_ms"),
    ("_DELETE_ROW_COUNT", "delete_row_count"),
    ("_EMBEDDED_FILE_INDEX", "embedded_index"),
    ("_FILE_SOURCE", "file_source"),
    ("_VALUE_STATS_COLS", "value_stats_cols"),
    ("_EXTERNAL_PATH", "external_path"),
    ("_FIRST_ROW_ID", "first_row_id"),
    ("_WRITE_COLS", "write_cols"),
)
_STATS_FIELDS = (("_MIN_VALUES", "min"), ("_MAX_VALUES", "max"), ("_NULL_COUNTS", "nulls"))
_STATS = {"_KEY_STATS": "key_stats", "_VALUE_STATS": "value_stats"}
# Small enough for the processor's cache, large enough to make the cost of calls negligible.
_SLICE_ROWS = 4096
_MAX_SINGLE_ROWS = 64
"""Largest number of entries that are encoded one by one, which is faster for few entries."""
_TOP_FIELDS = (
    ("_KIND", "kind"),
    ("_PARTITION", "partition"),
    ("_BUCKET", "bucket"),
    ("_TOTAL_BUCKETS", "total_buckets"),
)
_KNOWN = frozenset({"_VERSION", "_FILE", *(name for name, _ in _TOP_FIELDS)})
_KNOWN_OF_FILE = frozenset(name for name, _ in _FILE_FIELDS)

_MAX_LONG = (1 << 63) - 1
_RANGES = {
    "kind": (0, 1),
    "bucket": (-2, _MAX_LONG),
    "level": (0, 1023),
    "row_count": (0, _MAX_LONG),
    "file_size": (0, _MAX_LONG),
}
"""Allowed ranges of an entry's numbers, so that sums and indexes computed from them are safe."""


def encode_manifest(table: pa.Table) -> bytes:
    """Return a manifest file of entries (`ENTRY_SCHEMA`): Avro, zstd, Java's record names, fields of Paimon 1.3.

    Raises:
        UnsupportedFeature: an ADD entry has fields that this version does not know; the message names the file.
    """
    require_known(table)
    if table.num_rows <= _MAX_SINGLE_ROWS:
        return write_pieces(MANIFEST_ENTRY, [records_piece(MANIFEST_ENTRY, map(_record, table.to_pylist()))])
    slices = [table.slice(first, _SLICE_ROWS) for first in range(0, table.num_rows, _SLICE_ROWS)]
    return write_pieces(MANIFEST_ENTRY, (_encode_slice(part) for part in slices))


def require_known(table: pa.Table) -> None:
    """Check that no entry that adds a file has fields that this version does not know.

    Raises:
        UnsupportedFeature: an ADD entry has unknown fields; the message names the file.
    """
    lost = has_unknown(table)
    if lost is not None:
        fields, name = lost
        raise UnsupportedFeature(f"rewriting the manifest entry of {name}, whose {fields} this version does not know")


def has_unknown(table: pa.Table) -> tuple[str, str] | None:
    """Return (unknown fields, file name) of the first ADD entry with unknown fields, or None."""
    unknown = table.column("unknown")
    if unknown.null_count == len(unknown):
        return None
    is_affected = pc.and_(pc.is_valid(unknown), pc.equal(table.column("kind"), ADD))
    first_entry = table.select(["unknown", "file_name"]).filter(is_affected).slice(0, 1).to_pylist()
    return (first_entry[0]["unknown"], first_entry[0]["file_name"]) if first_entry else None


def _record(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return one entry as an Avro record."""
    file = {avro: entry[name] for avro, name in _FILE_FIELDS}
    for avro, name in _STATS.items():
        file[avro] = {member: entry[f"{name}_{suffix}"] for member, suffix in _STATS_FIELDS}
    return {"_VERSION": VERSION, **{avro: entry[name] for avro, name in _TOP_FIELDS}, "_FILE": file}


def _encode_slice(table: pa.Table) -> Piece:
    """Encode entries as Avro records; `from_avro_table` is the inverse."""
    arrays = {name: one_array(table.column(name), ENTRY_SCHEMA.field(name).type) for name in ENTRY_SCHEMA.names}
    declared = arrow_schema(MANIFEST_ENTRY)
    columns = dict(_FILE_FIELDS)
    members = []
    for field in declared.field("_FILE").type:
        if field.name in _STATS:
            parts = [arrays[f"{_STATS[field.name]}_{suffix}"] for _, suffix in _STATS_FIELDS]
            members.append(pa.StructArray.from_arrays(parts, names=[name for name, _ in _STATS_FIELDS]))
        else:
            members.append(arrays[columns[field.name]])
    file = pa.StructArray.from_arrays(members, names=[field.name for field in declared.field("_FILE").type])
    version = pa.repeat(arrow_scalar(VERSION, pa.int32()), table.num_rows)
    return encode_columns([version, *(arrays[name] for _, name in _TOP_FIELDS), file], declared)


def decode_manifest(data: bytes, path: str, rows: int | None = None) -> pa.Table:
    """Return the entries of a manifest file as `ENTRY_SCHEMA` columns, in file order.

    Args:
        data: content of the file.
        path: path of the file, for messages.
        rows: the expected number of entries, or None if unknown.

    Returns:
        The entries.

    Raises:
        CorruptFile: the file is damaged, or does not have ``rows`` entries; the message names ``path``.
        UnsupportedFeature: the serializer version is unknown.
    """
    return from_avro_table(read_table(data, path, rows), path)


def decode_manifests(files: Sequence[tuple[bytes, str, int]]) -> list[pa.Table]:
    """Return the entries of each of several small manifests, which are decoded together (:func:`read_joined`).

    Args:
        files: content, path and expected number of entries of each manifest.

    Raises:
        CorruptFile: a manifest is damaged, or has another number of entries; the message names its path.
        UnsupportedFeature: the serializer version of a manifest is unknown.
    """
    decoded = read_joined(files) if len(files) > 1 else None
    try:
        entries = None if decoded is None else from_avro_table(decoded[0])
    except (CorruptFile, UnsupportedFeature):
        entries = None
    if decoded is None or entries is None:  # one by one: an error then names the manifest
        return [decode_manifest(*file) for file in files]
    ends = list(accumulate(decoded[1]))
    return [entries.slice(start, end - start) for start, end in pairwise([0, *ends])]


def from_avro_table(table: pa.Table, path: str = "") -> pa.Table:
    """Convert a manifest from nested Arrow columns of an Avro reader to `ENTRY_SCHEMA` columns.

    The nested columns are `_KIND`, .., `_FILE` (a struct).

    Fields that older writers lacked become null. The names of unknown fields with values are kept.

    Args:
        table: the nested columns.
        path: path of the manifest, for messages.

    Returns:
        The entries.

    Raises:
        CorruptFile: a required field is missing or null, a field has a wrong type, or a number is out of range.
        UnsupportedFeature: the serializer version is unknown.
    """
    versions = _member(table, "_VERSION")
    if versions is None:
        raise CorruptFile(path, "manifest has no _VERSION")
    found_versions = pc.unique(versions).to_pylist()
    if any(version != VERSION for version in found_versions):
        raise UnsupportedFeature(f"manifest entries of serializer version {found_versions} ({path}); known: {VERSION}")
    top = {name: _member(table, avro) for avro, name in _TOP_FIELDS}
    file = _member(table, "_FILE")
    if file is None:
        raise CorruptFile(path, "manifest has no _FILE")
    members = _children(file)
    columns: dict[str, Any] = {**top, **{name: members.get(avro) for avro, name in _FILE_FIELDS}}
    for avro, name in _STATS.items():
        stats = _children(members[avro]) if avro in members else {}
        for member, suffix in _STATS_FIELDS:
            columns[f"{name}_{suffix}"] = stats.get(member)
    columns["unknown"] = _unknown_fields(table, file)
    arrays = [_cast_column(columns[field.name], field, table.num_rows, path) for field in ENTRY_SCHEMA]
    decoded = pa.Table.from_arrays(arrays, schema=ENTRY_SCHEMA)
    for name, (least, most) in _RANGES.items():
        bounds = pc.min_max(decoded.column(name)).as_py()
        if bounds["min"] is not None and not (least <= bounds["min"] and bounds["max"] <= most):
            raise CorruptFile(path, f"manifest field {name} is {bounds['min']} to {bounds['max']}")
    return decoded


def _unknown_fields(table: pa.Table, file: Any) -> Any:
    """Return for each entry the joined names of its unknown non-null fields; None if no entry has unknown fields.

    Args:
        table: decoded manifest entries with all stored fields.
        file: the struct column of the data file's fields.
    """
    columns = {name: table.column(name) for name in table.column_names if name not in _KNOWN}
    for field in file.type:
        if field.name in _STATS:
            unknown_members = [inner.name for inner in field.type if inner.name not in dict(_STATS_FIELDS)]
            columns |= {
                f"_FILE.{field.name}.{name}": pc.struct_field(file, [field.name, name]) for name in unknown_members
            }
        elif field.name not in _KNOWN_OF_FILE:
            columns[f"_FILE.{field.name}"] = pc.struct_field(file, field.name)
    used = {name: column for name, column in columns.items() if column.null_count < len(column)}
    if not used:
        return None
    null_text = arrow_scalar(None, pa.string())
    names = [
        pc.if_else(pc.is_valid(column), arrow_scalar(name, pa.string()), null_text) for name, column in used.items()
    ]
    joined_names = pc.binary_join_element_wise(*names, ", ", null_handling="skip")
    return pc.if_else(pc.equal(joined_names, ""), null_text, joined_names)


def _member(table: pa.Table, name: str) -> Any:
    return table.column(name) if name in table.column_names else None


def _children(struct: Any) -> dict[str, Any]:
    """Return the fields of a struct by name, null where the struct is null."""
    return dict(zip((field.name for field in struct.type), struct.flatten(), strict=True))


def _cast_column(column: Any, field: pa.Field, count: int, path: str) -> Any:
    """Return a column in the type of ``field``.

    A missing nullable column becomes null; any other mismatch raises CorruptFile.

    Args:
        column: the stored column, or None if it is missing.
        field: name, type and nullability of the result.
        count: number of rows.
        path: path of the file, for messages.
    """
    if column is None:
        if not field.nullable:
            raise CorruptFile(path, f"manifest entries lack {field.name}")
        return pa.nulls(count, field.type)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
    try:
        converted = column if column.type.equals(field.type) else column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptFile(path, f"manifest field {field.name}: {error}") from error
    if converted.null_count and not field.nullable:
        raise CorruptFile(path, f"manifest field {field.name} is null")
    return converted


_TEXT = DataType(TypeRoot.VARCHAR, length=MAX_LENGTH)
_BYTES = DataType(TypeRoot.VARBINARY, length=MAX_LENGTH)
_INT = DataType(TypeRoot.INT)


def partitions_of(entries: pa.Table) -> list[bytes]:
    """Return the distinct partitions of entries, in order of appearance."""
    return [bytes(value) for value in pc.unique(entries.column("partition")).to_pylist()]


def merge_entries(table: pa.Table, path: str = "") -> pa.Table:
    """Return the remaining entries after cancelling additions and deletions of the same file.

    An ADD cancels with a later DELETE of the same identity (partition, bucket, level, name, extra files, embedded
    index, external path). A DELETE without its ADD stays.

    Args:
        table: entries in commit order. The table needs the column ``kind`` and the columns of the identity, and may
            have any other columns of `ENTRY_SCHEMA`.
        path: path for messages.

    Returns:
        The remaining entries, with all columns of ``table``.

    Raises:
        CorruptFile: a file is added while it exists; the message names the file.
    """
    names = pc.dictionary_encode(one_array(table.column("file_name")))
    codes = numpy_array(names.indices)
    counts = np.bincount(codes, minlength=1)
    if not (counts > 1).any():
        return table
    # Only repeated names can be the same file, but an upgrade repeats a name too, so the identity decides.
    repeated = np.flatnonzero(counts[codes] > 1)
    groups = identity_codes(table.take(arrow_array(repeated)))
    order = np.argsort(groups, kind="stable")
    sorted_groups = groups[order]
    starts = np.flatnonzero(np.r_[True, sorted_groups[1:] != sorted_groups[:-1]])
    sizes = np.diff(np.r_[starts, len(order)])
    position = places_within(sizes)
    kinds = numpy_array(table.column("kind"))[repeated][order]
    # Each entry toggles presence: an addition adds the file, a deletion removes it or is itself kept.
    is_second_addition = (kinds == ADD) & (position % 2 == 1)
    if is_second_addition.any():
        row = int(repeated[order[int(np.argmax(is_second_addition))]])
        raise CorruptFile(path, f"file {table.column('file_name')[row].as_py()} is added twice")
    keep = np.ones(table.num_rows, np.bool_)
    keep[repeated] = False
    is_odd = sizes % 2 == 1
    keep[repeated[order[(starts + sizes - 1)[is_odd]]]] = True
    return table.filter(arrow_array(keep))


def identity_codes(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a number per entry that is equal for equal identities (Java `FileEntry.Identifier`)."""
    codes: np.ndarray[tuple[int], np.dtype[np.int64]]
    codes = numpy_array(pc.dictionary_encode(identity_rows(table)).indices).astype(np.int64)
    return codes


def identity_rows(table: pa.Table) -> pa.Array:
    """Return Java's `FileEntry.Identifier` of each entry, as bytes."""
    columns = [
        table.column("partition"),
        table.column("bucket"),
        table.column("level"),
        table.column("file_name"),
        # File names contain no NUL, so the joined lists are unambiguous.
        pc.binary_join(table.column("extra_files"), arrow_scalar("\0")),
        table.column("embedded_index"),
        table.column("external_path"),
    ]
    return one_array(encode_rows(columns, [_BYTES, _INT, _INT, _TEXT, _TEXT, _BYTES, _TEXT]))


class HashesMeet(ValueError):
    """Error of `Cancelling`: two deleted files have the same hash; use :func:`merge_entries` instead."""


class Cancelling:
    """Filter that removes deleted files from the manifests of a snapshot, which are passed in commit order.

    Each DELETE entry cancels one ADD entry of the same file, the earliest that is left. An ADD entry stays if no DELETE
    entry of its file is left. The result for all manifests of a snapshot equals :func:`merge_entries`, but only the
    DELETE entries are in memory.
    """

    def __init__(self, deletions: pa.Table) -> None:
        """Prepare the filter.

        Args:
            deletions: all DELETE entries of the manifests, with the columns of the identity.

        Raises:
            HashesMeet: two identities have the same 64-bit hash.
        """
        rows = identity_rows(deletions)
        codes = numpy_array(pc.dictionary_encode(rows).indices)
        _, first, counts = np.unique(codes, return_index=True, return_counts=True)
        distinct = rows.take(arrow_array(first))
        hashes = xxhash64(distinct)
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._left = hashes[order], counts[order]
        self._rows = distinct.take(arrow_array(order))
        if len(np.unique(self._hashes)) < len(self._hashes):
            raise HashesMeet("two deleted files have one hash")

    def survivors(self, entries: pa.Table) -> pa.Table:
        """Return the ADD entries of the next manifest that no DELETE entry cancels, in order."""
        added = entries.filter(pc.equal(entries.column("kind"), arrow_scalar(ADD)))
        if not len(self._hashes) or not added.num_rows:
            return added
        rows = identity_rows(added)
        hashes = xxhash64(rows)
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        candidates = np.flatnonzero(self._hashes[places] == hashes)
        is_equal = numpy_array(
            pc.equal(rows.take(arrow_array(candidates)), self._rows.take(arrow_array(places[candidates])))
        )
        candidates = candidates[is_equal]
        if not len(candidates):
            return added
        deletion_index = places[candidates]
        order = np.argsort(deletion_index, kind="stable")
        ids, counts = np.unique(deletion_index[order], return_counts=True)
        rank = places_within(counts)
        keep = np.ones(added.num_rows, np.bool_)
        keep[candidates[order]] = rank >= np.repeat(self._left[ids], counts)
        self._left[ids] = np.maximum(self._left[ids] - counts, 0)
        return added.filter(arrow_array(keep))


@dataclass(frozen=True)
class ManifestFileMeta:
    """Entry of a manifest list: one manifest file (Java `ManifestFileMeta`).

    Attributes:
        file_name: name of the file.
        file_size: exact size in bytes.
        num_added_files: number of additions.
        num_deleted_files: number of deletions.
        partition_stats: statistics of the partitions of the manifest's entries.
        schema_id: largest schema id of the manifest's entries.
        min_bucket: smallest bucket, or None if unknown.
        max_bucket: largest bucket, or None if unknown.
        min_level: smallest level, or None if unknown.
        max_level: largest level, or None if unknown.
        min_row_id: smallest row id, or None if unknown.
        max_row_id: largest row id, or None if unknown.
        others: fields that this version does not know, as Avro definition (JSON) and value; they are written back.
    """

    file_name: str
    file_size: int
    num_added_files: int
    num_deleted_files: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None
    others: tuple[tuple[str, Any], ...] = ()

    @property
    def sidecars(self) -> tuple[str, ...]:
        """Names of the files that accompany the manifest in its directory, from the field `_EXTRA_FILES` of Paimon 2.1.

        Only names of the form ``<file_name>.<...>.sidecar`` are returned. A damaged or forged manifest list may contain
        any text, and callers delete these files together with the manifest.
        """
        names: list[str] = []
        for definition, value in self.others:
            if parse_json(definition).get("name") == "_EXTRA_FILES" and isinstance(value, list):
                names += [name for name in value if isinstance(name, str) and self._is_sidecar(name)]
        return tuple(dict.fromkeys(names))

    def _is_sidecar(self, name: str) -> bool:
        return name.startswith(f"{self.file_name}.") and name.endswith(".sidecar") and "/" not in name


_FIELDS = (
    ("_FILE_NAME", "file_name", str),
    ("_FILE_SIZE", "file_size", int),
    ("_NUM_ADDED_FILES", "num_added_files", int),
    ("_NUM_DELETED_FILES", "num_deleted_files", int),
    ("_SCHEMA_ID", "schema_id", int),
)
_NULLABLE = (
    ("_MIN_BUCKET", "min_bucket"),
    ("_MAX_BUCKET", "max_bucket"),
    ("_MIN_LEVEL", "min_level"),
    ("_MAX_LEVEL", "max_level"),
    ("_MIN_ROW_ID", "min_row_id"),
    ("_MAX_ROW_ID", "max_row_id"),
)


def encode_manifest_list(metas: Sequence[ManifestFileMeta]) -> bytes:
    """Return the content of a manifest list; without manifests, as for a first snapshot, the file has no rows.

    Raises:
        UnsupportedFeature: unknown fields cannot be written back.
    """
    keeps_row_ids = any(meta.min_row_id is not None or meta.max_row_id is not None for meta in metas)
    schema = MANIFEST_LIST_WITH_ROW_IDS if keeps_row_ids else MANIFEST_LIST
    unknown_fields = {definition: parse_json(definition) for meta in metas for definition, _ in meta.others}
    names = [field["name"] for field in unknown_fields.values()]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise UnsupportedFeature(
            f"writing a manifest list whose field {repeated}, unknown to this version, has two types"
        )
    schema = {**schema, "fields": [*schema["fields"], *unknown_fields.values()]}
    nullable = _NULLABLE if keeps_row_ids else _NULLABLE[:4]
    records: list[Record] = []
    for meta in metas:
        stats, nulls = meta.partition_stats, meta.partition_stats.null_counts
        record: Record = {"_VERSION": VERSION}
        record |= {avro: getattr(meta, name) for avro, name, _ in _FIELDS}
        record |= {avro: getattr(meta, name) for avro, name in nullable}
        record["_PARTITION_STATS"] = {
            "_MIN_VALUES": stats.min_values,
            "_MAX_VALUES": stats.max_values,
            "_NULL_COUNTS": None if nulls is None else list(nulls),
        }
        record |= dict.fromkeys(names) | {
            unknown_fields[definition]["name"]: value for definition, value in meta.others
        }
        records.append(record)
    try:
        return write_records(schema, records)
    except (TypeError, ValueError) as error:
        if not unknown_fields:
            raise
        fields = ", ".join(names)
        raise UnsupportedFeature(f"writing a manifest list with {fields}, unknown to this version: {error}") from error


def decode_manifest_list(data: bytes, path: str) -> list[ManifestFileMeta]:
    """Return the manifests of a manifest list, in file order.

    Raises:
        CorruptFile: the file is damaged; the message names ``path``.
        UnsupportedFeature: the serializer version is unknown.
    """
    table = read_table(data, path)
    return _manifests_of(table, _unknown_definitions(table, data, path), path)


def decode_manifest_lists(files: Sequence[tuple[bytes, str]]) -> list[list[ManifestFileMeta]]:
    """Return the manifests of each of several small manifest lists, which are decoded together (:func:`read_joined`).

    Args:
        files: content and path of each manifest list.

    Raises:
        CorruptFile: a file is damaged; the message names its path.
        UnsupportedFeature: the serializer version of a manifest list is unknown.
    """
    decoded = read_joined([(*file, None) for file in files]) if len(files) > 1 else None
    if decoded is not None:
        table, counts = decoded
        try:
            metas = _manifests_of(table, _unknown_definitions(table, *files[0]), "")
        except (CorruptFile, UnsupportedFeature):
            pass  # one by one: the error then names the manifest list
        else:
            return [metas[start:end] for start, end in pairwise([0, *accumulate(counts)])]
    return [decode_manifest_list(*file) for file in files]


def _manifests_of(table: pa.Table, unknown_fields: Mapping[str, str], path: str) -> list[ManifestFileMeta]:
    """Return the manifests in the records of manifest lists.

    Args:
        table: the records.
        unknown_fields: definitions of unknown fields by name (:func:`_unknown_definitions`).
        path: path of the manifest list, for messages.
    """
    metas = []
    for record in table.to_pylist():
        version = record.get("_VERSION")
        if version != VERSION:
            raise UnsupportedFeature(f"manifest list of serializer version {version} ({path}); known: {VERSION}")
        values: dict[str, Any] = {}
        for avro, name, kind in _FIELDS:
            value = record.get(avro)
            if not isinstance(value, kind):
                raise CorruptFile(path, f"manifest list field {avro} is {value!r}")
            values[name] = value
        values |= {name: record.get(avro) for avro, name in _NULLABLE}
        stats = stats_from_record(record.get("_PARTITION_STATS"), path)
        others = tuple(
            (definition, record[name]) for name, definition in unknown_fields.items() if record[name] is not None
        )
        metas.append(ManifestFileMeta(partition_stats=stats, others=others, **values))
    return metas


def _unknown_definitions(table: pa.Table, data: bytes, path: str) -> dict[str, str]:
    """Return the Avro definitions (JSON) of unknown fields that have values, by field name.

    Args:
        table: the decoded manifest list.
        data: bytes of the manifest list.
        path: path of the manifest list, for messages.
    """
    known = {"_VERSION", "_PARTITION_STATS", *(avro for avro, *_ in (*_FIELDS, *_NULLABLE))}
    names = [name for name in table.column_names if name not in known and table.column(name).null_count < len(table)]
    if not names:
        return {}
    schema, _ = read_records(data, path)
    return {field["name"]: json.dumps(field, sort_keys=True) for field in schema["fields"] if field["name"] in names}


def stats_from_record(record: Any, path: str) -> SimpleStats:
    """Return the statistics that an Avro record contains.

    Raises:
        CorruptFile: the value is not a record with bounds; the message names ``path``.
    """
    if not isinstance(record, dict) or not {"_MIN_VALUES", "_MAX_VALUES"} <= record.keys():
        raise CorruptFile(path, f"statistics are {type(record).__name__}, not a record of bounds")
    nulls = record.get("_NULL_COUNTS")
    return SimpleStats(record["_MIN_VALUES"], record["_MAX_VALUES"], None if nulls is None else tuple(nulls))


def manifest_meta(
    table: pa.Table, file_name: str, file_size: int, partition_types: Sequence[DataType], schema_id: int
) -> ManifestFileMeta:
    """Return the manifest-list row of a manifest.

    Args:
        table: entries of the manifest (`ENTRY_SCHEMA`).
        file_name: file name of the manifest.
        file_size: size of the manifest in bytes.
        partition_types: types of the partition columns.
        schema_id: the latest schema id, used for a manifest without entries.

    Returns:
        The row.

    Raises:
        CorruptFile: partition bytes do not fit ``partition_types``.

    Source: `ManifestFile.ManifestEntryWriter.result`.
    """
    added = pc.sum(pc.equal(table.column("kind"), arrow_scalar(ADD))).as_py() or 0
    buckets, levels = (pc.min_max(table.column(name)).as_py() for name in ("bucket", "level"))
    return ManifestFileMeta(
        file_name=file_name,
        file_size=file_size,
        num_added_files=added,
        num_deleted_files=table.num_rows - added,
        partition_stats=partition_stats(table, partition_types, file_name),
        schema_id=pc.max(table.column("schema_id")).as_py() if table.num_rows else schema_id,
        min_bucket=buckets["min"],
        max_bucket=buckets["max"],
        min_level=levels["min"],
        max_level=levels["max"],
    )


def partition_stats(table: pa.Table, partition_types: Sequence[DataType], path: str) -> SimpleStats:
    """Return minimum, maximum and null count of each partition column over all manifest entries in ``table``."""
    if not partition_types:
        return SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
    # Null counts are per entry, so all entries are decoded, not each partition once.
    columns = decode_rows(table.column("partition"), partition_types, path)
    return stats_of_columns(columns, partition_types)


HASH_INDEX: Final = "HASH"
"""Type of index files with the key hashes of a dynamic bucket."""
VECTORS_INDEX: Final = "DELETION_VECTORS"
"""Type of index files with deletion vectors of data files."""


@dataclass(frozen=True)
class DeletionVectorRange:
    """Position of the deletion vector of one data file in an index file.

    Attributes:
        data_file: name of the data file.
        offset: start of the vector (bytes).
        length: size of the vector (bytes).
        cardinality: number of deleted rows, or None if not recorded.
    """

    data_file: str
    offset: int
    length: int
    cardinality: int | None = None


@dataclass(frozen=True)
class GlobalIndexMeta:
    """Rows and column of a global index, or of an index of a primary-key table (Java `GlobalIndexMeta`).

    Attributes:
        first_row: id of the first row; 0 in primary-key tables.
        last_row: id of the last row, inclusive.
        field_id: id of the column.
        extra_field_ids: ids of further columns, or None.
        index_meta: smallest and largest key, in a form that depends on the type of the index, or None.
        source_meta: data files of an index of a primary-key table (`index_sources.decode_sources`), or None.
    """

    first_row: int
    last_row: int
    field_id: int
    extra_field_ids: tuple[int, ...] | None = None
    index_meta: bytes | None = None
    source_meta: bytes | None = None


@dataclass(frozen=True)
class IndexFileMeta:
    """One index file without its partition and bucket (Java `IndexFileMeta`).

    Attributes:
        index_type: type of the index.
        file_name: name of the file.
        file_size: size in bytes.
        row_count: number of hashes of a `HASH` file, of vectors of a `DELETION_VECTORS` file, or of rows.
        deletion_vectors: positions of the vectors, or None.
        external_path: path outside the table's folder, or None.
        global_index: rows and column of a global index, or None.
    """

    index_type: str
    file_name: str
    file_size: int
    row_count: int
    deletion_vectors: tuple[DeletionVectorRange, ...] | None = None
    external_path: str | None = None
    global_index: GlobalIndexMeta | None = None

    def to_list(self) -> list[Any]:
        """Return the fields as a JSON list, with the position of each deletion vector as a nested list."""
        ranges = self.deletion_vectors
        vectors = (
            None
            if ranges is None
            else [[vector.data_file, vector.offset, vector.length, vector.cardinality] for vector in ranges]
        )
        plain = [self.index_type, self.file_name, self.file_size, self.row_count, vectors, self.external_path]
        return plain if self.global_index is None else [*plain, _global_to_list(self.global_index)]

    @staticmethod
    def of_list(value: Any) -> IndexFileMeta:
        """Return the index file whose fields are in ``value``, a JSON list as returned by :meth:`to_list`.

        Raises:
            TypeError: the value does not have the form of :meth:`to_list`; ValueError is possible too.
        """
        kind, name, size, rows, vectors, external, *more = value
        ranges = None if vectors is None else tuple(DeletionVectorRange(*vector) for vector in vectors)
        global_index = _global_of_list(*more) if more else None
        return IndexFileMeta(str(kind), str(name), int(size), int(rows), ranges, external, global_index)


def _global_to_list(index: GlobalIndexMeta) -> list[Any]:
    """Return the fields as a JSON list; bytes as base64."""
    texts = [None if data is None else b64encode(data).decode() for data in (index.index_meta, index.source_meta)]
    extra = None if index.extra_field_ids is None else list(index.extra_field_ids)
    return [index.first_row, index.last_row, index.field_id, extra, *texts]


def _global_of_list(value: Any) -> GlobalIndexMeta:
    """Return the fields that :func:`_global_to_list` returned; TypeError or ValueError for another form."""
    first, last, field_id, extra, *texts = value
    index_meta, source_meta = (None if text is None else b64decode(text, validate=True) for text in texts)
    extra_ids = None if extra is None else tuple(map(int, extra))
    return GlobalIndexMeta(int(first), int(last), int(field_id), extra_ids, index_meta, source_meta)


@dataclass(frozen=True)
class IndexManifestEntry:
    """Entry of an index manifest: one index file of type `HASH` or `DELETION_VECTORS`, or a global index.

    Attributes:
        kind: 0 adds the file, 1 deletes it.
        partition: partition as a serialised BinaryRow.
        bucket: bucket of the file.
        index_type: type of the index.
        file_name: name of the file.
        file_size: size in bytes.
        row_count: number of hashes, vectors or rows.
        deletion_vectors: positions of the vectors, or None.
        external_path: path outside the table's folder, or None.
        is_global: whether the file is a global index.
        global_index: rows and column of a global index; None for other indexes and for an unknown form.
    """

    kind: int
    partition: bytes
    bucket: int
    index_type: str
    file_name: str
    file_size: int
    row_count: int
    deletion_vectors: tuple[DeletionVectorRange, ...] | None = None
    external_path: str | None = None
    is_global: bool = False
    global_index: GlobalIndexMeta | None = None

    @staticmethod
    def of(kind: int, partition: bytes, bucket: int, file: IndexFileMeta) -> IndexManifestEntry:
        """Return the index manifest entry of an index file.

        Args:
            kind: ADD or DELETE.
            partition: the partition as a serialised row.
            bucket: number of the bucket.
            file: the index file.
        """
        members = (file.index_type, file.file_name, file.file_size, file.row_count)
        global_index = file.global_index
        return IndexManifestEntry(
            *(kind, partition, bucket, *members),
            deletion_vectors=file.deletion_vectors,
            external_path=file.external_path,
            is_global=global_index is not None,
            global_index=global_index,
        )

    @property
    def file(self) -> IndexFileMeta:
        """The index file without its partition and bucket."""
        members = (self.index_type, self.file_name, self.file_size, self.row_count)
        return IndexFileMeta(*members, self.deletion_vectors, self.external_path, self.global_index)


_INDEX_FIELDS = (
    ("_KIND", "kind", int),
    ("_PARTITION", "partition", bytes),
    ("_BUCKET", "bucket", int),
    ("_INDEX_TYPE", "index_type", str),
    ("_FILE_NAME", "file_name", str),
    ("_FILE_SIZE", "file_size", int),
    ("_ROW_COUNT", "row_count", int),
)
_VECTOR_RANGES: Final = "_DELETIONS_VECTORS_RANGES"


def decode_index_manifest(data: bytes, path: str) -> list[IndexManifestEntry]:
    """Return the entries of an index manifest, in file order.

    Raises:
        CorruptFile: the file is damaged; the message names ``path``.
        UnsupportedFeature: the serializer version is unknown.
    """
    return [_entry(record, path) for record in read_table(data, path).to_pylist()]


def encode_index_manifest(entries: Sequence[IndexManifestEntry]) -> bytes:
    """Return an index manifest with the complete set of index files.

    The form is that of Java 1.3; with global indexes it is that of Java 2.0.

    Raises:
        UnsupportedFeature: an entry is a global index of an unknown form.
    """
    return write_records(_index_schema(entries), [_index_record(entry) for entry in entries])


def _index_schema(added: Sequence[IndexManifestEntry]) -> dict[str, Any]:
    """Return the Avro record type that the entries need."""
    if not any(entry.is_global for entry in added):
        return INDEX_MANIFEST
    return {**INDEX_MANIFEST, "fields": [*INDEX_MANIFEST["fields"], GLOBAL_INDEX]}


def change_index_manifest(data: bytes, path: str, keep: Sequence[bool], added: Sequence[IndexManifestEntry]) -> bytes:
    """Return a new index manifest from the entries of an earlier one and new entries.

    Kept entries are written with all their fields, including unknown ones (global indexes, fields of later versions).
    The schema of ``data`` stays, extended by the fields that ``added`` needs.

    Args:
        data: the earlier index manifest.
        path: path of the earlier index manifest, for messages.
        keep: for each entry of the earlier index manifest, whether it stays.
        added: new entries.

    Returns:
        The new index manifest.

    Raises:
        CorruptFile: the earlier index manifest is damaged, or its number of entries differs from that of ``keep``.
        UnsupportedFeature: a field cannot be written back unchanged.
    """
    container = Container(pa.BufferReader(data), path)
    records = read_table(data, path).to_pylist()
    if len(records) != len(keep):
        raise CorruptFile(path, f"{len(records)} entries, but {len(keep)} were read before")
    earlier_schema, _ = record_of(container.schema, path)
    kept = [record for record, stays in zip(records, keep, strict=True) if stays]
    try:
        rewritten = io.BytesIO()
        parsed_schema = fastavro.parse_schema(container.schema)
        for record in records:
            fastavro.schemaless_writer(rewritten, parsed_schema, record)
        if rewritten.getvalue() != b"".join(container.plain(block) for block in container.blocks):
            raise UnsupportedFeature(f"rewriting the index manifest {path}: its fields would not stay as they are")
        schema = _with_fields(earlier_schema, _index_schema(added))
        return write_records(schema, [*kept, *map(_index_record, added)])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnsupportedFeature(f"rewriting the index manifest {path}: {error!r}") from error


def _with_fields(earlier: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Avro record type ``earlier``, to which the fields that only ``current`` has are appended.

    The record types that are nested in ``earlier`` (ranges of deletion vectors, global indexes) are extended in the
    same way.
    """
    missing_fields = {field["name"]: field for field in current["fields"]}
    fields = []
    for field in earlier["fields"]:
        current_field = missing_fields.pop(field["name"], None)
        if field["name"] in (_VECTOR_RANGES, GLOBAL_INDEX["name"]) and current_field is not None:
            earlier_record, current_record = _record_inside(field["type"]), _record_inside(current_field["type"])
            if earlier_record is not None and current_record is not None:
                inner = _with_fields(earlier_record, current_record)
                is_list = field["name"] == _VECTOR_RANGES
                field = {
                    **field,
                    "type": ["null", {"type": "array", "items": ["null", inner]} if is_list else inner],
                }
        fields.append(field)
    return {**earlier, "fields": [*fields, *missing_fields.values()]}


def _record_inside(kind: Any) -> Mapping[str, Any] | None:
    """Return the record type inside a union or an array type, or None if the type contains no record."""
    if isinstance(kind, list):
        return next(filter(None, map(_record_inside, kind)), None)
    if isinstance(kind, dict):
        return kind if kind.get("type") == "record" else _record_inside(kind.get("items"))
    return None


def _index_record(entry: IndexManifestEntry) -> Record:
    index, ranges = entry.global_index, entry.deletion_vectors
    if entry.is_global and index is None:
        raise UnsupportedFeature(f"writing global indexes of an unknown form ({entry.file_name})")
    record = {
        "_VERSION": INDEX_VERSION,
        **{avro: getattr(entry, name) for avro, name, _ in _INDEX_FIELDS},
        _VECTOR_RANGES: None
        if ranges is None
        else [{"f0": r.data_file, "f1": r.offset, "f2": r.length, "_CARDINALITY": r.cardinality} for r in ranges],
        "_EXTERNAL_PATH": entry.external_path,
    }
    if index is not None:
        extra = index.extra_field_ids
        record[GLOBAL_INDEX["name"]] = {
            "_ROW_RANGE_START": index.first_row,
            "_ROW_RANGE_END": index.last_row,
            "_INDEX_FIELD_ID": index.field_id,
            "_EXTRA_FIELD_IDS": None if extra is None else list(extra),
            "_INDEX_META": index.index_meta,
            "_SOURCE_META": index.source_meta,
        }
    return record


_KNOWN_OF_GLOBAL_INDEX: Final = frozenset(
    ("_ROW_RANGE_START", "_ROW_RANGE_END", "_INDEX_FIELD_ID", "_EXTRA_FIELD_IDS", "_INDEX_META", "_SOURCE_META")
)


def _global_index(record: object) -> GlobalIndexMeta | None:
    """Return the field `_GLOBAL_INDEX` of an entry, or None if it is absent or has an unknown form."""
    if not isinstance(record, dict):
        return None
    if any(value is not None for name, value in record.items() if name not in _KNOWN_OF_GLOBAL_INDEX):
        return None
    first, last, field_id = (record.get(name) for name in ("_ROW_RANGE_START", "_ROW_RANGE_END", "_INDEX_FIELD_ID"))
    extra = record.get("_EXTRA_FIELD_IDS")
    index_meta, source_meta = record.get("_INDEX_META"), record.get("_SOURCE_META")
    if not isinstance(first, int) or not isinstance(last, int) or not isinstance(field_id, int):
        return None
    if not isinstance(extra, list | None) or not all(isinstance(number, int) for number in extra or ()):
        return None
    if not isinstance(index_meta, bytes | None) or not isinstance(source_meta, bytes | None):
        return None
    return GlobalIndexMeta(first, last, field_id, None if extra is None else tuple(extra), index_meta, source_meta)


def _entry(record: Record, path: str) -> IndexManifestEntry:
    if record.get("_VERSION") != INDEX_VERSION:
        raise UnsupportedFeature(
            f"index manifest of serializer version {record.get('_VERSION')} ({path}); known: {INDEX_VERSION}"
        )
    values: dict[str, Any] = {}
    for avro, name, kind in _INDEX_FIELDS:
        value = record.get(avro)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise CorruptFile(path, f"index manifest field {avro} is {value!r}")
        values[name] = value
    ranges, external = record.get(_VECTOR_RANGES), record.get("_EXTERNAL_PATH")
    if not isinstance(ranges, list | None) or not isinstance(external, str | None):
        raise CorruptFile(
            path, f"index manifest entry of {values['file_name']} has ranges {ranges!r}, path {external!r}"
        )
    return IndexManifestEntry(
        deletion_vectors=None if ranges is None else tuple(_range(item, path) for item in ranges if item is not None),
        external_path=external,
        is_global=record.get("_GLOBAL_INDEX") is not None,
        global_index=_global_index(record.get("_GLOBAL_INDEX")),
        **values,
    )


def _range(item: Record, path: str) -> DeletionVectorRange:
    try:
        vector_range = DeletionVectorRange(item["f0"], item["f1"], item["f2"], item.get("_CARDINALITY"))
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(path, f"deletion vector range {item!r}") from error
    numbers = (
        vector_range.offset,
        vector_range.length,
        0 if vector_range.cardinality is None else vector_range.cardinality,
    )
    if not isinstance(vector_range.data_file, str) or not all(type(number) is int for number in numbers):
        raise CorruptFile(path, f"deletion vector range {item!r}")
    return vector_range
