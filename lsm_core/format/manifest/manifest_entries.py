"""Manifest files: entries as flat Arrow columns to and from Avro bytes (format.md 4.3)."""

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
# Small enough for the processor's cache, large enough that calls do not count.
_SLICE_ROWS = 4096
_FEW_ROWS = 64
"""Entries that are encoded one by one in less time than column by column."""
_TOP_FIELDS = (
    ("_KIND", "kind"),
    ("_PARTITION", "partition"),
    ("_BUCKET", "bucket"),
    ("_TOTAL_BUCKETS", "total_buckets"),
)
_KNOWN = frozenset({"_VERSION", "_FILE", *(name for name, _ in _TOP_FIELDS)})
_KNOWN_OF_FILE = frozenset(name for name, _ in _FILE_FIELDS)

_MOST = (1 << 63) - 1
_RANGES = {"kind": (0, 1), "bucket": (-2, _MOST), "level": (0, 1023), "row_count": (0, _MOST), "file_size": (0, _MOST)}
"""What whole numbers of an entry may be, so that no sum or index built on them goes wrong."""


def encode_manifest(table: pa.Table) -> bytes:
    """A manifest file of the entries in ``table`` (`ENTRY_SCHEMA`): Avro, zstd, Java's record names, the 1.3 fields.

    Raises :class:`UnsupportedFeature` naming the file where an addition has fields that would be lost.
    """
    require_known(table)
    if table.num_rows <= _FEW_ROWS:
        return write_pieces(MANIFEST_ENTRY, [records_piece(MANIFEST_ENTRY, map(_record, table.to_pylist()))])
    slices = [table.slice(first, _SLICE_ROWS) for first in range(0, table.num_rows, _SLICE_ROWS)]
    return write_pieces(MANIFEST_ENTRY, (_encoded(part) for part in slices))


def require_known(table: pa.Table) -> None:
    """Raise UnsupportedFeature when entries of ``table`` that add a file have fields that this version does not know."""
    lost = has_unknown(table)
    if lost is not None:
        fields, name = lost
        raise UnsupportedFeature(f"rewriting the manifest entry of {name}, whose {fields} this version does not know")


def has_unknown(table: pa.Table) -> tuple[str, str] | None:
    """The unknown fields and the file name of the first addition in ``table`` that has some; None where no entry has."""
    unknown = table.column("unknown")
    if unknown.null_count == len(unknown):
        return None
    kept = pc.and_(pc.is_valid(unknown), pc.equal(table.column("kind"), ADD))
    found = table.select(["unknown", "file_name"]).filter(kept).slice(0, 1).to_pylist()
    return (found[0]["unknown"], found[0]["file_name"]) if found else None


def _record(entry: Mapping[str, Any]) -> dict[str, Any]:
    """One entry as Avro has it."""
    file = {avro: entry[name] for avro, name in _FILE_FIELDS}
    for avro, name in _STATS.items():
        file[avro] = {member: entry[f"{name}_{suffix}"] for member, suffix in _STATS_FIELDS}
    return {"_VERSION": VERSION, **{avro: entry[name] for avro, name in _TOP_FIELDS}, "_FILE": file}


def _encoded(table: pa.Table) -> Piece:
    """The records of the entries: the inverse of `from_avro_table`."""
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
    """Entries of a manifest file (``rows`` of them, where that is known) as `ENTRY_SCHEMA` columns, in file order.

    Raises :class:`CorruptFile` naming ``path``.
    """
    return from_avro_table(read_table(data, path, rows), path)


def from_avro_table(table: pa.Table, path: str = "") -> pa.Table:
    """`ENTRY_SCHEMA` columns of a manifest decoded as nested Arrow columns (`_KIND`, .., `_FILE` a struct), as Avro readers give it.

    Fields that older writers did not have become null; of unknown fields that hold something the names are kept. Raises :class:`CorruptFile` for a missing or
    null required field, :class:`UnsupportedFeature` for another serializer version.
    """
    versions = _member(table, "_VERSION")
    if versions is None:
        raise CorruptFile(path, "manifest has no _VERSION")
    others = pc.unique(versions).to_pylist()
    if any(version != VERSION for version in others):
        raise UnsupportedFeature(f"manifest entries of serializer version {others} ({path}); known: {VERSION}")
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
    columns["unknown"] = _unknown(table, file)
    arrays = [_typed(columns[field.name], field, table.num_rows, path) for field in ENTRY_SCHEMA]
    decoded = pa.Table.from_arrays(arrays, schema=ENTRY_SCHEMA)
    for name, (least, most) in _RANGES.items():
        found = pc.min_max(decoded.column(name)).as_py()
        if found["min"] is not None and not (least <= found["min"] and found["max"] <= most):
            raise CorruptFile(path, f"manifest field {name} is {found['min']} to {found['max']}")
    return decoded


def _unknown(table: pa.Table, file: Any) -> Any:
    """Per entry the names of its unknown fields that are not null, joined; None where the whole manifest has none."""
    found = {name: table.column(name) for name in table.column_names if name not in _KNOWN}
    for field in file.type:
        if field.name in _STATS:
            others = [inner.name for inner in field.type if inner.name not in dict(_STATS_FIELDS)]
            found |= {f"_FILE.{field.name}.{name}": pc.struct_field(file, [field.name, name]) for name in others}
        elif field.name not in _KNOWN_OF_FILE:
            found[f"_FILE.{field.name}"] = pc.struct_field(file, field.name)
    held = {name: column for name, column in found.items() if column.null_count < len(column)}
    if not held:
        return None
    nothing = arrow_scalar(None, pa.string())
    names = [pc.if_else(pc.is_valid(column), arrow_scalar(name, pa.string()), nothing) for name, column in held.items()]
    joined = pc.binary_join_element_wise(*names, ", ", null_handling="skip")
    return pc.if_else(pc.equal(joined, ""), nothing, joined)


def _member(table: pa.Table, name: str) -> Any:
    return table.column(name) if name in table.column_names else None


def _children(struct: Any) -> dict[str, Any]:
    """The fields of a struct by name, null where it is."""
    return dict(zip((field.name for field in struct.type), struct.flatten(), strict=True))


def _typed(column: Any, field: pa.Field, count: int, path: str) -> Any:
    """``column`` in the type of ``field``; missing nullable columns are null, anything else that does not fit is corrupt."""
    if column is None:
        if not field.nullable:
            raise CorruptFile(path, f"manifest entries lack {field.name}")
        return pa.nulls(count, field.type)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
    try:
        typed = column if column.type.equals(field.type) else column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptFile(path, f"manifest field {field.name}: {error}") from error
    if typed.null_count and not field.nullable:
        raise CorruptFile(path, f"manifest field {field.name} is null")
    return typed
