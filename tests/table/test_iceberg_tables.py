"""Iceberg metadata of tables that are dropped, renamed, copied or created again."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.iceberg.freshness import IcebergCondition, read_view
from lsm_core.iceberg.state import metadata_folder, read_state

ROWS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
STORAGES = ["table-location", "hadoop-catalog"]


def _table(folder: Path, storage: str) -> tuple[Catalog, Table]:
    catalog = Catalog(str(folder))
    for database in ("shop", "other"):
        catalog.create_database(database)
    options = {"bucket": "1", "write-only": "true", "metadata.iceberg.storage": storage}
    table = catalog.create_table("shop.t", ROWS, primary_keys=["k"], options=options)
    for key in range(2):
        table.write(pa.table({"k": [key], "v": ["a"]}, schema=ROWS))
    table.compact(full=True)
    return catalog, table


def _addresses(table: Table) -> set[str]:
    """Return the folders that the current metadata of a table names, after a check that it is current."""
    view, state = read_view(table.store), read_state(table.store)
    assert view is not None and state is not None
    assert view.condition is IcebergCondition.CURRENT
    members = json.loads(Path(state.path).read_text())
    lists = {snapshot["manifest-list"].rpartition("/")[0] for snapshot in members["snapshots"]}
    return {members["location"], *lists}


@pytest.mark.parametrize("storage", STORAGES)
def test_a_renamed_table_has_metadata_with_its_new_addresses(tmp_path: Path, storage: str) -> None:
    catalog, table = _table(tmp_path, storage)
    before = read_state(table.store)
    catalog.rename_table("shop.t", "other.u")
    renamed = catalog.table("other.u")
    folder = metadata_folder(renamed.store)
    assert _addresses(renamed) == {renamed.store.root, folder}
    after = read_state(renamed.store)
    assert before is not None and after is not None
    assert (after.table_uuid == before.table_uuid) == (storage == "table-location")
    assert not (tmp_path / "iceberg/shop/t").exists()


def test_metadata_that_another_engine_renamed_is_found_and_written_anew(tmp_path: Path) -> None:
    catalog, table = _table(tmp_path, "table-location")
    Path(table.store.root).rename(tmp_path / "shop.db/u")
    moved = catalog.table("shop.u")
    view = read_view(moved.store)
    assert view is not None
    assert view.condition is IcebergCondition.MOVED
    assert "renamed or copied" in view.text
    moved.apply(moved.plan_maintenance("refresh_iceberg"))
    assert _addresses(moved) == {moved.store.root, f"{moved.store.root}/metadata"}


@pytest.mark.parametrize("storage", STORAGES)
def test_a_dropped_table_takes_its_metadata_along(tmp_path: Path, storage: str) -> None:
    catalog, _ = _table(tmp_path, storage)
    beside = tmp_path / "iceberg/shop/another/metadata"
    beside.mkdir(parents=True)
    catalog.drop_table("shop.t")
    assert not list(tmp_path.rglob("*.metadata.json"))
    assert beside.exists()
    assert not (tmp_path / "iceberg/shop/t").exists()


def test_a_dropped_database_takes_the_metadata_of_its_tables_along(tmp_path: Path) -> None:
    catalog, _ = _table(tmp_path, "hadoop-catalog")
    catalog.drop_database("shop", cascade=True)
    assert not list(tmp_path.rglob("*.metadata.json"))


def test_a_link_in_the_catalogs_warehouse_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    catalog, _ = _table(tmp_path, "hadoop-catalog")
    (tmp_path / "iceberg/shop").rename(tmp_path / "elsewhere")
    (tmp_path / "iceberg/shop").symlink_to(tmp_path / "elsewhere")
    catalog.drop_table("shop.t")
    assert (tmp_path / "elsewhere/t/metadata/version-hint.text").exists()
    assert "was not deleted" in caplog.text


@pytest.mark.parametrize("storage", STORAGES)
def test_a_copy_has_metadata_of_its_own(tmp_path: Path, storage: str) -> None:
    catalog, table = _table(tmp_path, storage)
    table.apply(table.plan_maintenance("copy_table", target="other.copy"))
    copy = catalog.table("other.copy")
    assert _addresses(copy) == {copy.store.root, metadata_folder(copy.store)}
    states = [read_state(store) for store in (table.store, copy.store)]
    assert None not in states
    assert len({state.table_uuid for state in states if state is not None}) == 2


@pytest.mark.parametrize("storage", STORAGES)
def test_a_table_of_the_same_name_is_a_new_iceberg_table(tmp_path: Path, storage: str) -> None:
    catalog, table = _table(tmp_path, storage)
    before = read_state(table.store)
    catalog.drop_table("shop.t")
    options = {"bucket": "1", "metadata.iceberg.storage": storage}
    again = catalog.create_table("shop.t", ROWS, primary_keys=["k"], options=options)
    again.write(pa.table({"k": [1], "v": ["b"]}, schema=ROWS))
    after = read_state(again.store)
    assert before is not None and after is not None
    assert after.table_uuid != before.table_uuid
    assert after.snapshot_ids == {1}
