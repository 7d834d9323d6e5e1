"""Paimon's own Spark connector and Dredge take turns on tables of many kinds (`connector_lives.py`); `make soak` runs it.

Nothing of it runs in `make test`: the start of Spark and its first statements take about as long as all other tests of
a group. `DREDGE_LIVES` (default 120) is the number of tables, `DREDGE_LIVES_SEED` the first one's seed; a failure shows
its seed and the statements that led to it.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from lsm_core import Catalog
from tests.interop.connector_lives import KINDS, live_a_life
from tests.support.peers import SparkConnector

LIVES = 120


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_spark_sql_and_dredge_take_turns(
    connector: SparkConnector, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = int(os.environ.get("DREDGE_LIVES_SEED") or time.time_ns() % 10**6)
    seeds = range(first, first + int(os.environ.get("DREDGE_LIVES") or LIVES))
    Catalog(str(tmp_path)).create_database("db")
    counts: Counter[str] = Counter()
    failures: list[str] = []
    for seed in seeds:
        try:
            counts += live_a_life(seed, tmp_path, connector)
        except AssertionError as failure:
            failures.append(str(failure))
            print(f"\nfailure {len(failures)}: {failure}", file=sys.__stderr__, flush=True)
    with capsys.disabled():
        kinds = len({seed % len(KINDS) for seed in seeds})
        print(f"\n{len(seeds)} tables of {kinds} kinds, seeds {seeds}", file=sys.stderr)
        for statement, count in sorted(counts.items()):
            print(f"  {count:4} {statement}", file=sys.stderr)
    assert not failures, f"{len(failures)} of {len(seeds)} tables failed:\n" + "\n\n".join(failures[:5])
    assert sum(count for name, count in counts.items() if name.startswith("spark ")) >= len(seeds)
    assert sum(count for name, count in counts.items() if name.startswith("dredge ")) >= len(seeds)
