"""Columns as plain values: numbers for dates and times, lists for arrays, entries for maps, tuples for rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa

from lsm_core.maintenance.reference.equality import Entries


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """One value a row. Dates are days, times and timestamps their number of units, which always fit and compare as they do."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [plain_values(column.field(i)) for i in range(kind.num_fields)]
        rows = zip(*fields, strict=True) if fields else [()] * len(column)
        return [tuple(row) if there else None for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)]
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        made: type[list[Any]] = Entries if pa.types.is_map(kind) else list
        if pa.types.is_map(kind):
            items = list(zip(plain_values(column.keys), plain_values(column.items), strict=True))
        else:
            items = plain_values(column.values)
        spans = zip(pairwise(column.offsets.to_pylist()), column.is_valid().to_pylist(), strict=True)
        return [made(items[start:stop]) if there else None for (start, stop), there in spans]
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.cast(pa.int32())
    return list(column.to_pylist())
