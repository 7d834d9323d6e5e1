"""Java and Dredge take turns on tables of every kind, and Dredge takes its own through Spark: the suite of tests/interop/test_turns.py, a sample of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.spark import compact_table, read_table, write_table
from tests.interop.test_turns import KINDS, Turns, live_a_life
from tests.spark.conftest import Java

pytestmark = [pytest.mark.spark, pytest.mark.paimon_java]
SAMPLE = (31, 45, 62)
"""Seeds; each is of another kind."""


def through(spark: Any) -> type[Turns]:
    """Turns in which Dredge is Spark."""

    class SparkTurns(Turns):
        def write_ours(self, rows: pa.Table, kinds: pa.Array) -> None:
            write_table(spark.createDataFrame(rows.append_column("_row_kind", kinds)), self.table)

        def compact_ours(self, *, full: bool) -> None:
            compact_table(spark, self.table, full=full)

        def read_ours(self) -> pa.Table:
            return read_table(spark, self.table).toArrow()

    return SparkTurns


@pytest.mark.parametrize(
    "seeds", [pytest.param(SAMPLE, id="sample"), pytest.param(range(2 * len(KINDS)), id="many", marks=pytest.mark.soak)]
)
@pytest.mark.timeout(3600)
def test_spark_and_java_take_turns(spark: Any, java: Java, tmp_path: Path, seeds: range | tuple[int, ...]) -> None:
    """Both read the same after every step, and their streams tell the same changes at the end."""
    Catalog(str(tmp_path)).create_database("db")
    first = int(os.environ.get("DREDGE_TURNS_SEED", "0")) if isinstance(seeds, range) else 0
    for seed in seeds:
        kind = KINDS[(first + seed) % len(KINDS)]
        assert (
            live_a_life(first + seed, kind, tmp_path, lambda op, **given: java(op, tmp_path, **given), through(spark))
            == ""
        )
