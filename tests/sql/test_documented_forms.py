"""Forms of statements that Paimon's pages for Spark document, on tables of our own: what they do, and what is said of those not offered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.errors import ColumnNotFound, DredgeError, InvalidData, InvalidOption, UnsupportedFeature
from lsm_core.sql.commands import Session
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.running import StatementRunner


class Warehouse:
    """A warehouse that statements are run on."""

    def __init__(self, root: Path) -> None:
        self.catalog = Catalog(str(root))
        self.catalog.create_database("db")
        self.runner = StatementRunner(Session(self.catalog), LocalEngine())

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements; returns the rows of the last one."""
        rows = None
        for statement in statements:
            rows = self.runner.run(statement).rows
        return [] if rows is None else [tuple(row.values()) for row in rows.to_pylist()]


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path)


STRUCTS = (
    "CREATE TABLE db.t (id INT, s STRUCT<c1: INT, c2: STRING, n: STRUCT<x: INT, y: INT>>, l ARRAY<STRUCT<a: INT>>) "
    "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')"
)


def test_structs_of_values_are_inserted_by_position_and_by_name(warehouse: Warehouse) -> None:
    warehouse.run(
        STRUCTS,
        "INSERT INTO db.t VALUES (1, struct(1, 'x', struct(3, 4)), array(struct(5))), "
        "(2, named_struct('n', null, 'C1', 2, 'c2', 'y'), null), (3, null, array())",
    )
    assert warehouse.run("SELECT * FROM db.t ORDER BY id") == [
        (1, {"c1": 1, "c2": "x", "n": {"x": 3, "y": 4}}, [{"a": 5}]),
        (2, {"c1": 2, "c2": "y", "n": None}, None),
        (3, None, []),
    ]


@pytest.mark.parametrize("value", ["struct(1, 'x')", "named_struct('c1', 1, 'wrong', 'x', 'n', null)"])
def test_a_struct_of_other_fields_is_refused(warehouse: Warehouse, value: str) -> None:
    warehouse.run(STRUCTS)
    with pytest.raises(InvalidData, match=r"column 's': a struct with the fields .* in place of c1, c2, n"):
        warehouse.run(f"INSERT INTO db.t VALUES (1, {value}, null)")
    assert warehouse.run("SELECT * FROM db.t") == []


def test_update_sets_fields_inside_columns(warehouse: Warehouse) -> None:
    warehouse.run(
        STRUCTS,
        "INSERT INTO db.t VALUES (1, struct(1, 'x', struct(3, 4)), null), (2, struct(2, 'y', struct(5, 6)), null), (3, null, null)",
        "UPDATE db.t SET s.c2 = 'new' WHERE s.c1 = 1",
        "UPDATE db.t SET t.s.n.x = t.id + 100, db.t.s.c1 = t.s.n.y WHERE t.id = 2",
        "UPDATE db.t SET s.c1 = 7 WHERE id = 3",
    )
    assert warehouse.run("SELECT s, s.n.x FROM db.t ORDER BY id") == [
        ({"c1": 1, "c2": "new", "n": {"x": 3, "y": 4}}, 3),
        ({"c1": 6, "c2": "y", "n": {"x": 102, "y": 6}}, 102),
        ({"c1": 7, "c2": None, "n": None}, None),
    ]
    warehouse.run(
        "MERGE INTO db.t USING (SELECT 1 AS id, 50 AS v) q ON t.id = q.id WHEN MATCHED AND t.s.n.x = 3 THEN UPDATE SET t.s.n.y = q.v"
    )
    assert warehouse.run("SELECT s.n.y FROM db.t WHERE id = 1") == [(50,)]
    with pytest.raises(ColumnNotFound, match="column s has no column 'nope'; it has c1, c2, n"):
        warehouse.run("UPDATE db.t SET s.nope = 1")
    with pytest.raises(InvalidOption, match=r"'s\.c1'; accepted: a field once"):
        warehouse.run("UPDATE db.t SET s.c1 = 1, s.c1 = 2")
    with pytest.raises(InvalidOption, match="'s'; accepted: a column once"):
        warehouse.run("UPDATE db.t SET s.c1 = 1, s = null")


PARTITIONED = (
    "CREATE TABLE db.t (id INT, dt STRING) PARTITIONED BY (dt)",
    "INSERT INTO db.t VALUES (1, '20250101')",
    "INSERT INTO db.t VALUES (2, '20250102'), (3, '20250101')",
)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT sys.max_pt('db.t')", [("20250102",)]),
        ("SELECT id FROM db.t WHERE dt = sys.max_pt('db.t')", [(2,)]),
        ("SELECT t.id FROM paimon_incremental_query('db.t', 1, 2) ORDER BY id", [(2,), (3,)]),
        ("SELECT x.id, (SELECT count(*) FROM db.t) FROM paimon_incremental_query('db.t', '0', 1) x", [(1, 3)]),
        (
            "SELECT count(*) FROM paimon_incremental_between_timestamp('db.t', '1692169000000', '2099-03-12 00:00:00')",
            [(3,)],
        ),
    ],
)
def test_functions_of_the_connector(warehouse: Warehouse, query: str, rows: list[tuple[Any, ...]]) -> None:
    assert warehouse.run(*PARTITIONED, query) == rows


def test_tags_statistics_and_copies(warehouse: Warehouse) -> None:
    warehouse.run(
        *PARTITIONED,
        "ALTER TABLE db.t CREATE OR REPLACE TAG `a` AS OF VERSION 1 RETAIN 24 HOURS",
        "ALTER TABLE db.t CREATE OR REPLACE TAG `a` AS OF VERSION 2",
        "CREATE TABLE db.u LIKE db.t USING paimon TBLPROPERTIES ('write-only' = 'true')",
    )
    table = warehouse.catalog.table("db.t")
    assert {name: tag.snapshot.id for name, tag in table.tags().items()} == {"a": 2}
    assert warehouse.catalog.table("db.u").schema.options["write-only"] == "true"
    for rest, columns in (("", 0), (" FOR COLUMNS id", 1), (" FOR ALL COLUMNS", 2)):
        done = warehouse.runner.run(f"ANALYZE TABLE db.t COMPUTE STATISTICS{rest}")
        assert f", {columns} columns;" in done.message
    assert warehouse.run("SHOW COLUMNS IN t IN db") == [("id",), ("dt",)]
    warehouse.run("CALL sys.repair('db.t,db')")


@pytest.mark.parametrize(
    ("statement", "kind", "said"),
    [
        ("REPLACE TABLE db.t (id INT)", UnsupportedFeature, "REPLACE; use DROP TABLE IF EXISTS, then CREATE TABLE"),
        ("CREATE OR REPLACE TABLE db.t AS SELECT 1", UnsupportedFeature, "use DROP TABLE IF EXISTS"),
        ("CREATE OR REPLACE VIEW db.v AS SELECT 1", UnsupportedFeature, "CREATE VIEW; CREATE takes DATABASE and TABLE"),
        ("SHOW VIEWS", UnsupportedFeature, "a warehouse has no views"),
        ("RESET spark.paimon.x", UnsupportedFeature, "spark.conf.unset"),
        ("COPY INTO db.t FROM '/x' FILE_FORMAT = (TYPE = CSV)", UnsupportedFeature, "Table.write"),
        ("SELECT __paimon_bucket FROM db.t", UnsupportedFeature, r"`database.table\$files`"),
        ("SELECT * FROM paimon_nope('db.t')", UnsupportedFeature, "supported: paimon_incremental_query"),
        ("SELECT * FROM paimon_incremental_query('db.t', 1)", InvalidOption, "two snapshots, tags or times"),
        ("SELECT sys.max_pt('db.u')", InvalidOption, "a table with partitions"),
        ("UPDATE db.t SET id = 1 LIMIT 3", UnsupportedFeature, "LIMIT 3 in UPDATE; UPDATE takes SET"),
        ("DELETE FROM db.t LIMIT 3", UnsupportedFeature, "LIMIT 3 in DELETE; DELETE takes FROM and WHERE"),
        ("FLY TO db.t", UnsupportedFeature, "the statement FLY; supported: SELECT"),
        (
            "MERGE WITH SCHEMA EVOLUTION INTO db.t USING db.u ON true WHEN MATCHED THEN DELETE",
            InvalidOption,
            "SCHEMA EVOL",
        ),
        (
            "INSERT INTO db.u (k) VALUES (1)",
            InvalidData,
            "column 'v': the column is NOT NULL and has no default, but the rows lack it",
        ),
        ("INSERT INTO db.u (k, v) VALUES (1, NULL)", InvalidData, "null in a NOT NULL column"),
        (
            "MERGE INTO db.u USING (SELECT 1 k, 5 v UNION ALL SELECT 1, 6) s ON u.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v",
            InvalidData,
            "1 rows are matched by more than one row of the source",
        ),
        (
            "ALTER TABLE db.u SET TBLPROPERTIES ('merge-engine' = 'aggregation')",
            InvalidOption,
            "merge-engine.*no change",
        ),
        (
            "ALTER TABLE db.u SET TBLPROPERTIES ('primary-key' = 'v')",
            DredgeError,
            "'primary-key' can only be set when the table is created",
        ),
        (
            "CALL sys.compact(table => 'db.u', where => 'v > 1')",
            InvalidOption,
            "'where' of table db.u cannot be 'v > 1'",
        ),
        (
            "CALL sys.compact(table => 'db.t', where => 'id > 1')",
            DredgeError,
            "'id' is not a partition column; they are dt",
        ),
    ],
)
def test_what_is_not_offered_or_wrong_is_one_error_and_nothing_is_done(
    warehouse: Warehouse, statement: str, kind: type[DredgeError], said: str
) -> None:
    warehouse.run(
        *PARTITIONED,
        "CREATE TABLE db.u (k INT NOT NULL, v INT NOT NULL) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')",
        "INSERT INTO db.u VALUES (1, 1)",
    )
    before = [warehouse.catalog.table(name).latest_snapshot() for name in ("db.t", "db.u")]
    with pytest.raises(kind, match=said) as raised:
        warehouse.run(statement)
    assert "\x1b" not in str(raised.value)
    assert [warehouse.catalog.table(name).latest_snapshot() for name in ("db.t", "db.u")] == before
    assert warehouse.catalog.list_tables("db") == ["t", "u"]
