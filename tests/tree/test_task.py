"""What compacting a unit does: upgrade or rewrite, deletes dropped only at the bottom, closed units, small-file bins."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from lsm_core.tree import (
    CompactUnit,
    DataFile,
    Decline,
    DeclineReason,
    Levels,
    close_unit,
    interval_partition,
    pick_small_files,
    plan_task,
)


def file(
    name: str, level: int, low: int, high: int, size: int = 100, deletes: int | None = 0, sequence: int = 0
) -> DataFile:
    return DataFile(name, level, size, low, high, delete_row_count=deletes, max_sequence=sequence, row_count=1000)


def full(levels: Levels) -> CompactUnit:
    return CompactUnit.of_runs(levels.max_level, levels.runs(), full=True)


def test_one_touched_key_range_of_five_rewrites_only_that_range() -> None:
    bottom = [file(f"b{i}", 4, i * 10, i * 10 + 9) for i in range(5)]
    levels = Levels([*bottom, file("new", 0, 21, 28, 10)], 6)
    plan = plan_task(levels, full(levels), 5)
    assert [f.name for f in plan.rewritten_files] == ["b2", "new"]
    assert [f.name for f in plan.upgrades] == ["b0", "b1", "b3", "b4"]
    assert plan.drop_delete


def test_a_file_with_deletes_or_an_unknown_number_of_them_is_rewritten_into_the_last_level() -> None:
    levels = Levels(
        [file("clean", 0, 0, 9), file("deletes", 0, 20, 29, deletes=1), file("unknown", 0, 40, 49, deletes=None)], 3
    )
    plan = plan_task(levels, full(levels), 1)
    assert [[f.name for run in r for f in run.files] for r in plan.rewrites] == [["deletes"], ["unknown"]]
    assert [f.name for f in plan.upgrades] == ["clean"]
    lower = plan_task(Levels([*levels.files, file("bottom", 2, 0, 100)], 3), CompactUnit(1, levels.files), 1)
    assert len(lower.upgrades) == 3
    assert not lower.drop_delete


def test_deletes_are_kept_while_any_level_below_the_output_holds_data() -> None:
    deep = file("deep", 3, 1000, 1001)
    levels = Levels([file("a", 0, 0, 9, sequence=1), file("b", 0, 0, 9), deep], 5)
    assert not plan_task(levels, CompactUnit(2, levels.files[:2]), 1).drop_delete
    assert plan_task(levels, CompactUnit(3, levels.files), 1).drop_delete
    assert plan_task(Levels(levels.files[:2], 5), CompactUnit(1, levels.files[:2]), 1).drop_delete


def test_files_already_at_the_output_level_are_left_as_they_are() -> None:
    levels = Levels([file("there", 2, 0, 9), file("new", 0, 20, 29)], 3)
    plan = plan_task(levels, full(levels), 1)
    assert (plan.rewrites, [f.name for f in plan.upgrades], [f.name for f in plan.unchanged]) == (
        (),
        ["new"],
        ["there"],
    )


def test_forced_rewriting_rewrites_every_file() -> None:
    levels = Levels([file("there", 2, 0, 9), file("new", 0, 20, 29)], 3)
    plan = plan_task(levels, full(levels), 1, force_rewrite_all=True)
    assert {f.name for f in plan.rewritten_files} == {"there", "new"}
    by_file = plan_task(levels, CompactUnit(2, levels.files, by_file=True), 10**9)
    assert len(by_file.rewrites) == 2


def test_small_neighbours_join_one_rewrite_with_as_few_inputs_as_their_overlap_needs() -> None:
    small = [file(f"s{i}", 0, i * 10, i * 10 + 5, 1, sequence=i) for i in range(10)]
    levels = Levels(small, 3)
    plan = plan_task(levels, full(levels), 50)
    assert len(plan.rewrites) == 1
    assert [len(run.files) for run in plan.rewrites[0]] == [10]


@st.composite
def trees(draw: st.DrawFn) -> Levels:
    files = []
    for number in range(draw(st.integers(0, 6))):
        low = draw(st.integers(0, 50))
        deletes = draw(st.sampled_from([0, 0, 1, None]))
        files.append(
            file(f"l0-{number}", 0, low, low + draw(st.integers(0, 20)), draw(st.integers(1, 100)), deletes, number)
        )
    for level in (1, 2):
        edges = sorted(draw(st.sets(st.integers(0, 70), max_size=8)))
        for low, high in zip(edges[::2], edges[1::2], strict=False):
            files.append(
                file(f"l{level}-{low}", level, low, high, draw(st.integers(1, 100)), draw(st.sampled_from([0, 1])))
            )
    return Levels(files, 3)


@given(trees(), st.integers(0, 120), st.integers(0, 9))
def test_a_plan_covers_the_unit_once_and_leaves_a_valid_tree(levels: Levels, small_below: int, count: int) -> None:
    runs = levels.runs()
    unit = CompactUnit.of_runs(levels.max_level, runs, full=True)
    if 0 < count < len(runs) and runs[count].level > 1:
        unit = CompactUnit.of_runs(runs[count].level - 1, runs[:count])
    plan = plan_task(levels, unit, small_below)
    touched = [*plan.rewritten_files, *plan.upgrades, *plan.unchanged]
    assert sorted(f.name for f in touched) == sorted(f.name for f in unit.files)
    outputs = [f.upgrade(plan.output_level) for f in plan.upgrades]
    for number, rewrite in enumerate(plan.rewrites):
        for run in rewrite:
            assert all(a.max_key < b.min_key for a, b in zip(run.files, run.files[1:], strict=False))
        low, high = min(run.min_key for run in rewrite), max(run.max_key for run in rewrite)
        outputs.append(DataFile(f"out{number}", plan.output_level, 1, low, high))
    levels.replaced([*plan.rewritten_files, *plan.upgrades], outputs).validate()


@given(trees())
def test_sections_share_no_key_and_have_no_more_runs_than_files_overlap(levels: Levels) -> None:
    sections = interval_partition(levels.files)
    spans = [(min(r.min_key for r in s), max(r.max_key for r in s)) for s in sections]
    assert all(a[1] < b[0] for a, b in itertools.pairwise(spans))
    assert sum(len(r.files) for s in sections for r in s) == len(levels.files)
    for section in sections:
        keys = {key for run in section for f in run.files for key in (f.min_key, f.max_key)}
        depth = max(sum(f.min_key <= key <= f.max_key for run in section for f in run.files) for key in keys)
        assert len(section) == depth


@given(trees(), st.integers(1, 8))
def test_no_run_older_than_a_closed_unit_overlaps_it(levels: Levels, count: int) -> None:
    runs = levels.runs()
    if not runs:
        return
    unit = CompactUnit.of_runs(2, runs[: min(count, len(runs))])
    closed = close_unit(levels, unit)
    names = {f.name for f in closed.files}
    assert {f.name for f in unit.files} <= names
    low, high = min(f.min_key for f in closed.files), max(f.max_key for f in closed.files)
    assert not any(f.min_key <= high and low <= f.max_key for f in levels.files if f.name not in names)


def test_small_files_fill_bins_by_size_the_smallest_first() -> None:
    sizes = [30, 10, 50, 20, 90, 40]
    files = [DataFile(f"f{i}", 0, size, b"", b"", creation_ms=i) for i, size in enumerate(sizes)]
    bins = pick_small_files(files, target=50, small_below=60, min_file_num=2, open_cost=5)
    assert isinstance(bins, list)
    assert [[f.size for f in bin_files] for bin_files in bins] == [[10, 20, 30, 40]]


def test_too_few_small_files_wait_unless_all_are_asked_for() -> None:
    files = [DataFile(f"f{i}", 0, 10, b"", b"", creation_ms=i) for i in range(4)]
    waiting = pick_small_files(files, target=1000, small_below=700, min_file_num=5, open_cost=0)
    assert isinstance(waiting, Decline)
    assert waiting.reason is DeclineReason.TOO_FEW_SMALL_FILES
    assert waiting.facts["small_files"] == 4
    assert waiting.facts["min_files"] == 5
    assert isinstance(pick_small_files(files, 1000, 700, 5, 0, full=True), list)
    assert isinstance(pick_small_files(files[:1], 1000, 700, 5, 0, full=True), Decline)
    nothing = pick_small_files([], 1000, 700, 5, 0)
    assert isinstance(nothing, Decline)
    assert nothing.reason is DeclineReason.EMPTY


def test_two_bins_are_made_where_two_are_worth_it() -> None:
    files = [DataFile(f"f{i}", 0, 40, b"", b"", creation_ms=i) for i in range(7)]
    bins = pick_small_files(files, target=50, small_below=60, min_file_num=2, open_cost=0)
    assert isinstance(bins, list)
    # 3 x 40 >= 2 x 50; the seventh is alone and waits
    assert [[f.name for f in bin_files] for bin_files in bins] == [["f0", "f1", "f2"], ["f3", "f4", "f5"]]
