"""Many tables by one plan: ranked, bounded, each by itself, and gone on with where it stopped."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.errors import CorruptFile, DatabaseNotFound, InvalidOption, PlanStale, TableNotFound
from lsm_core.maintenance.combined import CombinedPlan
from lsm_core.table import whole_database
from lsm_core.table.table import Table
from tests.maintenance.tables import HOUR, NOW, catalog, content, keyed, on_disk, rows


def house(tmp_path: Path) -> Catalog:
    """Three tables that need a compaction, the second most, and one that needs nothing."""
    for name, runs in (("db.a", 5), ("db.b", 9), ("db.c", 6), ("db.idle", 1)):
        table = keyed(tmp_path, name=name, snapshot__num_retained__min="1")
        for number in range(runs):
            table.write(rows(range(number, number + 20), v=number))
    return catalog(tmp_path)


def told(report: Any) -> list[tuple[str, str, str]]:
    return [(line.table, line.action, line.outcome) for line in report.lines]


def test_the_worst_comes_first_and_every_table_has_its_own_commit(tmp_path: Path) -> None:
    warehouse = house(tmp_path)
    before = {name: content(warehouse.table(f"db.{name}")) for name in "abc"}
    plan = warehouse.plan_maintenance("db", ["compact"])
    assert plan.tables[0] == "db.b" and set(plan.tables) == {"db.a", "db.b", "db.c"}
    assert [item.score for item in plan.items] == sorted((item.score for item in plan.items), reverse=True)
    assert plan.items[0].reason.startswith("9 sorted runs >= 5") and plan.items[0].bytes_in > 0
    assert [(element.subject, element.reason) for element in plan.declined] == [("db.idle", "nothing")]
    seen: list[str] = []
    report = warehouse.maintain(plan, approved_by="me", tell=lambda line: seen.append(line.table))
    assert told(report) == [(name, "compact", "done") for name in plan.tables] and seen == list(plan.tables)
    for line in report.lines:
        table = warehouse.table(line.table)
        assert table.latest_snapshot().id == line.snapshot_id and table.ledger()[-1].run_id == line.run_id
        assert table.ledger()[-1].approved_by == "me"
    assert {name: content(warehouse.table(f"db.{name}")) for name in "abc"} == before


def test_a_saved_plan_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = house(tmp_path)
    plan = warehouse.plan_maintenance("db.*", ["compact"])
    real, left = Table, [1]
    del real

    def stops(line: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        warehouse.maintain(plan, tell=stops)
    again = catalog(tmp_path).load_maintenance(plan.hash)
    assert again == plan
    report = catalog(tmp_path).maintain(again)
    assert [line.outcome for line in report.lines] == ["already", "already", "done"]
    assert [warehouse.table(name).latest_snapshot().commit_kind.value for name in plan.tables] == ["COMPACT"] * 3
    assert {line.outcome for line in catalog(tmp_path).maintain(again).lines} == {"already"}
    assert all(len(warehouse.table(name).ledger()) == 1 for name in plan.tables)


def test_one_table_s_failure_is_its_line_and_is_tried_again(tmp_path: Path) -> None:
    warehouse = house(tmp_path)
    plan = warehouse.plan_maintenance("db.?", ["compact"])
    folder = Path(warehouse.table("db.c").store.root)
    shutil.move(folder / "bucket-0", folder / "away")
    shutil.rmtree(Path(warehouse.table("db.a").store.root))
    report = warehouse.maintain(plan)
    outcomes = {line.table: line.outcome for line in report.lines}
    assert outcomes == {"db.a": "failed", "db.b": "done", "db.c": "failed"}
    assert [line.table for line in report.left] == [line.table for line in report.failed]
    assert "TableNotFound" in next(line.text for line in report.lines if line.table == "db.a")
    shutil.move(folder / "away", folder / "bucket-0")
    assert {line.table: line.outcome for line in warehouse.maintain(plan).lines} == {
        "db.a": "failed",
        "db.b": "already",
        "db.c": "done",
    }


def test_a_table_that_cannot_be_planned_hides_no_other(tmp_path: Path) -> None:
    warehouse = house(tmp_path)
    Path(warehouse.table("db.b").store.snapshot_path(9)).write_text("no snapshot")
    plan = warehouse.plan_maintenance("*.*", ["compact"])
    assert set(plan.tables) == {"db.a", "db.c"}
    (broken,) = [item for item in plan.declined if item.reason == "failed"]
    assert broken.subject == "db.b" and "CorruptFile" in broken.text


def test_limits_leave_the_rest_for_later(tmp_path: Path) -> None:
    warehouse = house(tmp_path)
    whole = warehouse.plan_maintenance("db", ["compact"], save=False)
    sizes = {item.table: item.bytes_in for item in whole.items}
    first = warehouse.plan_maintenance("db", ["compact"], max_tables=1)
    assert first.tables == ("db.b",)
    assert {(x.subject, x.reason) for x in first.declined if x.reason != "nothing"} == {
        ("db.a", "later"),
        ("db.c", "later"),
    }
    assert first.hash != whole.hash
    # What is too much keeps nothing smaller from its turn.
    small = warehouse.plan_maintenance("db", ["compact"], max_bytes=sizes["db.a"])
    assert small.tables == ("db.a",)
    assert any("beyond max_bytes" in x.text for x in small.declined)
    assert warehouse.plan_maintenance("db", ["compact"], max_bytes="1 gb").tables == whole.tables
    assert warehouse.plan_maintenance("db", ["compact"], max_time="50 ms").tables == ()
    timed = warehouse.plan_maintenance("db", ["compact"], max_time=3_600_000)
    spent = CombinedPlan(timed.pattern, timed.actions, timed.items, limits=type(timed.limits)(max_seconds=0.0))
    assert {line.outcome for line in warehouse.maintain(spent).lines} == {"later"}
    for name, value in (("max_bytes", -1), ("max_tables", 0), ("max_time", "soon")):
        with pytest.raises(InvalidOption, match=name):
            warehouse.plan_maintenance("db", **{name: value})


def test_the_routine_expires_and_sweeps_too(tmp_path: Path) -> None:
    warehouse = house(tmp_path)
    warehouse.maintain("db")
    later = Catalog(tmp_path / "wh", clock=f"fixed:{NOW + 2 * HOUR}")
    first = later.plan_maintenance("db")
    assert {item.action for item in first.items} == {"expire_snapshots"} and first.items[0].bytes_freed > 0
    assert {line.outcome for line in later.maintain(first).lines} == {"done"}
    swept = Catalog(tmp_path / "wh", clock=f"fixed:{NOW + 9 * HOUR}").maintain("db")
    assert {(line.action, line.outcome) for line in swept.lines} == {("trash", "done")}


def test_what_changed_since_is_stale_and_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    warehouse = house(tmp_path)
    before = {name: on_disk(warehouse.table(f"db.{name}")) for name in "abc"}
    warehouse.plan_maintenance("db", save=False)
    assert {name: on_disk(warehouse.table(f"db.{name}")) for name in "abc"} == before
    assert not (tmp_path / "wh" / "dredge").exists()
    plan = warehouse.plan_maintenance("db.a", ["compact"])
    warehouse.table("db.a").write(rows([1]))
    warehouse.table("db.a").compact(full=True)
    (line,) = warehouse.maintain(plan).lines
    assert line.outcome in {"stale", "nothing"}
    assert warehouse.table("db.a").latest_snapshot().id == 7


def test_names_and_plans_that_are_none_are_refused(tmp_path: Path) -> None:
    warehouse = house(tmp_path)
    with pytest.raises(TableNotFound, match=r"matches nope\.\*"):
        warehouse.plan_maintenance("nope.*")
    with pytest.raises(DatabaseNotFound, match="nope"):
        warehouse.plan_maintenance("nope")
    with pytest.raises(TableNotFound, match="nope"):
        warehouse.plan_maintenance("db.nope")
    with pytest.raises(InvalidOption, match="'wash'"):
        warehouse.plan_maintenance("db", ["wash"])
    with pytest.raises(InvalidOption, match="this one needs trash_id"):
        warehouse.plan_maintenance("db", ["restore"])
    for wrong in ("../x", "f" * 31, 7):
        with pytest.raises(InvalidOption, match="plan hash"):
            warehouse.load_maintenance(wrong)  # type: ignore[arg-type]
    with pytest.raises(PlanStale, match="no saved plan"):
        warehouse.load_maintenance("f" * 32)
    plan = warehouse.plan_maintenance("db", ["compact"])
    (path,) = (tmp_path / "wh" / "dredge" / "plans").iterdir()
    text = path.read_text()
    assert CombinedPlan.from_json(text) == plan
    path.write_text(text.replace('"db.a"', '"db.idle"'))
    with pytest.raises(PlanStale, match="changed after planning"):
        warehouse.load_maintenance(plan.hash)
    for damage in ("", "[]", "{}", text[:100]):
        path.write_text(damage)
        with pytest.raises(CorruptFile, match=plan.hash):
            warehouse.load_maintenance(plan.hash)
    assert whole_database.tables_matching(warehouse, "*.idle") == ["db.idle"]
