"""Client of a Hive metastore: several addresses, a pool of connections, retries, and calls with an unknown outcome.

A call that changes something is sent again only if it cannot have reached the server. If its outcome is unknown, the
caller looks the outcome up.

Source: Hive `HiveMetaStoreClient`, `RetryingMetaStoreClient`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

from lsm_core.errors import MetastoreFailed
from lsm_core.locks.hive_connection import BrokenConnection, Connection, HiveRefusal
from lsm_core.locks.hive_settings import HiveSettings, address_text

__all__ = ["CallUnknown", "HiveClient", "HiveRefusal"]

_LOG = logging.getLogger(__name__)
_ROUNDS: Final = 4
_LONGEST_WAIT_SECONDS: Final = 30.0


class CallUnknown(Exception):
    """A call that changes something was sent, and its answer is missing: the server may have carried it out."""


class HiveClient:
    """Client of one Hive metastore. Threads may share it; a pickled copy opens its own connections.

    Attributes:
        address: the addresses of the metastore, for messages.

    Args:
        settings: addresses, in the order in which they are tried, and settings of the connections.
    """

    def __init__(self, settings: HiveSettings) -> None:
        self.settings, self.address = settings, settings.address
        self._idle: list[Connection]
        self._free: threading.BoundedSemaphore
        self._process: int
        self._guard: threading.Lock
        self._sleep: Callable[[float], None] = time.sleep
        self._forget_connections()

    def __repr__(self) -> str:
        return f"HiveClient({self.address!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings, "address": self.address}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._sleep = time.sleep
        self._forget_connections()

    def read(self, method: str, *arguments: Any) -> Any:
        """Return the answer to a call that changes nothing; it is sent again while the server does not answer.

        Args:
            method: name of the method in Hive's IDL.
            arguments: its arguments, with the types of ``pymetastore.hive_metastore.ttypes``.

        Raises:
            HiveRefusal: the server answered with a declared error.
            MetastoreFailed: the server did not answer, or does not know the method.
        """
        return self._call(method, arguments, repeats=True)

    def change(self, method: str, *arguments: Any) -> Any:
        """Send a call that changes something, and return its answer.

        Args:
            method: name of the method in Hive's IDL.
            arguments: its arguments.

        Raises:
            HiveRefusal: the server refused; nothing was changed.
            CallUnknown: the server may have carried the call out.
            MetastoreFailed: the server was not reached, or does not know the method, so nothing was changed.
        """
        return self._call(method, arguments, repeats=False)

    def close(self) -> None:
        """Close the idle connections; later calls open new ones."""
        with self._guard:
            _close_all(self._idle)

    # -- details ---------------------------------------------------------------------------------------------------

    def _call(self, method: str, arguments: tuple[Any, ...], *, repeats: bool) -> Any:
        for attempt in range(1, _ROUNDS + 1):
            with self._connected() as connection:
                try:
                    return connection.call(method, arguments, self.settings.call_seconds)
                except BrokenConnection as error:
                    reason = f"{connection.address} did not answer {method} ({error})"
                    if not repeats and error.sent:
                        raise CallUnknown(reason) from error
                    if attempt == _ROUNDS or error.final:
                        raise MetastoreFailed(self.address, reason) from error
            self._pause(attempt, reason)
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Yield a connection; it is kept for later calls if it is still usable afterwards.

        Raises:
            MetastoreFailed: no address accepts a connection, or all connections of the pool stay in use.
        """
        with self._guard:
            if self._process != os.getpid():  # a forked process must not use the connections of its parent
                self._idle, self._process = [], os.getpid()
                self._free = threading.BoundedSemaphore(self.settings.pool_size)
            idle, free = self._idle, self._free
        if not free.acquire(timeout=self.settings.call_seconds):
            reason = f"all {self.settings.pool_size} connections are in use for {self.settings.call_seconds:g} s"
            raise MetastoreFailed(self.address, f"{reason}; raise the option 'client-pool-size'")
        try:
            connection = _living(idle) or self._open()
            try:
                yield connection
            finally:
                if connection.usable:
                    idle.append(connection)
        finally:
            free.release()

    def _open(self) -> Connection:
        """Return a connection to the first address that accepts one; rounds have growing pauses between them."""
        failures: list[str] = []
        for attempt in range(1, _ROUNDS + 1):
            failures = []
            for place in self.settings.addresses:
                try:
                    return Connection(place, self.settings)
                except BrokenConnection as error:
                    failures.append(f"{address_text(place)}: {error}")
                    if error.final:
                        raise MetastoreFailed(self.address, str(error)) from error
            if attempt < _ROUNDS:
                self._pause(attempt, f"no connection to {'; '.join(failures)}")
        raise MetastoreFailed(self.address, f"it cannot be reached ({'; '.join(failures)}); check the option 'uri'")

    def _pause(self, attempt: int, reason: str) -> None:
        seconds = min(2.0 ** (attempt - 1), _LONGEST_WAIT_SECONDS) * (1 + random.uniform(0, 0.1))  # noqa: S311
        _LOG.info("%s: attempt %d is repeated in %.1f s", reason, attempt, seconds)
        self._sleep(seconds)

    def _forget_connections(self) -> None:
        self._idle = []
        self._free = threading.BoundedSemaphore(self.settings.pool_size)
        self._process, self._guard = os.getpid(), threading.Lock()
        weakref.finalize(self, _close_all, self._idle)


def _living(idle: list[Connection]) -> Connection | None:
    """Remove and return an idle connection that the server has not closed, or None."""
    while idle:
        try:
            connection = idle.pop()
        except IndexError:  # another thread took it
            return None
        if connection.is_alive():
            return connection
        connection.close()
    return None


def _close_all(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()
