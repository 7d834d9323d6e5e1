"""Over thousands of random layouts: cleaning takes no file that anything needs, and leaves no stray that is old enough."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.maintenance.layouts import Layout, check

_QUICK, _LONG = 250, 5_000


def test_no_needed_file_goes_and_no_old_stray_stays() -> None:
    outcomes = Counter(check(Layout(seed)) for seed in range(_QUICK))
    assert outcomes["planned"] > _QUICK // 2
    assert {"snapshots-moved", "listing-incomplete"} <= outcomes.keys()


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_no_needed_file_goes_and_no_old_stray_stays_in_thousands_of_layouts(part: int) -> None:
    share = _LONG // 10
    for seed in range(10_000 + part * share, 10_000 + (part + 1) * share):
        check(Layout(seed))
