"""Attempts to commit one change as one snapshot: read the base, check, write and merge manifests, publish.

Manifests are merged at every commit, which keeps their number small. If the storage does not report whether a snapshot
was written, the attempt looks for the snapshot. After a definite failure, the metadata files that the attempt created
are deleted. :func:`abort` deletes the data and index files of commit messages.

Source: ``FileStoreCommitImpl``, ``ManifestFileMerger``.
"""

from __future__ import annotations

import copy
import logging
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.conflicts import BaseEntries, Rescan, StrictMode, check
from lsm_core.commit.history import AddedFiles
from lsm_core.commit.manifest_sort import UnknownFields, read_deletions, sort_manifests, sorts_manifests
from lsm_core.commit.message import (
    NO_CHANGE,
    CommitMessage,
    IndexChange,
    Origin,
    WrittenFile,
    identities,
    next_index_manifest,
    rows_of,
)
from lsm_core.errors import (
    CommitConflict,
    CommitUnknown,
    ConflictKind,
    CorruptFile,
    DredgeError,
    InvalidData,
    LockLost,
    SnapshotNotFound,
    TableNotFound,
)
from lsm_core.format.manifest import (
    ADD,
    DELETE,
    Cancelling,
    DataFileMeta,
    HashesMeet,
    ManifestFileMeta,
    has_unknown,
    merge_entries,
    partitions_of,
)
from lsm_core.format.partitions import partition_spec_values
from lsm_core.format.snapshot import MAX_SEQUENCE, CommitKind, Snapshot
from lsm_core.iceberg.settings import writes_metadata
from lsm_core.json_text import parse_object
from lsm_core.locks import Lease, held, lock_settings, table_lock
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.external_paths import declared_paths
from lsm_core.metadata.indexes import index_path
from lsm_core.metadata.manifests import NO_ENTRIES, assign, number_by_snapshot, prune, tracks_rows
from lsm_core.metadata.store import OutcomeUnknown, SnapshotPublisher, TableStore, list_schema_ids
from lsm_core.metadata.support import Purpose, require_supported
from lsm_core.options import TableOptions, written_as
from lsm_core.storage import FileIO, FileStatus, Guarantee, OutputFile, done_in_turn, place_of, same_place

_UNKNOWN = "dredge_outcome_unknown"


def mark_unknown(error: BaseException) -> None:
    """Mark an error as one that interrupted the publishing of a snapshot, so that the snapshot may exist."""
    setattr(error, _UNKNOWN, True)


def is_unknown(error: BaseException) -> bool:
    """Return whether a commit that raised ``error`` may still have published its snapshot."""
    return isinstance(error, CommitUnknown) or getattr(error, _UNKNOWN, False) is True


class RecordingFileIO:
    """FileIO that records the path of each new file before creating it; all calls are delegated to a wrapped FileIO.

    Attributes:
        inner: the wrapped FileIO.
        created: paths passed to :meth:`open_output` and :meth:`write_exclusive` since the last :meth:`take`.
    """

    def __init__(self, inner: FileIO) -> None:
        self.inner = inner
        self.created: list[str] = []

    @property
    def guarantee(self) -> Guarantee:
        """Mechanism that makes `write_exclusive` of the wrapped FileIO atomic."""
        return self.inner.guarantee

    def take(self) -> list[str]:
        """Return the paths recorded since the last call."""
        created, self.created = self.created, []
        return created

    def read_bytes(self, path: str) -> bytes:
        """Return the content of the file ``path``."""
        return self.inner.read_bytes(path)

    def open_input(self, path: str) -> pa.NativeFile:
        """Open the file ``path`` for random access."""
        return self.inner.open_input(path)

    def open_output(self, path: str) -> OutputFile:
        """Record ``path``, then create this file and return it for writing."""
        self.created.append(path)
        return self.inner.open_output(path)

    def write_exclusive(self, path: str, data: bytes) -> bool:
        """Record ``path``, then create this file with ``data``; return False if it exists."""
        self.created.append(path)
        return self.inner.write_exclusive(path, data)

    def overwrite(self, path: str, data: bytes, durable: bool = True) -> None:
        """Replace the content of the file ``path`` by ``data``, without recording the path.

        ``durable``: whether the content must survive a crash of the machine.
        """
        self.inner.overwrite(path, data, durable)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory ``path`` exists."""
        return self.inner.exists(path)

    def size(self, path: str) -> int:
        """Return the size of the file ``path`` in bytes."""
        return self.inner.size(path)

    def delete(self, path: str) -> bool:
        """Remove the file ``path``; return whether it existed."""
        return self.inner.delete(path)

    def list_dir(self, path: str) -> list[FileStatus]:
        """Return the entries of the directory ``path``, sorted by name; empty if it does not exist."""
        return self.inner.list_dir(path)

    def mkdirs(self, path: str) -> None:
        """Create the directory ``path`` and its parents."""
        self.inner.mkdirs(path)

    def rename(self, src: str, dst: str) -> bool:
        """Move the file or directory ``src`` to ``dst``; return False if ``src`` is missing or ``dst`` exists."""
        return self.inner.rename(src, dst)

    def delete_dir(self, path: str) -> bool:
        """Remove the directory ``path`` with its content; return whether it existed."""
        return self.inner.delete_dir(path)

    def delete_empty_dir(self, path: str) -> bool:
        """Remove the directory ``path`` if it is empty; return whether it was removed."""
        return self.inner.delete_empty_dir(path)


def remove(file_io: FileIO, paths: Iterable[str]) -> list[str]:
    """Delete files, and return the paths of those that were deleted.

    Failures are logged. No snapshot refers to the remaining files, so orphan cleaning finds them.
    """
    removed = []
    for path in paths:
        try:
            file_io.delete(path)
            removed.append(path)
        except (OSError, DredgeError) as error:
            _LOG.warning("could not remove %s, which no snapshot names: %s", path, error)
    return removed


def abort(store: TableStore, messages: Iterable[CommitMessage]) -> list[str]:
    """Delete the data and index files of messages after a *definite* failure, and return the deleted paths.

    Never call this function after :class:`CommitUnknown`. Upgraded files are not deleted, nor files in an
    external folder that the table does not declare or that the operator does not allow for writing. Files that a
    commit, a tag, a branch, a changelog or a record of the trash refers to are not deleted either. If that metadata
    cannot be read, nothing is deleted.
    """
    listed = [message for message in messages if message.written()]
    try:
        used = AddedFiles(store, listed).in_use()
    except (OSError, DredgeError) as error:
        _LOG.warning("table %s: cannot tell which files are in use, so none is removed: %s", store.name, error)
        return []
    paths = [
        path
        for message in listed
        for file in message.own_files()
        if file.file_name not in used and _is_ours(store, file.external_path)
        for path in store.data_paths(message.partition, message.bucket, file)
    ]
    paths += [
        index_path(store, message.partition, message.bucket, index)
        for message in listed
        for index in message.own_index_files()
        if index.file_name not in used and _is_ours(store, index.external_path)
    ]
    own: list[str] = []
    for path in paths:
        try:
            own.append(store.own_path(path))
        except DredgeError as error:  # the failure of the commit is reported, not this one
            _LOG.warning("could not remove %s, which no snapshot names: %s", path, error)
    return remove(store.file_io, own)


def _is_ours(store: TableStore, external_path: str | None) -> bool:
    """Return whether Dredge wrote a new file, and may delete it: imported files are in folders of their own."""
    if external_path is None:
        return True
    folder = declared_paths(external_path)[0].folder.rpartition("/")[0]
    external = store.external_paths
    return external.is_declared(folder) and external.describe_refusal(folder, writing=True) is None


@contextmanager
def discard_on_failure(store: TableStore, messages: Sequence[CommitMessage]) -> Iterator[None]:
    """Call :func:`abort` for the messages if the block fails definitely (or is interrupted), and raise the error again.

    If the outcome of a commit in the block is unknown, nothing is deleted, because a snapshot may refer to the files.
    ``messages`` may be a list that grows inside the block.
    """
    try:
        yield
    except BaseException as error:
        if not is_unknown(error):
            abort(store, messages)
        raise


def missing_file(store: TableStore, files: Iterable[tuple[CommitMessage, Sequence[WrittenFile]]]) -> str | None:
    """Return the path of the first file of a commit that does not exist, or None.

    For example, the cleaning of orphan files may have deleted the file.
    """
    paths = [
        store.data_path(message.partition, message.bucket, file)
        if isinstance(file, DataFileMeta)
        else index_path(store, message.partition, message.bucket, file)
        for message, chosen in files
        for file in chosen
    ]
    looks = (partial(store.file_io.exists, path) for path in paths)
    exist = done_in_turn(looks, at_once=bool(place_of(store.root)))
    return next((path for path, existing in zip(paths, exist, strict=True) if not existing), None)


def origin_of(store: TableStore) -> Origin:
    """Return the origin (table and its newest snapshot) for commit messages that are created now.

    Raises:
        CorruptFile: a schema file is damaged.
    """
    return origin_at(store, snapshots.latest(store))


def origin_at(store: TableStore, snapshot: Snapshot | None) -> Origin:
    """Return the origin (table, snapshot) of commit messages that were made when ``snapshot`` was the newest."""
    number, known = (0, "") if snapshot is None else (snapshot.id, snapshot.delta_manifest_list)
    return Origin(store.name, store.root, store.branch, number, known)


def messages_of(store: TableStore, messages: object) -> list[CommitMessage]:
    """Return messages as a list, after checking that they were made for this table and branch.

    If the table was renamed after the messages were made, their files are in the new directory.

    Raises:
        InvalidData: a message was made for another table, or is not a message.
    """
    accepted = "commit messages are a list of CommitMessage, as prepare_commit returns it"
    if not isinstance(messages, Iterable) or isinstance(messages, str | bytes):
        raise InvalidData(store.name, "", f"{messages!r:.200} cannot be committed: {accepted}")
    listed: list[CommitMessage] = []
    for place, message in enumerate(messages):
        if not isinstance(message, CommitMessage):
            raise InvalidData(store.name, "", f"item {place}, {message!r:.200}, cannot be committed: {accepted}")
        listed.append(message)
    for message in listed:
        origin = message.origin
        if origin is None:
            continue
        same = origin.branch == store.branch and (same_place(origin.root, store.root) or _lies_here(store, message))
        if not same:
            made_for = f"table {origin.table} (branch {origin.branch}, at {origin.root})"
            here = f"branch {store.branch}, at {store.root}"
            reason = f"these commit messages were made for {made_for}; they cannot be committed to this table ({here})"
            raise InvalidData(store.name, "", reason)
    return listed


def without_changelog(store: TableStore, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
    """Return the messages of an overwrite without their changelog files, which are deleted with a warning."""
    result = []
    for message in messages:
        changelog_files = (*message.changelog_files, *message.compact_changelog)
        if changelog_files:
            _LOG.warning(
                "table %s: an overwrite tells no changes, %d changelog files are deleted",
                store.name,
                len(changelog_files),
            )
            remove(
                store.file_io,
                [
                    store.own_path(path)
                    for file in changelog_files
                    for path in store.data_paths(message.partition, message.bucket, file)
                ],
            )
        result.append(replace(message, changelog_files=(), compact_changelog=()))
    return result


def _lies_here(store: TableStore, message: CommitMessage) -> bool:
    own = message.written()
    try:
        return bool(own) and missing_file(store, [(message, own)]) is None
    except DredgeError:  # a partition of other columns
        return False


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
        """Return the number of attempts and the waits that the table's options set."""
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
    """Outcome of an attempt to publish a snapshot.

    Attributes:
        PUBLISHED: the snapshot exists.
        TAKEN: the snapshot was not published, for example because another commit has its id; a new attempt may follow.
    """

    PUBLISHED = "published"
    TAKEN = "taken"


def publish(
    store: TableStore,
    snapshot: Snapshot,
    retries: Retries,
    base: Snapshot | None = None,
    entries: pa.Table | None = None,
    changes: Sequence[Mapping[str, Any]] | None = None,
) -> PublishOutcome:
    """Create ``snapshot-<id>`` exclusively, under the table's lock if it has one.

    If a catalog server publishes the table's snapshots, the snapshot is sent to this server instead.

    Args:
        store: the table.
        snapshot: the snapshot to publish.
        retries: attempts that remain, with their waits.
        base: snapshot on which it was built, or None.
        entries: manifest entries of the change (`ENTRY_SCHEMA`), whose counts a catalog server gets.
        changes: these counts (`partition_changes`), in place of ``entries``.

    Returns:
        PUBLISHED, or TAKEN if the snapshot was definitely not published. The reason for TAKEN is one of: another commit
        has the id, another process took over the lock, or ``base`` is no longer the previous snapshot because of a
        rollback or fast-forward.

    Raises:
        TableNotFound: the table was dropped or replaced before the snapshot was written; the snapshot was deleted.
        CommitUnknown: the storage kept failing and the file could not be read, or the lock was lost during the write.
        LockTimeout: the lock was not free in time; nothing was published.
        DredgeError: any other error, such as LockRequired, MetastoreFailed or StorageFull; nothing was published.
    """
    if store.publisher is not None:
        if changes is None:
            changes = [] if entries is None else partition_changes(store, entries)
        return _publish_on_server(store, store.publisher, snapshot, retries, base, changes)
    lock = table_lock(store.file_io, store.root, store.name, store.options, store.clock, snapshot.commit_user)
    if lock is None:
        return _publish(store, snapshot, retries, None, base)
    with held(lock, lock_settings(store.options)) as lease:
        # Rollbacks and fast-forwards hold the lock too, so the base cannot be replaced before publishing.
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


def _publish_on_server(
    store: TableStore,
    publisher: SnapshotPublisher,
    snapshot: Snapshot,
    retries: Retries,
    base: Snapshot | None,
    changes: Sequence[Mapping[str, Any]],
) -> PublishOutcome:
    """Let a catalog server publish a snapshot; a request with an unknown outcome is looked up in the table's folder.

    The same request may be sent again: the server gives an id to one snapshot only. A refusal of the second request
    says nothing about the first one, which the server may still carry out.

    Raises:
        CommitUnknown: the server may have published the snapshot, and the snapshot cannot be read.
        DredgeError: the server refused, or the table was dropped; nothing was published.
    """
    unknown = ""  # the reason why an earlier request may still be carried out
    while True:
        if not unknown and base is not None and _replaced(base, snapshots.try_read(store, base.id)):
            return PublishOutcome.TAKEN
        refusal: DredgeError | None = None
        answered = True
        try:
            if publisher.publish(snapshot, base, store.branch, changes):
                return PublishOutcome.PUBLISHED
        except OutcomeUnknown as error:
            unknown, answered = str(error), False
        except DredgeError as error:
            if not unknown:
                raise
            refusal = error
        try:
            seen = snapshots.try_read(store, snapshot.id)
        except (OSError, DredgeError) as error:
            reason = f"{unknown or 'the server refused it'}; it cannot be read: {error}"
            raise CommitUnknown(snapshot.id, reason) from error
        if seen is not None:
            return PublishOutcome.PUBLISHED if snapshots.is_same(seen, snapshot) else PublishOutcome.TAKEN
        if not unknown:  # a definite answer, and no snapshot of this id: the base is not the newest snapshot any more
            return PublishOutcome.TAKEN
        if answered:
            latest = refusal or "the server refused to publish it again"
            raise CommitUnknown(snapshot.id, f"{unknown}; then: {latest}") from refusal
        if not retries.wait():
            raise CommitUnknown(snapshot.id, unknown)


def partition_changes(store: TableStore, entries: pa.Table) -> list[dict[str, Any]]:
    """Return how a commit changes the counts of each partition, in the form of Paimon's `PartitionStatistics`.

    Args:
        store: the table.
        entries: manifest entries of the change (`ENTRY_SCHEMA`).

    Returns:
        One object per changed partition with the members `spec`, `recordCount`, `fileSizeInBytes` (bytes),
        `fileCount`, `lastFileCreationTime` (epoch ms) and `totalBuckets`; counts of deleted files are negative.
    """
    if not entries.num_rows:
        return []
    sign = pc.if_else(pc.equal(entries.column("kind"), ADD), pa.scalar(1, pa.int64()), pa.scalar(-1, pa.int64()))
    counts = pa.table(
        {
            "partition": entries.column("partition"),
            "rows": pc.multiply(entries.column("row_count"), sign),
            "bytes": pc.multiply(entries.column("file_size"), sign),
            "files": sign,
            "time": pc.fill_null(entries.column("creation_time_ms"), 0),
            "buckets": entries.column("total_buckets"),
        }
    )
    sums = [("rows", "sum"), ("bytes", "sum"), ("files", "sum"), ("time", "max"), ("buckets", "last")]
    totals = counts.group_by("partition", use_threads=False).aggregate(sums)
    return partition_counts(store, totals, [f"{column}_{function}" for column, function in sums])


def partition_counts(store: TableStore, totals: pa.Table, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return counts of partitions in the form of Paimon's `PartitionStatistics`; see :func:`partition_changes`.

    Args:
        store: the table.
        totals: one row per partition, with the column `partition` (serialised rows).
        columns: names of the columns with the rows, bytes, files, newest creation time (epoch ms) and buckets.
    """
    specs = partition_spec_values(store.schema, totals.column("partition").to_pylist(), store.options)
    names = ("recordCount", "fileSizeInBytes", "fileCount", "lastFileCreationTime", "totalBuckets")
    columns = [totals.column(column).to_pylist() for column in columns]
    return [
        {"spec": spec, **dict(zip(names, values, strict=True))}
        for spec, values in zip(specs, zip(*columns, strict=True), strict=True)
    ]


def _take_back(store: TableStore, snapshot: Snapshot, data: bytes) -> None:
    """Delete a snapshot that must not have been published, unless the file of its id now has different content."""
    path = store.snapshot_path(snapshot.id)
    if _look(store, path) == data:
        remove(store.file_io, [path])


def _create(store: TableStore, snapshot_id: int, data: bytes, retries: Retries, lease: Lease | None) -> PublishOutcome:
    """Try to create a snapshot file until the file exists, whether this or another process has written it.

    Writing the same bytes again is safe.

    Args:
        store: the table.
        snapshot_id: id in the file's name.
        data: content of the snapshot file.
        retries: attempts that remain, with their waits.
        lease: lock of the table that must still be held before each attempt; None for a table without a lock.

    Returns:
        PUBLISHED if the file has the content ``data``. TAKEN if it has other content, or if the lock was lost before
        the first attempt.

    Raises:
        CommitUnknown: the file may or may not exist.
        DredgeError: the storage or the lock failed.
    """
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
    """Return whether ``current``, the snapshot with the id of ``base``, is a different commit than ``base``."""
    return current is not None and not snapshots.is_same(base, current)


def _came_too_late(store: TableStore, snapshot: Snapshot, base: Snapshot | None) -> bool:
    """Return whether a snapshot that was just published must be deleted again, because it came too late.

    This is so if its id was used before by another commit whose snapshot has expired, or if its base was rolled back.

    If a committer pauses between check and publish for longer than snapshots are retained, the snapshot of another
    commit with this id may already have expired. Expiry removes ids in ascending order and never the latest, so an
    existing previous snapshot proves that the id was free. If the previous snapshot is missing but an older one exists,
    a rollback removed it. If a different snapshot has the previous id, a rollback and a commit, or a fast-forward,
    happened. A new snapshot on the removed base would then restore the removed content. If the new snapshot is missing
    in that case, it was rolled back after its publication.

    Args:
        store: the table.
        snapshot: the published snapshot.
        base: snapshot on which it was built, or None.
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
            return False  # the snapshot is the newest, or was valid and has expired since
        return min(later) > snapshot.id + 1 or not _follows(store, snapshots.read(store, snapshot.id + 1), snapshot)
    except (SnapshotNotFound, CorruptFile, OSError) as error:
        raise CommitUnknown(
            snapshot.id, f"it was written, but it is unknown whether before another writer of the same number: {error}"
        ) from error


def _follows(store: TableStore, successor: Snapshot, snapshot: Snapshot) -> bool:
    """Return whether ``successor`` was built on ``snapshot``.

    If so, the base of ``successor`` contains the files that ``snapshot`` added, and not the files that it deleted.
    """
    base = merge_entries(manifests.entries_of(store, manifests.base_list(store, successor)))
    delta = manifests.delta_entries(store, snapshot)
    if not delta.num_rows and successor.index_manifest != snapshot.index_manifest:
        # Only index files changed, and the successor changed index files too, so it is unknown whether the
        # successor was built on this snapshot.
        raise CommitUnknown(
            snapshot.id, "it was written, but it is unknown whether before another writer of the same number"
        )
    near = set(identities(base.filter(pc.is_in(base.column("file_name"), pc.unique(delta.column("file_name"))))))
    kinds = delta.column("kind").to_pylist()
    return all((which in near) == (kind == ADD) for which, kind in zip(identities(delta), kinds, strict=True))


def merge_manifests(
    store: TableStore, metas: Sequence[ManifestFileMeta], writer: TableStore | None = None
) -> list[ManifestFileMeta]:
    """Merge the manifests of the last snapshot (base, then delta) into the base manifests of the next snapshot.

    The live entries stay the same. Manifests with unknown fields are never rewritten.

    Args:
        store: the table.
        metas: manifests of the last snapshot.
        writer: store whose FileIO writes new manifests; None for ``store``.
    """
    if sorts_manifests(store):
        in_order = sort_manifests(store, metas, writer)
        if in_order is not None:
            return in_order
    full = full_merge(store, metas, store.options.manifest_target_size, store.options.manifest_full_threshold, writer)
    if full is not None:
        return full
    return minor_merge(store, metas, store.options.manifest_target_size, store.options.manifest_merge_min_count, writer)


class NothingToMerge(DredgeError):
    """Error that no manifest can be merged, so that no new snapshot is needed."""


def compacted(
    store: TableStore, metas: Sequence[ManifestFileMeta], writer: TableStore | None = None
) -> list[ManifestFileMeta]:
    """Merge all manifests that are small or contain deletions, and return the resulting manifests.

    Unlike at a commit, the number and total size of such manifests do not matter. Manifests that are sorted by a
    partition column are merged as at a commit.

    Args:
        store: the table.
        metas: all manifests of a snapshot.
        writer: the table with the FileIO that creates new manifests; None for ``store``.

    Raises:
        NothingToMerge: no manifest would change.

    Source: Paimon `compactManifest`.
    """
    target = store.options.manifest_target_size
    merged = sort_manifests(store, metas, writer) if sorts_manifests(store) else None
    if merged is None:
        merged = full_merge(store, metas, target, 1, writer)
    if merged is None:
        merged = minor_merge(store, metas, target, 1, writer)
    if {meta.file_name for meta in merged} == {meta.file_name for meta in metas}:
        raise NothingToMerge(f"table {store.name} has no manifests to merge")
    return merged


def full_merge(
    store: TableStore,
    metas: Sequence[ManifestFileMeta],
    target: int,
    threshold: int,
    writer: TableStore | None = None,
) -> list[ManifestFileMeta] | None:
    """Rewrite all manifests that contain deletions, contain files that are deleted, or are small.

    The result contains no DELETE entries, so the order of its manifests does not matter: unchanged manifests come
    first. Memory holds the deletions and two manifests.

    Args:
        store: the table.
        metas: all manifests, base then delta.
        target: size below which a manifest is small (bytes).
        threshold: smallest total size (bytes) of the small manifests and manifests with deletions for a rewrite.
        writer: store whose FileIO writes new manifests; None for ``store``.

    Returns:
        The manifests; None if the threshold is not reached, if at most one manifest would be rewritten, or if a
        manifest has unknown fields.
    """
    must = [meta for meta in metas if meta.num_deleted_files > 0 or meta.file_size < target]
    if not must or sum(meta.file_size for meta in must) < threshold:
        return None
    chosen = {meta.file_name for meta in must}
    deletions = read_deletions(store, must)
    deleted_names, deleted_partitions = pc.unique(deletions.column("file_name")), partitions_of(deletions)
    kept: list[ManifestFileMeta] = []
    rewritten: list[ManifestFileMeta] = []
    for meta in metas:
        if meta.file_name in chosen:
            rewritten.append(meta)
            continue
        # A large manifest is rewritten only when a deletion cancels one of its additions.
        if deletions.num_rows and prune([meta], store.schema.partition_types, deleted_partitions, None, None):
            names = manifests.read_manifest(store, meta, lambda part: part.select(["file_name"])).column("file_name")
            if pc.any(pc.is_in(names, deleted_names)).as_py():
                rewritten.append(meta)
                continue
        kept.append(meta)
    if len(rewritten) <= 1:
        return None
    try:
        return kept + manifests.write_manifests(writer or store, _live(store, rewritten, Cancelling(deletions)))
    except (UnknownFields, HashesMeet):
        return None


def _live(store: TableStore, metas: Sequence[ManifestFileMeta], cancelling: Cancelling) -> Iterator[pa.Table]:
    """Yield the live entries of manifests, one manifest after another.

    Args:
        store: the table.
        metas: the manifests.
        cancelling: deletions, which cancel the entries of the files that they delete.

    Raises:
        UnknownFields: an entry has fields that Dredge does not know.
    """
    for meta in metas:
        entries = manifests.read_manifest(store, meta)
        if has_unknown(entries) is not None:
            raise UnknownFields(meta.file_name)
        yield cancelling.survivors(entries)


def minor_merge(
    store: TableStore,
    metas: Sequence[ManifestFileMeta],
    target: int,
    min_count: int,
    writer: TableStore | None = None,
) -> list[ManifestFileMeta]:
    """Merge neighbouring manifests into files of the target size.

    Args:
        store: the table.
        metas: the manifests, in order.
        target: target size of a manifest (bytes).
        min_count: smallest number of files in the last group; fewer files stay as they are.
        writer: the table with the FileIO that creates new manifests; None for ``store``.

    Returns:
        The manifests after the merge, in order.
    """
    result: list[ManifestFileMeta] = []
    group: list[ManifestFileMeta] = []
    size = 0
    for meta in metas:
        group.append(meta)
        size += meta.file_size
        if size >= target:
            result += _merge_group(store, group, writer)
            group, size = [], 0
    return result + (_merge_group(store, group, writer) if len(group) >= max(min_count, 1) else group)


def _merge_group(
    store: TableStore, group: Sequence[ManifestFileMeta], writer: TableStore | None
) -> list[ManifestFileMeta]:
    if len(group) == 1:
        return list(group)
    tables = [manifests.read_manifest(store, meta) for meta in group]
    result: list[ManifestFileMeta] = []
    together: list[int] = []
    for place in range(len(group) + 1):
        # Manifests with unknown fields are kept unchanged and in place, so that the order of entries stays the same.
        if place < len(group) and has_unknown(tables[place]) is None:
            together.append(place)
            continue
        if len(together) == 1:
            result.append(group[together[0]])
        elif together:
            merged = merge_entries(pa.concat_tables([tables[number] for number in together]))
            result += manifests.write_manifests(writer or store, merged) if merged.num_rows else []
        together = []
        result += group[place : place + 1]
    return result


_LOG = logging.getLogger(__name__)
_CATCHING_UP = 8
"""Largest number of times that one attempt reads the base again because other writers committed."""


class Phase(StrEnum):
    """Phases of a commit, in order."""

    READ_BASE = "read_base"
    WRITE_MANIFESTS = "write_manifests"
    PUBLISH = "publish"
    CLEAN = "clean"


Hook = Callable[[Phase, Mapping[str, object]], None]


class CommitHooks:
    """Hooks that call ``hook(phase, info)`` when a phase begins.

    ``info`` contains plain values such as ``snapshot_id`` and ``attempt``. If a hook raises an error, the commit stops
    at this phase, as after a crash.
    """

    def __init__(self, hook: Hook | None = None) -> None:
        self._hook = hook

    def enter(self, phase: Phase, **info: object) -> None:
        """Call the hook for the beginning of a phase."""
        if self._hook is not None:
            self._hook(phase, info)


@dataclass(frozen=True)
class Request:
    """Content of one snapshot.

    Attributes:
        kind: kind of the snapshot.
        entries: manifest entries of the change.
        user: commit user.
        identifier: commit identifier.
        watermark: epoch ms, or None.
        properties: properties of the snapshot.
        rescan: function that returns live entries and entries of the change at every attempt, for overwrites and
            compactions; None to use ``entries``.
        added: new files of writers, which the table must never have contained. None for compactions, which list the
            files that they replace.
        index: index files that are added and removed.
        changelog: entries of changelog files.
        merge: function that returns the base manifests of the snapshot from all manifests of the previous snapshot.
        lost_rows: number of rows that ``merge`` loses.
        strict: check for commits of other users at every attempt; None for no check.
        statistics: statistics file of the snapshot; None to keep the previous file.
        purpose: writing or compaction. The commit fails if the previous snapshot uses a feature that Dredge does not
            support for this purpose.
        looked_at: id of the snapshot up to which earlier commits of the user were searched for this commit. None if the
            same commit may be made twice.
        by_writer: whether the new files have rows of writers, not rows that the table had already.
    """

    kind: CommitKind
    entries: pa.Table
    user: str
    identifier: int
    watermark: int | None = None
    properties: Mapping[str, str] | None = None
    rescan: Rescan | None = None
    added: AddedFiles | None = None
    index: IndexChange = NO_CHANGE
    changelog: pa.Table = field(default_factory=lambda: NO_ENTRIES)
    merge: Callable[[TableStore, Sequence[ManifestFileMeta], TableStore], list[ManifestFileMeta]] = merge_manifests
    lost_rows: int = 0
    strict: StrictMode | None = None
    statistics: str | None = None
    purpose: Purpose = Purpose.WRITE
    looked_at: int | None = None
    by_writer: bool = True

    def discards_duplicates(self, store: TableStore) -> bool:
        """Return whether new files that the table has already are left out (`commit.discard-duplicate-files`).

        This is done only for APPEND snapshots without changelog files: streams would read a repeated changelog twice.
        """
        only_appends = self.kind is CommitKind.APPEND and self.rescan is None and not self.changelog.num_rows
        return only_appends and bool(store.options.get("commit.discard-duplicate-files"))


class CommitRun:
    """Runs one :class:`Request` through attempts.

    Every file that an attempt creates is deleted after a definite failure and kept while the outcome is unknown.

    Source: Paimon `FileStoreCommitImpl.tryCommit`.
    """

    def __init__(self, store: TableStore, request: Request, hooks: CommitHooks) -> None:
        # New metadata goes through the recorder; publishing does not, so that no cleaning can ever reach a
        # snapshot file.
        self._files = RecordingFileIO(store.file_io)
        self._store = store
        self._drafts = copy.copy(store)
        self._drafts.file_io, self._drafts.kept = self._files, store.kept
        self._request = request
        self._hooks = hooks
        self._retries = Retries.of(store.options)
        self._delta: tuple[str, int] | None = None
        self._changelog: tuple[str, int] | None = None
        self._delta_files: list[str] = []
        self._base_id = self._next_row_id = 0
        self._latest: Snapshot | None = None
        self._entries: pa.Table | None = None
        self._base = BaseEntries(store)

    def run(self) -> int:
        """Commit, and return the id of the published snapshot.

        Raises:
            CommitConflict: the change conflicts with the newest snapshot; nothing was committed.
            CommitUnknown: the outcome could not be read; no file was deleted.
            DredgeError: the storage failed before publishing; nothing was committed.
        """
        while True:
            self._files.take()
            attempt_files: list[str] = []
            try:
                snapshot, attempt_files = self._prepare()
                self._hooks.enter(Phase.PUBLISH, snapshot_id=snapshot.id, attempt=self._retries.attempt)
            except (CorruptFile, SnapshotNotFound, FileNotFoundError):
                self._clean(self._files.take())
                # Files may be missing because the base snapshot expired, but only if there is a newer snapshot.
                newest = snapshots.latest_id(self._store)
                if newest in (None, self._base_id) or not self._retries.wait():
                    self._clean_all()
                    raise
                continue
            except BaseException:
                self._clean(self._files.take() + attempt_files)
                self._clean_all()
                raise
            if self._publish(snapshot, attempt_files):
                if self._request.strict is not None:
                    self._request.strict.published(snapshot.id)
                self._publish_iceberg(snapshot)
                self._list_partitions(snapshot)
                return snapshot.id
            if not self._retries.wait():
                self._clean_all()
                attempts = self._retries.attempt + 1
                reason = (
                    f"table {self._store.name}: other commits took the next snapshot id {attempts} times; "
                    "retry, or raise commit.max-retries"
                )
                raise CommitConflict(ConflictKind.RACES_LOST, (), None, snapshot.id, reason)

    def _publish(self, snapshot: Snapshot, attempt_files: list[str]) -> bool:
        try:
            outcome = publish(self._store, snapshot, self._retries, self._latest, self._entries)
        except CommitUnknown:
            raise  # the snapshot may be visible, so its files must stay
        except DredgeError:
            self._clean(attempt_files)
            self._clean_all()
            raise
        except BaseException as error:  # interrupted
            mark_unknown(error)
            raise
        self._hooks.enter(Phase.CLEAN, snapshot_id=snapshot.id, outcome=outcome.value)
        if outcome is PublishOutcome.TAKEN:
            self._clean(attempt_files)
        return outcome is PublishOutcome.PUBLISHED

    def _publish_iceberg(self, snapshot: Snapshot) -> None:
        """Write the table's Iceberg metadata of a published snapshot, if it has any."""
        if not writes_metadata(self._store.options):
            return
        from lsm_core.iceberg.writing import publish_commit

        try:
            publish_commit(self._store, snapshot, None if self._request.lost_rows else self._entries)
        except BaseException as error:  # interrupted; the snapshot is visible, so its files must stay
            mark_unknown(error)
            raise

    def _list_partitions(self, snapshot: Snapshot) -> None:
        """List the partitions of a published snapshot in the metastore, if it keeps a list of them."""
        if self._store.partition_list is None or self._entries is None:
            return
        from lsm_core.commit.partition_listing import list_partitions

        try:
            list_partitions(self._store, snapshot, self._entries)
        except BaseException as error:  # interrupted; the snapshot is visible, so its files must stay
            mark_unknown(error)
            raise

    # -- one attempt -------------------------------------------------------------------------------------------------

    def _read_base(self) -> tuple[Snapshot | None, list[ManifestFileMeta], pa.Table, pa.Table]:
        """Return (latest snapshot, its manifests, live entries that may conflict, entries of the change)."""
        store, request = self._store, self._request
        if self._retries.attempt:  # before any manifest is written; the committer checked it for the first attempt
            store.require_folder()
        latest = self._latest = snapshots.latest(store)
        self._base_id = latest.id if latest is not None else 0
        self._hooks.enter(Phase.READ_BASE, snapshot_id=self._base_id, attempt=self._retries.attempt)
        require_supported(store, request.purpose, latest)
        # All manifests of the latest snapshot, base then delta, are the base of the next one.
        old = [] if latest is None else manifests.data_manifests(store, latest)
        if request.rescan is not None:
            base, entries = request.rescan(latest)
            self._forget_delta()
            return latest, old, base, entries
        if latest is None:
            return latest, old, request.entries.slice(0, 0), request.entries
        are_new = request.added is not None and request.added.are_new(latest)
        return latest, old, self._base.at(latest, old, request.entries, request.index, are_new=are_new), request.entries

    def _prepare(self) -> tuple[Snapshot, list[str]]:
        """Read the latest snapshot, check the change for conflicts, and write the manifests.

        Returns:
            The snapshot to publish, and the paths of the files that this attempt created.
        """
        store, request = self._store, self._request
        latest, old, base, entries = self._read_base()
        # If other writers commit all the time, the base is outdated as soon as it is read. Only the changes
        # since then are read again, which is fast.
        for _ in range(_CATCHING_UP if self._retries.attempt and request.rescan is None else 0):
            if snapshots.latest_id(store) in (None, self._base_id):
                break
            latest, old, base, entries = self._read_base()
        if request.discards_duplicates(store) and base.num_rows:
            near = base.filter(pc.is_in(base.column("file_name"), pc.unique(entries.column("file_name"))))
            present = set(identities(near))
            entries = entries.filter(pa.array([which not in present for which in identities(entries)], pa.bool_()))
            self._forget_delta()  # of an attempt on another base
        if request.strict is not None:
            request.strict.check(latest, request.kind, list({*partitions_of(entries), *request.index.partitions}))
        check(store, base, entries, request.kind, latest)
        if request.looked_at is not None:
            self._require_first(request.looked_at)
        if request.added is not None:
            request.added.require_new(latest)
        self._next_row_id = (latest.next_row_id or 0) if latest is not None else 0
        if tracks_rows(store):  # ids depend on the snapshot id, so each attempt assigns new ids
            entries, self._next_row_id = assign(entries, self._base_id + 1, self._next_row_id)
            self._forget_delta()
        elif store.options.snapshot_ordering and request.by_writer and request.kind is not CommitKind.COMPACT:
            entries = number_by_snapshot(entries, self._base_id + 1)
            self._forget_delta()
        self._hooks.enter(Phase.WRITE_MANIFESTS, snapshot_id=self._base_id + 1, attempt=self._retries.attempt)
        if self._delta is None:
            self._files.take()
            self._delta = manifests.write_list(self._drafts, manifests.write_manifests(self._drafts, entries))
            if request.changelog.num_rows:
                changelog_manifests = manifests.write_manifests(self._drafts, request.changelog)
                self._changelog = manifests.write_list(self._drafts, changelog_manifests)
            self._delta_files = self._files.take()
        index_manifest = next_index_manifest(store, self._drafts, latest, request.index, base, entries, request.user)
        base_list = manifests.write_list(self._drafts, request.merge(store, old, self._drafts))
        self._entries = entries
        return self._snapshot(latest, entries, base_list, index_manifest), self._files.take()

    def _require_first(self, looked_at: int) -> None:
        """Raise CommitConflict if another process of the user has committed this identifier with different files.

        Only the snapshots after id ``looked_at``, up to the base of this attempt, are read.
        """
        request, store = self._request, self._store
        for number in range(looked_at + 1, self._base_id + 1):
            snapshot = snapshots.try_read(store, number)
            if snapshot is None or (snapshot.commit_user, snapshot.commit_identifier) != (
                request.user,
                request.identifier,
            ):
                continue
            if (snapshot.commit_kind is CommitKind.COMPACT) == (request.kind is CommitKind.COMPACT):
                reason = (
                    f"table {store.name}: commit {request.identifier} of {request.user} was made meanwhile by "
                    "another process"
                )
                raise CommitConflict(ConflictKind.ALREADY_COMMITTED, (), request.user, number, reason)

    def _snapshot(
        self, latest: Snapshot | None, entries: pa.Table, base_list: tuple[str, int], index_manifest: str | None
    ) -> Snapshot:
        assert self._delta is not None
        request, store = self._request, self._store
        store.require_same()
        schema_id = max(list_schema_ids(store.file_io, store.root, store.branch), default=store.identity.id)
        added, deleted = rows_of(entries, ADD), rows_of(entries, DELETE) + request.lost_rows
        marks = [mark for mark in (request.watermark, latest.watermark if latest else None) if mark is not None]
        return Snapshot(
            id=self._base_id + 1,
            schema_id=schema_id,
            base_manifest_list=base_list[0],
            base_manifest_list_size=base_list[1],
            delta_manifest_list=self._delta[0],
            delta_manifest_list_size=self._delta[1],
            changelog_manifest_list=None if self._changelog is None else self._changelog[0],
            changelog_manifest_list_size=None if self._changelog is None else self._changelog[1],
            index_manifest=index_manifest,
            commit_user=request.user,
            commit_identifier=request.identifier,
            commit_kind=request.kind,
            time_millis=store.clock.now_ms(),
            total_record_count=(latest.total_record_count if latest else 0) + added - deleted,
            delta_record_count=added - deleted,
            changelog_record_count=rows_of(request.changelog, ADD),
            watermark=max(marks) if marks else None,
            statistics=request.statistics or _inherited_statistics(store, latest, schema_id),
            uuid=None if store.publisher is None else str(uuid.uuid4()),  # the server compares it with a commit's base
            properties={**(request.properties or {}), **numbered(store, latest, entries)} or None,
            next_row_id=self._next_row_id,
            log_offsets=latest.log_offsets if latest else None,
            others=latest.others if latest else None,
            writer_version=written_as(store.options.paimon_version),
        )

    # -- cleaning ----------------------------------------------------------------------------------------------------

    def _forget_delta(self) -> None:
        self._clean(self._delta_files)
        self._delta, self._changelog, self._delta_files = None, None, []

    def _clean_all(self) -> None:
        self._forget_delta()
        self._clean(self._files.take())

    def _clean(self, paths: list[str]) -> None:
        remove(self._store.file_io, paths)


def numbered(store: TableStore, latest: Snapshot | None, entries: pa.Table) -> dict[str, str]:
    """Return the property to add to the next snapshot: the largest sequence number of a primary-key table.

    The result is empty unless option `write.sequence-number-init-mode` is `snapshot`. Java stores this number as a
    property of each snapshot. If the previous snapshot does not have the property, all live entries are read.
    """
    if store.options.get("write.sequence-number-init-mode") != "snapshot" or not store.schema.primary_keys:
        return {}
    known = None if latest is None else (latest.properties or {}).get(MAX_SEQUENCE)
    tables = [entries]
    if latest is not None and known is None:
        tables.append(manifests.live_entries(store, latest, columns=["max_sequence_number"]))
    numbers = [pc.max(table.column("max_sequence_number")).as_py() for table in tables if table.num_rows]
    return {MAX_SEQUENCE: str(max([int(known or -1), *numbers]))}


def _inherited_statistics(store: TableStore, latest: Snapshot | None, schema_id: int) -> str | None:
    """Return the statistics file that the next snapshot keeps, or None.

    Statistics are valid only for the schema that they were computed with. A file that cannot be read now may be
    readable later, so it is kept as long as the schema id is the same. A damaged file is not kept.
    """
    if latest is None or latest.statistics is None:
        return None
    try:
        path = store.statistics_path(latest.statistics)
        statistics = parse_object(store.file_io.read_bytes(path), path)
    except (OSError, DredgeError) as error:
        stays = latest.schema_id == schema_id and not isinstance(error, (FileNotFoundError, CorruptFile))
        consequence = "are kept unread" if stays else "end here"
        _LOG.warning(
            "table %s: statistics %s cannot be read and %s: %s", store.name, latest.statistics, consequence, error
        )
        return latest.statistics if stays else None
    return latest.statistics if statistics.get("schemaId") == schema_id else None
