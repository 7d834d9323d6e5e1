"""`manifest-sort.*`: the same manifests as Java 2.x are rewritten, into the same order of entries."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.metadata import manifests, snapshots
from tests.support.peers import JavaPaimon

FIELDS = pa.schema([("p", pa.int32()), ("q", pa.string()), ("v", pa.int64())])
VERSION = os.environ.get("DREDGE_PAIMON_VERSION", "2.1-SNAPSHOT")


@pytest.fixture(scope="module")
def newest(java_of: Callable[[str], JavaPaimon]) -> JavaPaimon:
    """The JVM of Java Paimon 2.1, or of the version that DREDGE_PAIMON_VERSION names."""
    if VERSION.startswith("1."):
        pytest.skip(f"Java Paimon {VERSION} does not sort manifests")
    return java_of(VERSION)


def layout(table: Table) -> tuple[list[str], list[tuple[int, str]]]:
    """Return the names of all manifests, and all entries in the order of the manifests."""
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    metas = manifests.data_manifests(table.store, snapshot)
    entries = manifests.entries_of(table.store, metas).select(["kind", "file_name"]).to_pylist()
    return [meta.file_name for meta in metas], [(entry["kind"], entry["file_name"]) for entry in entries]


def history(root: Path, seed: int, options: dict[str, str]) -> Table:
    """Return a table with many manifests of overlapping partitions, some of them with deletions."""
    random = np.random.default_rng(seed)
    catalog = Catalog(str(root))
    catalog.create_database("db")
    quiet = {"manifest.merge-min-count": "1000", "bucket": "-1"}
    quiet |= {"dredge.compaction.inline": "never", "manifest.full-compaction-threshold-size": "1 gb"}
    table = catalog.create_table("db.t", Schema(FIELDS, [], ["p", "q"], quiet))
    for number in range(14):
        low, width = int(random.integers(12)), int(random.choice([1, 3, 8]))
        days = np.arange(low, low + width).repeat(int(random.choice([1, 3])))
        rows = {"p": days, "q": random.choice(["a", "b", "c"], len(days)), "v": np.arange(len(days))}
        table.refresh().write(pa.table(rows, schema=FIELDS))
        if number % 6 == 5 and seed % 2:
            table.apply(table.refresh().plan_maintenance("drop_partitions", partitions=[{"p": low}]))
    changes = [SchemaChange.set_option(key, value) for key, value in options.items()]
    catalog.alter_table("db.t", changes)
    return catalog.table("db.t")


@pytest.mark.paimon_java
@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (0, {}),
        (1, {"manifest-sort.partition-field": "q"}),
        (2, {"manifest-sort.max-rewrite-size": "1 b", "manifest.merge-min-count": "2"}),
        (5, {"manifest.full-compaction-threshold-size": "1 b", "manifest-sort.max-rewrite-size": "9 kb"}),
        (
            7,
            {
                "manifest.target-file-size": "1 kb",
                "compaction.size-ratio": "50",
                "manifest-sort.max-rewrite-size": "9 kb",
            },
        ),
        (4, {"manifest.target-file-size": "1 kb", "compaction.max-size-amplification-percent": "9000"}),
    ],
)
def test_both_rewrite_the_same_manifests(
    tmp_path: Path, newest: JavaPaimon, seed: int, options: dict[str, Any]
) -> None:
    table = history(
        tmp_path / "ours", seed, {"manifest-sort.enabled": "true", "manifest.target-file-size": "3 kb", **options}
    )
    before, _ = layout(table)
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    newest.call("compact_manifest", warehouse=str(tmp_path / "theirs"), table="db.t")
    theirs_names, theirs = layout(Catalog(str(tmp_path / "theirs")).table("db.t"))
    table.apply(table.plan_maintenance("manifests"))
    ours_names, ours = layout(table.refresh())
    assert [name for name in ours_names if name in before] == [name for name in theirs_names if name in before]
    assert ours == theirs
    assert ours_names != before
    rows = newest.call("read", warehouse=str(tmp_path / "ours"), table="db.t")["rows"]
    assert len(rows) == table.refresh().to_arrow().num_rows
