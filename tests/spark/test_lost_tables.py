"""Spark helpers with a handle of a table that others dropped, renamed or replaced: one error, nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core import spark as helpers
from lsm_core.errors import TableNotFound

pytestmark = pytest.mark.spark
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
CALLS: dict[str, Callable[[Any, Any, Table], Any]] = {
    "read_table": lambda spark, frame, table: helpers.read_table(spark, table),
    "create_view": lambda spark, frame, table: helpers.create_view(spark, "lost", table),
    "write_table": lambda spark, frame, table: helpers.write_table(frame, table),
    "upsert": lambda spark, frame, table: helpers.upsert(frame, table),
    "delete_keys": lambda spark, frame, table: helpers.delete_keys(frame.select("k"), table),
    "delete_where": lambda spark, frame, table: helpers.delete_where(spark, table, "k = 3"),
    "update_where": lambda spark, frame, table: helpers.update_where(spark, table, "k = 3", {"v": "'w'"}),
    "compact_table": lambda spark, frame, table: helpers.compact_table(spark, table, full=True),
    "rescale_table": lambda spark, frame, table: helpers.rescale_table(spark, table, 2),
    "expire_snapshots": lambda spark, frame, table: helpers.expire_snapshots(spark, table, retain_max=1, retain_min=1),
    "remove_orphan_files": lambda spark, frame, table: helpers.remove_orphan_files(spark, table, dry_run=True),
    "verify_table": lambda spark, frame, table: helpers.verify_table(spark, table, 1, 1),
}


def created(catalog: Catalog) -> Table:
    return catalog.create_table("db.t", Schema(FIELDS, primary_keys=["k"], options={"bucket": "1"}))


@pytest.mark.parametrize("fate", ["dropped or renamed", "replaced"])
def test_no_helper_reads_or_writes_another_table(spark: Any, tmp_path: Path, fate: str) -> None:
    catalog = Catalog(tmp_path)  # with the system's clock: the time of creation distinguishes two tables
    catalog.create_database("db")
    table = created(catalog)
    table.write(pa.table({"k": [1], "v": ["a"]}))
    frame = spark.createDataFrame([(9, "x")], "k bigint, v string")
    planned = helpers.read_table(spark, table)
    catalog.rename_table("db.t", "db.u")
    if fate == "replaced":
        created(catalog).write(pa.table({"k": [3], "v": ["c"]}))
    before = sorted(tmp_path.rglob("*"))
    for name, call in CALLS.items():
        with pytest.raises(TableNotFound, match=f"db.t was {fate} since it was opened"):
            call(spark, frame, table)
        assert sorted(tmp_path.rglob("*")) == before, name
    with pytest.raises(Exception, match=r"(?s)was replaced|does not exist"):  # Spark reads the files by their names
        planned.collect()
