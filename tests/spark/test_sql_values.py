"""Expressions as new values: what Arrow computes is what Spark computes, and everything else is refused by name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from lsm_core import Table
from lsm_core.errors import ColumnNotFound, DredgeError, InvalidData, UnsupportedFeature
from lsm_core.spark import read_table, update_where
from lsm_core.spark.sql_values import arrow_expression
from lsm_core.write.row_changes.assign import evaluate
from tests.spark.tables import make_table

pytestmark = pytest.mark.spark
FIELDS = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("n", pa.int32()),
        ("v", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("m", pa.decimal128(10, 2)),
        ("a b", pa.string()),
    ]
)
ROWS = pa.table(
    {
        "k": [1, 2, 3, 4],
        "n": pa.array([5, None, -7, 0], pa.int32()),
        "v": [1.5, None, float("nan"), -2.5],
        "s": ["x", None, "ünd", ""],
        "d": [dt.date(2024, 1, 1), None, dt.date(1969, 12, 31), dt.date(2023, 1, 1)],
        "m": pa.array([Decimal("1.25"), None, Decimal("-3.35"), Decimal(0)], pa.decimal128(10, 2)),
        "a b": ["p", "q", None, "r"],
    },
    schema=FIELDS,
)
ALIKE = [
    "v + 1", "N * 2 - k", "-n", "n / 2", "m + 1", "m * 2", "concat(s, '-', n, d)", "s || '!'", "CASE WHEN v > 1 THEN 'a' ELSE s END",
    "CASE n WHEN 5 THEN 1 WHEN 0 THEN NULL END", "IF(v >= 2, v, 0)", "coalesce(n, 0)", "nvl(v, 1)", "round(v)", "round(m, 1)", "cast(n as string)",
    "cast(m as int)", "nullif(n, 5)", "n in (1, 5)", "n not between 1 and 9", "d > '2023-01-01'", "`a b`", "length(s)", "abs(n)", "floor(m)",
    "v = v", "v <> 1.5", "v < 3", "n is null or v is not null", "cast(IF(n > 0, v, 7.9) as bigint)", "2.5D", "1e2", "not n > 0", "d = date'2024-01-01'",
]  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """One row of each kind of value."""
    made = make_table(tmp_path, fields=FIELDS, options={"bucket": "1"})
    made.write(ROWS)
    return made


def test_arrow_computes_what_spark_computes(spark: Any, table: Table) -> None:
    frame = read_table(spark, table).orderBy("k")
    wanted = frame.selectExpr(*(f"{text} AS c{place}" for place, text in enumerate(ALIKE))).collect()
    batch = ROWS.combine_chunks().to_batches()[0]
    for place, text in enumerate(ALIKE):
        found = evaluate(batch, [arrow_expression(text, table.store, "v")])[0].to_pylist()
        assert list(map(repr, map(_plain, found))) == [repr(_plain(row[place])) for row in wanted], text


def _plain(value: Any) -> Any:
    """A value without the type of number that holds it."""
    return None if value is None else float(value) if isinstance(value, (int, float, Decimal)) else value


def test_update_where_takes_sql_text_and_columns(spark: Any, table: Table) -> None:
    update_where(
        spark,
        table,
        "k <= 2 OR k = 4",
        {"v": "v * 2", "n": F.coalesce("n", F.lit(1)) + 1, "s": F.concat("a b", F.lit("'"))},
    )
    update_where(
        spark,
        table,
        "k = 4",
        {"d": "2024-02-29", "n": "7", "m": F.when(F.col("m") == 0, F.lit(9)).otherwise(F.col("m"))},
    )
    found = table.to_arrow(["n", "v", "s", "d", "m"], filter="k <> 3").to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (6, 3.0, "p'", dt.date(2024, 1, 1), Decimal("1.25")),
        (2, None, "q'", None, None),
        (7, -5.0, "r'", dt.date(2024, 2, 29), Decimal("9.00")),
    ]


def test_a_text_for_a_column_of_texts_is_that_text(spark: Any, tmp_path: Path) -> None:
    append = make_table(tmp_path, fields=FIELDS, primary_keys=())
    append.write(ROWS)
    update_where(spark, append, "k = 1", {"s": "v + 1", "n": "n - 1"})
    assert append.to_arrow(["s", "n"], filter="k = 1").to_pylist() == [{"s": "v + 1", "n": 4}]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("soon +", InvalidData, r"db\.t, column 'v': 'soon \+' is no value of this column, and no expression of SQL"),
        ("v, n", InvalidData, "no single expression"),
        ("v FROM t", InvalidData, "no single expression"),
        ("soon", InvalidData, "'soon' does not fit DOUBLE, and is no column; the table has k, n, v"),
        ("zz + 1", ColumnNotFound, "no column 'zz'; it has k, n"),
        ("s + 1", InvalidData, "the new value cannot be computed"),
        ("rand()", UnsupportedFeature, r"RAND\(\) in the new value of column 'v'; compute such rows with Spark"),
        ("round(v, 2)", UnsupportedFeature, r"ROUND\(v, 2\)"),
        ("cast(v as string)", UnsupportedFeature, "in the new value of column 'v'"),
        ("try_cast(s as int)", UnsupportedFeature, "try_cast"),
        ("(SELECT max(v) FROM t)", UnsupportedFeature, "SELECT"),
    ],
)
def test_what_is_no_expression_is_refused(table: Table, text: str, kind: type[DredgeError], message: str) -> None:
    with pytest.raises(kind, match=message):
        arrow_expression(text, table.store, "v")


@pytest.mark.parametrize(("name", "text"), [("n", "s"), ("v", "coalesce(s, '1')"), ("v", "v > 1")])
def test_an_expression_of_another_type_is_refused_as_by_insert(spark: Any, table: Table, name: str, text: str) -> None:
    before = len(table.snapshots())
    with pytest.raises(InvalidData, match=f"column '{name}': values of type .* by the rules of Spark's INSERT"):
        update_where(spark, table, "k = 1", {name: text})
    assert len(table.snapshots()) == before


def test_an_overflow_or_a_column_that_spark_does_not_know_changes_nothing(spark: Any, table: Table) -> None:
    with pytest.raises(InvalidData, match=r"db\.t, column 'n': the new value cannot be computed: overflow"):
        update_where(spark, table, "k = 1", {"n": "n + 2147483647"})
    with pytest.raises(InvalidData, match=r"db\.t, column 'n': the new value cannot be computed: .*zz"):
        update_where(spark, table, "k = 1", {"n": F.col("zz") + 1})
    assert len(table.snapshots()) == 1
