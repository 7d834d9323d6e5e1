"""Spark writes where keys move between partitions: as in one process, whichever tasks and assigners there are, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import CommitConflict, InvalidData, SparkFailed
from lsm_core.metadata import manifests
from lsm_core.read import read_split
from lsm_core.spark import write_table
from lsm_core.spark.spark_write import WriteJob
from lsm_core.spark.write_folder import WriteFolder
from tests.spark.conftest import Java
from tests.spark.tables import make_table
from tests.support.samples import one_in

pytestmark = pytest.mark.spark
FIELDS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)
Rows = list[tuple[str, int, int]]


def table_of(place: Path, name: str = "db.t", engine: str = "deduplicate", **options: str) -> Table:
    given = {"bucket": "-1", "dynamic-bucket.target-row-num": "7", "write-only": "true", "merge-engine": engine}
    if engine == "aggregation":
        given["fields.v.aggregate-function"] = "sum"
    given |= {key.replace("_", "-"): value for key, value in options.items()}
    return make_table(place, name, fields=FIELDS, primary_keys=["k"], partition_keys=["p"], options=given)


def frame_of(spark: Any, rows: Rows, tasks: int = 3) -> Any:
    """The rows in ``tasks`` Spark partitions one after the other."""
    at = -(-len(rows) // tasks)
    parts = [rows[start : start + at] for start in range(0, len(rows), at)]
    return spark.createDataFrame(
        spark.sparkContext.parallelize(parts, len(parts)).flatMap(list), "p STRING, k LONG, v LONG"
    )


def saved(frame: Any, table: Table, mode: str = "append", **options: str) -> None:
    warehouse = str(Path(table.store.root).parents[1])
    target = frame.write.format("dredge").option("warehouse", warehouse).option("table", table.name)
    target.options(**options).mode(mode).save()


def rows_of(table: Table) -> list[tuple[str, int, int]]:
    """The rows, each key in one bucket of one partition."""
    keys = [
        row["k"]
        for split in table.plan_scan()
        for batch in read_split(table.store, split, ["k"])
        for row in batch.to_pylist()
    ]
    assert len(keys) == len(set(keys))
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def left(table: Table) -> list[str]:
    """Data files that no snapshot names, and staged rows."""
    named: set[str] = set()
    for snapshot in table.snapshots():
        named |= set(manifests.delta_entries(table.store, snapshot).column("file_name").to_pylist())
    found = [path for path in Path(table.store.root).rglob("data-*") if path.name not in named]
    return [str(path) for path in [*found, *(Path(table.store.root) / "dredge").rglob("staged/*")]]


def begun(table: Table, rows: Rows) -> None:
    """Rows that are there before, written in this process: that is quicker."""
    table.write(arrow(rows))


def arrow(rows: Rows) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, FIELDS, strict=True)], schema=FIELDS
    )


def drawn(random: Random, count: int) -> Rows:
    return [(random.choice("abc"), random.randrange(60), random.randrange(1_000)) for _ in range(count)]


@pytest.mark.parametrize(
    ("how", "engine"),
    one_in(
        6,
        [
            *(("write_table", engine) for engine in ("first-row", "deduplicate", "partial-update", "aggregation")),
            *(("save", engine) for engine in ("deduplicate", "aggregation")),
        ],
    ),
)
def test_any_tasks_write_what_one_process_writes(spark: Any, tmp_path: Path, engine: str, how: str) -> None:
    random = Random(f"{engine} {how}")
    ours, alone = (table_of(tmp_path, name, engine) for name in ("db.spark", "db.alone"))
    before = drawn(random, 60)
    for table in (ours, alone):
        begun(table, before)
    for overwrite in (False, True):
        if engine == "first-row":
            for table in (ours, alone):
                table.compact(full=True)
        rows = drawn(random, 120)
        alone.write(arrow(rows), overwrite=overwrite)
        frame = frame_of(spark, rows, tasks=3 - overwrite)
        if how == "write_table":
            write_table(frame, ours, overwrite=overwrite)
        else:
            saved(frame, ours, "overwrite" if overwrite else "append")
        assert rows_of(ours) == rows_of(alone)
        assert not left(ours)


def test_buckets_of_write_table_hold_their_number_of_keys_and_each_assigner_its_own(spark: Any, tmp_path: Path) -> None:
    table = table_of(tmp_path, **{"dynamic-bucket.assigner-parallelism": "2"})
    write_table(frame_of(spark, [("ab"[k % 2], k, 1) for k in range(100)]), table)
    counts: dict[tuple[bytes, int], int] = {}
    for split in table.plan_scan():
        held = sum(batch.num_rows for batch in read_split(table.store, split, ["k"]))
        counts[split.partition, split.bucket] = counts.get((split.partition, split.bucket), 0) + held
    assert max(counts.values()) <= 7
    assert {bucket % 2 for _, bucket in counts} == {0, 1}


def test_row_kinds_move_and_delete(spark: Any, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    begun(table, [("a", k, 1) for k in range(6)])
    given = [("b", 1, 2, "+U"), ("b", 2, 2, "-D"), ("a", 3, 2, "-D"), ("c", 9, 2, "-D"), ("b", 1, 3, "+I")]
    frame = spark.createDataFrame(given, "p STRING, k LONG, v LONG, kind STRING").coalesce(1)
    write_table(frame, table, row_kind_column="kind")
    assert rows_of(table) == [("a", 0, 1), ("a", 4, 1), ("a", 5, 1), ("b", 1, 3)]


@pytest.mark.parametrize("how", one_in(2, ["write_table", "save"], 1))
def test_overwrites_of_a_named_partition_and_of_all(spark: Any, tmp_path: Path, how: str) -> None:
    table = table_of(tmp_path)
    begun(table, [("a", 1, 1), ("a", 2, 1), ("b", 3, 1), ("b", 4, 1)])
    rows = frame_of(spark, [("a", 3, 2), ("a", 9, 2)])
    if how == "write_table":
        write_table(rows, table, overwrite={"p": "a"})
    else:
        saved(rows, table, "overwrite", partitionOverwriteMode="dynamic")
    assert rows_of(table) == [("a", 3, 2), ("a", 9, 2), ("b", 4, 1)]
    last = frame_of(spark, [("c", 9, 3)])
    if how == "write_table":
        write_table(last, table.copy({"dynamic-partition-overwrite": "false"}), overwrite=True)
    else:
        saved(last, table, "overwrite", **{"dynamic-partition-overwrite": "false"})
    assert rows_of(table) == [("c", 9, 3)]
    with pytest.raises(InvalidData, match="lie outside"):
        write_table(frame_of(spark, [("b", 1, 1)]), table, overwrite={"p": "c"})
    assert not left(table)


@pytest.mark.parametrize("how", one_in(2, ["write_table", "save"]))
def test_a_failing_row_and_a_commit_that_another_overtook_leave_nothing(
    spark: Any, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path)
    begun(table, [("a", 1, 1)])
    wrong = spark.createDataFrame(
        [("a", k, 1) if k != 7 else ("b", None, 1) for k in range(9)], "p STRING, k LONG, v LONG"
    )
    with pytest.raises(Exception, match="'k'"):
        write_table(wrong, table) if how == "write_table" else saved(wrong, table)
    assert not left(table)
    if how == "write_table":
        real = WriteJob.publish

        def late(job: WriteJob, *given: Any) -> Any:
            table.write(pa.table({"p": ["c"], "k": [1], "v": [5]}, schema=FIELDS))
            return real(job, *given)

        monkeypatch.setattr(WriteJob, "publish", late)
        with pytest.raises(CommitConflict, match="another commit followed the lookup"):
            write_table(frame_of(spark, [("b", 1, 2)]), table)
        assert rows_of(table) == [("c", 1, 5)]
    else:
        assert rows_of(table) == [("a", 1, 1)]
    assert not left(table)


def test_a_killed_task_of_save_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    begun(table, [("a", 1, 1)])

    def kill(rows: Iterator[Any]) -> Iterator[Any]:
        for row in rows:
            if row[1] == 30:
                os.kill(os.getpid(), signal.SIGKILL)
            yield row

    frame = frame_of(spark, [("b", k, 2) for k in range(40)], tasks=4)
    killed = spark.createDataFrame(frame.rdd.mapPartitions(kill), frame.schema)
    with pytest.raises(Exception, match=r"(?i)crashed|exited|killed|aborted"):
        saved(killed, table)
    assert rows_of(table) == [("a", 1, 1)]
    until = time.monotonic() + 30
    while left(table) and time.monotonic() < until:  # Spark fails a write before the last of its tasks has ended
        time.sleep(0.1)
    assert not left(table)
    saved(frame, table)
    assert rows_of(table) == [("b", 0, 2), ("b", 1, 2), *(("b", k, 2) for k in range(2, 40))]


def test_a_numbered_commit_of_save_happens_once(spark: Any, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for place in "ab":
        saved(frame_of(spark, [(place, 1, 1)]), table, **{"commit-user": "job", "commit-identifier": "4"})
    assert rows_of(table) == [("a", 1, 1)]
    saved(frame_of(spark, [("b", 1, 2)]), table, **{"commit-user": "job", "commit-identifier": "5"})
    assert rows_of(table) == [("b", 1, 2)]
    assert not left(table)


def test_staged_rows_come_back_and_those_of_a_dead_driver_go(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path), clock="fixed:1700000000000")
    catalog.create_database("db")
    table_of(tmp_path)
    store = catalog.table("db.t").store
    staged = WriteFolder.plan(store)
    rows = pa.table({"p": ["a", "b"], "k": [1, 2], "v": [None, 4]}, schema=FIELDS)
    names = [staged.put([(rows, None), (rows.slice(1), pa.array([3], pa.int8()))]), staged.put([])]
    found = list(staged.rows(names))
    assert [(table.to_pylist(), kinds and kinds.to_pylist()) for table, kinds in found] == [
        (rows.to_pylist(), None),
        (rows.slice(1).to_pylist(), [3]),
    ]
    os.utime(staged.folder, (1_600_000_000, 1_600_000_000))
    other = WriteFolder.plan(store)
    assert not Path(staged.folder).exists()
    other.remove()
    with pytest.raises(SparkFailed, match="was ended while this task ran"):
        other.put([(rows, None)])

    def ended() -> Iterator[tuple[pa.Table, None]]:
        yield rows, None
        last.remove()

    last = WriteFolder.plan(store)
    with pytest.raises((SparkFailed, FileNotFoundError)):
        last.put(ended())
    assert not list((Path(store.root) / "dredge" / "staged").iterdir())


@pytest.mark.paimon_java
def test_java_goes_on_where_spark_wrote(spark: Any, tmp_path: Path, java: Java) -> None:
    random = Random(7)
    table = table_of(tmp_path, engine="partial-update")
    homes: dict[int, str] = {}
    values: dict[int, int] = {}
    for writer in ("java", "write_table", "java", "save"):
        rows = drawn(random, 30)
        for p, k, v in rows:
            homes.setdefault(k, p)
            values[k] = v
        if writer == "java":
            java("write", tmp_path, rows=[{"p": p, "k": k, "v": v} for p, k, v in rows], compact="none")
        elif writer == "write_table":
            write_table(frame_of(spark, rows), table)
        else:
            saved(frame_of(spark, rows), table)
        expected = sorted((homes[k], k, v) for k, v in values.items())
        read = java("read", tmp_path)["rows"]
        assert sorted((row["p"], row["k"], row["v"]) for row in read) == expected == rows_of(table)
