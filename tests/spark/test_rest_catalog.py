"""Spark reads, writes and compacts a table behind Paimon's own REST catalog server; the driver commits to the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.spark import compact_table, register
from tests.support.rest_server import TOKEN, WAREHOUSE, RestServer, start_server

pytestmark = [pytest.mark.spark, pytest.mark.paimon_java, pytest.mark.soak]
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestServer]:
    """Yield the server of an empty warehouse."""
    monkeypatch.setenv("DREDGE_REST_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")
    running = start_server(tmp_path / "served")
    yield running
    running.close()


def test_spark_commits_through_the_server(spark: Any, server: RestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    # Spark's Python processes get these variables with each function; an operator sets them before Spark starts.
    monkeypatch.setitem(spark.sparkContext.environment, "DREDGE_REST_TOKEN", TOKEN)
    register(spark)
    options = {"metastore": "rest", "uri": server.url}
    catalog = Catalog(WAREHOUSE, options)
    catalog.create_database("db")
    table = catalog.create_table("db.t", FIELDS, primary_keys=["k"], options={"bucket": "2"})
    place = {"warehouse": WAREHOUSE, "table": "db.t", **options}
    for number in range(2):
        rows = spark.createDataFrame([(number, "a"), (10, str(number))], "k bigint, v string")
        rows.write.format("dredge").mode("append").options(**place).save()
    assert catalog.table("db.t$snapshots").to_arrow().num_rows == 2
    compact_table(spark, catalog.table("db.t"), full=True)
    # The server knows each commit: it refuses one on an older base.
    table.refresh().write(pa.table({"k": [10], "v": ["later"]}, schema=FIELDS))
    read = spark.read.format("dredge").options(**place).load()
    assert sorted(map(tuple, read.collect())) == [(0, "a"), (1, "a"), (10, "later")]
