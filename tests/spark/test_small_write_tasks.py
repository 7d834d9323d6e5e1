"""Tasks with few rows for each bucket leave them to one writer: few files, the rows in their order, nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core.errors import CorruptFile
from lsm_core.spark.spark_tasks import TaskOutcome
from lsm_core.spark.spark_write import WriteJob
from lsm_core.spark.table_writer import runs_between, write_gathered, write_or_leave
from tests.spark.tables import data_files, make_table

FIELDS = pa.schema(
    [
        pa.field("p", pa.int32(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        ("v", pa.string()),
    ]
)


@pytest.mark.spark
@pytest.mark.parametrize("bucket", ["1", "-1"])
def test_save_of_many_small_partitions_makes_a_file_for_each_bucket(spark: Any, tmp_path: Path, bucket: str) -> None:
    table = make_table(
        tmp_path, fields=FIELDS, primary_keys=["p", "k"], partition_keys=["p"], options={"bucket": bucket}
    )
    frame = spark.range(0, 400, 1, 4).selectExpr("int(id % 10) AS p", "id % 100 AS k", "string(id) AS v")
    frame.write.format("dredge").options(warehouse=str(tmp_path), table="db.t").mode("append").save()
    found = table.to_arrow().sort_by("k")
    assert found.column("v").to_pylist() == [str(300 + k) for k in range(100)]
    assert len(data_files(tmp_path)) == 10
    assert not list((tmp_path / "db.db/t/dredge/staged").iterdir())


def _batches(keys: range, version: str, partitions: int = 1) -> list[pa.RecordBatch]:
    numbers = np.arange(keys.start, keys.stop, keys.step)
    columns = [pa.array(numbers % partitions, pa.int32()), pa.array(numbers), pa.array([version] * len(numbers))]
    return pa.table(columns, names=FIELDS.names).to_batches()


def test_rows_that_tasks_left_count_between_those_of_tasks_that_wrote(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS, primary_keys=["p", "k"], partition_keys=["p"], options={"bucket": "1"})
    job = WriteJob.plan(table.store, overwrite=False)
    tasks = [
        _batches(range(100), "a"),
        _batches(range(50, 200_000), "b"),
        _batches(range(100, 150), "c"),
        _batches(range(149, 200), "d"),
    ]
    records = [write_or_leave(job, rows, task, None) for task, rows in enumerate(tasks)]
    assert [bool(staged) for _, staged in records] == [True, False, True, True]
    outcomes = [TaskOutcome(task, data) for task, (messages, _) in enumerate(records) for data in messages]
    left = [(task, staged) for task, (_, staged) in enumerate(records) if staged]
    outcomes += write_gathered(job, left, [1])
    job.commit(outcomes)
    versions = table.to_arrow().sort_by("k").column("v").to_pylist()
    assert (versions[49], versions[50], versions[100], versions[148], versions[149]) == ("a", "b", "c", "c", "d")
    assert len(data_files(tmp_path)) == 3  # before the large task, of it, after it
    assert len(versions) == 200_000


def test_in_a_table_ordered_by_snapshot_one_writer_orders_the_rows_of_all_tasks(tmp_path: Path) -> None:
    options = {"bucket": "1", "sequence.snapshot-ordering": "true", "write-only": "true"}
    table = make_table(tmp_path, fields=FIELDS, primary_keys=["p", "k"], partition_keys=["p"], options=options)
    job = WriteJob.plan(table.store, overwrite=False)
    tasks = [_batches(range(100), "a"), _batches(range(50, 200_000), "b"), [], _batches(range(149, 200), "d")]
    records = [write_or_leave(job, rows, task, None) for task, rows in enumerate(tasks)]
    assert not any(messages for messages, _ in records)
    job.commit(write_gathered(job, [(task, staged) for task, (_, staged) in enumerate(records)], []))
    versions = table.to_arrow().sort_by("k").column("v").to_pylist()
    assert (versions[49], versions[50], versions[148], versions[149], versions[200]) == ("a", "b", "b", "d", "b")
    assert len(data_files(tmp_path)) == 1


def test_row_kinds_and_an_overwrite_reach_the_one_writer(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS, primary_keys=["p", "k"], partition_keys=["p"], options={"bucket": "1"})
    table.write(pa.table({"p": [0, 1], "k": [7, 9], "v": ["old", "old"]}))
    job = WriteJob.plan(table.store, overwrite=True)
    kinds = pa.table({"p": pa.array([0, 0], pa.int32()), "k": [1, 1], "v": ["x", "x"], "op": ["+I", "-D"]})
    records = [
        write_or_leave(job, _batches(range(1, 4), "new"), 0, None),
        write_or_leave(job, kinds.to_batches(), 1, "op"),
    ]
    job.commit(write_gathered(job, list(enumerate(staged for _, staged in records)), []), {"p": 0})
    assert table.to_arrow().sort_by("k").to_pylist() == [
        {"p": 0, "k": 2, "v": "new"},
        {"p": 0, "k": 3, "v": "new"},
        {"p": 1, "k": 9, "v": "old"},
    ]


def test_a_lost_file_of_rows_fails_the_write_and_leaves_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS, primary_keys=["p", "k"], partition_keys=["p"], options={"bucket": "1"})
    job = WriteJob.plan(table.store, overwrite=False)
    _, staged = write_or_leave(job, _batches(range(10), "a", 3), 0, None)
    assert job.folder is not None
    Path(job.folder.folder, staged).unlink()
    with pytest.raises(CorruptFile, match="staged rows of this write"):
        write_gathered(job, [(0, staged)], [])
    job.end(failed=True)
    assert not data_files(tmp_path)
    assert table.latest_snapshot() is None


def test_runs_end_where_a_task_wrote() -> None:
    left = [(task, f"f{task}") for task in (0, 1, 3, 6)]
    assert [[task for task, _ in run] for run in runs_between(left, [2, 5])] == [[0, 1], [3], [6]]
    assert [[task for task, _ in run] for run in runs_between(left, [])] == [[0, 1, 3, 6]]
