"""Tags are made, moved, renamed, deleted and expire; what a tag alone kept goes by the trash, and comes back with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lsm_core import Table
from lsm_core.clock import local_offset_ms
from lsm_core.errors import InvalidData, InvalidOption, PlanRefused, PlanStale, SnapshotNotFound
from lsm_core.maintenance import DeleteItem, MaintenancePlan
from lsm_core.maintenance.action import find_action
from lsm_core.metadata import tags
from tests.maintenance.tables import HOUR, NOW, assert_whole, content, keyed, on_disk, rows, strays


def history(tmp_path: Path, **options: str) -> Table:
    """Six snapshots; the fourth is a full compaction."""
    table = keyed(tmp_path, **options)
    for i in range(3):
        table.write(rows(range(i * 10, i * 10 + 15), v=i))
    table.compact(full=True)
    table.write(rows(range(3), v=70))
    table.write(rows(range(4), v=80), overwrite=True)
    table.store.clock.advance(2 * HOUR)
    return table


def later(table: Table, hours: int = 2) -> None:
    table.store.clock.advance(hours * HOUR)


def expired(table: Table) -> None:
    """All snapshots but the newest are gone, with what nothing needs."""
    table.expire_snapshots(retain_max=1)
    later(table)
    table.sweep_trash()


def test_a_tag_outlives_its_snapshot(tmp_path: Path) -> None:
    table = history(tmp_path)
    before = content(table, 2)
    report = table.create_tag("v 1", 2)
    assert (report.tag, report.tagged, report.changed) == ("v 1", 2, True)
    assert (Path(table.store.root) / "tag" / "tag-v 1").read_bytes() == (
        Path(table.store.root) / "snapshot" / "snapshot-2"
    ).read_bytes()
    assert table.create_tag("newest").tagged == 6
    expired(table)
    with pytest.raises(SnapshotNotFound):
        content(table, 2)
    tagged = [tuple(row.values()) for row in table.to_arrow(tag="v 1").to_pylist()]
    assert sorted(tagged, key=repr) == before
    assert not strays(table)
    # A snapshot that has expired can be tagged again by another tag of it.
    plan = table.plan_maintenance("create_tag", tag="again", snapshot_id=2)
    assert find_action("create_tag").fits(table.store, plan)
    assert table.apply(plan).tagged == 2
    assert not find_action("create_tag").fits(table.store, plan)
    assert table.tags()["again"] == table.tags()["v 1"]
    values = {entry.report["tag"] for entry in table.ledger() if entry.action == "create_tag"}
    assert values == {"v 1", "newest", "again"}


def test_what_cannot_be_tagged_is_said(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    with pytest.raises(SnapshotNotFound, match=r"db\.t has no snapshot to tag"):
        table.create_tag("v1")
    table.write(rows([1]))
    for name in ("", "  ", "a/b", "..", "x" * 201, "a\nb", "%2e"):
        with pytest.raises(InvalidData, match="tag name"):
            table.create_tag(name)
    table.create_tag("v1")
    with pytest.raises(InvalidOption, match=r"'tag' of table db\.t cannot be 'v1'.*names snapshot 1"):
        table.create_tag("v1")
    with pytest.raises(SnapshotNotFound, match="no snapshot 7"):
        table.create_tag("v2", 7)
    with pytest.raises(InvalidOption, match="time_retained"):
        table.create_tag("v2", time_retained="soon")
    with pytest.raises(SnapshotNotFound, match=r"no tag 'v3'; it has: v1"):
        table.delete_tag("v3")
    assert on_disk(table).keys() & {"tag/tag-v2"} == set()


def test_a_plan_of_a_creation_is_applied_once(tmp_path: Path) -> None:
    table = history(tmp_path)
    plan = table.plan_maintenance("create_tag", tag="v1", snapshot_id=3)
    assert MaintenancePlan.from_json(plan.to_json()) == plan
    assert table.apply(plan).changed
    again = table.apply(plan)
    assert not again.changed and again.applied_before is not None
    table.delete_tag("v1")
    table.create_tag("v1", 4)
    for entry in Path(table.store.ledger_dir).iterdir():  # no run tells of it
        entry.unlink()
    with pytest.raises(PlanStale, match="names snapshot 4 now"):
        table.apply(plan)


def test_a_deleted_tag_frees_what_it_alone_kept_and_comes_back(tmp_path: Path) -> None:
    table = history(tmp_path)
    table.create_tag("a", 2)
    table.create_tag("b", 3)
    before = on_disk(table, without=("dredge/",))
    plan = table.plan_maintenance("delete_tag", tag="a")
    assert not plan.items_of(DeleteItem)
    assert [item.text for item in plan.declined] == [
        "snapshot 2 still exists and holds them: they are deleted when it expires"
    ]
    report = table.apply(plan)  # the tag's file alone
    assert (report.tags, report.files_recorded) == (("a",), 0)
    table.restore(report.trash_id)
    assert on_disk(table, without=("dredge/",)) == before
    expired(table)
    plan = table.plan_maintenance("delete_tag", tag="b")
    kept = {item.text for item in plan.declined}
    assert kept == {"held by tag a"} and plan.items_of(DeleteItem)
    assert {item.kind for item in plan.items_of(DeleteItem)} == {"data", "manifest-list"}
    whole = on_disk(table, without=("dredge/",))
    report = table.apply(plan)
    assert (
        report.files_recorded == len(plan.items_of(DeleteItem)) and report.bytes_recorded == plan.estimate.bytes_freed
    )
    assert set(whole) - set(on_disk(table)) == {"tag/tag-b"}
    assert "undo with: dredge restore db.t delete-tag-" in "\n".join(report.lines("db.t"))
    restored = table.restore(report.trash_id)
    assert restored.others == ("tag b",) and on_disk(table, without=("dredge/",)) == whole
    again = table.delete_tag("b")
    later(table)
    table.sweep_trash()
    assert not strays(table) and len(on_disk(table)) < len(whole) + 20
    assert not {i.path for i in plan.items_of(DeleteItem)} & set(on_disk(table))
    assert_whole(table)
    with pytest.raises(InvalidOption, match="its files were deleted by run"):
        table.restore(again.trash_id)


def test_two_tags_of_one_snapshot_and_a_branch_keep_files(tmp_path: Path) -> None:
    table = history(tmp_path)
    for name in ("a", "b"):
        table.create_tag(name, 3)
    root = Path(table.store.root)
    for folder, name in (("schema", "schema-0"), ("snapshot", "snapshot-3")):
        (root / "branch" / "branch-dev" / folder).mkdir(parents=True)
        (root / "branch" / "branch-dev" / folder / name).write_bytes((root / folder / name).read_bytes())
    expired(table)
    assert not table.plan_maintenance("delete_tag", tag="a").items_of(DeleteItem)
    table.delete_tag("a")
    plan = table.plan_maintenance("delete_tag", tag="b")
    assert {item.text for item in plan.declined} == {"held by branch dev snapshot 3"}
    assert not plan.items_of(DeleteItem)
    (root / "branch" / "branch-dev" / "snapshot" / "snapshot-3").unlink()
    assert table.delete_tag("b").files_recorded > 3


def test_tags_of_a_branch_are_its_own(tmp_path: Path) -> None:
    table = history(tmp_path)
    table.create_tag("v", 2)
    branch = table.create_branch("dev", from_snapshot=3)
    branch.write(rows([99]))
    assert branch.create_tag("v").tagged == 4 and table.tags()["v"].snapshot.id == 2
    tagged = content(branch)
    branch.write(rows([98]))
    branch.rollback_to("v")
    assert content(branch) == tagged
    later(table)
    branch.expire_snapshots(retain_max=1)
    report = branch.delete_tag("v")
    assert set(table.tags()) == {"v"} and not branch.tags()
    assert table.restore(report.trash_id).others == ("tag v",)  # from wherever the table is opened
    assert branch.tags()["v"].snapshot.id == 4
    later(table)
    table.sweep_trash()
    assert content(branch) == tagged
    assert_whole(table)
    assert_whole(branch)


def test_direct_mode_deletes_at_once(tmp_path: Path) -> None:
    table = history(tmp_path, dredge__delete_mode="direct")
    table.create_tag("a", 2)
    table.expire_snapshots(retain_max=1)
    report = table.delete_tag("a")
    assert report.trash_id is None and report.files_deleted > 3 and report.bytes_freed > 0
    (entry,) = [item for item in table.ledger() if item.run_id == report.run_id]
    assert [line["event"] for line in entry.lines].count("deleted") == report.files_deleted
    assert not strays(table)
    assert "deleted at once" in report.lines("db.t")[1]
    assert_whole(table)


def test_a_tag_is_moved(tmp_path: Path) -> None:
    table = history(tmp_path)
    table.create_tag("a", 2)
    expired(table)
    moved = table.create_tag("a", replace=True)
    assert (moved.tagged, moved.replaced) == (6, 2) and moved.files_recorded > 3
    assert moved.lines("db.t")[0] == "tag a of db.t names snapshot 6 instead of snapshot 2"
    with pytest.raises(PlanRefused, match="another tag-a is there"):
        table.restore(moved.trash_id)
    later(table)
    table.sweep_trash()
    assert not strays(table)
    assert table.create_tag("a", time_retained="1 h", replace=True).files_recorded == 0
    assert table.tags()["a"].time_retained_ms == HOUR


def test_a_tag_is_renamed(tmp_path: Path) -> None:
    table = history(tmp_path, tag__create_success_file="true")
    table.create_tag("a", 2)
    table.create_tag("b", 3)
    before = on_disk(table)["tag/tag-a"]
    table.rename_tag("a", "c")
    found = on_disk(table)
    assert found["tag/tag-c"] == before and "tag/tag-a" not in found
    assert {name for name in found if "SUCCESS" in name} == {
        "tag/tag-success-file/b_SUCCESS",
        "tag/tag-success-file/c_SUCCESS",
    }
    with pytest.raises(InvalidOption, match="a name that no other tag has"):
        table.rename_tag("c", "b")
    with pytest.raises(SnapshotNotFound, match="no tag 'a'"):
        table.rename_tag("a", "d")
    with pytest.raises(InvalidData, match="tag name"):
        table.rename_tag("c", "../x")
    table.rename_tag("c", "c")
    table.delete_tag("c")
    assert "tag/tag-success-file/c_SUCCESS" not in on_disk(table)


def test_tags_expire_by_their_own_time_by_age_and_by_number(tmp_path: Path) -> None:
    table = history(tmp_path, tag__default_time_retained="3 h")
    table.create_tag("short", 2, time_retained="1 h")
    table.create_tag("long", 3)
    tag = table.tags()["long"]
    now = table.store.clock.now_ms()
    assert (tag.create_time_ms, tag.time_retained_ms) == (now + local_offset_ms(now), 3 * HOUR)
    assert table.expire_tags().tags == ()
    later(table, 1)
    assert table.expire_tags().tags == ()  # not before, and not at, the end
    table.store.clock.advance(1)
    assert table.copy({"tag.time-expire-enabled": "false"}).expire_tags().tags == ()
    assert table.expire_tags(dry_run=True).tags == ("short",)
    assert table.expire_tags().tags == ("short",)
    assert table.expire_tags(older_than_ms=now).tags == ()
    assert table.expire_tags(older_than_ms=now + 1).tags == ("long",)
    table.copy({"tag.default-time-retained": None}).create_tag("plain", 4)
    assert table.expire_tags(older_than_ms=NOW).tags == ()
    assert table.expire_tags(older_than_ms=4_000_000_000_000).tags == ("plain",)
    for number in range(1, 6):
        table.create_tag(f"2024-01-0{number}", number)
    table.create_tag("mine", 1)
    few = table.copy({"tag.automatic-creation": "process-time", "tag.num-retained-max": "2"})
    assert table.copy({"tag.num-retained-max": "2"}).expire_tags().tags == ()
    assert few.expire_tags().tags == ("2024-01-01", "2024-01-02", "2024-01-03")
    with pytest.raises(InvalidOption, match="automatic tag '2024-01-05'"):
        few.create_tag("2024-01-09", 5)
    batch = table.copy({"tag.automatic-creation": "batch", "tag.num-retained-max": "1"})
    assert batch.expire_tags().tags == ("mine", "2024-01-04")
    assert_whole(table)


def test_a_tag_that_was_moved_after_planning_stays(tmp_path: Path) -> None:
    table = history(tmp_path)
    table.create_tag("a", 2)
    table.create_tag("b", 3, time_retained="1 ms")
    later(table)
    plan = table.plan_maintenance("delete_tag", tag="a")
    expiry = table.plan_maintenance("expire_tags", older_than_ms=4_000_000_000_000)
    table.create_tag("a", 4, replace=True)
    with pytest.raises(PlanStale, match="tag a: it names snapshot 4 now, not snapshot 2"):
        table.apply(plan)
    report = table.apply(expiry)
    assert report.tags == ("b",) and [item.subject for item in report.declined] == ["tag a"]
    assert set(table.tags()) == {"a"}


def test_a_tag_of_a_snapshot_that_expires_meanwhile_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = history(tmp_path)
    plan = table.plan_maintenance("create_tag", tag="a", snapshot_id=2)
    real = tags.made_now

    def slow(*arguments: Any) -> Any:
        made = real(*arguments)
        table.expire_snapshots(retain_max=1)
        return made

    monkeypatch.setattr(tags, "made_now", slow)
    with pytest.raises(SnapshotNotFound, match="expired while tag 'a' was created"):
        table.apply(plan)
    assert table.tags() == {}


@pytest.mark.parametrize("when", ["x", 2**70])
def test_what_is_no_time_is_refused_by_name(tmp_path: Path, when: Any) -> None:
    table = history(tmp_path)
    for act in (table.expire_tags, table.remove_orphan_files):
        with pytest.raises(InvalidOption, match="older_than"):
            act(older_than_ms=when)
