"""Picking, partitioning and compacting as Paimon's own tests want it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from lsm_core.options import TableOptions
from lsm_core.tree import (
    CompactUnit,
    DataFile,
    EarlyFullCompaction,
    ForceUpLevel0Compaction,
    Levels,
    LevelSortedRun,
    OffPeakHours,
    Pick,
    SortedRun,
    State,
    Strategy,
    TaskPlan,
    UniversalCompaction,
    interval_partition,
    plan_task,
    strategy_from_options,
)
from tests.vectors.cases import BadVectors, Case, cases, require_known

PICKER_OPTIONS = {
    *("max_size_amp", "size_ratio", "num_run_trigger", "force_up_level0", "force_up_level0_interval"),
    *("full_compaction_interval_ms", "total_size_threshold", "incremental_size_threshold", "last_full_at_ms"),
    *("start_hour", "end_hour", "off_peak_ratio"),
}


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
        options.get("max_size_amp", 200),
        options.get("size_ratio", 1),
        options.get("num_run_trigger", 5),
        early_full(options),
        off_peak(options),
    )


def picker(options: Case) -> Strategy:
    """The whole picker, wrapped where `force_up_level0` asks for it; its interval counts calls that found nothing else."""
    if not options.get("force_up_level0"):
        return strategy(options)
    return ForceUpLevel0Compaction(strategy(options), options.get("force_up_level0_interval"))


def off_peak(options: Case) -> OffPeakHours | None:
    if "start_hour" not in options:
        return None
    return OffPeakHours.of(options["start_hour"], options["end_hour"], options["off_peak_ratio"])


def levels_wanted(case: Case) -> int:
    """Levels of the tree, given as their number or as the last of them."""
    return int(case["num_levels"]) if "num_levels" in case else int(case["max_level"]) + 1


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


def check_steps(rule: Strategy | EarlyFullCompaction | None, case: Case) -> None:
    """One instance, asked step by step; no rule (no threshold is set) picks nothing."""
    state = State(case["options"].get("last_full_at_ms"))
    for step in case["steps"]:
        unit = None
        if rule is not None:
            decision, state = rule.decide(levels_wanted(case), runs_of(step["runs"]), step.get("at_ms", 0), state)
            unit = decision.unit if isinstance(decision, Pick) else None
        check_unit(unit, step["expect"])


def run_pick(case: Case) -> None:
    check_steps(picker(case["options"]), {**case, "steps": [case]})


def run_unit_of_prefix(case: Case) -> None:
    runs, last = runs_of(case["runs"]), levels_wanted(case) - 1
    check_unit(strategy(case["options"]).create_unit(runs, last, case["run_count"]), case["expect"])


def run_early_full_enabled(case: Case) -> None:
    """Table options (`compaction.optimization-interval` ...), or thresholds by the names of the other operations."""
    options = case["options"]
    if set(options) & PICKER_OPTIONS:
        assert (early_full(options) is not None) == case["expect"]
        return
    made = strategy_from_options(TableOptions(options, "db.t"))
    universal = made.universal if isinstance(made, ForceUpLevel0Compaction) else made
    assert (universal.early_full is not None) == case["expect"]


def run_off_peak_ratio(case: Case) -> None:
    window = off_peak(case["options"])
    assert (window.ratio(case["hour"]) if window else 0) == case["expect"]


def run_off_peak_enabled(case: Case) -> None:
    assert (off_peak(case["options"]) is not None) == case["expect"]


OPERATIONS = {
    "pick": run_pick,
    "pick_sequence": lambda case: check_steps(picker(case["options"]), case),
    "pick_size_amp": lambda case: check_unit(
        strategy(case["options"]).pick_size_amp(levels_wanted(case) - 1, runs_of(case["runs"])), case["expect"]
    ),
    "pick_size_ratio": lambda case: check_unit(
        strategy(case["options"]).pick_size_ratio(levels_wanted(case) - 1, runs_of(case["runs"])), case["expect"]
    ),
    "unit_of_prefix": run_unit_of_prefix,
    "early_full_sequence": lambda case: check_steps(early_full(case["options"]), case),
    "early_full_enabled": run_early_full_enabled,
    "off_peak_ratio": run_off_peak_ratio,
    "off_peak_enabled": run_off_peak_enabled,
}


@pytest.mark.parametrize("case", cases("universal_compaction"))
def test_universal_compaction(case: Case) -> None:
    require_known("universal_compaction", case)
    options = set(case["options"])
    if case["op"] == "early_full_enabled":
        options = {name for name in options if not name.startswith("compaction.")}
    if unknown := sorted(options - PICKER_OPTIONS):
        raise BadVectors(f"universal_compaction, case {case['id']}: unknown field of options: {', '.join(unknown)}")
    OPERATIONS[case["op"]](case)


@pytest.mark.parametrize("case", cases("interval_partition"))
def test_interval_partition(case: Case) -> None:
    require_known("interval_partition", case)
    if "generate" in case:
        for ranges, runs in generated(case["generate"]):
            partitioned(ranges, {"max_runs_per_section": runs})
        return
    expect = case["expect"]
    sections = partitioned(case["files"], expect if isinstance(expect, dict) else {})
    if isinstance(expect, list):
        assert len(sections) == len(expect)
        for section, wanted in zip(sections, expect, strict=True):
            assert Counter(_ranges(run) for run in section) == Counter(tuple(map(tuple, run)) for run in wanted)


def partitioned(ranges: list[list[int]], expect: Case) -> list[list[SortedRun]]:
    """Sections of files of these key ranges, which are always right in themselves; ``expect`` says how they lie, where it is given."""
    files = [DataFile(f"f{i}", 0, 1, low, high) for i, (low, high) in enumerate(ranges)]
    sections = interval_partition(files)
    assert Counter(f.name for s in sections for r in s for f in r.files) == Counter(f.name for f in files)
    spans = [[min(run.min_key for run in section), max(run.max_key for run in section)] for section in sections]
    assert all(item[1] < following[0] for item, following in pairwise(spans))
    for section in sections:
        for run in section:
            assert all(a.max_key < b.min_key for a, b in pairwise(run.files))
        lows = [file.min_key for run in section for file in run.files]
        deepest = max(sum(low <= key <= high for low, high in ranges) for key in lows)
        assert len(section) == deepest  # the fewest runs there can be
    if "max_runs_per_section" in expect:
        assert max((len(section) for section in sections), default=0) <= expect["max_runs_per_section"]
    if "section_spans" in expect:
        assert spans == expect["section_spans"]
    return sections


def generated(how: Case) -> Iterator[tuple[list[list[int]], int]]:
    """The inputs of a property: key ranges of the files of some sorted runs, mixed, and the number of those runs.

    A number is that many, a pair is between so many; `files` counts the files of all runs.
    """
    random = Random(how.get("seed", 0))

    def number(name: str, otherwise: Any) -> int:
        given = how.get(name, otherwise)
        return random.randint(*given) if isinstance(given, list) else int(given)

    for _ in range(number("rounds", 100)):
        runs, most = number("runs", [1, 10]), number("max_key", 1_000)
        each = number("files", 0) // runs if "files" in how else number("files_per_run", [1, 20])
        ranges: list[list[int]] = []
        for _ in range(runs):
            ends = sorted(random.sample(range(most + 1), min(2 * max(1, each), (most + 1) // 2 * 2)))
            ranges += [ends[at : at + 2] for at in range(0, len(ends), 2)]
        random.shuffle(ranges)
        yield ranges, runs


def _ranges(run: SortedRun) -> tuple[tuple[Any, Any], ...]:
    return tuple((file.min_key, file.max_key) for file in run.files)


@pytest.mark.parametrize("case", cases("merge_tree_compact_manager"))
def test_merge_tree_compact_manager(case: Case) -> None:
    require_known("merge_tree_compact_manager", case)
    if case.get("op") == "keep_delete_compaction":
        keep_delete(case)
        return
    if case.get("op") == "compact_not_completed":
        # A writer whose compactions look up keys waits for the files of level 0.
        assert (case["need_lookup"] and bool(levels_of(case).level0)) == case["expect"]
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
        newest = max(file.max_sequence for run in rewrite for file in run.files)
        after.append(DataFile(f"new{number}", plan.output_level, high - low + 1, low, high, max_sequence=newest))
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
