"""Versions of a key, their order (semantics.md 3.5) and the equality of values, one comparison at a time.

Values are equal by Java's rules: one NaN, two zeros, maps without order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cmp_to_key, partial
from typing import Any, NamedTuple

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
_NULL = (0, None)


class Row(NamedTuple):
    """One stored version of a key.

    Attributes:
        key: values of the primary key, without partition columns.
        sequence_fields: values of the user's `sequence.field` columns.
        sequence: sequence number.
        kind: 0 +I, 1 -U, 2 +U, 3 -D.
        values: values of the columns that are merged or compared.
        level: level of the file from which the version was read.
        age: age rank of this file (larger = newer).
    """

    key: tuple[Any, ...]
    sequence_fields: tuple[Any, ...]
    sequence: int
    kind: int
    values: tuple[Any, ...]
    level: int = 0
    age: int = 0

    @property
    def retracts(self) -> bool:
        """Whether the version is a retract (-U, -D)."""
        return self.kind in {UPDATE_BEFORE, DELETE}


def sort_in_merge_order(rows: Sequence[Row], descending: bool) -> list[Row]:
    """Return the versions of one key, oldest first; of versions equal in everything the later one in ``rows`` is later.

    Args:
        rows: versions of one key.
        descending: whether the smallest `sequence.field` is the newest.
    """
    by_version = cmp_to_key(partial(_compare_versions, descending=descending))
    return sorted(rows, key=by_version) if len(rows) > 1 else list(rows)


def _compare_versions(left: Row, right: Row, descending: bool) -> int:
    for mine, other in zip(left.sequence_fields, right.sequence_fields, strict=True):
        if mine is None or other is None:
            order = (mine is not None) - (other is not None)
        else:
            order = -compare_values(mine, other) if descending else compare_values(mine, other)
        if order:
            return order
    if left.sequence != right.sequence:
        return -1 if left.sequence < right.sequence else 1
    if left.retracts != right.retracts:
        return -1 if left.retracts else 1
    if left.level != right.level:
        return -1 if left.level > right.level else 1
    return (left.age > right.age) - (left.age < right.age)


def key_order(key: Sequence[Any]) -> tuple[Any, ...]:
    """Return a comparable value for a key: equal for equal keys, and ordered column by column with nulls first.

    Args:
        key: values of the key's columns.
    """
    return tuple([(1, part) if type(part) is int else _NULL if part is None else (1, _rank(part)) for part in key])


def compare_keys(left: Sequence[Any], right: Sequence[Any]) -> int:
    """Compare two keys column by column, nulls first.

    Args:
        left: first key.
        right: second key.

    Returns:
        -1, 0 or 1.
    """
    mine, other = key_order(left), key_order(right)
    return int(mine > other) - int(mine < other)


def compare_values(left: Any, right: Any) -> int:
    """Compare two values of one type in Java's order: text by its UTF-8 bytes, NaN greatest, -0.0 below 0.0.

    Args:
        left: first value.
        right: second value.

    Returns:
        -1, 0 or 1.
    """
    mine, other = _rank(left), _rank(right)
    return int(mine > other) - int(mine < other)


def _rank(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (1, 0.0, 0.0) if math.isnan(value) else (0, value, math.copysign(1.0, value))
    return value


class Entries(list[tuple[Any, Any]]):
    """Plain value of a MAP or MULTISET, as a list of its entries; plain values of ARRAY are lists, of ROW tuples."""


def same(value: Any) -> Any:
    """Return a hashable value that is equal for equal values of one type."""
    if isinstance(value, float):
        return ("float", "NaN") if math.isnan(value) else ("float", value, math.copysign(1.0, value))
    if isinstance(value, Entries):
        return "map", frozenset((same(key), same(item)) for key, item in value)
    if isinstance(value, list):
        return "array", tuple(same(item) for item in value)
    if isinstance(value, tuple):
        return "row", tuple(same(item) for item in value)
    return value


def distinct(values: Iterable[Any]) -> list[Any]:
    """Return the first of each group of equal values, in their order."""
    first_by_value: dict[Any, Any] = {}
    for value in values:
        first_by_value.setdefault(same(value), value)
    return list(first_by_value.values())
