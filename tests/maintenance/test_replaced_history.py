"""A commit, a branch and the deletion of a tag meet a snapshot id that was handed out again: they look at the snapshot, not at its number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.clock import FixedClock
from lsm_core.errors import PlanStale
from lsm_core.metadata import snapshots
from lsm_core.storage import LocalFileIO
from tests.maintenance.tables import HOUR, assert_whole, catalog, keyed, rows

FIELDS = pa.schema([("v", pa.int64())])


def made(root: Path, **options: str) -> Table:
    catalog = Catalog(root)
    catalog.create_database("db")
    return catalog.create_table("db.t", Schema(FIELDS, options={"bucket": "-1", "write-only": "true", **options}))


def put(table: Table, value: int) -> None:
    table.write(pa.table({"v": [value]}))


def values(table: Table, **which: Any) -> list[int]:
    return sorted(table.to_arrow(**which)["v"].to_pylist())


def fast_forward(table: Table) -> None:
    table.fast_forward("b")


def rollback(table: Table) -> None:
    table.rollback_to(1)
    put(table, 20)


@pytest.mark.parametrize("replaced_by", [fast_forward, rollback])
@pytest.mark.parametrize(
    "options", [{}, {"dredge.delete-mode": "direct"}, {"dredge.delete-mode": "direct", "dredge.lock": "file"}]
)
def test_a_commit_under_way_does_not_bring_back_what_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced_by: Callable[[Table], None], options: dict[str, str]
) -> None:
    table = made(tmp_path, **options)
    put(table, 1)
    put(table, 2)
    put(table.create_branch("b", from_snapshot=1), 20)
    real, met = LocalFileIO.write_exclusive, list[str]()
    before = "/lock" if "dredge.lock" in options else "/snapshot/snapshot-3"

    def write_exclusive(self: LocalFileIO, path: str, data: bytes) -> bool:
        if not met and before in path:
            met.append(path)
            replaced_by(table)
        return real(self, path, data)

    monkeypatch.setattr(LocalFileIO, "write_exclusive", write_exclusive)
    put(table, 3)
    assert met
    assert values(table) == [1, 3, 20]
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2, 3]


def tagged_and_written_again(table: Table) -> None:
    """Snapshot 2 holds 1 and 21; the tag `x` names the one that had its id and held 1 and 20."""
    put(table, 1)
    put(table, 20)
    table.create_tag("x", snapshot_id=2)
    deleted = table.delete_tag("x")
    table.rollback_to(1)
    put(table, 21)
    table.restore(deleted.trash_id)
    assert values(table, tag="x") == [1, 20]


def test_a_branch_of_a_tag_holds_what_the_tag_holds(tmp_path: Path) -> None:
    table = made(tmp_path)
    tagged_and_written_again(table)
    branch = table.create_branch("b", from_tag="x")
    assert values(branch) == [1, 20]
    assert values(table) == [1, 21]


def test_deleting_a_tag_frees_what_the_snapshot_of_its_number_does_not_hold(tmp_path: Path) -> None:
    table = made(tmp_path)
    tagged_and_written_again(table)
    mine = snapshots.read(table.store, 2)
    plan = table.plan_maintenance("delete_tag", tag="x")
    assert [item.kind for item in plan.items if hasattr(item, "kind")].count("data") == 1
    table.apply(plan)
    assert values(table) == [1, 21]
    assert snapshots.is_same(mine, snapshots.read(table.store, 2))


def test_a_fast_forward_that_gives_up_brings_no_expired_snapshot_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path, **{"dredge.delete-mode": "direct"})
    for value in (1, 2, 3):
        put(table, value)
    put(table.create_branch("b", from_snapshot=1), 20)
    real, met = LocalFileIO.overwrite, list[str]()

    def overwrite(self: LocalFileIO, path: str, data: bytes, **how: Any) -> None:
        if not met and path.endswith("/snapshot/snapshot-3"):
            met.append(path)
            table.write(pa.table({"v": [4]}), overwrite=True)
            table.expire_snapshots(retain_max=1, retain_min=1)
        real(self, path, data, **how)

    monkeypatch.setattr(LocalFileIO, "overwrite", overwrite)
    with pytest.raises(PlanStale, match="committed meanwhile"):
        table.fast_forward("b")
    assert met
    assert [values(table, snapshot_id=snapshot.id) for snapshot in table.snapshots()] == [[4]]


@pytest.mark.parametrize("keyed_table", [True, False])
@pytest.mark.parametrize("way", ["rollback", "two branches"])
def test_files_of_a_history_with_a_seam_outlive_the_branch_that_brought_them(
    tmp_path: Path, keyed_table: bool, way: str
) -> None:
    """A snapshot may follow one in number that it was not made from: what only the older history added is still needed."""
    if keyed_table:
        table = keyed(tmp_path)
    else:
        columns = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
        table = catalog(tmp_path).create_table("db.a", columns)
    for key in (1, 2, 3):
        table.write(rows([key]))
    branch = table.create_branch("b", from_snapshot=3)
    assert branch.to_arrow().num_rows == 3
    if way == "rollback":
        table.rollback_to(1)
        table.write(rows([9]))
    else:
        other = table.create_branch("c", from_snapshot=1)
        other.write(rows([8]))
        other.write(rows([9]))
        table.fast_forward("c")
    table.fast_forward("b")
    assert sorted(table.to_arrow()["k"].to_pylist()) == [1, 2, 3]
    for name in ("b", "c"):
        if name in table.branches():
            table.delete_branch(name)
    clock = table.store.clock
    assert isinstance(clock, FixedClock)
    for _ in range(3):
        clock.advance(3 * 24 * HOUR)
        table.sweep_trash()
    assert sorted(table.to_arrow()["k"].to_pylist()) == [1, 2, 3]
    assert_whole(table)
