"""Spark's workers open the store that the driver's table lies in, by the same address and options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.spark import compact_table, read_table, register, verify_table
from tests.spark.tables import same
from tests.support.emulators import StoreServer, azurite, hdfs_cluster
from tests.support.s3_server import ENVIRONMENT, PROVIDER_KEYS, S3Server

pytestmark = pytest.mark.spark

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string()), ("t", pa.timestamp("ms"))])


OTHER_STORES = [pytest.param(kind, marks=pytest.mark.soak) for kind in ("oss", "abfss", "hdfs")]


@pytest.fixture(params=["s3", *OTHER_STORES])
def store(request: pytest.FixtureRequest, s3: S3Server, tmp_path: Path) -> Iterator[StoreServer]:
    if request.param == "s3":
        yield StoreServer(s3.bucket(), s3.options, ENVIRONMENT)
    elif request.param == "oss":
        yield StoreServer(s3.bucket("oss"), s3.provider_options("oss", "forbid-overwrite"), PROVIDER_KEYS)
    else:
        with {"abfss": azurite, "hdfs": hdfs_cluster}[request.param](tmp_path) as server:
            yield server


def test_a_table_in_a_store_is_written_read_compacted_and_verified(
    spark: Any, store: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.environment.items():  # as spark.executorEnv.* would, had the session been started for it
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
        monkeypatch.setenv(name, value)
    register(spark)  # the data source's workers have the environment of this moment
    catalog = Catalog(store.folder(), store.options)
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(FIELDS, primary_keys=["k"], options={"bucket": "2"}))
    target = {"warehouse": catalog.root, "table": "db.t", **store.options}
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
