"""Deduplicate as features.md 3.1 and 3.5 tell it: sort the versions of each key, keep the last, one row at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cmp_to_key
from typing import Any, NamedTuple

from lsm_core.errors import UnsupportedFeature
from lsm_core.format.schema import TableSchema

_UPDATE_BEFORE, _DELETE = 1, 3
_NULL = (0, None)


class Row(NamedTuple):
    """One stored version of a key. ``sequence_fields`` are the values of the user's `sequence.field` columns.

    ``kind`` is 0 +I, 1 -U, 2 +U, 3 -D; ``level`` and ``age`` (larger = newer) those of the file that it was read from.
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
        """Whether this version takes the row back."""
        return self.kind in {_UPDATE_BEFORE, _DELETE}


def merge_rows(
    rows: Iterable[Row], schema: TableSchema, options: Mapping[str, str], drop_delete: bool = False
) -> list[Row]:
    """What is left of ``rows``, by ascending key: at most one version a key, no retracts if ``drop_delete``.

    ``rows`` may come in any order; of versions equal in everything the later given wins. Raises UnsupportedFeature for
    merge engines other than deduplicate.
    """
    outcomes = merge_by_key(rows, schema, options, drop_delete)
    return [row for key in sorted(outcomes) if (row := outcomes[key]) is not None]


def merge_by_key(
    rows: Iterable[Row], schema: TableSchema, options: Mapping[str, str], drop_delete: bool = False
) -> dict[tuple[Any, ...], Row | None]:
    """As :func:`merge_rows`, for every key (as :func:`key_order` puts it): its row, None if nothing is left of it."""
    engine = options.get("merge-engine", "deduplicate").lower()
    if engine != "deduplicate":
        raise UnsupportedFeature(f"merge engine {engine} in the reference", ", ".join(schema.primary_keys))
    descending = options.get("sequence.field.sort-order", "ascending").lower() == "descending"
    names = ("ignore-delete", "deduplicate.ignore-delete", "first-row.ignore-delete", "partial-update.ignore-delete")
    ignore_delete = any(options.get(name, "false").lower() == "true" for name in names)

    def versions(left: Row, right: Row) -> int:
        return _compare_versions(left, right, descending)

    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(key_order(row.key), []).append(row)
    for group in groups.values():
        if len(group) > 1:
            group.sort(key=cmp_to_key(versions))
    return {key: _winner(group, ignore_delete, drop_delete) for key, group in groups.items()}


def _winner(group: Sequence[Row], ignore_delete: bool, drop_delete: bool) -> Row | None:
    """The result of one key's versions. A lone version is never asked about `ignore-delete`."""
    candidates = group
    if ignore_delete and len(group) > 1:
        candidates = [row for row in group if not row.retracts]
    if not candidates:
        return None
    last = candidates[-1]
    return None if drop_delete and last.retracts else last


def _compare_versions(left: Row, right: Row, descending: bool) -> int:
    for mine, other in zip(left.sequence_fields, right.sequence_fields, strict=True):
        if mine is None or other is None:
            found = (mine is not None) - (other is not None)
        else:
            found = -compare_values(mine, other) if descending else compare_values(mine, other)
        if found:
            return found
    if left.sequence != right.sequence:
        return -1 if left.sequence < right.sequence else 1
    if left.retracts != right.retracts:
        return -1 if left.retracts else 1
    if left.level != right.level:
        return -1 if left.level > right.level else 1
    return (left.age > right.age) - (left.age < right.age)


def key_order(key: Sequence[Any]) -> tuple[Any, ...]:
    """A value that is equal for equal keys and sorts as they do: column by column, nulls first."""
    return tuple([(1, part) if type(part) is int else _NULL if part is None else (1, _rank(part)) for part in key])


def compare_keys(left: Sequence[Any], right: Sequence[Any]) -> int:
    """Order of two keys: column by column, nulls first."""
    mine, other = key_order(left), key_order(right)
    return int(mine > other) - int(mine < other)


def compare_values(left: Any, right: Any) -> int:
    """Java's order of two values of one type: text by its UTF-8 bytes, NaN greatest, -0.0 below 0.0."""
    mine, other = _rank(left), _rank(right)
    return int(mine > other) - int(mine < other)


def _rank(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return _float_rank(value) if isinstance(value, float) else value


def _float_rank(value: float) -> tuple[int, float, float]:
    if math.isnan(value):
        return 1, 0.0, 0.0
    return 0, value, math.copysign(1.0, value)
