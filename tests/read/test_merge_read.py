"""Merging on read: never more inputs open than allowed, the same answer by every way, unsorted files are named."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core.errors import CorruptFile
from lsm_core.files import KeyValueFileWriter, open_kv
from lsm_core.format.manifest import EMPTY_ROW, DataFileMeta, ManifestEntry, entries_to_table
from lsm_core.metadata import tree_files
from lsm_core.metadata.store import TableStore
from lsm_core.read import merge_read, read_bucket_merged
from lsm_core.read.merge_read import as_tree, decoded_row_bytes, fits, in_memory, next_pass, sections_of
from tests.support.stores import live_files, make_store, read, write

FIELDS = {"k": "INT NOT NULL", "v": "BIGINT", "s": "STRING"}


def many_runs(root: Path, runs: int, options: dict[str, str] | None = None) -> tuple[TableStore, dict[int, int]]:
    store = make_store(root / "t", FIELDS, ["k"], (), {"bucket": "1", **(options or {})})
    random, expected = np.random.default_rng(runs), {}
    for run in range(runs):
        keys = np.unique(random.integers(0, 500, 60))
        write(store, pa.table({"k": keys, "v": [run * 1000 + int(k) for k in keys], "s": ["x" * run] * len(keys)}))
        expected |= {int(k): run * 1000 + int(k) for k in keys}
    return store, expected


def files_of(store: TableStore) -> list[DataFileMeta]:
    return live_files(store)[EMPTY_ROW, 0]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """[now open, most ever open] of key-value files."""
    count = [0, 0]
    real = merge_read.open_kv

    def counted(*args: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        count[0] += 1
        count[1] = max(count)
        try:
            yield from real(*args, **how)
        finally:
            count[0] -= 1

    monkeypatch.setattr(merge_read, "open_kv", counted)
    return count


@pytest.mark.parametrize("share", [8, 1 << 40])
def test_never_more_inputs_open_than_the_threshold(
    tmp_path: Path, opened: list[int], monkeypatch: pytest.MonkeyPatch, share: int
) -> None:
    """Whether small inputs may lie in memory (share 8) or everything beyond the threshold takes passes over the disk."""
    monkeypatch.setattr(merge_read, "_IN_MEMORY_SHARE", share)
    store, expected = many_runs(tmp_path, 40, {"sort-spill-threshold": "3"})
    found = read(store)
    assert dict(zip(found.column("k").to_pylist(), found.column("v").to_pylist(), strict=True)) == expected
    assert opened[1] <= 3
    assert opened[0] == 0


def test_a_read_left_early_closes_its_files(tmp_path: Path, opened: list[int]) -> None:
    store, _ = many_runs(tmp_path, 5)
    batches = read_bucket_merged(store, EMPTY_ROW, 0, files_of(store))
    next(batches)
    batches.close()
    assert opened[0] == 0


def test_sequence_numbers_are_decoded_only_where_they_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bool, bool]] = []
    real = merge_read.open_kv

    def seen(*args: Any, **how: Any) -> Any:
        asked.append((how["need_sequence"], how["need_kind"]))
        return real(*args, **how)

    monkeypatch.setattr(merge_read, "open_kv", seen)
    store, expected = many_runs(tmp_path, 4)
    assert read(store).num_rows == len(expected)
    assert set(asked) == {(False, False)}
    asked.clear()
    write(store, pa.table({"k": [1], "v": [1], "s": ["d"]}), ["-D"])
    assert 1 not in read(store).column("k").to_pylist()
    assert (False, True) in asked
    assert not any(sequence for sequence, _ in asked)
    asked.clear()
    files = files_of(store)
    tied = [dataclasses.replace(f, min_sequence_number=0, max_sequence_number=9999) for f in files]
    exact = list(read_bucket_merged(store, EMPTY_ROW, 0, tied))
    assert any(sequence for sequence, _ in asked)
    assert pa.Table.from_batches(exact).num_rows == read(store).num_rows


def test_a_column_choice_without_key_or_sequence_field_merges_by_them(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1", "sequence.field": "v"})
    write(store, pa.table({"k": [1, 2], "v": [9, 1], "s": ["late", "b"]}))
    write(store, pa.table({"k": [1, 2], "v": [5, 7], "s": ["early", "c"]}))
    assert sorted(read(store, columns=["s"]).column("s").to_pylist()) == ["c", "late"]
    assert read(store, columns=["s"]).column_names == ["s"]


@pytest.mark.parametrize("passes", [False, True])
def test_the_newer_file_decides_between_equal_sequence_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passes: bool
) -> None:
    """Sequence numbers are not decoded for it, in merges of one pass and of several."""
    needed: set[bool] = set()
    real = merge_read.open_kv

    def count_open(*args: Any, **how: Any) -> Any:
        needed.add(how["need_sequence"])
        return real(*args, **how)

    monkeypatch.setattr(merge_read, "open_kv", count_open)
    options = {"bucket": "1", "sequence.field": "v", **({"sort-spill-threshold": "2"} if passes else {})}
    monkeypatch.setattr(merge_read, "_IN_MEMORY_SHARE", 1 << 40 if passes else 8)
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), options)
    for number in range(6):
        rows = pa.table({"k": [1, 2, 3, 4], "v": [7, number, -number, None], "s": [f"{number}"] * 4})
        write(store, rows, ["+I", "+I", "+I", "-D" if number == 5 else "+I"])
    rows = read(store).sort_by("k")
    assert rows.to_pydict() == {"k": [1, 2, 3], "v": [7, 5, 0], "s": ["5", "5", "0"]}
    assert needed == {False}


def test_an_unsorted_file_is_named(tmp_path: Path) -> None:
    store, _ = many_runs(tmp_path, 2)
    (good, other) = files_of(store)
    (batch,) = open_kv(store, EMPTY_ROW, 0, good)
    writer = KeyValueFileWriter(store, EMPTY_ROW, 0, 1, 0, 0)
    writer.write(batch.take(pa.array(np.random.default_rng(1).permutation(batch.num_rows))))
    (bad,) = writer.close()
    bad = dataclasses.replace(bad, min_key=good.min_key, max_key=good.max_key)
    with pytest.raises(CorruptFile, match=bad.file_name):
        list(read_bucket_merged(store, EMPTY_ROW, 0, [bad, other]))


def test_sections_are_disjoint_and_hold_every_file_once(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    for start in (0, 5, 100, 105, 300):
        write(store, pa.table({"k": range(start, start + 10), "v": range(10), "s": ["x"] * 10}))
    sections = sections_of(store, files_of(store))
    assert [len(section.files) for section in sections] == [2, 2, 1]
    assert [len(section.runs) for section in sections] == [2, 2, 1]
    for section in sections:
        assert sorted(f.file_name for group in section.groups for f in group) == sorted(
            f.file_name for f in section.files
        )


def test_inputs_in_memory_are_the_smallest_and_passes_shrink_to_the_threshold() -> None:
    assert in_memory([5, 1, 9, 2], 4) == set()
    assert in_memory([5, 1, 9, 2], 3) == {1, 3}
    assert fits([5, 1, 9, 2], 3, limit=3)
    assert not fits([5, 1, 9, 2], 3, limit=2)
    for count in (4, 10, 17, 100, 5000):
        sizes, steps = [1.0] * count, 0
        while not fits(sizes, 3, 0):
            groups = next_pass(sizes, 3, 0)
            for group in reversed(groups):
                assert len(group) <= 3
                sizes[group.start : group.stop] = [float(sum(sizes[group.start : group.stop]))]
            steps += 1
        assert len(sizes) <= 3
        assert steps < 30
    assert next_pass([1.0] * 2000, 3, 1e9) == [range(1024), range(1024, 2000)]


def test_row_sizes_see_through_dictionaries(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", {"k": "INT NOT NULL", "s": "STRING"}, ["k"], (), {"bucket": "1"})
    write(store, pa.table({"k": range(2000), "s": ["y" * 5000] * 2000}))
    files = files_of(store)
    assert files[0].file_size < 100_000
    assert decoded_row_bytes(store, EMPTY_ROW, 0, files, ["k", "s"]) > 5000
    assert decoded_row_bytes(store, EMPTY_ROW, 0, files, ["k"]) < 50


@pytest.mark.parametrize("keys", [["k"], []])
def test_files_become_the_tree_files_of_their_manifest_entries(tmp_path: Path, keys: list[str]) -> None:
    options = {"bucket": "1" if keys else "-1"}
    store = make_store(tmp_path, {"k": "INT NOT NULL", "v": "STRING"}, keys, options=options)
    write(store, pa.table({"k": pa.array([3, -7], pa.int32()), "v": ["a", "b"]}))
    write(store, pa.table({"k": pa.array([12], pa.int32()), "v": ["c"]}))
    (files,) = live_files(store).values()
    files[0] = dataclasses.replace(files[0], creation_time_ms=None, first_row_id=5)
    entries = entries_to_table([ManifestEntry(0, EMPTY_ROW, 0, 1, file) for file in files])
    assert as_tree(store, files) == tree_files(store, entries)
    assert as_tree(store, []) == []
