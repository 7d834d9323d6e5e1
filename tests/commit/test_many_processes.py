"""Real processes racing for one table: no commit is lost, and one that was frozen before publishing changes nothing."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from lsm_core.commit import Committer
from lsm_core.errors import SnapshotNotFound
from lsm_core.format.manifest import table_to_entries
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import ALLOWED_PLACES
from lsm_core.table import Table
from tests.commit.tables import content, live_files, make_store, message, reopen, stray_files, write_kv

ROOT = Path(__file__).resolve().parent.parent.parent
LONG = (pytest.mark.soak, pytest.mark.timeout(3600))
_PATIENCE = 1_200
"""Seconds after which a process hangs, on a machine that has much else to do."""


def start(root: Path, user: int, commits: int, *mode: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.commit.worker", str(root), str(user), str(commits), *mode]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def wait_until_stopped(pid: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline, "the process never reached its stop"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _locks_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables name their lock's database themselves; worker processes inherit the operator's allowance."""
    monkeypatch.setenv(ALLOWED_PLACES, f"jdbc:sqlite:{tmp_path / 'locks.db'}")


@pytest.mark.parametrize(
    ("keys", "processes", "commits"),
    [(("k",), 4, 8), ((), 3, 4), pytest.param(("k",), 8, 25, marks=LONG)],
    ids=["primary-key", "append", "primary-key, often"],
)
def test_racing_processes_lose_no_commit(tmp_path: Path, keys: tuple[str, ...], processes: int, commits: int) -> None:
    # Each lost race is a commit of somebody else: whatever the machine does, nobody loses more.
    options = {"commit.max-retries": str(processes * commits), "commit.max-retry-wait": "200 ms"}
    store = make_store(tmp_path / "t", primary_keys=keys, options=options)
    workers = [start(tmp_path / "t", user, commits) for user in range(processes)]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            go(worker)
        printed = [worker.communicate(timeout=_PATIENCE)[0].split() for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    ids = sorted(int(text) for lines in printed for text in lines)
    assert ids == list(range(1, processes * commits + 1))
    assert all([int(text) for text in lines] == sorted(int(text) for text in lines) for lines in printed)
    users = Counter(snapshots.read(store, i).commit_user for i in ids)
    assert users == {f"w-{user}": commits for user in range(processes)}
    found = {row[1] for row in content(store) if row[0] != 10**9}
    assert found == {f"{user}-{i}" for user in range(processes) for i in range(commits)}
    latest = snapshots.latest(store)
    assert latest is not None
    assert latest.total_record_count == processes * commits * 2
    assert len(live_files(store)) == processes * commits
    one_each = [len(table_to_entries(manifests.delta_entries(store, snapshots.read(store, i)))) for i in ids]
    assert one_each == [1] * len(ids)
    assert stray_files(store) == set()


@pytest.mark.parametrize(
    ("processes", "commits", "lock"),
    [
        (3, 6, "file"),
        pytest.param(8, 25, "none", marks=LONG),
        pytest.param(8, 25, "file", marks=LONG),
        pytest.param(8, 25, "jdbc", marks=LONG),
    ],
)
def test_writers_beside_a_compactor_and_an_expirer_lose_nothing(
    tmp_path: Path, processes: int, commits: int, lock: str
) -> None:
    # Who loses a race loses it to a commit of another writer, or of the compactor, which makes fewer.
    options = {"commit.max-retries": str(2 * processes * commits), "commit.max-retry-wait": "200 ms"}
    options["num-sorted-run.compaction-trigger"] = "3"
    if lock != "none":
        options |= {"dredge.lock": lock, "dredge.lock.check-max-sleep": "100 ms"}
    if lock == "jdbc":
        options["dredge.lock.uri"] = f"jdbc:sqlite:{tmp_path / 'locks.db'}"
    root = tmp_path / "t"
    store = make_store(root, options=options)
    workers = [start(root, user, commits) for user in range(processes)]
    maintain = [sys.executable, "-m", "tests.commit.maintainer", str(root)]
    pipes = {"cwd": ROOT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    maintainers = [subprocess.Popen([*maintain, role], **pipes) for role in ("compact", "expire")]
    seen: dict[int, set[str]] = {}
    try:
        for process in (*workers, *maintainers):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for worker in workers:
            go(worker)
        while any(worker.poll() is None for worker in workers):
            latest = snapshots.latest_id(store)
            if latest is not None and latest not in seen:
                with suppress(SnapshotNotFound):  # twelve are kept: this process slept while as many were made
                    seen[latest] = rows_of(store, latest)
            time.sleep(0.005)
        printed = [worker.communicate(timeout=_PATIENCE)[0].split() for worker in workers]
        made = [int(process.communicate(timeout=_PATIENCE)[0]) for process in maintainers]
    finally:
        for process in (*workers, *maintainers):
            process.kill()
    wanted = {f"{user}-{i}" for user in range(processes) for i in range(commits)}
    given = [int(text) for lines in printed for text in lines]
    assert len(given) == len(set(given)) == processes * commits  # none lost, none twice
    assert all(made), made
    last = snapshots.latest_id(store)
    assert last is not None and last > processes * commits
    for kept in snapshots.list_ids(store):
        seen[kept] = rows_of(store, kept)
    assert seen[last] == wanted
    ordered = [seen[number] for number in sorted(seen)]
    assert all(earlier <= later for earlier, later in itertools.pairwise(ordered))
    assert len(seen) > 6


def rows_of(store: TableStore, snapshot_id: int) -> set[str]:
    """Values of a snapshot's rows, but those of the key that all writers share; each key once."""
    rows = Table(store).to_arrow(snapshot_id=snapshot_id).to_pylist()
    assert len({row["k"] for row in rows}) == len(rows)
    return {row["v"] for row in rows if row["k"] != 10**9}


@pytest.mark.parametrize("mode", ["compact", "write"])
def test_a_process_frozen_between_check_and_publish_changes_nothing(tmp_path: Path, mode: str) -> None:
    root = tmp_path / "t"
    store = make_store(root)
    for i in range(2):
        new = write_kv(store, {"k": [2 * i, 2 * i + 1], "v": ["a", "b"]}, first_sequence=2 * i)
        Committer(store).commit([message(store, new_files=new)])
    frozen = start(root, 1, 1, mode)
    try:
        go(frozen)
        wait_until_stopped(frozen.pid)
        before = content(store)
        assert snapshots.latest_id(store) == 2
        # Meanwhile somebody else compacts the bucket for real.
        old = [file for _, _, file in live_files(store)]
        merged = write_kv(store, {"k": [0, 1, 2, 3], "v": ["a", "b"] * 2}, level=5, source=1)
        Committer(store, "awake").commit([message(store, compact_before=old, compact_after=merged)])
        assert content(store) == before
        os.kill(frozen.pid, signal.SIGCONT)
        lines = frozen.communicate(timeout=_PATIENCE)[0].splitlines()
    finally:
        frozen.kill()
    assert lines[0] == "ready"
    if mode == "compact":
        assert lines[1].startswith("conflict")
        assert "with snapshot 3 by awake" in lines[1]
        assert content(store) == before
        assert snapshots.latest_id(store) == 3
    else:
        assert lines[1] == "4"
        assert content(store) == sorted([*before, (10**6, "1-0"), (10**9, "1")], key=repr)
    assert stray_files(store) == set()


@pytest.mark.parametrize("kind", ["file", pytest.param("jdbc", marks=pytest.mark.soak)])
def test_a_process_frozen_with_the_lock_is_taken_over_and_publishes_nothing_on_the_old_base(
    tmp_path: Path, kind: str
) -> None:
    root = tmp_path / "t"
    options = {"dredge.lock": kind, "dredge.lock.lease": "1 s", "dredge.lock.check-max-sleep": "50 ms"}
    if kind == "jdbc":
        options["dredge.lock.uri"] = f"jdbc:sqlite:{tmp_path / 'locks.db'}"
    store = make_store(root, options=options)
    frozen = start(root, 1, 1, "locked")
    try:
        go(frozen)
        wait_until_stopped(frozen.pid)
        new = write_kv(store, {"k": [7], "v": ["awake"]}, first_sequence=0)
        began = time.monotonic()
        assert Committer(store, "awake").commit([message(store, new_files=new)]).snapshot_ids == [1]
        assert time.monotonic() - began > 0.5  # the lock was waited for
        os.kill(frozen.pid, signal.SIGCONT)
        lines = frozen.communicate(timeout=_PATIENCE)[0].splitlines()
    finally:
        frozen.kill()
    assert lines == ["ready", "2"]
    assert snapshots.read(store, 1).commit_user == "awake"
    assert {row[0] for row in content(store)} == {7, 10**6, 10**9}
    assert {path for path in stray_files(store) if not path.startswith("holding-")} == set()


def test_a_process_killed_between_check_and_publish_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "t"
    store = make_store(root)
    victim = start(root, 1, 1, "write")
    try:
        go(victim)
        wait_until_stopped(victim.pid)
    finally:
        victim.kill()
        victim.communicate(timeout=_PATIENCE)
    assert content(reopen(root)) == []
    assert snapshots.latest_id(store) is None
    new = write_kv(store, {"k": [1], "v": ["a"]})
    assert Committer(store).commit([message(store, new_files=new)]).snapshot_ids == [1]
    assert content(store) == [(1, "a")]
