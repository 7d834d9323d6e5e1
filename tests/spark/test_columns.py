"""Columns of a DataFrame against those of the table: by name, defaults, row kinds, merged schemas; what cannot fit is refused before any task."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from lsm_core import Catalog, Schema, SchemaChange
from lsm_core.errors import ColumnNotFound, DredgeError, InvalidData, InvalidOption, InvalidSchema, UnsupportedFeature
from lsm_core.spark import compact_table, delete_keys, delete_where, read_table, update_where, upsert, write_table
from lsm_core.spark.data_source import TableSource
from lsm_core.spark.spark_columns import SESSION_ZONE, in_session_zone
from lsm_core.spark.spark_write import prepare_write
from lsm_core.table import validation
from lsm_core.types import to_sql
from tests.spark.tables import canonical, live_paths, make_table
from tests.support.samples import one_in

pytestmark = pytest.mark.spark
FIELDS = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("must", pa.int32(), nullable=False),
        ("v", pa.string()),
        ("l", pa.list_(pa.int32())),
    ]
)


def struct(ddl: str) -> StructType:
    return StructType.fromDDL(ddl)


def save(frame: Any, root: Path, mode: str = "append", **options: str) -> None:
    target = frame.write.format("dredge").option("warehouse", str(root)).option("table", "db.t")
    target.options(**{key.replace("_", "-"): value for key, value in options.items()}).mode(mode).save()


@pytest.mark.parametrize(
    ("ddl", "error", "part"),
    [
        ("k BIGINT, must INT, nope INT", ColumnNotFound, "no column 'nope'"),
        ("k BIGINT, must INT, k BIGINT", InvalidData, "column 'k': the rows have the column twice: k, must, k"),
        ("k BIGINT, v STRING", InvalidData, "column 'must': the column is NOT NULL"),
        ("must INT, v STRING", InvalidData, "column 'k': the column is NOT NULL"),
        ("k ARRAY<INT>, must INT", InvalidData, r"column 'k': values of type list<.*> do not fit BIGINT"),
        ("k BIGINT, must INT, l MAP<STRING, INT>", InvalidData, "column 'l': values of type map"),
        ("k BIGINT, must INT, v INTERVAL DAY TO SECOND", UnsupportedFeature, r"interval day to second \(column 'v'\)"),
    ],
)
def test_a_schema_that_cannot_fit_is_refused_before_any_task(
    spark: Any, tmp_path: Path, ddl: str, error: type[DredgeError], part: str
) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    with pytest.raises(error, match=part):
        prepare_write(table.store, struct(ddl))
    with pytest.raises(error, match=part):
        TableSource({"warehouse": str(tmp_path), "table": "db.t"}).writer(struct(ddl), overwrite=False)
    assert not list(tmp_path.rglob("dredge/staged/*"))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"row-kind-column": "op"}, "no column 'op'"),
        ({"write.merge-schema": "yes"}, "'write.merge-schema'.*true or false"),
        ({"merge-schema": "true"}, "'merge-schema'"),
        ({"columns": "k"}, "it is for reading"),
        ({"commit-user": "a"}, "commit_identifier"),
    ],
)
def test_bad_options_of_a_write_are_named(spark: Any, tmp_path: Path, options: dict[str, str], part: str) -> None:
    make_table(tmp_path, fields=FIELDS)
    given = {"warehouse": str(tmp_path), "table": "db.t", **options}
    with pytest.raises((InvalidOption, ColumnNotFound), match=part):
        TableSource(given).writer(struct("k BIGINT, must INT"), overwrite=False)


@pytest.mark.parametrize("writer", one_in(2, ["write_table", "save"], 1))
def test_kinds_defaults_and_order_of_columns(spark: Any, tmp_path: Path, writer: str) -> None:
    table = make_table(tmp_path, fields=FIELDS, options={"bucket": "1"})
    Catalog(str(tmp_path)).alter_table("db.t", [SchemaChange.update_default("must", "7")])
    table = Catalog(str(tmp_path)).table("db.t")
    table.write(pa.table({"k": [1, 2, 3], "must": [1, 1, 1]}))
    first = spark.sql("SELECT * FROM VALUES ('b', 4L, '+I'), (NULL, 1L, '-D') AS t(v, k, _row_kind)")
    second = spark.sql("SELECT * FROM VALUES ('-D', 2L), ('+U', 3L) AS t(op, k)")
    if writer == "save":
        save(first, tmp_path)
        save(second, tmp_path, row_kind_column="op")
    else:
        write_table(first, table)
        write_table(second, table, row_kind_column="op")
    found = table.to_arrow(["k", "must", "v"]).sort_by("k").to_pylist()
    assert found == [{"k": 3, "must": 7, "v": None}, {"k": 4, "must": 7, "v": "b"}]


def test_a_column_of_that_name_in_the_table_is_data(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "ROW_KIND", "")  # another engine may have made such a table
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("_row_kind", pa.string())])
    table = make_table(tmp_path, fields=fields)
    store, kinds = prepare_write(table.store, struct("k BIGINT, _row_kind STRING"))
    assert (store.name, kinds) == ("db.t", None)
    table.write(pa.table({"k": [1, 2], "_row_kind": ["-D", "x"]}, schema=fields))
    delete_keys(spark.sql("SELECT 2L k"), table)
    assert table.to_arrow().to_pylist() == [{"k": 1, "_row_kind": "-D"}]


def test_variants_are_sparks_variants_at_any_depth(spark: Any, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    catalog.create_table("db.t", Schema([("k", "BIGINT NOT NULL"), ("v", "VARIANT")], ["k"], [], {"bucket": "1"}))
    frame = spark.sql(
        """SELECT id k, parse_json('{"a":' || id || ',"b":[1,"x"]}') v, array(parse_json('1'), NULL) l,
        named_struct('x', parse_json('"q"'), 'y', 1) r FROM range(3)"""
    )
    save(frame, tmp_path, **{"write.merge-schema": "true"})
    save(frame.where("k = 2"), tmp_path)
    assert [to_sql(field.type) for field in catalog.table("db.t").schema.fields][1:3] == ["VARIANT", "ARRAY<VARIANT>"]
    assert compact_table(spark, catalog.table("db.t"), full=True).rows_out == 3
    stored = read_table(spark, catalog.table("db.t"))
    assert stored.schema["v"].dataType.simpleString() == "variant"
    shown = stored.selectExpr("variant_get(v, '$.a', 'int') a", "to_json(v) v", "to_json(l[0]) l", "to_json(r.x) x")
    assert sorted(map(tuple, shown.collect())) == [(i, f'{{"a":{i},"b":[1,"x"]}}', "1", '"q"') for i in range(3)]
    assert stored.where("variant_get(v, '$.a', 'int') = 1 AND l[1] IS NULL").count() == 1


@pytest.mark.parametrize("writer", ["write_table", "save"])
def test_the_schema_is_merged_before_the_rows_come(spark: Any, tmp_path: Path, writer: str) -> None:
    fields = pa.schema([pa.field("k", pa.int32(), nullable=False), ("n", pa.int32())])
    table = make_table(tmp_path, fields=fields, options={"bucket": "1"})
    table.write(pa.table({"k": [1], "n": [1]}))
    frame = spark.sql("SELECT 2L k, 5000000000L n, 'x' s, named_struct('a', 1) r")
    if writer == "save":
        save(frame, tmp_path, **{"write.merge-schema": "true"})
    else:
        write_table(frame, table, merge_schema=Catalog(str(tmp_path)))
    after = Catalog(str(tmp_path)).table("db.t")
    assert after.to_arrow().sort_by("k").to_pylist() == [
        {"k": 1, "n": 1, "s": None, "r": None},
        {"k": 2, "n": 5_000_000_000, "s": "x", "r": {"a": 1}},
    ]
    with pytest.raises(InvalidSchema, match="column 's' of type STRING cannot be merged"):
        write_table(spark.sql("SELECT 3 k, DATE'2024-01-01' s"), after, merge_schema=Catalog(str(tmp_path)))
    assert len(after.snapshots()) == 2


def test_columns_are_found_in_any_case_where_none_fits_exactly(spark: Any, tmp_path: Path) -> None:
    fields = pa.schema([pa.field("Key", pa.int64(), nullable=False), ("Word", pa.string())])
    table = make_table(tmp_path, fields=fields, primary_keys=("Key",))
    write_table(spark.sql("SELECT 1L key, 'a' WORD UNION ALL SELECT 2L, 'b'"), table)
    upsert(spark.sql("SELECT 1L KEY, 'A' word"), table)
    delete_keys(spark.sql("SELECT 2L kEY"), table)
    save(spark.sql("SELECT 3L key, 'c' word, '+I' _ROW_KIND"), tmp_path)
    assert table.to_arrow().sort_by("Key").to_pylist() == [{"Key": 1, "Word": "A"}, {"Key": 3, "Word": "c"}]
    with pytest.raises(InvalidData, match="column 'Key': the rows have the column twice"):
        prepare_write(table.store, struct("key BIGINT, Key BIGINT"))
    both = make_table(tmp_path, "db.both", fields=fields.append(pa.field("word", pa.string())), primary_keys=("Key",))
    assert prepare_write(both.store, struct("KEY BIGINT, word STRING, Word STRING"))[1] is None
    with pytest.raises(ColumnNotFound, match="no column 'WORD'"):
        prepare_write(both.store, struct("Key BIGINT, WORD STRING"))


def test_names_that_are_hard_to_say_are_names_like_others(spark: Any, tmp_path: Path) -> None:
    fields = pa.schema(
        [pa.field("a`b", pa.int64(), nullable=False), ("c.d", pa.string()), ("e, f", pa.string()), ("'g\"", pa.int32())]
    )
    table = make_table(tmp_path, fields=fields, primary_keys=("a`b",), options={"bucket": "2"})
    rows = pa.table([[1, 2, 3], ["x", "y", "z"], ["p", "q", None], [1, None, 3]], schema=fields)
    write_table(spark.createDataFrame(rows).repartition(2), table)
    update_where(spark, table, [("c.d", "=", "x")], {"e, f": "new"})
    delete_keys(spark.createDataFrame(rows.slice(1, 1).select(["a`b"])), table)
    delete_where(spark, table, [("'g\"", "=", 3)])
    save(spark.createDataFrame(rows.slice(2)), tmp_path)
    compact_table(spark, table, full=True)
    found = (
        read_table(spark, table, columns=["e, f", "a`b"], filter=[("c.d", "in", ["x", "z"])]).toArrow().sort_by("a`b")
    )
    assert found.to_pylist() == [{"e, f": "new", "a`b": 1}, {"e, f": None, "a`b": 3}]


def test_dots_and_stars_in_names_need_no_back_quote_beside_them(spark: Any, tmp_path: Path) -> None:
    fields = pa.schema([pa.field("c.d", pa.int64()), ("*", pa.string())])
    for name, options in (("db.any", {}), ("db.fixed", {"bucket": "2", "bucket-key": "c.d"})):
        table = make_table(tmp_path, name, fields=fields, primary_keys=(), options=options)
        write_table(spark.createDataFrame(pa.table([[1, 2], ["x", "y"]], schema=fields)), table)
        assert table.to_arrow().sort_by("c.d").to_pylist() == [{"c.d": 1, "*": "x"}, {"c.d": 2, "*": "y"}]


ODD_SETTINGS = {
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
}
EVERY_TYPE = pa.schema(
    [
        ("p", pa.string()),
        *[("t8", pa.int8()), ("s16", pa.int16()), ("f", pa.float32()), ("d", pa.float64()), ("b", pa.bool_())],
        *[("dec", pa.decimal128(38, 10)), ("bin", pa.binary()), ("day", pa.date32())],
        *[("ntz", pa.timestamp("us")), ("ltz", pa.timestamp("us", "UTC")), ("ltz3", pa.timestamp("ms", "UTC"))],
        ("array", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]))),
        ("map", pa.map_(pa.string(), pa.struct([("z", pa.decimal128(5, 2)), ("at", pa.timestamp("us", "UTC"))]))),
        ("row", pa.struct([("a", pa.int64()), ("m", pa.map_(pa.int32(), pa.binary()))])),
    ]
)


def rows_of_every_type() -> pa.Table:
    """Extremes, nulls at every depth, partitions without a name and with hostile ones."""
    at = dt.datetime(1899, 1, 1, 12, 0, 0, 1, tzinfo=dt.UTC)
    skipped = dt.datetime(2024, 3, 31, 2, 30)  # an hour that some time zones do not have
    full = {
        "t8": -128, "s16": -32768, "f": float("inf"), "d": -0.0, "b": True, "dec": Decimal("-9999999999999999999999999999.9999999999"),
        "bin": b"\x00\xff", "day": dt.date(1, 1, 1), "ntz": skipped, "ltz": at, "ltz3": skipped.replace(tzinfo=dt.UTC),
        "array": [{"x": None, "y": ["a", None]}, None], "map": [("q", {"z": Decimal("1.25"), "at": at}), ("", None)],
        "row": {"a": None, "m": [(1, b"x"), (2, None)]},
    }  # fmt: skip
    return pa.Table.from_pylist([{"p": p, **full} for p in (None, "", "a/b=c%", "'")] + [{"p": "x"}], EVERY_TYPE)


def test_rows_of_every_type_go_through_spark_whatever_its_settings(spark: Any, tmp_path: Path) -> None:
    options = {"bucket": "-1", "file.format": "parquet"}
    table = make_table(tmp_path, fields=EVERY_TYPE, primary_keys=(), partition_keys=("p",), options=options)
    copy = make_table(tmp_path, "db.copy", fields=EVERY_TYPE, primary_keys=(), options={"bucket": "-1"})
    table.write(rows_of_every_type())
    expected = canonical(table.to_arrow())
    before = {key: spark.conf.get(key, None) for key in ODD_SETTINGS}
    try:
        for key, text in ODD_SETTINGS.items():
            spark.conf.set(key, text)
        write_table(read_table(spark, table), copy)
        assert canonical(copy.to_arrow()) == expected
        source = spark.read.format("dredge").options(warehouse=str(tmp_path), table="db.t").load()
        write_table(source.where("p IS NULL OR p <> 'x'"), table, overwrite=True)
        assert canonical(table.to_arrow()) == expected
        last = read_table(spark, table, columns=["ltz"], filter=[("p", "is null", None)]).toArrow()
        assert last.column("ltz").cast(pa.timestamp("us", "UTC")).to_pylist() == [
            rows_of_every_type()["ltz"][0].as_py()
        ]
        frame = read_table(spark, table, columns=["t8"])
        live_paths(table)[0].write_bytes(b"damaged")
        with pytest.raises(Exception, match="FAILED_READ_FILE"):  # Spark says it, as Py4JJavaError or its own
            frame.collect()
    finally:
        for key, text in before.items():
            spark.conf.unset(key) if text is None else spark.conf.set(key, text)


def test_times_of_another_kind_become_what_sparks_casts_make_them(spark: Any, tmp_path: Path) -> None:
    fields = pa.schema(
        [
            ("k", pa.int32()),
            ("clock", pa.timestamp("us")),
            ("instant", pa.timestamp("us", "UTC")),
            ("of_day", pa.timestamp("us", "UTC")),
        ]
    )
    table = make_table(tmp_path, fields=fields, primary_keys=(), options={"bucket": "-1"})
    before = spark.conf.get(SESSION_ZONE)
    spark.conf.set(SESSION_ZONE, "America/New_York")
    try:
        frame = spark.sql(
            "SELECT k, CAST(t AS TIMESTAMP) clock, CAST(t AS TIMESTAMP_NTZ) instant, DATE'2024-07-01' of_day FROM VALUES "
            # at noon, in an hour that clocks skip, and in one that they show twice
            "(1, '2024-01-01 12:00:00.000001'), (2, '2024-03-10 02:30:00'), (3, '2024-11-03 01:30:00'), (4, NULL) AS x(k, t)"
        ).coalesce(1)
        casts = (
            "k",
            "CAST(clock AS TIMESTAMP_NTZ) clock",
            "CAST(instant AS TIMESTAMP) instant",
            "CAST(of_day AS TIMESTAMP) of_day",
        )
        expected = frame.selectExpr(*casts).toArrow().cast(fields).to_pylist()
        write_table(frame, table)
        assert table.to_arrow().sort_by("k").to_pylist() == expected
        save(frame, tmp_path, "overwrite")
        assert table.to_arrow().sort_by("k").to_pylist() == expected
    finally:
        spark.conf.set(SESSION_ZONE, before)


def test_times_inside_of_columns_and_zones_of_no_name_are_refused(tmp_path: Path) -> None:
    inside = pa.schema([("a", pa.list_(pa.struct([("at", pa.timestamp("us"))])))])
    table = make_table(tmp_path, fields=inside, primary_keys=(), options={"bucket": "-1"})
    given = pa.table({"a": pa.array([None], pa.list_(pa.struct([("at", pa.timestamp("us", "Asia/Tokyo"))])))})
    with pytest.raises(UnsupportedFeature, match=r"Asia/Tokyo.*column 'a': cast"):
        in_session_zone(given, table.schema, "Asia/Tokyo", "db.t")
    whole = pa.schema([("m", pa.map_(pa.string(), pa.timestamp("us"))), ("t", pa.timestamp("us", "UTC"))])
    table = make_table(tmp_path, "db.u", fields=whole, primary_keys=(), options={"bucket": "-1"})
    alike = pa.table(
        {"m": pa.array([None], whole.field("m").type), "t": pa.array([0], pa.timestamp("us", "Asia/Tokyo"))}
    )
    assert in_session_zone(alike, table.schema, "Asia/Tokyo", "db.u") is alike
    clock = pa.table({"t": pa.array([0], pa.timestamp("us"))})
    assert in_session_zone(clock, table.schema, None, "db.u") is clock
    with pytest.raises(InvalidOption, match=r"session.timeZone.*Nowhere.*column 't'"):
        in_session_zone(clock, table.schema, "Nowhere", "db.u")
