"""Bounds and null counts of columns, collected while a file is written, and access to the leaves of nested columns.

Formats use this module if their footers do not contain the same bounds as Java computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, numpy_array
from lsm_core.format.stats import ColumnStats, float_bounds


class ColumnStatsCollector:
    """Null counts and bounds of columns over many tables, in Java's order: NaN above all values, -0.0 below 0.0.

    Nested columns have no order, only null counts; so have binary columns if the format's files of Java have no bounds.
    """

    def __init__(self, names: Iterable[str], only_nulls: Iterable[str] = (), *, of_bytes: bool = False) -> None:
        """Start without rows.

        Args:
            names: columns with bounds and null counts.
            only_nulls: columns with null counts only.
            of_bytes: whether binary columns have bounds.
        """
        self._of_bytes = of_bytes
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
            if name in self._unbounded or not self._has_order(column.type) or column.null_count == len(column):
                continue
            column_bounds = bounds(column)
            earlier_bounds = self._bounds.get(name)
            if earlier_bounds is not None:
                low, high = (pa.concat_arrays(pair) for pair in zip(earlier_bounds, column_bounds, strict=True))
                column_bounds = bounds(low)[0], bounds(high)[1]
            self._bounds[name] = column_bounds

    def _has_order(self, kind: pa.DataType) -> bool:
        return (self._of_bytes and pa.types.is_binary(kind)) or _has_order(kind)

    def values(self) -> dict[str, ColumnStats]:
        """Return the bounds and null counts of each column, by name."""
        unknown = {name: (pa.nulls(1, kind), pa.nulls(1, kind)) for name, kind in self._types.items()}
        return {name: ColumnStats(*self._bounds.get(name, unknown[name]), self._nulls[name]) for name in self._types}


def bounds(column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return the smallest and largest value of a column.

    Args:
        column: a column with at least one value.

    Returns:
        An array with the smallest value, and an array with the largest value.
    """
    if pa.types.is_floating(column.type):
        low, high = float_bounds(numpy_array(column.drop_null()))
        return arrow_array([low], column.type), arrow_array([high], column.type)
    ends = pc.min_max(column)
    return pa.repeat(ends["min"], 1), pa.repeat(ends["max"], 1)


def _has_order(kind: pa.DataType) -> bool:
    return not (
        pa.types.is_nested(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


FieldRule = Callable[[pa.Field], pa.Field]


def map_field(field: pa.Field, rule: FieldRule) -> pa.Field:
    """Return ``field`` with ``rule`` applied to it and to every nested field, the inner ones first.

    Args:
        field: Arrow field, whose type may be nested.
        rule: function from a field to the field that replaces it.
    """
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([map_field(kind.field(i), rule) for i in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        kind = pa.map_(map_field(kind.key_field, rule), map_field(kind.item_field, rule))
    elif pa.types.is_list(kind):
        kind = pa.list_(map_field(kind.value_field, rule))
    return rule(field.with_type(kind))


def leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of all leaves of type ``kind``, which is itself a leaf if it is not nested."""
    if pa.types.is_map(kind):
        yield from leaf_types(kind.key_type)
        yield from leaf_types(kind.item_type)
    elif pa.types.is_nested(kind):
        for i in range(kind.num_fields):
            yield from leaf_types(kind.field(i).type)
    else:
        yield kind


def leaf_arrays(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of the leaves of ``array``; values under a null are left out."""
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from leaf_arrays(child)
    elif pa.types.is_map(array.type):
        # A sliced map keeps the entries of the whole map: the cast removes the others and those under nulls.
        entries = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
        yield from leaf_arrays(entries)
    elif pa.types.is_list(array.type):
        yield from leaf_arrays(pc.list_flatten(array))
    else:
        yield array
