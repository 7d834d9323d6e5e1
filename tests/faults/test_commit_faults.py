"""Every single I/O step of a commit fails, once not applied and once applied but reported failed: three honest outcomes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lsm_core.commit import CommitHooks, CommitMessage, Committer, Phase, abort, discard_on_failure
from lsm_core.errors import CommitUnknown, StorageFull
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FaultyFileIO, LocalFileIO
from lsm_core.storage.faults import Mode
from tests.commit.tables import content, live_files, make_store, message, reopen, stray_files, write_kv
from tests.faults.outcomes import Copies, outcome_of

QUICK = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms", "commit.max-retries": "3"}
Rows = list[tuple[Any, ...]]


@dataclass
class Case:
    """One table, and the commit that is to fail: built anew for every failure."""

    root: Path
    store: TableStore
    messages: list[CommitMessage]
    run: Callable[[Committer, list[CommitMessage]], Any]
    before: Rows
    after: Rows


def plain(root: Path) -> TableStore:
    store = make_store(root, options={**QUICK, "manifest.merge-min-count": "2"})
    for i, value in enumerate("ab"):
        new = write_kv(store, {"k": [1, 2 + i], "v": [value] * 2}, first_sequence=2 * i)
        Committer(store, "w").commit([message(store, new_files=new)])
    return store


def append_case(root: Path) -> Case:
    store = plain(root)
    new = message(store, new_files=write_kv(store, {"k": [9], "v": ["x"]}, first_sequence=9))
    before = content(store)
    return Case(root, store, [new], lambda c, m: c.commit(m), before, sorted([*before, (9, "x")]))


def first_case(root: Path) -> Case:
    store = make_store(root, options=QUICK)
    new = message(store, new_files=write_kv(store, {"k": [9], "v": ["x"]}, first_sequence=9))
    return Case(root, store, [new], lambda c, m: c.commit(m), [], [(9, "x")])


def compact_case(root: Path) -> Case:
    store = plain(root)
    before = content(store)
    old = [file for _, _, file in live_files(store)]
    merged = write_kv(store, {"k": [1, 2, 3], "v": ["b", "a", "b"]}, level=5, source=1)
    plan = message(store, compact_before=old, compact_after=merged)
    return Case(root, store, [plan], lambda c, m: c.commit(m), before, before)


def overwrite_case(root: Path) -> Case:
    store = plain(root)
    new = message(store, new_files=write_kv(store, {"k": [9], "v": ["x"]}, first_sequence=9))
    return Case(root, store, [new], lambda c, m: c.overwrite(m), content(store), [(9, "x")])


CASES = {"append": append_case, "first": first_case, "compact": compact_case, "overwrite": overwrite_case}


def commit_with(case: Case, file_io: FaultyFileIO) -> Any:
    """Run the commit with only its own steps counted: opening the table is not part of it."""
    store = reopen(case.root)
    store.file_io = file_io
    return case.run(Committer(store, "victim"), case.messages)


def steps_of(make: Callable[[Path], Case], root: Path) -> int:
    counted = FaultyFileIO(LocalFileIO())
    commit_with(make(root), counted)
    return counted.steps


@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_failure_at_any_step_of_a_commit_has_an_honest_outcome(tmp_path: Path, name: str, mode: Mode) -> None:
    total = steps_of(CASES[name], tmp_path / "count")
    built = CASES[name](tmp_path / "built")
    latest_before = snapshots.latest_id(built.store) or 0
    files_before = stray_files(built.store)
    assert total > 15
    outcomes, copies = set(), Copies(built.root, tmp_path)
    for step in range(1, total + 1):
        root = copies.fresh()
        case = dataclasses.replace(built, root=root, store=reopen(root))
        faulty = FaultyFileIO(LocalFileIO(), step, mode)
        outcome = outcome_of(partial(commit_with, case, faulty))
        outcomes.add(outcome)
        if not copies.is_new(outcome):
            continue
        where = (name, mode, step, faulty.log[step - 1], outcome)
        store = reopen(case.root)
        latest = snapshots.latest_id(store) or 0
        committed = latest > latest_before
        assert content(store) == (case.after if committed else case.before), where
        assert outcome == "unknown" or committed == (outcome == "succeeded"), where
        if outcome == "failed":
            left = stray_files(store) - files_before
            # What the fault itself left behind (a file created, then reported as failed) is known and removed too.
            assert {f for f in left if "manifest" in f} == set(), where
        # A retry by the same user works, and never applies the change twice.
        result = case.run(Committer(store, "victim"), case.messages)
        assert result.snapshot_ids == [latest_before + 1], where
        assert content(store) == case.after, where
        assert snapshots.latest_id(store) == latest_before + 1, where
        assert {f for f in stray_files(store) if "manifest" in f} == set(), where
    assert "succeeded" in outcomes
    assert "failed" in outcomes


def test_an_unknown_outcome_keeps_every_file_and_a_retry_finds_out(tmp_path: Path) -> None:
    """The snapshot is there, but the storage fails ever after: only a later look at the table can tell."""
    case = append_case(tmp_path)
    counted = FaultyFileIO(LocalFileIO())
    commit_with(append_case(tmp_path / "count"), counted)
    publish = 1 + next(
        i for i, (step, path) in enumerate(counted.log) if step == "write_exclusive" and "snapshot-" in path
    )
    for mode in ("before", "after"):
        case = append_case(tmp_path / mode)
        with pytest.raises(CommitUnknown) as caught:
            commit_with(case, FaultyFileIO(LocalFileIO(), publish, mode, fail_after=True))
        assert caught.value.snapshot_id == 3
        store = reopen(case.root)
        applied = mode == "after"
        assert (snapshots.latest_id(store) == 3) == applied
        assert content(store) == (case.after if applied else case.before)
        assert Committer(store, "victim").commit(case.messages).snapshot_ids == [3]
        assert content(store) == case.after
        assert abort(store, case.messages) == []


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError])
def test_files_stay_when_publishing_is_interrupted_and_go_when_anything_before_is(
    tmp_path: Path, published: bool, stop: type[BaseException]
) -> None:
    case = append_case(tmp_path)

    class Interrupted(LocalFileIO):
        def write_exclusive(self, path: str, data: bytes) -> bool:
            if published:
                super().write_exclusive(path, data)
            raise KeyboardInterrupt

    store = reopen(case.root)
    store.file_io = Interrupted()
    own = [path for m in case.messages for f in m.new_files for path in store.data_paths(m.partition, m.bucket, f)]
    with pytest.raises(KeyboardInterrupt), discard_on_failure(store, case.messages):
        Committer(store, "victim").commit(case.messages)
    assert all(Path(path).exists() for path in own)
    assert Committer(reopen(case.root), "victim").commit(case.messages).snapshot_ids == [3]
    assert content(case.store) == case.after

    early = append_case(tmp_path / "early")
    own = [
        path for m in early.messages for f in m.new_files for path in early.store.data_paths(m.partition, m.bucket, f)
    ]

    def raise_it(phase: Phase, info: Mapping[str, object]) -> None:
        raise stop

    messages: list[CommitMessage] = []
    with pytest.raises(stop), discard_on_failure(early.store, messages):
        messages += early.messages  # the list may grow inside the block
        Committer(early.store, "victim", CommitHooks(raise_it)).commit(messages)
    assert not any(Path(path).exists() for path in own)
    assert content(early.store) == early.before


def test_a_reply_that_was_lost_is_not_a_lost_race(tmp_path: Path) -> None:
    case = append_case(tmp_path)

    class Deaf(LocalFileIO):
        def write_exclusive(self, path: str, data: bytes) -> bool:
            return super().write_exclusive(path, data) and False

    store = reopen(tmp_path, Deaf())
    assert Committer(store, "victim").commit(case.messages).snapshot_ids == [3]
    assert content(store) == case.after


def test_a_failure_then_a_rival_with_the_same_id_is_told_apart(tmp_path: Path) -> None:
    """Publishing raised without effect, and before we look, somebody else takes the id: ours goes to the next one."""
    case = append_case(tmp_path)

    class Beaten(LocalFileIO):
        done = False

        def write_exclusive(self, path: str, data: bytes) -> bool:
            if not self.done:
                self.done = True
                other = reopen(tmp_path)
                rival = write_kv(other, {"k": [50], "v": ["r"]}, first_sequence=50)
                Committer(other, "rival").commit([message(other, new_files=rival)])
                raise OSError("the line went dead")
            return super().write_exclusive(path, data)

    assert Committer(reopen(tmp_path, Beaten()), "victim").commit(case.messages).snapshot_ids == [4]
    store = reopen(tmp_path)
    assert content(store) == sorted([*case.after, (50, "r")], key=repr)
    assert stray_files(store) == set()


@pytest.mark.parametrize("phase", [Phase.WRITE_MANIFESTS, Phase.PUBLISH])
def test_a_full_disk_is_named_and_changes_nothing(tmp_path: Path, phase: Phase) -> None:
    case = append_case(tmp_path)

    class Full(LocalFileIO):
        full = False

        def open_output(self, path: str) -> Any:
            if self.full:
                raise StorageFull(path)
            return super().open_output(path)

        def write_exclusive(self, path: str, data: bytes) -> bool:
            if self.full:
                raise StorageFull(path)
            return super().write_exclusive(path, data)

    disk = Full()

    def fill(now: Phase, info: object) -> None:
        disk.full = disk.full or now is phase

    with pytest.raises(StorageFull, match="no space left"):
        Committer(reopen(tmp_path, disk), "victim", CommitHooks(fill)).commit(case.messages)
    store = reopen(tmp_path)
    assert content(store) == case.before
    assert {f for f in stray_files(store) if "manifest" in f} == set()
    assert Committer(store, "victim").commit(case.messages).snapshot_ids == [3]
