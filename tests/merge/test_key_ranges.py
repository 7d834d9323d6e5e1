"""Rows of ascending keys by key range, against a scan of every key."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.merge.key_ranges import rows_by_range
from lsm_core.merge.keys import IntKeys
from tests.support.samples import examples

ENDS = st.lists(st.integers(0, 40), max_size=12).map(sorted)


@settings(max_examples=examples(100), deadline=None)
@given(st.sets(st.integers(-2, 42)), ENDS)
def test_rows_by_range_are_those_of_a_scan(keys: set[int], ends: list[int]) -> None:
    """Ranges may have one key only, and may share an end with the next range."""
    ordered = sorted(keys)
    lows, highs = ends[: len(ends) // 2 * 2 : 2], ends[1::2]
    inside: dict[int, list[int]] = {}
    gaps: dict[int, list[int]] = {}
    for rows in rows_by_range(IntKeys(np.array(ordered, np.int64)), lows, highs):
        inside[rows.number] = ordered[rows.start : rows.stop]
        gaps[rows.number] = ordered[rows.gap : rows.start]
    for number, (low, high) in enumerate(zip(lows, highs, strict=True)):
        assert inside.get(number, []) == [key for key in ordered if low <= key <= high]
    bounds = [-10, *highs], [*lows, 100]
    for number, (after, before) in enumerate(zip(*bounds, strict=True)):
        assert gaps.get(number, []) == [key for key in ordered if after < key < before]
