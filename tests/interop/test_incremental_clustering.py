"""Incremental clustering as in Java: the same files are picked, and both go on after each other's commits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.maintenance.actions.compact.compaction import CompactItem
from tests.interop.rows import canonical, canonical_java, java_rows
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
FIELDS = pa.schema([("a", pa.int32()), ("b", pa.string()), ("dt", pa.string())])


def rows(seed: int, count: int, dt: str = "x") -> pa.Table:
    values = np.random.default_rng(seed).integers(0, 1000, count).tolist()
    columns = {"a": pa.array(values, pa.int32()), "b": [f"b{v % 7}" for v in values], "dt": [dt] * count}
    return pa.table(columns, schema=FIELDS)


def clustered(tmp_path: Path, **options: str) -> Table:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    own = {"bucket": "-1", "clustering.incremental": "true", "clustering.columns": "a", "target-file-size": "3 kb"}
    return catalog.create_table("db.t", Schema(FIELDS, [], ["dt"], {**own, **options}))


def picked(table: Table, **arguments: Any) -> set[tuple[str, int, frozenset[str]]]:
    items = table.plan_maintenance("compact", **arguments).items_of(CompactItem)
    return {(item.partition_text, item.output_level, frozenset(file.name for file in item.inputs)) for item in items}


def picked_by_java(java: Java, table: Table, **arguments: Any) -> set[tuple[str, int, frozenset[str]]]:
    units = java("cluster", path=table.store.root, **arguments)["units"]
    return {(unit["partition"].rstrip("/"), unit["level"], frozenset(unit["files"])) for unit in units}


@pytest.mark.paimon_java
@pytest.mark.parametrize("seed", one_in(6, range(6), 1))
def test_both_pick_the_same_files_and_go_on_after_each_other(tmp_path: Path, java: Java, seed: int) -> None:
    random = np.random.default_rng(seed)
    vectors = {"deletion-vectors.enabled": "true"} if seed % 2 else {}
    table = clustered(tmp_path, **{"num-sorted-run.compaction-trigger": "3"}, **vectors)
    levels: set[int] = set()
    for turn in range(9):
        for dt in ("x", "y"):
            fresh = rows(int(random.integers(1 << 30)), int(random.choice([5, 60, 900])), dt)
            if turn % 2:
                table.write(fresh)
            else:
                java("write", rows=java_rows(fresh), compact="none")
        table = Catalog(str(tmp_path)).table("db.t")
        if vectors and turn % 5 == 4:
            table.delete(f"a < {turn * 10}")
        full = bool(turn % 4 == 3)
        if not (vectors and full):  # of sorted files with deleted rows, only Dredge makes new ones
            assert picked(table, full=full) == picked_by_java(java, table, full=full), turn
        expected = canonical(table.to_arrow())
        if turn % 3 == 1:
            java("cluster", path=table.store.root, full=full, commit=True)
        else:
            table.compact(full=full)
        table = Catalog(str(tmp_path)).table("db.t")
        levels |= {file.level for split in table.plan_scan() for file in split.files}
        assert canonical(table.to_arrow()) == expected
        assert canonical_java(java("read")["rows"], FIELDS) == expected
    assert len(levels) > 1
    assert all(report.passed for report in table.check())


@pytest.mark.paimon_java
def test_other_columns_sort_everything_again(tmp_path: Path, java: Java) -> None:
    table = clustered(tmp_path)
    for seed in range(3):
        table.write(pa.concat_tables([rows(seed, 50, "x"), rows(seed, 50, "y"), rows(seed, 50, "z")]))
    assert table.compact().snapshot_id is None
    table.compact(full=True)
    assert picked(table, full=True) == picked_by_java(java, table, full=True) == set()
    Catalog(str(tmp_path)).alter_table("db.t", [SchemaChange.set_option("clustering.columns", "b")])
    table = Catalog(str(tmp_path)).table("db.t")
    assert picked(table, full=True) == picked_by_java(java, table, full=True)
    assert {partition for partition, _, _ in picked(table, full=True)} == {"dt=x", "dt=y", "dt=z"}
    assert picked(table) == picked_by_java(java, table) == set()


@pytest.mark.paimon_java
def test_idle_partitions_join_in(tmp_path: Path, java: Java) -> None:
    table = clustered(tmp_path, **{"clustering.history-partition.idle-to-full-sort": "1 ms"})
    for seed in range(2):
        table.write(pa.concat_tables([rows(seed, 50, "x"), rows(seed, 50, "y")]))
    chosen = {"partitions": [{"dt": "x"}]}
    assert {partition for partition, _, _ in picked(table, **chosen)} == {"dt=y"}
    assert picked(table, **chosen) == picked_by_java(java, table, partition={"dt": "x"})
    assert picked(table) == picked_by_java(java, table) == set()


@pytest.mark.paimon_java
def test_java_sorts_the_buckets_that_it_writes_and_both_go_on(tmp_path: Path, java: Java) -> None:
    options = {"bucket": "2", "bucket-key": "a", "bucket-append-ordered": "false"}
    table = clustered(tmp_path, **options, **{"num-sorted-run.compaction-trigger": "3"})
    expected: list[Any] = []
    for seed in range(9):
        fresh = rows(seed, 200)
        expected = sorted([*expected, *canonical(fresh)], key=repr)
        if seed % 2:
            table.write(fresh)
        else:
            java("write", rows=java_rows(fresh))
        table = Catalog(str(tmp_path)).table("db.t")
        assert canonical(table.to_arrow()) == expected
        assert canonical_java(java("read")["rows"], FIELDS) == expected
    assert max(file.level for split in table.plan_scan() for file in split.files) > 0
