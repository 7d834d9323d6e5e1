"""Finding and reading snapshots, with the hint files LATEST and EARLIEST.

A hint saves a directory listing and is never the source of truth.

Source: ``SnapshotManager``, ``HintFileUtils``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

from lsm_core.errors import CorruptFile, DredgeError, SnapshotNotFound
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FileIO, done_in_turn, place_of

LATEST, EARLIEST = "LATEST", "EARLIEST"
_LOG = logging.getLogger(__name__)


def read_hint(file_io: FileIO, folder: str, name: str) -> int | None:
    """Return the id in a hint file.

    Returns:
        The id, or None if the file is missing or holds no positive number.
    """
    try:
        text = file_io.read_bytes(f"{folder}/{name}").strip()
    except FileNotFoundError:
        return None
    return int(text) if re.fullmatch(rb"[1-9][0-9]{0,18}", text) else None


def write_hint(file_io: FileIO, folder: str, name: str, value: int) -> bool:
    """Overwrite a hint file, in up to 3 attempts.

    Returns:
        False, after a logged warning, if every attempt failed; readers then list the directory.
    """
    for attempt in range(_ATTEMPTS):
        try:
            file_io.overwrite(f"{folder}/{name}", str(value).encode(), durable=False)
            return True
        except (OSError, DredgeError) as error:
            if attempt == _ATTEMPTS - 1:
                _LOG.warning("cannot write hint %s/%s, readers list the directory: %s", folder, name, error)
    return False


def list_numbers(file_io: FileIO, folder: str, prefix: str) -> list[int]:
    """Return the ids of the files ``<prefix><id>`` in ``folder``, ascending."""
    pattern = re.compile(re.escape(prefix) + r"([1-9][0-9]{0,18})")
    matches = (pattern.fullmatch(status.name) for status in file_io.list_dir(folder) if not status.is_dir)
    return sorted(int(match.group(1)) for match in matches if match)


def find_latest(file_io: FileIO, folder: str, prefix: str) -> int | None:
    """Return the newest id, from the hint if it is valid, otherwise from a listing.

    A hint is valid if its own file exists and the file of the next id does not.
    """
    hint = hinted_latest(file_io, folder, prefix)
    # Java skips this check, so a hint that a rollback left behind would name a deleted snapshot.
    if hint is not None and _is_file(file_io, f"{folder}/{prefix}{hint}"):
        return hint
    return max(list_numbers(file_io, folder, prefix), default=None)


def hinted_latest(file_io: FileIO, folder: str, prefix: str) -> int | None:
    """Return the id in LATEST unless the file of the next id exists.

    The caller detects a missing file of the id itself when it reads that file.
    """
    hint = read_hint(file_io, folder, LATEST)
    return None if hint is None or _is_file(file_io, f"{folder}/{prefix}{hint + 1}") else hint


def _is_file(file_io: FileIO, path: str) -> bool:
    """Return whether a file exists, with one request.

    In an object store `exists` would list the folder of that name too.
    """
    try:
        file_io.size(path)
    except FileNotFoundError:
        return False
    return True


def find_earliest(file_io: FileIO, folder: str, prefix: str) -> int | None:
    """Return the oldest id, from the hint if its file exists, otherwise from a listing."""
    hint = read_hint(file_io, folder, EARLIEST)
    if hint is not None and _is_file(file_io, f"{folder}/{prefix}{hint}"):
        return hint
    return min(list_numbers(file_io, folder, prefix), default=None)


PREFIX = "snapshot-"
_ATTEMPTS = 3


def latest_id(store: TableStore) -> int | None:
    """Return the newest snapshot's id, or None if the table has no commit."""
    return find_latest(store.file_io, store.snapshot_dir, PREFIX)


def earliest_id(store: TableStore) -> int | None:
    """Return the id of the oldest existing snapshot, or None without snapshots."""
    return find_earliest(store.file_io, store.snapshot_dir, PREFIX)


def list_ids(store: TableStore) -> list[int]:
    """Return the ids of all snapshots from a directory listing, ascending."""
    return list_numbers(store.file_io, store.snapshot_dir, PREFIX)


def gaps(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return the runs of missing ids between the first and last of ``ids``.

    Args:
        ids: snapshot ids, ascending.

    Returns:
        First and last id of each run.
    """
    return [(left + 1, right - 1) for left, right in pairwise(ids) if right > left + 1]


def exists(store: TableStore, snapshot_id: int) -> bool:
    """Return whether a snapshot exists."""
    return store.file_io.exists(store.snapshot_path(snapshot_id))


def read(store: TableStore, snapshot_id: int) -> Snapshot:
    """Return a snapshot.

    Raises:
        SnapshotNotFound: the snapshot does not exist; ``expired`` is set if it existed once.
        CorruptFile: the file is damaged or holds another id.
    """
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
        return Snapshot.from_json(store.file_io.read_bytes(path), path)
    except FileNotFoundError:
        return None


def find_damaged(store: TableStore, ids: Sequence[int]) -> dict[int, CorruptFile]:
    """Return the error of each snapshot in ``ids`` whose file exists but cannot be read, by id."""
    damaged = {}
    for snapshot_id in ids:
        try:
            try_read(store, snapshot_id)
        except CorruptFile as error:
            damaged[snapshot_id] = error
    return damaged


def is_same(snapshot: Snapshot, other: Snapshot) -> bool:
    """Return whether two snapshots are the same commit.

    Ids are reused after a rollback. Names of manifest lists are unique, and stay the same when a snapshot is copied to
    a branch, to main by a fast-forward, or into a tag.
    """
    identity = (snapshot.id, snapshot.base_manifest_list, snapshot.delta_manifest_list)
    return identity == (other.id, other.base_manifest_list, other.delta_manifest_list)


def latest(store: TableStore) -> Snapshot | None:
    """Return the newest snapshot, or None if the table has no commit.

    Raises:
        CorruptFile: the file is damaged.
    """
    hinted = hinted_latest(store.file_io, store.snapshot_dir, PREFIX)
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
    """Yield snapshots, oldest first; those that expire during the iteration are skipped.

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
    """Point LATEST at ``snapshot_id``.

    Returns:
        False if the hint could not be written, which is harmless.
    """
    return write_hint(store.file_io, store.snapshot_dir, LATEST, snapshot_id)


def point_latest(store: TableStore) -> int | None:
    """Point LATEST at the newest listed snapshot after snapshots were replaced.

    A concurrent commit writes the hint after its snapshot. So a snapshot that appears after the last listing has its
    own hint. If snapshots keep appearing, the hint is deleted and all readers list the directory. Otherwise a hint to
    an older snapshot, with a gap in the ids above it, would hide the newest snapshot from every engine.

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
    store.delete(f"{store.snapshot_dir}/{LATEST}")
    return max(list_ids(store), default=None)


def write_earliest_hint(store: TableStore, snapshot_id: int) -> bool:
    """Point EARLIEST at ``snapshot_id``.

    Returns:
        False if the hint could not be written, which is harmless.
    """
    return write_hint(store.file_io, store.snapshot_dir, EARLIEST, snapshot_id)
