"""Content of the report on a warehouse, as plain values: tables, their states, score trends, kept files and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from lsm_core.cli.render import visible
from lsm_core.maintenance import LedgerEntry

LONGEST_TEXT: Final = 400
"""Most characters of a reason or error in the report; the rest is cut, because anyone may write a ledger."""


class Severity(StrEnum):
    """How urgently a state needs a person; the page colours states by it."""

    CRITICAL = "critical"
    ATTENTION = "attention"
    WORKING = "working"
    HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class StateLegend:
    """One state that tables of the report can have.

    Attributes:
        name: name of the state, such as "blocked".
        severity: severity of the state.
        text: one line that explains the state.
    """

    name: str
    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class ActionEntry:
    """One maintenance run of a table, from its ledger. Texts are cut.

    Attributes:
        run_id: id of the run in the ledger.
        time_ms: end of the run (epoch ms).
        action: name of the action.
        outcome: "done", "refused", "failed", "unknown" or "unreadable".
        seconds: wall-clock time of the run, or None if it was not recorded.
        bytes_in: bytes that the run read, or None.
        bytes_out: bytes that the run wrote, or None.
        bytes_freed: bytes that the run deleted or moved to the trash, or None.
        runs_before: most sorted runs of a changed bucket before the run, or None.
        runs_after: most sorted runs of a changed bucket after the run, or None.
        snapshot_id: id of the published snapshot, or None.
        author: approver, or else the user and process of the run.
        dagster_run: id of the Dagster run, or "".
        error: error of the run, or "".
    """

    run_id: str
    time_ms: int
    action: str
    outcome: str
    seconds: float | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    bytes_freed: int | None = None
    runs_before: int | None = None
    runs_after: int | None = None
    snapshot_id: int | None = None
    author: str = ""
    dagster_run: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class HolderEntry:
    """One snapshot, tag, branch, consumer or plan that keeps old files of a table.

    Attributes:
        name: name of the holder, such as "tag month-end".
        kind: kind of the holder.
        bytes: bytes that only this holder keeps.
        shared_bytes: bytes that this holder and others keep.
        since_ms: creation time of the holder (epoch ms), or None.
    """

    name: str
    kind: str
    bytes: int
    shared_bytes: int = 0
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """State of one partition.

    Attributes:
        partition: path of the partition.
        state: name of the state.
        reason: reason with numbers.
        action: next action.
        when: time of the next action, as text.
    """

    partition: str
    state: str
    reason: str
    action: str = ""
    when: str = ""


@dataclass(frozen=True, slots=True)
class TableReport:
    """Report on one table. Times are epoch ms.

    Attributes:
        table: full name, ``db.table``.
        state: name of the state, as in `StateLegend`.
        label: state with its time, such as "in back-off until 07:10 UTC".
        reason: reason of the state with numbers.
        action: next action.
        when: time of the next action, as text.
        when_ms: time of the next action, or None if it has no fixed time.
        since_ms: time since which the table is in this state, or None if unknown.
        score: need of maintenance, 0 (healthy) to 100.
        costs_most: reasons of the score with the worst bucket.
        owners: owners from the policy.
        readable: whether the table was read; otherwise all numbers are unknown.
        sorted_runs: most sorted runs in one bucket.
        level0_files: most level-0 files in one bucket.
        files: number of data files.
        total_bytes: bytes of the data files.
        rows: stored rows before merging.
        due_bytes: bytes that due compactions read.
        snapshots: number of snapshots, or None if unknown.
        oldest_level0_ms: creation time of the oldest level-0 file, or None.
        last_compaction_ms: creation time of the newest file of a compaction, or None.
        trend: pairs of time and score, oldest first.
        trend_of: what the points of `trend` are, such as "after each of the newest 12 commits".
        spent_bytes: bytes that maintenance read in the window of the report.
        spent_seconds: seconds that maintenance took in the window of the report.
        spent_more: whether older runs in the window were not read, so that both sums are lower bounds.
        held_bytes: bytes of old files that snapshots, tags and others keep, or None if they were not computed.
        holders: largest holders, most bytes first.
        holders_more: number of further holders.
        costs: price of the maintenance in the window, and of a month of storage, or "" without prices.
        promises: one line for each promise (``slo``) of the policy, with the share of the week within it.
        partitions: partitions that are not healthy, most urgent first.
        partitions_more: number of further partitions that are not healthy.
        entries: newest runs of the ledger, newest first.
        entries_more: whether the ledger has older runs.
        asset: path of the layout asset in Dagster's address, percent-encoded, or "".
        run_filter: query of Dagster's page of runs for the runs of the table, percent-encoded, or "".
    """

    table: str
    state: str
    label: str = ""
    reason: str = ""
    action: str = ""
    when: str = ""
    when_ms: int | None = None
    since_ms: int | None = None
    score: float = 0.0
    costs_most: str = ""
    owners: tuple[str, ...] = ()
    readable: bool = True
    sorted_runs: int = 0
    level0_files: int = 0
    files: int = 0
    total_bytes: int = 0
    rows: int = 0
    due_bytes: int = 0
    snapshots: int | None = None
    oldest_level0_ms: int | None = None
    last_compaction_ms: int | None = None
    trend: tuple[tuple[int, float], ...] = ()
    trend_of: str = ""
    spent_bytes: int = 0
    spent_seconds: float = 0.0
    spent_more: bool = False
    held_bytes: int | None = None
    holders: tuple[HolderEntry, ...] = ()
    holders_more: int = 0
    costs: str = ""
    promises: tuple[str, ...] = ()
    partitions: tuple[PartitionEntry, ...] = ()
    partitions_more: int = 0
    entries: tuple[ActionEntry, ...] = ()
    entries_more: bool = False
    asset: str = ""
    run_filter: str = ""

    @property
    def database(self) -> str:
        """Name of the database."""
        return self.table.partition(".")[0]


@dataclass(frozen=True)
class FleetReport:
    """Report on all tables of a warehouse, the most urgent table first.

    Attributes:
        warehouse: path or address of the warehouse.
        time_ms: time of the report (epoch ms).
        tables: reports on the tables, most urgent first.
        states: all states in order of urgency.
        window_ms: length of the window (ms) of `TableReport.spent_bytes` and `spent_seconds`.
        dagster_url: address of Dagster's web server without a final slash, or "" for no links.
        notes: lines about what the report does not know, such as tables that cannot be listed.
    """

    warehouse: str
    time_ms: int
    tables: Sequence[TableReport]
    states: Sequence[StateLegend]
    window_ms: int = 7 * 86_400_000
    dagster_url: str = ""
    notes: Sequence[str] = field(default=())

    def counts(self) -> list[tuple[StateLegend, int]]:
        """Return the number of tables in each state that occurs, most urgent state first."""
        numbers = dict.fromkeys((legend.name for legend in self.states), 0)
        for table in self.tables:
            numbers[table.state] = numbers.get(table.state, 0) + 1
        return [(legend, numbers[legend.name]) for legend in self.states if numbers[legend.name]]

    def to_plain(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "warehouse": self.warehouse,
            "time_ms": self.time_ms,
            "window_ms": self.window_ms,
            "dagster_url": self.dagster_url,
            "notes": list(self.notes),
            "counts": {legend.name: number for legend, number in self.counts()},
            "tables": [asdict(table) for table in self.tables],
        }


def cut_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return text on one line, at most `longest` characters, with invisible characters escaped."""
    shown = visible(text[: longest + 1])
    return shown if len(text) <= longest and len(shown) <= 2 * longest else f"{shown[: longest - 1]}…"


def action_entry(entry: LedgerEntry, dagster_run: str = "") -> ActionEntry:
    """Return a run of the ledger for the report.

    Args:
        entry: the entry; `LedgerEntry.lines` may be missing.
        dagster_run: id of the Dagster run, or "".
    """
    report = entry.report
    freed = max((value for name in _FREED if (value := _whole(report, name)) is not None), default=None)
    return ActionEntry(
        cut_text(entry.run_id, 100),
        entry.time_ms,
        cut_text(entry.action, 60),
        cut_text(entry.outcome, 30),
        entry.seconds,
        _whole(report, "bytes_in"),
        _whole(report, "bytes_out"),
        freed,
        _whole(report, "runs_before"),
        _whole(report, "runs_after"),
        entry.snapshot_id,
        cut_text(entry.approved_by or entry.who, 100),
        dagster_run,
        cut_text(entry.error or ""),
    )


_FREED: Final = ("bytes_freed", "bytes_recorded")
"""Keys of ledger reports for bytes that a run deleted or moved to the trash; the larger one counts."""


def _whole(report: Mapping[str, Any], name: str) -> int | None:
    """Return a whole number of a report, or None for other values, because anyone may write a ledger."""
    value = report.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
