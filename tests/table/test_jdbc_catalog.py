"""A catalog in a database: databases and tables are what its rows say, and the same tables lie where the file system's catalog looks."""

from __future__ import annotations

import json
import threading
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange
from lsm_core.cli.app import run
from lsm_core.errors import (
    DatabaseExists,
    DatabaseNotFound,
    DredgeError,
    MetastoreFailed,
    StorageRefused,
    TableExists,
    TableNotFound,
)
from lsm_core.locks.database import Database
from lsm_core.sql.procedures import prepare_call
from lsm_core.table.jdbc_metastore import JdbcMetastore
from lsm_core.table.metastore import FolderMetastore

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
KEYED = Schema(FIELDS, ["k"], options={"bucket": "1"})


@pytest.fixture
def options(database_address: str) -> dict[str, str]:
    return {"metastore": "jdbc", "uri": database_address, "catalog-key": f"c-{uuid.uuid4()}"}


@pytest.fixture
def catalog(tmp_path: Path, options: dict[str, str]) -> Catalog:
    made = Catalog(tmp_path / "wh", options)
    made.create_database("db")
    return made


def rows(options: dict[str, str], statement: str) -> list[tuple[Any, ...]]:
    with Database(options["uri"]).transaction() as sql:
        return sorted(sql.rows(statement, key=options["catalog-key"]))


def test_databases_and_tables_come_and_go(tmp_path: Path, catalog: Catalog, options: dict[str, str]) -> None:
    with pytest.raises(DatabaseExists, match="database db"):
        catalog.create_database("db")
    catalog.create_database("db", ignore_if_exists=True)
    catalog.create_database("b2")
    assert catalog.list_databases() == ["b2", "db"]
    table = catalog.create_table("db.t", KEYED)
    catalog.create_table("db.a", Schema(FIELDS, options={"bucket": "-1"}))
    table.write(pa.table({"k": [1, 2], "v": ["a", "b"]}, schema=FIELDS))
    assert catalog.list_tables("db") == ["a", "t"]
    with pytest.raises(TableExists, match=r"db\.t"):
        catalog.create_table("db.t", KEYED)
    assert catalog.create_table("db.t", KEYED, ignore_if_exists=True).primary_keys == ("k",)
    with pytest.raises(DatabaseExists, match="still holds 2 tables"):
        catalog.drop_database("db")
    catalog.alter_table(
        "db.t", [SchemaChange.add_column("w", pa.int32()), SchemaChange.set_option("write-only", "true")]
    )
    catalog.rename_table("db.t", "b2.moved")
    assert (catalog.list_tables("db"), catalog.list_tables("b2")) == (["a"], ["moved"])
    with pytest.raises(TableExists, match=r"db\.a"):
        catalog.rename_table("b2.moved", "db.a")
    with pytest.raises(TableNotFound, match=r"db\.t is not in .* database db has: a"):
        catalog.table("db.t")
    other = Catalog(tmp_path / "wh", options)  # as another process opens it
    assert other.table("b2.moved").to_arrow().column("v").to_pylist() == ["a", "b"]
    assert rows(options, "SELECT database_name, table_name FROM paimon_tables WHERE catalog_key = :key") == [
        ("b2", "moved"),
        ("db", "a"),
    ]
    kept = "SELECT property_key, property_value FROM paimon_table_properties WHERE catalog_key = :key AND table_name = 'moved'"
    assert dict(rows(options, kept)) == {"bucket": "1", "bucket-key": "k", "primary-key": "k", "write-only": "true"}
    catalog.drop_table("b2.moved")
    with pytest.raises(TableNotFound, match=r"b2\.moved"):
        catalog.drop_table("b2.moved")
    catalog.drop_table("b2.moved", ignore_if_not_exists=True)
    assert rows(options, kept) == []
    catalog.drop_database("b2")
    catalog.drop_database("db", cascade=True)
    assert catalog.list_databases() == []
    with pytest.raises(DatabaseNotFound, match="db"):
        catalog.list_tables("db")
    assert not list((tmp_path / "wh").iterdir())
    for name in ("paimon_tables", "paimon_database_properties", "paimon_table_properties"):
        assert rows(options, f"SELECT 1 FROM {name} WHERE catalog_key = :key") == []


def test_the_file_systems_catalog_reads_and_writes_the_same_tables(tmp_path: Path, catalog: Catalog) -> None:
    catalog.create_table("db.t", KEYED).write(pa.table({"k": [1], "v": ["a"]}, schema=FIELDS))
    folders = Catalog(tmp_path / "wh")
    assert (folders.list_databases(), folders.list_tables("db")) == (["db"], ["t"])
    folders.table("db.t").write(pa.table({"k": [2], "v": ["b"]}, schema=FIELDS))
    assert catalog.table("db.t").to_arrow().num_rows == 2
    folders.create_table("db.unlisted", KEYED)
    assert catalog.list_tables("db") == ["t"]
    with pytest.raises(TableExists, match=r"db\.unlisted"):
        catalog.create_table("db.unlisted", KEYED)
    with pytest.raises(TableExists, match=r"db\.unlisted"):
        catalog.rename_table("db.t", "db.unlisted")
    assert catalog.list_tables("db") == ["t"]  # the rows were put back


def test_catalogs_of_another_key_do_not_see_each_other(
    tmp_path: Path, options: dict[str, str], catalog: Catalog
) -> None:
    other = Catalog(tmp_path / "elsewhere", {**options, "catalog-key": f"c-{uuid.uuid4()}"})
    assert other.list_databases() == []
    other.create_database("db")
    other.create_table("db.mine", KEYED)
    assert catalog.list_tables("db") == []


def test_a_table_is_made_once_by_many(tmp_path: Path, options: dict[str, str], catalog: Catalog) -> None:
    outcomes: list[str] = []

    def make() -> None:
        try:
            Catalog(tmp_path / "wh", options).create_table("db.t", KEYED)
            outcomes.append("made")
        except TableExists:
            outcomes.append("there")

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made", "there", "there", "there"]


def test_names_in_the_database_reach_no_other_directory(
    tmp_path: Path, options: dict[str, str], catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.create_table("db.t", KEYED)
    with Database(options["uri"]).transaction() as sql:
        for database, table in (("db", "../../evil"), ("../up", "t"), ("db", "a%2e")):
            sql.run("INSERT INTO paimon_tables VALUES (:key, :d, :t)", key=options["catalog-key"], d=database, t=table)
    assert catalog.list_databases() == ["db"]
    assert catalog.list_tables("db") == ["t"]
    assert "left out of the catalog" in caplog.text
    catalog.drop_database("db", cascade=True)
    assert catalog.list_databases() == []


def test_a_table_whose_row_cannot_be_written_leaves_nothing(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = JdbcMetastore._write_properties

    def fails(*given: Any) -> None:
        written(*given)
        raise MetastoreFailed("db", "connection lost")

    with monkeypatch.context() as broken:
        broken.setattr(JdbcMetastore, "_write_properties", fails)
        with pytest.raises(MetastoreFailed, match="connection lost"):
            catalog.create_table("db.t", KEYED)
    assert catalog.list_tables("db") == []
    assert catalog.create_table("db.t", KEYED).to_arrow().num_rows == 0


def test_a_rename_that_the_directory_refuses_changes_no_row(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.create_table("db.t", KEYED)

    def refused(*_: Any) -> bool:
        raise StorageRefused("/w/t", "read-only", "move")

    with monkeypatch.context() as broken:
        broken.setattr(FolderMetastore, "move_table", refused)
        with pytest.raises(StorageRefused):
            catalog.rename_table("db.t", "db.u")
    assert catalog.list_tables("db") == ["t"]
    assert catalog.table("db.t").to_arrow().num_rows == 0


def test_the_command_line_takes_the_catalogs_options(
    tmp_path: Path,
    catalog: Catalog,
    options: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog.create_table("db.t", KEYED).write(pa.table({"k": [1], "v": ["a"]}, schema=FIELDS))
    Catalog(tmp_path / "wh").create_table("db.unlisted", KEYED)
    given = [part for key, value in options.items() for part in ("--catalog-option", f"{key}={value}")]
    assert run(["tables", "-w", str(tmp_path / "wh"), *given]) == 0
    assert capsys.readouterr().out == "db.t\n"
    assert (
        run(["status", "db.t", "-w", str(tmp_path / "wh"), *given, "--catalog-option", "lock.enabled=true", "--json"])
        == 0
    )
    assert f"the lock '{options['catalog-key']}.db.t'" in json.loads(capsys.readouterr().out)["guarantee"]
    assert (
        run(["compact", "db.t", "--full", "-w", str(tmp_path / "wh"), *given, "--catalog-option", "lock.enabled=true"])
        == 0
    )
    monkeypatch.setenv("DREDGE_CATALOG_OPTIONS", json.dumps(options))
    capsys.readouterr()
    assert run(["tables", "-w", str(tmp_path / "wh")]) == 0
    assert capsys.readouterr().out == "db.t\n"
    assert run(["tables", "-w", str(tmp_path / "wh"), "--catalog-option", "metastore=glue"]) == 1
    assert "filesystem, jdbc" in capsys.readouterr().err
    monkeypatch.setenv("DREDGE_CATALOG_OPTIONS", "jdbc.password=hunter2")
    assert run(["tables", "-w", str(tmp_path / "wh")]) == 1
    assert "hunter2" not in capsys.readouterr().err


def test_without_its_password_nothing_is_reached_or_told(
    tmp_path: Path, postgresql_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DREDGE_JDBC_PASSWORD", "wrong secret")
    with pytest.raises(MetastoreFailed, match="password authentication failed") as failure:
        Catalog(tmp_path / "wh", {"metastore": "jdbc", "uri": postgresql_address})
    assert "wrong secret" not in str(failure.value)
    assert isinstance(failure.value, DredgeError)


def test_a_copy_in_another_warehouse_is_listed_there_after_a_repair(
    tmp_path: Path, catalog: Catalog, options: dict[str, str]
) -> None:
    catalog.create_table("db.t", KEYED).write(pa.table({"k": [1], "v": ["a"]}, schema=FIELDS))
    other = Catalog(tmp_path / "other", {**options, "catalog-key": f"o-{uuid.uuid4()}"})
    call = f"CALL sys.copy_files(target_warehouse => '{tmp_path / 'other'}', database => 'db', `table` => 't')"
    lines = prepare_call(catalog, call).apply().lines
    assert lines[-1].endswith("other warehouse lists db.t after CALL sys.repair('db.t') in that catalog")
    assert other.list_databases() == []
    repair = prepare_call(other, "CALL sys.repair('db.t')")
    assert repair.plan().lines == ["would enter db.t in the catalog's list"]
    assert other.list_databases() == []
    repair.apply()
    assert other.list_tables("db") == ["t"]
    assert other.table("db.t").to_arrow().column("v").to_pylist() == ["a"]
    assert not other.register_table("db.t")
    with pytest.raises(TableNotFound, match="no folder of such a table"):
        other.register_table("db.none")
    assert not Catalog(tmp_path / "other").register_table("db.t")
