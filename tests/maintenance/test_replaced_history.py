"""A commit, a branch and the deletion of a tag meet a snapshot id that was handed out again: they look at the snapshot, not at its number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import PlanStale
from lsm_core.metadata import snapshots
from lsm_core.storage import LocalFileIO

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
