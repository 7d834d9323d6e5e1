"""Budgets: limits on the compactions that sensors start across the whole warehouse. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lsm_core.maintenance.action import size_text


@dataclass(frozen=True)
class Budget:
    """Remaining budget of one sensor tick, or of one maintenance round over many tables.

    Attributes:
        bytes_an_hour: bytes that compactions may read within an hour, or None for no limit.
        concurrent_tables: tables that may be compacted at the same time, or None for no limit.
        spent: bytes read by the compactions that sensors started within the last hour.
        at_work: names of the tables that are being compacted.
        kept_for: overdue table or partition for which the remaining bytes are reserved, or "".
        in_turn: whether compactions run one after the other, so that all together count as one table.
    """

    bytes_an_hour: int | None = None
    concurrent_tables: int | None = None
    spent: int = 0
    at_work: frozenset[str] = frozenset()
    kept_for: str = ""
    in_turn: bool = False

    def exceeds_tables(self, table: str) -> bool:
        """Return whether a compaction of one more table would exceed `concurrent_tables`."""
        limit = self.concurrent_tables
        return limit is not None and table not in self.at_work and len(self.at_work) >= limit

    def why_not(self, table: str, cost: int) -> str:
        """Return why a compaction has to wait.

        A compaction larger than the budget of a whole hour starts when nothing was started for an hour. Otherwise it
        could never start.

        Args:
            table: full name of the table.
            cost: bytes that the compaction reads.

        Returns:
            The reason, or "" if the compaction may start now.
        """
        if self.exceeds_tables(table):
            return f"{len(self.at_work)} of {self.concurrent_tables} tables at the same time are being compacted"
        limit = self.bytes_an_hour
        if limit is None or not cost:
            return ""
        left = f"{size_text(max(limit - self.spent, 0))} of {size_text(limit)} an hour"
        if self.spent and self.spent + cost > limit:
            return f"it reads {size_text(cost)}; {left} are left"
        return f"{left} are kept for {self.kept_for}, which has waited for too long" if self.kept_for else ""

    def after(self, table: str, cost: int) -> Budget:
        """Return the budget that remains after a compaction of a table that reads `cost` bytes has started."""
        at_work = self.at_work if self.in_turn else self.at_work | {table}
        return replace(self, spent=self.spent + cost, at_work=at_work)

    def reserve_for(self, subject: str) -> Budget:
        """Return a budget that reserves the remaining bytes for a table or partition; an earlier reservation stays."""
        return self if self.kept_for else replace(self, kept_for=subject)
