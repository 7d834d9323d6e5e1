"""Data-evolution tables that Paimon's Spark connector 2.0.0 wrote, with the rows that it read (`tests/data/evolution`)."""

from __future__ import annotations

import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.files.blob_reader import decode_lengths
from lsm_core.maintenance.actions.merge_branch import plan_merge_branch
from lsm_core.read import Split, read_split
from lsm_core.table.system import SYSTEM_TABLES

DATA = Path(__file__).parent.parent / "data" / "evolution"
ROWS: dict[str, list[list[Any]]] = json.loads((DATA / "rows.json").read_text())
COLUMNS = {"merged": ["k", "aa", "b", "s"], "blobs": ["k", "a", "x"], "marked": ["k", "a", "s"]}
IDS = ["_ROW_ID", "_SEQUENCE_NUMBER"]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    with tarfile.open(DATA / "warehouse.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return Catalog(tmp_path)


def as_listed(rows: pa.Table) -> list[list[Any]]:
    return [[v.hex().upper() if isinstance(v, bytes) else v for v in row.values()] for row in rows.to_pylist()]


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_several_files_are_matched_by_row_id(catalog: Catalog, name: str) -> None:
    table = catalog.table(f"db.{name}")
    columns = [*COLUMNS[name], *IDS]
    assert as_listed(table.to_arrow(columns)) == ROWS[name]
    assert as_listed(catalog.table(f"db.{name}$row_tracking").to_arrow(columns)) == ROWS[name]
    one_by_one = table.copy({"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"})
    splits = one_by_one.plan_scan()
    sent = [Split.from_bytes(split.to_bytes()) for split in pickle.loads(pickle.dumps(splits))]
    read = [batch for split in sent for batch in read_split(table.store, split, COLUMNS[name])]
    assert as_listed(pa.Table.from_batches(read)) == [row[:-2] for row in ROWS[name]]
    assert len(splits) == {"merged": 5, "blobs": 3, "marked": 2}[name]


@pytest.mark.parametrize("column", ["k", "b", "s", "aa", "_ROW_ID"])
def test_every_single_column_is_read_alone(catalog: Catalog, column: str) -> None:
    place = [*COLUMNS["merged"], *IDS].index(column)
    assert as_listed(catalog.table("db.merged").to_arrow([column])) == [[row[place]] for row in ROWS["merged"]]


def test_filters_see_the_newest_values(catalog: Catalog) -> None:
    table = catalog.table("db.merged")
    assert as_listed(table.to_arrow(["k"], filter=[("aa", "=", 99)])) == [[2]]
    assert as_listed(table.to_arrow(["k"], filter=[("aa", "=", 2)])) == []
    assert as_listed(table.to_arrow(["k"], filter=[("s", "is null")])) == [[9]]
    assert as_listed(table.to_arrow(["s"], filter=[("_ROW_ID", "=", 2)])) == [["new"]]
    assert as_listed(table.to_arrow(["k"], limit=4)) == [[1], [2], [3], [4]]


@pytest.mark.parametrize("name", COLUMNS)
def test_system_tables_can_be_read(catalog: Catalog, name: str) -> None:
    store = catalog.table(f"db.{name}").store
    for system, view in SYSTEM_TABLES.items():
        if system != "dredge_ledger":
            view(store)
    assert catalog.table(f"db.{name}$audit_log").to_arrow().num_rows == len(ROWS[name])


def test_appended_rows_get_the_next_ids(catalog: Catalog) -> None:
    table = catalog.table("db.merged")
    table.write(pa.table({"k": pa.array([20], pa.int32()), "s": ["late"]}))
    assert as_listed(table.to_arrow([*COLUMNS["merged"], *IDS])) == [*ROWS["merged"], [20, None, None, "late", 6, 6]]


def test_expiry_and_cleaning_keep_the_files_of_all_columns(catalog: Catalog) -> None:
    for name in COLUMNS:
        table = catalog.table(f"db.{name}")
        table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=1 << 42)
        table.remove_orphan_files(older_than_ms=table.store.clock.now_ms() - 1)
        table.sweep_trash(now_ms=1 << 42)
        assert as_listed(table.to_arrow([*COLUMNS[name], *IDS])) == ROWS[name]
        assert all(report.passed for report in table.check())


def test_rewrites_and_changes_are_refused_by_name(catalog: Catalog) -> None:
    table, before = catalog.table("db.merged"), ROWS["merged"]
    table.create_branch("b").write(pa.table({"k": pa.array([30], pa.int32())}))
    refused = [
        lambda: plan_merge_branch(table.store, "b"),
        lambda: table.delete([("k", "=", 1)]),
        lambda: table.incremental(1, 2),
        lambda: table.new_stream_scan(),
    ]
    for action in refused:
        with pytest.raises(UnsupportedFeature, match=r"data-evolution\.enabled|BLOB"):
            action()
    assert as_listed(table.to_arrow([*COLUMNS["merged"], *IDS])) == before


def test_damage_of_a_blob_is_reported(catalog: Catalog) -> None:
    table = catalog.table("db.blobs")
    for path in Path(table.store.root).rglob("*.blob"):
        data = bytearray(path.read_bytes())
        data[5] ^= 0xFF
        path.write_bytes(data)
    assert as_listed(table.to_arrow(["k"])) == [[row[0]] for row in ROWS["blobs"]]
    with pytest.raises(CorruptFile, match="blob"):
        table.to_arrow()


def test_lengths_of_blobs_are_differences() -> None:
    assert decode_lengths(bytes([36, 33, 7, 40]), "f").tolist() == [18, 1, -3, 17]
    assert decode_lengths(bytes([0x80, 0x01]), "f").tolist() == [64]
    assert decode_lengths(b"", "f").tolist() == []
    for damaged in (b"\x80", b"\x02\x80", b"\xff" * 11 + b"\x01"):
        with pytest.raises(CorruptFile):
            decode_lengths(damaged, "f")
