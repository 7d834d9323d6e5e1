"""Jobs that look after the files of all tables give what is large to Spark, by the engine's own limits; a small table starts no Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dredge.platform_core import names
from dredge.platform_core.resources import SparkResource
from lsm_core.maintenance import used_files, waiting_plans
from lsm_core.maintenance.action import TaskRunner
from lsm_core.maintenance.actions import expire_snapshots, sweep_trash
from lsm_core.maintenance.actions.orphans import orphan_removal
from tests.support.platform import commit, keyed_table, open_house


class Parts:
    """Runs parts here, and notes what they were for."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def slots(self) -> int:
        return 2

    def __call__(self, store: Any, tasks: Any, /) -> Any:
        raise AssertionError("there is nothing to compact")

    def run_parts(self, what: str, work: Callable[[bytes], bytes], parts: Sequence[bytes]) -> list[bytes]:
        self.done.append(what)
        return [work(part) for part in parts]


def test_retention_and_plans_of_orphans_run_parts_on_spark_where_a_table_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "1 h"}
    table = keyed_table(tmp_path / "wh", "shop.t", partitioned=False, **kept, **{"dredge.delete-mode": "direct"})
    commit(table, 4)
    table.compact(full=True)
    before, parts = table.to_arrow(), Parts()
    monkeypatch.setattr(SparkResource, "task_runner", lambda _: parts)
    stray = Path(table.store.root, "bucket-0", "data-00000000-0000-0000-0000-000000000000-0.parquet")
    stray.write_bytes(b"x")
    os.utime(stray, (0, 0))
    with open_house(tmp_path / "wh") as house:
        assert house.execute(names.ORPHAN_PLANS_JOB).success
        assert parts.done == [], "256 folders, 256 snapshots and 10,000 files are looked at by the run's own process"
        here = ((orphan_removal, "LISTED_HERE"), (used_files, "LOOKED_AT_HERE"), (expire_snapshots, "LOOKED_AT_HERE"))
        for module, name in (*here, (sweep_trash, "DELETED_HERE")):
            monkeypatch.setattr(module, name, 0)
        assert house.execute(names.ORPHAN_PLANS_JOB).success
        assert set(parts.done) == {"listing the files of table shop.t"}
        (waiting,) = waiting_plans(table.store)
        assert [item.path.rpartition("/")[2] for item in waiting.plan.items] == [stray.name]
        parts.done.clear()
        assert house.execute(names.RETENTION_JOB).success
    assert "deleting files of table shop.t" in parts.done and len(set(parts.done)) > 1, "planned by them, too"
    assert [snapshot.id for snapshot in table.snapshots()] == [5]
    assert len(list(Path(table.store.root).glob("bucket-0/*.parquet"))) == 2, (
        "the live one, and what waits for approval"
    )
    assert table.to_arrow().equals(before)


def test_a_session_is_made_with_the_first_work(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(SparkResource, "session", lambda _: made.append("a session") or pytest.fail("it was asked for"))
    runner = SparkResource(runner="spark").task_runner()
    assert isinstance(runner, TaskRunner) and made == []
    with pytest.raises(pytest.fail.Exception):
        runner.slots()
    assert made == ["a session"]
    assert SparkResource(runner="local").task_runner() is None
    assert SparkResource(runner="pipes", submit=["true"]).task_runner() is None
