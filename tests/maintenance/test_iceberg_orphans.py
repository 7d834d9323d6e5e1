"""Orphan removal in the folder of Iceberg metadata: what no version names goes, and all else stays."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.errors import CorruptFile
from lsm_core.format import avro
from lsm_core.maintenance.actions.orphans.orphan_removal import apply_orphans, plan_orphans
from lsm_core.maintenance.file_allowlist import OwnFiles
from lsm_core.maintenance.trash import DeleteItem
from lsm_core.metadata import TableStore
from lsm_core.metadata.store import SnapshotPublisher

ROWS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
LIST = {"type": "record", "name": "manifest_file", "fields": [{"name": "manifest_path", "type": "string"}]}
TEXT = "{0}{0}{0}{0}{0}{0}{0}{0}-{0}{0}{0}{0}-{0}{0}{0}{0}-{0}{0}{0}{0}-{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}"
LIVE, STRAY, OLDER = (TEXT.format(digit) for digit in "a1b")


def _house(folder: Path, storage: str) -> tuple[TableStore, Path]:
    """Return a table with one snapshot and the folder of its Iceberg metadata, in which every file is old."""
    catalog = Catalog(str(folder))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", ROWS, primary_keys=["k"], options={"bucket": "1", "write-only": "true"})
    table.write(pa.table({"k": [1], "v": ["a"]}, schema=ROWS))
    beside = storage == "table-location"
    metadata = Path(table.store.root) / "metadata" if beside else folder / "iceberg/shop/t/metadata"
    metadata.mkdir(parents=True)
    _list(metadata, f"snap-1-{LIVE}.avro", f"/elsewhere/{LIVE}-m1.avro")
    _list(metadata, f"snap-1-{OLDER}.avro", f"{metadata}/{OLDER}-m1.avro")
    _list(metadata, f"snap-9-{STRAY}.avro", f"{metadata}/{STRAY}-m1.avro")
    for name in (f"{LIVE}-m1.avro", f"{OLDER}-m1.avro", f"{STRAY}-m1.avro", f"{STRAY}-m2.avro", "notes.txt"):
        (metadata / name).write_bytes(b"x")
    (metadata / f".v1.metadata.json.{STRAY}.tmp").write_bytes(b"x")
    _version(metadata, 1, f"snap-1-{LIVE}.avro")
    _version(metadata, 7, f"snap-1-{OLDER}.avro")  # kept by metadata.iceberg.previous-versions-max
    (metadata / "version-hint.text").write_text("1")
    for path in (*metadata.iterdir(), *Path(table.store.root).rglob("*")):
        os.utime(path, (0, 0))
    return table.store.copy({"metadata.iceberg.storage": storage}), metadata


def _list(folder: Path, name: str, *manifests: str) -> None:
    (folder / name).write_bytes(avro.write_records(LIST, [{"manifest_path": path} for path in manifests]))


def _version(folder: Path, version: int, *lists: str) -> None:
    entries = [{"snapshot-id": n + 1, "timestamp-ms": 9, "manifest-list": f"/w/{name}"} for n, name in enumerate(lists)]
    members = {"format-version": 2, "table-uuid": "u", "last-updated-ms": 7, "current-snapshot-id": 1}
    (folder / f"v{version}.metadata.json").write_text(json.dumps({**members, "snapshots": entries}))


@pytest.mark.parametrize("storage", ["table-location", "hadoop-catalog"])
def test_only_what_no_version_names_is_removed(tmp_path: Path, storage: str) -> None:
    store, metadata = _house(tmp_path, storage)
    before = {path.name for path in metadata.iterdir()}
    plan = plan_orphans(store, max_share=100)
    strays = {f"snap-9-{STRAY}.avro", f"{STRAY}-m1.avro", f"{STRAY}-m2.avro", f".v1.metadata.json.{STRAY}.tmp"}
    assert {Path(item.path).name for item in plan.items_of(DeleteItem)} == strays
    assert {item.kind for item in plan.items_of(DeleteItem)} == {"iceberg", "temporary"}
    held = [item for item in plan.declined if item.reason == "held" and "Iceberg" in item.subject]
    assert {item.subject for item in held} == {"Iceberg metadata v1", "Iceberg metadata v7"}
    assert any(item.subject.endswith("notes.txt") and item.reason == "unknown" for item in plan.declined)

    direct = store.copy({"dredge.delete-mode": "direct"})
    apply_orphans(direct, plan_orphans(direct, max_share=100))
    assert {path.name for path in metadata.iterdir()} == before - strays


def test_a_named_file_is_kept_although_it_was_planned(tmp_path: Path) -> None:
    store, metadata = _house(tmp_path, "hadoop-catalog")
    plan = plan_orphans(store, max_share=100)
    _version(metadata, 2, f"snap-1-{LIVE}.avro", f"snap-9-{STRAY}.avro")
    report = apply_orphans(store, plan).report
    assert {Path(item.subject).name for item in report.held if item.text == "held by Iceberg metadata v2"} == {
        f"snap-9-{STRAY}.avro",
        f"{STRAY}-m1.avro",
    }


@pytest.mark.parametrize("damage", ["version", "list"])
def test_damaged_metadata_might_name_any_file(tmp_path: Path, damage: str) -> None:
    store, metadata = _house(tmp_path, "table-location")
    broken = metadata / ("v7.metadata.json" if damage == "version" else f"snap-1-{OLDER}.avro")
    broken.write_bytes(b"{")
    with pytest.raises(CorruptFile, match=broken.name.replace(".", r"\.")):
        plan_orphans(store, max_share=100)


def test_a_linked_folder_is_left_alone(tmp_path: Path) -> None:
    store, metadata = _house(tmp_path, "hadoop-catalog")
    elsewhere = tmp_path / "elsewhere"
    metadata.rename(elsewhere)
    metadata.symlink_to(elsewhere)
    plan = plan_orphans(store, max_share=100)
    assert not plan.items_of(DeleteItem)
    assert {item.reason for item in plan.declined if STRAY in item.subject} == {"link"}


def test_names_in_metadata_never_become_targets(tmp_path: Path) -> None:
    store, metadata = _house(tmp_path, "table-location")
    victim = Path(store.root) / "snapshot/snapshot-1"
    _list(metadata, f"snap-1-{LIVE}.avro", str(victim), f"../../{LIVE}-m1.avro", f"{metadata}/{LIVE}-m1.avro")
    os.utime(metadata / f"snap-1-{LIVE}.avro", (0, 0))
    names = {Path(item.path).name for item in plan_orphans(store, max_share=100).items_of(DeleteItem)}
    assert names == {f"snap-9-{STRAY}.avro", f"{STRAY}-m1.avro", f"{STRAY}-m2.avro", f".v1.metadata.json.{STRAY}.tmp"}


def test_a_catalog_server_steers_no_deletion_beside_the_table(tmp_path: Path) -> None:
    store, _ = _house(tmp_path, "hadoop-catalog")
    assert OwnFiles.of(store).iceberg == (f"{tmp_path}/iceberg/shop/t/metadata",)
    served = store.copy({}).published_by(cast("SnapshotPublisher", object()))
    assert OwnFiles.of(served).iceberg == ()


def test_a_table_that_never_had_the_option_does_not_look_there(tmp_path: Path) -> None:
    store, _ = _house(tmp_path, "table-location")
    plain = TableStore.open(store.file_io, store.root, store.name)
    plan = plan_orphans(plain, max_share=100)
    assert not plan.items_of(DeleteItem)
    assert [item.subject for item in plan.declined if item.subject.endswith("metadata")] == [f"{store.root}/metadata"]
