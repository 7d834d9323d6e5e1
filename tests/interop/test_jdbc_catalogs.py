"""One JDBC catalog, shared with the real Java Paimon: its rows, its tables and its locks, both ways."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange
from lsm_core.errors import LockTimeout, TableNotFound
from lsm_core.locks import LockSettings, held, table_lock
from lsm_core.locks.database import Database
from tests.support.databases import PASSWORD
from tests.support.peers import PAIMON_JAVA, missing

pytestmark = pytest.mark.paimon_java
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
SCHEMA = Schema(FIELDS, ["k"], options={"bucket": "1"}, comment="ours")
JAVA_SCHEMA = {
    "fields": [{"name": "k", "type": "BIGINT NOT NULL"}, {"name": "v", "type": "STRING"}],
    "primaryKeys": ["k"],
    "partitionKeys": [],
    "options": {"bucket": "1"},
}
Java = Callable[..., dict[str, Any]]


@pytest.fixture
def options(java: Java, database_address: str, tmp_path: Path) -> dict[str, str]:
    """Options of one catalog, which Java has opened on this test's warehouse."""
    if not list(PAIMON_JAVA.glob("sqlite-jdbc-*.jar")):
        missing("no JDBC drivers in .peers/paimon-java (run `make peers`)")
    shared = {
        "metastore": "jdbc",
        "uri": database_address,
        "catalog-key": f"shared-{tmp_path.name}",
        "lock.enabled": "true",
    }
    java("catalog_open", options={**shared, "jdbc.password": PASSWORD})
    return shared


def all_rows(options: dict[str, str]) -> dict[str, list[tuple[Any, ...]]]:
    """The catalog's rows, by table."""
    names = ("paimon_tables", "paimon_database_properties", "paimon_table_properties")
    with Database(options["uri"]).transaction() as sql:
        return {
            name: sorted(sql.rows(f"SELECT * FROM {name} WHERE catalog_key = :key", key=options["catalog-key"]))
            for name in names
        }


def test_java_and_dredge_share_a_catalog(java: Java, options: dict[str, str], tmp_path: Path) -> None:
    catalog = Catalog(tmp_path, options)
    # What each makes the other lists, reads, writes, alters, renames and drops.
    catalog.create_database("ours")
    java("catalog_create_database", database="theirs")
    assert java("catalog_databases")["names"] == catalog.list_databases() == ["ours", "theirs"]
    catalog.create_table("ours.t", SCHEMA).write(pa.table({"k": [1], "v": ["dredge"]}, schema=FIELDS))
    java("create", table="theirs.t", schema=JAVA_SCHEMA)
    java("write", table="theirs.t", rows=[{"k": 1, "v": "java"}])
    java("write", table="ours.t", rows=[{"k": 2, "v": "java"}])
    catalog.table("theirs.t").write(pa.table({"k": [2], "v": ["dredge"]}, schema=FIELDS))
    assert [row["v"] for row in java("read", table="ours.t")["rows"]] == ["dredge", "java"]
    assert catalog.table("theirs.t").to_arrow().column("v").to_pylist() == ["java", "dredge"]
    assert catalog.list_tables("theirs") == java("catalog_tables", database="theirs")["names"] == ["t"]
    # The rows of both are alike but for the names in them.
    rows = all_rows(options)
    alike = [
        [tuple(str(cell).replace("theirs", "ours") for cell in row) for row in found if name in row]
        for found in rows.values()
        for name in ("ours", "theirs")
    ]
    assert alike[0] == alike[1]
    assert alike[2] == alike[3]
    assert alike[4] == alike[5]
    java("alter", table="ours.t", changes=[{"change": "set_option", "key": "write-only", "value": "true"}])
    assert catalog.table("ours.t").options["write-only"] == "true"
    catalog.alter_table(
        "theirs.t", [SchemaChange.set_option("write-only", "true"), SchemaChange.add_column("w", pa.int32())]
    )
    assert [field["name"] for field in java("schema", table="theirs.t")["schema"]["fields"]] == ["k", "v", "w"]
    properties = all_rows(options)["paimon_table_properties"]
    assert {row[1]: row[4] for row in properties if row[3] == "write-only"} == {"ours": "true", "theirs": "true"}
    java("catalog_rename", table="ours.t", to="theirs.u")
    catalog.rename_table("theirs.t", "ours.u")
    assert catalog.list_tables("theirs") == ["u"]
    assert java("catalog_tables", database="ours")["names"] == ["u"]
    assert [row["v"] for row in java("read", table="ours.u")["rows"]] == ["java", "dredge"]
    assert catalog.table("theirs.u").to_arrow().num_rows == 2
    java("drop", table="ours.u")
    catalog.drop_table("theirs.u")
    with pytest.raises(TableNotFound):
        catalog.table("ours.u")
    assert java("catalog_tables", database="theirs")["names"] == []
    java("catalog_drop_database", database="ours")
    catalog.drop_database("theirs")
    assert all_rows(options) == {name: [] for name in all_rows(options)}
    assert java("catalog_databases")["names"] == []


def test_the_lock_is_one_for_both(java: Java, options: dict[str, str], tmp_path: Path) -> None:
    patient = Catalog(tmp_path, options)
    patient.create_database("db")
    table = patient.create_table("db.t", SCHEMA)
    assert java("catalog_lock", table="db.t", key=options["catalog-key"], timeout=60_000)["held"]
    hurried = Catalog(tmp_path, {**options, "lock-acquire-timeout": "80 ms"}).table("db.t")
    with pytest.raises(LockTimeout, match=r"held by another engine .* since 20"):
        hurried.write(pa.table({"k": [1], "v": ["x"]}, schema=FIELDS))
    assert table.latest_snapshot() is None
    release = threading.Timer(0.5, lambda: java("catalog_unlock"))
    began = time.monotonic()
    release.start()
    table.write(pa.table({"k": [1], "v": ["dredge"]}, schema=FIELDS))  # waits for Java to release
    assert time.monotonic() - began >= 0.4
    release.join()
    # And Java waits for us: its commit is not there while we hold the lock, and is afterwards.
    store = table.store
    lock = table_lock(store.file_io, store.root, store.name, store.options, store.clock, "me")
    assert lock is not None
    written = threading.Thread(target=lambda: java("write", rows=[{"k": 2, "v": "java"}]))
    with held(lock, LockSettings(lease=30_000)) as lease:
        written.start()
        time.sleep(1.0)
        assert [snapshot.id for snapshot in table.snapshots()] == [1]
        lease.require()
    written.join()
    assert table.to_arrow().column("v").to_pylist() == ["dredge", "java"]


def test_java_takes_over_from_a_silent_holder_who_then_publishes_nothing(
    java: Java, options: dict[str, str], tmp_path: Path
) -> None:
    catalog = Catalog(tmp_path, options)
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA).copy({"dredge.lock.lease": "1 s"})
    store = table.store
    lock = table_lock(store.file_io, store.root, store.name, store.options, store.clock, "frozen")
    assert lock is not None
    grant = lock.acquire()
    java("write", rows=[{"k": 1, "v": "java"}])
    assert not lock.owns(grant)  # type: ignore[arg-type]
    lock.release(grant)  # type: ignore[arg-type]
    table.write(pa.table({"k": [2], "v": ["dredge"]}, schema=FIELDS))
    assert table.to_arrow().num_rows == 2


def test_where_java_looks_for_a_table_of_a_database_with_a_location(
    java: Java, options: dict[str, str], tmp_path: Path
) -> None:
    java("catalog_create_database", database="far", location=str(tmp_path / "elsewhere"))
    java("create", table="far.t", schema=JAVA_SCHEMA)
    java("write", table="far.t", rows=[{"k": 1, "v": "java"}])
    assert Catalog(tmp_path, options).table("far.t").to_arrow().num_rows == 1
