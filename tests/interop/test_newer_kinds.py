"""Kinds of tables of Paimon 2.0 and 2.1 only: Java and Dredge take turns on them, as in `test_turns`.

``DREDGE_NEWER_KINDS`` tables of each kind are drawn (default 6; 150 in soak); a failure tells its seed and the steps.
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

VERSION = os.environ.get("DREDGE_PAIMON_VERSION", "2.1-SNAPSHOT")
LIVES = int(os.environ.get("DREDGE_NEWER_KINDS", "6"))
COUNTS = [
    pytest.param(LIVES, id="sample"),
    pytest.param(150, id="many", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
]


@pytest.fixture(scope="module")
def newest() -> Iterator[JavaPaimon]:
    """The JVM of Java Paimon 2.1, or of the version that DREDGE_PAIMON_VERSION names."""
    try:
        peer = JavaPaimon(VERSION)
    except peer_module().PeerMissing as error:
        pytest.skip(f"NOT TESTED: Java Paimon {VERSION}: {error}")
    yield peer
    peer.close()


def _call(peer: JavaPaimon, warehouse: Path, op: str, **arguments: Any) -> dict[str, Any]:
    return dict(peer.call(op, **{"warehouse": str(warehouse), "table": "db.t", **arguments}))


def _live(peer: JavaPaimon, warehouse: Path, uid: str, count: int, taking: type[Turns]) -> None:
    Catalog(str(warehouse)).create_database("db")
    first = int(os.environ.get("DREDGE_TURNS_SEED") or int(uid, 16) % 10**6)
    step = 5 if count < len(KINDS) else 1
    seeds = range(first, first + step * count, step)
    assert live_all(seeds, warehouse, partial(_call, peer, warehouse), taking) == {"": count}


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
    _live(newest, tmp_path, testrun_uid, count, NullableKeys)


class OrderedBySnapshots(Turns):
    """A table whose newest row of a key is that of the latest snapshot; only dedicated jobs compact it."""

    compactions = ("none",)

    def options(self) -> dict[str, str]:
        """Of a table of this kind."""
        drawn = {key: text for key, text in super().options().items() if key != "sequence.field"}
        if "fields.a.aggregate-function" in drawn:
            drawn |= {"fields.b.aggregate-function": "max", "fields.b.ignore-retract": "true"}
        return {**drawn, "sequence.snapshot-ordering": "true", "write-only": "true"}


@pytest.mark.paimon_java
@pytest.mark.parametrize("count", COUNTS)
def test_rows_ordered_by_snapshot(newest: JavaPaimon, tmp_path: Path, testrun_uid: str, count: int) -> None:
    _live(newest, tmp_path, testrun_uid, count, OrderedBySnapshots)
