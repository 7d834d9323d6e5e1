"""Result of a compaction strategy.

It is a pick with its trigger, or a decline with its reason. Both have the decisive numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lsm_core.tree.model import CompactUnit, Levels

Facts = Mapping[str, int | float | None]


class Trigger(StrEnum):
    """Rule that requested a compaction."""

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
    """Reason for picking nothing."""

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
    """Decision to compact a unit.

    Attributes:
        unit: the files to compact.
        trigger: the rule that requested it.
        facts: the decisive numbers.
    """

    unit: CompactUnit
    trigger: Trigger
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decline:
    """Decision to compact nothing.

    Attributes:
        reason: the reason.
        facts: the decisive numbers.
    """

    reason: DeclineReason
    facts: Facts = field(default_factory=dict)

    def text(self) -> str:
        """Return the reason and its numbers on one line."""
        numbers = ", ".join(f"{name} {value}" for name, value in self.facts.items())
        return f"{self.reason}: {numbers}" if numbers else str(self.reason)


Decision = Pick | Decline


@dataclass(frozen=True, slots=True)
class State:
    """State of the time-driven rules between decisions. Derive it with :meth:`of`; never keep it in a process.

    Attributes:
        last_full_ms: time of the last full compaction (epoch ms), or None without one.
        skipped_forces: decisions since level 0 was last forced up.
    """

    last_full_ms: int | None = None
    skipped_forces: int = 0

    @staticmethod
    def of(levels: Levels) -> State:
        """Derive the state from a table's levels.

        The newest file of the last level shows the end of the last full compaction. Every commit leaves a level-0 file
        and decides once, so level 0 counts the decisions since the last force.
        """
        created = [f.creation_ms for f in levels.level(levels.max_level).files]
        return State(max(created, default=None), max(len(levels.level0) - 1, 0))
