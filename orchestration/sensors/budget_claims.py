"""Claims on the budget by the table sensors of this process, for runs that Dagster's storage does not show yet.

Dagster evaluates the sensors in threads and creates their runs afterwards. Two ticks at the same time would both see
the last free table or bytes of the budget. So each tick claims what it requests, and every other tick counts the claim.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from dredge.platform_core.policies.budgets import Budget

_LASTS_SECONDS: Final = 10 * 60.0
"""Time after which a claim ends in any case, for example because its sensor was switched off before its run existed."""


@dataclass(frozen=True)
class BudgetClaim:
    """Claim of one tick for one requested run.

    Attributes:
        number: number of the claim; later claims have larger numbers.
        sensor: name of the sensor that made it.
        tick: number of the tick that made it.
        subject: table or partition to compact (`Decision.subject`).
        table: full name of the table.
        cost: bytes that the run reads.
        made_s: time of the claim (seconds, clock of `BudgetClaims`).
        run_key: run key of the request, or "" before the tick has ended.
        created: whether Dagster has created the run, so that the run itself counts.
    """

    number: int
    sensor: str
    tick: int
    subject: str
    table: str
    cost: int
    made_s: float
    run_key: str = ""
    created: bool = False


@dataclass
class BudgetClaims:
    """Claims of all ticks of this process; its methods may be called by several threads.

    Attributes:
        clock: monotonic clock, in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _claims: list[BudgetClaim] = field(default_factory=list)
    _claim_count: int = 0
    _tick_count: int = 0

    def begin_tick(self, sensor: str) -> TickClaims:
        """Return the claims of a new tick; call this before the tick reads runs from Dagster.

        Dagster has created the runs of the sensor's previous tick by then.

        Args:
            sensor: name of the sensor.
        """
        with self._lock:
            oldest_s = self.clock() - _LASTS_SECONDS
            self._claims = [
                replace(claim, created=claim.created or claim.sensor == sensor)
                for claim in self._claims
                if claim.made_s >= oldest_s
            ]
            self._tick_count += 1
            pending = tuple(claim for claim in self._claims if not claim.created)
            return TickClaims(self, sensor, self._tick_count, self._claim_count, pending)

    def try_claim(self, tick: TickClaims, budget: Budget, subject: str, table: str, cost: int) -> str:
        """Claim a part of the budget for a run, unless other ticks have claimed it since this tick began.

        Args:
            tick: tick that requests the run.
            budget: budget that Dagster's runs and the tick's own claims leave.
            subject: table or partition to compact.
            table: full name of the table.
            cost: bytes that the run reads.

        Returns:
            Why the run has to wait, or "" if the claim was made.
        """
        with self._lock:
            why = self._add_later(tick, budget).why_not(table, cost)
            if not why:
                self._claim_count += 1
                self._claims.append(
                    BudgetClaim(self._claim_count, tick.sensor, tick.number, subject, table, cost, made_s=self.clock())
                )
            return why

    def remaining(self, tick: TickClaims, budget: Budget) -> Budget:
        """Return what is left of a tick's budget after the claims that other ticks made since this tick began.

        Args:
            tick: the tick.
            budget: budget that Dagster's runs and the tick's own claims leave.
        """
        with self._lock:
            return self._add_later(tick, budget)

    def change(self, change_claim: Callable[[BudgetClaim], BudgetClaim | None]) -> None:
        """Replace each claim by the result of a function, or remove it if the result is None."""
        with self._lock:
            changed = map(change_claim, self._claims)
            self._claims = [claim for claim in changed if claim is not None]

    def _add_later(self, tick: TickClaims, budget: Budget) -> Budget:
        """Return the budget reduced by the claims that other ticks made since the tick began.

        Claims whose runs Dagster has created count, too, because the tick may have read Dagster's runs earlier.
        """
        for claim in self._claims:
            if claim.number > tick.since and claim.tick != tick.number:
                budget = budget.after(claim.table, claim.cost)
        return budget


@dataclass(frozen=True)
class TickClaims:
    """Claims of one tick.

    Attributes:
        claims: claims of all ticks.
        sensor: name of the sensor.
        number: number of the tick.
        since: number of the newest claim when the tick began.
        pending: claims whose runs were not created when the tick began.
    """

    claims: BudgetClaims
    sensor: str
    number: int
    since: int
    pending: tuple[BudgetClaim, ...]

    def add_pending(self, budget: Budget, created: Collection[str]) -> Budget:
        """Return a budget that counts the pending claims, except those whose runs Dagster has created.

        Args:
            budget: budget that the runs of Dagster leave.
            created: run keys of runs that exist by now. They count as created for later ticks, too.
        """
        self.claims.change(lambda claim: replace(claim, created=True) if claim.run_key in created else claim)
        for claim in self.pending:
            if claim.run_key not in created:
                budget = budget.after(claim.table, claim.cost)
        return budget

    def remaining(self, budget: Budget) -> Budget:
        """Return what is left of the budget after the claims that other ticks made since this tick began.

        Args:
            budget: budget that Dagster's runs and this tick's own claims leave.
        """
        return self.claims.remaining(self, budget)

    def try_claim(self, budget: Budget, subject: str, table: str, cost: int) -> str:
        """Claim the budget for a run, unless other ticks have claimed it since this tick began.

        Args:
            budget: budget that is left by the runs of Dagster and the earlier claims of this tick.
            subject: table or partition to compact.
            table: full name of the table.
            cost: bytes that the run reads.

        Returns:
            Why the run has to wait, or "" if the claim was made.
        """
        return self.claims.try_claim(self, budget, subject, table, cost)

    def set_run_key(self, subjects: Iterable[str], run_key: str) -> None:
        """Store the run key of a run request in the claims of the tick, so that its run can be found later.

        Args:
            subjects: tables or partitions that the request compacts.
            run_key: run key of the request.
        """
        chosen = frozenset(subjects)
        self.claims.change(
            lambda claim: (
                replace(claim, run_key=run_key) if claim.tick == self.number and claim.subject in chosen else claim
            )
        )

    def release(self) -> None:
        """Remove all claims of the tick, because none of its runs will be created."""
        self.claims.change(lambda claim: None if claim.tick == self.number else claim)
