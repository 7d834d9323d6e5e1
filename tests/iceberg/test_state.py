"""State of Iceberg metadata: files of the real Java Paimon, the choice of the version, and hostile content."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lsm_core.errors import CorruptFile, InvalidOption
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.iceberg import state as iceberg
from lsm_core.metadata import TableStore
from lsm_core.options import TableOptions
from lsm_core.storage import LocalFileIO
from tests.metadata.tables import make_store

DATA = Path(__file__).parent.parent / "data" / "iceberg"


def _store(root: Path, **options: str) -> TableStore:
    root.mkdir(parents=True)
    return make_store(root, options={f"metadata.iceberg.{key.replace('_', '-')}": v for key, v in options.items()})


def _metadata(**members: Any) -> bytes:
    snapshot = {"snapshot-id": 3, "timestamp-ms": 9, "manifest-list": "/w/metadata/snap-1-a.avro", "summary": {}}
    known = {"format-version": 2, "table-uuid": "u", "last-updated-ms": 9, "snapshots": [snapshot]}
    return json.dumps({**known, "current-snapshot-id": 3, "refs": {}, **members}).encode()


@pytest.mark.parametrize("version", ["1.4.2", "2.1-SNAPSHOT"])
def test_metadata_of_java(version: str) -> None:
    path = DATA / f"java-{version}.metadata.json"
    state = iceberg.decode_state(path.read_bytes(), str(path), 8, 8)

    assert state.current_snapshot_id == 8
    assert [snapshot.snapshot_id for snapshot in state.snapshots] == list(range(1, 9))
    assert state.refs == {"t1": 4}
    assert state.snapshot_ids == frozenset(range(1, 9))
    assert len(state.manifest_lists) == 8
    assert all("/" not in name for name in state.manifest_lists)
    current = state.current
    assert current is not None
    assert current.summary["operation"] == {"1.4.2": "overwrite", "2.1-SNAPSHOT": "replace"}[version]
    assert (current.commit_identity is None) == (version == "1.4.2")


def test_folders_follow_the_options(tmp_path: Path) -> None:
    beside = _store(tmp_path / "house/shop.db/a", storage="Table-Location")
    catalog = _store(tmp_path / "house/shop.db/b", storage="hadoop-catalog")
    moved = _store(tmp_path / "house/shop.db/c", storage="hive-catalog", storage_location="table-location")
    off = _store(tmp_path / "house/shop.db/d")

    assert iceberg.metadata_folder(beside) == f"{beside.root}/metadata"
    assert iceberg.metadata_folder(catalog) == str(tmp_path / "house/iceberg/shop/b/metadata")
    assert iceberg.metadata_folder(moved) == f"{moved.root}/metadata"
    assert iceberg.metadata_folder(off) is None


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    store = _store(tmp_path / "house/shop/a", storage="hadoop-catalog")
    with pytest.raises(InvalidOption, match=r"storage-location.*table-location"):
        iceberg.metadata_folder(store)


def test_the_catalogs_folder_is_in_the_tables_own_store() -> None:
    assert iceberg.catalog_folder("s3://lake/shop.db/t") == "s3://lake/iceberg/shop/t/metadata"
    assert iceberg.catalog_folder("s3://lake/house/shop.db/t/") == "s3://lake/house/iceberg/shop/t/metadata"
    for root in ("s3://shop.db/t", "/shop.db/t", "/house/.db/t", "/house/...db/t", "/house/shop/t", "shop.db/t"):
        assert iceberg.catalog_folder(root) is None
        assert iceberg.warehouse_of(root) is None


def test_an_unknown_storage_is_refused() -> None:
    options = TableOptions({"metadata.iceberg.storage": "somewhere"}, "db.t", stored=True)
    with pytest.raises(InvalidOption, match="somewhere"):
        iceberg.storage_of(options)


def test_readers_go_on_from_the_hint(tmp_path: Path) -> None:
    store = _store(tmp_path / "house/shop.db/a", storage="table-location")
    folder = Path(store.root) / "metadata"
    assert iceberg.read_state(store) is None
    folder.mkdir()
    assert iceberg.read_state(store) is None

    for version in (3, 4, 9):
        (folder / f"v{version}.metadata.json").write_bytes(_metadata())
    (folder / "v10.metadata.json.crc").write_text("x")
    (folder / "version-hint.text").write_text("3\n")
    assert iceberg.current_version(LocalFileIO(), str(folder)) == 4
    (folder / "version-hint.text").write_text("7")  # its file is lost
    assert iceberg.current_version(LocalFileIO(), str(folder)) == 9
    (folder / "version-hint.text").write_text("../../etc")
    state = iceberg.read_state(store)
    assert state is not None
    assert (state.version, state.hint, state.path) == (9, None, str(folder / "v9.metadata.json"))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"snapshots": [{"snapshot-id": 3, "timestamp-ms": 9, "manifest-list": "/w/.."}]}, "names no file"),
        ({"snapshots": [{"snapshot-id": 3, "timestamp-ms": 9, "manifest-list": "/w/"}]}, "names no file"),
        ({"snapshots": [{"snapshot-id": "3", "timestamp-ms": 9, "manifest-list": "/w/a"}]}, "snapshot-id"),
        ({"snapshots": {"3": {}}}, "snapshots"),
        ({"refs": ["main"]}, "refs"),
        ({"refs": {"main": {"snapshot-id": None}}}, "snapshot-id"),
        ({"refs": {"x" * 5000: {"snapshot-id": 3}}}, "characters"),
        ({"table-uuid": 7}, "table-uuid"),
        ({"current-snapshot-id": 1 << 70}, "64 bits"),
    ],
)
def test_damaged_metadata_is_one_clear_error(members: dict[str, Any], message: str) -> None:
    with pytest.raises(CorruptFile, match=message):
        iceberg.decode_state(_metadata(**members), "/w/metadata/v3.metadata.json", 3)


def test_a_table_without_snapshots_has_no_current_one() -> None:
    state = iceberg.decode_state(_metadata(snapshots=None, **{"current-snapshot-id": -1}), "/w/v3.metadata.json", 3)
    assert state.current is None
    assert state.current_snapshot_id is None


def test_identity_of_a_commit(tmp_path: Path) -> None:
    snapshot = Snapshot(3, 0, "base", "delta", "me", 7, CommitKind.APPEND, 9)
    assert iceberg.commit_identity(replace(snapshot, uuid="a-b")) == "a-b"
    plain = iceberg.commit_identity(replace(snapshot, uuid=None))
    assert plain == "me:7:9"

    def described(identity: str | None, snapshot_id: int = 3) -> bool:
        summary = {} if identity is None else {iceberg.COMMIT_IDENTITY: identity}
        entry = {"snapshot-id": 3, "timestamp-ms": 9, "manifest-list": "/w/a.avro", "summary": summary}
        state = iceberg.decode_state(_metadata(snapshots=[entry]), "/w/v3.metadata.json", 3)
        return iceberg.describes(state, replace(snapshot, id=snapshot_id, uuid="a-b"))

    assert described("a-b")
    assert described(None)
    assert not described("another")
    assert not described("a-b", snapshot_id=4)
