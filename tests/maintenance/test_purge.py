"""Purge: only by name, never what somebody holds, all of the rest, and back again while the trash keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core.cli.app import run
from lsm_core.errors import InvalidOption, PlanRefused
from tests.maintenance.tables import HOUR, content, keyed, on_disk, rows, strays, tag


def test_a_purge_takes_all_and_the_trash_brings_it_back(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(3):
        table.write(rows(range(5), v=i))
    rows_before = {number: content(table, number) for number in (1, 2, 3)}
    plan = table.plan_maintenance("purge", confirm="db.t")
    assert [(item.what, item.count, item.files) for item in plan.items] == [("rows", 15, 3), ("snapshots", 3, 0)]
    report = table.apply(plan)
    assert (report.snapshot_id, report.rows, report.snapshots, len(report.trash_ids)) == (4, 15, 3, 1)
    assert content(table) == [] and [s.id for s in table.snapshots()] == [4]
    assert table.apply(plan).applied_before.snapshot_id == 4
    table.restore(report.trash_ids[0])
    assert {number: content(table, number) for number in rows_before} == rows_before
    plan = table.plan_maintenance("purge", confirm="db.t")
    assert [item.what for item in plan.items] == ["snapshots"]
    assert table.apply(plan).snapshots == 3
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    assert not [name for name in on_disk(table) if "bucket-" in name] and not strays(table)
    table.write(rows([1]))
    assert len(content(table)) == 1


def test_a_purge_asks_for_the_name_and_takes_nothing_that_is_held(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = keyed(tmp_path)
    table.write(rows([1]))
    where = ["-w", str(tmp_path / "wh")]
    with pytest.raises(InvalidOption, match="confirm"):
        table.plan_maintenance("purge")
    with pytest.raises(PlanRefused, match=r"confirm it with 'db\.t'"):
        table.plan_maintenance("purge", confirm="t")
    assert run(["purge", "db.t", "db.x", *where]) == 1
    plan = table.plan_maintenance("purge", confirm="db.t")
    tag(table, "keep", 1)
    for attempt in (lambda: table.plan_maintenance("purge", confirm="db.t"), lambda: table.apply(plan)):
        with pytest.raises(PlanRefused, match="tags keep would hold"):
            attempt()
    (Path(table.store.root) / "tag" / "tag-keep").unlink()
    stream = table.new_stream_scan("job", from_snapshot=1)
    stream.next()
    stream.checkpoint()
    with pytest.raises(PlanRefused, match="consumers job"):
        table.plan_maintenance("purge", confirm="db.t")
    table.forget_consumer("job")
    assert len(content(table)) == 1
    assert run(["purge", "db.t", "db.t", "--set", "dredge.delete-mode=direct", *where]) == 0
    assert "deleted at once" in capsys.readouterr().out
    assert not [name for name in on_disk(table) if "bucket-" in name]


def test_changelogs_that_outlive_snapshots_go_too(tmp_path: Path) -> None:
    table = keyed(tmp_path, changelog_producer="input", changelog__num_retained__min="20")
    for i in range(3):
        table.write(rows([i]))
    table.expire_snapshots(retain_max=1, retain_min=1)
    report = table.apply(table.plan_maintenance("purge", confirm="db.t"))
    assert (report.snapshots, report.changelogs, len(report.trash_ids)) == (1, 3, 2)
    for trash_id in reversed(report.trash_ids):
        table.restore(trash_id)
    assert len(content(table, 3)) == 3
    table.sweep_trash()
    assert len(content(table, 3)) == 3 and content(table) == []
