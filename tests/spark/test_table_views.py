"""Which snapshot frames, views and queries have: one that a later commit does not change, and the newest one on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, SchemaChange, Table
from lsm_core.errors import InvalidOption, SnapshotNotFound
from lsm_core.spark import create_view, query_tables, read_table, refresh, spark_queries
from lsm_core.spark.spark_tasks import translate_errors
from tests.spark.tables import make_table

pytestmark = pytest.mark.spark
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


def table_of(root: Path, *keys: int) -> Table:
    """A table of these keys, which Dredge reads (its files are not compacted)."""
    table = make_table(root, fields=FIELDS, options={"bucket": "1"})
    add(table, *keys)
    return table


def add(table: Table, *keys: int) -> None:
    """One commit."""
    table.write(pa.table({"k": keys, "v": [None] * len(keys)}, schema=FIELDS))


def load(spark: Any, root: Path, **options: str) -> Any:
    return spark.read.format("dredge").options(warehouse=str(root), table="db.t", **options).load()


def test_a_frame_keeps_its_snapshot_and_every_door_plans_again_at_each_call(spark: Any, tmp_path: Path) -> None:
    table, catalog = table_of(tmp_path, 1, 2), Catalog(str(tmp_path))
    old = [load(spark, tmp_path), read_table(spark, table)]
    create_view(spark, "Seen_Now", table, columns=["k"])
    assert [frame.count() for frame in old] == [2, 2]
    add(table, 3)
    assert [frame.count() for frame in old] == [2, 2], "as docs/spark.md says in its first screen"
    assert spark.table("seen_now").count() == 2
    assert load(spark, tmp_path).count() == read_table(spark, table).count() == 3
    text = "SELECT a.k FROM db.t a JOIN db.t b ON a.k = b.k"
    counted = query_tables(spark, catalog, text)
    assert counted.count() == 3
    refresh(spark, "seen_now")
    assert spark.table("seen_now").count() == 3
    catalog.alter_table("db.t", [SchemaChange.add_column("more", pa.int64())])
    create_view(spark, "all_columns", table)
    add(table, 4)
    refresh(spark)
    assert (spark.table("seen_now").count(), spark.table("all_columns").columns) == (4, ["k", "v", "more"])
    assert counted.count() == 3, "a query's answer keeps its snapshots, too"
    with pytest.raises(InvalidOption, match=r"a view of create_view.*all_columns, .*seen_now"):
        refresh(spark, "unknown")


def test_a_frame_whose_snapshot_has_expired_is_an_error_unless_a_tag_keeps_it(spark: Any, tmp_path: Path) -> None:
    table = table_of(tmp_path, 1, 2)
    add(table, 2)  # a second file with a key of the first: Dredge reads both, not Spark's own reader
    old = [load(spark, tmp_path), read_table(spark, table)]
    assert [frame.count() for frame in old] == [2, 2]
    add(table, 3)
    table.create_tag("kept", 3)
    tagged = [load(spark, tmp_path), load(spark, tmp_path, tag="kept"), read_table(spark, table, tag="kept")]
    assert [frame.count() for frame in tagged] == [3, 3, 3]
    add(table, 4)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60)
    assert [snapshot.id for snapshot in table.snapshots()] == [4]
    for frame in old:
        expected = r"table db\.t was planned on snapshot 2, which has expired"
        with pytest.raises(SnapshotNotFound, match=expected) as caught, translate_errors("reading"):
            frame.count()
        assert caught.value.expired
    assert [frame.count() for frame in tagged] == [3, 3, 3]


@pytest.mark.parametrize("commits", [1, 99])
def test_all_mentions_of_a_table_in_a_query_have_one_snapshot(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    table, left = table_of(tmp_path, 1), [commits]

    def overtaken(*given: Any, **named: Any) -> Any:
        frame = read_table(*given, **named)
        if left[0]:
            left[0] -= 1
            add(table, 1000 - left[0])
        return frame

    monkeypatch.setattr(spark_queries, "read_table", overtaken)
    text = "SELECT (SELECT count(*) FROM db.t) AS a, (SELECT count(k) FROM db.t) AS b"
    ((first, other),) = query_tables(spark, Catalog(str(tmp_path)), text).collect()
    assert first == other > 1
