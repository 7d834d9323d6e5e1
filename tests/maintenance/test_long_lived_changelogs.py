"""Changelogs that outlive their snapshots: streams go on over what expired, and nothing is deleted that one of them still needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lsm_core import Table
from lsm_core.errors import CorruptFile, InvalidOption, PlanRefused, PlanStale, SnapshotNotFound
from lsm_core.maintenance import ChangelogExpiryReport, DeleteItem, ExpiryReport, apply_plan, dry_run
from lsm_core.metadata import branches, changelogs, consumers, manifests, snapshots
from tests.maintenance.tables import HOUR, NOW, assert_whole, content, keyed, on_disk, rows, strays, tag
from tests.support.references import file_names
from tests.support.samples import one_in

LONGER = {"snapshot.num-retained.min": "1", "changelog.num-retained.min": "50"}
KINDS = {"none": {}, "input": {"changelog-producer": "input"}, "lookup": {"changelog-producer": "lookup"}}
Told = list[tuple[int, list[tuple[object, ...]]]]


def history(tmp_path: Path, **options: str) -> Table:
    """Ten snapshots or more, with compactions and an overwrite; all of them old, changelogs kept longer."""
    table = keyed(tmp_path, name="db.told", **{**LONGER, **options})
    for i in range(3):
        table.write(rows(range(i, i + 4), v=i))
    table.compact(full=True)
    table.write(rows([1, 2], v=40))
    table.compact(full=True)
    table.write(rows([7], v=50), overwrite=True)
    table.write(rows([7, 8], v=60))
    table.compact(full=True)
    table.write(rows([9], v=70))
    table.store.clock.advance(2 * HOUR)
    return table


def streamed(table: Table, first: int = 1) -> Told:
    """What a stream tells from the ``first`` snapshot on."""
    stream, records = table.new_stream_scan(), []
    stream.restore(first)
    while (batch := stream.next()) is not None:
        records.append((batch.snapshot_id, [tuple(row.values()) for row in batch.to_arrow().to_pylist()]))
    return records


def expire(table: Table, **arguments: int) -> ExpiryReport:
    return table.expire_snapshots(retain_max=1, retain_min=1, **arguments)


def expire_changelogs(table: Table, **arguments: object) -> ChangelogExpiryReport:
    report = table.apply(table.plan_maintenance("expire_changelogs", **arguments))
    assert isinstance(report, ChangelogExpiryReport)
    return report


def sweep(table: Table) -> None:
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()


@pytest.mark.parametrize("kind", one_in(3, KINDS))
def test_streams_go_on_over_expired_snapshots(tmp_path: Path, kind: str) -> None:
    table = history(tmp_path, **KINDS[kind])
    result, newest = streamed(table), content(table)
    assert len(result) >= 3
    report = expire(table)
    assert report.changelogs_kept == len(report.expired) == 9
    assert "their changelogs stay" in report.lines("db.told")[0]
    assert [s.id for s in table.snapshots()] == [10]
    assert changelogs.list_changelogs(table.store) == list(range(1, 10))
    assert changelogs.latest_id(table.store) == 9
    assert streamed(table) == result
    sweep(table)
    assert streamed(table) == result
    assert content(table) == newest
    assert not strays(table)
    mode = "delta" if kind == "none" else "changelog"
    assert table.incremental(0, 10, mode).num_rows == sum(len(changes) for _, changes in result)
    expired = expire_changelogs(table, retain_max=4, retain_min=4)
    assert (expired.expired, expired.earliest) == ((1, 2, 3, 4, 5, 6), 7)
    assert streamed(table, 7) == [item for item in result if item[0] > 6]
    with pytest.raises(SnapshotNotFound) as caught:
        streamed(table, 6)
    assert caught.value.expired
    sweep(table)
    assert streamed(table, 7) == [item for item in result if item[0] > 6]
    assert not strays(table)
    assert_whole(table)


def test_the_rest_of_a_snapshot_goes_at_once(tmp_path: Path) -> None:
    table = history(tmp_path, **KINDS["lookup"])
    kinds = {item.kind for item in table.plan_maintenance("expire_snapshots", retain_max=1).items_of(DeleteItem)}
    assert kinds >= {"data", "manifest-list"}
    assert "changelog" not in kinds
    expire(table)
    sweep(table)
    there = {name.rpartition("/")[2] for name in on_disk(table)}
    changes = [changelogs.read_changelog(table.store, number) for number in changelogs.list_changelogs(table.store)]
    assert not there & {element.base_manifest_list for element in changes}
    assert there >= {element.changelog_manifest_list for element in changes if element.changelog_manifest_list}


def test_without_a_producer_files_of_writers_stay_until_the_changelog_that_dropped_them_goes(tmp_path: Path) -> None:
    table = history(tmp_path)
    store = table.store
    first, compacted = (snapshots.read(store, number) for number in (1, 4))
    added = file_names(manifests.delta_entries(store, first))
    made = file_names(manifests.delta_entries(store, compacted)) - added
    expire(table)
    sweep(table)
    there = {name.rpartition("/")[2] for name in on_disk(table)}
    assert there >= added
    expire_changelogs(table, retain_max=7, retain_min=7)  # 4 stays, whose delta drops them
    sweep(table)
    assert {name.rpartition("/")[2] for name in on_disk(table)} >= added
    expire_changelogs(table, retain_max=6, retain_min=6)
    sweep(table)
    there = {name.rpartition("/")[2] for name in on_disk(table)}
    assert not there & added
    assert made - there  # what the compaction made, and a later one dropped
    assert not strays(table)


@pytest.mark.parametrize("kind", one_in(3, KINDS, 1))
def test_all_of_them_can_go(tmp_path: Path, kind: str) -> None:
    table = history(tmp_path, **KINDS[kind])
    expire(table)
    assert expire_changelogs(table, retain_max=1, retain_min=1).expired == tuple(range(1, 9))  # the newest stays
    assert expire_changelogs(table, retain_max=1, retain_min=1).expired == ()
    report = expire_changelogs(table, delete_all=True)
    assert (report.expired, report.earliest) == ((9,), None)
    assert "none is left" in report.lines("db.told")[0]
    sweep(table)
    assert not strays(table)
    assert list((Path(table.store.root) / "changelog").iterdir()) == []
    assert_whole(table)
    assert expire_changelogs(table, delete_all=True).declined[0].text == "no changelog has outlived its snapshot"


def test_consumers_hold_changelogs_back_and_snapshots_only_where_they_are_asked_to(tmp_path: Path) -> None:
    table = history(tmp_path)
    consumers.write_consumer(table.store, "job", 3)
    assert expire(table).expired == (1, 2)
    changes = streamed(table)
    table = table.copy({"consumer.changelog-only": "true"})
    assert expire(table).expired == tuple(range(3, 10))
    assert streamed(table) == changes
    for arguments in ({"retain_max": 1, "retain_min": 1}, {"delete_all": True}):
        plan = table.plan_maintenance("expire_changelogs", **arguments)
        assert "a consumer still reads from snapshot 3" in plan.declined[0].text
        assert [item.snapshot_id for item in plan.items if not isinstance(item, DeleteItem)] == [1, 2]
    consumers.write_consumer(table.store, "late", 2)
    with pytest.raises(PlanStale, match="a consumer reads from snapshot 2 now"):
        apply_plan(table.store, plan)
    assert expire_changelogs(table, delete_all=True).expired == (1,)
    sweep(table)
    assert streamed(table, 2) == [element for element in changes if element[0] > 1]


def test_ages_and_limits_are_those_of_the_options(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"snapshot.num-retained.min": "1", "changelog.num-retained.min": "2"})
    table = table.copy({"snapshot.time-retained": "1 h", "changelog.time-retained": "3 h"})
    for i in range(5):
        table.write(rows([i]))
        table.store.clock.advance(HOUR)
    assert table.expire_snapshots().expired == (1, 2, 3)  # the successor of 4 is not older than an hour
    plan = table.plan_maintenance("expire_changelogs", max_deletes=1)
    assert plan.declined[0].text == "one call expires at most 1 changelogs"
    assert table.apply(plan).changed
    plan = table.plan_maintenance("expire_changelogs", older_than_ms=NOW + HOUR)
    assert plan.declined[0].text == "changelog 2 is younger than the retention time"  # it is exactly as old
    assert not plan.items
    assert expire_changelogs(table).expired == (2,)
    table.store.clock.advance(HOUR)
    plan = table.plan_maintenance("expire_changelogs")
    assert plan.declined[0].text == "the newest changelog stays"
    plan = table.plan_maintenance("expire_changelogs", retain_min=3)
    assert "the changelogs of the newest 3 snapshots stay (changelog.num-retained.min)" in plan.declined[0].text
    with pytest.raises(InvalidOption, match=r"changelog\.num-retained\.max"):
        table.copy({"changelog.num-retained.max": "1"}).plan_maintenance("expire_changelogs")
    with pytest.raises(InvalidOption, match="retain_min"):
        table.plan_maintenance("expire_changelogs", retain_min=0)


@pytest.mark.parametrize("kind", one_in(3, KINDS, 2))
def test_restoring_brings_snapshots_back_in_place_of_their_changelogs(tmp_path: Path, kind: str) -> None:
    table = history(tmp_path, **KINDS[kind])
    changes, rows_before = streamed(table), {s.id: content(table, s.id) for s in table.snapshots()}
    record = expire(table, max_deletes=5).trash_id
    assert record is not None
    gone = expire_changelogs(table, retain_max=7, retain_min=7).trash_id
    assert changelogs.list_changelogs(table.store) == [4, 5]
    assert table.restore(record).restored == (1, 2, 3, 4, 5)
    assert changelogs.list_changelogs(table.store) == []
    assert streamed(table) == changes
    assert {number: content(table, number) for number in rows_before} == rows_before
    sweep(table)  # the changelogs' files belong to the snapshots again
    assert streamed(table) == changes
    assert gone is not None
    with pytest.raises(InvalidOption, match="it was restored already: changelogs 1 to 3 can be read"):
        table.restore(gone)
    expire(table)
    expire_changelogs(table, delete_all=True)
    sweep(table)
    assert not strays(table)


@pytest.mark.parametrize("kind", one_in(3, KINDS))
def test_restoring_brings_changelogs_back(tmp_path: Path, kind: str) -> None:
    table = history(tmp_path, **KINDS[kind])
    changes = streamed(table)
    expire(table)
    before = on_disk(table, without=("dredge/", "changelog/EARLIEST"))
    first = expire_changelogs(table, retain_max=6, retain_min=6).trash_id
    second = expire_changelogs(table, delete_all=True).trash_id
    assert first is not None
    assert second is not None
    with pytest.raises(PlanRefused, match=f"restore {second} first"):
        table.restore(first)
    assert table.restore(second).lines("t")[0].startswith("changelogs 5 to 9 can be read again")
    report = table.restore(first)
    assert (report.restored, report.earliest, report.changelogs) == ((1, 2, 3, 4), 1, True)
    assert on_disk(table, without=("dredge/", "changelog/EARLIEST")) == before
    assert streamed(table) == changes
    with pytest.raises(InvalidOption, match="it was restored already"):
        table.restore(first)


def test_a_record_that_can_be_restored_keeps_what_a_later_expiry_of_changelogs_set_aside(tmp_path: Path) -> None:
    table = history(tmp_path, **KINDS["input"]).copy({"dredge.trash-grace-expiry": "1 d"})
    changes = streamed(table)
    waiting = expire(table).trash_id
    direct = table.copy({"dredge.delete-mode": "direct"})
    assert direct.apply(direct.plan_maintenance("expire_changelogs", delete_all=True)).files_deleted == 0
    assert waiting is not None
    table.store.clock.advance(30 * HOUR)
    restored = table.restore(waiting)
    assert restored.restored
    assert streamed(table) == changes
    waiting = expire(table).trash_id
    direct.apply(direct.plan_maintenance("expire_changelogs", delete_all=True))
    table.store.clock.advance(30 * HOUR)
    table.sweep_trash()
    assert not strays(table)
    assert not list((Path(table.store.root) / "dredge" / "trash").iterdir())


def test_a_snapshot_whose_changelog_another_engine_expired_is_not_restored(tmp_path: Path) -> None:
    table = history(tmp_path, **KINDS["input"])
    waiting = expire(table).trash_id
    assert waiting is not None
    changes = changelogs.read_changelog(table.store, 1)
    Path(table.store.manifest_path(str(changes.changelog_manifest_list))).unlink()
    Path(changelogs.changelog_path(table.store, 1)).unlink()
    before = on_disk(table)
    with pytest.raises(PlanRefused, match="the changelog of snapshot 1 was deleted"):
        table.restore(waiting)
    table.write(rows([1]))
    table.store.clock.advance(1)
    assert (
        on_disk(table, without=("dredge/ledger",)).items()
        >= {
            name: data for name, data in before.items() if not name.startswith(("dredge/ledger", "snapshot/LATEST"))
        }.items()
    )
    assert expire(table).expired == (10,)
    sweep(table)
    assert_whole(table)


def test_tags_keep_their_files_also_from_the_expiry_of_changelogs(tmp_path: Path) -> None:
    table = history(tmp_path)
    tag(table, "keep", 3)
    expire(table)
    report = expire_changelogs(table, delete_all=True)
    assert {item.text for item in report.held} == {"held by tag keep"}
    sweep(table)
    assert_whole(table)
    assert not strays(table)


def test_changelogs_of_branches_keep_their_files(tmp_path: Path) -> None:
    table = history(tmp_path, **KINDS["input"])
    root = Path(table.store.root)
    branch = root / "branch" / "branch-dev"
    for name in ("schema", "snapshot"):
        (branch / name).mkdir(parents=True)
        for file in (root / name).iterdir():
            if name == "schema" or file.name in ("snapshot-10", "LATEST"):
                (branch / name / file.name).write_bytes(file.read_bytes())
    (branch / "changelog").mkdir()
    (branch / "changelog" / "changelog-2").write_bytes((root / "snapshot" / "snapshot-2").read_bytes())
    changes = [element for element in streamed(table) if element[0] == 2]
    expire(table)
    report = expire_changelogs(table, delete_all=True)
    assert {item.text for item in report.held} == {"held by branch dev changelog 2"}
    sweep(table)
    dev = Table(branches.open_branch(table.store, "dev"))
    kept = file_names(changelogs.kept_entries(dev.store, changelogs.read_changelog(dev.store, 2)))
    assert kept <= {path.name for path in root.rglob("*")}
    assert changes
    assert expire_changelogs(dev, delete_all=True).expired == (2,)
    sweep(dev)
    assert kept.isdisjoint(path.name for path in root.rglob("*"))


@pytest.mark.parametrize("changelogs_first", [True, False])
@pytest.mark.parametrize("kind", ["none", "input"])
def test_keeping_changelogs_no_longer_leaves_nothing_behind(tmp_path: Path, kind: str, changelogs_first: bool) -> None:
    table = history(tmp_path, **KINDS[kind])
    expire(table, max_deletes=3)  # up to 4, which drops what 1 to 3 added and is a snapshot still
    if changelogs_first:
        expire_changelogs(table, delete_all=True)
    short = table.copy({"changelog.num-retained.min": "1"})
    assert expire(short).changelogs_kept == 0
    assert changelogs.list_changelogs(short.store) == ([] if changelogs_first else [1, 2, 3])
    expire_changelogs(short, delete_all=True)
    sweep(short)
    assert not strays(short)
    assert_whole(short)


def test_what_an_overwrite_dropped_is_streamed_from_its_changelog(tmp_path: Path) -> None:
    table = keyed(tmp_path, **LONGER, **{"streaming-read-overwrite": "true"})
    table.write(rows([1, 2]))
    table.write(rows([2, 3], v=10))
    table.write(rows([7], v=20), overwrite=True)
    table.write(rows([8]))
    table.store.clock.advance(2 * HOUR)
    result = streamed(table)
    assert [len(changes) for _, changes in result] == [2, 2, 4, 1]
    expire(table)
    sweep(table)
    assert streamed(table) == result
    expire_changelogs(table, retain_max=2, retain_min=2)
    sweep(table)
    assert streamed(table, 3) == result[2:]
    expire_changelogs(table, delete_all=True)
    sweep(table)
    assert not strays(table)


def test_a_plan_of_changelogs_can_be_looked_at_and_applied_twice(tmp_path: Path) -> None:
    table = history(tmp_path)
    foreseen = dry_run(table.plan_maintenance("expire_snapshots", retain_max=1, retain_min=1))
    assert isinstance(foreseen, ExpiryReport)
    assert foreseen.changelogs_kept == 9
    expire(table)
    plan = table.plan_maintenance("expire_changelogs", retain_max=5, retain_min=5)
    result = dry_run(plan)
    assert isinstance(result, ChangelogExpiryReport)
    before = on_disk(table)
    assert plan.from_json(plan.to_json()) == plan
    assert on_disk(table) == before
    report = table.apply(plan)
    assert (report.expired, report.files_recorded) == (result.expired, result.files_recorded)  # type: ignore[attr-defined]
    assert table.apply(plan).applied_before is not None
    with pytest.raises(PlanStale, match="is older than"):
        table.apply(_without_first(table))


def _without_first(table: Table) -> object:
    plan = table.plan_maintenance("expire_changelogs", retain_max=2, retain_min=2)
    from dataclasses import replace

    return replace(plan, items=plan.items[1:])


def test_damaged_changelogs_stop_expiry_and_streams_by_name(tmp_path: Path) -> None:
    table = history(tmp_path, **KINDS["input"])
    expire(table)
    path = Path(changelogs.changelog_path(table.store, 2))
    text = path.read_bytes()
    for damaged in (b"", text[:50], json.dumps({**json.loads(text), "id": 3}).encode()):
        path.write_bytes(damaged)
        before = on_disk(table, without=("dredge/ledger",))
        for action in (lambda: expire_changelogs(table, delete_all=True), lambda: streamed(table)):
            with pytest.raises(CorruptFile, match="changelog-2"):
                action()
        table.store.clock.advance(2 * HOUR)
        with pytest.raises(CorruptFile, match="changelog-2"):
            table.sweep_trash()
        assert on_disk(table, without=("dredge/ledger",)) == before
    path.unlink()
    with pytest.raises(SnapshotNotFound, match="no snapshot 2: it has expired"):
        streamed(table, 2)
    path.write_bytes(text)
    changes = changelogs.read_changelog(table.store, 2)
    (file,) = file_names(changelogs.kept_entries(table.store, changes))
    (found,) = Path(table.store.root).rglob(file)
    found.unlink()
    with pytest.raises(CorruptFile, match=file):
        streamed(table)
    assert streamed(table, 3)


def test_an_expiry_that_java_left_half_done_is_finished(tmp_path: Path) -> None:
    """Java deletes files, then manifests, then the changelog itself."""
    table = history(tmp_path, **KINDS["input"])
    expire(table)
    sweep(table)
    store = table.store
    for number, also in ((1, True), (2, False)):
        changes = changelogs.read_changelog(store, number)
        for file in file_names(changelogs.kept_entries(store, changes)):
            next(Path(store.root).rglob(file)).unlink()
        (meta,) = manifests.read_list(store, str(changes.changelog_manifest_list))
        Path(store.manifest_path(meta.file_name)).unlink()
        if also:
            Path(store.manifest_path(str(changes.changelog_manifest_list))).unlink()
    assert expire_changelogs(table, retain_max=5, retain_min=5).expired == (1, 2, 3, 4, 5)
    sweep(table)
    assert not strays(table)
    assert streamed(table, 6)
