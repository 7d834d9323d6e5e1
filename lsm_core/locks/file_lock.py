"""A lock of files: one file a holding, numbered, created exclusively, and rewritten by its holder while it lives.

The number is the fencing token: it only grows, and whoever has the highest one holds the lock. Whether a holder lives is judged by
whether its file changes while a waiter watches it, so clocks of machines need not agree.
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
from lsm_core.json_reader import parse_json
from lsm_core.locks.lease import Busy, Grant
from lsm_core.storage import FileIO

_NAME: Final = re.compile(r"holding-([1-9][0-9]{0,17})")
_MOST_BYTES: Final = 64 * 1024
_LONGEST_LEASE: Final = 24 * 3_600_000
_LAST_TIME: Final = 253_402_300_799_000


@dataclass(frozen=True)
class _Holding:
    """What a lock file says. ``beat`` changes while the holder lives; ``lease`` in ms, ``since`` in epoch ms."""

    holder: str
    since: int
    lease: int
    mark: str
    beat: int = 0
    released: bool = False

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()


class FileLock:
    """The lock whose files lie in ``folder`` of ``file_io``, which must create files exclusively; see `Lock`.

    ``holder`` names us to others; ``lease`` in ms: how long we may be silent before others take over.
    """

    def __init__(self, file_io: FileIO, folder: str, holder: str, lease: int, clock: Clock) -> None:
        self._file_io, self._folder, self._holder, self._lease, self._clock = file_io, folder, holder, lease, clock
        self._watched: tuple[int, bytes, float] = (0, b"", 0.0)
        self._mine = _Holding(holder, 0, lease, "")

    @property
    def name(self) -> str:
        """The folder of the lock files."""
        return self._folder

    def acquire(self) -> Grant | Busy:
        """See Lock."""
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
        self._mine = _Holding(self._holder, self._clock.now_ms(), self._lease, str(uuid.uuid4()))
        if not self._create(token, self._mine.to_bytes()):
            return self._busy(token) or Busy("another process")
        numbers = self._numbers()
        if max(numbers, default=token) > token:
            # Somebody held and released this number, or a higher one, since we looked: ours is behind and counts for nothing.
            self._file_io.delete(self._path(token))
            return Busy("another process")
        for number in numbers:
            if number < token:
                self._file_io.delete(self._path(number))
        return Grant(token, self._mine.mark)

    def _create(self, token: int, data: bytes) -> bool:
        """Create our lock file; where storage reports a failure although the file is there, it is ours all the same."""
        path = self._path(token)
        try:
            return self._file_io.write_exclusive(path, data)
        except OSError:
            if self._read(token) == data:
                return True
            raise

    def _busy(self, number: int) -> Busy | None:
        """The holder of that number; None when it has released the lock, is gone, or has been silent for longer than its lease."""
        data = self._read(number)
        if data is None:
            return Busy("another process")  # taken away by the next holder: look again
        said = _parsed(data)
        if said is not None and said.released:
            return None
        now = time.monotonic()
        watched, seen, since = self._watched
        if (watched, seen) != (number, data):
            self._watched = (number, data, now)
        elif (now - since) * 1000 > (said.lease if said is not None else self._lease):
            return None
        return (
            Busy(said.holder, utc_text(said.since)) if said is not None else Busy(f"{self._path(number)} (unreadable)")
        )

    def renew(self, grant: Grant) -> Grant | None:
        """See Lock."""
        if not self.owns(grant):
            return None
        self._mine = replace(self._mine, beat=self._mine.beat + 1)
        self._file_io.overwrite(self._path(grant.token), self._mine.to_bytes(), durable=False)
        return grant

    def owns(self, grant: Grant) -> bool:
        """See Lock."""
        if self._mine.released or self._mine.mark != grant.stamp:
            return False
        with self._refusals():
            return max(self._numbers(), default=0) == grant.token

    def release(self, grant: Grant) -> None:
        """See Lock. The file stays and says so: its number must not be given twice."""
        if self.owns(grant):
            self._mine = replace(self._mine, released=True)
            self._file_io.overwrite(self._path(grant.token), self._mine.to_bytes(), durable=False)

    def _path(self, number: int) -> str:
        return f"{self._folder}/holding-{number}"

    def _numbers(self) -> list[int]:
        names = (_NAME.fullmatch(entry.name) for entry in self._file_io.list_dir(self._folder) if not entry.is_dir)
        return [int(found.group(1)) for found in names if found]

    def _read(self, number: int) -> bytes | None:
        try:
            return self._file_io.read_bytes(self._path(number))[:_MOST_BYTES]
        except FileNotFoundError:
            return None


def _parsed(data: bytes) -> _Holding | None:
    """What a lock file says; None for one that cannot be understood, whose holder then counts as living for one lease of ours."""
    try:
        said = parse_json(data, unique=True)
        found = _Holding(
            str(said["holder"])[:200],
            min(max(int(said["since"]), 0), _LAST_TIME),
            min(int(said["lease"]), _LONGEST_LEASE),
            str(said["mark"]),
            int(said["beat"]),
            said["released"] is True,
        )
    except (ValueError, KeyError, TypeError, DredgeError):
        return None
    return found
