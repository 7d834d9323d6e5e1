"""Random tables with random histories: however their rows are cut, kernels answer as the row-at-a-time reference does."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lsm_core.errors import ArithmeticOverflow, DredgeError, InvalidData, RetractNotSupported
from lsm_core.maintenance.reference import Row
from tests.merge.random_histories import (
    BATCHES,
    History,
    buffered,
    differences,
    expected,
    merged,
    random_grouping,
    random_history,
    told,
)

TABLES = 45
_UNCOMPUTABLE = (ArithmeticOverflow, InvalidData, RetractNotSupported)
"""Of two columns that cannot be computed either may be named first."""
SOAK_HISTORIES = 100_000


def first_seed() -> int:
    return int(os.environ.get("DREDGE_HISTORY_SEED", "1"))


def check(seed: int) -> int:
    """One table: merged in one go, in small batches, and in a grouping of neighbours. Returns how many histories that was."""
    history = random_history(seed)
    rng = random.Random(-seed)
    grouping = random_grouping(rng, len(history.runs))
    at_once, grouped = expected(history), expected(history, grouping)
    fails = {key: e for key, e in at_once.items() if isinstance(e, type)}
    sound = {key for key in at_once if key not in fails and not isinstance(grouped[key], type)}
    kept = history.only(sound)
    rows = rng.choice(BATCHES)
    ways: list[tuple[str, dict[Any, Any], dict[str, Any]]] = [
        ("in one go", at_once, {}),
        (f"in batches of {rows} rows", at_once, {"rows": rows}),
        (f"grouped {grouping}", grouped, {"grouping": grouping}),
    ]
    for how, outcomes, way in ways:
        wanted: dict[Any, Row | None] = {key: outcomes[key] for key in sound}
        found = _run(kept, how, seed, way)
        for key, text in differences(kept, wanted, found).items():
            pytest.fail(told(kept, key, text, f"{how}\n{command(seed)}"), pytrace=False)
    _check_buffer(kept, rng, seed)
    # what came before a delete that empties the row can be wrong without harm: kernels do not look at it
    if not any("remove-record" in option for option in history.table.options):
        for key, error in list(fails.items())[:2]:
            _must_fail(history.only({key}), key, error, seed)
    return len(at_once)


def _check_buffer(kept: History, rng: random.Random, seed: int) -> None:
    """The same rows as a write buffer gets them, in any order of arrival."""
    rows = [row._replace(level=0, age=0) for run in kept.runs for row in run]
    rng.shuffle(rows)
    arrived = replace(kept, runs=(tuple(rows),), drop_delete=False)
    wanted = {key: row for key, row in expected(arrived).items() if not isinstance(row, type)}
    arrived = arrived.only(set(wanted))
    found = buffered(arrived, arrived.runs[0])
    for key, text in differences(arrived, wanted, found).items():
        pytest.fail(told(arrived, key, text, f"in a write buffer\n{command(seed)}"), pytrace=False)


def _run(kept: History, how: str, seed: int, way: dict[str, Any]) -> Any:
    try:
        return merged(kept, **way)
    except Exception as error:
        for key in sorted(kept.keys):
            try:
                merged(kept.only({key}), **way)
            except Exception as alone:
                raise AssertionError(told(kept, key, repr(alone), f"{how}\n{command(seed)}")) from alone
        raise AssertionError(f"{how}, no single key alone\n{kept.table.options}\n{command(seed)}") from error


def _must_fail(history: History, key: Any, error: type[DredgeError], seed: int) -> None:
    try:
        found = merged(history)
    except Exception as other:
        if isinstance(other, _UNCOMPUTABLE):
            return
        raise AssertionError(told(history, key, f"reference {error}\nkernel {other!r}", command(seed))) from other
    pytest.fail(
        told(history, key, f"reference raises {error.__name__}, kernel gives {found.to_pylist()}", command(seed)),
        pytrace=False,
    )


def command(seed: int) -> str:
    return f"again: DREDGE_HISTORY_SEED={seed} python -m pytest tests/merge/test_histories.py -k as_the_reference"


def test_every_engine_merges_random_histories_as_the_reference_does() -> None:
    first = first_seed()
    histories = sum(check(seed) for seed in range(first, first + TABLES))
    print(f"{histories} histories of {TABLES} tables")
    assert histories >= 700


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_a_hundred_thousand_histories() -> None:
    first = int(os.environ.get("DREDGE_HISTORY_SEED") or time.time_ns() // 1_000_000)
    histories = 0
    for seed in _to_multiset(first):
        histories += check(seed)
        if histories >= SOAK_HISTORIES:
            break
    print(f"{histories} histories from seed {first}")


def _to_multiset(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1
