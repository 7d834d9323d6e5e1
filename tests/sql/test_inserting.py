"""INSERT and CREATE TABLE ... AS SELECT in every form, by the engine of this process."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.errors import ColumnNotFound, DredgeError, InvalidData, InvalidOption, TableExists, UnsupportedFeature
from lsm_core.sql.commands import Session, StatementResult
from lsm_core.sql.inserting import read_insert
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.running import StatementRunner


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog(str(tmp_path))
    run(catalog, "CREATE DATABASE db")
    run(
        catalog, "CREATE TABLE db.t (id INT NOT NULL, v STRING DEFAULT 'none', dt STRING, h INT) PARTITIONED BY (dt, h)"
    )
    return catalog


def run(catalog: Catalog, text: str, *, dynamic: bool = False) -> StatementResult:
    return StatementRunner(Session(catalog, dynamic_overwrite=dynamic), LocalEngine()).run(text)


def rows(catalog: Catalog, text: str = "SELECT * FROM db.t ORDER BY id") -> list[tuple[Any, ...]]:
    found = run(catalog, text).rows
    assert found is not None
    return [tuple(row.values()) for row in found.to_pylist()]


def test_values_and_queries_by_position_by_list_and_by_name(catalog: Catalog) -> None:
    assert run(catalog, "INSERT INTO db.t VALUES (1, 'a', 'x', 1), (-2, DEFAULT, 'x', 2);").snapshot_id == 1
    run(catalog, "INSERT INTO TABLE db.t (H, id, dt) VALUES (3, 3, 'y')")
    run(catalog, "INSERT INTO db.t (id, dt, h) SELECT id + 10, dt, h FROM db.t WHERE v = 'a'")
    run(catalog, "INSERT INTO db.t BY NAME SELECT 4 AS ID, 'z' AS dt, 1 AS h, 'b' AS v")
    run(catalog, "INSERT INTO db.t PARTITION (dt = 'p', h) SELECT 5, 'c', 9")
    run(catalog, "INSERT INTO db.t PARTITION (DT = 'p', H = '8') VALUES (6, 'd')")
    run(catalog, "INSERT INTO db.t PARTITION (dt = 'q', h = 1) (id) VALUES (7)")
    run(catalog, "INSERT INTO db.t VALUES (2 * 4, upper('e'), 'q', 1)")
    assert rows(catalog) == [
        (-2, "none", "x", 2),
        (1, "a", "x", 1),
        (3, "none", "y", 3),
        (4, "b", "z", 1),
        (5, "c", "p", 9),
        (6, "d", "p", 8),
        (7, "none", "q", 1),
        (8, "E", "q", 1),
        (11, "none", "x", 1),
    ]


def test_values_of_every_type(catalog: Catalog) -> None:
    run(
        catalog,
        """CREATE TABLE db.v (b BOOLEAN, i TINYINT, l BIGINT, f FLOAT, d DOUBLE, c DECIMAL(20, 3), s STRING, x BINARY, day DATE,
             at TIMESTAMP_NTZ, z TIMESTAMP, a ARRAY<INT>, m MAP<STRING, INT>, r STRUCT<p: INT, q: STRING>)""",
    )
    run(
        catalog,
        """INSERT INTO db.v VALUES
          (true, 1, 9007199254740993L, 1.5, 2.5D, 12345678901234567.125, 'it\\'s', X'00ff', DATE '2024-01-31',
           TIMESTAMP_NTZ '2024-01-31 12:00:00.5', TIMESTAMP '2024-01-31 12:00:00Z', array(1, NULL), map('k', 1), named_struct('p', 1, 'q', 'z')),
          (NULL, -1, 1, 1, 1e3, -1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)""",
    )
    noon = dt.datetime(2024, 1, 31, 12, 0)
    first, second = catalog.table("db.v").to_arrow().to_pylist()
    assert list(first.values()) == [
        *(
            True,
            1,
            9007199254740993,
            1.5,
            2.5,
            Decimal("12345678901234567.125"),
            "it's",
            b"\x00\xff",
            dt.date(2024, 1, 31),
        ),
        *(noon.replace(microsecond=500_000), noon.replace(tzinfo=dt.UTC), [1, None], [("k", 1)], {"p": 1, "q": "z"}),
    ]
    assert list(second.values()) == [None, -1, 1, 1.0, 1000.0, Decimal("-1.000"), *[None] * 8]


def test_overwrites_replace_what_they_name(catalog: Catalog) -> None:
    start = "INSERT OVERWRITE db.t VALUES (1, 'a', 'x', 1), (2, 'a', 'x', 2), (3, 'a', 'y', 1)"
    run(catalog, start)
    run(catalog, "INSERT OVERWRITE db.t PARTITION (dt = 'x') VALUES (4, 'b', 1)")
    assert rows(catalog) == [(3, "a", "y", 1), (4, "b", "x", 1)]
    run(catalog, start)
    run(catalog, "INSERT OVERWRITE TABLE db.t PARTITION (dt = 'x', h) SELECT 5, 'c', 1", dynamic=True)
    assert rows(catalog) == [(2, "a", "x", 2), (3, "a", "y", 1), (5, "c", "x", 1)]
    run(catalog, "INSERT OVERWRITE db.t SELECT id, v, dt, h FROM db.t WHERE id = 3")
    assert rows(catalog) == [(3, "a", "y", 1)]
    run(catalog, "INSERT OVERWRITE db.t VALUES (6, 'd', 'z', 1)", dynamic=True)
    assert rows(catalog) == [(3, "a", "y", 1), (6, "d", "z", 1)]
    run(catalog, "INSERT OVERWRITE db.t PARTITION (dt = 'z', h = 1) SELECT id, v FROM db.t WHERE false")
    assert rows(catalog) == [(3, "a", "y", 1)]
    run(catalog, "INSERT OVERWRITE db.t SELECT * FROM db.t WHERE false")
    assert rows(catalog) == []


def test_rows_replace_those_of_their_key(catalog: Catalog) -> None:
    run(catalog, "CREATE TABLE db.k (id INT, v DOUBLE) TBLPROPERTIES ('primary-key' = 'id', bucket = 1)")
    run(catalog, "INSERT INTO db.k VALUES (1, 1.5), (2, 2)")
    run(catalog, "INSERT INTO db.k SELECT id, v * 2 FROM db.k WHERE id = 1")
    assert rows(catalog, "SELECT * FROM db.k ORDER BY id") == [(1, 3.0), (2, 2.0)]


def test_default_is_a_value_in_values_and_in_queries(catalog: Catalog) -> None:
    columns = "id INT, n DECIMAL(5, 2) DEFAULT 1.5, s STRING DEFAULT 'it', d DATE DEFAULT DATE '2024-01-02', e INT"
    run(catalog, f"CREATE TABLE db.k ({columns})")
    run(catalog, "INSERT INTO db.k VALUES (1, DEFAULT, DEFAULT, DEFAULT, DEFAULT)")
    run(catalog, "INSERT INTO db.k SELECT 2, DEFAULT, default, DEFAULT, DEFAULT")
    run(catalog, "INSERT INTO db.k (s, id) SELECT DEFAULT, id + 2 FROM db.k WHERE id = 1")
    found = rows(catalog, "SELECT id, n, s, CAST(d AS STRING), e FROM db.k ORDER BY id")
    assert found == [
        (1, Decimal("1.50"), "it", "2024-01-02", None),
        (2, Decimal("1.50"), "it", "2024-01-02", None),
        (3, Decimal("1.50"), "it", "2024-01-02", None),
    ]
    run(catalog, "CREATE TABLE db.own AS SELECT 7 AS `default`")
    run(catalog, "INSERT INTO db.k (id, e) SELECT `default`, own.default FROM db.own")
    assert rows(catalog, "SELECT id, e FROM db.k WHERE id = 7") == [(7, 7)]


def test_a_table_of_a_query(catalog: Catalog) -> None:
    run(catalog, "INSERT INTO db.t VALUES (1, 'a', 'x', 1), (2, 'b', 'y', 2)")
    text = """CREATE TABLE IF NOT EXISTS db.n PARTITIONED BY (dt) COMMENT 'made' TBLPROPERTIES ('primary-key' = 'DT,id', bucket = 2)
              AS SELECT id, dt, count(*) AS n FROM db.t GROUP BY id, dt"""
    assert run(catalog, text).snapshot_id == 1
    table = catalog.table("db.n")
    assert (table.primary_keys, table.partition_keys, table.schema.comment) == (("dt", "id"), ("dt",), "made")
    assert sorted(map(tuple, (row.values() for row in table.to_arrow().to_pylist()))) == [(1, "x", 1), (2, "y", 1)]
    assert run(catalog, text).snapshot_id is None
    with pytest.raises(TableExists):
        run(catalog, "CREATE TABLE db.n AS SELECT 1 AS x")
    assert catalog.table("db.n").latest_snapshot().id == 1  # type: ignore[union-attr]


def test_a_table_of_a_query_that_fails_is_not_left(catalog: Catalog) -> None:
    run(catalog, "INSERT INTO db.t VALUES (1, 'a', 'x', 1)")
    with pytest.raises(InvalidData, match="null in a primary key column"):
        run(
            catalog,
            "CREATE TABLE db.n TBLPROPERTIES ('primary-key' = 'id') AS SELECT CAST(NULL AS INT) AS id FROM db.t",
        )
    with pytest.raises(UnsupportedFeature, match="column 'a' that holds only nulls"):
        run(catalog, "CREATE TABLE db.n AS SELECT NULL AS a")
    with pytest.raises(UnsupportedFeature, match="columns together with AS SELECT"):
        run(catalog, "CREATE TABLE db.n (a INT) AS SELECT 1")
    assert catalog.list_tables("db") == ["t"]


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("INSERT INTO db.t VALUES (1, 'a')", InvalidOption, r"4 values in each row \(id, v, dt, h\)"),
        (
            "INSERT INTO db.t SELECT 1, 'a'",
            InvalidOption,
            r"'INSERT' of table db.t cannot be '2 columns'; accepted: 4 columns",
        ),
        ("INSERT INTO db.t (id, nothing) VALUES (1, 2)", ColumnNotFound, "no column 'nothing'; it has id, v"),
        ("INSERT INTO db.t (id, ID) VALUES (1, 2)", InvalidOption, "a column once"),
        (
            "INSERT INTO db.t (v, dt, h) VALUES ('a', 'x', 1)",
            InvalidData,
            "column 'id': the column is NOT NULL and has no default, but the rows lack it",
        ),
        ("INSERT INTO db.t VALUES (NULL, 'a', 'x', 1)", InvalidData, "column 'id'.*null in a NOT NULL column"),
        ("INSERT INTO db.t VALUES (3000000000, 'a', 'x', 1)", InvalidData, "column 'id'"),
        ("INSERT INTO db.t VALUES (1, 'a', 'x', 'one')", InvalidData, "column 'h'"),
        ("INSERT INTO db.t PARTITION (id = 1) VALUES ('a', 'x', 1)", ColumnNotFound, "no column 'id'; it has dt, h"),
        ("INSERT INTO db.t PARTITION (h = 'one') VALUES (1, 'a', 'x')", DredgeError, "\"h\".*'one'"),
        (
            "INSERT INTO db.t PARTITION (dt = 'x') (id, dt, h) VALUES (1, 'a', 1)",
            InvalidOption,
            "not among those of the query",
        ),
        ("INSERT INTO db.t BY NAME VALUES (1)", InvalidOption, "VALUES has none"),
        (
            "INSERT INTO db.t REPLACE WHERE dt = 'x' SELECT * FROM db.t",
            UnsupportedFeature,
            "INSERT OVERWRITE ... PARTITION",
        ),
        ("INSERT OVERWRITE DIRECTORY '/x' SELECT 1", UnsupportedFeature, "DIRECTORY"),
        ("INSERT INTO db.t FROB (1)", InvalidOption, "VALUES or SELECT was expected"),
        ("INSERT INTO db.t SELECT 1; DROP TABLE db.t", UnsupportedFeature, "statements other than one query"),
    ],
)
def test_an_insert_that_cannot_be_leaves_the_table_as_it_was(
    catalog: Catalog, text: str, error: type[DredgeError], match: str
) -> None:
    with pytest.raises(error, match=match):
        run(catalog, text)
    assert catalog.table("db.t").latest_snapshot() is None
    assert catalog.table("db.t").to_arrow().num_rows == 0


def test_a_long_list_of_values_is_read(catalog: Catalog) -> None:
    run(catalog, "CREATE TABLE db.n (a INT)")
    run(catalog, "INSERT INTO db.n VALUES " + ", ".join(f"({number})" for number in range(12_000)))
    assert catalog.table("db.n").to_arrow()["a"].to_numpy().sum() == sum(range(12_000))
    assert read_insert("INSERT INTO db.n VALUES (1)").query == "VALUES (1)"


def test_clauses_behind_values_apply_to_its_rows(catalog: Catalog) -> None:
    run(catalog, "INSERT INTO db.t (id) VALUES (1) LIMIT 0")
    run(catalog, "INSERT INTO db.t (id) VALUES (3), (2) ORDER BY 1 LIMIT 1")
    run(catalog, "INSERT INTO db.t (id) VALUES (4) WHERE 1 = 0")
    assert rows(catalog, "SELECT id FROM db.t") == [(2,)]


def test_literals_beyond_their_type_are_refused(catalog: Catalog) -> None:
    run(catalog, "CREATE TABLE db.w (n INT, x DOUBLE, raw BINARY, at TIMESTAMP_NTZ, m MAP<STRING, INT>)")
    refused = {"n": ["300Y", "70000S", "128Y", "9223372036854775808L"], "x": ["1e400", "-1e309"], "m": ["map('a')"]}
    for column, values in refused.items():
        for value in values:
            for statement in (f"VALUES ({value})", f"SELECT {value}"):
                with pytest.raises(DredgeError):
                    run(catalog, f"INSERT INTO db.w ({column}) {statement}")
    run(catalog, "INSERT INTO db.w (n, raw, m) VALUES (-128Y, X'F', map()), (127Y, X'0102', NULL)")
    assert rows(catalog, "SELECT n, raw, m FROM db.w ORDER BY n") == [(-128, b"\x0f", []), (127, b"\x01\x02", None)]


def test_the_zone_of_a_time_without_zone_is_ignored_as_by_spark(catalog: Catalog) -> None:
    run(catalog, "CREATE TABLE db.w (at TIMESTAMP_NTZ)")
    for zone in ("+05:30", " America/New_York", "Z", ""):
        run(catalog, f"INSERT INTO db.w VALUES (TIMESTAMP_NTZ '2024-01-01 00:00:00{zone}')")
    run(catalog, "INSERT INTO db.t (id, v) VALUES (1, '2024-01-01 00:00:00.5+05:30'), (2, '2024-01-01T00:00:00.500')")
    run(catalog, "INSERT INTO db.w SELECT CAST(v AS TIMESTAMP_NTZ) FROM db.t")
    moments = {row[0].isoformat() for row in rows(catalog, "SELECT at FROM db.w")}
    assert moments == {"2024-01-01T00:00:00", "2024-01-01T00:00:00.500000"}
