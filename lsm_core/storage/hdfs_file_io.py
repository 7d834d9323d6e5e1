"""Files in HDFS through hdfs-native, which speaks the protocol of name nodes and data nodes without a JVM.

A new snapshot is written under a temporary name and renamed. The name node executes renames one after another and
refuses an existing target, so one of two writers gets the name. Java's Paimon publishes in the same way.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

from lsm_core.errors import CorruptFile, StorageFull, StorageRefused, UnsupportedFeature
from lsm_core.options.catalog_options import HADOOP_CONF, STORAGE_OPTIONS
from lsm_core.storage import file_io
from lsm_core.storage.file_io import Buffer, FileStatus, Guarantee, WriteOnly, require_size
from lsm_core.storage.forks import ForkGuard
from lsm_core.storage.remote_input import RemoteFile
from lsm_core.storage.safe_paths import place_of

_BUFFER: Final = 1 << 20
_MAX_TEXT: Final = 300
_PATIENCE: Final[dict[str, str]] = {
    "dfs.client.failover.max.attempts": "10",
    "dfs.client.failover.sleep.base.millis": "500",
    "dfs.client.failover.sleep.max.millis": "5000",
}
"""Attempts to reach a name node, some 40 s in total."""
_REFUSED: Final = ("AccessControlException", "SafeModeException", "AuthorizationException", "InvalidPathException")
_FULL: Final = ("QuotaExceededException", "QuotaByStorageTypeExceededException")
_NO_FILE: Final = ("ParentNotDirectoryException", "PathIsNotDirectoryException", "MaxPathComponentLengthExceeded")
_NOT_EMPTY: Final = "PathIsNotEmptyDirectoryException"
_forks = ForkGuard("HDFS")


def _error_text(error: BaseException) -> str:
    """Return a message of the library on one line, without the server's stack trace."""
    text = " ".join(str(error).partition("\\n\\tat ")[0].partition("\n\tat ")[0].split())
    text = text.removeprefix("RPCError(").replace('", "', ": ").strip('"')
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


@contextmanager
def _step(name: str, path: str, verb: str = "read") -> Iterator[None]:
    """Trace one I/O step, and convert the library's errors to FileNotFoundError, FileExistsError, OSError or ours.

    Args:
        name: name of the step.
        path: address of the file.
        verb: verb of a refused operation, for messages.
    """
    with file_io.step(name, path):
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
        except FileExistsError as error:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
        except (RuntimeError, OSError, ValueError) as error:
            text = _error_text(error)
            if any(kind in text for kind in _FULL):
                raise StorageFull(path) from error
            if isinstance(error, PermissionError) or any(kind in text for kind in _REFUSED):
                raise StorageRefused(path, text, verb) from error
            if any(kind in text for kind in _NO_FILE):
                raise CorruptFile(path, f"this name cannot be a file: {text}") from error
            raise OSError(errno.EIO, f"HDFS does not answer correctly: {text}", path) from error


class HdfsFileIO:
    """FileIO for the files of one HDFS cluster; paths are full addresses (``hdfs://name-node:8020/folder/file``).

    The configuration is read from the folder of the option `hadoop-conf-dir`, or from `HADOOP_CONF_DIR`. The user is
    that of Kerberos' ticket cache, or `HADOOP_USER_NAME`. A pickled copy has no connections.

    Attributes:
        place: address of the cluster, as in ``hdfs://name-node:8020``; files elsewhere are refused.
        options: the storage options that are set; all further options are ignored.

    Raises:
        UnsupportedFeature: the package hdfs-native is not installed.
    """

    def __init__(self, place: str, options: Mapping[str, str] | None = None) -> None:
        _library()
        self.place = place
        self.options = {key: str(value) for key, value in (options or {}).items() if key in STORAGE_OPTIONS}
        self._client: Any = None
        self._lock = threading.Lock()

    @property
    def guarantee(self) -> Guarantee:
        """Rename without replacement, which the name node executes atomically."""
        return Guarantee.EXCLUSIVE_RENAME

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HdfsFileIO) and self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash((self.place, *sorted(self.options.items())))

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self.place, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.place, self.options = state["place"], state["options"]
        self._client, self._lock = None, threading.Lock()

    def _at(self, path: str) -> tuple[Any, str]:
        """Return the client of the cluster, and the path without the cluster's address.

        Raises:
            CorruptFile: the path is on another storage.
            StorageRefused: this process was forked from one that used HDFS, or the configuration cannot be used.
        """
        if place_of(path) != self.place:
            raise CorruptFile(path, f"is not in {self.place}, unlike the rest of the table")
        _forks.check(path)
        with self._lock:
            if self._client is None:
                try:
                    self._client = _library().Client(self.place, dict(_PATIENCE), self.options.get(HADOOP_CONF))
                except (RuntimeError, OSError, ValueError) as error:
                    reason = f"its address or Hadoop's configuration cannot be used: {_error_text(error)}"
                    raise StorageRefused(self.place, reason, "reach") from error
            return self._client, path[len(self.place) :].rstrip("/") or "/"

    # -- reading ---------------------------------------------------------------------------------------------------

    def read_bytes(self, path: str) -> bytes:
        """Return the whole file.

        Raises:
            CorruptFile: the file is larger than the size limit of its kind.
        """
        client, name = self._at(path)
        with _step("read", path):
            reader = client.inner.read(name)
            size = int(reader.file_length())
            require_size(path, size)
            return bytes(reader.read_range(0, size)) if size else b""

    def open_input(self, path: str) -> RemoteFile:
        """Open a file for random access; one request to the name node tells where its blocks are."""
        client, name = self._at(path)
        with _step("open", path):
            reader = client.inner.read(name)
            size = int(reader.file_length())

        def fetch(start: int, end: int) -> Buffer:
            with _step("read range", path):
                return bytes(reader.read_range(start, end - start))

        def fetch_end(length: int) -> tuple[int, Buffer]:
            start = max(0, size - length)
            return size, fetch(start, size) if size else b""

        return RemoteFile.opened(fetch, fetch_end, lambda: size)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        with _step("exists", path):
            return self._info(path) is not None

    def size(self, path: str) -> int:
        """Return the size in bytes."""
        client, name = self._at(path)
        with _step("size", path):
            return int(client.get_file_info(name).length)

    def list_dir(self, path: str) -> list[FileStatus]:
        """Return the entries of a directory, sorted by name."""
        client, name = self._at(path)
        base, statuses = path.rstrip("/"), []
        with _step("list", path), suppress(FileNotFoundError):
            for entry in client.list_status(name):
                entry_name = entry.path.rstrip("/").rpartition("/")[2]
                size, changed_ms = (0 if entry.isdir else int(entry.length)), int(entry.modification_time)
                statuses.append(FileStatus(f"{base}/{entry_name}", entry_name, size, changed_ms, bool(entry.isdir)))
        return sorted(statuses, key=lambda status: status.name)

    def _info(self, path: str) -> Any:
        """Return the library's status of a file or directory, or None if it does not exist."""
        client, name = self._at(path)
        try:
            return client.get_file_info(name)
        except FileNotFoundError:
            return None

    # -- writing ---------------------------------------------------------------------------------------------------

    def open_output(self, path: str) -> HdfsOutputFile:
        """Create a new file and its parent directories.

        Raises:
            FileExistsError: the file exists.
        """
        client, name = self._at(path)
        return HdfsOutputFile(client, name, path)

    def write_exclusive(self, path: str, data: bytes) -> bool:
        """Write a temporary file, and rename it to the final name unless that exists.

        The temporary name belongs to this call alone. If the response of the rename is lost, the absence of the
        temporary file shows that the rename happened.

        Returns:
            False if the final name exists.
        """
        draft = self._draft(path, data)
        try:
            with _step("publish", path, "create"):
                return self._publish(draft, path)
        finally:
            with suppress(OSError, StorageRefused):
                self.delete(draft)

    def _publish(self, draft: str, path: str) -> bool:
        client, source = self._at(draft)
        try:
            client.rename(source, self._at(path)[1], overwrite=False)
        except (FileExistsError, FileNotFoundError):
            # A repeated request fails in this way, after the first one succeeded.
            return self._info(draft) is None
        except (RuntimeError, OSError):
            with suppress(RuntimeError, OSError):
                if self._info(draft) is None:
                    return True
            raise
        return True

    def overwrite(self, path: str, data: bytes, durable: bool = True) -> None:
        """Write a temporary file, and rename it over the old file."""
        draft = self._draft(path, data, durable)
        try:
            client, source = self._at(draft)
            with _step("replace", path, "create"):
                client.rename(source, self._at(path)[1], overwrite=True)
        except BaseException:
            with suppress(OSError, StorageRefused):
                self.delete(draft)
            raise

    def _draft(self, path: str, data: bytes, durable: bool = True) -> str:
        """Write ``data`` beside ``path`` under a hidden temporary name that orphan removal recognises, as in Paimon.

        Returns:
            Path of the temporary file.
        """
        folder, _, name = path.rpartition("/")
        draft = f"{folder}/.{name}.{uuid.uuid4()}.tmp"
        with self.open_output(draft) as out:
            out.write(data)
            if durable:
                out.sync()
        return draft

    def mkdirs(self, path: str) -> None:
        """Create a directory and its parents."""
        client, name = self._at(path)
        with _step("mkdirs", path, "create"):
            client.mkdirs(name, create_parent=True)

    # -- removing and moving ---------------------------------------------------------------------------------------

    def delete(self, path: str) -> bool:
        """Remove one file.

        Returns:
            Whether the file existed.

        Raises:
            IsADirectoryError: the path is a directory.
        """
        client, name = self._at(path)
        with _step("delete", path, "remove"):
            info = self._info(path)
            if info is None:
                return False
        if info.isdir:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        with _step("delete", path, "remove"):
            return bool(client.delete(name, recursive=False))

    def delete_dir(self, path: str) -> bool:
        """Remove a directory with its content, in one step.

        Returns:
            Whether the directory existed.

        Raises:
            StorageRefused: the path is the root of the cluster.
        """
        client, name = self._at(path)
        if name == "/":
            raise StorageRefused(path, "it is a whole cluster, which Dredge never deletes", "remove")
        with _step("delete_dir", path, "remove"):
            info = self._info(path)
            return info is not None and bool(info.isdir) and bool(client.delete(name, recursive=True))

    def delete_empty_dir(self, path: str) -> bool:
        """Remove a directory if it is empty; the name node refuses the removal of another.

        Returns:
            Whether the directory was removed.
        """
        client, name = self._at(path)
        with _step("delete_empty_dir", path, "remove"):
            info = self._info(path)
            if info is None or not info.isdir or name == "/":
                return False
            try:
                return bool(client.delete(name, recursive=False))
            except RuntimeError as error:
                if _NOT_EMPTY in str(error):
                    return False
                raise

    def rename(self, src: str, dst: str) -> bool:
        """Move a file or directory in one step; an existing file or directory is not replaced.

        Returns:
            False if ``src`` does not exist or ``dst`` exists.
        """
        client, source = self._at(src)
        target = self._at(dst)[1]
        with _step("rename", dst, "move"):
            if self._info(src) is None:
                return False
            client.mkdirs(target.rpartition("/")[0] or "/", create_parent=True)
            try:
                client.rename(source, target, overwrite=False)
            except (FileExistsError, FileNotFoundError):
                return False
            return True


class HdfsOutputFile(WriteOnly):
    """A new file in HDFS, written in pieces of a mebibyte; other readers may see its beginning before ``close``."""

    def __init__(self, client: Any, name: str, path: str) -> None:
        self.path, self._client, self._name = path, client, name
        self._buffer: list[bytes] = []
        self._buffered_bytes = self._length = 0
        self._closed = False
        options = _library().WriteOptions(overwrite=False, create_parent=True)
        with _step("create", path, "create"):
            self._writer = client.inner.create(name, options)

    @property
    def closed(self) -> bool:
        """Whether the file no longer accepts data."""
        return self._closed

    def write(self, data: Buffer) -> int:
        """Append ``data``."""
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        chunk = bytes(data)
        self._buffer.append(chunk)
        self._buffered_bytes += len(chunk)
        self._length += len(chunk)
        if self._buffered_bytes >= _BUFFER:
            self._send()
        return len(chunk)

    def _send(self) -> None:
        data = self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer)
        self._buffer, self._buffered_bytes = [], 0
        if data:
            with _step("write", self.path, "create"):
                self._writer.write(data)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._length

    def flush(self) -> None:
        """Pass all data to the data nodes."""
        self._send()

    def sync(self) -> None:
        """Wait until the data nodes have all data on their disks."""
        self._send()
        if self._length:  # a file without a block cannot be synchronised
            with _step("sync", self.path, "create"):
                self._writer.hsync()

    def close(self) -> None:
        """Complete the file; if that fails, the partial file is removed and the error is raised."""
        if self._closed:
            return
        try:
            self._send()
            self._closed = True
            with _step("close", self.path, "create"):
                self._writer.close()
        except BaseException:
            self._remove()
            raise

    def abort(self) -> None:
        """Close and remove the file; after ``close`` this has no effect."""
        if self._closed:
            return
        self._closed, self._buffer = True, []
        with suppress(RuntimeError, OSError):
            self._writer.close()
        self._remove()

    def _remove(self) -> None:
        self._closed = True
        with suppress(RuntimeError, OSError):
            self._client.delete(self._name, recursive=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def _library() -> Any:
    try:
        import hdfs_native
    except ImportError as error:
        raise UnsupportedFeature("hdfs:// without the package hdfs-native; pip install 'dredge[hdfs]'") from error
    return hdfs_native
