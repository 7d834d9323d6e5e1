"""Lock of a table in a Hive metastore, which Java's Hive catalogs share.

The metastore keeps a queue of requests for each table. A request that waits stays in the queue until it is withdrawn,
so no process overtakes another. The metastore removes requests that it does not hear of for `hive.txn.timeout`, if its
housekeeping runs. Java's holders send no heartbeats, so they lose the lock after this time.

Source: ``HiveCatalogLock``, Hive ``TxnHandler``.
"""

from __future__ import annotations

import getpass
import re
import socket
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lsm_core.clock import utc_text
from lsm_core.errors import MetastoreFailed
from lsm_core.locks.hive_client import CallUnknown, HiveClient, HiveRefusal
from lsm_core.locks.hive_settings import address_text, hive_settings, parse_addresses, require_thrift
from lsm_core.locks.lease import Busy, Grant

if TYPE_CHECKING:
    from pymetastore.hive_metastore.ttypes import LockResponse, ShowLocksResponseElement

_MAX_TEXT: Final = 128
"""Longest user, host and agent in the metastore's table of locks."""
_MAX_TIME_MS: Final = 253_402_300_799_000
_ABSENCE: Final = frozenset({"NoSuchLockException", "NoSuchTxnException", "TxnAbortedException"})
_REMOVED: Final = object()
"""Answer to a call about a request that the metastore has removed."""
_UNKNOWN_TIMEOUT_MS: Final = 20 * 60_000
_AGENT: Final = re.compile(r"dredge [0-9a-f]{32}, (.+)")
_TIMEOUT: Final = "hive.txn.timeout"
_DURATION: Final = re.compile(r"\s*(\d{1,12})\s*(ms|msec|s|sec|m|min|h|hour|d|day)?\s*", re.IGNORECASE)
_UNITS: Final = {
    **dict.fromkeys(("ms", "msec"), 1),
    **dict.fromkeys(("s", "sec"), 1_000),
    **dict.fromkeys(("m", "min"), 60_000),
    **dict.fromkeys(("h", "hour"), 3_600_000),
    **dict.fromkeys(("d", "day"), 86_400_000),
}
_ADVICE: Final = (
    "wait for it, or raise lock-acquire-timeout; if it has ended, the metastore frees the lock after hive.txn.timeout "
    "(5 min by default), but only with housekeeping (hive.compactor.initiator.on = true)"
)
_timeouts: dict[str, int] = {}
"""Time after which a metastore removes locks (ms), by its address; 0 if it does not say."""
_clients: dict[str, HiveClient] = {}


def share_client(client: HiveClient) -> None:
    """Let locks in the client's metastore use this client, because it has the settings of the catalog.

    Args:
        client: client of a catalog.
    """
    _clients[client.address] = client


def lock_client(uri: str, options: Mapping[str, str] | None = None) -> HiveClient:
    """Return the client for an address: that of a catalog of this process, else one with the environment's settings.

    Args:
        uri: addresses of the metastore.
        options: options that name folders of configuration files (`hive-conf-dir`, `hadoop-conf-dir`).

    Raises:
        InvalidOption: an address or setting is invalid.
        UnsupportedFeature: the packages of the Thrift client are not installed, or the metastore needs a login that is
            not offered.
    """
    require_thrift()
    shared = _clients.get(",".join(map(address_text, parse_addresses(uri))))
    if shared is not None:
        return shared
    settings = hive_settings({**(options or {}), "uri": uri})
    return _clients.setdefault(settings.address, HiveClient(settings))


class HiveLock:
    """Lock (`QueuedLock`) of a table in a Hive metastore.

    Args:
        client: client of the metastore.
        name: name of the table with its database.
        holder: description of this process for waiting processes.
    """

    def __init__(self, client: HiveClient, name: str, holder: str) -> None:
        self._client = client
        self._database, _, self._table = name.partition(".")
        self._request: int | None = None
        # The id finds requests whose answer is lost. Metastores before Hive 2.1 do not keep it.
        self._agent = f"dredge {uuid.uuid4().hex}, {holder}"[:_MAX_TEXT]
        self._answer_lost = False

    def longest_lease(self) -> int:
        """Return half the time after which the metastore removes a lock (ms), or 10 min if that time is unknown."""
        address = self._client.address
        if address not in _timeouts:
            try:
                _timeouts[address] = _milliseconds(self._client.read("get_config_value", _TIMEOUT, ""))
            except HiveRefusal:  # its administrator does not show the setting
                _timeouts[address] = 0
        return (_timeouts[address] or _UNKNOWN_TIMEOUT_MS) // 2

    @property
    def name(self) -> str:
        """Name of the lock in messages: the table and the metastore."""
        return f"{self._database}.{self._table} in {self._client.address}"

    def acquire(self) -> Grant | Busy:
        """Request the lock, or ask for the state of the waiting request.

        Returns:
            `Grant` of the acquired lock, or `Busy` with the process that holds the lock.
        """
        from pymetastore.hive_metastore.ttypes import LockState

        if self._request is None:
            response = self._enqueue()
        else:
            response = self._find_own() if self._answer_lost else self._check(self._request)
        self._request = None if response is None else int(response.lockid)
        if response is not None and response.state == LockState.ACQUIRED:
            return Grant(int(response.lockid), self._agent)
        if response is not None and response.state != LockState.WAITING:
            self.withdraw()  # the metastore ended the request; the next attempt is a new one
        return self._busy()

    def renew(self, grant: Grant) -> Grant | None:
        """Send a heartbeat for the lock.

        Returns:
            The grant, or None if the metastore has removed the lock.
        """
        from pymetastore.hive_metastore.ttypes import HeartbeatRequest

        return None if self._send("heartbeat", HeartbeatRequest(grant.token, None)) is _REMOVED else grant

    def owns(self, grant: Grant) -> bool:
        """Return whether the metastore still has the lock of this grant."""
        from pymetastore.hive_metastore.ttypes import LockState

        response = self._check(grant.token)
        return response is not None and response.state == LockState.ACQUIRED

    def release(self, grant: Grant) -> None:
        """Release the lock in the metastore; without effect if the metastore has removed it."""
        self._request = grant.token
        self.withdraw()

    def withdraw(self) -> None:
        """Remove the request of this process from the metastore; without effect if there is none."""
        request, self._request = self._request, None
        if request is not None:
            self._unlock(request)
        if self._answer_lost:
            for duplicate in self._own_entries():
                self._unlock(int(duplicate.lockid))

    def _enqueue(self) -> LockResponse | None:
        """Send a request for the lock; if its answer is lost, find the request in the queue.

        Returns:
            The state of the request, or None if it has not arrived.
        """
        from pymetastore.hive_metastore.ttypes import LockComponent, LockLevel, LockRequest, LockType

        component = LockComponent(LockType.EXCLUSIVE, LockLevel.TABLE, self._database, self._table, operationType=None)
        names = [text[:_MAX_TEXT] for text in (_user_name(), socket.gethostname())]
        request = LockRequest([component], None, *names, self._agent)
        try:
            response: LockResponse = self._client.change("lock", request)
        except CallUnknown:
            self._answer_lost = True
            return self._find_own()
        except HiveRefusal as refusal:
            raise self._failure("lock", refusal) from refusal
        return response

    def _find_own(self) -> LockResponse | None:
        """Return the state of this process's first request in the queue, and remove its later ones."""
        own = sorted(int(entry.lockid) for entry in self._own_entries())
        for duplicate in own[1:]:
            self._unlock(duplicate)
        return self._check(own[0]) if own else None

    def _check(self, lock_id: int) -> LockResponse | None:
        """Return the state of a request, which also counts as its heartbeat; None if the metastore has removed it."""
        from pymetastore.hive_metastore.ttypes import CheckLockRequest

        response = self._send("check_lock", CheckLockRequest(lock_id))
        return None if response is _REMOVED else response

    def _unlock(self, lock_id: int) -> None:
        from pymetastore.hive_metastore.ttypes import UnlockRequest

        self._send("unlock", UnlockRequest(lock_id))

    def _send(self, method: str, *arguments: Any) -> Any:
        """Return the answer to a call about a request, which may be sent again; `_REMOVED` if there is no request."""
        try:
            return self._client.read(method, *arguments)
        except HiveRefusal as refusal:
            if refusal.kind in _ABSENCE:
                return _REMOVED
            raise self._failure(method, refusal) from refusal

    def _failure(self, method: str, refusal: HiveRefusal) -> MetastoreFailed:
        reason = f"it refuses {method} for the lock of {self._database}.{self._table}: {refusal}"
        return MetastoreFailed(self._client.address, reason)

    # -- the queue ---------------------------------------------------------------------------------------------------

    def _entries(self) -> list[ShowLocksResponseElement]:
        """Return the entries of the queue that are about the table, its partitions or its whole database."""
        from pymetastore.hive_metastore.ttypes import ShowLocksRequest

        answer = self._send("show_locks", ShowLocksRequest(self._database))
        entries = [] if answer is _REMOVED else list(answer.locks or ())
        # Metastores before Hive 2.1 ignore the filter.
        return [
            entry
            for entry in entries
            if str(entry.dbname).lower() == self._database.lower()
            and str(entry.tablename or self._table).lower() == self._table.lower()
        ]

    def _own_entries(self) -> list[ShowLocksResponseElement]:
        return [entry for entry in self._entries() if entry.agentInfo == self._agent]

    def _busy(self) -> Busy:
        from pymetastore.hive_metastore.ttypes import LockState

        entries = self._entries()
        others = [entry for entry in entries if entry.agentInfo != self._agent]
        blocker = next((entry.blockedByExtId for entry in entries if entry.agentInfo == self._agent), None)
        others.sort(key=lambda entry: (entry.state != LockState.ACQUIRED, entry.lockid != blocker, entry.lockid))
        if not others:
            return Busy("another process", advice=_ADVICE)
        return Busy(_describe(others[0]), _time_text(others[0].acquiredat), _ADVICE)


def _describe(entry: ShowLocksResponseElement) -> str:
    """Return the text about the holder of a lock for waiting processes."""
    agent = _printable(entry.agentInfo)
    ours = _AGENT.fullmatch(agent)
    holder = ours.group(1) if ours else f"{_printable(entry.user)} on {_printable(entry.hostname)}"
    details = [f"lock {int(entry.lockid)}", *([] if ours or agent in {"", "Unknown"} else [agent])]
    heartbeat = _time_text(entry.lastheartbeat)
    return f"{holder} ({', '.join([*details, *([f'last heartbeat {heartbeat}'] if heartbeat else [])])})"


def _printable(text: object) -> str:
    """Return a text of the metastore in one short line."""
    return "".join(character if character.isprintable() else " " for character in str(text or ""))[:_MAX_TEXT].strip()


def _time_text(milliseconds: object) -> str:
    """Return a time of the metastore (epoch ms) as text, or "" without a valid time."""
    if not isinstance(milliseconds, int) or not 0 < milliseconds < _MAX_TIME_MS:
        return ""
    return utc_text(milliseconds)


def _milliseconds(text: object) -> int:
    """Return a duration of Hive's configuration, such as "300s", in ms; 0 if it is none."""
    match = _DURATION.fullmatch(str(text or ""))
    return int(match.group(1)) * _UNITS[(match.group(2) or "s").lower()] if match else 0


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user has no entry in the system's list
        return "unknown"
