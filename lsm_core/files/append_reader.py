"""Reader of append files, batch by batch, and the common parts of all file readers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array
from lsm_core.errors import ColumnNotFound
from lsm_core.files.evolution import Evolution
from lsm_core.files.formats import FileSource
from lsm_core.files.formats import open_source as open_file
from lsm_core.files.positions import Deleted, RowPositions, deleted_mask, places_of
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import append_arrow_schema
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore
from lsm_core.storage import place_of
from lsm_core.types.dictionaries import as_dictionaries

BATCH_ROWS: Final = 65_536

RowGroups = Sequence[int] | Callable[[FileSource], Sequence[int] | None] | None
"""Row groups to read, or a function that selects them from the open file; None for all."""


def open_append(
    store: TableStore,
    partition: bytes,
    bucket: int,
    meta: DataFileMeta,
    *,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    row_groups: RowGroups = None,
    deleted: Deleted | None = None,
    dictionaries: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an append file.

    Files of older schemas are read by field id: missing columns are null, others are cast. The file is opened at the
    first ``next``.

    Args:
        store: the table.
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        meta: manifest entry of the file.
        columns: columns to return, in this order; None for all.
        batch_rows: largest number of rows of a batch.
        row_groups: row groups to read; see :data:`RowGroups`.
        deleted: positions in the whole file that are left out; None for none.
        dictionaries: text columns to return as Arrow dictionaries of int32.

    Raises:
        ColumnNotFound: a column does not exist.
        CorruptFile: the file is missing, truncated, or differs from its manifest entry; the error names it.
        InvalidData: a value does not fit its column's new type.
    """
    schema = append_arrow_schema(store.schema)
    target = pa.schema([schema.field(name) for name in value_columns(store, columns)])
    target = as_dictionaries(target, dictionaries)
    return read_rows(store, partition, bucket, meta, target, batch_rows, row_groups, deleted)


def value_columns(store: TableStore, columns: Sequence[str] | None) -> list[str]:
    """Return the chosen columns of the table; all of them for None.

    Raises:
        ColumnNotFound: a column does not exist.
    """
    field_names = store.schema.field_names
    for name in columns or ():
        if name not in field_names:
            raise ColumnNotFound(store.name, name, field_names)
    return list(field_names if columns is None else columns)


def open_source(
    store: TableStore, partition: bytes, bucket: int, meta: DataFileMeta, *, keep: bool = False
) -> FileSource:
    """Open a data file and compare its size and row count with its manifest entry.

    Args:
        store: the table.
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        meta: manifest entry of the file.
        keep: cache its footer with the table, for repeated reads of a few rows.

    Raises:
        CorruptFile: the file is missing, damaged, or differs from its manifest entry.
    """
    path = store.data_path(partition, bucket, meta)
    # In an object store, opening the file again would cost another request.
    kept = store.kept if keep or place_of(path) else None
    return open_file(store.file_io, path, size=meta.file_size, rows=meta.row_count, table=store.name, kept=kept)


def read_rows(
    store: TableStore,
    partition: bytes,
    bucket: int,
    meta: DataFileMeta,
    target: pa.Schema,
    batch_rows: int,
    row_groups: RowGroups,
    deleted: Deleted | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of any data file, without deleted ones.

    Args:
        store: the table.
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        meta: manifest entry of the file.
        target: schema of the batches.
        batch_rows: largest number of rows of a batch.
        row_groups: row groups to read; see :data:`RowGroups`.
        deleted: positions in the whole file that are left out; None for none.

    Raises:
        CorruptFile: see :func:`open_append`.
        InvalidData: see :func:`open_append`.
    """
    source = open_source(store, partition, bucket, meta)
    try:
        if callable(row_groups):
            row_groups = row_groups(source)
        evolution = Evolution.of(store, meta, source.schema, target, source.path)
        tracks_rows = not store.has_primary_key and any(name in target.names for name in manifests.COLUMNS)
        positions = RowPositions(source.group_rows, row_groups) if tracks_rows or deleted is not None else None
        stored = evolution.stored
        dictionary_columns = source.repeating_texts(evolution.dictionaries)
        batches = (
            source.batches(stored, batch_rows, row_groups, dictionaries=dictionary_columns)
            if stored
            else _rows_without_columns(source, batch_rows, row_groups)
        )
        for batch in batches:
            ranges = [] if positions is None else positions.next_ranges(batch.num_rows)
            places = places_of(ranges) if tracks_rows else None
            if deleted is not None:
                is_deleted = deleted_mask(ranges, deleted)
                if is_deleted.any():
                    batch = batch.filter(arrow_array(~is_deleted))
                    if not batch.num_rows:
                        continue
                    places = None if places is None else places[~is_deleted]
            rows = evolution.apply(batch, source.path)
            yield rows if places is None else manifests.fill_tracking(rows, meta, places, source.path)
    finally:
        source.close()


def _rows_without_columns(
    source: FileSource, batch_rows: int, row_groups: Sequence[int] | None
) -> Iterator[pa.RecordBatch]:
    """Yield batches without columns, with as many rows as the file has.

    No wanted column is in it, so nothing is decoded.
    """
    counts = np.asarray(source.group_rows, np.int64)
    remaining = int(counts.sum() if row_groups is None else counts[list(row_groups)].sum())
    while remaining > 0:
        rows = min(remaining, batch_rows)
        yield pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))
        remaining -= rows
