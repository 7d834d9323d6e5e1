"""Publication of a snapshot, and the search for its outcome if the storage reports none."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow.compute as pc

from lsm_core.commit.drafts import remove
from lsm_core.commit.message import identities
from lsm_core.errors import CommitUnknown, CorruptFile, DredgeError, LockLost, SnapshotNotFound, TableNotFound
from lsm_core.format.manifest import ADD, merge_entries
from lsm_core.format.snapshot import Snapshot
from lsm_core.locks import Lease, held, lock_settings, table_lock
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions

_LOG = logging.getLogger(__name__)
_JITTER = 0.2


@dataclass
class Retries:
    """Attempts of a commit (options `commit.*`), with exponential waits plus up to 20 % jitter.

    Attributes:
        max_retries: number of attempts after the first.
        min_wait: first wait, in ms.
        max_wait: longest wait, in ms.
        timeout: bound of the whole commit in ms, measured on a monotonic clock; None for no limit.
        sleep: called with seconds.
        attempt: number of the current attempt, from 0.
    """

    max_retries: int
    min_wait: int
    max_wait: int
    timeout: int | None = None
    sleep: Callable[[float], None] = time.sleep
    attempt: int = 0
    _started: float = field(default_factory=time.monotonic)

    @staticmethod
    def of(options: TableOptions) -> Retries:
        """Return the policy of the table's options."""
        return Retries(
            options.commit_max_retries,
            options.commit_min_retry_wait,
            options.commit_max_retry_wait,
            options.commit_timeout,
        )

    def wait(self) -> bool:
        """Sleep before the next attempt; return False, without sleeping, when attempts or time are used up."""
        elapsed_ms = (time.monotonic() - self._started) * 1000
        if self.attempt >= self.max_retries or elapsed_ms >= (self.timeout or float("inf")):
            return False
        pause = min(self.min_wait * 2**self.attempt, self.max_wait)
        pause *= 1 + random.uniform(0, _JITTER)  # noqa: S311 - spreads retries, guards nothing
        self.attempt += 1
        self.sleep(pause / 1000)
        return True


class PublishOutcome(StrEnum):
    """Outcome of an attempt to publish a snapshot."""

    PUBLISHED = "published"
    TAKEN = "taken"


def publish(store: TableStore, snapshot: Snapshot, retries: Retries, base: Snapshot | None = None) -> PublishOutcome:
    """Create ``snapshot-<id>`` exclusively, under the table's lock if it has one.

    Returns:
        PUBLISHED, or TAKEN if the snapshot was definitely not published: another commit has the id, another process
        took over the lock, or ``base`` is no longer the snapshot below it because of a rollback or fast-forward.

    Raises:
        TableNotFound: the table was dropped or replaced before the snapshot was there; the snapshot was deleted.
        CommitUnknown: the storage kept failing and the file could not be read, or the lock was lost during the write.
        LockTimeout: the lock was not free in time; nothing was published. Other typed refusals, such as LockRequired,
            MetastoreFailed and StorageFull, mean the same.
    """
    lock = table_lock(store.file_io, store.root, store.name, store.options, store.clock, snapshot.commit_user)
    if lock is None:
        return _publish(store, snapshot, retries, None, base)
    with held(lock, lock_settings(store.options)) as lease:
        # Who replaces history holds the lock, too: looked at under it, the base stays what it is until ours is there.
        if base is not None and _replaced(base, snapshots.try_read(store, base.id)):
            return PublishOutcome.TAKEN
        return _publish(store, snapshot, retries, lease, base)


def _publish(
    store: TableStore, snapshot: Snapshot, retries: Retries, lease: Lease | None, base: Snapshot | None
) -> PublishOutcome:
    data = snapshot.to_json()
    outcome = _create(store, snapshot.id, data, retries, lease)
    if outcome is PublishOutcome.PUBLISHED:
        try:
            store.require_same()
        except TableNotFound:  # the table was replaced after the last look at it
            _take_back(store, snapshot, data)
            raise
        except (OSError, DredgeError) as error:
            _LOG.warning("table %s: the schema cannot be read after a commit: %s", store.name, error)
    if outcome is PublishOutcome.PUBLISHED and _came_too_late(store, snapshot, base):
        _LOG.warning("table %s: snapshot %d was published too late and is removed again", store.name, snapshot.id)
        _take_back(store, snapshot, data)
        return PublishOutcome.TAKEN
    if outcome is PublishOutcome.PUBLISHED:  # hints may fail: they are never a source of truth
        snapshots.write_latest_hint(store, snapshot.id)
        if snapshot.id == 1:
            snapshots.write_earliest_hint(store, snapshot.id)
    return outcome


def _take_back(store: TableStore, snapshot: Snapshot, data: bytes) -> None:
    """Delete a snapshot that was published wrongly, unless other content has its id by now."""
    path = store.snapshot_path(snapshot.id)
    if _look(store, path) == data:
        remove(store.file_io, [path])


def _create(store: TableStore, snapshot_id: int, data: bytes, retries: Retries, lease: Lease | None) -> PublishOutcome:
    """Try until the file exists, written by this or another process. Writing the same bytes again is safe."""
    path = store.snapshot_path(snapshot_id)
    tried = False
    while True:
        failure: Exception
        try:
            if lease is not None:
                lease.require()
        except DredgeError as error:
            if tried:
                raise CommitUnknown(snapshot_id, str(error)) from error
            if not isinstance(error, LockLost):
                raise
            _LOG.warning("table %s: snapshot %d is not published: %s", store.name, snapshot_id, error)
            return PublishOutcome.TAKEN
        try:
            tried = True
            if store.file_io.write_exclusive(path, data):
                late = "" if lease is None else lease.overdue()
                if late:  # another engine, which relies on the lock alone, may write over it
                    raise CommitUnknown(snapshot_id, f"it was written, but the lock was lost meanwhile: {late}")
                return PublishOutcome.PUBLISHED
            failure = OSError(f"{path} exists and cannot be read")
        except CommitUnknown:
            raise
        except Exception as error:  # noqa: BLE001 - whatever was raised, the file may be there
            failure = error
        seen = _look(store, path)
        if seen is not None:
            return PublishOutcome.PUBLISHED if seen == data else PublishOutcome.TAKEN
        if isinstance(failure, DredgeError):  # a full disk, no hard links: typed refusals come before the link is made
            raise failure
        if not retries.wait():
            raise CommitUnknown(snapshot_id, str(failure)) from failure


def _look(store: TableStore, path: str) -> bytes | None:
    """Return the bytes at a path, or None if the file does not exist or cannot be read."""
    try:
        return store.file_io.read_bytes(path)
    except (OSError, DredgeError):
        return None


def _replaced(base: Snapshot, current: Snapshot | None) -> bool:
    """Return whether another snapshot than ``base`` has its id."""
    return current is not None and not snapshots.is_same(base, current)


def _came_too_late(store: TableStore, snapshot: Snapshot, base: Snapshot | None) -> bool:
    """Return whether the id was free only because its owner has expired, or because the base was rolled back.

    A committer that slept longer than snapshots live between check and publish finds its id deleted, not taken. Expiry
    removes ids in ascending order and never the latest, so an existing predecessor proves the id right. If the
    predecessor is missing but an older one exists, a rollback removed it. If another snapshot has the predecessor's id,
    a rollback and a commit, or a fast-forward, happened: an own snapshot on the removed base would bring it back. If
    the own snapshot is missing then, it was rolled back after its publication.
    """
    try:
        below = snapshots.try_read(store, snapshot.id - 1) if snapshot.id > 1 else None
        replaced = base is not None and _replaced(base, below)
        if below is not None and not replaced:
            return False
        ids = snapshots.list_ids(store)
        later = [snapshot_id for snapshot_id in ids if snapshot_id > snapshot.id]
        if not later and replaced:
            mine = snapshots.try_read(store, snapshot.id)
            return mine is not None and snapshots.is_same(mine, snapshot)
        if not later and ids and ids[0] < snapshot.id - 1:
            return True
        if not later or not snapshots.exists(store, snapshot.id):
            return False  # the newest, or so long in its turn that it has expired itself
        return min(later) > snapshot.id + 1 or not _follows(store, snapshots.read(store, snapshot.id + 1), snapshot)
    except (SnapshotNotFound, CorruptFile, OSError) as error:
        raise CommitUnknown(
            snapshot.id, f"it was written, but it is unknown whether before another writer of the same number: {error}"
        ) from error


def _follows(store: TableStore, successor: Snapshot, snapshot: Snapshot) -> bool:
    """Return whether ``successor`` was built on ``snapshot``.

    Its base then holds the added files of ``snapshot`` and not the deleted ones.
    """
    base = merge_entries(manifests.entries_of(store, manifests.base_list(store, successor)))
    delta = manifests.delta_entries(store, snapshot)
    if not delta.num_rows and successor.index_manifest != snapshot.index_manifest:
        # Index files alone changed, and the successor changed some too: its own may have replaced ours, or
        # never known them.
        raise CommitUnknown(
            snapshot.id, "it was written, but it is unknown whether before another writer of the same number"
        )
    near = set(identities(base.filter(pc.is_in(base.column("file_name"), pc.unique(delta.column("file_name"))))))
    kinds = delta.column("kind").to_pylist()
    return all((which in near) == (kind == ADD) for which, kind in zip(identities(delta), kinds, strict=True))
