"""Picking among files of data-evolution tables: whole groups of row ids, and only neighbours."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from lsm_core.tree import DataFile, Decline, DeclineReason, group_by_row_id, pick_row_ranges


def file(name: str, first: int, rows: int, size: int = 10, sequence: int = 1) -> DataFile:
    return DataFile(name, 0, size, b"", b"", rows, max_sequence=sequence, first_row_id=first)


def names(found: list[list[DataFile]] | Decline) -> list[list[str]]:
    assert isinstance(found, list)
    return [[file.name for file in item] for item in found]


def test_neighbours_are_joined_with_all_their_columns() -> None:
    files = [file("b", 3, 2), file("a2", 0, 3, sequence=5), file("a", 0, 3), file("c", 5, 1)]
    assert names(pick_row_ranges(files, 1000, 4, 1)) == [["a", "a2", "b", "c"]]
    assert isinstance(pick_row_ranges(files, 1000, 5, 1), Decline)
    assert names(pick_row_ranges(files, 1000, 5, 1, full=True)) == [["a", "a2", "b", "c"]]


def test_a_gap_of_row_ids_ends_a_bin() -> None:
    files = [file("a", 0, 3), file("b", 3, 2), file("c", 6, 1), file("d", 7, 1), file("e", 8, 1)]
    assert names(pick_row_ranges(files, 1000, 2, 1)) == [["a", "b"], ["c", "d", "e"]]
    declined = pick_row_ranges(files, 1000, 4, 1)
    assert isinstance(declined, Decline)
    assert declined.reason is DeclineReason.TOO_FEW_SMALL_FILES
    assert declined.facts == {"files": 5, "small_files": 3, "min_files": 4, "target_bytes": 1000}


def test_a_bin_ends_above_the_target_and_a_large_group_is_a_bin_alone() -> None:
    small = [file(f"f{i}", i, 1, size=40) for i in range(6)]
    assert names(pick_row_ranges(small, 100, 2, 1)) == [["f0", "f1", "f2"], ["f3", "f4", "f5"]]
    large = [file("a", 0, 1), file("l", 1, 1, 90), file("l2", 1, 1, 20, sequence=2), file("z", 2, 1), file("y", 3, 1)]
    assert names(pick_row_ranges(large, 100, 2, 1)) == [["l", "l2"], ["z", "y"]]
    assert isinstance(pick_row_ranges([file("a", 0, 1, 500)], 100, 1, 1), Decline)
    assert isinstance(pick_row_ranges(small[:2], 100, 2, 200), Decline)  # the cost of opening a file fills the bin


def test_groups_with_different_ranges_are_never_joined() -> None:
    files = [file("a", 0, 3), file("half", 1, 2), file("b", 3, 1), file("c", 4, 1)]
    assert names(pick_row_ranges(files, 1000, 2, 1)) == [["b", "c"]]
    assert isinstance(pick_row_ranges([], 1000, 2, 1), Decline)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3), st.booleans(), st.integers(1, 60)), max_size=30))
def test_bins_are_whole_groups_without_gaps(drawn: list[tuple[int, int, bool, int]]) -> None:
    files, at = [], 0
    for number, (rows, columns, gap, size) in enumerate(drawn):
        at += gap
        files += [file(f"f{number}-{c}", at, rows, size, sequence=c) for c in range(columns)]
        at += rows
    bins = pick_row_ranges(list(reversed(files)), 100, 2, 5, full=True)
    for chosen in bins if isinstance(bins, list) else []:
        groups = group_by_row_id(chosen)
        assert sum(map(len, groups)) == len(chosen) >= 2
        for left, right in itertools.pairwise(groups):
            assert left[0].first_row_id + left[0].row_count == right[0].first_row_id
        whole = {name.split("-")[0] for name in names([chosen])[0]}
        assert len(chosen) == sum(f.name.split("-")[0] in whole for f in files)
