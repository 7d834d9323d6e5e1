"""Data-evolution tables with BLOB columns through Spark: statements change rows in tasks, and tasks join the columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.spark import compact_table, sql

OPTIONS = "'row-tracking.enabled'='true', 'data-evolution.enabled'='true', 'deletion-vectors.enabled'='true'"


@pytest.mark.soak
def test_statements_change_columns_and_values_in_tasks(spark: Any, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))

    def run(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in sql(spark, text, catalog=catalog).collect()]

    run("CREATE DATABASE db")
    columns = "p INT, k INT, s STRING, x BINARY"
    run(f"CREATE TABLE db.t ({columns}) PARTITIONED BY (p) TBLPROPERTIES ({OPTIONS}, 'blob-field'='x')")
    run("INSERT INTO db.t VALUES (0, 1, 'a', X'01'), (1, 2, 'b', NULL), (0, 3, 'c', X'')")
    run("INSERT INTO db.t VALUES (1, 4, 'd', X'04')")
    run("UPDATE db.t SET s = upper(s), x = X'FF' WHERE k IN (SELECT k FROM db.t WHERE k < 3)")
    run("DELETE FROM db.t WHERE k = 3")
    run(
        "MERGE INTO db.t t USING (SELECT 4 AS k, 'm' AS s UNION ALL SELECT 5, 'n') y ON t.k = y.k "
        "WHEN MATCHED THEN UPDATE SET s = y.s WHEN NOT MATCHED THEN INSERT (p, k, s) VALUES (1, y.k, y.s)"
    )
    expected = [(0, 1, "A", "FF"), (1, 2, "B", "FF"), (1, 4, "m", "04"), (1, 5, "n", None)]
    assert run("SELECT p, k, s, hex(x) FROM db.t ORDER BY k") == expected
    ids = run("SELECT k, _ROW_ID FROM db.t ORDER BY k")
    report = compact_table(spark, catalog.table("db.t"), full=True)
    assert report.verification.level == "V2"
    assert run("SELECT p, k, s, hex(x) FROM db.t ORDER BY k") == expected
    assert run("SELECT k, _ROW_ID FROM db.t ORDER BY k") == ids
    assert all(check.passed for check in catalog.table("db.t").check())
