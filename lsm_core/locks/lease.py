"""Holding a lock: waiting for it, renewing it during the work, and detecting its loss."""

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
    """Times for waiting and holding (ms).

    Attributes:
        acquire_timeout: longest wait for the lock (Paimon's `lock-acquire-timeout`).
        check_max_sleep: longest pause between two attempts (`lock-check-max-sleep`).
        lease: silence of a holder after which others take over.
    """

    acquire_timeout: int = 8 * 60_000
    check_max_sleep: int = 8_000
    lease: int = 30_000


@dataclass(frozen=True)
class Grant:
    """An acquired lock.

    Attributes:
        token: fencing token, larger than that of every earlier holder.
        stamp: the lock's own id of this acquisition.
    """

    token: int
    stamp: str


@dataclass(frozen=True)
class Busy:
    """Result of a failed acquisition.

    Attributes:
        holder: description of the holder.
        since: time of its acquisition as UTC text, or "" if unknown.
    """

    holder: str
    since: str = ""


class Lock(Protocol):
    """A lock that outlives the process that holds it: the holder renews it regularly, or another process takes it over.

    All methods may raise MetastoreFailed or StorageRefused if the place of the lock cannot be used.
    """

    @property
    def name(self) -> str:
        """Name of the lock for messages."""
        ...

    def acquire(self) -> Grant | Busy:
        """Take the lock if it is free or its holder has been silent for longer than its lease.

        Returns:
            The grant, or the current holder.
        """
        ...

    def renew(self, grant: Grant) -> Grant | None:
        """Record that the holder is alive.

        Returns:
            The renewed grant, or None if another process has the lock.
        """
        ...

    def owns(self, grant: Grant) -> bool:
        """Return whether the grant is still valid, checked at the place of the lock."""
        ...

    def release(self, grant: Grant) -> None:
        """Release the lock; without effect if another process has it."""
        ...


class Lease:
    """A held lock, renewed by a thread three times per lease; :meth:`require` checks that it is still held.

    A suspended process notices at its next :meth:`require` that another has taken over, and publishes nothing
    (fencing).
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

        It is judged by this process's clock, without a request.

        Returns:
            The reason, or "" if no other process can have taken over.
        """
        silent_s = time.monotonic() - self._confirmed
        if silent_s < self._lease:
            return ""
        return f"it was not renewed for {silent_s:.1f} s, and a holder is taken over after {self._lease:g} s"

    def require(self) -> None:
        """Check at the place of the lock that it is still held.

        Raises:
            LockLost: the lock is lost; errors of the check itself are raised as they are.
        """
        with self._calls:
            reason = self.overdue() or ("" if self._lock.owns(self._grant) else "another holder has taken it over")
        if reason:
            raise LockLost(self._lock.name, reason)

    def end(self) -> None:
        """Release the lock.

        Completed work stays valid, so a failure is only logged; others wait for the lease to expire.
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
        lock: the lock.
        settings: times for waiting and holding.
        sleep: waits for a number of seconds.

    Yields:
        The lease.

    Raises:
        LockTimeout: the lock did not become free; the message names the holder. Errors of the lock itself are raised as
            they are.
    """
    started, pause = time.monotonic(), _FIRST_PAUSE
    while True:
        requested_at = time.monotonic()
        answer = lock.acquire()
        if isinstance(answer, Grant):
            break
        waited = int((time.monotonic() - started) * 1000)
        if waited >= settings.acquire_timeout:
            raise LockTimeout(answer.holder, waited, answer.since, lock.name)
        remaining = settings.acquire_timeout - waited
        jitter = 1 + random.uniform(-_JITTER, _JITTER)  # noqa: S311 - spreads attempts, not security-relevant
        sleep(max(1.0, min(pause * jitter, settings.check_max_sleep, remaining)) / 1000)
        pause = min(pause * 2, settings.check_max_sleep)
    lease = Lease(lock, answer, settings.lease, requested_at)
    try:
        yield lease
    finally:
        lease.end()
