"""Two parties in every order of phases: what must conflict does, by name; what need not conflict goes through."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lsm_core.commit import CommitHooks, CommitMessage, Committer, Phase, abort
from lsm_core.errors import CommitConflict, ConflictKind, CorruptFile, TableNotFound
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.snapshot import CommitKind
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import LocalFileIO
from tests.commit.tables import content, live_files, make_store, message, reopen, stray_files, write_kv
from tests.support.references import metadata_references

PHASES = [Phase.READ_BASE, Phase.WRITE_MANIFESTS, Phase.PUBLISH]


class At:
    """Runs an action once, when a commit enters a phase."""

    def __init__(self, phase: Phase, action: Callable[[], Any]) -> None:
        self.phase, self.action, self.seen = phase, action, list[Phase]()

    def __call__(self, phase: Phase, info: Mapping[str, object]) -> None:
        self.seen.append(phase)
        if phase is self.phase and self.seen.count(phase) == 1:
            self.action()


def rows(store: TableStore, keys: list[int], value: str, first: int) -> CommitMessage:
    return message(store, new_files=write_kv(store, {"k": keys, "v": [value] * len(keys)}, first_sequence=first))


def two_runs(tmp_path: Path) -> TableStore:
    store = make_store(tmp_path)
    Committer(store, "w").commit([rows(store, [1, 2], "a", 0)])
    Committer(store, "w").commit([rows(store, [2, 3], "b", 2)])
    return store


def compaction(store: TableStore, level: int = 5) -> CommitMessage:
    """Merge the bucket's two level-0 files as a compactor would."""
    before = [file for _, _, file in live_files(store)]
    after = write_kv(store, {"k": [1, 2, 3], "v": ["a", "b", "b"]}, first_sequence=0, level=level, source=1)
    return message(store, compact_before=before, compact_after=after)


@pytest.mark.parametrize("phase", PHASES)
def test_a_writer_may_commit_at_any_moment_of_a_compaction(tmp_path: Path, phase: Phase) -> None:
    store = two_runs(tmp_path)
    plan = compaction(store)
    new = rows(store, [3, 4], "c", 4)
    hook = At(phase, lambda: Committer(reopen(tmp_path), "w").commit([new]))
    result = Committer(store, "c", CommitHooks(hook)).commit([plan])
    assert result.snapshot_ids == [4]
    assert content(store) == [(1, "a"), (2, "b"), (3, "c"), (4, "c")]
    assert sorted(f.level for _, _, f in live_files(store)) == [0, 5]
    assert stray_files(store) == set()
    assert snapshots.read(store, 4).total_record_count == 5


@pytest.mark.parametrize("phase", PHASES)
def test_a_compaction_may_commit_at_any_moment_of_a_write(tmp_path: Path, phase: Phase) -> None:
    store = two_runs(tmp_path)
    plan = compaction(store)
    new = rows(store, [3, 4], "c", 4)
    hook = At(phase, lambda: Committer(reopen(tmp_path), "c").commit([plan]))
    assert Committer(store, "w", CommitHooks(hook)).commit([new]).snapshot_ids == [4]
    assert content(store) == [(1, "a"), (2, "b"), (3, "c"), (4, "c")]
    assert stray_files(store) == set()


@pytest.mark.parametrize("phase", PHASES)
def test_of_two_compactions_of_one_bucket_one_loses_and_hears_why(tmp_path: Path, phase: Phase) -> None:
    store = two_runs(tmp_path)
    mine, theirs = compaction(store), compaction(store)
    hook = At(phase, lambda: Committer(reopen(tmp_path), "rival").commit([theirs]))
    with pytest.raises(CommitConflict) as caught:
        Committer(store, "me", CommitHooks(hook)).commit([mine])
    error = caught.value
    assert error.kind is ConflictKind.INPUTS_GONE
    assert "db.t" in error.reason
    assert set(error.files) == {file.file_name for file in mine.compact_before}
    assert (error.by_user, error.snapshot_id) == ("rival", 3)
    assert snapshots.latest_id(store) == 3
    assert len(abort(store, [mine])) == 1
    assert content(store) == [(1, "a"), (2, "b"), (3, "b")]
    assert stray_files(store) == set()


@pytest.mark.parametrize("phase", PHASES)
def test_an_overwrite_takes_in_what_was_appended_meanwhile(tmp_path: Path, phase: Phase) -> None:
    store = two_runs(tmp_path)
    late = rows(store, [9], "late", 4)
    hook = At(phase, lambda: Committer(reopen(tmp_path), "w").commit([late]))
    result = Committer(store, "o", CommitHooks(hook)).overwrite([rows(store, [7], "new", 9)])
    assert result.snapshot_ids == [4]
    assert content(store) == [(7, "new")]
    latest = snapshots.latest(store)
    assert latest is not None
    assert (latest.commit_kind, latest.total_record_count) == (CommitKind.OVERWRITE, 1)
    assert stray_files(store) == set()


@pytest.mark.parametrize("phase", PHASES)
def test_an_append_survives_an_overwrite_that_came_first(tmp_path: Path, phase: Phase) -> None:
    store = two_runs(tmp_path)
    replacement = rows(store, [7], "new", 9)
    hook = At(phase, lambda: Committer(reopen(tmp_path), "o").overwrite([replacement]))
    Committer(store, "w", CommitHooks(hook)).commit([rows(store, [9], "late", 4)])
    assert content(store) == [(7, "new"), (9, "late")]


@pytest.mark.parametrize("phase", PHASES)
def test_a_compaction_never_brings_back_what_an_overwrite_removed(tmp_path: Path, phase: Phase) -> None:
    store = two_runs(tmp_path)
    plan, replacement = compaction(store), rows(store, [7], "new", 9)
    hook = At(phase, lambda: Committer(reopen(tmp_path), "o").overwrite([replacement]))
    with pytest.raises(CommitConflict, match="deleted or moved") as caught:
        Committer(store, "c", CommitHooks(hook)).commit([plan])
    assert caught.value.by_user == "o"
    assert content(store) == [(7, "new")]


def test_an_upgrade_of_a_file_that_was_compacted_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    store = two_runs(tmp_path)
    (first, _) = [file for _, _, file in live_files(store)]
    plan = message(store, compact_before=[first], compact_after=[first.upgrade(4)])
    Committer(store, "c").commit([compaction(store)])
    with pytest.raises(CommitConflict, match="deleted or moved") as caught:
        Committer(store, "late").commit([plan])
    assert caught.value.files == (first.file_name,)
    assert abort(store, [plan]) == []


def test_overlapping_keys_on_one_level_are_a_conflict(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    low = write_kv(store, {"k": [1, 5], "v": ["a", "a"]}, level=5)
    Committer(store, "c").commit([message(store, compact_after=low)])
    fits = write_kv(store, {"k": [6, 9], "v": ["b", "b"]}, level=5)
    other_level = write_kv(store, {"k": [2, 3], "v": ["b", "b"]}, level=4)
    Committer(store, "c").commit([message(store, compact_after=[*fits, *other_level])])
    clash = write_kv(store, {"k": [-1, 1], "v": ["b", "b"]}, level=5)
    with pytest.raises(CommitConflict, match="overlap on level 5") as caught:
        Committer(store, "d").commit([message(store, compact_after=clash)])
    assert set(caught.value.files) == {clash[0].file_name, low[0].file_name}
    assert caught.value.by_user == "c"
    # Replacing the file in the way makes room.
    Committer(store, "d").commit([message(store, compact_before=low, compact_after=clash)])
    assert [file.file_name for _, _, file in live_files(store) if file.level == 5] == [
        fits[0].file_name,
        clash[0].file_name,
    ]
    assert stray_files(store) == set()


def test_files_of_one_commit_may_not_overlap_each_other(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    first = write_kv(store, {"k": [1, 5], "v": ["a", "a"]}, level=3)
    two = write_kv(store, {"k": [5, 6], "v": ["a", "a"]}, level=3)
    with pytest.raises(CommitConflict, match="overlap on level 3"):
        Committer(store).commit([message(store, compact_after=[*first, *two])])
    assert snapshots.latest_id(store) is None
    assert not list(tmp_path.glob("manifest/*"))


def test_one_file_named_twice_is_a_conflict(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    new = write_kv(store, {"k": [1], "v": ["a"]})
    with pytest.raises(CommitConflict, match="twice"):
        Committer(store).commit([message(store, new_files=new), message(store, new_files=new)])
    both_ways = message(store, compact_before=new, compact_after=new)
    with pytest.raises(CommitConflict, match="twice"):
        Committer(store).commit([both_ways])


def test_another_bucket_count_in_one_partition_is_a_conflict(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    Committer(store).commit([rows(store, [1], "a", 0)])
    new: tuple[DataFileMeta, ...] = write_kv(store, {"k": [2], "v": ["b"]})
    with pytest.raises(CommitConflict, match="1 buckets would get files of 4 buckets"):
        Committer(store).commit([CommitMessage(bytes(12), 0, 4, new_files=new)])
    Committer(store).overwrite([CommitMessage(bytes(12), 0, 4, new_files=new)])
    assert content(store) == [(2, "b")]


def test_a_hook_that_raises_stops_the_commit_and_leaves_nothing(tmp_path: Path) -> None:
    store = two_runs(tmp_path)
    before = content(store)
    for phase in PHASES:
        new = rows(store, [9], "x", 9)

        def crash() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Committer(store, "w", CommitHooks(At(phase, crash))).commit([new])
        abort(store, [new])
        assert content(store) == before
        assert stray_files(store) == set()


def test_retries_that_are_used_up_end_in_a_definite_conflict(tmp_path: Path) -> None:
    store = two_runs(tmp_path).copy({"commit.max-retries": "2", "commit.min-retry-wait": "1 ms"})
    count = [0]

    def rival(phase: Phase, info: Mapping[str, object]) -> None:
        if phase is Phase.PUBLISH:
            count[0] += 1
            other = reopen(tmp_path)
            Committer(other).commit([rows(other, [100 + count[0]], "r", 100)])

    with pytest.raises(CommitConflict, match="other commits took the next snapshot id 3 times"):
        Committer(store, "w", CommitHooks(rival)).commit([rows(store, [9], "x", 9)])
    assert count == [3]
    assert {name for name in stray_files(store) if "manifest" in name} == set()


@pytest.mark.parametrize("left", [1, 2, 3])
def test_a_commit_that_slept_until_its_turn_had_expired_is_not_lost(tmp_path: Path, left: int) -> None:
    """Its snapshot id is free again, but only because its true owner is gone: publishing there would be invisible."""
    store = two_runs(tmp_path)

    def rivals_commit_and_expire() -> None:
        other = reopen(tmp_path)
        for i in range(4):  # snapshots 3 .. 6
            Committer(other, "w").commit([rows(other, [10 + i], "r", 10 + i)])
        for snapshot_id in range(1, 7 - left):
            (tmp_path / "snapshot" / f"snapshot-{snapshot_id}").unlink()
        (tmp_path / "snapshot" / "EARLIEST").write_text(str(7 - left))

    hook = At(Phase.PUBLISH, rivals_commit_and_expire)
    result = Committer(store, "sleeper", CommitHooks(hook)).commit([rows(store, [99], "mine", 99)])
    assert result.snapshot_ids == [7]
    assert (99, "mine") in content(store)
    assert len(content(store)) == 8
    assert snapshots.list_ids(store) == list(range(7 - left, 8))


def test_a_commit_whose_successor_expired_its_base_is_not_taken_back(tmp_path: Path) -> None:
    """The mirror image: published in turn, then a fast rival commits and expires everything before."""
    store = two_runs(tmp_path)

    class Racing(LocalFileIO):
        def write_exclusive(self, path: str, data: bytes) -> bool:
            done = super().write_exclusive(path, data)
            if path.endswith("snapshot-3"):
                other = reopen(tmp_path)
                Committer(other, "w").commit([rows(other, [10], "r", 10)])
                for snapshot_id in (1, 2):
                    (tmp_path / "snapshot" / f"snapshot-{snapshot_id}").unlink()
            return done

    result = Committer(reopen(tmp_path, Racing()), "me").commit([rows(store, [99], "mine", 99)])
    assert result.snapshot_ids == [3]
    assert snapshots.list_ids(store) == [3, 4]
    assert {(99, "mine"), (10, "r")} <= set(content(store))


def test_a_base_that_expires_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    store = two_runs(tmp_path)

    def rivals_commit_and_expire() -> None:
        other = reopen(tmp_path).copy({"manifest.merge-min-count": "1"})
        for i in range(2):
            Committer(other, "w").commit([rows(other, [10 + i], "r", 10 + i)])
        gone = metadata_references(other, snapshots.read(other, 2))
        kept = set().union(*(metadata_references(other, snapshots.read(other, i)) for i in (3, 4)))
        assert gone - kept
        for name in gone - kept:
            (tmp_path / "manifest" / name).unlink()
        for snapshot_id in (1, 2):
            (tmp_path / "snapshot" / f"snapshot-{snapshot_id}").unlink()

    hook = At(Phase.READ_BASE, rivals_commit_and_expire)
    assert Committer(store, "me", CommitHooks(hook)).commit([rows(store, [99], "mine", 99)]).snapshot_ids == [5]
    assert {(99, "mine"), (10, "r"), (11, "r")} <= set(content(store))


def test_a_manifest_that_is_really_missing_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    store = two_runs(tmp_path)
    new = rows(store, [9], "x", 9)
    latest = snapshots.latest(store)
    assert latest is not None
    victim = tmp_path / "manifest" / manifests.data_manifests(store, latest)[0].file_name
    victim.unlink()
    before = {p.name for p in tmp_path.rglob("*")}
    with pytest.raises(CorruptFile, match=victim.name):
        Committer(store).commit([new])
    assert {p.name for p in tmp_path.rglob("*")} == before
    # What is live cannot be told now, so abort keeps its hands off.
    assert abort(store, [new]) == []


def test_a_dropped_table_is_not_brought_back_by_a_late_commit(tmp_path: Path) -> None:
    store = two_runs(tmp_path)
    new = rows(store, [9], "x", 9)

    def drop() -> None:
        shutil.rmtree(tmp_path / "schema")

    with pytest.raises(TableNotFound, match="dropped"):
        Committer(store, "w", CommitHooks(At(Phase.WRITE_MANIFESTS, drop))).commit([new])
    assert snapshots.latest_id(store) == 2
