"""Finds the first value that breaks its column's type: nulls inside nested values, lengths, digits of times; whole columns at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.types.data_type import MAX_LENGTH, DataType, TypeRoot
from lsm_core.types.nesting import list_of

_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_BINARIES: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_TIMES: Final = frozenset({TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_UNIT_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


@dataclass(frozen=True)
class Misfit:
    """The value at ``row``, inside it at ``path`` ("" the value itself, ".x" a field, "[]" an element), does not fit."""

    row: int
    path: str
    value: object
    kind: DataType
    reason: str


def find_misfit(array: pa.Array, kind: DataType) -> Misfit | None:
    """The first value of ``array`` (typed as `to_arrow(kind)`) that ``kind`` does not allow; a null itself is not looked at.

    Checked are the lengths of CHAR, VARCHAR, BINARY and VARBINARY (characters or bytes, at most), the digits of TIME and
    timestamps, and NOT NULL inside nested values. What Arrow's types rule out already is not.
    """
    if not _has_limits(kind) or not len(array):
        return None
    if kind.root is TypeRoot.ROW:
        return _in_row(array, kind)
    if kind.root is TypeRoot.MAP and kind.key is not None and kind.value is not None:
        found = _in_elements(array, array.keys, kind.key.with_nullable(nullable=False), "{key}")
        return found or _in_elements(array, array.items, kind.value, "{value}") or _repeated_key(array, kind.key)
    if kind.root is TypeRoot.MULTISET and kind.element is not None:
        found = _in_elements(array, array.keys, kind.element.with_nullable(nullable=False), "{}")
        return found or _repeated_key(array, kind.element)
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        return _in_elements(array, array.values, kind.element, "[]")
    return _first(array, kind)


def one_nan(array: pa.Array) -> pa.Array:
    """Return floating point values with one bit pattern for all NaNs, Java's own: keys of others would lie in two buckets."""
    nan = pc.is_nan(array)
    return pc.if_else(nan, pa.scalar(float("nan"), array.type), array) if pc.any(nan).as_py() else array


def _repeated_key(array: pa.MapArray, kind: DataType) -> Misfit | None:
    """Return the first key that a map holds twice: Java's maps hold each key once. Keys of nested types are not looked at."""
    if pa.types.is_nested(array.keys.type):
        return None
    keys, rows = _elements(array, array.keys)
    if len(keys) < 2:
        return None
    encoded = keys.dictionary_encode()
    codes = np.asarray(encoded.indices.fill_null(-1)).astype(np.int64) + 1
    pairs = rows * (len(encoded.dictionary) + 1) + codes
    order = np.argsort(pairs, kind="stable")
    repeated = order[1:][pairs[order][1:] == pairs[order][:-1]]
    if not len(repeated):
        return None
    place = int(repeated.min())
    return Misfit(int(rows[place]), "{key}", keys[place].as_py(), kind, "the map has this key already")


@lru_cache(maxsize=4096)
def _has_limits(kind: DataType) -> bool:
    """Whether any value that Arrow holds may break the type."""
    if kind.root in _TEXTS or kind.root in _BINARIES:
        return (kind.length or MAX_LENGTH) < MAX_LENGTH
    if kind.root in _TIMES:
        return (kind.precision or 0) not in (3, 6, 9)
    if kind.root in (TypeRoot.MAP, TypeRoot.MULTISET):
        return True
    inner = [field.type for field in kind.fields] + [part for part in (kind.element, kind.value) if part is not None]
    return any(not part.nullable or _has_limits(part) for part in inner)


def _in_row(array: pa.Array, kind: DataType) -> Misfit | None:
    valid = array.is_valid() if array.null_count else None
    found = []
    for place, field in enumerate(kind.fields):
        child = array.field(place)
        # What lies under a null row is nobody's value.
        inner = _within(child if valid is None else child.filter(valid), field.type, f".{field.name}")
        if inner is not None:
            row = inner.row if valid is None else int(np.flatnonzero(np.asarray(valid))[inner.row])
            found.append(replace(inner, row=row))
    return min(found, key=lambda one: one.row, default=None)


def _in_elements(array: pa.Array, values: pa.Array, kind: DataType, path: str) -> Misfit | None:
    if kind.nullable and not _has_limits(kind):
        return None
    elements, rows = _elements(array, values)
    inner = _within(elements, kind, path)
    return None if inner is None else replace(inner, row=int(rows[inner.row]))


def _elements(array: pa.Array, values: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the elements of lists or maps, and the row of each. Arrow allows elements beneath a null: they are left out."""
    valid = np.flatnonzero(np.asarray(array.is_valid()))
    lists = list_of(array, values, pa.list_(values.type))
    if array.null_count:
        lists = lists.drop_null()
    return lists.flatten(), valid[np.asarray(pc.list_parent_indices(lists)).astype(np.int64)]


def _within(array: pa.Array, kind: DataType, path: str) -> Misfit | None:
    """A null where none may be, or a misfit further inside."""
    found = None
    if array.null_count and not kind.nullable:
        found = Misfit(int(np.argmax(np.asarray(array.is_null()))), path, None, kind, "null where none may be")
    inner = find_misfit(array, kind)
    if inner is None or (found is not None and found.row <= inner.row):
        return found
    return replace(inner, path=path + inner.path)


def _first(array: pa.Array, kind: DataType) -> Misfit | None:
    """The first value of a type without inner ones that is too long or too fine."""
    if kind.root in _TIMES:
        unit = array.type.unit
        whole = pa.int32() if kind.root is TypeRoot.TIME else pa.int64()
        numbers = np.asarray(array.cast(whole).fill_null(0))
        surplus = _UNIT_DIGITS[unit] - min(kind.precision or 0, _UNIT_DIGITS[unit])
        bad = numbers % 10**surplus != 0
    else:
        lengths = pc.utf8_length(array) if kind.root in _TEXTS else pc.binary_length(array)
        numbers = np.asarray(lengths.fill_null(0))
        bad = numbers > (kind.length or 0)
    if array.null_count:
        bad = bad & np.asarray(array.is_valid())
    if not bad.any():
        return None
    row = int(np.argmax(bad))
    if kind.root in _TIMES:
        value = array[row : row + 1].cast(pa.string())[0].as_py()
        return Misfit(row, "", value, kind, f"more than {kind.precision} digits after the seconds")
    what = "characters" if kind.root in _TEXTS else "bytes"
    return Misfit(row, "", array[row].as_py(), kind, f"{int(numbers[row])} {what}")


__all__ = ["Misfit", "find_misfit", "one_nan"]
