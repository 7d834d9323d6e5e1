"""Spark and postponed buckets: rows wait in the order of the DataFrame, and get their buckets by tasks of a compaction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.format.snapshot import CommitKind
from lsm_core.metadata.store import POSTPONE_BUCKET
from lsm_core.spark import compact_table, spark_runner, write_table
from tests.spark.tables import data_files, make_table, saved
from tests.support.samples import one_in
from tests.support.spark import TracedSession, kill_when
from tests.support.stores import live_files

pytestmark = pytest.mark.spark
FIELDS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)
Writer = Callable[[Any, Table], object]


def table_of(place: Path, **options: str) -> Table:
    given = {"bucket": "-2", **{name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}}
    return make_table(place, fields=FIELDS, primary_keys=["p", "k"], partition_keys=["p"], options=given)


def content(table: Table) -> dict[tuple[str, int], int]:
    return {(row["p"], row["k"]): row["v"] for row in table.to_arrow().to_pylist()}


def waiting(table: Table) -> int:
    """Postponed rows."""
    return sum(f.row_count for (_, b), files in live_files(table.store).items() if b == POSTPONE_BUCKET for f in files)


@pytest.mark.parametrize("write", one_in(2, [write_table, saved], 1), ids=["write_table", "save"])
def test_rows_wait_and_the_last_one_of_the_frame_wins(spark: Any, tmp_path: Path, write: Writer) -> None:
    table = table_of(tmp_path, postpone__default_bucket_num="3")
    write(spark.range(0, 120, 1, 3).selectExpr("concat('p', id % 2) p", "id % 10 k", "id v"), table)
    assert content(table) == {}
    assert waiting(table) == 120
    report = compact_table(spark, table)
    assert (report.rows_assigned, report.commits) == (120, 1)
    assert content(table) == {(f"p{k % 2}", k): 110 + k for k in range(10)}
    assert {total for files in live_files(table.store) for total in [files[1]]} <= {0, 1, 2}


def test_spark_gives_the_buckets_that_one_process_gives(spark: Any, tmp_path: Path) -> None:
    """Partitions of two numbers of buckets; a full compaction takes what got buckets with it."""
    tables = [table_of(tmp_path / name, postpone__default_bucket_num="2") for name in ("spark", "here")]
    for table in tables:
        table.write(pa.table({"p": ["a"] * 40, "k": range(40), "v": range(40)}))
        table.compact()
    tables = [table.copy({"postpone.default-bucket-num": "3"}) for table in tables]
    for table in tables:
        for number in range(2):
            keys = list(range(number * 20, number * 20 + 40))
            rows = {
                "p": ["a", "b"] * 40,
                "k": [k for k in keys for _ in "ab"],
                "v": [number * 100 + k for k in keys for _ in "ab"],
            }
            kinds = pa.array(["-D" if k % 7 == 0 else "+U" for k in rows["k"]])
            table.write(pa.table(rows), row_kinds=kinds)
    on_spark, here = tables
    reports = compact_table(spark, on_spark, full=True), here.compact(full=True)
    assert [(item.rows_assigned, item.rows_out, item.runs_after, item.commits) for item in reports] == [
        (160, 102, 1, 2)
    ] * 2
    assert content(on_spark) == content(here)
    assert len(content(here)) == 102 and waiting(here) == 0
    placed = [
        sorted(
            (p, b, f.level, f.row_count, f.min_key) for (p, b), files in live_files(item.store).items() for f in files
        )
        for item in tables
    ]
    assert placed[0] == placed[1]
    assert {b for _, b, *_ in placed[0]} == {0, 1, 2}
    assert [item.commit_kind for item in on_spark.snapshots()[-2:]] == [CommitKind.COMPACT, CommitKind.COMPACT]


@pytest.mark.parametrize("how", one_in(2, ["write_table", "save"]))
def test_an_overwrite_replaces_rows_that_wait_and_rows_that_do_not(spark: Any, tmp_path: Path, how: str) -> None:
    table = table_of(tmp_path)
    table.write(pa.table({"p": ["a", "b"], "k": [1, 1], "v": [1, 1]}))
    table.compact()
    table.write(pa.table({"p": ["a", "b"], "k": [2, 2], "v": [2, 2]}))
    frame = spark.range(7, 8, 1, 1).selectExpr("'a' p", "id k", "bigint(3) v")
    write_table(frame, table, overwrite=True) if how == "write_table" else saved(frame, table, "overwrite")
    table.compact()
    assert content(table) == {("a", 7): 3, ("b", 1): 1, ("b", 2): 2}


@pytest.mark.soak
def test_a_killed_task_leaves_the_rows_waiting(traced: TracedSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.write(pa.table({"p": ["a"] * 500, "k": range(500), "v": range(500)}))
    place, files = f"{table.store.root}/p=a/bucket-0/", data_files(tmp_path)
    killer = kill_when(traced.trace, lambda line: line["event"] == "begin" and line["path"].startswith(place))
    plan = table.plan_maintenance("assign_buckets")
    from lsm_core.errors import SparkFailed
    from lsm_core.maintenance import apply_plan

    with pytest.raises(SparkFailed, match=r"assigning buckets of table db\.t: Python worker exited"):
        apply_plan(table.store, plan, spark_runner(traced.spark))
    killer.join(5)
    assert len(killer.killed) == 1  # type: ignore[attr-defined]
    assert waiting(table) == 500 and files == data_files(tmp_path)
    apply_plan(table.store, plan, spark_runner(traced.spark))
    assert len(content(Catalog(str(tmp_path)).table("db.t"))) == 500
