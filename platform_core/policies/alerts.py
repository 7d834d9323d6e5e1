"""Alerts: findings grouped by cause, routes to channels, and alerts that a person snoozed or acknowledged. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from dredge.platform_core.policies.findings import AlertCondition, Finding, Severity
from dredge.platform_core.policies.policy import AlertRoute
from dredge.platform_core.table_card import count_text

MOST_EXAMPLES: Final = 3
"""Most tables that one line of a message names."""
_MOST_SINGLE: Final = 3
"""Most findings of one condition, severity and owner that have a line each if no shared cause is known."""
_RANK: Final = {Severity.EMERGENCY: 0, Severity.ERROR: 1, Severity.WARN: 2, Severity.INFO: 3}
RUNBOOK: Final = {
    AlertCondition.LEVEL0: "level-0-piles-up",
    AlertCondition.SMALL_FILES: "a-table-is-slow",
    AlertCondition.FILE_SIZE: "a-table-is-slow",
    AlertCondition.STALLED: "level-0-piles-up",
    AlertCondition.SUSPENDED: "the-platform-itself-stopped",
    AlertCondition.BLOCKED: "a-check-failed",
    AlertCondition.CORRUPT: "a-file-is-damaged-or-lost",
    AlertCondition.NO_RETRY: "a-file-is-damaged-or-lost",
    AlertCondition.UNREADABLE: "a-file-is-damaged-or-lost",
    AlertCondition.SCHEDULED: "a-file-is-damaged-or-lost",
    AlertCondition.SNAPSHOTS: "the-disk-fills",
    AlertCondition.CONSUMER: "the-disk-fills",
    AlertCondition.TAGS: "the-disk-fills",
    AlertCondition.GAP: "the-disk-fills",
    AlertCondition.MANIFESTS: "a-table-is-slow",
    AlertCondition.ICEBERG: "iceberg-readers-miss-rows",
    AlertCondition.SENSOR: "the-platform-itself-stopped",
    AlertCondition.POOL: "the-platform-itself-stopped",
}
"""Section of docs/operations.md with the steps for a condition; conditions that are missing use `_ALERTS_SECTION`."""
_ALERTS_SECTION: Final = "alerts"


def runbook_section(condition: AlertCondition) -> str:
    """Return the anchor of the section of docs/operations.md with the steps for a condition."""
    return RUNBOOK.get(condition, _ALERTS_SECTION)


@dataclass(frozen=True)
class AlertCause:
    """Findings with one cause, which a message shows as one line.

    Attributes:
        condition: condition of all findings.
        severity: severity of all findings.
        owners: owners of all tables of the findings; empty for sensors, files and tables without owners.
        findings: the findings, at least one.
    """

    condition: AlertCondition
    severity: Severity
    owners: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def subjects(self) -> list[str]:
        """Tables, sensors or files of the findings."""
        return [finding.subject for finding in self.findings]

    @property
    def run_id(self) -> str:
        """Id of the failed run of the first finding that has one, or ""."""
        return next((finding.run_id for finding in self.findings if finding.run_id), "")

    def line(self) -> str:
        """Return one line: a single finding as it is; of several findings, their number, cause and first tables."""
        first = self.findings[0]
        if len(self.findings) == 1:
            return first.line()
        what = first.cause or f"for example {first.text}"
        return f"{name_some(self.subjects)}: {self.severity.value} ({self.condition.value}): {what}"


def name_some(subjects: Sequence[str]) -> str:
    """Return the number of tables, sensors or files, with the names of the first three, as text."""
    shown, more = ", ".join(subjects[:MOST_EXAMPLES]), len(subjects) - MOST_EXAMPLES
    noun = "table" if all("." in subject for subject in subjects) else "finding"
    return f"{count_text(len(subjects), noun)} ({shown}{f' and {more:,} more' if more > 0 else ''})"


def group_causes(
    findings: Iterable[Finding], owners_of: Callable[[str], Sequence[str]] = lambda _: ()
) -> list[AlertCause]:
    """Group findings by severity, owners, condition and cause, the most severe first.

    Findings without a known cause have a line each, unless more than three have the same condition, severity and
    owners.

    Args:
        findings: current findings about tables, sensors and the policy file.
        owners_of: returns the owners of the table of a finding.
    """
    groups: dict[tuple[Severity, tuple[str, ...], AlertCondition, str], list[Finding]] = {}
    for finding in findings:
        owners = tuple(sorted(owners_of(finding.subject)))
        groups.setdefault((finding.severity, owners, finding.trouble, finding.cause), []).append(finding)
    causes = []
    for (severity, owners, condition, cause), group in groups.items():
        together = bool(cause) or len(group) > _MOST_SINGLE
        parts = [tuple(group)] if together else [(finding,) for finding in group]
        causes += [AlertCause(condition, severity, owners, part) for part in parts]
    return sorted(causes, key=lambda cause: (_RANK[cause.severity], cause.owners))


def group_ended(keys: Iterable[str]) -> list[str]:
    """Return a line per ended finding (`Finding.key`), or one line for more than three with the same condition."""
    groups: dict[str, list[str]] = {}
    for key in keys:
        subject, _, condition = key.rpartition(": ")
        groups.setdefault(condition, []).append(subject)
    lines = []
    for condition, subjects in groups.items():
        if len(subjects) > _MOST_SINGLE:
            lines.append(f"{name_some(subjects)}: {condition}")
        else:
            lines += [f"{subject}: {condition}" for subject in subjects]
    return lines


def channels_for(
    finding: Finding, routes: Sequence[AlertRoute], owners: Sequence[str], defaults: Sequence[str]
) -> frozenset[str]:
    """Return the names of the channels that a finding is sent to: those of all matching routes, or else the defaults.

    Args:
        finding: finding to send.
        routes: routes of the policy file.
        owners: owners of the table.
        defaults: channels for findings that no route matches.
    """
    database = finding.subject.partition(".")[0] if "." in finding.subject else ""
    matching = [
        route
        for route in routes
        if _matches(route.severities, [finding.severity.value])
        and _matches(route.owners, owners)
        and _matches(route.databases, [database])
    ]
    return frozenset(name for route in matching for name in route.channels) if matching else frozenset(defaults)


def _matches(patterns: Sequence[str] | None, values: Sequence[str]) -> bool:
    return patterns is None or any(fnmatchcase(value, pattern) for pattern in patterns for value in values)


@dataclass(frozen=True)
class Mute:
    """Alerts that a person snoozed or acknowledged until a time.

    Attributes:
        run_id: id of the run that recorded the mute.
        acknowledged: whether the person works on the cause. Then each channel gets one message that says so.
        cause: glob of conditions, like ``level 0*``.
        tables: glob of tables, sensors or files, like ``shop.*``.
        severity: highest severity that is covered; more severe findings are sent.
        by: name of the person.
        reason: reason, or "".
        until_ms: end (epoch ms, wall clock).
    """

    run_id: str
    acknowledged: bool
    cause: str
    tables: str
    severity: Severity
    by: str
    reason: str
    until_ms: int

    def covers(self, finding: Finding) -> bool:
        """Return whether the finding is not sent while this mute applies; the end time is not checked."""
        return (
            fnmatchcase(finding.trouble.value, self.cause)
            and fnmatchcase(finding.subject, self.tables)
            and _RANK[finding.severity] >= _RANK[self.severity]
        )


def find_active_mutes(mutes: Iterable[Mute], now_ms: int) -> list[Mute]:
    """Return the mutes that apply now; of several with the same cause and tables, only the newest counts.

    Args:
        mutes: all recorded mutes, newest first.
        now_ms: epoch ms by the wall clock.
    """
    newest: dict[tuple[str, str], Mute] = {}
    for mute in mutes:
        newest.setdefault((mute.cause, mute.tables), mute)
    return [mute for mute in newest.values() if mute.until_ms > now_ms]
