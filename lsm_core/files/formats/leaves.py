"""Arrow types and columns by leaves, to find values that a format must store differently or cannot store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

FieldRule = Callable[[pa.Field], pa.Field]


def map_field(field: pa.Field, rule: FieldRule) -> pa.Field:
    """Return ``field`` with ``rule`` applied to it and to every nested field, the inner ones first."""
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([map_field(kind.field(i), rule) for i in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        kind = pa.map_(map_field(kind.key_field, rule), map_field(kind.item_field, rule))
    elif pa.types.is_list(kind):
        kind = pa.list_(map_field(kind.value_field, rule))
    return rule(field.with_type(kind))


def leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of all values that are not nested."""
    if pa.types.is_map(kind):
        yield from leaf_types(kind.key_type)
        yield from leaf_types(kind.item_type)
    elif pa.types.is_nested(kind):
        for i in range(kind.num_fields):
            yield from leaf_types(kind.field(i).type)
    else:
        yield kind


def leaf_arrays(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the columns of values inside ``array`` that are not nested; values under a null are left out."""
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
