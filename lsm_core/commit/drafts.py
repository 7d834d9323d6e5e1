"""Knows every file that a commit attempt began to write, so that a definite failure leaves none of them behind."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from lsm_core.commit.history import AddedFiles
from lsm_core.commit.message import CommitMessage
from lsm_core.errors import CommitUnknown, DredgeError
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FileIO, FileStatus, OutputFile

_LOG = logging.getLogger(__name__)


_UNKNOWN = "dredge_outcome_unknown"


def mark_unknown(error: BaseException) -> None:
    """Note on ``error``, which interrupted the publishing of a snapshot, that the snapshot may be there."""
    setattr(error, _UNKNOWN, True)


def is_unknown(error: BaseException) -> bool:
    """Whether a commit that raised ``error`` may have happened."""
    return isinstance(error, CommitUnknown) or getattr(error, _UNKNOWN, False) is True


class RecordingFileIO:
    """A FileIO that notes the path of every file before it is created; everything else passes through."""

    def __init__(self, inner: FileIO) -> None:
        self.inner = inner
        self.created: list[str] = []

    def take(self) -> list[str]:
        """The paths noted since the last call."""
        taken, self.created = self.created, []
        return taken

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
    """Delete ``paths`` as far as possible: what stays is named by no snapshot, and orphan cleaning finds it."""
    for path in paths:
        try:
            file_io.delete(path)
        except (OSError, DredgeError) as error:
            _LOG.warning("could not remove %s, which no snapshot names: %s", path, error)


def abort(store: TableStore, messages: Iterable[CommitMessage]) -> list[str]:
    """Delete the data files that ``messages`` brought along, after a *definite* failure only; returns the paths removed.

    Never call it after :class:`CommitUnknown`. Upgraded files belong to the table and stay; so does every file that
    a commit since it was made, a tag or a deletion record names, and when these cannot be read nothing is deleted.
    """
    listed = [message for message in messages if message.own_files()]
    try:
        used = AddedFiles(store, listed).in_use()
    except (OSError, DredgeError) as error:
        _LOG.warning("table %s: cannot tell which files are in use, so none is removed: %s", store.name, error)
        return []
    paths = [
        path
        for message in listed
        for file in message.own_files()
        if file.file_name not in used
        for path in _paths(store, message, file.file_name, file.extra_files, file.external_path)
    ]
    remove(store.file_io, paths)
    return paths


@contextmanager
def discard_on_failure(store: TableStore, messages: Sequence[CommitMessage]) -> Iterator[None]:
    """:func:`abort` the messages, and raise on, when the block fails for certain, be it by an interruption.

    When the outcome of a commit inside is unknown nothing is deleted: the snapshot may name the files. ``messages`` may be a
    list that grows inside the block.
    """
    try:
        yield
    except BaseException as error:
        if not is_unknown(error):
            abort(store, messages)
        raise


def missing_file(store: TableStore, files: Iterable[tuple[CommitMessage, Sequence[DataFileMeta]]]) -> str | None:
    """The path of the first of a commit's ``files`` that is not there any more (an orphan cleaner took it); None: all are."""
    for message, chosen in files:
        for file in chosen:
            path = store.data_path(message.partition, message.bucket, file)
            if not store.file_io.exists(path):
                return path
    return None


def _paths(
    store: TableStore, message: CommitMessage, name: str, extra: Iterable[str], external: str | None
) -> list[str]:
    if external is not None:
        return []  # Dredge writes no external files, so these are not ours to delete
    return [store.data_path(message.partition, message.bucket, one) for one in (name, *extra)]


__all__ = ["RecordingFileIO", "abort", "discard_on_failure", "missing_file", "remove"]
