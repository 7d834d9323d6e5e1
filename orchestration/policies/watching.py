"""What is to be told of a table that no single compaction mends: piles, stalls, long pauses, a history that does not shrink. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lsm_core.clock import utc_text
from lsm_core.maintenance.checks.layout_condition import Verdict
from lsm_core.maintenance.debts import HistoryDebt
from orchestration.health import PartitionHealth
from orchestration.policies.decisions import Backlog, DueWork, backlog_of
from orchestration.policies.policy import DAY_MS, HOUR_MS, Policy
from orchestration.table_card import count_text


class Trouble(StrEnum):
    """What is wrong, as a code that programs can count."""

    LEVEL0 = "level 0 piles up"
    SMALL_FILES = "small files pile up"
    FILE_SIZE = "files are small on average"
    STALLED = "maintenance stands still"
    PAUSED = "paused for long"
    SUSPENDED = "suspended after failures"
    BLOCKED = "a blocking check failed"
    UNREADABLE = "cannot be looked at"
    SNAPSHOTS = "snapshots do not expire"
    GAP = "snapshots are missing"
    CONSUMER = "a consumer holds snapshots"
    TAGS = "tags pile up"
    MANIFESTS = "manifests pile up"
    LATE_DATA = "late data woke a partition"
    SENSOR = "a sensor is silent"
    POLICIES = "the policy file does not count"


class Severity(StrEnum):
    """How bad it is: info is shown, and nobody is alerted."""

    INFO = "info"
    WARN = "warn"
    ERROR = "error"
    EMERGENCY = "emergency"


@dataclass(frozen=True)
class Finding:
    """One thing to tell of ``subject`` (a table, a sensor, the policy file): ``text`` has the numbers, which may change while the `key` stays."""

    subject: str
    trouble: Trouble
    severity: Severity
    text: str

    @property
    def key(self) -> str:
        """What an alert is told once for, until it changes: the subject, what is wrong with it, and how bad."""
        return f"{self.subject}: {self.trouble} ({self.severity})"

    def line(self) -> str:
        """How ticks and alerts say it."""
        return f"{self.subject}: {self.severity.value} ({self.trouble.value}): {self.text}"


def find_small_files(table: str, pile: Verdict, average: Verdict) -> list[Finding]:
    """Return the alerts of an append table's files, as its checks `small_files_backlog` and `average_file_size` judge them."""
    act = f"; `dredge compact {table}` gathers them"
    if not pile.passed:
        return [
            Finding(table, Trouble.SMALL_FILES, Severity.ERROR if pile.critical else Severity.WARN, pile.text + act)
        ]
    return [] if average.passed else [Finding(table, Trouble.FILE_SIZE, Severity.WARN, average.text)]


def find_backlog(table: str, states: Sequence[PartitionHealth], policy: Policy) -> list[Finding]:
    """The level-0 alert of a table with a primary key: at the policy's warning, critical and emergency numbers of files in one bucket."""
    level, files, where = backlog_of(states, policy)
    if level is Backlog.OK:
        return []
    limit, severity = {
        Backlog.WARN: (policy.level0_warn, Severity.WARN),
        Backlog.CRITICAL: (policy.level0_critical, Severity.ERROR),
        Backlog.EMERGENCY: (policy.level0_emergency, Severity.EMERGENCY),
    }[level]
    act = "" if level is Backlog.WARN else f"; `dredge recover {table}` merges it in passes"
    place = f" in {where}" if where else ""
    return [
        Finding(table, Trouble.LEVEL0, severity, f"{level.value}: {files:,} level-0 files >= {limit:,}{place}{act}")
    ]


def find_stall(table: str, due: Mapping[str, DueWork], policy: Policy, now_ms: int) -> list[Finding]:
    """The watchdog: something is ``due`` (by partition), could have been done for too long, and nothing was compacted since."""
    late = overdue(due, policy, now_ms)
    if not late:
        return []
    oldest = min(late, key=lambda text: late[text].since_ms)
    where = f" in {oldest}" if oldest else ""
    more = f" (and in {count_text(len(late) - 1, 'more partition')})" if len(late) > 1 else ""
    hours = (now_ms - late[oldest].since_ms) // HOUR_MS
    limit = policy.watch.stalled_after_ms // HOUR_MS
    text = f"nothing was compacted for {hours} h >= {limit} h{where}{more}, and something is due: {late[oldest].text}"
    return [Finding(table, Trouble.STALLED, Severity.ERROR, text)]


def overdue(due: Mapping[str, DueWork], policy: Policy, now_ms: int) -> dict[str, DueWork]:
    """Return what of ``due`` could have been done for the policy's ``watch.stalled_after`` or longer."""
    limit = max(policy.watch.stalled_after_ms, 1)
    return {text: one for text, one in due.items() if now_ms - one.since_ms >= limit}


def find_pause(table: str, policy: Policy, now_ms: int) -> list[Finding]:
    """A pause that says since when, and that somebody may have forgotten."""
    if policy.paused is None or policy.paused_since_ms is None:
        return []
    days, limit = (now_ms - policy.paused_since_ms) // DAY_MS, policy.watch.paused_at_most_ms // DAY_MS
    if now_ms - policy.paused_since_ms < policy.watch.paused_at_most_ms:
        return []
    text = f"for {days} d >= {limit} d: {policy.paused} ({policy.origin('paused')})"
    return [Finding(table, Trouble.PAUSED, Severity.WARN, text)]


def find_history(table: str, debt: HistoryDebt, policy: Policy, now_ms: int) -> list[Finding]:
    """What keeps the history from shrinking: snapshots, consumers, gaps, tags, manifests. ``debt`` was taken with the policy's grace."""
    found = []
    grace = policy.watch.overdue_after_ms // HOUR_MS
    if debt.overdue:
        since = f"; the oldest is of {utc_text(debt.earliest_ms)} UTC" if debt.earliest_ms is not None else ""
        text = f"{debt.overdue:,} of {debt.snapshots:,} snapshots were to expire {grace} h ago or longer{since}; `dredge expire {table}`"
        found.append((Trouble.SNAPSHOTS, Severity.WARN, text))
    if debt.held:
        seen = "" if debt.consumer_seen_ms is None else f", heard of last {_days(now_ms - debt.consumer_seen_ms)} ago,"
        text = (
            f"consumer {debt.consumer!r}{seen} has yet to read {debt.consumer_behind:,} snapshots and keeps {debt.held:,} that were to expire; "
            f"`dredge consumers {table}`, or set consumer.expiration-time"
        )
        found.append((Trouble.CONSUMER, Severity.WARN, text))
    if debt.gaps:
        first, last = debt.gaps[0]
        more = f" (and {len(debt.gaps) - 1} more gaps)" if len(debt.gaps) > 1 else ""
        text = f"{first}..{last}{more}, which can end expiry by other engines for good; `dredge repair {table}` bridges the gap"
        found.append((Trouble.GAP, Severity.WARN, text))
    if debt.overdue_tags or debt.tags > policy.watch.tags:
        over = (
            f", {len(debt.overdue_tags)} of them kept longer than was said ({debt.overdue_tags[0]})"
            if debt.overdue_tags
            else ""
        )
        text = f"{count_text(debt.tags, 'tag')} (limit {policy.watch.tags}){over}; each keeps its files: `dredge holds {table}`"
        found.append((Trouble.TAGS, Severity.WARN, text))
    if debt.small_manifests >= policy.watch.small_manifests:
        text = (
            f"{debt.small_manifests:,} of {debt.manifests:,} manifests are small or hold deletions (limit {policy.watch.small_manifests:,}): every plan reads "
            f"them; `dredge compact-manifests {table}`"
        )
        found.append((Trouble.MANIFESTS, Severity.WARN, text))
    return [Finding(table, trouble, severity, text) for trouble, severity, text in found]


def find_late_data(table: str, states: Sequence[PartitionHealth], policy: Policy) -> list[Finding]:
    """Partitions that had rested for the policy's idle time when somebody wrote to them again."""
    woken: dict[str, int] = {}
    for state in states:
        gaps = [
            bucket.oldest_level0_ms - bucket.last_compaction_ms
            for bucket in state.buckets
            if bucket.oldest_level0_ms is not None and bucket.last_compaction_ms is not None
        ]
        if state.text and max(gaps, default=0) >= policy.idle_after_ms:
            woken[state.text] = max(gaps)
    if not woken:
        return []
    first = min(woken)
    more = f" (and {count_text(len(woken) - 1, 'more partition')})" if len(woken) > 1 else ""
    text = f"{first}{more} was written to {_days(woken[first])} after its last compaction: merged again by the trigger, or once it is idle"
    return [Finding(table, Trouble.LATE_DATA, Severity.INFO, text)]


def _days(span_ms: int) -> str:
    return f"{span_ms // DAY_MS} d" if span_ms >= DAY_MS else f"{max(span_ms, 0) // HOUR_MS} h"


__all__ = [
    "Finding",
    "Severity",
    "Trouble",
    "find_backlog",
    "find_history",
    "find_late_data",
    "find_pause",
    "find_small_files",
    "find_stall",
    "overdue",
]
