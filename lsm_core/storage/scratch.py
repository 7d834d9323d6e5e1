"""Temporary folders on the local disk that a killed process cannot leave behind for good: the next one to need one removes them.

Each holds a file that says who made it (machine, boot, process, its start) and that its owner keeps locked as long as it
lives. A folder is removed only when it is this user's, its lock is free and the owner it names is gone.
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

from lsm_core.json_reader import parse_json
from lsm_core.processes import start_tick

_OWNER: Final = "owner.lock"
_PAUSE_S: Final = 600.0
_MOST_BYTES: Final = 4096
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_SWEPT: dict[tuple[str, str], float] = {}
_SWEEPING: Final = threading.Lock()


@dataclass(frozen=True)
class _Owner:
    """A process: ``started`` in the kernel's ticks since boot, 0 where there is no /proc."""

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
    """A private folder ``<prefix>...`` below ``parent`` (None: the system's temporary folder, in a task of Spark the executor's own), removed
    with its last reference.

    Making one also removes, every ten minutes at most, those that processes which no longer live left there. Raises OSError.
    """

    def __init__(self, prefix: str, parent: str | None = None) -> None:
        parent = parent or _of_executor()
        sweep(prefix, parent)
        self.path = tempfile.mkdtemp(prefix=prefix, dir=parent)
        try:
            lock = _take(self.path)
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        self._remove = weakref.finalize(self, _remove_own, self.path, lock, os.getpid())

    def remove(self) -> None:
        """Remove the folder and all it holds."""
        self._remove()


def _of_executor() -> str | None:
    """The first local folder that Spark gives the Python workers of an executor: on the disks meant for it, and gone with the executor."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return first if first and os.access(first, os.W_OK | os.X_OK) else None


def _take(folder: str) -> int:
    """Lock and write the owner's file; the descriptor holds the lock."""
    lock = os.open(f"{folder}/{_OWNER}", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a sweeper may be looking, for a moment
        me = _Owner(socket.gethostname(), _boot(), os.getpid(), start_tick(os.getpid()) or 0)
        os.write(lock, json.dumps(asdict(me)).encode())
    except BaseException:
        os.close(lock)
        raise
    return lock


def _remove_own(folder: str, lock: int, maker: int) -> None:
    """A forked process inherits the finalizer, not the folder."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            os.close(lock)


def sweep(prefix: str, parent: str | None = None, *, now: bool = False) -> list[str]:
    """Remove the folders ``<prefix>...`` of this user whose owners are gone; returns their names. ``now``: whenever the last was.

    Nothing is followed: neither links among the names nor links inside. What cannot be read or removed stays.
    """
    where = os.path.abspath(parent or tempfile.gettempdir())
    with _SWEEPING:
        last = _SWEPT.get((prefix, where))
        if last is not None and not now and time.monotonic() - last < _PAUSE_S:
            return []
        _SWEPT[prefix, where] = time.monotonic()
    removed: list[str] = []
    with suppress(OSError):
        above = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in sorted(os.listdir(above)):
                if name.startswith(prefix) and _swept(above, name):
                    removed.append(name)
        finally:
            os.close(above)
    return removed


def _swept(above: int, name: str) -> bool:
    """Remove folder ``name`` of the directory ``above`` if nobody owns it any more."""
    try:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except OSError:  # a link, a file, another user's, or gone
        return False
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            return False
        lock = os.open(_OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_gone(lock):
                return False
            for inside in sorted(os.listdir(folder), key=lambda one: one == _OWNER):  # the owner's file last
                os.unlink(inside, dir_fd=folder)
            os.rmdir(name, dir_fd=above)
        finally:
            os.close(lock)
    except OSError:  # locked by its owner, no owner named, or not to be removed
        return False
    else:
        return True
    finally:
        os.close(folder)


def _is_gone(lock: int) -> bool:
    """Whether the owner that a file names, whose lock we hold, lives no more. What names nobody is being made just now."""
    found = os.fstat(lock)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        return False
    try:
        value = parse_json(os.pread(lock, _MOST_BYTES, 0))
        owner = _Owner(**{member.name: value[member.name] for member in fields(_Owner)})
    except (ValueError, TypeError, KeyError):
        return False
    if owner.host != socket.gethostname():
        return False
    if owner.boot != _boot():
        return True
    return type(owner.pid) is int and start_tick(owner.pid) != owner.started
