"""One plan applied by two: one of them does it, the other is told by whom it was done, also when both began at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.compact import BucketResult, BucketTask
from lsm_core.errors import InvalidOption, PlanStale
from lsm_core.maintenance import apply_plan
from lsm_core.maintenance.actions.compact.execution import local_runner
from lsm_core.maintenance.actions.expire_snapshots import expiry
from lsm_core.metadata.store import TableStore
from tests.maintenance.tables import content, keyed, rows, strays


def _five_runs(tmp_path: Path) -> Any:
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows(range(i * 10, i * 10 + 30), v=i))
    return table


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


def test_an_expiry_that_another_overtook_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _five_runs(tmp_path)
    plan = table.plan_maintenance("expire_snapshots", retain_max=1)
    real, done = expiry._require_fresh, []

    def overtaken(*arguments: Any) -> None:
        real(*arguments)
        if not done:
            done.append(True)
            done.append(table.apply(plan))

    monkeypatch.setattr(expiry, "_require_fresh", overtaken)
    late = table.apply(plan)
    assert done[1].expired == (1, 2, 3, 4) and done[1].applied_before is None
    assert late.expired == () and late.applied_before.told_by.startswith("run ")
    # The deletion record tells it too, where no ledger can.
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
