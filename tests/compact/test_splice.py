"""The choice of row groups to splice leaves no small row groups, also over many generations."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.compact.splice import SplicedGroup, choose_groups, cut_evenly, join_parts, rows_left
from lsm_core.files.row_group_parts import PartSizes

LEAST = 50
ROWS = st.integers(0, 200)


@st.composite
def groups_and_gaps(draw: st.DrawFn) -> tuple[list[int], list[bool], list[int]]:
    groups = draw(st.lists(st.tuples(st.integers(1, 131), st.booleans()), max_size=12))
    gaps = draw(st.lists(st.one_of(st.just(0), ROWS), min_size=len(groups) + 1, max_size=len(groups) + 1))
    return [rows for rows, _ in groups], [met for _, met in groups], gaps


def merged_rows(rows: list[int], gaps: list[int], chosen: list[int]) -> list[int]:
    """Rows merged before each chosen row group, and after the last one."""
    segments, merged, picked = [], gaps[0], set(chosen)
    for at, count in enumerate(rows):
        if at in picked:
            segments.append(merged)
            merged = gaps[at + 1]
        else:
            merged += count + gaps[at + 1]
    return [*segments, merged]


@given(groups_and_gaps())
def test_no_row_group_that_meets_a_key_and_no_small_one(drawn: tuple[list[int], list[bool], list[int]]) -> None:
    rows, met, gaps = drawn
    chosen = choose_groups(rows, met, gaps, LEAST, LEAST)
    assert all(rows[at] >= LEAST and not met[at] for at in chosen)
    if chosen:
        assert all(segment == 0 or segment >= LEAST for segment in merged_rows(rows, gaps, chosen))


@given(groups_and_gaps())
def test_nothing_is_merged_without_need(drawn: tuple[list[int], list[bool], list[int]]) -> None:
    """At most one row group per segment of rows is merged only because there are few rows."""
    rows, met, gaps = drawn
    spliceable = [at for at in range(len(rows)) if rows[at] >= LEAST and not met[at]]
    rest = merged_rows(rows, gaps, spliceable)
    chosen = choose_groups(rows, met, gaps, LEAST, LEAST)
    assert len(spliceable) - len(chosen) <= sum(0 < segment < LEAST for segment in rest)


def test_few_rows_between_large_row_groups_take_one_neighbour() -> None:
    assert choose_groups([100, 100, 100], [False] * 3, [0, 3, 0, 0], LEAST, LEAST) == [0, 2]
    assert choose_groups([100, 100, 100], [False] * 3, [0, 0, 0, 3], LEAST, LEAST) == [0, 1]
    assert choose_groups([100, 100, 100], [False, True, False], [0, 3, 0, 0], LEAST, LEAST) == [0, 2]


def test_over_a_hundred_generations_row_groups_stay_few() -> None:
    """Inserts, updates and deletes at any place: merged rows are cut into even row groups, as the writer does."""
    random.seed(3)
    largest, least = 131, 65
    groups = [largest] * 20
    for _ in range(100):
        touched = random.sample(range(len(groups)), min(len(groups), random.randint(0, 6)))
        gaps = [random.choice([0, 0, 0, 0, 1, 30]) for _ in range(len(groups) + 1)]
        met = [at in touched for at in range(len(groups))]
        chosen = choose_groups(groups, met, gaps, least, least)
        after: list[int] = []
        for rows, at in zip(merged_rows(groups, gaps, chosen), [*chosen, None], strict=True):
            left = rows - random.randint(0, rows // 20)  # deletes
            number = -(-left // largest)
            after += [left // number + (i < left % number) for i in range(number)]
            after += [] if at is None else [groups[at]]
        groups = after
        assert len(groups) <= sum(groups) / (least * 0.9) + 2
    assert min(groups) > 0


@pytest.mark.parametrize("first_row", [None, 0, 20_000])
def test_row_groups_travel_as_json(first_row: int | None) -> None:
    group = SplicedGroup("data-1.parquet", 3, 131_072, 1 << 20, b"\x00\x01", b"\xff", first_row)
    assert SplicedGroup.of_list(group.to_list()) == group
    with pytest.raises(ValueError, match="row group"):
        SplicedGroup.of_list([*group.to_list()[:-1], -1])


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 60))
def test_parts_of_a_row_group_have_the_least_rows(pages: list[int], least: int) -> None:
    borders = [0, *accumulate(pages)]
    cuts = cut_evenly(borders, least)
    assert (cuts[0], cuts[-1]) == (0, borders[-1])
    assert set(cuts) <= set(borders)
    sizes = [after - before for before, after in pairwise(cuts)]
    assert len(sizes) == 1 or min(sizes) >= least
    assert max(sizes) < 2 * least + 2 * max(pages) or len(sizes) == 1


PAGES = PartSizes((0, 10, 20, 30), (0, 100, 200, 300), 7)


@given(st.lists(st.sampled_from([(0, 10), (10, 20), (20, 30)]), unique=True, min_size=1).map(sorted), st.data())
def test_parts_that_follow_each_other_are_joined(parts: list[tuple[int, int]], data: st.DataObject) -> None:
    """The joined parts and the rows that are left are the row group, each row once."""
    merged = [data.draw(st.booleans()) for _ in parts]
    groups = [
        SplicedGroup("f", 0, stop - first, PAGES.between(first, stop), b"%d" % first, b"%d" % (stop - 1), first)
        for first, stop in parts
    ]
    longest = join_parts(groups, merged, {("f", 0): PAGES})
    ranges = [((group.first_row or 0), (group.first_row or 0) + group.rows) for group in longest]
    assert [row for first, stop in ranges for row in range(first, stop)] == [r for p in parts for r in range(*p)]
    assert all(group.size == PAGES.between(*rows) for group, rows in zip(longest, ranges, strict=True))
    assert [group.low for group in longest] == [b"%d" % first for first, _ in ranges]
    assert [group.high for group in longest] == [b"%d" % (stop - 1) for _, stop in ranges]
    apart = {
        stop for (_, stop), (first, _), rows in zip(parts, parts[1:], merged[1:], strict=False) if rows or first > stop
    }
    assert {stop for _, stop in ranges[:-1]} == apart
    assert (longest[0].first_row is None) == (ranges == [(0, 30)])
    left = rows_left(longest, "f", [30])
    if longest[0].first_row is None:
        assert left == {}
    else:
        between = {row for first, stop in left[0] for row in range(first, stop)}
        assert between == set(range(30)) - {row for p in parts for row in range(*p)}
