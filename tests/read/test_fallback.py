"""Reads that take missing partitions from another branch (`scan.fallback-branch`, `scan.primary-branch`)."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import InvalidOption, UnsupportedFeature
from lsm_core.read.splits import Split
from lsm_core.sql.commands import Session
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.running import StatementRunner
from lsm_core.table import SchemaChange

FIELDS = pa.schema(
    [pa.field("p", pa.int32(), nullable=False), pa.field("k", pa.int32(), nullable=False), ("v", pa.string())]
)
ROWS_OF_MAIN = [(1, 1, "main")]
ROWS_OF_OTHER = [(1, 1, "other"), (1, 2, "other"), (2, 1, "other")]


def batch(rows: list[tuple[int, int, str]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(FIELDS.names, row, strict=True)) for row in rows], schema=FIELDS)


def rows(table: pa.Table) -> list[tuple[int, int, str]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A table whose partition 1 is in both branches, and partition 2 in branch `other` only."""
    catalog = Catalog(tmp_path)
    options = {"bucket": "1", "write-only": "true"}
    table = catalog.create_table(
        "db.t", FIELDS, primary_keys=["p", "k"], partition_keys=["p"], options=options, create_database=True
    )
    table.create_branch("other")
    table.write(batch(ROWS_OF_MAIN))
    catalog.table("db.t$branch_other").write(batch(ROWS_OF_OTHER))
    return catalog


def run(catalog: Catalog, text: str) -> pa.Table | None:
    return StatementRunner(Session(catalog), LocalEngine()).run(text).rows


def opened(catalog: Catalog, key: str = "scan.fallback-branch") -> Table:
    catalog.alter_table("db.t", [SchemaChange.set_option(key, "other")])
    return catalog.table("db.t")


def test_a_partition_is_read_from_the_first_branch_that_has_it(catalog: Catalog) -> None:
    assert rows(opened(catalog).to_arrow()) == [(1, 1, "main"), (2, 1, "other")]


def test_the_primary_branch_has_priority(catalog: Catalog) -> None:
    catalog.table("db.t").write(batch([(3, 1, "main")]))
    assert rows(opened(catalog, "scan.primary-branch").to_arrow()) == [*ROWS_OF_OTHER, (3, 1, "main")]


def test_a_filter_that_prunes_the_own_files_does_not_show_the_other_rows(catalog: Catalog) -> None:
    table = opened(catalog)
    assert rows(table.to_arrow(filter=[("v", "=", "other")])) == [(2, 1, "other")]
    assert rows(table.to_arrow(filter=[("p", "=", 1)])) == ROWS_OF_MAIN
    assert rows(table.to_arrow(filter=[("p", "=", 2)], limit=5)) == [(2, 1, "other")]


def test_scans_splits_and_queries_read_both_branches(catalog: Catalog) -> None:
    table = opened(catalog)
    expected = [(1, 1, "main"), (2, 1, "other")]
    assert rows(table.scan().to_table()) == expected
    assert rows(pa.Table.from_batches(table.to_batches())) == expected
    counted = run(catalog, "SELECT count(*) AS n FROM db.t")
    assert counted is not None
    assert counted.to_pylist() == [{"n": 2}]
    splits = table.plan_scan()
    assert [split.origin for split in splits] == [None, ("other", 0)]
    assert [Split.from_bytes(split.to_bytes()) for split in splits] == splits
    assert pickle.loads(pickle.dumps(splits)) == splits


def test_a_snapshot_of_main_stands_for_the_other_branch_at_that_time(catalog: Catalog) -> None:
    catalog.table("db.t$branch_other").write(batch([(5, 5, "late")]))
    table = opened(catalog)
    assert rows(table.to_arrow(snapshot_id=1)) == [(1, 1, "main"), (2, 1, "other")]
    assert (5, 5, "late") in rows(table.to_arrow())


def test_writes_deletes_and_compactions_change_the_own_branch_only(catalog: Catalog) -> None:
    table = opened(catalog)
    run(catalog, "UPDATE db.t SET v = 'new' WHERE k = 1")
    assert rows(table.to_arrow()) == [(1, 1, "new"), (2, 1, "other")]
    merge = "MERGE INTO db.t t USING (SELECT 2 AS p, 1 AS k) s ON t.p = s.p AND t.k = s.k WHEN MATCHED THEN DELETE"
    run(catalog, merge)
    table.compact(full=True)
    assert rows(table.to_arrow()) == [(1, 1, "new"), (2, 1, "other")]
    assert rows(catalog.table("db.t$branch_other").to_arrow()) == ROWS_OF_OTHER


def test_a_missing_branch_is_an_error_in_the_log(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    table = catalog.table("db.t").copy({"scan.fallback-branch": "gone"})
    with caplog.at_level(logging.ERROR):
        assert rows(table.to_arrow()) == ROWS_OF_MAIN
    assert "branch gone ('scan.fallback-branch') is missing" in caplog.text


def test_a_branch_with_other_columns_is_refused(catalog: Catalog) -> None:
    catalog.alter_table("db.t$branch_other", [SchemaChange.add_column("w", "INT")])
    with pytest.raises(UnsupportedFeature, match="other columns"):
        opened(catalog).to_arrow()


def test_lookups_are_refused_and_the_branch_stays(catalog: Catalog) -> None:
    table = opened(catalog)
    with pytest.raises(UnsupportedFeature, match="lookup in a table with a fallback branch"):
        table.lookup(batch([(2, 1, "")]).select(["p", "k"]))
    with pytest.raises(InvalidOption, match="unset it first"):
        table.delete_branch("other")
