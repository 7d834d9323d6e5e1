"""Compactions as one Spark job: packed and cut units, several commits, progress, memory, and what becomes of each bucket."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lsm_core import Table
from lsm_core.cli.app import run
from lsm_core.compact import BucketTask
from lsm_core.errors import CorruptFile, InvalidFilter, InvalidOption, SparkFailed
from lsm_core.maintenance.actions.compact.execution import tasks_of_plan
from lsm_core.spark import compact_table, compaction_job, spark_runner
from lsm_core.spark.compaction_job import JobProgress, Memory, memory_needed, pack_units
from lsm_core.spark.spark_tasks import TaskOutcome
from lsm_core.spark.write_folder import WriteFolder
from tests.spark.tables import data_files, live_paths, make_table, rows, same
from tests.support.spark import EventLog, TracedSession

pytestmark = pytest.mark.spark
MIB = 1 << 20
SPARE = False  # cores that the job leaves idle


def piled_up(root: Path, buckets: int = 3, size: int = 300) -> Table:
    """A table of three overlapping commits."""
    table = make_table(root, options={"bucket": str(buckets)})
    for number in range(3):
        table.write(rows(list(range(number * 50, number * 50 + size)), f"c{number}"))
    return table


def damaged(table: Table) -> str:
    """Truncate a file of bucket 1; its name."""
    victim = next(path for path in live_paths(table) if path.parent.name == "bucket-1")
    victim.write_bytes(victim.read_bytes()[:-100])
    return victim.name


def test_units_are_packed_by_bytes() -> None:
    assert pack_units([5], 8) == [0]
    assert sorted(pack_units([10 * MIB] * 3, 8)) == [0, 1, 2]
    tasks = pack_units([MIB] * 1000, 8)
    assert np.bincount(tasks).tolist() == [125] * 8
    sizes = [700 * MIB, *[100 * MIB] * 20]
    tasks = pack_units(sizes, 2)
    loads = np.bincount(tasks, sizes)
    assert len(loads) == 6
    assert loads.max() == 700 * MIB


def test_each_spark_job_is_a_span(traced: TracedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", lambda name: provider.get_tracer(name))
    table = piled_up(tmp_path)
    report = compact_table(traced.spark, table, full=True)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert {"dredge.plan", "dredge.apply", "dredge.spark_job"} <= set(spans)
    job = spans["dredge.spark_job"]
    attributes = dict(job.attributes or {})
    assert (attributes["dredge.table"], attributes["dredge.files_in"]) == (table.store.name, report.files_in)
    assert attributes["dredge.bytes_in"] == report.bytes_in
    assert job.parent is not None and job.parent.span_id == spans["dredge.apply"].context.span_id


def test_many_small_buckets_share_the_tasks_of_one_job(traced: TracedSession, tmp_path: Path) -> None:
    table = piled_up(tmp_path, buckets=40, size=2_000)
    before, log = table.to_arrow(), EventLog(traced.events)
    records: list[JobProgress] = []
    report = compact_table(traced.spark, table, full=True, progress=records.append)
    stages = log.stages()
    assert stages[-1].tasks == 8
    assert len(stages) == 2  # units are sent to their tasks, and compacted
    assert (report.commits, len(report.units)) == (1, 40)
    assert {(unit.outcome, unit.snapshot_id) for unit in report.units} == {("compacted", report.snapshot_id)}
    assert sum(unit.rows_in for unit in report.units) == report.rows_in
    assert same(before, table.to_arrow())
    last = records[-1]
    assert (last.units_done, last.bytes_done, last.rows_done) == (40, report.bytes_in, report.rows_in)
    assert (last.units, last.bytes, last.rows, last.seconds_left) == (40, report.bytes_in, report.rows_in, 0.0)
    assert last.text().startswith("40 of 40 buckets")
    described = [line for line in log._lines() if "SparkListenerJobStart" in line and "compacting table db.t" in line]
    assert described
    assert "40 buckets" in described[-1]


@pytest.mark.parametrize("on_spark", [False, True])
def test_commits_of_few_buckets_are_kept_whatever_becomes_of_the_others(
    spark: Any, tmp_path: Path, on_spark: bool
) -> None:
    table = piled_up(tmp_path, buckets=4)
    files, name = data_files(tmp_path), damaged(table)
    runner = spark_runner(spark) if on_spark else None
    plan = table.plan_maintenance("compact", full=True, commit_every=2)
    report = table.apply(type(plan).from_json(plan.to_json()), runner=runner)
    assert (report.commits, [item.subject for item in report.failed]) == (2, ["bucket-1"])
    assert name in report.failed[0].text
    assert {unit.subject: (unit.outcome, unit.snapshot_id) for unit in report.units} == {
        "bucket-0": ("compacted", 4),
        "bucket-1": ("failed", None),
        "bucket-2": ("compacted", 5),
        "bucket-3": ("compacted", 5),
    }
    assert [(run.outcome, run.snapshot_id) for run in table.ledger()] == [("done", 4), ("done", 5)]
    assert [line["event"] for line in table.ledger()[0].lines] == ["compacted", "failed"]
    assert len(data_files(tmp_path) - files) == 3
    assert type(report).from_object(report.to_object()) == report
    # the same plan again: only what failed is left, and it fails alone
    with pytest.raises(CorruptFile, match=name):
        table.apply(table.plan_maintenance("compact", full=True, buckets=[1], commit_every=2), runner=runner)
    assert len(table.snapshots()) == 5


def test_a_plan_of_several_commits_is_applied_once(tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    plan = table.plan_maintenance("compact", full=True, commit_every=1)
    assert table.apply(plan).commits == 3
    again = table.apply(plan)
    assert again.commits == 0
    assert again.applied_before is not None
    assert table.compact(full=True, commit_every=2).commits == 0
    with pytest.raises(InvalidOption, match="commit_every"):
        table.compact(commit_every=0)


def test_a_conflict_costs_its_bucket_alone(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    inner = spark_runner(spark)

    def overtaken(store: Any, tasks: Any) -> Any:
        results = list(inner(store, tasks))
        table.compact(full=True, buckets=[1])
        return results

    files = data_files(tmp_path)
    report = table.apply(table.plan_maintenance("compact", full=True), runner=overtaken)
    assert {unit.subject: unit.outcome for unit in report.units} == {
        "bucket-0": "compacted",
        "bucket-1": "stale",
        "bucket-2": "compacted",
    }
    assert "another commit took its inputs" in report.stale[0].text
    assert len(data_files(tmp_path) - files) == 3


def test_a_condition_chooses_partitions(spark: Any, tmp_path: Path) -> None:
    fields = pa.schema([pa.field("day", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False)])
    table = make_table(
        tmp_path, fields=fields, primary_keys=("day", "k"), partition_keys=("day",), options={"bucket": "1"}
    )
    for _ in range(2):
        table.write({"day": ["a", "b", "c"], "k": [1, 2, 3]})
    report = compact_table(spark, table, full=True, where="day > 'a'")
    assert [unit.subject for unit in report.units] == ["day=b/bucket-0", "day=c/bucket-0"]
    with pytest.raises(InvalidFilter, match="'k' is not a partition column"):
        compact_table(spark, table, where="k = 1")


def test_the_command_line_compacts_on_spark(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsm_core.cli.verbs.common._TELL_SECONDS", 0.0)
    table, place = piled_up(tmp_path, buckets=2), ["-w", str(tmp_path)]
    assert run(["compact", "db.t", "--full", "--commit-every", "1", "--runner", "spark", *place]) == 0
    printed = capsys.readouterr()
    assert "snapshot 5: 6 files in, 2 out" in printed.out
    assert "2 of 2 buckets" in printed.err
    assert [run.report["executors"] for run in table.ledger()] == [[f"the driver on {socket.gethostname()}"]] * 2
    table.write(rows([1, 2, 3], "again"))
    name = damaged(table)
    assert run(["compact", "db.t", "--full", "--commit-every", "2", "--runner", "spark", *place]) == 1
    printed = capsys.readouterr()
    assert "1 buckets could not be compacted, bucket-1 for one: CorruptFile" in printed.err
    assert name in printed.err
    plan = table.plan_maintenance("create_tag", tag="kept")
    table.save_plan(plan)
    assert run(["apply", "db.t", plan.hash, "--runner", "spark", *place]) == 1
    assert "create_tag has no work for others" in capsys.readouterr().err


def tasks_of(table: Table) -> list[BucketTask]:
    return [task for _, task in tasks_of_plan(table.store, table.plan_maintenance("compact", full=True))[0]]


def test_windows_shrink_until_a_task_fits_beside_the_others(tmp_path: Path) -> None:
    table = piled_up(tmp_path, buckets=1, size=20_000)
    (task,) = tasks_of(table)
    size = sum(file.file_size for file in task.files)
    whole = memory_needed(table.store, task)
    assert whole == 190 * MIB + 8 * size
    assert Memory(None, 4).share(table.store, task) == 1
    assert Memory(4 * whole, 4).share(table.store, task) == 1
    small = table.copy({"dredge.merge-budget": "1 mb"}).store
    assert memory_needed(small, task, 2) == (190 * MIB) + MIB // 2
    assert Memory(4 * memory_needed(small, task, 2), 4).share(small, task) == 2
    assert Memory(200 * MIB, 4).share(small, task) == 0  # alone
    assert Memory(150 * MIB, 1).share(small, task) is None


def test_what_does_not_fit_runs_alone_or_is_declined_by_name(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    report = compact_table(spark, table, full=True, executor_memory=100 * MIB)
    assert report.commits == 0
    assert [(item.subject, item.reason) for item in report.declined] == [(f"bucket-{n}", "memory") for n in range(3)]
    assert "needs 190 MiB, an executor has 100 MiB" in report.declined[0].text
    assert compact_table(spark, table, full=True, executor_memory=200 * MIB).commits == 1


def test_memory_that_spark_enforces_is_kept_to() -> None:
    class Conf:
        def __init__(self, **values: str) -> None:
            self.values = {f"spark.{name.replace('_', '.')}": value for name, value in values.items()}

        def get(self, name: str, default: Any = None) -> Any:
            return self.values.get(name, default)

    class Session:
        def __init__(self, conf: Conf) -> None:
            self.conf = conf

    result: Any = Session(Conf(executor_pyspark_memory="2g", executor_cores="8", task_cpus="2"))
    assert Memory.of(result, None) == Memory(2048 * MIB, 4)
    assert Memory.of(result, 512 * MIB) == Memory(512 * MIB, 4)
    assert Memory.of(Session(Conf(executor_pyspark_memory="512", executor_cores="1")), None) == Memory(512 * MIB, 1)  # type: ignore[arg-type]
    assert Memory.of(Session(Conf(executor_cores="3")), None) == Memory(None, 3)  # type: ignore[arg-type]


def test_attempts_that_nobody_answers_for_leave_nothing(tmp_path: Path) -> None:
    """Here the tasks are run by hand: one is slow and doubled, one goes on after the end."""
    table = piled_up(tmp_path, buckets=1)
    (task,) = tasks_of(table)
    before, store = data_files(tmp_path), table.store
    folder, family = WriteFolder.plan(store), "01234567-89ab-cdef"
    units = pa.RecordBatch.from_pydict(
        {"task": [0], "unit": [0], "share": [1], "payload": [task.to_bytes()]}, schema=compaction_job._UNITS
    )

    def attempt() -> list[TaskOutcome]:
        output = compaction_job._compact_units(store.to_json(), family, folder.folder, SPARE, iter([units]))
        return [TaskOutcome(0, batch.column("answer")[0].as_py()) for batch in output]

    attempt()
    (answered,) = attempt()
    late = compaction_job._compact_units(store.to_json(), family, folder.folder, SPARE, iter([units]))
    next(late)  # its files are there
    assert len(data_files(tmp_path) - before) == 3
    result = compaction_job.BucketResult.from_bytes(answered.answer)
    folder.end(family, [result.message], {store.bucket_dir(task.partition, task.bucket)})
    made = {path.name for path in data_files(tmp_path) - before}
    assert made == {file.file_name for file in result.message.compact_after}
    with pytest.raises(SparkFailed, match="the write was ended while this task ran"):
        next(late)
    assert {path.name for path in data_files(tmp_path) - before} == made
    assert not list(tmp_path.rglob("staged/*"))
