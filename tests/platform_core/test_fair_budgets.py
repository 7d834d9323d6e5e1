"""Bounded waiting: with any budget, every due table gets its turn; a simulation of ticks, without Dagster and tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dredge.platform_core.policies import Decision, DecisionOutcome, Reason
from dredge.platform_core.policies.budgets import Budget
from dredge.platform_core.policies.decisions import MINUTE_MS, Backlog, decide_in_order
from tests.support.samples import examples

STALLED_MINUTES = 12 * 60
RUN_MINUTES = 10
TICK_MINUTES = 5
LONGEST_BONUS_MINUTES = 72 * 60


@dataclass
class Table:
    """Table whose work is due again at once when its run ended, the worst case for all others.

    Attributes:
        name: name of the table.
        score: health score.
        cost: bytes that a compaction reads.
        backlog: level-0 alert that the table has each time.
        rows_wait: whether its rows are invisible to readers.
        due_since: minute since which work is due.
        longest: longest time that its work waited, in minutes.
    """

    name: str
    score: float
    cost: int
    backlog: Backlog
    rows_wait: bool
    due_since: int = 0
    longest: int = 0

    def decision(self, minute: int) -> Decision:
        """The due work at a minute."""
        waited = minute - self.due_since
        reason = Reason.ROWS_WAIT if self.rows_wait else Reason.TRIGGER_REACHED
        urgent = self.backlog in {Backlog.CRITICAL, Backlog.EMERGENCY}
        return Decision(
            self.name, "", DecisionOutcome.RUN, reason, "due", benefit=self.score, cost=self.cost,
            waited_ms=waited * MINUTE_MS, overdue=not self.rows_wait and waited >= STALLED_MINUTES, urgent=urgent,
            backlog=self.backlog,
        )  # fmt: skip


@dataclass
class Warehouse:
    """Ticks over tables that are always due, with runs of ten minutes.

    Attributes:
        tables: the tables.
        bytes_an_hour: budget of bytes, or None.
        slots: budget of tables at the same time.
        turns: most runs that a tick requests.
    """

    tables: list[Table]
    bytes_an_hour: int | None
    slots: int
    turns: int
    running: dict[str, int] = field(default_factory=dict)
    started: list[tuple[int, int]] = field(default_factory=list)
    first: set[str] = field(default_factory=set)

    def tick(self, minute: int) -> None:
        """End runs, and start what the budgets and the turns of the tick allow."""
        for table in self.tables:
            if self.running.get(table.name, minute + 1) <= minute:
                del self.running[table.name]
                table.due_since = minute
        self.started = [(at, cost) for at, cost in self.started if minute - at < 60]
        spent = sum(cost for _, cost in self.started)
        budget = Budget(self.bytes_an_hour, self.slots, spent, frozenset(self.running))
        turns = self.turns

        def settle(decision: Decision, left: Budget) -> Decision:
            nonlocal turns
            why = left.why_not(decision.table, decision.cost)
            if why:
                return decision.decline(Reason.BUDGET, why)
            if not turns:
                return decision.decline(Reason.OUT_OF_TIME, "no turns left")
            turns -= 1
            return decision

        due = [table.decision(minute) for table in self.tables if table.name not in self.running]
        final = decide_in_order(due, budget, settle, self.first)
        self.first = {decision.subject for decision in final if decision.reason is Reason.OUT_OF_TIME}
        for decision in final:
            table = next(table for table in self.tables if table.name == decision.table)
            table.longest = max(table.longest, minute - table.due_since)
            if decision.outcome is DecisionOutcome.RUN:
                self.running[table.name] = minute + RUN_MINUTES
                self.started.append((minute, decision.cost))


@st.composite
def warehouses(draw: st.DrawFn) -> Warehouse:
    """Warehouses with more due work than their budget allows."""
    tables = [
        Table(
            f"t{number:02d}",
            draw(st.floats(0, 100)),
            draw(st.sampled_from([0, 1, 10, 1_000, 10**6, 10**9])),
            draw(st.sampled_from([Backlog.OK, Backlog.OK, Backlog.WARN, Backlog.CRITICAL, Backlog.EMERGENCY])),
            draw(st.integers(0, 9)) == 0,
        )
        for number in range(draw(st.integers(1, 12)))
    ]
    limit = draw(st.sampled_from([None, 1, 100, 10**6, 10**10]))
    return Warehouse(tables, limit, draw(st.integers(1, 4)), draw(st.integers(1, 4)))


@settings(max_examples=examples(25), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(warehouses())
def test_every_due_table_gets_its_turn_with_any_budget(warehouse: Warehouse) -> None:
    """Work waits until it precedes continuous emergencies, then at most for one run of each other table and again."""
    a_run = 60 + RUN_MINUTES + TICK_MINUTES  # a budget of bytes lets one large run start per hour
    bound = LONGEST_BONUS_MINUTES + 3 * len(warehouse.tables) * a_run
    for minute in range(0, 2 * bound, TICK_MINUTES):
        warehouse.tick(minute)
        if any(table.longest > bound for table in warehouse.tables):
            break
    assert {table.name: table.longest for table in warehouse.tables if table.longest > bound} == {}, warehouse


@settings(max_examples=60, deadline=None)
@given(warehouses(), st.integers(1, 3))
def test_an_alert_never_waits_for_work_without_an_alert(warehouse: Warehouse, turns: int) -> None:
    calm = [replace(table, backlog=Backlog.OK, rows_wait=False) for table in warehouse.tables]
    alert = Table("alert", 0.0, 10, Backlog.WARN, rows_wait=False)
    small = replace(warehouse, tables=[*calm, alert], bytes_an_hour=None, turns=turns)
    small.tick(STALLED_MINUTES - TICK_MINUTES)  # nothing is overdue yet
    assert "alert" in small.running
