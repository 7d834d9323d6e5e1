"""The choice of row groups to splice leaves no small row groups, also over many generations."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from lsm_core.compact.splice import SplicedGroup, choose_groups

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
    chosen = choose_groups(rows, met, gaps, LEAST)
    assert all(rows[at] >= LEAST and not met[at] for at in chosen)
    if chosen:
        assert all(segment == 0 or segment >= LEAST for segment in merged_rows(rows, gaps, chosen))


@given(groups_and_gaps())
def test_nothing_is_merged_without_need(drawn: tuple[list[int], list[bool], list[int]]) -> None:
    """At most one row group per segment of rows is merged only because there are few rows."""
    rows, met, gaps = drawn
    spliceable = [at for at in range(len(rows)) if rows[at] >= LEAST and not met[at]]
    rest = merged_rows(rows, gaps, spliceable)
    chosen = choose_groups(rows, met, gaps, LEAST)
    assert len(spliceable) - len(chosen) <= sum(0 < segment < LEAST for segment in rest)


def test_few_rows_between_large_row_groups_take_one_neighbour() -> None:
    assert choose_groups([100, 100, 100], [False] * 3, [0, 3, 0, 0], LEAST) == [0, 2]
    assert choose_groups([100, 100, 100], [False] * 3, [0, 0, 0, 3], LEAST) == [0, 1]
    assert choose_groups([100, 100, 100], [False, True, False], [0, 3, 0, 0], LEAST) == [0, 2]


def test_over_a_hundred_generations_row_groups_stay_few() -> None:
    """Inserts, updates and deletes at any place: merged rows are cut into even row groups, as the writer does."""
    random.seed(3)
    largest, least = 131, 65
    groups = [largest] * 20
    for _ in range(100):
        touched = random.sample(range(len(groups)), min(len(groups), random.randint(0, 6)))
        gaps = [random.choice([0, 0, 0, 0, 1, 30]) for _ in range(len(groups) + 1)]
        met = [at in touched for at in range(len(groups))]
        chosen = choose_groups(groups, met, gaps, least)
        after: list[int] = []
        for rows, at in zip(merged_rows(groups, gaps, chosen), [*chosen, None], strict=True):
            left = rows - random.randint(0, rows // 20)  # deletes
            number = -(-left // largest)
            after += [left // number + (i < left % number) for i in range(number)]
            after += [] if at is None else [groups[at]]
        groups = after
        assert len(groups) <= sum(groups) / (least * 0.9) + 2
    assert min(groups) > 0


def test_row_groups_travel_as_json() -> None:
    group = SplicedGroup("data-1.parquet", 3, 131_072, 1 << 20, b"\x00\x01", b"\xff")
    assert SplicedGroup.of_list(group.to_list()) == group
