"""Data files in metadata.

Buckets that are processed use objects, everything else uses flat Arrow columns (format.md 4.3, 4.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from lsm_core.arrays import arrow_array
from lsm_core.format.binary_row import EMPTY_ROW

ADD: Final = 0
DELETE: Final = 1
SOURCE_APPEND: Final = 0
SOURCE_COMPACT: Final = 1


@dataclass(frozen=True)
class SimpleStats:
    """Statistics of some columns (Java `SimpleStats`).

    Attributes:
        min_values: minimum of each column, as a serialised BinaryRow.
        max_values: maximum of each column, as a serialised BinaryRow of the same arity.
        null_counts: number of nulls of each column, None if unknown.
    """

    min_values: bytes
    max_values: bytes
    null_counts: tuple[int | None, ...] | None = ()


EMPTY_STATS: Final = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())


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
        creation_time_ms: wall-clock time of creation, encoded as if it were UTC (ms), or None.
        delete_row_count: number of delete rows, or None if unknown.
        embedded_index: content of an embedded index, or None.
        file_source: 0 for append, 1 for compact, None if unknown.
        value_stats_cols: columns with value statistics, or None for all.
        external_path: path of a file outside the table's folder, or None.
        first_row_id: id of the first row with row tracking, or None.
        write_cols: columns that the file contains, or None for all.
        unknown: entry fields that this version does not know and that have values, or None. An entry with them can be
            read and deleted, but not written.
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
    """Return the entries of an `ENTRY_SCHEMA` table as objects, one per file.

    Use it only for buckets that are processed.
    """
    columns = {f.name: table.column(f.name).to_pylist() for f in ENTRY_SCHEMA}
    entries = []
    for i in range(table.num_rows):
        row = {name: values[i] for name, values in columns.items()}
        file = DataFileMeta(
            key_stats=_stats(row, "key_stats"),
            value_stats=_stats(row, "value_stats"),
            extra_files=tuple(row["extra_files"] or ()),
            value_stats_cols=_texts(row["value_stats_cols"]),
            write_cols=_texts(row["write_cols"]),
            **{name: row[name] for name in _SAME_NAME},
        )
        entries.append(ManifestEntry(row["kind"], row["partition"], row["bucket"], row["total_buckets"], file))
    return entries


def _stats(row: dict[str, Any], name: str) -> SimpleStats:
    nulls = row[f"{name}_nulls"]
    return SimpleStats(row[f"{name}_min"], row[f"{name}_max"], None if nulls is None else tuple(nulls))


def _texts(value: list[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)
