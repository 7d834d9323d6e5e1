"""The property check has teeth: each classic mistake of a windowed merge makes it fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from lsm_core.errors import DredgeError
from lsm_core.merge import rows, window
from tests.merge.histories import check, random_history
from tests.support.samples import one_in

SEEDS = range(120)


def _zeros(rows: Any, chosen: Any) -> Any:
    return np.zeros(len(chosen), np.int64)


def _largest(last_keys: Sequence[Any]) -> Any:
    return max(last_keys, default=None)


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "the cut at the largest instead of the smallest last row": (window, "cut_key", _largest),
    "the window's last key closed early": (window, "stays_open", lambda key: False),
    "the sequence number dropped from the sort key": (rows, "sequence_part", _zeros),
    "the kind dropped from the sort key": (rows, "kind_part", _zeros),
    "the level dropped from the sort key": (rows, "level_part", _zeros),
    "the age dropped from the sort key": (rows, "age_part", _zeros),
    "an unfinished input treated as ended": (window, "is_ended", lambda buffer: buffer.exhausted or buffer.index == 0),
    "every unfinished input treated as ended": (window, "is_ended", lambda buffer: True),
}


def _first_failure(size: int) -> int | None:
    """The first history (its seed) that does not merge like the judge; `check(random_history(seed), size)` repeats it."""
    for seed in SEEDS:
        try:
            check(random_history(seed), size)
        except (AssertionError, DredgeError):
            return seed
    return None


@pytest.mark.parametrize(("size", "mutant"), one_in(6, product((1, 2, 3, 7), MUTANTS)))
def test_the_property_check_sees(mutant: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, broken = MUTANTS[mutant]
    monkeypatch.setattr(module, name, broken)
    assert _first_failure(size) is not None, f"no history noticed {mutant}"


@pytest.mark.parametrize("size", [2, 3, 7])
def test_it_sees_later_inputs_that_are_trusted_to_be_newer(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "sequences_climb", lambda pieces: True)
    assert _first_failure(size) is not None


@pytest.mark.parametrize("size", [1, 7])
def test_the_same_histories_pass_without_a_mutation(size: int) -> None:
    assert _first_failure(size) is None
