"""Changelogs that outlive their snapshots: Java and Dredge expire copies of one table, leave the same files, and stream each other's."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import SnapshotNotFound
from tests.maintenance.tables import on_disk
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
FIELDS = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "INT"}]
LONGER = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "2",
    "snapshot.time-retained": "1 ms",
    "changelog.num-retained.min": "50",
    "changelog.num-retained.max": "100",
}
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "none": (["k"], {"bucket": "1"}),
    "input": (["k"], {"bucket": "1", "changelog-producer": "input"}),
    "lookup": (["k"], {"bucket": "1", "changelog-producer": "lookup"}),
    "full": (["k"], {"bucket": "1", "changelog-producer": "full-compaction"}),
    "dynamic": (["k"], {"bucket": "-1"}),
    "vectors": (["k"], {"bucket": "1", "deletion-vectors.enabled": "true"}),
    "append": ([], {"bucket": "-1"}),
}


def history(java: Java, name: str, kind: str) -> None:
    """Nine snapshots of Java's or more, two compactions and an overwrite among them; nothing expires before the end."""
    keys, options = KINDS[kind]
    java("create", table=name, schema={"fields": FIELDS, "primaryKeys": keys, "options": options})
    go_on(java, name, 0)
    if kind != "append":
        java("compact", table=name, full=True)
    go_on(java, name, 10)
    java("write", table=name, rows=[{"k": 3, "v": 33}], compact="none", overwrite={"partition": {}})
    go_on(java, name, 20)
    if kind != "append":
        java("compact", table=name, full=True)
    go_on(java, name, 30)
    java("alter", table=name, changes=[{"change": "set_option", "key": k, "value": v} for k, v in LONGER.items()])


def go_on(java: Java, name: str, start: int) -> None:
    for rows in commits(start):
        java("write", table=name, rows=rows, compact="none")


def commits(start: int) -> list[list[dict[str, int]]]:
    """The rows of two commits, some keys in both."""
    return [[{"k": k, "v": start + number * 5 + k} for k in range(number, number + 4)] for number in range(2)]


def streams(java: Java, table: Table, first: int = 1) -> list[tuple[int, list[tuple[str, int, int]]]]:
    """What Java and Dredge stream from the ``first`` snapshot on; both the same."""
    theirs = [
        (event["snapshot"], [(row["_kind"], row["k"], row["v"]) for row in event["rows"]])
        for event in java("stream_read", table=table.name, from_snapshot=first)["events"]
    ]
    ours = []
    stream = table.new_stream_scan(from_snapshot=first)
    while (batch := stream.next()) is not None:
        ours.append((batch.snapshot_id, [tuple(row.values()) for row in batch.to_arrow().to_pylist()]))
    assert ours == theirs
    return ours


def files(table: Table) -> dict[str, bytes]:
    """What lies on disk but for what only Dredge keeps, and the hint that Java writes later (readers do without)."""
    return {name: data for name, data in on_disk(table, without=("dredge/",)).items() if name != "changelog/EARLIEST"}


def orphans(java: Java, name: str) -> list[str]:
    """Files that Java finds nobody to need; its overwrite leaves the changelog that it does not commit."""
    found = java("remove_orphans", table=name, older_than_ms=int(time.time() * 1000) - 1, dry_run=True)["files"]
    return sorted(found)


def opened(tmp_path: Path, name: str) -> Table:
    return Catalog(tmp_path).table(name).copy({"dredge.delete-mode": "direct"})


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", one_in(5, KINDS))
def test_both_engines_leave_the_same_files_and_streams_go_on(tmp_path: Path, java: Java, kind: str) -> None:
    history(java, "db.theirs", kind)
    shutil.copytree(tmp_path / "db.db" / "theirs", tmp_path / "db.db" / "ours")
    theirs, ours = opened(tmp_path, "db.theirs"), opened(tmp_path, "db.ours")
    result, left_over = streams(java, theirs), orphans(java, "db.theirs")
    assert len(result) >= 2

    expired = java("expire_snapshots", table="db.theirs", retain_max=2, retain_min=1)["expired"]
    report = ours.expire_snapshots(retain_max=2, retain_min=1)
    assert len(report.expired) == report.changelogs_kept == expired >= 7
    assert files(ours) == files(theirs)
    assert streams(java, ours) == streams(java, theirs) == result
    assert orphans(java, "db.ours") == left_over

    # Each goes on with what the other left: more commits, then the newest changelogs and snapshots alone stay.
    go_on(java, "db.theirs", 40)
    for rows in commits(40):
        ours.write(pa.Table.from_pylist(rows, schema=ours.schema.arrow_schema))
    result = streams(java, theirs)
    assert streams(java, ours) == result
    java("expire_snapshots", table="db.ours", retain_max=1, retain_min=1)
    theirs.expire_snapshots(retain_max=1, retain_min=1)
    assert streams(java, ours) == streams(java, theirs) == result
    shutil.copytree(tmp_path / "db.db" / "theirs", tmp_path / "db.db" / "third")
    third = opened(tmp_path, "db.third")
    expired = java("expire_changelogs", table="db.theirs", retain_max=6, retain_min=6)["expired"]
    changes = third.plan_maintenance("expire_changelogs", retain_max=6, retain_min=6)
    assert len(third.apply(changes).to_object()["expired"]) == expired >= 2
    assert files(third) == files(theirs)
    assert (Path(third.store.root) / "changelog" / "EARLIEST").read_bytes() == (
        Path(theirs.store.root) / "changelog" / "EARLIEST"
    ).read_bytes()
    left = [item for item in result if item[0] > expired]
    assert streams(java, third, expired + 1) == streams(java, theirs, expired + 1) == left
    java("expire_changelogs", table="db.ours", retain_max=6, retain_min=6)
    assert streams(java, ours, expired + 1) == left
    assert java("stream_read", table="db.third", from_snapshot=expired)["events"] == []
    with pytest.raises(SnapshotNotFound, match=f"no snapshot {expired}: it has expired"):
        stream = third.new_stream_scan()
        stream.restore(expired)
        stream.next()
    assert third.to_arrow().sort_by("k").equals(ours.to_arrow().sort_by("k"))


@pytest.mark.paimon_java
def test_what_an_overwrite_dropped_is_streamed_from_its_changelog(tmp_path: Path, java: Java) -> None:
    keys, options = KINDS["none"]
    values = {**options, **LONGER, "streaming-read-overwrite": "true"}
    java("create", table="db.ours", schema={"fields": FIELDS, "primaryKeys": keys, "options": values})
    go_on(java, "db.ours", 0)
    ours = opened(tmp_path, "db.ours")
    ours.write(pa.table({"k": pa.array([9], pa.int32()), "v": pa.array([1], pa.int32())}), overwrite=True)
    ours.write(pa.table({"k": pa.array([5], pa.int32()), "v": pa.array([2], pa.int32())}))
    before = streams(java, ours)
    assert {kind for _, changes in before for kind, _, _ in changes} == {"+I", "-D"}
    assert ours.expire_snapshots(retain_max=1, retain_min=1).expired == (1, 2, 3)
    assert streams(java, ours) == before


@pytest.mark.paimon_java
def test_java_rolls_back_behind_changelogs_and_goes_on(tmp_path: Path, java: Java) -> None:
    """A rollback deletes later changelogs, too; the next snapshots become changelogs under the same ids."""
    keys, options = KINDS["input"]
    java("create", table="db.ours", schema={"fields": FIELDS, "primaryKeys": keys, "options": {**options, **LONGER}})
    for start in (0, 10, 20):
        go_on(java, "db.ours", start)
    ours = opened(tmp_path, "db.ours")
    assert ours.expire_snapshots(retain_max=3, retain_min=3).expired == (1, 2, 3)
    java("rollback", table="db.ours", snapshot=4)
    go_on(java, "db.ours", 30)
    changes = streams(java, ours)
    assert [number for number, _ in changes] == [1, 2, 3, 4, 5, 6]
    assert ours.expire_snapshots(retain_max=1, retain_min=1).expired == (4, 5)
    assert streams(java, ours) == changes
    java("write", table="db.ours", rows=[{"k": 1, "v": 1}], compact="minor")  # and expires what its options let go
    assert ours.snapshots()[-1].id >= 7
    assert streams(java, ours)[:6] == changes
