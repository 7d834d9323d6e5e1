"""Budgets hold for what sensors start: the most useful first, critical backlogs before all, and what waits says why, with its numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dredge.platform_core import names
from dredge.platform_core.health import TableHealth
from dredge.platform_core.policies import (
    Decision,
    DecisionOutcome,
    DecisionScope,
    Now,
    Policy,
    Reason,
    TableFacts,
    decide_all,
)
from dredge.platform_core.policies.budgets import Budget
from dredge.platform_core.policies.decisions import Backlog, decide_in_order, sort_by_usefulness
from lsm_core.options import TableOptions
from tests.support.platform import bucket_health, commit, keyed_table, open_house

HOUR_MS = 3_600_000


def due(table: str, cost: int, benefit: float = 50.0, **numbers: Any) -> Decision:
    return Decision(
        table, "", DecisionOutcome.RUN, Reason.TRIGGER_REACHED, "due", cost=cost, benefit=benefit, **numbers
    )


def test_the_most_useful_comes_first_after_critical_backlogs_and_what_has_waited_for_too_long() -> None:
    candidates = [
        due("a", 100),
        due("b", 10),
        due("c", 10, 60.0),
        due("d", 10**9, 1.0, urgent=True),
        due("e", 0, 1.0),
        due("f", 10**6, waited_ms=13 * HOUR_MS, overdue=True),
        due("g", 10**9, waited_ms=14 * HOUR_MS, overdue=True),
    ]
    scarce = Budget(bytes_an_hour=1000)
    for budget, expected in ((scarce, "dgfcbea"), (Budget(concurrent_tables=1), "dgfcbae"), (None, "dgfcbae")):
        assert [item.table for item in sort_by_usefulness(candidates, budget)] == list(expected)
        assert [item.table for item in sort_by_usefulness(candidates[::-1], budget)] == list(expected)
    assert [item.table for item in sort_by_usefulness(candidates, scarce, {"a", "g"})] == list("gdfacbe")


def test_an_alert_comes_before_cheaper_work_and_waiting_counts_by_the_score() -> None:
    alert = due("alert", 10**12, 1.0, backlog=Backlog.WARN)
    cheap = [due(f"small{number}", number, 90.0) for number in range(5)]
    assert sort_by_usefulness([*cheap, alert], Budget(bytes_an_hour=10))[0] is alert
    assert sort_by_usefulness([*cheap, alert])[0] is alert
    patient = due("patient", 10**12, 10.0, waited_ms=2 * HOUR_MS)
    assert sort_by_usefulness([*cheap, patient])[0] is patient, "130 min x 10 points > 10 min x 90 points"
    assert sort_by_usefulness([*cheap, patient], Budget(bytes_an_hour=10))[-1] is patient, "bytes are scarce"
    emergency = due("emergency", 5, urgent=True, backlog=Backlog.EMERGENCY)
    old = due("old", 10**9, 1.0, overdue=True, waited_ms=80 * HOUR_MS)
    assert sort_by_usefulness([emergency, old])[0] is old, "emergencies starve nothing for ever"
    assert sort_by_usefulness([emergency, replace(old, waited_ms=60 * HOUR_MS)])[0] is emergency


def test_cost_benefit_and_waiting_are_told_by_health() -> None:
    buckets = (
        bucket_health(cost_minor=10, cost_full=30, score=5.0, oldest_level0_ms=HOUR_MS, last_compaction_ms=0),
        bucket_health(bucket=1, cost_minor=1, cost_full=3, score=9.0, level0_files=3),
    )
    facts = TableFacts("a.b", TableHealth("a.b", 1, 1, 0, buckets), TableOptions({}, "a.b"))
    now = Now(13 * HOUR_MS, 0)
    (merge,) = decide_all(facts, DecisionScope.SORTED_RUNS, lambda _: Policy(level0_critical=4), now)
    assert (merge.outcome, merge.cost, merge.benefit, merge.waited_ms) == (DecisionOutcome.RUN, 11, 9.0, 12 * HOUR_MS)
    assert merge.overdue and not merge.urgent
    (full,) = decide_all(facts, DecisionScope.SORTED_RUNS, lambda _: Policy(level0_critical=3, paused="move"), now)
    assert (full.reason, full.cost, full.urgent, full.overdue) == (Reason.RECOVERY, 33, True, False)
    waiting = replace(facts, health=replace(facts.health, waiting={"": 4}))
    (rows,) = decide_all(waiting, DecisionScope.SORTED_RUNS, lambda _: Policy(), now)
    assert (rows.reason, rows.cost, rows.benefit) == (Reason.ROWS_WAIT, 0, 100.0)


def test_the_bytes_of_an_hour_are_kept_for_what_has_waited_for_too_long_and_does_not_fit() -> None:
    candidates = [
        due("small", 10, 100.0),
        due("large", 90, 1.0, waited_ms=13 * HOUR_MS, overdue=True),
        due("larger", 95, 1.0, waited_ms=12 * HOUR_MS, overdue=True),
        due("critical", 10, urgent=True),
        due("nothing", 0, 1.0),
    ]
    left: list[str] = []

    def settle(decision: Decision, budget: Budget) -> Decision:
        why = budget.why_not(decision.table, decision.cost)
        left.append(f"{decision.table}: {why}")
        return decision.decline(Reason.BUDGET, why) if why else decision

    final = decide_in_order(candidates, Budget(100, None, 5), settle)
    assert [item.table for item in final if item.outcome is DecisionOutcome.RUN] == ["critical", "nothing"]
    assert left == [
        "critical: ",
        "large: it reads 90 B; 85 B of 100 B an hour are left",
        "larger: it reads 95 B; 85 B of 100 B an hour are left",
        "small: 85 B of 100 B an hour are kept for large, which has waited for too long",
        "nothing: ",
    ]
    final = decide_in_order(candidates[:2], Budget(100, None, 0), settle)
    assert [item.table for item in final if item.outcome is DecisionOutcome.RUN] == ["large", "small"]


def test_a_tick_starts_what_its_budgets_allow_and_the_rest_later(tmp_path: Path) -> None:
    place = tmp_path / "p.yaml"
    place.write_text("budget: {concurrent_tables: 1}")
    for name, rows in (("shop.small", 5), ("shop.large", 5_000)):
        commit(keyed_table(tmp_path / "wh", name, partitioned=False), 5, rows=rows)
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place)) as house:
        tick = house.tick(names.SORTED_RUN_SENSOR)
        (request,) = tick.run_requests
        assert request.tags[names.TAG_TABLE] == "shop.small", "the same score, for fewer bytes"
        assert int(request.tags[names.TAG_BYTES]) > 0
        assert house.run(request).success
        place.write_text(f"budget: {{bytes_an_hour: {int(request.tags[names.TAG_BYTES]) + 1}}}")
        (line,) = [line for line in house.lines(house.tick(names.SORTED_RUN_SENSOR)) if line.startswith("shop.large")]
        assert line.startswith("shop.large: decline (beyond the budget): 5 sorted runs >= 5; it reads ")
        assert "; 1 B of " in line
        place.write_text("budget: {bytes_an_hour: 1 gb, concurrent_tables: 2}")
        assert [item.tags[names.TAG_TABLE] for item in house.tick(names.SORTED_RUN_SENSOR).run_requests] == [
            "shop.large"
        ]


def test_what_is_larger_than_the_whole_budget_starts_when_nothing_was_started_for_an_hour(tmp_path: Path) -> None:
    place = tmp_path / "p.yaml"
    place.write_text("budget: {bytes_an_hour: 1}")
    for name in ("shop.a", "shop.b"):
        commit(keyed_table(tmp_path / "wh", name, partitioned=False), 5)
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place)) as house:
        assert len(house.tick(names.SORTED_RUN_SENSOR).run_requests) == 1
