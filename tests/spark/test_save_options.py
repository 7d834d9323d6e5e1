"""Options that Spark's users know from other formats: a table's folder, versions and times, a condition of what is replaced; and errors in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Table
from lsm_core.errors import InvalidData, InvalidOption
from lsm_core.spark import register, write_table
from lsm_core.spark.data_source import TableSource, resolve_path
from lsm_core.spark.overwrite_scope import replace_condition, replaced_partitions
from tests.spark.tables import make_table

pytestmark = pytest.mark.spark
FIELDS = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        ("v", pa.float64()),
    ]
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two snapshots: two days of one row each, then a third day."""
    made = make_table(
        tmp_path, fields=FIELDS, primary_keys=["day", "k"], partition_keys=["day"], options={"bucket": "1"}
    )
    made.write(pa.table({"day": ["mon", "tue"], "k": [1, 2], "v": [1.0, 2.0]}))
    made.write(pa.table({"day": ["wed"], "k": [3], "v": [3.0]}))
    return made


def _days(table: Table) -> list[tuple[str, int]]:
    return sorted((row["day"], row["k"]) for row in table.to_arrow().to_pylist())


def _frame(spark: Any, *rows: tuple[str, int, float]) -> Any:
    return spark.createDataFrame(list(rows), "day STRING, k BIGINT, v DOUBLE")


def test_the_folder_of_a_table_names_it(spark: Any, tmp_path: Path, table: Table) -> None:
    register(spark)
    folder = f"{tmp_path}/db.db/t"
    assert spark.read.format("dredge").option("filter", "k >= 2 AND day <> 'wed'").load(folder).count() == 1
    _frame(spark, ("sun", 9, 9.0)).write.format("dredge").mode("append").save(f"file://{folder}/")
    assert ("sun", 9) in _days(table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "/data/t"}, r"'path' cannot be '/data/t'; accepted: the folder of a table, <warehouse>/<database>\.db/<table>"),
        ({"path": "/w/db.db/t", "table": "db.u"}, r"'table' of table db\.t cannot be 'db\.u'; accepted: nothing beside path"),
        ({"path": "/w/db.db/t", "warehouse": "/x"}, r"'warehouse' of table db\.t cannot be '/x'"),
    ],
)  # fmt: skip
def test_a_path_that_names_no_table_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        resolve_path(options)


def test_a_path_beside_the_same_names_is_taken() -> None:
    given = {"path": "s3://w/a/db.db/t/", "table": "db.t", "warehouse": "s3://w/a", "s3.endpoint": "e"}
    assert resolve_path(given) == {"warehouse": "s3://w/a", "table": "db.t", "s3.endpoint": "e"}


def test_versions_and_times_choose_what_is_read(spark: Any, tmp_path: Path, table: Table) -> None:
    register(spark)
    table.create_tag("first", 1)
    times = [snapshot.time_millis for snapshot in table.snapshots()]

    def count(**options: Any) -> int:
        reader = spark.read.format("dredge").options(warehouse=str(tmp_path), table="db.t", **options)
        return int(reader.load().count())

    assert (count(versionAsOf=1), count(versionAsOf="first"), count(versionAsOf=2)) == (2, 2, 3)
    second = "1970-01-01T00:00:00.000Z"
    assert count(timestampAsOf=second.replace("1970-01-01", "2100-01-01")) == 3
    assert count(timestampAsOf=str(times[-1] // 1000 + 1)) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"versionAsOf": "1", "snapshot-id": "2"},
            "'scan.version' cannot be '1'; accepted: nothing beside snapshot-id",
        ),
        ({"timestampAsOf": "soon"}, "'timestampAsOf' of table db.t cannot be 'soon.*; accepted: a time like"),
        ({"versionAsOf": "nine"}, "nine"),
        ({"versionAsOf": "1", "timestampAsOf": "2024-01-01"}, "only one of"),
        (
            {"timestamp": "1", "timestampAsOf": "2024-01-01"},
            "'timestampAsOf' cannot be '2024-01-01'; accepted: nothing beside timestamp",
        ),
    ],
)
def test_a_version_that_says_nothing_is_refused(
    tmp_path: Path, table: Table, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        TableSource({"warehouse": str(tmp_path), "table": table.name, **options}).schema()


def test_replace_where_replaces_the_partitions_of_the_condition(spark: Any, tmp_path: Path, table: Table) -> None:
    register(spark)
    options = {"warehouse": str(tmp_path), "table": "db.t", "replaceWhere": "day IN ('mon', 'wed', 'zzz')"}
    _frame(spark, ("mon", 7, 0.0)).write.format("dredge").options(**options).mode("overwrite").save()
    assert _days(table) == [("mon", 7), ("tue", 2)]
    write_table(_frame(spark, ("tue", 8, 0.0), ("tux", 9, 0.0)), table, overwrite="day LIKE '%u_'")
    assert _days(table) == [("mon", 7), ("tue", 8), ("tux", 9)]
    with pytest.raises(
        InvalidData, match=r"new rows of partition day=mon lie outside the condition of replaceWhere: day = 'tue'"
    ):
        write_table(_frame(spark, ("mon", 1, 1.0)), table, overwrite="day = 'tue'")
    write_table(_frame(spark), table, overwrite="day = 'tue'")
    assert _days(table) == [("mon", 7), ("tux", 9)]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            "v > 1",
            "'replaceWhere' of table db.t cannot be 'v > 1'; accepted: a condition on the partition columns day; .*delete_where",
        ),
        ("day = ", "accepted: a condition on the partition columns day"),
        ("day = 'mon' OR k = 1", "accepted: a condition on the partition columns day"),
    ],
)
def test_a_condition_on_other_columns_replaces_nothing(table: Table, where: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        replace_condition(table.store, where)
    with pytest.raises(InvalidOption, match=message):
        replaced_partitions(table.store, where, [])


def _messages(tmp_path: Path, spark: Any) -> dict[str, Callable[[], Any]]:
    def save(frame: Any, mode: str = "append", **options: str) -> Any:
        chosen = {"warehouse": str(tmp_path), "table": "db.t", **options}
        return frame.write.format("dredge").options(**chosen).mode(mode).save()

    good = _frame(spark, ("mon", 1, 1.0))
    load = spark.read.format("dredge").options(warehouse=str(tmp_path), table="db.none")
    return {
        "TableNotFound: table db.none is not in": lambda: save(good, table="db.none"),
        "ColumnNotFound: table db.t has no column 'z'": lambda: save(good.selectExpr("*", "1 AS z")),
        "InvalidData: table db.t, column 'k'": lambda: save(good.selectExpr("day", "IF(k = 1, NULL, k) AS k", "v")),
        "InvalidOption: option 'replaceWhere' of table db.t": lambda: save(good, replaceWhere="day = 'mon'"),
        "TableNotFound: table db.none": load.load,
    }


def test_errors_of_the_format_begin_with_the_sentence_that_matters(spark: Any, tmp_path: Path, table: Table) -> None:
    register(spark)
    for sentence, action in _messages(tmp_path, spark).items():
        with pytest.raises(Exception) as raised:
            action()
        first = str(raised.value).splitlines()[0]
        assert f"lsm_core.errors.{sentence}" in first, first
    assert _days(table) == [("mon", 1), ("tue", 2), ("wed", 3)]
