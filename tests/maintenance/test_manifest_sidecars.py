"""Sidecars of manifests (Paimon 2.1) are kept as long as their manifest and deleted with it."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from lsm_core.format.manifest import ManifestFileMeta, decode_manifest_list, encode_manifest_list
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance import DeleteItem
from lsm_core.table import Table
from tests.maintenance.tables import HOUR, assert_whole, content, keyed, rows

_FIELD = json.dumps(
    {"default": None, "name": "_EXTRA_FILES", "type": ["null", {"items": "string", "type": "array"}]}, sort_keys=True
)


def _with_extra_files(meta: ManifestFileMeta, *names: str) -> ManifestFileMeta:
    return dataclasses.replace(meta, others=((_FIELD, list(names)),))


def _add_sidecars(table: Table) -> None:
    """Rewrite every manifest list as Paimon 2.1 writes it, and create the sidecars."""
    root = Path(table.store.root)
    for path in root.glob("manifest/manifest-list-*"):
        metas = decode_manifest_list(path.read_bytes(), str(path))
        named = [_with_extra_files(meta, f"{meta.file_name}.avro.sidecar") for meta in metas]
        path.write_bytes(encode_manifest_list(named))
        for meta in named:
            (root / "manifest" / meta.sidecars[0]).write_bytes(b"PMSC")
    for path in root.glob("snapshot/snapshot-*"):
        text = json.loads(path.read_text())
        for key in ("baseManifestList", "deltaManifestList", "changelogManifestList"):
            if text.get(key):
                text[f"{key}Size"] = (root / "manifest" / text[key]).stat().st_size
        path.write_text(json.dumps(text))


def _files(table: Table) -> tuple[set[str], set[str]]:
    """Return the names of the manifests in the directory, and of the manifests that have a sidecar."""
    names = {path.name for path in Path(table.store.root).glob("manifest/manifest-*") if "list" not in path.name}
    sidecars = {name.removesuffix(".avro.sidecar") for name in names if name.endswith(".sidecar")}
    return {name for name in names if not name.endswith(".sidecar")}, sidecars


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = keyed(tmp_path, changelog_producer="input")
    for version in range(5):
        table.write(rows(range(version * 10, version * 10 + 30), v=version))
    table.compact(full=True)
    _add_sidecars(table)
    table.store.clock.advance(2 * HOUR)
    return table


def test_expiry_deletes_a_manifests_sidecar_with_the_manifest(table: Table) -> None:
    before = content(table)
    table.expire_snapshots(retain_max=1)
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    manifests, sidecars = _files(table)
    assert manifests
    assert sidecars == manifests
    assert content(table) == before
    assert_whole(table)


def test_sidecars_in_use_are_no_orphans_and_strays_are(table: Table) -> None:
    directory = Path(table.store.root) / "manifest"
    stray = directory / "manifest-00000000-0000-4000-8000-000000000000-0.avro.sidecar"
    stray.write_bytes(b"PMSC")
    table.store.clock.advance(48 * HOUR)
    old = table.store.clock.now_ms() / 1000 - 24 * 3600
    for path in directory.iterdir():
        os.utime(path, (old, old))
    plan = table.plan_maintenance("orphans", older_than_ms=table.store.clock.now_ms() - HOUR, max_share=100)
    assert [item.path for item in plan.items_of(DeleteItem)] == [f"manifest/{stray.name}"]
    assert [item.kind for item in plan.items_of(DeleteItem)] == ["manifest-sidecar"]
    assert "unknown" not in {item.reason for item in plan.declined}


def test_commits_write_the_sidecars_names_back(table: Table) -> None:
    table.write(rows([1], v=9))
    snapshot = table.latest_snapshot()
    assert isinstance(snapshot, Snapshot)
    path = Path(table.store.manifest_path(snapshot.base_manifest_list))
    metas = decode_manifest_list(path.read_bytes(), str(path))
    assert metas
    assert all(meta.sidecars == (f"{meta.file_name}.avro.sidecar",) for meta in metas)


@pytest.mark.parametrize(
    "name",
    ["manifest-other", "../../victim", "manifest-1", "x/manifest-1.avro.sidecar", "manifest-1./../v.sidecar", ""],
)
def test_extra_files_of_a_manifest_list_never_name_other_files(table: Table, name: str) -> None:
    snapshot = table.latest_snapshot()
    assert isinstance(snapshot, Snapshot)
    path = Path(table.store.manifest_path(snapshot.delta_manifest_list))
    (meta, *_) = decode_manifest_list(path.read_bytes(), str(path))
    assert meta.sidecars
    forged = _with_extra_files(dataclasses.replace(meta, file_name="manifest-1"), name)
    (again,) = decode_manifest_list(encode_manifest_list([forged]), "forged")
    assert again.others
    assert again.sidecars == ()
