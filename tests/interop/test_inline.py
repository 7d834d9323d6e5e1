"""Writers that maintain their table by themselves, beside Java's: the same batches give the same snapshots, levels, rows and changelogs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.metadata import manifests, snapshots
from lsm_core.options import INLINE_VARIABLE

Java = Callable[..., dict[str, Any]]
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
WRITES = 20

CASES: dict[str, dict[str, str]] = {
    "plain": {},
    "two buckets": {"bucket": "2"},
    "trigger 3": {"num-sorted-run.compaction-trigger": "3"},
    "write-only": {"write-only": "true"},
    "force-compact": {"commit.force-compact": "true"},
    "force-lookup": {"force-lookup": "true"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "first-row": {"merge-engine": "first-row"},
    "lookup changelog": {"changelog-producer": "lookup"},
    "lookup changelog of vectors": {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"},
    "full-compaction changelog": {"changelog-producer": "full-compaction"},
    "full every 3 commits": {"full-compaction.delta-commits": "3"},
    "full every 4 commits, with their changelog": {
        "full-compaction.delta-commits": "4",
        "changelog-producer": "full-compaction",
    },
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "few snapshots": {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "4"},
    "append": {"kind": "append", "bucket": "1", "bucket-key": "k"},
    "append without buckets": {"kind": "append", "bucket": "-1"},
}
SAMPLE = ("lookup changelog", "append")


def batch(number: int) -> pa.Table:
    """Rows of one write: most keys are new, some were written before."""
    keys = list(range(number * 5, number * 5 + 12))
    return pa.table([pa.array(keys), pa.array([number] * len(keys))], schema=FIELDS)


def shape(table: Table) -> dict[str, Any]:
    """What a table looks like, whoever wrote it."""
    store = table.store
    table = table.refresh()
    kept = list(snapshots.iterate(store))
    newest = kept[-1]
    live = manifests.live_entries(store, newest)
    levels = Counter(zip(live.column("bucket").to_pylist(), live.column("level").to_pylist(), strict=True))
    changes = [sum(manifests.changelog_entries(store, snapshot).column("row_count").to_pylist()) for snapshot in kept]
    rows = table.to_arrow().sort_by([("k", "ascending"), ("v", "ascending")]).to_pylist()
    return {
        "snapshots": [(snapshot.id, str(snapshot.commit_kind)) for snapshot in kept],
        "levels": dict(sorted(levels.items())),
        "changelog rows": changes,
        "rows": rows,
    }


@pytest.mark.paimon_java
@pytest.mark.parametrize(
    "case", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.soak) for name in CASES]
)
def test_the_same_writes_give_the_same_table_as_javas(
    case: str, java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(INLINE_VARIABLE, raising=False)
    options = dict({"bucket": "1"}, **CASES[case])
    kind = options.pop("kind", "keyed")
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    for name in ("t", "ours"):
        catalog.create_table(
            f"db.{name}", Schema(FIELDS, primary_keys=["k"] if kind == "keyed" else [], options=options)
        )
    ours = catalog.table("db.ours")
    # Java's engine leaves these to Flink: full compactions are asked for by its sink, small files are gathered by its coordinator.
    every = int(options.get("full-compaction.delta-commits", "1" if "full-compaction" in options.values() else "1000"))
    for number in range(WRITES):
        rows = batch(number)
        how = "none" if case == "write-only" else "full" if (number + 1) % every == 0 else "minor"
        java("write", rows=rows.to_pylist(), compact=how, wait_compaction=True)
        if options["bucket"] == "-1":
            java("compact", full=False)
        ours.write(rows)
    assert shape(ours) == shape(catalog.table("db.t"))
