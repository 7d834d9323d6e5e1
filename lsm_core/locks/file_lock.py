"""Lock by files: each acquisition creates one numbered file exclusively, and its holder rewrites the file regularly.

The holder is the process that acquired the lock. The number is the fencing token: numbers only grow, and the process
with the highest number holds the lock. A waiting process watches the file for changes to judge whether the holder is
alive, so clocks of machines need not agree.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Final

from lsm_core.clock import Clock, utc_text
from lsm_core.errors import DredgeError, StorageRefused
from lsm_core.json_text import parse_json
from lsm_core.locks.lease import Busy, Grant
from lsm_core.storage import FileIO

_NAME: Final = re.compile(r"holding-([1-9][0-9]{0,17})")
_MAX_BYTES: Final = 64 * 1024
_MAX_LEASE_MS: Final = 24 * 3_600_000
_MAX_TIME_MS: Final = 253_402_300_799_000


@dataclass(frozen=True)
class _Holding:
    """Content of a lock file.

    Attributes:
        holder: description of the process that acquired the lock.
        since: time of the acquisition (epoch ms).
        lease: time without a renewal after which the lock may be taken over (ms).
        mark: unique id of the acquisition.
        beat: counter that grows while the holder is alive.
        released: whether the holder has released the lock.
    """

    holder: str
    since: int
    lease: int
    mark: str
    beat: int = 0
    released: bool = False

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()


class FileLock:
    """Lock (`Lock`) by files in one folder: the process with the highest-numbered file holds the lock.

    Args:
        file_io: access to the files; it must create files exclusively.
        folder: folder of the lock files.
        holder: description of this process for waiting processes.
        lease: time without a renewal after which waiting processes take over the lock (ms).
        clock: source of the current time.
    """

    def __init__(self, file_io: FileIO, folder: str, holder: str, lease: int, clock: Clock) -> None:
        self._file_io, self._folder, self._holder, self._lease, self._clock = file_io, folder, holder, lease, clock
        self._watched: tuple[int, bytes, float] = (0, b"", 0.0)
        self._holding = _Holding(holder, 0, lease, "")

    @property
    def name(self) -> str:
        """Name of the lock in messages: the folder of the lock files."""
        return self._folder

    def acquire(self) -> Grant | Busy:
        """Create the lock file with the next number if the lock is free or its holder did not renew it in time.

        Returns:
            `Grant` of the acquired lock, or `Busy` with the process that holds the lock.
        """
        with self._refusals():
            return self._acquire()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageRefused(self._folder, str(error), "lock") from error

    def _acquire(self) -> Grant | Busy:
        highest = max(self._numbers(), default=0)
        if highest:
            busy = self._busy(highest)
            if busy is not None:
                return busy
        else:
            self._file_io.mkdirs(self._folder)
        token = highest + 1
        self._holding = _Holding(self._holder, self._clock.now_ms(), self._lease, str(uuid.uuid4()))
        if not self._create(token, self._holding.to_bytes()):
            return self._busy(token) or Busy("another process")
        numbers = self._numbers()
        if max(numbers, default=token) > token:
            # Another process has held and released this number or a higher one meanwhile, so our file is outdated.
            self._file_io.delete(self._path(token))
            return Busy("another process")
        for number in numbers:
            if number < token:
                self._file_io.delete(self._path(number))
        return Grant(token, self._holding.mark)

    def _create(self, token: int, data: bytes) -> bool:
        """Create this process's lock file.

        If the storage reports a failure but the file has the content ``data``, the creation was successful.
        """
        path = self._path(token)
        try:
            return self._file_io.write_exclusive(path, data)
        except OSError:
            if self._read(token) == data:
                return True
            raise

    def _busy(self, number: int) -> Busy | None:
        """Return the holder of the lock file ``holding-<number>``.

        Returns:
            The holder; None if the holder released the lock, or did not renew for longer than its lease.
        """
        data = self._read(number)
        if data is None:
            return Busy("another process")  # deleted by the next holder: try again
        holding = _parse_holding(data)
        if holding is not None and holding.released:
            return None
        now = time.monotonic()
        watched_number, last_data, watched_since = self._watched
        if (watched_number, last_data) != (number, data):
            self._watched = (number, data, now)
        elif (now - watched_since) * 1000 > (holding.lease if holding is not None else self._lease):
            return None
        return (
            Busy(holding.holder, utc_text(holding.since))
            if holding is not None
            else Busy(f"{self._path(number)} (unreadable)")
        )

    def renew(self, grant: Grant) -> Grant | None:
        """Rewrite this process's lock file, so that waiting processes see that the holder is alive.

        Returns:
            The grant, or None if another process has the lock.

        Raises:
            StorageRefused: the storage refuses the file.
        """
        if not self.owns(grant):
            return None
        self._holding = replace(self._holding, beat=self._holding.beat + 1)
        self._write(grant)
        return grant

    def owns(self, grant: Grant) -> bool:
        """Return whether this process still holds the lock that ``grant`` stands for.

        It does if ``grant`` is the latest unreleased acquisition, and no lock file has a higher number.
        """
        if self._holding.released or self._holding.mark != grant.stamp:
            return False
        with self._refusals():
            return max(self._numbers(), default=0) == grant.token

    def release(self, grant: Grant) -> None:
        """Release the lock; without effect if this process does not own it.

        The file remains and is marked as released, because its number must not be reused.

        Raises:
            StorageRefused: the storage refuses the file.
        """
        if self.owns(grant):
            self._holding = replace(self._holding, released=True)
            self._write(grant)

    def _write(self, grant: Grant) -> None:
        with self._refusals():
            self._file_io.overwrite(self._path(grant.token), self._holding.to_bytes(), durable=False)

    def _path(self, number: int) -> str:
        return f"{self._folder}/holding-{number}"

    def _numbers(self) -> list[int]:
        matches = (_NAME.fullmatch(entry.name) for entry in self._file_io.list_dir(self._folder) if not entry.is_dir)
        return [int(match.group(1)) for match in matches if match]

    def _read(self, number: int) -> bytes | None:
        try:
            return self._file_io.read_bytes(self._path(number))[:_MAX_BYTES]
        except FileNotFoundError:
            return None


def _parse_holding(data: bytes) -> _Holding | None:
    """Return the content of a lock file, or None if it is unreadable.

    The holder of an unreadable file is assumed to be alive for one lease.
    """
    try:
        members = parse_json(data, unique=True)
        holding = _Holding(
            str(members["holder"])[:200],
            min(max(int(members["since"]), 0), _MAX_TIME_MS),
            min(int(members["lease"]), _MAX_LEASE_MS),
            str(members["mark"]),
            int(members["beat"]),
            members["released"] is True,
        )
    except (ValueError, KeyError, TypeError, DredgeError):
        return None
    return holding
