"""Spark's workers open the object store that the driver's table lies in, by the same address and options."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.spark import compact_table, read_table, register, verify_table
from tests.spark.tables import same
from tests.support.s3_server import ENVIRONMENT, S3Server

pytestmark = pytest.mark.spark

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string()), ("t", pa.timestamp("ms"))])


def test_a_table_in_a_store_is_written_read_compacted_and_verified(
    spark: Any, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():  # as spark.executorEnv.* would, had the session been started for it
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    register(spark)  # the data source's workers have the environment of this moment
    catalog = Catalog(f"{s3.bucket()}/house", s3.options)
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(FIELDS, primary_keys=["k"], options={"bucket": "2"}))
    target = {"warehouse": catalog.root, "table": "db.t", **s3.options}
    for start in (0, 30):
        keys = list(range(start, start + 50))
        data = pa.table([keys, [f"{start}-{key}" for key in keys], [None] * 50], schema=FIELDS)
        if start:
            spark.createDataFrame(data).write.format("dredge").options(**target).mode("append").save()
        else:
            table.write(data)
    expected = table.to_arrow()
    assert expected.num_rows == 80
    report = compact_table(spark, table, full=True)
    assert report.snapshot_id == 3
    assert same(expected, read_table(spark, table).toArrow())
    assert verify_table(spark, table, 2, 3).ok
