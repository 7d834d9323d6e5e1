"""Iceberg metadata of tables that Java writes, under Dredge's expiry, rollback and orphan removal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog, Table
from lsm_core.format.avro import read_table
from lsm_core.iceberg.state import IcebergState, metadata_folder, read_state
from lsm_core.maintenance.iceberg_lag import read_iceberg_lag
from lsm_core.metadata import snapshots
from tests.support.peers import JavaPaimon

pytestmark = [pytest.mark.paimon_java, pytest.mark.soak]
FIELDS = [{"name": "k", "type": "BIGINT NOT NULL"}, {"name": "v", "type": "STRING"}]
CASES = [
    (version, storage) for version in ("1.4.2", "2.1-SNAPSHOT") for storage in ("table-location", "hadoop-catalog")
]


def _state(table: Table) -> IcebergState:
    state = read_state(table.store)
    assert state is not None
    return state


def _lost_files(table: Table) -> list[str]:
    """Return the data files that a snapshot of the Iceberg metadata shows and that do not exist."""
    folder, lost = metadata_folder(table.store), set[str]()
    for snapshot in _state(table).snapshots:
        path = f"{folder}/{snapshot.manifest_list}"
        for manifest in read_table(Path(path).read_bytes(), path).column("manifest_path").to_pylist():
            entries = read_table(Path(manifest).read_bytes(), manifest).to_pylist()
            files = {entry["data_file"]["file_path"] for entry in entries if entry["status"] != 2}
            lost |= {file for file in files if not Path(file).exists()}
    return sorted(lost)


@pytest.mark.parametrize(("version", "storage"), CASES)
def test_what_iceberg_names_stays_and_what_java_leaves_out_expires(
    tmp_path: Path, java_of: Callable[[str], JavaPaimon], version: str, storage: str
) -> None:
    java = java_of(version)

    def call(op: str, **arguments: Any) -> dict[str, Any]:
        return java.call(op, warehouse=str(tmp_path), table="db.t", **arguments)

    options = {
        "bucket": "1",
        "file.format": "parquet",
        "metadata.iceberg.storage": storage,
        "metadata.iceberg.manifest-compression": "snappy",
        "snapshot.num-retained.min": "2",
        "snapshot.num-retained.max": "3",
    }
    call("create", schema={"fields": FIELDS, "primaryKeys": ["k"], "partitionKeys": [], "options": options})
    for number in range(4):
        call("write", rows=[{"k": number, "v": "a"}], compact="full")
    table = Catalog(str(tmp_path)).table("db.t")
    uuid, newest = _state(table).table_uuid, snapshots.latest_id(table.store)
    assert newest is not None
    named = _state(table).snapshot_ids
    assert named == {newest - 2, newest - 1, newest}

    table.expire_snapshots(retain_max=1, retain_min=1)
    assert set(snapshots.list_ids(table.store)) == named, "Java's own expiry would delete what Iceberg names"
    table.sweep_trash()
    assert _lost_files(table) == []
    lag = read_iceberg_lag(table.store, table.health())
    assert lag is not None
    assert (lag.since_ms, lag.rows) == (None, 0)

    call("write", rows=[{"k": 9, "v": "b"}], compact="none")
    lag = read_iceberg_lag(table.store, table.health())
    assert lag is not None
    assert lag.rows == 1
    assert lag.since_ms is not None
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert set(snapshots.list_ids(table.store)) == {newest - 1, newest, newest + 1}

    table.rollback_to(newest)
    assert (_state(table).current_snapshot_id, _state(table).table_uuid) == (newest, uuid)
    assert _lost_files(table) == []
    call("write", rows=[{"k": 10, "v": "c"}], compact="full")
    state = _state(table)
    assert state.current_snapshot_id == snapshots.latest_id(table.store)
    assert state.table_uuid == uuid, "Java goes on with the metadata that Dredge wrote after the rollback"
    assert newest in state.snapshot_ids, "and extends it"

    plan = table.plan_maintenance("orphans", older_than_ms=table.store.clock.now_ms(), max_share=100)
    live = {snapshot.manifest_list for snapshot in state.snapshots}
    assert not live & {Path(item.path).name for item in plan.items}
    table.apply(plan)
    assert _lost_files(table) == []
    assert len(call("read")["rows"]) == 5
