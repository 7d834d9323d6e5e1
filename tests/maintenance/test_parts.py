"""Work in parts (`TaskRunner`): plans and reports of large tables are those of one process, however the work is cut and whatever runs twice."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog, Table
from lsm_core.clock import FixedClock
from lsm_core.errors import CorruptFile, PlanRefused, SparkFailed
from lsm_core.maintenance import apply_plan, plan_maintenance, used_files
from lsm_core.maintenance.action import TaskRunner
from lsm_core.maintenance.actions import expire_snapshots, sweep_trash
from lsm_core.maintenance.actions.orphans import orphan_removal
from lsm_core.maintenance.actions.orphans.survey import Survey
from tests.maintenance.tables import HOUR, NOW, assert_whole, catalog, content, keyed, on_disk, rows, tag

DAY = 24 * HOUR
_UUID = "4f5d7a0e-5b1c-4c5f-9d3a-0123456789ab"
STRAYS = (
    f"dt=a/bucket-0/data-{_UUID}-0.parquet",
    f"dt=a/bucket-1/data-{_UUID}-1.parquet",
    f"dt=gone/bucket-0/changelog-{_UUID}-0.orc",
    f"manifest/manifest-{_UUID}-0",
    f"index/index-{_UUID}-0",
    f"schema/.schema-1.{_UUID}.tmp",
)
STRANGE = ("notes.txt", "dt=a/readme", "dt=b/bucket-0/data.parquet", "dt=b/other/x", "manifest/x", "other/x")


class Parts:
    """Runs parts here, from a copy of the work, which travelled."""

    def slots(self) -> int:
        return 3

    def __init__(self) -> None:
        self.done: list[str] = []

    def __call__(self, store: Any, tasks: Any, /) -> Any:
        raise AssertionError("there is nothing to compact")

    def run_parts(self, what: str, work: Callable[[bytes], bytes], parts: Sequence[bytes]) -> list[bytes]:
        self.done += [what] * len(parts)
        travelled: Callable[[bytes], bytes] = pickle.loads(pickle.dumps(work))
        return [travelled(part) for part in parts]


class Dying(Parts):
    """The worker of the second part dies when its work is done."""

    def run_parts(self, what: str, work: Callable[[bytes], bytes], parts: Sequence[bytes]) -> list[bytes]:
        super().run_parts(what, work, parts[:2])
        if what.startswith("deleting"):
            raise SparkFailed(what, "Python worker exited unexpectedly")
        return super().run_parts(what, work, parts)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (orphan_removal, "LISTED_HERE"),
        (used_files, "LOOKED_AT_HERE"),
        (expire_snapshots, "LOOKED_AT_HERE"),
        (sweep_trash, "DELETED_HERE"),
    ):
        monkeypatch.setattr(module, name, 0)
    for module, name in (
        (orphan_removal, "FOLDERS_A_PART"),
        (used_files, "SNAPSHOTS_A_PART"),
        (expire_snapshots, "SNAPSHOTS_A_PART"),
        (sweep_trash, "FILES_A_PART"),
    ):
        monkeypatch.setattr(module, name, 1)


def grown(root: Path, partitioned: bool = True, **options: str) -> Table:
    """A table with a history: compacted files, a tag, a branch; all of its files are old, and some are strays."""
    table = keyed(root, partitioned=partitioned, bucket="2", **options)
    for turn in range(4):
        for dt in "ab" if partitioned else [None]:
            table.write(rows(range(turn, turn + 8), v=turn, dt=dt))
    tag(table, "kept", 3)
    table.compact(full=True)
    table.create_branch("dev", "kept")
    for name in (*STRAYS, *STRANGE):
        path = Path(table.store.root) / (name.partition("/")[2] if name.startswith("dt=") and not partitioned else name)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * len(name))
    changed = (NOW - 3 * DAY) * 1_000_000
    for path in Path(table.store.root).rglob("*"):
        os.utime(path, ns=(changed, changed))
    young = Path(table.store.root) / f"manifest/manifest-{_UUID}-7"
    young.write_bytes(b"young")
    os.utime(young, ns=((NOW - HOUR) * 1_000_000,) * 2)
    return table


def opened(root: Path) -> Table:
    return Catalog(root / "wh", clock=FixedClock(NOW)).table("db.t")


def plain(report: Any) -> Any:
    return replace(report, seconds=0.0, run_id="")


@pytest.mark.parametrize("partitioned", [True, False])
def test_orphans_are_planned_by_parts_as_by_one_process(tmp_path: Path, partitioned: bool) -> None:
    table = grown(tmp_path, partitioned)
    runner = Parts()
    assert isinstance(runner, TaskRunner)
    whole = table.plan_maintenance("orphans", max_share=60)
    assert {item.path.rpartition("/")[2] for item in whole.items} == {name.rpartition("/")[2] for name in STRAYS}
    assert {element.reason for element in whole.declined} == {"young", "held", "unknown"}
    parts = plan_maintenance(table.store, "orphans", runner, max_share=60)
    assert parts == whole and parts.hash == whole.hash
    assert len(runner.done) == 3 and set(runner.done) == {"listing the files of table db.t"}
    with pytest.raises(PlanRefused, match="more than 5 %"):
        plan_maintenance(table.store, "orphans", runner, max_share=5)


def test_a_folder_that_a_part_does_not_see_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(tmp_path)
    plain_survey = Survey.from_bytes

    def less(data: bytes) -> Survey:
        found = plain_survey(data)
        return replace(found, filled={folder for folder in found.filled if "dt=b" not in folder})

    monkeypatch.setattr(Survey, "from_bytes", less)
    with pytest.raises(PlanRefused, match=r"dt=b/bucket-\d has \d+ live files, of which none was listed"):
        plan_maintenance(table.store, "orphans", Parts(), max_share=60)
    monkeypatch.undo()
    with pytest.raises(CorruptFile, match="survey of files"):
        Survey.from_bytes(b"no survey")


@pytest.mark.parametrize("mode", ["two-phase", "direct"])
def test_orphans_and_snapshots_go_by_parts_as_by_one_process(tmp_path: Path, mode: str) -> None:
    grown(tmp_path, dredge__delete_mode=mode)
    shutil.copytree(tmp_path / "wh", tmp_path / "kept")
    runner, records = Parts(), []
    for by in (None, runner):
        if by is not None:  # the same table at the same place
            shutil.move(tmp_path / "wh", tmp_path / "done")
            shutil.move(tmp_path / "kept", tmp_path / "wh")
        table = opened(tmp_path)
        reports = []
        for action, asked in (("orphans", {"max_share": 60}), ("expire_snapshots", {"retain_max": 2, "retain_min": 1})):
            plan = plan_maintenance(table.store, action, by, **asked)
            reports.append((plan, plain(apply_plan(table.store, plan, by))))
        table.store.clock.advance(2 * DAY)  # type: ignore[attr-defined]
        swept = apply_plan(table.store, plan_maintenance(table.store, "trash", by), by)
        assert swept.changed is (mode == "two-phase") and all(report.changed for _, report in reports)
        assert_whole(table)
        records.append((reports, plain(swept), set(on_disk(table, without=("dredge/",))), content(table)))
    assert records[0] == records[1]
    assert set(runner.done) == {
        "listing the files of table db.t",
        "looking for files of expiring snapshots of table db.t",
        "looking for files in use of table db.t",
        "deleting files of table db.t",
    }


def test_a_worker_that_dies_while_it_deletes_leaves_the_rest_to_the_next_sweep(tmp_path: Path) -> None:
    table = grown(tmp_path, dredge__delete_mode="direct")
    before = content(table)
    plan = plan_maintenance(table.store, "orphans", max_share=60)
    with pytest.raises(SparkFailed, match="deleting files of table db"):
        apply_plan(table.store, plan, Dying())
    left = [item for item in plan.items if (Path(table.store.root) / item.path).exists()]  # type: ignore[attr-defined]
    assert 0 < len(left) < len(plan.items)
    swept = table.sweep_trash()
    assert (swept.files_deleted, swept.files_missing) == (len(left), len(plan.items) - len(left))
    assert not plan_maintenance(table.store, "orphans").items and content(table) == before
    assert_whole(table)


def test_an_expiry_that_keeps_changelogs_is_planned_by_parts_as_by_one_process(tmp_path: Path) -> None:
    table = keyed(
        tmp_path, changelog_producer="input", changelog__num_retained__max="100", changelog__num_retained__min="50"
    )
    for turn in range(6):
        table.write(rows(range(turn, turn + 4), v=turn))
    table.compact(full=True)
    tag(table, "kept", 2)
    asked = {"retain_max": 1, "retain_min": 1}
    whole = table.plan_maintenance("expire_snapshots", **asked)
    assert whole.items and plan_maintenance(table.store, "expire_snapshots", Parts(), **asked) == whole
    apply_plan(table.store, whole)
    once = (
        catalog(tmp_path).table("db.t").copy({"changelog.num-retained.max": None, "changelog.num-retained.min": None})
    )
    once.write(rows([1], v=9))
    whole = once.plan_maintenance("expire_snapshots", **asked)
    assert whole.items and plan_maintenance(once.store, "expire_snapshots", Parts(), **asked) == whole
