"""Budgets hold although both table sensors tick at the same time and Dagster creates their runs only afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dredge.orchestration.sensors.budget_claims import BudgetClaims
from dredge.orchestration.sensors.run_requests import RunRequestBuilder
from dredge.platform_core import names
from dredge.platform_core.policies.budgets import Budget
from dredge.platform_core.policies.decisions import DAY_MS
from lsm_core.clock import FileClock
from tests.support.platform import append_table, commit, keyed_table, open_house

SENSORS = (names.SORTED_RUN_SENSOR, names.IDLE_SENSOR)
COST = 10


@dataclass
class Simulation:
    """Dagster's storage and the claims, which the ticks of two sensors use in any interleaving.

    Attributes:
        tables: most tables at the same time.
        most_bytes: most bytes of an hour.
        running: table of each running run, by run key.
        created: run keys of all created runs.
        requested: number of requests, which may not be created yet.
    """

    tables: int
    most_bytes: int
    running: dict[str, str] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    requested: int = 0
    claims: BudgetClaims = field(default_factory=lambda: BudgetClaims(clock=lambda: 0.0))

    def tick(self, sensor: str, names_of_due: list[str]) -> Iterator[None]:
        """Play a tick and the daemon's work after it; each ``yield`` lets the other sensor continue."""
        claims = self.claims.begin_tick(sensor)
        yield
        at_work = frozenset(self.running.values())
        yield
        created, working = set(self.created), self.running.values()
        at_work = at_work.union(working)
        yield
        spent = len(self.created) * COST
        yield
        budget = claims.add_pending(Budget(self.most_bytes, self.tables, spent, at_work), created)
        requests = []
        for table in names_of_due:
            yield
            if not claims.remaining(budget).why_not(table, COST) and not claims.try_claim(budget, table, table, COST):
                budget = budget.after(table, COST)
                self.requested += 1
                requests.append(table)
                claims.set_run_key([table], f"{sensor}/{self.requested}/{table}")
        keys = {claim.subject: claim.run_key for claim in self.claims._claims if claim.tick == claims.number}
        for table in requests:
            yield
            self.running[keys[table]] = table
            self.created.append(keys[table])
            assert len(set(self.running.values())) <= self.tables
            assert len(self.created) * COST <= max(self.most_bytes, COST)
        yield

    def end_run(self) -> None:
        if self.running:
            del self.running[next(iter(self.running))]


@given(st.data())
def test_in_no_interleaving_do_two_sensors_exceed_the_budget(data: st.DataObject) -> None:
    world = Simulation(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 12)) * COST)
    due = st.lists(st.sampled_from("abcdef"), max_size=4, unique=True)
    ticks: dict[str, Iterator[None] | None] = dict.fromkeys(SENSORS)
    for _ in range(60):
        step = data.draw(st.sampled_from([*SENSORS, *SENSORS, "end"]))
        if step == "end":
            world.end_run()
            continue
        tick = ticks[step] = ticks[step] or world.tick(step, [f"{step}.{name}" for name in data.draw(due)])
        if next(tick, StopIteration) is StopIteration:
            ticks[step] = None


def test_of_two_threads_one_gets_the_last_slot() -> None:
    for _ in range(50):
        claims, barrier = BudgetClaims(), threading.Barrier(8)

        def take(number: int, claims: BudgetClaims = claims, barrier: threading.Barrier = barrier) -> str:
            tick = claims.begin_tick(str(number))
            barrier.wait()
            return tick.try_claim(Budget(None, 2), f"t{number}", f"t{number}", 1)

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(take, range(8)))
        assert sorted(answers) == ["", "", *["2 of 2 tables at the same time are being compacted"] * 6]


def test_a_claim_ends_with_the_next_tick_of_its_sensor_or_after_a_while() -> None:
    seconds = [0.0]
    claims, limit = BudgetClaims(clock=lambda: seconds[0]), Budget(None, 1)
    first = claims.begin_tick("a")
    assert not first.try_claim(limit, "x", "x", 1)
    assert claims.begin_tick("b").add_pending(limit, ()).why_not("y", 1)
    assert not claims.begin_tick("a").add_pending(limit, ()).why_not("y", 1), "its runs are created, or never will be"
    assert not claims.begin_tick("a").try_claim(limit, "z", "z", 1)
    seconds[0] = 601.0
    assert not claims.begin_tick("b").add_pending(limit, ()).why_not("y", 1)
    released = claims.begin_tick("a")
    assert not released.try_claim(limit, "x", "x", 1)
    released.release()
    assert not claims.begin_tick("b").add_pending(limit, ()).why_not("y", 1)


def test_the_second_sensor_counts_what_the_first_requested_before_its_runs_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies, clock = tmp_path / "p.yaml", FileClock(str(tmp_path / "clock"))
    policies.write_text("budget: {concurrent_tables: 1}")
    commit(keyed_table(tmp_path / "wh", "shop.orders", partitioned=False), 5)
    log = append_table(tmp_path / "wh", "shop.log")
    commit(log, 5)
    clock.set(max(bucket.newest_file_ms or 0 for bucket in log.health()) + 21 * DAY_MS)
    with open_house(tmp_path / "wh", DREDGE_CLOCK=clock.to_spec(), DREDGE_POLICIES=str(policies)) as house:
        (request,) = house.tick(SENSORS[0]).run_requests or ()
        waiting = house.tick(SENSORS[1])
        assert not waiting.run_requests, "the run of the first sensor is not created yet"
        assert any("beyond the budget" in line and "1 of 1 tables" in line for line in house.lines(waiting))
        assert house.run(request).success
        (later,) = house.tick(SENSORS[1]).run_requests or ()
        assert later.tags[names.TAG_TABLE] == "shop.log"
        assert house.run(later).success
        for table in ("shop.orders", "shop.log"):
            commit(house.warehouse.table(table), 5)
        clock.set(clock.now_ms() + 21 * DAY_MS)

        # While the second sensor plans, the first ticks, too.
        settle, answers = RunRequestBuilder.settle, []

        def settle_late(builder: RunRequestBuilder, *arguments: object, **options: object) -> object:
            final = settle(builder, *arguments, **options)  # type: ignore[arg-type]
            if not answers:
                answers.append(None)
                answers[0] = house.tick(SENSORS[0])
            return final

        monkeypatch.setattr(RunRequestBuilder, "settle", settle_late)
        second = house.tick(SENSORS[1])
        assert len(answers[0].run_requests or ()) == 1
        assert not second.run_requests
        assert any("beyond the budget" in line and "1 of 1 tables" in line for line in house.lines(second))
