"""What the engine of this process lets through it answers as Spark does."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.errors import UnsupportedFeature
from lsm_core.spark.spark_queries import open_answer as answered_by_spark
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.queries import plan_query

pytestmark = pytest.mark.spark
FIELDS = pa.schema(
    [
        ("k", pa.int32()),
        ("b", pa.int64()),
        ("s", pa.string()),
        ("d", pa.float64()),
        ("c", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("t", pa.bool_()),
    ]
)
DAY, AT = dt.date(2024, 2, 28), dt.datetime(2024, 2, 28, 23, 59, 59)
ROWS = [
    {"k": 1, "b": 10, "s": " a_b ", "d": 1.5, "c": Decimal("1.25"), "day": DAY, "at": AT, "t": True},
    {"k": 2, "b": -7, "s": "9", "d": float("nan"), "c": Decimal("-2.50"), "day": None, "at": None, "t": False},
    {"k": 10, "b": None, "s": None, "d": -0.5, "c": None, "day": dt.date(1969, 12, 31), "at": AT, "t": None},
    {"k": None, "b": 3, "s": "Ärger\\x", "d": None, "c": Decimal("2.50"), "day": DAY, "at": AT, "t": True},
]
EXPRESSIONS = """
k + b; k - 1.5; c + k; c * c; k / 4; b DIV 4; b % 4; -b; k > '9'; b = '10'; c > '1'; d > '1'; day >= '2024-01-01'; at > '2024-02-28'; at = '2024-02-28 23:59:59'
k BETWEEN '2' AND 10; k IN ('2', 10); k <=> NULL; NOT t; t AND k > 1; t OR k > 1; k = 1 OR NULL; d = d; d > 100; d < 0 OR d IS NULL; d <> 1.5; d IN (1.5, 2); c = 1.25; c IN (1.25, 2.5)
upper(s); lower(s); length(s); trim(s); ltrim(s); rtrim(s); substring(s, 2, 2); substring(s, 2); concat(s, '-', k); s || 'x'; replace(s, 'a', 'o'); reverse(s); instr(s, 'b'); lpad(s, 7, '*'); rpad(s, 3, '*')
s LIKE '%a\\_b%'; s LIKE '%a_b%'; s NOT LIKE '9'; s RLIKE '^[0-9]+$'; startswith(s, ' a'); endswith(s, 'x'); s < 'a'
abs(b); round(c, 1); round(d); round(2.5); round(-2.5); floor(c); ceil(c); sqrt(b * b); power(k, 2); sign(b); greatest(k, b); least(k, b, 5); exp(0); ln(1)
coalesce(k, b, 0); nvl(s, 'n'); if(k > 1, 'y', 'n'); nullif(k, 1); CASE WHEN k = 1 THEN 'one' WHEN k > 1 THEN 'more' END; CASE k WHEN 1 THEN 1.5 ELSE 2 END; decode(k, 1, 'a', 'b'); isnan(d)
CAST(c AS INT); CAST(d AS FLOAT); CAST(-1.7 AS INT); CAST(k AS STRING); CAST(c AS STRING); CAST(day AS STRING); CAST(t AS STRING); CAST('12' AS INT); CAST(' 12 ' AS INT); CAST('1.5' AS DOUBLE); CAST(at AS DATE); CAST(t AS INT); TRY_CAST(s AS INT); TRY_CAST(k + 300 AS TINYINT); -128Y; TRY_CAST(s AS DATE)
CAST(k AS DECIMAL(12, 3)); CAST(2.345 AS DECIMAL(5, 2)); CAST('true' AS BOOLEAN); CAST(k AS BOOLEAN); CAST(b AS TINYINT); CAST(day AS TIMESTAMP_NTZ)
year(day); month(day); day(day); date_add(day, 2); date_add(day, -1); date_sub(day, 1); to_date('2024-02-28'); extract(year FROM day); year(at)
day + INTERVAL 1 DAY; array(k, 1); named_struct('a', k, 'b', s); array(1, 2)[1]
"""
AGGREGATES = """
count(*); count(k); count(DISTINCT s); sum(k); sum(c); sum(d); avg(k); min(s); max(d); min(d); max(day); count_if(k > 1); bool_and(t); bool_or(t); stddev(k); variance(k); max(t)
sum(k) FILTER (WHERE t); sum(DISTINCT k); min(c); max(at)
"""
CONDITIONS = """
k NOT IN (SELECT b FROM db.t); k NOT IN (SELECT b FROM db.t WHERE b IS NOT NULL); k IN (SELECT k FROM db.t WHERE d > 1); b > (SELECT avg(k) FROM db.t); k = 1 AND NOT EXISTS (SELECT 1 FROM db.t u WHERE u.k > 100)
NOT k IN (1, NULL); k <> 1; NOT (k > 1 AND b > 1); s IS NULL; d > 1; NOT d > 1; d >= 1.5 AND d < 2; c = 2.5; day = '2024-02-28'; day > DATE '2000-01-01'; k > '9'; at BETWEEN '2024-01-01' AND '2025-01-01'; t; NOT t; t = false
length(s) > 1; k + b > 5; CASE WHEN k > 1 THEN t ELSE true END; coalesce(k, 0) = 0; b NOT BETWEEN 0 AND 5; s LIKE 'Ä%'
"""


def listed(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(";")]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(str(tmp_path_factory.mktemp("warehouse")))
    catalog.create_database("db")
    catalog.create_table("db.t", FIELDS).write(pa.Table.from_pylist(ROWS, schema=FIELDS))
    return catalog


def plain(value: Any) -> Any:
    """A value that compares as people do: NaN equals itself, 1.5 is 1.50, whatever the types."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return round(float(value), 9)
    return value


def require_equal(spark: Any, catalog: Catalog, items: list[str], text: str) -> None:
    """Both engines answer the same; of each row the first value is the number of the item, or the items are its columns."""
    found = [tuple(map(plain, row.values())) for row in LocalEngine().answer(catalog, text).read_all().to_pylist()]
    with answered_by_spark(spark, plan_query(catalog, text)) as frame:
        wanted = [tuple(map(plain, row.values())) for row in frame.toArrow().to_pylist()]
    if len(wanted) and len(wanted[0]) == len(items):
        answers = zip(items, zip(*found, strict=True), zip(*wanted, strict=True), strict=True)
    else:
        answers = (
            (item, *(sorted(map(repr, (row for row in rows if row[0] == n))) for rows in (found, wanted)))
            for n, item in enumerate(items)
        )
    assert [f"{item}: {here} here, {there} by Spark" for item, here, there in answers if here != there] == []


@pytest.mark.soak
def test_expressions(spark: Any, catalog: Catalog) -> None:
    items = listed(EXPRESSIONS)
    columns = ", ".join(f"{item} AS x{number}" for number, item in enumerate(items))
    require_equal(spark, catalog, items, f"SELECT {columns} FROM db.t ORDER BY k")


@pytest.mark.soak
def test_aggregates(spark: Any, catalog: Catalog) -> None:
    items = listed(AGGREGATES)
    require_equal(
        spark, catalog, items, f"SELECT {', '.join(f'{item} AS x{n}' for n, item in enumerate(items))} FROM db.t"
    )


def test_a_sample_of_conditions(spark: Any, catalog: Catalog) -> None:
    """Those about nulls, NaN and texts beside numbers, where engines differ most."""
    items = ["NOT k IN (1, NULL)", "NOT d > 1", "k > '9'", "d <> 1.5", "c = 1.25", "NOT (k > 1 AND b > 1)", "isnan(d)"]
    parts = ", ".join(f"coalesce({item}, false) AS x{number}" for number, item in enumerate(items))
    require_equal(spark, catalog, items, f"SELECT {parts} FROM db.t ORDER BY k")
    for item in ("k NOT IN (SELECT b FROM db.t)", "k NOT IN (SELECT b FROM db.t WHERE b > 5) AND d > 1"):
        require_equal(spark, catalog, [item], f"SELECT k, b FROM db.t WHERE {item}")


@pytest.mark.soak
def test_conditions(spark: Any, catalog: Catalog) -> None:
    items = listed(CONDITIONS)
    parts = [f"SELECT {number} AS n, k, b FROM db.t WHERE {item}" for number, item in enumerate(items)]
    require_equal(spark, catalog, items, " UNION ALL ".join(parts))


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ("floor(d)", "rounded to BIGINT"),
        ("avg(c)", "rounded otherwise"),
        ("c / 3", "rounded otherwise"),
        ("day - day", "an interval"),
        ("date_trunc('month', at)", "function"),
        ("CAST(at AS STRING)", "whose text would differ"),
    ],
)
def test_what_would_be_answered_otherwise_is_refused(catalog: Catalog, item: str, why: str) -> None:
    with pytest.raises(UnsupportedFeature, match=why):
        LocalEngine().answer(catalog, f"SELECT {item} FROM db.t")
