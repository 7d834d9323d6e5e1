"""Choice of files to compact in one bucket: strategies based on universal compaction, and `decide_bucket`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from lsm_core.options import PaimonVersion
from lsm_core.tree.early_full import EarlyFullCompaction
from lsm_core.tree.model import (
    CompactUnit,
    DataFile,
    Decision,
    Decline,
    DeclineReason,
    Levels,
    LevelSortedRun,
    Pick,
    RunDecision,
    RunPick,
    RunSizes,
    State,
    Trigger,
)
from lsm_core.tree.universal import OffPeakHours, UniversalCompaction, UniversalOptions


class PickOptions(UniversalOptions, Protocol):
    """Options by which the files to compact are chosen; `TableOptions` provides them.

    Sizes are in bytes, times in ms and ratios in percent.
    """

    @property
    def offpeak_start(self) -> int:
        """First hour of the off-peak window, or -1 for no window."""
        ...

    @property
    def offpeak_end(self) -> int:
        """First hour after the off-peak window, or -1 for no window."""
        ...

    @property
    def offpeak_ratio(self) -> int:
        """Percent to add to the size ratio in off-peak hours."""
        ...

    @property
    def optimization_interval(self) -> int | None:
        """Longest time between full compactions (ms), or None."""
        ...

    @property
    def total_size_threshold(self) -> int | None:
        """Size (bytes) below which a tree is compacted completely, or None."""
        ...

    @property
    def incremental_size_threshold(self) -> int | None:
        """Largest size (bytes) of all levels except the last, or None."""
        ...

    @property
    def force_up_level0(self) -> bool:
        """Whether to compact level 0 into a higher level if no other rule picks a unit."""
        ...

    @property
    def needs_lookup(self) -> bool:
        """Whether level 0 must be compacted, because its keys are looked up in higher levels."""
        ...

    @property
    def lookup_compact_interval(self) -> int | None:
        """Number of decisions between two forced compactions of level 0 for lookups, or None to force each time."""
        ...

    @property
    def force_rewrite_all(self) -> bool:
        """Whether a full compaction rewrites every file."""
        ...


MustRewrite = Callable[[DataFile], bool]
"""Predicate: whether a file must be rewritten, because it has expired rows or rows marked by a deletion vector."""


@dataclass(frozen=True, slots=True)
class ForceUpLevel0Compaction:
    """Universal compaction that also compacts level 0 if no rule of universal compaction picks a unit.

    Attributes:
        universal: the wrapped strategy.
        max_interval: number of decisions without a pick until level 0 is compacted (`lookup-compact` = gentle), or None
            to compact level 0 at every decision (radical).
    """

    universal: UniversalCompaction
    max_interval: int | None = None

    def decide(
        self, num_levels: int, runs: Sequence[LevelSortedRun], now_ms: int, state: State
    ) -> tuple[Decision, State]:
        """Return the pick of universal compaction or, without a pick, a pick of all level-0 runs.

        A pick of level 0 also has the older runs that are not larger than the runs taken so far
        (:meth:`UniversalCompaction.extend`). With ``max_interval``, level 0 is picked only at every so many decisions.

        Args:
            num_levels: number of levels.
            runs: all sorted runs, newest first.
            now_ms: the current time (epoch ms).
            state: state of the rules that depend on time, such as the time of the last full compaction.

        Returns:
            The decision and the new state.
        """
        decision, state = self.decide_sizes(num_levels, RunSizes.of(runs), now_ms, state)
        return decision.of_runs(runs) if isinstance(decision, RunPick) else decision, state

    def decide_sizes(self, num_levels: int, runs: RunSizes, now_ms: int, state: State) -> tuple[RunDecision, State]:
        """Return the decision of :meth:`decide` for runs of which only levels and sizes are known."""
        decision, state = self.universal.decide_sizes(num_levels, runs, now_ms, state)
        if isinstance(decision, RunPick):
            return decision, state
        calls = state.skipped_forces + 1
        if self.max_interval is not None and calls < self.max_interval:
            facts = {**decision.facts, "skipped_calls": calls, "every_calls": self.max_interval}
            return Decline(DeclineReason.WAITING, facts), replace(state, skipped_forces=calls)
        state = replace(state, skipped_forces=0)
        level0 = sum(level == 0 for level in runs.levels)
        extent = self.universal.extend_sizes(num_levels - 1, runs, level0, now_ms, force=True) if level0 else None
        if extent is None:
            return Decline(DeclineReason.NO_LEVEL0 if len(runs) else DeclineReason.EMPTY, decision.facts), state
        count, output, full = extent
        facts = {"level0_runs": level0, "sorted_runs": len(runs)}
        pick = RunPick(count, output, Trigger.FORCE_LEVEL0, facts, full)
        return pick, replace(state, last_full_ms=now_ms) if pick.full else state

    def pick(
        self, num_levels: int, runs: Sequence[LevelSortedRun], now_ms: int = 0, state: State | None = None
    ) -> CompactUnit | None:
        """Return the files to compact together (unit) that :meth:`decide` picks, or None."""
        decision, _ = self.decide(num_levels, runs, now_ms, state or State())
        return decision.unit if isinstance(decision, Pick) else None


def pick_full_compaction(
    num_levels: int,
    runs: Sequence[LevelSortedRun],
    *,
    force_rewrite_all: bool = False,
    must_rewrite: MustRewrite | None = None,
) -> CompactUnit | None:
    """Return the unit of a full compaction: all sorted runs, with the last level as output.

    If only the last level has files, only files that must be rewritten are picked, and each is rewritten separately.

    Args:
        num_levels: number of levels.
        runs: all sorted runs, newest first.
        force_rewrite_all: whether to rewrite every file.
        must_rewrite: predicate for files with expired records or deletion vectors, or None.

    Returns:
        The unit, or None if there are no runs or no file needs a rewrite.

    Source: `CompactStrategy.pickFullCompaction`.
    """
    max_level = num_levels - 1
    if not runs:
        return None
    if len(runs) > 1 or runs[0].level != max_level:
        return CompactUnit.of_runs(max_level, runs, full=True)
    files = tuple(
        file for file in runs[0].run.files if force_rewrite_all or (must_rewrite is not None and must_rewrite(file))
    )
    return CompactUnit(max_level, files, full=len(files) == len(runs[0].run.files), by_file=True) if files else None


Strategy = UniversalCompaction | ForceUpLevel0Compaction


def strategy_from_options(options: PickOptions, utc_offset_ms: int = 0) -> Strategy:
    """Return the strategy for a table's options.

    The strategy is `ForceUpLevel0Compaction` if keys are looked up or `compaction.force-up-level-0` is set.

    Args:
        options: the table's options.
        utc_offset_ms: offset of the off-peak hours' time zone from UTC (ms).

    Returns:
        The strategy.
    """
    universal = UniversalCompaction(
        options.max_size_amplification,
        options.size_ratio,
        options.compaction_trigger,
        EarlyFullCompaction.of(
            options.optimization_interval, options.total_size_threshold, options.incremental_size_threshold
        ),
        OffPeakHours.of(options.offpeak_start, options.offpeak_end, options.offpeak_ratio, utc_offset_ms),
        options.paimon_version.at_least(PaimonVersion.V2_1),
        options.paimon_version.at_least(PaimonVersion.V2_0),
    )
    if options.needs_lookup:
        return ForceUpLevel0Compaction(universal, options.lookup_compact_interval)
    return ForceUpLevel0Compaction(universal) if options.force_up_level0 else universal


def decide_bucket(
    levels: Levels,
    options: PickOptions,
    now_ms: int,
    state: State | None = None,
    full: bool = False,
    *,
    utc_offset_ms: int = 0,
    must_rewrite: MustRewrite | None = None,
) -> Decision:
    """Decide which files of one bucket to compact.

    A unit whose only file is already on its output level is declined.

    Args:
        levels: the bucket's files by level.
        options: the table's options.
        now_ms: the current time (epoch ms).
        state: state of the rules that depend on time, such as the time of the last full compaction, or None to derive
            it from the levels.
        full: whether to pick a full compaction regardless of the rules.
        utc_offset_ms: offset of the off-peak hours' time zone from UTC (ms).
        must_rewrite: predicate for files that a full compaction must rewrite even in a fully compacted tree, such as
            files with expired records or deletion vectors; None for no such files.

    Returns:
        A `Pick` (compact these files) or a `Decline` (compact nothing), with the numbers that decided.
    """
    runs = levels.runs()
    if full:
        unit = pick_full_compaction(
            levels.num_levels, runs, force_rewrite_all=options.force_rewrite_all, must_rewrite=must_rewrite
        )
        facts = {"sorted_runs": len(runs), "files": len(levels.files)}
        if unit is None:
            return Decline(DeclineReason.ALREADY_COMPACTED if runs else DeclineReason.EMPTY, facts)
        return Pick(unit, Trigger.FULL, {**facts, "files_one_by_one": len(unit.files)} if unit.by_file else facts)
    strategy = strategy_from_options(options, utc_offset_ms)
    decision, _ = strategy.decide(levels.num_levels, runs, now_ms, State.of(levels) if state is None else state)
    return post_filter(decision)


def decide_sizes(
    options: PickOptions, num_levels: int, runs: RunSizes, now_ms: int, state: State, *, utc_offset_ms: int = 0
) -> RunDecision:
    """Return the decision of :func:`decide_bucket` for runs of which only levels and sizes are known.

    Args:
        options: the table's options.
        num_levels: number of levels.
        runs: levels and sizes of all sorted runs.
        now_ms: the current time (epoch ms).
        state: state of the rules that depend on time.
        utc_offset_ms: offset of the off-peak hours' time zone from UTC (ms).

    Returns:
        The decision, not yet declined if it would change nothing (:func:`post_filter`).
    """
    return strategy_from_options(options, utc_offset_ms).decide_sizes(num_levels, runs, now_ms, state)[0]


def post_filter(decision: Decision) -> Decision:
    """Decline a decision to compact that would change nothing: no file, or one file already on the output level."""
    if isinstance(decision, Decline):
        return decision
    files, level = decision.unit.files, decision.unit.output_level
    if len(files) > 1 or (files and files[0].level != level):
        return decision
    return Decline(DeclineReason.NOTHING_TO_CHANGE, decision.facts)
