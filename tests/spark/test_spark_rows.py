"""Rows in a DataFrame are compared with a table's history: only sampled keys reach the driver, and a wrong row is named."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Schema
from lsm_core.errors import InvalidData
from lsm_core.maintenance.checks.bucket_sample import check_input_at
from lsm_core.maintenance.checks.expected_rows import merge_by_rules
from lsm_core.maintenance.checks.row_comparison import compare_keys, compare_rows
from lsm_core.spark.spark_verify import SparkRows
from tests.maintenance.tables import catalog

COLUMNS = pa.schema(
    [
        pa.field("day", pa.date32(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("amount", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
)


def test_a_frame_of_spark_is_compared_as_one_of_pandas_is(tmp_path: Path, spark: Any) -> None:
    made = Schema(
        COLUMNS, primary_keys=["day", "id"], partition_keys=["day"], options={"bucket": "1", "write-only": "true"}
    )
    table = catalog(tmp_path).create_table("db.t", made)
    for step in range(2):
        row = {"day": date(2024, 5, 1), "amount": Decimal(step), "at": None, "tags": ["a"], "counts": [("x", step)]}
        table.write(pa.Table.from_pylist([{**row, "id": number} for number in range(5)], schema=COLUMNS))
    question = check_input_at(table.store, rows=100, keys=100)
    frame = spark.createDataFrame(table.to_arrow())
    found = compare_rows(table.store, merge_by_rules(question), SparkRows(table.store, frame))
    assert (found.differing, found.compared, list(found.differences)) == (0, 5, [])
    amount = "IF(id = 3, CAST(9 AS DECIMAL(10, 2)), amount) AS amount"
    wrong = frame.where("id <> 4").selectExpr("day", "id", amount, "at", "tags", "counts")
    found = compare_rows(table.store, merge_by_rules(question), SparkRows(table.store, wrong))
    assert [str(difference) for difference in found.differences] == [
        "day=2024-05-01, id=3: amount is 9.00, expected 1.00",
        "day=2024-05-01, id=4: the row is missing",
    ]
    twice = SparkRows(table.store, frame.unionAll(frame.where("id = 2")))
    keys = compare_keys(table.store, twice)
    assert (keys.compared, keys.differing) == (6, 1)
    assert str(keys.differences[0]) == "day=2024-05-01, id=2: there are 2 rows with this key"
    with pytest.raises(InvalidData, match="column 'id'"):
        compare_keys(table.store, SparkRows(table.store, frame.drop("id")))
