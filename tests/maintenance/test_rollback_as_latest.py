"""An older version as the newest snapshot: the table says what it said then, and nothing that came since is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.clock import FixedClock
from lsm_core.commit import Committer
from lsm_core.errors import (
    CommitConflict,
    CommitUnknown,
    DredgeError,
    InvalidOption,
    PlanStale,
    SnapshotNotFound,
    UnsupportedFeature,
)
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance import MaintenancePlan
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.maintenance.tables import HOUR, NOW, assert_whole, catalog, content, keyed, rows, strays, with_io


def as_latest(table: Table, number: int | None = None, **rest: Any) -> Any:
    plan = table.plan_maintenance("rollback_as_latest", snapshot_id=number, **rest)
    assert MaintenancePlan.from_json(plan.to_json()) == plan
    return table.apply(plan)


def history(tmp_path: Path, **options: str) -> Table:
    """Four writes (the last one deletes), a full compaction, another write."""
    table = keyed(tmp_path, partitioned=True, bucket="2", **options)
    for i, dt in enumerate("aba"):
        table.write(rows(range(i * 5, i * 5 + 8), v=i, dt=dt))
    table.write(rows([1, 2], dt="a"), row_kinds=pa.array(["-D", "-D"]))
    table.compact(full=True)
    table.write(rows([3, 100], v=7, dt="b"))
    return table


@pytest.mark.parametrize(
    "options",
    [{}, {"deletion_vectors__enabled": "true"}, {"merge_engine": "first-row"}],
    ids=["plain", "vectors", "first"],
)
def test_every_version_can_be_the_newest_and_that_be_taken_back(tmp_path: Path, options: dict[str, str]) -> None:
    if options.get("merge_engine") == "first-row":
        table = keyed(tmp_path, partitioned=True, **options)
        for i, dt in enumerate("ab"):
            table.write(rows(range(4 + i), v=i, dt=dt))
            table.compact(full=True)
    else:
        table = history(tmp_path, **options)
    before = {snapshot.id: content(table, snapshot.id) for snapshot in table.snapshots()}
    newest = max(before)
    for number in (1, newest, 2, newest - 1):
        report = as_latest(table, number)
        assert content(table) == before[number] and report.version == number
        last = table.latest_snapshot()
        assert last is not None and last.commit_kind is CommitKind.OVERWRITE and last.id == report.snapshot_id
        assert last.total_record_count == table.snapshots()[number - 1].total_record_count
    assert {number: content(table, number) for number in before} == before
    assert_whole(table)
    table.write(rows([500], dt="a"))
    table.compact(full=True)
    again = table.plan_maintenance("rollback_as_latest", snapshot_id=table.latest_snapshot().id)  # type: ignore[union-attr]
    assert not again.items and "the table has the content of snapshot" in again.declined[0].text
    table.store.clock.advance(2 * HOUR)
    now = content(table)
    table.expire_snapshots(retain_max=1)
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    assert content(table) == now and not strays(table)


def test_rows_that_deletion_vectors_of_an_append_table_mark_come_back(tmp_path: Path) -> None:
    schema = Schema(
        pa.schema([("k", pa.int64())]),
        options={"bucket": "-1", "deletion-vectors.enabled": "true", "write-only": "true"},
    )
    table = catalog(tmp_path).create_table("db.t", schema)
    table.write(pa.table({"k": list(range(10))}))
    table.delete([("k", "<", 4)])
    table.write(pa.table({"k": [50]}))
    as_latest(table, 1)
    assert table.to_arrow().column("k").to_pylist() == list(range(10))
    as_latest(table, 2)
    assert table.to_arrow().column("k").to_pylist() == [4, 5, 6, 7, 8, 9]


def test_partitions_alone_a_tag_and_what_is_refused(tmp_path: Path) -> None:
    table = history(tmp_path)
    table.create_tag("v", 2)
    table.store.clock.advance(2 * HOUR)
    then, now = content(table, 2), content(table)
    message = as_latest(table, tag="v", partitions=[{"dt": "b"}]).lines("db.t")[-1]
    assert message.endswith("back with: dredge rollback-as-latest db.t --snapshot 6 --partition dt=b")
    assert content(table) == sorted(
        [row for row in then if row[3] == "b"] + [row for row in now if row[3] == "a"], key=repr
    )
    table.expire_snapshots(retain_max=1)
    as_latest(table, 2)  # it has expired, and has a tag
    assert content(table) == then
    for wrong in ({}, {"snapshot_id": 1, "tag": "v"}):
        with pytest.raises(InvalidOption, match="exactly one of"):
            table.plan_maintenance("rollback_as_latest", **wrong)
    with pytest.raises(SnapshotNotFound):
        as_latest(table, 1)
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    dynamic = catalog(tmp_path).create_table("db.d", Schema(fields, ["k"], options={"bucket": "-1"}))
    dynamic.write(pa.table({"k": [1]}))
    with pytest.raises(UnsupportedFeature, match="dynamic buckets"):
        as_latest(dynamic, 1)
    plain = keyed(tmp_path, name="db.p")
    plain.write(rows([1]))
    catalog(tmp_path).alter_table("db.p", [SchemaChange.set_option("bucket", "2")])
    plain = catalog(tmp_path).table("db.p")
    plain.apply(plain.plan_maintenance("rescale"))
    with pytest.raises(UnsupportedFeature, match="the number of buckets changed"):
        as_latest(plain, 1)


def test_what_is_committed_meanwhile_is_never_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = history(tmp_path)
    plan = table.plan_maintenance("rollback_as_latest", snapshot_id=2)
    part = table.plan_maintenance("rollback_as_latest", snapshot_id=2, partitions=[{"dt": "b"}])
    table.write(rows([77], dt="a"))
    with pytest.raises(PlanStale, match="snapshot 7 was committed since"):
        table.apply(plan)
    assert table.apply(part).snapshot_id == 8
    assert 77 in [row[0] for row in content(table)]
    again = table.apply(part)
    assert not again.changed and again.applied_before is not None and again.applied_before.snapshot_id == 8
    plan, real = table.plan_maintenance("rollback_as_latest", snapshot_id=2), Committer.commit_compaction

    def meanwhile(self: Any, *arguments: Any, **named: Any) -> Any:
        Catalog(tmp_path / "wh", clock=FixedClock(NOW)).table("db.t").write(rows([78], dt="a"))
        return real(self, *arguments, **named)

    monkeypatch.setattr(Committer, "commit_compaction", meanwhile)
    with pytest.raises(CommitConflict, match="was committed since"):
        table.apply(plan)
    monkeypatch.undo()
    assert {77, 78} <= {row[0] for row in content(table)} and not strays(table)


def test_broken_at_every_step_the_table_says_the_one_or_the_other(tmp_path: Path) -> None:
    made = keyed(tmp_path / "template")
    made.write(rows(range(4)))
    made.write(rows(range(2, 6), v=10))
    made.compact(full=True)
    states = [content(made, 3), content(made, 1)]

    def fresh(number: int) -> Table:
        shutil.copytree(tmp_path / "template" / "wh", tmp_path / str(number) / "wh")
        return Catalog(tmp_path / str(number) / "wh", clock=FixedClock(NOW)).table("db.t")

    counting = FaultyFileIO(LocalFileIO())
    as_latest(with_io(fresh(0), counting), 1)
    changes = {"write_exclusive", "overwrite", "delete", "create", "close"}
    steps = [step for step, (name, _) in enumerate(counting.log, 1) if name in changes]
    assert len(steps) >= 6
    for step in steps:
        table = fresh(step)
        try:
            as_latest(with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step)), 1)
        except CommitUnknown:
            pass
        except (OSError, DredgeError):
            assert not strays(table), step
        assert content(table) in states
        as_latest(table, 1)
        assert content(table) == states[1]
        assert_whole(table)
