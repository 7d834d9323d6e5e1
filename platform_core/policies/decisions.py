"""Decisions of sensors: a pure function from health, policy, history and time to an outcome with reason and numbers.

`decide` is this function, `subjects` lists the partitions of a table to decide about, and `decide_in_order` shares a
budget between due partitions. This module reads no table and does not call Dagster. Callers first pass the facts that
they have, and look up further facts only if the first facts allow a run.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from dredge.platform_core.health import PartitionHealth, TableHealth
from dredge.platform_core.policies.budgets import Budget
from dredge.platform_core.policies.costs import weigh
from dredge.platform_core.policies.partition_age import expires_ms
from dredge.platform_core.policies.permanent_failures import PermanentFailure, find_forbidding
from dredge.platform_core.policies.policy import DAY_MS, HOUR_MS, Policy, SortRule
from dredge.platform_core.table_card import count_text
from lsm_core.clock import utc_text
from lsm_core.maintenance.action import size_text
from lsm_core.maintenance.actions.compact.planning import Calibration, compaction_seconds
from lsm_core.maintenance.writers_compact import WATCHING, WRITERS_SILENT_MINUTES, describe_watching, runs_behind
from lsm_core.options import TableOptions

MINUTE_MS: Final = 60_000
_UNSEEN_WAIT_MS: Final = 10 * MINUTE_MS
"""Time (ms) that writers have to compact rows that readers cannot see; then the platform compacts the rows."""
_LEAST_WAIT_MINUTES: Final = 10
"""Minutes added to the waiting time of work that is not pressing, so that the score of new work counts, too."""
_LEAST_SCORE: Final = 1.0
_LAST_PART: Final = 10
"""Divisor: a partition is about to expire in the last tenth of its retention time, at most in its last day."""


class DecisionOutcome(StrEnum):
    """Outcome of a decision about a partition: start a run, or decline (start none)."""

    RUN = "run"
    DECLINE = "decline"


class Reason(StrEnum):
    """Reason of a decision, as a code for statistics; the text of the decision has the numbers."""

    TRIGGER_REACHED = "trigger reached"
    IDLE = "idle"
    UNSORTED = "unsorted"
    RECOVERY = "recovery"
    ICEBERG_LAG = "Iceberg readers lag"
    ROWS_WAIT = "rows wait"
    TOO_FEW_RUNS = "too few runs"
    TOO_FEW_FILES = "too few files"
    ONE_RUN = "one run already"
    NOT_IDLE = "not idle"
    NOT_PARTITIONED = "not partitioned"
    PAUSED = "paused by policy"
    OFF_PEAK = "not in its hours"
    BUDGET = "beyond the budget"
    UNSUPPORTED = "unsupported"
    UNREADABLE = "unreadable"
    EMPTY = "empty"
    NOTHING_PICKED = "nothing picked"
    IN_FLIGHT = "in flight"
    DONE_BEFORE = "planned before"
    FAILED = "its run failed"
    CANCELED = "its run was canceled"
    CORRUPT = "corrupt"
    NO_RETRY = "no retry helps"
    BLOCKED = "blocked by a failed check"
    SUSPENDED = "suspended"
    APPROVAL = "waits for approval"
    REPLAY = "replay in progress"
    OUT_OF_TIME = "out of time"
    ELSEWHERE = "another sensor's"
    WATCHING = "its writers compact"
    EXPIRING = "about to expire"
    COST = "costs more than it saves"
    ORDER = "would change answers"
    RELOAD = "changed since it was loaded"
    NAME = "name that Dagster cannot hold"


class Backlog(StrEnum):
    """Severity of a backlog: too many level-0 files in the worst bucket of a partition."""

    OK = "OK"
    WARN = "WARN"
    CRITICAL = "CRITICAL"
    EMERGENCY = "EMERGENCY"


_ALERT_HOURS: Final = {Backlog.OK: 0, Backlog.WARN: 12, Backlog.CRITICAL: 36, Backlog.EMERGENCY: 72}
"""Hours that are added to the waiting time of pressing work, by level-0 alert.

So work without an alert gets its turn, at the latest, when it has waited 72 h longer than continuous emergencies.
"""


@dataclass(frozen=True)
class Decision:
    """Decision about one partition or table, shown as one line of a tick.

    Attributes:
        table: full name of the table.
        partition: path of the partition, or "" for the whole table.
        outcome: whether to run.
        reason: code of the reason.
        text: explanation with numbers.
        number: measured value, in the unit of the reason.
        threshold: limit that `number` was compared with.
        full: whether a full compaction is due.
        cost: bytes that the compaction reads.
        benefit: current health score (0 to 100), which the compaction improves.
        waited_ms: time since the work became due, in ms.
        overdue: whether `waited_ms` exceeds the limit of the policy.
        urgent: whether the backlog is critical or an emergency.
        backlog: level-0 alert of the partition.
        plan: hash of the plan to start, or "".
        attempt: number of the plan's run, from 1.
        sort: sort rule of a due sort compaction, or None.
        retry_ms: epoch ms (wall clock) at which a failed run is tried again, or None.
        resume_job: name of the job that ends a suspension.
    """

    table: str
    partition: str
    outcome: DecisionOutcome
    reason: Reason
    text: str
    number: int | None = None
    threshold: int | None = None
    full: bool = False
    cost: int = 0
    benefit: float = 0.0
    waited_ms: int = 0
    overdue: bool = False
    urgent: bool = False
    backlog: Backlog = Backlog.OK
    plan: str = ""
    attempt: int = 0
    sort: SortRule | None = None
    retry_ms: int | None = None
    resume_job: str = "resume"

    @property
    def pressing(self) -> bool:
        """Whether the work comes before work without alerts: a level-0 alert, invisible rows, or overdue work."""
        return self.urgent or self.overdue or self.backlog is not Backlog.OK or self.reason is Reason.ROWS_WAIT

    @property
    def subject(self) -> str:
        """Name of the table, with the path of the partition if there is one."""
        return f"{self.table}/{self.partition}" if self.partition else self.table

    def line(self) -> str:
        """Return the line for a tick's log, like ``db.orders/dt=1: decline (too few runs): 3 sorted runs < 5``."""
        return f"{self.subject}: {self.outcome.value} ({self.reason.value}): {self.text}"

    def decline(self, reason: Reason, text: str) -> Decision:
        """Return a copy of this decision that starts no run.

        Args:
            reason: code of the reason.
            text: explanation with numbers.
        """
        return replace(self, outcome=DecisionOutcome.DECLINE, reason=reason, text=text)


class DecisionScope(StrEnum):
    """Kind of compaction that a sensor, or a round over many tables, decides about and may start."""

    SORTED_RUNS = "sorted runs"
    IDLE = "idle partitions"
    OWN_RULES = "what the tables' own rules ask for"
    """Scope of a `maintain` round, for tables with and without a primary key."""


class Now(NamedTuple):
    """Current time of a decision.

    Attributes:
        table_ms: epoch ms of the table's clock, which tests may inject.
        wall_ms: epoch ms of the wall clock, by which Dagster measures runs.
    """

    table_ms: int
    wall_ms: int


@dataclass(frozen=True)
class TableFacts:
    """Facts of a table's metadata that decisions are based on.

    Attributes:
        name: full name of the table.
        health: health of the table's partitions and buckets.
        options: options of the table.
        append_only: whether the table has no primary key.
        partitioned: whether the table has partition keys.
        refusal: why maintenance does not touch the table's files, or None.
        order: why compacting only some of the sorted runs would change query results, or "".
        sorted_ms: epoch ms at which each partition was last sorted, by partition text. None if nothing sorts the
            table.
        writers_compact: whether the table's writers compacted lately, so that their next commits will compact again.
        calibration: correction of forecasts by the table's former compactions, for policies with prices.
    """

    name: str
    health: TableHealth
    options: TableOptions
    append_only: bool = False
    partitioned: bool = False
    refusal: str | None = None
    order: str = ""
    sorted_ms: Mapping[str, int] | None = None
    writers_compact: bool = False
    calibration: Calibration = field(default_factory=Calibration)

    @property
    def sortable(self) -> bool:
        """Whether the table supports sort compaction.

        It has neither a primary key nor buckets, and no incremental clustering, by which its own rules sort.
        """
        return self.append_only and self.options.bucket == -1 and not self.options.clusters_incrementally


@dataclass(frozen=True)
class Subject:
    """Subject of one decision: a partition, or the whole table.

    Attributes:
        table: facts of the table.
        scope: kind of compaction to decide about.
        partition: path of the partition, or "" for the whole table.
        state: health of the partition. None for the whole table and for rows without a bucket.
        waiting_rows: number of rows of the partition that have no bucket yet.
    """

    table: TableFacts
    scope: DecisionScope
    partition: str = ""
    state: PartitionHealth | None = None
    waiting_rows: int = 0


class RunResult(StrEnum):
    """Result of a finished run of a plan."""

    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"


@dataclass(frozen=True)
class FinishedRun:
    """Finished run of a plan.

    Attributes:
        run_id: id of the run.
        ending: result of the run.
        ended_ms: end of the run (epoch ms of Dagster's wall clock).
        together: whether the run compacted several partitions.
    """

    run_id: str
    ending: RunResult
    ended_ms: int
    together: bool = False


@dataclass(frozen=True)
class PlanSummary:
    """Result of planning.

    Attributes:
        hash: hash of the plan, or "" if the plan picks no files.
        why: why the plan picks no files, or "".
        text: description of the plan.
        cost: bytes that the plan reads.
        waits: whether the plan already waits for approval.
        one_pass: whether the plan merges only the oldest sorted runs, although more sorted runs were due.
        damaged: damaged data files, by path, that the plan reads.
    """

    hash: str
    why: str = ""
    text: str = ""
    cost: int = 0
    waits: bool = False
    one_pass: bool = False
    damaged: frozenset[str] = frozenset()


@dataclass(frozen=True)
class History:
    """Facts about runs and the warehouse. A default means that the fact is absent or was not evaluated yet.

    Attributes:
        budget: remaining budget.
        out_of_turns: why the tick cannot plan any more work now, or "".
        unusable_name: whether Dagster cannot store the partition's name.
        blocked: text about the blocking check that failed, or None.
        at_work: id of a run that works on the table or partition, or None.
        suspended: why the table is suspended after failures, or None.
        plan: result of planning, or None before planning.
        tries: finished runs of `plan`, newest first.
        resumed_ms: runs that ended before this time (epoch ms, wall clock) do not count.
        failures: failures of the table that no retry heals and that still hold.
        apply_job: name of the job that applies approved plans, for texts.
        resume_job: name of the job that ends a suspension, for texts.
    """

    budget: Budget | None = None
    out_of_turns: str = ""
    unusable_name: bool = False
    blocked: str | None = None
    at_work: str | None = None
    suspended: str | None = None
    plan: PlanSummary | None = None
    tries: Sequence[FinishedRun] = ()
    resumed_ms: int = 0
    failures: Sequence[PermanentFailure] = ()
    apply_job: str = "apply_plan"
    resume_job: str = "resume"


NOTHING_KNOWN: Final = History()


def subjects(table: TableFacts, scope: DecisionScope) -> list[Subject]:
    """Return the partitions, or the whole table, to decide about in a table.

    Returns:
        One subject per partition, or only the whole table if one reason forbids runs on all partitions. Partitions with
        postponed rows (`bucket` = -2), which have no bucket yet, come first. In the scope IDLE postponed rows do not
        count.
    """
    if _decide_whole_table(table, scope) is not None:
        return [Subject(table, scope)]
    waiting = {} if scope is DecisionScope.IDLE else table.health.waiting
    return [
        *(Subject(table, scope, text, waiting_rows=rows) for text, rows in waiting.items()),
        # rows that get buckets are compacted in the same run
        *(Subject(table, scope, state.text, state) for state in table.health.partitions if state.text not in waiting),
    ]


def decide(subject: Subject, policy: Policy, history: History, now: Now) -> Decision:
    """Decide whether a subject is compacted now. Equal arguments give equal decisions.

    The first rule that prevents a run is the reason. The order of the rules is: due work; pause and hours, which a
    critical backlog overrides; expiring partitions; order-sensitive tables; cost; budgets; failed checks, running runs
    and suspension; approval and earlier runs of the plan. After a decline, callers need not look up facts for later
    rules.

    Args:
        subject: partition or table to decide about.
        policy: policy of the partition.
        history: known facts about runs and the warehouse.
        now: current time.
    """
    decision = _decide_whole_table(subject.table, subject.scope)
    if decision is not None:
        return decision
    decision = _decide_due(subject, policy, now.table_ms)
    if decision.outcome is DecisionOutcome.RUN:
        decision = _check_use(decision, subject, policy, now.table_ms)
    if decision.outcome is DecisionOutcome.RUN:
        decision = _add_numbers(decision, subject, policy, history, now.table_ms)
        decision = _check_worth(decision, subject, policy, now.table_ms)
    if decision.outcome is DecisionOutcome.RUN:
        decision = _check_budget(decision, history)
    if decision.outcome is DecisionOutcome.RUN:
        decision = _check_obstacles(decision, history)
    if decision.outcome is DecisionOutcome.RUN and history.plan is not None:
        if history.plan.one_pass and subject.table.order:
            return decision.decline(Reason.ORDER, f"{decision.text}; {subject.table.order}")
        decision = _check_plan(decision, policy, history, history.plan, now.wall_ms)
    return decision


def decide_all(
    table: TableFacts, scope: DecisionScope, policy_of: Callable[[PartitionHealth | None], Policy], now: Now
) -> list[Decision]:
    """Return a decision for each partition of a table, or for the whole table, from metadata alone.

    Args:
        table: facts of the table.
        scope: kind of compaction to decide about.
        policy_of: returns the policy of a partition, or of the whole table for None.
        now: current time.
    """
    return [decide(subject, policy_of(subject.state), NOTHING_KNOWN, now) for subject in subjects(table, scope)]


def sort_by_usefulness(
    due: Iterable[Decision], budget: Budget | None = None, first: Container[str] = ()
) -> list[Decision]:
    """Sort due decisions by usefulness, so that every decision gets its turn.

    Pressing work comes first: raised level-0 alerts, invisible rows and overdue work, by waiting time. Alerts count as
    if they had waited some hours longer, so they do not starve overdue work for ever. If the budget limits bytes, the
    other work follows by score per byte, otherwise by score times waiting time. Among equals, the cheaper work comes
    first.

    Args:
        due: decisions to run.
        budget: budget of the runs, or None for no limit.
        first: tables and partitions (`Decision.subject`) that had no turn lately; they precede other work of their
            kind.

    Returns:
        The sorted decisions. Names break ties, so the result does not depend on the order of `due`.
    """
    bytes_are_scarce = budget is not None and budget.bytes_an_hour is not None

    def usefulness(decision: Decision) -> float:
        minutes = max(decision.waited_ms, 0) // MINUTE_MS
        if decision.pressing:
            return float(minutes + _alert_minutes(decision))
        score = max(decision.benefit, _LEAST_SCORE)
        return score / max(decision.cost, 1) if bytes_are_scarce else (minutes + _LEAST_WAIT_MINUTES) * score

    return sorted(
        due,
        key=lambda decision: (
            not decision.pressing,
            decision.subject not in first,
            -usefulness(decision),
            decision.cost,
            decision.subject,
        ),
    )


def _alert_minutes(decision: Decision) -> int:
    """Return the minutes that a level-0 alert or invisible rows add to the waiting time of due work, for sorting."""
    critical = decision.urgent or decision.reason is Reason.ROWS_WAIT
    hours = max(_ALERT_HOURS[decision.backlog], _ALERT_HOURS[Backlog.CRITICAL] if critical else 0)
    return hours * 60


def decide_in_order(
    due: Iterable[Decision],
    budget: Budget,
    settle: Callable[[Decision, Budget], Decision],
    first: Container[str] = (),
) -> list[Decision]:
    """Return the final decisions about due work, the most useful first.

    Pressing work that exceeds the budget reserves the remaining bytes of the hour. Otherwise smaller work would always
    start before the pressing work.

    Args:
        due: decisions to run.
        budget: remaining budget.
        settle: function that makes the final decision about due work (run, or decline with a reason), given the
            budget that remains at that point.
        first: tables and partitions that had no turn lately (`sort_by_usefulness`).
    """
    settled = []
    for decision in sort_by_usefulness(due, budget, first):
        final = settle(decision, budget)
        if final.outcome is DecisionOutcome.RUN:
            budget = budget.after(final.table, final.cost)
        elif final.reason is Reason.BUDGET and final.pressing and not budget.exceeds_tables(final.table):
            budget = budget.reserve_for(final.subject)
        settled.append(final)
    return settled


def _decide_whole_table(table: TableFacts, scope: DecisionScope) -> Decision | None:
    """Return one decision to start no run on any partition of a table, or None if each partition needs a decision.

    Reasons are an unsupported or empty table, and a table that another sensor compacts.

    Args:
        table: facts of the table.
        scope: kind of compaction to decide about.
    """
    declined = Decision(table.name, "", DecisionOutcome.DECLINE, Reason.UNSUPPORTED, table.refusal or "")
    if table.refusal is not None:
        return declined
    if not table.health.buckets and not table.health.waiting:
        return declined.decline(Reason.EMPTY, "no snapshot yet: nothing to maintain")
    if scope is DecisionScope.SORTED_RUNS and table.append_only:
        text = "append-only: no sorted runs; the sensor idle_partition merges its small files"
        return declined.decline(Reason.ELSEWHERE, text)
    if scope is DecisionScope.IDLE and not table.partitioned and not table.append_only:
        return declined.decline(Reason.NOT_PARTITIONED, "the sensor sorted_run compacts the whole table")
    return None


def _decide_due(subject: Subject, policy: Policy, now_ms: int) -> Decision:
    """Decide whether work is due by the table's own rules, and whether a pause or the off-peak hours forbid it now."""
    table, state, trigger = subject.table, subject.state, subject.table.options.compaction_trigger
    hold = find_hold(policy, now_ms)
    if state is None:
        decision = decide_waiting(table.name, subject.partition, subject.waiting_rows)
        return decision if hold is None else decision.decline(hold[0], f"{decision.text}; {hold[1]}")
    if subject.scope is not DecisionScope.IDLE:
        of_files = table.append_only
        decision = decide_small_files(table.name, state) if of_files else decide_sorted_runs(table.name, state, trigger)
        if table.writers_compact:
            decision = _defer_to_writers(decision, table, state, policy, now_ms)
        decision = decide_iceberg_lag(table.name, state, policy, now_ms) or decision
        return decision if hold is None else _apply_hold(decision, hold, state, policy, trigger, append_only=of_files)
    if not table.append_only and state.cost_minor:
        # A partition at its trigger belongs to the other sensor: two runs would only wait for each other.
        text = f"{count_text(state.sorted_runs, 'sorted run')} (trigger {trigger}): the sensor sorted_run compacts it"
        return Decision(
            table.name, state.text, DecisionOutcome.DECLINE, Reason.ELSEWHERE, text, state.sorted_runs, trigger
        )
    decision = decide_idle(table.name, state, policy, append=table.append_only, now_ms=now_ms)
    rule = sort_rule(table, policy)
    if rule is not None:
        decision = decide_sort(decision, state, policy, rule, (table.sorted_ms or {}).get(state.text), now_ms)
    return decision.decline(*hold) if hold is not None and decision.outcome is DecisionOutcome.RUN else decision


def _defer_to_writers(
    decision: Decision, table: TableFacts, state: PartitionHealth, policy: Policy, now_ms: int
) -> Decision:
    """Return the decision about a partition that its writers compact.

    A run starts only if the writers fall behind, stop committing, or leave rows that readers do not see.

    Args:
        decision: decision by the table's rules.
        table: facts about the table.
        state: health of the partition.
        policy: policy of the partition.
        now_ms: epoch ms by the table's clock.
    """
    if decision.outcome is not DecisionOutcome.RUN:
        return replace(decision, text=f"{decision.text}; {WATCHING}")
    limit, options = runs_behind(table.options), table.options
    silent = max(now_ms - state.newest_file_ms, 0) if state.newest_file_ms else waited_ms(state, now_ms)
    unseen = waited_ms(state, now_ms) if not table.append_only and options.batch_scan_skips_level0 else 0
    level, _, _ = backlog_of([state], policy, append_only=table.append_only)
    if not table.append_only and state.sorted_runs >= limit:
        trigger_text = (
            "stop trigger" if limit == options.stop_trigger else f"{limit // options.compaction_trigger} x trigger"
        )
        behind = f"its writers fell behind ({state.sorted_runs} sorted runs >= {trigger_text} {limit})"
    elif level is not Backlog.OK:
        behind = f"its writers fell behind (backlog {level.value})"
    elif unseen >= _UNSEEN_WAIT_MS:
        waited = f"{unseen // MINUTE_MS} min >= {_UNSEEN_WAIT_MS // MINUTE_MS}"
        behind = f"its writers left rows that no reader sees uncompacted for {waited}"
    elif silent >= WRITERS_SILENT_MINUTES * MINUTE_MS:
        behind = f"its writers are silent ({silent // MINUTE_MS} min without a commit >= {WRITERS_SILENT_MINUTES})"
    else:
        text = f"{decision.text}; {WATCHING} ({describe_watching(options, append_only=table.append_only)})"
        return decision.decline(Reason.WATCHING, text)
    return replace(decision, text=f"{decision.text}; {behind}")


def _apply_hold(
    decision: Decision,
    hold: tuple[Reason, str],
    state: PartitionHealth,
    policy: Policy,
    trigger: int,
    *,
    append_only: bool,
) -> Decision:
    """Apply a pause or the off-peak hours of the policy to a decision.

    A critical backlog overrides both; then the text of the decision says so.

    Args:
        decision: decision by the table's rules.
        hold: reason and text of the pause or the hours, as returned by `find_hold`.
        state: health of the partition.
        policy: policy of the partition.
        trigger: number of sorted runs that triggers a compaction.
        append_only: whether the table has no primary key.
    """
    (reason, why), limit = hold, policy.watch.small_files_critical if append_only else policy.level0_critical
    level, files, _ = backlog_of([state], policy, append_only=append_only)
    if reason is not Reason.PAUSED and decision.outcome is not DecisionOutcome.RUN:
        return decision
    if level in {Backlog.CRITICAL, Backlog.EMERGENCY}:
        overridden = f"the pause ({policy.paused}) is" if reason is Reason.PAUSED else f"its hours ({why}) are"
        text = f"{files} {'small' if append_only else 'level-0'} files >= {limit}: critical; {overridden} overridden"
        return replace(
            decision,
            outcome=DecisionOutcome.RUN,
            reason=Reason.RECOVERY,
            text=text,
            number=files,
            threshold=limit,
            full=True,
        )
    if decision.threshold is None or decision.reason is Reason.ICEBERG_LAG:
        return decision.decline(reason, f"{decision.text}; {why}")
    return decision.decline(reason, f"{count_text(state.sorted_runs, 'sorted run')} (trigger {trigger}); {why}")


def _check_use(decision: Decision, subject: Subject, policy: Policy, now_ms: int) -> Decision:
    """Return the decision, or one to start no run if a compaction would be useless or would change query results.

    It is useless if the partition is about to expire. Merging only some of the sorted runs changes query results in
    some tables (`TableFacts.order`).

    Args:
        decision: the due decision.
        subject: the partition.
        policy: policy of the partition.
        now_ms: epoch ms by the table's clock.
    """
    state = subject.state
    if state is None:  # rows without a bucket are invisible to readers: they get one in any case
        return decision
    expiring = find_expiring(subject, policy, now_ms)
    if expiring is not None:
        at_ms, margin = expiring
        how = "expires" if now_ms < at_ms else "was to expire"
        text = f"{decision.text}; its partition {how} at {utc_text(at_ms)} UTC: not worth a run"
        return replace(
            decision.decline(Reason.EXPIRING, text),
            number=max(at_ms - now_ms, 0) // HOUR_MS,
            threshold=margin // HOUR_MS,
        )
    if subject.table.order and not decision.full and not subject.table.append_only:
        text = f"{decision.text}; {subject.table.order}"
        return decision.decline(Reason.ORDER, text)
    return decision


def find_expiring(subject: Subject, policy: Policy, now_ms: int) -> tuple[int, int] | None:
    """Return when a partition expires, if the partition is about to expire.

    Args:
        subject: the partition.
        policy: policy of the partition.
        now_ms: epoch ms by the table's clock.

    Returns:
        The time of expiry (epoch ms), and how long before it a partition counts as about to expire (ms). None if the
        partition is not about to expire. Also None if it should have been dropped long ago, because then it will
        probably stay and is maintained like any other partition.
    """
    expiry = expiry_of(subject, policy)
    if expiry is None:
        return None
    kept_ms, at_ms = expiry
    margin = min(DAY_MS, kept_ms // _LAST_PART)
    # A partition that is still here long after its expiry time will not be dropped: treat it like any other.
    return (at_ms, margin) if at_ms - margin <= now_ms < at_ms + policy.watch.overdue_after_ms else None


def expiry_of(subject: Subject, policy: Policy) -> tuple[int, int] | None:
    """Return the expiry of a partition.

    Returns:
        The retention time of partitions (ms) and the time of expiry (epoch ms). None if the partition does not expire
        automatically: without an expiration time, during a pause that covers retention, if expiry needs approval, or
        if the partition values contain no time.
    """
    kept_ms = policy.retention.get("partitions", {}).get(
        "older_than_ms", subject.table.options.get("partition.expiration-time")
    )
    if kept_ms is None or subject.state is None or not subject.table.partitioned:
        return None
    if policy.rests or policy.needs_approval("expire_partitions"):
        return None
    state = subject.state
    at_ms = expires_ms(state.buckets[0].partition, subject.table.options, state.newest_file_ms, kept_ms)
    return None if at_ms is None else (kept_ms, at_ms)


def _add_numbers(decision: Decision, subject: Subject, policy: Policy, history: History, now_ms: int) -> Decision:
    """Return a due decision with these fields set: cost, benefit, waiting time, and whether it is overdue or urgent.

    Args:
        decision: the due decision.
        subject: the partition.
        policy: policy of the partition.
        history: known facts; the cost of its plan is used if there is one.
        now_ms: epoch ms by the table's clock.
    """
    state = subject.state
    if state is None:
        cost, benefit, waited = 0, 100.0, 0
    else:
        cost = (
            sum(bucket.cost_full if decision.full else bucket.cost_minor for bucket in state.buckets)
            or state.total_bytes
        )
        benefit = state.score
        waited = max(now_ms - due_since_ms(decision.reason, state, policy, now_ms), 0)
    if history.plan is not None and history.plan.hash:
        cost = history.plan.cost
    overdue = decision.reason in _AGEING and waited >= policy.watch.stalled_after_ms
    append_only = subject.table.append_only
    level = Backlog.OK if state is None else backlog_of([state], policy, append_only=append_only)[0]
    urgent = level in {Backlog.CRITICAL, Backlog.EMERGENCY}
    return replace(
        decision, cost=cost, benefit=benefit, waited_ms=waited, overdue=overdue, urgent=urgent, backlog=level
    )


_AGEING: Final = frozenset({Reason.TRIGGER_REACHED, Reason.IDLE, Reason.UNSORTED, Reason.ICEBERG_LAG})
"""Reasons of work that becomes overdue; the other reasons come first anyway."""


def _check_worth(decision: Decision, subject: Subject, policy: Policy, now_ms: int) -> Decision:
    """Return the decision, or one to start no run if reads would save less than the compaction costs.

    The check applies only if the policy has prices and the number of reads. Compactions for a critical backlog,
    invisible rows or Iceberg readers, and sort compactions, always start: their benefit is not the saved merging.

    Args:
        decision: the due decision, with its numbers.
        subject: the partition.
        policy: policy of the partition.
        now_ms: epoch ms by the table's clock.
    """
    state, prices = subject.state, policy.cost
    if state is None or not prices.weighs_rewrites or decision.urgent or decision.sort is not None:
        return decision
    if decision.reason in {Reason.RECOVERY, Reason.ICEBERG_LAG} or any(bucket.hidden_rows for bucket in state.buckets):
        return decision
    append_only, table = subject.table.append_only, subject.table
    expiry, span = expiry_of(subject, policy), prices.pays_back_within_ms
    if expiry is not None and expiry[1] > now_ms:  # a partition that outlived its expiry will not be dropped
        span = min(span, expiry[1] - now_ms)
    dropped = (state.deletes + state.deleted_rows) / state.rows if state.rows else 0.0
    files = state.small_files if append_only else sum(bucket.level0_files for bucket in state.buckets)
    worth = weigh(
        prices,
        decision.cost,
        files_saved=files,
        merges=not append_only,
        bytes_out=min(table.calibration.bytes_out, max(1.0 - dropped, 0.0)),
        seconds=table.calibration.predicted_seconds(compaction_seconds(decision.cost, len(state.buckets))),
        open_file_cost=table.options.open_file_cost,
        span_ms=span,
    )
    if worth is None or worth.pays:
        return decision
    text = f"{decision.text}; {worth.text()}: not worth a run ({policy.origin('cost.reads_a_day')})"
    return decision.decline(Reason.COST, text)


def waited_ms(state: PartitionHealth, now_ms: int) -> int:
    """Return the time (ms) that the level-0 files of a partition have waited for a compaction.

    Returns:
        Time since the oldest level-0 file or the last compaction, whichever is later. 0 without level-0 files.
    """
    since = [bucket.oldest_level0_ms for bucket in state.buckets if bucket.oldest_level0_ms is not None]
    compacted_ms = max((bucket.last_compaction_ms or 0 for bucket in state.buckets), default=0)
    return max(now_ms - max(min(since), compacted_ms), 0) if since else 0


@dataclass(frozen=True)
class DueWork:
    """Work that a partition needs, whether or not the work may run now.

    Attributes:
        text: description with numbers.
        since_ms: epoch ms since which the work could have run.
    """

    text: str
    since_ms: int


def due_work(table: TableFacts, policy_of: Callable[[PartitionHealth | None], Policy], now: Now) -> dict[str, DueWork]:
    """Return the due work of a table by partition.

    Work that only a pause or the off-peak hours prevent counts as due. Work that is declined because of order
    sensitivity counts, too, because a person has to start this work. Partitions that are about to expire, and rows that
    wait for a bucket, are omitted.

    Args:
        table: facts of the table.
        policy_of: returns the policy of a partition, or of the whole table for None.
        now: current time.
    """
    due: dict[str, DueWork] = {}
    if table.refusal is not None:
        return due
    for scope in (DecisionScope.SORTED_RUNS, DecisionScope.IDLE):
        for subject in subjects(table, scope):
            state = subject.state
            if state is None:
                continue
            policy = policy_of(state)
            decision = decide(subject, replace(policy, paused=None, off_peak=None), NOTHING_KNOWN, now)
            if decision.outcome is DecisionOutcome.RUN or (decision.reason is Reason.ORDER and state.cost_minor):
                hold = find_hold(policy, now.table_ms)
                text = decision.text if hold is None else f"{decision.text}; {hold[1]}"
                due.setdefault(state.text, DueWork(text, due_since_ms(decision.reason, state, policy, now.table_ms)))
    return due


def due_since_ms(reason: Reason, state: PartitionHealth, policy: Policy, now_ms: int) -> int:
    """Return the time since which due work could have started within the off-peak hours of the policy.

    Pauses are ignored, so that forgotten pauses are found.

    Args:
        reason: reason of the due work.
        state: health of the partition.
        policy: policy of the partition.
        now_ms: epoch ms by the table's clock.

    Returns:
        Epoch ms; later than `now_ms` if no off-peak window has opened since the work became due.
    """
    if reason in {Reason.IDLE, Reason.UNSORTED}:
        compacted_ms = max((bucket.last_compaction_ms or 0 for bucket in state.buckets), default=0)
        since = max(state.newest_file_ms + policy.idle_after_ms, compacted_ms)
    elif reason is Reason.ICEBERG_LAG and state.iceberg_since_ms is not None:
        since = min(state.iceberg_since_ms + (policy.iceberg_lag_ms or 0), now_ms)
    else:
        since = now_ms - waited_ms(state, now_ms)
    hours = policy.off_peak
    opened = since if hours is None else hours.next_open(since)
    return now_ms + 1 if opened is None else opened


def _check_budget(decision: Decision, history: History) -> Decision:
    """Return the decision unchanged, or a decision to start no run if the budget or the tick's time is used up."""
    score = f"(score {decision.benefit:g})"
    why = "" if history.budget is None else history.budget.why_not(decision.table, decision.cost)
    if why:
        return decision.decline(Reason.BUDGET, f"{decision.text}; {why} {score}")
    if history.out_of_turns:
        return decision.decline(Reason.OUT_OF_TIME, f"{decision.text}; {history.out_of_turns} {score}")
    return decision


def _check_obstacles(decision: Decision, history: History) -> Decision:
    """Return the decision unchanged, or a decision to start no run if something forbids runs on the partition.

    Runs are forbidden by a partition name that Dagster cannot store, a failed check, a running run, or a suspension.

    Args:
        decision: the due decision.
        history: known facts about runs and checks.
    """
    if history.unusable_name:
        command = f"dredge compact {shlex.quote(decision.table)}"
        return decision.decline(Reason.NAME, f"{decision.text}; compact it with `{command}`")
    if history.blocked is not None:
        return decision.decline(Reason.BLOCKED, history.blocked)
    if history.at_work is not None:
        return decision.decline(Reason.IN_FLIGHT, f"{decision.text}; run {history.at_work[:8]} is working on it")
    if history.suspended is not None:
        declined = decision.decline(Reason.SUSPENDED, f"{decision.text}; {history.suspended}")
        return replace(declined, resume_job=history.resume_job)
    return decision


def _check_plan(decision: Decision, policy: Policy, history: History, plan: PlanSummary, wall_ms: int) -> Decision:
    """Return the decision, or one to start no run if its plan is empty, waits for approval, or may not run again.

    Args:
        decision: the due decision.
        policy: policy of the partition.
        history: earlier runs of the plan.
        plan: summary of the plan.
        wall_ms: epoch ms of Dagster's wall clock.
    """
    if not plan.hash:
        text = plan.why if plan.why.startswith(decision.text) else f"{decision.text}, but {plan.why}"
        return decision.decline(Reason.NOTHING_PICKED, text)
    approval = policy.needs_approval("compact")
    counted = [past_try for past_try in history.tries if past_try.ended_ms > history.resumed_ms]
    failure = find_forbidding(history.failures, plan.hash, decision.partition, plan.damaged)
    next_try = decide_retry(counted, plan.hash, wall_ms, failure)
    if approval and (plan.waits or next_try.number is not None):
        text = (
            f"{decision.text}; plan {plan.hash} waits for approval: launch the job {history.apply_job}, "
            f"or run `dredge apply {plan.hash} --approved-by NAME`"
        )
        return replace(decision.decline(Reason.APPROVAL, text), plan=plan.hash)
    if next_try.number is None:
        return replace(decision.decline(next_try.reason, next_try.text), retry_ms=next_try.at_ms)
    text = decision.text
    if plan.text:
        text = plan.text if plan.text.startswith(text) else f"{text}; {plan.text}"
    text = f"{text}; {next_try.text}" if next_try.text else text
    # Runs before the table was resumed do not count as tries, but their run keys are used.
    attempt = next_try.number + len(history.tries) - len(counted)
    return replace(decision, text=text, plan=plan.hash, attempt=attempt)


def find_hold(policy: Policy, now_ms: int) -> tuple[Reason, str] | None:
    """Return why the policy forbids to start compactions at a time.

    Args:
        policy: policy of the table or partition.
        now_ms: epoch ms.

    Returns:
        The reason (a pause or the off-peak hours) and a text, or None if compactions may start.
    """
    if policy.paused is not None:
        return Reason.PAUSED, f"paused by policy: {policy.paused}"
    hours = policy.off_peak
    if hours is None or hours.is_open(now_ms):
        return None
    opens = hours.next_open(now_ms)
    next_text = f"next at {utc_text(opens)} UTC" if opens is not None else "not within eight days"
    return Reason.OFF_PEAK, f"outside {hours.text()}, {next_text}"


def decide_sorted_runs(table: str, state: PartitionHealth, trigger: int) -> Decision:
    """Decide whether a partition needs a compaction: a bucket has reached the trigger, or the table's rules pick files.

    Args:
        table: full name of the table.
        state: health of the partition.
        trigger: number of sorted runs that triggers a compaction.
    """
    runs = state.sorted_runs
    if runs < trigger and not state.cost_minor:
        if runs <= 1:
            text = f"{count_text(runs, 'sorted run')} < {trigger}; {size_text(state.total_bytes)}: nothing to merge"
        else:
            gain = (
                f"a full compaction would drop up to {count_text(state.deletes, 'delete')} and "
                if state.deletes
                else "a full compaction would "
            )
            text = (
                f"{runs} sorted runs < {trigger}; {size_text(state.total_bytes)}{_amplification(state)}; "
                f"{gain}save one merge of {count_text(state.rows, 'row')}: not worth a run"
            )
        return Decision(table, state.text, DecisionOutcome.DECLINE, Reason.TOO_FEW_RUNS, text, runs, trigger)
    text = (
        f"{runs} sorted runs >= {trigger}"
        if runs >= trigger
        else f"{count_text(runs, 'sorted run')}, and the table's own rules pick {size_text(state.cost_minor)} to merge"
    )
    return Decision(table, state.text, DecisionOutcome.RUN, Reason.TRIGGER_REACHED, text, runs, trigger)


def decide_iceberg_lag(table: str, state: PartitionHealth, policy: Policy, now_ms: int) -> Decision | None:
    """Decide whether Iceberg readers have missed rows of a partition for too long, so that a full compaction is due.

    The rule applies to tables with a primary key that publish Iceberg metadata, whatever their sorted runs.

    Args:
        table: full name of the table.
        state: health of the partition.
        policy: policy of the partition.
        now_ms: epoch ms by the table's clock.

    Returns:
        The decision to run, or None if the policy has no limit or the lag is within it.
    """
    limit, since = policy.iceberg_lag_ms, state.iceberg_since_ms
    if limit is None or since is None or now_ms - since <= limit:
        return None
    lag, limit_minutes = (now_ms - since) // MINUTE_MS, limit // MINUTE_MS
    text = (
        f"Iceberg readers miss {count_text(state.iceberg_rows, 'stored row')} committed since {utc_text(since)} UTC: "
        f"{lag} min > {limit_minutes} min ({policy.origin('iceberg_lag')}): full compaction"
    )
    return Decision(table, state.text, DecisionOutcome.RUN, Reason.ICEBERG_LAG, text, lag, limit_minutes, full=True)


def decide_small_files(table: str, state: PartitionHealth) -> Decision:
    """Decide whether an append table's own rules pick small files, or files with deleted rows, in a partition."""
    files = count_text(state.small_files, "small file")
    if not state.cost_minor:
        text = f"{files}, {size_text(state.total_bytes)}: the table's own rules pick nothing to merge"
        return Decision(table, state.text, DecisionOutcome.DECLINE, Reason.TOO_FEW_FILES, text, state.small_files)
    text = f"{files}, and the table's own rules pick {size_text(state.cost_minor)} to merge"
    return Decision(table, state.text, DecisionOutcome.RUN, Reason.TRIGGER_REACHED, text, state.small_files)


def decide_upkeep(
    table: str, action: str, refusal: str | None, policy: Policy, history: History, now_ms: int
) -> Decision | None:
    """Decide whether an action that compacts no data, such as an expiry, may run on a table now.

    Actions of retention ignore the off-peak hours, and also a pause that does not cover retention. All other actions
    respect the hours and every pause.

    Args:
        table: full name of the table.
        action: name of the action.
        refusal: why maintenance does not touch the table's files, or None.
        policy: policy of the table.
        history: known facts about runs and checks.
        now_ms: epoch ms.

    Returns:
        The decision not to run the action, with the reason; None if the action may run.
    """
    declined = Decision(table, "", DecisionOutcome.DECLINE, Reason.UNSUPPORTED, refusal or "")
    if refusal is not None:
        return declined
    if history.blocked is not None:
        return declined.decline(Reason.BLOCKED, history.blocked)
    if history.at_work is not None:
        return declined.decline(Reason.IN_FLIGHT, f"run {history.at_work[:8]} is working on it")
    hold = find_hold(policy, now_ms)
    if action in EXPIRING_ACTIONS and not policy.rests:
        hold = None
    return None if hold is None else declined.decline(*hold)


EXPIRING_ACTIONS: Final = frozenset(
    {"expire_partitions", "expire_tags", "expire_snapshots", "expire_changelogs", "orphans", "trash"}
)
"""Names of the actions of retention."""


def decide_waiting(table: str, partition: str, rows: int) -> Decision:
    """Return the decision to assign buckets to postponed rows, which are invisible to readers until then.

    Args:
        table: full name of the table.
        partition: path of the partition.
        rows: number of postponed rows.
    """
    text = f"{count_text(rows, 'postponed row')} without a bucket: no reader sees them"
    return Decision(table, partition, DecisionOutcome.RUN, Reason.ROWS_WAIT, text, rows, 1)


def _amplification(state: PartitionHealth) -> str:
    """Return a text with the size amplification and its limit, which can also trigger a compaction; "" if unknown."""
    facts = state.worst.facts
    percent, limit = facts.get("amplification_percent"), facts.get("max_amplification_percent")
    if percent is None or limit is None:
        return ""
    return f"; newer runs hold {int(percent)} % of the oldest run's bytes (limit {int(limit)} %)"


def decide_idle(table: str, state: PartitionHealth, policy: Policy, *, append: bool, now_ms: int) -> Decision:
    """Decide whether a partition without recent writes needs one last, full compaction.

    Args:
        table: full name of the table.
        state: health of the partition.
        policy: policy of the partition.
        append: whether the table has no primary key.
        now_ms: epoch ms.
    """
    idle = max(now_ms - state.newest_file_ms, 0)
    days, wanted = idle // DAY_MS, policy.idle_after_ms // DAY_MS
    number, minimum = (
        (state.small_files, policy.idle_min_files) if append else (state.sorted_runs, policy.idle_min_runs)
    )
    noun = count_text(number, "small file" if append else "sorted run")
    if idle < policy.idle_after_ms:
        text = f"idle {days} d < {wanted} d ({noun})"
        return Decision(table, state.text, DecisionOutcome.DECLINE, Reason.NOT_IDLE, text, days, wanted)
    if append and number < minimum and state.cost_minor:
        # The number of files is below the minimum, so the table picked them for their deleted rows.
        text = f"idle {days} d >= {wanted} d, {count_text(state.deleted_rows, 'deleted row')}: full compaction"
        return Decision(table, state.text, DecisionOutcome.RUN, Reason.IDLE, text, number, minimum, full=True)
    if number < minimum:
        reason = Reason.TOO_FEW_FILES if append else Reason.ONE_RUN
        why = f"{noun} < {minimum}" if append else "one run per bucket"
        text = f"idle {days} d, {why}: nothing to merge"
        return Decision(table, state.text, DecisionOutcome.DECLINE, reason, text, number, minimum)
    text = f"idle {days} d >= {wanted} d, {noun} >= {minimum}: full compaction"
    return Decision(table, state.text, DecisionOutcome.RUN, Reason.IDLE, text, number, minimum, full=True)


def sort_rule(table: TableFacts, policy: Policy) -> SortRule | None:
    """Return the sort rule of a table from the policy, or else from `clustering.columns`; None without a rule."""
    if not table.sortable or policy.sort is False:
        return None
    has_columns = bool((table.options.text("clustering.columns") or "").strip())
    if policy.sort is None:
        return SortRule() if has_columns else None
    return policy.sort if policy.sort.by or has_columns else None


def decide_sort(
    decision: Decision, state: PartitionHealth, policy: Policy, rule: SortRule, sorted_ms: int | None, now_ms: int
) -> Decision:
    """Decide whether a partition is sorted now.

    Args:
        decision: decision about the small files of the partition.
        state: health of the partition.
        policy: policy of the partition.
        rule: sort rule of the table.
        sorted_ms: epoch ms of the last sort compaction of the partition, or None if there was none. Newer files are
            unsorted.
        now_ms: epoch ms.

    Returns:
        The decision to sort, `decision` if the sort is not due yet, or a decision to start no run if everything is
        sorted.
    """
    if sorted_ms is not None and state.newest_file_ms <= sorted_ms and not state.deleted_rows:
        text = f"sorted at {utc_text(sorted_ms)} UTC, and nothing was written since"
        return replace(decision, outcome=DecisionOutcome.DECLINE, reason=Reason.ONE_RUN, text=text, full=False)
    since = state.newest_file_ms if rule.every_ms is None else sorted_ms
    limit = policy.idle_after_ms if rule.every_ms is None else rule.every_ms
    waited = max(now_ms - since, 0) if since is not None else None
    if waited is not None and waited < limit:
        return decision
    columns = f"by {', '.join(rule.by)}" if rule.by else "by clustering.columns"
    when = (
        "never sorted" if waited is None else f"{'idle' if rule.every_ms is None else 'sorted'} {waited // HOUR_MS} h"
    )
    text = f"{when} (limit {limit // HOUR_MS} h), {count_text(state.files, 'file')}: sort compaction {columns}"
    return Decision(
        decision.table, state.text, DecisionOutcome.RUN, Reason.UNSORTED, text, state.files, 1, full=True, sort=rule
    )


def backlog_of(
    states: Sequence[PartitionHealth], policy: Policy, *, append_only: bool = False
) -> tuple[Backlog, int, str]:
    """Return the backlog of the worst partition.

    Args:
        states: health of the partitions.
        policy: limits to compare with.
        append_only: whether the table has no primary key. Then small files are counted instead of level-0 files, and
            compared with the limits of `watch`.

    Returns:
        The severity, the number of files, and the path of the partition.
    """
    if append_only:
        largest = max(states, key=lambda state: state.small_files, default=None)
        count, watch = (0 if largest is None else largest.small_files), policy.watch
        if largest is None or count < watch.small_files:
            return Backlog.OK, count, "" if largest is None else largest.text
        critical = count >= max(watch.small_files_critical, watch.small_files)
        return Backlog.CRITICAL if critical else Backlog.WARN, count, largest.text
    worst = max(states, key=lambda state: state.level0_files, default=None)
    if worst is None:
        return Backlog.OK, 0, ""
    if worst.level0_files >= max(policy.level0_emergency, policy.level0_critical):
        return Backlog.EMERGENCY, worst.level0_files, worst.text
    if worst.level0_files >= policy.level0_critical:
        return Backlog.CRITICAL, worst.level0_files, worst.text
    level = Backlog.WARN if worst.level0_files >= policy.level0_warn else Backlog.OK
    return level, worst.level0_files, worst.text


WAITS_MS: Final = (10 * MINUTE_MS, 60 * MINUTE_MS)
"""Waiting times (ms) after the first and the second failed run of a plan; a plan gets no fourth run."""
TRIES: Final = len(WAITS_MS) + 1


@dataclass(frozen=True)
class RetryDecision:
    """Next attempt to run a plan.

    Attributes:
        number: number of the attempt to start now, from 1. None if no attempt starts now.
        text: explanation for the tick.
        reason: code of the reason if no attempt starts.
        at_ms: epoch ms (wall clock) of the next attempt, or None if it starts now or never.
    """

    number: int | None
    text: str = ""
    reason: Reason = Reason.DONE_BEFORE
    at_ms: int | None = None


def decide_retry(
    tries: Sequence[FinishedRun], plan: str, now_ms: int, failure: PermanentFailure | None = None
) -> RetryDecision:
    """Decide whether a plan is run again. Only failed runs are repeated, not runs that a person canceled.

    Args:
        tries: all finished runs of the plan, newest first.
        plan: hash of the plan.
        now_ms: epoch ms of the wall clock.
        failure: permanent failure that forbids this plan, perhaps of a run of another plan (such as a damaged file
            that both plans read); None if there is none.
    """
    if failure is not None:
        return RetryDecision(None, failure.text(), Reason.CORRUPT if failure.is_corrupt else Reason.NO_RETRY)
    if not tries:
        return RetryDecision(1)
    last, failed = tries[0], sum(attempt.ending is RunResult.FAILED for attempt in tries)
    run, until = f"run {last.run_id[:8]}", "not requested again until a commit changes the plan"
    by_hand = "materialise the layout to start one by hand"
    if last.ending is RunResult.DONE:
        return RetryDecision(None, f"plan {plan[:12]} was applied by {run}, which succeeded; see its outcome")
    if last.ending is RunResult.CANCELED:
        return RetryDecision(None, f"plan {plan[:12]}: {run} was canceled: {until}; {by_hand}", Reason.CANCELED)
    if failed >= TRIES:
        text = f"plan {plan[:12]}: {run} failed, the last of {TRIES} tries: {until}; see its error, then {by_hand}"
        return RetryDecision(None, text, Reason.FAILED)
    wait = last.ended_ms + WAITS_MS[failed - 1] - now_ms
    if wait > 0:
        minutes = -(-wait // MINUTE_MS)
        text = (
            f"plan {plan[:12]}: {run} failed, try {failed} of {TRIES}: requested again in {minutes} min; or {by_hand}"
        )
        return RetryDecision(None, text, Reason.FAILED, last.ended_ms + WAITS_MS[failed - 1])
    return RetryDecision(failed + 1, f"try {failed + 1} of {TRIES}: {run} failed")
