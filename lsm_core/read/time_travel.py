"""From "which version of the table?" to one snapshot."""

from __future__ import annotations

from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore


def resolve(store: TableStore, snapshot_id: int | None = None) -> Snapshot | None:
    """The snapshot to read: the one named, else the latest; None when nothing was ever committed.

    Raises :class:`SnapshotNotFound` (``expired`` set when it once existed) for a named snapshot that is not there.
    """
    return snapshots.latest(store) if snapshot_id is None else snapshots.read(store, snapshot_id)
