"""INSERT, UPDATE and MERGE of the engine of this process store values as Spark's INSERT does, or refuse them with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.errors import InvalidData
from lsm_core.sql.commands import Session, StatementResult
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.running import StatementRunner

COLUMNS = {
    "tiny": "TINYINT", "whole": "INT", "long": "BIGINT", "f": "FLOAT", "x": "DOUBLE", "m": "DECIMAL(6, 2)", "s": "STRING",
    "b": "BOOLEAN", "d": "DATE", "at": "TIMESTAMP_NTZ", "z": "TIMESTAMP", "raw": "BINARY", "a": "ARRAY<INT>",
}  # fmt: skip
SOURCES = [
    "CAST(7 AS TINYINT)", "CAST(30 AS BIGINT)", "CAST(1.1 AS FLOAT)", "CAST(-2.675 AS DOUBLE)", "2.675", "-0.005", "'x'",
    "true", "DATE '2024-01-02'", "TIMESTAMP_NTZ '2024-01-02 23:04:05.6'", "TIMESTAMP '1969-12-31 23:00:00'", "X'6162'",
    "NULL", "array(1)", "array(1.7, -2.5, NULL)", "array(1.2D)", "array('1')", "array(true)",
]  # fmt: skip
TOO_LARGE = [
    ("CAST(3000000000 AS BIGINT)", "whole"), ("CAST(128 AS INT)", "tiny"), ("CAST(1e20 AS DOUBLE)", "whole"),
    ("CAST(1e20 AS DOUBLE)", "long"), ("CAST('NaN' AS DOUBLE)", "whole"), ("123456.1", "m"), ("3000000000.5", "whole"),
    ("CAST(1e10 AS DOUBLE)", "m"), ("CAST(20000 AS BIGINT)", "m"),
]  # fmt: skip


def run(catalog: Catalog, text: str) -> StatementResult:
    return StatementRunner(Session(catalog), LocalEngine()).run(text)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog(str(tmp_path))
    run(catalog, "CREATE DATABASE db")
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    for table in ("inserted", "updated", "merged", "empty"):
        options = "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')"
        run(catalog, f"CREATE TABLE db.{table} (k INT NOT NULL, {columns}) {options}")
    return catalog


def columns_that_take(spark: Any, source: str) -> list[str]:
    """Return the columns into which Spark's INSERT stores the value, by the rule with which its analysis decides."""
    rule = spark._jvm.org.apache.spark.sql.catalyst.expressions.Cast
    (value,) = spark._jsparkSession.sql(f"SELECT {source} AS v").schema().fields()
    fields = spark._jsparkSession.table("judge").schema().fields()
    taken = [field.name() for field in fields if rule.canANSIStoreAssign(value.dataType(), field.dataType())]
    return [column for column in COLUMNS if column in taken]


def store(spark: Any, catalog: Catalog, key: int, source: str, columns: list[str]) -> None:
    """Store one value in all columns that take it: by Spark's INSERT, and by the three statements of this process."""
    names = ", ".join(columns)
    items = ", ".join(f"{source} {column}" for column in columns)
    spark.sql(f"INSERT INTO judge (k, {names}) SELECT {key}, {', '.join([source] * len(columns))}")
    run(catalog, f"INSERT INTO db.inserted BY NAME SELECT {key} k, {items}")
    run(catalog, f"INSERT INTO db.updated (k) VALUES ({key})")
    run(catalog, f"UPDATE db.updated SET {', '.join(f'{column} = {source}' for column in columns)} WHERE k = {key}")
    values = ", ".join(f"s.{column}" for column in columns)
    run(
        catalog,
        f"MERGE INTO db.merged t USING (SELECT {key} k, {items}) s ON t.k = s.k "
        f"WHEN NOT MATCHED THEN INSERT (k, {names}) VALUES (s.k, {values})",
    )


@pytest.mark.spark
def test_values_of_every_type_are_stored_or_refused_as_by_spark(spark: Any, catalog: Catalog, tmp_path: Path) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    spark.sql(f"CREATE TABLE judge (k INT, {columns}) USING parquet LOCATION '{tmp_path}/judge'")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        for key, source in enumerate(SOURCES):
            accepted = columns_that_take(spark, source)
            if accepted:
                store(spark, catalog, key, source, accepted)
            for place, column in enumerate(sorted(COLUMNS.keys() - accepted)):
                if place == 0:
                    with pytest.raises(Exception, match="INCOMPATIBLE_DATA_FOR_TABLE"):
                        spark.sql(f"INSERT INTO judge (k, {column}) SELECT 1, {source}")
                merge = "MERGE INTO db.empty t USING (SELECT 1 k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET"
                statements = (
                    f"INSERT INTO db.empty (k, {column}) SELECT 1, {source}",
                    f"INSERT INTO db.empty (k, {column}) VALUES (1, {source})",
                    f"UPDATE db.empty SET {column} = {source}",
                    f"{merge} {column} = {source}",
                )
                with pytest.raises(InvalidData, match=f"column '{column}'.* not fit"):
                    run(catalog, statements[(key + place) % len(statements)])
        for source, column in TOO_LARGE:
            with pytest.raises(Exception, match=r"OVERFLOW|OUT_OF_RANGE"):
                spark.sql(f"INSERT INTO judge (k, {column}) SELECT 99, {source}")
        wanted = spark.table("judge").orderBy("k").toArrow().to_pylist()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.sql("DROP TABLE judge")
    assert len(wanted) >= len(SOURCES) - 2  # arrays of texts and of truths fit no column
    for table in ("inserted", "updated", "merged"):
        rows = catalog.table(f"db.{table}").to_arrow().sort_by("k").to_pylist()
        assert [(SOURCES[row["k"]], row) for row in rows] == [(SOURCES[row["k"]], row) for row in wanted]


@pytest.mark.parametrize(("source", "column"), TOO_LARGE)
def test_a_value_that_does_not_fit_names_its_column(catalog: Catalog, source: str, column: str) -> None:
    run(catalog, "INSERT INTO db.updated (k) VALUES (1)")
    merge = "MERGE INTO db.updated t USING (SELECT 1 k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET"
    for statement in (
        f"INSERT INTO db.updated (k, {column}) SELECT 1, {source}",
        f"INSERT INTO db.updated (k, {column}) VALUES (1, {source})",
        f"UPDATE db.updated SET {column} = {source}",
        f"{merge} {column} = {source}",
        f"{merge} {column} = t.{column} WHEN NOT MATCHED BY SOURCE THEN UPDATE SET {column} = {source}",
        f"MERGE INTO db.updated t USING (SELECT 2 k) s ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k, {column}) VALUES (2, {source})",
    ):
        if "BY SOURCE" in statement:
            run(catalog, statement)  # no row is without a source: the value is not computed
            continue
        with pytest.raises(InvalidData, match=rf"column '{column}'.*does not fit"):
            run(catalog, statement)
    assert catalog.table("db.updated").to_arrow().select(["k", column]).to_pylist() == [{"k": 1, column: None}]


def test_clauses_of_a_merge_do_not_share_a_type(catalog: Catalog) -> None:
    """With one type for the values of all clauses, a DOUBLE would cost the BIGINT of another row its last digits."""
    run(catalog, "INSERT INTO db.merged (k, long, s) VALUES (1, 9007199254740993, 'a'), (2, 9007199254740995, 'b')")
    run(
        catalog,
        "MERGE INTO db.merged t USING (SELECT * FROM (VALUES (1, 9007199254740997), (2, 5)) AS v (k, n)) s ON t.k = s.k "
        "WHEN MATCHED AND s.n = 5 THEN UPDATE SET s = 1e20 "
        "WHEN MATCHED AND s.n = 6 THEN UPDATE SET long = 0.5e0 WHEN MATCHED THEN UPDATE SET long = s.n",
    )
    rows = catalog.table("db.merged").to_arrow().select(["k", "long", "s"]).sort_by("k").to_pylist()
    assert rows == [
        {"k": 1, "long": 9007199254740997, "s": "a"},
        {"k": 2, "long": 9007199254740995, "s": "1.0E20"},
    ]


def test_defaults_and_created_tables_follow_the_same_rules(catalog: Catalog) -> None:
    run(
        catalog,
        "CREATE TABLE db.d (k INT, n BIGINT NOT NULL DEFAULT 7, d DATE DEFAULT '2024-01-02', s STRING) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')",
    )
    run(catalog, "INSERT INTO db.d (k, d) VALUES (1, DEFAULT), (2, DATE '2023-01-01')")
    run(catalog, "UPDATE db.d SET d = DEFAULT, s = DEFAULT WHERE k = 2")
    run(
        catalog,
        "MERGE INTO db.d t USING (SELECT 3 k) s ON t.k = s.k "
        "WHEN NOT MATCHED AND s.k = 4 THEN INSERT (k, n) VALUES (s.k, 5) "
        "WHEN NOT MATCHED THEN INSERT (k, d) VALUES (s.k, DEFAULT)",
    )
    rows = catalog.table("db.d").to_arrow().sort_by("k").to_pylist()
    assert [tuple(map(str, row.values())) for row in rows] == [(str(k), "7", "2024-01-02", "None") for k in (1, 2, 3)]
    run(
        catalog,
        "CREATE TABLE db.c AS SELECT current_timestamp() AS at, CAST(k AS BIGINT) AS n, 1 AS one, -2 AS two, 3000000000 AS three, 1.5 AS half FROM db.d",
    )
    kinds = [pa.timestamp("us", "UTC"), pa.int64(), pa.int32(), pa.int32(), pa.int64(), pa.decimal128(2, 1)]
    assert catalog.table("db.c").to_arrow().schema.types == kinds
    run(catalog, "CREATE TABLE db.u AS SELECT 1 AS x UNION ALL (SELECT 2)")
    assert catalog.table("db.u").to_arrow().schema.types == [pa.int32()]
