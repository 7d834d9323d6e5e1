"""The state of a table never contradicts the decision about it, and the time that it promises is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dredge.platform_core.policies import Decision, DecisionOutcome, History, Now, Policy, Reason, Subject, decide
from dredge.platform_core.policies.budgets import Budget
from dredge.platform_core.policies.decisions import NOTHING_KNOWN, decide_in_order
from dredge.platform_core.policies.table_state import (
    _STATES,
    STATE_HELP,
    Condition,
    Queue,
    TableState,
    TableStatus,
    agrees,
    combine,
    judge_condition,
    judge_subject,
    judge_undecided,
    rank_key,
    state_of,
    time_text,
)
from tests.platform_core.test_decide import Dice, World
from tests.support.samples import examples

_NOTHING_STARTS = {
    TableState.CORRUPT,
    TableState.UNREADABLE,
    TableState.BLOCKED,
    TableState.SUSPENDED,
    TableState.FAILING,
    TableState.APPROVAL,
    TableState.PERSON,
    TableState.PAUSED,
    TableState.RUNNING,
    TableState.BACK_OFF,
    TableState.OUT_OF_BUDGET,
    TableState.OUT_OF_HOURS,
    TableState.INVISIBLE_ROWS,
    TableState.NOT_MAINTAINED,
    TableState.HEALTHY,
}


def judged(world: World) -> list[tuple[Subject, Policy, History, Decision, TableStatus | None]]:
    """All final decisions of a world, made as a tick makes them, with the state of each."""
    first = [decide(subject, policy, NOTHING_KNOWN, world.now) for subject, policy, _ in world.cases]
    known = {decision.subject: case for decision, case in zip(first, world.cases, strict=True)}
    histories: dict[str, History] = {}
    queues: dict[str, Queue] = {}

    def settle(decision: Decision, budget: Budget) -> Decision:
        subject, policy, history = known[decision.subject]
        histories[decision.subject] = replace(history, budget=budget)
        final = decide(subject, policy, histories[decision.subject], world.now)
        if final.reason is Reason.BUDGET:
            queues[final.subject] = Queue(len(queues) + 1, budget.exceeds_tables(final.table), due_text=decision.text)
        return final

    due = [decision for decision in first if decision.outcome is DecisionOutcome.RUN]
    final = [
        *decide_in_order(due, world.budget, settle),
        *(decision for decision in first if decision.outcome is DecisionOutcome.DECLINE),
    ]
    judgements = []
    for decision in final:
        subject, policy, _ = known[decision.subject]
        status = judge_subject(subject, decision, policy, world.now, queues.get(decision.subject))
        judgements.append((subject, policy, histories.get(decision.subject, NOTHING_KNOWN), decision, status))
    return judgements


def never_contradicts(world: World) -> None:
    for subject, policy, history, decision, status in judged(world):
        if decision.reason in {Reason.ELSEWHERE, Reason.NOT_PARTITIONED}:
            assert status is None
            continue
        assert status is not None and agrees(status, decision), (status, decision)
        assert status.text and status.action and status.when
        starts = decision.outcome is DecisionOutcome.RUN
        assert not (starts and status.state in _NOTHING_STARTS), (status, decision)
        if starts:
            assert status.state is TableState.DUE and status.when == "the next tick"
        if status.place is not None:
            assert decision.reason is Reason.BUDGET and status.place >= 1
        if status.state is TableState.BLOCKED:
            assert history.blocked
        if status.state is TableState.SUSPENDED:
            assert history.suspended
        if status.state is TableState.RUNNING:
            assert history.at_work
        if status.state is TableState.APPROVAL:
            assert policy.needs_approval("compact") and decision.plan in status.action
        if status.state is TableState.PAUSED:
            assert policy.paused is not None and status.since_ms == policy.paused_since_ms
        if status.since_ms is not None:
            assert status.since_ms <= world.now.table_ms
        promise_is_kept(subject, policy, history, world.now, status)


def promise_is_kept(subject: Subject, policy: Policy, history: History, now: Now, status: TableStatus) -> None:
    """Fails where a state still holds at the time at which it promised to end, while nothing else changed."""
    if status.state is TableState.BACK_OFF:
        assert status.when_ms is not None and status.when_ms > now.wall_ms
        later = decide(subject, policy, history, Now(now.table_ms, status.when_ms))
        assert later.retry_ms is None and later.reason is not Reason.FAILED
        assert "until" in status.label
    if status.state is TableState.OUT_OF_HOURS and status.when_ms is not None:
        assert status.when_ms > now.table_ms
        later = decide(subject, policy, NOTHING_KNOWN, Now(status.when_ms, now.wall_ms))
        assert later.reason is not Reason.OFF_PEAK
    if status.state is TableState.HEALTHY and status.when_ms is not None:
        later = decide(subject, replace(policy, off_peak=None), NOTHING_KNOWN, Now(status.when_ms, now.wall_ms))
        assert later.reason is not Reason.NOT_IDLE


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**40))
def test_state_and_decision_never_contradict_each_other(seed: int) -> None:
    for number in range(5):
        never_contradicts(Dice(seed + number).world())


@pytest.mark.soak
@settings(max_examples=5_000, deadline=None)
@given(st.integers(0, 2**40))
def test_in_thousands_of_worlds_state_and_decision_agree(seed: int) -> None:
    never_contradicts(Dice(seed).world())


def test_the_worlds_know_all_states_of_subjects() -> None:
    found = {status.state for seed in range(600) for *_, status in judged(Dice(seed).world()) if status is not None}
    of_tables = {TableState.UNREADABLE, TableState.NOT_LOADED, TableState.INVISIBLE_ROWS}
    assert found == set(TableState) - of_tables


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 2**40))
def test_a_table_has_the_worst_state_of_its_partitions_and_conditions(seed: int) -> None:
    dice = Dice(seed)
    statuses = [status for *_, status in judged(dice.world()) if status is not None]
    conditions = [
        Condition(state, "text")
        for state in (TableState.BLOCKED, TableState.SUSPENDED, TableState.RUNNING)
        if dice.rarely()
    ]
    table = combine("shop.t", statuses, conditions, 7.0)
    states = [condition.state for condition in conditions] + [status.state for status in statuses]
    assert table.state is min(states, key=lambda state: state.rank, default=TableState.HEALTHY)
    assert sum((table.counts or {}).values()) in {0, len({status.partition for status in statuses})}


def test_states_rank_as_on_the_first_screen_and_each_has_an_explanation() -> None:
    of_the_issue = [
        "corrupt", "blocked", "suspended", "failing", "waiting for approval", "paused", "due", "running", "in back-off",
        "out of budget", "invisible rows", "healthy",
    ]  # fmt: skip
    ranks = [TableState(name).rank for name in of_the_issue]
    assert ranks == sorted(ranks)
    assert set(STATE_HELP) == set(TableState)
    others = {r for r in Reason if state_of(Decision("a.b", "", DecisionOutcome.DECLINE, r, "")) is None}
    assert others == {Reason.ELSEWHERE, Reason.NOT_PARTITIONED}
    assert set(_STATES) == set(Reason)
    statuses = [TableStatus(state.value, state, "", score=1.0) for state in reversed(list(TableState))]
    assert [status.state for status in sorted(statuses, key=rank_key)] == list(TableState)


def test_a_failed_run_shows_only_while_work_is_due() -> None:
    failed = Condition(TableState.FAILING, "its last run failed (0123abcd)", 5, "0123abcd")
    due = TableStatus("a.b", TableState.DUE, "6 sorted runs >= 5", "compact", "the next tick", reason=Reason.IDLE)
    table = combine("a.b", [due], [failed])
    assert (table.state, table.when, table.run_id) == (TableState.FAILING, "the next tick", "0123abcd")
    assert table.text == "its last run failed (0123abcd); 6 sorted runs >= 5"
    healthy = TableStatus("a.b", TableState.HEALTHY, "1 sorted run < 5", reason=Reason.TOO_FEW_RUNS)
    assert combine("a.b", [healthy], [failed]).state is TableState.HEALTHY
    waits = replace(due, state=TableState.BACK_OFF)
    assert combine("a.b", [waits], [failed]).state is TableState.BACK_OFF


def test_a_suspended_table_names_the_job_of_its_warehouse() -> None:
    suspended = Condition(TableState.SUSPENDED, "three runs failed", resume_job="lake__resume")
    assert "launch the job lake__resume for a.b" in judge_condition("a.b", suspended).action


def test_one_line_says_state_reason_wait_and_time() -> None:
    now = 1_728_000_000_000
    status = TableStatus(
        "a.b",
        TableState.DUE,
        "6 sorted runs >= 5",
        since_ms=now - 3_600_000,
        waits="the budget (4 of 4 tables), place 7",
    )
    since = time_text(now - 3_600_000, now)
    assert status.line(now) == f"due: 6 sorted runs >= 5; waits for the budget (4 of 4 tables), place 7; since {since}"
    assert len(since) == len("23:00 UTC") and len(time_text(0, now)) == len("1970-01-01 00:00 UTC")
    more = replace(status, partition="dt=1", more=2, waits="", since_ms=None)
    assert more.line(now) == "due: dt=1: 6 sorted runs >= 5; and 2 more partitions due"


def test_a_table_with_a_damaged_file_is_corrupt_and_another_error_is_unreadable() -> None:
    damaged = Decision("a.b", "", DecisionOutcome.DECLINE, Reason.UNREADABLE, "CorruptFile: schema-0 is no JSON")
    assert judge_undecided(damaged).state is TableState.CORRUPT
    refused = replace(damaged, text="PermissionError: schema-0")
    assert (judge_undecided(refused).state, judge_undecided(refused).score) == (TableState.UNREADABLE, 100.0)
    blocked = judge_condition("a.b", Condition(TableState.BLOCKED, "tree_is_valid failed"), 3.0)
    assert (blocked.state, blocked.score, blocked.reason) == (TableState.BLOCKED, 3.0, None)
