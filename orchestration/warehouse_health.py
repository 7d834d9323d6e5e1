"""Asset `warehouse_health`: all tables ranked by need, from metadata alone, with problems and next actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

import dagster as dg

from checks.layout_checks import changed_conditions
from lsm_core.clock import utc_text
from lsm_core.maintenance import holds, iterate_ledger, waiting_plans
from lsm_core.maintenance.action import size_text
from lsm_core.maintenance.score import history_parts_of, reasons_of
from lsm_core.maintenance.table_ranking import TableNeed, need_of, rank_tables
from lsm_core.maintenance.writers_compact import WATCHING
from orchestration.ops.approval import approval_link
from orchestration.sensors.table_cache import OpenTable, open_table
from platform_core import names
from platform_core.dagster_internals import resolve_annotations
from platform_core.metadata import plain_cell
from platform_core.obstacles import find_blocking_failure, find_other_warehouse, list_suspensions
from platform_core.policies import Decision, DecisionOutcome, DecisionScope, Policies, PolicySource, Reason
from platform_core.policies.decisions import due_work
from platform_core.policies.findings import find_overdue_work
from platform_core.resources.warehouse import WarehouseResource
from platform_core.table_card import TableCard, count_text

_SHOWN: Final = 50
_UNHEALTHY: Final = 10.0
"""Lowest score at which a table is not reported as healthy, although no rule requires an action yet."""
_HOLDERS_OF: Final = 10
"""Number of largest tables for which the holders of old data are listed, because the list reads all manifests.

A holder is a snapshot, tag, branch, consumer or plan that prevents the deletion of data files.
"""
_RUNS: Final = 50
"""Number of newest runs of a table whose seconds count as compute costs."""
_PERSISTENT: Final = frozenset(
    {
        Reason.PAUSED,
        Reason.UNSUPPORTED,
        Reason.UNREADABLE,
        Reason.BLOCKED,
        Reason.SUSPENDED,
        Reason.RELOAD,
        Reason.ORDER,
    }
)
"""Reasons of declines that last until a person acts."""
_COLUMNS: Final = (
    "table",
    "score",
    "parts",
    "costs most",
    "next action",
    "when",
    "last compacted",
    "not compacted since",
    "level 0, most",
    "runs took",
    "size",
)
_DESCRIPTION: Final = (
    "Ranks all tables by need: problems, next actions with their times, declined tables with reasons, and holders of "
    "storage. Materialize it to rank now; `dredge status` shows the same on the command line."
)


@dataclass(frozen=True)
class TableLine:
    """Row of one table in the ranking.

    Attributes:
        need: need of maintenance of the table.
        action: next action.
        when: time of the next action.
        declined: declined decisions.
        seconds: total seconds of the newest 50 runs in the table's ledger.
        overdue_since_ms: time since which overdue work could have run (epoch ms), or None without overdue work.
    """

    need: TableNeed
    action: str
    when: str
    declined: tuple[Decision, ...] = ()
    seconds: float = 0.0
    overdue_since_ms: int | None = None


def warehouse_health_asset(
    cards: Sequence[TableCard], warehouse_path: str, policies: PolicySource
) -> dg.AssetsDefinition:
    """Return the asset that ranks all tables of the warehouse by need."""
    key = names.warehouse_health_key(warehouse_path)

    @dg.asset(
        key=key, description=_DESCRIPTION, group_name=names.WAREHOUSE_HEALTH, owners=[names.OWNER], kinds={"dredge"}
    )
    @resolve_annotations
    def warehouse_health(
        context: dg.AssetExecutionContext,
        warehouse: WarehouseResource,
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        other = find_other_warehouse(context.instance, warehouse_path)
        if other is not None:
            raise dg.Failure(other, allow_retries=False)
        current_policies = policies.current()
        if current_policies.trouble:
            context.log.error(current_policies.trouble)
        lines = rank_warehouse(warehouse, context.instance, cards, current_policies)
        report_conditions(context, warehouse, cards, current_policies)
        for line in lines[:_SHOWN]:
            context.log.info("%s: score %s: %s", line.need.table, line.need.score, line.action)
        pending_plans = dg.MetadataValue.md(waiting_table(warehouse, context.run, [line.need.table for line in lines]))
        trouble = {"policy file": dg.MetadataValue.text(current_policies.trouble)} if current_policies.trouble else {}
        metadata = ranking_metadata(lines, find_holders(warehouse, lines), warehouse_path)
        return dg.MaterializeResult(metadata={**trouble, **metadata, "plans that wait for approval": pending_plans})

    asset: dg.AssetsDefinition = warehouse_health
    return asset


def report_conditions(
    context: dg.AssetExecutionContext, warehouse: WarehouseResource, cards: Sequence[TableCard], policies: Policies
) -> None:
    """Report checks whose results changed without a commit: stalled work, or a read-optimized view that lags."""
    opened = [open_table(warehouse, card, policies.of(card.name)) for card in cards]
    tables = [
        (table.card, table.policy, table.store, table.health)
        for table in opened
        if not isinstance(table, Decision) and table.refusal is None and table.health.buckets
    ]
    for evaluation in changed_conditions(context.instance, warehouse.path, tables):
        context.log.info("%s: %s", evaluation.asset_key.path[-1], evaluation.description)
        context.log_event(evaluation)


def rank_warehouse(
    warehouse: WarehouseResource, instance: dg.DagsterInstance, cards: Sequence[TableCard], policies: Policies
) -> list[TableLine]:
    """Rank the tables of the warehouse by need.

    Args:
        warehouse: the warehouse.
        instance: Dagster instance, for failed checks and suspensions.
        cards: tables of the loaded definitions.
        policies: policies in force.

    Returns:
        A line for every table: unreadable tables first, then the tables by descending need.
    """
    lines: dict[str, TableLine] = {}
    broken: list[TableLine] = []
    suspended = list_suspensions(instance)
    for card in cards:
        table = open_table(warehouse, card, policies.of(card.name))
        if isinstance(table, Decision):
            need = TableNeed(card.name, score=100.0, costs_most=table.text)
            broken.append(TableLine(need, "see its error", "by hand", (table,)))
            continue
        obstacle = find_blocking_failure(instance, names.layout_key(warehouse.path, card.name))
        reason = Reason.BLOCKED
        if obstacle is None and card.name in suspended:
            obstacle, reason = suspended[card.name].text(), Reason.SUSPENDED
        lines[card.name] = make_line(table, obstacle, reason)
    order = rank_tables(line.need for line in lines.values())
    return [*broken, *(lines[need.table] for need in order)]


def make_line(table: OpenTable, obstacle: str | None = None, reason: Reason = Reason.BLOCKED) -> TableLine:
    """Return the line of one table.

    Args:
        table: the table.
        obstacle: why maintenance of the table is stopped, or None.
        reason: code of the obstacle: BLOCKED by a failed check, or SUSPENDED after failed runs.
    """
    overdue_work = find_overdue_work(
        due_work(table.facts, table.policy_of, table.now), table.policy, table.now.table_ms
    ).values()
    line = _plan_line(table, obstacle, reason)
    if not overdue_work:
        return line
    since = min(work.since_ms for work in overdue_work)
    return replace(line, when=f"{line.when}; overdue: due since {utc_text(since)} UTC", overdue_since_ms=since)


def _plan_line(table: OpenTable, obstacle: str | None, reason: Reason) -> TableLine:
    """Return the line of one table, without looking for overdue work.

    Args:
        table: the table.
        obstacle: why maintenance of the table is stopped, or None.
        reason: code of the obstacle.
    """
    history = history_parts_of(table.store, grace_ms=table.policy.watch.overdue_after_ms)
    need = need_of(table.name, table.health.buckets, history)
    decisions = [*table.decisions(DecisionScope.SORTED_RUNS), *table.decisions(DecisionScope.IDLE)]
    if obstacle is not None:
        decisions = [Decision(table.name, "", DecisionOutcome.DECLINE, reason, obstacle)]
    # A reason for the whole table appears in both scopes: list it once.
    persistent = tuple(dict.fromkeys(decision for decision in decisions if decision.reason in _PERSISTENT))
    runs = [decision for decision in decisions if decision.outcome is DecisionOutcome.RUN]
    seconds = sum(entry.seconds or 0.0 for entry in iterate_ledger(table.store, _RUNS, heads=True))
    if runs:
        first = runs[0]
        more = f" (and {count_text(len(runs) - 1, 'more partition')})" if len(runs) > 1 else ""
        action = f"compact {first.partition}" if first.partition else "compact"
        return TableLine(need, f"{action}: {first.text}{more}", "the next tick", persistent, seconds)
    later = [decision for decision in decisions if decision.reason is Reason.OFF_PEAK]
    if later:
        action = f"compact {later[0].partition}" if later[0].partition else "compact"
        return TableLine(need, action, later[0].text, persistent, seconds)
    if persistent:
        return TableLine(need, "nothing automatic", f"not while: {persistent[0].text}", persistent, seconds)
    idle_candidates = [
        state
        for state in table.health.partitions
        if (state.small_files >= table.policy_of(state).idle_min_files)
        if table.card.append_only
        or (table.card.partitioned and state.sorted_runs >= table.policy_of(state).idle_min_runs)
    ]
    if idle_candidates:
        due = {state.text: state.newest_file_ms + table.policy_of(state).idle_after_ms for state in idle_candidates}
        nearest = min(idle_candidates, key=lambda state: due[state.text])
        when = utc_text(due[nearest.text])
        return TableLine(
            need, f"merge {nearest.text or 'its small files'} once idle", f"{when} UTC", persistent, seconds
        )
    debts = reasons_of(history)
    if debts:  # no compaction reduces it
        return TableLine(need, f"retention: {debts[0]}", "the next run of retention, or by hand", persistent, seconds)
    if table.facts.writers_compact:
        watched = next((decision.text for decision in decisions if decision.reason is Reason.WATCHING), "-")
        return TableLine(need, f"none: {WATCHING}", watched, persistent, seconds)
    return TableLine(need, "none: healthy" if need.score < _UNHEALTHY else "none is due", "-", persistent, seconds)


def find_holders(warehouse: WarehouseResource, lines: Sequence[TableLine]) -> list[tuple[str, str, str, int]]:
    """Return the snapshots, tags and others (holders) that keep old data in the ten largest tables, most bytes first.

    The newest snapshot is omitted. A table that cannot be read has one entry with the error.

    Returns:
        Tuples of table, name of the holder (such as "snapshot 7"), kind of holder (snapshot, tag, branch, ...), and
        bytes that only this holder keeps.
    """
    holdings = []
    largest = sorted(lines, key=lambda line: -line.need.total_bytes)
    for line in [line for line in largest if line.need.total_bytes][:_HOLDERS_OF]:
        try:
            rows = holds(warehouse.store(line.need.table)).to_pylist()  # one row per snapshot, tag or consumer
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            holdings.append((line.need.table, f"unknown: {error}", "-", 0))
            continue
        holdings += [
            (line.need.table, row["holder"], row["kind"], row["bytes"])
            for row in rows
            if row["bytes"] and row["kind"] != "live"
        ]
    return sorted(holdings, key=lambda item: -item[3])[:_SHOWN]


def waiting_table(warehouse: WarehouseResource, run: dg.DagsterRun, tables: Sequence[str]) -> str:
    """Return a Markdown row with an approval link for every plan that waits for approval, oldest plan first.

    Args:
        warehouse: warehouse of the tables.
        run: run whose code location has the job `apply_plan`.
        tables: full names of the tables to search.
    """
    plans, troubles = [], []
    for table in tables:
        try:
            plans += [(table, pending) for pending in waiting_plans(warehouse.store(table))]
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            troubles.append(f"{plain_cell(table)}: {plain_cell(str(error))}")
    rows = [
        f"| {plain_cell(table)} | {pending.plan.action} | {count_text(len(pending.plan.items), 'unit')} "
        f"| {size_text(pending.plan.estimate.bytes_in)} | {size_text(pending.plan.estimate.bytes_freed)} "
        f"| {utc_text(pending.since_ms)} | {plain_cell(pending.why)} "
        f"| [{pending.plan.hash}]({approval_link(run, table, pending.plan.hash)}) |"
        for table, pending in sorted(plans, key=lambda item: item[1].since_ms)
    ]
    more = f"\n\nand {len(rows) - _SHOWN} more: `dredge plans '*'`" if len(rows) > _SHOWN else ""
    header = [
        "| table | action | units | reads | frees | since (UTC) | why it waits | approve |",
        "|---|---|---|--:|--:|---|---|---|",
    ]
    rows_text = "\n".join([*header, *rows[:_SHOWN]]) + more if rows else "none waits"
    return "\n\n".join([rows_text, *(f"not readable: {line}" for line in troubles[:_SHOWN])])


def ranking_metadata(
    lines: Sequence[TableLine], holders: Sequence[tuple[str, str, str, int]], warehouse_path: str
) -> dict[str, dg.MetadataValue]:
    """Return the ranking for display, and the numbers to plot.

    Args:
        lines: lines of the ranking, the table with the greatest need first.
        holders: result of `find_holders`.
        warehouse_path: location of the warehouse.
    """
    due = [line for line in lines if line.need.due_bytes]
    declined = [decision for line in lines for decision in line.declined]
    first = lines[0] if lines else None
    most_urgent = "nothing: no table needs help"
    if first is not None and first.need.score:
        most_urgent = f"{first.need.table} (score {first.need.score:g}): {first.need.costs_most}; next: {first.action}"
    return {
        "most urgent": dg.MetadataValue.text(most_urgent),
        names.WAREHOUSE_PATH: dg.MetadataValue.text(warehouse_path),
        "tables": dg.MetadataValue.md(ranking_table(lines, warehouse_path)),
        "declined": dg.MetadataValue.md(_declined_rows(declined)),
        "holders of old data": dg.MetadataValue.md(_holder_rows(holders)),
        "maintained tables": dg.MetadataValue.int(len(lines)),
        "tables with work due": dg.MetadataValue.int(len(due)),
        "tables with work overdue": dg.MetadataValue.int(sum(line.overdue_since_ms is not None for line in lines)),
        "worst score": dg.MetadataValue.float(max((line.need.score for line in lines), default=0.0)),
        "due compactions read": dg.MetadataValue.text(size_text(sum(line.need.due_bytes for line in due))),
        "due compactions read (bytes)": dg.MetadataValue.int(sum(line.need.due_bytes for line in due)),
        "size of all tables": dg.MetadataValue.text(size_text(sum(line.need.total_bytes for line in lines))),
    }


def ranking_table(lines: Sequence[TableLine], warehouse_path: str) -> str:
    """Return one Markdown row with a link to the layout for each of the 50 tables with the greatest need."""
    if not lines:
        return "the warehouse has no tables yet"
    rows = [f"| {' | '.join(_COLUMNS)} |", "|---|--:|---|---|---|---|---|---|--:|--:|--:|"]
    for line in lines[:_SHOWN]:
        need = line.need
        asset_path = "/".join(quote(part, safe="") for part in names.layout_key(warehouse_path, need.table).path)
        cells = [
            f"[{plain_cell(need.table)}](/assets/{asset_path})",
            f"{need.score:g}",
            ", ".join(f"{name} {points:g} of {weight:g}" for name, points, weight in need.parts if points) or "-",
            *map(plain_cell, (need.costs_most, line.action, line.when)),
            *(
                "-" if time_ms is None else utc_text(time_ms)
                for time_ms in (need.last_compaction_ms, need.oldest_level0_ms)
            ),
            f"{need.level0_files:,}",
            f"{line.seconds:.1f} s",
            size_text(need.total_bytes),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    more = f"\n\nand {len(lines) - _SHOWN} more tables" if len(lines) > _SHOWN else ""
    return "\n".join(rows) + more


def _declined_rows(declined: Sequence[Decision]) -> str:
    if not declined:
        return "no table has an obstacle"
    rows = [
        f"| {plain_cell(item.subject)} | {item.reason.value} | {plain_cell(item.text)} |" for item in declined[:_SHOWN]
    ]
    more = f"\n\nand {len(declined) - _SHOWN} more" if len(declined) > _SHOWN else ""
    return "\n".join(["| subject | reason code | why |", "|---|---|---|", *rows]) + more


def _holder_rows(holders: Sequence[tuple[str, str, str, int]]) -> str:
    if not holders:
        return "no old data is kept"
    rows = [
        f"| {plain_cell(table)} | {plain_cell(holder)} | {plain_cell(kind)} | {size_text(size)} |"
        for table, holder, kind, size in holders
    ]
    return "\n".join(["| table | holder | kind | held alone |", "|---|---|---|--:|", *rows])
