"""Entries of Iceberg manifests as columns: made of Paimon's files and deletion vectors, and changed by later commits.

Source: ``IcebergDataFileMeta``, ``IcebergManifestEntry``, ``IcebergCommitCallback``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, numpy_array, offsets_from, one_array
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.schema import TableSchema
from lsm_core.iceberg.single_values import encode_values, has_bounds
from lsm_core.types import DataType, to_arrow


class EntryStatus(IntEnum):
    """Status of a manifest entry in the snapshot that wrote the manifest."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


class FileContent(IntEnum):
    """Content of the file of a manifest entry."""

    DATA = 0
    POSITION_DELETES = 1


def map_of(value: pa.DataType) -> pa.DataType:
    """Return the Arrow type of a map from column ids to values, as Avro stores it."""
    entry = pa.struct([pa.field("key", pa.int32(), nullable=False), pa.field("value", value, nullable=False)])
    return pa.list_(pa.field("element", entry, nullable=False))


COUNTS: Final = map_of(pa.int64())
BOUNDS: Final = map_of(pa.binary())
PUFFIN: Final = "puffin"
"""Format of files with deletion vectors; their blobs have the bytes of Iceberg's deletion vectors."""


def entry_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of a table's manifest entries, with the members of `data_file` as columns."""
    partition = pa.struct(
        [
            pa.field(name, to_arrow(kind), kind.nullable)
            for name, kind in zip(schema.partition_keys, schema.partition_types, strict=True)
        ]
    )
    return pa.schema(
        [
            pa.field("status", pa.int32(), nullable=False),
            pa.field("snapshot_id", pa.int64()),
            pa.field("sequence_number", pa.int64()),
            pa.field("file_sequence_number", pa.int64()),
            pa.field("content", pa.int32(), nullable=False),
            pa.field("file_path", pa.string(), nullable=False),
            pa.field("file_format", pa.string(), nullable=False),
            pa.field("partition", partition, nullable=False),
            pa.field("record_count", pa.int64(), nullable=False),
            pa.field("file_size_in_bytes", pa.int64(), nullable=False),
            pa.field("null_value_counts", COUNTS),
            pa.field("lower_bounds", BOUNDS),
            pa.field("upper_bounds", BOUNDS),
            pa.field("referenced_data_file", pa.string()),
            pa.field("content_offset", pa.int64()),
            pa.field("content_size_in_bytes", pa.int64()),
            pa.field("first_row_id", pa.int64()),
        ]
    )


def file_names(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the last component of each path, by which a data file is identified.

    File names are unique within a table, whereas engines write the same path in different forms.
    """
    return pc.replace_substring_regex(one_array(paths), r"^.*/", "")


def partition_struct(partitions: pa.Array | pa.ChunkedArray, schema: TableSchema, path: str) -> pa.Array:
    """Return the values of partitions as structs.

    Args:
        partitions: partitions as serialised rows.
        schema: the table's schema.
        path: path of the file, for messages.

    Raises:
        CorruptFile: a partition does not fit the schema.
    """
    kind = entry_schema(schema).field("partition").type
    if not schema.partition_keys:
        return pa.Array.from_buffers(kind, len(partitions), [None], children=[])
    distinct = pc.dictionary_encode(one_array(partitions))
    columns = decode_rows(distinct.dictionary, schema.partition_types, path)
    return pa.StructArray.from_arrays([c.take(distinct.indices) for c in columns], fields=list(kind))


def data_entries(
    files: pa.Table, paths: pa.Array, schema: TableSchema, schemas: Mapping[int, TableSchema], snapshot_id: int
) -> pa.Table:
    """Return the entries that add data files.

    Args:
        files: the files (columns of `lsm_core.format.manifest.ENTRY_SCHEMA`).
        paths: path of each file.
        schema: newest schema of the table.
        schemas: schema of each schema id in ``files``.
        snapshot_id: id of the snapshot that adds the files.

    Raises:
        CorruptFile: statistics or a partition do not fit the schema.
    """
    count = files.num_rows
    nulls, lower, upper = _statistics(files, schemas)
    formats = pc.replace_substring_regex(one_array(files.column("file_name")), r"^.*\.", "")
    columns = {
        **_added(count, snapshot_id, FileContent.DATA),
        "file_path": paths,
        "file_format": formats,
        "partition": partition_struct(files.column("partition"), schema, "data file"),
        "record_count": one_array(files.column("row_count")),
        "file_size_in_bytes": one_array(files.column("file_size")),
        "null_value_counts": nulls,
        "lower_bounds": lower,
        "upper_bounds": upper,
    }
    return _table(columns, entry_schema(schema), count)


def _added(count: int, snapshot_id: int, content: FileContent) -> dict[str, pa.Array]:
    number = arrow_array(np.full(count, snapshot_id, np.int64))
    return {
        "status": arrow_array(np.full(count, EntryStatus.ADDED, np.int32)),
        "snapshot_id": number,
        "sequence_number": number,
        "file_sequence_number": number,
        "content": arrow_array(np.full(count, content, np.int32)),
    }


def _table(columns: Mapping[str, pa.Array], target: pa.Schema, count: int) -> pa.Table:
    arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in target]
    return pa.Table.from_arrays(arrays, schema=target)


def vector_entries(vectors: pa.Table, schema: TableSchema, snapshot_id: int) -> pa.Table:
    """Return the entries that add deletion vectors.

    Args:
        vectors: columns `partition` (serialised row), `path`, `file_size` (bytes), `data_path`, `offset` (bytes),
            `length` (bytes) and `cardinality` (rows).
        schema: newest schema of the table.
        snapshot_id: id of the snapshot that adds the vectors.

    Raises:
        CorruptFile: a partition does not fit the schema.
    """
    count = vectors.num_rows
    columns = {
        **_added(count, snapshot_id, FileContent.POSITION_DELETES),
        "file_path": one_array(vectors.column("path")),
        "file_format": pa.repeat(PUFFIN, count),
        "partition": partition_struct(vectors.column("partition"), schema, "index file"),
        "record_count": one_array(vectors.column("cardinality")),
        "file_size_in_bytes": one_array(vectors.column("file_size")),
        "referenced_data_file": one_array(vectors.column("data_path")),
        "content_offset": one_array(vectors.column("offset")),
        "content_size_in_bytes": one_array(vectors.column("length")),
    }
    return _table(columns, entry_schema(schema), count)


# -- statistics --------------------------------------------------------------------------------------------------------


def _statistics(files: pa.Table, schemas: Mapping[int, TableSchema]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the null counts, lower bounds and upper bounds of each file, by column id.

    Files with the same schema and the same columns with statistics are decoded together.
    """
    if not files.num_rows:
        return pa.array([], COUNTS), pa.array([], BOUNDS), pa.array([], BOUNDS)
    ids = one_array(files.column("schema_id")).cast(pa.string())
    listed = one_array(files.column("value_stats_cols"))
    covered = pc.if_else(listed.is_valid(), pc.binary_join(listed, "\0"), "\1")
    # A list without columns differs from a list with one column without a name.
    sizes = pc.fill_null(pc.list_value_length(listed), -1).cast(pa.string())
    groups = pc.dictionary_encode(pc.binary_join_element_wise(ids, sizes, covered, "\n"))
    codes = numpy_array(groups.indices)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(codes[order]) != 0])
    parts = []
    for start, end in zip(starts, np.r_[starts[1:], len(order)], strict=True):
        rows = files.take(arrow_array(order[start:end]))
        first_row = rows.slice(0, 1)
        table_schema = schemas[first_row.column("schema_id")[0].as_py()]
        names = first_row.column("value_stats_cols")[0].as_py()
        parts.append(_group_statistics(rows, table_schema, names))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    back = arrow_array(places)
    nulls, lower, upper = (pa.concat_arrays([part[i] for part in parts]).take(back) for i in range(3))
    return nulls, lower, upper


def _group_statistics(
    rows: pa.Table, schema: TableSchema, names: Sequence[str] | None
) -> tuple[pa.Array, pa.Array, pa.Array]:
    columns = schema.field_names if names is None else tuple(names)
    known = [(place, schema.field(name)) for place, name in enumerate(columns) if schema.has_field(name)]
    if len(known) != len(columns):  # statistics of system columns; their types are unknown here
        empty = arrow_array(np.zeros(rows.num_rows + 1, np.int32))
        return _maps([], [], rows.num_rows, COUNTS, empty), *(_maps([], [], rows.num_rows, BOUNDS, empty),) * 2
    types = [field.type.with_nullable(nullable=True) for _, field in known]
    field_ids = [field.id for _, field in known]
    low = _bounds(rows, "value_stats_min", types)
    high = _bounds(rows, "value_stats_max", types)
    bounds = [
        None if a is None or b is None else (pc.and_(a.is_valid(), b.is_valid()), a, b)
        for a, b in zip(low, high, strict=True)
    ]
    bound_ids = [field_id for field_id, pair in zip(field_ids, bounds, strict=True) if pair is not None]
    lows = [pc.if_else(pair[0], pair[1], None) for pair in bounds if pair is not None]
    highs = [pc.if_else(pair[0], pair[2], None) for pair in bounds if pair is not None]
    counts = _null_counts(one_array(rows.column("value_stats_nulls")), len(columns))
    return (
        _maps(field_ids, counts, rows.num_rows, COUNTS),
        _maps(bound_ids, lows, rows.num_rows, BOUNDS),
        _maps(bound_ids, highs, rows.num_rows, BOUNDS),
    )


def _bounds(rows: pa.Table, column: str, types: Sequence[DataType]) -> list[pa.Array | None]:
    values = decode_rows(rows.column(column), types, "data file")
    return [encode_values(array, kind) if has_bounds(kind) else None for array, kind in zip(values, types, strict=True)]


def _null_counts(lists: pa.Array, width: int) -> list[pa.Array]:
    """Return the null count of each column; null where unknown."""
    lengths = numpy_array(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
    starts = offsets_from(lengths)[:-1]
    values = lists.flatten()
    columns = []
    for place in range(width):
        has_value = lengths > place
        places = arrow_array(np.where(has_value, starts + place, 0), mask=~has_value)
        columns.append(values.take(places) if len(values) else pa.nulls(len(lists), pa.int64()))
    return columns


def _maps(
    field_ids: Sequence[int],
    columns: Sequence[pa.Array],
    count: int,
    kind: pa.DataType,
    offsets: pa.Array | None = None,
) -> pa.Array:
    """Return one map per row, from column ids to the values that are not null.

    Args:
        field_ids: id of each column.
        columns: values of each column.
        count: number of rows.
        kind: type of the maps.
        offsets: offsets of maps without entries.
    """
    entry = kind.value_type
    if not columns:
        offsets = arrow_array(np.zeros(count + 1, np.int32)) if offsets is None else offsets
        nothing = [pa.array([], entry.field(i).type) for i in range(2)]
        return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(nothing, fields=list(entry)), type=kind)
    width = len(columns)
    by_row = np.arange(width * count).reshape(width, count).T.ravel()
    values = pa.concat_arrays(columns).take(arrow_array(by_row))
    valid = numpy_array(values.is_valid())
    keys = np.tile(np.array(field_ids, np.int32), count)
    filled = valid.reshape(count, width).sum(axis=1)
    entries = pa.StructArray.from_arrays(
        [arrow_array(keys[valid]), values.filter(arrow_array(valid))], fields=list(entry)
    )
    return pa.ListArray.from_arrays(arrow_array(offsets_from(filled).astype(np.int32)), entries, type=kind)


# -- changes -----------------------------------------------------------------------------------------------------------


def with_row_ids(entries: pa.Table, first_row_id: int | None) -> pa.Table:
    """Return entries whose row ids are written, as entries that move to another manifest need them.

    Args:
        entries: all entries of a manifest of data files, in order.
        first_row_id: row id of the manifest, or None if it has none.

    Source: ``IcebergCommitCallback.materializeFirstRowIds``.
    """
    if first_row_id is None:
        return entries
    inherits = numpy_array(
        pc.and_(pc.not_equal(entries.column("status"), EntryStatus.DELETED), entries.column("first_row_id").is_null())
    )
    rows = np.where(inherits, numpy_array(entries.column("record_count")), 0)
    starts = first_row_id + offsets_from(rows)[:-1]
    assigned = arrow_array(starts, mask=~inherits)
    column = pc.coalesce(one_array(entries.column("first_row_id")), assigned)
    place = entries.schema.get_field_index("first_row_id")
    return entries.set_column(place, entries.schema.field(place), column)


def without_files(entries: pa.Table, removed: npt.NDArray[np.bool_], snapshot_id: int) -> pa.Table:
    """Return the live entries of a manifest, some of which become deletions.

    Args:
        entries: all entries of the manifest.
        removed: whether the snapshot removes the file of each entry.
        snapshot_id: id of the snapshot.
    """
    live = numpy_array(pc.not_equal(entries.column("status"), EntryStatus.DELETED))
    kept = entries.filter(arrow_array(live))
    is_removed = removed[live]
    status = np.where(is_removed, EntryStatus.DELETED, EntryStatus.EXISTING).astype(np.int32)
    numbers = np.where(is_removed, snapshot_id, numpy_array(kept.column("snapshot_id")))
    return _with_columns(kept, status=arrow_array(status), snapshot_id=arrow_array(numbers.astype(np.int64)))


def merged_into(entries: pa.Table, snapshot_id: int) -> pa.Table:
    """Return the entries of a manifest that a merge of manifests keeps.

    Deletions of earlier snapshots end, and files of earlier snapshots are no longer new.

    Args:
        entries: all entries of the manifest.
        snapshot_id: id of the snapshot that merges manifests.
    """
    numbers = numpy_array(entries.column("snapshot_id"))
    sequences = numpy_array(entries.column("file_sequence_number"))
    status = numpy_array(entries.column("status"))
    current = (numbers == snapshot_id) | (sequences == snapshot_id)
    stays = current | (status != EntryStatus.DELETED)
    changed = np.where(current, status, EntryStatus.EXISTING).astype(np.int32)
    return _with_columns(entries, status=arrow_array(changed)).filter(arrow_array(stays))


def _with_columns(entries: pa.Table, **columns: pa.Array) -> pa.Table:
    for name, column in columns.items():
        place = entries.schema.get_field_index(name)
        entries = entries.set_column(place, entries.schema.field(place), column)
    return entries
