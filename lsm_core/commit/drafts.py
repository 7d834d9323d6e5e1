"""Files that belong to a commit: those that an attempt created, and those of messages made for this table.

A definite failure leaves none of them behind.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa

from lsm_core.commit.history import AddedFiles
from lsm_core.commit.message import CommitMessage, Origin, WrittenFile
from lsm_core.errors import CommitUnknown, DredgeError, InvalidData
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import snapshots
from lsm_core.metadata.indexes import index_path
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FileIO, FileStatus, Guarantee, OutputFile, done_in_turn, place_of, same_place

_LOG = logging.getLogger(__name__)


_UNKNOWN = "dredge_outcome_unknown"


def mark_unknown(error: BaseException) -> None:
    """Mark an error that interrupted the publishing of a snapshot: the snapshot may exist."""
    setattr(error, _UNKNOWN, True)


def is_unknown(error: BaseException) -> bool:
    """Return whether a commit that raised an error may have happened."""
    return isinstance(error, CommitUnknown) or getattr(error, _UNKNOWN, False) is True


class RecordingFileIO:
    """FileIO that records the path of every file before it is created; other calls pass through."""

    def __init__(self, inner: FileIO) -> None:
        self.inner = inner
        self.created: list[str] = []

    @property
    def guarantee(self) -> Guarantee:
        """See FileIO."""
        return self.inner.guarantee

    def take(self) -> list[str]:
        """Return the paths recorded since the last call."""
        created, self.created = self.created, []
        return created

    def read_bytes(self, path: str) -> bytes:
        """See FileIO."""
        return self.inner.read_bytes(path)

    def open_input(self, path: str) -> pa.NativeFile:
        """See FileIO."""
        return self.inner.open_input(path)

    def open_output(self, path: str) -> OutputFile:
        """See FileIO."""
        self.created.append(path)
        return self.inner.open_output(path)

    def write_exclusive(self, path: str, data: bytes) -> bool:
        """See FileIO."""
        self.created.append(path)
        return self.inner.write_exclusive(path, data)

    def overwrite(self, path: str, data: bytes, durable: bool = True) -> None:
        """See FileIO."""
        self.inner.overwrite(path, data, durable)

    def exists(self, path: str) -> bool:
        """See FileIO."""
        return self.inner.exists(path)

    def size(self, path: str) -> int:
        """See FileIO."""
        return self.inner.size(path)

    def delete(self, path: str) -> bool:
        """See FileIO."""
        return self.inner.delete(path)

    def list_dir(self, path: str) -> list[FileStatus]:
        """See FileIO."""
        return self.inner.list_dir(path)

    def mkdirs(self, path: str) -> None:
        """See FileIO."""
        self.inner.mkdirs(path)

    def rename(self, src: str, dst: str) -> bool:
        """See FileIO."""
        return self.inner.rename(src, dst)

    def delete_dir(self, path: str) -> bool:
        """See FileIO."""
        return self.inner.delete_dir(path)


def remove(file_io: FileIO, paths: Iterable[str]) -> None:
    """Delete files as far as possible; no snapshot names the remaining ones, so orphan cleaning finds them."""
    for path in paths:
        try:
            file_io.delete(path)
        except (OSError, DredgeError) as error:
            _LOG.warning("could not remove %s, which no snapshot names: %s", path, error)


def abort(store: TableStore, messages: Iterable[CommitMessage]) -> list[str]:
    """Delete the data and index files of messages after a *definite* failure, and return the deleted paths.

    Never call it after :class:`CommitUnknown`. Upgraded files belong to the table and stay. Files stay too if a later
    commit, a tag or a deletion record names them; if these cannot be read, nothing is deleted.
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
        # Dredge writes no external files, so these are not ours to delete.
        if file.file_name not in used and file.external_path is None
        for path in (
            store.data_path(message.partition, message.bucket, name) for name in (file.file_name, *file.extra_files)
        )
    ]
    paths += [
        index_path(store, message.partition, message.bucket, index)
        for message in listed
        for index in message.own_index_files()
        if index.file_name not in used and index.external_path is None
    ]
    remove(store.file_io, paths)
    return paths


@contextmanager
def discard_on_failure(store: TableStore, messages: Sequence[CommitMessage]) -> Iterator[None]:
    """:func:`abort` the messages if the block fails definitely, also by an interruption, and raise the error again.

    While the outcome of a commit inside is unknown nothing is deleted, because the snapshot may name the files.
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

    An orphan cleaner may have deleted it.
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
    """Return the origin for messages that are created now; call it before they are sent.

    Raises:
        CorruptFile: a schema file is damaged.
    """
    return origin_at(store, snapshots.latest(store))


def origin_at(store: TableStore, snapshot: Snapshot | None) -> Origin:
    """Return the origin of messages that were made when ``snapshot`` was the newest."""
    number, known = (0, "") if snapshot is None else (snapshot.id, snapshot.delta_manifest_list)
    return Origin(store.name, store.root, store.branch, number, known)


def messages_of(store: TableStore, messages: object) -> list[CommitMessage]:
    """Return messages as a list, after checking that they were made for this table and branch.

    If the table was renamed since, the messages' own files are in the new directory.

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
                    path
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
