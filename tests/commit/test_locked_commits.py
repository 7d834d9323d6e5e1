"""Commits under a lock: who does not get it changes nothing, who lost it publishes nothing, and without one some storage is refused."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange
from lsm_core.clock import FixedClock
from lsm_core.commit import CommitHooks, Committer, Phase
from lsm_core.commit.attempt import is_unknown
from lsm_core.errors import CommitUnknown, DredgeError, InvalidOption, LockRequired, LockTimeout, MetastoreFailed
from lsm_core.locks import Grant, Lease, LockSettings, guarantee_text, held, table_lock
from lsm_core.locks.file_lock import FileLock
from lsm_core.metadata import snapshots
from lsm_core.options import ALLOWED_PLACES
from lsm_core.storage import FaultyFileIO, FileIO, Guarantee, LocalFileIO
from tests.commit.tables import NOON, content, make_store, message, reopen, stray_files, write_kv

FILE = {"dredge.lock": "file", "dredge.lock.acquire-timeout": "50 ms", "dredge.lock.lease": "1 s"}


class CarelessStore(LocalFileIO):
    """A store that creates nothing exclusively: it looks, waits a moment, and writes over what came meanwhile."""

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.NONE

    def write_exclusive(self, path: str, data: bytes) -> bool:
        if self.exists(path):
            return False
        time.sleep(0.002)
        self.overwrite(path, data)
        return True


def new_message(store, number: int):
    return message(store, new_files=write_kv(store, {"k": [number], "v": [str(number)]}, first_sequence=number))


def without_lock_files(store) -> set[str]:
    return {path for path in stray_files(store) if not path.startswith("holding-")}


def test_who_does_not_get_the_lock_changes_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", options=FILE)
    other = table_lock(store.file_io, store.root, store.name, store.options, store.clock, "the other job")
    assert other is not None
    new = new_message(store, 1)
    before = without_lock_files(store)
    with (
        held(other, LockSettings(lease=60_000)),
        pytest.raises(LockTimeout, match=r"held by the other job on .* since 20"),
    ):
        Committer(store, "me").commit([new])
    assert snapshots.latest_id(store) is None
    assert without_lock_files(store) == before
    assert Committer(store, "me").commit([new]).snapshot_ids == [1]
    assert content(store) == [(1, "1")]


def test_a_commit_that_lost_the_lock_publishes_nothing_and_tries_again_on_the_new_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "t", options={**FILE, "dredge.lock.acquire-timeout": "10 s"})
    require, overtaken = Lease.require, []

    def slept(lease: Lease) -> None:
        if not overtaken:
            overtaken.append(lease.token)
            # Another process saw us silent for a lease: it has the next number, publishes, and releases.
            other = FileLock(LocalFileIO(), f"{store.root}/dredge/lock", "other", 1000, FixedClock(NOON))
            monkeypatch.setattr(other, "_busy", lambda number: None)
            grant = other.acquire()
            assert isinstance(grant, Grant)
            unlocked = store.copy({"dredge.lock": "none"})
            Committer(unlocked, "other").commit([new_message(unlocked, 7)])
            other.release(grant)
        require(lease)

    monkeypatch.setattr(Lease, "require", slept)
    assert Committer(store, "me").commit([new_message(store, 1)]).snapshot_ids == [2]
    assert [snapshots.read(store, i).commit_user for i in (1, 2)] == ["other", "me"]
    assert content(store) == [(1, "1"), (7, "7")]
    assert without_lock_files(store) == set()


def test_a_lock_that_was_lost_while_the_snapshot_was_written_leaves_the_outcome_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "t", options=FILE)
    monkeypatch.setattr(Lease, "overdue", lambda lease: "it slept" if snapshots.latest_id(store) else "")
    with pytest.raises(
        CommitUnknown, match="snapshot 1 is unknown: it was written, but the lock was lost meanwhile: it slept"
    ):
        Committer(store, "me").commit([new_message(store, 1)], commit_identifier=1)
    assert content(store) == [(1, "1")]


def test_the_lock_is_held_only_while_the_snapshot_is_published(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", options=FILE)
    seen: list[tuple[Phase, list[bool]]] = []

    def look(phase: Phase, info: object) -> None:
        seen.append(
            (
                phase,
                [b'"released": true' in path.read_bytes() for path in (tmp_path / "t/dredge/lock").glob("holding-*")],
            )
        )

    Committer(store, "me", CommitHooks(look)).commit([new_message(store, 1)])
    assert seen[-2:] == [(Phase.PUBLISH, []), (Phase.CLEAN, [True])]


def test_a_failure_at_any_step_of_the_lock_leaves_the_table_as_before_or_after(tmp_path: Path) -> None:
    def attempt(root: Path, file_io: FileIO) -> list[int] | Exception:
        new = new_message(reopen(root), 1)
        try:
            return Committer(reopen(root, file_io), "me").commit([new], commit_identifier=1).snapshot_ids
        except (DredgeError, OSError) as error:
            return error

    make_store(tmp_path / "counted", options=FILE)
    counted = FaultyFileIO(LocalFileIO())
    assert attempt(tmp_path / "counted", counted) == [1]
    steps = [number for number, (_, path) in enumerate(counted.log, 1) if "/dredge/lock" in path]
    assert len(steps) >= 5
    for step in steps:
        for mode in ("before", "after"):
            root = tmp_path / f"{step}-{mode}"
            make_store(
                root, options={**FILE, "dredge.lock.acquire-timeout": "10 s", "dredge.lock.check-max-sleep": "30 ms"}
            )
            outcome = attempt(root, FaultyFileIO(LocalFileIO(), step, mode))
            store = reopen(root)
            rows = content(store)
            assert rows == ([(1, "1")] if outcome == [1] or is_unknown(outcome) else []), (step, mode, outcome)
            Committer(store, "next").commit([new_message(store, 2)])
            assert content(store) == [*rows, (2, "2")], (step, mode)


def test_a_store_that_creates_nothing_exclusively_is_refused_without_a_lock(tmp_path: Path) -> None:
    make_store(tmp_path / "t")
    store = reopen(tmp_path / "t", CarelessStore())
    with pytest.raises(LockRequired, match=r"table db\.t is on a storage .* set dredge.lock"):
        Committer(store, "me").commit([])
    with pytest.raises(InvalidOption, match=r"dredge.lock.uri.*a folder on a storage that creates files exclusively"):
        Committer(store.copy({"dredge.lock": "file"}), "me").commit([])
    assert "refused" in guarantee_text(store.file_io, store.root, store.name, store.options)
    assert not (tmp_path / "t" / "snapshot").exists()


@pytest.mark.parametrize("kind", ["file", "jdbc"])
def test_with_a_lock_such_a_store_loses_no_commit(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "locks") if kind == "file" else f"jdbc:sqlite:{tmp_path / 'locks.db'}"
    monkeypatch.setenv(ALLOWED_PLACES, uri)
    options = {
        "dredge.lock": kind,
        "dredge.lock.uri": uri,
        "dredge.lock.check-max-sleep": "30 ms",
        "commit.max-retries": "60",
        "commit.max-retry-wait": "50 ms",
    }
    make_store(tmp_path / "t", options=options)
    failures: list[BaseException] = []

    def work(user: int) -> None:
        try:
            store = reopen(tmp_path / "t", CarelessStore())
            committer = Committer(store, f"w-{user}")
            for i in range(5):
                committer.commit([new_message(store, user * 100 + i)], commit_identifier=i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(user,)) for user in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    store = reopen(tmp_path / "t")
    assert {row[0] for row in content(store)} == {user * 100 + i for user in range(4) for i in range(5)}
    assert snapshots.latest_id(store) == 20


def test_a_database_that_is_gone_fails_the_commit_before_anything_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"dredge.lock": "jdbc", "dredge.lock.uri": f"jdbc:sqlite:{tmp_path / 'gone' / 'locks.db'}"}
    monkeypatch.setenv(ALLOWED_PLACES, options["dredge.lock.uri"])
    store = make_store(tmp_path / "t", options=options)
    new = new_message(store, 1)
    before = stray_files(store)
    with pytest.raises(MetastoreFailed, match=r"locks\.db"):
        Committer(store, "me").commit([new])
    assert stray_files(store) == before
    assert snapshots.latest_id(store) is None


def test_status_and_schema_changes_know_the_lock(tmp_path: Path) -> None:
    catalog = Catalog(
        tmp_path / "wh",
        {
            "lock.enabled": "true",
            "lock.type": "jdbc",
            "uri": f"jdbc:sqlite:{tmp_path}/l.db",
            "lock-acquire-timeout": "40 ms",
            "catalog-key": "mine",
        },
    )
    catalog.create_database("db")
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    table = catalog.create_table("db.t", Schema(fields, ["k"], options={"bucket": "1"}))
    table.write(pa.table({"k": pa.array([1], pa.int64())}))
    text = guarantee_text(table.store.file_io, table.store.root, table.store.name, table.store.options)
    assert f"the lock 'mine.db.t' in jdbc:sqlite:{tmp_path}/l.db, and need exclusive creation (hard link)" in text
    assert "lock.enabled = true" in text
    store = table.store
    other = table_lock(store.file_io, store.root, store.name, store.options, store.clock, "other")
    assert other is not None
    with held(other, LockSettings(lease=60_000)):
        with pytest.raises(LockTimeout, match="other on"):
            catalog.alter_table("db.t", [SchemaChange.add_column("v", pa.string())])
        with pytest.raises(LockTimeout, match="other on"):
            table.write(pa.table({"k": pa.array([2], pa.int64())}))
    assert [field.name for field in catalog.table("db.t").schema.fields] == ["k"]
    assert table.to_arrow().num_rows == 1
    assert "dredge.lock" not in catalog.store("db.t").schema.options


def test_a_lock_that_a_table_cannot_have_is_refused_when_it_is_made(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    fields = pa.schema([pa.field("k", pa.int64())])
    for options, words in (
        ({"dredge.lock": "jdbc"}, "dredge.lock.uri.*JDBC address"),
        ({"dredge.lock": "redis"}, "none, file, jdbc"),
        ({"dredge.lock": "jdbc", "dredge.lock.uri": "jdbc:postgresql://h/d?password=hunter2"}, "environment only"),
    ):
        with pytest.raises(InvalidOption, match=words) as failure:
            catalog.create_table("db.t", Schema(fields, options={"bucket": "-1", **options}))
        assert "hunter2" not in str(failure.value)
    for given, words in (
        ({"lock.enabled": "true"}, "lock.type"),
        ({"metastore": "jdbc"}, "option 'uri'"),
        ({"metastore": "glue"}, "filesystem, jdbc"),
        ({"metastore": "rest"}, "option 'uri'"),
        ({"jdbc.password": "x"}, "secrets"),
    ):
        with pytest.raises(InvalidOption, match=words):
            Catalog(tmp_path / "wh", given)
    assert catalog.list_tables("db") == []


def test_a_catalog_s_lock_counts_and_the_table_s_own_is_told_to_give_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    plain = Catalog(tmp_path / "wh")
    plain.create_database("db")
    plain.create_table("db.t", Schema(fields, ["k"], options={"bucket": "1", "dredge.lock": "file"}))
    plain.create_table("db.u", Schema(fields, ["k"], options={"bucket": "1"}))
    plain.table("db.t")
    assert not caplog.records
    options = {"lock.enabled": "true", "lock.type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/l.db"}
    locking = Catalog(tmp_path / "wh", options)
    for name in ("db.t", "db.u", "db.t"):
        store = locking.table(name).store
        assert store.options.get("dredge.lock") == "jdbc"
    [warned] = [record.getMessage() for record in caplog.records]
    assert (
        "table db.t: its own lock (dredge.lock = file) is not taken: its catalog gives it dredge.lock = jdbc" in warned
    )
