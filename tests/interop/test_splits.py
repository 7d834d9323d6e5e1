"""The same files planned by Java and by Dredge: the same groups of files a split, the same splits that need no merging."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.read import Split
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]

FIELDS = [{"name": "p", "type": "INT NOT NULL"}, {"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "STRING"}]
# Target and least weight of a file in bytes: small enough that some 2 kB files make many splits.
PACKINGS = [("128 mb", "4 mb"), ("12 mb", "4 mb"), ("5 kb", "1 b"), ("1 b", "1 b")]
# Primary keys, partition keys, options, and per commit the range of keys, its step, whether some are deleted, compaction.
Commit = tuple[int, int, int, bool, str]
TABLES: dict[str, tuple[list[str], list[str], dict[str, str], list[Commit]]] = {
    "levels": (
        ["k"],
        [],
        {"bucket": "2", "num-sorted-run.compaction-trigger": "3"},
        [
            (0, 99, 1, False, "full"),
            (0, 40, 1, False, "none"),
            (60, 99, 3, True, "none"),
            (0, 9, 1, False, "minor"),
            (300, 310, 1, False, "none"),
        ],
    ),
    "apart": (
        ["k"],
        [],
        {"bucket": "1"},
        [
            (200, 299, 1, False, "none"),
            (0, 99, 1, False, "none"),
            (100, 199, 1, True, "none"),
            (150, 220, 1, False, "none"),
        ],
    ),
    "top": (
        ["k"],
        [],
        {"bucket": "1", "target-file-size": "1 b"},
        [(200, 299, 1, False, "full"), (0, 99, 1, False, "full"), (400, 499, 1, False, "full")],
    ),
    "partitions": (["p", "k"], ["p"], {"bucket": "2"}, [(0, 60, 1, False, "full"), (10, 30, 1, False, "none")]),
    "vectors": (
        ["k"],
        [],
        {"bucket": "1", "deletion-vectors.enabled": "true"},
        [(0, 99, 1, False, "minor"), (20, 40, 1, False, "minor"), (30, 35, 1, True, "minor"), (0, 5, 1, False, "none")],
    ),
    "first": (
        ["k"],
        [],
        {"bucket": "1", "merge-engine": "first-row"},
        [(0, 50, 1, False, "minor"), (40, 99, 1, False, "minor"), (90, 120, 1, False, "none")],
    ),
    "append": (
        [],
        ["p"],
        {"bucket": "-1"},
        [(0, 50, 1, False, "none"), (50, 60, 1, False, "none"), (0, 200, 1, False, "none"), (7, 8, 1, False, "none")],
    ),
    "ordered": (
        [],
        [],
        {"bucket": "2", "bucket-key": "k"},
        [(0, 50, 1, False, "none"), (50, 60, 1, False, "none"), (0, 200, 1, False, "none")],
    ),
}
Groups = set[tuple[int, tuple[str, ...], bool]]


def written(java: Java, kind: str) -> None:
    keys, partitions, options, commits = TABLES[kind]
    schema = {"fields": FIELDS, "primaryKeys": keys, "partitionKeys": partitions, "options": options}
    java("create", schema=schema)
    for low, high, step, deletes, compact in commits:
        rows = [
            {"_kind": "-D" if deletes and k % 5 == 0 else "+I", "p": k % 3, "k": k, "v": f"{k * 7919 % 1000}-{low}"}
            for k in range(low, high + 1, step)
        ]
        java("write", rows=rows, compact=compact)


def of_java(splits: list[dict[str, Any]]) -> Groups:
    return {
        (split["bucket"], tuple(sorted(f["name"] for f in split["files"])), split["raw_convertible"])
        for split in splits
    }


def of_ours(splits: list[Split]) -> Groups:
    return {(split.bucket, tuple(sorted(f.file_name for f in split.files)), split.raw_convertible) for split in splits}


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", one_in(4, TABLES))
def test_splits_hold_the_files_that_javas_hold(tmp_path: Path, java: Java, kind: str) -> None:
    written(java, kind)
    catalog = Catalog(tmp_path)
    counts = set()
    for target, cost in PACKINGS:
        options = {"source.split.target-size": target, "source.split.open-file-cost": cost}
        expected = of_java(java("plan", options=options)["splits"])
        splits = catalog.table("db.t").copy(options).plan_scan()
        assert of_ours(splits) == expected, (target, cost)
        assert all(split.raw for split in splits if split.raw_convertible)
        counts.add(len(splits))
    for name in ("db.t", "db.t$ro"):  # first-row tables and those with deletion vectors: without level 0
        found = catalog.table(name).to_arrow().to_pylist()
        java_rows = java("read", table=name)["rows"]
        assert Counter((r["k"], r["v"]) for r in found) == Counter((r["k"], r["v"]) for r in java_rows), name
    assert len(counts) > 1 or kind in ("partitions", "first"), "the packings tell nothing apart"
