"""Whether the writers of a table compact it: its options let them, and its newest history shows that they do."""

from __future__ import annotations

from typing import Final

from lsm_core.errors import CorruptFile
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.action import PLAN_PROPERTY
from lsm_core.maintenance.inline import BY_WRITER
from lsm_core.maintenance.record import iterate_ledger
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore

_READ_ENTRIES: Final = 20
"""Number of newest snapshots, and of newest ledger entries, that are read."""
_WRITES: Final = (CommitKind.APPEND, CommitKind.OVERWRITE)


def writers_compact(store: TableStore, newest: Snapshot) -> bool:
    """Return whether one of the newest compactions of a table was made by its writers.

    Java's writers, and streams, commit a compaction as the user of their rows. Other writers of Dredge compact by a
    plan, which the ledger records as theirs.

    Args:
        store: the table.
        newest: its newest snapshot. Older ones that expired or cannot be read end the search.
    """
    if store.options.write_only or store.options.compaction_inline == "never":
        return False
    writers, compactors, plans = set[str](), set[str](), set[str]()
    for number in range(newest.id, max(newest.id - _READ_ENTRIES, 0), -1):
        try:
            snapshot = newest if number == newest.id else snapshots.try_read(store, number)
        except CorruptFile:  # health is about the newest snapshot; checks find the damage of others
            snapshot = None
        if snapshot is None:
            break
        if snapshot.commit_kind in _WRITES:
            writers.add(snapshot.commit_user)
        elif snapshot.commit_kind is CommitKind.COMPACT:
            plan = (snapshot.properties or {}).get(PLAN_PROPERTY)
            if plan is None:
                compactors.add(snapshot.commit_user)
            else:
                plans.add(plan)
    if writers & compactors:
        return True
    entries = iterate_ledger(store, _READ_ENTRIES, heads=True) if plans else ()
    return any(entry.plan_hash in plans and entry.approved_by == BY_WRITER for entry in entries)


__all__ = ["writers_compact"]
