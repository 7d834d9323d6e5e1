"""Budgets: how much sensors may start over the whole warehouse. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lsm_core.maintenance.action import size_text


@dataclass(frozen=True)
class Budget:
    """What is left of a budget. ``spent``: bytes read by what sensors started within the last hour.

    ``bytes_an_hour`` and ``concurrent_tables``: None is no limit. ``at_work``: the tables that are being compacted. ``kept_for``: what has waited for too long, and gets
    the bytes that are left as soon as they suffice. ``in_turn``: what starts does so one after the other, so that all of it takes the place of one table.
    """

    bytes_an_hour: int | None = None
    concurrent_tables: int | None = None
    spent: int = 0
    at_work: frozenset[str] = frozenset()
    kept_for: str = ""
    in_turn: bool = False

    def is_crowded_for(self, table: str) -> bool:
        """Whether a compaction of one more table would be one too many."""
        most = self.concurrent_tables
        return most is not None and table not in self.at_work and len(self.at_work) >= most

    def why_not(self, table: str, cost: int) -> str:
        """Return why a compaction of ``table`` that reads ``cost`` bytes has to wait, "" when it has not.

        One that is larger than the budget of a whole hour starts when nothing was started for an hour: it would never, else.
        """
        if self.is_crowded_for(table):
            return f"{len(self.at_work)} of {self.concurrent_tables} tables at the same time are at work"
        limit = self.bytes_an_hour
        if limit is None or not cost:
            return ""
        left = f"{size_text(max(limit - self.spent, 0))} of {size_text(limit)} an hour"
        if self.spent and self.spent + cost > limit:
            return f"it reads {size_text(cost)}; {left} are left"
        return f"{left} are kept for {self.kept_for}, which has waited for too long" if self.kept_for else ""

    def after(self, table: str, cost: int) -> Budget:
        """Return what is left when a compaction of ``table`` starts that reads so many bytes."""
        at_work = self.at_work if self.in_turn else self.at_work | {table}
        return replace(self, spent=self.spent + cost, at_work=at_work)

    def keeping_for(self, subject: str) -> Budget:
        """Return the same with its bytes kept for one that they do not suffice for, the first that was kept for."""
        return self if self.kept_for else replace(self, kept_for=subject)


__all__ = ["Budget"]
