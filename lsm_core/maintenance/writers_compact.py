"""Detection of tables whose writers compact: the options allow it, and the newest snapshots show such compactions."""

from __future__ import annotations

from typing import Final

from lsm_core.errors import CorruptFile
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.action import PLAN_PROPERTY
from lsm_core.maintenance.ledger import BY_WRITER, DONE, iterate_ledger
from lsm_core.metadata import snapshots
from lsm_core.metadata.manifests import evolves
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions

WATCHING: Final = "its writers compact: watching"
"""Text for a table that its writers compact, in decisions, checks and the ranking of tables."""
WRITERS_SILENT_MINUTES: Final = 60
"""Minutes without a commit after which the platform compacts a table that its writers compact."""
_LOOKED_AT: Final = 20
"""Number of newest snapshots, and of newest compactions of the ledger, that are read."""
_TRIGGERS_BEHIND: Final = 4
"""Multiple of the trigger's sorted runs at which writers count as behind, where the stop trigger is larger or off."""
_WRITES: Final = (CommitKind.APPEND, CommitKind.OVERWRITE)


def runs_behind(options: TableOptions) -> int:
    """Return the number of sorted runs per bucket from which the writers of a primary-key table count as behind."""
    return min(options.stop_trigger, _TRIGGERS_BEHIND * options.compaction_trigger)


def describe_upkeep(store: TableStore, *, by_writers: bool) -> str:
    """Return one line for people: who compacts a table, and when the platform compacts it.

    Args:
        store: the table.
        by_writers: whether the table's own writers compacted it recently (`writers_compact`).
    """
    options = store.options
    never = options.compaction_inline == "never"
    if evolves(store):
        return "Dredge compacts: writers do not join columns (data evolution)"
    if options.write_only or (never and not by_writers):
        why = "write-only" if options.write_only else "dredge.compaction.inline = never"
        return f"Dredge compacts: its writers do not ({why})"
    if not by_writers:
        due = f"at {options.compaction_trigger} sorted runs" if store.has_primary_key else "when its rules pick files"
        return f"its writers may compact (it is not write-only), but none did lately: a run starts {due}"
    return f"{WATCHING} ({describe_watching(options, append_only=not store.has_primary_key)})"


def describe_watching(options: TableOptions, *, append_only: bool) -> str:
    """Return the text that says when the platform starts a compaction although writers compact the table.

    ``append_only`` is whether the table has no primary key.
    """
    limit = "" if append_only else f"at {runs_behind(options)} sorted runs or "
    return f"a run starts {limit}{WRITERS_SILENT_MINUTES} min after their last commit"


def writers_compact(store: TableStore, newest: Snapshot) -> bool:
    """Return whether one of the newest compactions of a table was made by its writers.

    Java's writers, and streams, commit a compaction with the commit user of their rows, even if
    `dredge.compaction.inline` is "never". Batch writers of Dredge compact by a plan, and the ledger records that a
    writer applied the plan. The ledger also has compactions whose snapshots have expired.

    Args:
        store: the table.
        newest: newest snapshot. The search goes back from it and ends at an expired or unreadable snapshot.
    """
    if store.options.write_only or evolves(store):
        return False
    writers, compactors, plans = set[str](), set[str](), set[str]()
    oldest = max(newest.id - _LOOKED_AT, 0)
    expired = False
    for number in range(newest.id, oldest, -1):
        try:
            snapshot = newest if number == newest.id else snapshots.try_read(store, number)
        except CorruptFile:  # health reports the newest snapshot, and damage of others is for checks to find
            snapshot = None
        if snapshot is None:
            expired = True
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
    if store.options.compaction_inline == "never" or not (plans or expired):
        return False
    return any(
        entry.approved_by == BY_WRITER
        and entry.outcome == DONE
        and (entry.plan_hash in plans or oldest < (entry.snapshot_id or 0) <= newest.id)
        for entry in iterate_ledger(store, _LOOKED_AT, heads=True, action="compact")
    )
