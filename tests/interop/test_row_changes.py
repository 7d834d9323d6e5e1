"""Java reads, writes and compacts what Dredge deleted, updated, overwrote, dropped and rescaled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from tests.interop.rows import both_read
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
COLUMNS = pa.schema(
    [
        pa.field("p", pa.string(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        ("v", pa.int32()),
        ("s", pa.string()),
    ]
)


def create(tmp_path: Path, keys: list[str], **options: str) -> Table:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    return catalog.create_table("db.t", Schema(COLUMNS, keys, ["p"], options))


def rows(partition: str, first: int, count: int, value: int) -> pa.Table:
    keys = range(first, first + count)
    texts = ["x" * (k % 5) or None for k in keys]
    return pa.table([[partition] * count, list(keys), [value + k for k in keys], texts], schema=COLUMNS)


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", one_in(2, ["keyed", "unaware", "bucketed"]))
def test_java_agrees_after_every_statement(tmp_path: Path, java: Java, kind: str) -> None:
    keys = ["p", "k"] if kind == "keyed" else []
    chosen = {"keyed": {"bucket": "2"}, "unaware": {}, "bucketed": {"bucket": "2", "bucket-key": "k"}}[kind]
    table = create(tmp_path, keys, **chosen)
    for partition in "abc":
        table.write(rows(partition, 0, 20, 0))
        java("write", rows=rows(partition, 20, 20, 0).to_pylist(), compact="none")
    assert len(both_read(table, java)) == 120
    table.delete([("p", "=", "a"), ("k", "in", [3, 25])])
    table.update([("v", ">", 30)], {"v": pc.field("v") + 100, "s": "far"})
    assert sum(row[3] == "far" for row in both_read(table, java)) == 27
    java("compact")
    assert len(both_read(table, java)) == 118
    table.write(rows("b", 7, 2, 5), overwrite={"p": "b"})
    table.write(rows("c", 1, 1, 5), overwrite=True)
    assert len(both_read(table, java)) == 41
    java("write", rows=rows("b", 8, 2, 9).to_pylist(), compact="minor")
    assert len(both_read(table, java)) == (42 if keys else 43)
    table.delete([("p", "=", "c")])
    table.drop_partitions([{"p": "b"}])
    assert {row[0] for row in both_read(table, java)} == {"a"}
    java("truncate", partitions=[{"p": "a"}])
    assert both_read(table, java) == []


@pytest.mark.paimon_java
@pytest.mark.parametrize("keyed", one_in(2, [True, False]), ids=["keyed", "append"])
def test_java_goes_on_with_a_rescaled_table(tmp_path: Path, java: Java, keyed: bool) -> None:
    options = {"bucket": "1"} if keyed else {"bucket": "1", "bucket-key": "k"}
    table = create(tmp_path, ["p", "k"] if keyed else [], **options)
    java("write", rows=rows("a", 0, 50, 0).to_pylist(), compact="none")
    table.write(rows("a", 50, 50, 0))
    table.write(rows("b", 0, 30, 0))
    before = both_read(table, java)
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [SchemaChange.set_option("bucket", "4")])
    table = catalog.table("db.t")
    table.apply(table.plan_maintenance("rescale", partitions=[{"p": "a"}]))
    assert both_read(table, java) == before
    files = java("files")["files"]
    assert {(file["partition"]["p"], file["total_buckets"]) for file in files} == {("a", 4), ("b", 1)}
    if keyed:
        assert {file["level"] for file in files if file["partition"]["p"] == "a"} == {5}
    java("write", rows=rows("a", 0, 10, 1000).to_pylist(), compact="none")
    table.write(rows("a", 200, 10, 0))
    java("compact", partition={"p": "a"})  # "b" has one bucket still, which Java refuses as we do
    assert len(both_read(table, java)) == (140 if keyed else 150)


@pytest.mark.paimon_java
def test_overwrites_leave_the_files_where_java_leaves_them(tmp_path: Path, java: Java) -> None:
    table = create(tmp_path, ["p", "k"], bucket="2")
    table.write(rows("a", 0, 20, 0))
    table.write(rows("a", 0, 10, 1), overwrite={"p": "a"})
    mine = sorted((file["bucket"], file["level"], file["row_count"]) for file in java("files")["files"])
    plain = rows("a", 0, 10, 1).to_pylist()
    java("write", rows=plain, overwrite={"partition": {"p": "a"}}, compact="none")
    assert sorted((file["bucket"], file["level"], file["row_count"]) for file in java("files")["files"]) == mine
    assert {level for _, level, _ in mine} == {5}
    assert len(both_read(table, java)) == 10


@pytest.mark.paimon_java
@pytest.mark.parametrize("dynamic", one_in(2, ["true", "false"]))
def test_an_empty_static_partition_replaces_what_java_replaces(tmp_path: Path, java: Java, dynamic: str) -> None:
    table = create(tmp_path, [], **{"dynamic-partition-overwrite": dynamic})
    kept = {"true": [("a", 0), ("b", 9)], "false": [("b", 9)]}[dynamic]
    for engine in ("java", "dredge"):
        table.truncate()
        table.write(pa.concat_tables([rows("a", 0, 1, 0), rows("b", 0, 1, 0)]))
        if engine == "java":
            java("write", rows=rows("b", 9, 1, 0).to_pylist(), overwrite={"partition": {}})
        else:
            table.write(rows("b", 9, 1, 0), overwrite={})
        assert [row[:2] for row in both_read(table, java)] == kept, engine
        if engine == "java":
            java("write", rows=[], overwrite={"partition": {}})
        else:
            table.write(rows("b", 0, 0, 0), overwrite={})
        assert [row[:2] for row in both_read(table, java)] == (kept if dynamic == "true" else []), engine
