"""Columns as plain values: numbers for dates and times, lists for arrays, entries for maps, tuples for rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lsm_core.maintenance.reference.equality import Entries


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """One value a row. Dates are days, times and timestamps their number of units, which always fit and compare as they do."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_map(kind):
        return _entries(column)
    if pa.types.is_list(kind):
        return _lists(column)
    if pa.types.is_struct(kind):
        return _rows(column)
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.cast(pa.int32())
    return list(column.to_pylist())


def _lists(column: pa.Array) -> list[Any]:
    items, offsets = plain_values(column.values), column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    return [
        items[start:stop] if there else None
        for start, stop, there in zip(offsets[:-1], offsets[1:], valid, strict=True)
    ]


def _entries(column: pa.Array) -> list[Any]:
    pairs = list(zip(plain_values(column.keys), plain_values(column.items), strict=True))
    offsets, valid = column.offsets.to_pylist(), column.is_valid().to_pylist()
    return [
        Entries(pairs[start:stop]) if there else None
        for start, stop, there in zip(offsets[:-1], offsets[1:], valid, strict=True)
    ]


def _rows(column: pa.Array) -> list[Any]:
    fields = [plain_values(column.field(i)) for i in range(column.type.num_fields)]
    valid = column.is_valid().to_pylist()
    rows = zip(*fields, strict=True) if fields else [()] * len(column)
    return [tuple(row) if there else None for row, there in zip(rows, valid, strict=True)]
