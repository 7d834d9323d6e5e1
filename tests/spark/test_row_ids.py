"""Ids and snapshots of rows (`row-tracking.enabled`) in Spark are those that the Python reader gives."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.spark import compact_table, read_table, register
from tests.spark.tables import make_table

pytestmark = pytest.mark.spark
FIELDS = pa.schema([("k", pa.int64()), ("s", pa.string())])
IDS = ["k", "_ROW_ID", "_SEQUENCE_NUMBER"]


def told(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def tracked(root: Path) -> Table:
    """Rows as appended, and rows that an UPDATE wrote again."""
    table = make_table(root, fields=FIELDS, primary_keys=(), options={"row-tracking.enabled": "true"})
    for step in range(2):
        table.write(pa.table({"k": range(step * 5, step * 5 + 5), "s": ["a"] * 5}))
    table.update([("k", "=", 7)], {"s": "b"})
    return table


def test_ids_are_read_through_the_format_and_the_function(spark: Any, tmp_path: Path) -> None:
    register(spark)
    table = tracked(tmp_path)
    expected = told(table.to_arrow(columns=IDS))
    assert [row for row in expected if row[0] in (4, 5, 7)] == [(4, 4, 1), (5, 5, 2), (7, 7, 3)]
    assert told(read_table(spark, table, columns=IDS).toArrow()) == expected
    source = spark.read.format("dredge").option("warehouse", str(tmp_path)).option("table", "db.t")
    assert told(source.option("columns", ",".join(IDS)).load().toArrow()) == expected
    late = [("_ROW_ID", ">=", 7)]
    assert told(read_table(spark, table, columns=["k"], filter=late).toArrow()) == [(7,), (8,), (9,)]
    filtered = (
        spark.read.format("dredge").options(warehouse=str(tmp_path), table="db.t", filter=json.dumps(late)).load()
    )
    assert (filtered.columns, filtered.count()) == (["k", "s"], 3)
    view = spark.read.format("dredge").options(warehouse=str(tmp_path), table="db.t$row_tracking").load()
    assert view.columns == ["k", "s", "_ROW_ID", "_SEQUENCE_NUMBER"]
    assert told(view.select(*IDS).toArrow()) == expected
    again = Catalog(str(tmp_path)).table("db.t$row_tracking")
    assert told(read_table(spark, again, columns=IDS).toArrow()) == expected
    assert read_table(spark, table).columns == ["k", "s"]


def test_a_compaction_on_spark_keeps_them(spark: Any, tmp_path: Path) -> None:
    table = tracked(tmp_path)
    before = told(table.to_arrow(columns=IDS))
    assert compact_table(spark, table, full=True).commits == 1
    assert told(read_table(spark, table, columns=IDS).toArrow()) == before


def test_columns_of_several_files_and_blobs_are_read_on_spark(spark: Any, tmp_path: Path) -> None:
    register(spark)
    data = Path(__file__).parent.parent / "data" / "evolution"
    with tarfile.open(data / "warehouse.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    for name in ("merged", "blobs", "marked"):
        table = Catalog(str(tmp_path)).table(f"db.{name}")
        names = [*table.schema.field_names, "_ROW_ID"]
        assert told(read_table(spark, table, columns=names).toArrow()) == told(table.to_arrow(names))
