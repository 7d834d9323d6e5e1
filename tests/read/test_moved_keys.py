"""Rows that move between buckets or partitions: comparisons of two versions go by key, and readers see each key once."""

from __future__ import annotations

import logging
import random
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import InvalidOption
from lsm_core.maintenance import CheckLimits
from tests.support.samples import one_in

COLUMNS = pa.schema([("p", pa.int32()), ("k", pa.int64()), ("v", pa.int64())])
Row = dict[str, Any]
State = dict[tuple[Any, ...], Row]


def made(tmp_path: Path, kind: str, **options: str) -> Table:
    """A partitioned table: of fixed buckets, of dynamic ones, or one whose keys move between partitions."""
    keys = ["k"] if kind == "cross" else ["p", "k"]
    bucket = {"bucket": "2"} if kind == "fixed" else {"bucket": "-1", "dynamic-bucket.target-row-num": "5"}
    given = {**bucket, **{key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}}
    return Catalog(tmp_path).create_table(
        "d.t", COLUMNS, primary_keys=keys, partition_keys=["p"], options=given, create_database=True
    )


class Life:
    """Random writes, deletes and overwrites of a table, and what it holds after each by a dictionary."""

    def __init__(self, table: Table, seed: int) -> None:
        self.table, self.random = table, random.Random(seed)
        self.state: State = {}
        self.versions: list[tuple[str, int, State]] = []
        self.compacts = table.options.get("deletion-vectors.enabled") == "true"

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.table.primary_keys)

    def step(self, number: int) -> None:
        draw = self.random.random()
        if draw < 0.4 and self.state:
            kept = [dict(row, v=row["v"] + (self.random.random() < 0.2)) for row in self.state.values()]
            self.random.shuffle(kept)
            rows = kept[: max(1, len(kept) * 4 // 5)]
            self.table.write(rows, overwrite=True)
            replaced = {row["p"] for row in rows}
            self.state = {key: row for key, row in self.state.items() if row["p"] not in replaced}
        elif draw < 0.55 and self.state:
            gone = self.random.sample(list(self.state.values()), min(3, len(self.state)))
            self.table.write(gone, row_kinds="-D")
            self.state = {key: row for key, row in self.state.items() if row not in gone}
            rows = []
        else:
            drawn = [{"p": self.random.randrange(2), "k": self.random.randrange(25), "v": number} for _ in range(8)]
            rows = list({self.key(row): row for row in drawn}.values())
            self.table.write(rows)
        self.state = {**self.state, **{self.key(row): row for row in rows}}
        if self.compacts:
            self.table.compact()
        self.table.create_tag(f"v{number}")
        newest = self.table.latest_snapshot()
        assert newest is not None
        self.versions.append((f"v{number}", newest.id, dict(self.state)))


@pytest.mark.parametrize(("kind", "vectors"), one_in(4, product(("fixed", "cross", "dynamic"), ("false", "true")), 1))
def test_changes_between_versions_applied_in_order_give_the_later_one(tmp_path: Path, kind: str, vectors: str) -> None:
    table = made(tmp_path, kind, deletion_vectors__enabled=vectors)
    life = Life(table, seed=7)
    for number in range(7):
        life.step(number)
        assert sorted(map(str, table.to_arrow().to_pylist())) == sorted(map(str, life.state.values())), number
    for place, (start, first, before) in enumerate(life.versions):
        for end, last, after in life.versions[place + 1 :: 2]:
            changes = table.incremental(start, end).to_pylist()
            result: State = dict(before)
            for row in changes:
                kind_of_row = row.pop("_ROW_KIND")
                if kind_of_row == "-D":
                    assert result.pop(life.key(row)) == row or kind == "cross"
                else:
                    result[life.key(row)] = row
            assert result == after, (start, end)
            differing = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
            if kind != "cross":  # a key that moved is told twice there: it leaves one partition and enters another
                assert len(changes) == len(differing), (start, end)
            assert table.verify(first, last).ok is (before == after)


def test_a_bucket_that_lost_a_row_is_named_although_rows_may_move(tmp_path: Path) -> None:
    table = made(tmp_path, "dynamic")
    table.write([{"p": 0, "k": key, "v": 0} for key in range(12)])
    table.write([{"p": 0, "k": key, "v": 0} for key in reversed(range(1, 12))], overwrite=True)
    report = table.verify(1, 2)
    assert not report.ok and {difference.bucket for difference in report.differences}


@pytest.mark.parametrize("write_only", ["false", "true"])
def test_a_key_that_an_overwrite_takes_from_another_partition_is_read_once(
    tmp_path: Path, write_only: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(tmp_path, "cross", deletion_vectors__enabled="true")
    table.write([{"p": 0, "k": 1, "v": 1}, {"p": 0, "k": 2, "v": 1}])
    table.compact(full=True)
    moved = [{"p": 0, "k": 2, "v": 1}, {"p": 1, "k": 1, "v": 2}]
    with caplog.at_level(logging.WARNING):
        table.copy({"write-only": write_only}).write([{"p": 1, "k": 1, "v": 2}], overwrite=True)
    rows = sorted(table.to_arrow().to_pylist(), key=str)
    if write_only == "true":
        assert [row["k"] for row in rows] == [1, 2] and "not visible before the next compaction" in caplog.text
        table.compact()
        rows = sorted(table.to_arrow().to_pylist(), key=str)
    assert rows == moved
    (unique,) = table.check(["unique_keys"], CheckLimits())
    assert unique.passed, unique.text


def test_a_compaction_of_one_partition_takes_the_buckets_along_that_keys_left(tmp_path: Path) -> None:
    table = made(tmp_path, "cross", deletion_vectors__enabled="true")
    table.write([{"p": 0, "k": key, "v": 1} for key in range(4)])
    table.write([{"p": 2, "k": 9, "v": 1}])
    table.compact(full=True)
    table.write([{"p": 1, "k": 1, "v": 2}])
    with pytest.raises(InvalidOption, match=r"commit_every.*one commit"):
        table.compact(commit_every=1)
    report = table.compact(partitions=[{"p": 1}])
    assert report.snapshot_id is not None
    rows = sorted((row["k"], row["p"], row["v"]) for row in table.to_arrow().to_pylist())
    assert rows == [(0, 0, 1), (1, 1, 2), (2, 0, 1), (3, 0, 1), (9, 2, 1)]


def test_a_key_of_fixed_buckets_may_be_in_each_partition(tmp_path: Path) -> None:
    """Where the key lacks the partition and buckets are fixed, each partition has its own rows."""
    table = Catalog(tmp_path).create_table(
        "d.t", COLUMNS, primary_keys=["k"], partition_keys=["p"], options={"bucket": "1"}, create_database=True
    )
    table.write([{"p": 0, "k": 1, "v": 0}, {"p": 1, "k": 1, "v": 0}])
    (unique,) = table.check(["unique_keys"], CheckLimits())
    assert unique.passed, unique.text
