"""Lifecycle of a held lock: waiting for the lock, renewing the lock during the work, and detecting its loss."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from lsm_core.errors import DredgeError, LockLost, LockTimeout

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE: Final = 10
_JITTER: Final = 0.3
_RELEASE_ATTEMPTS: Final = 2


@dataclass(frozen=True)
class LockSettings:
    """Times for waiting and holding (ms).

    Attributes:
        acquire_timeout: longest wait for the lock (Paimon's `lock-acquire-timeout`).
        check_max_sleep: longest pause between two attempts (`lock-check-max-sleep`).
        lease: time without a renewal after which waiting processes take over the lock.
    """

    acquire_timeout: int = 8 * 60_000
    check_max_sleep: int = 8_000
    lease: int = 30_000


@dataclass(frozen=True)
class Grant:
    """Proof of one acquisition of a lock, which its holder passes to `renew` and `release`.

    Attributes:
        token: fencing token, larger than the token of every earlier acquisition.
        stamp: id that the lock gave to this acquisition.
    """

    token: int
    stamp: str


@dataclass(frozen=True)
class Busy:
    """Result of a failed attempt to acquire a lock: another process holds it.

    Attributes:
        holder: description of the process that holds the lock.
        since: time at which the holder acquired the lock, as UTC text, or "" if unknown.
        advice: what the user can do if the lock does not become free, or "".
    """

    holder: str
    since: str = ""
    advice: str = ""


class Lock(Protocol):
    """Lock that its holder renews regularly; without renewals, a waiting process takes over the lock.

    All methods may raise MetastoreFailed or StorageRefused if the storage or database of the lock cannot be used.
    """

    @property
    def name(self) -> str:
        """Name of the lock for messages."""
        ...

    def acquire(self) -> Grant | Busy:
        """Take the lock if the lock is free or its holder has not renewed the lock for longer than the lease.

        Returns:
            `Grant` of the acquired lock, or `Busy` with the process that holds the lock.
        """
        ...

    def renew(self, grant: Grant) -> Grant | None:
        """Record that the holder is alive.

        Returns:
            The renewed grant, or None if another process has the lock.
        """
        ...

    def owns(self, grant: Grant) -> bool:
        """Return whether the grant is still valid, by reading the lock from its storage or database."""
        ...

    def release(self, grant: Grant) -> None:
        """Release the lock; without effect if a different process has taken over the lock."""
        ...


@runtime_checkable
class QueuedLock(Lock, Protocol):
    """Lock whose waiting processes form a queue: a request stays in the queue between two calls of `acquire`."""

    def longest_lease(self) -> int:
        """Return the longest lease that the server of the queue allows (ms)."""
        ...

    def withdraw(self) -> None:
        """Remove the request of a process that stops waiting from the queue."""
        ...


class Lease:
    """A held lock, renewed by a thread three times per lease; :meth:`require` checks that the lock is still held.

    If a process was suspended and lost the lock, its next :meth:`require` raises an error, so that the process
    publishes nothing (fencing).
    """

    def __init__(self, lock: Lock, grant: Grant, lease_ms: int, confirmed: float) -> None:
        self._lock, self._grant, self._lease = lock, grant, lease_ms / 1000
        self._confirmed = confirmed  # time before the request, so never later than the time from which others measure
        self._ended = threading.Event()
        self._calls = threading.Lock()
        self._renewer = threading.Thread(target=self._renew, name=f"lock {lock.name}", daemon=True)
        self._renewer.start()

    @property
    def token(self) -> int:
        """The fencing token of this acquisition."""
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
            except (DredgeError, OSError) as error:  # the next attempt follows while the lease runs
                _LOG.warning("lock %s was not renewed, the next attempt follows: %s", self._lock.name, error)

    def overdue(self) -> str:
        """Return the reason why another process may have taken over the lock.

        The clock of this process decides, without a request to the lock.

        Returns:
            The reason, or "" if no process can have taken over the lock.
        """
        silent_s = time.monotonic() - self._confirmed
        if silent_s < self._lease:
            return ""
        return f"it was not renewed for {silent_s:.1f} s, and a holder is taken over after {self._lease:g} s"

    def require(self) -> None:
        """Check in the storage or database of the lock that this process still holds the lock.

        Raises:
            LockLost: the lock is lost. Errors of the check itself are raised unchanged.
        """
        with self._calls:
            reason = self.overdue() or ("" if self._lock.owns(self._grant) else "another holder has taken it over")
        if reason:
            raise LockLost(self._lock.name, reason)

    def end(self) -> None:
        """Release the lock.

        Completed work stays valid, so a failure is only logged; waiting processes then wait until the lease expires.
        """
        self._ended.set()
        self._renewer.join()
        for attempt in range(_RELEASE_ATTEMPTS):
            try:
                self._lock.release(self._grant)
            except (DredgeError, OSError) as error:
                if attempt + 1 == _RELEASE_ATTEMPTS:
                    _LOG.warning(
                        "lock %s was not released, it expires in %g s: %s", self._lock.name, self._lease, error
                    )
            else:
                return


@contextmanager
def held(lock: Lock, settings: LockSettings, sleep: Callable[[float], None] = time.sleep) -> Iterator[Lease]:
    """Hold a lock during the block.

    Args:
        lock: lock to acquire, renew and release.
        settings: times for waiting and holding.
        sleep: function that waits for a number of seconds.

    Yields:
        The lease.

    Raises:
        LockTimeout: the lock did not become free; the message names the holder. Errors of the lock itself are raised as
            they are.
    """
    try:
        lease_ms = min(settings.lease, lock.longest_lease()) if isinstance(lock, QueuedLock) else settings.lease
        grant, requested_at = _wait(lock, settings, sleep)
    except BaseException:
        if isinstance(lock, QueuedLock):
            _withdraw(lock)
        raise
    lease = Lease(lock, grant, lease_ms, requested_at)
    try:
        yield lease
    finally:
        lease.end()


def _wait(lock: Lock, settings: LockSettings, sleep: Callable[[float], None]) -> tuple[Grant, float]:
    """Return (grant, time before the successful request); raise LockTimeout if the lock does not become free."""
    started, pause = time.monotonic(), _FIRST_PAUSE
    while True:
        requested_at = time.monotonic()
        answer = lock.acquire()
        if isinstance(answer, Grant):
            return answer, requested_at
        waited = int((time.monotonic() - started) * 1000)
        if waited >= settings.acquire_timeout:
            raise LockTimeout(answer.holder, waited, answer.since, lock.name, answer.advice)
        remaining = settings.acquire_timeout - waited
        jitter = 1 + random.uniform(-_JITTER, _JITTER)  # noqa: S311 - spreads attempts, not security-relevant
        sleep(max(1.0, min(pause * jitter, settings.check_max_sleep, remaining)) / 1000)
        pause = min(pause * 2, settings.check_max_sleep)


def _withdraw(lock: QueuedLock) -> None:
    """Remove the request of this process; a failure is only logged, because the reason for giving up is reported."""
    try:
        lock.withdraw()
    except (DredgeError, OSError) as error:
        _LOG.warning("lock %s: the waiting request was not withdrawn: %s", lock.name, error)
