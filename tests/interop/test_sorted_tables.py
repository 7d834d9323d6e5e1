"""Java Paimon reads a sorted append table, skips its files by their statistics as we do, and goes on writing to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog, Schema
from tests.interop.rows import ALL_TYPES, canonical, canonical_java, java_rows, rows_of
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]


@pytest.mark.paimon_java
@pytest.mark.parametrize("strategy", one_in(3, ["order", "zorder", "hilbert"], 1))
def test_java_reads_a_sorted_table_and_opens_as_few_files(tmp_path: Path, java: Java, strategy: str) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "-1", "target-file-size": "3 kb"}
    catalog.create_table("db.t", Schema(ALL_TYPES, partition_keys=["region"], options=options))
    table = catalog.table("db.t")
    for seed in range(3):
        table.write(rows_of(seed * 200, 400, seed))
    expected = canonical(table.to_arrow())
    report = table.compact(order_by=["id", "amount"], strategy=strategy)
    assert report.rows_in == report.rows_out == 1200
    assert canonical(table.to_arrow()) == expected
    assert canonical_java(java("read")["rows"], ALL_TYPES) == expected
    wanted = 300 * 1_000_003 - 50
    theirs = java("plan", filter=[["id", "=", wanted]])["splits"]
    ours = sum(len(split.files) for split in table.plan_scan(filter=[("id", "=", wanted)]))
    assert sum(len(split["files"]) for split in theirs) == ours
    assert 0 < ours < sum(len(split.files) for split in table.plan_scan()) / 2
    fresh = rows_of(5000, 20, 9)
    java("write", rows=java_rows(fresh), compact="none")
    table = catalog.table("db.t")
    assert table.compact(order_by=["id"]).rows_in == 1220
    assert canonical_java(java("read")["rows"], ALL_TYPES) == sorted([*expected, *canonical(fresh)], key=repr)
