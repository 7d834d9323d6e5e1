"""The tree's shape: level-0 order, runs, and invariants that name what breaks them."""

from __future__ import annotations

import pytest

from lsm_core.errors import CorruptFile
from lsm_core.tree import DataFile, Levels, find_violations, newest_first, oldest_first


def file(name: str, level: int, low: int, high: int, sequence: int = 0, **more: int) -> DataFile:
    return DataFile(
        name, level, high - low + 1, low, high, max_sequence=sequence, min_sequence=more.pop("first", 0), **more
    )


def test_level_zero_is_newest_first_by_sequence_then_first_sequence_then_time_then_name() -> None:
    newest = file("a", 0, 1, 2, 9)
    earlier_first = file("z", 0, 1, 2, 8, first=1)
    later_first = file("b", 0, 1, 2, 8, first=2, creation_ms=5)
    later_time = file("a", 0, 1, 2, 8, first=2, creation_ms=6)
    later_name = file("c", 0, 1, 2, 8, first=2, creation_ms=6)
    files = [later_name, later_time, earlier_first, newest, later_first]
    assert newest_first(files) == (newest, earlier_first, later_first, later_time, later_name)


def test_merge_order_is_highest_level_first_then_level_zero_from_its_oldest() -> None:
    files = [file("n", 0, 1, 9, 7), file("o", 0, 1, 9, 3), file("l1", 1, 1, 9, 2), file("l5", 5, 1, 9, 1)]
    assert [f.name for f in oldest_first(files)] == ["l5", "l1", "o", "n"]


def test_runs_are_one_per_level_zero_file_and_one_per_higher_level() -> None:
    levels = Levels([file("b", 2, 5, 9), file("a", 2, 1, 4), file("x", 0, 1, 9, 1), file("y", 0, 2, 3, 2)], 4)
    assert [(run.level, [f.name for f in run.run.files]) for run in levels.runs()] == [
        (0, ["y"]),
        (0, ["x"]),
        (2, ["a", "b"]),
    ]
    assert (levels.highest_nonempty, levels.max_level, levels.total_size) == (2, 3, 20)


def test_a_file_above_the_configured_levels_raises_their_number() -> None:
    assert Levels([file("f", 7, 1, 2)], 3).num_levels == 8
    assert Levels([], 6).highest_nonempty == -1


def test_overlapping_files_of_one_level_are_both_named() -> None:
    levels = Levels(
        [file("wide", 1, 1, 100), file("inside", 1, 2, 3), file("late", 1, 90, 120), file("fine", 1, 200, 201)], 3
    )
    with pytest.raises(CorruptFile, match="wide and inside of level 1 overlap"):
        levels.validate()
    assert [v.files for v in find_violations(levels.files)] == [("wide", "inside"), ("wide", "late")]


def test_files_that_share_one_endpoint_overlap() -> None:
    with pytest.raises(CorruptFile, match="a and b"):
        Levels([file("a", 1, 1, 5), file("b", 1, 5, 9)], 3).validate()


def test_level_zero_may_overlap_and_other_levels_do_not_meet() -> None:
    Levels([file("a", 0, 1, 9, 1), file("b", 0, 1, 9, 2), file("c", 1, 1, 9), file("d", 2, 1, 9)], 3).validate()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (DataFile("f", 0, 1, 9, 1), "largest key below"),
        (DataFile("f", 0, 1, 1, 9, min_sequence=3, max_sequence=2), "reversed sequence range 3..2"),
        (DataFile("f", -1, 1, 1, 9), "level -1"),
        (DataFile("f", 0, 1, 1, 9, row_count=2, delete_row_count=3), "counts 2 rows, 3"),
    ],
)
def test_impossible_files_are_named(broken: DataFile, message: str) -> None:
    with pytest.raises(CorruptFile, match=message):
        Levels([broken], 3).validate()


def test_a_file_listed_twice_is_named() -> None:
    with pytest.raises(CorruptFile, match="f is listed twice"):
        Levels([file("f", 0, 1, 2), file("f", 0, 1, 2)], 3).validate()
