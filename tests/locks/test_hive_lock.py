"""The lock in a Hive metastore: its queue, lost answers, and what the metastore says about holders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pymetastore.hive_metastore.ttypes import (
    CheckLockRequest,
    HeartbeatRequest,
    LockRequest,
    LockResponse,
    LockState,
    ShowLocksRequest,
    ShowLocksResponse,
    ShowLocksResponseElement,
    UnlockRequest,
)

from lsm_core import Catalog
from lsm_core.errors import InvalidOption, LockLost, LockTimeout, MetastoreFailed, UnsupportedFeature
from lsm_core.locks import Busy, Grant, Lease, LockSettings, guarantee_text, held, hive_lock, table_lock
from lsm_core.locks.hive_client import CallUnknown, HiveRefusal
from lsm_core.locks.hive_lock import HiveLock
from lsm_core.options.catalog_options import CatalogOptions

QUICK = LockSettings(acquire_timeout=0, check_max_sleep=1, lease=1000)


@dataclass
class Queue:
    """Locks of a metastore in memory, with the interface of `HiveClient`.

    Attributes:
        address: address in messages.
        timeout: the metastore's `hive.txn.timeout`.
        entries: requests in their order.
        lost: what happens to the next requests for a lock: "before" (it does not arrive), "after" (only its answer is
            lost), "late" (it arrives with the next call), or "later" (it arrives with the next request for a lock).
        refusal: declared error of the next call, or "".
        calls: methods of all calls.
    """

    address: str = "thrift://queue:9083"
    timeout: str = "300s"
    entries: list[ShowLocksResponseElement] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    refusal: str = ""
    calls: list[str] = field(default_factory=list)
    number: int = 0
    late: list[tuple[LockRequest, str]] = field(default_factory=list)

    def change(self, method: str, request: LockRequest) -> LockResponse:
        """Add a request for a lock."""
        self._arrive(method)
        fault = self.lost.pop(0) if self.lost else ""
        if fault.startswith("late"):
            self.late.append((request, method if fault == "later" else ""))
        if fault in {"late", "later", "before"}:
            raise CallUnknown("the connection is lost")
        response = self._add(request)
        if fault:
            raise CallUnknown("the connection is lost")
        return response

    def read(self, method: str, *arguments: Any) -> Any:
        """Answer a call that may be repeated."""
        self._arrive(method)
        if method == "get_config_value":
            return self.timeout
        (request,) = arguments
        if isinstance(request, ShowLocksRequest):
            return ShowLocksResponse(list(self.entries))
        assert isinstance(request, CheckLockRequest | HeartbeatRequest | UnlockRequest)
        entry = next((entry for entry in self.entries if entry.lockid == request.lockid), None)
        if entry is None:
            raise HiveRefusal("NoSuchLockException", f"no lock {request.lockid}")
        if isinstance(request, UnlockRequest):
            self.entries.remove(entry)
        return self._state(entry) if isinstance(request, CheckLockRequest) else None

    def add(self, user: str = "root", host: str = "h", table: str | None = "t", **more: Any) -> int:
        """Add a lock of another engine, and return its id."""
        self.number += 1
        entry = ShowLocksResponseElement(self.number, "db", table, user=user, hostname=host, agentInfo="Unknown")
        for name, value in {"state": LockState.ACQUIRED, "acquiredat": 1_700_000_000_000, **more}.items():
            setattr(entry, name, value)
        self.entries.append(entry)
        return self.number

    def _add(self, request: LockRequest) -> LockResponse:
        (component,) = request.component
        more = {"agentInfo": request.agentInfo, "state": LockState.WAITING}
        self.add(request.user, request.hostname, component.tablename, **more)
        return self._state(self.entries[-1])

    def _state(self, entry: ShowLocksResponseElement) -> LockResponse:
        before = self.entries[: self.entries.index(entry)]
        blocked = any(other.tablename in {None, entry.tablename} for other in before)
        entry.state = LockState.WAITING if blocked else LockState.ACQUIRED
        return LockResponse(entry.lockid, entry.state)

    def _arrive(self, method: str) -> None:
        self.calls.append(method)
        for request, with_method in self.late:
            if with_method in {"", method}:
                self._add(request)
        self.late = [(request, with_method) for request, with_method in self.late if with_method not in {"", method}]
        if self.refusal:
            raise HiveRefusal(self.refusal, "no")


@pytest.fixture
def queue() -> Iterator[Queue]:
    """Yield the locks of an empty metastore."""
    yield Queue()
    hive_lock._timeouts.clear()


def lock(queue: Queue, holder: str = "me on here, process 1", name: str = "db.t") -> HiveLock:
    """Return a lock of the metastore."""
    return HiveLock(queue, name, holder)  # type: ignore[arg-type]


def granted(answer: Grant | Busy) -> Grant:
    """Return the answer, which is a grant."""
    assert isinstance(answer, Grant), answer
    return answer


def test_waiting_processes_do_not_overtake(queue: Queue) -> None:
    first, second, third = (lock(queue, f"{name} on here, process 1") for name in ("a", "b", "c"))
    grant = granted(first.acquire())
    busy = second.acquire()
    assert isinstance(busy, Busy) and busy.holder == "a on here, process 1 (lock 1)"
    assert busy.since == "2023-11-14 22:13:20" and "hive.txn.timeout" in busy.advice
    assert isinstance(third.acquire(), Busy)
    first.release(grant)
    assert isinstance(third.acquire(), Busy), "the second process came earlier"
    later = granted(second.acquire())
    assert later.token > grant.token
    second.release(later)
    third.release(granted(third.acquire()))
    assert queue.entries == [] and queue.calls.count("lock") == 3


def test_a_time_out_names_the_holder_and_leaves_the_queue(queue: Queue) -> None:
    queue.add("spark", "worker-7", lastheartbeat=1_700_000_060_000)
    expected = (
        r"lock db\.t in thrift://queue:9083 still held by spark on worker-7 \(lock 1, last heartbeat 2023-11-14 "
        r"22:14:20\) since 2023-11-14 22:13:20 after .* s: wait for it, or raise lock-acquire-timeout"
    )
    with pytest.raises(LockTimeout, match=expected), held(lock(queue), QUICK):
        raise AssertionError("not reached")
    assert [entry.lockid for entry in queue.entries] == [1]


def test_an_interrupted_wait_leaves_the_queue(queue: Queue) -> None:
    queue.add()

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), held(lock(queue), LockSettings(lease=1000), interrupt):
        raise AssertionError("not reached")
    assert len(queue.entries) == 1


@pytest.mark.parametrize("lost", ["before", "after", "late", "later"])
def test_a_request_whose_answer_is_lost_is_looked_up(queue: Queue, lost: str) -> None:
    queue.lost.append(lost)
    with held(lock(queue), LockSettings(lease=1000)) as lease:
        lease.require()
        assert sum(entry.state == LockState.ACQUIRED for entry in queue.entries) == 1
    assert queue.entries == []


def test_several_lost_requests_leave_one_request(queue: Queue) -> None:
    queue.lost.append("later")
    waiting = lock(queue)
    assert isinstance(waiting.acquire(), Busy)
    # The first request arrives before the second one, which then waits for it.
    assert isinstance(waiting.acquire(), Busy)
    assert len(queue.entries) == 2
    waiting.release(granted(waiting.acquire()))
    assert queue.entries == [] and queue.calls.count("lock") == 2


def test_a_lock_that_the_metastore_removed_is_lost(queue: Queue) -> None:
    taken = lock(queue)
    grant = granted(taken.acquire())
    assert taken.owns(grant) and taken.renew(grant) == grant
    queue.entries.clear()
    assert not taken.owns(grant) and taken.renew(grant) is None
    taken.release(grant)
    with held(taken, QUICK) as lease:
        queue.entries.clear()
        with pytest.raises(LockLost, match=r"db\.t in thrift://queue:9083"):
            lease.require()


def test_a_waiting_request_that_was_removed_is_sent_again(queue: Queue) -> None:
    other = queue.add()
    waiting = lock(queue)
    waiting.acquire()
    queue.entries = [entry for entry in queue.entries if entry.lockid == other]
    assert isinstance(waiting.acquire(), Busy)
    assert isinstance(waiting.acquire(), Busy)
    assert len(queue.entries) == 2


def test_locks_of_the_database_and_of_other_tables(queue: Queue) -> None:
    queue.add("other", table="u")
    granted(lock(queue).acquire())
    queue.entries.clear()
    queue.add("admin", table=None)
    busy = lock(queue).acquire()
    assert isinstance(busy, Busy) and busy.holder.startswith("admin on h")


def test_refusals_name_the_metastore_and_the_table(queue: Queue) -> None:
    taken = lock(queue)
    grant = granted(taken.acquire())
    queue.refusal = "MetaException"
    for call in (lambda: taken.owns(grant), lambda: taken.renew(grant), lambda: taken.release(grant)):
        with pytest.raises(MetastoreFailed, match=r"thrift://queue:9083 .* of db\.t: MetaException: no"):
            call()
    with pytest.raises(MetastoreFailed, match="refuses lock for"):
        lock(queue).acquire()


@pytest.mark.parametrize(
    ("text", "longest"), [("1 s", 500), ("300s", 150_000), ("2 min", 60_000), ("", 600_000), ("soon", 600_000)]
)
def test_the_lease_is_shorter_than_the_time_out_of_the_metastore(queue: Queue, text: str, longest: int) -> None:
    queue.timeout = text
    assert lock(queue).longest_lease() == longest
    with held(lock(queue), LockSettings(lease=10**9)) as lease:
        assert f"after {longest / 1000:g} s" in lease_text(lease)


def lease_text(lease: Lease) -> str:
    """Return the reason that a lease gives for its end, long after the last renewal."""
    lease._confirmed -= 10**7
    return lease.overdue()


def test_hostile_descriptions_of_holders_are_shortened(queue: Queue) -> None:
    queue.add("evil\nuser\x1b[31m", "h" * 10_000, acquiredat=10**17, lastheartbeat=-1, agentInfo="\u202e" * 9999)
    busy = lock(queue).acquire()
    assert isinstance(busy, Busy) and busy.since == "" and busy.holder.isprintable() and len(busy.holder) < 600


def test_a_table_leads_to_no_metastore_of_its_own_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    table = catalog.create_table("db.t", pa.schema([("v", pa.int64())]), options={"bucket": "-1"})
    file = Path(table.store.root, "schema", "schema-0")
    stored = json.loads(file.read_bytes())
    stored["options"] |= {"dredge.lock": "hive", "dredge.lock.uri": "thrift://a:9083,thrift://b:9083"}
    file.write_text(json.dumps(stored))
    store = Catalog(tmp_path).table("db.t").store
    opened = (store.file_io, store.root, store.name, store.options)
    for allowed in ("", "thrift://a:9083", "thrift://a:9083,thrift://b:90"):
        monkeypatch.setenv("DREDGE_ALLOWED_PLACES", allowed)
        with pytest.raises(InvalidOption, match="DREDGE_ALLOWED_PLACES"):
            table_lock(*opened, store.clock)
        assert "commits are refused" in guarantee_text(*opened)
    monkeypatch.setenv("DREDGE_ALLOWED_PLACES", "thrift://a:9083, thrift://b:9083")
    taken = table_lock(*opened, store.clock)
    assert isinstance(taken, HiveLock) and taken.name == "db.t in thrift://a:9083,thrift://b:9083"
    assert "lock of db.t in the metastore thrift://a:9083" in guarantee_text(*opened)


def test_locks_use_the_connections_of_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hive_lock, "_clients", {})
    (tmp_path / "hive-site.xml").write_text(
        "<configuration><property><name>hive.metastore.use.SSL</name><value>true</value></property></configuration>"
    )
    monkeypatch.setenv("HIVE_CONF_DIR", str(tmp_path))
    with pytest.raises(UnsupportedFeature, match="TLS"):
        hive_lock.lock_client("thrift://queue:9083")
    catalog_client = Queue()
    hive_lock.share_client(catalog_client)  # type: ignore[arg-type]
    assert hive_lock.lock_client(" thrift://queue ") is catalog_client  # type: ignore[comparison-overlap]
    monkeypatch.delenv("HIVE_CONF_DIR")
    other = hive_lock.lock_client("thrift://other:9083")
    assert other.address == "thrift://other:9083" and hive_lock.lock_client("thrift://other:9083") is other


def test_a_catalog_of_folders_may_take_locks_of_a_metastore() -> None:
    options = {"lock.enabled": "true", "lock.type": "hive", "uri": "thrift://a:9083", "lock-check-max-sleep": "1 s"}
    locking = CatalogOptions(options).locking(always=False)
    assert (locking["dredge.lock"], locking["dredge.lock.uri"]) == ("hive", "thrift://a:9083")
    assert locking["dredge.lock.check-max-sleep"] == "1 s"
    for wrong in ({"lock.type": "zookeeper"}, {"metastore": "jdbc", "uri": "jdbc:sqlite:/x"}):
        with pytest.raises(InvalidOption, match=r"lock\.type"):
            CatalogOptions({**options, **wrong}).locking(always=False)
