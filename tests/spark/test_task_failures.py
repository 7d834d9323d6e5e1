"""What Spark kills, runs again or never hears of again leaves no row twice and no file behind; here the passes are run by hand."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core.errors import SparkFailed
from lsm_core.spark.spark_tasks import TaskOutcome
from lsm_core.spark.spark_write import WriteJob
from lsm_core.spark.table_writer import TableWriter, TaskMessage
from lsm_core.spark.write_folder import WriteFolder
from tests.spark.tables import data_files, make_table, rows, same
from tests.support.clocks import replace_sleep
from tests.support.stores import live_files

pytestmark = pytest.mark.spark


def ran(job: WriteJob, data: pa.Table, task: int = 0) -> list[TaskOutcome]:
    """One attempt of a task, as a worker runs it: from a copy of the job, which travelled."""
    own: WriteJob = pickle.loads(pickle.dumps(job))
    routed = (group for _, group in own.routed(data.to_batches(), task))
    return [TaskOutcome(task, answer) for answer in own.write(routed, task)]


def staged(root: Path) -> list[Path]:
    return sorted(root.rglob("dredge/staged/*"))


KINDS: tuple[dict[str, Any], ...] = (
    {"options": {"bucket": "2"}},
    {"options": {"bucket": "-1"}},
    {"options": {"bucket": "-2"}},
    {"options": {"bucket": "2", "changelog-producer": "input", "file-index.bloom-filter.columns": "s"}},
    {"primary_keys": ()},
    {"partition_keys": ["day"], "primary_keys": ["day", "k"]},
)


@pytest.mark.parametrize("layout", KINDS, ids=lambda layout: str(layout.get("options", layout)))
def test_an_attempt_that_nobody_answers_for_leaves_nothing(tmp_path: Path, layout: dict[str, Any]) -> None:
    fields = rows([]).schema.set(5, pa.field("day", pa.date32(), nullable=False))
    table = make_table(tmp_path, fields=fields, **layout)
    first, two = rows(list(range(40))).cast(fields), rows(list(range(40, 80))).cast(fields)
    job = WriteJob.plan(table.store, overwrite=False)
    ran(job, first)  # it was slow: Spark began it again elsewhere
    outcomes = ran(job, first) + ran(job, two, 1)
    assert len(staged(tmp_path)) == 1
    job.commit(outcomes)
    live = {file.file_name for files in live_files(table.store).values() for file in files}
    assert {path.name for path in data_files(tmp_path) if not path.name.endswith(".index")} == live
    assert not staged(tmp_path)
    if layout.get("options", {}).get("bucket") != "-2":
        assert same(pa.concat_tables([first, two]), table.to_arrow())
    everything = set(tmp_path.rglob("*"))
    failed = WriteJob.plan(table.store, overwrite=False)
    ran(failed, first)
    ran(failed, two, 1)  # both are done, and the job failed all the same
    assert set(tmp_path.rglob("data-*")) > {path for path in everything if path.name.startswith("data-")}
    failed.end(failed=True)
    assert set(tmp_path.rglob("*")) == everything


def test_a_task_that_goes_on_after_the_end_takes_its_files_along(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    job = WriteJob.plan(table.store, overwrite=False)
    late: WriteJob = pickle.loads(pickle.dumps(job))

    def until_the_end() -> Any:
        groups = [group for _, group in late.routed(rows(list(range(40))).to_batches(), 0)]
        yield groups[0]
        job.end()
        yield from groups[1:]

    with pytest.raises(SparkFailed, match="the write was ended while this task ran"):
        late.write(until_the_end(), 0)
    with pytest.raises(SparkFailed, match="the write was ended while this task ran"):
        ran(job, rows([1]))
    assert data_files(tmp_path) == set()
    assert not staged(tmp_path)


def test_a_failed_write_waits_for_those_that_are_still_at_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = WriteFolder.plan(make_table(tmp_path).store)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            folder.forget("slow")

    replace_sleep(monkeypatch, "lsm_core.spark.write_folder", nap)
    for attempt in ("dead", "slow", "done", "answered"):
        folder.begin(attempt)
    folder.finish("done")
    assert folder.close(["answered"], failed=True) == {"dead", "done"}
    assert len(naps) == 2
    with pytest.raises(SparkFailed):
        folder.finish("slow")


@pytest.mark.parametrize("ended", ["failed", "answered"])
def test_a_save_that_spark_gives_up_leaves_nothing(tmp_path: Path, ended: str) -> None:
    table = make_table(tmp_path)
    table.write(rows([1, 2]))
    before = data_files(tmp_path)
    writer = TableWriter(table.store, overwrite=False)
    answered = ran(writer._job, rows(list(range(40))))
    ran(writer._job, rows(list(range(40, 80))), 1)  # its answer is lost
    records: Sequence[Any] = [
        TaskMessage(tuple(item.answer for item in answered)) if ended == "answered" else None,
        None,
    ]
    pickle.loads(pickle.dumps(writer)).abort(list(records))
    assert data_files(tmp_path) == before
    assert not staged(tmp_path)
    assert len(table.snapshots()) == 1
