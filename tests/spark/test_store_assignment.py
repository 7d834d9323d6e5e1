"""Rows of `save()` and `write_table` are cast as Spark's INSERT casts them, and refused where it refuses them, before any task runs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from lsm_core.errors import InvalidData
from lsm_core.spark import register, write_table
from lsm_core.write.incoming_rows import ALL
from lsm_core.write.store_assignment import assign_rows, require_assignable
from tests.spark.tables import make_table
from tests.support.samples import one_in

pytestmark = pytest.mark.spark
FIELDS = pa.schema(
    [
        pa.field("k", pa.int32(), nullable=False),
        ("whole", pa.int32()),
        ("f", pa.float32()),
        ("x", pa.float64()),
        ("m", pa.decimal128(6, 2)),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("at", pa.timestamp("us")),
    ]
)
LINES = [
    "1 k, 5.5BD whole, 2.675BD f, 2.675BD x, 2.675D m, 1e20D s, timestamp_ntz'2024-01-02 23:04:05.6' d, date'2024-01-02' at",
    "2 k, -7.9D whole, 3000000001L f, 16777217 x, 2.675BD m, 1.0D s, timestamp'1969-12-31 23:00:00' d, timestamp'2024-01-02 03:04:05.678' at",
    "3 k, 0.1BD whole, 1.1D f, float(1.1) x, -0.005BD m, timestamp'2024-01-02 03:04:05.670' s, date'2024-01-02' d, null at",
    "4 k, 300L whole, 1Y f, 12345.678BD x, 7 m, 1.50BD s, null d, timestamp_ntz'2024-01-02 03:04:05' at",
    "5 k, 9S whole, null f, null x, 1e3D m, true s, date'2024-01-02' d, null at",
    "6 k, null whole, 1e-50D f, 1e-320D x, -2.675D m, timestamp_ntz'2024-01-02 03:04:05' s, null d, null at",
]


@pytest.mark.parametrize("zone", one_in(2, ["UTC", "America/New_York"], 1))
def test_save_and_insert_cast_alike(spark: Any, tmp_path: Path, zone: str) -> None:
    register(spark)
    here, there = (
        make_table(tmp_path, name, fields=FIELDS, options={"bucket": "1"}) for name in ("db.here", "db.there")
    )
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW there USING dredge OPTIONS (warehouse '{tmp_path}', table 'db.there')")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for line in LINES:
            spark.sql(f"INSERT INTO there BY NAME SELECT {line}").collect()
            write_table(spark.sql(f"SELECT {line}"), here)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    found, wanted = (table.to_arrow().sort_by("k").to_pylist() for table in (here, there))
    assert found == wanted


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (pa.string(), "whole"), (pa.string(), "d"), (pa.string(), "at"), (pa.bool_(), "whole"), (pa.date32(), "whole"),
        (pa.int64(), "at"), (pa.int32(), "d"), (pa.timestamp("us"), "x"), (pa.binary(), "m"),
    ],
)  # fmt: skip
def test_types_that_insert_refuses_are_refused(tmp_path: Path, kind: pa.DataType, column: str) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    message = rf"db\.t, column '{column}': values of type .* do not fit .* by the rules of Spark's INSERT: cast them in the query"
    with pytest.raises(InvalidData, match=message):
        require_assignable(pa.schema([("k", pa.int32()), (column, kind)]), table.schema, table.name)


def test_a_refused_type_is_refused_before_any_task_runs(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    frame = spark.sql("SELECT 1 k, 'x' whole")
    with pytest.raises(InvalidData, match=r"column 'whole': values of type string do not fit INT"):
        write_table(frame, table)
    with pytest.raises(Exception, match="Failed to initialize Python data source writer"):
        frame.write.format("dredge").options(warehouse=str(tmp_path), table="db.t").mode("append").save()
    assert not list(tmp_path.rglob("dredge/staged/*"))


@pytest.mark.parametrize(
    ("column", "values"), [("m", [1.0, float("nan")]), ("m", [0.0, 1e40]), ("m", [0.0, float("inf")])]
)
def test_a_number_that_would_become_null_is_refused(tmp_path: Path, column: str, values: Sequence[float]) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    with pytest.raises(
        InvalidData, match=r"db\.t, column 'm': row 1 \(from 0\) of the rows given: .* does not fit DECIMAL\(6, 2\)"
    ):
        assign_rows(pa.table({column: values}), table.schema, None, table.name, ALL)


def test_values_that_arrow_casts_alike_are_left_alone(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    rows = pa.table({"k": pa.array([1], pa.int64()), "x": pa.array([1.5], pa.float32()), "s": ["a"], "z": [1]})
    assert assign_rows(rows, table.schema, None, table.name, ALL).equals(rows)
    cut = assign_rows(
        pa.table({"whole": [Decimal("-0.9")], "d": [dt.datetime(1969, 12, 31, 1, tzinfo=ZoneInfo("UTC"))]}),
        table.schema,
        "UTC",
        "db.t",
        ALL,
    )
    assert [cut.column("whole")[0].as_py(), cut.column("d")[0].as_py()] == [0, dt.date(1969, 12, 31)]
