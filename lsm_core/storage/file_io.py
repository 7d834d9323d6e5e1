"""Protocol for file storage; the whole engine accesses files only through it.

Size limits for metadata files keep a huge or sparse file from filling the memory of its reader. Each table object has a
cache for immutable files (footers, indexes, sizes), limited in bytes. Tests that kill processes read a trace of I/O
steps.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Protocol, Self, runtime_checkable

import pyarrow as pa

from lsm_core.errors import CorruptFile

Buffer = bytes | bytearray | memoryview


class Guarantee(StrEnum):
    """Mechanism that makes `FileIO.write_exclusive`, which publishes snapshots, atomic across processes."""

    EXCLUSIVE_CREATE = "exclusive-create"
    """The file system refuses to create or link an existing name."""
    EXCLUSIVE_RENAME = "exclusive-rename"
    """The file system renames in one step and refuses an existing name (HDFS)."""
    CONDITIONAL_PUT = "conditional-put"
    """The object store refuses a request for an existing name (S3: If-None-Match)."""
    NONE = "none"
    """No mechanism: two processes may both find the name free and both write. Commits need a lock."""


@dataclass(frozen=True)
class FileStatus:
    """One directory entry; symbolic links are not followed.

    Attributes:
        path: full path.
        name: last component of the path.
        size: size in bytes.
        mtime_ms: time of the last modification (epoch ms).
        is_dir: whether the entry is a directory.
    """

    path: str
    name: str
    size: int
    mtime_ms: int
    is_dir: bool


@runtime_checkable
class OutputFile(Protocol):
    """A new file to be written, usable as a sink of Arrow and Parquet writers.

    Leaving its ``with`` block with an exception removes the file, like ``abort``.

    Raises:
        StorageFull: the storage is full.
    """

    @property
    def closed(self) -> bool:
        """Whether the file no longer accepts data."""
        ...

    def write(self, data: Buffer) -> int:
        """Append ``data`` and return its length in bytes."""
        ...

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        ...

    def flush(self) -> None:
        """Pass all data to the operating system."""
        ...

    def close(self) -> None:
        """Complete the file; its name may be published only afterwards."""
        ...

    def abort(self) -> None:
        """Close and remove the file; after ``close`` this has no effect."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def is_object_store(file_io: FileIO) -> bool:
    """Return whether files are in an object store, whose files cannot be renamed."""
    return file_io.guarantee in (Guarantee.CONDITIONAL_PUT, Guarantee.NONE)


Deleted = bool | OSError
"""Outcome of one deletion: True if deleted, False if the file did not exist, or the error of the deletion."""


def delete_files(file_io: FileIO, paths: Sequence[str]) -> Iterator[Deleted]:
    """Delete files and yield the outcome of each file, in order; some stores delete many files with one request.

    Args:
        file_io: access to the files.
        paths: absolute paths.

    Yields:
        True if the file was deleted, False if it did not exist, or the OSError of the deletion.

    Raises:
        StorageRefused: the storage refuses; later files are not deleted.
    """
    if isinstance(file_io, DeletesMany):
        yield from file_io.delete_many(paths)
        return
    for path in paths:
        try:
            yield file_io.delete(path)
        except OSError as error:
            yield error


class WriteOnly:
    """What every output file answers to Python's io consumers: it can only be written."""

    def writable(self) -> bool:
        """Return True: this is a sink for Python's io consumers."""
        return True

    def readable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return False."""
        return False


@runtime_checkable
class DeletesMany(Protocol):
    """Interface of a FileIO whose store can delete many files with one request."""

    def delete_many(self, paths: Sequence[str]) -> Iterator[Deleted]:
        """Delete files by absolute path, and yield the outcome of each file, in order.

        Yields:
            True if the file was deleted, False if it did not exist, or the OSError of the deletion.
        """
        ...


@runtime_checkable
class FileIO(Protocol):
    """Access to files by absolute path; implementations can be pickled.

    Raises:
        FileNotFoundError: a file is missing.
        StorageFull: the disk is full.
    """

    @property
    def guarantee(self) -> Guarantee:
        """Mechanism that makes `write_exclusive` atomic."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content of a file."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for random access, without memory-mapping, because mapped pages count as memory in use."""
        ...

    def open_output(self, path: str) -> OutputFile:
        """Create a new file and its parent directories.

        Raises:
            FileExistsError: the file exists; raised by this call or at the latest on closing.
        """
        ...

    def write_exclusive(self, path: str, data: bytes) -> bool:
        """Create ``path`` with ``data``, complete and durable, atomically across processes according to `guarantee`.

        After an error the file may or may not exist.

        Returns:
            False if the file exists.
        """
        ...

    def overwrite(self, path: str, data: bytes, durable: bool = True) -> None:
        """Replace the content of ``path``; readers see the old or the new content, never a part.

        Args:
            path: absolute path.
            data: the new content.
            durable: whether the content survives a crash of the machine. If false, the file may be empty after a crash;
                use False only for hints.
        """
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        ...

    def size(self, path: str) -> int:
        """Return the size in bytes."""
        ...

    def delete(self, path: str) -> bool:
        """Remove one file.

        Returns:
            Whether the file existed.
        """
        ...

    def list_dir(self, path: str) -> list[FileStatus]:
        """Return the entries of a directory, sorted by name; empty if the directory does not exist."""
        ...

    def mkdirs(self, path: str) -> None:
        """Create a directory and its parents."""
        ...

    def rename(self, src: str, dst: str) -> bool:
        """Move a file or directory.

        Returns:
            False if ``src`` does not exist or ``dst`` exists.
        """
        ...

    def delete_dir(self, path: str) -> bool:
        """Remove a directory with its content.

        Returns:
            Whether the directory existed.
        """
        ...

    def delete_empty_dir(self, path: str) -> bool:
        """Remove a directory if it is empty, in one step; a directory with content is kept.

        Returns:
            Whether the directory was removed.
        """
        ...


TRACE_VARIABLE = "DREDGE_TRACE"


@contextmanager
def step(name: str, path: str) -> Iterator[None]:
    """Write ``begin`` and ``end`` (or ``fail``) lines around one I/O step if ``DREDGE_TRACE`` names a file.

    Each line is a JSON object ``{"pid", "ns", "event", "step", "path"}``. ``ns`` is the machine's monotonic clock, so
    lines of several processes can be ordered. Each line is one append, so lines are never mixed.
    """
    target = os.environ.get(TRACE_VARIABLE)
    if not target:
        yield
        return
    _append(target, "begin", name, path)
    try:
        yield
    except BaseException:
        _append(target, "fail", name, path)
        raise
    _append(target, "end", name, path)


def _append(target: str, event: str, name: str, path: str) -> None:
    line = {"pid": os.getpid(), "ns": time.monotonic_ns(), "event": event, "step": name, "path": path}
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, (json.dumps(line) + "\n").encode())
    finally:
        os.close(handle)


_MIB: Final = 1 << 20
_HINT: Final = 4096
_BY_PREFIX: Final = (
    ("snapshot-", 64 * _MIB),
    ("changelog-", 64 * _MIB),
    ("tag-", 64 * _MIB),
    ("consumer-", _MIB),
    ("holding-", _MIB),
    ("_SUCCESS", _MIB),
    ("schema-", 256 * _MIB),
)
_ICEBERG: Final = 256 * _MIB
_RECORD: Final = 512 * _MIB
_OTHER: Final = 1024 * _MIB


def most_bytes(path: str) -> int:
    """Return the size limit of a metadata file, chosen by its name.

    Args:
        path: path of the file.

    Returns:
        Limit in bytes: 4 KiB for hints, 1 to 256 MiB for further kinds of Paimon's files, 512 MiB for plans and records
        in `dredge`, 1 GiB for manifests and all remaining files.
    """
    folder, _, name = path.rpartition("/")
    if name in ("LATEST", "EARLIEST", "version-hint.text"):
        return _HINT
    if name.endswith(".metadata.json"):
        return _ICEBERG
    for prefix, bound in _BY_PREFIX:
        if name.startswith(prefix):
            return bound
    return _RECORD if "/dredge/" in f"{folder}/" else _OTHER


def require_size(path: str, size: int) -> None:
    """Refuse a metadata file that is larger than its kind allows.

    Args:
        path: path of the file.
        size: size of the file in bytes.

    Raises:
        CorruptFile: the file is larger than its limit.
    """
    bound = most_bytes(path)
    if size > bound:
        raise CorruptFile(path, f"it has {size:,} bytes; a file of this kind has at most {bound:,}")


KEPT_BYTES: Final = 64 << 20
"""Default size limit of a table's cache (bytes)."""


class Kept:
    """Thread-safe LRU cache of at most ``limit`` bytes; callers pass the size (weight) of each value.

    A key consists of a kind and values that identify immutable data, such as a file's path, so entries never become
    invalid.
    """

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.size = 0

    def get(self, key: Hashable) -> Any:
        """Return the value of ``key``, or None if it is absent or was evicted."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: Any, weight: int) -> None:
        """Store a value; the least recently used entries are evicted, and a value above the limit is not stored.

        Args:
            key: kind and path.
            value: the value.
            weight: approximate size of the value in bytes.
        """
        if weight > self._limit:
            return
        with self._lock:
            previous = self._entries.pop(key, None)
            self.size += weight - (0 if previous is None else previous[1])
            self._entries[key] = (value, weight)
            while self.size > self._limit:
                _, (_, weight_freed) = self._entries.popitem(last=False)
                self.size -= weight_freed
