"""Alerts about conditions that no single compaction resolves: backlogs, stalls, long pauses, growing history. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dredge.platform_core.health import PartitionHealth
from dredge.platform_core.policies.decisions import Backlog, DueWork, backlog_of
from dredge.platform_core.policies.permanent_failures import PermanentFailure
from dredge.platform_core.policies.policy import DAY_MS, HOUR_MS, Policy
from dredge.platform_core.table_card import count_text
from lsm_core.clock import utc_text
from lsm_core.maintenance.checks.layout_condition import ConditionVerdict
from lsm_core.maintenance.history_health import HistoryHealth
from lsm_core.maintenance.iceberg_lag import IcebergLag


class AlertCondition(StrEnum):
    """Condition that an alert is about, as a code that programs can count."""

    LEVEL0 = "level 0 piles up"
    SMALL_FILES = "small files pile up"
    FILE_SIZE = "files are small on average"
    STALLED = "maintenance stands still"
    PAUSED = "paused for long"
    SUSPENDED = "suspended after failures"
    BLOCKED = "a blocking check failed"
    CORRUPT = "a file is damaged or lost"
    NO_RETRY = "a run failed and no retry helps"
    SCHEDULED = "scheduled maintenance cannot read a table"
    UNREADABLE = "cannot be looked at"
    SNAPSHOTS = "snapshots do not expire"
    GAP = "snapshots are missing"
    CONSUMER = "a consumer holds snapshots"
    TAGS = "tags pile up"
    MANIFESTS = "manifests pile up"
    ICEBERG = "Iceberg readers lag"
    LATE_DATA = "late data woke a partition"
    SENSOR = "a sensor is silent"
    POOL = "a step waits for a free pool"
    POLICIES = "the policy file does not count"


class Severity(StrEnum):
    """Severity of a finding; findings of severity info are shown, but raise no alert."""

    INFO = "info"
    WARN = "warn"
    ERROR = "error"
    EMERGENCY = "emergency"


@dataclass(frozen=True)
class Finding:
    """Finding about a table, a sensor or the policy file.

    Attributes:
        subject: table, sensor or file that the finding is about.
        trouble: code of the condition.
        severity: severity of the condition.
        text: explanation with numbers, which may change while the `key` stays the same.
        cause: cause that other findings may share, so that a message has one line for all; "" if it is unknown.
        run_id: id of the failed run, or "".
    """

    subject: str
    trouble: AlertCondition
    severity: Severity
    text: str
    cause: str = ""
    run_id: str = ""

    @property
    def key(self) -> str:
        """Identity of the alert: subject, condition and severity.

        While the key stays the same, the alert is not sent again, even if the text changes.
        """
        return f"{self.subject}: {self.trouble} ({self.severity})"

    def line(self) -> str:
        """Return the finding as one line for ticks and alerts."""
        return f"{self.subject}: {self.severity.value} ({self.trouble.value}): {self.text}"


def find_small_files(table: str, pile: ConditionVerdict, average: ConditionVerdict) -> list[Finding]:
    """Return the alerts about an append table's small files.

    Args:
        table: full name of the table.
        pile: result of the check `small_files_backlog`.
        average: result of the check `average_file_size`.
    """
    act = f"; `dredge compact {shlex.quote(table)}` gathers them"
    if not pile.passed:
        return [
            Finding(
                table, AlertCondition.SMALL_FILES, Severity.ERROR if pile.critical else Severity.WARN, pile.text + act
            )
        ]
    return [] if average.passed else [Finding(table, AlertCondition.FILE_SIZE, Severity.WARN, average.text)]


def find_backlog(table: str, states: Sequence[PartitionHealth], policy: Policy) -> list[Finding]:
    """Return the level-0 alert of a table with a primary key.

    The limits are the policy's warning, critical and emergency numbers of files in one bucket.

    Args:
        table: full name of the table.
        states: health of each partition.
        policy: policy of the table.

    Returns:
        One finding, or an empty list if no limit is reached.
    """
    level, files, where = backlog_of(states, policy)
    if level is Backlog.OK:
        return []
    limit, severity = {
        Backlog.WARN: (policy.level0_warn, Severity.WARN),
        Backlog.CRITICAL: (policy.level0_critical, Severity.ERROR),
        Backlog.EMERGENCY: (policy.level0_emergency, Severity.EMERGENCY),
    }[level]
    act = "" if level is Backlog.WARN else f"; `dredge recover {shlex.quote(table)}` merges it in passes"
    place = f" in {where}" if where else ""
    return [
        Finding(
            table, AlertCondition.LEVEL0, severity, f"{level.value}: {files:,} level-0 files >= {limit:,}{place}{act}"
        )
    ]


def find_iceberg_lag(table: str, lag: IcebergLag | None, policy: Policy, now_ms: int) -> list[Finding]:
    """Return the alert about a table's Iceberg readers.

    They fail or see rows that the table no longer has, or they lag by more than twice the policy's `iceberg_lag`, so
    that the compactions that it makes due do not run or do not suffice.

    Args:
        table: full name of the table.
        lag: lag of the readers, or None for a table without any.
        policy: policy of the table.
        now_ms: epoch ms.
    """
    if lag is None:
        return []
    limit, behind = policy.iceberg_lag_ms, lag.lag_ms(now_ms)
    if not lag.is_wrong and (limit is None or behind <= 2 * limit):
        return []
    text = lag.text
    if not lag.is_wrong and limit is not None:
        text = f"{behind // HOUR_MS} h > twice {limit / HOUR_MS:g} h ({policy.origin('iceberg_lag')}): {text}"
    return [Finding(table, AlertCondition.ICEBERG, Severity.WARN, text)]


def find_stall(table: str, due: Mapping[str, DueWork], policy: Policy, now_ms: int) -> list[Finding]:
    """Return the alert about due work that has waited for too long although it was allowed to run.

    Args:
        table: full name of the table.
        due: due work by partition.
        policy: policy of the table.
        now_ms: epoch ms.
    """
    stalled = find_overdue_work(due, policy, now_ms)
    if not stalled:
        return []
    oldest = min(stalled, key=lambda text: stalled[text].since_ms)
    where = f" in {oldest}" if oldest else ""
    more = f" (and in {count_text(len(stalled) - 1, 'more partition')})" if len(stalled) > 1 else ""
    hours = (now_ms - stalled[oldest].since_ms) // HOUR_MS
    limit = policy.watch.stalled_after_ms // HOUR_MS
    text = f"nothing was compacted for {hours} h >= {limit} h{where}{more}, and work is due: {stalled[oldest].text}"
    return [Finding(table, AlertCondition.STALLED, Severity.ERROR, text, _pause_cause(policy))]


def _pause_cause(policy: Policy) -> str:
    """Return the pause of a policy as text: its reason and its place in the policy file; "" without a pause.

    All tables that one entry of the file pauses get the same text. Alerts with the same text share a line in messages.
    """
    return "" if policy.paused is None else f"paused by policy: {policy.paused} ({policy.origin('paused')})"


def find_overdue_work(due: Mapping[str, DueWork], policy: Policy, now_ms: int) -> dict[str, DueWork]:
    """Return the due work that has been allowed to run for the policy's ``watch.stalled_after`` or longer.

    Args:
        due: due work by partition path.
        policy: policy of the table.
        now_ms: epoch ms.

    Returns:
        Overdue work by partition path.
    """
    limit = max(policy.watch.stalled_after_ms, 1)
    return {text: work for text, work in due.items() if now_ms - work.since_ms >= limit}


def find_pause(table: str, policy: Policy, now_ms: int) -> list[Finding]:
    """Return the alert about a pause that began so long ago that it may have been forgotten.

    Args:
        table: full name of the table.
        policy: policy of the table, with the limit.
        now_ms: epoch ms.

    Returns:
        One finding, or an empty list without such a pause. A pause without a start date raises no alert.
    """
    if policy.paused is None or policy.paused_since_ms is None:
        return []
    days, limit = (now_ms - policy.paused_since_ms) // DAY_MS, policy.watch.paused_at_most_ms // DAY_MS
    if now_ms - policy.paused_since_ms < policy.watch.paused_at_most_ms:
        return []
    text = f"for {days} d >= {limit} d: {policy.paused} ({policy.origin('paused')})"
    return [Finding(table, AlertCondition.PAUSED, Severity.WARN, text, _pause_cause(policy))]


def find_history(table: str, debt: HistoryHealth, policy: Policy, now_ms: int) -> list[Finding]:
    """Return the alerts about a table's history: overdue snapshots and tags, slow consumers, id gaps, manifests.

    Args:
        table: full name of the table.
        debt: snapshots, tags and manifests that are overdue for expiry, measured with the grace period of the policy.
        policy: policy of the table.
        now_ms: epoch ms.
    """
    problems = []
    name = shlex.quote(table)
    grace = policy.watch.overdue_after_ms // HOUR_MS
    if debt.overdue:
        since = f"; the oldest is of {utc_text(debt.earliest_ms)} UTC" if debt.earliest_ms is not None else ""
        text = (
            f"{debt.overdue:,} of {debt.snapshots:,} snapshots were to expire {grace} h ago or longer{since}; "
            f"`dredge expire {name}`"
        )
        problems.append((AlertCondition.SNAPSHOTS, Severity.WARN, text))
    if debt.held:
        seen = "" if debt.consumer_seen_ms is None else f", last seen {_days(now_ms - debt.consumer_seen_ms)} ago,"
        text = (
            f"consumer {debt.consumer!r}{seen} has yet to read {debt.consumer_behind:,} snapshots and keeps "
            f"{debt.held:,} that were to expire; `dredge consumers delete {name} {shlex.quote(str(debt.consumer))}`, "
            "or set consumer.expiration-time"
        )
        problems.append((AlertCondition.CONSUMER, Severity.WARN, text))
    if debt.gaps:
        first, last = debt.gaps[0]
        more = f" (and {len(debt.gaps) - 1} more gaps)" if len(debt.gaps) > 1 else ""
        text = (
            f"{first}..{last}{more}; other engines may never expire snapshots again; "
            f"`dredge repair {name}` bridges the gap"
        )
        problems.append((AlertCondition.GAP, Severity.WARN, text))
    if debt.overdue_tags or debt.tags > policy.watch.tags:
        over = (
            f", {len(debt.overdue_tags)} of them past their expiry time ({debt.overdue_tags[0]})"
            if debt.overdue_tags
            else ""
        )
        text = (
            f"{count_text(debt.tags, 'tag')} (limit {policy.watch.tags}){over}; each keeps its files: "
            f"`dredge holds {name}`"
        )
        problems.append((AlertCondition.TAGS, Severity.WARN, text))
    if debt.small_manifests >= policy.watch.small_manifests:
        text = (
            f"{debt.small_manifests:,} of {debt.manifests:,} manifests are small or hold deletions "
            f"(limit {policy.watch.small_manifests:,}): every plan reads them; `dredge compact-manifests {name}`"
        )
        problems.append((AlertCondition.MANIFESTS, Severity.WARN, text))
    return [Finding(table, trouble, severity, text) for trouble, severity, text in problems]


def find_permanent_failures(failures: Iterable[PermanentFailure]) -> list[Finding]:
    """Return one alert per table and kind about failures that no retry heals; the newest failure is named.

    Args:
        failures: failures that still hold, newest first within a table.
    """
    grouped: dict[tuple[str, AlertCondition], list[PermanentFailure]] = {}
    for failure in failures:
        trouble = AlertCondition.CORRUPT if failure.is_corrupt else AlertCondition.NO_RETRY
        grouped.setdefault((failure.table, trouble), []).append(failure)
    findings = []
    for (table, trouble), group in grouped.items():
        noun = "more damaged file" if trouble is AlertCondition.CORRUPT else "more failed plan"
        more = f" (and {count_text(len(group) - 1, noun)})" if len(group) > 1 else ""
        findings.append(Finding(table, trouble, Severity.ERROR, f"{group[0].text()}{more}", run_id=group[0].run_id))
    return findings


def find_unmaintained(texts: Mapping[str, str], tables: Collection[str]) -> list[Finding]:
    """Return one alert per table that scheduled maintenance could not read.

    Args:
        texts: a text with job, run and error, by table.
        tables: full names of the tables to report.
    """
    return [
        Finding(table, AlertCondition.SCHEDULED, Severity.ERROR, f"{text}; nothing of it expires meanwhile")
        for table, text in sorted(texts.items())
        if table in tables
    ]


def find_late_data(table: str, states: Sequence[PartitionHealth], policy: Policy) -> list[Finding]:
    """Return the alert about partitions whose level-0 files came `idle_after` or longer after the last compaction.

    Args:
        table: full name of the table.
        states: health of each partition.
        policy: policy with `idle_after`.

    Returns:
        One finding, or an empty list without such partitions.
    """
    reopened: dict[str, int] = {}
    for state in states:
        gaps = [
            bucket.oldest_level0_ms - bucket.last_compaction_ms
            for bucket in state.buckets
            if bucket.oldest_level0_ms is not None and bucket.last_compaction_ms is not None
        ]
        if state.text and max(gaps, default=0) >= policy.idle_after_ms:
            reopened[state.text] = max(gaps)
    if not reopened:
        return []
    first = min(reopened)
    more = f" (and {count_text(len(reopened) - 1, 'more partition')})" if len(reopened) > 1 else ""
    text = (
        f"{first}{more} was written to {_days(reopened[first])} after its last compaction: "
        "merged again at the trigger, or once it is idle"
    )
    return [Finding(table, AlertCondition.LATE_DATA, Severity.INFO, text)]


def _days(span_ms: int) -> str:
    return f"{span_ms // DAY_MS} d" if span_ms >= DAY_MS else f"{max(span_ms, 0) // HOUR_MS} h"
