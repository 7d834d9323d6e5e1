"""Every door of Spark maintains the table after its commit as `Table.write` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Table
from lsm_core.spark import spark_write, sql, upsert, write_table
from tests.spark.streams import place_of, write_epoch
from tests.spark.tables import make_table, rows
from tests.support.samples import sample
from tests.support.table_kinds import KINDS, WRITES, TableKind, batch, create, expected, state

pytestmark = pytest.mark.spark
OPTIONS = {"bucket": "2", "num-sorted-run.compaction-trigger": "3", "dredge.compaction.inline": "follow"}


def save(spark: Any, table: Table, data: Any, _: int) -> None:
    spark.createDataFrame(data).coalesce(1).write.format("dredge").options(**place_of(table)).mode("append").save()


DOORS: dict[str, Callable[[Any, Table, Any, int], object]] = {
    "write_table": lambda spark, table, data, _: write_table(spark.createDataFrame(data), table),
    "upsert": lambda spark, table, data, _: upsert(spark.createDataFrame(data), table),
    "save": save,
    "writeStream": lambda _, table, data, number: write_epoch(table, number, [data]),
}


def insert(spark: Any, table: Table, data: Any, _: int) -> None:
    listed = ", ".join(f"({row['k']}, {row['v']})" for row in data.to_pylist())
    sql(spark, f"INSERT INTO {table.name} VALUES {listed}", catalog=place_of(table)["warehouse"])


def write_one_file(spark: Any, table: Table, data: Any, _: int) -> None:
    write_table(spark.createDataFrame(data).coalesce(1), table)


# The doors of docs/semantics.md 4.5; the others are in tests/table/test_doors.py.
KIND_DOORS: dict[str, Callable[[Any, Table, Any, int], object]] = {
    "write_table": write_one_file,
    "save": save,
    "writeStream": lambda _, table, data, number: write_epoch(table, number, [data]),
    "upsert": DOORS["upsert"],
    "INSERT": insert,
}
SAMPLE = [("save", "lookup changelog"), ("writeStream", "append, `bucket` = -1")]


@pytest.mark.parametrize(
    ("door", "kind"),
    [
        pytest.param(
            door,
            kind,
            marks=() if (door, kind.name) in SAMPLE else pytest.mark.soak,
            id=f"{door} into {kind.name}",
        )
        for kind in KINDS
        for door in KIND_DOORS
        if door != "upsert" or (kind.keyed and kind.upserts and kind.visible)
    ],
)
def test_every_door_leaves_what_the_page_says(spark: Any, tmp_path: Path, door: str, kind: TableKind) -> None:
    table = create(tmp_path, kind)
    for number in range(WRITES):
        KIND_DOORS[door](spark, table.refresh(), batch(number), number)
    assert state(table) == expected(kind)


@pytest.mark.parametrize("door", sample(DOORS, {"write_table", "save", "writeStream"}.__contains__))
def test_the_third_run_is_compacted_and_old_snapshots_expire(spark: Any, tmp_path: Path, door: str) -> None:
    table = make_table(
        tmp_path, options={**OPTIONS, "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "3"}
    )
    for number in range(3):
        DOORS[door](spark, table, rows(list(range(20)), f"v{number}"), number)
    assert [(s.id, str(s.commit_kind)) for s in table.snapshots()] == [(2, "APPEND"), (3, "APPEND"), (4, "COMPACT")]
    assert {health.sorted_runs for health in table.health()} == {1}
    assert table.to_arrow().num_rows == 20


def test_large_compactions_after_a_write_are_a_job_of_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_write, "_WORTH_A_JOB", 0)
    table = make_table(tmp_path, options=OPTIONS)
    for number in range(3):
        write_table(spark.createDataFrame(rows(list(range(20)), f"v{number}")), table)
    newest = next(entry for entry in table.ledger() if entry.action == "compact")
    assert newest.report["executors"]
    assert table.to_arrow().num_rows == 20


def test_large_compactions_after_statements_are_jobs_of_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each statement of SQL, and rows that are not Spark's, choose their runner as `write_table` of a DataFrame does."""
    monkeypatch.setattr(spark_write, "_WORTH_A_JOB", 0)
    options = {"bucket": "1", "full-compaction.delta-commits": "1", "dredge.compaction.inline": "follow"}
    table = make_table(tmp_path, options=options)
    table.write(rows(list(range(20)), "old"), compact=False)
    statements = (
        "INSERT INTO db.t (k, s) VALUES (1, 'new')",
        "INSERT INTO db.t (k, s) SELECT 2, 'new'",
        "UPDATE db.t SET s = 'newer' WHERE k = 3",
        "DELETE FROM db.t WHERE k = 4 AND s IS NOT NULL",
        "MERGE INTO db.t USING (SELECT 5 AS k) u ON t.k = u.k WHEN MATCHED THEN UPDATE SET s = 'merged'",
    )
    for text in statements:
        sql(spark, text, catalog=str(tmp_path))
    write_table(rows([6], "here"), table)
    compactions = [entry for entry in table.refresh().ledger() if entry.action == "compact"]
    assert [bool(entry.report["executors"]) for entry in compactions] == [True] * (len(statements) + 1)


@pytest.mark.parametrize("door", ["save", pytest.param("writeStream", marks=pytest.mark.soak)])
def test_large_compactions_after_a_commit_beside_the_driver_are_a_job_of_spark(
    spark: Any, tmp_path: Path, door: str
) -> None:
    options = {
        "bucket": "1",
        "file.compression": "none",
        "full-compaction.delta-commits": "1",
        "dredge.compaction.inline": "follow",
        "dredge.verification": "counts",
    }
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.binary())])
    table = make_table(tmp_path, fields=fields, options=options)
    for number in range(2):
        keys = range(number * 1_000, number * 1_000 + 1_000)
        values = [key.to_bytes(34 << 10) for key in keys]
        table.write(pa.table({"k": pa.array(keys, pa.int64()), "v": values}), compact=False)
    data = pa.table({"k": pa.array([5_000]), "v": [b"last"]})
    if door == "save":
        save(spark, table, data, 0)
    else:
        source = make_table(tmp_path, "db.source", fields=fields)
        source.write(data)
        rows_of = spark.readStream.format("dredge").options(**place_of(source)).load()
        query = rows_of.writeStream.format("dredge").options(**place_of(table))
        query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    newest = next(entry for entry in table.ledger() if entry.action == "compact")
    assert newest.report["executors"]
    assert [str(snapshot.commit_kind) for snapshot in table.snapshots()] == ["APPEND", "APPEND", "APPEND", "COMPACT"]
    assert table.to_arrow(columns=["k"]).num_rows == 2_001
