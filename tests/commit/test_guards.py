"""Drops of partitions, overwrites that land on the top level, and changes that only fit what they were worked out from."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from lsm_core.commit import CommitHooks, CommitMessage, Committer, Phase
from lsm_core.errors import ColumnNotFound, CommitConflict, InvalidData, InvalidOption
from lsm_core.format.partitions import partition_bytes
from lsm_core.format.snapshot import CommitKind
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from tests.commit.tables import content, live_files, make_store, message, reopen, stray_files, write_kv
from tests.commit.test_interleavings import PHASES, At, compaction, rows, two_runs

FIELDS = {"dt": "DATE", "h": "INT", "k": "BIGINT NOT NULL", "v": "STRING"}


def by_day(tmp_path: Path) -> TableStore:
    store = make_store(tmp_path, FIELDS, primary_keys=["dt", "h", "k"], partition_keys=["dt", "h"])
    Committer(store).commit([day(store, d, h, f"{d}-{h}") for d in (1, 2) for h in (0, 1)])
    return store


def day(store: TableStore, d: int, h: int, value: str) -> CommitMessage:
    date = dt.date(2024, 1, d)
    where = partition_bytes(store.schema, {"dt": date, "h": h})
    data: dict[str, list[Any]] = {"dt": [date], "h": [h], "k": [1], "v": [value]}
    return message(store, partition=where, new_files=write_kv(store, data, partition=where))


def values(store: TableStore) -> list[str]:
    return sorted(row[-1] for row in content(store))


def test_partitions_go_by_whole_and_by_partial_specs_in_one_commit(tmp_path: Path) -> None:
    store = by_day(tmp_path)
    result = Committer(store).drop([{"dt": "2024-01-01", "h": 0}, {"dt": "2024-01-02"}])
    assert values(store) == ["1-1"]
    latest = snapshots.latest(store)
    assert latest is not None
    assert (result.snapshot_ids, latest.commit_kind, latest.delta_record_count) == ([2], CommitKind.OVERWRITE, -3)
    assert Committer(store).drop([{"h": 7}]).snapshot_ids == []
    assert Committer(store).drop(None).snapshot_ids == [3]
    assert values(store) == []
    assert Committer(store).drop(None).snapshot_ids == []


def test_specs_that_say_nothing_or_nonsense_are_refused(tmp_path: Path) -> None:
    store = by_day(tmp_path)
    nonsense: list[Any] = [[], [{}], [{"h": 0}, {}], {"h": 0}, ["h"], [None]]
    for specs in nonsense:
        with pytest.raises(InvalidOption, match="truncate"):
            Committer(store).drop(specs)
    with pytest.raises(ColumnNotFound, match="'v'"):
        Committer(store).drop([{"v": "x"}])
    with pytest.raises(InvalidData, match="'yesterday'"):
        Committer(store).drop([{"dt": "yesterday"}])
    assert snapshots.latest_id(store) == 1
    assert stray_files(store) == set()


@pytest.mark.parametrize("phase", PHASES)
def test_a_drop_takes_what_came_meanwhile_and_exact_ones_leave_other_partitions(tmp_path: Path, phase: Phase) -> None:
    store = by_day(tmp_path)
    late = day(store, 1, 0, "late")
    hook = At(phase, lambda: Committer(reopen(tmp_path), "w").commit([late]))
    where = partition_bytes(store.schema, {"dt": "2024-01-01", "h": 0})
    Committer(store, "d", CommitHooks(hook)).drop_exactly([where])
    assert values(store) == ["1-1", "2-0", "2-1"]


def test_an_overwrite_lands_on_the_top_level_unless_keys_meet_or_deletes_are_in_it(tmp_path: Path) -> None:
    store = two_runs(tmp_path)
    first, two = rows(store, [1, 2], "n", 0), rows(store, [3], "n", 2)
    both = message(store, new_files=(*first.new_files, *two.new_files))
    Committer(store).overwrite([both])
    assert [file.level for _, _, file in live_files(store)] == [5, 5]
    meeting = message(store, new_files=(*rows(store, [1, 5], "m", 0).new_files, *rows(store, [3], "m", 2).new_files))
    Committer(store).overwrite([meeting])
    assert [file.level for _, _, file in live_files(store)] == [0, 0]
    gone = write_kv(store, {"k": [1, 2], "v": ["a", None]}, kinds=[0, 3])
    Committer(store).overwrite([message(store, new_files=gone)])
    assert [file.level for _, _, file in live_files(store)] == [0]
    off = store.copy({"overwrite-upgrade": "false"})
    Committer(off).overwrite([rows(store, [8], "x", 0)])
    assert [file.level for _, _, file in live_files(store)] == [0]
    assert content(store) == [(8, "x")]


@pytest.mark.parametrize("phase", [Phase.READ_BASE, Phase.PUBLISH])
def test_a_change_does_not_fit_once_its_bucket_got_other_rows(tmp_path: Path, phase: Phase) -> None:
    store = two_runs(tmp_path)
    hook = At(phase, lambda: Committer(reopen(tmp_path), "rival").commit([rows(store, [9], "late", 4)]))
    with pytest.raises(CommitConflict, match="do it again") as caught:
        Committer(store, "me", CommitHooks(hook)).commit([rows(store, [1], "mine", 4)], made_from=2)
    assert (caught.value.by_user, caught.value.snapshot_id) == ("rival", 3)
    assert content(store) == [(1, "a"), (2, "b"), (3, "b"), (9, "late")]


@pytest.mark.parametrize("phase", PHASES)
def test_a_change_fits_after_compactions_and_commits_to_other_buckets(tmp_path: Path, phase: Phase) -> None:
    store = two_runs(tmp_path)
    plan = compaction(store)
    hook = At(phase, lambda: Committer(reopen(tmp_path), "c").commit([plan]))
    Committer(store, "me", CommitHooks(hook)).commit([rows(store, [1], "mine", 4)], made_from=2)
    assert content(store) == [(1, "mine"), (2, "b"), (3, "b")]
    other = by_day(tmp_path / "days")
    late = day(other, 2, 1, "late")
    hook = At(phase, lambda: Committer(reopen(tmp_path / "days"), "w").commit([late]))
    Committer(other, "me", CommitHooks(hook)).commit([day(other, 1, 0, "mine")], made_from=1)
    assert snapshots.latest_id(other) == 3


def test_a_change_made_from_a_snapshot_that_is_gone_does_not_fit(tmp_path: Path) -> None:
    store = two_runs(tmp_path)
    with pytest.raises(CommitConflict, match=r"snapshot 7.*has expired"):
        Committer(store).commit([rows(store, [1], "mine", 4)], made_from=7)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("rival", ["write", "compact"])
def test_a_partition_is_replaced_only_as_it_was_read(tmp_path: Path, phase: Phase, rival: str) -> None:
    store = two_runs(tmp_path)
    old = tuple(file for _, _, file in live_files(store))
    plan = compaction(store) if rival == "compact" else rows(store, [9], "late", 4)
    before = content(store)
    hook = At(phase, lambda: Committer(reopen(tmp_path), "rival").commit([plan]))
    new = message(store, deleted_files=old, new_files=write_kv(store, {"k": [1], "v": ["only"]}))
    with pytest.raises(CommitConflict, match="nothing was replaced") as caught:
        Committer(store, "me", CommitHooks(hook)).replace_partitions([new])
    assert caught.value.by_user == "rival"
    assert content(store) == (before if rival == "compact" else sorted([*before, (9, "late")]))
    old = tuple(file for _, _, file in live_files(store))
    again = message(store, deleted_files=old, new_files=new.new_files)
    Committer(store).replace_partitions([again])
    assert content(store) == [(1, "only")]
