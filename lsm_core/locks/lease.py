"""Holding a lock: how long to wait for it, how it is kept while work goes on, and how its holder learns that it is lost."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from lsm_core.errors import DredgeError, LockLost, LockTimeout

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE: Final = 10
_JITTER: Final = 0.3
_RELEASE_ATTEMPTS: Final = 2


@dataclass(frozen=True)
class LockSettings:
    """How a lock is waited for and held; all in ms.

    ``acquire_timeout``: the longest wait (Paimon's `lock-acquire-timeout`); ``check_max_sleep``: the longest pause between two attempts
    (`lock-check-max-sleep`); ``lease``: a holder that was silent for so long is taken over.
    """

    acquire_timeout: int = 8 * 60_000
    check_max_sleep: int = 8_000
    lease: int = 30_000


@dataclass(frozen=True)
class Grant:
    """A lock that was got. ``token`` is larger than that of every holder before; ``stamp`` is the lock's own mark of this holding."""

    token: int
    stamp: str


@dataclass(frozen=True)
class Busy:
    """Who has the lock, and since when (UTC text, "" where it cannot be told)."""

    holder: str
    since: str = ""


class Lock(Protocol):
    """A lock that outlives the process that holds it, so every holding has an end: it is kept by renewing it, or taken over.

    All may raise MetastoreFailed or StorageRefused where the lock's place cannot be used.
    """

    @property
    def name(self) -> str:
        """What is locked, for messages."""
        ...

    def acquire(self) -> Grant | Busy:
        """Take the lock if it is free, or if its holder has been silent for longer than its lease."""
        ...

    def renew(self, grant: Grant) -> Grant | None:
        """Tell that the holder lives; None when the lock is another's by now."""
        ...

    def owns(self, grant: Grant) -> bool:
        """Whether the lock is still ours, asked where it lies."""
        ...

    def release(self, grant: Grant) -> None:
        """Give the lock back; does nothing to a lock that is another's by now."""
        ...


class Lease:
    """A lock while it is held. A thread renews it three times a lease; :meth:`require` says whether it is held still.

    A process that was stopped finds at its next :meth:`require` that another took over, and publishes nothing (fencing).
    """

    def __init__(self, lock: Lock, grant: Grant, lease_ms: int, confirmed: float) -> None:
        self._lock, self._grant, self._lease = lock, grant, lease_ms / 1000
        self._confirmed = confirmed  # before the lock was asked: never later than what the others measure from
        self._ended = threading.Event()
        self._calls = threading.Lock()
        self._renewer = threading.Thread(target=self._renew, name=f"lock {lock.name}", daemon=True)
        self._renewer.start()

    @property
    def token(self) -> int:
        """The fencing token of this holding."""
        return self._grant.token

    def _renew(self) -> None:
        while not self._ended.wait(self._lease / 3):
            began = time.monotonic()
            try:
                with self._calls:
                    renewed = self._lock.renew(self._grant)
                    if renewed is None:
                        return
                    self._grant, self._confirmed = renewed, began
            except (DredgeError, OSError) as error:  # tried again; the lease runs meanwhile
                _LOG.warning("lock %s could not be renewed: %s", self._lock.name, error)

    def overdue(self) -> str:
        """Why others may have taken the lock over, "" while none can have: by this process's own clock, without asking the lock."""
        silent = time.monotonic() - self._confirmed
        if silent < self._lease:
            return ""
        return f"it was not renewed for {silent:.1f} s, and a holder is taken over after {self._lease:g} s"

    def require(self) -> None:
        """Raise LockLost unless the lock is still held, asked where it lies; and what asking it raises."""
        with self._calls:
            reason = self.overdue() or ("" if self._lock.owns(self._grant) else "another has taken it over")
        if reason:
            raise LockLost(self._lock.name, reason)

    def end(self) -> None:
        """Give the lock back. What was done under it stays done: a failure is logged, and the others wait for the lease to end."""
        self._ended.set()
        self._renewer.join()
        for attempt in range(_RELEASE_ATTEMPTS):
            try:
                self._lock.release(self._grant)
            except (DredgeError, OSError) as error:
                if attempt + 1 == _RELEASE_ATTEMPTS:
                    _LOG.warning(
                        "lock %s could not be released and is free in %g s: %s", self._lock.name, self._lease, error
                    )
            else:
                return


@contextmanager
def held(lock: Lock, settings: LockSettings, sleep: Callable[[float], None] = time.sleep) -> Iterator[Lease]:
    """Hold ``lock`` for the block. Raises LockTimeout naming the holder when it does not get free, and what asking it raises."""
    started, pause = time.monotonic(), _FIRST_PAUSE
    while True:
        began = time.monotonic()
        got = lock.acquire()
        if isinstance(got, Grant):
            break
        waited = int((time.monotonic() - started) * 1000)
        if waited >= settings.acquire_timeout:
            raise LockTimeout(got.holder, waited, got.since, lock.name)
        left = settings.acquire_timeout - waited
        spread = 1 + random.uniform(-_JITTER, _JITTER)  # noqa: S311 - spreads attempts, guards nothing
        sleep(max(1.0, min(pause * spread, settings.check_max_sleep, left)) / 1000)
        pause = min(pause * 2, settings.check_max_sleep)
    lease = Lease(lock, got, settings.lease, began)
    try:
        yield lease
    finally:
        lease.end()
