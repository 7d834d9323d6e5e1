"""A tag whose changelog Java's expiry took: each door goes on without it, and only a read of these changes fails, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import SnapshotNotFound
from lsm_core.metadata import manifests, snapshots
from tests.maintenance.tables import content, keyed, rows


def take_changelog(table: Table, tag: str) -> None:
    """Delete the changelog of a tagged version as Java's expiry does: its data files, its manifests, then its list."""
    store, snapshot = table.store, table.tags()[tag].snapshot
    name = str(snapshot.changelog_manifest_list)
    listed = manifests.read_list(store, name)
    for row in manifests.entries_of(store, listed).select(["partition", "bucket", "file_name"]).to_pylist():
        Path(store.data_path(row["partition"], row["bucket"], row["file_name"])).unlink()
    for meta in listed:
        Path(store.manifest_path(meta.file_name)).unlink()
    Path(store.manifest_path(name)).unlink()


def tagged(tmp_path: Path, producer: str) -> Table:
    """A table with one tag whose snapshot and changelog expired, and newer snapshots."""
    table = keyed(
        tmp_path, changelog_producer=producer, snapshot__num_retained__min="1", snapshot__num_retained__max="1"
    )
    table.write(rows(range(4)))
    table.compact(full=True)
    newest = table.latest_snapshot()
    assert newest is not None
    assert newest.changelog_manifest_list is not None
    table.create_tag("kept")
    for number in (1, 2):
        table.write(rows(range(4), v=number))
        table.compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=table.store.clock.now_ms() + 1)
    table.sweep_trash(now_ms=2**42)
    assert snapshots.list_ids(table.store)[0] > table.tags()["kept"].snapshot.id
    take_changelog(table, "kept")
    return table


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_every_door_goes_on_without_the_changelog_of_a_tag(tmp_path: Path, producer: str) -> None:
    table = tagged(tmp_path, producer)
    assert [report.text for report in table.check() if not report.passed] == []
    table.holds()
    table.remove_orphan_files(dry_run=True)
    table.rollback_to("kept")
    table = table.refresh()
    assert [row[1] for row in content(table)] == [0, 1, 2, 3]
    assert [report.text for report in table.check() if not report.passed] == []
    number = snapshots.list_ids(table.store)[-1]
    warehouse = Catalog(tmp_path / "wh", clock=table.store.clock)
    for view in ("manifests", "files", "snapshots", "tags"):
        assert warehouse.table(f"db.t${view}").to_arrow().num_rows
    with pytest.raises(SnapshotNotFound, match=rf"changelog of snapshot {number} of table db\.t has expired") as caught:
        table.incremental(number - 1, number)
    assert caught.value.expired
    table.write(rows(range(4), v=10))
    table.compact(full=True)
    assert table.plan_maintenance("repair").items == ()
    table.remove_orphan_files()
    table.delete_tag("kept")
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=table.store.clock.now_ms() + 1)
    table.sweep_trash(now_ms=2**42)
    assert number not in snapshots.list_ids(table.store)
    table.remove_orphan_files()
    assert [report.text for report in table.check() if not report.passed] == []
    assert [row[1] for row in content(table)] == [10, 11, 12, 13]
