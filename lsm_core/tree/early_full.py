"""Full compactions ahead of the universal rules: after a time, or while the tree is small (Java `EarlyFullCompaction`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lsm_core.tree.decision import Facts, Pick, State, Trigger
from lsm_core.tree.model import CompactUnit, LevelSortedRun


@dataclass(frozen=True, slots=True)
class EarlyFullCompaction:
    """Three thresholds, each off when None: time between full compactions (ms), total bytes, bytes outside the last level."""

    interval_ms: int | None = None
    total_size_threshold: int | None = None
    incremental_size_threshold: int | None = None

    @staticmethod
    def of(
        interval_ms: int | None, total_size_threshold: int | None, incremental_size_threshold: int | None
    ) -> EarlyFullCompaction | None:
        """The rule, or None if no threshold is set."""
        if interval_ms is None and total_size_threshold is None and incremental_size_threshold is None:
            return None
        return EarlyFullCompaction(interval_ms, total_size_threshold, incremental_size_threshold)

    def decide(
        self, num_levels: int, runs: Sequence[LevelSortedRun], now_ms: int, state: State
    ) -> tuple[Pick | None, State]:
        """A pick of all runs if a threshold asks for it, else None. One run alone is never compacted."""
        if len(runs) <= 1:
            return None, state
        max_level = num_levels - 1
        found = self._reached(max_level, runs, now_ms, state)
        if found is None:
            return None, state
        trigger, facts = found
        return Pick(CompactUnit.of_runs(max_level, runs, full=True), trigger, facts), replace(
            state, last_full_ms=now_ms
        )

    def facts(self, num_levels: int, runs: Sequence[LevelSortedRun], now_ms: int, state: State) -> Facts:
        """The numbers that its thresholds are held against; a threshold that is off weighs none."""
        weighed: dict[str, int | float | None] = {}
        if self.interval_ms is not None:
            weighed["since_full_ms"] = None if state.last_full_ms is None else now_ms - state.last_full_ms
            weighed["interval_ms"] = self.interval_ms
        if self.total_size_threshold is not None:
            weighed["total_bytes"] = sum(run.size for run in runs)
            weighed["total_size_threshold_bytes"] = self.total_size_threshold
        if self.incremental_size_threshold is not None:
            weighed["incremental_bytes"] = sum(run.size for run in runs if run.level != num_levels - 1)
            weighed["incremental_size_threshold_bytes"] = self.incremental_size_threshold
        return weighed

    def _reached(
        self, max_level: int, runs: Sequence[LevelSortedRun], now_ms: int, state: State
    ) -> tuple[Trigger, dict[str, int | float | None]] | None:
        """The first threshold that asks for a full compaction, and its numbers: the time, then the two sizes."""
        since = None if state.last_full_ms is None else now_ms - state.last_full_ms
        if self.interval_ms is not None and (since is None or since > self.interval_ms):
            return Trigger.OPTIMIZATION_INTERVAL, {"since_full_ms": since, "interval_ms": self.interval_ms}
        total = sum(run.size for run in runs)
        if self.total_size_threshold is not None and total < self.total_size_threshold:
            return Trigger.TOTAL_SIZE, {"total_bytes": total, "threshold_bytes": self.total_size_threshold}
        outside = sum(run.size for run in runs if run.level != max_level)
        if self.incremental_size_threshold is not None and outside > self.incremental_size_threshold:
            return Trigger.INCREMENTAL_SIZE, {
                "incremental_bytes": outside,
                "threshold_bytes": self.incremental_size_threshold,
            }
        return None
