"""Helpers take a table by its name, and rows of this process (pandas, Polars, Arrow) as well as DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lsm_core.errors import ColumnNotFound, InvalidData, InvalidOption
from lsm_core.spark import create_view, delete_where, read_table, update_where, upsert, write_table
from tests.spark.tables import data_files, make_table

FIELDS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int32())]
)
KEYED = {"fixed": (["p", "k"], "2"), "dynamic": (["p", "k"], "-1"), "moving": (["k"], "-1"), "append": ([], "-1")}


@pytest.mark.parametrize("kind", KEYED)
def test_frames_of_this_process_are_written_as_spark_frames_are(tmp_path: Path, kind: str) -> None:
    keys, bucket = KEYED[kind]
    table = make_table(
        tmp_path, fields=FIELDS, primary_keys=keys, partition_keys=["p"], options={"bucket": bucket} if keys else {}
    )
    frame = pd.DataFrame({"k": [1, 2], "p": pd.Categorical(["a", "b"]), "V": [10, 20]})
    assert write_table(frame, table, commit_user="load", commit_identifier=1) == 1
    assert write_table(frame, table, commit_user="load", commit_identifier=1) is None
    write_table(pl.LazyFrame({"p": ["b"], "k": [3]}), table)
    found = table.to_arrow().sort_by("k").to_pylist()
    assert [tuple(row.values()) for row in found] == [("a", 1, 10), ("b", 2, 20), ("b", 3, None)]
    if kind != "moving":
        write_table(pa.table({"p": ["b"], "k": [9], "v": [1]}), table, overwrite="p = 'b'")
        assert sorted(row["k"] for row in table.to_arrow().to_pylist()) == [1, 9]


def test_row_kinds_of_a_local_frame(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS, primary_keys=["p", "k"], options={"bucket": "1"})
    write_table({"p": ["a", "a"], "k": [1, 2], "v": [1, 2]}, table)
    write_table({"p": ["a"], "k": [1], "_row_kind": ["-D"]}, table)
    assert [row["k"] for row in table.to_arrow().to_pylist()] == [2]


def test_a_local_frame_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS, primary_keys=["p", "k"], options={"bucket": "1"})
    with pytest.raises(InvalidData, match=r"db\.t.*'k'.*null in a primary key column"):
        write_table(pa.table({"p": ["a", "a"], "k": [1, None]}), table)
    advice = r"no column 'z'; it has p, k, v; leave it out, or add it to the table with merge_schema=catalog"
    with pytest.raises(ColumnNotFound, match=advice):
        write_table(pa.table({"p": ["a"], "k": [1], "z": [1]}), table)
    assert table.latest_snapshot() is None and not data_files(tmp_path)
    assert not list(tmp_path.rglob("dredge/staged/*"))


@pytest.mark.spark
def test_tables_are_named_by_their_names(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.conf.unset("spark.dredge.warehouse")  # other tests of the session may have set it
    monkeypatch.delenv("DREDGE_WAREHOUSE", raising=False)
    table = make_table(tmp_path, fields=FIELDS, primary_keys=["p", "k"], options={"bucket": "1"})
    with pytest.raises(
        InvalidOption, match=r"'table' cannot be 'db.t'; accepted: a Table, or a name where spark.dredge.warehouse"
    ):
        read_table(spark, "db.t")
    spark.conf.set("spark.dredge.warehouse", str(tmp_path))
    try:
        write_table(spark.sql("SELECT 'a' p, id k, 0 v FROM range(3)"), "db.t")
        upsert(pd.DataFrame({"p": ["a"], "k": [2], "v": [7]}), "db.t")
        delete_where(spark, "db.t", "k = 0")
        update_where(spark, "db.t", "k = 1", {"v": 5})
        assert sorted(map(tuple, read_table(spark, "db.t", filter="v > 0").collect())) == [("a", 1, 5), ("a", 2, 7)]
        assert read_table(spark, "db.t$snapshots").count() == 4
        create_view(spark, "named", "db.t", filter="k = 2")
        assert spark.table("named").count() == 1
    finally:
        spark.conf.unset("spark.dredge.warehouse")
    assert len(table.snapshots()) == 4
