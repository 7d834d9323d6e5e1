"""Spark reads a bucket of several large files under outliers in parts, through each of its doors, without a wrong row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import Table
from lsm_core.spark import explain_read, read_table
from tests.spark.tables import make_table

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(600)]
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("s", pa.binary())])
COUNT = 40_000
KINDS: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "aggregation.remove-record-on-delete": "true",
    },
}
CONDITIONS = (
    f"k >= {5 * COUNT - 20} AND k < {5 * COUNT + 20}",
    "v > 0",
    "v IN (0, 3) AND k % 1000 = 3",
    f"k = {5 * COUNT}",
    f"k < 0 OR k > {10 * COUNT - 10}",
)


def rows(keys: list[int], value: int) -> pa.Table:
    draw = np.random.default_rng(value)
    return pa.table([keys, [value] * len(keys), [draw.bytes(600) for _ in keys]], schema=FIELDS)


def layered(root: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> Table:
    """Large files on the last level, and three commits with outliers, a delete and new versions in level 0."""
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")
    kept = {"bucket": "1", "write-only": "true", "target-file-size": "6 mb", "file.compression": "none"}
    table = make_table(root, fields=FIELDS, options={**kept, **options})
    table.write(rows(list(range(0, 10 * COUNT, 10)), 0))
    table.compact(full=True)
    table.write(rows([-5, 10 * COUNT + 5], 1))
    table.write(rows([5, 5 * COUNT, 10 * COUNT + 7], 2), ["+I", "-D", "+I"])
    table.write(rows([3, 6 * COUNT + 3, 6 * COUNT + 10], 3))
    return table


def sorted_rows(answer: pa.Table) -> pa.Table:
    return answer.select(FIELDS.names).cast(pa.schema(FIELDS)).sort_by("k").combine_chunks()


@pytest.mark.parametrize("kind", KINDS)
def test_every_door_gives_the_rows_of_the_merge(
    tmp_path: Path, spark: Any, java: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table = layered(tmp_path, monkeypatch, KINDS[kind])
    assert explain_read(table, slots=2).tasks == 2
    merged_rows = sorted_rows(table.copy({"dredge.read.exact-keys": "never"}).to_arrow())
    assert merged_rows.num_rows == COUNT + 5
    java_rows = sorted((row["k"], row["v"]) for row in java("read", tmp_path, columns=["k", "v"])["rows"])
    assert java_rows == list(zip(merged_rows["k"].to_pylist(), merged_rows["v"].to_pylist(), strict=True))

    place = {"warehouse": str(tmp_path), "table": "db.t"}
    source = spark.read.format("dredge").options(**place).load()
    assert source.rdd.getNumPartitions() == 2
    source.createOrReplaceTempView("cut_table")
    frames = {"data source": source, "read_table": read_table(spark, table)}
    for name, frame in frames.items():
        assert sorted_rows(frame.toArrow()).equals(merged_rows), name
        assert sorted(row.v for row in frame.select("v").collect()) == sorted(merged_rows["v"].to_pylist()), name
        assert frame.limit(7).count() == 7
    judge = spark.createDataFrame(merged_rows.select(["k", "v"]))
    for condition in CONDITIONS:
        expected = sorted(judge.where(condition).collect())
        assert expected or condition == CONDITIONS[3]
        assert sorted(spark.sql(f"SELECT k, v FROM cut_table WHERE {condition}").collect()) == expected, condition
        for name, frame in frames.items():
            assert sorted(frame.where(condition).select("k", "v").collect()) == expected, (name, condition)
    assert spark.sql("SELECT count(*), count(DISTINCT k) FROM cut_table").first()[:] == (COUNT + 5, COUNT + 5)

    stream = spark.readStream.format("dredge").options(**place).option("scan.mode", "latest-full").load()
    sink = stream.writeStream.format("memory").queryName(f"cut_{kind}").trigger(availableNow=True)
    sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert sorted_rows(spark.table(f"cut_{kind}").select(*FIELDS.names).toArrow()).equals(merged_rows)
