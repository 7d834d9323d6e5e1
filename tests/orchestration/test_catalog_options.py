"""The platform and Spark's data source open the catalog that options name, not only the file system's."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from dredge.platform_core.resources.warehouse import LedgerResource, WarehouseResource, describe_warehouse
from lsm_core import Catalog, Schema
from lsm_core.errors import InvalidOption, LockTimeout, TableNotFound
from lsm_core.locks import LockSettings, held, table_lock

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False)])


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    """Options of a JDBC catalog that lists one of the two tables of a warehouse."""
    given = {
        "metastore": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path / 'c.db'}",
        "lock.enabled": "true",
        "lock-acquire-timeout": "40 ms",
    }
    listed, folders = Catalog(tmp_path / "wh", given), Catalog(tmp_path / "wh")
    listed.create_database("db")
    for catalog, name in ((listed, "db.listed"), (folders, "db.unlisted")):
        catalog.create_table(name, Schema(FIELDS, ["k"], options={"bucket": "1"})).write(
            pa.table({"k": [1]}, schema=FIELDS)
        )
    return given


@pytest.mark.parametrize("as_json", [False, True])
def test_the_platform_looks_after_the_tables_of_the_catalog(
    tmp_path: Path, options: dict[str, str], as_json: bool
) -> None:
    plain = " ".join(f"{key}={value.replace(' ', '')}" for key, value in options.items())
    spelled = json.dumps(options) if as_json else plain
    warehouse = WarehouseResource.from_environment(
        {"DREDGE_WAREHOUSE": str(tmp_path / "wh"), "DREDGE_CATALOG_OPTIONS": spelled}
    )
    assert [card.name for card in describe_warehouse(warehouse)] == ["db.listed"]
    assert LedgerResource.of(warehouse).entries("db.listed") == []
    store = warehouse.store("db.listed")
    lock = table_lock(store.file_io, store.root, store.name, store.options, store.clock, "a job")
    assert lock is not None
    with held(lock, LockSettings(lease=60_000)), pytest.raises(LockTimeout, match=r"a job on .*"):
        warehouse.table("db.listed").write(pa.table({"k": [2]}, schema=FIELDS))
    with pytest.raises(InvalidOption, match="secrets"):
        WarehouseResource(path=str(tmp_path / "wh"), catalog_options={"jdbc.password": "x"}).catalog()


def test_sparks_data_source_takes_options_of_the_catalog(tmp_path: Path, options: dict[str, str]) -> None:
    from lsm_core.spark.data_source import table_to_read, table_to_write

    place = {"warehouse": str(tmp_path / "wh"), "table": "db.listed", **options}
    assert table_to_read(place).to_arrow().num_rows == 1
    assert table_to_write(place).options.get("dredge.lock") == "jdbc"
    assert "dredge.lock" in table_to_write(place).to_json()  # as it travels to tasks
    with pytest.raises(TableNotFound, match="unlisted"):
        table_to_read({**place, "table": "db.unlisted"})
    with pytest.raises(InvalidOption, match="those of a catalog"):
        table_to_read({**place, "metastores": "jdbc"})
