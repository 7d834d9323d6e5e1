"""Manifest files: conversion of entries between flat Arrow columns and Avro bytes (format.md 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar, one_array
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.format.avro.metadata_file import arrow_schema, read_table, records_piece, write_pieces
from lsm_core.format.avro.record_encoder import Piece, encode_columns
from lsm_core.format.file_meta import ADD, ENTRY_SCHEMA
from lsm_core.format.manifest.manifest_schemas import MANIFEST_ENTRY, VERSION

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
    """Return a manifest file of entries (`ENTRY_SCHEMA`): Avro, zstd, Java's record names, the fields of 1.3.

    Raises:
        UnsupportedFeature: an addition has fields that would be lost; the message names the file.
    """
    require_known(table)
    if table.num_rows <= _MAX_SINGLE_ROWS:
        return write_pieces(MANIFEST_ENTRY, [records_piece(MANIFEST_ENTRY, map(_record, table.to_pylist()))])
    slices = [table.slice(first, _SLICE_ROWS) for first in range(0, table.num_rows, _SLICE_ROWS)]
    return write_pieces(MANIFEST_ENTRY, (_encode_slice(part) for part in slices))


def require_known(table: pa.Table) -> None:
    """Check that no entry that adds a file has fields that this version does not know.

    Raises:
        UnsupportedFeature: an entry has; the message names the file.
    """
    lost = has_unknown(table)
    if lost is not None:
        fields, name = lost
        raise UnsupportedFeature(f"rewriting the manifest entry of {name}, whose {fields} this version does not know")


def has_unknown(table: pa.Table) -> tuple[str, str] | None:
    """Return the unknown fields and the file name of the first addition that has some, or None."""
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
        data: the file.
        path: its path, for messages.
        rows: the expected number of entries, or None if unknown.

    Returns:
        The entries.

    Raises:
        CorruptFile: the file is damaged; the message names ``path``.
    """
    return from_avro_table(read_table(data, path, rows), path)


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
        CorruptFile: a required field is missing or null, or a number is out of range.
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
    """Return for each entry the names of its unknown fields with values, joined; None if no entry has any."""
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

    Missing nullable columns are null; any other mismatch is corruption.
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
