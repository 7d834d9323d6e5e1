"""The decisions of sensors: one pure function from health, policy, history and clock to an outcome with its reason and numbers.

`decide` is the function, `subjects` what it is asked about, and `settle_in_turn` the order in which several that are due share a budget. Nothing here
reads a table or asks Dagster: callers say what they know, and ask for more only where what they know declines nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from lsm_core.clock import utc_text
from lsm_core.maintenance.action import size_text
from lsm_core.options import TableOptions
from orchestration.health import PartitionHealth, TableHealth
from orchestration.policies.budgets import Budget
from orchestration.policies.partition_age import expires_ms
from orchestration.policies.policy import DAY_MS, HOUR_MS, Policy, SortRule
from orchestration.table_card import count_text

MINUTE_MS: Final = 60_000
WRITERS_SILENT_MS: Final = 60 * MINUTE_MS
"""Writers that compact do so with their next commit; without one for so long, the platform compacts what they left."""
_LAST_PART: Final = 10
"""A partition that is kept for so many days is about to expire on the last of them; it is never more than a day."""


class Outcome(StrEnum):
    """What a sensor does about a partition."""

    RUN = "run"
    DECLINE = "decline"


class Reason(StrEnum):
    """Why, as a code that programs can count; every decision's text adds the numbers."""

    TRIGGER_REACHED = "trigger reached"
    IDLE = "idle"
    UNSORTED = "unsorted"
    RECOVERY = "recovery"
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
    BLOCKED = "blocked by a failed check"
    SUSPENDED = "suspended"
    APPROVAL = "waits for approval"
    REPLAY = "replay in progress"
    OUT_OF_TIME = "out of time"
    ELSEWHERE = "another sensor's"
    WATCHING = "its writers compact"
    EXPIRING = "about to expire"
    ORDER = "would change answers"
    RELOAD = "changed since it was loaded"
    NAME = "name that Dagster cannot hold"


class Backlog(StrEnum):
    """How bad the pile of level-0 files in a partition's worst bucket is."""

    OK = "OK"
    WARN = "WARN"
    CRITICAL = "CRITICAL"
    EMERGENCY = "EMERGENCY"


@dataclass(frozen=True)
class Decision:
    """One line of a tick. ``number`` and ``threshold`` are what was compared, in the reason's own unit.

    Of what is due: ``full`` merges everything, ``sort`` (None: nothing) sorts everything, ``cost`` are the bytes that it reads, ``benefit`` the score (0 to 100) of what it mends, ``waited_ms`` for how long it
    has been due, ``overdue`` whether that is too long, ``urgent`` whether a backlog is critical. Of what is to start, ``plan`` is the hash, and ``attempt`` counts the plan's runs from 1.
    """

    table: str
    partition: str
    outcome: Outcome
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
    plan: str = ""
    attempt: int = 0
    sort: SortRule | None = None

    @property
    def subject(self) -> str:
        """The table, with its partition."""
        return f"{self.table}/{self.partition}" if self.partition else self.table

    def line(self) -> str:
        """How the tick says it: ``db.orders/dt=1: decline: 3 sorted runs < 5``."""
        return f"{self.subject}: {self.outcome.value} ({self.reason.value}): {self.text}"

    def declined(self, reason: Reason, text: str) -> Decision:
        """Return it as a decline for that reason."""
        return replace(self, outcome=Outcome.DECLINE, reason=reason, text=text)


class Asked(StrEnum):
    """What a sensor, or a round over many tables, asks about: its own kind of work is the only one that it starts."""

    SORTED_RUNS = "sorted runs"
    IDLE = "idle partitions"
    OWN_RULES = "what the tables' own rules ask for"
    """What a round of `maintain` does, in tables with and without a primary key."""


class Now(NamedTuple):
    """The time (epoch ms): of the table's own clock, which may be injected, and of the wall, by which Dagster measures runs."""

    table_ms: int
    wall_ms: int


@dataclass(frozen=True)
class TableFacts:
    """What metadata say of a table. ``refusal``: why maintenance leaves its files alone; ``order``: why a compaction of a part of its runs would change answers ("": none would).

    ``sorted_ms``: when (epoch ms) each partition was last sorted, by its text; None: nobody asked, as nothing sorts the table.
    ``writers_compact``: whether its writers compacted it lately, and so will again with their next commits.
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

    @property
    def sortable(self) -> bool:
        """Whether a sort compaction takes the table: its rows have no key and no buckets."""
        return self.append_only and self.options.bucket == -1


@dataclass(frozen=True)
class Subject:
    """What is decided about: a partition of the table with its health, or the whole table where ``state`` is None and no rows wait for a bucket."""

    table: TableFacts
    asked: Asked
    partition: str = ""
    state: PartitionHealth | None = None
    waiting_rows: int = 0


class Ending(StrEnum):
    """How a run ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"


@dataclass(frozen=True)
class Try:
    """A run that was given the plan; ``ended_ms`` is when it ended (epoch ms of the wall's clock, as Dagster keeps it)."""

    run_id: str
    ending: Ending
    ended_ms: int


@dataclass(frozen=True)
class Planned:
    """What planning gave: the plan's ``hash`` and what it does (``text``), reading ``cost`` bytes; or "" and ``why`` nothing is picked. ``held``: it waits for approval already. ``part``: it merges the oldest runs alone, whatever was due."""

    hash: str
    why: str = ""
    text: str = ""
    cost: int = 0
    held: bool = False
    part: bool = False


@dataclass(frozen=True)
class History:
    """What is known of runs and of the warehouse around; what has its default stands in nobody's way, or was not asked for yet.

    ``budget``: what is left of it. ``out_of_time``: the tick has none left to plan. ``unusable_name``: Dagster cannot hold the partition's. ``blocked``: the blocking check that
    failed; ``at_work``: the id of a run; ``suspended``: why, after failures. ``tries``: the runs of ``plan`` that have ended, the newest first;
    those that ended before ``resumed_ms`` (epoch ms of the wall's clock) do not count.
    """

    budget: Budget | None = None
    out_of_time: bool = False
    unusable_name: bool = False
    blocked: str | None = None
    at_work: str | None = None
    suspended: str | None = None
    plan: Planned | None = None
    tries: Sequence[Try] = ()
    resumed_ms: int = 0


NOTHING_KNOWN: Final = History()


def subjects(table: TableFacts, asked: Asked) -> list[Subject]:
    """Return what is to be decided about a table: its partitions, those first whose rows wait for a bucket, or the whole where one reason holds for all."""
    if _of_whole_table(table, asked) is not None:
        return [Subject(table, asked)]
    waiting = {} if asked is Asked.IDLE else table.health.waiting
    return [
        *(Subject(table, asked, text, waiting_rows=rows) for text, rows in waiting.items()),
        # what got buckets is compacted in the same run
        *(Subject(table, asked, one.text, one) for one in table.health.partitions if one.text not in waiting),
    ]


def decide(subject: Subject, policy: Policy, history: History, now: Now) -> Decision:
    """Return what to do, or why not, from all that is known; equal arguments give equal decisions.

    ``policy``: what holds for the partition. The rules hold in this order, and the first that stands in the way is the reason: what is due; pause and hours, which a critical
    backlog overrides; partitions about to expire; order-sensitive tables; budgets; failed checks, runs at work, suspension; approval and earlier runs of the plan. So
    whoever knows a decline need not find out the rest.
    """
    decision = _of_whole_table(subject.table, subject.asked)
    if decision is not None:
        return decision
    decision = _due(subject, policy, now.table_ms)
    if decision.outcome is Outcome.RUN:
        decision = _worth_it(decision, subject, policy, now.table_ms)
    if decision.outcome is Outcome.RUN:
        decision = _affordable(_with_numbers(decision, subject, policy, history, now.table_ms), history)
    if decision.outcome is Outcome.RUN:
        decision = _unhindered(decision, history)
    if decision.outcome is Outcome.RUN and history.plan is not None:
        if history.plan.part and subject.table.order:
            return decision.declined(Reason.ORDER, f"{decision.text}; {subject.table.order}")
        decision = _with_plan(decision, policy, history, history.plan, now.wall_ms)
    return decision


def decide_all(
    table: TableFacts, asked: Asked, policy_of: Callable[[PartitionHealth | None], Policy], now: Now
) -> list[Decision]:
    """Return a decision for everything that `subjects` names, from metadata alone; ``policy_of``: what holds for a partition, or (None) for the table."""
    return [decide(one, policy_of(one.state), NOTHING_KNOWN, now) for one in subjects(table, asked)]


def most_useful_first(due: Iterable[Decision]) -> list[Decision]:
    """Return critical backlogs first, then what has been due for too long, the longest first; then by benefit per byte that is read, the cheaper of two equals first.

    Names decide the rest, so that the order is the same whatever the order of ``due``.
    """
    return sorted(
        due,
        key=lambda one: (
            not one.urgent,
            not one.overdue,
            -one.waited_ms if one.overdue else 0,
            -one.benefit / max(one.cost, 1),
            one.cost,
            one.subject,
        ),
    )


def settle_in_turn(
    due: Iterable[Decision], budget: Budget, settle: Callable[[Decision, Budget], Decision]
) -> list[Decision]:
    """Return the final decisions about what is due, the most useful first; ``settle`` decides about each with what is left of ``budget`` then.

    What has been due for too long and does not fit has the rest of the hour's bytes kept for it, or smaller ones would always come before it.
    """
    found = []
    for decision in most_useful_first(due):
        final = settle(decision, budget)
        if final.outcome is Outcome.RUN:
            budget = budget.after(final.table, final.cost)
        elif final.reason is Reason.BUDGET and final.overdue and not budget.is_crowded_for(final.table):
            budget = budget.keeping_for(final.subject)
        found.append(final)
    return found


def _of_whole_table(table: TableFacts, asked: Asked) -> Decision | None:
    """The decision that holds for a table whatever its partitions are like, None: each has its own."""
    declined = Decision(table.name, "", Outcome.DECLINE, Reason.UNSUPPORTED, table.refusal or "")
    if table.refusal is not None:
        return declined
    if not table.health.buckets and not table.health.waiting:
        return declined.declined(Reason.EMPTY, "no snapshot yet: nothing to maintain")
    if asked is Asked.SORTED_RUNS and table.append_only:
        text = "append-only: no sorted runs; idle_partition looks after its small files"
        return declined.declined(Reason.ELSEWHERE, text)
    if asked is Asked.IDLE and not table.partitioned and not table.append_only:
        return declined.declined(Reason.NOT_PARTITIONED, "sorted_run looks after the whole table")
    return None


def _due(subject: Subject, policy: Policy, now_ms: int) -> Decision:
    """What is due by the table's rules and the policy's, its pause and hours among them."""
    table, state, trigger = subject.table, subject.state, subject.table.options.compaction_trigger
    rest = rest_of(policy, now_ms)
    if state is None:
        decision = decide_waiting(table.name, subject.partition, subject.waiting_rows)
        return decision if rest is None else decision.declined(rest[0], f"{decision.text}; {rest[1]}")
    if subject.asked is not Asked.IDLE:
        of_files = table.append_only
        decision = decide_small_files(table.name, state) if of_files else decide_sorted_runs(table.name, state, trigger)
        if table.writers_compact:
            decision = _left_to_writers(decision, table, state, policy, now_ms)
        return decision if rest is None else _held_back(decision, rest, state, policy, trigger, append_only=of_files)
    if not table.append_only and state.cost_minor:
        # A partition that its own trigger asks for belongs to the other sensor: two runs would only wait for each other.
        text = f"{state.sorted_runs} sorted runs (trigger {trigger}): sorted_run looks after it"
        return Decision(table.name, state.text, Outcome.DECLINE, Reason.ELSEWHERE, text, state.sorted_runs, trigger)
    decision = decide_idle(table.name, state, policy, append=table.append_only, now_ms=now_ms)
    rule = sort_rule(table, policy)
    if rule is not None:
        decision = decide_sort(decision, state, policy, rule, (table.sorted_ms or {}).get(state.text), now_ms)
    return decision.declined(*rest) if rest is not None and decision.outcome is Outcome.RUN else decision


def _left_to_writers(
    decision: Decision, table: TableFacts, state: PartitionHealth, policy: Policy, now_ms: int
) -> Decision:
    """Return the decision about a partition whose writers compact it: nothing is started unless they fall behind."""
    if decision.outcome is not Outcome.RUN:
        return replace(decision, text=f"{decision.text}; its writers compact: watching")
    stop = table.options.stop_trigger
    silent = max(now_ms - state.newest_file_ms, 0) if state.newest_file_ms else waited_ms(state, now_ms)
    level, _, _ = backlog_of([state], policy, append_only=table.append_only)
    if not table.append_only and state.sorted_runs >= stop:
        behind = f"its writers fell behind ({state.sorted_runs} sorted runs >= stop trigger {stop})"
    elif level is not Backlog.OK:
        behind = f"its writers fell behind (backlog {level.value})"
    elif silent >= WRITERS_SILENT_MS:
        behind = (
            f"its writers are silent ({silent // MINUTE_MS} min without a commit >= {WRITERS_SILENT_MS // MINUTE_MS})"
        )
    else:
        limit = "" if table.append_only else f"at {stop} sorted runs or "
        text = f"{decision.text}; its writers compact: watching (a run starts {limit}{WRITERS_SILENT_MS // MINUTE_MS} min after their last commit)"
        return decision.declined(Reason.WATCHING, text)
    return replace(decision, text=f"{decision.text}; {behind}")


def _held_back(
    decision: Decision,
    rest: tuple[Reason, str],
    state: PartitionHealth,
    policy: Policy,
    trigger: int,
    *,
    append_only: bool,
) -> Decision:
    """The decision as a pause or the hours of the policy leave it: a critical backlog is no time to wait, and says so."""
    (reason, why), limit = rest, policy.watch.small_files_critical if append_only else policy.level0_critical
    level, files, _ = backlog_of([state], policy, append_only=append_only)
    if reason is not Reason.PAUSED and decision.outcome is not Outcome.RUN:
        return decision
    if level in {Backlog.CRITICAL, Backlog.EMERGENCY}:
        overridden = f"the pause ({policy.paused}) is" if reason is Reason.PAUSED else f"its hours ({why}) are"
        text = f"{files} {'small' if append_only else 'level-0'} files >= {limit}: critical; {overridden} overridden"
        return replace(
            decision, outcome=Outcome.RUN, reason=Reason.RECOVERY, text=text, number=files, threshold=limit, full=True
        )
    if decision.threshold is None:
        return decision.declined(reason, f"{decision.text}; {why}")
    return decision.declined(reason, f"{state.sorted_runs} sorted runs (trigger {trigger}); {why}")


def _worth_it(decision: Decision, subject: Subject, policy: Policy, now_ms: int) -> Decision:
    """What is due, unless its partition is about to go anyway, or merging a part of its runs would change answers."""
    state = subject.state
    if state is None:  # rows that no reader sees are no matter of layout
        return decision
    expiring = expiring_of(subject, policy, now_ms)
    if expiring is not None:
        at_ms, margin = expiring
        how = "expires" if now_ms < at_ms else "was to expire"
        text = f"{decision.text}; its partition {how} at {utc_text(at_ms)} UTC: not worth a run"
        return replace(
            decision.declined(Reason.EXPIRING, text),
            number=max(at_ms - now_ms, 0) // HOUR_MS,
            threshold=margin // HOUR_MS,
        )
    if subject.table.order and not decision.full and not subject.table.append_only:
        text = f"{decision.text}; {subject.table.order}"
        return decision.declined(Reason.ORDER, text)
    return decision


def expiring_of(subject: Subject, policy: Policy, now_ms: int) -> tuple[int, int] | None:
    """Return when the partition expires (epoch ms), and for how long before (ms) it counts as about to; None: it is not about to."""
    expiry = expiry_of(subject, policy)
    if expiry is None:
        return None
    kept_ms, at_ms = expiry
    margin = min(DAY_MS, kept_ms // _LAST_PART)
    # Where nothing came of an expiry long ago, nothing will come of it now: that partition is like any other.
    return (at_ms, margin) if at_ms - margin <= now_ms < at_ms + policy.watch.overdue_after_ms else None


def expiry_of(subject: Subject, policy: Policy) -> tuple[int, int] | None:
    """Return for how long partitions are kept (ms), and when the one that is asked about expires (epoch ms); None: nothing drops it by itself.

    So it is where a pause is for retention, too, where an expiry waits for approval, and where values tell no time.
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


def _with_numbers(decision: Decision, subject: Subject, policy: Policy, history: History, now_ms: int) -> Decision:
    """What is due with what it costs, what it is good for, and for how long it has been due."""
    state = subject.state
    if state is None:
        cost, benefit, waited = 0, 100.0, 0
    else:
        cost = sum(one.cost_full if decision.full else one.cost_minor for one in state.buckets) or state.total_bytes
        benefit, waited = state.score, waited_ms(state, now_ms)
    if history.plan is not None and history.plan.hash:
        cost = history.plan.cost
    overdue = decision.reason is Reason.TRIGGER_REACHED and waited >= policy.watch.stalled_after_ms
    append_only = subject.table.append_only
    level = Backlog.OK if state is None else backlog_of([state], policy, append_only=append_only)[0]
    urgent = level in {Backlog.CRITICAL, Backlog.EMERGENCY}
    return replace(decision, cost=cost, benefit=benefit, waited_ms=waited, overdue=overdue, urgent=urgent)


def waited_ms(state: PartitionHealth, now_ms: int) -> int:
    """Return for how long (ms) level 0 has waited since it was written, or since the partition was last compacted; 0 where nothing waits."""
    since = [one.oldest_level0_ms for one in state.buckets if one.oldest_level0_ms is not None]
    done = max((one.last_compaction_ms or 0 for one in state.buckets), default=0)
    return max(now_ms - max(min(since), done), 0) if since else 0


@dataclass(frozen=True)
class DueWork:
    """What a partition wants done, in words, whether or not it may be done now, and since when it could have been (epoch ms)."""

    text: str
    since_ms: int


def due_work(table: TableFacts, policy_of: Callable[[PartitionHealth | None], Policy], now: Now) -> dict[str, DueWork]:
    """Return by partition what wants a compaction, by its table's own rules or since it is idle, and nobody keeps from it but a pause or the hours; not of those about to expire.

    ``policy_of`` as in `decide_all`. What an order-sensitive table's rules ask for is due, too: only a person can do it.
    """
    found: dict[str, DueWork] = {}
    if table.refusal is not None:
        return found
    for asked in (Asked.SORTED_RUNS, Asked.IDLE):
        for subject in subjects(table, asked):
            state = subject.state
            if state is None:
                continue
            policy = policy_of(state)
            one = decide(subject, replace(policy, paused=None, off_peak=None), NOTHING_KNOWN, now)
            if one.outcome is Outcome.RUN or (one.reason is Reason.ORDER and state.cost_minor):
                rest = rest_of(policy, now.table_ms)
                text = one.text if rest is None else f"{one.text}; {rest[1]}"
                found.setdefault(state.text, DueWork(text, due_since_ms(one.reason, state, policy, now.table_ms)))
    return found


def due_since_ms(reason: Reason, state: PartitionHealth, policy: Policy, now_ms: int) -> int:
    """Return since when (epoch ms) what is due for that reason could have started, by the policy's hours; later than ``now_ms`` where they are still to come.

    A pause does not count: whoever forgot it is to learn of what waits.
    """
    if reason in {Reason.IDLE, Reason.UNSORTED}:
        done = max((one.last_compaction_ms or 0 for one in state.buckets), default=0)
        since = max(state.newest_file_ms + policy.idle_after_ms, done)
    else:
        since = now_ms - waited_ms(state, now_ms)
    hours = policy.off_peak
    opened = since if hours is None else hours.next_open(since)
    return now_ms + 1 if opened is None else opened


def _affordable(decision: Decision, history: History) -> Decision:
    """What is due, unless the budget or the tick's time is used up."""
    score = f"(score {decision.benefit:g})"
    why = "" if history.budget is None else history.budget.why_not(decision.table, decision.cost)
    if why:
        return decision.declined(Reason.BUDGET, f"{decision.text}; {why} {score}")
    if history.out_of_time:
        return decision.declined(Reason.OUT_OF_TIME, f"{decision.text}; this tick has no time left to plan it {score}")
    return decision


def _unhindered(decision: Decision, history: History) -> Decision:
    """What is due, unless its name, a failed check, a run at work or its failures keep any plan from getting a run."""
    if history.unusable_name:
        return decision.declined(Reason.NAME, f"{decision.text}; compact it with `dredge compact {decision.table}`")
    if history.blocked is not None:
        return decision.declined(Reason.BLOCKED, history.blocked)
    if history.at_work is not None:
        return decision.declined(Reason.IN_FLIGHT, f"{decision.text}; run {history.at_work[:8]} is at work on it")
    if history.suspended is not None:
        return decision.declined(Reason.SUSPENDED, f"{decision.text}; {history.suspended}")
    return decision


def _with_plan(decision: Decision, policy: Policy, history: History, plan: Planned, wall_ms: int) -> Decision:
    """What is due, unless its plan is empty, waits for approval, or was given to runs before."""
    if not plan.hash:
        text = plan.why if plan.why.startswith(decision.text) else f"{decision.text}, but {plan.why}"
        return decision.declined(Reason.NOTHING_PICKED, text)
    approval = policy.needs_approval("compact")
    counted = [one for one in history.tries if one.ended_ms > history.resumed_ms]
    next_try = decide_next_try(counted, plan.hash, wall_ms)
    if approval and (plan.held or next_try.number is not None):
        text = f"{decision.text}; plan {plan.hash} waits for approval: launch the job apply_plan, or `dredge apply {plan.hash} --approved-by NAME`"
        return replace(decision.declined(Reason.APPROVAL, text), plan=plan.hash)
    if next_try.number is None:
        return decision.declined(next_try.reason, next_try.text)
    text = decision.text
    if plan.text:
        text = plan.text if plan.text.startswith(text) else f"{text}; {plan.text}"
    text = f"{text}; {next_try.text}" if next_try.text else text
    # Those before somebody resumed the table do not count, but Dagster knows the keys of their runs.
    attempt = next_try.number + len(history.tries) - len(counted)
    return replace(decision, text=text, plan=plan.hash, attempt=attempt)


def rest_of(policy: Policy, now_ms: int) -> tuple[Reason, str] | None:
    """Return why nothing is to start now (epoch ms), by the policy alone: a pause, or the hours that it leaves; None: it may."""
    if policy.paused is not None:
        return Reason.PAUSED, f"paused by policy: {policy.paused}"
    hours = policy.off_peak
    if hours is None or hours.is_open(now_ms):
        return None
    opens = hours.next_open(now_ms)
    again = f"next at {utc_text(opens)} UTC" if opens is not None else "not within eight days"
    return Reason.OFF_PEAK, f"outside {hours.text()}, {again}"


def decide_sorted_runs(table: str, state: PartitionHealth, trigger: int) -> Decision:
    """Compare the sorted runs of the partition's worst bucket with the table's own trigger."""
    runs = state.sorted_runs
    if runs < trigger and not state.cost_minor:
        if runs <= 1:
            text = f"{count_text(runs, 'sorted run')} < {trigger}; {size_text(state.total_bytes)}: nothing to merge"
        else:
            would = (
                f"a full compaction would drop up to {count_text(state.deletes, 'delete')} and "
                if state.deletes
                else "a full compaction would "
            )
            text = f"{runs} sorted runs < {trigger}; {size_text(state.total_bytes)}{_amplification(state)}; {would}save one merge of {count_text(state.rows, 'row')}: not worth a run"
        return Decision(table, state.text, Outcome.DECLINE, Reason.TOO_FEW_RUNS, text, runs, trigger)
    text = (
        f"{runs} sorted runs >= {trigger}"
        if runs >= trigger
        else f"{runs} sorted runs, and the table's own rules want {size_text(state.cost_minor)} merged"
    )
    return Decision(table, state.text, Outcome.RUN, Reason.TRIGGER_REACHED, text, runs, trigger)


def decide_small_files(table: str, state: PartitionHealth) -> Decision:
    """Whether the rules of a table without a primary key pick small files, or files with deleted rows, of the partition."""
    files = count_text(state.small_files, "small file")
    if not state.cost_minor:
        text = f"{files}, {size_text(state.total_bytes)}: the table's own rules want nothing merged"
        return Decision(table, state.text, Outcome.DECLINE, Reason.TOO_FEW_FILES, text, state.small_files)
    text = f"{files}, and the table's own rules want {size_text(state.cost_minor)} merged"
    return Decision(table, state.text, Outcome.RUN, Reason.TRIGGER_REACHED, text, state.small_files)


def decide_upkeep(
    table: str, action: str, refusal: str | None, policy: Policy, history: History, now_ms: int
) -> Decision | None:
    """Return why an action that compacts no data, such as an expiry, may not be done to a table now (epoch ms); None: it may.

    ``refusal``: why maintenance leaves the table's files alone. What expires rests only where the pause says so, and at any hour may be done; the rest keeps to both.
    """
    declined = Decision(table, "", Outcome.DECLINE, Reason.UNSUPPORTED, refusal or "")
    if refusal is not None:
        return declined
    if history.blocked is not None:
        return declined.declined(Reason.BLOCKED, history.blocked)
    if history.at_work is not None:
        return declined.declined(Reason.IN_FLIGHT, f"run {history.at_work[:8]} is at work on it")
    rest = rest_of(policy, now_ms)
    if action in EXPIRING_ACTIONS and not policy.rests:
        rest = None
    return None if rest is None else declined.declined(*rest)


EXPIRING_ACTIONS: Final = frozenset(
    {"expire_partitions", "expire_tags", "expire_snapshots", "expire_changelogs", "orphans", "trash"}
)
"""Actions of retention."""


def decide_waiting(table: str, partition: str, rows: int) -> Decision:
    """Postponed rows, which no reader sees, get their buckets."""
    text = f"{count_text(rows, 'postponed row')} without a bucket: no reader sees them"
    return Decision(table, partition, Outcome.RUN, Reason.ROWS_WAIT, text, rows, 1)


def _amplification(state: PartitionHealth) -> str:
    """The two numbers that universal compaction weighs besides the runs; "" where there is nothing to compare."""
    facts = state.worst.facts
    percent, limit = facts.get("amplification_percent"), facts.get("max_amplification_percent")
    if percent is None or limit is None:
        return ""
    return f"; newer runs hold {int(percent)} % of the oldest run's bytes (limit {int(limit)} %)"


def decide_idle(table: str, state: PartitionHealth, policy: Policy, *, append: bool, now_ms: int) -> Decision:
    """Decide whether a partition that nobody writes to any more deserves one last, full compaction."""
    idle = max(now_ms - state.newest_file_ms, 0)
    days, wanted = idle // DAY_MS, policy.idle_after_ms // DAY_MS
    number, minimum = (
        (state.small_files, policy.idle_min_files) if append else (state.sorted_runs, policy.idle_min_runs)
    )
    noun = count_text(number, "small file" if append else "sorted run")
    if idle < policy.idle_after_ms:
        text = f"idle {days} d < {wanted} d ({noun})"
        return Decision(table, state.text, Outcome.DECLINE, Reason.NOT_IDLE, text, days, wanted)
    if append and number < minimum and state.cost_minor:
        # so few small files are not asked for by their number: rows of these are marked as deleted
        text = f"idle {days} d >= {wanted} d, {count_text(state.deleted_rows, 'deleted row')}: full compaction"
        return Decision(table, state.text, Outcome.RUN, Reason.IDLE, text, number, minimum, full=True)
    if number < minimum:
        reason = Reason.TOO_FEW_FILES if append else Reason.ONE_RUN
        why = f"{noun} < {minimum}" if append else "one run per bucket"
        text = f"idle {days} d, {why}: nothing to merge"
        return Decision(table, state.text, Outcome.DECLINE, reason, text, number, minimum)
    text = f"idle {days} d >= {wanted} d, {noun} >= {minimum}: full compaction"
    return Decision(table, state.text, Outcome.RUN, Reason.IDLE, text, number, minimum, full=True)


def sort_rule(table: TableFacts, policy: Policy) -> SortRule | None:
    """Return how the table's partitions are sorted: as the policy says, else by `clustering.columns` where the table has it; None: not at all."""
    if not table.sortable or policy.sort is False:
        return None
    has_columns = bool((table.options.text("clustering.columns") or "").strip())
    if policy.sort is None:
        return SortRule() if has_columns else None
    return policy.sort if policy.sort.by or has_columns else None


def decide_sort(
    decision: Decision, state: PartitionHealth, policy: Policy, rule: SortRule, sorted_ms: int | None, now_ms: int
) -> Decision:
    """Return the decision to sort a partition, or ``decision`` (what its small files ask for) where it is sorted, or not to be sorted yet.

    ``sorted_ms``: when the partition was last sorted (epoch ms), None: never. Files are younger than that where somebody wrote since.
    """
    if sorted_ms is not None and state.newest_file_ms <= sorted_ms and not state.deleted_rows:
        text = f"sorted at {utc_text(sorted_ms)} UTC, and nothing was written since"
        return replace(decision, outcome=Outcome.DECLINE, reason=Reason.ONE_RUN, text=text, full=False)
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
        decision.table, state.text, Outcome.RUN, Reason.UNSORTED, text, state.files, 1, full=True, sort=rule
    )


def backlog_of(
    states: Sequence[PartitionHealth], policy: Policy, *, append_only: bool = False
) -> tuple[Backlog, int, str]:
    """Return how bad the worst bucket's level-0 pile is, its files and its partition.

    ``append_only``: of a table without a key the small files of the worst partition count, by the limits of `watch`; large files are no pile.
    """
    if append_only:
        piled = max(states, key=lambda state: state.small_files, default=None)
        small, watch = (0 if piled is None else piled.small_files), policy.watch
        if piled is None or small < watch.small_files:
            return Backlog.OK, small, "" if piled is None else piled.text
        critical = small >= max(watch.small_files_critical, watch.small_files)
        return Backlog.CRITICAL if critical else Backlog.WARN, small, piled.text
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
"""How long after the first failure of a plan its second run starts, and after the second its third; there is no fourth."""
TRIES: Final = len(WAITS_MS) + 1


@dataclass(frozen=True)
class NextTry:
    """``number`` of the try to start now (1: the first); None: no try now, for the ``reason`` and ``text`` that the tick says."""

    number: int | None
    text: str = ""
    reason: Reason = Reason.DONE_BEFORE


def decide_next_try(tries: Sequence[Try], plan: str, now_ms: int) -> NextTry:
    """Decide from all runs of one plan, newest first: only failures are repeated, a run that a person ended never is."""
    if not tries:
        return NextTry(1)
    last, failed = tries[0], sum(one.ending is Ending.FAILED for one in tries)
    run, until = f"run {last.run_id[:8]}", "not requested again until a commit changes the plan"
    by_hand = "materialise the layout to start one by hand"
    if last.ending is Ending.DONE:
        return NextTry(None, f"plan {plan[:12]} was given to {run}, which succeeded; see its outcome")
    if last.ending is Ending.CANCELED:
        return NextTry(None, f"plan {plan[:12]}: {run} was canceled: {until}; {by_hand}", Reason.CANCELED)
    if failed >= TRIES:
        text = f"plan {plan[:12]}: {run} failed, the last of {TRIES} tries: {until}; see its error, then {by_hand}"
        return NextTry(None, text, Reason.FAILED)
    wait = last.ended_ms + WAITS_MS[failed - 1] - now_ms
    if wait > 0:
        minutes = -(-wait // MINUTE_MS)
        text = (
            f"plan {plan[:12]}: {run} failed, try {failed} of {TRIES}: requested again in {minutes} min; or {by_hand}"
        )
        return NextTry(None, text, Reason.FAILED)
    return NextTry(failed + 1, f"try {failed + 1} of {TRIES}: {run} failed")
