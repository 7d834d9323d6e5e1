"""Manifest lists: a snapshot's manifests with the statistics for skipping them (format.md 4.2).

Source: ``ManifestFileMeta``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.format.avro.metadata_file import Record, read_records, read_table, write_records
from lsm_core.format.binary_row import EMPTY_ROW, decode_rows
from lsm_core.format.file_meta import ADD, SimpleStats
from lsm_core.format.manifest.manifest_schemas import MANIFEST_LIST, MANIFEST_LIST_WITH_ROW_IDS, VERSION
from lsm_core.format.stats import stats_of_columns
from lsm_core.json_reader import parse_json
from lsm_core.types import DataType


@dataclass(frozen=True)
class ManifestFileMeta:
    """One manifest file.

    Attributes:
        file_name: name of the file.
        file_size: exact size in bytes.
        num_added_files: number of additions.
        num_deleted_files: number of deletions.
        partition_stats: statistics of the partitions of its entries.
        schema_id: largest schema id of its entries.
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
    """Return a manifest list; without manifests it is a valid file of no rows (the base list of a first snapshot).

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
    metas = []
    table = read_table(data, path)
    unknown_fields = _unknown_definitions(table, data, path)
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
    """Return the definitions (JSON) of unknown fields with values, by name."""
    known = {"_VERSION", "_PARTITION_STATS", *(avro for avro, *_ in (*_FIELDS, *_NULLABLE))}
    names = [name for name in table.column_names if name not in known and table.column(name).null_count < len(table)]
    if not names:
        return {}
    schema, _ = read_records(data, path)
    return {field["name"]: json.dumps(field, sort_keys=True) for field in schema["fields"] if field["name"] in names}


def stats_from_record(record: Any, path: str) -> SimpleStats:
    """Return the statistics of an Avro record."""
    if not isinstance(record, dict) or not {"_MIN_VALUES", "_MAX_VALUES"} <= record.keys():
        raise CorruptFile(path, f"statistics are {type(record).__name__}, not a record of bounds")
    nulls = record.get("_NULL_COUNTS")
    return SimpleStats(record["_MIN_VALUES"], record["_MAX_VALUES"], None if nulls is None else tuple(nulls))


def manifest_meta(
    table: pa.Table, file_name: str, file_size: int, partition_types: Sequence[DataType], schema_id: int
) -> ManifestFileMeta:
    """Return the row of a manifest list for a manifest.

    Args:
        table: its entries (`ENTRY_SCHEMA`).
        file_name: its name.
        file_size: its size in bytes.
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
    """Return bounds and null counts of the partitions of all entries."""
    if not partition_types:
        return SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
    # Null counts are per entry, so all entries are decoded, not each partition once.
    columns = decode_rows(table.column("partition"), partition_types, path)
    return stats_of_columns(columns, partition_types)
