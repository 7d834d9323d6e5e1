"""The command line, Spark's data source and the platform's resource open a warehouse in a Hive metastore."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pymetastore.hive_metastore import ttypes

from lsm_core import Catalog
from lsm_core.cli.app import run
from tests.support.hive_double import HiveDouble

ROWS = pa.table({"k": [1, 2], "v": ["a", "b"]})


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HiveDouble]:
    """Yield a metastore with a table of three sorted runs and an Iceberg table."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("HIVE_CONF_DIR", raising=False)
    monkeypatch.setattr("lsm_core.locks.hive_client.HiveClient._pause", lambda *arguments: None)
    (tmp_path / "warehouse").mkdir()
    server = HiveDouble(str(tmp_path / "warehouse"))
    catalog = Catalog(f"hive:{server.uri}")
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    options = {"bucket": "1"}
    table = catalog.create_table("db.t", columns, primary_keys=["k"], options=options, create_database=True)
    for _ in range(3):
        table.write(ROWS, compact=False)
    storage = ttypes.StorageDescriptor([], f"file:{tmp_path}/b", "x.Input", "x.Output")
    server.tables[("db", "berg")] = ttypes.Table(
        "berg", "db", "o", 0, 0, 0, storage, [], {"table_type": "ICEBERG"}, tableType="EXTERNAL_TABLE"
    )
    yield server
    server.close()


def test_the_command_line_looks_after_a_table_of_a_metastore(
    double: HiveDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["-w", f"hive:{double.uri}"]
    assert run(["tables", *place]) == 0
    printed = capsys.readouterr()
    assert printed.out == "db.t\n"
    assert printed.err == "left out, because they are no Paimon tables: db.berg (iceberg)\n"
    assert run(["tables", *place, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ["db.t"]
    assert run(["doctor", *place]) == 0
    printed = capsys.readouterr()
    assert f"{double.uri} answers and lists 2 databases" in " ".join(printed.out.split())
    for words in (["status"], ["compact", "db.t", "--full"], ["doctor", "db.t"]):
        assert run([*words, *place]) == 0, words
    capsys.readouterr()
    assert run(["compact", "db.berg", *place]) == 1
    assert "kind 'iceberg'" in capsys.readouterr().err
    assert run(["tables", "none", *place]) == 1
    (tmp_path / "hive-site.xml").write_text(
        f"<c><property><name>hive.metastore.uris</name><value>{double.uri}</value></property></c>"
    )
    monkeypatch.setenv("DREDGE_CATALOG_OPTIONS", json.dumps({"hive-conf-dir": str(tmp_path)}))
    capsys.readouterr()
    assert run(["tables", "-w", "hive:"]) == 0
    assert capsys.readouterr().out == "db.t\n"


def test_the_doctor_says_that_a_metastore_does_not_answer(
    double: HiveDouble, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = double.uri
    double.close()
    assert run(["doctor", "-w", f"hive:{uri}", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    (finding,) = [each for each in findings if each["check"] == "Hive metastore"]
    assert finding["verdict"] == "fail" and "cannot be reached" in finding["text"]


def test_sparks_data_source_and_the_platform_take_the_options(double: HiveDouble) -> None:
    from dredge.platform_core.resources.warehouse import WarehouseResource, describe_warehouse
    from lsm_core.spark.data_source import table_to_read

    place = {"warehouse": f"hive:{double.uri}", "table": "db.t", "client-pool-size": "1"}
    read = table_to_read({**place, "hive.metastore.client.socket.timeout": "5s"})
    assert read.to_arrow().num_rows == 2
    for environment in (
        {"DREDGE_WAREHOUSE": f"hive:{double.uri}"},
        {"DREDGE_WAREHOUSE": double.warehouse, "DREDGE_CATALOG_OPTIONS": f"metastore=hive uri={double.uri}"},
    ):
        warehouse = WarehouseResource.from_environment(environment)
        assert [card.name for card in describe_warehouse(warehouse)] == ["db.t"]
