"""Compaction of data-evolution tables that Paimon's Spark connector 2.0.0 wrote: columns are joined, row ids are kept."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog, Table
from lsm_core.commit.conflicts import misplaced_row_ids
from lsm_core.compact import row_ranges
from lsm_core.errors import UnsupportedFeature, VerificationFailed
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.format.manifest import ADD, DataFileMeta, ManifestEntry, entries_to_table, table_to_entries
from lsm_core.format.stats import EMPTY_STATS
from lsm_core.maintenance.actions.compact.compaction import CompactItem
from lsm_core.maintenance.actions.compact.planning import plan_compaction
from lsm_core.maintenance.observe import health
from lsm_core.maintenance.writers_compact import describe_upkeep
from lsm_core.metadata import manifests, snapshots

DATA = Path(__file__).parent.parent / "data" / "evolution"
ROWS: dict[str, list[list[Any]]] = json.loads((DATA / "rows.json").read_text())
COLUMNS = {"merged": ["k", "aa", "b", "s"], "blobs": ["k", "a", "x"], "marked": ["k", "a", "s"]}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    with tarfile.open(DATA / "warehouse.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return Catalog(tmp_path)


def rows_of(table: Table, name: str) -> list[list[Any]]:
    rows = table.to_arrow([*COLUMNS[name], "_ROW_ID"])
    return [[v.hex().upper() if isinstance(v, bytes) else v for v in row.values()] for row in rows.to_pylist()]


def live_files(table: Table) -> list[DataFileMeta]:
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    return [entry.file for entry in table_to_entries(manifests.live_entries(table.store, snapshot))]


def on_disk(table: Table) -> set[str]:
    return {path.name for path in Path(table.store.root).rglob("bucket-*/*")}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_adjacent_row_ids_become_one_file(catalog: Catalog, name: str) -> None:
    table, expected = catalog.table(f"db.{name}"), [row[:-1] for row in ROWS[name]]
    inputs = {file.file_name: file for file in live_files(table)}
    before = snapshots.latest(table.store)
    report = table.compact(full=True)
    assert before is not None
    assert (report.verification.level, report.verification.keys_checked) == ("V2", report.rows_in)
    assert rows_of(table, name) == expected
    written = [file for file in live_files(table) if file.file_name not in inputs]
    replaced = [file for file in inputs.values() if file not in live_files(table)]
    assert not any(file.file_name.endswith(".blob") for file in replaced)
    (output,) = written
    assert output.first_row_id == 0
    assert report.rows_out == output.row_count == sum({f.first_row_id: f.row_count for f in replaced}.values())
    assert output.max_sequence_number == max(file.max_sequence_number for file in replaced)
    assert output.write_cols == (("k", "a") if name == "blobs" else None)
    older = table.copy({"scan.snapshot-id": str(before.id)})
    assert older.to_arrow(["k", "_ROW_ID"]).to_pylist() == table.to_arrow(["k", "_ROW_ID"]).to_pylist()
    assert all(check.passed for check in table.check())
    assert table.compact(full=True).snapshot_id is None  # nothing is left to do


@pytest.mark.parametrize("name", COLUMNS)
def test_a_compaction_can_be_undone_and_expired(catalog: Catalog, name: str) -> None:
    table = catalog.table(f"db.{name}")
    expected, files = rows_of(table, name), {file.file_name: file.row_count for file in live_files(table)}
    run = table.compact(full=True).run_id
    table.undo(run)
    restored = live_files(table)
    assert sorted(file.row_count for file in restored) == sorted(files.values())
    assert rows_of(table, name) == expected
    table.create_tag("kept")
    table.compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=1 << 42)
    table.remove_orphan_files(older_than_ms=table.store.clock.now_ms() - 1)
    table.sweep_trash(now_ms=1 << 42)
    assert rows_of(table, name) == expected
    kept = table.copy({"scan.tag-name": "kept"}).to_arrow(["k", "_ROW_ID"])
    assert kept.to_pylist() == table.to_arrow(["k", "_ROW_ID"]).to_pylist()
    table.write(pa.table({"k": pa.array([77], pa.int32())})) if name != "blobs" else None
    assert rows_of(table, name)[: len(expected)] == expected


@pytest.mark.parametrize("name", COLUMNS)
def test_health_counts_each_row_once_and_proposes_what_a_plan_does(catalog: Catalog, name: str) -> None:
    table = catalog.table(f"db.{name}")
    for options in ({}, {"compaction.min.file-num": "2"}, {"target-file-size": "1 kb"}):
        store = table.copy(options).store
        (bucket,) = health(store)
        deleted = bucket.deleted_rows
        assert bucket.rows - deleted == len(ROWS[name])
        for full, cost in ((False, bucket.cost_minor), (True, bucket.cost_full)):
            items = plan_compaction(store, full=full).items_of(CompactItem)
            assert cost == sum(item.bytes_in for item in items)
    table.compact(full=True)
    (after,) = health(catalog.table(f"db.{name}").store)
    assert (after.cost_minor, after.cost_full) == (0, 0)
    assert after.score < 1


def test_writers_are_said_to_join_no_columns(catalog: Catalog) -> None:
    store = catalog.table("db.merged").store
    assert describe_upkeep(store, by_writers=False).startswith("Dredge compacts: writers do not join columns")


def test_the_plan_says_which_rows_are_joined(catalog: Catalog) -> None:
    (item,) = plan_compaction(catalog.table("db.merged").store).items_of(CompactItem)
    assert item.reason == "8 files >= 5 with 6 adjacent row ids -> 1 file"
    (declined,) = plan_compaction(catalog.table("db.blobs").store).declined
    assert declined.text == "4 files with adjacent row ids < 5 (10 in all)"


def test_a_sort_is_refused_as_it_would_change_the_row_ids(catalog: Catalog) -> None:
    with pytest.raises(UnsupportedFeature, match="would change the row ids"):
        catalog.table("db.merged").compact(order_by=["k"])


def test_new_row_ids_are_refused_as_by_newer_java(catalog: Catalog) -> None:
    table = catalog.table("db.merged").copy({"data-evolution.compaction.rewrite-row-ids": "true"})
    with pytest.raises(UnsupportedFeature, match="compactions keep row ids"):
        table.compact(full=True)


def older_value(batch: pa.RecordBatch) -> pa.RecordBatch:
    place = batch.schema.get_field_index("aa")
    kind = batch.schema.field(place).type
    return batch.set_column(
        place, "aa", pc.fill_null(pc.add(batch.column(place), pa.scalar(1, kind)), pa.scalar(0, kind))
    )


def row_less(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(1)


@pytest.mark.parametrize(("sabotage", "level"), [(older_value, "V2"), (row_less, "V0")])
def test_wrong_columns_are_not_published(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, sabotage: Any, level: str
) -> None:
    table = catalog.table("db.merged")
    expected, files, real = rows_of(table, "merged"), on_disk(table), row_ranges.read_evolved
    with monkeypatch.context() as patched:
        patched.setattr(row_ranges, "read_evolved", lambda *given: (sabotage(batch) for batch in real(*given)))
        with pytest.raises(VerificationFailed, match=level):
            table.compact(full=True)
    assert on_disk(table) == files
    assert rows_of(table, "merged") == expected


def entry(name: str, first: int, rows: int) -> ManifestEntry:
    file = DataFileMeta(name, 1, rows, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 1, 0, 0, first_row_id=first)
    return ManifestEntry(ADD, b"", 0, -1, file)


@pytest.mark.parametrize(
    ("files", "added", "misplaced"),
    [
        ([("a", 0, 4), ("b", 4, 2), ("n", 0, 4)], ["n"], []),
        ([("a", 0, 4), ("n", 0, 6)], ["n"], ["a", "n"]),
        ([("half", 2, 2), ("n", 0, 4), ("z", 4, 9)], ["n"], ["half", "n"]),
        ([("a", 0, 4), ("odd", 1, 2), ("n", 4, 2)], ["n"], []),
        ([("a", 0, 4), ("x.blob", 1, 3), ("n", 0, 4)], ["n"], []),
        ([("n", 0, 4), ("x.blob", 1, 5), ("a", 4, 2)], ["n"], ["x.blob"]),
        ([("a", 4, 4), ("x.blob", 1, 2)], ["x.blob"], ["x.blob"]),
        ([("a", 4, 4), ("x.blob", 1, 2)], ["a"], []),
        ([("x.blob", 1, 2)], ["x.blob"], ["x.blob"]),
    ],
)
def test_files_of_the_same_row_ids_have_the_same_range(
    files: list[tuple[str, int, int]], added: list[str], misplaced: list[str]
) -> None:
    for order in (files, files[::-1], [files[i] for i in np.random.default_rng(1).permutation(len(files))]):
        assert misplaced_row_ids(entries_to_table([entry(*file) for file in order]), pa.array(added)) == misplaced
