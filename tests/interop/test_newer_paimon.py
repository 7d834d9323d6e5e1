"""Java Paimon 2.0 and 2.1 agree with Dredge as 1.4.2 does: a sample of the tests that the other modules run with 1.4.2.

`DREDGE_PAIMON_VERSION=2.0.0 pytest tests/interop -m paimon_java` runs all of those tests with another version.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from tests.golden.cases import Case, cases
from tests.interop import test_changes, test_golden_tables_go_on, test_random_tables, test_turns
from tests.support.peers import JavaPaimon, missing
from tests.support.samples import one_in

NEWER = ["2.0.0", pytest.param("2.1-SNAPSHOT", marks=pytest.mark.soak)]
LIVES = 6
"""Lives of random tables, and of tables written in turns, per version."""


@pytest.fixture(params=NEWER)
def newer(request: pytest.FixtureRequest, java_of: Callable[[str], JavaPaimon]) -> JavaPaimon:
    """The running JVM of one newer version."""
    peer = java_of(request.param)
    version = peer.call("ping")["bundle"]
    if request.param.split("-")[0] not in version:
        missing(f"the JVM of Java Paimon {request.param} runs {version}")
    return peer


def _calls(peer: JavaPaimon, warehouse: Path) -> Callable[..., dict[str, Any]]:
    def call(op: str, **arguments: Any) -> dict[str, Any]:
        return dict(peer.call(op, **{"warehouse": str(warehouse), "table": "db.t", **arguments}))

    return call


@pytest.mark.paimon_java
def test_random_tables_read_the_same(newer: JavaPaimon, tmp_path: Path) -> None:
    Catalog(str(tmp_path)).create_database("db")
    first = time.time_ns() % 10**9
    lives = [test_random_tables.live_a_life(first + n, tmp_path, _calls(newer, tmp_path)) for n in range(LIVES)]
    assert max(lives) > 0


@pytest.mark.paimon_java
def test_both_take_turns_on_tables_of_several_kinds(newer: JavaPaimon, tmp_path: Path, testrun_uid: str) -> None:
    Catalog(str(tmp_path)).create_database("db")
    first = int(testrun_uid, 16) % 10**6
    seeds = range(first, first + 10 * LIVES, 10)
    assert test_turns.live_all(seeds, tmp_path, _calls(newer, tmp_path)) == {"": LIVES}


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", ["lookup", "append"])
def test_changes_are_the_same(newer: JavaPaimon, tmp_path: Path, kind: str) -> None:
    java = _calls(newer, tmp_path)
    table = test_changes.write_by_java(java, kind, tmp_path)
    test_changes.streams_agree(java, table, kind)
    test_changes.spans_agree(java, table, kind, tmp_path)


@pytest.mark.paimon_java
@pytest.mark.parametrize("case", one_in(40, cases()), ids=lambda case: case.name)
def test_a_golden_table_is_continued(newer: JavaPaimon, case: Case, tmp_path: Path) -> None:
    partial(test_golden_tables_go_on.test_a_golden_table_goes_on, told={})(case, tmp_path, newer)
