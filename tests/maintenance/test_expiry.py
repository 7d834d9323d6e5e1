"""Expiry frees what nothing needs and nothing else: tags, branches, consumers, later snapshots keep their files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from lsm_core.errors import (
    CorruptFile,
    InvalidOption,
    PlanRefused,
    PlanStale,
    RefusalRule,
    SnapshotNotFound,
)
from lsm_core.format.manifest import ManifestFileMeta
from lsm_core.maintenance import DeleteItem, ExpireItem, apply_plan, plan_expiry, read_trash
from lsm_core.metadata import manifests
from lsm_core.storage import Kept, LocalFileIO
from lsm_core.table import Catalog, Table
from tests.maintenance.tables import HOUR, assert_whole, content, keyed, on_disk, rows, strays, tag, with_io
from tests.support import data
from tests.support.references import file_names, metadata_references


def _history(tmp_path: Path, **options: str) -> Table:
    """Nine snapshots: five appends, a full compaction (6), two appends, an overwrite (9); all old enough."""
    table = keyed(tmp_path, **options)
    for i in range(5):
        table.write(rows(range(i * 10, i * 10 + 30), v=i))
    table.compact(full=True)
    table.write(rows(range(5), v=70))
    table.write(rows(range(5), v=80))
    table.write(rows(range(7), v=90), overwrite=True)
    table.store.clock.advance(2 * HOUR)
    return table


def _sweep(table: Table) -> None:
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()


def test_expired_snapshots_go_and_the_rest_reads_as_before(tmp_path: Path) -> None:
    table = _history(tmp_path)
    kept = {s.id: content(table, s.id) for s in table.snapshots() if s.id >= 8}
    report = table.expire_snapshots(retain_max=2)
    assert report.expired == (1, 2, 3, 4, 5, 6, 7)
    assert report.earliest == 8
    assert (Path(table.store.root) / "snapshot" / "EARLIEST").read_text() == "8"
    with pytest.raises(SnapshotNotFound, match="it has expired") as caught:
        content(table, 3)
    assert caught.value.expired
    assert strays(table)  # phase one deletes snapshots only
    _sweep(table)
    assert not strays(table)
    assert {number: content(table, number) for number in kept} == kept
    assert_whole(table)


def test_deleted_files_are_those_the_following_deltas_drop(tmp_path: Path) -> None:
    table = _history(tmp_path)
    plan = table.plan_maintenance("expire_snapshots", retain_max=4)  # keeps 6..9
    gone = [item for item in plan.items_of(DeleteItem) if item.kind == "data"]
    assert len(gone) == 5  # the five level-0 files that snapshot 6 compacted
    assert {item.reason for item in gone} == {"replaced by snapshot 6 (COMPACT)"}
    assert [item.snapshot_id for item in plan.items_of(ExpireItem)] == [1, 2, 3, 4, 5]


def test_an_upgraded_file_is_not_deleted(tmp_path: Path) -> None:
    table = keyed(tmp_path, target_file_size="8 kb", compaction__small_file_ratio="0.1")
    for i in range(5):
        table.write(rows(range(i * 100, i * 100 + 100)))
    assert table.compact(full=True).files_upgraded == 5
    table.write(rows([1]))
    before = content(table)
    table.expire_snapshots(retain_max=1)
    _sweep(table)
    assert content(table) == before
    assert not strays(table)


def test_a_tag_holds_its_files_and_says_so(tmp_path: Path) -> None:
    table = _history(tmp_path)
    tag(table, "keep", 4)
    report = table.expire_snapshots(retain_max=1)
    assert {item.text for item in report.held} == {"held by tag keep"}
    assert len(report.held) == 4
    _sweep(table)
    assert not strays(table)
    assert_whole(table)


def test_a_tag_made_between_plan_and_apply_or_before_the_sweep_still_counts(tmp_path: Path) -> None:
    table = _history(tmp_path)
    plan = plan_expiry(table.store, retain_max=1)
    assert not [item for item in plan.declined if item.reason == "held"]
    tag(table, "late", 3)
    report = apply_plan(table.store, plan)
    assert {item.text for item in report.held} == {"held by tag late"}
    (Path(table.store.root) / "tag" / "tag-later").write_text(_record(table)["snapshots"][3]["json"])
    table.store.clock.advance(2 * HOUR)
    swept = table.sweep_trash()
    assert "held by tag later" in {item.text for item in swept.kept}
    assert_whole(table)


def _record(table: Table) -> dict:
    return json.loads(next((Path(table.store.root) / "dredge" / "trash").glob("*.json")).read_text())


def test_consumers_stop_expiry_and_are_named(tmp_path: Path) -> None:
    table = _history(tmp_path)
    place = Path(table.store.root) / "consumer"
    place.mkdir()
    (place / "consumer-job").write_text('{"nextSnapshot": 4}')
    report = table.expire_snapshots(retain_max=1)
    assert report.expired == (1, 2, 3)
    assert "a consumer still reads from snapshot 4" in report.declined[0].text
    assert table.expire_snapshots(retain_max=1).expired == ()


def test_a_consumer_that_appears_after_planning_makes_the_plan_stale(tmp_path: Path) -> None:
    table = _history(tmp_path)
    plan = plan_expiry(table.store, retain_max=1)
    place = Path(table.store.root) / "consumer"
    place.mkdir()
    (place / "consumer-job").write_text('{"nextSnapshot": 4}')
    with pytest.raises(PlanStale, match="consumer reads from snapshot 4"):
        apply_plan(table.store, plan)
    assert [s.id for s in table.snapshots()] == list(range(1, 10))


@pytest.mark.parametrize("victim", ["tag/tag-keep", "snapshot/snapshot-9", "consumer/consumer-job"])
@pytest.mark.parametrize("how", ["truncated", "garbage"])
def test_what_cannot_be_read_stops_everything(tmp_path: Path, victim: str, how: str) -> None:
    table = _history(tmp_path)
    tag(table, "keep", 4)
    consumers = Path(table.store.root) / "consumer"
    consumers.mkdir()
    (consumers / "consumer-job").write_text('{"nextSnapshot": 9}')
    path = Path(table.store.root) / victim
    path.write_bytes(path.read_bytes()[:12] if how == "truncated" else b"\x00\xff")
    before = on_disk(table)
    with pytest.raises(CorruptFile, match=path.name):
        table.expire_snapshots(retain_max=1)
    assert on_disk(table) == before


def test_an_unreadable_manifest_stops_expiry_and_sweep(tmp_path: Path) -> None:
    table = _history(tmp_path)
    table.expire_snapshots(retain_max=3)
    table.store.clock.advance(2 * HOUR)
    newest = table.latest_snapshot()
    path = Path(table.store.manifest_path(newest.base_manifest_list))
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    before = on_disk(table)
    with pytest.raises(CorruptFile, match=path.name):
        table.sweep_trash()
    with pytest.raises(CorruptFile, match=path.name):
        table.expire_snapshots(retain_max=1)
    assert on_disk(table) == before
    path.write_bytes(whole)
    table.sweep_trash()
    assert_whole(table)


def test_direct_mode_deletes_at_once(tmp_path: Path) -> None:
    table = _history(tmp_path, dredge__delete_mode="direct")
    report = table.expire_snapshots(retain_max=1)
    assert report.files_deleted == report.files_recorded > 0
    assert report.trash_id is None
    assert not strays(table)
    assert_whole(table)


def test_direct_mode_tells_of_every_file_what_became_of_it(tmp_path: Path) -> None:
    table = _history(tmp_path, dredge__delete_mode="direct")
    files = [item.path for item in table.plan_maintenance("expire_snapshots", retain_max=1).items_of(DeleteItem)]
    missing, stuck, *rest = [path for path in files if path.endswith(".parquet")]
    (Path(table.store.root) / missing).unlink()

    class Stuck(LocalFileIO):
        def delete(self, path: str) -> bool:
            if path.endswith(stuck):
                raise PermissionError(13, "Permission denied", path)
            return super().delete(path)

    report = with_io(table, Stuck()).expire_snapshots(retain_max=1)
    assert (report.files_deleted, report.files_missing) == (len(files) - 2, 1)
    assert [(element.subject, "Permission denied" in element.text) for element in report.failures] == [(stuck, True)]
    (entry,) = [element for element in table.ledger() if element.run_id == report.run_id]
    values = {line["file"]: line for line in entry.lines if "file" in line}
    expected = {**dict.fromkeys(files, "deleted"), missing: "gone already", stuck: "failed"}
    assert {name: line["event"] for name, line in values.items()} == expected
    assert "replaced" in values[rest[0]]["reason"] and "Permission denied" in values[stuck]["reason"]
    assert "1 were gone already" in report.lines("db.t")[-1]
    table.sweep_trash()  # what failed is tried again
    assert not (Path(table.store.root) / stuck).exists()
    assert_whole(table)


def test_a_reader_that_had_begun_finishes_after_the_snapshot_expired(tmp_path: Path) -> None:
    from lsm_core.read import plan_scan, to_arrow

    table = _history(tmp_path)
    before = content(table, 3)
    scan = plan_scan(table.store, snapshot_id=3)
    table.expire_snapshots(retain_max=1)
    assert to_arrow(table.store, scan).num_rows == len(before)


def test_expiry_beside_commits_and_another_expiry(tmp_path: Path) -> None:
    table = _history(tmp_path)
    plan, twin = plan_expiry(table.store, retain_max=2), plan_expiry(table.store, retain_max=4)
    table.write(rows([3], v=7))  # a new commit does not matter
    before = content(table)
    apply_plan(table.store, twin)
    with pytest.raises(PlanStale, match=r"snapshot 6 is|expired by another process"):
        apply_plan(table.store, dataclasses.replace(plan, items=plan.items[:1] + plan.items[6:]))
    apply_plan(table.store, plan_expiry(table.store, retain_max=2))
    _sweep(table)
    assert content(table) == before
    assert not strays(table)


def test_restore_brings_every_snapshot_back(tmp_path: Path) -> None:
    table = _history(tmp_path)
    before = {s.id: content(table, s.id) for s in table.snapshots()}
    files = on_disk(table, without=("dredge", "snapshot/EARLIEST"))
    report = table.expire_snapshots(retain_max=1)
    restored = table.restore(report.trash_id)
    assert restored.restored == tuple(range(1, 9)) and restored.earliest == 1
    assert {s.id: content(table, s.id) for s in table.snapshots()} == before
    assert on_disk(table, without=("dredge", "snapshot/EARLIEST")) == files
    _sweep(table)  # the record is gone: nothing to delete
    assert {s.id: content(table, s.id) for s in table.snapshots()} == before
    with pytest.raises(InvalidOption, match="the trash is empty"):
        table.restore(report.trash_id)


def test_the_tables_own_grace_holds_for_its_trash(tmp_path: Path) -> None:
    table = _history(tmp_path, **{"dredge.trash-grace": "3 h"})
    report = table.expire_snapshots(retain_max=1)
    assert report.not_before_ms == table.store.clock.now_ms() + 3 * HOUR
    table.store.clock.advance(3 * HOUR - 1)
    assert table.sweep_trash().files_deleted == 0
    table.store.clock.advance(1)
    assert table.sweep_trash().files_deleted > 0


def test_history_is_restored_without_holes(tmp_path: Path) -> None:
    table = _history(tmp_path)
    first = table.expire_snapshots(retain_max=6)
    second = table.expire_snapshots(retain_max=2)
    with pytest.raises(PlanRefused, match=f"restore {second.trash_id} first"):
        table.restore(first.trash_id)
    table.restore(second.trash_id)
    table.restore(first.trash_id)
    assert [s.id for s in table.snapshots()] == list(range(1, 10))
    assert_whole(table)


def test_a_later_record_that_can_still_be_restored_protects_its_files(tmp_path: Path) -> None:
    table = _history(tmp_path)
    table.expire_snapshots(retain_max=5)
    table.store.clock.advance(HOUR)
    later = table.expire_snapshots(retain_max=1)
    table.store.clock.advance(1)  # the first grace is over, the second is not
    assert len(table.sweep_trash().records) == 1
    table.restore(later.trash_id)
    assert_whole(table)


def test_nothing_is_restored_once_a_sweep_began_or_a_file_is_gone(tmp_path: Path) -> None:
    table = _history(tmp_path)
    report = table.expire_snapshots(retain_max=1)
    claim = Path(table.store.root) / "dredge" / "trash" / f"{report.trash_id}.claim"
    claim.write_text("sweep")
    with pytest.raises(PlanRefused, match="sweep-has-begun"):
        table.restore(report.trash_id)
    claim.unlink()
    next(Path(table.store.root).rglob("bucket-0/*.parquet"))
    victim = Path(table.store.root) / next(f["path"] for f in _record(table)["files"] if f["kind"] == "data")
    victim.unlink()
    with pytest.raises(PlanRefused, match="files-are-gone") as refused:
        table.restore(report.trash_id)
    assert refused.value.rule is RefusalRule.FILES_ARE_GONE and refused.value.table == "db.t"
    assert [s.id for s in table.snapshots()] == [9]
    assert not claim.exists()


def test_a_begun_restore_keeps_the_sweep_away(tmp_path: Path) -> None:
    table = _history(tmp_path)
    report = table.expire_snapshots(retain_max=1)
    (Path(table.store.root) / "dredge" / "trash" / f"{report.trash_id}.claim").write_text("restore")
    table.store.clock.advance(2 * HOUR)
    swept = table.sweep_trash()
    assert swept.files_deleted == 0
    assert [item.reason for item in swept.declined] == ["restoring"]
    table.restore(report.trash_id)
    assert_whole(table)


def test_a_record_cannot_reach_outside_the_table(tmp_path: Path) -> None:
    table = _history(tmp_path)
    table.expire_snapshots(retain_max=1)
    outside = tmp_path / "wh" / "precious"
    outside.write_text("keep me")
    path = next((Path(table.store.root) / "dredge" / "trash").glob("*.json"))
    for hostile in ("../../precious", "/etc/hostname", "bucket-0/../../../precious", "bucket-0/\u0000x", "."):
        record = json.loads(path.read_text())
        record["files"] = [{"path": hostile, "kind": "data", "size": 1, "reason": "x"}]
        path.write_text(json.dumps(record))
        table.store.clock.advance(2 * HOUR)
        (left,) = table.sweep_trash().unreadable
        assert left.subject == path.name and "it names" in left.text and "nothing of it is carried out" in left.text
        with pytest.raises(CorruptFile, match="it names"):
            table.restore(path.stem)
        assert outside.read_text() == "keep me"


def test_a_record_whose_grace_ends_after_the_year_9999_can_be_read_and_restored(tmp_path: Path) -> None:
    table = keyed(tmp_path, dredge__trash_grace="3000000 d")
    for number in range(3):
        table.write(rows(range(4), v=number))
    before = content(table)
    trash_id = table.expire_snapshots(retain_max=1).trash_id
    assert trash_id is not None and not read_trash(table.store).unreadable
    assert not table.sweep_trash().unreadable
    table.restore(trash_id)
    assert content(table) == before and [snapshot.id for snapshot in table.snapshots()] == [1, 2, 3]


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    table = _history(tmp_path)
    table.expire_snapshots(retain_max=1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x.parquet").write_text("keep me")
    (Path(table.store.root) / "bucket-9").symlink_to(elsewhere)
    path = next((Path(table.store.root) / "dredge" / "trash").glob("*.json"))
    record = json.loads(path.read_text())
    record["files"] = [{"path": "bucket-9/x.parquet", "kind": "data", "size": 1, "reason": "x"}]
    path.write_text(json.dumps(record))
    table.store.clock.advance(2 * HOUR)
    with pytest.raises(CorruptFile, match="symbolic link"):
        table.sweep_trash()
    assert (elsewhere / "x.parquet").read_text() == "keep me"


def _golden(name: str, tmp_path: Path) -> Table:
    data.unpack_golden(name, tmp_path)
    return Catalog(tmp_path / "warehouse", clock="fixed:4000000000000").table("db.t")


def test_javas_tags_and_branches_keep_all_they_name(tmp_path: Path) -> None:
    table = _golden("tags_branches", tmp_path)
    root = Path(table.store.root)
    newest = content(table)
    report = table.expire_snapshots(retain_max=1)
    assert report.expired == (1, 2, 3)
    assert {item.text.split(" snapshot")[0] for item in report.held} <= {
        "held by tag t1",
        "held by tag t2",
        "held by branch b1",
    }
    table.store.clock.advance(2 * HOUR)
    swept = table.sweep_trash()
    from lsm_core.metadata import branches, manifests, snapshots, tags

    views = [table.store, *(branches.open_branch(table.store, name) for name in branches.list_branches(table.store))]
    for view in views:
        for snapshot in [*snapshots.iterate(view), *tags.list_tags(view).values()]:
            for name in metadata_references(view, snapshot):
                assert (root / "manifest" / name).is_file()
            for name in file_names(manifests.live_entries(view, snapshot)):
                assert (root / "bucket-0" / name).is_file(), (view.branch, snapshot.id, swept)
    assert content(table) == newest


def test_javas_expired_table_with_changelogs_tag_and_consumer_can_be_expired_on(tmp_path: Path) -> None:
    table = _golden("expired", tmp_path)
    newest = content(table)
    held_back = table.expire_snapshots(retain_max=1)
    assert held_back.expired == ()  # consumer c1 reads from 9
    (Path(table.store.root) / "consumer" / "consumer-c1").unlink()
    assert table.expire_snapshots(retain_max=1).expired == (9,)
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    assert content(table) == newest
    assert_whole(table)


def test_an_empty_table_has_nothing_to_expire(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    report = table.expire_snapshots(retain_max=1)
    assert report.expired == () and report.earliest is None
    assert not table.ledger()


def test_an_expiry_decodes_each_manifest_list_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = keyed(tmp_path, write_only="true")
    for number in range(40):  # two lists each: more than any cache of a few files holds
        table.write(rows([number]))
    decoded: list[str] = []
    decode_alone, decode_together = manifests.decode_manifest_list, manifests.decode_manifest_lists

    def counted(data: bytes, path: str) -> list[ManifestFileMeta]:
        decoded.append(path)
        return decode_alone(data, path)

    def counted_together(lists: Sequence[tuple[bytes, str]]) -> list[list[ManifestFileMeta]]:
        decoded.extend(path for _, path in lists)
        return decode_together(lists)

    monkeypatch.setattr(manifests, "_decoded_lists", Kept(1 << 20))
    monkeypatch.setattr(manifests, "decode_manifest_list", counted)
    monkeypatch.setattr(manifests, "decode_manifest_lists", counted_together)
    table.store.clock.advance(2 * HOUR)
    assert len(table.expire_snapshots(retain_max=40, retain_min=38).expired) == 2
    assert len(decoded) == len(set(decoded)) and len(decoded) >= 76
    Path(decoded[-1]).write_bytes(Path(decoded[-1]).read_bytes()[:-1])
    with pytest.raises(CorruptFile):
        manifests.read_list(table.store, Path(decoded[-1]).name)
