"""Append tables in turn with Java: buckets, sequence numbers, the order of rows, and which files are compacted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
COLUMNS = pa.schema([("k", pa.int64()), ("n", pa.int32()), ("s", pa.string())])


def create(tmp_path: Path, **options: str) -> Table:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    return catalog.create_table("db.t", Schema(COLUMNS, options={k.replace("_", "-"): v for k, v in options.items()}))


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table([[n % 5 for n in numbers], list(numbers), ["x" * (n % 9) for n in numbers]], schema=COLUMNS)


@pytest.mark.paimon_java
def test_the_files_of_a_bin_follow_each_other_as_in_java(tmp_path: Path, java: Java) -> None:
    table = create(tmp_path, bucket="-1", **{"write-only": "true"})
    for number, count in enumerate((2_000, 900, 400, 90, 5)):
        table.write(pa.table([[number] * count, range(count), [None] * count], schema=COLUMNS))
    expected = [4, 3, 2, 1, 0]
    plan = table.plan_maintenance("compact")
    java("compact", full=True)  # Java asks no more of an unaware table in a full compaction
    assert [key for key, _ in itertools.groupby(row["k"] for row in java("read")["rows"])] == expected
    java("rollback", snapshot=5)
    table = Catalog(str(tmp_path)).table("db.t")
    table.apply(plan)
    assert [key for key, _ in itertools.groupby(table.to_arrow().column("k").to_pylist())] == expected


def java_rows(table: pa.Table) -> list[dict[str, Any]]:
    return list(table.to_pylist())


def numbers_of_java(java: Java) -> list[int]:
    return [row["n"] for row in java("read")["rows"]]


def ranges(java: Java) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for file in java("files")["files"]:
        found.setdefault(file["bucket"], []).append((file["min_seq"], file["max_seq"]))
    return {bucket: sorted(listed) for bucket, listed in found.items()}


@pytest.mark.paimon_java
@pytest.mark.parametrize("function", one_in(2, ["default", "mod"]))
def test_both_write_and_compact_one_bucketed_table_and_keep_its_order(
    tmp_path: Path, java: Java, function: str
) -> None:
    table = create(
        tmp_path, bucket="3", bucket_key="k", **{"bucket-function.type": function, "compaction.min.file-num": "3"}
    )
    for turn in range(6):
        batch = rows(10 * turn, 10)
        if turn % 2:
            java("write", rows=java_rows(batch), compact="none")
        else:
            table.write(batch)
    for listed in ranges(java).values():  # whoever wrote, the bucket counts on without a gap
        assert listed[0][0] == 0
        assert all(later[0] == earlier[1] + 1 for earlier, later in itertools.pairwise(listed))
    plan = table.plan_maintenance("compact", full=True)
    before = {file["name"] for file in java("files")["files"]}
    assert {name for item in plan.items for bin_files in item.bins for name in bin_files} == before
    assert numbers_of_java(java) == table.to_arrow().column("n").to_pylist()
    by_bucket = {k: [n for n in range(60) if n % 5 == k] for k in range(5)}
    table.compact()
    table.write(rows(60, 10))
    java("compact", full=False)
    found = table.to_arrow()
    assert numbers_of_java(java) == found.column("n").to_pylist()
    for key, numbers in by_bucket.items():
        mine = [n for k, n in zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True) if k == key]
        assert mine == [*numbers, *(n for n in range(60, 70) if n % 5 == key)]
    table.write(rows(70, 10))
    java("write", rows=java_rows(rows(80, 10)), compact="none")
    table.compact(full=True)
    assert sorted(numbers_of_java(java)) == list(range(90))
    assert numbers_of_java(java) == table.to_arrow().column("n").to_pylist()


@pytest.mark.paimon_java
@pytest.mark.parametrize(
    ("counts", "least", "target"),
    [
        ([700, 700, 2, 2, 2], 3, "2 kb"),
        ([700, 2, 700, 2, 2, 2, 2], 4, "2 kb"),
        ([2, 700, 2, 700, 2, 2, 2, 2], 4, "3 kb"),
        ([2, 2, 2], 4, "3 kb"),
    ],
)
def test_the_same_window_of_a_bucket_is_picked(
    tmp_path: Path, java: Java, counts: list[int], least: int, target: str
) -> None:
    table = create(tmp_path, bucket="1", bucket_key="k", **{"compaction.min.file-num": str(least)})
    for turn, count in enumerate(counts):
        table.write(rows(1000 * turn, count))
    items = table.copy({"target-file-size": target}).plan_maintenance("compact").items
    before = {file["name"] for file in java("files")["files"]}
    java("compact", full=False, options={"target-file-size": target})
    gone = before - {file["name"] for file in java("files")["files"]}
    assert (set(items[0].bins[0]) if items else set()) == gone


@pytest.mark.paimon_java
@pytest.mark.parametrize(
    "counts",
    one_in(
        2,
        [
            [1] * 4,
            [1] * 5,
            [3000, 10, 1, 2000, 40, 80, 120],
            [9000, 8500, 8000, 7500, 7000],
            [50_000, 9000, 8500, 8000, 20, 1],
        ],
    ),
)
def test_the_same_small_files_are_packed_without_buckets(tmp_path: Path, java: Java, counts: list[int]) -> None:
    table = create(tmp_path, **{"target-file-size": "40 kb", "source.split.open-file-cost": "4 kb"})
    for turn, count in enumerate(counts):
        table.write(rows(100_000 * turn, count))
    plan = table.plan_maintenance("compact")
    bins = [set(bin_files) for item in plan.items for bin_files in item.bins]
    before = {file["name"]: file["row_count"] for file in java("files")["files"]}
    java("compact")
    after = {file["name"]: file["row_count"] for file in java("files")["files"]}
    assert set().union(*bins) == set(before) - set(after)
    made = sorted(count for name, count in after.items() if name not in before)
    assert sum(made) == sum(before[name] for bin_files in bins for name in bin_files)
    assert table.to_arrow().num_rows == sum(counts)
