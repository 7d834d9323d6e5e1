"""Row tracking of append tables: the id of every row and the snapshot that wrote it, as two more columns (format.md 8.3).

A file as it was appended stores neither: its metadata has the first row's id and one sequence number for all. A file that was
rewritten stores both, so that rows keep them. Source classes: ``SpecialFields``, ``RowTrackingCommitUtils``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile
from lsm_core.format.file_meta import ADD, SOURCE_APPEND, DataFileMeta
from lsm_core.format.kv_layout import ROW_ID, ROW_ID_ID, SEQUENCE_NUMBER, SEQUENCE_NUMBER_ID
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.metadata.store import TableStore
from lsm_core.types import parse

COLUMNS: Final = (ROW_ID, SEQUENCE_NUMBER)


def tracks_rows(store: TableStore) -> bool:
    """Whether rows of the table have ids."""
    return bool(store.options.get("row-tracking.enabled")) and not store.has_primary_key


def tracked_schema(schema: TableSchema, *, unnumbered: bool = False) -> TableSchema:
    """``schema`` with `_ROW_ID` and `_SEQUENCE_NUMBER` (BIGINT) behind its columns; ``unnumbered``: the latter may be null."""
    fields = (
        DataField(ROW_ID_ID, ROW_ID, parse("BIGINT NOT NULL")),
        DataField(SEQUENCE_NUMBER_ID, SEQUENCE_NUMBER, parse("BIGINT" if unnumbered else "BIGINT NOT NULL")),
    )
    return replace(schema, fields=(*schema.fields, *fields))


def with_row_ids(store: TableStore, *, unnumbered: bool = False) -> TableStore:
    """``store`` with the two columns as if they were the table's: reading gives their values, writing stores them.

    ``unnumbered``: `_SEQUENCE_NUMBER` may be null in files written, which is the snapshot that commits them.
    """
    return store.with_schema(tracked_schema(store.schema, unnumbered=unnumbered))


def stores_row_ids(schema: TableSchema) -> bool:
    """Whether files of ``schema`` hold the two columns (:func:`with_row_ids`)."""
    return schema.has_field(ROW_ID)


def fill_tracking(
    batch: pa.RecordBatch, meta: DataFileMeta, places: npt.NDArray[np.int64], path: str
) -> pa.RecordBatch:
    """``batch`` of a file with what its rows do not store of the two columns; ``places``: where in the file its rows lie.

    Raises CorruptFile naming ``path`` for a file that knows no ids.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if ROW_ID in columns and columns[ROW_ID].null_count:
        if meta.first_row_id is None:
            raise CorruptFile(path, "a table with row tracking has a file whose rows have no ids")
        columns[ROW_ID] = pc.coalesce(columns[ROW_ID], pa.array(places + meta.first_row_id))
    if SEQUENCE_NUMBER in columns and columns[SEQUENCE_NUMBER].null_count:
        columns[SEQUENCE_NUMBER] = pc.fill_null(columns[SEQUENCE_NUMBER], meta.max_sequence_number)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


def assign(entries: pa.Table, snapshot_id: int, next_row_id: int) -> tuple[pa.Table, int]:
    """``entries`` (`ENTRY_SCHEMA`) of one snapshot of a table that tracks rows, as they are committed; and the next free row id.

    Files as appended get ``snapshot_id`` as their sequence number and ids from ``next_row_id`` on, in their order. Of files
    that store both columns, those with rows of no sequence number yet (largest 0) get it as their largest.
    """
    added = np.asarray(entries.column("kind")) == ADD
    stored = np.asarray(pc.is_valid(entries.column("write_cols")), np.bool_)
    appended = added & ~stored & np.asarray(pc.equal(pc.fill_null(entries.column("file_source"), -1), SOURCE_APPEND))
    low, high = (entries.column(name).to_numpy().copy() for name in ("min_sequence_number", "max_sequence_number"))
    unnumbered = added & stored & (high == 0)
    low[appended | (unnumbered & (low == 0))] = snapshot_id
    high[appended | unnumbered] = snapshot_id
    first = entries.column("first_row_id")
    wanted = appended & np.asarray(pc.is_null(first))
    rows = np.where(wanted, entries.column("row_count").to_numpy(), 0)
    ends = next_row_id + np.cumsum(rows)
    given = pc.if_else(pa.array(wanted), pa.array(ends - rows), first)
    for name, values in (
        ("min_sequence_number", pa.array(low)),
        ("max_sequence_number", pa.array(high)),
        ("first_row_id", given),
    ):
        place = entries.schema.get_field_index(name)
        entries = entries.set_column(place, entries.schema.field(place), values)
    return entries, int(ends[-1]) if len(ends) else next_row_id


__all__ = [
    "COLUMNS",
    "assign",
    "fill_tracking",
    "stores_row_ids",
    "tracked_schema",
    "tracks_rows",
    "with_row_ids",
]
