"""Dynamic buckets, Java and Dredge in turn: each keeps the other's index through tags, rollbacks, branches and open writers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import hash_index
from tests.support.peers import PyPaimon

Java = Callable[..., dict[str, Any]]
FIELDS = [
    {"name": "p", "type": "STRING NOT NULL"},
    {"name": "k", "type": "STRING NOT NULL"},
    {"name": "v", "type": "INT"},
]
SCHEMA = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.string(), nullable=False), ("v", pa.int32())]
)


@pytest.fixture
def table(java: Java, tmp_path: Path) -> Callable[[], Table]:
    """A table of four keys a bucket, made by Java; opened anew each time."""
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "4"}
    java("create", schema={"fields": FIELDS, "primaryKeys": ["p", "k"], "partitionKeys": ["p"], "options": options})
    return lambda: Catalog(str(tmp_path)).table("db.t")


@pytest.mark.paimon_java
def test_java_reads_and_writes_what_a_sort_put_into_other_buckets(table: Callable[[], Table], java: Java) -> None:
    write(table(), given(0, 16, 0))
    java("write", rows=given(4, 8, 1), compact="none")
    expected = [*given(0, 16, 0), *given(4, 8, 1)]
    assert table().compact(order_by=["v"]).snapshot_id == 3
    agree(table(), java, expected)
    java("write", rows=given(0, 20, 2), compact="full")
    write(table(), given(2, 3, 3))
    agree(table(), java, [*given(0, 20, 2), *given(2, 3, 3)])


def given(first: int, count: int, value: int, partition: str = "a") -> list[dict[str, Any]]:
    return [{"p": partition, "k": f"key {k}" * (1 + k % 3), "v": value} for k in range(first, first + count)]


def write(table: Table, rows: list[dict[str, Any]], **how: Any) -> None:
    table.write(pa.Table.from_pylist(rows, schema=SCHEMA), **how)


def agree(table: Table, java: Java, expected: list[dict[str, Any]]) -> None:
    """Both read ``expected`` (the last row of a key counts), no key lies in two buckets, and the index tells of every key once."""
    rows = {(row["p"], row["k"]): row["v"] for row in expected}
    theirs = java("read", table=table.name)["rows"]
    assert {(row["p"], row["k"]): row["v"] for row in theirs} == rows
    ours = table.to_arrow().to_pylist()
    assert {(row["p"], row["k"]): row["v"] for row in ours} == rows
    assert len(theirs) == len(ours) == len(rows)
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    known: dict[bytes, list[int]] = {}
    for entry in manifests.index_entries(table.store, snapshot):
        known.setdefault(entry.partition, []).extend(hash_index(table.store, entry).tolist())
    assert all(len(set(hashes)) == len(hashes) for hashes in known.values())
    assert sum(len(hashes) for hashes in known.values()) >= len(rows)


@pytest.mark.paimon_java
def test_new_keys_go_to_the_buckets_that_javas_assigner_gives(table: Callable[[], Table], java: Java) -> None:
    write(table(), given(0, 6, 0))
    result = java("write", rows=given(3, 9, 1), compact="none")["buckets"]
    assert result == [0, 1, 1, 1, 1, 2, 2, 2, 2]
    write(table(), given(10, 7, 2))
    files = {entry["bucket"]: entry["row_count"] for entry in java("index_files")["files"]}
    assert files == {0: 4, 1: 4, 2: 4, 3: 4, 4: 1}
    agree(table(), java, [*given(0, 3, 0), *given(3, 9, 1), *given(10, 7, 2)])


@pytest.mark.paimon_java
def test_rollbacks_tags_and_branches_have_the_index_of_their_snapshot(table: Callable[[], Table], java: Java) -> None:
    write(table(), given(0, 6, 0))
    java("tag", name="then", snapshot=1)
    write(table(), given(20, 9, 1))
    java("branch", name="b1", tag="then")
    java("rollback", tag="then")
    agree(table(), java, given(0, 6, 0))
    write(table(), given(25, 5, 2))
    agree(table(), java, [*given(0, 6, 0), *given(25, 5, 2)])
    branch = Catalog(str(Path(table().store.root).parent.parent)).table("db.t$branch_b1")
    write(branch, given(20, 3, 3))
    java("write", table="db.t$branch_b1", rows=given(21, 4, 4), compact="minor")
    agree(branch, java, [*given(0, 6, 0), *given(20, 1, 3), *given(21, 4, 4)])
    java("fast_forward", name="b1")
    write(table(), given(0, 2, 5))
    agree(table(), java, [*given(0, 2, 5), *given(2, 4, 0), *given(20, 1, 3), *given(21, 4, 4)])


@pytest.mark.paimon_java
def test_overwrites_and_drops_of_either_leave_an_index_that_the_other_goes_on_with(
    table: Callable[[], Table], java: Java
) -> None:
    write(table(), given(0, 9, 0) + given(0, 9, 0, "b"))
    java("write", rows=given(5, 6, 1), compact="none", overwrite={"partition": {"p": "a"}})
    write(table(), given(9, 4, 2))
    agree(table(), java, [*given(5, 6, 1), *given(9, 4, 2), *given(0, 9, 0, "b")])
    write(table(), given(3, 3, 3, "b"), overwrite=True)
    java("write", rows=given(4, 9, 4, "b"), compact="full")
    agree(table(), java, [*given(5, 6, 1), *given(9, 4, 2), *given(3, 3, 3, "b"), *given(4, 9, 4, "b")])
    table().drop_partitions([{"p": "a"}])
    java("write", rows=given(5, 2, 5), compact="minor")
    java("truncate", partitions=[{"p": "b"}])
    write(table(), given(4, 3, 6) + given(4, 3, 6, "b"))
    agree(table(), java, [*given(4, 3, 6), *given(4, 3, 6, "b")])


@pytest.mark.paimon_java
def test_a_long_lived_writer_and_java_commit_in_turn(table: Callable[[], Table], java: Java) -> None:
    expected: list[dict[str, Any]] = []
    commit = table().new_stream_commit("job")
    with table().new_stream_write("job") as writer:
        for number in range(8):
            if number % 2:
                java("write", rows=given(3 * number, 7, number), compact=("none", "full")[number % 4 == 1])
                assert writer.prepare_commit(commit_identifier=2 * number) == []  # looks at the table
            else:
                writer.write(pa.Table.from_pylist(given(3 * number, 7, number), schema=SCHEMA))
                commit.filter_and_commit(
                    {2 * number: writer.prepare_commit(wait_compaction=True, commit_identifier=2 * number)}
                )
            expected += given(3 * number, 7, number)
            agree(table(), java, expected)


@pytest.mark.paimon_java
def test_pypaimon_reads_what_dredge_writes(table: Callable[[], Table], pypaimon: PyPaimon) -> None:
    for number in range(3):
        write(table(), given(4 * number, 9, number))
    table().compact(full=True)
    write(table(), given(0, 2, 9))
    rows = {(row["p"], row["k"]): row["v"] for row in pypaimon.read("db.t").to_pylist()}
    assert rows == {(row["p"], row["k"]): row["v"] for row in table().to_arrow().to_pylist()}
