"""Kinds of tables of Paimon 2.0 and 2.1 only: Java and Dredge take turns on them, as in `test_turns`.

``DREDGE_NEWER_KINDS`` tables of each kind are drawn (default 12; 150 in soak); a failure tells its seed and the steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from tests.interop.test_turns import FIELDS, KINDS, SCHEMA, Row, Turns, live_all
from tests.support.peers import JavaPaimon, peer_module

LIVES = int(os.environ.get("DREDGE_NEWER_KINDS", "12"))
COUNTS = [
    pytest.param(LIVES, id="sample"),
    pytest.param(150, id="many", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
]


@pytest.fixture(scope="module")
def newest() -> Iterator[JavaPaimon]:
    """The JVM of Java Paimon 2.1."""
    try:
        peer = JavaPaimon("2.1-SNAPSHOT")
    except peer_module().PeerMissing as error:
        pytest.skip(f"NOT TESTED: Java Paimon 2.1-SNAPSHOT: {error}")
    yield peer
    peer.close()


def _call(peer: JavaPaimon, warehouse: Path, op: str, **arguments: Any) -> dict[str, Any]:
    return dict(peer.call(op, **{"warehouse": str(warehouse), "table": "db.t", **arguments}))


class NullableKeys(Turns):
    """A table whose keys, and partitions, may be null."""

    fields = [{**field, "type": field["type"].removesuffix(" NOT NULL")} for field in FIELDS]
    arrow = pa.schema([field.with_nullable(nullable=True) for field in SCHEMA])

    def options(self) -> dict[str, str]:
        """Of a table of this kind."""
        return {**super().options(), "primary-key.nullable": "true"}

    def row(self) -> Row:
        """A row, of ten keys one null and of ten partitions too."""
        drawn = super().row()
        absent = [name for name in ("p", "k") if self.random.random() < 0.15]
        return {**drawn, **dict.fromkeys(absent)}


@pytest.mark.paimon_java
@pytest.mark.parametrize("count", COUNTS)
def test_keys_that_may_be_null(newest: JavaPaimon, tmp_path: Path, testrun_uid: str, count: int) -> None:
    Catalog(str(tmp_path)).create_database("db")
    first = int(os.environ.get("DREDGE_TURNS_SEED") or int(testrun_uid, 16) % 10**6)
    step = 5 if count < len(KINDS) else 1
    seeds = range(first, first + step * count, step)
    assert live_all(seeds, tmp_path, partial(_call, newest, tmp_path), NullableKeys) == {"": count}
