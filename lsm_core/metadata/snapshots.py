"""Finding and reading snapshots.

Source: ``SnapshotManager``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise

from lsm_core.errors import CorruptFile, SnapshotNotFound
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import hints
from lsm_core.metadata.store import TableStore
from lsm_core.storage import done_in_turn, place_of

PREFIX = "snapshot-"
_ATTEMPTS = 3
_REMEMBERED_BYTES = 16 * 1024  # largest file whose parsed form is cached


def latest_id(store: TableStore) -> int | None:
    """Return the newest snapshot's id, or None if the table has no commit."""
    return hints.find_latest(store.file_io, store.snapshot_dir, PREFIX)


def earliest_id(store: TableStore) -> int | None:
    """Return the id of the oldest existing snapshot, or None without snapshots."""
    return hints.find_earliest(store.file_io, store.snapshot_dir, PREFIX)


def list_ids(store: TableStore) -> list[int]:
    """Return the ids of all snapshots from a directory listing, ascending."""
    return hints.list_ids(store.file_io, store.snapshot_dir, PREFIX)


def gaps(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return the ranges of missing ids between the first and last of ``ids``.

    Args:
        ids: snapshot ids, ascending.

    Returns:
        First and last missing id of each range.
    """
    return [(left + 1, right - 1) for left, right in pairwise(ids) if right > left + 1]


def exists(store: TableStore, snapshot_id: int) -> bool:
    """Return whether a snapshot exists."""
    return store.file_io.exists(store.snapshot_path(snapshot_id))


def _parse(data: bytes, path: str) -> Snapshot:
    # The bytes belong to the key, so a snapshot that took over a removed id is parsed. A large snapshot is not kept.
    return _parse_cached(data, path) if len(data) <= _REMEMBERED_BYTES else Snapshot.from_json(data, path)


# One look at a table reads its few newest snapshots several times: for its health, its changes and its writers.
_parse_cached = lru_cache(maxsize=256)(Snapshot.from_json)


def read(store: TableStore, snapshot_id: int) -> Snapshot:
    """Return a snapshot.

    Raises:
        SnapshotNotFound: the snapshot does not exist; the error's ``expired`` is true if the snapshot has expired.
        CorruptFile: the file is damaged or contains a different id than its name.
    """
    path = store.snapshot_path(snapshot_id)
    try:
        snapshot = _parse(store.file_io.read_bytes(path), path)
    except FileNotFoundError as error:
        ids = list_ids(store)
        if not ids:
            raise SnapshotNotFound(
                f"table {store.name} has no snapshot {snapshot_id}: nothing was committed yet"
            ) from error
        expired = 0 < snapshot_id < ids[0]
        reason = "it has expired" if expired else "no such snapshot"
        raise SnapshotNotFound(
            f"table {store.name} has no snapshot {snapshot_id}: {reason}; it has {ids[0]} to {ids[-1]}", expired
        ) from error
    if snapshot.id != snapshot_id:
        raise CorruptFile(path, f"holds snapshot id {snapshot.id}")
    return snapshot


def try_read(store: TableStore, snapshot_id: int) -> Snapshot | None:
    """Return a snapshot, or None if it does not exist.

    Raises:
        CorruptFile: the file is damaged.
    """
    path = store.snapshot_path(snapshot_id)
    try:
        return _parse(store.file_io.read_bytes(path), path)
    except FileNotFoundError:
        return None


def find_damaged(store: TableStore, ids: Sequence[int]) -> dict[int, CorruptFile]:
    """Return, by snapshot id, the error of each snapshot file of ``ids`` that exists but cannot be read."""
    damaged = {}
    for snapshot_id in ids:
        try:
            try_read(store, snapshot_id)
        except CorruptFile as error:
            damaged[snapshot_id] = error
    return damaged


def is_same(snapshot: Snapshot, other: Snapshot) -> bool:
    """Return whether two snapshots are the same commit.

    Ids are reused after a rollback, so the names of manifest lists are compared. These names are unique, and stay the
    same when a snapshot is copied to a branch, to main by a fast-forward, or into a tag.
    """
    identity = (snapshot.id, snapshot.base_manifest_list, snapshot.delta_manifest_list)
    return identity == (other.id, other.base_manifest_list, other.delta_manifest_list)


def latest(store: TableStore) -> Snapshot | None:
    """Return the newest snapshot, or None if the table has no commit.

    Raises:
        CorruptFile: the file is damaged.
    """
    hinted = hints.hinted_latest(store.file_io, store.snapshot_dir, PREFIX)
    snapshot = None if hinted is None else try_read(store, hinted)
    if snapshot is not None:
        return snapshot
    for _ in range(_ATTEMPTS):
        ids = list_ids(store)
        snapshot = try_read(store, ids[-1]) if ids else None
        if snapshot is not None or not ids:
            return snapshot
    # The newest snapshot disappeared repeatedly between listing and reading; only a rollback does that.
    ids = list_ids(store)
    return read(store, ids[-1]) if ids else None


def iterate(store: TableStore, ids: list[int] | None = None) -> Iterator[Snapshot]:
    """Yield snapshots, oldest first; skip snapshots that expire during the iteration.

    In object stores, the next few files are requested in advance.

    Args:
        store: the table.
        ids: snapshot ids, or None for all.

    Yields:
        One snapshot at a time.
    """
    reads = (partial(try_read, store, snapshot_id) for snapshot_id in (list_ids(store) if ids is None else sorted(ids)))
    for snapshot in done_in_turn(reads, at_once=bool(place_of(store.root))):
        if snapshot is not None:
            yield snapshot


def write_latest_hint(store: TableStore, snapshot_id: int) -> bool:
    """Write ``snapshot_id`` into the hint file LATEST of the snapshots.

    Returns:
        False if the hint could not be written; readers then list the directory.
    """
    return hints.write_hint(store.file_io, store.snapshot_dir, hints.LATEST, snapshot_id)


def point_latest(store: TableStore) -> int | None:
    """Write the id of the newest listed snapshot into the hint file LATEST, after snapshots were replaced.

    A concurrent commit writes LATEST after its snapshot, so a snapshot that appears after the last listing gets its own
    hint. If snapshots keep appearing, the hint is deleted, and all readers list the directory. A hint to an older
    snapshot followed by a gap in the ids would hide the newest snapshot from every engine.

    Returns:
        Id of the newest snapshot, or None without snapshots.
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
    """Write ``snapshot_id`` into the hint file EARLIEST of the snapshots.

    Returns:
        False if the hint could not be written; readers then list the directory.
    """
    return hints.write_hint(store.file_io, store.snapshot_dir, hints.EARLIEST, snapshot_id)
