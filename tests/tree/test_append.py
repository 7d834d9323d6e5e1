"""Picking among append files: bins by size without buckets, windows by age within a bucket."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lsm_core.tree import DataFile, Decline, DeclineReason, pick_full_window, pick_windows


def files(*sizes: int) -> list[DataFile]:
    """Files of one bucket, each of ten rows, oldest first."""
    return [
        DataFile(f"f{i}", 0, size, b"", b"", 10, min_sequence=10 * i, max_sequence=10 * i + 9)
        for i, size in enumerate(sizes)
    ]


def names(found: list[list[DataFile]] | Decline) -> list[list[str]]:
    assert isinstance(found, list)
    return [[file.name for file in item] for item in found]


def test_a_window_fires_at_the_least_number_of_files_whatever_order_they_are_listed_in() -> None:
    assert names(pick_windows(list(reversed(files(1, 1, 1, 1))), target=100, min_file_num=3)) == [["f0", "f1", "f2"]]
    assert names(pick_windows(files(*[1] * 7), target=100, min_file_num=3)) == [["f0", "f1", "f2"], ["f3", "f4", "f5"]]
    waiting = pick_windows(files(1, 1), target=100, min_file_num=3)
    assert isinstance(waiting, Decline)
    assert waiting.reason is DeclineReason.TOO_FEW_SMALL_FILES
    assert waiting.facts["min_files"] == 3
    assert isinstance(pick_windows([], 100, 3), Decline)


def test_a_window_that_is_large_enough_before_loses_its_oldest_file() -> None:
    assert names(pick_windows(files(200, 1, 1, 1), target=100, min_file_num=3)) == [["f1", "f2", "f3"]]
    assert names(pick_windows(files(120, 80, 1, 1), target=100, min_file_num=3)) == [["f1", "f2", "f3"]]
    assert names(pick_windows(files(120, 79, 1, 1), target=100, min_file_num=3)) == [["f0", "f1", "f2"]]
    assert isinstance(pick_windows(files(120, 120, 120, 120), target=100, min_file_num=3), Decline)


def test_one_file_never_fires_a_window() -> None:
    assert isinstance(pick_windows(files(1), target=100, min_file_num=1), Decline)


def test_a_full_window_starts_at_the_first_small_file_and_needs_three_with_more_small_ones() -> None:
    assert names(pick_full_window(files(100, 1, 1, 1), big_from=100)) == [["f1", "f2", "f3"]]
    assert names(pick_full_window(files(1, 100, 1), big_from=100)) == [["f0", "f1", "f2"]]
    assert isinstance(pick_full_window(files(1, 100, 100), big_from=100), Decline)
    assert isinstance(pick_full_window(files(1, 1), big_from=100), Decline)
    assert names(pick_full_window(files(100, 1), big_from=100, force=True)) == [["f0", "f1"]]
    assert isinstance(pick_full_window([], 100, force=True), Decline)


@given(
    st.lists(st.integers(1, 60), max_size=40),
    st.integers(1, 6),
    st.integers(1, 120),
)
def test_windows_are_neighbours_that_share_no_file(sizes: list[int], least: int, target: int) -> None:
    listed = files(*sizes)
    found = pick_windows(listed, target, least)
    if isinstance(found, Decline):
        return
    places = [[listed.index(file) for file in window] for window in found]
    flat = [place for window in places for place in window]
    assert flat == sorted(set(flat))
    for window in places:
        assert window == list(range(window[0], window[-1] + 1))
        assert len(window) == max(2, least)
        assert sum(sizes[i] for i in window[:-1]) < 2 * target or len(window) == 2
