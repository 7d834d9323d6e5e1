"""Finding and reading snapshots. Source class: ``SnapshotManager``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

from lsm_core.errors import CorruptFile, SnapshotNotFound
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import hints
from lsm_core.metadata.store import TableStore
from lsm_core.storage import done_in_turn, place_of

PREFIX = "snapshot-"
_ATTEMPTS = 3


def latest_id(store: TableStore) -> int | None:
    """Return the newest snapshot's id, or None when nothing was committed."""
    return hints.find_latest(store.file_io, store.snapshot_dir, PREFIX)


def earliest_id(store: TableStore) -> int | None:
    """Return the oldest snapshot's id that is still there, or None."""
    return hints.find_earliest(store.file_io, store.snapshot_dir, PREFIX)


def list_ids(store: TableStore) -> list[int]:
    """Return the ids of all snapshots by listing, ascending."""
    return hints.list_ids(store.file_io, store.snapshot_dir, PREFIX)


def gaps(ids: Sequence[int]) -> list[tuple[int, int]]:
    """The missing ids between the first and the last of ``ids`` (ascending), as (first, last) of each run of them."""
    return [(left + 1, right - 1) for left, right in pairwise(ids) if right > left + 1]


def exists(store: TableStore, snapshot_id: int) -> bool:
    """Tell whether that snapshot is there."""
    return store.file_io.exists(store.snapshot_path(snapshot_id))


def read(store: TableStore, snapshot_id: int) -> Snapshot:
    """Return one snapshot. Raises SnapshotNotFound (``expired`` tells that it once was there), CorruptFile."""
    path = store.snapshot_path(snapshot_id)
    try:
        snapshot = Snapshot.from_json(store.file_io.read_bytes(path), path)
    except FileNotFoundError as error:
        ids = list_ids(store)
        if not ids:
            raise SnapshotNotFound(
                f"table {store.name} has no snapshot {snapshot_id}: nothing was committed yet"
            ) from error
        expired = 0 < snapshot_id < ids[0]
        why = "it has expired" if expired else "no such snapshot"
        raise SnapshotNotFound(
            f"table {store.name} has no snapshot {snapshot_id}: {why}; it has {ids[0]} to {ids[-1]}", expired
        ) from error
    if snapshot.id != snapshot_id:
        raise CorruptFile(path, f"holds snapshot id {snapshot.id}")
    return snapshot


def try_read(store: TableStore, snapshot_id: int) -> Snapshot | None:
    """Return one snapshot, or None when it is not there. Raises CorruptFile."""
    path = store.snapshot_path(snapshot_id)
    try:
        return Snapshot.from_json(store.file_io.read_bytes(path), path)
    except FileNotFoundError:
        return None


def find_damaged(store: TableStore, ids: Sequence[int]) -> dict[int, CorruptFile]:
    """Return those of ``ids`` whose snapshot file is there and cannot be read, each with its error."""
    damaged = {}
    for number in ids:
        try:
            try_read(store, number)
        except CorruptFile as error:
            damaged[number] = error
    return damaged


def is_same(one: Snapshot, other: Snapshot) -> bool:
    """Whether both are one commit. Ids are handed out again after a rollback; names of manifest lists are unique, and stay where a
    snapshot is copied: to a branch, to main by a fast-forward, into a tag."""
    mine = (one.id, one.base_manifest_list, one.delta_manifest_list)
    return mine == (other.id, other.base_manifest_list, other.delta_manifest_list)


def latest(store: TableStore) -> Snapshot | None:
    """Return the newest snapshot, or None when nothing was committed. Raises CorruptFile."""
    hinted = hints.hinted_latest(store.file_io, store.snapshot_dir, PREFIX)
    snapshot = None if hinted is None else try_read(store, hinted)
    if snapshot is not None:
        return snapshot
    for _ in range(_ATTEMPTS):
        ids = list_ids(store)
        snapshot = try_read(store, ids[-1]) if ids else None
        if snapshot is not None or not ids:
            return snapshot
    # It vanished each time between finding and reading it: only a rollback does that.
    ids = list_ids(store)
    return read(store, ids[-1]) if ids else None


def iterate(store: TableStore, ids: list[int] | None = None) -> Iterator[Snapshot]:
    """Yield the snapshots of ``ids`` (default: all), oldest first; those that expire meanwhile are left out.

    Where reading is a request the next few are under way meanwhile.
    """
    reads = (partial(try_read, store, snapshot_id) for snapshot_id in (list_ids(store) if ids is None else sorted(ids)))
    for snapshot in done_in_turn(reads, at_once=bool(place_of(store.root))):
        if snapshot is not None:
            yield snapshot


def write_latest_hint(store: TableStore, snapshot_id: int) -> bool:
    """Point LATEST at ``snapshot_id``; False when it could not be written (harmless)."""
    return hints.write_hint(store.file_io, store.snapshot_dir, hints.LATEST, snapshot_id)


def point_latest(store: TableStore) -> int | None:
    """Point LATEST at the newest snapshot, found by listing, and return its id (None: there is none); for whoever exchanged snapshots.

    A commit at the same time writes the hint after its snapshot. So a snapshot that came after the last listing has its own hint, and one
    that came before it takes the hint away if it cannot be told in time: everybody lists then. Else a hint to an older snapshot, with a gap in
    the ids above it, would hide the newest one from every engine.
    """
    for _ in range(_ATTEMPTS):
        ids = list_ids(store)
        if not ids:
            break
        write_latest_hint(store, ids[-1])
        if list_ids(store)[-1:] == ids[-1:]:
            return ids[-1]
    store.delete(f"{store.snapshot_dir}/{hints.LATEST}")
    return max(list_ids(store), default=None)


def write_earliest_hint(store: TableStore, snapshot_id: int) -> bool:
    """Point EARLIEST at ``snapshot_id``; False when it could not be written (harmless)."""
    return hints.write_hint(store.file_io, store.snapshot_dir, hints.EARLIEST, snapshot_id)
