"""Selection of similar cases and of the number of random examples: a sample in `make test`, all in `make soak`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings

SOAK_PROFILE = "soak"
"""Profile of hypothesis that draws every example."""
_PARAM = type(pytest.param())


def sample(cases: Iterable[Any], is_kept: Callable[[Any], bool]) -> list[Any]:
    """Return parameters of a test, of which those that are not kept are soak tests.

    Args:
        cases: values, tuples for a test with several parameters, or `pytest.param`s.
        is_kept: function that is true for the cases of `make test`.
    """
    values = list(cases)
    assert any(map(is_kept, values)), "no case is left in make test"
    return [case if is_kept(case) else _soak(case) for case in values]


def one_in(number: int, cases: Iterable[Any], first: int = 0) -> list[Any]:
    """Return parameters of a test, of which one in ``number`` is kept in `make test`, beginning with the one at ``first``."""
    return [case if place % number == first else _soak(case) for place, case in enumerate(cases)]


def examples(number: int) -> int:
    """Return how many examples a property draws: ``number`` in `make soak`, a third of them in `make test`."""
    return number if settings.get_current_profile_name() == SOAK_PROFILE else -(-number // 3)


def _soak(case: Any) -> Any:
    if isinstance(case, _PARAM):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.soak], id=case.id)
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.soak)


__all__ = ["SOAK_PROFILE", "examples", "one_in", "sample"]
