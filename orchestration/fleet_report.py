"""Report on all tables of a warehouse: gathered from metadata, ledgers and Dagster, written as one HTML page."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from dredge.orchestration.sensors.table_cache import OpenTable
from dredge.orchestration.sensors.table_states import TableEvaluation
from dredge.orchestration.verbs.policy_figures import read_promises
from dredge.platform_core import names
from dredge.platform_core.policies import Policies
from dredge.platform_core.policies.costs import money_text, price_of_storage, price_of_work
from dredge.platform_core.policies.policy import Prices
from dredge.platform_core.policies.table_state import STATE_HELP, TableState, TableStatus, rank_key
from dredge.platform_core.report.model import (
    FleetReport,
    HolderEntry,
    PartitionEntry,
    Severity,
    StateLegend,
    TableReport,
    action_entry,
    cut_text,
)
from dredge.platform_core.report.page import render_page
from dredge.platform_core.report.scores import ScoreHistory
from dredge.platform_core.resources.settings import Settings
from dredge.platform_core.table_card import count_text
from lsm_core.cli.render import duration_text
from lsm_core.errors import DredgeError
from lsm_core.maintenance import health, holds, iterate_ledger
from lsm_core.maintenance.holder_sizes import READERS
from lsm_core.maintenance.ledger import LedgerEntry
from lsm_core.maintenance.table_ranking import TableNeed, score_of
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore

_LOG = logging.getLogger(__name__)
_ENTRIES: Final = 50
"""Most runs of a table's ledger that are read."""
_WINDOW_MS: Final = 7 * 86_400_000
_MONTH_MS: Final = 30 * 86_400_000
_HOLDERS_OF: Final = 50
"""Number of largest tables for which the holders of old files are computed, which reads all manifests of a table."""
_HOLDERS: Final = 5
_PARTITIONS: Final = 8
_COMMITS: Final = 12
"""Most newest commits of a table whose scores are computed, if the history of scores has too few points."""
_ALL_COMMITS: Final = 2_000
"""Most commits of all tables whose scores are computed."""
_FEWEST_POINTS: Final = 4
_MOST_FILES: Final = 10_000
"""Most data files of a table whose earlier scores are computed, because each score reads all manifests."""
_HISTORY_BYTES: Final = 64 << 20
_RUN: Final = re.compile(r"dagster run ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")
_SEVERITIES: Final[Mapping[TableState, Severity]] = {
    TableState.CORRUPT: Severity.CRITICAL,
    TableState.UNREADABLE: Severity.CRITICAL,
    TableState.BLOCKED: Severity.CRITICAL,
    TableState.SUSPENDED: Severity.CRITICAL,
    TableState.FAILING: Severity.CRITICAL,
    TableState.RUNNING: Severity.WORKING,
    TableState.NOT_MAINTAINED: Severity.WORKING,
    TableState.HEALTHY: Severity.HEALTHY,
}
"""Severity of states; other states are ATTENTION."""


@dataclass(frozen=True)
class ReportFiles:
    """Files of the hourly report of one warehouse.

    Attributes:
        page: the HTML page.
        scores: file with the health score (0 healthy to 100 urgent) of each table in earlier reports, for trends.
        address: web address of the page, or "" if no web server is known to serve it.
    """

    page: Path
    scores: Path
    address: str = ""


def report_files(warehouse_names: names.WarehouseNames, settings: Settings, home: str) -> ReportFiles | None:
    """Return the files of the hourly report, in ``DREDGE_REPORT_DIR`` or the folder ``dredge/report`` of `home`.

    Args:
        warehouse_names: names of the warehouse in Dagster; its name becomes the name of the page.
        settings: settings of the platform.
        home: folder of the Dagster instance, or "".

    Returns:
        The files, or None if no folder is known.
    """
    if not (settings.report_dir or home):
        return None
    folder = Path(settings.report_dir).expanduser() if settings.report_dir else Path(home) / "dredge" / "report"
    page = folder.absolute() / f"{warehouse_names.first}.html"
    address = f"{settings.report_url}/{page.name}" if settings.report_url else ""
    return ReportFiles(page, page.with_suffix(".scores.json"), address)


def gather_report(
    warehouse_names: names.WarehouseNames,
    evaluations: Sequence[TableEvaluation],
    policies: Policies,
    now_ms: int,
    scores: ScoreHistory | None = None,
    *,
    dagster_url: str = "",
    notes: Sequence[str] = (),
) -> FleetReport:
    """Return the report on evaluated tables, from metadata and the newest runs of each ledger.

    Args:
        warehouse_names: names of the warehouse in Dagster.
        evaluations: result of `evaluate_states`, the most urgent table first.
        policies: policies in force, for the owners of tables.
        now_ms: time of the report (epoch ms), by the warehouse's clock.
        scores: scores of earlier reports, or None.
        dagster_url: address of Dagster's web server, or "".
        notes: lines about what the report does not know.
    """
    readable = [item for item in evaluations if item.table is not None and item.need.total_bytes]
    largest = sorted(readable, key=lambda item: (-item.need.total_bytes, item.name))[:_HOLDERS_OF]
    with_holders = {item.name for item in largest}
    commits = min(_COMMITS, _ALL_COMMITS // max(len(evaluations), 1))
    history = (scores or ScoreHistory()).add_point(
        now_ms, {item.name: item.need.score for item in evaluations if item.table is not None}
    )
    tables = [
        _report_table(
            item,
            warehouse_names,
            tuple(policies.of(item.name).owners),
            now_ms,
            history,
            commits,
            with_holders=item.name in with_holders,
        )
        for item in evaluations
    ]
    troubles = [*([policies.trouble] if policies.trouble else []), *notes]
    return FleetReport(
        warehouse_names.path,
        now_ms,
        tables,
        list_states(),
        _WINDOW_MS,
        dagster_url,
        [cut_text(line) for line in troubles],
    )


def list_states() -> list[StateLegend]:
    """Return all states with severity and explanation, the most urgent first."""
    return [
        StateLegend(state.value, _SEVERITIES.get(state, Severity.ATTENTION), STATE_HELP[state]) for state in TableState
    ]


def _report_table(
    item: TableEvaluation,
    warehouse_names: names.WarehouseNames,
    owners: tuple[str, ...],
    now_ms: int,
    scores: ScoreHistory,
    commits: int,
    *,
    with_holders: bool,
) -> TableReport:
    """Return the report on one table.

    Args:
        item: evaluation of the table.
        warehouse_names: names of the warehouse in Dagster.
        owners: owners of the table.
        now_ms: time of the report (epoch ms).
        scores: scores of earlier reports and of this one.
        commits: most newest commits whose scores are computed.
        with_holders: whether to compute which snapshots, tags, branches and plans keep old files.
    """
    status, need = item.status, item.need
    store = None if item.table is None else item.table.store
    entries = [] if store is None else _read_entries(store)
    shown = entries[-_ENTRIES:]
    recent = [entry for entry in shown if entry.time_ms >= now_ms - _WINDOW_MS]
    actions = tuple(action_entry(entry, _dagster_run(entry)) for entry in reversed(shown))
    holders, held = (_find_holders(store) if store is not None and with_holders else None) or ((), None)
    trend, source = scores.trend(item.name), "one point for each report"
    if store is not None and len(trend) < _FEWEST_POINTS <= commits and need.files <= _MOST_FILES:
        trend = (*_score_commits(store, commits, now_ms), (now_ms, need.score))
        source = "of its files after the newest commits, and now"
    troubled = _troubled_partitions(item)
    spent_bytes = sum(action.bytes_in or 0 for action in actions[: len(recent)])
    spent_seconds = sum(entry.seconds or 0.0 for entry in recent)
    return TableReport(
        item.name,
        status.state.value,
        cut_text(status.label, 100),
        _reason_text(status),
        cut_text(status.action),
        cut_text(status.when),
        status.when_ms,
        status.since_ms,
        score=need.score or status.score,
        costs_most=cut_text(need.costs_most) if store is not None and need.costs_most != "healthy" else "",
        owners=owners,
        readable=store is not None,
        sorted_runs=need.sorted_runs,
        level0_files=need.level0_files,
        files=need.files,
        total_bytes=need.total_bytes,
        rows=need.rows,
        due_bytes=need.due_bytes,
        snapshots=None if item.history is None else item.history.snapshots,
        oldest_level0_ms=need.oldest_level0_ms,
        last_compaction_ms=need.last_compaction_ms,
        trend=trend,
        trend_of=source,
        spent_bytes=spent_bytes,
        spent_seconds=spent_seconds,
        spent_more=len(entries) > _ENTRIES and len(recent) == len(shown),
        held_bytes=held,
        holders=holders[:_HOLDERS],
        holders_more=max(len(holders) - _HOLDERS, 0),
        costs="" if item.table is None else _costs_text(item.table.policy.cost, spent_seconds, spent_bytes, need, held),
        promises=() if item.table is None else _promise_lines(item.table),
        partitions=tuple(_partition_entry(part) for part in troubled[:_PARTITIONS]),
        partitions_more=max(len(troubled) - _PARTITIONS, 0),
        entries=actions,
        entries_more=len(entries) > _ENTRIES,
        asset="/".join(quote(part, safe="") for part in warehouse_names.layout_key(item.name).path),
        run_filter=f"q%5B0%5D={quote(f'tag:{names.TAG_TABLE}={warehouse_names.table_value(item.name)}', safe='')}",
    )


def _reason_text(status: TableStatus) -> str:
    """Return why a table is in its state: partition and reason, what it waits for, and how many more partitions."""
    parts = [f"{status.partition}: {status.text}" if status.partition else status.text]
    parts += [f"waits for {status.waits}"] if status.waits else []
    parts += [f"and {count_text(status.more, 'more partition')} {status.state.value}"] if status.more else []
    return cut_text("; ".join(parts))


def _troubled_partitions(item: TableEvaluation) -> list[TableStatus]:
    """Return the most urgent status of each partition that is not healthy, the most urgent partition first."""
    worst: dict[str, TableStatus] = {}
    for status in sorted(item.partitions, key=rank_key):
        if status.partition and status.state is not TableState.HEALTHY:
            worst.setdefault(status.partition, status)
    return list(worst.values())


def _partition_entry(status: TableStatus) -> PartitionEntry:
    return PartitionEntry(
        cut_text(status.partition, 100),
        cut_text(status.label, 100),
        cut_text(status.text, 200),
        cut_text(status.action, 200),
        cut_text(status.when, 200),
    )


def _costs_text(prices: Prices, seconds: float, bytes_read: int, need: TableNeed, held_bytes: int | None) -> str:
    """Return the price of maintenance in the window and of storage for a month, or "" without prices.

    Args:
        prices: prices of the policy.
        seconds: seconds of maintenance in the window.
        bytes_read: bytes that maintenance read in the window.
        need: figures of the table, with the bytes of its files.
        held_bytes: bytes of old files, or None if they are unknown.
    """
    parts = []
    if prices.core_hour is not None or prices.tb_scanned is not None:
        work = price_of_work(prices, seconds * prices.cores, bytes_read)
        parts.append(f"maintenance {money_text(work, prices.currency)} in {duration_text(_WINDOW_MS)}")
    if prices.gb_month is not None:
        storage = price_of_storage(prices, need.total_bytes + (held_bytes or 0), _MONTH_MS)
        unknown = " without old files" if held_bytes is None else ""
        parts.append(f"storage{unknown} {money_text(storage, prices.currency)} a month")
    return "; ".join(parts)


def _promise_lines(table: OpenTable) -> tuple[str, ...]:
    """Return one line for each promise (service level objective, ``slo``) of a table's policy: whether it is kept.

    If the metadata cannot be read, the result is one line with the error.
    """
    try:
        return tuple(cut_text(promise.text(), 200) for promise in read_promises(table.store, table.policy))
    except (DredgeError, OSError) as error:
        return (cut_text(f"unknown: {error}", 200),)


def _read_entries(store: TableStore) -> list[LedgerEntry]:
    """Return the newest runs in a table's ledger (record of maintenance runs), oldest first.

    One run more than the report shows is read, to detect that the ledger has older runs. The result is empty if the
    ledger cannot be listed.
    """
    try:
        return list(iterate_ledger(store, _ENTRIES + 1, heads=True))
    except (DredgeError, OSError) as error:
        _LOG.warning("%s: its ledger cannot be read for the report: %s", store.name, error)
        return []


def _dagster_run(entry: LedgerEntry) -> str:
    """Return the id of the Dagster run that made an entry, or ""."""
    match = _RUN.search(entry.approved_by or "")
    return "" if match is None else match[1]


def _find_holders(store: TableStore) -> tuple[tuple[HolderEntry, ...], int] | None:
    """Return the snapshots, tags, branches, consumers and plans (holders) that keep old files, and the kept bytes.

    The kept bytes are a lower bound: all bytes that one holder alone keeps, and of the shared bytes only those of the
    holder that shares most. Consumers and Iceberg metadata keep files only through snapshots, so their bytes are not
    added.

    Returns:
        The holders, most bytes first, and the kept bytes; or None if the metadata cannot be read.
    """
    try:
        rows = holds(store).to_pylist()  # one row per snapshot, tag or consumer
    except Exception as error:  # noqa: BLE001  (one table stops no other)
        _LOG.warning("%s: its holders cannot be read for the report: %s", store.name, error)
        return None
    old = [row for row in rows if row["kind"] != "live" and (row["bytes"] or row["shared_bytes"])]
    owned = [row for row in old if row["kind"] not in READERS]
    total = sum(row["bytes"] for row in owned) + max((row["shared_bytes"] for row in owned), default=0)
    holders = tuple(
        HolderEntry(
            cut_text(row["holder"], 100),
            row["kind"],
            row["bytes"],
            row["shared_bytes"],
            None if row["since"] is None else int(row["since"].timestamp() * 1000),
        )
        for row in old
    )
    return holders, total


def _score_commits(store: TableStore, number: int, now_ms: int) -> tuple[tuple[int, float], ...]:
    """Return the table's health score (0 healthy to 100 urgent) after each of the newest commits, oldest first.

    Args:
        store: the table.
        number: most commits to read.
        now_ms: time of the report (epoch ms); only commits before this time count.

    Returns:
        Pairs of the commit's time (epoch ms) and the score; only the oldest pairs if metadata cannot be read.
    """
    trend = []
    try:
        for snapshot_id in sorted(snapshots.list_ids(store))[-number:]:
            snapshot = snapshots.try_read(store, snapshot_id)
            if snapshot is not None and snapshot.time_millis < now_ms:
                buckets = health(store, now_ms=snapshot.time_millis, snapshot_id=snapshot_id)
                trend.append((snapshot.time_millis, score_of(buckets)[0]))
    except (DredgeError, OSError) as error:
        _LOG.warning("%s: its earlier scores cannot be computed for the report: %s", store.name, error)
    return tuple(sorted(trend))


def read_scores(file: Path) -> ScoreHistory:
    """Return the scores of earlier reports; an absent or invalid file counts as empty and is written again."""
    try:
        with file.open("rb") as stream:
            text = stream.read(_HISTORY_BYTES + 1)
        if len(text) > _HISTORY_BYTES:
            raise ValueError(f"it is larger than {_HISTORY_BYTES} bytes")
        return ScoreHistory.from_json(text)
    except FileNotFoundError:
        return ScoreHistory()
    except (OSError, ValueError, DredgeError) as error:
        _LOG.warning("the history of scores in %s cannot be read and begins again: %s", file, error)
        return ScoreHistory()


def write_report(report: FleetReport, files: ReportFiles, scores: ScoreHistory) -> None:
    """Write the page of a report, and the scores from which later reports show trends.

    Args:
        report: report on all tables.
        files: files to write.
        scores: scores of earlier reports.

    Raises:
        OSError: a file cannot be written.
    """
    files.page.parent.mkdir(parents=True, exist_ok=True)
    now = {table.table: table.score for table in report.tables if table.readable}
    replace_file(files.scores, scores.add_point(report.time_ms, now).to_json())
    replace_file(files.page, render_page(report))


def replace_file(file: Path, text: str) -> None:
    """Write a file in one step, so that readers see the old or the new text.

    Args:
        file: path of the file; its folder exists.
        text: the new text.

    Raises:
        OSError: the file cannot be written; the old file is unchanged.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
