"""What is known of columns' values, gathered while they are written: for formats whose footer does not tell it as Java would."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import numpy_array
from lsm_core.format.stats import ColumnStats, float_bounds


class ValueGatherer:
    """Null counts and bounds of columns over many tables, in Java's order: NaN above everything, -0.0 below 0.0.

    Binary and nested columns have no order, only null counts.
    """

    def __init__(self, names: Iterable[str], only_nulls: Iterable[str] = ()) -> None:
        """Columns of which both is wanted, and those of which only null counts are."""
        self._unbounded = set(only_nulls)
        self._nulls = dict.fromkeys([*names, *self._unbounded], 0)
        self._types: dict[str, pa.DataType] = {}
        self._bounds: dict[str, tuple[pa.Array, pa.Array]] = {}

    def add(self, rows: pa.Table) -> None:
        """See the next rows of the file."""
        for name in self._nulls:
            column = rows.column(name)
            self._types[name] = column.type
            self._nulls[name] += column.null_count
            if name in self._unbounded or not _ordered(column.type) or column.null_count == len(column):
                continue
            found = bounds(column)
            seen = self._bounds.get(name)
            if seen is not None:
                low, high = (pa.concat_arrays(pair) for pair in zip(seen, found, strict=True))
                found = bounds(low)[0], bounds(high)[1]
            self._bounds[name] = found

    def values(self) -> dict[str, ColumnStats]:
        """The bounds and null counts gathered of each column, by name."""
        nothing = {name: (pa.nulls(1, kind), pa.nulls(1, kind)) for name, kind in self._types.items()}
        return {name: ColumnStats(*self._bounds.get(name, nothing[name]), self._nulls[name]) for name in self._types}


def bounds(column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Smallest and largest of a column that holds a value, as arrays of one."""
    if pa.types.is_floating(column.type):
        low, high = float_bounds(numpy_array(column.drop_null()))
        return pa.array([low], column.type), pa.array([high], column.type)
    found = pc.min_max(column)
    return pa.repeat(found["min"], 1), pa.repeat(found["max"], 1)


def _ordered(kind: pa.DataType) -> bool:
    return not (
        pa.types.is_nested(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


__all__ = ["ValueGatherer", "bounds"]
