"""Budgets: how much sensors may start over the whole warehouse, and which of the due compactions come first. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lsm_core.maintenance.action import size_text
from orchestration.health import PartitionHealth
from orchestration.policies.decisions import Decision, Reason


@dataclass(frozen=True)
class Candidate:
    """A compaction that is due: what it reads (bytes), and what it is good for: the score (0 to 100) of what it mends."""

    decision: Decision
    cost: int
    benefit: float

    @property
    def urgent(self) -> bool:
        """Whether it is the way out of a critical backlog."""
        return self.decision.reason is Reason.RECOVERY


def candidate_of(decision: Decision, state: PartitionHealth | None) -> Candidate:
    """Return a due decision with its numbers; ``state`` None: of rows that wait for a bucket, which no health knows."""
    if state is None:
        return Candidate(decision, 0, 100.0)
    buckets = state.buckets
    cost = sum(item.cost_full if decision.full else item.cost_minor for item in buckets) or state.total_bytes
    return Candidate(decision, cost, state.score)


def most_useful_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return critical backlogs first, then by benefit per byte that is read, the cheaper of two equals first; names decide the rest."""
    return sorted(
        candidates,
        key=lambda one: (not one.urgent, -one.benefit / max(one.cost, 1), one.cost, one.decision.subject),
    )


@dataclass
class Budget:
    """What is left of a budget while candidates take from it. ``spent``: bytes read by what sensors started within the last hour.

    ``bytes_an_hour`` and ``concurrent_tables``: None is no limit. ``at_work``: the tables that are being compacted.
    """

    bytes_an_hour: int | None = None
    concurrent_tables: int | None = None
    spent: int = 0
    at_work: set[str] = field(default_factory=set)

    def why_not(self, candidate: Candidate) -> str:
        """Return why the candidate has to wait, "" when it has not.

        One that is larger than the budget of a whole hour starts when nothing was started for an hour: it would never, else.
        """
        table, most = candidate.decision.table, self.concurrent_tables
        if most is not None and table not in self.at_work and len(self.at_work) >= most:
            return f"{len(self.at_work)} of {most} tables at the same time are at work"
        limit = self.bytes_an_hour
        if limit is None or not self.spent or self.spent + candidate.cost <= limit:
            return ""
        left = max(limit - self.spent, 0)
        return f"it reads {size_text(candidate.cost)}; {size_text(left)} of {size_text(limit)} an hour are left"

    def take(self, table: str, cost: int) -> None:
        """Count a compaction of a table that starts, and reads so many bytes."""
        self.spent += cost
        self.at_work.add(table)


__all__ = ["Budget", "Candidate", "candidate_of", "most_useful_first"]
