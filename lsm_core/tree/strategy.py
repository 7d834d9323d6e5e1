"""What to compact in one bucket: the strategies that wrap universal compaction, and the one call that maintenance makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from lsm_core.options import PaimonVersion
from lsm_core.tree.decision import Decision, Decline, DeclineReason, Pick, State, Trigger
from lsm_core.tree.early_full import EarlyFullCompaction
from lsm_core.tree.levels import Levels
from lsm_core.tree.model import CompactUnit, DataFile, LevelSortedRun
from lsm_core.tree.off_peak import OffPeakHours
from lsm_core.tree.universal import UniversalCompaction


class PickOptions(Protocol):
    """The options that picking reads; `TableOptions` has them all. Sizes in bytes, times in ms, ratios in percent."""

    @property
    def compaction_trigger(self) -> int:
        """Sorted runs that start a compaction."""
        ...

    @property
    def max_size_amplification(self) -> int:
        """Percent of newer bytes to the oldest run's."""
        ...

    @property
    def size_ratio(self) -> int:
        """Percent by which the next run may be larger."""
        ...

    @property
    def offpeak_start(self) -> int:
        """First off-peak hour, -1 = none."""
        ...

    @property
    def offpeak_end(self) -> int:
        """Hour at which off-peak ends, -1 = none."""
        ...

    @property
    def offpeak_ratio(self) -> int:
        """Percent added off-peak."""
        ...

    @property
    def optimization_interval(self) -> int | None:
        """Longest time between full compactions."""
        ...

    @property
    def total_size_threshold(self) -> int | None:
        """Trees below it are compacted as a whole."""
        ...

    @property
    def incremental_size_threshold(self) -> int | None:
        """Most bytes outside the last level."""
        ...

    @property
    def paimon_version(self) -> PaimonVersion:
        """The version of Paimon that is followed where versions pick differently."""
        ...

    @property
    def force_up_level0(self) -> bool:
        """Move level 0 up whenever nothing else is picked."""
        ...

    @property
    def needs_lookup(self) -> bool:
        """Level 0 has to move up, as its keys are looked up in older levels."""
        ...

    @property
    def lookup_compact_interval(self) -> int | None:
        """Decisions between two forced picks of level 0 where keys are looked up; None: each forces."""
        ...

    @property
    def force_rewrite_all(self) -> bool:
        """A full compaction rewrites every file."""
        ...


MustRewrite = Callable[[DataFile], bool]
"""Which files must not stay as they are: they hold expired records or rows that a deletion vector marks."""


@dataclass(frozen=True, slots=True)
class ForceUpLevel0Compaction:
    """Wraps ``universal``; ``max_interval`` None forces at every call (radical), else at every n-th empty one (gentle)."""

    universal: UniversalCompaction
    max_interval: int | None = None

    def decide(
        self, num_levels: int, runs: Sequence[LevelSortedRun], now_ms: int, state: State
    ) -> tuple[Decision, State]:
        """The unit that universal compaction picks; where it picks none, all level-0 runs, extended by the size ratio."""
        decision, state = self.universal.decide(num_levels, runs, now_ms, state)
        if isinstance(decision, Pick):
            return decision, state
        calls = state.skipped_forces + 1
        if self.max_interval is not None and calls < self.max_interval:
            facts = {**decision.facts, "skipped_calls": calls, "every_calls": self.max_interval}
            return Decline(DeclineReason.WAITING, facts), replace(state, skipped_forces=calls)
        state = replace(state, skipped_forces=0)
        level0 = sum(run.level == 0 for run in runs)
        unit = self.universal.extend(num_levels - 1, runs, level0, now_ms, force=True) if level0 else None
        if unit is None:
            return Decline(DeclineReason.NO_LEVEL0 if runs else DeclineReason.EMPTY, decision.facts), state
        if unit.full:
            state = replace(state, last_full_ms=now_ms)
        return Pick(unit, Trigger.FORCE_LEVEL0, {"level0_runs": level0, "sorted_runs": len(runs)}), state

    def pick(
        self, num_levels: int, runs: Sequence[LevelSortedRun], now_ms: int = 0, state: State | None = None
    ) -> CompactUnit | None:
        """The unit that :meth:`decide` picks, without its reasons."""
        decision, _ = self.decide(num_levels, runs, now_ms, state or State())
        return decision.unit if isinstance(decision, Pick) else None


def pick_full_compaction(
    num_levels: int,
    runs: Sequence[LevelSortedRun],
    *,
    force_rewrite_all: bool = False,
    must_rewrite: MustRewrite | None = None,
) -> CompactUnit | None:
    """All runs to the last level (Java `CompactStrategy.pickFullCompaction`).

    A tree that lies in the last level alone is left as it is, but for files that ``must_rewrite`` names (expired
    records, deletion vectors) or all of them under ``force_rewrite_all``: those are rewritten file by file.
    """
    max_level = num_levels - 1
    if not runs:
        return None
    if len(runs) > 1 or runs[0].level != max_level:
        return CompactUnit.of_runs(max_level, runs, full=True)
    wanted = tuple(
        file for file in runs[0].run.files if force_rewrite_all or (must_rewrite is not None and must_rewrite(file))
    )
    return CompactUnit(max_level, wanted, full=len(wanted) == len(runs[0].run.files), by_file=True) if wanted else None


Strategy = UniversalCompaction | ForceUpLevel0Compaction


def strategy_from_options(options: PickOptions, utc_offset_ms: int = 0) -> Strategy:
    """The strategy that a table's options ask for; ``utc_offset_ms`` is the zone of the off-peak hours.

    Level 0 is forced up where keys are looked up (gently or at every decision) and where `compaction.force-up-level-0` says so.
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
    """What to compact in one bucket at epoch ms ``now_ms``; ``full`` asks for a full compaction, whatever the rules say.

    ``state`` None is derived from the levels. ``must_rewrite`` names the files of a fully compacted tree that a full
    compaction may still not leave alone. A unit whose only file already lies at its output level is declined.
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


def post_filter(decision: Decision) -> Decision:
    """Turn a pick that would change nothing (no file, or one file already at the output level) into a decline."""
    if isinstance(decision, Decline):
        return decision
    files, level = decision.unit.files, decision.unit.output_level
    if len(files) > 1 or (files and files[0].level != level):
        return decision
    return Decline(DeclineReason.NOTHING_TO_CHANGE, decision.facts)
