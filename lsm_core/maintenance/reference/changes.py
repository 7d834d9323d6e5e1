"""Reference for compactions with lookup or changelog (semantics.md 5): row and changes of one key at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lsm_core.format.schema import TableSchema
from lsm_core.maintenance.reference.merging import Engine, is_descending
from lsm_core.maintenance.reference.versions import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Row,
    key_order,
    same,
    sort_in_merge_order,
)

LOOKED_UP: Final = 1 << 20
"""Level that is given to rows of the levels above a compaction's output."""
Key = tuple[Any, ...]


@dataclass(frozen=True)
class ChangeRules:
    """Rules for the changes of a compaction.

    Attributes:
        top: level whose row is compared with the result. None: the row of the lowest level above 0, looked up where
            needed.
        compared: indexes of the columns of which at least one must differ for an update to be emitted. None emits every
            update.
        lone_as_is: whether the only version of a key is returned as it is stored, without calling the merge engine.
    """

    top: int | None
    compared: tuple[int, ...] | None = None
    lone_as_is: bool = False


def merge_with_changes(
    rows: Iterable[Row], schema: TableSchema, options: Mapping[str, str], drop_delete: bool, comparison: ChangeRules
) -> tuple[dict[Key, Row | None], dict[Key, list[Row]]]:
    """Merge rows by key and compute the changes that the compaction emits.

    Args:
        rows: versions of all keys, in any order.
        schema: schema of the table.
        options: table options as they are stored.
        drop_delete: whether keys whose result is a retract have no row.
        comparison: rules for the changes.

    Returns:
        By key, the merged row (None: no row is left) and the emitted changes in order.
    """
    engine = Engine(schema, options)
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key_order(row.key), []).append(row)
    outcomes: dict[Key, Row | None] = {}
    changes: dict[Key, list[Row]] = {}
    for key, group in groups.items():
        versions = sort_in_merge_order(group, is_descending(options))
        if engine.name == "first-row":
            result, emitted = _first(engine, versions)
        elif comparison.top is None:
            result, emitted = _looked_up(engine, versions, comparison)
        else:
            result = engine.result(versions)
            top = next((row for row in versions if row.level == comparison.top), None)
            emitted = [] if top is not None and len(versions) == 1 else _between(top, result, comparison)
        outcomes[key] = None if result is None or (drop_delete and result.retracts) else result
        changes[key] = emitted
    return outcomes, changes


def _first(engine: Engine, versions: list[Row]) -> tuple[Row | None, list[Row]]:
    if any(row.level == LOOKED_UP for row in versions):
        return None, []
    result = engine.result(versions)
    if result is None or result.retracts:  # a retract that is alone takes nothing back
        return None, []
    return result, [result] if all(row.level <= 0 for row in versions) else []


def _looked_up(engine: Engine, versions: list[Row], comparison: ChangeRules) -> tuple[Row | None, list[Row]]:
    lowest = min((row for row in versions if row.level > 0), key=lambda row: row.level, default=None)
    result = engine.result(
        [row for row in versions if row.level <= 0 or row is lowest], asks_alone=not comparison.lone_as_is
    )
    is_new = any(row.level <= 0 for row in versions)
    return result, _between(lowest, result, comparison) if is_new else []


def _between(before: Row | None, after: Row | None, comparison: ChangeRules) -> list[Row]:
    if after is None:
        return []
    was = before if before is not None and not before.retracts else None
    if was is None:
        return [] if after.retracts else [after._replace(kind=INSERT)]
    if after.retracts:
        return [was._replace(kind=DELETE)]
    compared = comparison.compared
    if compared is not None and all(same(was.values[i]) == same(after.values[i]) for i in compared):
        return []
    return [was._replace(kind=UPDATE_BEFORE), after._replace(kind=UPDATE_AFTER)]
