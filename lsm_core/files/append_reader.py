"""Reads append files batch by batch, and the parts that all file readers share."""

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
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.kv_layout import append_arrow_schema
from lsm_core.metadata import row_tracking
from lsm_core.metadata.store import TableStore
from lsm_core.storage import place_of
from lsm_core.types.dictionaries import as_dictionaries

BATCH_ROWS: Final = 65_536

RowGroups = Sequence[int] | Callable[[FileSource], Sequence[int] | None] | None
"""Row groups to read, or what chooses them once the file is open; None: all."""


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
    """Rows of an append file: batches of at most ``batch_rows`` rows with ``columns`` (None: all) in that order.

    Files of older schemas are read by field id: columns they lack are null, others cast. ``deleted``: positions in the whole
    file that do not come out. Text columns among ``dictionaries`` come as Arrow dictionaries of int32. The file opens at the first ``next``. Raises :class:`ColumnNotFound` on an unknown column,
    :class:`CorruptFile` naming the file when it is missing, cut short, or not what its manifest entry says, and
    :class:`InvalidData` for a value that its column's new type cannot take.
    """
    schema = append_arrow_schema(store.schema)
    target = pa.schema([schema.field(name) for name in value_columns(store, columns)])
    target = as_dictionaries(target, dictionaries)
    return read_rows(store, partition, bucket, meta, target, batch_rows, row_groups, deleted)


def value_columns(store: TableStore, columns: Sequence[str] | None) -> list[str]:
    """The chosen table columns, checked; all of them for None."""
    known = store.schema.field_names
    for name in columns or ():
        if name not in known:
            raise ColumnNotFound(store.name, name, known)
    return list(known if columns is None else columns)


def open_source(
    store: TableStore, partition: bytes, bucket: int, meta: DataFileMeta, *, keep: bool = False
) -> FileSource:
    """Open a data file and compare its size and row count with ``meta``; raises :class:`CorruptFile`.

    ``keep``: remember its footer with the table, as reads of a few rows do that come again.
    """
    path = store.data_path(partition, bucket, meta)
    # Of a file in an object store opening it again would be another request.
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
    """The rows of any data file as batches of ``target``, without those that ``deleted`` marks."""
    source = open_source(store, partition, bucket, meta)
    try:
        if callable(row_groups):
            row_groups = row_groups(source)
        evolution = Evolution.of(store, meta, source.schema, target, source.path)
        filled = not store.has_primary_key and any(name in target.names for name in row_tracking.COLUMNS)
        positions = RowPositions(source.group_rows, row_groups) if filled or deleted is not None else None
        stored = evolution.stored
        coded = source.repeating_texts(evolution.dictionaries)
        batches = (
            source.batches(stored, batch_rows, row_groups, dictionaries=coded)
            if stored
            else _bare(source, batch_rows, row_groups)
        )
        for batch in batches:
            ranges = [] if positions is None else positions.next_ranges(batch.num_rows)
            places = places_of(ranges) if filled else None
            if deleted is not None:
                gone = deleted_mask(ranges, deleted)
                if gone.any():
                    batch = batch.filter(arrow_array(~gone))
                    if not batch.num_rows:
                        continue
                    places = None if places is None else places[~gone]
            found = evolution.apply(batch, source.path)
            yield found if places is None else row_tracking.fill_tracking(found, meta, places, source.path)
    finally:
        source.close()


def _bare(source: FileSource, batch_rows: int, row_groups: Sequence[int] | None) -> Iterator[pa.RecordBatch]:
    """As many rows as the file has, of no column: nothing is decoded when a file is older than all that is asked for."""
    counts = np.asarray(source.group_rows, np.int64)
    left = int(counts.sum() if row_groups is None else counts[list(row_groups)].sum())
    while left > 0:
        rows = min(left, batch_rows)
        yield pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))
        left -= rows


__all__ = ["BATCH_ROWS", "RowGroups", "open_append", "open_source", "read_rows", "value_columns"]
