"""State of a table or partition: one word for people, from the decision that sensors would make now. Pure.

`judge_subject` turns a final decision (made by `decide` with full history) into the `TableStatus` of a partition.
`judge_condition` does the same for a condition of the whole table, such as a failed check. `combine` returns the
status of a table from those of its partitions and conditions: the status with the lowest rank.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Final, NamedTuple

from dredge.platform_core.health import PartitionHealth
from dredge.platform_core.policies.decisions import (
    NOTHING_KNOWN,
    Decision,
    DecisionOutcome,
    DecisionScope,
    Now,
    Reason,
    Subject,
    TableFacts,
    decide,
    due_since_ms,
    subjects,
)
from dredge.platform_core.policies.policy import DAY_MS, HOUR_MS, Policy
from dredge.platform_core.table_card import count_text
from lsm_core.clock import utc_text

DAMAGE: Final = "CorruptFile: "
"""Begin of a decision's text if a metadata or data file of the table is damaged or missing."""


class TableState(StrEnum):
    """State of a table or partition, such as healthy, due or blocked, in order of urgency for a person."""

    CORRUPT = "corrupt"
    """A metadata or data file is damaged or missing."""
    UNREADABLE = "unreadable"
    """The table cannot be read, for example because an option is invalid or the storage refuses access."""
    BLOCKED = "blocked"
    """A blocking check failed: nothing is compacted and nothing expires."""
    SUSPENDED = "suspended"
    """The newest runs all failed, so that sensors start no further run."""
    FAILING = "failing"
    """The newest run failed, and no retry is scheduled, or the retry starts at the next tick."""
    APPROVAL = "waiting for approval"
    """A plan waits until a person approves it."""
    PERSON = "needs a person"
    """Work is due, but only a person can start it."""
    NOT_LOADED = "not loaded"
    """The keys of the table changed after the code location loaded it."""
    PAUSED = "paused"
    """The policy pauses compactions, or a replay stops all sensors."""
    DUE = "due"
    """Work is due, and starts at the next tick or as soon as the compaction of another table ends."""
    RUNNING = "running"
    """A run is queued or works on the table."""
    BACK_OFF = "in back-off"
    """A run failed, and its retry waits for a time."""
    OUT_OF_BUDGET = "out of budget"
    """Work is due, but the bytes of the hour are used up."""
    OUT_OF_HOURS = "outside its hours"
    """Work is due, and the next off-peak window has not opened yet."""
    INVISIBLE_ROWS = "invisible rows"
    """No work is due, but readers do not see some rows before the next compaction."""
    NOT_MAINTAINED = "not maintained"
    """The table uses a feature that maintenance does not support."""
    HEALTHY = "healthy"
    """Nothing is due, or writers compact the table themselves."""

    @property
    def rank(self) -> int:
        """Position in the ranking, from 0 for the state that needs a person most urgently."""
        return _RANKS[self]

    @property
    def needs_attention(self) -> bool:
        """Whether the state lasts until a person acts."""
        return self.rank <= TableState.NOT_LOADED.rank

    @property
    def is_calm(self) -> bool:
        """Whether neither a person nor a sensor has to do anything now."""
        return self in {TableState.HEALTHY, TableState.NOT_MAINTAINED}


_RANKS: Final[Mapping[TableState, int]] = {state: rank for rank, state in enumerate(TableState)}
STATE_HELP: Final[Mapping[TableState, str]] = {
    TableState.CORRUPT: "a metadata or data file is damaged or missing",
    TableState.UNREADABLE: "the table cannot be read",
    TableState.BLOCKED: "a blocking check failed: nothing is compacted, nothing expires",
    TableState.SUSPENDED: "its newest runs all failed: no run starts until it is resumed",
    TableState.FAILING: "its newest run failed",
    TableState.APPROVAL: "a plan waits for a person's approval",
    TableState.PERSON: "work is due that only a person can start",
    TableState.NOT_LOADED: "its keys changed, or it became readable, after the code location was loaded",
    TableState.PAUSED: "the policy or a replay stops compactions",
    TableState.DUE: "work is due and starts at the next tick, or in its turn",
    TableState.RUNNING: "a run is queued or at work",
    TableState.BACK_OFF: "a run failed, its retry waits",
    TableState.OUT_OF_BUDGET: "work is due, the bytes of the hour are used up",
    TableState.OUT_OF_HOURS: "work is due, its off-peak window is closed",
    TableState.INVISIBLE_ROWS: "nothing is due, but readers do not see some rows yet",
    TableState.NOT_MAINTAINED: "maintenance does not support the table",
    TableState.HEALTHY: "nothing is due",
}
"""One-line explanation of each state, for legends."""

_STATES: Final[Mapping[Reason, TableState | None]] = {
    Reason.TRIGGER_REACHED: TableState.DUE,
    Reason.IDLE: TableState.DUE,
    Reason.UNSORTED: TableState.DUE,
    Reason.RECOVERY: TableState.DUE,
    Reason.ICEBERG_LAG: TableState.DUE,
    Reason.ROWS_WAIT: TableState.DUE,
    Reason.OUT_OF_TIME: TableState.DUE,
    Reason.BUDGET: TableState.OUT_OF_BUDGET,
    Reason.OFF_PEAK: TableState.OUT_OF_HOURS,
    Reason.PAUSED: TableState.PAUSED,
    Reason.REPLAY: TableState.PAUSED,
    Reason.CORRUPT: TableState.CORRUPT,
    Reason.NO_RETRY: TableState.FAILING,
    Reason.BLOCKED: TableState.BLOCKED,
    Reason.SUSPENDED: TableState.SUSPENDED,
    Reason.FAILED: TableState.FAILING,
    Reason.APPROVAL: TableState.APPROVAL,
    Reason.CANCELED: TableState.PERSON,
    Reason.DONE_BEFORE: TableState.PERSON,
    Reason.ORDER: TableState.PERSON,
    Reason.NAME: TableState.PERSON,
    Reason.IN_FLIGHT: TableState.RUNNING,
    Reason.UNREADABLE: TableState.UNREADABLE,
    Reason.RELOAD: TableState.NOT_LOADED,
    Reason.UNSUPPORTED: TableState.NOT_MAINTAINED,
    Reason.TOO_FEW_RUNS: TableState.HEALTHY,
    Reason.TOO_FEW_FILES: TableState.HEALTHY,
    Reason.ONE_RUN: TableState.HEALTHY,
    Reason.NOT_IDLE: TableState.HEALTHY,
    Reason.EMPTY: TableState.HEALTHY,
    Reason.NOTHING_PICKED: TableState.HEALTHY,
    Reason.WATCHING: TableState.HEALTHY,
    Reason.EXPIRING: TableState.HEALTHY,
    Reason.COST: TableState.HEALTHY,
    Reason.ELSEWHERE: None,
    Reason.NOT_PARTITIONED: None,
}
"""State of each reason of a decision; None if another sensor decides about the subject."""


class Queue(NamedTuple):
    """Queue in which due work waits for the budget.

    Attributes:
        place: place of the work, from 1.
        for_table: whether the work waits until the compaction of another table ends. Otherwise the work waits for
            bytes of the budget.
        limit: the limit that is used up, such as "4 of 4 tables".
        due_text: why the work is due.
    """

    place: int
    for_table: bool
    limit: str = ""
    due_text: str = ""


@dataclass(frozen=True)
class Condition:
    """Condition of a whole table that holds whether or not work is due.

    Attributes:
        state: CORRUPT, BLOCKED, SUSPENDED, FAILING or RUNNING.
        text: explanation with numbers.
        since_ms: epoch ms since which the condition holds, or None.
        run_id: run of Dagster that caused the condition, or "".
        action: next action, or "" for the action of the state.
        when: time of the next action as text; used with `action`.
        stops: whether no run starts on the table meanwhile.
        resume_job: name of the job that ends a suspension.
    """

    state: TableState
    text: str
    since_ms: int | None = None
    run_id: str = ""
    action: str = ""
    when: str = "by hand"
    stops: bool = True
    resume_job: str = "resume"


@dataclass(frozen=True)
class TableStatus:
    """Status of a table or partition: its state, the reason, and what happens next.

    Attributes:
        table: full name of the table.
        state: state, such as healthy, due or blocked.
        text: reason with numbers.
        action: next action, done by a sensor or by a person.
        when: time of the next action as text, such as "the next tick" or "at 07:10 UTC".
        when_ms: epoch ms of the next action, or None if it has no fixed time.
        since_ms: epoch ms since which the table is in this state, or None if unknown.
        partition: path of the partition, or "" for the whole table.
        reason: code of the decision's reason, or None for a condition of the whole table.
        place: place in the queue for the budget, or None.
        waits: what the work waits for, such as "the budget (4 of 4 tables), place 7"; "" if it does not wait.
        score: score of the table or partition, 0 (healthy) to 100.
        urgent: whether the backlog is critical, or the work has been due for too long.
        run_id: id of the run that works on the table or failed, or "".
        more: number of further partitions in the same state.
        counts: number of partitions by state, for a table with several partitions.
    """

    table: str
    state: TableState
    text: str
    action: str = "none"
    when: str = "-"
    when_ms: int | None = None
    since_ms: int | None = None
    partition: str = ""
    reason: Reason | None = None
    place: int | None = None
    waits: str = ""
    score: float = 0.0
    urgent: bool = False
    run_id: str = ""
    more: int = 0
    counts: Mapping[TableState, int] | None = None

    @cached_property
    def key(self) -> tuple[str, ...]:
        """Identity of the status without its numbers; if it changes, the change is reported to people."""
        return (self.state.value, self.partition, "" if self.reason is None else self.reason.value, self.run_id)

    @property
    def label(self) -> str:
        """State in words, with the end of a back-off or closed window: ``in back-off until 2026-05-30 07:10 UTC``."""
        if self.state in {TableState.BACK_OFF, TableState.OUT_OF_HOURS} and self.when_ms is not None:
            return f"{self.state.value} until {_clock(self.when_ms)}"
        return self.state.value

    @property
    def why(self) -> str:
        """Reason with numbers and the partition, without the name of the state."""
        text = self.text.removeprefix(f"{self.state.value}: ")
        return f"{self.partition}: {text}" if self.partition else text

    def line(self, now_ms: int) -> str:
        """Return one line: ``due: 6 sorted runs >= 5; waits for the budget (4 of 4 tables), place 7; since 06:31 UTC``.

        Args:
            now_ms: epoch ms, to shorten times of today.
        """
        label = self.state.value
        if label != self.label and self.when_ms is not None:
            label = f"{label} until {time_text(self.when_ms, now_ms)}"
        parts = [f"{label}: {self.why}"]
        parts += [f"waits for {self.waits}"] if self.waits else []
        parts += [f"since {time_text(self.since_ms, now_ms)}"] if self.since_ms is not None else []
        parts += [f"and {count_text(self.more, 'more partition')} {self.state.value}"] if self.more else []
        return "; ".join(parts)

    def next_step(self) -> str:
        """Return the next action with its time, such as ``compact dt=1: the next tick``."""
        return self.action if self.when == "-" else f"{self.action}: {self.when}"


def time_text(epoch_ms: int, now_ms: int) -> str:
    """Return a time as UTC text: only hours and minutes within 20 hours of `now_ms`, else with the date."""
    text = utc_text(epoch_ms)
    near = abs(now_ms - epoch_ms) < DAY_MS - 4 * HOUR_MS
    return f"{text[11:16] if near else text[:16]} UTC"


def rank_key(status: TableStatus) -> tuple[int, bool, float, str, str]:
    """Return the sort key of a status: state, urgency, then score; tables that need work most come first."""
    return (status.state.rank, not status.urgent, -status.score, status.table, status.partition)


def state_of(decision: Decision, queue: Queue | None = None) -> TableState | None:
    """Return the state that a decision means, or None if another sensor decides about the partition or table.

    Args:
        decision: final decision about a partition or table.
        queue: queue in which work beyond the budget waits, or None.
    """
    state = _STATES.get(decision.reason, TableState.HEALTHY)
    if state is TableState.UNREADABLE and decision.text.startswith(DAMAGE):
        return TableState.CORRUPT
    if state is TableState.FAILING and decision.retry_ms is not None:
        return TableState.BACK_OFF
    if state is TableState.OUT_OF_BUDGET and queue is not None and queue.for_table:
        return TableState.DUE
    return state


def judge_subject(
    subject: Subject, decision: Decision, policy: Policy, now: Now, queue: Queue | None = None, sensor_trouble: str = ""
) -> TableStatus | None:
    """Return the status of a partition or table from the decision that sensors would make now.

    Args:
        subject: the partition or table.
        decision: final decision about the partition or table; if work is due, made with all facts of Dagster.
        policy: policy of the partition.
        now: current time.
        queue: queue in which work beyond the budget waits, or None.
        sensor_trouble: why the sensor that decides about the partition or table starts nothing now, or "".

    Returns:
        The status, or None if another sensor decides about the partition or table.
    """
    state = state_of(decision, queue)
    if state is None:
        return None
    part = subject.state
    score = decision.benefit or (0.0 if part is None else part.score)
    urgent = decision.urgent or decision.overdue
    status = TableStatus(
        decision.table,
        state,
        decision.text,
        partition=decision.partition,
        reason=decision.reason,
        score=score,
        urgent=urgent,
        since_ms=_since_ms(state, subject, decision, policy, now),
    )
    if state is TableState.HEALTHY and policy.paused is not None:
        text = f"{decision.text}; paused by policy: {policy.paused}"
        state, since = TableState.PAUSED, policy.paused_since_ms
        status = replace(status, state=state, text=text, since_ms=since)
    if state is TableState.HEALTHY:
        return _judge_healthy(status, subject, policy)
    compact = f"compact {decision.partition}" if decision.partition else "compact"
    if state in {TableState.DUE, TableState.OUT_OF_BUDGET}:
        status = replace(status, action=compact, when=sensor_trouble or "the next tick")
        if queue is None:
            return status
        kind = "a table in work ends" if queue.for_table else "bytes of the hour are free again"
        when = sensor_trouble or f"place {queue.place}, as soon as {kind}"
        limit = f" ({queue.limit})" if queue.limit else ""
        waits = f"the budget{limit}, place {queue.place}"
        return replace(status, text=queue.due_text or status.text, when=when, place=queue.place, waits=waits)
    if state is TableState.BACK_OFF:
        when_ms = decision.retry_ms
        when = sensor_trouble or f"at {_clock(when_ms)}"
        return replace(status, action=f"{compact} again", when=when, when_ms=when_ms)
    if state is TableState.OUT_OF_HOURS:
        opens = None if policy.off_peak is None else policy.off_peak.next_open(now.table_ms)
        when = "no window opens within eight days" if opens is None else f"at {_clock(opens)}"
        return replace(status, action=compact, when=sensor_trouble or when, when_ms=opens)
    action, when = _explain_standing(state, decision.table, decision.reason, decision.plan, decision.resume_job)
    return replace(status, action=action, when=when)


def judge_metadata(
    table: TableFacts,
    policy_of: Callable[[PartitionHealth | None], Policy],
    now: Now,
    scopes: Iterable[DecisionScope] = (DecisionScope.SORTED_RUNS, DecisionScope.IDLE),
) -> list[TableStatus]:
    """Return the statuses of a table's partitions from metadata alone, without runs, checks and budgets.

    Args:
        table: metadata of the table that decisions need.
        policy_of: returns the policy of a partition, or of the whole table for None.
        now: current time.
        scopes: kinds of compaction to decide about.
    """
    statuses = []
    for scope in scopes:
        for subject in subjects(table, scope):
            policy = policy_of(subject.state)
            decision = decide(subject, policy, NOTHING_KNOWN, now)
            statuses.append(judge_subject(subject, decision, policy, now))
    return [status for status in statuses if status is not None]


def judge_undecided(decision: Decision) -> TableStatus:
    """Return the status of a table that cannot be evaluated, because it is unreadable, unsupported or not loaded.

    Args:
        decision: the decision not to maintain the table, whose reason is UNREADABLE, UNSUPPORTED or RELOAD.
    """
    state = state_of(decision) or TableState.UNREADABLE
    action, when = _explain_standing(state, decision.table, decision.reason, "")
    score = 100.0 if state in {TableState.CORRUPT, TableState.UNREADABLE} else 0.0
    return TableStatus(decision.table, state, decision.text, action, when, reason=decision.reason, score=score)


def judge_condition(table: str, condition: Condition, score: float = 0.0) -> TableStatus:
    """Return the status of a table for a condition of the whole table, such as a failed check.

    Args:
        table: full name of the table.
        condition: condition that holds for the whole table.
        score: score of the table.
    """
    action, when = condition.action, condition.when
    if not action:
        action, when = _explain_standing(condition.state, table, None, "", condition.resume_job)
    return TableStatus(
        table,
        condition.state,
        condition.text,
        action,
        when,
        since_ms=condition.since_ms,
        score=score,
        run_id=condition.run_id,
    )


def combine(
    table: str, partitions: Sequence[TableStatus], conditions: Iterable[Condition] = (), score: float = 0.0
) -> TableStatus:
    """Return the status of a table: the status of its most urgent partition or condition (`TableState.rank`).

    A FAILING condition counts only while work is due: later commits may have made the failed run unnecessary.

    Args:
        table: full name of the table.
        partitions: statuses of the partitions; several sensors may have decided about one partition.
        conditions: conditions of the whole table.
        score: score of the table.
    """
    worst: dict[str, TableStatus] = {}
    for status in partitions:
        known = worst.get(status.partition)
        if known is None or _next_key(status) < _next_key(known):
            worst[status.partition] = status
    counts: dict[TableState, int] = {}
    for status in worst.values():
        counts[status.state] = counts.get(status.state, 0) + 1
    table_conditions = list(conditions)
    candidates = [
        *(
            judge_condition(table, condition, score)
            for condition in table_conditions
            if condition.state is not TableState.FAILING
        ),
        *worst.values(),
    ]
    if not candidates:
        return TableStatus(table, TableState.HEALTHY, "no snapshot yet: nothing to maintain", score=score)
    first = min(candidates, key=_next_key)
    same = sum(
        status.state is first.state and status.partition not in {"", first.partition} for status in worst.values()
    )
    urgent = any(status.urgent for status in candidates if status.state is first.state)
    if first.since_ms is None:  # a decision about a partition does not know the time of a failed check
        cause = next((item for item in table_conditions if item.state is first.state), None)
        first = first if cause is None else replace(first, since_ms=cause.since_ms, run_id=first.run_id or cause.run_id)
    failing = next((condition for condition in table_conditions if condition.state is TableState.FAILING), None)
    if failing is not None and first.state in {TableState.DUE, TableState.OUT_OF_BUDGET}:
        first = replace(
            first,
            state=TableState.FAILING,
            text=f"{failing.text}; {first.text}",
            since_ms=failing.since_ms,
            run_id=failing.run_id,
        )
    return replace(
        first, score=score or first.score, urgent=urgent, more=same, counts=counts if len(worst) > 1 else None
    )


def add_upkeep(status: TableStatus, debts: Sequence[str]) -> TableStatus:
    """Set the first overdue retention work as the next action of a healthy table that has no next action.

    Args:
        status: status of the table.
        debts: reasons of the score that no compaction reduces, such as overdue snapshots.
    """
    if status.state is not TableState.HEALTHY or status.action != "none" or not debts:
        return status
    return replace(status, action=f"retention: {debts[0]}", when="the next run of retention, or by hand")


def agrees(status: TableStatus, decision: Decision) -> bool:
    """Return whether a status and the decision that it shows agree about whether a run starts now.

    The status says that a run starts now if the state is DUE, the work is in no queue, and the tick has time left.
    """
    starts = status.state is TableState.DUE and status.place is None and status.reason is not Reason.OUT_OF_TIME
    return starts == (decision.outcome is DecisionOutcome.RUN)


def _next_key(status: TableStatus) -> tuple[int, int, bool, float, float, str]:
    """Return the sort key of the statuses of one table; the table shows the first status in this order."""
    soonest = float("inf") if status.when_ms is None else float(status.when_ms)
    return (status.state.rank, status.place or 0, not status.urgent, -status.score, soonest, status.partition)


def _since_ms(state: TableState, subject: Subject, decision: Decision, policy: Policy, now: Now) -> int | None:
    """Return the epoch ms since which a subject is in a state, or None if that time is unknown."""
    if state is TableState.PAUSED:
        return policy.paused_since_ms
    if subject.state is None or state not in _WAITING_STATES:
        return None
    reason = decision.reason
    if subject.scope is DecisionScope.IDLE and reason is not Reason.UNSORTED:
        reason = Reason.IDLE
    since = due_since_ms(reason, subject.state, replace(policy, off_peak=None), now.table_ms)
    return since if since < now.table_ms else None


_WAITING_STATES: Final = frozenset(
    {
        TableState.APPROVAL,
        TableState.PERSON,
        TableState.DUE,
        TableState.BACK_OFF,
        TableState.OUT_OF_BUDGET,
        TableState.OUT_OF_HOURS,
    }
)
"""States of due work, which has waited since it became due."""


def _judge_healthy(status: TableStatus, subject: Subject, policy: Policy) -> TableStatus:
    """Return the status of a subject without due work, with the next action that becomes due without a commit.

    Args:
        status: status of the partition or table so far.
        subject: the partition or table.
        policy: policy of the partition.
    """
    part, table = subject.state, subject.table
    if part is None:
        return status
    hidden = sum(bucket.hidden_rows for bucket in part.buckets)
    if hidden:
        text = f"{count_text(hidden, 'row')} not visible to readers before the next compaction; {status.text}"
        oldest = min((b.oldest_level0_ms for b in part.buckets if b.hidden_rows and b.oldest_level0_ms), default=None)
        action = f"`dredge compact {shlex.quote(table.name)}` makes them visible"
        when = "by hand, or at the table's next compaction"
        return replace(status, state=TableState.INVISIBLE_ROWS, text=text, action=action, when=when, since_ms=oldest)
    if policy.iceberg_lag_ms is not None and part.iceberg_since_ms is not None and not table.append_only:
        when_ms = part.iceberg_since_ms + policy.iceberg_lag_ms
        action = f"full compaction for Iceberg readers, who miss {count_text(part.iceberg_rows, 'stored row')}"
        return replace(status, action=action, when=f"at {_clock(when_ms)}", when_ms=when_ms)
    if status.reason is not Reason.NOT_IDLE:
        return status
    number, minimum = (
        (part.small_files, policy.idle_min_files) if table.append_only else (part.sorted_runs, policy.idle_min_runs)
    )
    if number < minimum:
        return status
    when_ms = part.newest_file_ms + policy.idle_after_ms
    return replace(
        status,
        action=f"merge {part.text or 'its small files'} once idle",
        when=f"at {_clock(when_ms)}",
        when_ms=when_ms,
    )


def _clock(epoch_ms: int | None) -> str:
    return f"{utc_text(epoch_ms)[:16]} UTC"


def _explain_standing(
    state: TableState, table: str, reason: Reason | None, plan: str, resume_job: str = "resume"
) -> tuple[str, str]:
    """Return the next action and its time, as texts, for a state that ends only by a person or with a running run.

    Args:
        state: state of the table or partition.
        table: full name of the table.
        reason: code of the decision's reason, or None for a condition.
        plan: hash of the plan that waits for approval, or "".
        resume_job: name of the job that ends a suspension.
    """
    by_hand = "by hand; nothing starts before"
    name = shlex.quote(table)
    match state:
        case TableState.CORRUPT:
            return f"restore the file, or repair as the error says (`dredge check {name} --deep` lists it)", by_hand
        case TableState.UNREADABLE:
            return "repair the cause that the error names", by_hand
        case TableState.BLOCKED:
            return "repair the table as the check says, then execute the check", by_hand
        case TableState.SUSPENDED:
            return (
                f"read the newest run's error, repair the cause, then launch the job {resume_job} for {table}",
                by_hand,
            )
        case TableState.FAILING:
            return "read the run's error, repair the cause, then materialise the layout", by_hand
        case TableState.APPROVAL:
            return f"approve it: `dredge apply {plan} --approved-by NAME`" if plan else "approve the plan", by_hand
        case TableState.PERSON if reason in {Reason.ORDER, Reason.NAME}:
            return f"`dredge compact {name} --full`", by_hand
        case TableState.PERSON:
            return "read the run's outcome, then materialise the layout", "by hand, or after the next commit"
        case TableState.NOT_LOADED:
            return "reload the code location", by_hand
        case TableState.PAUSED:
            return "end the pause, if it is over", "not while it is paused; a critical backlog starts anyway"
        case TableState.RUNNING:
            return "wait for the run", "when the run ends"
        case TableState.NOT_MAINTAINED:
            return "none: maintain it with the engine that writes it", "-"
        case _:
            return "none", "-"
