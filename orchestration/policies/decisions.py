"""The decisions of sensors: pure functions from a partition's health and policy to an outcome with its reason, and from failed runs to a next try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lsm_core.clock import utc_text
from lsm_core.maintenance.action import size_text
from orchestration.health import PartitionHealth
from orchestration.policies.policy import Policy
from orchestration.table_card import count_text

DAY_MS: Final = 24 * 60 * 60 * 1000


class Outcome(StrEnum):
    """What a sensor does about a partition."""

    RUN = "run"
    DECLINE = "decline"


class Reason(StrEnum):
    """Why, as a code that programs can count; every decision's text adds the numbers."""

    TRIGGER_REACHED = "trigger reached"
    IDLE = "idle"
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
    """One line of a tick. ``number`` and ``threshold`` are what was compared, in the reason's own unit."""

    table: str
    partition: str
    outcome: Outcome
    reason: Reason
    text: str
    number: int | None = None
    threshold: int | None = None
    full: bool = False

    @property
    def subject(self) -> str:
        """The table, with its partition."""
        return f"{self.table}/{self.partition}" if self.partition else self.table

    def line(self) -> str:
        """How the tick says it: ``db.orders/dt=1: decline: 3 sorted runs < 5``."""
        return f"{self.subject}: {self.outcome.value} ({self.reason.value}): {self.text}"


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


def backlog_of(states: Sequence[PartitionHealth], policy: Policy) -> tuple[Backlog, int, str]:
    """Return how bad the worst bucket's level-0 pile is, its files and its partition."""
    worst = max(states, key=lambda state: state.level0_files, default=None)
    if worst is None:
        return Backlog.OK, 0, ""
    if worst.level0_files >= max(policy.level0_emergency, policy.level0_critical):
        return Backlog.EMERGENCY, worst.level0_files, worst.text
    if worst.level0_files >= policy.level0_critical:
        return Backlog.CRITICAL, worst.level0_files, worst.text
    level = Backlog.WARN if worst.level0_files >= policy.level0_warn else Backlog.OK
    return level, worst.level0_files, worst.text


MINUTE_MS: Final = 60_000
WAITS_MS: Final = (10 * MINUTE_MS, 60 * MINUTE_MS)
"""How long after the first failure of a plan its second run starts, and after the second its third; there is no fourth."""
TRIES: Final = len(WAITS_MS) + 1


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
