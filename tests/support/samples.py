"""Which of many similar cases `make test` runs: a sample; `make soak` runs the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def sample(cases: Iterable[Any], is_kept: Callable[[Any], bool]) -> list[Any]:
    """Return parameters of a test, of which those that are not kept are soak tests.

    Args:
        cases: values, or tuples for a test with several parameters.
        is_kept: function that is true for the cases of `make test`.
    """
    values = list(cases)
    assert any(map(is_kept, values)), "no case is left in make test"
    return [case if is_kept(case) else _soak(case) for case in values]


def one_in(number: int, cases: Iterable[Any], first: int = 0) -> list[Any]:
    """Return parameters of a test, of which one in ``number`` is kept in `make test`, beginning with the one at ``first``."""
    return [case if place % number == first else _soak(case) for place, case in enumerate(cases)]


def _soak(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.soak)


__all__ = ["one_in", "sample"]
