"""Whose messages they are, and changes worked out from one snapshot: they fit only while nobody else changed what they come from."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.attempt import Rescan
from lsm_core.commit.changes import IDENTITY, NO_ENTRIES, identities, partitions_of
from lsm_core.commit.conflicts import NEEDED_COLUMNS, adds_above_level0, blame
from lsm_core.commit.drafts import missing_file
from lsm_core.commit.message import CommitMessage, Origin
from lsm_core.errors import CommitConflict, ConflictKind, DredgeError, InvalidData, SnapshotNotFound
from lsm_core.format.file_meta import ADD, DELETE
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import same_place


def origin_of(store: TableStore) -> Origin:
    """What messages made now carry. Ask before they are handed out: nobody can have committed them yet."""
    return Origin(store.name, store.root, store.branch, snapshots.latest_id(store) or 0)


def messages_of(store: TableStore, messages: object) -> list[CommitMessage]:
    """``messages`` as a list, made for this table and branch. Raises :class:`InvalidData` naming both tables, or what is no message.

    A table may have been renamed since: then the messages' own files lie here.
    """
    listed = _listed(store, messages)
    for message in listed:
        origin = message.origin
        if origin is None:
            continue
        same = origin.branch == store.branch and (same_place(origin.root, store.root) or _lies_here(store, message))
        if not same:
            made_for = f"table {origin.table} (branch {origin.branch}, at {origin.root})"
            here = f"branch {store.branch}, at {store.root}"
            reason = f"these commit messages were made for {made_for}; they cannot be committed to this one ({here})"
            raise InvalidData(store.name, "", reason)
    return listed


def _lies_here(store: TableStore, message: CommitMessage) -> bool:
    own = message.own_files()
    try:
        return bool(own) and missing_file(store, [(message, own)]) is None
    except DredgeError:  # a partition of other columns
        return False


def _listed(store: TableStore, messages: object) -> list[CommitMessage]:
    accepted = "commit messages are a list of CommitMessage, as prepare_commit returns it"
    if not isinstance(messages, Iterable) or isinstance(messages, str | bytes):
        raise InvalidData(store.name, "", f"{messages!r:.200} cannot be committed: {accepted}")
    listed: list[CommitMessage] = []
    for place, message in enumerate(messages):
        if not isinstance(message, CommitMessage):
            raise InvalidData(store.name, "", f"item {place}, {message!r:.200}, cannot be committed: {accepted}")
        listed.append(message)
    return listed


def unchanged_since(store: TableStore, entries: pa.Table, snapshot_id: int) -> Rescan:
    """``entries`` as long as no commit after ``snapshot_id`` but compactions touched the buckets they touch.

    The source raises :class:`CommitConflict` naming that commit; also when it cannot be told (expired, rolled back).
    """
    touched = {
        (bytes(p), b) for p, b in zip(entries["partition"].to_pylist(), entries["bucket"].to_pylist(), strict=True)
    }
    checked = snapshot_id

    def source(latest: Snapshot | None) -> tuple[pa.Table, pa.Table]:
        nonlocal checked
        if latest is None or latest.id < snapshot_id:
            reason = f"table {store.name}: snapshot {snapshot_id}, which this change was made from, is gone"
            raise CommitConflict(ConflictKind.BASE_GONE, reason=reason)
        for number in range(checked + 1, latest.id + 1):
            _require_apart(store, number, touched)
        checked = max(checked, latest.id)
        columns = None if adds_above_level0(entries) else list(NEEDED_COLUMNS)
        return manifests.live_entries(store, latest, partitions=partitions_of(entries), columns=columns), entries

    return source


def _require_apart(store: TableStore, number: int, touched: set[tuple[bytes, int]]) -> None:
    try:
        snapshot = snapshots.read(store, number)
        if snapshot.commit_kind is CommitKind.COMPACT:
            return
        delta = manifests.delta_entries(store, snapshot)
    except SnapshotNotFound as error:
        reason = f"table {store.name}: snapshot {number} expired meanwhile, what it changed is unknown"
        raise CommitConflict(ConflictKind.BASE_GONE, reason=reason) from error
    near = delta.filter(pc.is_in(delta.column("partition"), pa.array(sorted({p for p, _ in touched}), pa.binary())))
    places = zip(near["partition"].to_pylist(), near["bucket"].to_pylist(), near["file_name"].to_pylist(), strict=True)
    names = [name for partition, bucket, name in places if (bytes(partition), bucket) in touched]
    if names:
        reason = (
            f"table {store.name}: another commit wrote to a bucket that this change was worked out from; do it again"
        )
        raise CommitConflict(ConflictKind.BUCKET_CHANGED, names, snapshot.commit_user, snapshot.id, reason)


def replacing_all_of(store: TableStore, entries: pa.Table, partitions: list[bytes]) -> Rescan:
    """``entries`` as long as the files they delete are exactly those that live in ``partitions``.

    The source raises :class:`CommitConflict` naming the files that came or went and whose commit that was.
    """
    gone = entries.filter(pc.equal(entries.column("kind"), DELETE))
    expected = set(identities(gone))

    def source(latest: Snapshot | None) -> tuple[pa.Table, pa.Table]:
        live = NO_ENTRIES if latest is None else manifests.live_entries(store, latest, partitions=partitions)
        found = set(identities(live))
        if found == expected:
            return live, entries
        place = IDENTITY.index("file_name")
        came = sorted({str(which[place]) for which in found - expected})
        went = sorted({str(which[place]) for which in expected - found})
        user, number = blame(store, latest, set(came or went), ADD if came else DELETE)
        what = "got files that the new ones do not hold" if came else "lost files that are to be replaced"
        reason = f"table {store.name}: a partition {what}; nothing was replaced"
        raise CommitConflict(ConflictKind.PARTITION_CHANGED, came or went, user, number, reason)

    return source


__all__ = ["messages_of", "origin_of", "replacing_all_of", "unchanged_since"]
