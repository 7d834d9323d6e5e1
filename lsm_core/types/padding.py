"""CHAR values of ORC files: the format fills them up with spaces, Arrow leaves these on, Paimon's reader takes them off."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.types.data_type import DataType, TypeRoot
from lsm_core.types.nesting import list_of, map_of, struct_of


def holds_char(kind: DataType) -> bool:
    """Whether the type is CHAR, or holds one at any depth."""
    inner = (kind.element, kind.key, kind.value, *(field.type for field in kind.fields))
    return kind.root is TypeRoot.CHAR or any(one is not None and holds_char(one) for one in inner)


def unpadded(array: pa.Array, kind: DataType) -> pa.Array:
    """``array`` of ``kind`` without the spaces behind CHAR values.

    Java writes ORC's own CHAR, in which all values have the full length; other writers use plain texts, which stay as they
    are. Arrow does not tell which it is, the lengths do.
    """
    if not holds_char(kind):
        return array
    if kind.root is TypeRoot.CHAR:
        full = pc.all(pc.equal(pc.utf8_length(array), kind.length), min_count=0)
        return pc.utf8_rtrim(array, characters=" ") if full.as_py() else array
    if kind.root is TypeRoot.ROW:
        places = [(array.type.get_field_index(field.name), field.type) for field in kind.fields]
        parts = {at: unpadded(array.field(at), inner) for at, inner in places if at >= 0}
        return struct_of(array, [parts.get(at, array.field(at)) for at in range(array.type.num_fields)], array.type)
    if pa.types.is_map(array.type):
        key, value = (kind.element, None) if kind.root is TypeRoot.MULTISET else (kind.key, kind.value)
        keys = array.keys if key is None else unpadded(array.keys, key)
        return map_of(array, keys, array.items if value is None else unpadded(array.items, value), array.type)
    if pa.types.is_list(array.type) and kind.element is not None:
        return list_of(array, unpadded(array.values, kind.element), array.type)
    return array


__all__ = ["holds_char", "unpadded"]
