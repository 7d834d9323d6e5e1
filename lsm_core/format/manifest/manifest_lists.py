"""Manifest lists: which manifests a snapshot has, with what is needed to skip them (format.md 4.2, Java `ManifestFileMeta`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.format.avro.metadata_file import Record, read_table, write_records
from lsm_core.format.binary_row import EMPTY_ROW, decode_rows
from lsm_core.format.file_meta import ADD, SimpleStats
from lsm_core.format.manifest.manifest_schemas import MANIFEST_LIST, MANIFEST_LIST_WITH_ROW_IDS, VERSION
from lsm_core.format.stats import stats_of_columns
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
        records.append(record)
    return write_records(schema, records)


def decode_manifest_list(data: bytes, path: str) -> list[ManifestFileMeta]:
    """Manifests of a manifest list file, in its order; raises :class:`CorruptFile` naming ``path``."""
    metas = []
    for record in read_table(data, path).to_pylist():
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
        metas.append(ManifestFileMeta(partition_stats=stats, **values))
    return metas


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
