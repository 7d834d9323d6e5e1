"""Picking, partitioning and compacting as Paimon's own tests want it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lsm_core.options import TableOptions
from lsm_core.tree import (
    CompactUnit,
    DataFile,
    Decline,
    EarlyFullCompaction,
    ForceUpLevel0Compaction,
    Levels,
    LevelSortedRun,
    OffPeakHours,
    SortedRun,
    State,
    Strategy,
    TaskPlan,
    UniversalCompaction,
    interval_partition,
    plan_task,
    strategy_from_options,
)
from tests.vectors.cases import Case, cases


def runs_of(listed: list[list[int]]) -> list[LevelSortedRun]:
    return [
        LevelSortedRun(level, SortedRun((DataFile(f"f{i}", level, size, 0, 0),)))
        for i, (level, size) in enumerate(listed)
    ]


def early_full(options: Case) -> EarlyFullCompaction | None:
    return EarlyFullCompaction.of(
        options.get("full_compaction_interval_ms"),
        options.get("total_size_threshold"),
        options.get("incremental_size_threshold"),
    )


def strategy(options: Case) -> UniversalCompaction:
    return UniversalCompaction(
        options["max_size_amp"], options["size_ratio"], options["num_run_trigger"], early_full(options)
    )


def check_unit(unit: CompactUnit | None, expect: Case | None) -> None:
    if expect is None:
        assert unit is None
        return
    assert unit is not None
    if "picked_sizes" in expect:
        assert [file.size for file in unit.files] == expect["picked_sizes"]
    if "picked_count" in expect:
        assert len(unit.files) == expect["picked_count"]
    if "output_level" in expect:
        assert unit.output_level == expect["output_level"]


def check_steps(picker: Strategy | EarlyFullCompaction, case: Case) -> None:
    state = State(case["options"].get("last_full_at_ms"))
    for step in case["steps"]:
        decision, state = picker.decide(case["num_levels"], runs_of(step["runs"]), step.get("at_ms", 0), state)
        check_unit(None if decision is None or isinstance(decision, Decline) else decision.unit, step["expect"])


def off_peak(case: Case) -> OffPeakHours | None:
    options = case["options"]
    return OffPeakHours.of(options["start_hour"], options["end_hour"], options["off_peak_ratio"])


def run_pick(case: Case) -> None:
    options = case["options"]
    picker: Strategy = strategy(options)
    if options.get("force_up_level0"):
        picker = ForceUpLevel0Compaction(strategy(options), options.get("force_up_level0_interval"))
    check_unit(picker.pick(case["num_levels"], runs_of(case["runs"])), case["expect"])


def run_unit_of_prefix(case: Case) -> None:
    runs = runs_of(case["runs"])
    check_unit(strategy(case["options"]).create_unit(runs, case["max_level"], case["run_count"]), case["expect"])


def run_early_full(case: Case) -> None:
    picker = early_full(case["options"])
    assert picker is not None
    check_steps(picker, case)


def run_early_full_enabled(case: Case) -> None:
    made = strategy_from_options(TableOptions(case["options"], "db.t"))
    assert isinstance(made, UniversalCompaction)
    assert (made.early_full is not None) == case["expect"]


def run_off_peak_ratio(case: Case) -> None:
    window = off_peak(case)
    assert (window.ratio(case["hour"]) if window else 0) == case["expect"]


def run_off_peak_enabled(case: Case) -> None:
    assert (off_peak(case) is not None) == case["expect"]


OPERATIONS = {
    "pick": run_pick,
    "pick_sequence": lambda case: check_steps(strategy(case["options"]), case),
    "pick_size_amp": lambda case: check_unit(
        strategy(case["options"]).pick_size_amp(case["max_level"], runs_of(case["runs"])), case["expect"]
    ),
    "pick_size_ratio": lambda case: check_unit(
        strategy(case["options"]).pick_size_ratio(case["max_level"], runs_of(case["runs"])), case["expect"]
    ),
    "unit_of_prefix": run_unit_of_prefix,
    "early_full_sequence": run_early_full,
    "early_full_enabled": run_early_full_enabled,
    "off_peak_ratio": run_off_peak_ratio,
    "off_peak_enabled": run_off_peak_enabled,
}


@pytest.mark.parametrize("case", cases("universal_compaction"))
def test_universal_compaction(case: Case) -> None:
    OPERATIONS[case["op"]](case)


@pytest.mark.parametrize("case", cases("interval_partition"))
def test_interval_partition(case: Case) -> None:
    files = [DataFile(f"f{i}", 0, 1, low, high) for i, (low, high) in enumerate(case["files"])]
    sections = interval_partition(files)
    assert Counter(f.name for s in sections for r in s for f in r.files) == Counter(f.name for f in files)
    if case.get("kind") in {"property", "property_instance"}:
        expect = case["expect"]
        assert max(len(section) for section in sections) <= expect["max_runs_per_section"]
        spans = [[min(run.min_key for run in section), max(run.max_key for run in section)] for section in sections]
        assert spans == expect["section_spans"]
        for run in (run for section in sections for run in section):
            assert all(a.max_key < b.min_key for a, b in zip(run.files, run.files[1:], strict=False))
        return
    assert len(sections) == len(case["expect"])
    for section, wanted in zip(sections, case["expect"], strict=True):
        assert Counter(_ranges(run) for run in section) == Counter(tuple(map(tuple, run)) for run in wanted)


def _ranges(run: SortedRun) -> tuple[tuple[Any, Any], ...]:
    return tuple((file.min_key, file.max_key) for file in run.files)


@pytest.mark.parametrize("case", cases("merge_tree_compact_manager"))
def test_merge_tree_compact_manager(case: Case) -> None:
    if case.get("op") == "keep_delete_compaction":
        keep_delete(case)
        return
    if case.get("op") == "compact_not_completed":
        assert levels_of(case).awaited(case["need_lookup"]) == case["expect"]
        assert not levels_of(case).awaited(needs_lookup=False)
        return
    levels = levels_of(case)
    runs = levels.runs()
    count = len(runs) if case["pick"]["run_count"] == "all" else case["pick"]["run_count"]
    output = levels.max_level if case["pick"]["output_level"] == "last" else case["pick"]["output_level"]
    unit = CompactUnit.of_runs(output, runs[:count])
    plan = plan_task(levels, unit, case["small_file_below"])
    after = compacted(levels, plan)
    after.validate()
    placed = [f for run in after.runs() for f in run.run.files]
    assert [[f.level, f.min_key, f.max_key] for f in placed] == case["expect"]["after"]
    assert plan.drop_delete == case["expect"]["drop_delete_if_rewritten"]


def levels_of(case: Case) -> Levels:
    files = [
        DataFile(f"f{i}", level, high - low + 1, low, high, max_sequence=i)
        for i, (level, low, high) in enumerate(case["before"])
    ]
    return Levels(files, case["num_levels"])


def compacted(levels: Levels, plan: TaskPlan) -> Levels:
    """The tree after ``plan``, each rewrite giving one file over all its keys."""
    after = [file.upgrade(plan.output_level) for file in plan.upgrades]
    for number, rewrite in enumerate(plan.rewrites):
        low, high = min(run.min_key for run in rewrite), max(run.max_key for run in rewrite)
        after.append(DataFile(f"new{number}", plan.output_level, high - low + 1, low, high))
    return levels.replaced((*plan.rewritten_files, *plan.upgrades), after)


def keep_delete(case: Case) -> None:
    """A compaction told to keep deletes writes them even into the last level."""
    from lsm_core.merge import Deduplicate, KeySpec, merge_runs
    from tests.vectors.rows import kv_batch

    files = [
        DataFile(f"f{i}", 0, 1, tuple(r["key"]), tuple(r["key"]), max_sequence=i) for i, r in enumerate(case["rows"])
    ]
    levels = Levels(files, 3)
    plan = plan_task(levels, CompactUnit.of_runs(levels.max_level, levels.runs(), full=True), 2)
    assert (plan.output_level > 0) == case["expect"]["levels_nonzero"]
    keys = KeySpec(tuple(f"k{i}" for i in range(len(case["rows"][0]["key"]))))
    batches = [kv_batch([row]) for row in case["rows"]]
    kept = merge_runs(batches, Deduplicate(keys), drop_delete=plan.drop_delete and not case["keep_delete"])
    assert (kept.num_rows > 0) == case["expect"]["rows_for_key_nonempty"]
    assert set(kept.column("_VALUE_KIND").to_pylist()) == {3}
    assert case["expect"]["rows_for_key_all_kind"] == "-D"
