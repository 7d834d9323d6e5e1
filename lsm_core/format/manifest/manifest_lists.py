"""Manifest lists: which manifests a snapshot has, with what is needed to skip them (format.md 4.2, Java `ManifestFileMeta`)."""

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
    """One manifest file: its exact size in bytes, its counts, and the ranges of partitions, buckets and levels inside."""

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
    """Fields that this version does not know, each as its Avro definition (JSON) and its value; they are written again."""


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
    """A manifest list file; an empty one is a valid file of no rows (the base list of a first snapshot)."""
    keeps_row_ids = any(meta.min_row_id is not None or meta.max_row_id is not None for meta in metas)
    schema = MANIFEST_LIST_WITH_ROW_IDS if keeps_row_ids else MANIFEST_LIST
    strange = {definition: parse_json(definition) for meta in metas for definition, _ in meta.others}
    names = [field["name"] for field in strange.values()]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UnsupportedFeature(f"writing a manifest list whose field {twice}, unknown to this version, has two types")
    schema = {**schema, "fields": [*schema["fields"], *strange.values()]}
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
        record |= dict.fromkeys(names) | {strange[definition]["name"]: value for definition, value in meta.others}
        records.append(record)
    try:
        return write_records(schema, records)
    except (TypeError, ValueError) as error:
        if not strange:
            raise
        fields = ", ".join(names)
        raise UnsupportedFeature(f"writing a manifest list with {fields}, unknown to this version: {error}") from error


def decode_manifest_list(data: bytes, path: str) -> list[ManifestFileMeta]:
    """Manifests of a manifest list file, in its order; raises :class:`CorruptFile` naming ``path``."""
    metas = []
    table = read_table(data, path)
    strange = _unknown(table, data, path)
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
        others = tuple((definition, record[name]) for name, definition in strange.items() if record[name] is not None)
        metas.append(ManifestFileMeta(partition_stats=stats, others=others, **values))
    return metas


def _unknown(table: pa.Table, data: bytes, path: str) -> dict[str, str]:
    """Definitions (JSON) by name of the fields that this version does not know and that hold something."""
    known = {"_VERSION", "_PARTITION_STATS", *(avro for avro, *_ in (*_FIELDS, *_NULLABLE))}
    names = [name for name in table.column_names if name not in known and table.column(name).null_count < len(table)]
    if not names:
        return {}
    schema, _ = read_records(data, path)
    return {field["name"]: json.dumps(field, sort_keys=True) for field in schema["fields"] if field["name"] in names}


def stats_from_record(record: Any, path: str) -> SimpleStats:
    """Statistics of an Avro record."""
    if not isinstance(record, dict) or not {"_MIN_VALUES", "_MAX_VALUES"} <= record.keys():
        raise CorruptFile(path, f"statistics are {type(record).__name__}, not a record of bounds")
    nulls = record.get("_NULL_COUNTS")
    return SimpleStats(record["_MIN_VALUES"], record["_MAX_VALUES"], None if nulls is None else tuple(nulls))


def manifest_meta(
    table: pa.Table, file_name: str, file_size: int, partition_types: Sequence[DataType], schema_id: int
) -> ManifestFileMeta:
    """What a manifest list says of a manifest holding ``table`` (`ENTRY_SCHEMA`).

    ``schema_id`` is the latest table schema, used when the manifest is empty. Raises :class:`CorruptFile` for partition
    bytes that do not fit ``partition_types``. Java: `ManifestFile.ManifestEntryWriter.result`.
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
    """Full bounds and null counts over the partitions of all entries (arity = partition columns)."""
    if not partition_types:
        return SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
    # Null counts count entries, bounds only need each partition once; entries per partition are many.
    columns = decode_rows(table.column("partition"), partition_types, path)
    return stats_of_columns(columns, partition_types)
