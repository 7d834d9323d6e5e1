"""warehouse_health: the asset that answers first of all what hurts and what to do: all tables ranked, from metadata alone."""

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
from lsm_core.maintenance.ranking import TableNeed, need_of, ranked
from lsm_core.maintenance.score import history_parts_of, reasons_of
from orchestration import names
from orchestration.blocked import blocking_failure, other_warehouse, suspensions
from orchestration.metadata import launch_link, plain_cell
from orchestration.ops.approval import APPLY_PLAN
from orchestration.policies import Asked, Decision, Outcome, Policies, PolicySource, Reason
from orchestration.policies.decisions import due_work
from orchestration.policies.watching import overdue
from orchestration.quirks import typed
from orchestration.resources.warehouse import WarehouseResource
from orchestration.sensors.looks import OpenTable, open_table
from orchestration.table_card import TableCard, count_text

_SHOWN: Final = 50
_ILL: Final = 10.0
"""A score from which on nobody would call a table healthy, though no rule asks for anything yet."""
_HOLDERS_OF: Final = 10
"""Of how many tables, the largest first, it is told what keeps data from going: that reads all their manifests."""
_RUNS: Final = 50
"""How many of a table's newest runs count as compute spent."""
_STANDING: Final = frozenset(
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
"""Reasons that stay until a person does something."""
_DESCRIPTION: Final = (
    "All tables ranked: what hurts most, what comes next and when, what is declined and why, what keeps storage. "
    "Materialize it to look now; the command line says the same with `dredge status`."
)


@dataclass(frozen=True)
class TableLine:
    """One table of the ranking: what it needs, the next action and when, what stands in the way, seconds its newest runs took, since when what is overdue could have been done (epoch ms; None: nothing is)."""

    need: TableNeed
    action: str
    when: str
    declined: tuple[Decision, ...] = ()
    seconds: float = 0.0
    overdue_since_ms: int | None = None


def warehouse_health_asset(
    cards: Sequence[TableCard], warehouse_path: str, policies: PolicySource
) -> dg.AssetsDefinition:
    """Return the asset over all tables of the warehouse."""
    key = names.warehouse_health_key(warehouse_path)

    @dg.asset(
        key=key,
        description=_DESCRIPTION,
        group_name=names.WAREHOUSE_HEALTH,
        owners=[names.OWNER],
        kinds={"dredge"},
    )
    @typed
    def warehouse_health(context: dg.AssetExecutionContext, warehouse: WarehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        other = other_warehouse(context.instance, warehouse_path)
        if other is not None:
            raise dg.Failure(other, allow_retries=False)
        now = policies.current()
        if now.trouble:
            context.log.error(now.trouble)
        lines = rank_warehouse(warehouse, context.instance, cards, now)
        tell_conditions(context, warehouse, cards, now)
        for line in lines[:_SHOWN]:
            context.log.info("%s: score %s: %s", line.need.table, line.need.score, line.action)
        waiting = dg.MetadataValue.md(waiting_table(warehouse, context.run, [line.need.table for line in lines]))
        trouble = {"policy file": dg.MetadataValue.text(now.trouble)} if now.trouble else {}
        told = ranking_metadata(lines, held_storage(warehouse, lines), warehouse_path)
        return dg.MaterializeResult(metadata={**trouble, **told, "plans that wait for approval": waiting})

    made: dg.AssetsDefinition = warehouse_health
    return made


def tell_conditions(
    context: dg.AssetExecutionContext, warehouse: WarehouseResource, cards: Sequence[TableCard], policies: Policies
) -> None:
    """Tell Dagster of tables whose checks time alone has changed: work that nothing does, a read-optimized view that lags."""
    opened = [open_table(warehouse, card, policies.of(card.name)) for card in cards]
    tables = [
        (found.card, found.policy, found.store, found.health)
        for found in opened
        if not isinstance(found, Decision) and found.refusal is None and found.health.buckets
    ]
    for evaluation in changed_conditions(context.instance, warehouse.path, tables):
        context.log.info("%s: %s", evaluation.asset_key.path[-1], evaluation.description)
        context.log_event(evaluation)


def rank_warehouse(
    warehouse: WarehouseResource, instance: dg.DagsterInstance, cards: Sequence[TableCard], policies: Policies
) -> list[TableLine]:
    """Return a line for every table, the neediest first; tables that cannot be looked at come before all others."""
    lines: dict[str, TableLine] = {}
    broken: list[TableLine] = []
    suspended = suspensions(instance)
    for card in cards:
        found = open_table(warehouse, card, policies.of(card.name))
        if isinstance(found, Decision):
            need = TableNeed(card.name, score=100.0, costs_most=found.text)
            broken.append(TableLine(need, "see its error", "by hand", (found,)))
            continue
        stopped = blocking_failure(instance, names.layout_key(warehouse.path, card.name))
        reason = Reason.BLOCKED
        if stopped is None and card.name in suspended:
            stopped, reason = suspended[card.name].text(), Reason.SUSPENDED
        lines[card.name] = line_of(found, stopped, reason)
    order = ranked(line.need for line in lines.values())
    return [*broken, *(lines[need.table] for need in order)]


def line_of(table: OpenTable, stopped: str | None = None, reason: Reason = Reason.BLOCKED) -> TableLine:
    """Return the line of one table; ``stopped`` says why it is not touched: a failed check, or runs that failed (``reason``)."""
    late = overdue(due_work(table.facts, table.policy_of, table.now), table.policy, table.now.table_ms).values()
    line = _next_of(table, stopped, reason)
    if not late:
        return line
    since = min(one.since_ms for one in late)
    return replace(line, when=f"{line.when}; overdue: due since {utc_text(since)} UTC", overdue_since_ms=since)


def _next_of(table: OpenTable, stopped: str | None, reason: Reason) -> TableLine:
    """The line of one table, whether or not what it says is overdue."""
    history = history_parts_of(table.store, grace_ms=table.policy.watch.overdue_after_ms)
    need = need_of(table.name, table.health.buckets, history)
    decisions = [*table.decisions(Asked.SORTED_RUNS), *table.decisions(Asked.IDLE)]
    if stopped is not None:
        decisions = [Decision(table.name, "", Outcome.DECLINE, reason, stopped)]
    # What holds for the whole table is said once, whatever was asked.
    standing = tuple(dict.fromkeys(decision for decision in decisions if decision.reason in _STANDING))
    runs = [decision for decision in decisions if decision.outcome is Outcome.RUN]
    seconds = sum(entry.seconds or 0.0 for entry in iterate_ledger(table.store, _RUNS, heads=True))
    if runs:
        first = runs[0]
        more = f" (and {count_text(len(runs) - 1, 'more partition')})" if len(runs) > 1 else ""
        what = f"compact {first.partition}" if first.partition else "compact"
        return TableLine(need, f"{what}: {first.text}{more}", "the next tick", standing, seconds)
    later = [decision for decision in decisions if decision.reason is Reason.OFF_PEAK]
    if later:
        what = f"compact {later[0].partition}" if later[0].partition else "compact"
        return TableLine(need, what, later[0].text, standing, seconds)
    if standing:
        return TableLine(need, "nothing by itself", f"not while: {standing[0].text}", standing, seconds)
    waiting = [
        state
        for state in table.health.partitions
        if (state.small_files >= table.policy_of(state).idle_min_files)
        if table.card.append_only
        or (table.card.partitioned and state.sorted_runs >= table.policy_of(state).idle_min_runs)
    ]
    if waiting:
        due = {state.text: state.newest_file_ms + table.policy_of(state).idle_after_ms for state in waiting}
        nearest = min(waiting, key=lambda state: due[state.text])
        when = utc_text(due[nearest.text])
        return TableLine(need, f"merge {nearest.text or 'its small files'} once idle", f"{when} UTC", standing, seconds)
    owed = reasons_of(history)
    if owed:  # no compaction mends it
        return TableLine(need, f"retention: {owed[0]}", "the next run of retention, or by hand", standing, seconds)
    return TableLine(need, "none: healthy" if need.score < _ILL else "none is due", "-", standing, seconds)


def held_storage(warehouse: WarehouseResource, lines: Sequence[TableLine]) -> list[tuple[str, str, str, int]]:
    """Return (table, holder, kind, bytes held alone), most bytes first, of the largest tables; what the newest snapshots say is left out."""
    found = []
    largest = sorted(lines, key=lambda line: -line.need.total_bytes)
    for line in [line for line in largest if line.need.total_bytes][:_HOLDERS_OF]:
        try:
            rows = holds(warehouse.store(line.need.table)).to_pylist()  # a row a snapshot, tag or consumer
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            found.append((line.need.table, f"cannot be told: {error}", "-", 0))
            continue
        found += [
            (line.need.table, row["holder"], row["kind"], row["bytes"])
            for row in rows
            if row["bytes"] and row["kind"] != "live"
        ]
    return sorted(found, key=lambda item: -item[3])[:_SHOWN]


def waiting_table(warehouse: WarehouseResource, run: dg.DagsterRun, tables: Sequence[str]) -> str:
    """Return a Markdown row for every plan that waits for approval, the longest first, with a link that approves it."""
    found, troubles = [], []
    for table in tables:
        try:
            found += [(table, one) for one in waiting_plans(warehouse.store(table))]
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            troubles.append(f"{plain_cell(table)}: {plain_cell(str(error))}")
    rows = [
        f"| {plain_cell(table)} | {one.plan.action} | {count_text(len(one.plan.items), 'unit')} | {size_text(one.plan.estimate.bytes_in)} "
        f"| {size_text(one.plan.estimate.bytes_freed)} | {utc_text(one.since_ms)} | {plain_cell(one.why)} "
        f"| [{one.plan.hash}]({launch_link(run, APPLY_PLAN, {'table': table, 'hash': one.plan.hash, 'approved_by': ''})}) |"
        for table, one in sorted(found, key=lambda item: item[1].since_ms)
    ]
    more = f"\n\nand {len(rows) - _SHOWN} more: `dredge plans '*'`" if len(rows) > _SHOWN else ""
    head = [
        "| table | action | what | reads | frees | since (UTC) | why it waits | approve |",
        "|---|---|---|--:|--:|---|---|---|",
    ]
    listed = "\n".join([*head, *rows[:_SHOWN]]) + more if rows else "none waits"
    return "\n\n".join([listed, *(f"not looked at: {line}" for line in troubles[:_SHOWN])])


def ranking_metadata(
    lines: Sequence[TableLine], held: Sequence[tuple[str, str, str, int]], warehouse_path: str
) -> dict[str, dg.MetadataValue]:
    """Return the ranking for people, and the numbers that plot."""
    due = [line for line in lines if line.need.due_bytes]
    declined = [decision for line in lines for decision in line.declined]
    first = lines[0] if lines else None
    hurts = "nothing: no table needs help"
    if first is not None and first.need.score:
        hurts = f"{first.need.table} (score {first.need.score:g}): {first.need.costs_most}; next: {first.action}"
    return {
        "what hurts most": dg.MetadataValue.text(hurts),
        names.WAREHOUSE_PATH: dg.MetadataValue.text(warehouse_path),
        "tables": dg.MetadataValue.md(ranking_table(lines, warehouse_path)),
        "declined": dg.MetadataValue.md(_declined(declined)),
        "what keeps storage": dg.MetadataValue.md(_held(held)),
        "tables looked after": dg.MetadataValue.int(len(lines)),
        "tables with work due": dg.MetadataValue.int(len(due)),
        "tables with work overdue": dg.MetadataValue.int(sum(line.overdue_since_ms is not None for line in lines)),
        "worst score": dg.MetadataValue.float(max((line.need.score for line in lines), default=0.0)),
        "due compactions read": dg.MetadataValue.text(size_text(sum(line.need.due_bytes for line in due))),
        "due compactions read (bytes)": dg.MetadataValue.int(sum(line.need.due_bytes for line in due)),
        "size of all tables": dg.MetadataValue.text(size_text(sum(line.need.total_bytes for line in lines))),
    }


def ranking_table(lines: Sequence[TableLine], warehouse_path: str) -> str:
    """Return one Markdown row a table, the neediest 50, with links to their layouts."""
    if not lines:
        return "the warehouse holds no table yet"
    rows = [
        "| table | score | made of | what costs most | next action | when | last compacted | not compacted since | level 0, most | runs took | size |",
        "|---|--:|---|---|---|---|---|---|--:|--:|--:|",
    ]
    for line in lines[:_SHOWN]:
        need = line.need
        page = "/".join(quote(part, safe="") for part in names.layout_key(warehouse_path, need.table).path)
        cells = [
            f"[{plain_cell(need.table)}](/assets/{page})",
            f"{need.score:g}",
            ", ".join(f"{name} {points:g} of {most:g}" for name, points, most in need.parts if points) or "-",
            *map(plain_cell, (need.costs_most, line.action, line.when)),
            *(
                "-" if moment is None else utc_text(moment)
                for moment in (need.last_compaction_ms, need.oldest_level0_ms)
            ),
            f"{need.level0_files:,}",
            f"{line.seconds:.1f} s",
            size_text(need.total_bytes),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    more = f"\n\nand {len(lines) - _SHOWN} more tables" if len(lines) > _SHOWN else ""
    return "\n".join(rows) + more


def _declined(declined: Sequence[Decision]) -> str:
    if not declined:
        return "nothing stands in the way of any table"
    rows = [
        f"| {plain_cell(item.subject)} | {item.reason.value} | {plain_cell(item.text)} |" for item in declined[:_SHOWN]
    ]
    more = f"\n\nand {len(declined) - _SHOWN} more" if len(declined) > _SHOWN else ""
    return "\n".join(["| what | reason | why |", "|---|---|---|", *rows]) + more


def _held(held: Sequence[tuple[str, str, str, int]]) -> str:
    if not held:
        return "nothing is kept but what the newest snapshots say"
    rows = [
        f"| {plain_cell(table)} | {plain_cell(holder)} | {plain_cell(kind)} | {size_text(size)} |"
        for table, holder, kind, size in held
    ]
    return "\n".join(["| table | holder | kind | held alone |", "|---|---|---|--:|", *rows])
