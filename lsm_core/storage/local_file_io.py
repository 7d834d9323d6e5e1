"""Files on a local or mounted disk, with the guarantees that commits need: exclusive creation, durable publishing."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

import pyarrow as pa

from lsm_core.errors import CorruptFile, StorageFull, StorageRefused, UnsupportedFeature
from lsm_core.storage import file_io
from lsm_core.storage.file_io import Buffer, FileStatus, Guarantee, WriteOnly, require_size
from lsm_core.storage.safe_paths import PathBelow

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_FILE = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO})
_REFUSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})
_BUFFER = 256 * 1024


class _Step:
    """Context that traces one I/O step; raises StorageFull for a full disk, CorruptFile for an impossible file name.

    A generator as context takes several times as long, and one look at a small table has 90 steps.
    """

    __slots__ = ("_path", "_trace")

    def __init__(self, name: str, path: str) -> None:
        self._path = path
        self._trace = file_io.step(name, path) if os.environ.get(file_io.TRACE_VARIABLE) else None

    def __enter__(self) -> None:
        if self._trace is not None:
            self._trace.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._trace is not None:
            self._trace.__exit__(kind, error, traceback)
        if isinstance(error, OSError):
            if error.errno in _FULL:
                raise StorageFull(self._path) from error
            if error.errno in _NO_FILE:
                raise CorruptFile(self._path, f"this name cannot be a file: {os.strerror(error.errno)}") from error


@contextmanager
def _creating(name: str, path: str) -> Iterator[None]:
    """Trace a step that creates a file; after StorageRefused, nothing was created.

    Do not use this context to publish links, because a link may have been created although an error is reported.
    """
    with _Step(name, path), _refusals(path, "create"):
        yield


@contextmanager
def _refusals(path: str, verb: str) -> Iterator[None]:
    """Convert the errors of a read-only or forbidden file system in the block to StorageRefused.

    Args:
        path: path that the block changes, for messages.
        verb: verb of the refused operation, for messages.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _REFUSED:
            raise StorageRefused(path, os.strerror(error.errno), verb) from error
        raise


class LocalOutputFile(WriteOnly):
    """Output stream to a new local file, which must not exist yet."""

    def __init__(self, path: str, sync: bool = False) -> None:
        self.path, self._sync, self._length = path, sync, 0
        with _creating("create", path):
            try:
                raw = io.FileIO(path, "xb")
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                raw = io.FileIO(path, "xb")
        self._file = io.BufferedWriter(raw, _BUFFER)

    @property
    def closed(self) -> bool:
        """Whether the file no longer accepts data."""
        return self._file.closed

    def write(self, data: Buffer) -> int:
        """Append ``data``."""
        with _Step("write", self.path):
            size = self._file.write(data)
        self._length += size
        return size

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._length

    def flush(self) -> None:
        """Pass all data to the operating system."""
        with _Step("flush", self.path):
            self._file.flush()

    def close(self) -> None:
        """Complete the file; if that fails, the partial file is removed and the error is raised."""
        if self._file.closed:
            return
        try:
            with _Step("close", self.path):
                self._file.flush()
                if self._sync:
                    os.fsync(self._file.fileno())
                self._file.close()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Close and remove the file."""
        if self._file.closed:
            return
        # The buffer may still contain bytes that cannot be written; they are dropped with the raw file.
        with suppress(OSError):
            self._file.raw.close()
        with suppress(OSError, ValueError):
            self._file.detach()
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class LocalFileIO:
    """FileIO for local paths.

    Snapshots, schemas, tags and records (`write_exclusive`) are fsynced before they get their names.

    Attributes:
        sync_data: whether all remaining new files (manifests, data files) are fsynced too. If false, a power failure
            may lose files of a surviving snapshot, as in Paimon; a killed process loses nothing.
    """

    def __init__(self, sync_data: bool = False) -> None:
        self.sync_data = sync_data

    @property
    def guarantee(self) -> Guarantee:
        """Exclusive creation by hard link; a file system without hard links causes UnsupportedFeature."""
        return Guarantee.EXCLUSIVE_CREATE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalFileIO) and self.sync_data == other.sync_data

    def __hash__(self) -> int:
        return hash(("local", self.sync_data))

    def read_bytes(self, path: str) -> bytes:
        """Return the whole file.

        Raises:
            CorruptFile: the path is not a regular file, or the file is larger than its size limit.
        """
        with _Step("read", path):
            # A FIFO without a writer would block a normal open forever.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                status = os.fstat(handle)
                _require_regular(path, status.st_mode)
                require_size(path, status.st_size)
                return _read_all(handle, path, status.st_size)
            finally:
                os.close(handle)

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for random access."""
        with _Step("open", path):
            _require_regular(path, os.stat(path).st_mode)  # Arrow would wait for a FIFO's writer
            return pa.OSFile(path, "rb")

    def open_output(self, path: str) -> LocalOutputFile:
        """Create a new file.

        Raises:
            FileExistsError: the file exists.
        """
        return LocalOutputFile(path, self.sync_data)

    def write_exclusive(self, path: str, data: bytes) -> bool:
        """Write a temporary file, fsync it, and hard-link it to the final name.

        Returns:
            False if the final name exists.

        Raises:
            UnsupportedFeature: the file system has no hard links.
        """
        draft = self._draft(path, data)
        try:
            with _Step("link", path):
                try:
                    os.link(draft, path)
                except FileExistsError:
                    return False
                except OSError as error:
                    if error.errno in _NO_LINKS:
                        raise UnsupportedFeature(
                            f"publishing snapshots on a file system without hard links, at {path}"
                        ) from error
                    raise
                _sync_dir(os.path.dirname(path))
            return True
        finally:
            with suppress(OSError):
                os.unlink(draft)

    def overwrite(self, path: str, data: bytes, durable: bool = True) -> None:
        """Write a temporary file, fsync it if ``durable``, and rename it over the old file."""
        draft = self._draft(path, data, durable)
        try:
            with _Step("replace", path):
                os.replace(draft, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise

    def _draft(self, path: str, data: bytes, durable: bool = True) -> str:
        """Write ``data`` beside ``path`` under a hidden temporary name that orphan removal recognises, as in Paimon.

        Args:
            path: final path of the file.
            data: content of the file.
            durable: whether to fsync the temporary file.

        Returns:
            Path of the temporary file.
        """
        folder, name = os.path.split(path)
        draft = os.path.join(folder, f".{name}.{uuid.uuid4()}.tmp")
        with LocalOutputFile(draft, sync=durable) as out:
            out.write(data)
        return draft

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        with _Step("exists", path):
            return os.path.lexists(path)

    def size(self, path: str) -> int:
        """Return the size in bytes."""
        with _Step("size", path):
            return os.stat(path).st_size

    def delete(self, path: str) -> bool:
        """Remove one file; a `PathBelow` is deleted by handle, through no symbolic link below its root.

        Returns:
            Whether the file existed.
        """
        with _Step("delete", path):
            try:
                if isinstance(path, PathBelow):
                    with _folder_below(path) as (folder, name):
                        os.unlink(name, dir_fd=folder)
                else:
                    os.unlink(path)
            except FileNotFoundError:
                return False
            return True

    def list_dir(self, path: str) -> list[FileStatus]:
        """Return the entries of a directory, sorted by name."""
        statuses: list[FileStatus] = []
        with _Step("list", path):
            try:
                with os.scandir(path) as entries:
                    for entry in entries:
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:  # removed during the listing
                            continue
                        is_dir, changed_ms = entry.is_dir(follow_symlinks=False), status.st_mtime_ns // 1_000_000
                        statuses.append(FileStatus(entry.path, entry.name, status.st_size, changed_ms, is_dir))
            except FileNotFoundError:
                return []
        return sorted(statuses, key=lambda status: status.name)

    def mkdirs(self, path: str) -> None:
        """Create a directory and its parents."""
        with _creating("mkdirs", path):
            os.makedirs(path, exist_ok=True)

    def rename(self, src: str, dst: str) -> bool:
        """Move a file or directory; an existing file or directory is not replaced.

        Returns:
            False if ``src`` does not exist or ``dst`` exists.
        """
        with _Step("rename", dst), _refusals(src, "move"):
            if os.path.lexists(dst):
                return False
            try:
                os.makedirs(os.path.dirname(dst), exist_ok=True)
                if os.path.isdir(src):
                    os.rename(src, dst)  # fails for a non-empty target
                else:
                    os.link(src, dst)
                    os.unlink(src)
            except (FileNotFoundError, FileExistsError):
                return False
            return True

    def delete_dir(self, path: str) -> bool:
        """Remove a directory with its content; links inside are removed, not followed.

        If the parent directory forbids the removal, nothing is removed.

        Returns:
            Whether the directory existed.
        """
        with _Step("delete_dir", path), _refusals(path, "remove"):
            if os.path.islink(path) or not os.path.isdir(path):
                return False
            folder = os.path.dirname(path)
            if not os.access(folder, os.W_OK | os.X_OK):
                error_number = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
                raise OSError(error_number, os.strerror(error_number), path)
            if isinstance(path, PathBelow):
                with _folder_below(path) as (parent_handle, name):
                    shutil.rmtree(name, dir_fd=parent_handle)
            else:
                shutil.rmtree(path)
            return True

    def delete_empty_dir(self, path: str) -> bool:
        """Remove a directory if it is empty; a `PathBelow` is removed through no symbolic link below its root.

        Returns:
            Whether the directory was removed.
        """
        with _Step("delete_empty_dir", path):
            try:
                if isinstance(path, PathBelow):
                    with _folder_below(path) as (parent_handle, name):
                        os.rmdir(name, dir_fd=parent_handle)
                else:
                    os.rmdir(path)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    return False
                raise
            return True


def _require_regular(path: str, mode: int) -> None:
    """Raise IsADirectoryError for a directory, and CorruptFile for a FIFO, device or socket.

    Args:
        path: path of the file, for messages.
        mode: the file's ``st_mode``.
    """
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise CorruptFile(path, f"it is not a regular file ({stat.filemode(mode)})")


def _read_all(handle: int, path: str, size: int) -> bytes:
    """Return the content of an open file; a file that grows beyond its limit during the read is refused.

    Args:
        handle: file descriptor.
        path: path of the file, which determines its size limit.
        size: expected size of the file in bytes.
    """
    data = os.read(handle, size + 1)
    if len(data) == size:
        return data
    parts, length = [data], len(data)
    while part := os.read(handle, _BUFFER):
        parts.append(part)
        length += len(part)
        require_size(path, length)
    return b"".join(parts)


@contextmanager
def _folder_below(path: PathBelow) -> Iterator[tuple[int, str]]:
    """Open the folder of a path step by step, starting at its root.

    Yields:
        The handle of the folder, and the name of the file in it.

    Raises:
        StorageRefused: a component is a symbolic link or not a folder.
        FileNotFoundError: a folder does not exist.
    """
    *folders, name = path[len(path.root) + 1 :].split("/")
    if not name or {"", ".", ".."} & {*folders, name}:
        raise StorageRefused(path, f"it is not a plain path below {path.root}", "remove")
    handle = os.open(path.root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            try:
                next_handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    reason = f"{folder!r} on the way is a symbolic link or not a folder"
                    raise StorageRefused(path, reason, "remove") from error
                raise
            os.close(handle)
            handle = next_handle
        yield handle, name
    finally:
        os.close(handle)


def _sync_dir(folder: str) -> None:
    """Make new names in ``folder`` durable, so that they survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
