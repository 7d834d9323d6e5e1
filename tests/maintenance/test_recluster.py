"""Sort compaction of tables with dynamic buckets: the same rows, near ones in one bucket; keys keep being found, and no commit is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Schema, Table
from lsm_core.errors import CommitConflict, DredgeError, PlanStale, UnsupportedFeature, VerificationFailed
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance.actions.compact import recluster
from lsm_core.metadata import manifests, snapshots
from lsm_core.read import read_split
from tests.maintenance.tables import assert_whole, catalog, content, keyed, on_disk, strays

FIELDS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)


def made(tmp_path: Path, partitioned: bool = False, **options: str) -> Table:
    """A table of 16 keys a bucket, 64 keys (of partition a) whose v runs against the order of k, a quarter of them updated."""
    given = {
        "dynamic-bucket.target-row-num": "16",
        "write-only": "true",
        **{k.replace("__", ".").replace("_", "-"): v for k, v in options.items()},
    }
    keys = ["p", "k"] if partitioned else ["k"]
    table = catalog(tmp_path).create_table("db.d", Schema(FIELDS, keys, ["p"] if partitioned else [], given))
    for start in range(0, 64, 8):
        write(table, range(start, start + 8))
    write(table, range(0, 64, 4))
    return table


def write(table: Table, keys: Any, add: int = 0, partition: str = "a") -> None:
    found = list(keys)
    values = [(key * 37) % 64 + add for key in found]
    table.write(pa.table({"p": [partition] * len(found), "k": found, "v": values}, FIELDS))


def ranges(table: Table) -> list[tuple[int, int]]:
    """Smallest and largest v of each bucket."""
    found: dict[int, list[int]] = {}
    for split in table.plan_scan():
        for batch in read_split(table.store, split, ["v"]):
            found.setdefault(split.bucket, []).extend(batch.column("v").to_pylist())
    return sorted((min(values), max(values)) for values in found.values())


def test_rows_that_lie_near_each_other_share_a_bucket_and_keys_are_found_again(tmp_path: Path) -> None:
    table = made(tmp_path)
    before = content(table)
    report = table.compact(order_by=["v"])
    assert content(table) == before and report.sorted_by == "in the order of v" and report.verification.level == "V1"
    assert table.latest_snapshot().commit_kind is CommitKind.OVERWRITE
    assert ranges(table) == [(0, 15), (16, 31), (32, 47), (48, 63)]
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    live = manifests.live_entries(table.store, snapshot)
    assert set(live.column("bucket").to_pylist()) == {0, 1, 2, 3}
    assert sum(entry.row_count for entry in manifests.index_entries(table.store, snapshot)) == 64
    write(table, range(64), add=1000)  # every key is found in the bucket that it has now
    assert len(content(table)) == 64 and min(row["v"] for row in table.to_arrow().to_pylist()) >= 1000
    assert_whole(table)
    assert not strays(table)


def test_curves_chosen_partitions_and_the_tables_own_columns(tmp_path: Path) -> None:
    table = made(tmp_path, partitioned=True, clustering__columns="v,k")
    write(table, range(20), partition="b")
    before = content(table)
    plan = table.plan_maintenance("compact", strategy="auto", partitions=[{"p": "a"}])
    (item,) = plan.items
    assert item.cells()[:2] == ("p=a", 4) and "along a zorder curve over v, k" in item.reason
    assert table.apply(plan).changed and content(table) == before
    assert table.apply(plan).applied_before is not None
    assert table.compact(order_by=["v", "k"], strategy="hilbert").sorted_by == "along a hilbert curve over v, k"
    assert content(table) == before


@pytest.mark.parametrize("when", ["planned", "written"])
def test_a_commit_meanwhile_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    table = made(tmp_path)
    plan = table.plan_maintenance("compact", order_by=["v"])
    if when == "planned":
        write(table, [1], add=500)
    else:
        replaced = recluster._replaced

        def late(*arguments: Any) -> Any:
            found = replaced(*arguments)
            write(table, [1], add=500)
            return found

        monkeypatch.setattr(recluster, "_replaced", late)
    with pytest.raises((CommitConflict, PlanStale)):
        table.apply(plan)
    assert {row["k"]: row["v"] for row in table.to_arrow().to_pylist()}[1] == 537
    assert not strays(table)


def test_rows_that_are_not_the_same_again_are_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path)
    before, files = content(table), on_disk(table, without=("dredge/",))
    real: Callable[..., Any] = recluster.sort_batches
    monkeypatch.setattr(recluster, "sort_batches", lambda *given: (batch.slice(1) for batch in real(*given)))
    with pytest.raises(VerificationFailed, match="63 rows re-read, 64 merged rows before"):
        table.compact(order_by=["v"])
    assert content(table) == before and on_disk(table, without=("dredge/",)) == files


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_changes_that_no_changelog_tells_yet_are_not_sorted_away(tmp_path: Path, producer: str) -> None:
    table = made(tmp_path, changelog_producer=producer)
    plan = table.plan_maintenance("compact", order_by=["v"])
    assert plan.items == () and "compact it fully first" in plan.declined[0].text
    Table(table.store.copy({"write-only": "false"})).compact(full=True)
    assert table.compact(order_by=["v"]).rows_out == 64


def test_other_tables_with_a_key_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match="unless their buckets are dynamic"):
        keyed(tmp_path).compact(order_by=["v"])
    with pytest.raises(DredgeError, match="commit_every"):
        made(tmp_path).compact(order_by=["v"], commit_every=1)
