"""Entries of Iceberg metadata in a Hive metastore: their life, faults, and entries and addresses of others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pymetastore.hive_metastore import ttypes

from lsm_core import Catalog, Table
from lsm_core.errors import UnsupportedFeature
from lsm_core.iceberg.freshness import IcebergCondition, read_view
from lsm_core.iceberg.hive_entry import URI, _Entry, entry_names
from lsm_core.table.schema_change import SchemaChange
from tests.support.hive_double import Fault, HiveDouble

FIELDS = pa.schema([("k", pa.int64()), ("v", pa.string())])
HIVE = {"metadata.iceberg.storage": "hive-catalog", "bucket": "-1"}
ALTER = "alter_table_with_environment_context"
pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")
    monkeypatch.delenv("HIVE_CONF_DIR", raising=False)
    monkeypatch.delenv("DREDGE_ALLOWED_PLACES", raising=False)
    monkeypatch.setattr("lsm_core.locks.hive_client.HiveClient._pause", lambda *arguments: None)


@pytest.fixture
def double(tmp_path: Path) -> Iterator[HiveDouble]:
    (tmp_path / "house").mkdir()
    server = HiveDouble(str(tmp_path / "house"))
    yield server
    server.close()


def _make(tmp_path: Path, **options: str) -> Table:
    """Create db.t in a catalog of the file system."""
    catalog = Catalog(str(tmp_path / "house"))
    catalog.create_database("db", ignore_if_exists=True)
    chosen = {**HIVE, **{f"metadata.iceberg.{key.replace('_', '-')}": value for key, value in options.items()}}
    return catalog.create_table("db.t", FIELDS, options=chosen)


def _allowed(tmp_path: Path, double: HiveDouble, monkeypatch: pytest.MonkeyPatch, **options: str) -> Table:
    monkeypatch.setenv("DREDGE_ALLOWED_PLACES", double.uri)
    return _make(tmp_path, uri=double.uri, **options)


def _write(table: Table, key: int = 1) -> None:
    table.write(pa.table({"k": [key], "v": ["a"]}, schema=FIELDS))


def _folder(tmp_path: Path) -> str:
    return f"file:{tmp_path}/house/iceberg/db/t/metadata"


def _condition(table: Table) -> IcebergCondition:
    view = read_view(table.store)
    assert view is not None
    return view.condition


def test_the_entry_follows_each_commit(tmp_path: Path, double: HiveDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _allowed(tmp_path, double, monkeypatch, hive_skip_update_stats="true")
    _write(table)
    entry = double.tables[("db", "t")]
    first = f"{_folder(tmp_path)}/v1.metadata.json"
    assert entry.parameters == {
        "DO_NOT_UPDATE_STATS": "true",
        "EXTERNAL": "TRUE",
        "table_type": "ICEBERG",
        "metadata_location": first,
    }
    assert (entry.tableType, entry.sd.location) == ("EXTERNAL_TABLE", f"file:{tmp_path}/house/iceberg/db/t")
    assert entry.sd.inputFormat == "org.apache.hadoop.mapred.FileInputFormat"
    assert entry.sd.outputFormat == "org.apache.hadoop.mapred.FileOutputFormat"
    assert entry.sd.serdeInfo.serializationLib == "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
    assert [(column.name, column.type) for column in entry.sd.cols] == [("k", "bigint"), ("v", "string")]
    assert double.databases["db"].locationUri == f"file:{tmp_path}/house/iceberg/db"
    entry.parameters["own"] = "kept"
    catalog = Catalog(str(tmp_path / "house"))
    catalog.alter_table("db.t", [SchemaChange.add_column("w", "INT")])
    catalog.table("db.t").write(pa.table({"k": [2], "v": ["b"], "w": pa.array([3], pa.int32())}))
    entry = double.tables[("db", "t")]
    assert entry.parameters["metadata_location"] == f"{_folder(tmp_path)}/v2.metadata.json"
    assert (entry.parameters["previous_metadata_location"], entry.parameters["own"]) == (first, "kept")
    assert [column.name for column in entry.sd.cols] == ["k", "v", "w"]
    assert _condition(catalog.table("db.t")) is IcebergCondition.CURRENT


def test_a_table_is_entered_in_each_database(
    tmp_path: Path, double: HiveDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _allowed(
        tmp_path, double, monkeypatch, database="One; two", table="Shown", storage_location="table-location"
    )
    _write(table)
    assert sorted(double.tables) == [("one", "shown"), ("two", "shown")]
    named = {entry.parameters["metadata_location"] for entry in double.tables.values()}
    assert named == {f"file:{table.store.root}/metadata/v1.metadata.json"}
    assert entry_names(table.store) == [("one", "shown"), ("two", "shown")]


@pytest.mark.parametrize("kind", ["cut-before", "cut-after", "error"])
@pytest.mark.parametrize("method", ["create_table", ALTER])
def test_a_lost_answer_is_looked_up(
    tmp_path: Path, double: HiveDouble, monkeypatch: pytest.MonkeyPatch, method: str, kind: str
) -> None:
    table = _allowed(tmp_path, double, monkeypatch)
    if method == ALTER:
        _write(table)
    double.calls.clear()
    double.faults.append(Fault(method, kind))
    _write(table, 2)
    latest = 2 if method == ALTER else 1
    assert double.calls.count(method) == (1 if kind == "cut-after" else 2)
    location = double.tables[("db", "t")].parameters["metadata_location"]
    assert location == f"{_folder(tmp_path)}/v{latest}.metadata.json"
    assert Path(location.removeprefix("file:")).exists()


def test_a_dead_metastore_costs_a_warning_and_a_refresh_repairs_it(
    tmp_path: Path, double: HiveDouble, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = _allowed(tmp_path, double, monkeypatch)
    _write(table)
    double.refused |= {ALTER}
    with caplog.at_level(logging.WARNING):
        _write(table, 2)
    assert "snapshot 2 is committed, but its Iceberg metadata" in caplog.text
    named = double.tables[("db", "t")].parameters["metadata_location"].removeprefix("file:")
    assert named.endswith("/v1.metadata.json")
    assert Path(named).exists()  # readers of the entry go on with the older metadata
    view = read_view(table.store)
    assert view is not None
    assert view.condition is IcebergCondition.UNLISTED
    assert "names v1.metadata.json in place of version 2" in view.text
    double.refused.clear()
    plan = table.plan_maintenance("refresh_iceberg")
    assert len(plan.items) == 1
    table.apply(plan)
    assert double.tables[("db", "t")].parameters["metadata_location"].endswith("/v2.metadata.json")
    assert not Path(named).exists()
    assert not table.plan_maintenance("refresh_iceberg").items


def test_entries_of_others_stay(
    tmp_path: Path, double: HiveDouble, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = _allowed(tmp_path, double, monkeypatch)
    double.databases["db"] = ttypes.Database("db", None, f"file:{tmp_path}/house/db.db", {})
    foreign = f"file:{tmp_path}/other"
    paimon = "org.apache.paimon.hive.mapred.PaimonInputFormat"
    kinds = [
        ("org.example.Input", foreign, {}),
        ("org.example.Input", f"file:{tmp_path}/house/iceberg/db/t", {}),
        ("x", foreign, {"table_type": "iceberg", "metadata_location": f"{foreign}/metadata/v1.metadata.json"}),
        ("x", f"file:{tmp_path}/house/iceberg/db/t", {"table_type": "ICEBERG", "metadata_location": "s3://b/m/v1"}),
        (paimon, foreign, {"table_type": "PAIMON"}),
    ]
    for number, (form, location, parameters) in enumerate(kinds, start=1):
        storage = ttypes.StorageDescriptor([], location, form, form)
        entry = ttypes.Table("t", "db", "o", 0, 0, 0, storage, [], dict(parameters), tableType="EXTERNAL_TABLE")
        double.tables[("db", "t")] = entry
        caplog.clear()
        _write(table, number)
        assert "is not that of the metadata" in caplog.text, number
        assert double.tables[("db", "t")].parameters == parameters, number
        assert _condition(table) is IcebergCondition.UNLISTED


@pytest.mark.parametrize("names_address", [True, False])
def test_the_paimon_table_of_a_hive_catalog_becomes_readable(double: HiveDouble, names_address: bool) -> None:
    catalog = Catalog(double.warehouse, {"metastore": "hive", "uri": double.uri})
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", FIELDS, options=HIVE | ({URI: double.uri} if names_address else {}))
    _write(table)
    entry = double.tables[("shop", "t")]
    assert entry.parameters["table_type"] == "ICEBERG"
    assert entry.parameters["metadata_location"].endswith("/iceberg/shop/t/metadata/v1.metadata.json")
    assert entry.sd.inputFormat == "org.apache.paimon.hive.mapred.PaimonInputFormat"
    assert catalog.list_tables("shop") == ["t"]
    _write(catalog.table("shop.t"), 2)
    assert catalog.table("shop.t").to_arrow().num_rows == 2
    assert double.tables[("shop", "t")].parameters["metadata_location"].endswith("/v2.metadata.json")
    catalog.drop_table("shop.t")
    assert not double.tables


@pytest.mark.parametrize("allows", ["nothing", "place", "file", "catalog-file"])
def test_an_address_of_the_tables_own_needs_the_operator(
    tmp_path: Path, double: HiveDouble, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, allows: str
) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    pair = f"<property><name>hive.metastore.uris</name><value>{double.uri}</value></property>"
    (conf / "hive-site.xml").write_text(f"<configuration>{pair}</configuration>")
    # The table's own folder of settings is not read.
    table = _make(tmp_path, hive_conf_dir=str(conf), **({} if allows == "catalog-file" else {"uri": double.uri}))
    if allows == "place":
        monkeypatch.setenv("DREDGE_ALLOWED_PLACES", double.uri)
    elif allows != "nothing":
        monkeypatch.setenv("HIVE_CONF_DIR", str(conf))
    _write(table)
    if allows == "nothing":
        assert double.connections == 0
        assert "an address that the operator allows" in caplog.text
        assert _condition(table) is IcebergCondition.UNLISTED
        assert double.connections == 0
    else:
        assert list(double.tables) == [("db", "t")]


def test_a_status_asks_a_silent_metastore_once_a_minute(
    tmp_path: Path, double: HiveDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _allowed(tmp_path, double, monkeypatch)
    _write(table)
    double.faults.append(Fault("*", "cut-before", times=100))
    assert _condition(table) is IcebergCondition.UNLISTED
    asked = len(double.calls)
    assert _condition(table) is IcebergCondition.UNLISTED
    assert len(double.calls) == asked
    double.faults.clear()
    _write(table, 2)  # the answer to a commit ends the minute
    assert _condition(table) is IcebergCondition.CURRENT


def test_commits_that_overtake_each_other_leave_the_newest_entry(
    tmp_path: Path, double: HiveDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    _allowed(tmp_path, double, monkeypatch)

    def commit(keys: range) -> None:
        table = Catalog(str(tmp_path / "house")).table("db.t")
        for key in keys:
            _write(table, key)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(commit, [range(4)] * 4))
    location = double.tables[("db", "t")].parameters["metadata_location"]
    assert location == f"{_folder(tmp_path)}/v16.metadata.json"
    assert Path(location.removeprefix("file:")).exists()


def test_an_entry_of_a_commit_that_was_overtaken_is_corrected(
    tmp_path: Path, double: HiveDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _allowed(tmp_path, double, monkeypatch)
    _write(table)
    put, others = _Entry.put, iter([lambda: _write(Catalog(str(tmp_path / "house")).table("db.t"), 3)])

    def late(self: _Entry, version: int) -> None:
        """Let another commit take place before this one is entered."""
        for commit in others:
            commit()
        put(self, version)

    monkeypatch.setattr(_Entry, "put", late)
    _write(table, 2)
    assert double.tables[("db", "t")].parameters["metadata_location"].endswith("/v3.metadata.json")
    assert _condition(table) is IcebergCondition.CURRENT


def test_a_rollback_takes_the_entry_back(tmp_path: Path, double: HiveDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _allowed(tmp_path, double, monkeypatch)
    for key in range(3):
        _write(table, key)
    table.rollback_to(2)
    assert double.tables[("db", "t")].parameters["metadata_location"].endswith("/v2.metadata.json")
    assert _condition(table) is IcebergCondition.CURRENT


@pytest.mark.parametrize(
    ("options", "feature"),
    [
        ({"hive_client_class": "com.amazonaws.glue.Client"}, r"com\.amazonaws\.glue\.Client"),
        ({"glue.skip_archive": "true"}, "AWS Glue"),
    ],
)
def test_other_clients_are_refused(tmp_path: Path, options: dict[str, str], feature: str) -> None:
    with pytest.raises(UnsupportedFeature, match=feature):
        _write(_make(tmp_path, **options))


@pytest.mark.parametrize("name", ["../x", "a;;b", "a b", "x" * 129])
def test_names_that_hive_does_not_have_cost_a_warning(
    tmp_path: Path,
    double: HiveDouble,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    _write(_allowed(tmp_path, double, monkeypatch, database=name))
    assert "metadata.iceberg.database" in caplog.text
    assert not double.tables
