"""Changes that were worked out from one snapshot: they fit only while nobody else changed what they were worked out from."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.attempt import Rescan
from lsm_core.commit.changes import IDENTITY, NO_ENTRIES, identities, partitions_of
from lsm_core.commit.conflicts import NEEDED_COLUMNS, adds_above_level0, blame
from lsm_core.errors import CommitConflict, SnapshotNotFound
from lsm_core.format.file_meta import ADD, DELETE
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore


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
            raise CommitConflict(
                f"table {store.name}: snapshot {snapshot_id}, which this change was made from, is gone"
            )
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
        raise CommitConflict(
            f"table {store.name}: snapshot {number} expired meanwhile, what it changed is unknown"
        ) from error
    near = delta.filter(pc.is_in(delta.column("partition"), pa.array(sorted({p for p, _ in touched}), pa.binary())))
    places = zip(near["partition"].to_pylist(), near["bucket"].to_pylist(), near["file_name"].to_pylist(), strict=True)
    names = [name for partition, bucket, name in places if (bytes(partition), bucket) in touched]
    if names:
        raise CommitConflict(
            f"table {store.name}: another commit wrote to a bucket that this change was worked out from; do it again",
            names,
            snapshot.commit_user,
            snapshot.id,
        )


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
        raise CommitConflict(
            f"table {store.name}: a partition {what}; nothing was replaced", came or went, user, number
        )

    return source


__all__ = ["replacing_all_of", "unchanged_since"]
