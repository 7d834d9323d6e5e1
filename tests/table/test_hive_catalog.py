"""Catalogs of a Hive metastore: tables, entries for Hive's readers, hostile answers and lost answers. Without Java."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pymetastore.hive_metastore import ttypes

from lsm_core import Catalog, Table
from lsm_core.errors import (
    CorruptFile,
    DatabaseExists,
    DatabaseNotFound,
    InvalidOption,
    InvalidSchema,
    MetastoreFailed,
    StorageRefused,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lsm_core.table.schema_change import SchemaChange
from tests.support.hive_double import Fault, HiveDouble

KEYED = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
PLAIN = pa.schema([("v", pa.int64())])


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HiveDouble]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("lsm_core.locks.hive_client.HiveClient._pause", lambda *arguments: None)
    (tmp_path / "warehouse").mkdir()
    server = HiveDouble(str(tmp_path / "warehouse"))
    yield server
    server.close()


@pytest.fixture
def catalog(double: HiveDouble) -> Catalog:
    catalog = Catalog(double.warehouse, {"metastore": "hive", "uri": double.uri})
    catalog.create_database("shop")
    return catalog


def _append(catalog: Catalog, name: str, **options: str) -> None:
    catalog.create_table(name, PLAIN, options={"bucket": "-1", **options})


def _other(double: HiveDouble, name: str, location: str, **parameters: str) -> None:
    """Enter a table that is not Paimon's."""
    storage = ttypes.StorageDescriptor([], location, "org.example.Input", "org.example.Output")
    table = ttypes.Table(name, "shop", "o", 0, 0, 0, storage, [], parameters, tableType="EXTERNAL_TABLE")
    double.tables[("shop", name)] = table


# -- the life of a table -----------------------------------------------------------------------------------------------


def test_a_table_lives_in_the_metastore(catalog: Catalog, double: HiveDouble) -> None:
    table = catalog.create_table("shop.orders", KEYED, primary_keys=["k"], options={"bucket": "1"}, comment="sales")
    table.write(pa.table({"k": [1, 2], "v": ["a", "b"]}))
    table.write(pa.table({"k": [2], "v": ["c"]}))
    assert table.compact(full=True).verification.level == "V2"
    assert catalog.list_databases() == ["default", "shop"]
    assert catalog.list_tables("shop") == ["orders"]
    assert catalog.table("shop.orders").to_arrow().column("v").to_pylist() == ["a", "c"]
    assert catalog.rename_table("shop.orders", "shop.sales")
    assert catalog.list_tables("shop") == ["sales"]
    assert catalog.table("shop.sales").to_arrow().num_rows == 2
    assert os.listdir(f"{double.warehouse}/shop.db") == ["sales"]
    assert catalog.drop_table("shop.sales")
    assert os.listdir(f"{double.warehouse}/shop.db") == []
    with pytest.raises(TableNotFound, match="database shop has: none"):
        catalog.table("shop.sales")
    assert not catalog.drop_table("shop.sales", ignore_if_not_exists=True)
    assert catalog.drop_database("shop")
    assert os.listdir(double.warehouse) == []
    with pytest.raises(DatabaseNotFound, match="database shop"):
        catalog.table("shop.orders")


def test_the_entry_is_that_of_java(catalog: Catalog, double: HiveDouble) -> None:
    fields = [("p", pa.string()), pa.field("k", pa.int64(), nullable=False, metadata={"comment": "c" * 300})]
    schema = pa.schema([pa.field("p", pa.string(), nullable=False), fields[1]])
    options = {"bucket": "2", "metastore.partitioned-table": "true"}
    catalog.create_table("shop.t", schema, primary_keys=["p", "k"], partition_keys=["p"], options=options, comment="x")
    entry = double.tables[("shop", "t")]
    assert entry.parameters == {
        **options,
        "primary-key": "p,k",
        "partition": "p",
        "bucket-key": "k",
        "comment": "x",
        "table_type": "PAIMON",
        "storage_handler": "org.apache.paimon.hive.PaimonStorageHandler",
    }
    assert (entry.tableType, entry.retention) == ("MANAGED_TABLE", 2**31 - 1)
    assert [(column.name, column.type) for column in entry.partitionKeys] == [("p", "string")]
    assert [(column.name, column.type) for column in entry.sd.cols] == [("k", "bigint")]
    assert entry.sd.location == f"file:{double.warehouse}/shop.db/t"
    assert entry.sd.inputFormat == "org.apache.paimon.hive.mapred.PaimonInputFormat"
    assert entry.sd.outputFormat == "org.apache.paimon.hive.mapred.PaimonOutputFormat"
    assert entry.sd.serdeInfo.serializationLib == "org.apache.paimon.hive.PaimonSerDe"


def test_a_change_keeps_the_entry_in_step(catalog: Catalog, double: HiveDouble) -> None:
    _append(catalog, "shop.t", **{"snapshot.num-retained.max": "50"})
    double.tables[("shop", "t")].parameters["own"] = "kept"
    changes = [
        SchemaChange.add_column("w", "INT"),
        SchemaChange.rename_column("v", "u"),
        SchemaChange.set_option("snapshot.num-retained.min", "5"),
        SchemaChange.remove_option("snapshot.num-retained.max"),
        SchemaChange.set_comment("new"),
    ]
    catalog.alter_table("shop.t", changes)
    entry = double.tables[("shop", "t")]
    assert [(column.name, column.type) for column in entry.sd.cols] == [("u", "bigint"), ("w", "int")]
    assert entry.parameters["own"] == "kept"
    assert entry.parameters["comment"] == "new"
    assert entry.parameters["snapshot.num-retained.min"] == "5"
    assert "snapshot.num-retained.max" not in entry.parameters


def test_without_sync_only_properties_for_hive_are_written(double: HiveDouble) -> None:
    options = {"metastore": "hive", "uri": double.uri, "sync-all-properties": "false"}
    catalog = Catalog(double.warehouse, options)
    catalog.create_table("shop.t", PLAIN, options={"bucket": "-1", "hive.x": "1"}, create_database=True)
    assert {**double.tables[("shop", "t")].parameters, "storage_handler": ""} == {
        "x": "1",
        "table_type": "PAIMON",
        "storage_handler": "",
    }


def test_locations_in_properties(double: HiveDouble) -> None:
    options = {"metastore": "hive", "uri": double.uri, "location-in-properties": "true"}
    catalog = Catalog(double.warehouse, options)
    _append_in(catalog, "shop.t")
    assert double.databases["shop"].parameters == {"paimon_location": f"file:{double.warehouse}/shop.db"}
    assert double.tables[("shop", "t")].parameters["paimon_location"] == f"file:{double.warehouse}/shop.db/t"
    assert double.tables[("shop", "t")].sd.location is None
    catalog.table("shop.t").write(pa.table({"v": [1]}))
    assert catalog.drop_database("shop", cascade=True)
    assert os.listdir(double.warehouse) == []


def _append_in(catalog: Catalog, name: str) -> None:
    catalog.create_table(name, PLAIN, options={"bucket": "-1"}, create_database=True)


def test_a_database_with_its_own_location(catalog: Catalog, double: HiveDouble, tmp_path: Path) -> None:
    double.databases["far"] = ttypes.Database("far", "", f"file://{tmp_path}/far away", {})
    _append(catalog, "far.t")
    catalog.table("far.t").write(pa.table({"v": [1]}))
    assert catalog.table("far.t").store.root == f"{tmp_path}/far away/t"
    assert catalog.rename_table("far.t", "shop.t")
    assert catalog.table("shop.t").store.root == f"{double.warehouse}/shop.db/t"
    assert catalog.table("shop.t").to_arrow().num_rows == 1


def test_the_metastore_chooses_the_folder_without_a_warehouse(double: HiveDouble) -> None:
    catalog = Catalog(f"hive:{double.uri}")
    _append_in(catalog, "shop.t")
    assert catalog.table("shop.t").store.root == f"{double.warehouse}/shop.db/t"
    assert repr(catalog) == f"Catalog('{double.uri}')"
    assert len(catalog.plan_maintenance("shop", ["compact"]).hash) > 0


@pytest.mark.parametrize("where", ["catalog", "table"])
def test_the_files_of_an_external_table_stay(double: HiveDouble, where: str) -> None:
    rule = {"table.type": "external"} if where == "catalog" else {}
    catalog = Catalog(double.warehouse, {"metastore": "hive", "uri": double.uri, **rule})
    catalog.create_database("shop")
    options = {} if where == "catalog" else {"EXTERNAL": "true"}
    _append(catalog, "shop.t", **options)
    entry = double.tables[("shop", "t")]
    assert (entry.tableType, entry.parameters["EXTERNAL"]) == ("EXTERNAL_TABLE", "TRUE")
    catalog.table("shop.t").write(pa.table({"v": [1]}))
    folder = f"{double.warehouse}/shop.db/t"
    assert catalog.rename_table("shop.t", "shop.u")
    assert catalog.table("shop.u").store.root == folder
    assert catalog.drop_table("shop.u")
    assert os.path.isdir(f"{folder}/snapshot")
    _append(catalog, "shop.t", **options)  # the folder is taken again
    assert catalog.table("shop.t").to_arrow().num_rows == 1
    catalog.drop_table("shop.t")
    with pytest.raises(InvalidSchema, match="other columns"):
        catalog.create_table("shop.t", KEYED, options={"bucket": "-1", **options})


def test_a_folder_that_is_not_listed_can_be_registered(catalog: Catalog, double: HiveDouble) -> None:
    _append(catalog, "shop.t")
    catalog.table("shop.t").write(pa.table({"v": [1]}))
    del double.tables[("shop", "t")]
    with pytest.raises(TableExists, match="register_table"):
        _append(catalog, "shop.t")
    assert catalog.register_table("shop.t", dry_run=True)
    assert catalog.list_tables("shop") == []
    assert catalog.register_table("shop.t")
    assert not catalog.register_table("shop.t")
    assert catalog.table("shop.t").to_arrow().num_rows == 1


def test_copies_into_the_warehouse_are_listed(catalog: Catalog, double: HiveDouble, tmp_path: Path) -> None:
    _append(catalog, "shop.t")
    catalog.table("shop.t").write(pa.table({"v": [1]}))

    def copy_to(target: str) -> None:
        table = catalog.table("shop.t")
        table.apply(table.plan_maintenance("copy_table", target=target))

    copy_to("shop.u")
    copy_to("archive.t")  # with a new database
    assert catalog.list_tables("shop") == ["t", "u"]
    assert catalog.table("archive.t").to_arrow().num_rows == 1
    double.databases["far"] = ttypes.Database("far", "", f"file://{tmp_path}/far", {})
    with pytest.raises(TableNotFound, match="folder of its database"):
        copy_to("far.t")
    assert catalog.list_tables("far") == []


def test_copies_are_listed_without_a_warehouse_folder(catalog: Catalog, double: HiveDouble, tmp_path: Path) -> None:
    _append(catalog, "shop.t")
    by_address = Catalog(f"hive:{double.uri}")
    by_address.table("shop.t").write(pa.table({"v": [1]}))

    def copy_to(target: str) -> list[str]:
        table = by_address.table("shop.t")
        return table.apply(table.plan_maintenance("copy_table", target=target)).lines("shop.t")

    assert "lists" not in " ".join(copy_to("shop.u"))
    assert by_address.list_tables("shop") == ["t", "u"]
    assert "a JDBC or Hive catalog" in copy_to("archive.t")[-1]  # the metastore would choose the database's folder
    for seen in (by_address, catalog):
        table = seen.table("shop.t")
        with pytest.raises(InvalidSchema, match="lower case: 'upper'"):
            table.plan_maintenance("copy_table", target="shop.Upper")
    assert not (tmp_path / "warehouse" / "shop.db" / "Upper").exists()


def test_branches_and_system_tables(catalog: Catalog, double: HiveDouble) -> None:
    _append(catalog, "shop.t")
    table = catalog.table("shop.t")
    table.write(pa.table({"v": [1]}))
    table.create_branch("dev")
    calls = len(double.calls)
    catalog.alter_table("shop.t$branch_dev", [SchemaChange.add_column("w", "INT")])
    assert "alter_table_with_environment_context" not in double.calls[calls:]
    assert catalog.table("shop.t$branch_dev").schema.field_names == ("v", "w")
    with pytest.raises(TableNotFound, match="no branch 'none'"):
        catalog.table("shop.t$branch_none")
    assert catalog.table("shop.t$snapshots").to_arrow().num_rows == 1
    assert catalog.table("sys.tables").to_arrow().num_rows == 1


def test_many_tables_are_listed_in_batches(catalog: Catalog, double: HiveDouble) -> None:
    _append(catalog, "shop.t")
    entry = double.tables[("shop", "t")]
    for number in range(1000):
        double.tables[("shop", f"t{number}")] = copy.copy(entry)
        double.tables[("shop", f"t{number}")].tableName = f"t{number}"
    double.calls.clear()
    assert len(catalog.list_tables("shop")) == 1001
    assert double.calls == ["get_database", "get_table_names_by_filter"]
    catalog.read_ahead("shop")
    assert double.calls.count("get_table_objects_by_name_req") == 4
    double.calls.clear()
    catalog.store("shop.t")
    assert double.calls == []
    double.refused = {"get_table_names_by_filter"}  # as with a SQL database that compares no long texts
    assert len(catalog.list_tables("shop")) == 1001
    assert double.calls.count("get_table_objects_by_name_req") == 4


# -- partitions --------------------------------------------------------------------------------------------------------

PARTITIONED = pa.schema([pa.field("day", pa.date32()), ("h", pa.string()), ("v", pa.int64())])


def _partitioned(catalog: Catalog, **options: str) -> Table:
    options = {"bucket": "-1", "metastore.partitioned-table": "true", **options, "partition.legacy-name": "false"}
    return catalog.create_table("shop.p", PARTITIONED, partition_keys=["day", "h"], options=options)


def _rows(*places: tuple[int, str | None]) -> pa.Table:
    days, hours = zip(*places, strict=True)
    columns = [pa.array(days, pa.int32()).cast(pa.date32()), pa.array(hours, pa.string()), pa.array(range(len(days)))]
    return pa.Table.from_arrays(columns, schema=PARTITIONED)


def test_the_metastore_lists_the_partitions_of_commits(catalog: Catalog, double: HiveDouble) -> None:
    table = _partitioned(catalog)
    table.write(_rows((0, "a"), (1, "b/c"), (1, None)))
    listed = {values: part.sd.location for (_, _, values), part in double.partitions.items()}
    folder = f"file:{double.warehouse}/shop.db/p"
    assert listed == {
        ("1970-01-01", "a"): f"{folder}/day=1970-01-01/h=a",
        ("1970-01-02", "b/c"): f"{folder}/day=1970-01-02/h=b%2Fc",
        ("1970-01-02", "__DEFAULT_PARTITION__"): f"{folder}/day=1970-01-02/h=__DEFAULT_PARTITION__",
    }
    calls = double.calls.count("add_partitions_req")
    table.write(_rows((0, "a")))
    table.compact(full=True)
    assert double.calls.count("add_partitions_req") == calls  # this process knows them
    table.drop_partitions([{"day": "1970-01-02"}])
    assert [values for _, _, values in double.partitions] == [("1970-01-01", "a")]
    table.write(_rows((5, "x")), overwrite={})
    assert ("1970-01-06", "x") in {values for _, _, values in double.partitions}


def test_a_partition_that_another_branch_has_stays_listed(catalog: Catalog, double: HiveDouble) -> None:
    table = _partitioned(catalog)
    table.write(_rows((0, "a"), (1, "b")))
    table.create_branch("dev", from_snapshot=1)
    table.drop_partitions([{"h": "a"}])
    assert len(double.partitions) == 2
    catalog.table("shop.p$branch_dev").drop_partitions([{"h": "a"}])
    assert [values for _, _, values in double.partitions] == [("1970-01-02", "b")]


@pytest.mark.parametrize("kind", ["cut-before", "cut-after"])
def test_a_lost_answer_about_partitions_is_sent_again(catalog: Catalog, double: HiveDouble, kind: str) -> None:
    table = _partitioned(catalog)
    double.faults = [Fault("add_partitions_req", kind), Fault("drop_partition", kind)]
    table.write(_rows((0, "a")))
    assert len(double.partitions) == 1
    table.drop_partitions([{"h": "a"}])
    assert double.partitions == {}


def test_a_commit_stands_without_the_list_and_a_registration_repairs_it(
    catalog: Catalog, double: HiveDouble, caplog: pytest.LogCaptureFixture
) -> None:
    table = _partitioned(catalog)
    double.refused = {"add_partitions_req"}
    assert table.write(_rows((0, "a"), (1, "b"))) == 1
    assert "snapshot 1 is published, but the metastore's list of partitions" in caplog.text
    assert double.partitions == {}
    double.refused = set()
    assert not catalog.register_table("shop.p")
    assert len(double.partitions) == 2


def test_partitions_are_marked_done_in_the_metastore(catalog: Catalog, double: HiveDouble) -> None:
    table = _partitioned(catalog, **{"partition.mark-done-action": "mark-event,success-file"})
    table.write(_rows((0, "a")))
    table.mark_partitions_done([{"day": "1970-01-01", "h": "a"}])
    assert double.done == [("shop", "p", {"day": "1970-01-01", "h": "a"})]
    assert os.path.isfile(f"{double.warehouse}/shop.db/p/day=1970-01-01/h=a/_SUCCESS")


def test_without_the_option_no_partitions_are_listed(catalog: Catalog, double: HiveDouble) -> None:
    options = {"bucket": "-1"}
    table = catalog.create_table("shop.q", PARTITIONED, partition_keys=["day", "h"], options=options)
    table.write(_rows((0, "a")))
    assert double.partitions == {}
    assert double.tables[("shop", "q")].partitionKeys == []


# -- entries of other kinds --------------------------------------------------------------------------------------------


def test_entries_of_other_kinds_are_never_touched(catalog: Catalog, double: HiveDouble, tmp_path: Path) -> None:
    _other(double, "berg", f"file:{tmp_path}/berg", table_type="ICEBERG")
    _other(double, "seen", "")
    double.tables[("shop", "seen")].tableType = "VIRTUAL_VIEW"
    double.tables[("shop", "seen")].sd = None
    _append(catalog, "shop.t")
    assert catalog.list_tables("shop") == ["t"]
    assert catalog.other_tables("shop") == {"berg": "iceberg", "seen": "view"}
    for work in (
        lambda: catalog.table("shop.berg"),
        lambda: catalog.drop_table("shop.berg"),
        lambda: catalog.rename_table("shop.berg", "shop.x"),
        lambda: catalog.alter_table("shop.berg", [SchemaChange.add_column("w", "INT")]),
        lambda: _append(catalog, "shop.berg"),
        lambda: catalog.rename_table("shop.t", "shop.berg"),
    ):
        with pytest.raises(UnsupportedFeature, match="iceberg"):
            work()
    with pytest.raises(UnsupportedFeature, match="view"):
        catalog.table("shop.seen")
    with pytest.raises(DatabaseExists, match=r"berg \(iceberg\)"):
        catalog.drop_database("shop", cascade=True)
    assert sorted(double.tables) == [("shop", "berg"), ("shop", "seen"), ("shop", "t")]
    assert os.path.isdir(f"{double.warehouse}/shop.db/t")


# -- hostile answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "location",
    ["", "relative/t", "/", "file:///", "/warehouse/../etc", "gopher://h/t", "/a\x00b", "s3://", "s3://user:pw@b/t"],
)
def test_unsafe_locations_are_refused(catalog: Catalog, double: HiveDouble, location: str) -> None:
    _append(catalog, "shop.t")
    double.tables[("shop", "t")].sd.location = location
    for work in (catalog.table, catalog.drop_table):
        with pytest.raises(MetastoreFailed, match=r"table shop\.t"):
            work("shop.t")
    assert os.path.isdir(f"{double.warehouse}/shop.db/t/schema")


def test_the_folder_of_another_table_is_never_used(catalog: Catalog, double: HiveDouble) -> None:
    catalog.create_database("other")
    for name in ("shop.a", "shop.b", "other.a"):
        _append(catalog, name)
        catalog.table(name).write(pa.table({"v": [1]}))
    folder = double.tables[("shop", "b")].sd.location
    for key in (("shop", "a"), ("other", "a")):
        double.tables[key].sd.location = folder
        name = ".".join(key)
        with pytest.raises(CorruptFile, match=r"folder of table shop\.b"):
            catalog.table(name)
        with pytest.raises(StorageRefused, match=r"lists it for table shop"):
            catalog.drop_table(name)
        with pytest.raises((StorageRefused, CorruptFile)):
            catalog.rename_table(name, "shop.c")
    with pytest.raises(StorageRefused):
        catalog.drop_table("shop.b")  # two entries name its folder: which of them owns it is not known
    with pytest.raises(StorageRefused):
        catalog.drop_database("other", cascade=True)
    assert os.path.isdir(f"{double.warehouse}/shop.db/b/snapshot")
    assert len(double.tables) == 3


@pytest.mark.parametrize("place", ["", "/shop.db"])
def test_the_warehouse_and_a_database_are_never_deleted(catalog: Catalog, double: HiveDouble, place: str) -> None:
    _append(catalog, "shop.t")
    folder = f"{double.warehouse}{place}"
    os.makedirs(f"{folder}/schema")
    Path(f"{folder}/schema/schema-0").write_bytes(Path(f"{double.warehouse}/shop.db/t/schema/schema-0").read_bytes())
    double.tables[("shop", "t")].sd.location = f"file:{folder}"
    with pytest.raises(StorageRefused, match=r"warehouse|database shop"):
        catalog.drop_table("shop.t")
    assert os.path.isdir(f"{double.warehouse}/shop.db/t/schema")
    assert ("shop", "t") in double.tables


def test_a_folder_inside_or_around_another_table_is_never_deleted(catalog: Catalog, double: HiveDouble) -> None:
    for name in ("shop.a", "shop.b"):
        _append(catalog, name)
    inner = f"{double.warehouse}/shop.db/b/nested"
    os.makedirs(f"{inner}/schema")
    Path(f"{inner}/schema/schema-0").write_bytes(Path(f"{double.warehouse}/shop.db/a/schema/schema-0").read_bytes())
    double.tables[("shop", "a")].sd.location = inner
    for name in ("shop.a", "shop.b"):
        with pytest.raises(StorageRefused, match="lists it for table"):
            catalog.drop_table(name)
    assert os.path.isdir(inner)


def test_a_folder_without_a_schema_is_never_deleted(catalog: Catalog, double: HiveDouble, tmp_path: Path) -> None:
    _append(catalog, "shop.t")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one").write_text("kept")
    double.tables[("shop", "t")].sd.location = f"file:{tmp_path}/photos"
    with pytest.raises(CorruptFile, match="no file in schema"):
        catalog.table("shop.t")
    with pytest.raises(CorruptFile, match="nothing was deleted"):
        catalog.drop_table("shop.t")
    assert (tmp_path / "photos" / "one").read_text() == "kept"
    double.tables[("shop", "t")].sd.location = f"file:{tmp_path}/missing"
    assert catalog.drop_table("shop.t")  # an entry without files


def test_a_symbolic_link_is_never_followed_by_a_drop(catalog: Catalog, double: HiveDouble, tmp_path: Path) -> None:
    _append(catalog, "shop.t")
    os.rename(f"{double.warehouse}/shop.db/t", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", f"{double.warehouse}/shop.db/t")
    with pytest.raises(StorageRefused, match="symbolic link"):
        catalog.drop_table("shop.t")
    assert (tmp_path / "elsewhere" / "schema").is_dir()


def test_unsafe_names_are_left_out(catalog: Catalog, double: HiveDouble) -> None:
    _append(catalog, "shop.t")
    for name in ("a/b", "..", "x$files", "", " "):
        entry = copy.copy(double.tables[("shop", "t")])
        entry.tableName = name
        double.tables[("shop", name)] = entry
        double.databases[name] = ttypes.Database(name, "", "", {})
    assert catalog.list_tables("shop") == ["t"]
    assert catalog.list_databases() == ["default", "shop"]
    with pytest.raises(DatabaseExists, match="5 other entries"):
        catalog.drop_database("shop", cascade=True)


def test_empty_answers_are_one_error(catalog: Catalog, double: HiveDouble) -> None:
    _append(catalog, "shop.t")
    double.tables[("shop", "t")].sd = None
    with pytest.raises(UnsupportedFeature, match="kind 'paimon"):
        catalog.table("shop.t")
    double.tables[("shop", "t")].parameters = None
    with pytest.raises(UnsupportedFeature, match="kind"):
        catalog.table("shop.t")
    double.databases["shop"].locationUri = None
    with pytest.raises(MetastoreFailed, match="unsafe folder for database shop"):
        _append(catalog, "shop.u")


@pytest.mark.parametrize("name", ["shop.Orders", "Shop.orders"])
def test_names_in_upper_case_are_refused(catalog: Catalog, name: str) -> None:
    with pytest.raises((InvalidSchema, DatabaseNotFound)):
        _append(catalog, name)
    with pytest.raises(InvalidSchema, match="lower case"):
        catalog.create_database("Other")


def test_tags_as_partitions_are_refused(catalog: Catalog) -> None:
    with pytest.raises(UnsupportedFeature, match=r"metastore\.tag-to-partition"):
        _append(catalog, "shop.t", **{"metastore.tag-to-partition": "day"})


# -- lost answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cut-before", "cut-after", "error"])
def test_a_lost_answer_is_looked_up(catalog: Catalog, double: HiveDouble, kind: str) -> None:
    sent = 1 if kind == "cut-after" else 2
    for method, work in {
        "create_database": lambda: catalog.create_database("new"),
        "create_table": lambda: _append(catalog, "new.t"),
        "alter_table_with_environment_context": lambda: catalog.rename_table("new.t", "new.u"),
        "drop_table": lambda: catalog.drop_table("new.u"),
        "drop_database": lambda: catalog.drop_database("new"),
    }.items():
        double.faults, double.calls = [Fault(method, kind)], []
        work()
        assert double.calls.count(method) == sent, method
    assert sorted(double.databases) == ["default", "shop"]
    assert os.listdir(double.warehouse) == ["shop.db"]


@pytest.mark.parametrize("kind", ["cut-before", "cut-after"])
def test_a_lost_answer_to_a_change_is_looked_up(catalog: Catalog, double: HiveDouble, kind: str) -> None:
    _append(catalog, "shop.t")
    double.faults = [Fault("alter_table_with_environment_context", kind)]
    catalog.alter_table("shop.t", [SchemaChange.add_column("w", "INT")])
    assert [column.name for column in double.tables[("shop", "t")].sd.cols] == ["v", "w"]
    assert catalog.table("shop.t").schema.field_names == ("v", "w")


def test_a_refused_table_leaves_no_files(catalog: Catalog, double: HiveDouble) -> None:
    double.refused = {"create_table"}
    with pytest.raises(MetastoreFailed, match="refused by the test"):
        _append(catalog, "shop.t")
    assert os.listdir(f"{double.warehouse}/shop.db") == []
    double.refused = set()
    _append(catalog, "shop.t")
    double.refused = {"alter_table_with_environment_context"}
    with pytest.raises(InvalidSchema, match="refused by the test"):
        catalog.alter_table("shop.t", [SchemaChange.add_column("w", "INT")])
    double.refusal = "The following columns have types incompatible with the existing columns : w"
    with pytest.raises(InvalidSchema, match=r"disallow\.incompatible\.col\.type\.changes = false"):
        catalog.alter_table("shop.t", [SchemaChange.add_column("w", "INT")])
    assert catalog.table("shop.t").schema.field_names == ("v",)
    double.refused, double.refusal = {"create_table"}, "ünï is not a valid object name"
    with pytest.raises(MetastoreFailed, match="ASCII letters"):
        _append(catalog, "shop.ünï")


def test_an_unknown_outcome_deletes_nothing(catalog: Catalog, double: HiveDouble) -> None:
    double.faults = [Fault("create_table", "cut-before"), Fault("get_table_req", "cut-before", times=99)]
    double.faults[1].times = 99
    with pytest.raises(MetastoreFailed, match="get_table_req"):
        _append(catalog, "shop.t")  # not even looked up before the creation
    double.faults = [Fault("create_table", "cut-before", times=2)]
    with pytest.raises(MetastoreFailed, match="failed twice"):
        _append(catalog, "shop.t")
    assert os.listdir(f"{double.warehouse}/shop.db/t/schema") == ["schema-0"]


# -- options -----------------------------------------------------------------------------------------------------------


def test_the_address_may_come_from_hive_site(double: HiveDouble, tmp_path: Path) -> None:
    text = f"<configuration><property><name>hive.metastore.uris</name><value>{double.uri}</value></property>"
    (tmp_path / "hive-site.xml").write_text(f"{text}</configuration>")
    for catalog in (
        Catalog(double.warehouse, {"metastore": "hive", "hive-conf-dir": str(tmp_path)}),
        Catalog("hive:", {"hive-conf-dir": str(tmp_path), "warehouse": double.warehouse}),
    ):
        assert catalog.list_databases() == ["default"]
        assert catalog.root == double.warehouse


def test_contradicting_options_are_refused() -> None:
    with pytest.raises(InvalidOption, match="uri"):
        Catalog("hive:thrift://a:1", {"uri": "thrift://b:1"})
    with pytest.raises(InvalidOption, match="uri"):
        Catalog("/tmp/x", {"metastore": "hive"})
    with pytest.raises(UnsupportedFeature, match=r"metastore\.client\.class"):
        Catalog("hive:thrift://a:1", {"metastore.client.class": "com.amazonaws.glue.Client"})
    with pytest.raises(InvalidOption, match="secrets") as refusal:
        Catalog("hive:thrift://a:1", {"hive.metastore.client.plain.password": "hush"})
    assert "hush" not in str(refusal.value)
