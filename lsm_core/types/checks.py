"""Search for the first value that violates its column's type: nested nulls, lengths, digits of times.

For whole columns.
"""

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
    """A value that does not fit its type.

    Attributes:
        row: index of the row.
        path: position inside the row's value: "" for the value itself, ".x" for a field, "[]" for an element.
        value: the value.
        kind: the type that it violates.
        reason: explanation for the user.
    """

    row: int
    path: str
    value: object
    kind: DataType
    reason: str


def find_misfit(array: pa.Array, kind: DataType) -> Misfit | None:
    """Return the first value that its type does not allow; a null value itself is not checked.

    The check covers lengths of CHAR, VARCHAR, BINARY and VARBINARY (maximum in characters or bytes), digits of TIME and
    timestamps, and NOT NULL inside nested values. Violations that Arrow's types exclude are not checked.

    Args:
        array: values with the type `to_arrow(kind)`.
        kind: the logical type.

    Returns:
        The first misfit, or None.
    """
    if not _has_limits(kind) or not len(array):
        return None
    if kind.root is TypeRoot.ROW:
        return _find_in_row(array, kind)
    if kind.root is TypeRoot.MAP and kind.key is not None and kind.value is not None:
        misfit = _find_in_elements(array, array.keys, kind.key.with_nullable(nullable=False), "{key}")
        return (
            misfit
            or _find_in_elements(array, array.items, kind.value, "{value}")
            or _find_repeated_key(array, kind.key)
        )
    if kind.root is TypeRoot.MULTISET and kind.element is not None:
        misfit = _find_in_elements(array, array.keys, kind.element.with_nullable(nullable=False), "{}")
        return misfit or _find_repeated_key(array, kind.element)
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        return _find_in_elements(array, array.values, kind.element, "[]")
    return _find_in_atoms(array, kind)


def one_nan(array: pa.Array) -> pa.Array:
    """Return floating-point values with Java's bit pattern for every NaN.

    Keys with other patterns would be in two buckets.
    """
    nan = pc.is_nan(array)
    return pc.if_else(nan, pa.scalar(float("nan"), array.type), array) if pc.any(nan).as_py() else array


def _find_repeated_key(array: pa.MapArray, kind: DataType) -> Misfit | None:
    """Return the first repeated key of a map, because keys of Java's maps are unique; nested keys are not checked."""
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
    index = int(repeated.min())
    return Misfit(int(rows[index]), "{key}", keys[index].as_py(), kind, "the map has this key already")


@lru_cache(maxsize=4096)
def _has_limits(kind: DataType) -> bool:
    """Return whether a value that Arrow allows may violate the type."""
    if kind.root in _TEXTS or kind.root in _BINARIES:
        return (kind.length or MAX_LENGTH) < MAX_LENGTH
    if kind.root in _TIMES:
        return (kind.precision or 0) not in (3, 6, 9)
    if kind.root in (TypeRoot.MAP, TypeRoot.MULTISET):
        return True
    inner = [field.type for field in kind.fields] + [part for part in (kind.element, kind.value) if part is not None]
    return any(not part.nullable or _has_limits(part) for part in inner)


def _find_in_row(array: pa.Array, kind: DataType) -> Misfit | None:
    valid = array.is_valid() if array.null_count else None
    misfits = []
    for index, field in enumerate(kind.fields):
        child = array.field(index)
        # Values below a null row are not part of the data.
        inner = _find_within(child if valid is None else child.filter(valid), field.type, f".{field.name}")
        if inner is not None:
            row = inner.row if valid is None else int(np.flatnonzero(np.asarray(valid))[inner.row])
            misfits.append(replace(inner, row=row))
    return min(misfits, key=lambda misfit: misfit.row, default=None)


def _find_in_elements(array: pa.Array, values: pa.Array, kind: DataType, path: str) -> Misfit | None:
    if kind.nullable and not _has_limits(kind):
        return None
    elements, rows = _elements(array, values)
    inner = _find_within(elements, kind, path)
    return None if inner is None else replace(inner, row=int(rows[inner.row]))


def _elements(array: pa.Array, values: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the elements of lists or maps, and the row of each; elements below a null are left out."""
    valid = np.flatnonzero(np.asarray(array.is_valid()))
    lists = list_of(array, values, pa.list_(values.type))
    if array.null_count:
        lists = lists.drop_null()
    return lists.flatten(), valid[np.asarray(pc.list_parent_indices(lists)).astype(np.int64)]


def _find_within(array: pa.Array, kind: DataType, path: str) -> Misfit | None:
    """Return a forbidden null, or a misfit further inside."""
    forbidden_null = None
    if array.null_count and not kind.nullable:
        forbidden_null = Misfit(int(np.argmax(np.asarray(array.is_null()))), path, None, kind, "null where none may be")
    inner = find_misfit(array, kind)
    if inner is None or (forbidden_null is not None and forbidden_null.row <= inner.row):
        return forbidden_null
    return replace(inner, path=path + inner.path)


def _find_in_atoms(array: pa.Array, kind: DataType) -> Misfit | None:
    """Return the first atomic value that is too long or has too many digits."""
    if kind.root in _TIMES:
        unit = array.type.unit
        whole = pa.int32() if kind.root is TypeRoot.TIME else pa.int64()
        numbers = np.asarray(array.cast(whole).fill_null(0))
        surplus = _UNIT_DIGITS[unit] - min(kind.precision or 0, _UNIT_DIGITS[unit])
        is_misfit = numbers % 10**surplus != 0
    else:
        lengths = pc.utf8_length(array) if kind.root in _TEXTS else pc.binary_length(array)
        numbers = np.asarray(lengths.fill_null(0))
        is_misfit = numbers > (kind.length or 0)
    if array.null_count:
        is_misfit = is_misfit & np.asarray(array.is_valid())
    if not is_misfit.any():
        return None
    row = int(np.argmax(is_misfit))
    if kind.root in _TIMES:
        value = array[row : row + 1].cast(pa.string())[0].as_py()
        return Misfit(row, "", value, kind, f"more than {kind.precision} digits after the seconds")
    unit_name = "characters" if kind.root in _TEXTS else "bytes"
    return Misfit(row, "", array[row].as_py(), kind, f"{int(numbers[row])} {unit_name}")
