"""Every kind of lock keeps the same promises: one holder, tokens that grow, silence ends a holding, and a wait that ends names the holder."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from lsm_core.clock import FixedClock
from lsm_core.errors import LockLost, LockTimeout, StorageRefused
from lsm_core.locks import Busy, Grant, Lease, Lock, LockSettings, held
from lsm_core.locks.database import Database
from lsm_core.locks.file_lock import FileLock
from lsm_core.locks.jdbc_lock import JdbcLock
from lsm_core.storage import FaultyFileIO, LocalFileIO

MakeLock = Callable[[str], Lock]
LEASE = 1_000
NOON = 1_700_000_000_000


@pytest.fixture(params=["file", "sqlite", "postgresql"])
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeLock:
    """Locks of one thing, by their holders' names."""
    if request.param == "file":
        return lambda holder: FileLock(LocalFileIO(), str(tmp_path / "lock"), holder, LEASE, FixedClock(NOON))
    from tests.support.databases import PASSWORD

    monkeypatch.setenv("DREDGE_JDBC_PASSWORD", PASSWORD)
    sqlite = request.param == "sqlite"
    where = f"jdbc:sqlite:{tmp_path / 'locks.db'}" if sqlite else request.getfixturevalue("postgresql_address")
    name = f"jdbc.db.{uuid.uuid4()}"
    return lambda holder: JdbcLock(Database(where), name, holder, LEASE)


def taken(lock: Lock) -> Grant:
    """The grant of a lock that must be free."""
    got = lock.acquire()
    assert isinstance(got, Grant), got
    return got


def test_one_holder_at_a_time_and_tokens_grow(make: MakeLock) -> None:
    first, second = make("writer a"), make("writer b")
    grant = taken(first)
    assert first.owns(grant)
    busy = second.acquire()
    assert isinstance(busy, Busy)
    assert busy.holder == "writer a"
    assert busy.since[:2] == "20"
    first.release(grant)
    assert not first.owns(grant)
    later = taken(second)
    assert later.token > grant.token
    assert isinstance(first.acquire(), Busy)
    second.release(later)
    assert taken(first).token > later.token


def test_a_wait_that_ends_names_the_holder_and_since_when(make: MakeLock) -> None:
    grant = taken(make("the nightly job"))
    waiter = make("another")
    with (
        pytest.raises(LockTimeout, match=r"still held by the nightly job since 20.* after [0-9.]+ s") as failure,
        held(waiter, LockSettings(acquire_timeout=60, check_max_sleep=20, lease=LEASE)),
    ):
        pytest.fail("two hold the lock")
    assert failure.value.waited_ms >= 60
    assert waiter.name in str(failure.value)
    make("the nightly job").release(grant)


def test_a_silent_holder_is_taken_over_and_fenced(make: MakeLock) -> None:
    frozen, other = make("frozen"), make("other")
    stale = taken(frozen)
    started = time.monotonic()
    with held(other, LockSettings(acquire_timeout=10_000, check_max_sleep=100, lease=LEASE)) as lease:
        assert time.monotonic() - started >= LEASE / 1000
        assert lease.token > stale.token
        assert not frozen.owns(stale)
        assert frozen.renew(stale) is None
        frozen.release(stale)  # which is not its to release any more
        lease.require()
        assert isinstance(make("a third").acquire(), Busy)


def test_a_holder_that_lives_keeps_the_lock_for_longer_than_its_lease(make: MakeLock) -> None:
    other, lease_ms = make("other"), 2 * LEASE  # its thread may have to wait for a processor
    with held(make("slow"), LockSettings(lease=lease_ms)) as lease:
        until = time.monotonic() + 2.3 * lease_ms / 1000
        while time.monotonic() < until:
            assert isinstance(other.acquire(), Busy)
            time.sleep(0.1)
        lease.require()
    other.release(taken(other))


def test_a_holder_that_slept_learns_that_it_lost_the_lock(make: MakeLock, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = make("sleeper")
    monkeypatch.setattr(sleeper, "renew", lambda grant: grant)  # beats that reach nobody
    with held(sleeper, LockSettings(lease=LEASE)) as lease:
        winner = make("winner")
        with held(winner, LockSettings(acquire_timeout=10_000, check_max_sleep=100, lease=LEASE)):
            with pytest.raises(LockLost, match=r"another holder has taken it over|not renewed"):
                lease.require()
            assert isinstance(make("third").acquire(), Busy)


def test_work_under_the_lock_is_done_by_one_at_a_time(make: MakeLock, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    tokens: list[int] = []

    def count(name: str) -> None:
        for _ in range(5):
            with held(make(name), LockSettings(60_000, 40, 10_000)) as lease:
                seen = int(counter.read_text())
                time.sleep(0.001)
                counter.write_text(str(seen + 1))
                tokens.append(lease.token)

    threads = [threading.Thread(target=count, args=(f"thread {i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read_text() == "20"
    assert tokens == sorted(set(tokens))


# -- what only lock files can meet -------------------------------------------------------------------------------------------


def file_lock(folder: Path, holder: str = "me", lease: int = 20, file_io: object = None) -> FileLock:
    return FileLock(file_io or LocalFileIO(), str(folder), holder, lease, FixedClock(NOON))  # type: ignore[arg-type]


def test_whoever_looked_long_ago_gets_no_number_that_was_given_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lock"
    for holder in ("a", "b", "c"):
        lock = file_lock(folder, holder)
        lock.release(taken(lock))
    stalled = file_lock(folder, "stalled")
    numbers, seen = stalled._numbers, iter([[1]])
    monkeypatch.setattr(stalled, "_numbers", lambda: next(seen, None) or numbers())
    monkeypatch.setattr(stalled, "_busy", lambda number: None)  # as it saw: released
    assert isinstance(stalled.acquire(), Busy)
    assert sorted(path.name for path in folder.iterdir()) == ["holding-3"]


def test_a_lock_file_that_cannot_be_read_counts_as_a_holder_for_one_lease(tmp_path: Path) -> None:
    folder = tmp_path / "lock"
    folder.mkdir()
    (folder / "holding-7").write_bytes(b"\xff not json")
    lock = file_lock(folder)
    busy = lock.acquire()
    assert isinstance(busy, Busy)
    assert "holding-7 (unreadable)" in busy.holder
    time.sleep(0.05)
    assert taken(lock).token == 8


def test_a_failure_at_any_step_leaves_the_lock_free_after_one_lease_at_most(tmp_path: Path) -> None:
    def use(file_io: FaultyFileIO, folder: Path) -> None:
        with held(file_lock(folder, file_io=file_io), LockSettings(lease=60_000)):
            pass

    counted = FaultyFileIO(LocalFileIO())
    use(counted, tmp_path / "counted")
    assert counted.steps >= 5
    for step in range(1, counted.steps + 1):
        for mode in ("before", "after"):
            folder = tmp_path / f"{step}-{mode}"
            with contextlib.suppress(StorageRefused):
                use(FaultyFileIO(LocalFileIO(), step, mode), folder)
            other = file_lock(folder, "other")
            deadline = time.monotonic() + 60
            while isinstance(other.acquire(), Busy):
                assert time.monotonic() < deadline, (step, mode)
                time.sleep(0.005)


@pytest.mark.parametrize("method", ["renew", "release"])
def test_a_storage_that_refuses_is_named_by_renewals_and_releases(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = file_lock(tmp_path / "lock")
    grant = lock.acquire()
    assert isinstance(grant, Grant)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(LocalFileIO, "overwrite", refuse)
    with pytest.raises(StorageRefused, match="Input/output error"):
        getattr(lock, method)(grant)


def test_a_lease_ends_its_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with held(file_lock(tmp_path / "lock"), LockSettings()) as lease:
        assert isinstance(lease, Lease)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
