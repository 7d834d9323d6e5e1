"""One decision, many worlds: whatever health, policy, history and clocks say, it has a reason, keeps to every limit, and is always the same."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dredge.platform_core.health import TableHealth
from dredge.platform_core.policies import (
    Decision,
    DecisionOutcome,
    DecisionScope,
    History,
    Now,
    Policy,
    Reason,
    Subject,
    TableFacts,
    decide,
    subjects,
)
from dredge.platform_core.policies.budgets import Budget
from dredge.platform_core.policies.decisions import (
    DAY_MS,
    HOUR_MS,
    NOTHING_KNOWN,
    TRIES,
    WAITS_MS,
    FinishedRun,
    PlanSummary,
    RunResult,
    _check_plan,
    decide_in_order,
)
from dredge.platform_core.policies.permanent_failures import PermanentFailure
from dredge.platform_core.policies.policy import Prices, SortRule
from dredge.platform_core.policies.windows import OffPeak
from lsm_core.maintenance.score import Part
from lsm_core.options import TableOptions
from tests.support.platform import bucket_health
from tests.support.samples import examples

TODAY: Final = datetime.date(2024, 10, 4)
NOON: Final = (TODAY - datetime.date(1970, 1, 1)).days * DAY_MS + 12 * HOUR_MS
STARTS: Final = {
    Reason.TRIGGER_REACHED,
    Reason.IDLE,
    Reason.UNSORTED,
    Reason.RECOVERY,
    Reason.ROWS_WAIT,
    Reason.ICEBERG_LAG,
}
NIGHT: Final = OffPeak.model_validate({"time_zone": "UTC", "windows": [{"from": "22:00", "to": "06:00"}]})
DAYTIME: Final = OffPeak.model_validate({"time_zone": "UTC", "windows": [{"from": "06:00", "to": "22:00"}]})


Case: TypeAlias = tuple[Subject, Policy, History]


@dataclass(frozen=True)
class World:
    """All that a tick of one sensor may find: what it is asked about, with policy and history of each, the time, and what is left of the budget."""

    cases: tuple[Case, ...]
    now: Now
    budget: Budget


def day_of(days_ago: int) -> str:
    """The partition of so many days before 2024-10-04."""
    return str(TODAY - datetime.timedelta(days=days_ago))


class Dice(random.Random):
    """Throws what a world is made of; most of it is harmless, so that many worlds start something and one thing at a time stands in the way."""

    def rarely(self) -> bool:
        """One throw in ten."""
        return self.random() < 0.1

    def one(self, *usual: Any, rare: Any) -> Any:
        """One of ``usual``, rarely ``rare``."""
        return rare if self.rarely() else self.choice(usual)

    def policy(self) -> Policy:
        """What may be started, and when."""
        retention = {"partitions": {"older_than_ms": 20 * DAY_MS}} if self.rarely() else {}
        return Policy(
            level0_critical=10,
            level0_emergency=50,
            idle_after_ms=self.choice([DAY_MS, 5 * DAY_MS]),
            paused=self.one(None, rare="move"),
            sort=self.choice([None, SortRule(("a",)), SortRule(("a",), every_ms=2 * DAY_MS)]),
            rests=self.rarely(),
            off_peak=self.one(None, self.choice([None, DAYTIME]), rare=NIGHT),
            approval=self.one({}, rare=self.choice([{"compact": "required"}, {"expire_partitions": "required"}])),
            retention=retention,
            cost=self.one(Prices(), rare=Prices(core_hour=1.0, reads_a_day=0.0)),
            iceberg_lag_ms=self.one(None, rare=HOUR_MS),
        )

    def history(self, wall_ms: int) -> History:
        """What was tried before, and what is in the way."""
        tries = [
            FinishedRun(
                f"run{number}",
                self.choice([RunResult.FAILED] * 3 + [RunResult.DONE, RunResult.CANCELED]),
                wall_ms - self.randint(0, 200) * 60_000,
            )
            for number in range(self.choice([0, 0, 0, 1, 2, 4]))
        ]
        return History(
            out_of_turns=self.choice([""] * 32 + ["this tick has no time left to plan it"]),
            unusable_name=self.random() < 0.03,
            blocked="blocked: tree_is_valid failed" if self.rarely() else None,
            at_work="0123456789" if self.rarely() else None,
            suspended="suspended: its last 3 runs failed" if self.rarely() else None,
            plan=self.one(
                None,
                PlanSummary("abc", text="picked", cost=700),
                PlanSummary("abc", cost=5, waits=True, one_pass=True),
                rare=PlanSummary("", "too few runs"),
            ),
            tries=tuple(sorted(tries, key=lambda one: -one.ended_ms)),
            resumed_ms=self.choice([0, wall_ms - HOUR_MS]),
            failures=self.choice([(), (), (), (), (self.failure(),)]),
        )

    def failure(self) -> PermanentFailure:
        """A failed run that no retry heals, of this plan or of another."""
        error, file = self.choice([("CorruptFile", "/wh/index/index-1"), ("UnsupportedFeature", "")])
        return PermanentFailure("db.t", "", "run", self.choice(["abc", "other"]), 0, error, "why", file)

    def table(self, name: str, now_ms: int) -> TableFacts:
        """What lies there: often something that is due."""
        append, partitioned = self.rarely(), self.random() < 0.7
        buckets = [
            bucket_health(
                f"dt={day_of(ago)}" if partitioned else "",
                partition={"dt": day_of(ago)} if partitioned else {},
                sorted_runs=self.choice([1, 3, 6, 6, 8]),
                level0_files=self.choice([0, 3, 9, 10, 60]),
                small_files=self.choice([0, 4, 6, 9]),
                newest_file_ms=NOON - self.choice([0, 3, 9, 9, 10, 30]) * DAY_MS,
                oldest_level0_ms=self.choice([None, NOON - 2 * HOUR_MS, NOON - 20 * HOUR_MS]),
                last_compaction_ms=self.choice([None, NOON - 3 * HOUR_MS, NOON - 40 * HOUR_MS]),
                cost_minor=self.choice([0, 0, 100, 900]),
                cost_full=1_000,
                deleted_rows=self.choice([0, 4]),
                bytes_per_level={0: 1_000},
                parts=(Part("read amplification", self.choice([0.5, 1.0]), 100, "runs"),),
                iceberg_since_ms=None if append else self.choice([None, NOON - 2 * HOUR_MS, NOON - 20 * HOUR_MS]),
            )
            for ago in self.sample([0, 1, 8, 9, 10, 11, 19, 20, 30], k=self.randint(0, 3) if partitioned else 1)
        ]
        kept = {"partition.expiration-time": "10 d"} if self.random() < 0.4 else {}
        by_update = {"partition.expiration-strategy": "update-time"} if self.rarely() else {}
        return TableFacts(
            name,
            TableHealth(name, 1, 1, now_ms, tuple(buckets), {"dt=late": 7} if self.rarely() and not append else {}),
            TableOptions({**kept, **by_update}, name),
            append_only=append,
            partitioned=partitioned,
            refusal=self.one(None, rare="it has a view"),
            order=self.one("", rare="merging a part could change answers"),
            writers_compact=self.choice([False, False, True]),
            sorted_ms={
                item.partition_text: NOON - self.choice([1, 4, 12]) * DAY_MS for item in buckets if self.rarely()
            },
        )

    def world(self) -> World:
        """A tick over a few tables."""
        now = Now(NOON + self.randint(-14, 14) * HOUR_MS, NOON + self.randint(0, 3) * HOUR_MS)
        asked, cases = self.choice(list(DecisionScope)), []
        for number in range(self.randint(1, 4)):
            table, policy = self.table(f"shop.t{number}", now.table_ms), self.policy()
            cases += [(subject, policy, self.history(now.wall_ms)) for subject in subjects(table, asked)]
        at_work = frozenset({"shop.t0", "shop.other"} if self.rarely() else ())
        limits = self.choice([None, None, 150, 900, 3_000]), self.choice([None, None, 1, 2])
        budget = Budget(*limits, self.choice([0, 0, 500]), at_work, in_turn=asked is DecisionScope.OWN_RULES)
        return World(tuple(cases), now, budget)


def settled(world: World, cases: Sequence[Case]) -> list[Decision]:
    """All decisions, the due ones in their turn, as a tick makes them."""
    first = [decide(subject, policy, NOTHING_KNOWN, world.now) for subject, policy, _ in cases]
    known = {decision.subject: case for decision, case in zip(first, cases, strict=True)}

    def settle(decision: Decision, budget: Budget) -> Decision:
        subject, policy, history = known[decision.subject]
        return decide(subject, policy, replace(history, budget=budget), world.now)

    due = [item for item in first if item.outcome is DecisionOutcome.RUN]
    return [
        *decide_in_order(due, world.budget, settle),
        *(item for item in first if item.outcome is DecisionOutcome.DECLINE),
    ]


def keeps_to_all_limits(world: World) -> None:
    """Fails where a decision has no reason, breaks a limit, or depends on anything but what it was told."""
    found = settled(world, world.cases)
    shuffled = list(world.cases)
    random.Random(len(found)).shuffle(shuffled)
    assert sorted(settled(world, tuple(shuffled)), key=repr) == sorted(found, key=repr), (
        "the order of tables decides nothing"
    )
    budget = world.budget
    by_subject = {item.subject: item for item in found}
    for item in found:
        assert item.text and item.line().startswith(f"{item.subject}: {item.outcome.value} ({item.reason.value}): ")
        assert (item.outcome is DecisionOutcome.RUN) == (item.reason in STARTS)
        if item.outcome is DecisionOutcome.RUN:
            assert budget.concurrent_tables is None or len(budget.at_work | {item.table}) <= max(
                budget.concurrent_tables, len(budget.at_work)
            )
            spent = budget.spent + item.cost
            assert budget.bytes_an_hour is None or spent <= budget.bytes_an_hour or not budget.spent or not item.cost
            budget = replace(budget, spent=spent, at_work=budget.at_work | (set() if budget.in_turn else {item.table}))
    for subject, policy, history in world.cases:
        item = by_subject[decide(subject, policy, NOTHING_KNOWN, world.now).subject]
        if item.outcome is DecisionOutcome.RUN:
            may_start(item, subject, policy, history, world.now)
        elif item.reason not in {Reason.BUDGET, Reason.OUT_OF_TIME}:
            assert must_decline(subject, policy, history, world.now), item


def may_start(one: Decision, subject: Subject, policy: Policy, history: History, now: Now) -> None:
    """Fails where something stands in the way of what starts."""
    table, state = subject.table, subject.state
    assert table.refusal is None
    assert not (
        history.out_of_turns or history.unusable_name or history.blocked or history.at_work or history.suspended
    )
    level0 = 0 if state is None else state.level0_files
    if policy.paused is not None or not (policy.off_peak is None or policy.off_peak.is_open(now.table_ms)):
        assert one.reason is Reason.RECOVERY and level0 >= policy.level0_critical
    if state is not None:
        assert not dropped_soon(subject, policy, now.table_ms)
        for_iceberg = one.reason is Reason.ICEBERG_LAG
        assert for_iceberg == (is_for_iceberg(subject, policy, now.table_ms) and one.reason is not Reason.RECOVERY)
        assert for_iceberg or not is_never_read(subject, policy, now.table_ms)
        assert one.full or not for_iceberg
        merges_all = one.full and not (history.plan is not None and history.plan.one_pass)
        assert (
            merges_all
            or (table.append_only and not (history.plan is not None and history.plan.one_pass))
            or not table.order
        )
        if one.reason is not Reason.RECOVERY and not for_iceberg:
            assert not is_left_to_writers(subject, policy, now.table_ms)
        if one.reason is Reason.TRIGGER_REACHED:
            assert state.cost_minor or (state.sorted_runs >= 5 and not table.append_only)
            assert not table.append_only or subject.scope is DecisionScope.OWN_RULES
        if one.reason is Reason.UNSORTED:
            assert one.sort == policy.sort and one.full and table.append_only and subject.scope is DecisionScope.IDLE
            assert is_unsorted(subject, policy, now.table_ms)
        if one.reason is Reason.IDLE:
            assert now.table_ms - state.newest_file_ms >= policy.idle_after_ms
            assert table.append_only or not state.cost_minor
            enough = (
                state.small_files >= policy.idle_min_files
                if table.append_only
                else state.sorted_runs >= policy.idle_min_runs
            )
            assert enough or (table.append_only and state.cost_minor)
    if history.plan is not None:
        assert history.plan.hash == one.plan != "" and one.cost == history.plan.cost
        assert policy.approval.get("compact") != "required"
        assert not [failure for failure in history.failures if failure.plan == history.plan.hash]
        counted = [run for run in history.tries if run.ended_ms > history.resumed_ms]
        assert len(counted) < TRIES or any(run.ending is not RunResult.FAILED for run in counted)
        if counted:
            assert counted[0].ending is RunResult.FAILED
            failures = sum(run.ending is RunResult.FAILED for run in counted)
            assert now.wall_ms - counted[0].ended_ms >= WAITS_MS[failures - 1]
        assert one.attempt > len(history.tries) - len(counted)


def is_for_iceberg(subject: Subject, policy: Policy, now_ms: int) -> bool:
    """Whether Iceberg readers have missed rows for longer than the policy allows."""
    state, limit = subject.state, policy.iceberg_lag_ms
    if state is None or limit is None or subject.scope is DecisionScope.IDLE or subject.table.append_only:
        return False
    return state.iceberg_since_ms is not None and now_ms - state.iceberg_since_ms > limit


def is_left_to_writers(subject: Subject, policy: Policy, now_ms: int) -> bool:
    """Whether writers that compact have committed within the hour and are not behind."""
    table, state = subject.table, subject.state
    if state is None or not table.writers_compact or subject.scope is DecisionScope.IDLE:
        return False
    behind = not table.append_only and (state.sorted_runs >= 8 or state.level0_files >= policy.level0_critical)
    return not behind and now_ms - state.newest_file_ms < HOUR_MS


def is_never_read(subject: Subject, policy: Policy, now_ms: int) -> bool:
    """Whether prices and the absence of reads speak against a compaction that is neither critical nor a sort."""
    state = subject.state
    if state is None or policy.cost.reads_a_day != 0:
        return False
    critical = (
        state.small_files >= 10_000 if subject.table.append_only else state.level0_files >= policy.level0_critical
    )
    return not critical and not (subject.scope is DecisionScope.IDLE and is_unsorted(subject, policy, now_ms))


def is_unsorted(subject: Subject, policy: Policy, now_ms: int) -> bool:
    """Whether a partition of an append table holds what was written since its last sort, and is idle or was sorted long enough ago."""
    table, state, rule = subject.table, subject.state, policy.sort
    if state is None or not rule or not table.append_only:
        return False
    when = (table.sorted_ms or {}).get(state.text)
    if when is not None and state.newest_file_ms <= when and not state.deleted_rows:
        return False
    if rule.every_ms is None:
        return now_ms - state.newest_file_ms >= policy.idle_after_ms
    return when is None or now_ms - when >= rule.every_ms


def dropped_soon(subject: Subject, policy: Policy, now_ms: int) -> bool:
    """Whether the partition is in the last tenth (at most a day) of the time that it is kept, or a day at most behind it."""
    options, state = subject.table.options, subject.state
    kept = policy.retention.get("partitions", {}).get("older_than_ms") or options.get("partition.expiration-time")
    if state is None or not subject.table.partitioned or kept is None:
        return False
    if policy.rests or policy.approval.get("expire_partitions") == "required":
        return False
    day = datetime.date.fromisoformat(state.buckets[0].partition["dt"])
    born = (day - datetime.date(1970, 1, 1)).days * DAY_MS
    born = state.newest_file_ms if options.get("partition.expiration-strategy") == "update-time" else born
    return born + kept - min(DAY_MS, kept // 10) <= now_ms < born + kept + DAY_MS


def must_decline(subject: Subject, policy: Policy, history: History, now: Now) -> bool:
    """Whether anything at all speaks against a run: no decision is timid without a reason."""
    table, state = subject.table, subject.state
    hindered = history.unusable_name or history.blocked or history.at_work or history.suspended
    resting = policy.paused is not None or not (policy.off_peak is None or policy.off_peak.is_open(now.table_ms))
    planned = history.plan is not None and (
        not history.plan.hash
        or any(run.ended_ms > history.resumed_ms for run in history.tries)
        or bool(history.failures)
        or "compact" in policy.approval
        or (history.plan.one_pass and bool(table.order))
    )
    if table.refusal or hindered or resting or planned:
        return True
    if state is None:
        return not subject.waiting_rows
    if dropped_soon(subject, policy, now.table_ms):
        return True
    if is_for_iceberg(subject, policy, now.table_ms):
        return False
    if table.order or is_never_read(subject, policy, now.table_ms):
        return True
    if is_left_to_writers(subject, policy, now.table_ms):
        return True
    if subject.scope is not DecisionScope.IDLE:
        return (table.append_only or state.sorted_runs < 5) and not state.cost_minor
    if is_unsorted(subject, policy, now.table_ms):
        return False
    when = (table.sorted_ms or {}).get(state.text)
    if table.append_only and policy.sort and when is not None and state.newest_file_ms <= when:
        return True
    idle = now.table_ms - state.newest_file_ms >= policy.idle_after_ms
    enough = (
        state.small_files >= policy.idle_min_files if table.append_only else state.sorted_runs >= policy.idle_min_runs
    )
    return not idle or not (enough or state.cost_minor) or (bool(state.cost_minor) and not table.append_only)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**40))
def test_every_decision_has_a_reason_keeps_to_all_limits_and_is_the_same_again(seed: int) -> None:
    for number in range(5):
        keeps_to_all_limits(Dice(seed + number).world())


def test_the_worlds_that_are_judged_know_every_reason() -> None:
    found = {
        item.reason for seed in range(600) for world in [Dice(seed).world()] for item in settled(world, world.cases)
    }
    by_others = {Reason.UNREADABLE, Reason.RELOAD, Reason.REPLAY}  # of tables that could not be opened, and of ticks
    assert found == set(Reason) - by_others


@pytest.mark.soak
@settings(max_examples=20_000, deadline=None)
@given(st.integers(0, 2**40))
def test_thousands_of_worlds_keep_to_all_limits(seed: int) -> None:
    keeps_to_all_limits(Dice(seed).world())


def test_a_plan_that_waits_for_approval_names_the_job_of_its_warehouse() -> None:
    due = Decision("a.b", "", DecisionOutcome.RUN, Reason.TRIGGER_REACHED, "6 sorted runs >= 5")
    plan = PlanSummary("abc", waits=True)
    policy = Policy(approval={"compact": "required"})
    decision = _check_plan(due, policy, History(plan=plan, apply_job="lake__apply_plan"), plan, 0)
    assert decision.reason is Reason.APPROVAL
    assert "launch the job lake__apply_plan, or run `dredge apply abc" in decision.text
