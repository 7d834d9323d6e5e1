"""A writer that waits for its compactions says so in the ledger and in the metrics, and its entry is no run of maintenance."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.compact import BucketTask, run_bucket_task
from lsm_core.maintenance.ledger import read_ledger
from lsm_core.maintenance.metrics import table_samples
from lsm_core.write import Compactor
from tests.cli.shell import Shell

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])


class Lazy(Future[Any]):
    """A compaction that begins when somebody waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.set_result(self._work())
        return super().result(timeout)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    def submit(self: Compactor, task: BucketTask) -> Future[Any]:
        return Lazy(lambda: run_bucket_task(self.store, task, self.judge, pipelined=False))

    monkeypatch.setattr(Compactor, "submit", submit)
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "2"}
    return catalog.create_table("db.t", Schema(FIELDS, ["k"], [], options))


def commits(table: Table, count: int) -> None:
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        for number in range(count):
            writer.write(pa.table({"k": range(20), "v": [number] * 20}, FIELDS))
            commit.commit(writer.prepare_commit(), number)


def test_waits_of_a_writer_are_an_entry_of_the_ledger_and_two_metrics(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commits(table, 8)
    (entry,) = [item for item in table.ledger() if item.action == "write_stall"]
    stalls, seconds = int(entry.report["stalls"]), float(entry.seconds or 0.0)
    assert stalls >= 1 and 0 < seconds <= stalls * 10
    assert (entry.report["stop_trigger"], entry.report["commit_user"]) == (2, "job")
    assert [line["bucket"] for line in entry.lines] == ["bucket-0"] and entry.report["sorted_runs"] > 2
    assert all(item.action != "write_stall" for item in read_ledger(table.store))
    samples = {sample.metric: sample.value for sample in table_samples(table.store, 0)}
    assert samples["dredge_write_stalls"] == stalls and samples["dredge_write_stall_seconds"] == seconds
    assert not [item for item in table_samples(table.store, 0) if item.labels.get("action") == "write_stall"]
    shell = Shell(tmp_path / "wh", capsys)
    assert f"{stalls} waits for a compaction" in shell("ledger", "db.t").out


def test_a_writer_that_never_waits_says_nothing(table: Table) -> None:
    commits(table.copy({"num-sorted-run.stop-trigger": "100"}), 3)
    assert [entry for entry in table.ledger() if entry.action == "write_stall"] == []
    assert {entry.metric: entry.value for entry in table_samples(table.store, 0)}["dredge_write_stalls"] == 0
