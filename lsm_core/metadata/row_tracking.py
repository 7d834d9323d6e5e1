"""Row tracking of append tables: two extra columns with each row's id and the snapshot that wrote it (format.md 8.3).

An appended file stores neither: its metadata has the first row's id and one sequence number for all rows. A rewritten
file stores both columns, so that rows keep their values.

Source: ``SpecialFields``, ``RowTrackingCommitUtils``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile
from lsm_core.format.manifest import ADD, SOURCE_APPEND, DataFileMeta
from lsm_core.format.schema import ROW_ID, ROW_ID_ID, SEQUENCE_NUMBER, SEQUENCE_NUMBER_ID, DataField, TableSchema
from lsm_core.metadata.store import TableStore
from lsm_core.types import parse

COLUMNS: Final = (ROW_ID, SEQUENCE_NUMBER)


def tracks_rows(store: TableStore) -> bool:
    """Return whether rows of the table have ids."""
    return bool(store.options.get("row-tracking.enabled")) and not store.has_primary_key


def tracked_schema(schema: TableSchema, *, unnumbered: bool = False) -> TableSchema:
    """Return ``schema`` with `_ROW_ID` and `_SEQUENCE_NUMBER` (BIGINT) after its columns.

    Args:
        schema: the table's schema.
        unnumbered: whether `_SEQUENCE_NUMBER` may be null.

    Returns:
        The extended schema.
    """
    fields = (
        DataField(ROW_ID_ID, ROW_ID, parse("BIGINT NOT NULL")),
        DataField(SEQUENCE_NUMBER_ID, SEQUENCE_NUMBER, parse("BIGINT" if unnumbered else "BIGINT NOT NULL")),
    )
    return replace(schema, fields=(*schema.fields, *fields))


def with_row_ids(store: TableStore, *, unnumbered: bool = False) -> TableStore:
    """Return ``store`` with the two columns added: reads return their values, writes store them.

    Args:
        store: the table.
        unnumbered: whether written files may have a null `_SEQUENCE_NUMBER`, which means the snapshot that commits
            them.

    Returns:
        The table with the extended schema.
    """
    return store.with_schema(tracked_schema(store.schema, unnumbered=unnumbered))


def stores_row_ids(schema: TableSchema) -> bool:
    """Return whether files of ``schema`` contain the two columns (see :func:`with_row_ids`)."""
    return schema.has_field(ROW_ID)


def fill_tracking(
    batch: pa.RecordBatch, meta: DataFileMeta, positions: npt.NDArray[np.int64], path: str
) -> pa.RecordBatch:
    """Return ``batch`` with the missing values of the two columns filled in from the file's metadata.

    Args:
        batch: rows of one file.
        meta: the file.
        positions: row positions within the file.
        path: the file's path, for messages.

    Returns:
        The completed batch.

    Raises:
        CorruptFile: the file has no row ids; the message names ``path``.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if ROW_ID in columns and columns[ROW_ID].null_count:
        if meta.first_row_id is None:
            raise CorruptFile(path, "a table with row tracking has a file whose rows have no ids")
        columns[ROW_ID] = pc.coalesce(columns[ROW_ID], pa.array(positions + meta.first_row_id))
    if SEQUENCE_NUMBER in columns and columns[SEQUENCE_NUMBER].null_count:
        columns[SEQUENCE_NUMBER] = pc.fill_null(columns[SEQUENCE_NUMBER], meta.max_sequence_number)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


def assign(entries: pa.Table, snapshot_id: int, next_row_id: int) -> tuple[pa.Table, int]:
    """Number the files of one commit on a table that tracks rows.

    Appended files get ``snapshot_id`` as their sequence number, and consecutive row ids from ``next_row_id`` on. Files
    that store both columns and have rows without a sequence number (largest 0) get ``snapshot_id`` as their largest
    number.

    Args:
        entries: the commit's entries (`ENTRY_SCHEMA`).
        snapshot_id: id of the new snapshot.
        next_row_id: the first free row id.

    Returns:
        The numbered entries and the next free row id.
    """
    added = np.asarray(entries.column("kind")) == ADD
    stores_columns = np.asarray(pc.is_valid(entries.column("write_cols")), np.bool_)
    appended = (
        added & ~stores_columns & np.asarray(pc.equal(pc.fill_null(entries.column("file_source"), -1), SOURCE_APPEND))
    )
    min_numbers, max_numbers = (
        entries.column(name).to_numpy().copy() for name in ("min_sequence_number", "max_sequence_number")
    )
    unnumbered = added & stores_columns & (max_numbers == 0)
    min_numbers[appended | (unnumbered & (min_numbers == 0))] = snapshot_id
    max_numbers[appended | unnumbered] = snapshot_id
    recorded_ids = entries.column("first_row_id")
    needs_ids = appended & np.asarray(pc.is_null(recorded_ids))
    rows = np.where(needs_ids, entries.column("row_count").to_numpy(), 0)
    ends = next_row_id + np.cumsum(rows)
    first_row_ids = pc.if_else(pa.array(needs_ids), pa.array(ends - rows), recorded_ids)
    for name, values in (
        ("min_sequence_number", pa.array(min_numbers)),
        ("max_sequence_number", pa.array(max_numbers)),
        ("first_row_id", first_row_ids),
    ):
        position = entries.schema.get_field_index(name)
        entries = entries.set_column(position, entries.schema.field(position), values)
    return entries, int(ends[-1]) if len(ends) else next_row_id
