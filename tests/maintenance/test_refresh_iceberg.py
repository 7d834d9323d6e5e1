"""Iceberg metadata stays true without a commit: after rollbacks, fast-forwards, restores, killed writers, new options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import CorruptFile
from lsm_core.iceberg import writing
from lsm_core.iceberg.freshness import IcebergCondition, read_view
from lsm_core.iceberg.manifest_files import decode_manifest_list
from lsm_core.iceberg.state import IcebergState, read_state
from lsm_core.maintenance.iceberg_files import iceberg_names
from lsm_core.metadata import snapshots
from lsm_core.table.schema_change import SchemaChange

ROWS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
ON = {"metadata.iceberg.storage": "table-location"}


def _table(folder: Path, **options: str) -> Table:
    catalog = Catalog(str(folder))
    catalog.create_database("shop")
    chosen = {"bucket": "1", "write-only": "true", **options}
    return catalog.create_table("shop.t", ROWS, primary_keys=["k"], options=chosen)


def _write(table: Table, key: int) -> None:
    table.write(pa.table({"k": [key], "v": ["a"]}, schema=ROWS))


def _state(table: Table) -> IcebergState:
    state = read_state(table.store)
    assert state is not None
    return state


def _condition(table: Table) -> IcebergCondition | None:
    view = read_view(table.store)
    return None if view is None else view.condition


def _files(table: Table) -> set[str]:
    return {path.name for path in (Path(table.store.root) / "metadata").iterdir()}


def _unnamed(table: Table) -> set[str]:
    """Return the manifests that no plan of orphan removal would keep, however young."""
    plan = table.plan_maintenance("orphans", older_than_ms=table.store.clock.now_ms(), max_share=100)
    return {Path(item.path).name for item in plan.items if item.path.startswith("metadata/")}


@pytest.mark.parametrize("storage", ["table-location", "hadoop-catalog"])
def test_rollbacks_and_restores_are_seen_at_once(tmp_path: Path, storage: str) -> None:
    table = _table(tmp_path, **{"metadata.iceberg.storage": storage})
    for key in range(3):
        _write(table, key)
    table.compact(full=True)
    before = _state(table)
    report = table.rollback_to(1)
    after = _state(table)
    assert (after.version, after.current_snapshot_id, after.table_uuid) == (1, 1, before.table_uuid)
    assert _condition(table) is IcebergCondition.CURRENT
    table.restore(report.trash_id)
    assert snapshots.latest_id(table.store) == 4
    assert (_state(table).current_snapshot_id, _state(table).table_uuid) == (4, before.table_uuid)


def test_a_fast_forward_is_seen_at_once(tmp_path: Path) -> None:
    table = _table(tmp_path, **ON)
    _write(table, 1)
    table.create_branch("b", from_snapshot=1).write(pa.table({"k": [2], "v": ["b"]}, schema=ROWS))
    _write(table, 3)
    before = _state(table)
    table.fast_forward("b")
    assert _condition(table) is IcebergCondition.CURRENT
    assert _state(table).table_uuid == before.table_uuid


def test_a_killed_writer_is_made_up_for_by_any_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(tmp_path, **ON)
    _write(table, 1)
    with monkeypatch.context() as patch:
        patch.setattr(writing._Publication, "publish", lambda *_, **__: False)
        for key in range(12):
            _write(table, key)
    assert _condition(table) is IcebergCondition.BEHIND
    table.expire_snapshots(retain_max=3)
    assert _condition(table) is IcebergCondition.CURRENT


def test_the_option_is_turned_on_later(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _write(table, 1)
    Catalog(str(tmp_path)).alter_table("shop.t", [SchemaChange.set_option(*next(iter(ON.items())))])
    table = Catalog(str(tmp_path)).table("shop.t")
    assert _condition(table) is IcebergCondition.MISSING
    plan = table.plan_maintenance("refresh_iceberg")
    assert "there is no Iceberg metadata" in plan.items[0].reason
    report = table.apply(plan)
    assert (report.changed, report.shown) == (True, 1)
    assert report.lines("shop.t") == ["Iceberg readers of shop.t see snapshot 1"]
    assert not table.plan_maintenance("refresh_iceberg").items
    assert not table.apply(plan).changed


def test_damaged_metadata_is_written_anew(tmp_path: Path) -> None:
    table = _table(tmp_path, **ON)
    _write(table, 1)
    (Path(table.store.root) / "metadata/v1.metadata.json").write_text("{")
    assert _condition(table) is IcebergCondition.UNREADABLE
    table.apply(table.plan_maintenance("refresh_iceberg"))
    assert _condition(table) is IcebergCondition.CURRENT


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("damage", [_empty, _cut, Path.unlink])
@pytest.mark.parametrize("pattern", ["snap-1-*.avro", "*-m1.avro"])
def test_damaged_manifests_are_noticed_and_written_anew(
    tmp_path: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    table = _table(tmp_path, **ON)
    _write(table, 1)
    table.compact(full=True)
    before, folder = _state(table), Path(table.store.root) / "metadata"
    current = before.current
    assert current is not None
    named = folder / current.manifest_list
    path = named if pattern.startswith("snap") else _manifest_of(named)
    damage(path)
    verdict: Any = table.check(["iceberg_is_fresh"])[0]
    assert not verdict.passed
    assert "the Iceberg metadata is damaged" in verdict.text
    assert path.name in verdict.text
    assert "dredge refresh-iceberg shop.t" in verdict.text
    assert table.apply(table.plan_maintenance("refresh_iceberg")).changed
    assert table.check(["iceberg_is_fresh"])[0].passed
    assert not table.plan_maintenance("refresh_iceberg").items
    after = _state(table)
    assert (after.current_snapshot_id, after.table_uuid) == (2, before.table_uuid)


def test_a_commit_does_not_keep_a_manifest_of_another_size(tmp_path: Path) -> None:
    table = _table(tmp_path, **ON)
    _write(table, 1)
    table.compact(full=True)
    current = _state(table).current
    assert current is not None
    path = _manifest_of(Path(table.store.root) / "metadata" / current.manifest_list)
    _cut(path)
    _write(table, 2)
    assert not path.exists() or path.name not in {name for _, names in _named(table) for name in names}
    assert table.check(["iceberg_is_fresh"])[0].passed


def test_a_damaged_list_of_an_older_snapshot_names_the_command_that_ends_it(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"metadata.iceberg.storage": "hadoop-catalog"})
    _write(table, 1)
    _write(table, 2)
    folder = tmp_path / "iceberg/shop/t/metadata"
    _empty(folder / _state(table).snapshots[0].manifest_list)
    with pytest.raises(CorruptFile, match=r"`dredge refresh-iceberg shop\.t --drop-older` writes the Iceberg metadata"):
        table.plan_maintenance("orphans", older_than_ms=table.store.clock.now_ms(), max_share=100)
    table.apply(table.plan_maintenance("refresh_iceberg", drop_older=True))
    table.plan_maintenance("orphans", older_than_ms=table.store.clock.now_ms(), max_share=100)


def test_lists_of_expired_snapshots_are_no_reason_to_warn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    few = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
    table = _table(tmp_path, **ON, **few, **{"metadata.iceberg.previous-versions-max": "4"})
    for key in range(6):
        _write(table, key)
    table.apply(table.plan_maintenance("refresh_iceberg", drop_older=True))
    assert _state(table).snapshot_ids == {6}
    assert "stay" not in caplog.text


def _manifest_of(manifest_list: Path) -> Path:
    """Return the only manifest of a manifest list."""
    (manifest,) = decode_manifest_list(manifest_list.read_bytes(), str(manifest_list))
    return manifest_list.parent / manifest.name


def _named(table: Table) -> list[tuple[int, list[str]]]:
    names = sorted(_files(table))
    return list(iceberg_names(table.store, pa.array(names)))


def test_older_snapshots_are_left_out_on_demand_and_expire(tmp_path: Path) -> None:
    table = _table(tmp_path, **ON)
    for key in range(4):
        _write(table, key)
    before = _state(table)
    assert not table.plan_maintenance("refresh_iceberg").items
    held: Any = table.expire_snapshots(retain_max=1, retain_min=1)
    assert not held.expired
    plan = table.plan_maintenance("refresh_iceberg", drop_older=True)
    assert plan.items[0].reason == "it names older snapshots, from 1 on, which may expire then"
    table.apply(plan)
    after = _state(table)
    assert (after.snapshot_ids, after.table_uuid, after.version) == ({4}, before.table_uuid, 4)
    assert not _unnamed(table), "the replaced manifests are deleted"
    assert table.expire_snapshots(retain_max=1, retain_min=1).expired == (1, 2, 3)
    assert not table.plan_maintenance("refresh_iceberg", drop_older=True).items
    _write(table, 9)
    assert _state(table).snapshot_ids == {4, 5}


def test_a_purge_leaves_nothing_to_iceberg_readers(tmp_path: Path) -> None:
    table = _table(tmp_path, **ON)
    for key in range(3):
        _write(table, key)
    uuid = _state(table).table_uuid
    report: Any = table.apply(table.plan_maintenance("purge", confirm="shop.t"))
    assert (report.rows, report.snapshots) == (3, 3)
    assert [snapshot.id for snapshot in table.snapshots()] == [4]
    assert (_state(table).snapshot_ids, _state(table).table_uuid) == ({4}, uuid)
    table.restore(report.trash_ids[0])
    assert _condition(table) is IcebergCondition.CURRENT
    _write(table, 7)
    assert table.check(["iceberg_is_fresh"])[0].passed


def test_nothing_is_written_without_the_option(tmp_path: Path) -> None:
    table = _table(tmp_path)
    assert table.plan_maintenance("refresh_iceberg").declined[0].text == "the table has no snapshot"
    _write(table, 1)
    table.rollback_to(1)
    plan = table.plan_maintenance("refresh_iceberg")
    assert not plan.items
    assert "publishes no Iceberg metadata" in plan.declined[0].text
    assert not (Path(table.store.root) / "metadata").exists()


def test_metadata_keeps_its_schemas_and_location(tmp_path: Path) -> None:
    table = _table(tmp_path, **ON)
    _write(table, 1)
    _write(table, 2)
    path = Path(table.store.root) / "metadata/v2.metadata.json"
    before = json.loads(path.read_text())
    table.apply(table.plan_maintenance("refresh_iceberg", drop_older=True))
    after = json.loads(path.read_text())
    for name in ("location", "schemas", "partition-specs", "last-column-id", "table-uuid", "current-snapshot-id"):
        assert after[name] == before[name]
    assert _files(table) >= {"v2.metadata.json", "version-hint.text"}
