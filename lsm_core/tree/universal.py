"""Universal compaction: choice of the newest runs to merge, by size and count, with a larger ratio in off-peak hours.

`pick_oldest` is for the recovery of a bucket with a very large level 0, which is merged in parts, oldest files first.

Source: ``UniversalCompaction``, ``OffPeakHours``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from lsm_core.options import PaimonVersion
from lsm_core.tree.early_full import EarlyFullCompaction
from lsm_core.tree.model import (
    CompactUnit,
    Decision,
    Decline,
    DeclineReason,
    Facts,
    Levels,
    LevelSortedRun,
    Pick,
    RunDecision,
    RunPick,
    RunSizes,
    State,
    Trigger,
)

_HOUR_MS = 3_600_000


class UniversalOptions(Protocol):
    """Options of universal compaction, which also picks the runs that incremental clustering sorts."""

    @property
    def compaction_trigger(self) -> int:
        """Number of sorted runs that starts a compaction."""
        ...

    @property
    def max_size_amplification(self) -> int:
        """Largest size of all newer runs relative to the oldest run (percent)."""
        ...

    @property
    def size_ratio(self) -> int:
        """Percent by which the next older run may be larger than the runs picked so far."""
        ...

    @property
    def paimon_version(self) -> PaimonVersion:
        """Paimon version whose rules apply, because versions pick files differently."""
        ...


@dataclass(frozen=True, slots=True)
class OffPeakHours:
    """Daily window in which the size ratio is increased.

    Attributes:
        start_hour: first hour (0..23); if ``start_hour`` is larger than ``end_hour``, the window passes midnight.
        end_hour: first hour after the window (0..23).
        off_peak_ratio: percent to add to the size ratio.
        utc_offset_ms: offset of the hours' time zone from UTC (ms), which the caller passes because this package has no
            clock.
    """

    start_hour: int
    end_hour: int
    off_peak_ratio: int
    utc_offset_ms: int = 0

    @staticmethod
    def of(start_hour: int, end_hour: int, off_peak_ratio: int, utc_offset_ms: int = 0) -> OffPeakHours | None:
        """Return the window, or None if it is disabled (-1) or empty (start = end).

        Args:
            start_hour: first hour (0..23), or -1.
            end_hour: first hour after the window (0..23), or -1.
            off_peak_ratio: percent to add to the size ratio.
            utc_offset_ms: offset of the hours' time zone from UTC (ms).
        """
        if start_hour == -1 or end_hour in {-1, start_hour}:
            return None
        return OffPeakHours(start_hour, end_hour, off_peak_ratio, utc_offset_ms)

    def hour_of(self, now_ms: int) -> int:
        """Return the hour of the day at ``now_ms`` (epoch ms) in the window's time zone."""
        return ((now_ms + self.utc_offset_ms) // _HOUR_MS) % 24

    def ratio(self, hour: int) -> int:
        """Return the percentage to add at ``hour``; 0 outside the window."""
        if self.start_hour <= self.end_hour:
            inside = self.start_hour <= hour < self.end_hour
        else:
            inside = hour >= self.start_hour or hour < self.end_hour
        return self.off_peak_ratio if inside else 0


Runs = Sequence[LevelSortedRun]


@dataclass(frozen=True, slots=True)
class UniversalCompaction:
    """Strategy with low write amplification at the cost of some read and space amplification.

    Runs are ordered newest first.

    Attributes:
        max_size_amp: largest size of newer runs relative to the oldest (percent).
        size_ratio: percent by which the next older run may be larger than all runs taken so far.
        num_run_trigger: number of sorted runs that starts a compaction.
        early_full: rule for early full compactions, or None.
        off_peak: off-peak hours, or None.
        through_level1: whether a unit of several runs includes all runs up to level 1, as in Java since 2.1.
        forced_through_level1: whether a forced unit (level 0, compacted although no rule requires it) includes all runs
            up to level 1, as in Java since 2.0.
    """

    max_size_amp: int = 200
    size_ratio: int = 1
    num_run_trigger: int = 5
    early_full: EarlyFullCompaction | None = None
    off_peak: OffPeakHours | None = None
    through_level1: bool = True
    forced_through_level1: bool = True

    def decide(self, num_levels: int, runs: Runs, now_ms: int, state: State) -> tuple[Decision, State]:
        """Try early full, size amplification, size ratio and file count, in this order; the first applicable rule wins.

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
        max_level = num_levels - 1
        if self.early_full is not None:
            early, new_state = self.early_full.decide_sizes(num_levels, runs, now_ms, state)
            if early is not None:
                return early, new_state
        pick = self._size_amp(max_level, runs) or self._size_ratio(max_level, runs, now_ms)
        pick = pick or self._file_count(max_level, runs, now_ms)
        if pick is not None:
            return pick, replace(state, last_full_ms=now_ms) if pick.full else state
        facts = {
            **self._facts(runs),
            "max_amplification_percent": self.max_size_amp,
            "size_ratio_percent": self.size_ratio + self._off_peak_ratio(now_ms),
        }
        if self.early_full is not None:
            facts |= self.early_full.facts(num_levels, runs, now_ms, state)
        reason = DeclineReason.TOO_FEW_RUNS if len(runs) < self.num_run_trigger else DeclineReason.WITHIN_LIMITS
        return Decline(reason if len(runs) else DeclineReason.EMPTY, facts), state

    def pick(self, num_levels: int, runs: Runs, now_ms: int = 0, state: State | None = None) -> CompactUnit | None:
        """Return the files to compact together (unit) that :meth:`decide` picks, or None."""
        decision, _ = self.decide(num_levels, runs, now_ms, state or State())
        return decision.unit if isinstance(decision, Pick) else None

    def pick_size_amp(self, max_level: int, runs: Runs) -> CompactUnit | None:
        """Apply only the size-amplification rule.

        Returns:
            A unit of all runs, or None.
        """
        pick = self._size_amp(max_level, RunSizes.of(runs))
        return pick.of_runs(runs).unit if pick else None

    def pick_size_ratio(self, max_level: int, runs: Runs, now_ms: int = 0) -> CompactUnit | None:
        """Apply only the size-ratio rule, starting with the newest run.

        Returns:
            The unit, or None.
        """
        pick = self._size_ratio(max_level, RunSizes.of(runs), now_ms)
        return pick.of_runs(runs).unit if pick else None

    def extend(self, max_level: int, runs: Runs, count: int, now_ms: int, *, force: bool = False) -> CompactUnit | None:
        """Take the ``count`` newest runs, then each older run that is not larger than all runs taken so far.

        The size ratio allows the older run to be larger by its percentage.

        With ``through_level1`` (Java since 2.1), a unit of several runs includes all runs up to level 1, even runs that
        are too large: the unit's output could not be placed below them. With ``forced_through_level1`` (Java since
        2.0), the same holds for a unit with ``force``. Otherwise the first run that is too large ends the unit.

        Args:
            max_level: number of the last level.
            runs: all sorted runs, newest first.
            count: number of newest runs to start with.
            now_ms: the current time (epoch ms), for off-peak hours.
            force: whether a single run is enough for a unit.

        Returns:
            The unit, or None if only one run remains and ``force`` is off.
        """
        extent = self.extend_sizes(max_level, RunSizes.of(runs), count, now_ms, force=force)
        if extent is None:
            return None
        run_count, output, full = extent
        return CompactUnit.of_runs(output, runs[:run_count], full=full)

    def extend_sizes(
        self, max_level: int, runs: RunSizes, count: int, now_ms: int, *, force: bool = False
    ) -> tuple[int, int, bool] | None:
        """Return the unit of :meth:`extend` as (number of newest runs, output level, whether these are all runs)."""
        total_size = sum(runs.sizes[:count])
        is_certain = force or count > 1
        through = self.forced_through_level1 if force else self.through_level1
        percent = 100 + self.size_ratio + self._off_peak_ratio(now_ms)
        for place in range(count, len(runs)):
            size = runs.sizes[place]
            if total_size * percent < size * 100 and not (through and is_certain and runs.levels[place] <= 1):
                break
            total_size += size
            count += 1
            is_certain = True
        return _close_extent(runs, max_level, count) if is_certain else None

    @staticmethod
    def create_unit(runs: Runs, max_level: int, count: int) -> CompactUnit:
        """Return a unit to compact: the ``count`` newest runs, and more if the output level would otherwise be 0."""
        run_count, output, full = _close_extent(RunSizes.of(runs), max_level, count)
        return CompactUnit.of_runs(output, runs[:run_count], full=full)

    def _size_amp(self, max_level: int, runs: RunSizes) -> RunPick | None:
        if not len(runs) or len(runs) < self.num_run_trigger:
            return None
        if (runs.total - runs.oldest_size) * 100 <= self.max_size_amp * runs.oldest_size:
            return None
        facts = {**self._facts(runs), "max_amplification_percent": self.max_size_amp}
        return RunPick(len(runs), max_level, Trigger.SIZE_AMPLIFICATION, facts, full=True)

    def _size_ratio(self, max_level: int, runs: RunSizes, now_ms: int) -> RunPick | None:
        if not len(runs) or len(runs) < self.num_run_trigger:
            return None
        extent = self.extend_sizes(max_level, runs, 1, now_ms)
        facts = {**self._facts(runs), "size_ratio_percent": self.size_ratio + self._off_peak_ratio(now_ms)}
        return _pick_extent(extent, Trigger.SIZE_RATIO, facts)

    def _file_count(self, max_level: int, runs: RunSizes, now_ms: int) -> RunPick | None:
        if len(runs) <= self.num_run_trigger:
            return None
        extent = self.extend_sizes(max_level, runs, len(runs) - self.num_run_trigger + 1, now_ms)
        return _pick_extent(extent, Trigger.FILE_COUNT, self._facts(runs))

    def _off_peak_ratio(self, now_ms: int) -> int:
        return 0 if self.off_peak is None else self.off_peak.ratio(self.off_peak.hour_of(now_ms))

    def _facts(self, runs: RunSizes) -> Facts:
        last = runs.oldest_size
        newer = runs.total - last
        return {
            "sorted_runs": len(runs),
            "trigger_runs": self.num_run_trigger,
            "newer_bytes": newer,
            "oldest_run_bytes": last,
            "amplification_percent": None if last == 0 else newer * 100 // last,
        }


def _pick_extent(extent: tuple[int, int, bool] | None, trigger: Trigger, facts: Facts) -> RunPick | None:
    if extent is None:
        return None
    count, output, full = extent
    return RunPick(count, output, trigger, facts, full)


def _close_extent(runs: RunSizes, max_level: int, count: int) -> tuple[int, int, bool]:
    """Return (number of runs, output level, whether these are all runs) of a unit of at least ``count`` newest runs.

    Runs are added if the output level would otherwise be 0.
    """
    output = max_level if count == len(runs) else max(0, runs.levels[count] - 1)
    if output == 0:
        for level in runs.levels[count:]:
            count += 1
            if level != 0:
                output = level
                break
    full = count == len(runs)
    return count, max_level if full else output, full


def pick_oldest(levels: Levels, size_ratio: int) -> CompactUnit:
    """Return a unit to compact: all level-0 files, and each older run that is not larger than the files taken so far.

    The files of the unit are adjacent in age. So the output is written to the level before the next older run, or to
    the last level. Because runs of similar size are merged, a row is rewritten about log2(number of merges) times.

    Args:
        levels: the oldest level-0 files of a bucket, without the newer ones, and all its higher levels.
        size_ratio: percent by which the next older run may be larger than all files taken so far.

    Returns:
        The unit.
    """
    runs = levels.runs()
    count = sum(run.level == 0 for run in runs)
    unit = UniversalCompaction(size_ratio=size_ratio).extend(levels.max_level, runs, count, 0, force=True)
    assert unit is not None  # it is forced
    return CompactUnit(unit.output_level, unit.files)
