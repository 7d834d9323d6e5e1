"""Reference merges whose result is one of the versions (semantics.md 3.1, 3.2): the last or the first."""

from __future__ import annotations

from collections.abc import Sequence

from lsm_core.errors import RetractNotSupported
from lsm_core.maintenance.reference.versions import Row


def last_row(versions: Sequence[Row], ignore_delete: bool) -> Row | None:
    """Return the last version, which may be a delete (`deduplicate`).

    Args:
        versions: versions of one key in merge order.
        ignore_delete: skip retracts, so that the last version that is not a retract wins.
    """
    left = [row for row in versions if not (ignore_delete and row.retracts)]
    return left[-1] if left else None


def first_row(versions: Sequence[Row], ignore_delete: bool) -> Row | None:
    """Return the first version (`first-row`).

    Args:
        versions: versions of one key in merge order.
        ignore_delete: skip retracts.

    Raises:
        RetractNotSupported: a version is a retract and ``ignore_delete`` is False.
    """
    first = None
    for row in versions:
        if row.retracts:
            if ignore_delete:
                continue
            raise RetractNotSupported(f"first-row: key {row.key} has a retract; set `ignore-delete` to skip retracts")
        if first is None:
            first = row
    return first
