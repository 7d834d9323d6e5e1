"""Random tables through Spark's doors hold and say what they do in this process; `make soak` lives 200 of them.

A failure tells its seed: ``DREDGE_LIVES_SEED=seed python -m pytest tests/spark/test_random_lives.py -k in_this_process`` lives it again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.random_lives import NEWER, STEPS, live_a_life

pytestmark = pytest.mark.spark

LIVES = (6, 3002)
"""Seeds of the sample."""
MANY = 200


def test_spark_does_what_is_done_in_this_process(spark: Any, tmp_path: Path) -> None:
    chosen = os.environ.get("DREDGE_LIVES_SEED")
    seeds = LIVES if chosen is None else (int(chosen),)
    steps = sum(live_a_life(seed, tmp_path, spark) for seed in seeds)
    assert chosen is not None or steps == STEPS * len(LIVES)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_many_lives(spark: Any, tmp_path: Path) -> None:
    first = int(os.environ.get("DREDGE_LIVES_SEED", "1"))
    steps = sum(live_a_life(seed, tmp_path, spark) for seed in range(first, first + MANY))
    print(f"{MANY} tables, {steps} steps, from seed {first}")
    assert steps > 3 * MANY


def _failures(seeds: range, root: Path, spark: Any, option: str) -> list[str]:
    failures = []
    for seed in seeds:
        try:
            live_a_life(seed, root, spark, option)
        except AssertionError as error:
            print(f"{option}: {error}", file=sys.stderr, flush=True)
            failures.append(str(error))
    return failures


@pytest.mark.parametrize("option", NEWER)
def test_spark_keeps_up_with_newer_kinds(spark: Any, tmp_path: Path, option: str) -> None:
    assert _failures(range(1, 2), tmp_path, spark, option) == []


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("option", NEWER)
def test_many_lives_of_newer_kinds(spark: Any, tmp_path: Path, option: str) -> None:
    first = int(os.environ.get("DREDGE_LIVES_SEED", "1"))
    seeds = range(first, first + int(os.environ.get("DREDGE_LIVES", MANY)))
    failures = _failures(seeds, tmp_path, spark, option)
    print(f"{len(seeds)} tables with {option}, from seed {first}")
    assert failures == [], f"{len(failures)} of {len(seeds)} failed:\n" + "\n\n".join(failures[:5])
