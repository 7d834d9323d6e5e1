"""Bounds and null counts of columns, gathered while they are written.

This serves formats whose footer does not have them as in Java.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import numpy_array
from lsm_core.format.stats import ColumnStats, float_bounds


class ValueGatherer:
    """Null counts and bounds of columns over many tables, in Java's order: NaN above all values, -0.0 below 0.0.

    Binary and nested columns have no order, only null counts.
    """

    def __init__(self, names: Iterable[str], only_nulls: Iterable[str] = ()) -> None:
        """Start without rows.

        Args:
            names: columns with bounds and null counts.
            only_nulls: columns with null counts only.
        """
        self._unbounded = set(only_nulls)
        self._nulls = dict.fromkeys([*names, *self._unbounded], 0)
        self._types: dict[str, pa.DataType] = {}
        self._bounds: dict[str, tuple[pa.Array, pa.Array]] = {}

    def add(self, rows: pa.Table) -> None:
        """Add the next rows of the file."""
        for name in self._nulls:
            column = rows.column(name)
            self._types[name] = column.type
            self._nulls[name] += column.null_count
            if name in self._unbounded or not _has_order(column.type) or column.null_count == len(column):
                continue
            column_bounds = bounds(column)
            earlier_bounds = self._bounds.get(name)
            if earlier_bounds is not None:
                low, high = (pa.concat_arrays(pair) for pair in zip(earlier_bounds, column_bounds, strict=True))
                column_bounds = bounds(low)[0], bounds(high)[1]
            self._bounds[name] = column_bounds

    def values(self) -> dict[str, ColumnStats]:
        """Return the bounds and null counts of each column, by name."""
        unknown = {name: (pa.nulls(1, kind), pa.nulls(1, kind)) for name, kind in self._types.items()}
        return {name: ColumnStats(*self._bounds.get(name, unknown[name]), self._nulls[name]) for name in self._types}


def bounds(column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return the smallest and largest value of a column.

    Args:
        column: a column with at least one value.

    Returns:
        Two arrays of one value.
    """
    if pa.types.is_floating(column.type):
        low, high = float_bounds(numpy_array(column.drop_null()))
        return pa.array([low], column.type), pa.array([high], column.type)
    ends = pc.min_max(column)
    return pa.repeat(ends["min"], 1), pa.repeat(ends["max"], 1)


def _has_order(kind: pa.DataType) -> bool:
    return not (
        pa.types.is_nested(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
