"""An attacker who may write to one table's folder: forged deletion records and plans delete nothing that they should not."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Table
from lsm_core.errors import PlanStale
from lsm_core.maintenance.action import MaintenancePlan
from lsm_core.maintenance.trash import DeleteItem
from tests.maintenance.tables import keyed, on_disk, rows

_UUID = "4f5d7a0e-5b1c-4c5f-9d3a-0123456789ab"
_DATA = f"data-{_UUID}-0.parquet"
_KINDS = ("data", "manifest", "temporary")


def victim(tmp_path: Path) -> Table:
    """A table with six snapshots, a tag on an expired version, a branch, changelogs and a consumer's file."""
    table = keyed(tmp_path, changelog_producer="input")
    for number in range(6):
        table.write(rows(range(4), v=number))
    root = Path(table.store.root)
    (root / "README").write_text("of the operator")
    (root / "bucket-0" / "README").write_text("of the operator")
    (root / "consumer").mkdir(exist_ok=True)
    (root / "consumer" / "consumer-job").write_text('{"nextSnapshot":1}')
    nested = root / "nested"
    for inner in ("schema/schema-0", f"bucket-0/{_DATA}", "snapshot/snapshot-1"):
        (nested / inner).parent.mkdir(parents=True, exist_ok=True)
        (nested / inner).write_text("of another table")
    inside_bucket = root / "bucket-7"
    for inner in ("schema/schema-0", _DATA):
        (inside_bucket / inner).parent.mkdir(parents=True, exist_ok=True)
        (inside_bucket / inner).write_text("of another table, which is called as a bucket")
    return table


def targets(tmp_path: Path, table: Table) -> list[str]:
    """What an attacker would have deleted, as paths of a record."""
    own = [
        "schema/schema-0",
        "snapshot/snapshot-6",
        "snapshot/LATEST",
        "snapshot/EARLIEST",
        "README",
        "bucket-0/README",
        "consumer/consumer-job",
        "nested/schema/schema-0",
        f"nested/bucket-0/{_DATA}",
        "nested/snapshot/snapshot-1",
        f"bucket-7/{_DATA}",
        "bucket-7/schema/schema-0",
    ]
    own += [name for name in on_disk(table) if name.startswith(("bucket-0/data-", "manifest/"))][:4]
    outside = [
        str(tmp_path / "home" / _DATA),
        f"../other/bucket-0/{_DATA}",
        f"{tmp_path}/wh/db.db/other/schema/schema-0",
    ]
    return own + outside


def others(tmp_path: Path) -> None:
    """Files outside of the table."""
    for path in (
        tmp_path / "home" / _DATA,
        tmp_path / "wh/db.db/other/bucket-0" / _DATA,
        tmp_path / "wh/db.db/other/schema/schema-0",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of somebody else")


def everything(tmp_path: Path) -> dict[str, bytes]:
    """All files but those that maintenance keeps for itself."""
    files = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    return {name: data for name, data in files.items() if "/dredge/" not in name}


def forge(table: Table, paths: list[str], kind: str, action: str) -> None:
    record = {
        "version": 1,
        "trash_id": "forged",
        "action": action,
        "table": table.store.name,
        "plan_hash": "0" * 32,
        "created_ms": 1,
        "not_before_ms": 1,
        "snapshots": [],
        "files": [{"path": path, "kind": kind, "size": 1, "reason": "x"} for path in paths],
    }
    place = Path(table.store.root) / "dredge" / "trash" / "forged.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(record))


def declare_everything(tmp_path: Path, table: Table) -> Table:
    """The attacker's schema declares the whole disk as an external place."""
    path = Path(table.store.root) / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    schema["options"]["data-file.external-paths"] = f"file://{tmp_path}"
    path.write_text(json.dumps(schema))
    return Table(table.store.refresh())


@pytest.mark.parametrize("action", ["orphans", "expire_snapshots"])
def test_a_forged_deletion_record_deletes_only_what_orphan_cleaning_would(tmp_path: Path, action: str) -> None:
    table = victim(tmp_path)
    others(tmp_path)
    table = declare_everything(tmp_path, table)
    before = everything(tmp_path)
    everywhere = targets(tmp_path, table)
    inside = [path for path in everywhere if not path.startswith(("/", ".."))]
    for paths in [inside, *([path] for path in everywhere if path not in inside)]:
        for kind in _KINDS if paths is inside else _KINDS[:1]:
            forge(table, paths, kind, action)
            assert table.sweep_trash().files_deleted == 0
            for left in (Path(table.store.root) / "dredge" / "trash").iterdir():
                left.unlink()
    assert everything(tmp_path) == before


def test_an_external_place_is_swept_only_where_the_operator_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = victim(tmp_path)
    place = tmp_path / "external"
    stray = place / "bucket-0" / _DATA
    stray.parent.mkdir(parents=True)
    stray.write_text("x")
    path = Path(table.store.root) / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    schema["options"]["data-file.external-paths"] = f"file://{place}"
    path.write_text(json.dumps(schema))
    table = Table(table.store.refresh())
    forge(table, [str(stray)], "data", "orphans")
    assert table.sweep_trash().files_deleted == 0
    assert stray.exists()
    monkeypatch.setenv("DREDGE_ALLOWED_PLACES", str(place))
    assert table.sweep_trash().files_deleted == 1
    assert not stray.exists()


# -- plans ---------------------------------------------------------------------------------------------------------------

_ARGUMENTS: dict[str, dict[str, Any]] = {
    "expire_snapshots": {"retain_max": 2, "retain_min": 1},
    "delete_branch": {"branch": "b"},
    "rollback": {"snapshot_id": 4},
}


@pytest.mark.parametrize("action", ["expire_snapshots", "delete_branch", "rollback", "orphans"])
def test_what_a_plan_adds_to_its_actions_files_is_refused_by_name(tmp_path: Path, action: str) -> None:
    table = keyed(tmp_path)
    for number in range(6):
        table.write(rows(range(4), v=number))
    table.create_branch("b")
    stray = Path(table.store.root) / "bucket-0" / _DATA
    stray.write_text("of a writer that will commit it")
    if action == "orphans":
        honest = table.plan_maintenance(action)
    else:
        honest = table.plan_maintenance(action, **_ARGUMENTS[action])
        assert honest.items
    item = DeleteItem(f"bucket-0/{_DATA}", "data", 1, "x")
    before = {name for name in on_disk(table) if not name.startswith("dredge/")}
    os.utime(stray, ns=((2_000_000_000_000) * 1_000_000,) * 2)
    with pytest.raises(PlanStale, match=_DATA):
        table.apply(MaintenancePlan.from_json(replace(honest, items=(*honest.items, item)).to_json()))
    assert {name for name in on_disk(table) if not name.startswith("dredge/")} == before
