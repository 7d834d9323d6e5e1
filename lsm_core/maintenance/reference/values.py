"""Columns as plain values: numbers for dates and times, lists for arrays, entries for maps, tuples for rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa

from lsm_core.maintenance.reference.versions import Entries


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return one plain value per row.

    Args:
        column: the column. Dates become days; times and timestamps become numbers of their Arrow unit, which have the
            same order and no limit of years.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [plain_values(column.field(i)) for i in range(kind.num_fields)]
        rows = zip(*fields, strict=True) if fields else [()] * len(column)
        return [
            tuple(row) if is_valid else None for row, is_valid in zip(rows, column.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        container: type[list[Any]] = Entries if pa.types.is_map(kind) else list
        if pa.types.is_map(kind):
            items = list(zip(plain_values(column.keys), plain_values(column.items), strict=True))
        else:
            items = plain_values(column.values)
        spans = zip(pairwise(column.offsets.to_pylist()), column.is_valid().to_pylist(), strict=True)
        return [container(items[start:stop]) if is_valid else None for (start, stop), is_valid in spans]
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.cast(pa.int32())
    return list(column.to_pylist())
