"""Large merged splits are cut at the borders of large files, and together give the same rows in the same order."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core import Table
from lsm_core.read import Split, plan_scan, read_split, split_ranges
from lsm_core.read.split_ranges import cut_for_workers
from tests.read.test_lone_parts import KINDS, merged, ordered, rows, table_of
from tests.support.samples import examples

FILES = {"target-file-size": "1 kb"}


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_ranges, "_LEAST_BYTES", 1)


def layered(root: Path, **options: str) -> Table:
    """Many files with the keys from 100 to 899, under a file with two outliers."""
    table = table_of(root, **FILES, **options)
    table.write(rows(list(range(100, 900)), 0))
    table.compact(full=True)
    table.write(rows([1, 5000], 1))
    return table


def cut_splits(table: Table, workers: int) -> list[Split]:
    return cut_for_workers(table.store, plan_scan(table.store).splits, workers)


def keys_of(table: Table, splits: list[Split]) -> list[list[Any]]:
    return [
        [key for batch in read_split(table.store, split, ["k"]) for key in batch.column("k").to_pylist()]
        for split in splits
    ]


def test_a_bucket_under_two_outliers_is_cut_for_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsm_core.files.writer.ROW_GROUP_ROWS", 20)
    table = layered(tmp_path)
    (whole,) = plan_scan(table.store).splits
    assert whole.file_count > 6
    splits = cut_splits(table, 4)
    assert len(splits) == 4
    parts = keys_of(table, splits)
    assert [key for part in parts for key in part] == [1, *range(100, 900), 5000]
    assert min(map(len, parts)) > 100
    shipped = [Split.from_bytes(split.to_bytes()) for split in splits]
    assert shipped == splits
    assert [pickle.loads(pickle.dumps(split)) for split in splits] == splits
    assert keys_of(table, shipped) == parts
    assert shipped[1] != shipped[2]


def test_splits_stay_whole_without_gain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = layered(tmp_path)
    assert len(cut_splits(table, 1)) == 1
    assert len(cut_splits(merged(table), 4)) == 1
    monkeypatch.setattr(split_ranges, "_LEAST_BYTES", 8 << 20)
    assert len(cut_splits(table, 4)) == 1


def test_a_section_is_not_cut_if_much_would_be_read_again(tmp_path: Path) -> None:
    table = layered(tmp_path)
    table.write(rows(list(range(0, 1000, 10)), 2))
    assert len(cut_splits(table, 4)) == 1


@pytest.mark.spark
def test_spark_has_a_task_for_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lsm_core.spark import explain_read

    monkeypatch.setattr("lsm_core.files.writer.ROW_GROUP_ROWS", 20)
    table = layered(tmp_path, **{"source.split.open-file-cost": "1 b"})
    assert explain_read(table, slots=4).tasks == 4
    assert explain_read(merged(table), slots=4).tasks == 1


@settings(max_examples=examples(6), deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.lists(st.integers(0, 1000), min_size=1, max_size=6, unique=True),
    st.integers(2, 9),
    st.integers(1, 40),
)
def test_cut_splits_give_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, kind: str, new: list[int], workers: int, group_rows: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lsm_core.files.writer.ROW_GROUP_ROWS", group_rows)
        patch.setattr(split_ranges, "_LEAST_BYTES", 1)
        table = layered(tmp_path_factory.mktemp("t"), **KINDS[kind])
        table.write(rows(sorted(new), 2))
        splits = cut_splits(table, workers)
        answer = [
            tuple(row.values())
            for split in splits
            for batch in read_split(table.store, split, ["k", "v", "s"])
            for row in batch.to_pylist()
        ]
        assert answer == ordered(merged(table))
        assert ordered(table.copy({"dredge.read.threads": str(workers)})) == answer
