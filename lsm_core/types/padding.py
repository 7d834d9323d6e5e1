"""CHAR values of ORC files: the format pads them with spaces, Arrow keeps these, and Paimon's reader removes them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.types.data_type import DataType, TypeRoot
from lsm_core.types.nesting import list_of, map_of, struct_of


def holds_char(kind: DataType) -> bool:
    """Return whether the type is CHAR or contains it at any depth."""
    inner = (kind.element, kind.key, kind.value, *(field.type for field in kind.fields))
    return kind.root is TypeRoot.CHAR or any(part is not None and holds_char(part) for part in inner)


def unpadded(array: pa.Array, kind: DataType) -> pa.Array:
    """Return an array without the trailing spaces of CHAR values.

    Java writes ORC's own CHAR, in which all values have the full length; other writers use plain text, which is not
    changed. Arrow does not distinguish the two, but the lengths do.

    Args:
        array: the values.
        kind: their logical type.

    Returns:
        The array with the same Arrow type.
    """
    if not holds_char(kind):
        return array
    if kind.root is TypeRoot.CHAR:
        has_full_length = pc.all(pc.equal(pc.utf8_length(array), kind.length), min_count=0)
        return pc.utf8_rtrim(array, characters=" ") if has_full_length.as_py() else array
    if kind.root is TypeRoot.ROW:
        positions = [(array.type.get_field_index(field.name), field.type) for field in kind.fields]
        parts = {position: unpadded(array.field(position), inner) for position, inner in positions if position >= 0}
        return struct_of(
            array, [parts.get(position, array.field(position)) for position in range(array.type.num_fields)], array.type
        )
    if pa.types.is_map(array.type):
        key, value = (kind.element, None) if kind.root is TypeRoot.MULTISET else (kind.key, kind.value)
        keys = array.keys if key is None else unpadded(array.keys, key)
        return map_of(array, keys, array.items if value is None else unpadded(array.items, value), array.type)
    if pa.types.is_list(array.type) and kind.element is not None:
        return list_of(array, unpadded(array.values, kind.element), array.type)
    return array
