"""Every decision has its numbers; state comes from the table; a pick that changes nothing is declined."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.options import TableOptions
from lsm_core.tree import (
    CompactUnit,
    DataFile,
    Decline,
    DeclineReason,
    EarlyFullCompaction,
    ForceUpLevel0Compaction,
    Levels,
    LevelSortedRun,
    OffPeakHours,
    Pick,
    SortedRun,
    State,
    Trigger,
    UniversalCompaction,
    decide_bucket,
    pick_full_compaction,
    post_filter,
)


def tree(*sizes: tuple[int, int], num_levels: int = 6, created: int = 0) -> Levels:
    files = [
        DataFile(f"f{i}", level, size, 0, 10, max_sequence=100 - i, creation_ms=created)
        for i, (level, size) in enumerate(sizes)
    ]
    return Levels(files, num_levels)


def options(**more: str) -> TableOptions:
    return TableOptions({key.replace("_", "-").replace("--", "."): value for key, value in more.items()}, "db.t")


def test_defaults_wait_for_five_sorted_runs() -> None:
    four = decide_bucket(tree(*[(0, 10)] * 4), options(), 0)
    assert isinstance(four, Decline)
    assert four.reason is DeclineReason.TOO_FEW_RUNS
    assert (four.facts["sorted_runs"], four.facts["trigger_runs"]) == (4, 5)
    assert "too-few-runs: sorted_runs 4, trigger_runs 5" in four.text()
    five = decide_bucket(tree(*[(0, 10)] * 5), options(), 0)
    assert isinstance(five, Pick)
    assert five.trigger is Trigger.SIZE_AMPLIFICATION
    assert five.facts["amplification_percent"] == 400
    assert (five.unit.output_level, five.unit.full, len(five.unit.files)) == (5, True, 5)


@pytest.mark.parametrize(("version", "level", "files"), [("1.4", 5, 6), ("2.0", 5, 6), ("2.1", 4, 5)])
def test_a_run_of_level_0_that_is_too_large_ends_the_unit_until_2_1(version: str, level: int, files: int) -> None:
    # the unit of the four small runs would go to level 0, and so takes all that follows up to the first other level
    runs = tree(*[(0, 1)] * 4, (0, 100), (5, 10_000))
    found = decide_bucket(runs, options(dredge__paimon_version=version), 0)
    assert isinstance(found, Pick)
    assert found.trigger is Trigger.SIZE_RATIO
    assert (found.unit.output_level, len(found.unit.files)) == (level, files)


@pytest.mark.parametrize(("version", "level", "files"), [("1.4", 1, 2), ("2.0", 5, 4), ("2.1", 5, 4)])
def test_a_run_of_level_1_that_is_too_large_ends_a_forced_unit_until_2_0(version: str, level: int, files: int) -> None:
    given = options(**{"compaction--force-up-level-0": "true", "dredge--paimon-version": version})
    found = decide_bucket(tree((0, 1), (1, 100), (4, 99), (5, 50)), given, 0)
    assert isinstance(found, Pick)
    assert (found.unit.output_level, len(found.unit.files)) == (level, files)


def test_enough_runs_within_limits_are_declined_with_the_amplification() -> None:
    found = decide_bucket(tree((0, 1), (0, 10), (1, 100), (2, 1000), (5, 10_000)), options(), 0)
    assert isinstance(found, Decline)
    assert found.reason is DeclineReason.WITHIN_LIMITS
    assert (found.facts["amplification_percent"], found.facts["max_amplification_percent"]) == (11, 200)


def test_too_many_runs_are_compacted_by_count() -> None:
    found = decide_bucket(tree((0, 1), (0, 10), (0, 11), (2, 100), (3, 1000), (5, 10_000)), options(), 0)
    assert isinstance(found, Pick)
    assert found.trigger is Trigger.FILE_COUNT
    assert [f.size for f in found.unit.files] == [1, 10, 11]
    assert found.unit.output_level == 1


def test_an_empty_bucket_is_declined() -> None:
    for full in (False, True):
        found = decide_bucket(tree(), options(), 0, full=full)
        assert isinstance(found, Decline)
        assert found.reason is DeclineReason.EMPTY


def test_a_pick_that_would_change_nothing_is_declined() -> None:
    lone = DataFile("f", 5, 1, 0, 1)
    for files in ((), (lone,)):
        found = post_filter(Pick(CompactUnit(5, files), Trigger.FULL, {"sorted_runs": 1}))
        assert found == Decline(DeclineReason.NOTHING_TO_CHANGE, {"sorted_runs": 1})
    for unit in (CompactUnit(4, (lone,)), CompactUnit(5, (lone, lone))):
        assert post_filter(Pick(unit, Trigger.FULL)) == Pick(unit, Trigger.FULL)


def test_the_last_full_compaction_is_read_off_the_last_level() -> None:
    hourly = options(**{"compaction--optimization-interval": "1 h"})
    never = tree((0, 1), (3, 100))
    assert State.of(never).last_full_ms is None
    assert isinstance(decide_bucket(never, hourly, 0), Pick)
    done = tree((0, 1), (5, 1000), created=50_000)
    assert State.of(done) == State(50_000, 0)
    assert isinstance(decide_bucket(done, hourly, 50_000 + 3_600_000), Decline)
    again = decide_bucket(done, hourly, 50_000 + 3_600_001)
    assert isinstance(again, Pick)
    assert again.trigger is Trigger.OPTIMIZATION_INTERVAL
    assert again.facts == {"since_full_ms": 3_600_001, "interval_ms": 3_600_000}


def test_thresholds_say_their_bytes() -> None:
    small = decide_bucket(tree((0, 5), (0, 6)), options(**{"compaction--total-size-threshold": "1 kb"}), 0)
    assert isinstance(small, Pick)
    assert (small.trigger, small.facts) == (Trigger.TOTAL_SIZE, {"total_bytes": 11, "threshold_bytes": 1024})
    grown = decide_bucket(tree((0, 2000), (5, 9000)), options(**{"compaction--incremental-size-threshold": "1 kb"}), 0)
    assert isinstance(grown, Pick)
    assert grown.trigger is Trigger.INCREMENTAL_SIZE


def test_off_peak_hours_make_the_ratio_rule_greedier_in_their_own_zone() -> None:
    window = OffPeakHours.of(2, 4, 50, utc_offset_ms=2 * 3_600_000)
    assert window is not None
    runs = tree((0, 100), (0, 140), (2, 5000), (5, 50_000)).runs()
    picker = UniversalCompaction(200, 1, 4, off_peak=window)
    assert picker.pick(6, runs, now_ms=2 * 3_600_000) is None
    at_night = picker.pick(6, runs, now_ms=0)
    assert at_night is not None
    assert [f.size for f in at_night.files] == [100, 140]


def test_off_peak_may_pass_midnight_and_its_end_is_outside() -> None:
    window = OffPeakHours.of(22, 6, 10)
    assert window is not None
    assert [hour for hour in range(24) if window.ratio(hour)] == [0, 1, 2, 3, 4, 5, 22, 23]
    assert OffPeakHours.of(3, 3, 10) is None


def test_level_zero_is_forced_up_by_option_and_gently_every_nth_call() -> None:
    forced = decide_bucket(tree((0, 1), (2, 1000)), options(**{"compaction--force-up-level-0": "true"}), 0)
    assert isinstance(forced, Pick)
    assert (forced.trigger, forced.unit.output_level) == (Trigger.FORCE_LEVEL0, 1)
    gentle = ForceUpLevel0Compaction(UniversalCompaction(), max_interval=3)
    state, seen = State(), []
    for _ in range(6):
        decision, state = gentle.decide(6, tree((0, 1), (2, 1000)).runs(), 0, state)
        seen.append(isinstance(decision, Pick))
    assert seen == [False, False, True, False, False, True]


def test_full_compaction_leaves_a_compacted_tree_alone_unless_told_to_rewrite() -> None:
    done = tree((5, 10))
    found = decide_bucket(done, options(), 0, full=True)
    assert isinstance(found, Decline)
    assert found.reason is DeclineReason.ALREADY_COMPACTED
    unit = pick_full_compaction(6, done.runs(), force_rewrite_all=True)
    assert unit == CompactUnit(5, done.files, full=True, by_file=True)
    two = Levels([DataFile("a", 5, 1, 0, 1), DataFile("b", 5, 1, 2, 3)], 6)
    some = pick_full_compaction(6, two.runs(), must_rewrite=lambda file: file.name == "b")
    assert some is not None
    assert [f.name for f in some.files] == ["b"]
    lone = pick_full_compaction(6, tree((0, 1)).runs())
    assert lone is not None
    assert lone.output_level == 5


sized_runs = st.lists(st.integers(1, 1000), min_size=0, max_size=9)


@given(sized_runs, st.lists(st.integers(1, 5), unique=True, max_size=5), st.data())
def test_every_unit_is_a_prefix_of_the_runs_and_leaves_a_valid_tree(
    level0: list[int], upper: list[int], data: st.DataObject
) -> None:
    sizes = [(0, size) for size in level0] + [(level, data.draw(st.integers(1, 5000))) for level in sorted(upper)]
    levels = tree(*sizes)
    runs = levels.runs()
    picker = ForceUpLevel0Compaction(
        UniversalCompaction(data.draw(st.sampled_from([50, 200])), 1, data.draw(st.integers(1, 6)))
    )
    unit = picker.pick(levels.num_levels, runs)
    if unit is None:
        return
    count = len(unit.files)
    assert list(unit.files) == [f for run in runs[:count] for f in run.run.files]
    assert unit.output_level > 0
    assert unit.full == (count == len(runs))
    # nothing newer stays above the output, nothing that stays lies in or below it at the same level
    assert all(run.level > unit.output_level for run in runs[count:])
    assert all(run.level <= unit.output_level for run in runs[:count])


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.integers(1, 8))
def test_units_never_write_to_level_zero(sizes: list[int], count: int) -> None:
    runs = [LevelSortedRun(0, SortedRun((DataFile(f"f{i}", 0, size, 0, 1),))) for i, size in enumerate(sizes)]
    unit = UniversalCompaction.create_unit(runs, 5, min(count, len(runs)))
    assert (unit.output_level, len(unit.files)) == (5, len(runs))


@pytest.mark.parametrize("early", [EarlyFullCompaction(interval_ms=1), EarlyFullCompaction(total_size_threshold=10**9)])
def test_one_run_alone_is_never_compacted_early(early: EarlyFullCompaction) -> None:
    assert early.decide(6, tree((0, 1)).runs(), 100, State())[0] is None
