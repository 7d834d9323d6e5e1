"""CREATE, DROP, TRUNCATE, ALTER, SHOW and DESCRIBE in the forms of Paimon's pages for Spark, on a catalog without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.errors import (
    ColumnNotFound,
    DatabaseExists,
    DatabaseNotFound,
    DredgeError,
    InvalidFilter,
    InvalidOption,
    InvalidSchema,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lsm_core.sql.commands import Session, StatementResult, execute_command
from lsm_core.sql.describing import create_text
from lsm_core.sql.parsing import parse_statement
from lsm_core.types import to_sql


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog(str(tmp_path))
    run(catalog, "CREATE DATABASE db")
    return catalog


def run(catalog: Catalog, text: str) -> StatementResult:
    return execute_command(parse_statement(text), Session(catalog))


def rows(catalog: Catalog, text: str) -> list[tuple[Any, ...]]:
    found = run(catalog, text).rows
    assert found is not None
    return [tuple(row.values()) for row in found.to_pylist()]


def columns(catalog: Catalog, name: str = "db.t") -> list[tuple[str, str]]:
    return [(field.name, to_sql(field.type)) for field in catalog.table(name).schema.fields]


def test_databases_are_made_listed_and_dropped(catalog: Catalog) -> None:
    run(catalog, "create schema if not exists `other`;")
    run(catalog, "CREATE DATABASE IF NOT EXISTS other")
    with pytest.raises(DatabaseExists):
        run(catalog, "CREATE DATABASE other")
    assert rows(catalog, "SHOW DATABASES") == [("db",), ("other",)]
    assert rows(catalog, "SHOW DATABASES LIKE 'o*|x'") == [("other",)]
    assert ("Namespace Name", "other") in rows(catalog, "DESCRIBE DATABASE EXTENDED other")
    run(catalog, "CREATE TABLE other.t (a INT)")
    with pytest.raises(DatabaseExists, match="still holds 1 tables"):
        run(catalog, "DROP DATABASE other RESTRICT")
    run(catalog, "DROP DATABASE other CASCADE")
    run(catalog, "DROP SCHEMA IF EXISTS other")
    assert catalog.list_databases() == ["db"]


def test_definitions_say_whether_anything_was_made_or_dropped(catalog: Catalog) -> None:
    missing = "does not exist: nothing was"
    for text, message in (
        ("CREATE DATABASE IF NOT EXISTS other", "database other is created"),
        ("CREATE DATABASE IF NOT EXISTS other", "database other exists already"),
        ("CREATE TABLE IF NOT EXISTS other.t (a INT)", "table other.t is created"),
        ("CREATE TABLE IF NOT EXISTS other.t (a INT)", "table other.t exists already"),
        ("ALTER TABLE IF EXISTS other.t RENAME TO other.u", "table other.t is renamed to other.u"),
        ("ALTER TABLE IF EXISTS other.t RENAME TO other.u", f"table other.t {missing} renamed"),
        ("DROP TABLE IF EXISTS other.u", "table other.u is dropped"),
        ("DROP TABLE IF EXISTS other.u", f"table other.u {missing} dropped"),
        ("DROP DATABASE IF EXISTS other", "database other is dropped"),
        ("DROP DATABASE IF EXISTS other", f"database other {missing} dropped"),
        ("DROP TABLE IF EXISTS other.u", f"table other.u {missing} dropped"),
    ):
        assert run(catalog, text).message == message
    with pytest.raises(DatabaseNotFound):
        run(catalog, "DROP TABLE other.u")


def test_a_table_of_spark(catalog: Catalog) -> None:
    run(
        catalog,
        """CREATE TABLE IF NOT EXISTS paimon.db.t (   -- the catalog's name may stand before
             user_id BIGINT NOT NULL COMMENT 'who''s', item_id LONG DEFAULT 7, behavior STRING DEFAULT 'it\\'s' COMMENT "b",
             price DECIMAL(10, 2), at TIMESTAMP, local TIMESTAMP_NTZ, bin BINARY, `odd name` STRUCT<a: INT COMMENT 'in', b: ARRAY<STRING>>,
             tags MAP<STRING, BYTE>, dt DATE DEFAULT DATE '2024-01-31', hh STRING
           ) USING paimon COMMENT 'all of it' PARTITIONED BY (dt, HH)
           TBLPROPERTIES ('primary-key' = 'dt,hh,USER_ID', bucket = 2, 'write-only' = true)""",
    )
    table = catalog.table("db.t")
    assert columns(catalog) == [
        ("user_id", "BIGINT NOT NULL"),
        ("item_id", "BIGINT"),
        ("behavior", "STRING"),
        ("price", "DECIMAL(10, 2)"),
        ("at", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("local", "TIMESTAMP(6)"),
        ("bin", "BYTES"),
        ("odd name", "ROW<`a` INT 'in', `b` ARRAY<STRING>>"),
        ("tags", "MAP<STRING, TINYINT>"),
        ("dt", "DATE NOT NULL"),
        ("hh", "STRING NOT NULL"),
    ]
    fields = {field.name: field for field in table.schema.fields}
    assert (fields["user_id"].description, fields["behavior"].default, fields["behavior"].description) == (
        "who's",
        "it's",
        "b",
    )
    assert (fields["item_id"].default, fields["dt"].default) == ("7", "2024-01-31")
    assert (table.primary_keys, table.partition_keys) == (("dt", "hh", "user_id"), ("dt", "hh"))
    assert {key: table.schema.options[key] for key in ("bucket", "write-only")} == {"bucket": "2", "write-only": "true"}
    assert table.schema.comment == "all of it"
    with pytest.raises(TableExists):
        run(catalog, "CREATE TABLE db.t (a INT)")


def test_a_table_of_flink(catalog: Catalog) -> None:
    run(
        catalog,
        """CREATE TABLE db.t (a INT, b BIGINT, at TIMESTAMP(3), plain TIMESTAMP, one BINARY, bag MULTISET<INT>,
             r ROW<x INT NOT NULL, y TIMESTAMP_LTZ(3)>, l TIMESTAMP(3) WITH LOCAL TIME ZONE,
             CONSTRAINT pk PRIMARY KEY (a, b) NOT ENFORCED) PARTITIONED BY (a) WITH ('bucket' = '1', 'comment' = 'c')""",
    )
    assert dict(columns(catalog)) == {
        "a": "INT NOT NULL",
        "b": "BIGINT NOT NULL",
        "at": "TIMESTAMP(3)",
        "plain": "TIMESTAMP(6)",
        "one": "BINARY(1)",
        "bag": "MULTISET<INT>",
        "r": "ROW<`x` INT NOT NULL, `y` TIMESTAMP(3) WITH LOCAL TIME ZONE>",
        "l": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    }
    assert (catalog.table("db.t").primary_keys, catalog.table("db.t").schema.comment) == (("a", "b"), "c")


def test_show_create_table_makes_the_same_table(catalog: Catalog) -> None:
    run(
        catalog,
        """CREATE TABLE db.t (k INT PRIMARY KEY NOT ENFORCED, `a``b` CHAR(3) DEFAULT 'x' COMMENT 'it\\'s \\\\', at TIMESTAMP(3), z TIMESTAMP,
             n STRUCT<`c d`: DECIMAL(5, 2) NOT NULL COMMENT 'deep', e: MAP<STRING, ARRAY<TIMESTAMP_NTZ>>>, v VARCHAR(9), b VARBINARY(4))
           COMMENT 'c' TBLPROPERTIES ('bucket' = '1', 'sequence.field' = 'at')""",
    )
    ((text,),) = rows(catalog, "SHOW CREATE TABLE db.t")
    run(catalog, "ALTER TABLE db.t RENAME TO old")
    run(catalog, text)
    old, new = catalog.table("db.old").schema, catalog.table("db.t").schema
    assert (new.fields, new.primary_keys, new.options, new.comment) == (
        old.fields,
        old.primary_keys,
        old.options,
        old.comment,
    )
    run(catalog, "CREATE TABLE db.copy LIKE db.t TBLPROPERTIES ('bucket' = '2')")
    copy = catalog.table("db.copy").schema
    assert (copy.fields, copy.options["bucket"]) == (old.fields, "2")
    assert create_text("db.copy", copy).count("primary-key") == 1


def test_tables_are_renamed_emptied_and_dropped(catalog: Catalog) -> None:
    run(catalog, "CREATE TABLE db.t (id INT, dt STRING, h INT) PARTITIONED BY (dt, h)")
    catalog.table("db.t").write(
        pa.table({"id": [1, 2, 3], "dt": ["a", "b", "b"], "h": pa.array([1, 1, 2], pa.int32())})
    )
    assert rows(catalog, "SHOW PARTITIONS db.t") == [("dt=a/h=1",), ("dt=b/h=1",), ("dt=b/h=2",)]
    assert rows(catalog, "SHOW PARTITIONS db.t PARTITION (DT = 'b')") == [("dt=b/h=1",), ("dt=b/h=2",)]
    assert run(catalog, "TRUNCATE TABLE db.t PARTITION (dt = 'b', h = 2)").snapshot_id == 2
    run(catalog, "ALTER TABLE db.t DROP IF EXISTS PARTITION (dt = 'a', h = '1'), PARTITION (dt='c')")
    assert catalog.table("db.t").to_arrow(["id"]).to_pylist() == [{"id": 2}]
    with pytest.raises(InvalidFilter, match=r"no partition dt=c; DROP IF EXISTS PARTITION leaves"):
        run(catalog, "ALTER TABLE db.t DROP PARTITION (dt = 'b', h = 1), PARTITION (dt = 'c')")
    assert catalog.table("db.t").to_arrow(["id"]).to_pylist() == [{"id": 2}]
    run(catalog, "TRUNCATE TABLE db.t")
    assert run(catalog, "TRUNCATE TABLE db.t").message.endswith("no row was changed")
    run(catalog, "ALTER TABLE db.t RENAME TO u")
    run(catalog, "ALTER TABLE IF EXISTS db.t RENAME TO db.v")
    run(catalog, "ALTER TABLE db.u RENAME TO db.v")
    assert rows(catalog, "SHOW TABLES IN db") == [("db", "v", False)]
    run(catalog, "DROP TABLE IF EXISTS db.t")
    run(catalog, "DROP TABLE db.v PURGE")
    assert rows(catalog, "SHOW TABLES FROM db LIKE '*'") == []


def test_columns_are_altered_in_every_form(catalog: Catalog) -> None:
    run(
        catalog,
        "CREATE TABLE db.t (a INT, Bc STRING, r STRUCT<x: INT, y: ARRAY<STRUCT<z: INT>>>, m MAP<STRING, STRUCT<q: INT>>)",
    )
    for text in (
        "ADD COLUMNS (c1 INT COMMENT 'one', c2 STRING DEFAULT 'two' AFTER bc)",
        "ADD COLUMN c0 LONG FIRST",
        "ADD COLUMN IF NOT EXISTS C0 LONG",
        "ADD COLUMN r.w STRING",
        "ADD COLUMN r.y.element.v BIGINT FIRST",
        "ADD COLUMNS (m.value.p DOUBLE)",
        "RENAME COLUMN A TO alpha",
        "RENAME COLUMN r.x TO xx",
        "ALTER COLUMN alpha TYPE BIGINT",
        "ALTER COLUMN r.xx TYPE BIGINT",
        "ALTER COLUMN c1 COMMENT 'it is'",
        "ALTER COLUMN c1 AFTER c0",
        "ALTER c2 FIRST",
        "ALTER COLUMN c1 SET DEFAULT 5",
        "ALTER COLUMN c2 DROP DEFAULT",
        "CHANGE COLUMN c1 d1 BIGINT COMMENT 'it was' AFTER bc",
        "DROP COLUMN IF EXISTS nothing",
    ):
        run(catalog, f"ALTER TABLE db.t {text}")
    assert columns(catalog) == [
        ("c2", "STRING"),
        ("c0", "BIGINT"),
        ("alpha", "BIGINT"),
        ("Bc", "STRING"),
        ("d1", "BIGINT"),
        ("r", "ROW<`xx` BIGINT, `y` ARRAY<ROW<`v` BIGINT, `z` INT>>, `w` STRING>"),
        ("m", "MAP<STRING, ROW<`q` INT, `p` DOUBLE>>"),
    ]
    assert [
        (field.default, field.description)
        for field in catalog.table("db.t").schema.fields
        if field.name in ("c2", "d1")
    ] == [
        (None, None),
        ("5", "it was"),
    ]
    for text in ("ALTER COLUMN r.xx SET DEFAULT 4", "ADD COLUMNS (r.new INT DEFAULT 4)"):
        with pytest.raises(UnsupportedFeature, match=r"default of 'r\.\w+', a field inside a column"):
            run(catalog, f"ALTER TABLE db.t {text}")
    run(catalog, "ALTER TABLE db.t ALTER COLUMN r.xx DROP DEFAULT")
    with pytest.raises(InvalidSchema, match=r"column 'd1' of type BIGINT: default '1\.5' does not fit"):
        run(catalog, "ALTER TABLE db.t ALTER COLUMN d1 SET DEFAULT 1.5")
    run(catalog, "ALTER TABLE db.t DROP COLUMNS (c2, D1, r.w, c0)")
    run(catalog, "COMMENT ON COLUMN db.t.r.xx IS 'nested'")
    assert rows(catalog, "DESCRIBE db.t R.xx") == [("col_name", "xx"), ("data_type", "BIGINT"), ("comment", "nested")]
    assert rows(catalog, "SHOW COLUMNS FROM db.t") == [("alpha",), ("Bc",), ("r",), ("m",)]


def test_nullability_options_and_comment_are_altered(catalog: Catalog) -> None:
    run(catalog, "CREATE TABLE db.t (a INT NOT NULL, b INT)")
    run(catalog, "ALTER TABLE db.t ALTER COLUMN a DROP NOT NULL")
    run(catalog, "ALTER TABLE db.t SET TBLPROPERTIES ('write-only' = 'true', 'comment' = 'said')")
    run(catalog, "ALTER TABLE db.t SET ('snapshot.num-retained.max' = 70)")
    assert (columns(catalog)[0], catalog.table("db.t").schema.comment) == (("a", "INT"), "said")
    assert ("write-only", "true") in rows(catalog, "SHOW TBLPROPERTIES db.t")
    assert rows(catalog, "SHOW TBLPROPERTIES db.t ('snapshot.num-retained.max')") == [
        ("snapshot.num-retained.max", "70")
    ]
    run(catalog, "ALTER TABLE db.t UNSET TBLPROPERTIES IF EXISTS ('write-only', 'comment')")
    run(catalog, "ALTER TABLE db.t RESET ('snapshot.num-retained.max')")
    assert (dict(catalog.table("db.t").schema.options), catalog.table("db.t").schema.comment) == ({}, None)
    run(catalog, "COMMENT ON TABLE db.t IS 'again'")
    assert catalog.table("db.t").schema.comment == "again"


def test_describe_and_its_history(catalog: Catalog) -> None:
    run(
        catalog,
        "CREATE TABLE db.t (k INT COMMENT 'key', v INT DEFAULT 3, dt STRING) PARTITIONED BY (dt) TBLPROPERTIES ('primary-key'='dt,k', bucket=1)",
    )
    assert rows(catalog, "DESC db.t") == [
        ("k", "INT NOT NULL", "key"),
        ("v", "INT", None),
        ("dt", "STRING NOT NULL", None),
        ("# Partition Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("dt", "STRING NOT NULL", None),
    ]
    catalog.table("db.t").write([{"k": 1, "v": 1, "dt": "a"}])
    run(catalog, "ANALYZE TABLE db.t COMPUTE STATISTICS FOR COLUMNS k, v")
    result = rows(catalog, "DESCRIBE TABLE EXTENDED db.t")
    assert ("v", "3", "") in result
    assert ("Records", "1", "") in result
    assert ("Statistics", "1 rows at snapshot 1", "") in result
    assert [row[0] for row in rows(catalog, "DESCRIBE HISTORY db.t")] == [2, 1]
    assert rows(catalog, "DESCRIBE db.t$tags")[0][0] == "tag_name"
    ((_, _, _, information),) = rows(catalog, "SHOW TABLE EXTENDED IN db LIKE 't*' PARTITION (dt = 'a')")
    assert "Partition: dt=a" in information


def test_statements_that_mean_procedures(catalog: Catalog) -> None:
    run(
        catalog,
        "CREATE TABLE db.t (k INT, dt STRING) PARTITIONED BY (dt) TBLPROPERTIES ('primary-key'='dt,k', bucket=1, 'write-only'='true')",
    )
    table = catalog.table("db.t")
    for value in (1, 2, 3):
        table.write([{"k": value, "dt": "a"}, {"k": value, "dt": "it's"}])
    run(catalog, "ALTER TABLE db.t CREATE TAG first AS OF VERSION 1 RETAIN 7 DAYS")
    run(catalog, "ALTER TABLE db.t CREATE TAG IF NOT EXISTS `first`")
    run(catalog, "ALTER TABLE db.t RENAME TAG first TO old")
    run(catalog, "ALTER TABLE db.t CREATE OR REPLACE TAG old AS OF VERSION 2")
    assert rows(catalog, "SHOW TAGS db.t") == [("old",)]
    assert table.tags()["old"].snapshot.id == 2
    run(catalog, "ALTER TABLE db.t DELETE TAG IF EXISTS new")
    run(catalog, "ALTER TABLE db.t DELETE TAG old")
    assert rows(catalog, "SHOW TAGS db.t") == []
    done = run(catalog, "ALTER TABLE db.t PARTITION (dt = 'it\\'s') COMPACT 'major'").call
    assert done is not None
    assert len(done.plans[0].items) == 1
    done = run(catalog, "ALTER TABLE db.t COMPACT").call
    assert done is not None
    assert len(done.plans[0].items) == 1  # the other partition


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("", InvalidOption, "a statement"),
        ("FROBNICATE db.t", UnsupportedFeature, "statement FROBNICATE; supported: SELECT"),
        ("USE db", UnsupportedFeature, "name tables as database.table"),
        ("OPTIMIZE db.t", UnsupportedFeature, "ALTER TABLE ... COMPACT"),
        ("SHOW FUNCTIONS", UnsupportedFeature, "SHOW takes DATABASES"),
        ("SHOW TABLES", InvalidOption, "one of IN, FROM was expected"),
        ("CREATE VIEW v AS SELECT 1", UnsupportedFeature, "CREATE VIEW; CREATE takes"),
        ("CREATE OR REPLACE TABLE db.n (a INT)", UnsupportedFeature, "DROP TABLE IF EXISTS"),
        ("CREATE TABLE n (a INT)", TableNotFound, "name tables as database.table"),
        ("CREATE TABLE other.db.n (a INT)", TableNotFound, "name tables as database.table"),
        ("CREATE TABLE db.n", InvalidOption, "columns in parentheses"),
        ("CREATE TABLE db.n (a INT, A STRING)", InvalidOption, "a column once"),
        ("CREATE TABLE db.n (a FROB)", InvalidOption, "'FROB\\)'.*a type such as BIGINT"),
        ("CREATE TABLE db.n (a INT UNIQUE)", InvalidOption, "'UNIQUE\\)'.*a column takes NOT NULL"),
        ("CREATE TABLE db.n (a INT DEFAULT now())", InvalidOption, "DEFAULT takes a literal"),
        ("CREATE TABLE db.n (a INT DEFAULT 'x')", InvalidSchema, "column 'a': default 'x' is not a INT"),
        ("CREATE TABLE db.n (a INT, b INT GENERATED ALWAYS AS (a))", UnsupportedFeature, "column 'b' that is computed"),
        ("CREATE TABLE db.n (a INT, WATERMARK FOR a AS a)", UnsupportedFeature, "WATERMARK in CREATE TABLE"),
        ("CREATE TABLE db.n (a INT, PRIMARY KEY (b) NOT ENFORCED)", ColumnNotFound, "no column 'b'; it has a"),
        ("CREATE TABLE db.n (a INT, PRIMARY KEY (a) ENFORCED)", UnsupportedFeature, "NOT ENFORCED"),
        ("CREATE TABLE db.n (a INT PRIMARY KEY, b INT PRIMARY KEY)", InvalidOption, "the primary key is given twice"),
        (
            "CREATE TABLE db.n (a INT PRIMARY KEY) TBLPROPERTIES ('primary-key'='a')",
            InvalidOption,
            "PRIMARY KEY, or the option",
        ),
        ("CREATE TABLE db.n (a INT) PARTITIONED BY (days(a))", UnsupportedFeature, "partition by columns"),
        ("CREATE TABLE db.n (a INT) PARTITIONED BY (b)", ColumnNotFound, "no column 'b'"),
        ("CREATE TABLE db.n (a INT) USING parquet", UnsupportedFeature, "USING parquet"),
        ("CREATE TABLE db.n (a INT) LOCATION '/x'", UnsupportedFeature, "below its warehouse"),
        ("CREATE TABLE db.n (a INT) CLUSTERED BY (a) INTO 4 BUCKETS", UnsupportedFeature, "bucket-key"),
        ("CREATE TABLE db.n (a INT) TBLPROPERTIES ('bucket'='0')", InvalidOption, "option 'bucket' of table db.n"),
        ("CREATE TABLE db.n (a INT) TBLPROPERTIES ('x'='1', 'x'='2')", InvalidOption, "'x' is given twice"),
        ("CREATE TABLE db.n (a INT) COMMENT 'a' COMMENT 'b'", InvalidOption, "COMMENT is given twice"),
        ("CREATE TABLE db.n (a INT) SORTED", InvalidOption, "'SORTED'.*PARTITIONED BY"),
        ("CREATE DATABASE x LOCATION '/y'", UnsupportedFeature, "LOCATION of a database"),
        ("ALTER TABLE db.t ADD COLUMN b INT NOT NULL", UnsupportedFeature, "NOT NULL for the new column 'b'"),
        ("ALTER TABLE db.t ADD COLUMN A INT", InvalidOption, "a name that no column has"),
        ("ALTER TABLE db.t ADD COLUMN b INT + 1", InvalidOption, "'\\+ 1'"),
        ("ALTER TABLE db.t ADD PARTITION (a=1)", UnsupportedFeature, "ADD PARTITION"),
        ("ALTER TABLE db.t DROP COLUMN k", InvalidSchema, "primary key column 'k' cannot be dropped"),
        ("ALTER TABLE db.t DROP COLUMN nothing", InvalidSchema, "nothing"),
        ("ALTER TABLE db.t DROP PARTITION (a=1)", InvalidOption, "the table has no partitions"),
        ("ALTER TABLE db.t SET LOCATION '/x'", UnsupportedFeature, "SET takes TBLPROPERTIES"),
        ("ALTER TABLE db.t SET TBLPROPERTIES ('merge-engine'='first-row')", InvalidOption, "merge-engine"),
        ("ALTER TABLE db.t REPLACE COLUMNS (x INT)", UnsupportedFeature, "use ADD, DROP, RENAME"),
        ("ALTER TABLE db.t FROB", InvalidOption, "one of SET, UNSET"),
        ("ALTER TABLE db.t COMPACT 'fast'", InvalidOption, "'major' or 'minor'"),
        ("ALTER VIEW db.v AS SELECT 1", UnsupportedFeature, "ALTER takes TABLE"),
        ("DROP VIEW db.v", UnsupportedFeature, "DROP takes DATABASE and TABLE"),
        ("DROP TABLE db.nothing", TableNotFound, "db.nothing"),
        ("DROP TABLE db.t db.u", InvalidOption, "the end was expected"),
        ("TRUNCATE TABLE db.t PARTITION (a = b)", InvalidOption, "a literal was expected"),
        ("DESCRIBE db.t a.b", ColumnNotFound, "no column 'a.b'"),
        ("ANALYZE TABLE db.t COMPUTE STATISTICS FOR COLUMNS nothing", DredgeError, "nothing"),
        ("ANALYZE TABLE db.t PARTITION (a=1) COMPUTE STATISTICS", UnsupportedFeature, "whole table"),
    ],
)
def test_what_cannot_be_done_is_one_error_that_names_it(
    catalog: Catalog, text: str, error: type[DredgeError], match: str
) -> None:
    run(catalog, "CREATE TABLE db.t (k INT PRIMARY KEY, a INT) TBLPROPERTIES (bucket = 1)")
    catalog.table("db.t").write([{"k": 1, "a": 1}])
    before = catalog.table("db.t").schema
    with pytest.raises(error, match=match):
        run(catalog, text)
    assert (catalog.list_tables("db"), catalog.table("db.t").schema) == (["t"], before)
    assert catalog.table("db.t").latest_snapshot().id == 1  # type: ignore[union-attr]
