"""What a strategy answers: a pick with its trigger, or a decline with its reason, both with the numbers behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lsm_core.tree.levels import Levels
from lsm_core.tree.model import CompactUnit

Facts = Mapping[str, int | float | None]


class Trigger(StrEnum):
    """Which rule asked for a compaction."""

    OPTIMIZATION_INTERVAL = "optimization-interval"
    TOTAL_SIZE = "total-size-threshold"
    INCREMENTAL_SIZE = "incremental-size-threshold"
    SIZE_AMPLIFICATION = "size-amplification"
    SIZE_RATIO = "size-ratio"
    FILE_COUNT = "file-count"
    FORCE_LEVEL0 = "force-level-0"
    FULL = "full"
    DELTA_COMMITS = "delta-commits"
    SMALL_FILES = "small-files"
    SORT = "sort"
    RECOVERY = "recovery"


class DeclineReason(StrEnum):
    """Why nothing was picked."""

    EMPTY = "empty"
    TOO_FEW_RUNS = "too-few-runs"
    WITHIN_LIMITS = "within-limits"
    NO_LEVEL0 = "no-level-0"
    WAITING = "waiting"
    NOTHING_TO_CHANGE = "nothing-to-change"
    ALREADY_COMPACTED = "already-compacted"
    TOO_FEW_SMALL_FILES = "too-few-small-files"


@dataclass(frozen=True, slots=True)
class Pick:
    """``unit`` should be compacted because of ``trigger``; ``facts`` are the numbers that decided."""

    unit: CompactUnit
    trigger: Trigger
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decline:
    """Nothing to do for ``reason``; ``facts`` are the numbers that decided."""

    reason: DeclineReason
    facts: Facts = field(default_factory=dict)

    def text(self) -> str:
        """One line for people: the reason and its numbers."""
        numbers = ", ".join(f"{name} {value}" for name, value in self.facts.items())
        return f"{self.reason}: {numbers}" if numbers else str(self.reason)


Decision = Pick | Decline


@dataclass(frozen=True, slots=True)
class State:
    """What the time-driven rules remember between decisions. Derive it with :meth:`of`, never keep it in a process.

    ``last_full_ms``: epoch ms of the last full compaction, None if there never was one; ``skipped_forces``: decisions
    since level 0 was last forced up.
    """

    last_full_ms: int | None = None
    skipped_forces: int = 0

    @staticmethod
    def of(levels: Levels) -> State:
        """Read the state off the table: the newest file of the last level tells when a full compaction last ended.

        Every commit leaves a level-0 file and asks once, so level 0 also counts the decisions since the last force.
        """
        created = [f.creation_ms for f in levels.level(levels.max_level).files]
        return State(max(created, default=None), max(len(levels.level0) - 1, 0))
