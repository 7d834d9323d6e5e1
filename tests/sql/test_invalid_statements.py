"""Statements that cannot be run: one sentence of our own that names the statement and what to do, and nothing is done."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.errors import DredgeError, InvalidData, InvalidStatement, SparkFailed, UnsupportedFeature
from lsm_core.sql.commands import Session, StatementResult
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.reading import split_statements
from lsm_core.sql.running import StatementRunner

MERGE = "MERGE INTO db.t USING (SELECT 1 AS k) s"
ON = f"{MERGE} ON t.k = s.k"
INVALID = [
    # no statement, or several
    ("", "a statement is expected: SELECT"),
    (" ;; ", "a statement is expected: SELECT"),
    ("-- DROP TABLE db.t", "a statement is expected: SELECT"),
    ("/* one; */ ; -- two", "a statement is expected: SELECT"),
    ("DROP TABLE db.t; DROP DATABASE db", "one statement is expected, and 'DROP DATABASE db' follows; run each"),
    ("DELETE FROM db.t; SELECT 1", "one statement is expected, and 'SELECT 1' follows; run each statement"),
    # not SQL
    ("SELECT k + FROM db.t", "it is not a query in Spark SQL: a value is missing beside +; see line 1, column 15 (parser: "),
    ("SELECT * FROM db.t WHERE", "it is not a query in Spark SQL: a part of WHERE is missing; see line 1, column 24 (parser: "),
    ("SELECT 'x FROM db.t", "a quotation mark or a comment is not closed (parser: Error tokenizing"),
    ("SELECT upper(v, 2) FROM db.t", "a function takes at most 1 arguments, not 2; see line 1, column 18 (parser: "),
    ("INSERT INTO db.t VALUES (1,", "a closing parenthesis is missing; see line 1, column 10 (parser: Expecting ))"),
    ("INSERT INTO db.t VALUES (1, 'a', 1) too much", "the word much is not expected; see line 1, column "),
    ("DELETE FROM db.t WHERE k = 1 or so", "no column is named so; the tables have k, v, n (DataFusion: No field named so"),
    ("DELETE FROM db.t WHERE k = 1 too much", "the word too is not expected; see line 1, column "),
    ("UPDATE db.t SET v =", "a value is missing beside =; see line 1, column 19 (parser: "),
    ("CREATE TABLE db.u (k INT) forever", "'forever' at character 27 is not expected: USING, PARTITIONED BY"),
    ("CREATE TABLE db.u (k INT, K INT)", "the column K is given twice; name a column once"),
    (MERGE + " WHEN MATCHED THEN DELETE", "write MERGE INTO database.table USING source ON condition WHEN ... THEN"),
    (ON + " WHEN MATCHED THEN BURN", "the word BURN has no meaning here; see line 1, column "),
    (ON, "a part of the WHEN clauses is missing; see line 1"),
    # not possible
    ("SELECT nope FROM db.t", "no column is named nope; the tables have k, v, n (DataFusion: No field named nope)"),
    ("UPDATE db.t SET v = nope", "no column is named nope; the tables have k, v, n (DataFusion: No field named nope)"),
    (ON + " AND s.nope = 1 WHEN MATCHED THEN DELETE", "no column is named nope; the tables have "),
    ("SELECT v + 1 FROM db.t", "STRING + BIGINT has no result: CAST one of them (DataFusion: "),
    ("SELECT k FROM db.t GROUP BY v", "t.k must be in GROUP BY or in an aggregate function (DataFusion: "),
    ("SELECT k FROM db.t JOIN db.t u ON true", "several tables have a column k: name it as table.k (DataFusion: "),
    ("SELECT CAST(v AS INT) FROM db.t", "'a' is no INT: select other rows, or use TRY_CAST (DataFusion: "),
    ("UPDATE db.t SET n = CAST(v AS INT)", "'a' is no INT: select other rows, or use TRY_CAST (DataFusion: "),
    ("SELECT abs(v) FROM db.t", "the function abs() does not take these arguments: change or CAST them (DataFusion: "),
    ("SELECT k FROM db.t WHERE k", "the condition t.k is of type INT: compare it with a value (DataFusion: "),
    ("SELECT (SELECT k FROM db.t) AS k FROM db.t", "a subquery in place of a value has several rows: use LIMIT 1 or"),
    ("SELECT k FROM db.t UNION SELECT k, v FROM db.t", "the queries of a UNION have different numbers of columns"),
    ("CALL sys.compact(", "it ends at character 18: a literal was expected"),
]  # fmt: skip


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog(str(tmp_path))
    run(catalog, "CREATE DATABASE db")
    run(
        catalog,
        "CREATE TABLE db.t (k INT NOT NULL, v STRING, n INT NOT NULL) TBLPROPERTIES ('primary-key'='k', 'bucket'='1')",
    )
    run(catalog, "INSERT INTO db.t VALUES (1, 'a', 1), (2, 'b', 2);;")
    return catalog


def run(catalog: Catalog, text: str) -> StatementResult:
    return StatementRunner(Session(catalog), LocalEngine()).run(text)


def require_unchanged(catalog: Catalog) -> None:
    assert catalog.list_tables("db") == ["t"]
    assert len(catalog.table("db.t").snapshots()) == 1


@pytest.mark.parametrize(("text", "reason"), INVALID)
def test_the_sentence_is_ours_and_the_library_speaks_after_it(catalog: Catalog, text: str, reason: str) -> None:
    with pytest.raises(InvalidStatement) as raised:
        rows = run(catalog, text).rows
        assert rows is None
    message = str(raised.value)
    assert message.startswith("SQL ") and reason in message
    assert not any(word in message for word in ("<class", "Schema error", "Arrow error", "dredge_", "\x1b", "\n"))
    assert str(pickle.loads(pickle.dumps(raised.value))) == message
    require_unchanged(catalog)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("SELECT 1; SELECT 2", UnsupportedFeature, "'SELECT 2' follows; run each statement in a call of its own"),
        ("INSERT INTO db.t VALUES (3, 'c', 3); DROP TABLE db.t", UnsupportedFeature, "'DROP TABLE db.t' follows"),
        ("VANISH db.t", UnsupportedFeature, "the statement VANISH; supported: SELECT"),
        ("UPDATE db.t SET v = 'x' LIMIT 1", UnsupportedFeature, "LIMIT 1 in UPDATE; UPDATE takes SET"),
        ("SELECT vanish(k) FROM db.t", UnsupportedFeature, r"the function vanish\(\) in the local engine"),
        ("SELECT k FROM db.t QUALIFY row_number() OVER (ORDER BY k) = 1", UnsupportedFeature, "QUALIFY in the local"),
        ("INSERT INTO db.t (k, v) VALUES (5, 'x')", InvalidData, "column 'n': the column is NOT NULL"),
        ("INSERT INTO db.t (k, v) SELECT 5, 'x'", InvalidData, "column 'n': the column is NOT NULL"),
        ("UPDATE db.t SET n = NULL", InvalidData, "column 'n': .*null in a NOT NULL column"),
        (
            "MERGE INTO db.t USING (SELECT 9 AS k) s ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)",
            InvalidData,
            "column 'n': the column is NOT NULL",
        ),
        (
            (
                "MERGE INTO db.t USING (SELECT * FROM (VALUES (1, 'x'), (1, 'y')) AS w (k, v)) s ON t.k = s.k "
                "WHEN MATCHED THEN UPDATE SET v = s.v"
            ),
            InvalidData,
            "make the source's rows unique",
        ),
    ],
)
def test_a_statement_that_is_refused_does_nothing(
    catalog: Catalog, text: str, kind: type[DredgeError], reason: str
) -> None:
    with pytest.raises(kind, match=reason):
        run(catalog, text)
    require_unchanged(catalog)


def test_semicolons_and_comments_around_a_statement_are_nothing() -> None:
    assert split_statements(";; SELECT ';' AS `;` -- ;\n; /* ; */ ; SELECT \"it''s;\" ;") == [
        "SELECT ';' AS `;` -- ;",
        "SELECT \"it''s;\"",
    ]
    assert split_statements("/* head */ SELECT 1 -- tail") == ["/* head */ SELECT 1 -- tail"]
    assert split_statements("-- nothing; at all") == []


def test_a_comment_is_no_part_of_a_column_name(catalog: Catalog) -> None:
    rows = run(catalog, "SELECT k + 1 -- one more\n FROM db.t; -- the end").rows
    assert rows is not None and rows.column_names == ["k + 1"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT nope FROM db.t", "a column does not exist: name a column of its tables ([UNRESOLVED_COLUMN"),
        ("SELECT vanish(k) FROM db.t", "a function does not exist: use a function of Spark ([UNRESOLVED_ROUTINE"),
        ("SELECT k FROM db.t GROUP BY v", "a column is neither in GROUP BY nor in an aggregate function: add it"),
    ],
)
def test_what_spark_refuses_begins_with_our_sentence(spark: Any, catalog: Catalog, text: str, reason: str) -> None:
    from lsm_core.spark import sql

    with pytest.raises(SparkFailed) as raised:
        sql(spark, text, catalog=catalog)
    assert str(raised.value).startswith(f"Spark failed at planning the query '{text}': {reason}")


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO db.t (k, n) VALUES (1, 2),",
        "INSERT INTO db.t (k, n) VALUES (1, 2,)",
        "INSERT INTO db.t (k, n) SELECT 1, 2, -- end",
        "SELECT k FROM db.t WHERE k IN (1, /* none */ )",
        "UPDATE db.t SET n = 1,",
        "SELECT k, FROM db.t",
        "SELECT count(*), -- all\nfrom db.t",
        "SELECT k FROM (SELECT k, FROM db.t) x",
        "SELECT k FROM db.t, WHERE k = 1",
        "SELECT k FROM db.t GROUP BY k, HAVING k > 0",
        "SELECT 1, UNION SELECT 2",
        "INSERT INTO db.t (k, n) SELECT k, n, FROM db.t",
    ],
)
def test_a_comma_at_the_end_of_a_list_is_refused_as_by_spark(catalog: Catalog, text: str) -> None:
    with pytest.raises(InvalidStatement, match="nothing follows the comma"):
        run(catalog, text)
    require_unchanged(catalog)


def test_a_comma_inside_a_text_is_not_the_end_of_a_list(catalog: Catalog) -> None:
    rows = run(catalog, "SELECT 'a,' AS x, 'b,)' AS y, 'it''s,' AS z, 'c, from d' AS `from`").rows
    assert rows is not None
    assert rows.to_pylist() == [{"x": "a,", "y": "b,)", "z": "it's,", "from": "c, from d"}]
