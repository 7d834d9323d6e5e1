"""Engines whose answer is one of the versions (semantics.md 3.1, 3.2): the last one, or the first one."""

from __future__ import annotations

from collections.abc import Sequence

from lsm_core.errors import RetractNotSupported
from lsm_core.maintenance.reference.versions import Row


def last_row(versions: Sequence[Row], ignore_delete: bool) -> Row | None:
    """deduplicate: the last version, a delete too; with ``ignore_delete`` the last that is no retract."""
    left = [row for row in versions if not (ignore_delete and row.retracts)]
    return left[-1] if left else None


def first_row(versions: Sequence[Row], ignore_delete: bool) -> Row | None:
    """first-row: the first version. Raises RetractNotSupported for retracts, unless they are ignored."""
    found = None
    for row in versions:
        if row.retracts:
            if ignore_delete:
                continue
            raise RetractNotSupported(f"first-row: a retract of key {row.key}")
        if found is None:
            found = row
    return found
