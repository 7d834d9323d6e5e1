"""Compactions of small append files copy large row groups, and change no row, order or statistics by it."""

from __future__ import annotations

import random
import shutil
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, SchemaChange, Table
from lsm_core.compact import append_splicing
from lsm_core.errors import DredgeError
from lsm_core.format.manifest import EMPTY_ROW, DataFileMeta
from lsm_core.storage import LocalFileIO
from lsm_core.storage.faults import FaultyFileIO, InjectedFault
from tests.support.samples import examples, sample
from tests.support.stores import live_files

COLUMNS = pa.schema([("k", pa.int64()), ("s", pa.string()), ("x", pa.float64()), ("d", pa.decimal128(20, 3))])
LEAST, FULL = 8, 32
BUCKET = {"bucket": "1", "bucket-key": "d"}


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsm_core.files.writer.ROW_GROUP_ROWS", FULL)
    monkeypatch.setattr(append_splicing, "LEAST_ROWS", LEAST)


def table_of(root: Path, mode: str = "auto", **options: str) -> Table:
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    made = {"bucket": "-1", "write-only": "true", "dredge.compaction.exact-keys": mode, **options}
    return catalog.create_table("db.t", COLUMNS, options=made)


def rows(first: int, count: int) -> pa.Table:
    keys = range(first, first + count)
    columns: list[list[Any]] = [
        [None if k % 7 == 0 else k for k in keys],
        [f"t{k % 5}" for k in keys],
        [k / 3 for k in keys],
        [Decimal(k) for k in keys],
    ]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, COLUMNS, strict=True)]
    return pa.table(arrays, schema=COLUMNS)


def write(table: Table, counts: list[int], first: int = 0) -> int:
    for count in counts:
        table.write(rows(first, count))
        first += count
    return first


def files_of(table: Table) -> list[DataFileMeta]:
    return live_files(table.refresh().store)[EMPTY_ROW, 0]


def groups_of(table: Table) -> list[int]:
    stored = [pq.read_metadata(table.store.data_path(EMPTY_ROW, 0, file)) for file in files_of(table)]
    return [metadata.row_group(at).num_rows for metadata in stored for at in range(metadata.num_row_groups)]


def in_order(table: Table) -> pa.Table:
    """Rows by the column that numbers them: tables without buckets gather files by size."""
    return table.refresh().to_arrow().sort_by("d")


def metadata_of(table: Table) -> list[Any]:
    return [
        (f.row_count, f.min_sequence_number, f.max_sequence_number, f.value_stats, f.value_stats_cols, f.schema_id)
        for f in files_of(table)
    ]


def test_large_row_groups_are_copied_and_small_ones_joined(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    total = write(table, [40, 3, 3, 20, 1, 32])
    report = table.compact(full=True)
    assert (report.rows_in, report.rows_out) == (total, total)
    assert report.groups_spliced == 3, "32 + 8 of the first file and 32 of the last; 3 + 3 + 20 + 1 are joined"
    assert sorted(groups_of(table)) == [8, 27, 32, 32]
    assert in_order(table).equals(rows(0, total))
    assert all(check.passed for check in table.check())
    assert any("3 row groups" in line and "copied without decoding" in line for line in report.lines("db.t"))


def test_undo_puts_the_copied_files_back(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    total = write(table, [40, 20, 32])
    before = sorted(map(repr, metadata_of(table)))
    report = table.compact(full=True)
    assert report.groups_spliced == 4
    table.undo(report.run_id)
    assert sorted(map(repr, metadata_of(table))) == before, "restored under new names"
    assert in_order(table).equals(rows(0, total))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=table.store.clock.now_ms())
    table.sweep_trash(now_ms=1 << 42)
    assert table.compact(full=True).groups_spliced == 4
    assert in_order(table).equals(rows(0, total))
    assert all(check.passed for check in table.check())


@settings(max_examples=examples(9), deadline=None)
@given(st.lists(st.integers(1, 90), min_size=2, max_size=8), st.sampled_from(["full", "none", "truncate(4)"]))
def test_rows_and_metadata_are_those_of_a_rewrite(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], statistics: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lsm_core.files.writer.ROW_GROUP_ROWS", FULL)
        patch.setattr(append_splicing, "LEAST_ROWS", LEAST)
        tables = [
            table_of(tmp_path_factory.mktemp(mode), mode, **BUCKET, **{"metadata.stats-mode": statistics})
            for mode in ("auto", "never")
        ]
        for table in tables:
            write(table, counts)
            table.compact(full=True)
    copied, rewritten = tables
    assert copied.to_arrow().equals(rows(0, sum(counts))), "a bucket keeps the order of its rows"
    assert rewritten.to_arrow().equals(rows(0, sum(counts)))
    assert metadata_of(copied) == metadata_of(rewritten)


@pytest.mark.parametrize("generations", sample([6, 100], lambda number: number < 10))
def test_over_many_generations_no_file_has_many_small_row_groups(tmp_path: Path, generations: int) -> None:
    table, total, draw = table_of(tmp_path), 0, random.Random(5)
    for _ in range(generations):
        total = write(table, [draw.randint(1, 2 * LEAST) for _ in range(draw.randint(2, 4))], total)
        table.compact(full=True)
        assert min(groups_of(table)) >= min(LEAST, total)
    assert len(groups_of(table)) <= total / LEAST
    assert in_order(table).equals(rows(0, total))


@pytest.mark.parametrize(
    "option",
    [
        {"file.compression": "snappy"},
        {"file.format": "orc"},
        {"file-index.bloom-filter.columns": "k"},
        {"dredge.compaction.exact-keys": "never"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_files_of_another_form_are_decoded(tmp_path: Path, option: dict[str, str]) -> None:
    table = table_of(tmp_path)
    write(table, [40, 40])
    report = table.copy(option).compact(full=True)
    assert report.groups_spliced == 0
    assert in_order(table).equals(rows(0, 80))


def test_tables_that_track_rows_are_decoded(tmp_path: Path) -> None:
    table = table_of(tmp_path, **{"row-tracking.enabled": "true"})
    write(table, [40, 40])
    assert table.compact(full=True).groups_spliced == 0
    assert in_order(table).equals(rows(0, 80))
    assert table.refresh().to_arrow(["_ROW_ID", "d"]).to_pydict() == {
        "_ROW_ID": [*range(80)],
        "d": [*map(Decimal, range(80))],
    }


def test_a_plan_that_was_saved_before_a_column_was_widened_copies_nothing(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    write(table, [40, 40])
    plan_hash = table.save_plan(table.plan_maintenance("compact", full=True))
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [SchemaChange.update_type("d", "DECIMAL(30, 3)")])
    table = catalog.table("db.t")
    assert table.apply(table.load_plan(plan_hash)).groups_spliced == 0
    write(table, [32], first=80)
    assert table.refresh().compact(full=True).groups_spliced == 4, "files of the new schema"
    catalog.alter_table("db.t", [SchemaChange.set_option("snapshot.num-retained.max", "20")])
    table = catalog.table("db.t")
    write(table, [32], first=112)
    assert table.refresh().compact(full=True).groups_spliced > 4, "files of the same columns and options of files"
    assert in_order(table)["d"].to_pylist() == [*map(Decimal, range(144))]
    assert all(check.passed for check in table.check())


def test_files_with_deleted_rows_are_decoded(tmp_path: Path) -> None:
    table = table_of(tmp_path, **{"deletion-vectors.enabled": "true"})
    write(table, [40, 40, 64])
    table.delete("k = 50")
    report = table.compact(full=True)
    assert report.groups_spliced == 4
    assert in_order(table)["d"].to_pylist() == [value for value in rows(0, 144)["d"].to_pylist() if value != 50]


@pytest.mark.parametrize(("mode", "stride"), sample(product(["before", "after"], [1, 23]), lambda case: case[1] > 1))
def test_a_failing_step_leaves_the_table_as_before_or_after(tmp_path: Path, mode: Any, stride: int) -> None:
    """Each I/O step of a compaction that copies row groups fails once: no row is lost or repeated."""
    source = tmp_path / "source"
    write(table_of(source), [40, 3, 32])

    def attempt(step: int | None) -> FaultyFileIO:
        root = tmp_path / f"copy{step}"
        shutil.copytree(source, root)
        table = Catalog(str(root)).table("db.t")
        before = {file.file_name for file in files_of(table)}
        faulty = FaultyFileIO(LocalFileIO(), step, mode)
        table.store.file_io = faulty
        try:
            assert table.compact(full=True).groups_spliced == 2
            published = True
        except (InjectedFault, DredgeError):
            published = False
        again = Catalog(str(root)).table("db.t")
        assert in_order(again).equals(rows(0, 75))
        after = {file.file_name for file in files_of(again)}
        stored = {path.name for path in Path(again.store.root).glob("bucket-0/*")}
        assert before | after <= stored
        assert not published or after != before
        shutil.rmtree(root)
        return faulty

    steps = attempt(None).steps
    assert steps > 30
    for step in range(1, steps + 1, stride):
        attempt(step)
