"""Merging a branch: the rows that the branch appended come into the table once, and both histories stay readable."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core.errors import (
    CommitConflict,
    InvalidOption,
    PlanStale,
    SnapshotNotFound,
    TableNotFound,
    UnsupportedFeature,
)
from lsm_core.maintenance.actions.merge_branch import MergeBranchReport
from lsm_core.sql.procedures import prepare_call
from lsm_core.table import Catalog, Schema, SchemaChange, Table

_FIELDS = pa.schema([("dt", pa.string()), ("id", pa.int64())])


def _warehouse(tmp_path: Path, **options: str) -> Catalog:
    """Return a warehouse with the append table db.t (ids 0 and 1) and its branch dev (id 0)."""
    catalog = Catalog(tmp_path / "warehouse")
    catalog.create_database("db")
    settings = {"write-only": "true", "branch-merge.enabled": "true", **options}
    table = catalog.create_table("db.t", Schema(_FIELDS, partition_keys=["dt"], options=settings))
    _write(table, 0)
    table.create_tag("base", 1)  # a branch begins at its tag, and a merge needs every snapshot from the first on
    table.create_branch("dev", "base")
    _write(table, 1)
    return catalog


def _write(table: Table, number: int) -> None:
    table.write(pa.table({"dt": [f"d{number % 2}"], "id": [number]}, schema=_FIELDS))


def _ids(table: Table) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


def _merge(table: Table, branch: str = "dev") -> MergeBranchReport:
    report = table.apply(table.plan_maintenance("merge_branch", branch=branch))
    assert isinstance(report, MergeBranchReport)
    return report


@pytest.mark.parametrize("tracking", [{}, {"row-tracking.enabled": "true"}], ids=["plain", "row tracking"])
def test_rows_of_both_sides_are_in_the_table_once(tmp_path: Path, tracking: dict[str, str]) -> None:
    catalog = _warehouse(tmp_path, **tracking)
    table, dev = catalog.table("db.t"), catalog.table("db.t$branch_dev")
    _write(table, 2)
    for number in (3, 4):
        _write(dev, number)
    plan = table.plan_maintenance("merge_branch", branch="dev")
    assert [(item.files, item.rows) for item in plan.items] == [(1, 1), (1, 1)]
    report = _merge(table)
    assert (report.files, report.rows, report.branch) == (2, 2, "dev")
    assert _ids(catalog.table("db.t")) == [0, 1, 2, 3, 4] and _ids(catalog.table("db.t$branch_dev")) == [0, 3, 4]
    if tracking:
        rows = catalog.table("db.t$row_tracking").to_arrow().column("_ROW_ID").to_pylist()
        assert sorted(rows) == [0, 1, 2, 3, 4]
    again = _merge(catalog.table("db.t"))
    assert again.snapshot_id is None and again.lines("db.t") == ["db.t has all files of branch dev already"]
    _write(catalog.table("db.t$branch_dev"), 5)
    assert _merge(catalog.table("db.t")).files == 1
    catalog.table("db.t").delete_branch("dev")
    table = catalog.table("db.t")
    table.remove_orphan_files(older_than_ms=1)
    assert _ids(table) == [0, 1, 2, 3, 4, 5]


def test_main_is_merged_into_a_branch_and_through_the_procedure(tmp_path: Path) -> None:
    catalog = _warehouse(tmp_path)
    _write(catalog.table("db.t"), 2)
    prepare_call(catalog, "CALL sys.merge_branch('db.t', 'main', 'dev')").apply()
    assert _ids(catalog.table("db.t$branch_dev")) == [0, 1, 2]
    _write(catalog.table("db.t$branch_dev"), 3)
    prepare_call(catalog, "CALL sys.merge_branch(table => 'db.t', source_branch => 'dev')").apply()
    assert _ids(catalog.table("db.t")) == [0, 1, 2, 3]


def test_what_cannot_be_merged_says_why(tmp_path: Path) -> None:
    catalog = _warehouse(tmp_path)
    table = catalog.table("db.t")
    with pytest.raises(InvalidOption, match="a branch besides main"):
        table.plan_maintenance("merge_branch", branch="main")
    with pytest.raises(TableNotFound, match="nope"):
        table.plan_maintenance("merge_branch", branch="nope")
    table.create_branch("empty")
    with pytest.raises(SnapshotNotFound, match=r"db\.t\$branch_empty has no snapshot"):
        table.plan_maintenance("merge_branch", branch="empty")
    _write(catalog.table("db.t$branch_dev"), 3)
    plan = table.plan_maintenance("merge_branch", branch="dev")
    catalog.alter_table("db.t$branch_dev", [SchemaChange.add_column("v", pa.int32())])
    for call in (lambda: table.plan_maintenance("merge_branch", branch="dev"), lambda: table.apply(plan)):
        with pytest.raises(UnsupportedFeature, match="columns differ"):
            call()
    table.delete_branch("dev")
    with pytest.raises((TableNotFound, PlanStale)):
        table.apply(plan)
    assert _ids(table) == [0, 1]


def test_histories_that_are_not_of_appends_are_refused(tmp_path: Path) -> None:
    catalog = _warehouse(tmp_path, **{"branch-merge.enabled": "false"})
    _write(catalog.table("db.t$branch_dev"), 3)
    catalog.table("db.t").delete("id = 0")
    with pytest.raises(UnsupportedFeature, match=r"snapshot 3 is of kind OVERWRITE.*INSERT INTO"):
        catalog.table("db.t").plan_maintenance("merge_branch", branch="dev")
    keyed = catalog.create_table(
        "db.k", Schema(pa.schema([pa.field("k", pa.int64(), nullable=False)]), ["k"], options={"bucket": "1"})
    )
    keyed.write(pa.table({"k": [1]}))
    keyed.create_tag("one", 1)
    keyed.create_branch("dev", "one")
    with pytest.raises(UnsupportedFeature, match="primary key"):
        keyed.plan_maintenance("merge_branch", branch="dev")


def test_two_merges_at_once_add_the_files_once(tmp_path: Path) -> None:
    catalog = _warehouse(tmp_path)
    for number in range(3, 7):
        _write(catalog.table("db.t$branch_dev"), number)
    tables = [catalog.table("db.t") for _ in range(3)]
    plans = [table.plan_maintenance("merge_branch", branch="dev") for table in tables]
    errors: list[Exception] = []

    def apply(table: Table, plan: object) -> None:
        try:
            table.apply(plan)
        except CommitConflict as error:
            errors.append(error)

    threads = [threading.Thread(target=apply, args=pair) for pair in zip(tables, plans, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _ids(catalog.table("db.t")) == [0, 1, 3, 4, 5, 6] and len(errors) <= 2
