"""Orphan cleaning and expiry of tables that count as large: tasks list, look and delete; plans and reports are those of one process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Table
from lsm_core.cli.app import run
from lsm_core.errors import SparkFailed
from lsm_core.maintenance import used_files
from lsm_core.maintenance.actions import expire_snapshots as snapshot_expiry
from lsm_core.maintenance.actions import sweep_trash
from lsm_core.maintenance.actions.orphans import orphan_removal
from lsm_core.spark import call, expire_snapshots, remove_orphan_files
from tests.spark.tables import data_files, dying, make_table, rows, same
from tests.support.spark import EventLog, TracedSession

pytestmark = pytest.mark.spark
_UUID = "4f5d7a0e-5b1c-4c5f-9d3a-0123456789ab"


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table counts as large."""
    here = ((orphan_removal, "LISTED_HERE"), (used_files, "LOOKED_AT_HERE"), (snapshot_expiry, "LOOKED_AT_HERE"))
    for module, name in (*here, (sweep_trash, "DELETED_HERE")):
        monkeypatch.setattr(module, name, 0)


def made(root: Path) -> tuple[Table, list[Path]]:
    """A table in direct mode with a history, and its strays; all files are old."""
    table = make_table(root, options={"dredge.delete-mode": "direct", "write-only": "true"})
    for turn in range(3):
        table.write(rows(list(range(turn, turn + 30)), f"turn {turn}"))
    table.compact(full=True)
    strays = [Path(table.store.root) / f"bucket-{n % 3}/data-{_UUID}-{n}.parquet" for n in range(6)]
    for stray in strays:
        stray.write_bytes(b"stray")
    for path in Path(table.store.root).rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    return table, strays


def test_orphans_are_listed_and_deleted_by_tasks(traced: TracedSession, tmp_path: Path) -> None:
    table, strays = made(tmp_path)
    asked: dict[str, Any] = {"older_than_ms": 1_650_000_000_000, "max_share": 50}
    foreseen, log = table.remove_orphan_files(dry_run=True, **asked), EventLog(traced.events)
    assert remove_orphan_files(traced.spark, table, dry_run=True, **asked) == foreseen
    assert foreseen.files_recorded == len(strays)
    report = remove_orphan_files(traced.spark, table, **asked)
    assert (report.files_deleted, report.files_missing, report.failed) == (len(strays), 0, ())
    assert (report.held, report.declined) == (foreseen.held, foreseen.declined)
    assert len(log.stages()) >= 3 and not any(stray.exists() for stray in strays)
    assert remove_orphan_files(traced.spark, table, **asked).changed is False


def test_snapshots_expire_by_tasks(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, strays = made(tmp_path)
    before, files = table.to_arrow(), data_files(tmp_path)
    answer = call(
        spark,
        "sys.remove_orphan_files(table => 'db.t', older_than => '2022-01-01 00:00:00', dry_run => true)",
        catalog=str(tmp_path),
    )
    assert len(answer.plans[0].items) == len(strays)
    foreseen = table.expire_snapshots(retain_max=1, retain_min=1, dry_run=True)
    result = expire_snapshots(spark, table, retain_max=1, retain_min=1, dry_run=True)
    assert replace(result, plan_hash="") == replace(foreseen, plan_hash="")  # plans name their time
    report = expire_snapshots(spark, table, retain_max=2, retain_min=1)
    assert report.expired == (1, 2) and report.files_deleted > 0
    assert (
        run(["expire", "db.t", "--retain-max", "1", "--retain-min", "1", "--runner", "spark", "-w", str(tmp_path)]) == 0
    )
    assert "expired snapshots 3 to 3" in capsys.readouterr().out
    assert len(table.snapshots()) == 1 and same(table.to_arrow(), before)
    assert data_files(tmp_path) == {*strays, *(path for path in files if path.name in live(table))}


def live(table: Table) -> set[str]:
    from tests.support.stores import live_files

    return {file.file_name for files in live_files(table.store).values() for file in files}


@pytest.mark.soak
def test_a_worker_killed_while_it_deletes_leaves_the_rest_to_the_next_sweep(spark: Any, tmp_path: Path) -> None:
    table, strays = made(tmp_path)
    before = table.to_arrow()
    with pytest.raises(SparkFailed, match=r"deleting files of table db\.t: Python worker exited"):
        remove_orphan_files(spark, dying(table, strays[3].name), older_than_ms=1_650_000_000_000, max_share=50)
    left = [stray for stray in strays if stray.exists()]
    assert strays[3] in left and strays[0] not in left
    swept = table.sweep_trash()
    assert (swept.files_deleted, swept.files_missing) == (len(left), len(strays) - len(left))
    assert not any(stray.exists() for stray in strays) and same(table.to_arrow(), before)
