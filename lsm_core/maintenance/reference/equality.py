"""Equality of plain values by Java's rules: one NaN, two zeros, maps without order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


class Entries(list[tuple[Any, Any]]):
    """Entries of a MAP or MULTISET; a plain list is an ARRAY, a tuple a ROW."""


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
