"""Reads append files batch by batch, and the parts that all file readers share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lsm_core.errors import ColumnNotFound, CorruptFile, UnsupportedFeature
from lsm_core.files.formats.parquet import EXTENSION, ParquetSource
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.kv_layout import append_arrow_schema
from lsm_core.metadata.store import TableStore

BATCH_ROWS = 65_536


def open_append(
    store: TableStore,
    partition: bytes,
    bucket: int,
    meta: DataFileMeta,
    *,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    row_groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of an append file: batches of at most ``batch_rows`` rows with ``columns`` (None: all) in that order.

    The file opens at the first ``next``. Raises :class:`ColumnNotFound` on an unknown column, and :class:`CorruptFile`
    naming the file when it is missing, cut short, or not what its manifest entry says.
    """
    schema = append_arrow_schema(store.schema)
    target = pa.schema([schema.field(name) for name in value_columns(store, columns)])
    return _rows(store, partition, bucket, meta, target, batch_rows, row_groups)


def value_columns(store: TableStore, columns: Sequence[str] | None) -> list[str]:
    """The chosen table columns, checked; all of them for None."""
    known = store.schema.field_names
    for name in columns or ():
        if name not in known:
            raise ColumnNotFound(store.name, name, known)
    return list(known if columns is None else columns)


def open_source(store: TableStore, partition: bytes, bucket: int, meta: DataFileMeta) -> ParquetSource:
    """Open a data file and compare its size and row count with ``meta``; raises :class:`CorruptFile`."""
    if not meta.file_name.endswith("." + EXTENSION):
        raise UnsupportedFeature(
            f"data files of format {meta.file_name.rpartition('.')[2]} ({meta.file_name})", store.name
        )
    path = store.data_path(partition, bucket, meta)
    return ParquetSource(store.file_io, path, size=meta.file_size, rows=meta.row_count)


def missing_column(store: TableStore, source: ParquetSource, meta: DataFileMeta, name: str) -> Exception:
    """The right error for a column that a file lacks: an older schema, or a damaged file."""
    if meta.schema_id != store.schema.id:
        return UnsupportedFeature(f"schema evolution: {meta.file_name} was written before column '{name}'", store.name)
    return CorruptFile(source.path, f"has no column '{name}'")


def assemble(
    source: ParquetSource, batch: pa.RecordBatch, target: pa.Schema, stored: Mapping[str, str]
) -> pa.RecordBatch:
    """``batch`` as ``target``: columns by their stored names, cast where the writer chose another physical type.

    One stored column may serve several target columns without a copy.
    """
    arrays = []
    for field in target:
        array = batch.column(stored.get(field.name, field.name))
        if not array.type.equals(field.type):
            try:
                array = array.cast(field.type)
            except pa.ArrowException as error:
                raise CorruptFile(
                    source.path, f"column '{field.name}' is {array.type}, not {field.type}: {error}"
                ) from error
        if not field.nullable and array.null_count:
            raise CorruptFile(source.path, f"column '{field.name}' holds nulls but is NOT NULL")
        arrays.append(array)
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _rows(
    store: TableStore,
    partition: bytes,
    bucket: int,
    meta: DataFileMeta,
    target: pa.Schema,
    batch_rows: int,
    row_groups: Sequence[int] | None,
) -> Iterator[pa.RecordBatch]:
    source = open_source(store, partition, bucket, meta)
    try:
        for name in target.names:
            if name not in source.schema.names:
                raise missing_column(store, source, meta, name)
        for batch in source.batches(target.names, batch_rows, row_groups):
            yield assemble(source, batch, target, {})
    finally:
        source.close()


__all__ = ["BATCH_ROWS", "assemble", "missing_column", "open_append", "open_source", "value_columns"]
