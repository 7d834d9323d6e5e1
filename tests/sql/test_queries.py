"""`dredge sql`: what a query needs of its tables is worked out without Spark, and Spark's answer is that of the whole tables."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.cli.app import run
from lsm_core.errors import DredgeError, InvalidOption, SnapshotNotFound, SparkFailed, TableNotFound, UnsupportedFeature
from lsm_core.spark.spark_queries import explain_query, open_answer
from lsm_core.sql.queries import plan_query

FIELDS = pa.schema(
    [
        pa.field("day", pa.date32(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        ("v", pa.int32()),
        ("s", pa.string()),
        ("d", pa.float64()),
    ]
)
MONDAY, TUESDAY = dt.date(2024, 1, 1), dt.date(2024, 1, 2)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """db.t of two days, three snapshots, the tag `first`, the branch `dev` at it; db.plain without keys."""
    catalog = Catalog(str(tmp_path_factory.mktemp("warehouse")))
    catalog.create_database("db")
    schema = Schema(FIELDS, primary_keys=["day", "k"], partition_keys=["day"], options={"bucket": "1"})
    table = catalog.create_table("db.t", schema)
    for value, texts in ((1, ["a", "b", None]), (2, ["a'b", "c", "d"])):
        days = [MONDAY, MONDAY, TUESDAY]
        table.write(pa.table([days, [1, 2, 3], [value] * 3, texts, [1.0, float("nan"), None]], schema=FIELDS))
    table.create_tag("first", 1)
    table.create_branch("dev", "first")
    table.compact(full=True)
    plain = catalog.create_table("db.plain", Schema(FIELDS.remove(0), options={"bucket": "-1"}))
    plain.write(pa.table([[1, 2, 2], [7, 8, 9], ["x", "y", "z"], [0.5, -0.0, None]], schema=FIELDS.remove(0)))
    return catalog


@pytest.mark.parametrize(
    ("text", "rewritten", "columns", "tests"),
    [
        ("SELECT count(*) FROM db.t", "SELECT count(*) FROM V0 AS `t`", [("day",)], [()]),
        ("SELECT * FROM db.t x", "SELECT * FROM V0 x", [("day", "k", "v", "s", "d")], [()]),
        (
            "select T.s from `db`.t where Day = '2024-01-01' and 2 >= K and v IN (1, -2) and (s = 'a') and d > 1.0 or false",
            "select T.s from V0 AS `t` where Day = '2024-01-01' and 2 >= K and v IN (1, -2) and (s = 'a') and d > 1.0 or false",
            [("day", "k", "v", "s", "d")],
            [()],
        ),
        (
            "SELECT k FROM db.t WHERE day = DATE '2024-01-01' AND 2 >= K AND v IN (1, -2) AND (s = 'a') AND d > 1.0 AND s IS NOT NULL",
            "SELECT k FROM V0 AS `t` WHERE day = DATE '2024-01-01' AND 2 >= K AND v IN (1, -2) AND (s = 'a') AND d > 1.0 AND s IS NOT NULL",
            [("day", "k", "v", "s", "d")],
            [
                (
                    ("day", "=", MONDAY),
                    ("k", "<=", 2),
                    ("v", "in", [1, -2]),
                    ("s", "=", "a"),
                    ("s", "is not null", None),
                )
            ],
        ),
        (
            "SELECT a.v FROM db.t AS a JOIN db.plain b ON a.k = b.k WHERE a.k = 1 AND b.v < 9 AND s = 'x'",
            "SELECT a.v FROM V0 AS a JOIN V1 b ON a.k = b.k WHERE a.k = 1 AND b.v < 9 AND s = 'x'",
            [("k", "v", "s"), ("k", "v", "s")],
            [(("k", "=", 1),), (("v", "<", 9),)],
        ),
        (
            "SELECT a.v FROM db.t a LEFT JOIN db.plain b ON a.k = b.k WHERE b.k = 1",
            "SELECT a.v FROM V0 a LEFT JOIN V1 b ON a.k = b.k WHERE b.k = 1",
            [("k", "v"), ("k", "v")],
            [(), ()],
        ),
        (
            "WITH c AS (SELECT k FROM db.t WHERE k = 1) SELECT x.k FROM c x JOIN c y ON true WHERE x.k = 2",
            "WITH c AS (SELECT k FROM V0 AS `t` WHERE k = 1) SELECT x.k FROM c x JOIN c y ON true WHERE x.k = 2",
            [("k",)],
            [(("k", "=", 1),)],
        ),
        (
            "SELECT k FROM db.t WHERE EXISTS (SELECT 1 FROM db.plain p WHERE p.k = t.k AND v = 8) AND k = v AND 'a' = s",
            "SELECT k FROM V0 AS `t` WHERE EXISTS (SELECT 1 FROM V1 p WHERE p.k = t.k AND v = 8) AND k = v AND 'a' = s",
            [("k", "v", "s"), ("k", "v", "s")],
            [(("s", "=", "a"),), (("v", "=", 8),)],
        ),
        (
            "SELECT k FROM db.t VERSION AS OF 1 UNION ALL SELECT k FROM db.t FOR VERSION AS OF 'first' z, range(3)",
            "SELECT k FROM V0 AS `t` UNION ALL SELECT k FROM V1 z, range(3)",
            [("k",), ("k",)],
            [(), ()],
        ),
        (
            "SELECT k FROM db.t TIMESTAMP AS OF '2999-01-01 00:00:00' WHERE k = 3 -- db.t",
            "SELECT k FROM V0 AS `t` WHERE k = 3 -- db.t",
            [("k",)],
            [(("k", "=", 3),)],
        ),
        (
            "SELECT snapshot_id FROM db.t$snapshots VERSION AS OF 2 JOIN db.`t$branch_dev` ON k = 1",
            "SELECT snapshot_id FROM V0 AS `t$snapshots` JOIN V1 AS `t$branch_dev` ON k = 1",
            [("snapshot_id",), ("k",)],
            [(), ()],
        ),
        ("SELECT k FROM db.t NATURAL JOIN db.plain", "SELECT k FROM V0 AS `t` NATURAL JOIN V1 AS `plain`", [("day", "k", "v", "s", "d"), ("k", "v", "s", "d")], [(), ()]),
        ("SELECT 1", "SELECT 1", [], []),
        # what a PIVOT groups by is named nowhere, and its columns, those of an UNPIVOT and of an alias may be called as the table's are
        (
            "SELECT k, v FROM db.plain PIVOT (sum(v) FOR s IN ('a' AS k, 'b' AS v)) WHERE v > 2",
            "SELECT k, v FROM V0 AS `plain` PIVOT (sum(v) FOR s IN ('a' AS k, 'b' AS v)) WHERE v > 2",
            [("k", "v", "s", "d")],
            [()],
        ),
        (
            "SELECT v FROM db.plain UNPIVOT (v FOR name IN (v, k)) WHERE v = 1",
            "SELECT v FROM V0 AS `plain` UNPIVOT (v FOR name IN (v, k)) WHERE v = 1",
            [("k", "v", "s", "d")],
            [()],
        ),
        (
            "SELECT x.k FROM db.plain AS x(v, k, s, d) WHERE x.k = 3",
            "SELECT x.k FROM V0 AS x(v, k, s, d) WHERE x.k = 3",
            [("k", "v", "s", "d")],
            [()],
        ),
        (
            "SELECT k FROM (db.plain) x(v, k, s, d)",
            "SELECT k FROM (V0 AS `plain`) x(v, k, s, d)",
            [("k", "v", "s", "d")],
            [()],
        ),
        (
            "FROM db.plain |> ORDER BY k |> LIMIT 2 |> WHERE k > 2",
            "FROM V0 AS `plain` |> ORDER BY k |> LIMIT 2 |> WHERE k > 2",
            [("k", "v", "s", "d")],
            [()],
        ),
    ],
)  # fmt: skip
def test_what_a_query_needs(
    warehouse: Catalog, text: str, rewritten: str, columns: list[Any], tests: list[Any]
) -> None:
    query = plan_query(warehouse, text)
    assert query.with_views([f"V{number}" for number in range(len(query.reads))]) == rewritten
    assert [read.columns for read in query.reads] == columns
    assert [read.tests for read in query.reads] == tests
    assert explain_query(query)


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [
        ("SELECT 1; SELECT 2", UnsupportedFeature, "one query"),
        ("DROP TABLE db.t", UnsupportedFeature, "one query"),
        ("INSERT INTO db.t SELECT * FROM db.plain", UnsupportedFeature, "one query"),
        ("CREATE TABLE x AS SELECT * FROM db.plain", UnsupportedFeature, "one query"),
        ("SELEC k FROM db.t", InvalidOption, "a query in Spark SQL"),
        ("", UnsupportedFeature, "one query"),
        ("SELECT * FROM t", TableNotFound, "name tables as database.table"),
        ("SELECT * FROM spark_catalog.db.t", TableNotFound, "name tables as database.table"),
        ("SELECT * FROM db.none", TableNotFound, r"db\.none"),
        ("SELECT * FROM other.t", TableNotFound, "database other is not in"),
        ("SELECT * FROM parquet.`/etc/passwd`", DredgeError, "passwd"),
        ("SELECT * FROM db.t VERSION AS OF 99", SnapshotNotFound, "99"),
        ("SELECT * FROM db.t VERSION AS OF 'none'", SnapshotNotFound, "none"),
        ("SELECT * FROM db.t VERSION AS OF 1 + 1", InvalidOption, "a literal"),
        ("SELECT k FROM db.t TIMESTAMP AS OF CAST('2999-01-01' AS TIMESTAMP) x", InvalidOption, "a literal"),
        ("SELECT * FROM db.t TIMESTAMP AS OF 'yesterday'", InvalidOption, "TIMESTAMP AS OF"),
        ("SELECT * FROM db.t TIMESTAMP AS OF '1970-01-01'", SnapshotNotFound, "no snapshot at or before"),
        ("SELECT * FROM db.`t$nothing`", UnsupportedFeature, r"system table \$nothing"),
    ],
)
def test_a_statement_that_cannot_be_answered_is_refused_before_spark(
    warehouse: Catalog, text: str, kind: type[DredgeError], part: str
) -> None:
    with pytest.raises(kind, match=part):
        plan_query(warehouse, text)


ANSWERS = (
    (
        (
            "SELECT t.s, p.v, x.v AS then FROM db.t JOIN db.plain p USING (k) JOIN db.t VERSION AS OF 'first' x ON x.k = t.k "
            "WHERE t.day = '2024-01-01' AND p.k >= 2 AND t.s = 'c' ORDER BY p.v"
        ),
        [["c", 8, 1], ["c", 9, 1]],
    ),
    (
        (
            "WITH c AS (SELECT * FROM db.t WHERE v = 2) SELECT 'one' AS a, k FROM c WHERE s = 'a''b' UNION ALL "
            "SELECT 'two', k FROM c WHERE isnan(d) UNION ALL SELECT 'dev', count(*) FROM db.`t$branch_dev` UNION ALL "
            "SELECT 'ids', count(snapshot_id) FROM db.`t$snapshots` ORDER BY a"
        ),
        [["dev", 3], ["ids", 3], ["one", 1], ["two", 2]],
    ),
)


@pytest.mark.spark
def test_spark_answers_as_if_the_tables_were_read_as_a_whole(spark: Any, warehouse: Catalog) -> None:
    views = spark.sql("SHOW VIEWS").count()
    for text, expected in ANSWERS:
        with open_answer(spark, plan_query(warehouse, text)) as frame:
            assert [list(row) for row in frame.collect()] == expected
    with (
        pytest.raises(SparkFailed, match=r"answering the query.*nosuchcolumn"),
        open_answer(spark, plan_query(warehouse, "SELECT nosuchcolumn FROM db.t")) as frame,
    ):
        frame.collect()
    assert spark.sql("SHOW VIEWS").count() == views


@pytest.mark.spark
def test_the_verb_prints_a_table_or_json(spark: Any, warehouse: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--warehouse", warehouse.root]
    text = "SELECT day, k FROM db.t ORDER BY k"
    assert run(["sql", text, *place, "--max-rows", "2"]) == 0
    printed = capsys.readouterr().out.split("\n")
    assert printed[0].split() == ["day", "k"] and printed[2].split() == ["2024-01-01", "2"]
    assert "and more" in printed[3]
    assert run(["sql", text, *place, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["complete"], document["columns"], len(document["rows"])) == (True, ["day", "k"], 3)


def test_the_verb_explains_and_calls_without_spark(
    warehouse: Catalog, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsm_core.spark.session.spark_session", lambda **_: pytest.fail("no Spark is needed"))
    place = ["--warehouse", warehouse.root]
    assert run(["sql", "SELECT k FROM db.t WHERE day = '2024-01-02'", *place, "--explain"]) == 0
    assert "1 of 2 files" in capsys.readouterr().out
    call = "CALL sys.create_tag('db.t', 'by_call', 2)"
    assert run(["sql", call, *place]) == 0
    assert "nothing was changed; --apply does it" in capsys.readouterr().out
    assert "by_call" not in warehouse.table("db.t").tags()
    assert run(["sql", call, *place, "--apply", "--approved-by", "me", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["applied"] is True and document["steps"][0]["plan"]["action"] == "create_tag"
    assert warehouse.table("db.t").ledger()[-1].approved_by == "me"
    for wrong in (["SELECT 1", "--apply"], [call, "--explain"], ["CALL sys.nope()"], ["CALL sys.compact()", "--apply"]):
        assert run(["sql", *wrong, *place]) == 1
        assert capsys.readouterr().err.startswith("dredge: ")
    assert Path(warehouse.root).exists()
