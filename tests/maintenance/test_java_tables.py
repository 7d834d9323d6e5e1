"""Every table that Java wrote: its health can be told, and after expiry and sweep all that still needs a file has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core.errors import SnapshotNotFound
from lsm_core.metadata import branches, changelogs, manifests, snapshots, tags
from lsm_core.table import Catalog, Table
from tests.support import data
from tests.support.references import changelog_references, file_names, metadata_references
from tests.support.samples import one_in


def _needed(table: Table) -> set[str]:
    """Names of all files that a snapshot, tag or changelog of main or of a branch reads."""
    names: set[str] = set()
    for view in branches.all_stores(table.store):
        for snapshot in [*snapshots.iterate(view), *tags.list_tags(view).values()]:
            names |= metadata_references(view, snapshot)
            names |= file_names(manifests.live_entries(view, snapshot))
            names |= file_names(manifests.changelog_entries(view, snapshot))
        for number in changelogs.list_changelogs(view):
            names |= changelog_references(view, changelogs.read_changelog(view, number))
    return names


@pytest.mark.parametrize("name", one_in(6, data.golden_names()))
def test_expiry_of_a_table_that_java_wrote_keeps_all_that_is_needed(tmp_path: Path, name: str) -> None:
    root = data.unpack_golden(name, tmp_path)
    table = Catalog(tmp_path / "warehouse", clock="fixed:4000000000000").table("db.t")
    buckets = table.health()
    assert (sum(b.files for b in buckets) > 0) == bool(buckets)
    before = _needed(table)
    report = table.expire_snapshots(retain_max=1)
    if changelogs.list_changelogs(table.store):
        table.apply(table.plan_maintenance("expire_changelogs", retain_max=2, retain_min=2))
    table.store.clock.advance(10_000_000)
    swept = table.sweep_trash()
    needed = _needed(table)
    there = {path.name for path in root.rglob("*") if path.is_file()}
    assert needed <= there
    if report.expired:
        assert needed <= before  # equal where a branch holds the same snapshots
        assert swept.files_deleted == report.files_recorded
        with pytest.raises(SnapshotNotFound):
            snapshots.read(table.store, report.expired[0])
