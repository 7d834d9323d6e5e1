"""Conditions as SQL writes them: comparisons of columns with literals, and nothing that would be evaluated."""

from __future__ import annotations

import pytest

from lsm_core.errors import InvalidFilter
from lsm_core.read.sql_text import condition_groups


def test_a_condition_is_the_groups_of_a_filter() -> None:
    text = "dt >= '2024-01-01' AND h IN (1, 2) OR `d t` IS NOT NULL and h not in (3) or dt <> 'x' AND dt IS NULL"
    assert condition_groups(text) == [
        [("dt", ">=", "2024-01-01"), ("h", "in", [1, 2])],
        [("d t", "is not null", None), ("h", "not in", [3])],
        [("dt", "<>", "x"), ("dt", "is null", None)],
    ]
    for wrong in ("dt", "dt =", "dt = h", "dt = 1 AND", "(dt = 1", "1 = dt", "dt LIKE 1", "dt BETWEEN 1", "dt = 1; x"):
        with pytest.raises(InvalidFilter, match=r"table db\.t: option 'where'|table db\.t: option 'SQL'"):
            condition_groups(wrong, "db.t")
