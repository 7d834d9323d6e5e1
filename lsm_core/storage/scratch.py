"""Temporary local folders; folders of killed processes are removed when the next process creates a folder.

Each folder contains a file that names its owner (machine, boot, process, process start); the owner keeps the file
locked. A folder is removed only if it belongs to this user, its lock is free and its owner no longer exists.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import stat
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from lsm_core.json_text import parse_json
from lsm_core.processes import start_tick

_OWNER_FILE: Final = "owner.lock"
_SWEEP_INTERVAL_S: Final = 600.0
_MAX_OWNER_BYTES: Final = 4096
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_LAST_SWEEPS: dict[tuple[str, str], float] = {}
_SWEEP_LOCK: Final = threading.Lock()


@dataclass(frozen=True)
class _Owner:
    """The process that owns a scratch folder.

    Attributes:
        host: name of the machine.
        boot: id of the machine's boot.
        pid: process id.
        started: start of the process (kernel ticks since boot), 0 without /proc.
    """

    host: str
    boot: str
    pid: int
    started: int


def _boot() -> str:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


class ScratchFolder:
    """A private temporary folder ``<prefix>...``, removed when the last reference to this object is deleted.

    The constructor also removes, at most every ten minutes, the folders of processes that no longer exist.

    Args:
        prefix: start of the folder's name.
        parent: folder that contains the new folder. None means the first local folder of a Spark executor
            (`SPARK_LOCAL_DIRS`) if there is one, else the system's temporary folder.

    Raises:
        OSError: the folder cannot be created.
    """

    def __init__(self, prefix: str, parent: str | None = None) -> None:
        parent = parent or _executor_folder()
        sweep(prefix, parent)
        self.path = tempfile.mkdtemp(prefix=prefix, dir=parent)
        try:
            lock = _lock_owner_file(self.path)
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        self._remove = weakref.finalize(self, _remove_own, self.path, lock, os.getpid())

    def remove(self) -> None:
        """Remove the folder with its content."""
        self._remove()


def _executor_folder() -> str | None:
    """Return the first local folder of the Spark executor that this process belongs to.

    Spark puts this folder on the disks for temporary data, and deletes the folder with the executor.

    Returns:
        The folder, or None outside of an executor or if the folder is not writable.
    """
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return first if first and os.access(first, os.W_OK | os.X_OK) else None


def _lock_owner_file(folder: str) -> int:
    """Create, lock and write the owner's file, and return its descriptor, which holds the lock."""
    lock = os.open(f"{folder}/{_OWNER_FILE}", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a sweep in another process may hold it for a moment
        me = _Owner(socket.gethostname(), _boot(), os.getpid(), start_tick(os.getpid()) or 0)
        os.write(lock, json.dumps(asdict(me)).encode())
    except BaseException:
        os.close(lock)
        raise
    return lock


def _remove_own(folder: str, lock: int, maker: int) -> None:
    """Remove the folder and release its lock, but only in the process that created it.

    A forked process inherits the finalizer, not the folder.

    Args:
        folder: path of the folder.
        lock: file descriptor of the locked owner's file.
        maker: process id of the creator.
    """
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            os.close(lock)


def sweep(prefix: str, parent: str | None = None, *, now: bool = False) -> list[str]:
    """Remove the folders ``<prefix>...`` of this user whose owners no longer exist.

    Links are not followed. Folders that cannot be read or removed remain.

    Args:
        prefix: start of the folders' names.
        parent: folder that contains them, or None for the system's temporary folder.
        now: whether to sweep regardless of the time of the last sweep.

    Returns:
        Names of the removed folders.
    """
    directory = os.path.abspath(parent or tempfile.gettempdir())
    with _SWEEP_LOCK:
        last_sweep = _LAST_SWEEPS.get((prefix, directory))
        if last_sweep is not None and not now and time.monotonic() - last_sweep < _SWEEP_INTERVAL_S:
            return []
        _LAST_SWEEPS[prefix, directory] = time.monotonic()
    removed: list[str] = []
    with suppress(OSError):
        parent_handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in sorted(os.listdir(parent_handle)):
                if name.startswith(prefix) and _remove_abandoned(parent_handle, name):
                    removed.append(name)
        finally:
            os.close(parent_handle)
    return removed


def _remove_abandoned(parent_handle: int, name: str) -> bool:
    """Remove a folder if its owner no longer exists, and return whether it was removed.

    Args:
        parent_handle: descriptor of the directory that contains the folder.
        name: name of the folder.
    """
    try:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_handle)
    except OSError:  # a link, a file, another user's folder, or already removed
        return False
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            return False
        lock = os.open(_OWNER_FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _has_no_owner(lock):
                return False
            for entry_name in sorted(
                os.listdir(folder), key=lambda entry: entry == _OWNER_FILE
            ):  # the owner's file last
                os.unlink(entry_name, dir_fd=folder)
            os.rmdir(name, dir_fd=parent_handle)
        finally:
            os.close(lock)
    except OSError:  # locked by its owner, without an owner's file, or not removable
        return False
    else:
        return True
    finally:
        os.close(folder)


def _has_no_owner(lock: int) -> bool:
    """Return whether the process that a locked owner file names no longer exists.

    The result is False for a file without content, because its folder is just being created, and for an owner on a
    different machine.

    Args:
        lock: file descriptor of the locked owner's file.
    """
    status = os.fstat(lock)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return False
    try:
        value = parse_json(os.pread(lock, _MAX_OWNER_BYTES, 0))
        owner = _Owner(**{member.name: value[member.name] for member in fields(_Owner)})
    except (ValueError, TypeError, KeyError):
        return False
    if owner.host != socket.gethostname():
        return False
    if owner.boot != _boot():
        return True
    return type(owner.pid) is int and start_tick(owner.pid) != owner.started
