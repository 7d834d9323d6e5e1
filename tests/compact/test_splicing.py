"""Compactions splice row groups in whose key range no other file has a key, and change no answer and no statistics by it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from decimal import Decimal
from hashlib import sha256
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, SchemaChange, Table
from lsm_core.commit import Committer
from lsm_core.compact import BucketTask, run_tasks_locally, splice_search
from lsm_core.compact.pieces import cut_task, untouched_parts
from lsm_core.errors import DredgeError, VerificationFailed
from lsm_core.files import KeyValueFileWriter, open_kv, row_group_copier, splicing
from lsm_core.files.row_group_copier import RowGroupCopier
from lsm_core.files.row_groups import open_groups
from lsm_core.files.splicing import StoredGroup
from lsm_core.format.manifest import EMPTY_ROW, SOURCE_COMPACT, DataFileMeta
from lsm_core.maintenance.actions.compact.unit_choice import bucket_task
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.storage import LocalFileIO
from lsm_core.storage.faults import FaultyFileIO, InjectedFault
from tests.compact.test_exact_keys import KINDS
from tests.support.samples import examples, one_in
from tests.support.stores import live_files

TINY = {
    "bucket": "1",
    "target-file-size": "16 kb",
    "parquet.block.size": "1024",
    "num-levels": "4",
    "write-only": "true",
}
CUT = {"target-file-size": "256 kb", "parquet.block.size": "64 kb", "parquet.page.row.count.limit": "40"}
"""Options of few row groups of a thousand rows, which are cut into parts of several pages."""
KEYS: dict[str, list[pa.Field]] = {
    "numbers": [pa.field("k", pa.int32(), nullable=False)],
    "texts": [pa.field("k", pa.string(), nullable=False)],
    "two columns": [pa.field("k", pa.int64(), nullable=False), pa.field("l", pa.string(), nullable=False)],
}
VALUES = [
    pa.field("v", pa.int64()),
    pa.field("s", pa.string()),
    pa.field("f", pa.float64()),
    pa.field("d", pa.decimal128(20, 3)),
    pa.field("b", pa.bool_()),
    pa.field("t", pa.timestamp("ns")),
    pa.field("a", pa.list_(pa.int32())),
]


def table_of(root: Path, exact: str, keys: str = "numbers", columns: int = 2, **options: str) -> Table:
    catalog = Catalog(str(root))
    catalog.create_database("db")
    names = [field.name for field in KEYS[keys]]
    chosen = {**TINY, "dredge.compaction.exact-keys": exact, **options}
    schema = pa.schema([*KEYS[keys], *VALUES[:columns]])
    return catalog.create_table("db.t", schema, primary_keys=names, options=chosen)


def rows(numbers: list[int], value: int, keys: str = "numbers", columns: int = 2) -> pa.Table:
    """Rows whose values have nulls, NaN, zeros of both signs and negative numbers."""
    key_values: list[list[Any]] = {
        "numbers": [numbers],
        "texts": [[f"the same long beginning {number:06}" for number in numbers]],
        "two columns": [[number // 7 for number in numbers], [f"{number % 7}" for number in numbers]],
    }[keys]
    values = [
        [None if number % 5 == 0 else number * value for number in numbers],
        [sha256(f"{value} of {number}".encode()).hexdigest() for number in numbers],
        [(float("nan"), -0.0, 0.0, None, number / 3)[number // 40 % 5] for number in numbers],
        [Decimal(value - number) for number in numbers],
        [None if number % 3 == 0 else number % 2 == 0 for number in numbers],
        [None if number % 11 == 0 else number * 10**15 + value for number in numbers],
        [[number, value] if number % 2 else None for number in numbers],
    ]
    schema = pa.schema([*KEYS[keys], *VALUES[:columns]])
    chosen = [*key_values, *values[:columns]]
    return pa.table([pa.array(c, f.type) for c, f in zip(chosen, schema, strict=True)], schema=schema)


def top_files(table: Table) -> list[DataFileMeta]:
    return [file for file in live_files(table.refresh().store).get((EMPTY_ROW, 0), []) if file.level == 3]


def groups_of(table: Table) -> list[int]:
    """Rows of the row groups of all files on the top level."""
    place = Path(table.store.root) / "bucket-0"
    footers = [pq.ParquetFile(place / file.file_name).metadata for file in top_files(table)]
    return [footer.row_group(at).num_rows for footer in footers for at in range(footer.num_row_groups)]


def task_of(table: Table, **changes: Any) -> BucketTask:
    (((partition, bucket), files),) = live_files(table.refresh().store).items()
    task = bucket_task(table.store, partition, bucket, 1, files, full=True)
    assert task is not None
    return replace(task, **changes)


def rewritten(table: Table, file: DataFileMeta) -> DataFileMeta:
    """Metadata that the writer of rewrites stores for the rows of a file."""
    store = table.store
    writer = KeyValueFileWriter(store, EMPTY_ROW, 0, 1, level=file.level, file_source=SOURCE_COMPACT)
    for batch in open_kv(store, EMPTY_ROW, 0, file):
        writer.write(batch)
    (meta,) = writer.close()
    return replace(meta, file_name=file.file_name, file_size=file.file_size, creation_time_ms=file.creation_time_ms)


@pytest.fixture
def layered(tmp_path: Path) -> Table:
    """One file of tiny row groups on the top level, with the even keys from 1,000 to 2,998."""
    table = table_of(tmp_path, "always", **{"target-file-size": "1 mb"})
    table.write(rows(list(range(1000, 3000, 2)), 0))
    table.compact(full=True)
    assert len(groups_of(table)) > 20
    return table


STATISTICS = {
    "as they are": {},
    "thin": {"data-file.thin-mode": "true"},
    "full": {"metadata.stats-mode": "full", "metadata.stats-dense-store": "false", "dredge.paimon-version": "2.1"},
    "counts": {"metadata.stats-mode": "counts", "fields.s.stats-mode": "truncate(3)"},
}


@pytest.mark.parametrize(("keys", "statistics"), one_in(20, product(sorted(KEYS), sorted(STATISTICS)), first=1))
def test_metadata_is_what_a_rewrite_stores(tmp_path: Path, keys: str, statistics: str) -> None:
    options = {**STATISTICS[statistics], "target-file-size": "64 kb"}
    count = len(VALUES)
    table = table_of(tmp_path, "always", keys, count, **options)
    table.write(rows(list(range(0, 1000, 2)), 3, keys, count))
    table.compact(full=True)
    table.write(rows([-9, 401, 402, 900, 9000], 4, keys, count))
    report = table.compact(full=True)
    assert report.groups_spliced > 5
    wide = table.copy({"target-file-size": "1 gb"})
    written = [file for file in top_files(table) if file.file_source == SOURCE_COMPACT]
    assert written
    for file in written:
        assert rewritten(wide, file) == file
    assert all(check.passed for check in table.check())


@pytest.fixture
def paged(tmp_path: Path) -> Table:
    """Two row groups of many pages on the top level, with the even keys from 1,000 to 2,998."""
    table = table_of(tmp_path, "always", columns=len(VALUES), **CUT)
    table.write(rows(list(range(1000, 3000, 2)), 0, columns=len(VALUES)))
    table.compact(full=True)
    assert len(groups_of(table)) == 2
    return table


def test_only_pages_that_meet_a_key_are_merged(paged: Table) -> None:
    """Other pages of the same row groups are spliced, and their metadata is what a rewrite stores."""
    paged.write(rows([1501, 2501], 7, columns=len(VALUES)))
    (part, *_) = untouched_parts(paged.store, task_of(paged))
    assert {group.number for group in part.spliced if group.first_row is not None} == {0, 1}
    assert BucketTask.from_bytes(part.to_bytes()) == part
    report = paged.compact(full=True)
    assert report.groups_spliced == len(part.spliced)
    assert report.bytes_spliced == sum(group.size for group in part.spliced)
    assert sum(group.rows for group in part.spliced) > 500
    expected = rows(sorted({*range(1000, 3000, 2), 1501, 2501}), 0, columns=len(VALUES))
    newer = rows([1501, 2501], 7, columns=len(VALUES))
    is_old = pa.compute.invert(pa.compute.is_in(expected["k"], newer["k"]))
    expected = pa.concat_tables([expected.filter(is_old), newer]).sort_by("k")
    assert repr(paged.to_arrow().sort_by("k").to_pylist()) == repr(expected.to_pylist())
    (file,) = top_files(paged)
    assert rewritten(paged, file) == file
    assert all(check.passed for check in paged.check())


@pytest.mark.parametrize("keys", one_in(2, ["texts", "two columns"]))
def test_pages_of_other_keys_are_found_by_decoding_them(tmp_path: Path, keys: str) -> None:
    table = table_of(tmp_path, "always", keys, **CUT)
    table.write(rows(list(range(0, 2000, 2)), 0, keys))
    table.compact(full=True)
    table.write(rows([501, 502], 7, keys))
    (part, *_) = untouched_parts(table.store, task_of(table))
    assert any(group.first_row is not None for group in part.spliced)
    assert table.compact(full=True).groups_spliced == len(part.spliced)
    assert table.to_arrow().num_rows == 1001
    assert all(check.passed for check in table.check())


def test_bounds_of_values_that_are_not_those_of_the_pages_are_written_anew(paged: Table) -> None:
    """A row group with a wrong bound in its footer is rewritten, so that filters find its rows again."""
    (file,) = top_files(paged)
    path = Path(paged.store.root) / "bucket-0" / file.file_name
    groups = open_groups(LocalFileIO(), str(path))
    high = groups.footer.groups[1].chunks[groups.footer.singles["s"]].high
    assert high is not None
    content = path.read_bytes()
    at = content.rindex(high)
    assert at > groups.footer_at
    path.write_bytes(content[:at] + b"0" + content[at + 1 :])
    paged.write(rows([1502, 2502], 7, columns=len(VALUES)))
    assert paged.compact(full=True).groups_spliced == 0
    (file,) = top_files(paged)
    assert rewritten(paged, file) == file


def test_parts_on_both_sides_of_a_kept_file_are_not_joined(paged: Table) -> None:
    """The file's key lies between two pages, so no row is merged between their parts."""
    (file,) = top_files(paged)
    groups = open_groups(LocalFileIO(), str(Path(paged.store.root) / "bucket-0" / file.file_name))
    between = 1000 + 2 * (4 * 40) - 1  # after the first part, which has four pages
    assert groups.group_rows[0] > 400
    paged.write(rows([between], 7, columns=len(VALUES)))
    assert paged.compact(full=True).groups_spliced > 1
    assert paged.to_arrow().sort_by("k")["k"].to_pylist() == sorted({*range(1000, 3000, 2), between})
    assert all(check.passed for check in paged.check())


def test_pages_that_a_task_names_must_be_there(paged: Table) -> None:
    paged.write(rows([1501, 2501], 7, columns=len(VALUES)))
    (task, *_) = untouched_parts(paged.store, task_of(paged))
    part = next(group for group in task.spliced if group.first_row is not None)
    for changed in (replace(part, number=9), replace(part, rows=part.rows - 1)):
        spliced = tuple(changed if group is part else group for group in task.spliced)
        with pytest.raises(DredgeError, match=r"data-.*(has no pages from row|meets a key)"):
            list(run_tasks_locally(paged.store, [replace(task, spliced=spliced)], ReferenceJudge(), threads=1))


def test_spread_keys_end_the_search_before_page_indexes_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `auto`, one file with many keys in every row group is enough to know that nothing is spliced."""
    table = table_of(tmp_path, "auto", **{**CUT, "target-file-size": "4 mb", "parquet.page.row.count.limit": "400"})
    table.write(rows(list(range(0, 36_000, 2)), 0))
    table.compact(full=True)
    assert len(groups_of(table)) > 5
    searched: list[str] = []
    parts_of = splice_search._Search._parts_of

    def noted(search: Any, meta: DataFileMeta, *arguments: Any) -> Any:
        searched.append(meta.file_name)
        return parts_of(search, meta, *arguments)

    monkeypatch.setattr(splice_search._Search, "_parts_of", noted)
    table.write(rows(list(range(1, 36_000, 12)), 1))
    assert table.compact(full=True).groups_spliced == 0
    assert not searched
    table.write(rows([35_001, *range(36_000, 36_400)], 2))
    assert table.compact(full=True).groups_spliced > 0
    assert searched
    assert table.to_arrow().num_rows == 18_000 + 3_000 + 401


@pytest.mark.soak
def test_over_many_generations_parts_stay_few(tmp_path: Path) -> None:
    """Each generation updates few rows: row groups of parts are joined again, and the file does not grow."""
    table = table_of(tmp_path, "always", **CUT)
    known = set(range(0, 6000, 2))
    table.write(rows(sorted(known), 0))
    table.compact(full=True)
    usual, size = len(groups_of(table)), sum(file.file_size for file in top_files(table))
    spliced = 0
    for generation in range(1, 101):
        new = {(generation * 577 + step * 1_701) % 6000 for step in range(3)}
        table.write(rows(sorted(new), generation))
        known |= new
        spliced += table.compact(full=True).groups_spliced
        groups = groups_of(table)
        assert len(groups) <= 3 * usual + 4
        assert min(groups) >= max(groups) // 16
        assert sum(file.file_size for file in top_files(table)) <= 1.3 * size * len(known) / 3000
    assert spliced > 300
    assert table.to_arrow().sort_by("k")["k"].to_pylist() == sorted(known)


def test_only_row_groups_that_meet_a_key_are_merged(layered: Table) -> None:
    before = groups_of(layered)
    layered.write(rows([1501, 2000, 2501, 9999], 7))
    report = layered.compact(full=True)
    assert report.files_in == 2
    assert report.groups_spliced >= len(before) - 8
    assert report.bytes_spliced > 10_000
    assert report.rows_in - report.rows_out == 1
    assert any("row groups" in line and "copied without decoding" in line for line in report.lines("db.t"))
    assert "copied without decoding: bytes compared" in report.verification.independence
    assert min(groups_of(layered)) >= max(before) // 2
    rows_left = layered.to_arrow().sort_by("k")
    assert rows_left["k"].to_pylist() == sorted({*range(1000, 3000, 2), 1501, 2000, 2501, 9999})
    assert all(check.passed for check in layered.check())


def test_row_groups_of_one_row_are_spliced_beside_larger_ones(tmp_path: Path) -> None:
    wide = table_of(tmp_path, "always", **{"parquet.block.size": "230"})
    wide.write(rows(list(range(0, 80, 2)), 3))
    wide.compact(full=True)
    assert set(groups_of(wide)) == {1, 2}
    wide.write(rows([41, 999], 7))
    assert wide.compact(full=True).groups_spliced > 10
    assert wide.to_arrow().sort_by("k")["k"].to_pylist() == sorted({*range(0, 80, 2), 41, 999})
    assert all(check.passed for check in wide.check())


def test_row_groups_whose_footer_states_a_smaller_key_range_are_not_spliced(layered: Table) -> None:
    (file,) = top_files(layered)
    path = Path(layered.store.root) / "bucket-0" / file.file_name
    footer = pq.read_metadata(path)
    largest = footer.row_group(footer.num_row_groups // 2).column(0).statistics.max
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    true, stated = (key.to_bytes(4, "little") for key in (largest, largest - 6))
    assert true in content[start:]
    path.write_bytes(content[:start] + content[start:].replace(true, stated))
    layered.write(rows([largest - 2], 7))
    layered.compact(full=True)
    assert layered.to_arrow().sort_by("k")["k"].to_pylist() == list(range(1000, 3000, 2))
    assert all(check.passed for check in layered.check())


def test_a_file_is_closed_before_it_has_too_many_row_groups(layered: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (row_group_copier, splicing):
        monkeypatch.setattr(module, "MOST_GROUPS", 7)
    layered.write(rows([1501, 9999], 7))
    assert layered.compact(full=True).groups_spliced > 14
    place = Path(layered.store.root) / "bucket-0"
    counts = [pq.read_metadata(place / file.file_name).num_row_groups for file in top_files(layered)]
    assert max(counts) == 7
    assert layered.to_arrow().sort_by("k")["k"].to_pylist() == sorted({*range(1000, 3000, 2), 1501, 9999})


def test_sequence_numbers_of_a_row_group_need_no_other_row_group(layered: Table) -> None:
    (file,) = top_files(layered)
    groups = open_groups(layered.store.file_io, str(Path(layered.store.root) / "bucket-0" / file.file_name))
    first, second = groups.footer.groups[:2]
    bare = [chunk._replace(low=None, high=None) for chunk in first.chunks]
    footer = groups.footer._replace(groups=[first._replace(chunks=bare), second])
    keys = pa.record_batch({"k": [0, 0]})
    low, high = StoredGroup(replace(groups, footer=footer), 1, keys, 1).sequences()
    assert high - low == second.rows - 1


@pytest.mark.soak
def test_over_many_generations_files_and_row_groups_stay_few(tmp_path: Path) -> None:
    table = table_of(tmp_path, "always")
    known = set(range(0, 2000, 2))
    table.write(rows(sorted(known), 0))
    table.compact(full=True)
    largest, files, spliced = max(groups_of(table)), len(top_files(table)), 0
    for generation in range(1, 9):
        new = {(generation * 577 + step * 701) % 2000 for step in range(3)}
        deleted = sorted(known)[generation * 31 : generation * 31 + 6]
        table.write(rows(sorted(new), generation))
        table.write(rows(deleted, generation), row_kinds=["-D"] * len(deleted))
        known = (known | new) - set(deleted)
        report = table.compact(full=True)
        spliced += report.groups_spliced
        groups = groups_of(table)
        assert len(groups) <= sum(groups) / (largest / 2.5) + 2
        assert len(top_files(table)) <= 1.5 * files + 2
    assert spliced > 50
    assert table.to_arrow().sort_by("k")["k"].to_pylist() == sorted(known)


@pytest.mark.parametrize("setting", one_in(2, ["sampled", "counts"]))
def test_other_levels_of_verification(layered: Table, setting: str) -> None:
    table = layered.copy({"dredge.verification": setting})
    table.write(rows([1501, 2000, 9999], 7))
    report = table.compact(full=True)
    assert report.groups_spliced > 10
    compared = {"sampled": "bytes compared with their inputs", "counts": "bytes not compared"}
    assert f"copied without decoding: {compared[setting]}" in report.verification.independence
    assert table.to_arrow().num_rows == 1002


@pytest.mark.soak
def test_row_groups_in_pieces(layered: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut between pieces is never inside a spliced row group, and each is spliced once."""
    layered.write(rows([1, *range(1501, 1561, 4), 2001, *range(2501, 2561, 4), 9999], 7))
    task, judge = task_of(layered), ReferenceJudge()
    (part, *_) = untouched_parts(layered.store, task)
    assert BucketTask.from_bytes(part.to_bytes()) == part
    monkeypatch.setattr("lsm_core.compact.pieces._OPENING", 0.0)
    monkeypatch.setattr("lsm_core.compact.pieces._LEAST_GAIN", 0.0)
    monkeypatch.setattr("lsm_core.compact.pieces.usable_cores", lambda: 3)
    assert len(cut_task(layered.store, task, 4)) > 2
    store = layered.store.copy({"dredge.compaction.piece-size": "1 kb"})
    (result,) = run_tasks_locally(store, [task], judge, threads=3)
    assert result.report.groups_spliced == len(part.spliced) > 10
    Committer(store).commit([result.message])
    assert layered.refresh().to_arrow().num_rows == 1000 + 3 + 30
    assert all(check.passed for check in layered.check())


RENEWING = {
    "file.compression": "lz4",
    "file-index.bloom-filter.columns": "v",
    "file.format.per.level": "3:avro",
    "dredge.compaction.exact-keys": "never",
    "compaction.force-rewrite-all-files": "true",
}


@pytest.mark.parametrize("option", one_in(5, RENEWING))
def test_what_options_renew_is_rewritten(layered: Table, option: str) -> None:
    table = layered.copy({option: RENEWING[option]})
    table.write(rows([1501, 2000, 9999], 7))
    report = table.compact(full=True)
    assert report.groups_spliced == 0
    assert table.to_arrow().num_rows == 1002


def test_a_plan_that_was_saved_before_a_column_was_widened_splices_nothing(tmp_path: Path) -> None:
    """Its files have the older schema; files of the new schema are spliced again."""
    table = table_of(tmp_path, "always", columns=4, **{"target-file-size": "1 mb"})
    table.write(rows(list(range(0, 500, 2)), 0, columns=4))
    table.compact(full=True)
    table.write(rows([301, 402], 7, columns=4))
    plan_hash = table.save_plan(table.plan_maintenance("compact", full=True))
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [SchemaChange.update_type("d", "DECIMAL(30, 3)")])
    table = catalog.table("db.t")
    assert table.apply(table.load_plan(plan_hash)).groups_spliced == 0
    table.write(rows([303], 9, columns=4))
    assert table.compact(full=True).groups_spliced > 10
    values = zip(*table.to_arrow(columns=["k", "d"]).to_pydict().values(), strict=True)
    newer = {301: 7, 402: 7, 303: 9}
    assert dict(values) == {k: newer.get(k, 0) - k for k in [*range(0, 500, 2), 301, 303]}
    assert all(check.passed for check in table.check())


def test_only_options_of_files_renew_row_groups(tmp_path: Path) -> None:
    table, catalog = table_of(tmp_path, "always"), Catalog(str(tmp_path))
    table.write(rows(list(range(0, 1000, 2)), 0))
    table.compact(full=True)
    spliced = []
    for seed, (option, value) in enumerate([("snapshot.num-retained.max", "20"), ("parquet.page.size", "64 kb")], 1):
        catalog.alter_table("db.t", [SchemaChange.set_option(option, value)])
        table = catalog.table("db.t")
        table.write(rows([300 + seed], seed))
        spliced.append(table.compact(full=True).groups_spliced)
    assert spliced[0] > 10
    assert spliced[1] == 0
    assert table.to_arrow().num_rows == 501
    assert all(check.passed for check in table.check())


@pytest.mark.soak
def test_rows_that_vectors_mark_are_not_spliced(tmp_path: Path) -> None:
    table = table_of(tmp_path, "always", **KINDS["vectors"])
    table.write(rows(list(range(0, 1000, 2)), 0))
    table.compact(full=True)
    table.write(rows([100, 500], 1))
    table.compact()
    marked = table.refresh().to_arrow().sort_by("k")
    table.write(rows([101, 501, 700], 2))
    table.compact(full=True)
    assert table.to_arrow().num_rows == marked.num_rows + 2
    assert all(check.passed for check in table.check())


def test_a_key_inside_a_spliced_row_group_is_an_error(layered: Table) -> None:
    layered.write(rows([1501, 2001, 9999], 7))
    (task,) = untouched_parts(layered.store, task_of(layered))
    before, after = next(
        (before, after)
        for before, after in pairwise(task.spliced)
        if (before.file_name, before.number + 2) == (after.file_name, after.number)
    )
    met = replace(before, number=before.number + 1, low=before.high, high=after.low)
    spliced = tuple(group for copied in task.spliced for group in ((copied, met) if copied is before else (copied,)))
    with pytest.raises(VerificationFailed, match="meets a key"):
        list(run_tasks_locally(layered.store, [replace(task, spliced=spliced)], ReferenceJudge(), threads=1))


def test_bytes_that_the_storage_changed_are_found(layered: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification V1 compares the bytes of spliced row groups with those of their files."""
    layered.write(rows([1501, 2001, 9999], 7))
    files = {path.name for path in Path(layered.store.root).glob("bucket-0/*")}
    shift = 0

    def damaged(copier: RowGroupCopier, data: bytes, digest: Any = None) -> None:
        nonlocal shift
        if digest is not None:
            digest.update(data)
        shift += 1
        copier._output.write(bytes([data[0] ^ 1]) + data[1:] if shift == 9 else data)
        copier.position += len(data)

    monkeypatch.setattr(RowGroupCopier, "_write", damaged)
    with pytest.raises(DredgeError):
        layered.compact(full=True)
    assert {path.name for path in Path(layered.store.root).glob("bucket-0/*")} == files


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("copied", "mode"), list(product(["layered", "paged"], ["before", "after"])))
def test_a_failing_step_leaves_the_table_as_before_or_after(
    copied: str, mode: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each I/O step of a compaction that splices row groups, or parts of them, fails once: no row and file too much."""
    master_table: Table = request.getfixturevalue(copied)
    columns = len(master_table.schema.fields) - 1
    master_table.write(rows([1501, 2001, 9999] if copied == "layered" else [1501, 2501], 7, columns=columns))
    answer = repr(master_table.to_arrow().sort_by("k").to_pylist())
    master = Path(master_table.store.root).parent.parent

    def attempt(step: int | None) -> tuple[FaultyFileIO, bool]:
        place = tmp_path / f"copy{step}{mode}"
        shutil.copytree(master / "db.db", place / "db.db")
        table = Catalog(str(place)).table("db.t")
        before = {path.name for path in Path(table.store.root).glob("bucket-0/*")}
        faulty = FaultyFileIO(LocalFileIO(), step, mode)
        table.store.file_io = faulty
        try:
            assert table.compact(full=True).groups_spliced > (10 if copied == "layered" else 1)
            published = True
        except (InjectedFault, DredgeError):
            published = False
        again = Catalog(str(place)).table("db.t")
        assert repr(again.to_arrow().sort_by("k").to_pylist()) == answer
        left = {path.name for path in Path(table.store.root).glob("bucket-0/*")} - before
        named = {file.file_name for file in top_files(again)}
        assert not left or left <= named or not published, (step, left)
        assert not list(Path(tempfile.gettempdir()).glob("dredge-spill-*"))
        if step is not None:
            again.compact(full=True)
            assert repr(again.to_arrow().sort_by("k").to_pylist()) == answer
        shutil.rmtree(place)
        return faulty, published

    counted, _ = attempt(None)
    for step in range(1, counted.steps + 1):
        attempt(step)


@pytest.mark.parametrize(("kind", "keys"), one_in(30, product(sorted(KINDS), sorted(KEYS)), first=1))
@settings(max_examples=examples(6))
@given(data=st.data())
def test_any_life_says_what_it_says_without_splices(
    tmp_path_factory: pytest.TempPathFactory, kind: str, keys: str, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("lives")
    count = len(VALUES)
    cut = data.draw(st.sampled_from([{}, CUT]), label="options of row groups")
    twins = [table_of(root / exact, exact, keys, count, **KINDS[kind], **cut) for exact in ("always", "never")]
    spliced = 0
    for step in range(data.draw(st.integers(2, 4), label="steps")):
        first = data.draw(st.integers(0, 300), label="first")
        dense = list(range(first, first + data.draw(st.sampled_from([0, 40, 600]), label="count")))
        others = data.draw(st.lists(st.integers(0, 900), max_size=4), label="others")
        numbers = sorted({*dense, *others}) or [first]
        has_deletes = kind not in ("aggregation", "partial-update", "first-row") and data.draw(st.booleans())
        kinds = ["-D" if has_deletes and number % 7 == 3 and number in others else "+I" for number in numbers]
        # Files of parts have other sizes, by which other compactions than full ones choose.
        full = bool(cut) or data.draw(st.booleans(), label="full")
        if step and data.draw(st.sampled_from([False, False, True]), label="widens a column"):
            for exact in ("always", "never"):
                wider = SchemaChange.update_type("d", f"DECIMAL({20 + step}, 3)")
                Catalog(str(root / exact)).alter_table("db.t", [wider])
            twins = [table.refresh() for table in twins]
        for table in twins:
            table.write(rows(numbers, step, keys, count), row_kinds=kinds)
        spliced += twins[0].compact(full=full).groups_spliced
        twins[1].compact(full=full)
        names = [field.name for field in KEYS[keys]]
        answer, twin = (table.to_arrow().sort_by([(name, "ascending") for name in names]) for table in twins)
        assert answer.to_pylist().__repr__() == twin.to_pylist().__repr__()
        if kind in ("lookup", "full-compaction"):
            assert changes_of(twins[0]) == changes_of(twins[1])
        assert statistics_of(twins[0]) == statistics_of(twins[1])
    assert all(check.passed for check in twins[0].check())
    event(f"{min(spliced, 20)} spliced")


def changes_of(table: Table) -> list[str]:
    stream = table.new_stream_scan(from_snapshot=table.snapshots()[-1].id)
    batch = stream.next()
    return [] if batch is None else sorted(repr(tuple(row.values())) for row in batch.to_arrow().to_pylist())


def statistics_of(table: Table) -> tuple[int, int, int]:
    """Rows, deletes and newest sequence number of all files."""
    files = live_files(table.refresh().store).get((EMPTY_ROW, 0), [])
    newest = max((file.max_sequence_number for file in files), default=0)
    return sum(f.row_count for f in files), sum(f.delete_row_count or 0 for f in files), newest
