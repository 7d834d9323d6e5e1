"""Saved plans do not pile up: old ones that nobody can apply any more go, those that somebody may wait for stay."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest

from lsm_core import Table
from lsm_core.errors import InvalidOption, PlanStale, StorageRefused
from lsm_core.maintenance import hold_plan, saved_plans, waiting_plans
from lsm_core.maintenance.action import MaintenancePlan
from tests.maintenance.tables import HOUR, keyed, rows

DAY = 24 * 3600


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows(range(i * 10, i * 10 + 30), v=i))
    return table


def path_of(table: Table, plan: MaintenancePlan) -> Path:
    return Path(table.store.root) / "dredge" / "plans" / f"{plan.hash}.json"


def aged(table: Table, plan: MaintenancePlan, seconds: int = DAY + 60) -> MaintenancePlan:
    """``plan``, saved so long ago."""
    table.save_plan(plan)
    then = time.time() - seconds
    os.utime(path_of(table, plan), (then, then))
    return plan


def save_another(table: Table) -> MaintenancePlan:
    plan = table.plan_maintenance("expire_snapshots", retain_max=1, max_deletes=1)
    table.save_plan(plan)
    return plan


def plan_of(table: Table, action: str) -> MaintenancePlan:
    """A plan of ``action`` that can be applied now."""
    arguments: dict[str, object] = {"expire_snapshots": {"retain_max": 2}, "rescale": {"bucket_num": 2}}.get(action, {})
    if action in {"trash", "restore"}:
        trash_id = table.expire_snapshots(retain_max=3).trash_id
        table.store.clock.advance(2 * HOUR)
        arguments = {"trash_id": trash_id} if action == "restore" else {}
    plan = table.plan_maintenance(action, **arguments)
    assert plan.items
    return plan


@pytest.mark.parametrize("action", ["compact", "rescale", "expire_snapshots", "trash", "restore"])
def test_an_old_plan_stays_until_it_is_applied_and_then_goes(table: Table, action: str) -> None:
    plan = aged(table, plan_of(table, action))
    following = table.plan_maintenance("compact", full=True)  # commits nothing: the first one fits
    table.save_plan(following)
    assert set(table.saved_plans()) == {plan.hash, following.hash}
    assert table.apply(table.load_plan(plan.hash)).changed
    # Whoever names it is told, from its file or, once that is gone, from the ledger.
    assert table.apply(table.load_plan(plan.hash)).applied_before is not None
    last = save_another(table)
    assert plan.hash not in table.saved_plans() and last.hash in table.saved_plans()
    with pytest.raises(PlanStale, match=f"no saved plan with hash {plan.hash}; it is already applied, (snapshot|run) "):
        table.load_plan(plan.hash)


@pytest.mark.parametrize("action", ["compact", "rescale", "expire_snapshots", "trash", "restore"])
def test_an_old_plan_that_others_forestalled_goes(table: Table, action: str) -> None:
    plan = aged(table, plan_of(table, action))
    if action == "compact":
        table.compact(full=True)
    elif action == "rescale":
        table.write(rows([1], v=9))
    elif action == "expire_snapshots":
        table.expire_snapshots(retain_max=1)
    elif action == "trash":
        table.restore(table.plan_maintenance("trash").items[0].trash_id)
    else:
        table.sweep_trash()
    save_another(table)
    assert plan.hash not in table.saved_plans()
    with pytest.raises(PlanStale, match=f"no saved plan with hash {plan.hash}$"):
        table.load_plan(plan.hash)


def test_a_young_plan_stays_whatever_became_of_it(table: Table) -> None:
    plan = aged(table, table.plan_maintenance("compact"), DAY - 600)
    table.apply(plan)
    save_another(table)
    assert table.load_plan(plan.hash) == plan


def test_what_is_no_plan_of_this_code_goes_and_other_files_stay(table: Table) -> None:
    plan = aged(table, table.plan_maintenance("compact"))
    folder, then = path_of(table, plan).parent, time.time() - 2 * DAY
    for name in ("ab.json", "cd.json", "notes.txt"):
        (folder / name).write_text('{"version": 1, "action": "compact"}' if name == "ab.json" else "torn")
        os.utime(folder / name, (then, then))
    last = save_another(table)
    assert {path.name for path in folder.iterdir()} == {f"{plan.hash}.json", f"{last.hash}.json", "notes.txt"}


def test_plans_that_fit_are_bounded_too_and_the_oldest_go(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_plans, "MOST_KEPT", 3)
    waiting = []
    for number in range(5):
        table.write(rows([number], v=number))
        waiting.append(aged(table, table.plan_maintenance("compact", full=True), DAY + 600 - number))
    last = save_another(table)
    assert set(table.saved_plans()) == {last.hash, *(plan.hash for plan in waiting[-2:])}


def test_a_plan_is_saved_also_where_old_ones_cannot_be_removed(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = aged(table, table.plan_maintenance("compact"))
    table.apply(plan)

    def refuse(path: str) -> bool:
        raise StorageRefused(path, "read-only", "delete")

    monkeypatch.setattr(table.store.file_io, "delete", refuse)
    with caplog.at_level(logging.WARNING):
        last = save_another(table)
    assert set(table.saved_plans()) == {plan.hash, last.hash}
    assert "table db.t: old saved plans stay: cannot delete " in caplog.text


def test_only_a_plan_for_the_table_is_saved(table: Table, tmp_path: Path) -> None:
    other = keyed(tmp_path, name="db.other")
    with pytest.raises(PlanStale, match=r"made for table db\.t, not db\.other"):
        other.save_plan(table.plan_maintenance("compact"))
    for none in (None, "ab", {}):
        with pytest.raises(InvalidOption, match=r"option 'plan' of table db\.other .* a MaintenancePlan"):
            other.save_plan(none)  # type: ignore[arg-type]
    assert other.saved_plans() == []


def test_plans_that_wait_are_listed_until_they_are_applied_replaced_or_no_longer_fit(table: Table) -> None:
    store = table.store
    part = table.plan_maintenance("compact")
    whole = table.plan_maintenance("compact", full=True)
    assert hold_plan(store, whole, "approval: required") == whole.hash
    first = waiting_plans(store)[0].since_ms
    store.clock.advance(HOUR)
    hold_plan(store, part, "planned only")
    hold_plan(store, whole, "again")
    assert [(plan.plan.hash, plan.since_ms, plan.why) for plan in waiting_plans(store)] == [
        (whole.hash, first, "approval: required"),
        (part.hash, first + HOUR, "planned only"),
    ]
    table.write(rows(range(5), v=9))
    later = table.plan_maintenance("compact", full=True)
    hold_plan(store, later, "approval: required")  # of the same request the newest is listed; the older one stays saved
    assert {plan.plan.hash for plan in waiting_plans(store)} == {part.hash, later.hash}
    assert whole.hash in table.saved_plans()
    table.apply(table.load_plan(later.hash))
    assert not waiting_plans(store), "applied, and the files of the other are gone"


def test_a_note_or_plan_that_is_torn_waits_for_nobody_and_hides_no_other(table: Table) -> None:
    store = table.store
    plan = table.plan_maintenance("compact", full=True)
    hold_plan(store, plan, "approval: required")
    folder = path_of(table, plan).parent
    for name, text in {
        "0a": "{",
        "0b": "[]",
        "0c": '{"since_ms": "soon", "why": 1}',
        "0d": '{"since_ms": 1, "why": "x"}',
    }.items():
        (folder / f"{name}.waits").write_text(text)
    (folder / "0d.json").write_text("{")
    assert [item.plan.hash for item in waiting_plans(store)] == [plan.hash]


def test_a_plan_that_goes_takes_its_note_with_it(table: Table) -> None:
    plan = table.plan_maintenance("compact", full=True)
    hold_plan(table.store, plan, "approval: required")
    table.apply(table.load_plan(plan.hash))
    aged(table, plan)
    save_another(table)
    assert not [file for file in path_of(table, plan).parent.iterdir() if file.name.startswith(plan.hash)]
