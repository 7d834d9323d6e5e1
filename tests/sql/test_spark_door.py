"""`lsm_core.spark.sql`: statements by a session, whose queries Spark answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.errors import InvalidOption, TableExists
from lsm_core.spark import sql
from lsm_core.write.row_changes import keyed


@pytest.fixture
def catalog(tmp_path: Path, spark: Any) -> Catalog:
    catalog = Catalog(str(tmp_path))
    sql(spark, "CREATE DATABASE db", catalog=catalog)
    sql(spark, "CREATE TABLE db.t (id INT, v DOUBLE, dt STRING) PARTITIONED BY (dt)", catalog=catalog)
    return catalog


def test_statements_by_a_session(spark: Any, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in sql(spark, text, catalog=catalog).collect()]

    assert run("INSERT INTO db.t VALUES (1, 1.5, 'a'), (2, 2, 'b')") == [("db.t: snapshot 1", 1)]
    run("INSERT INTO db.t PARTITION (dt = 'c') SELECT id + 10, v * 2 FROM db.t WHERE id = 1")
    assert run("SELECT date_format(date'2024-01-31', 'yyyy'), id, v, dt FROM db.t WHERE dt = 'c'") == [
        ("2024", 11, 3.0, "c")
    ]
    run("INSERT OVERWRITE db.t PARTITION (dt = 'a') SELECT 7 AS id, 7.0 AS v")
    assert run("SELECT id FROM db.t ORDER BY id") == [(2,), (7,), (11,)]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        run("INSERT OVERWRITE db.t SELECT 8 AS id, 8.0 AS v, 'b' AS dt")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert run("SELECT id FROM db.t ORDER BY id") == [(7,), (8,), (11,)]
    run("INSERT OVERWRITE db.t SELECT id, v, dt FROM db.t WHERE id = 8")
    assert run("SELECT id, dt FROM db.t") == [(8, "b")]
    assert run("SHOW TABLES IN db") == [("db", "t", False)]
    run(
        "CREATE TABLE db.n TBLPROPERTIES ('primary-key' = 'id', bucket = 1) AS SELECT id, count(*) AS n FROM db.t GROUP BY id"
    )
    assert catalog.table("db.n").to_arrow().to_pylist() == [{"id": 8, "n": 1}]
    run("ALTER TABLE db.n COMPACT")
    run("UPDATE db.n SET n = n + (SELECT count(*) FROM db.t) WHERE id IN (SELECT id FROM db.t)")
    assert catalog.table("db.n").to_arrow().to_pylist() == [{"id": 8, "n": 2}]
    run("UPDATE db.t SET v = v * 2 WHERE id % 2 = 0")
    assert run("SELECT id, v FROM db.t") == [(8, 16.0)]
    text = """MERGE INTO db.n USING (SELECT id + 1 AS id, 5 AS n FROM db.t UNION ALL SELECT 8, 6) s ON n.id = s.id
              WHEN MATCHED THEN UPDATE SET n = n.n + s.n WHEN NOT MATCHED THEN INSERT *"""
    with monkeypatch.context() as patched:  # tasks change the rows
        patched.setattr(keyed.KeyedChange, "rows", None)
        run(text)
    assert run("SELECT * FROM db.n ORDER BY id") == [(8, 8), (9, 5)]
    # A row that is added over a changed one of its key is the newer one.
    run(
        "MERGE INTO db.n USING (SELECT 9 AS id, 7 AS n) s ON n.id + 1 = s.id WHEN MATCHED THEN UPDATE SET n = 100 WHEN NOT MATCHED THEN INSERT *"
    )
    assert run("SELECT * FROM db.n ORDER BY id") == [(8, 100), (9, 5)]
    run(
        "MERGE INTO db.n USING (SELECT 7 AS id, 8 AS k) s ON n.id = s.id WHEN NOT MATCHED BY SOURCE AND n.id = 8 THEN UPDATE SET n = 3 WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.k, 44)"
    )
    assert run("SELECT * FROM db.n ORDER BY id") == [(8, 44), (9, 5)]
    run(
        "MERGE INTO db.t USING (SELECT 8 AS id UNION ALL SELECT 20) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 16 WHEN NOT MATCHED THEN INSERT (id, v, dt) VALUES (s.id, 1, 'z')"
    )
    assert run("SELECT id, v FROM db.t ORDER BY id") == [(8, 16.0), (20, 1.0)]
    run("DELETE FROM db.t WHERE id = 20")
    run("DELETE FROM db.t WHERE v + 1 > 16")
    assert run("SELECT count(*) FROM db.t") == [(0,)]
    with pytest.raises(TableExists):
        run("CREATE TABLE db.n AS SELECT 1 AS x")
    with pytest.raises(InvalidOption, match="3 columns"):
        run("INSERT INTO db.t SELECT 1")
