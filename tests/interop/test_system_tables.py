"""Our system tables and Java's own, row by row, over tables that Java wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.options.table_options import PaimonVersion
from lsm_core.table.system import GLOBAL_TABLES, SYSTEM_TABLES
from tests.golden.rows import table_rows
from tests.support.data import unpack_golden
from tests.support.peers import java_paimon, peer_module
from tests.support.samples import one_in

TABLES = [
    *("dedup_levels", "tags_branches", "expired", "stream_commits", "dv_pk", "dynamic_bucket", "row_tracking"),
    *("evolve_pk", "evolve_append", "types_pk", "types_orc", "stats_counts", "stats_truncate_16_sparse"),
    *("partition_strings", "changelog_lookup", "aggregation", "partial_update_groups", "postpone"),
]
# Rows of the table itself: their reading is compared where the table's own is (and merge engines come with their issue).
_ROWS = frozenset({"audit_log", "binlog", "ro"})
_WITH_ROWS = (
    *("dedup_levels", "tags_branches", "thin_mode", "append_unaware", "manifest_merge", "changelog_lookup"),
    *("dv_pk", "dv_append", "evolve_pk", "evolve_append", "formats_per_level", "postpone"),
)


_NEWER_COLUMNS = {
    "partitions": {PaimonVersion.V2_0: ["total_buckets", "done", "deleted_record_count"]},
    "snapshots": {PaimonVersion.V2_0: ["operation"], PaimonVersion.V2_1: ["writer_version"]},
}
"""Columns that a version added at the end of a system table; Dredge has all of them."""


def _missing_columns(system: str) -> list[str]:
    """Return the columns of a system table that Java's version of this process does not have yet."""
    added = _NEWER_COLUMNS.get(system, {})
    return [name for version, names in added.items() if not java_paimon().at_least(version) for name in names]


def _java_columns(rows: list[dict[str, Any]], system: str) -> list[dict[str, Any]]:
    """Return Dredge's rows with the columns that Java's version of this process has."""
    missing = _missing_columns(system)
    assert all(list(row)[len(row) - len(missing) :] == missing for row in rows), f"{system} lacks one of {missing}"
    return [{name: value for name, value in row.items() if name not in missing} for row in rows]


def _comparable(row: dict[str, Any], system: str) -> str:
    row = {name: value for name, value in row.items() if name != "_kind"}
    if system == "schemas":  # a map of options has no order
        row["options"] = json.loads(row["options"])
    if system == "tags" and row["create_time"]:  # Java's value is finer than the column's type
        row["create_time"] = row["create_time"][:23] + "0" * 6
    return json.dumps(row, sort_keys=True, ensure_ascii=False)


def _same(java: Any, warehouse: Path, name: str) -> None:
    theirs = java.call("read", warehouse=str(warehouse), table=name)["rows"]
    if name == "sys.catalog_options":  # the peer's own
        theirs = [row for row in theirs if row["key"] == "warehouse"]
    system = name.rpartition("$")[2]
    ours = _java_columns(table_rows(Catalog(warehouse).table(name).to_arrow()), system)
    assert sorted(_comparable(row, system) for row in ours) == sorted(_comparable(row, system) for row in theirs), name
    if ours:
        assert list(ours[0]) == [column for column in theirs[0] if column != "_kind"], name


@pytest.mark.paimon_java
@pytest.mark.parametrize("golden", one_in(3, TABLES))
def test_metadata_tables_are_java_s(java_session: Any, tmp_path: Path, golden: str) -> None:
    warehouse = unpack_golden(golden, tmp_path).parent.parent
    # row ids: test_row_tracking.py; Java has no ledger
    for system in sorted(set(SYSTEM_TABLES) - _ROWS - {"row_tracking", "dredge_ledger"}):
        if system == "file_indexes" and not java_paimon().at_least(PaimonVersion.V2_1):
            with pytest.raises(peer_module().PeerError, match="does not exist"):  # added by 2.1
                java_session.call("read", warehouse=str(warehouse), table="db.t$file_indexes")
            continue
        _same(java_session, warehouse, f"db.t${system}")
    for table in GLOBAL_TABLES:
        if table == "catalog_options" and java_paimon().at_least(PaimonVersion.V2_0):
            with pytest.raises(peer_module().PeerError, match="does not exist"):  # removed by 2.0
                java_session.call("read", warehouse=str(warehouse), table=f"sys.{table}")
            continue
        _same(java_session, warehouse, f"sys.{table}")


@pytest.mark.paimon_java
@pytest.mark.parametrize("golden", one_in(3, _WITH_ROWS))
def test_rows_with_kinds_and_read_optimised_rows_are_java_s(java_session: Any, tmp_path: Path, golden: str) -> None:
    warehouse = unpack_golden(golden, tmp_path).parent.parent
    for system in sorted(_ROWS):
        _same(java_session, warehouse, f"db.t${system}")


@pytest.mark.paimon_java
def test_branches_have_java_s_system_tables(java_session: Any, tmp_path: Path) -> None:
    warehouse = unpack_golden("tags_branches", tmp_path).parent.parent
    for system in ("files", "snapshots", "schemas", "partitions", "buckets", "tags"):
        _same(java_session, warehouse, f"db.t$branch_b1${system}")


@pytest.mark.paimon_java
def test_versions_of_metadata_tables_are_java_s(java_session: Any, tmp_path: Path) -> None:
    warehouse = unpack_golden("dedup_levels", tmp_path).parent.parent
    for system in ("files", "manifests", "partitions"):
        theirs = java_session.call(
            "read", warehouse=str(warehouse), table=f"db.t${system}", options={"scan.snapshot-id": "3"}
        )["rows"]
        found = table_rows(Catalog(warehouse).table(f"db.t${system}").to_arrow(snapshot_id=3))
        ours = _java_columns(found, system)
        assert sorted(_comparable(row, system) for row in ours) == sorted(_comparable(row, system) for row in theirs)
