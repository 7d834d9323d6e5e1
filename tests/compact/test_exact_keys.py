"""Compactions keep files in whose key range no other file has a key, and change no answer by it."""

from __future__ import annotations

from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Table
from lsm_core.commit import Committer
from lsm_core.compact import BucketTask, pieces, run_tasks_locally
from lsm_core.compact.pieces import cut_task, untouched_parts
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.manifest import EMPTY_ROW, DataFileMeta
from lsm_core.maintenance.actions.compact.unit_choice import bucket_task
from lsm_core.maintenance.verify import ReferenceJudge
from tests.support.samples import examples, one_in
from tests.support.stores import live_files

SMALL_FILES = {"bucket": "1", "target-file-size": "2 kb", "num-levels": "4"}
INT = pa.int32()
KINDS: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "partial-update": {"merge-engine": "partial-update"},
    "first-row": {"merge-engine": "first-row"},
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "vectors": {"deletion-vectors.enabled": "true"},
}
KEYS: dict[str, tuple[pa.DataType, Any]] = {
    "numbers": (INT, lambda n: n),
    "texts": (pa.string(), lambda n: f"the same long beginning of each key {n:05}"),
}


def table_of(root: Path, exact: str, key_type: pa.DataType = INT, **options: str) -> Table:
    columns = pa.schema([pa.field("k", key_type, nullable=False), ("v", pa.int64()), ("s", pa.string())])
    settings = {**SMALL_FILES, "dredge.compaction.exact-keys": exact, **options}
    catalog = Catalog(str(root))
    catalog.create_database("db")
    return catalog.create_table("db.t", columns, primary_keys=["k"], options=settings)


def rows(keys: list[Any], value: int, key_type: pa.DataType = INT) -> pa.Table:
    texts = [sha256(f"{value} of {key}".encode()).hexdigest() for key in keys]  # texts that do not compress well
    return pa.table({"k": pa.array(keys, key_type), "v": [value] * len(keys), "s": texts})


def files_of(table: Table) -> dict[str, int]:
    """Names of the bucket's files, with their levels."""
    return {file.file_name: file.level for files in live_files(table.refresh().store).values() for file in files}


def task_of(table: Table) -> BucketTask:
    (((partition, bucket), files),) = live_files(table.refresh().store).items()
    task = bucket_task(table.store, partition, bucket, 1, files, full=True)
    assert task is not None
    return task


def changes_of(table: Table) -> list[tuple[Any, ...]]:
    stream = table.new_stream_scan(from_snapshot=table.snapshots()[-1].id)
    batch = stream.next()
    return [] if batch is None else sorted(tuple(row.values()) for row in batch.to_arrow().to_pylist())


def top_files(table: Table) -> list[DataFileMeta]:
    return [file for file in live_files(table.refresh().store)[EMPTY_ROW, 0] if file.level == 3]


@pytest.fixture
def layered(tmp_path: Path) -> Table:
    """More than ten files on the top level, with keys from 100 to 899."""
    table = table_of(tmp_path, "always")
    table.write(rows(list(range(100, 900)), 0))
    table.compact(full=True)
    assert len(files_of(table)) > 10
    return table


def test_two_outliers_rewrite_nothing_else(layered: Table) -> None:
    before = files_of(layered)
    layered.write(rows([1, 5000], 1))
    report = layered.compact(full=True)
    after = files_of(layered)
    assert before.items() <= after.items()
    assert (report.files_in, report.rows_in, report.files_kept) == (1, 2, len(before))
    assert report.bytes_kept > 20 * report.bytes_in
    assert any("no other file has a key between theirs" in line for line in report.lines("db.t"))
    assert layered.to_arrow().sort_by("k")["k"].to_pylist() == [1, *range(100, 900), 5000]
    assert all(check.passed for check in layered.check())


def test_only_files_with_a_key_of_others_are_rewritten(layered: Table) -> None:
    before = sorted(top_files(layered), key=lambda file: file.min_key)
    layered.write(rows([1, 150, 500, 2000], 7))
    report = layered.compact(full=True)
    assert report.files_in == 3
    assert report.files_kept == len(before) - 2
    rows_left = layered.to_arrow().sort_by("k")
    assert rows_left["k"].to_pylist() == [1, *range(100, 900), 2000]
    assert [row["k"] for row in rows_left.to_pylist() if row["v"] == 7] == [1, 150, 500, 2000]


def test_without_the_option_all_are_rewritten(tmp_path: Path) -> None:
    table = table_of(tmp_path, "never")
    table.write(rows(list(range(100, 900)), 0))
    table.compact(full=True)
    files = files_of(table)
    table.write(rows([1, 5000], 1))
    report = table.compact(full=True)
    assert (report.files_in, report.files_kept, report.bytes_kept) == (len(files) + 1, 0, 0)


def test_files_that_cost_more_to_keep_are_rewritten(tmp_path: Path) -> None:
    """By default a key range of its own must save more rows than files that it opens again cost."""
    table = table_of(tmp_path, "auto")
    table.write(rows(list(range(100, 900)), 0))
    table.compact(full=True)
    table.write(rows([1, 5000], 1))
    assert table.compact(full=True).files_kept == 0


def test_a_small_file_stays_only_between_large_files_that_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsm_core.compact.exact_keys.OPENING", 0)
    table = table_of(tmp_path, "auto", **{"target-file-size": "8 kb"})
    table.write(rows(list(range(0, 20_000, 10)), 0))
    table.compact(full=True)
    (largest,) = decode_rows(
        pa.array([file.max_key for file in top_files(table)], pa.binary()), table.schema.trimmed_key_types, "a test"
    )
    bounds = sorted(largest.to_pylist())
    assert len(bounds) > 6
    between = bounds[3] + 5
    table.write(rows([-9, between, 90_000], 1))
    assert table.compact(full=True).files_in == 1
    assert len(top_files(table)) == len(bounds) + 3
    table.write(rows([-8, 90_001], 2))
    report = table.compact(full=True)
    assert (report.files_in, report.rows_in) == (3, 4), "the new file, and the small files at both ends"
    table.write(rows([-7, between + 1, 90_002], 3))
    report = table.compact(full=True)
    assert (report.files_in, report.rows_in) == (4, 8), "and the small file that has a neighbour"
    assert report.files_kept == len(bounds)
    assert table.to_arrow().num_rows == 2_000 + 8


def test_files_with_deletes_that_must_go_are_rewritten(layered: Table) -> None:
    layered.write(pa.table({"k": pa.array([300], INT), "v": [0], "s": ["x"]}), row_kinds=["-D"])
    layered.write(rows([1, 5000], 1))
    report = layered.compact(full=True)
    assert report.files_kept > 8
    assert 300 not in layered.to_arrow()["k"].to_pylist()


def test_parts_and_pieces_together_cut_between_kept_files(layered: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    layered.write(rows([1, 150, *range(400, 500), 850, 2000], 7))
    task, judge = task_of(layered), ReferenceJudge()
    parts = untouched_parts(layered.store, task)
    assert len(parts) >= 3
    assert all(part.untouched == parts[0].untouched for part in parts)
    assert BucketTask.from_bytes(parts[1].to_bytes()) == parts[1]
    monkeypatch.setattr("lsm_core.compact.pieces._OPENING", 0.0)
    monkeypatch.setattr("lsm_core.compact.pieces._LEAST_GAIN", 0.0)
    assert len(cut_task(layered.store, task, 4)) > len(parts)
    monkeypatch.setattr(pieces, "usable_cores", lambda: 3)
    store = layered.store.copy({"dredge.compaction.piece-size": "1 kb"})
    (result,) = run_tasks_locally(store, [task], judge, threads=3)
    assert result.report.files_kept == len(parts[0].untouched or ())
    Committer(store).commit([result.message])
    rows_left = layered.refresh().to_arrow().sort_by("k")
    assert rows_left["k"].to_pylist() == [1, *range(100, 900), 2000]
    assert sum(row["v"] == 7 for row in rows_left.to_pylist()) == 104
    assert all(check.passed for check in layered.check())


@pytest.mark.parametrize(("kind", "keys"), one_in(5, product(sorted(KINDS), sorted(KEYS)), first=1))
@settings(max_examples=examples(6))
@given(data=st.data())
def test_any_life_says_what_it_says_without_the_option(
    tmp_path_factory: pytest.TempPathFactory, kind: str, keys: str, data: st.DataObject
) -> None:
    key_type, make = KEYS[keys]
    root = tmp_path_factory.mktemp("lives")
    twins = [table_of(root / exact, exact, key_type, **KINDS[kind]) for exact in ("always", "never")]
    for step in range(data.draw(st.integers(2, 4), label="steps")):
        first = data.draw(st.integers(0, 300), label="first")
        dense = list(range(first, first + data.draw(st.sampled_from([0, 40, 150]), label="count")))
        others = data.draw(st.lists(st.integers(0, 500), max_size=6), label="others")
        numbers = sorted({*dense, *others}) or [first]
        has_deletes = kind not in ("aggregation", "partial-update", "first-row") and data.draw(st.booleans())
        kinds = ["-D" if has_deletes and number % 7 == 3 else "+I" for number in numbers]
        full = data.draw(st.booleans(), label="full")
        for table in twins:
            table.write(rows([make(number) for number in numbers], step, key_type), row_kinds=kinds)
            table.compact(full=full)
        one, other = (table.to_arrow().sort_by("k") for table in twins)
        assert one.equals(other)
        if kind in ("lookup", "full-compaction"):
            assert changes_of(twins[0]) == changes_of(twins[1])
    assert all(check.passed for check in twins[0].check())
