"""Orphan files go in two phases; whatever anything names, is young, or of an unknown name stays, and the plan says why."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.clock import FixedClock
from lsm_core.errors import CorruptFile, InvalidOption, PlanRefused, RefusalRule, UnsupportedFeature
from lsm_core.maintenance import DeleteItem, MaintenancePlan
from lsm_core.options import ALLOWED_PLACES
from lsm_core.storage import FileStatus, LocalFileIO
from tests.maintenance.tables import HOUR, NOW, assert_whole, content, keyed, on_disk, rows, strays, tag, with_io

DAY = 24 * HOUR
_UUID = "4f5d7a0e-5b1c-4c5f-9d3a-0123456789ab"
DIRT = (
    f"bucket-0/data-{_UUID}-0.parquet",
    f"bucket-0/data-{_UUID}-0.parquet.index",
    f"bucket-0/changelog-{_UUID}-1.zst.orc",
    f"bucket-0/compacted-changelog-{_UUID}$0-39253.cc-parquet",
    f"bucket-0/data-{_UUID}-2.blob",
    f"bucket-1/data--u-some user-s-0-w-{_UUID}-0.avro",
    f"manifest/manifest-{_UUID}-0",
    f"manifest/manifest-list-{_UUID}-0",
    f"manifest/index-manifest-{_UUID}-0",
    f"index/index-{_UUID}-0",
    f"index/btree-global-index-{_UUID}.index",
    f"statistics/stat-{_UUID}-0",
    f"statistics/stats-{_UUID}-0",
    f"snapshot/.snapshot-9.{_UUID}.tmp",
    f"schema/.schema-1.{_UUID}.tmp",
)
UNKNOWN = (
    "notes.txt",
    "bucket-0/data.parquet",
    f"bucket-0/data-{_UUID}-0.parquet.bak",
    f"bucket-0/data-{_UUID}.parquet",
    "manifest/manifest-list",
    "snapshot/snapshot-x",
    f"index/data-{_UUID}-0.parquet",
    f"data-{_UUID}-0.parquet",
    f"other/data-{_UUID}-0.parquet",
)


def put(table: Table, name: str, age_ms: int = 3 * DAY, data: bytes = b"x") -> None:
    path = Path(table.store.root) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    changed = table.store.clock.now_ms() - age_ms
    os.utime(path, ns=(changed * 1_000_000, changed * 1_000_000))


def age_all(table: Table, age_ms: int = 3 * DAY) -> None:
    """Every file of the table was last changed long ago."""
    changed = table.store.clock.now_ms() - age_ms
    for path in Path(table.store.root).rglob("*"):
        os.utime(path, ns=(changed * 1_000_000, changed * 1_000_000), follow_symlinks=False)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tables are made once and copied."""
    _made.clear()
    _made[0] = tmp_path_factory.mktemp("templates")
    yield
    _made.clear()


_made: dict[int, Path] = {}
pytestmark = pytest.mark.usefixtures("templates")


def history(tmp_path: Path, commits: int = 20) -> Table:
    """Commits of one small file each, a compaction, and another commit: plenty of files, all old."""
    place = _made.get(commits)
    if place is None:
        place = _made[commits] = _made[0] / str(commits)
        table = keyed(place)
        for i in range(commits):
            table.write(rows(range(i, i + 5), v=i))
        table.compact(full=True)
        table.write(rows(range(5), v=70))
    shutil.copytree(place / "wh", tmp_path / "wh")
    table = Catalog(tmp_path / "wh", clock=FixedClock(NOW)).table("db.t")
    age_all(table)
    return table


def sweep(table: Table) -> Any:
    table.store.clock.advance(DAY)
    return table.sweep_trash()


def test_every_kind_of_stray_goes_in_two_phases_and_what_is_unknown_stays(tmp_path: Path) -> None:
    table = history(tmp_path)
    before, rows_before = set(on_disk(table, without=("dredge/",))), content(table)
    for name in (*DIRT, *UNKNOWN):
        put(table, name)
    plan = table.plan_maintenance("orphans")
    assert {item.path for item in plan.items_of(DeleteItem)} == set(DIRT)
    assert MaintenancePlan.from_json(plan.to_json()).hash == plan.hash == table.plan_maintenance("orphans").hash
    unknown = {item.subject.removeprefix(f"{table.store.root}/") for item in plan.declined if item.reason == "unknown"}
    assert unknown == {*(name for name in UNKNOWN if not name.startswith("other/")), "other"}
    report = table.apply(plan)
    assert (report.files_recorded, report.bytes_recorded) == (len(DIRT), len(DIRT))
    assert report.not_before_ms == table.store.clock.now_ms() + DAY
    assert set(on_disk(table, without=("dredge/",))) == before | {*DIRT, *UNKNOWN}
    assert not table.plan_maintenance("orphans").items  # the record holds them now
    assert table.apply(plan).applied_before is not None
    assert not table.sweep_trash().records  # the grace lasts
    swept = sweep(table)
    assert (swept.files_deleted, swept.files_missing, swept.failed) == (len(DIRT), 0, ())
    assert set(on_disk(table, without=("dredge/",))) == before | set(UNKNOWN)
    assert content(table) == rows_before
    assert_whole(table)
    assert not table.remove_orphan_files().changed
    assert table.apply(plan).applied_before is not None


def test_young_files_stay_unless_an_age_is_named(tmp_path: Path) -> None:
    table = history(tmp_path)
    put(table, DIRT[0], age_ms=23 * HOUR)
    report = table.remove_orphan_files()
    assert not report.changed
    assert [item.text for item in report.declined if item.reason == "young"] == [
        "1 files (1 B) are younger than 24 hours"
    ]
    assert table.remove_orphan_files(older_than_ms=NOW - HOUR, dry_run=True).files_recorded == 1
    with pytest.raises(
        InvalidOption, match=r"'older_than' of table .* cannot be '20.* UTC'; accepted: a time that has passed"
    ):
        table.remove_orphan_files(older_than_ms=int(time.time() * 1000) + HOUR)


def test_a_clock_that_is_days_ahead_makes_no_file_old(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "wh", clock=f"fixed:{int(time.time() * 1000) + 2 * DAY}")
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(pa.schema([("v", pa.int64())]), options={"bucket": "-1"}))
    for i in range(10):
        table.write(pa.table({"v": [i]}))
    (Path(table.store.root) / DIRT[0]).write_bytes(b"just written")
    report = table.remove_orphan_files(dry_run=True)
    assert not report.files_recorded
    assert "1 files (12 B) are younger than 24 hours" in [item.text for item in report.declined]
    os.utime(Path(table.store.root) / DIRT[0], (time.time() - 25 * 3600,) * 2)
    assert table.remove_orphan_files(dry_run=True).files_recorded == 1
    assert not [name for name in on_disk(table) if name.startswith("dredge/.clock")]


def test_the_plan_says_what_holds_the_rest(tmp_path: Path) -> None:
    table = history(tmp_path, commits=8)
    tag(table, "keep", 5)
    place = Path(table.store.root) / "consumer"
    place.mkdir()
    (place / "consumer-job").write_text('{"nextSnapshot": 7}')
    table.expire_snapshots(retain_max=4, older_than_ms=NOW)
    table.save_plan(table.plan_maintenance("compact", full=True))
    held = {item.subject: item.facts for item in table.plan_maintenance("orphans").declined if item.reason == "held"}
    live = f"snapshot {table.latest_snapshot().id}, the newest"
    assert held[live]["holder"] == "live"
    kept = {name: facts for name, facts in held.items() if name != live}
    assert {facts["holder"] for facts in kept.values()} >= {"snapshot", "tag", "grace"}
    assert held["tag keep"]["files"] >= 2
    assert any("which consumer job has still to read" in name for name in kept)
    on_hand = [name for name in on_disk(table) if name.startswith(("bucket-", "manifest/"))]
    assert sum(facts["files"] for facts in held.values()) <= len(on_hand)
    assert "manifest-list-" in held["tag keep"]["examples"]


def test_a_late_commit_keeps_its_files(tmp_path: Path) -> None:
    table = history(tmp_path)
    writer = table.new_write()
    writer.write(rows(range(100, 120)))
    messages = writer.prepare_commit()
    age_all(table)  # written days ago, not committed
    plan = table.plan_maintenance("orphans")
    assert len(plan.items) == 1
    report = table.apply(plan)
    assert report.files_recorded == 1
    table.new_commit().commit(messages)
    swept = sweep(table)
    assert (swept.files_deleted, [item.reason for item in swept.kept]) == (0, ["held"])
    assert len(content(table)) == len({row[0] for row in content(table)})
    assert_whole(table)
    assert not table.plan_maintenance("orphans").items


def test_a_commit_between_plan_and_apply_leaves_the_record(tmp_path: Path) -> None:
    table = history(tmp_path)
    writer = table.new_write()
    writer.write(rows(range(100, 120)))
    messages = writer.prepare_commit()
    age_all(table)
    put(table, DIRT[0])
    plan = table.plan_maintenance("orphans")
    table.new_commit().commit(messages)
    report = table.apply(plan)
    assert report.files_recorded == 1
    assert any("held by snapshot" in item.text for item in report.held)


def test_restore_keeps_orphans_until_the_next_plan(tmp_path: Path) -> None:
    table = history(tmp_path)
    put(table, DIRT[0])
    report = table.remove_orphan_files()
    back = table.restore(report.trash_id)
    assert (back.files_kept, back.changed, back.restored) == (1, True, ())
    table.store.clock.advance(2 * DAY)
    assert not table.sweep_trash().records
    assert (Path(table.store.root) / DIRT[0]).exists()
    with pytest.raises(InvalidOption, match="restored already"):
        table.restore(report.trash_id)
    assert table.remove_orphan_files().files_recorded == 1


def test_direct_mode_deletes_at_once(tmp_path: Path) -> None:
    table = history(tmp_path).copy({"dredge.delete-mode": "direct"})
    for name in DIRT:
        put(table, name)
    report = table.remove_orphan_files()
    assert (report.files_deleted, report.trash_id, report.failed) == (len(DIRT), None, ())
    assert not [name for name in DIRT if (Path(table.store.root) / name).exists()]


def test_more_than_a_fifth_goes_only_when_asked_by_name(tmp_path: Path) -> None:
    table = history(tmp_path, commits=3)
    for number in range(30):
        put(table, f"bucket-0/data-{uuid.uuid4()}-{number}.parquet", data=b"")
    with pytest.raises(PlanRefused) as refused:
        table.remove_orphan_files()
    assert (refused.value.rule, refused.value.share > 0.2) == (RefusalRule.SHARE_LIMIT, True)
    assert "30 of" in refused.value.detail
    assert table.remove_orphan_files(max_share=90).files_recorded == 30
    put(table, DIRT[0], data=b"x" * 10_000_000)
    with pytest.raises(PlanRefused, match="of the bytes"):
        table.remove_orphan_files()
    with pytest.raises(InvalidOption, match="max_share"):
        table.remove_orphan_files(max_share=0)


def test_a_table_of_nothing_but_strays_is_refused(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    put(table, DIRT[0])
    with pytest.raises(PlanRefused) as refused:
        table.remove_orphan_files(max_share=100)
    assert refused.value.rule is RefusalRule.NOTHING_IN_USE


class _Lying(LocalFileIO):
    """Listings of ``folder`` are what ``lie`` makes of them."""

    def __init__(self, folder: str, lie: Any) -> None:
        super().__init__()
        self.folder, self.told, self.count = folder, lie, 0

    def list_dir(self, path: str) -> list[FileStatus]:
        found = super().list_dir(path)
        if not path.endswith(self.folder):
            return found
        self.count += 1
        return self.told(self.count, found)


@pytest.mark.parametrize(
    ("folder", "lie"),
    [
        ("/manifest", lambda _count, _found: []),
        ("/bucket-0", lambda _count, _found: []),
        ("/snapshot", lambda _count, found: [item for item in found if item.name != "snapshot-22"]),
        ("/snapshot", lambda _count, found: [item for item in found if item.name != "snapshot-3"]),
        ("/snapshot", lambda _count, found: [item for item in found if item.name != "snapshot-1"]),
        ("/tag", lambda count, found: found if count == 1 else []),
        ("/tag", lambda count, found: [] if count == 1 else found),
        ("/branch", lambda count, found: found if count == 1 else []),
    ],
)
def test_a_listing_that_lacks_what_is_there_stops_the_plan(tmp_path: Path, folder: str, lie: Any) -> None:
    table = history(tmp_path)
    tag(table, "keep", 2)
    branch = Path(table.store.root) / "branch" / "branch-dev"
    for name in ("schema", "snapshot"):
        shutil.copytree(Path(table.store.root) / name, branch / name)
    put(table, DIRT[-1])
    assert len(table.plan_maintenance("orphans").items) == 1
    with pytest.raises(PlanRefused) as refused:
        with_io(table, _Lying(folder, lie)).plan_maintenance("orphans")
    assert refused.value.rule in {RefusalRule.LISTING_INCOMPLETE, RefusalRule.SNAPSHOTS_MOVED}


def test_a_commit_while_planning_stops_the_plan(tmp_path: Path) -> None:
    table = history(tmp_path)
    put(table, DIRT[0])

    def commit(count: int, found: list[FileStatus]) -> list[FileStatus]:
        if count == 1:
            table.write(rows([1], v=5))
        return found

    with pytest.raises(PlanRefused, match="plan again") as refused:
        with_io(table, _Lying("/manifest", commit)).plan_maintenance("orphans")
    assert refused.value.rule is RefusalRule.SNAPSHOTS_MOVED
    assert len(table.plan_maintenance("orphans").items) == 1


@pytest.mark.parametrize("victim", ["tag/tag-keep", "snapshot/snapshot-3", "manifest", "branch/branch-dev/schema"])
def test_what_cannot_be_read_stops_the_plan(tmp_path: Path, victim: str) -> None:
    table = history(tmp_path, commits=5)
    tag(table, "keep", 2)
    branch = Path(table.store.root) / "branch" / "branch-dev"
    for name in ("schema", "snapshot"):
        shutil.copytree(Path(table.store.root) / name, branch / name)
    put(table, DIRT[0])
    before = on_disk(table)
    path = Path(table.store.root) / victim
    if path.is_dir():
        path = min(path.glob("manifest-[0-9a-f]*"), default=path)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(Exception) as caught:
        table.plan_maintenance("orphans")
    assert isinstance(caught.value, CorruptFile) or "branch" in str(caught.value)
    assert set(before) >= set(on_disk(table))


def test_an_unreadable_deletion_record_stops_the_plan(tmp_path: Path) -> None:
    table = history(tmp_path, commits=5)
    table.expire_snapshots(retain_max=1)
    (record,) = (Path(table.store.root) / "dredge" / "trash").glob("*.json")
    record.write_bytes(record.read_bytes()[:100])
    with pytest.raises(PlanRefused) as refused:
        table.plan_maintenance("orphans")
    assert refused.value.rule is RefusalRule.UNREADABLE_RECORD


def test_a_saved_plan_holds_the_files_that_it_works_on_whatever_its_version(tmp_path: Path) -> None:
    table = history(tmp_path)
    put(table, DIRT[0])
    plans = Path(table.store.root) / "dredge" / "plans"
    plans.mkdir(parents=True, exist_ok=True)
    (plans / "abc.json").write_text(json.dumps({"version": 99, "works": {"on": [Path(DIRT[0]).name]}}))
    plan = table.plan_maintenance("orphans")
    assert not plan.items
    assert "saved plan abc" in {item.subject for item in plan.declined}
    (plans / "abc.json").write_text(f'{{"cut short": "bucket-0/{Path(DIRT[0]).name}')
    assert not table.plan_maintenance("orphans").items
    (plans / "abc.json").unlink()
    table.save_plan(table.plan_maintenance("orphans"))
    assert len(table.plan_maintenance("orphans").items) == 1  # what is to be deleted is not held by that
    assert (plans / f"{table.plan_maintenance('orphans').hash}.json").exists()


def test_links_stay_and_nothing_behind_them_is_touched(tmp_path: Path) -> None:
    table = history(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / Path(DIRT[0]).name).write_bytes(b"not ours")
    root = Path(table.store.root)
    (root / DIRT[0]).symlink_to(outside / Path(DIRT[0]).name)
    (root / "bucket-7").symlink_to(outside)
    (root / "index").symlink_to(outside)
    age_all(table)
    plan = table.plan_maintenance("orphans")
    assert not plan.items
    assert [item.subject for item in plan.declined if item.reason == "link"] == [DIRT[0]]
    put(table, DIRT[1])
    plan = table.plan_maintenance("orphans")
    shutil.move(root / "bucket-0", outside / "moved")
    (root / "bucket-0").symlink_to(outside / "moved")
    table.apply(plan)
    with pytest.raises(CorruptFile, match="symbolic link"):
        sweep(table)
    assert (outside / "moved" / Path(DIRT[1]).name).exists()


def test_partitions_other_prefixes_and_directories_are_looked_into(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True, data_file__prefix="own-", data_file__path_directory="below/it")
    for i in range(12):
        table.write(rows([1], dt="a b", v=i))
    strayed = (
        f"below/it/dt=a b/bucket-0/own-{_UUID}-0.parquet",
        f"below/it/dt=gone/bucket-3/own-{_UUID}-1.parquet",
        f"below/it/dt=a b/._SUCCESS.{_UUID}.tmp",
    )
    stays = ("below/it/dt=a b/_SUCCESS", f"below/it/bucket-0/own-{_UUID}-2.parquet", "below/it/k=1/x")
    for name in (*strayed, *stays):
        put(table, name)
    age_all(table)
    plan = table.plan_maintenance("orphans")
    assert {item.path for item in plan.items_of(DeleteItem)} == set(strayed)


def test_external_places_are_cleaned_unless_another_table_may_use_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOWED_PLACES, f"{tmp_path}/external")
    table = history(tmp_path)
    place = tmp_path / "external"
    outside = place / "bucket-0" / Path(DIRT[0]).name
    outside.parent.mkdir(parents=True)
    outside.write_bytes(b"x")
    changed = (table.store.clock.now_ms() - 3 * DAY) * 1_000_000
    os.utime(outside, ns=(changed, changed))
    declared = table.copy({"data-file.external-paths": f"file://{place}"})
    other = keyed(tmp_path, name="db.other")
    schema = Path(other.store.root) / "schema" / "schema-0"
    described = json.loads(schema.read_text())
    described["options"]["data-file.external-paths"] = f"{place}/bucket-0"
    schema.write_text(json.dumps(described))
    plan = declared.plan_maintenance("orphans")
    assert not plan.items
    assert [item.subject for item in plan.declined if item.reason == "shared"] == [str(place)]
    shutil.rmtree(other.store.root)
    plan = declared.plan_maintenance("orphans")
    assert [item.path for item in plan.items_of(DeleteItem)] == [str(outside)]
    declared.apply(plan)
    assert "does not declare" in sweep(table).unreadable[0].text
    assert outside.exists()
    assert sweep(declared).files_deleted == 1
    assert not outside.exists()


def test_a_slice_of_a_shared_changelog_file_keeps_the_file(tmp_path: Path) -> None:
    from lsm_core.maintenance.file_holders import _real_files

    real = f"compacted-changelog-{_UUID}$0-100.cc-parquet"
    named = pa.array([f"compacted-changelog-{_UUID}$0-100-60-40.cc-parquet", real, "data-1.parquet"])
    assert _real_files(named).to_pylist() == [real, real, "data-1.parquet"]


def test_a_deleted_branch_that_can_be_restored_holds_its_files(tmp_path: Path) -> None:
    table = history(tmp_path)
    table.create_branch("dev", from_tag=None)
    branch = Catalog(tmp_path / "wh", clock=FixedClock(NOW)).table("db.t$branch_dev")
    branch.write(rows([1, 2], v=7))
    table.delete_branch("dev")
    age_all(table)
    plan = table.plan_maintenance("orphans")
    assert not plan.items
    assert any(item.facts.get("holder") == "grace" for item in plan.declined)


def test_a_tag_whose_changelog_another_engine_expired_stops_nothing(tmp_path: Path) -> None:
    table = keyed(tmp_path, changelog_producer="input")
    for i in range(12):
        table.write(rows([1], v=i))
    tag(table, "keep", 2)
    changes = table.snapshots()[1].changelog_manifest_list
    assert changes is not None
    (Path(table.store.root) / "snapshot" / "snapshot-1").unlink()
    (Path(table.store.root) / "snapshot" / "snapshot-2").unlink()
    (Path(table.store.root) / "manifest" / changes).unlink()
    age_all(table)
    plan = table.plan_maintenance("orphans", max_share=50)
    assert {item.kind for item in plan.items_of(DeleteItem)} >= {"manifest", "changelog"}
    assert "tag keep" in table.holds().column("holder").to_pylist()


def test_branches_are_cleaned_with_main_only(tmp_path: Path) -> None:
    table = history(tmp_path, commits=3)
    branch = Path(table.store.root) / "branch" / "branch-dev"
    for name in ("schema", "snapshot"):
        shutil.copytree(Path(table.store.root) / name, branch / name)
    with pytest.raises(UnsupportedFeature, match="branch dev"):
        Catalog(tmp_path / "wh").table("db.t$branch_dev").remove_orphan_files()


def test_a_file_that_cannot_be_deleted_is_told_and_left_for_the_next_sweep(tmp_path: Path) -> None:
    table = history(tmp_path)
    for name in DIRT[:3]:
        put(table, name)
    table.remove_orphan_files()

    class Stuck(LocalFileIO):
        def delete(self, path: str) -> bool:
            if path.endswith(DIRT[1]):
                raise PermissionError(13, "Permission denied", path)
            return super().delete(path)

    table.store.clock.advance(DAY)
    swept = with_io(table, Stuck()).sweep_trash()
    assert (swept.files_deleted, [item.subject for item in swept.failed]) == (2, [DIRT[1]])
    assert outcomes(table) == {DIRT[0]: "deleted", DIRT[1]: "failed", DIRT[2]: "deleted"}
    assert "Permission denied" in next(line["reason"] for line in table.ledger()[-1].lines if line["event"] == "failed")
    table.store.clock.advance(1)  # runs of one millisecond have no order in the ledger
    again = table.sweep_trash()
    assert (again.files_deleted, again.files_missing, again.failed) == (1, 2, ())
    assert outcomes(table) == {DIRT[0]: "gone already", DIRT[1]: "deleted", DIRT[2]: "gone already"}
    assert not table.sweep_trash().records


def outcomes(table: Table) -> dict[str, str]:
    """What the newest run says became of each file."""
    return {line["file"]: line["event"] for line in table.ledger()[-1].lines if "file" in line}


def test_holders_are_ranked_by_what_they_hold_alone(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(6):
        table.write(rows(range(i * 50, i * 50 + 50), v=i))
    table.compact(full=True)
    table.write(rows(range(3), v=9))
    tag(table, "keep", 4)
    found = {row["holder"]: row for row in table.holds().to_pylist()}
    live = found["snapshot 8, the newest"]
    assert (live["kind"], live["files"]) == ("live", 2)
    assert (found["snapshot 6"]["kind"], found["snapshot 6"]["files"]) == ("snapshot", 2)
    assert found["snapshot 6"]["shared_bytes"] > found["snapshot 6"]["bytes"] > 0
    assert (found["tag keep"]["files"], found["tag keep"]["shared_bytes"]) == (0, found["snapshot 6"]["shared_bytes"])
    table.expire_snapshots(retain_max=1, older_than_ms=table.store.clock.now_ms() + DAY)
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    found = {row["holder"]: row for row in table.holds().to_pylist()}
    assert set(found) == {"snapshot 8, the newest", "tag keep"}
    assert (found["tag keep"]["files"], found["tag keep"]["shared_bytes"]) == (4, 0)
    order = table.holds().column("bytes").to_pylist()
    assert order == sorted(order, reverse=True)
    assert not strays(table) - {name for name in strays(table) if name.startswith("data-")}


def test_a_deleted_tag_with_a_success_file_that_is_called_like_a_tag_stops_nothing(tmp_path: Path) -> None:
    table = keyed(tmp_path, tag__create_success_file="true")
    for i in range(2):
        table.write(rows([1], v=i))
    table.create_tag("tag-a", 1)
    assert (Path(table.store.root) / "tag" / "tag-success-file" / "tag-a_SUCCESS").exists()
    gone = table.delete_tag("tag-a")
    age_all(table)
    assert table.plan_maintenance("orphans").action == "orphans"
    table.restore(str(gone.trash_id))
    assert list(table.tags()) == ["tag-a"]
