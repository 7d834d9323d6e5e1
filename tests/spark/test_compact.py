"""Compaction on Spark: the same rows as before, a task per bucket, nothing on the driver, nothing half published."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.compact import BucketTask
from lsm_core.errors import CorruptFile, SparkFailed, UnsupportedFeature
from lsm_core.format.snapshot import CommitKind
from lsm_core.metadata.manifests import index_entries
from lsm_core.spark import compact_table, expire_snapshots, spark_runner, spark_tasks
from lsm_core.spark.spark_maintenance import apply_compaction
from tests.spark.tables import data_files, live_paths, make_table, rows, same
from tests.support.spark import EventLog, TracedSession, kill_when

pytestmark = pytest.mark.spark


def piled_up(root: Path, commits: int = 5, size: int = 300) -> Table:
    """A table with that many overlapping commits, the last of them deletes."""
    table = make_table(root)
    for number in range(commits - 1):
        start = number * size // 3
        table.write(rows(list(range(start, start + size)), f"c{number}"))
    gone = list(range(10, 40))
    table.write(rows(gone, "gone"), row_kinds=pa.array(["-D"] * len(gone)))
    return table


@pytest.mark.parametrize("full", [False, True])
def test_a_compaction_changes_no_answer_and_makes_one_commit(spark: Any, tmp_path: Path, full: bool) -> None:
    table = piled_up(tmp_path)
    before = table.to_arrow()
    report = compact_table(spark, table, full=full)
    assert same(before, table.to_arrow())
    latest = table.latest_snapshot()
    assert latest is not None
    assert (latest.id, latest.commit_kind) == (6, CommitKind.COMPACT)
    assert (report.snapshot_id, report.base_snapshot, report.commits) == (6, 5, 1)
    assert report.verification.level == "V2"
    assert (report.runs_before, report.runs_after) == (5, 1)
    assert report.rows_in - report.rows_out == sum(report.rows_dropped.values())
    assert report.rows_dropped["delete-at-bottom"] > 0
    entry = table.ledger()[0]
    assert len(table.ledger()) == 1
    assert report.executors == (f"the driver on {socket.gethostname()}",)
    for line in entry.lines:
        assert line["written_by"] == dict.fromkeys([name for name, _ in line["outputs"]], *report.executors)


@pytest.mark.parametrize(
    ("parents", "variable", "expected"),
    [
        (
            [["python", "-m", "pyspark.daemon"], ["java", "-Xmx1g", "--executor-id", "7", "--cores", "2"]],
            "",
            "executor 7",
        ),
        ([["bash"], ["java", "org.apache.spark.deploy.SparkSubmit", "shell"]], "", "the driver"),
        ([["bash"], ["init"]], "", "an executor"),
        ([], "12", "executor 12"),
    ],
)
def test_a_task_knows_its_executor(
    monkeypatch: pytest.MonkeyPatch, parents: list[list[str]], variable: str, expected: str
) -> None:
    monkeypatch.setattr(spark_tasks, "_parents", lambda: iter(parents))
    monkeypatch.setenv("SPARK_EXECUTOR_ID", variable)
    assert spark_tasks.this_executor.__wrapped__() == f"{expected} on {socket.gethostname()}"


@pytest.mark.parametrize("full", [False, True])
def test_tasks_mark_rows_and_take_marked_ones_out(spark: Any, tmp_path: Path, full: bool) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    options = {"bucket": "2", "deletion-vectors.enabled": "true"}
    table = catalog.create_table("db.t", Schema(columns, ["k"], [], options))
    for value, keys in ((0, range(8000)), (1, range(100, 200)), (2, range(150, 250))):
        table.write({"k": list(keys), "v": [value * 1_000_003 + key * 7919 % 1_000_003 for key in keys]})
        if value < 2:
            table.compact()
    report = compact_table(spark, table, full=full)
    assert report.verification.level == "V2"
    found = {row["k"]: row["v"] // 1_000_003 for row in table.to_arrow().to_pylist()}
    expected = {
        **dict.fromkeys(range(8000), 0),
        **dict.fromkeys(range(100, 200), 1),
        **dict.fromkeys(range(150, 250), 2),
    }
    assert found == expected
    latest = table.latest_snapshot()
    assert latest is not None
    marked = sum(entry.row_count for entry in index_entries(table.store, latest))
    assert (marked == 0) == full


def test_a_healthy_table_is_left_alone_with_a_reason_for_every_bucket(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path, commits=2)
    report = compact_table(spark, table)
    assert report.commits == 0
    assert [d.subject for d in report.declined] == ["bucket-0", "bucket-1", "bucket-2"]
    assert len(table.snapshots()) == 2


def test_only_the_chosen_bucket_is_compacted(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    report = compact_table(spark, table, full=True, buckets=[1])
    assert report.files_in == 5
    assert [h.sorted_runs for h in sorted(table.health(), key=lambda h: h.bucket)] == [5, 1, 5]


def test_append_tables_have_their_small_files_joined(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path, primary_keys=())
    for number in range(6):
        table.write(rows([number, number]))
    before = table.to_arrow()
    report = compact_table(spark, table)
    assert (report.files_in, report.files_out) == (6, 1)
    assert same(before, table.to_arrow())


def test_a_task_per_bucket_and_no_table_data_on_the_driver(traced: TracedSession, tmp_path: Path) -> None:
    table = piled_up(tmp_path, size=20_000)
    stored = sum(path.stat().st_size for path in live_paths(table))
    log = EventLog(traced.events)
    compact_table(traced.spark, table, full=True)
    stages = log.stages()
    assert stages[-1].tasks == 3
    sent = sum(sum(stage.result_bytes) for stage in stages)
    assert sent < 60_000 < stored


def test_a_lone_big_bucket_is_compacted_by_a_task_per_piece(traced: TracedSession, tmp_path: Path) -> None:
    table = make_table(tmp_path, options={"bucket": "1", "dredge.compaction.piece-size": "1 kb"})
    for number in range(3):
        table.write(rows(list(range(number * 20_000, number * 20_000 + 50_000)), f"c{number}"))
    before, log = table.to_arrow(), EventLog(traced.events)
    report = compact_table(traced.spark, table, full=True)
    assert log.stages()[-1].tasks == report.files_out > 1
    assert (report.files_in, report.rows_in, report.rows_out, report.runs_after) == (3, 150_000, 90_000, 1)
    assert report.verification.level == "V2"
    assert same(before, table.to_arrow())


@pytest.mark.parametrize(
    ("size", "group", "piece"),
    [(2_000, "1 kb", "32 mb"), pytest.param(60_000, "20 kb", "1 kb", marks=pytest.mark.soak)],
    ids=["whole", "pieces"],
)
def test_row_groups_that_meet_no_key_are_copied_by_the_tasks(
    spark: Any, tmp_path: Path, size: int, group: str, piece: str
) -> None:
    """The rows, row groups and statistics are those of a compaction in one process."""
    options = {
        "bucket": "1",
        "write-only": "true",
        "parquet.block.size": group,
        "dredge.compaction.exact-keys": "always",
        "dredge.compaction.piece-size": piece,
    }
    table = make_table(tmp_path / "here", options=options)
    table.write(rows(list(range(0, size, 2)), "top"))
    table.compact(full=True)
    changed = [*range(size // 4, size // 4 + 30), *range(size // 2, size // 2 + 30, 3), size + 7]
    table.write(rows(changed, "new"))
    table.write(rows([0, size // 4], "gone"), row_kinds=["-D", "-D"])
    shutil.copytree(tmp_path / "here", tmp_path / "spark")
    on_spark = Catalog(str(tmp_path / "spark")).table("db.t")
    before = table.to_arrow()
    reports = [compact_table(spark, on_spark, full=True), table.compact(full=True)]
    for report in reports:
        assert report.groups_spliced > 5
        assert 0 < report.bytes_spliced < report.bytes_out
        assert report.verification.level == "V2"
    assert (reports[0].rows_in, reports[0].rows_out) == (reports[1].rows_in, reports[1].rows_out)
    assert (reports[0].files_out > 1) == (piece == "1 kb")
    (line,) = on_spark.ledger()[-1].lines
    assert line["groups_spliced"] == reports[0].groups_spliced
    assert same(before, on_spark.to_arrow())
    assert same(before, table.to_arrow())
    assert all(check.passed for check in on_spark.check())


def test_a_damaged_input_is_named_and_nothing_is_left_behind(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    victim = live_paths(table)[0]
    victim.write_bytes(victim.read_bytes()[:-100])
    files = data_files(tmp_path)
    with pytest.raises(CorruptFile, match=victim.name):
        compact_table(spark, table, full=True)
    assert data_files(tmp_path) == files
    assert len(table.snapshots()) == 5


def test_a_killed_task_publishes_nothing_and_a_retry_works(traced: TracedSession, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    before, files = table.to_arrow(), set(live_paths(table))
    everything = data_files(tmp_path)
    place = str(Path(table.store.root))

    def writes(entry: dict[str, Any]) -> bool:
        path = entry["path"]
        return bool(
            entry["event"] == "begin" and path.startswith(place) and "bucket-" in path and Path(path) not in files
        )

    killer = kill_when(traced.trace, writes)
    with pytest.raises(SparkFailed, match=r"compacting table db\.t: Python worker exited"):
        compact_table(traced.spark, table, full=True)
    killer.join(5)
    assert len(killer.killed) == 1  # type: ignore[attr-defined]
    assert len(table.snapshots()) == 5
    assert data_files(tmp_path) == everything
    assert not list(tmp_path.rglob("staged/*"))
    assert same(before, table.to_arrow())
    assert compact_table(traced.spark, table, full=True).snapshot_id == 6
    assert same(before, table.to_arrow())


def test_a_plan_made_elsewhere_is_applied_as_it_stands(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    plan = table.plan_maintenance("compact")
    table.write(rows([7], "late"))
    before = table.to_arrow()
    report = apply_compaction(spark, table, type(plan).from_json(plan.to_json()), approved_by="a person")
    assert report.plan_hash == plan.hash
    assert same(before, table.to_arrow())


def test_a_plan_of_another_action_is_not_applied_as_a_compaction(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    plan = table.plan_maintenance("create_tag", tag="t")
    with pytest.raises(UnsupportedFeature, match="create_tag"):
        apply_compaction(spark, table, plan)
    assert not table.tags()


def test_the_runner_speaks_the_protocol_of_maintenance(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    asked: list[list[BucketTask]] = []
    inner = spark_runner(spark)

    def watched(store: Any, tasks: Any) -> Any:
        asked.append(list(tasks))
        return inner(store, tasks)

    from lsm_core.maintenance import apply_plan

    apply_plan(table.store, table.plan_maintenance("compact"), watched)
    assert [task.bucket for task in asked[0]] == [0, 1, 2]


def test_expiry_runs_on_the_driver(traced: TracedSession, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    compact_table(traced.spark, table, full=True)
    log = EventLog(traced.events)
    assert expire_snapshots(traced.spark, table, retain_max=1, retain_min=1, dry_run=True).expired == (1, 2, 3, 4, 5)
    report = expire_snapshots(traced.spark, table, retain_max=1, retain_min=1)
    assert report.expired == (1, 2, 3, 4, 5)
    assert [s.id for s in table.snapshots()] == [6]
    assert log.stages() == []
