"""Ranges by quantiles of a sample, rows spread over them within a limit of memory, ranges sorted in memory or in merged runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Schema, Table
from lsm_core.compact.clustering import ranges, sorting
from lsm_core.compact.clustering.ranges import Cuts, Layout, plan_layout, range_count
from lsm_core.compact.clustering.rewrite import sort_files
from lsm_core.compact.clustering.sorting import RangeDistributor, batch_rows, sort_batches
from lsm_core.compact.task import SortTask, task_from_bytes
from lsm_core.errors import CorruptFile
from lsm_core.files import SpillSpace
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.merge.curves import Curve
from lsm_core.metadata import manifests, snapshots
from tests.support.samples import examples

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
BY_K = Curve(("k",))


def batch(keys: np.ndarray | list[int], width: int = 8) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.int64()), pa.array([f"{k:0{width}d}" for k in keys])], schema=SCHEMA)


def append_table(tmp_path: Path, **options: str) -> Table:
    catalog = Catalog(str(tmp_path / "wh"))
    catalog.create_database("db", ignore_if_exists=True)
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return catalog.create_table("db.t", Schema(SCHEMA, [], [], {"bucket": "-1", **given}))


def task_of(table: Table, strategy: str = "order") -> tuple[SortTask, list[DataFileMeta]]:
    newest = snapshots.latest(table.store)
    assert newest is not None
    files = [entry.file for entry in table_to_entries(manifests.live_entries(table.store, newest))]
    (partition,) = {entry.partition for entry in table_to_entries(manifests.live_entries(table.store, newest))}
    return SortTask(partition, 0, -1, tuple(files), order_by=("k",), strategy=strategy), files


@given(st.lists(st.integers(-50, 50), max_size=60), st.lists(st.integers(-50, 50), max_size=8, unique=True))
def test_cuts_are_half_open(keys: list[int], bounds: list[int]) -> None:
    key_of = {k: BY_K.keys(batch([k])).scalar(0) for k in [*keys, *bounds]}
    cuts = Cuts(tuple(key_of[bound] for bound in sorted(bounds)))
    order, stretches = cuts.split(BY_K.keys(batch(keys)))
    found = {int(row): place for place, start, end in stretches for row in order[start:end]}
    assert [found[row] for row in range(len(keys))] == [sum(b <= k for b in bounds) for k in keys]
    assert order.tolist() == sorted(range(len(keys)), key=lambda row: found[row])


@pytest.mark.parametrize(("strategy", "expected"), [("quantity", [0.5, 0.5]), ("size", [0.75, 0.25])])
def test_ranges_hold_equally_many_rows_or_bytes(tmp_path: Path, strategy: str, expected: list[float]) -> None:
    table = append_table(tmp_path, sort_compaction__range_strategy=strategy)
    random = np.random.default_rng(3)
    keys = random.permutation(20_000)
    small, large = keys[keys < 10_000], keys[keys >= 10_000]
    table.write(pa.Table.from_batches([batch(small, 2)]))
    noise = [random.bytes(60).hex() for _ in large]
    table.write(pa.table({"k": large, "s": noise}))
    task, files = task_of(table)
    layout = plan_layout(table.store, task, files, 2)
    _, stretches = layout.cuts.split(layout.curve.keys(batch(keys)))
    assert layout.cuts.ranges == len(stretches) == 2 * ranges._FINER
    shares = [sum(end - start for _, start, end in half) / 20_000 for half in (stretches[:4], stretches[4:])]
    if strategy == "quantity":
        assert shares == pytest.approx(expected, abs=0.02)
    else:
        assert 0.65 < shares[0] < 0.85


@pytest.mark.parametrize("strategy", ["order", "zorder"])
def test_a_key_that_fills_the_table_gets_a_range_of_its_own(tmp_path: Path, strategy: str) -> None:
    table = append_table(tmp_path, dredge__merge_budget="1 mb")
    keys = np.where(np.arange(30_000) % 10 == 0, np.arange(30_000), 7)
    table.write(pa.Table.from_batches([batch(keys)]))
    task, files = task_of(table, strategy)
    layout = plan_layout(table.store, task, files, 8)
    order, stretches = layout.cuts.split(layout.curve.keys(batch(keys)))
    shares = [set(keys[order[start:end]].tolist()) for _, start, end in stretches]
    assert 2 <= len(shares) <= 8 and any(7 in share and len(share) <= 2 for share in shares)
    done = sort_files(table.store, task, [file.file_name for file in files])
    assert done.content.rows == sum(file.row_count for file in done.after) == 30_000


def test_few_rows_and_no_rows_need_no_cuts(tmp_path: Path) -> None:
    assert range_count(0, 10.0, 100) == range_count(10, 10.0, 100) == 1
    assert range_count(11, 10.0, 100) == 2
    table = append_table(tmp_path)
    table.write(pa.Table.from_batches([batch([3])]))
    task, files = task_of(table, "zorder")
    assert plan_layout(table.store, task, [], 5).cuts == Cuts()
    assert plan_layout(table.store, task, files, 5).cuts == Cuts()


def test_batches_are_cut_by_bytes() -> None:
    assert batch_rows(1.0, 1 << 30) == 65_536
    assert batch_rows(1 << 20, 1 << 30) == 16
    assert batch_rows(1000.0, 1 << 30) == 8388
    assert batch_rows(1000.0, 800_000) == 100


@pytest.mark.parametrize("bounds", [(), (5, 100, 101, 900)])
def test_spreading_keeps_to_its_limit_and_loses_no_row(tmp_path: Path, bounds: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    cuts = Cuts(tuple(BY_K.keys(batch([bound])).scalar(0) for bound in bounds))
    limit = 20_000
    with SpillSpace(str(tmp_path)) as space:
        spread = RangeDistributor(BY_K, cuts, SCHEMA, limit, space)
        keys = random.integers(0, 1000, 20_000)
        for part in np.array_split(keys, 40):
            spread.add(batch(part))
            largest = max(rows.size for rows in spread._ranges)
            assert sum(rows.kept_bytes for rows in spread._ranges) + 2 * min(largest, limit) <= 3 * limit
        found = [spread.take(place) for place in range(cuts.ranges)]
        assert any(rows.spilled for rows in found)
        taken = [np.concatenate([b.column("k").to_numpy() for b in rows.batches()]) for rows in found]
        assert not list(tmp_path.rglob("*.arrow"))
    edges = [-1, *bounds, 1000]
    for place, values in enumerate(taken):
        assert ((values >= edges[place]) & (values < max(edges[place + 1], 1))).all()
    assert sorted(np.concatenate(taken)) == sorted(keys)


@given(st.lists(st.lists(st.integers(-20, 20), max_size=30), max_size=12), st.integers(1, 4000), st.integers(2, 4))
@settings(max_examples=examples(30))
def test_a_range_is_sorted_stably_whatever_fits_into_memory(parts: list[list[int]], budget: int, fan_in: int) -> None:
    with SpillSpace() as space, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "_FAN_IN", fan_in)
        spread = RangeDistributor(BY_K, Cuts(), SCHEMA, max(1, budget // 2), space)
        number = 0
        for part in parts:
            texts = [str(number + i) for i in range(len(part))]
            number += len(part)
            spread.add(pa.record_batch([pa.array(part, pa.int64()), pa.array(texts, pa.string())], schema=SCHEMA))
        out = list(sort_batches(spread.take(0), BY_K, SCHEMA, budget, space))
    flat = [k for part in parts for k in part]
    expected = sorted(range(len(flat)), key=flat.__getitem__)
    assert [k for b in out for k in b.column("k").to_pylist()] == [flat[i] for i in expected]
    if sum(map(bool, parts)) and budget >= 4000:
        assert [int(s) for b in out for s in b.column("s").to_pylist()] == expected


def test_memory_stays_within_the_budget_whatever_the_rows(tmp_path: Path) -> None:
    """Three times the rows, the same peak of Arrow's memory."""
    peaks = {}
    for count in (60_000, 180_000):
        table = append_table(tmp_path / str(count), dredge__merge_budget="1 mb", target_file_size="64 kb")
        keys = np.random.default_rng(2).permutation(count)
        for part in np.array_split(keys, 8):
            table.write(pa.Table.from_batches([batch(part, 40)]))
        task, files = task_of(table, "zorder")
        names, watched = [file.file_name for file in files], Watch()
        with watched:
            done = sort_files(table.store, task, names)
        assert done.content.rows == count
        peaks[count] = watched.peak
    assert peaks[180_000] < 1.25 * peaks[60_000]


class Watch:
    """The peak of Arrow's allocations above what there was, looked at whenever a batch is handed on."""

    def __enter__(self) -> Self:
        self._patch = pytest.MonkeyPatch()
        self._base = pa.total_allocated_bytes()
        self.peak = 0
        from lsm_core.files import AppendFileWriter

        plain_write, plain_add = AppendFileWriter.write, RangeDistributor.add

        def write(writer: AppendFileWriter, rows: pa.RecordBatch) -> None:
            self._look()
            plain_write(writer, rows)

        def add(spread: RangeDistributor, rows: pa.RecordBatch) -> None:
            plain_add(spread, rows)
            self._look()

        self._patch.setattr(AppendFileWriter, "write", write)
        self._patch.setattr(RangeDistributor, "add", add)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _look(self) -> None:
        self.peak = max(self.peak, pa.total_allocated_bytes() - self._base)


def test_a_spill_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        with SpillSpace(str(tmp_path)) as space:
            spread = RangeDistributor(BY_K, Cuts(), SCHEMA, 10, space)
            spread.add(batch(list(range(5000))))
            (path,) = tmp_path.rglob("*.arrow")
            path.write_bytes(path.read_bytes()[:-200])
            yield from sort_batches(spread.take(0), BY_K, SCHEMA, 1 << 20, space)

    with pytest.raises(CorruptFile, match="run-0"):
        list(broken())


def test_a_task_crosses_processes(tmp_path: Path) -> None:
    table = append_table(tmp_path)
    table.write(pa.Table.from_batches([batch([3, 1])]))
    task, files = task_of(table, "zorder")
    task = replace(task, bins=((files[0].file_name,),))
    assert task_from_bytes(task.to_bytes()) == SortTask.from_bytes(task.to_bytes()) == task
    assert task.files_to_sort == tuple(files)
    for broken in (b"", b"{}\n" + task.to_bytes().partition(b"\n")[2], task.to_bytes()[:-20], b"{\n"):
        with pytest.raises(CorruptFile):
            SortTask.from_bytes(broken)


def test_a_layout_crosses_processes_and_is_shared_out(tmp_path: Path) -> None:
    table = append_table(tmp_path)
    table.write(pa.Table.from_batches([batch(list(range(5000)))]))
    task, files = task_of(table, "zorder")
    layout = plan_layout(table.store, replace(task, order_by=("k", "s")), files, 6)
    again = Layout.from_json(layout.to_json())
    rows = batch(list(range(0, 6000, 7)))
    keys, other = layout.curve.keys(rows), again.curve.keys(rows)
    assert [keys.scalar(i) for i in range(len(keys))] == [other.scalar(i) for i in range(len(other))]
    assert again.cuts == layout.cuts and layout.cuts.ranges == 6 * ranges._FINER
    for count in (1, 2, 4, 6):
        outer, inner = layout.shares(count)
        assert outer.ranges == len(inner) == count
        joined = [part for i, cuts in enumerate(inner) for part in (*cuts.bounds, *outer.bounds[i : i + 1])]
        assert tuple(joined) == layout.cuts.bounds
    for broken in ("", "{}", layout.to_json()[:-1], '{"curve": [1, 2, 3, 4], "bounds": []}'):
        with pytest.raises(CorruptFile):
            Layout.from_json(broken)
