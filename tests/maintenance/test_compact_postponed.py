"""Compactions of tables of postponed buckets: rows that wait get their buckets first, whoever asks, and a second try finds what is left."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.cli.app import run
from lsm_core.errors import StorageFull
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance import count_assigned_rows
from lsm_core.maintenance.actions.compact import execution
from lsm_core.metadata.store import POSTPONE_BUCKET
from tests.support.stores import live_files


def made(root: Path, **options: str) -> Table:
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    given = {"bucket": "-2", "postpone.default-bucket-num": "2", **options}
    return catalog.create_table("db.t", Schema(fields, ["k"], [], given))


def write(table: Table, value: int, keys: range = range(20)) -> None:
    table.write(pa.table({"k": keys, "v": [value] * len(keys)}))


def content(table: Table) -> dict[int, int]:
    return {row["k"]: row["v"] for row in table.to_arrow().to_pylist()}


def test_a_compaction_gives_buckets_and_then_merges_by_the_same_arguments(tmp_path: Path) -> None:
    table = made(tmp_path)
    for value in range(3):
        write(table, value)
    plan = table.plan_maintenance("compact")
    assert [item.cells()[:4] for item in plan.items] == [("-", 2, 3, 60)]
    assert (plan.estimate.rows_in, plan.estimate.files_in, plan.estimate.tasks) == (60, 3, 1)
    report = table.compact(full=True)
    assert (report.rows_assigned, report.commits, report.snapshot_id, report.runs_after) == (60, 2, 5, 1)
    assert content(table) == dict.fromkeys(range(20), 2)
    assert [snapshot.commit_kind for snapshot in table.snapshots()[3:]] == [CommitKind.COMPACT] * 2
    assert [count_assigned_rows(table.store, number) for number in range(1, 6)] == [0, 0, 0, 60, 0]
    assert {(bucket, file.level) for (_, bucket), files in live_files(table.store).items() for file in files} == {
        (0, 5),
        (1, 5),
    }
    assert table.compact().commits == 0
    (entry,) = table.ledger()
    assert [line["event"] for line in entry.lines] == ["assigned", "compacted", "compacted"]


def test_a_batch_gets_its_buckets_at_once_where_the_option_asks_for_it(tmp_path: Path) -> None:
    table = made(tmp_path)
    write(table, 1)
    assert content(table) == {}  # rows wait where the option is not set
    batches = table.copy({"postpone.batch-write-fixed-bucket": "true"})
    write(batches, 2, range(10))
    assert content(table) == {key: 2 if key < 10 else 1 for key in range(20)}  # what waited came first
    assert [snapshot.commit_kind for snapshot in table.snapshots()] == [
        CommitKind.APPEND,
        CommitKind.APPEND,
        CommitKind.COMPACT,
    ]
    assert {bucket for _, bucket in live_files(table.store)} == {0, 1}
    write(table.copy({"postpone.batch-write-fixed-bucket": "false"}), 3)
    assert content(table)[0] == 2
    with batches.new_stream_write("job") as stream:  # streams postpone, as in Java
        stream.write(pa.table({"k": [0], "v": [4]}))
        batches.new_stream_commit("job").commit(stream.prepare_commit(), 1)
    assert content(table)[0] == 2


def test_minor_compactions_leave_few_runs_alone(tmp_path: Path) -> None:
    table = made(tmp_path)
    write(table, 1)
    report = table.compact()
    assert (report.rows_assigned, report.commits, report.files_in) == (20, 1, 0)
    assert report.lines("db.t") == ["snapshot 2: 20 postponed rows got their buckets"]
    assert [d.subject for d in report.declined] == ["bucket-0", "bucket-1"]
    write(table, 2)
    assert table.compact(buckets=[0]).commits == 0
    assert content(table) == dict.fromkeys(range(20), 1)


def test_the_command_line_compacts_and_shows_what_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(made(tmp_path), 1)
    assert run(["plan", "db.t", "--no-save", "-w", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "would assign buckets" in printed and "chosen again once the rows have their buckets" in printed
    assert run(["status", "db.t", "-w", str(tmp_path)]) == 0
    assert "20 postponed rows have no bucket, and no reader sees them: compact it" in capsys.readouterr().out.replace(
        "\n", " "
    )
    assert run(["compact", "db.t", "-w", str(tmp_path)]) == 0
    assert "20 postponed rows got their buckets" in capsys.readouterr().out
    assert run(["status", "db.t", "-w", str(tmp_path)]) == 0
    assert "postponed" not in capsys.readouterr().out


def test_a_compaction_that_stops_halfway_is_taken_up_by_the_same_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    for value in range(6):
        write(table, value)
        table.compact() if value == 2 else None
    for _ in range(3):
        table.apply(table.plan_maintenance("assign_buckets"))
        write(table, 9)
    plan = table.plan_maintenance("compact", full=True)
    assert len(plan.items) == 3

    def full(*_: object, **__: object) -> None:
        raise StorageFull("/disk")

    with monkeypatch.context() as patch:
        patch.setattr(execution, "execute", full)
        with pytest.raises(StorageFull):
            table.apply(plan)
    assert content(table) == dict.fromkeys(range(20), 9)
    again = table.apply(plan)
    assert [item.reason for item in again.declined if item.subject == "table"] == ["stale"]
    assert again.commits == 1 and again.rows_assigned == 0
    assert content(table) == dict.fromkeys(range(20), 9)
    assert not [b for _, b in live_files(table.store) if b == POSTPONE_BUCKET]
    assert table.apply(plan).applied_before is not None
