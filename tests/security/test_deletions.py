"""Forged records and plans, and links put in the way, delete nothing but what the table's own maintenance may delete."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.clock import FixedClock
from lsm_core.errors import CorruptFile, DredgeError, PlanStale, StorageRefused
from lsm_core.maintenance import MaintenancePlan, all_actions
from lsm_core.maintenance.checks import stored_pages
from lsm_core.maintenance.file_allowlist import OwnFiles
from lsm_core.maintenance.trash import DeleteItem, read_trash
from lsm_core.metadata.store import TableStore
from lsm_core.options import ALLOWED_PLACES
from lsm_core.spark.write_folder import WriteFolder

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
UUID = "01234567-89ab-cdef-0123-456789abcdef"
NOW = 4_000_000_000_000
DAY = 86_400_000


class Scene:
    """An attacker's table with history, a victim's table beside it, and a victim's home folder."""

    def __init__(self, folder: Path) -> None:
        self.clock = FixedClock(NOW)
        self.catalog = Catalog(folder / "wh", clock=self.clock)
        self.table = self.make("d.mine")
        self.victim = self.make("d.victim")
        self.root = Path(self.table.store.root)
        self.home = folder / "home"
        self.home.mkdir()
        (self.home / "letter.parquet").write_text("dear")
        (self.root / "README.md").write_text("read me")
        (self.root / "notes").mkdir()
        (self.root / "notes" / f"data-{UUID}-0.parquet").write_text("a nested folder that is no bucket")

    def make(self, name: str) -> Table:
        table = self.catalog.create_table(
            name, COLUMNS, primary_keys=["id"], options={"bucket": "1"}, create_database=True
        )
        for number in range(3):
            table.write([{"id": number, "v": "x"}])
        table.compact(full=True)
        table.store.file_io.overwrite(f"{table.store.root}/snapshot/EARLIEST", b"1")
        return table

    def state(self) -> dict[str, bytes]:
        """Every file but the ledger, plans and records of the attacker's own table."""
        own = self.root / "dredge"
        found = {}
        for top in (self.root.parent.parent, self.home):
            for path in sorted(top.rglob("*")):
                if path.is_file() and own not in path.parents:
                    found[str(path)] = path.read_bytes()
        return found

    def targets(self) -> list[str]:
        """Paths that no deletion may name: each is a file that exists."""
        victims = [path for path in Path(self.victim.store.root).rglob("*") if path.is_file()]
        mine = [self.root / "schema" / "schema-0", self.root / "snapshot" / "snapshot-4", self.root / "README.md"]
        mine += [self.root / "snapshot" / "LATEST", self.root / "snapshot" / "EARLIEST"]
        mine += [self.root / "notes" / f"data-{UUID}-0.parquet"]
        relative = [os.path.relpath(path, self.root) for path in mine]
        outside = [os.path.relpath(path, self.root) for path in (*victims[:3], self.home / "letter.parquet")]
        return [*relative, *outside, *map(str, victims[:2]), str(self.home / "letter.parquet")]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def forged_record(scene: Scene, paths: list[str], **more: Any) -> Path:
    folder = scene.root / "dredge" / "trash"
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        "version": 1,
        "trash_id": "expire-1-1-forged",
        "action": "expire_snapshots",
        "table": "d.mine",
        "plan_hash": "0" * 32,
        "created_ms": 1,
        "not_before_ms": 1,
        "snapshots": [],
        "files": [{"path": path, "kind": "data", "size": 1, "reason": "x"} for path in paths],
        **more,
    }
    path = folder / "expire-1-1-forged.json"
    path.write_text(json.dumps(record))
    return path


@pytest.mark.parametrize("action", ["expire_snapshots", "orphans", "rollback", "fast_forward", "delete_branch"])
def test_a_forged_record_deletes_and_restores_nothing_that_it_may_not_name(scene: Scene, action: str) -> None:
    before = scene.state()
    for target in scene.targets():
        path = forged_record(scene, [target], action=action)
        (left,) = scene.table.sweep_trash().unreadable
        assert left.subject == path.name and "it names" in left.text
        with pytest.raises(CorruptFile, match="it names"):
            scene.table.restore("expire-1-1-forged")
        direct = scene.table.copy({"dredge.delete-mode": "direct"})
        direct.expire_snapshots(retain_max=10)
        assert scene.state() == before, target
        path.unlink()


def test_a_live_file_in_a_record_stays(scene: Scene) -> None:
    live = [str(path.relative_to(scene.root)) for path in (scene.root / "bucket-0").iterdir()]
    live += [str(path.relative_to(scene.root)) for path in (scene.root / "manifest").iterdir()]
    before = scene.state()
    forged_record(scene, live)
    report = scene.table.sweep_trash()
    assert report.files_deleted == 0 and scene.state() == before


def test_what_a_table_has_may_be_named_and_nothing_else(scene: Scene) -> None:
    own = OwnFiles.of(scene.table.store)
    allowed = [
        f"bucket-0/data-{UUID}-0.parquet",
        f"bucket-0/data-{UUID}-0.parquet.index",
        f"bucket-0/data-{UUID}-0.parquet.blobref",
        f"bucket-0/changelog-{UUID}-0.orc",
        "bucket-0/part-00000.snappy.parquet",
        f"manifest/manifest-{UUID}-0",
        f"manifest/index-manifest-{UUID}-0",
        f"index/index-{UUID}-3",
        f"statistics/stats-{UUID}-0",
        f"snapshot/.snapshot-7.{UUID}.tmp",
        f"branch/branch-dev/snapshot/.snapshot-7.{UUID}.tmp",
    ]
    assert own.find_foreign_paths(allowed) == {}
    refused = ["", ".", "..", "bucket-0", "bucket-0/_SUCCESS", "bucket-0/.x.parquet", "dt=1/bucket-0/data-0.parquet"]
    refused += ["bucket-0/../schema/schema-0", "bucket-0//data-0.parquet", "schema/schema-0", "tag/tag-x", "a/b"]
    refused += ["dredge/plans/0.json", "dredge/trash/x.json", f"manifest/deep/manifest-{UUID}-0", "consumer/consumer-a"]
    refused += [
        "bucket-0/a\x00.parquet",
        "/etc/passwd",
        "s3://bucket/data-0.parquet",
        "branch/branch-dev/schema/schema-0",
    ]
    assert set(own.find_foreign_paths(refused)) == set(refused)


DELETING = [action.name for action in all_actions() if DeleteItem in action.item_types()]


@pytest.mark.parametrize("action", DELETING)
def test_a_forged_plan_of_any_action_deletes_nothing_that_it_could_not_have_planned(scene: Scene, action: str) -> None:
    """A plan that its own hash fits, as anybody can compute it, naming other files beside what the action planned."""
    unplanned = f"bucket-0/data-{UUID}-9.parquet"  # of a commit that goes on now
    (scene.root / unplanned).write_text("young")
    before = scene.state()
    begun = MaintenancePlan.begin(action, scene.table.store, 4, {"snapshot_id": 2, "tag": "t", "branch": "b"})
    targets = scene.targets() if action == "trash" else [*scene.targets(), unplanned]
    for target in targets:
        item = DeleteItem(target, "data", 1, "nothing names it", "expire-1-1-forged" if action == "trash" else "")
        plan = MaintenancePlan.from_json(replace(begun, items=(item,)).to_json())
        with pytest.raises(DredgeError) as refused:
            scene.table.apply(plan)
        refusal = str(refused.value)
        assert target in refusal or "it is no plan that" in refusal or not isinstance(refused.value, PlanStale), target
        assert scene.state() == before, target


def test_a_plan_that_was_read_back_is_applied_when_it_is_what_the_action_plans(scene: Scene) -> None:
    plan = scene.table.plan_maintenance("expire_snapshots", retain_max=1)
    assert plan.items_of(DeleteItem)
    report = scene.table.apply(MaintenancePlan.from_json(plan.to_json()))
    assert report.changed
    scene.clock.advance(2 * DAY)
    assert scene.table.sweep_trash().files_deleted == len(plan.items_of(DeleteItem))


def test_a_folder_that_is_a_link_loses_nothing(scene: Scene) -> None:
    """The attacker turns folders of metadata into links to the victim's."""
    for name in ("snapshot", "manifest", "bucket-0", "dredge"):
        victims = Path(scene.victim.store.root) / name
        kept = scene.root / f"{name}-kept"
        (scene.root / name).rename(kept)
        (scene.root / name).symlink_to(victims)
        before = scene.state()
        if name != "bucket-0":
            with pytest.raises(StorageRefused, match="symbolic link"):
                scene.catalog.table("d.mine")
        table = Table(scene.table.store)  # opened before
        for act in (
            lambda table=table: table.expire_snapshots(retain_max=1),
            lambda table=table: table.copy({"dredge.delete-mode": "direct"}).expire_snapshots(retain_max=1),
            lambda table=table: table.compact(full=True),
            lambda table=table: table.rollback_to(1),
            lambda table=table: table.remove_orphan_files(older_than_ms=NOW),
            lambda table=table: table.write([{"id": 1, "v": "y"}]),
        ):
            with suppress(DredgeError, OSError):
                act()
            after = scene.state()
            lost = [path for path in before if before[path] != after.get(path) and "d.db/victim" in path]
            assert not lost, name
        (scene.root / name).unlink()
        kept.rename(scene.root / name)


def test_folders_of_dredge_that_are_links_lose_nothing(scene: Scene) -> None:
    """The folders of old writes are removed with all that is in them, and a deep check keeps its position in a file."""
    old = scene.home / "old"
    old.mkdir()
    (old / "letter").write_text("dear")
    for path in (old / "letter", old):
        os.utime(path, (1, 1))
    (scene.home / "main.json").write_text("{}")
    before = scene.state()
    for name in ("staged", "deep-check"):
        link = scene.root / "dredge" / name
        link.symlink_to(scene.home)
        with pytest.raises(StorageRefused, match="symbolic link"):
            scene.catalog.table("d.mine")
        store = scene.table.store  # opened before
        with suppress(DredgeError, OSError):
            WriteFolder.plan(store)
        assert old.exists()
        stored_pages._forget(store, stored_pages.progress_path(store))
        link.unlink()
        assert {path: data for path, data in scene.state().items() if path in before} == before, name


def test_a_link_swapped_in_while_files_are_swept_removes_nothing_outside(scene: Scene) -> None:
    bucket, outside = scene.root / "bucket-0", scene.home / "precious"
    outside.mkdir()
    names = [f"data-{UUID}-{number}.parquet" for number in range(300)]
    for name in names:
        (bucket / name).write_text("stray")
        (outside / name).write_text("keep me")
    forged_record(scene, [f"bucket-0/{name}" for name in names])
    stop = threading.Event()
    aside = scene.root / "aside"

    def swap() -> None:
        while not stop.is_set():
            bucket.rename(aside)
            bucket.symlink_to(outside)
            bucket.unlink()
            aside.rename(bucket)

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        for _ in range(20):
            try:
                scene.table.sweep_trash()
            except (DredgeError, OSError):
                continue
    finally:
        stop.set()
        attacker.join()
    assert sorted(path.name for path in outside.iterdir()) == sorted(names)


def test_a_file_is_deleted_by_the_handle_of_its_folder(tmp_path: Path) -> None:
    from lsm_core.storage import LocalFileIO, PathBelow

    (tmp_path / "t" / "a" / "b").mkdir(parents=True)
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "f").write_text("keep me")
    (tmp_path / "t" / "a" / "b" / "f").write_text("x")
    (tmp_path / "t" / "link").symlink_to(tmp_path / "victim")
    io, root = LocalFileIO(), str(tmp_path / "t")
    assert io.delete(PathBelow.of(root, f"{root}/a/b/f")) and not io.delete(PathBelow.of(root, f"{root}/a/b/f"))
    assert not io.delete(PathBelow.of(root, f"{root}/none/f"))
    for path in (f"{root}/link/f", f"{root}/a/../link/f", f"{root}/a//f"):
        with pytest.raises(StorageRefused):
            io.delete(PathBelow.of(root, path))
    (tmp_path / "victim" / "folder").mkdir()
    with pytest.raises(StorageRefused):
        io.delete_dir(PathBelow.of(root, f"{root}/link/folder"))
    assert io.delete_dir(PathBelow.of(root, f"{root}/a")) and (tmp_path / "victim" / "folder").exists()
    assert (tmp_path / "victim" / "f").read_text() == "keep me"


def test_external_places_are_deleted_in_only_where_the_operator_allows_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a home folder nor another table becomes the attacker's by being declared as an external place."""
    schema = scene.root / "schema" / "schema-0"
    described = json.loads(schema.read_text())
    described["options"]["data-file.external-paths"] = f"file://{scene.home},file://{scene.victim.store.root}"
    schema.write_text(json.dumps(described))
    table = scene.catalog.table("d.mine")
    (scene.home / "bucket-0").mkdir()
    stray = scene.home / "bucket-0" / f"data-{UUID}-0.parquet"
    stray.write_text("x")
    victims = list((Path(scene.victim.store.root) / "bucket-0").iterdir())
    forged_record(scene, [str(stray), *map(str, victims)], action="orphans")
    before = scene.state()
    assert ALLOWED_PLACES in table.sweep_trash().unreadable[0].text
    monkeypatch.setenv(ALLOWED_PLACES, f"{scene.home},{scene.victim.store.root}")
    with pytest.raises(CorruptFile, match="another table"):
        table.sweep_trash()
    assert scene.state() == before
    forged_record(scene, [str(stray)], action="orphans")
    assert table.sweep_trash().files_deleted == 1 and not stray.exists()


def test_the_schemas_are_read_once_for_all_deletion_records(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    data = forged_record(scene, [f"bucket-0/data-{UUID}-0.parquet"]).read_text()
    for number in range(3):
        other = f"expire-1-1-forged{number}"
        (scene.root / "dredge" / "trash" / f"{other}.json").write_text(data.replace("expire-1-1-forged", other))
    reads: list[TableStore] = []
    read_schemas = OwnFiles.of

    def counted(store: TableStore) -> OwnFiles:
        reads.append(store)
        return read_schemas(store)

    monkeypatch.setattr(OwnFiles, "of", counted)
    assert len(read_trash(scene.table.store).records) == 4 and len(reads) == 1
