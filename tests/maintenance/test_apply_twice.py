"""One plan applied by two: one of them does it, the other is told by whom it was done, also when both began at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.compact import BucketResult, BucketTask
from lsm_core.errors import InvalidOption, PlanStale
from lsm_core.maintenance import ApplyOutcome, MaintenancePlan, apply_plan, ledger, read_trash
from lsm_core.maintenance.actions import expire_snapshots
from lsm_core.maintenance.actions.compact.execution import local_runner
from lsm_core.metadata.store import TableStore
from tests.maintenance.tables import HOUR, content, keyed, rows, strays


def _five_runs(tmp_path: Path) -> Any:
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows(range(i * 10, i * 10 + 30), v=i))
    return table


def test_a_plan_of_wrong_values_that_was_read_back_leaves_a_line_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(tmp_path)
    for number in range(3):
        table.write(rows([number]))
    plan = table.plan_maintenance("expire_snapshots", retain_max=1)

    def fails(*_: Any, **__: Any) -> ApplyOutcome:
        raise ValueError("a value of the plan")

    monkeypatch.setattr(expire_snapshots, "WORK", replace(expire_snapshots.WORK, apply=fails))
    with pytest.raises(PlanStale, match="no plan that expire_snapshots makes"):
        table.apply(MaintenancePlan.from_json(plan.to_json()))
    (entry,) = table.ledger()
    assert entry.error is not None and "a value of the plan" in entry.error
    with pytest.raises(ValueError, match="a value of the plan"):
        table.apply(plan)


def test_two_at_once_compact_once_and_the_loser_names_the_snapshot(tmp_path: Path) -> None:
    table = _five_runs(tmp_path)
    before = content(table)
    plan = table.plan_maintenance("compact")
    both = threading.Barrier(2)

    def together(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
        results = list(local_runner(None)(store, tasks))
        both.wait(timeout=60)  # both have looked and merged; neither has committed
        yield from results

    with ThreadPoolExecutor(2) as threads:
        reports = list(threads.map(lambda _: apply_plan(table.store, plan, together), range(2)))
    winner, loser = sorted(reports, key=lambda report: report.snapshot_id is None)
    assert (winner.snapshot_id, winner.applied_before, winner.changed) == (6, None, True)
    assert (loser.snapshot_id, loser.applied_before.text()) == (None, "already applied, snapshot 6")
    assert table.latest_snapshot().id == 6
    assert [(entry.outcome, entry.snapshot_id) for entry in table.ledger()] == [("done", 6)]
    assert content(table) == before and strays(table) == set()


@pytest.mark.parametrize("step", ["_require_fresh", "write_own_record"], ids=["ahead of its record", "behind it"])
def test_an_expiry_that_another_overtook_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    table = _five_runs(tmp_path)
    plan = table.plan_maintenance("expire_snapshots", retain_max=1)
    real, done = getattr(expire_snapshots, step), []

    def overtaken(*arguments: Any) -> Any:
        found = real(*arguments)
        if not done:
            done.append(True)
            done.append(table.apply(plan))
        return found

    monkeypatch.setattr(expire_snapshots, step, overtaken)
    late = table.apply(plan)
    assert done[1].expired == (1, 2, 3, 4) and done[1].applied_before is None
    assert late.expired == () and late.applied_before.told_by.startswith("run ")
    # The deletion record, one, tells it too, where no ledger can.
    assert [record.trash_id for record in read_trash(table.store).records] == [done[1].trash_id]
    for entry in (Path(table.store.root) / "dredge" / "ledger").iterdir():
        entry.unlink()
    assert table.apply(plan).applied_before.told_by == f"deletion record {done[1].trash_id}"


def test_every_action_is_told_that_its_plan_was_applied(tmp_path: Path) -> None:
    table = _five_runs(tmp_path)
    rescale = table.plan_maintenance("rescale", bucket_num=2)
    published = table.apply(rescale).snapshot_id
    again = table.apply(rescale)
    assert (again.snapshot_id, again.applied_before.snapshot_id) == (None, published)
    trash_id = table.expire_snapshots(retain_max=1).trash_id
    restore = table.plan_maintenance("restore", trash_id=trash_id)
    assert table.apply(restore).restored == (1, 2, 3, 4, 5)
    second = table.apply(restore)
    assert second.restored == () and second.applied_before.told_by.startswith("run ")
    assert second.lines("db.t") == ["no snapshot was restored"]
    with pytest.raises(InvalidOption, match="the trash is empty"):
        table.restore(trash_id)


def test_the_loser_of_two_restores_is_told_also_before_the_winner_has_written_it_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _five_runs(tmp_path)
    trash_id = table.expire_snapshots(retain_max=1).trash_id
    plan = table.plan_maintenance("restore", trash_id=trash_id)
    losers: list[Any] = []
    real = ledger.write_entry

    def before_the_ledger(store: TableStore, entry: Any) -> str:
        if entry.action == "restore" and not losers:
            losers.append(apply_plan(table.store, plan))
            with pytest.raises(InvalidOption) as late:
                table.restore(trash_id)
            losers.append(str(late.value))
        return real(store, entry)

    monkeypatch.setattr(ledger, "write_entry", before_the_ledger)
    winner = table.apply(plan)
    assert winner.restored == (1, 2, 3, 4) and winner.applied_before is None
    assert (
        losers[0].restored == () and losers[0].applied_before.text() == "already applied, snapshots 1 to 4 can be read"
    )
    assert losers[1].endswith("the trash is empty; it was restored already: snapshots 1 to 4 can be read")
    (run,) = [entry.run_id for entry in table.ledger() if entry.action == "restore"]
    with pytest.raises(InvalidOption, match=f"the trash is empty; it was restored already, by run {run} at "):
        table.restore(trash_id)
    table.store.clock.advance(1)
    table.expire_snapshots(retain_max=1)  # its snapshots are gone again, in another record
    with pytest.raises(InvalidOption, match=f"'expire-1-4-.*; it was restored already, by run {run} at "):
        table.restore(trash_id)


def test_a_restore_that_a_sweep_overtook_names_it(tmp_path: Path) -> None:
    table = _five_runs(tmp_path)
    trash_id = table.expire_snapshots(retain_max=1).trash_id
    plan = table.plan_maintenance("restore", trash_id=trash_id)
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    run = table.ledger()[-1].run_id
    for late in (lambda: table.apply(plan), lambda: table.restore(trash_id)):
        with pytest.raises(InvalidOption, match=f"the trash is empty; its files were deleted by run {run} at "):
            late()


def test_a_plan_that_nobody_applied_is_stale_still(tmp_path: Path) -> None:
    table = _five_runs(tmp_path)
    plan = table.plan_maintenance("rescale", bucket_num=2)
    other = Catalog(tmp_path / "wh").table("db.t")
    other.write(rows([1], v=9))
    with pytest.raises(PlanStale, match="since it was planned"):
        table.apply(plan)
    compaction = table.plan_maintenance("compact", full=True)
    other.compact(full=True, buckets=[0])  # the same work, asked for in other words: another plan
    report = table.apply(compaction)
    assert report.stale and report.applied_before is None
