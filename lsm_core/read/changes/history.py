"""One snapshot after the other, expired ones too as long as their changelog is kept. Source class: ``NextSnapshotFetcher``."""

from __future__ import annotations

from bisect import bisect_left

from lsm_core.errors import SnapshotNotFound
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import changelogs, snapshots
from lsm_core.metadata.store import TableStore


def read_kept(store: TableStore, snapshot_id: int) -> Snapshot:
    """The snapshot, or what is left of it where only its changelog is kept. Raises SnapshotNotFound, CorruptFile."""
    found = snapshots.try_read(store, snapshot_id)
    if found is not None:
        return found
    try:
        return changelogs.read_changelog(store, snapshot_id)
    except SnapshotNotFound:
        return snapshots.read(store, snapshot_id)  # says what the table has


def next_snapshot(store: TableStore, snapshot_id: int) -> Snapshot | None:
    """The snapshot of that id; None when it is the next one and not there yet.

    Raises SnapshotNotFound when it has expired without a changelog, or can never come because the table was rolled back or
    made anew.
    """
    found = snapshots.try_read(store, snapshot_id)
    if found is not None:
        return found
    first, last = snapshots.earliest_id(store), snapshots.latest_id(store)
    if first is None or first <= snapshot_id:
        following = 1 if last is None else last + 1
        if snapshot_id > following:
            raise SnapshotNotFound(
                f"table {store.name} continues with snapshot {following}, the stream with {snapshot_id}: "
                "the table was rolled back or made anew"
            )
        return snapshots.try_read(store, snapshot_id)
    return read_kept(store, snapshot_id)


def is_gone(store: TableStore, snapshot_id: int) -> bool:
    """Whether neither the snapshot nor its changelog is there."""
    there = snapshots.exists(store, snapshot_id) or store.file_io.exists(changelogs.changelog_path(store, snapshot_id))
    return not there


def earliest_kept(store: TableStore) -> int | None:
    """Id of the oldest snapshot that is there, or whose changelog is and all that follow too; None without any."""
    first = snapshots.earliest_id(store)
    if first is None:
        return None
    kept = set(changelogs.list_changelogs(store))
    while first - 1 in kept:
        first -= 1
    return first


def first_since(store: TableStore, timestamp_ms: int) -> int | None:
    """Id of the oldest kept snapshot committed at ``timestamp_ms`` or later, the one to come if there is none; None without any.

    Source class: ``TimeTravelUtil``.
    """
    first, last = earliest_kept(store), snapshots.latest_id(store)
    if first is None or last is None:
        return None
    return bisect_left(range(first, last + 1), timestamp_ms, key=lambda n: read_kept(store, n).time_millis) + first


__all__ = ["earliest_kept", "first_since", "is_gone", "next_snapshot", "read_kept"]
