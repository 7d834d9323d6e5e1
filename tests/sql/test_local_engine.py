"""Queries answered in this process: what DataFusion answers is what Spark would, what it would answer otherwise is refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.cli.app import run as dredge
from lsm_core.errors import CorruptFile, DredgeError, InvalidOption, TableNotFound, UnsupportedFeature
from lsm_core.sql.local_engine import LocalEngine, TableDataset, answer_query
from lsm_core.sql.queries import plan_query

NAN = float("nan")
FIELDS = pa.schema(
    [
        pa.field("k", pa.int32(), nullable=False),
        ("Name", pa.string()),
        ("d", pa.float64()),
        ("c", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("r", pa.struct([("X", pa.int32())])),
        ("l", pa.list_(pa.int32())),
    ]
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(str(tmp_path_factory.mktemp("warehouse")))
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(FIELDS, primary_keys=["k"], options={"bucket": "1"}))
    table.write([{"k": 1, "Name": "x", "d": 0.5, "c": Decimal("1.10"), "r": {"X": 1}, "l": [1, 2]}])
    table.write(
        [{"k": 2, "Name": "Y", "d": NAN, "r": {"X": 5}}, {"k": 3, "Name": None, "d": -0.0, "c": Decimal("7.00")}]
    )
    plain = catalog.create_table(
        "db.u", pa.schema([("a", pa.int64()), ("w", pa.string()), ("p", pa.string())]), partition_keys=["p"]
    )
    plain.write([{"a": 1, "w": "one", "p": "x"}, {"a": 3, "w": "three", "p": "y"}, {"a": None, "w": "none", "p": "y"}])
    return catalog


def test_the_length_of_binary_values_is_their_number_of_bytes(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    kinds = pa.schema([("k", pa.int32()), ("x", pa.binary()), ("y", pa.binary(2)), ("s", pa.string())])
    catalog.create_table("db.b", kinds).write(
        [{"k": 1, "x": b"\xff\xfe\xfd", "y": b"\xff\x00", "s": "é"}, {"k": 2, "x": b""}, {"k": 3}]
    )
    answer = LocalEngine().answer(catalog, "SELECT k, length(x), LENGTH(b.y), length(s) FROM db.b b ORDER BY k")
    assert [field.type for field in answer.schema][1:] == [pa.int32()] * 3
    assert [tuple(row.values()) for row in answer.read_all().to_pylist()] == [
        (1, 3, 2, 1),
        (2, 0, None, None),
        (3, None, None, None),
    ]
    assert rows(catalog, "SELECT k FROM db.b WHERE length(x) > 2") == [(1,)]
    assert rows(catalog, "SELECT sum(length(x)) FROM db.b GROUP BY k HAVING max(length(x)) >= 0 ORDER BY k") == [
        (3,),
        (0,),
    ]


def rows(catalog: Catalog, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in LocalEngine().answer(catalog, text).read_all().to_pylist()]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("SELECT count(*), count(d), count(DISTINCT name) FROM db.t", [(3, 3, 2)]),
        ("SELECT count(*) FROM db.u WHERE a > 1", [(1,)]),
        ("SELECT CAST(CAST('64098805.8361946025' AS DECIMAL(38, 10)) AS DOUBLE)", [(64098805.8361946025,)]),
        ("SELECT CAST(c AS DOUBLE) FROM db.t WHERE k = 3", [(7.0,)]),
        # The nearest numbers, not those of a decimal that is cast.
        ("SELECT CAST(1e30 AS DOUBLE), -1e30, CAST(-(1e30) AS DOUBLE), 1e30 * 1", [(1e30, -1e30, -1e30, 1e30)]),
        ("SELECT count(*) FROM db.u, db.t", [(9,)]),
        ("SELECT NAME, k FROM db.t WHERE K IN (1, 3) ORDER BY k DESC", [(None, 3), ("x", 1)]),
        ("SELECT k FROM db.t WHERE d > 100", [(2,)]),  # NaN is the largest number, as in Spark
        ("SELECT k FROM db.t WHERE d = 0.0", [(3,)]),
        ("SELECT k FROM db.t ORDER BY name", [(3,), (2,), (1,)]),  # nulls first, as in Spark
        ("SELECT k FROM db.t WHERE c = 1.1 AND name LIKE 'x%'", [(1,)]),
        (
            "SELECT DATE '2024', DATE '2024-3', CAST('2024-03-9' AS DATE), TRY_CAST('2024' AS DATE)",
            [(date(2024, 1, 1), date(2024, 3, 1), date(2024, 3, 9), date(2024, 1, 1))],
        ),
        (
            "SELECT TRY_CAST('x' AS DECIMAL(5, 2)), TRY_CAST('1.256' AS DECIMAL(5, 2)), TRY_CAST('x' AS TIMESTAMP)",
            [(None, Decimal("1.26"), None)],
        ),
        ("SELECT TRY_CAST(99999 AS DECIMAL(5, 2)), TRY_CAST('x' AS TIMESTAMP_NTZ)", [(None, None)]),
        ("SELECT count(*) WHERE TIMESTAMP_LTZ '2024-01-01 02:00:00+02:00' = TIMESTAMP '2024-01-01 00:00:00'", [(1,)]),
        ("SELECT c + 1.25, c * 2 FROM db.t WHERE k = 1", [(Decimal("2.35"), Decimal("2.20"))]),
        ("SELECT a FROM db.u WHERE a NOT IN (3)", [(1,)]),
        ("SELECT a FROM db.u WHERE NOT w = 'one' AND a IS NOT NULL", [(3,)]),
        ("SELECT 7 / 2, 7 DIV 2, -7 % 3", [(3.5, 3, -1)]),
        ("SELECT r.x, t.R.X FROM db.t WHERE r.X = 5", [(5, 5)]),
        ("SELECT l[0], explode(l) FROM db.t WHERE k = 1", [(1, 1), (1, 2)]),
        ("SELECT t.k, u.w FROM db.t LEFT JOIN db.u u ON t.k = u.a WHERE t.k < 3 ORDER BY k", [(1, "one"), (2, None)]),
        ("SELECT k FROM db.t LEFT ANTI JOIN db.u ON t.k = u.a", [(2,)]),
        ("SELECT w, count(*) AS N FROM db.u GROUP BY w HAVING count(*) > 0 ORDER BY w LIMIT 1", [("none", 1)]),
        ("WITH q AS (SELECT a FROM db.u) SELECT q.a FROM q, db.u WHERE q.a = u.a ORDER BY 1", [(1,), (3,)]),
        ("SELECT a FROM db.u WHERE a = (SELECT max(k) FROM db.t)", [(3,)]),
        ("SELECT a, row_number() OVER (ORDER BY a) FROM db.u", [(None, 1), (1, 2), (3, 3)]),
        ("SELECT k FROM paimon.db.t VERSION AS OF 1", [(1,)]),
        ("SELECT /*+ BROADCAST(u) */ a FROM db.u WHERE a = 1", [(1,)]),
        ("SELECT snapshot_id FROM db.t$snapshots ORDER BY 1", [(1,), (2,)]),
        ("SELECT snapshot_id FROM db.t$snapshots -- it's\n WHERE commit_kind <> 'a.b$c' AND snapshot_id = 1", [(1,)]),
        (
            "SELECT k, isnan(d), if(k = 2, 'two', upper(name)) FROM db.t WHERE k < 3 ORDER BY k",
            [(1, False, "X"), (2, True, "two")],
        ),
        ("SELECT DATE '2024-01-31' AS d, date_add(DATE '2024-01-31', 1), year(DATE '2024-01-31')", None),
        ("SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v(x, y) WHERE x = 2", [(2, "b")]),
        (
            "SELECT CASE WHEN c IS NULL THEN coalesce(name, '-') ELSE CAST(c AS STRING) END FROM db.t ORDER BY k",
            [("1.10",), ("Y",), ("7.00",)],
        ),
    ],
)
def test_answers(catalog: Catalog, text: str, answer: list[tuple[Any, ...]] | None) -> None:
    import datetime as dt

    wanted = [(dt.date(2024, 1, 31), dt.date(2024, 2, 1), 2024)] if answer is None else answer
    assert rows(catalog, text) == wanted


def test_columns_have_the_names_that_the_query_says(catalog: Catalog) -> None:
    def names(text: str) -> list[str]:
        return list(LocalEngine().answer(catalog, text).schema.names)

    assert names("SELECT NAME, k AS Key, k, K, k + 1 FROM db.t") == ["NAME", "Key", "k", "K", "k + 1"]
    assert names("SELECT *, 1 AS One FROM db.t") == [*FIELDS.names, "One"]
    assert rows(catalog, "SELECT K, k FROM db.t WHERE k = 1") == [(1, 1)]


def test_columns_and_tests_are_pushed_into_the_read(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, str]] = []
    scanner = TableDataset.scanner

    def seen(self: TableDataset, *schema: Any, **how: Any) -> Any:
        asked.append((how["columns"], str(how["filter"])))
        return scanner(self, *schema, **how)

    monkeypatch.setattr(TableDataset, "scanner", seen)
    assert rows(catalog, "SELECT w FROM db.u WHERE a > 1 AND w <> 'x' AND p = 'y'") == [("three",)]
    columns, condition = asked[-1]
    assert sorted(columns) == ["w"]
    assert all(part in condition for part in ("(a > 1)", '(w != "x")', '(p == "y")'))
    (read,) = plan_query(catalog, "SELECT w FROM db.u WHERE a > 1 AND p = 'y'").reads
    assert read.tests == (("a", ">", 1), ("p", "=", "y"))


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        (
            "SELECT date_format(day, 'yyyy') FROM db.t",
            UnsupportedFeature,
            r"the function \w+\(\) in the local engine; use --engine spark",
        ),
        ("SELECT frob(k) FROM db.t", UnsupportedFeature, r"the function frob\(\) in the local engine"),
        ("SELECT CAST(d AS STRING) FROM db.t", UnsupportedFeature, "whose text would differ"),
        ("SELECT substring(name, -1) FROM db.t", UnsupportedFeature, "substring from -1"),
        ("SELECT * FROM db.t TABLESAMPLE (10 PERCENT)", UnsupportedFeature, "TABLESAMPLE"),
        ("SELECT x FROM db.t LATERAL VIEW explode(l) e AS x", UnsupportedFeature, "LATERAL VIEW"),
        ("SELECT nothing FROM db.u", InvalidOption, "'SELECT nothing FROM db.u'.*No field named nothing"),
        ("SELECT k FROM other.db.t", TableNotFound, "name tables as database.table"),
        ("SELECT k FROM t", TableNotFound, "name tables as database.table"),
        ("SELECT k FROM 'file.parquet'", TableNotFound, "no table `file.parquet`"),
        ("SELECT 1 +", InvalidOption, "a query in Spark SQL"),
    ],
)
def test_what_cannot_be_answered_is_named(catalog: Catalog, text: str, error: type[DredgeError], match: str) -> None:
    with pytest.raises(error, match=match):
        rows(catalog, text)


def test_maps_without_entries_do_not_end_the_process(catalog: Catalog) -> None:
    for text in ("map()", "map_from_arrays(array(), array())"):
        with pytest.raises(UnsupportedFeature, match="a map without entries"):
            rows(catalog, f"SELECT {text}")
    with pytest.raises(InvalidOption, match="pairs of a key and a value"):
        rows(catalog, "SELECT map('a')")


def test_tinyint_has_its_range_and_try_cast_gives_null(catalog: Catalog) -> None:
    with pytest.raises(DredgeError, match="is no TINYINT"):
        rows(catalog, "SELECT CAST(k + 300 AS TINYINT) FROM db.t")
    text = "SELECT CAST(k AS TINYINT), TRY_CAST(k + 300 AS TINYINT), TRY_CAST(name AS INT), -128Y FROM db.t ORDER BY 1"
    assert rows(catalog, text) == [(k, None, None, -128) for k in (1, 2, 3)]


def test_no_file_and_no_function_of_the_engine_can_be_reached(catalog: Catalog, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a\n1\n")
    for text in (
        f"SELECT * FROM `{file}`",
        f"SELECT * FROM read_csv('{file}')",
        "SELECT * FROM information_schema.tables",
        f"SELECT * FROM db.`{file}`",
    ):
        with pytest.raises(DredgeError):
            rows(catalog, text)


def test_a_damaged_file_is_the_error_of_its_reader(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    catalog.create_table("db.t", pa.schema([("a", pa.int64())])).write(pa.table({"a": [1, 2]}))
    (file,) = (tmp_path / "db.db" / "t" / "bucket-0").glob("data-*")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(CorruptFile, match=file.name):
        rows(catalog, "SELECT sum(a) FROM db.t")


def test_two_mentions_of_a_table_have_one_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", pa.schema([("a", pa.int64())]))
    table.write(pa.table({"a": [0]}))
    query = plan_query(catalog, "SELECT (SELECT count(*) FROM db.t) AS x, (SELECT count(*) FROM db.t) AS y")
    opened = TableDataset.__init__
    written: list[int] = []

    def and_write(self: TableDataset, *arguments: Any) -> None:
        opened(self, *arguments)
        if len(written) < 3:
            written.append(1)
            table.write(pa.table({"a": [1]}))

    monkeypatch.setattr(TableDataset, "__init__", and_write)
    (pair,) = answer_query(query).read_all().to_pylist()
    assert pair["x"] == pair["y"]
    assert len(written) == 3


def test_the_verb_answers_without_spark_and_stops_at_the_rows_shown(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--warehouse", catalog.root, "--engine", "local", "--json"]
    assert dredge(["sql", "SELECT a, w FROM db.u WHERE a IS NOT NULL ORDER BY a", "--max-rows", "1", *where]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "columns": ["a", "w"],
        "rows": [{"a": 1, "w": "one"}],
        "complete": False,
    }


def test_everything_needs_no_spark(tmp_path: Path) -> None:
    program = """
import sys
sys.modules["pyspark"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "pyspark" else found(name, *more)
from lsm_core.cli.app import run
where = ["--warehouse", sys.argv[1]]
for text in ("CREATE DATABASE db", "CREATE TABLE db.t (a INT)", "ALTER TABLE db.t ADD COLUMN b INT", "DESCRIBE db.t",
             "INSERT INTO db.t VALUES (1, 2)", "CALL sys.create_branch('db.t', 'dev')"):
    assert run(["sql", text, *where]) == 0, text
assert "datafusion" not in sys.modules
assert run(["sql", "SELECT a + b AS n FROM db.t", *where]) == 0
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["n", "3"]


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ("n = '2024-01-01 00:00:00+02:00'", True),
        ("'2024-01-01 00:00:00 Europe/Berlin' <= n", True),
        ("n IN ('2024-01-01 00:00:00+02:00')", True),
        ("n BETWEEN '2024-01-01 00:00:00+02:00' AND '2024-01-01 00:00:00Z'", True),
        ("n = s", True),
        ("n = TIMESTAMP_NTZ '2024-01-01 00:00:00+02:00'", True),
        ("n = TIMESTAMP '2024-01-01 02:00:00+02:00'", True),
        ("n = TIMESTAMP '2024-01-01 00:00:00+02:00'", False),
        ("z = '2024-01-01 00:00:00+02:00'", False),
        ("z = '2024-01-01 02:00:00+02:00'", True),
    ],
)
def test_time_zones_of_texts_beside_times_without_zone_are_ignored_as_by_spark(
    tmp_path: Path, condition: str, matches: bool
) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    kinds = pa.schema([("n", pa.timestamp("us")), ("z", pa.timestamp("us", "UTC")), ("s", pa.string())])
    table = catalog.create_table("db.t", kinds)
    moment = {"n": datetime(2024, 1, 1), "z": datetime(2024, 1, 1, tzinfo=UTC), "s": "2024-01-01 00:00:00+02:00"}
    table.write(pa.Table.from_pylist([moment], schema=kinds))
    text = f"SELECT count(*) AS n FROM db.t WHERE {condition}"
    assert LocalEngine().answer(catalog, text).read_all()["n"].to_pylist() == [int(matches)]
    if "s" not in condition.split() and "Berlin" not in condition:
        assert table.to_arrow(filter=condition).num_rows == int(matches)
