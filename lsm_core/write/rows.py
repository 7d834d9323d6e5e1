"""Bring incoming rows into the table's shape: columns, Arrow types, NOT NULL; what does not fit names its column and row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import ColumnNotFound, InvalidData
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.types import kinds_from_text, to_arrow, to_sql

CHUNK_BYTES: Final = 64 << 20
"""Input is worked on in pieces of about this size, so that casting never doubles a large table."""


Rows: TypeAlias = pa.RecordBatch | pa.Table | pa.RecordBatchReader | Mapping[str, Any]
"""What callers may hand in, and whatever else Arrow takes for a table: a pandas or polars frame, say."""


def as_rows(data: Rows, table: str) -> pa.Table | pa.RecordBatchReader:
    """``data`` as Arrow holds it; readers stay streams. Raises :class:`InvalidData` for what is no table."""
    if isinstance(data, (pa.Table, pa.RecordBatchReader)):
        return data
    try:
        return pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else pa.table(data)
    except (TypeError, ValueError, pa.ArrowException) as error:
        reason = f"rows must be an Arrow table or convert to one, not {type(data).__name__}: {error}"
        raise InvalidData(table, "", reason) from error


def pieces(data: pa.RecordBatch | pa.Table | pa.RecordBatchReader) -> Iterator[pa.Table]:
    """The input as tables of about :data:`CHUNK_BYTES` decoded bytes, in order."""
    if isinstance(data, pa.RecordBatchReader):
        for batch in data:
            yield from pieces(batch)
        return
    table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
    rows = max(1, int(CHUNK_BYTES / max(1.0, table.nbytes / max(1, table.num_rows))))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def conform(data: pa.Table, schema: TableSchema, table: str, first_row: int = 0) -> pa.Table:
    """``data`` with exactly the table's columns (`TableSchema.arrow_schema`), cast without loss.

    Missing columns take their default or null. Raises :class:`ColumnNotFound` for an unknown column and
    :class:`InvalidData` for a value that does not fit or a null in a NOT NULL column; rows count from ``first_row``.
    """
    unknown = [name for name in data.column_names if not schema.has_field(name)]
    if unknown:
        raise ColumnNotFound(table, unknown[0], schema.field_names)
    if len(set(data.column_names)) != len(data.column_names):
        raise InvalidData(table, "", f"a column is given twice: {data.column_names}")
    columns = [_column(data, field, table, first_row) for field in schema.fields]
    for field, column in zip(schema.fields, columns, strict=True):
        _check_nulls(column, field, schema, table, first_row)
    return pa.table(columns, schema=schema.arrow_schema)


def conform_kinds(
    row_kinds: pa.Array | pa.ChunkedArray | Sequence[Any] | None, rows: int, table: str
) -> pa.Array | None:
    """Row kinds as int8, from text ("+I" ...) or int8; None stays None (all inserts). Raises :class:`InvalidData`."""
    if row_kinds is None:
        return None
    if not isinstance(row_kinds, (pa.Array, pa.ChunkedArray)):
        try:
            row_kinds = pa.array(row_kinds)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise InvalidData(table, "row_kinds", f"no column of row kinds: {error}") from error
    if len(row_kinds) != rows:
        raise InvalidData(table, "row_kinds", f"{len(row_kinds)} row kinds for {rows} rows")
    return kinds_from_text(row_kinds, table)


def _column(data: pa.Table, field: DataField, table: str, first_row: int) -> pa.ChunkedArray:
    target = to_arrow(field.type)
    if field.name not in data.column_names:
        if field.default is not None:
            return _cast(pa.chunked_array([pa.repeat(field.default, data.num_rows)]), target, field, table, first_row)
        if not field.type.nullable:
            raise InvalidData(table, field.name, "the column is NOT NULL, and the rows do not have it")
        return pa.chunked_array([pa.nulls(data.num_rows, target)])
    return _cast(data.column(field.name), target, field, table, first_row)


def _cast(
    column: pa.ChunkedArray, target: pa.DataType, field: DataField, table: str, first_row: int
) -> pa.ChunkedArray:
    if column.type == target:
        return column
    try:
        return column.cast(target)
    except pa.ArrowException as error:
        row, reason = _first_failure(column, target, error)
        raise InvalidData(
            table,
            field.name,
            f"row {first_row + row}: {column[row].as_py()!r} does not fit {to_sql(field.type)}: {reason}",
        ) from error


def _first_failure(column: pa.ChunkedArray, target: pa.DataType, error: Exception) -> tuple[int, str]:
    """The first row that does not cast, by halving: log2(n) casts instead of a loop over rows."""
    start, length = 0, len(column)
    while length > 1:
        half = length // 2
        try:
            column.slice(start, half).cast(target)
            start, length = start + half, length - half
        except pa.ArrowException as inner:
            length, error = half, inner
    return start, str(error).splitlines()[0]


def _check_nulls(column: pa.ChunkedArray, field: DataField, schema: TableSchema, table: str, first_row: int) -> None:
    is_key = field.name in schema.primary_keys
    if not column.null_count or (field.type.nullable and not is_key):
        return
    row = first_row + _first(pc.is_null(column))
    raise InvalidData(table, field.name, f"row {row}: null in a {'primary key' if is_key else 'NOT NULL'} column")


def _first(mask: pa.Array | pa.ChunkedArray) -> int:
    return int(np.argmax(np.asarray(mask)))
