"""Full compactions that are due before the universal rules apply: after an interval, or by the sizes of the runs.

Source: ``EarlyFullCompaction``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lsm_core.tree.model import Facts, LevelSortedRun, Pick, RunPick, RunSizes, State, Trigger


@dataclass(frozen=True, slots=True)
class EarlyFullCompaction:
    """Thresholds for early full compactions, each disabled by None.

    Attributes:
        interval_ms: a full compaction runs if the last one is longer ago (ms) (`compaction.optimization-interval`).
        total_size_threshold: a full compaction runs if all sorted runs together are smaller (bytes)
            (`compaction.total-size-threshold`).
        incremental_size_threshold: a full compaction runs if the sorted runs outside the last level together are larger
            (bytes) (`compaction.incremental-size-threshold`).
    """

    interval_ms: int | None = None
    total_size_threshold: int | None = None
    incremental_size_threshold: int | None = None

    @staticmethod
    def of(
        interval_ms: int | None, total_size_threshold: int | None, incremental_size_threshold: int | None
    ) -> EarlyFullCompaction | None:
        """Return the thresholds, or None if none is set.

        Args:
            interval_ms: longest time between full compactions (ms), or None.
            total_size_threshold: total size (bytes) below which all sorted runs are compacted, or None.
            incremental_size_threshold: size (bytes) of the sorted runs outside the last level above which all sorted
                runs are compacted, or None.
        """
        if interval_ms is None and total_size_threshold is None and incremental_size_threshold is None:
            return None
        return EarlyFullCompaction(interval_ms, total_size_threshold, incremental_size_threshold)

    def decide(
        self, num_levels: int, runs: Sequence[LevelSortedRun], now_ms: int, state: State
    ) -> tuple[Pick | None, State]:
        """Return a pick of all runs if a threshold requires a full compaction; a single run is never compacted.

        Args:
            num_levels: number of levels.
            runs: all sorted runs, newest first.
            now_ms: the current time (epoch ms).
            state: state of the rules that depend on time, such as the time of the last full compaction.

        Returns:
            The pick or None, and the new state.
        """
        pick, state = self.decide_sizes(num_levels, RunSizes.of(runs), now_ms, state)
        return None if pick is None else pick.of_runs(runs), state

    def decide_sizes(self, num_levels: int, runs: RunSizes, now_ms: int, state: State) -> tuple[RunPick | None, State]:
        """Return the decision of :meth:`decide` for runs of which only levels and sizes are known."""
        if len(runs) <= 1:
            return None, state
        max_level = num_levels - 1
        threshold = self._exceeded_threshold(max_level, runs, now_ms, state)
        if threshold is None:
            return None, state
        return RunPick(len(runs), max_level, *threshold, full=True), replace(state, last_full_ms=now_ms)

    def facts(self, num_levels: int, runs: RunSizes, now_ms: int, state: State) -> Facts:
        """Return, by name, each threshold that is set, and the current value that is compared with the threshold."""
        facts: dict[str, int | float | None] = {}
        if self.interval_ms is not None:
            facts["since_full_ms"] = None if state.last_full_ms is None else now_ms - state.last_full_ms
            facts["interval_ms"] = self.interval_ms
        if self.total_size_threshold is not None:
            facts["total_bytes"] = runs.total
            facts["total_size_threshold_bytes"] = self.total_size_threshold
        if self.incremental_size_threshold is not None:
            facts["incremental_bytes"] = _bytes_outside(runs, num_levels - 1)
            facts["incremental_size_threshold_bytes"] = self.incremental_size_threshold
        return facts

    def _exceeded_threshold(
        self, max_level: int, runs: RunSizes, now_ms: int, state: State
    ) -> tuple[Trigger, dict[str, int | float | None]] | None:
        """Return the first threshold that requires a full compaction, or None.

        The interval since the last full compaction is checked first, then the total size, then the size outside the
        last level. The interval also requires a full compaction if the time of the last full compaction is unknown.

        Returns:
            The trigger, and two numbers by name: the measured value (`since_full_ms`, `total_bytes` or
                `incremental_bytes`) and the threshold that it is compared with (`interval_ms` or `threshold_bytes`).
        """
        since = None if state.last_full_ms is None else now_ms - state.last_full_ms
        if self.interval_ms is not None and (since is None or since > self.interval_ms):
            return Trigger.OPTIMIZATION_INTERVAL, {"since_full_ms": since, "interval_ms": self.interval_ms}
        total = runs.total
        if self.total_size_threshold is not None and total < self.total_size_threshold:
            return Trigger.TOTAL_SIZE, {"total_bytes": total, "threshold_bytes": self.total_size_threshold}
        outside = _bytes_outside(runs, max_level)
        if self.incremental_size_threshold is not None and outside > self.incremental_size_threshold:
            return Trigger.INCREMENTAL_SIZE, {
                "incremental_bytes": outside,
                "threshold_bytes": self.incremental_size_threshold,
            }
        return None


def _bytes_outside(runs: RunSizes, level: int) -> int:
    """Return the size of the runs that are not on ``level`` (bytes)."""
    return sum(size for size, own in zip(runs.sizes, runs.levels, strict=True) if own != level)
