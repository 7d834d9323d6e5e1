"""Asset `warehouse_health`: all tables ranked by state and score, from metadata alone, with reasons and next steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import quote

import dagster as dg

from dredge.checks.layout_condition import changed_conditions
from dredge.orchestration.fleet_report import gather_report, read_scores, report_files, write_report
from dredge.orchestration.ops.approval import approval_link
from dredge.orchestration.sensors.metric_files import state_samples, write_metrics
from dredge.orchestration.sensors.table_cache import open_table
from dredge.orchestration.sensors.table_states import TableEvaluation, count_states, evaluate_states
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import resolve_annotations
from dredge.platform_core.metadata import Launchpad, plain_cell
from dredge.platform_core.obstacles import find_other_warehouse
from dredge.platform_core.policies import Decision, Policies, PolicySource
from dredge.platform_core.policies.decisions import due_work
from dredge.platform_core.policies.findings import find_overdue_work
from dredge.platform_core.policies.table_state import STATE_HELP, TableState, TableStatus
from dredge.platform_core.resource_names import rename_resources
from dredge.platform_core.resources.settings import Settings
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.table_card import TableCard, count_text
from lsm_core.clock import utc_text
from lsm_core.maintenance import holds, iterate_ledger, waiting_plans
from lsm_core.maintenance.action import size_text
from lsm_core.maintenance.table_ranking import TableNeed

_SHOWN: Final = 50
_WORST: Final = 15
"""Number of tables that the page shows inline, without opening a dialog."""
_UNHEALTHY: Final = 10.0
"""Lowest score at which a table is not reported as healthy, although no rule requires an action yet."""
_HOLDERS_OF: Final = 10
"""Number of largest tables for which the holders of old data are listed, because the list reads all manifests.

A holder is a snapshot, tag, branch, consumer or plan that prevents the deletion of data files.
"""
_RUNS: Final = 50
"""Number of newest runs of a table whose seconds count as compute costs."""
_NAME_LENGTH: Final = 48
_REASON_LENGTH: Final = 80
_STEP_LENGTH: Final = 70
"""Most characters of a name, a reason and a next step in an inline table, whose rows are narrow; the rest is cut."""
_WORD_LENGTH: Final = 36
"""Most characters of a word without blanks, such as a path: pages do not break words, and a long one widens the page.
"""
_CELL_WORD_LENGTH: Final = 24
"""Most characters of a word in an inline table of four columns."""
_COLUMNS: Final = (
    "table",
    "state",
    "why",
    "next action",
    "when",
    "since",
    "score",
    "parts",
    "costs most",
    "last compacted",
    "not compacted since",
    "level 0, most",
    "runs took",
    "size",
)
_DESCRIPTION: Final = (
    "Ranks all tables by state, then by score: which table needs a person, why, and what happens next and when. "
    "Materialize it to rank now; `dredge status` ranks on the command line."
)


@dataclass(frozen=True)
class TableLine:
    """Row of one table in the ranking.

    Attributes:
        evaluation: state, need and decisions of the table.
        seconds: total seconds of the newest 50 runs in the table's ledger.
        overdue_since_ms: time since which overdue work could have run (epoch ms), or None without overdue work.
    """

    evaluation: TableEvaluation
    seconds: float = 0.0
    overdue_since_ms: int | None = None

    @property
    def need(self) -> TableNeed:
        """Health score of the table, 0 (healthy) to 100 (urgent), with its components."""
        return self.evaluation.need

    @property
    def status(self) -> TableStatus:
        """Status of the table."""
        return self.evaluation.status

    @property
    def when(self) -> str:
        """Time of the next action, and since when the work is overdue."""
        if self.overdue_since_ms is None:
            return self.status.when
        return f"{self.status.when}; overdue: due since {utc_text(self.overdue_since_ms)} UTC"

    @property
    def obstacles(self) -> list[TableStatus]:
        """Statuses of the table and its partitions that last until a person acts, or until a pause ends."""
        statuses = [self.status, *self.evaluation.partitions]
        lasting = [status for status in statuses if status.state.needs_attention or status.state in _LASTING]
        return list({(status.partition, status.reason, status.text): status for status in lasting}.values())


_LASTING: Final = frozenset({TableState.PAUSED, TableState.NOT_MAINTAINED})
"""Further states whose reasons are listed as declined work."""


def warehouse_health_asset(
    cards: Sequence[TableCard], warehouse_names: names.WarehouseNames, policies: PolicySource
) -> dg.AssetsDefinition:
    """Return the asset that ranks all tables of the warehouse by state and score."""
    key = warehouse_names.warehouse_health_key()

    spec = dg.AssetSpec(
        key,
        description=_DESCRIPTION,
        group_name=warehouse_names.definition(names.WAREHOUSE_HEALTH),
        owners=[names.OWNER],
        kinds={"dredge"},
    )
    # With a prefix, the job `warehouse_health` has the name that Dagster derives from the key of the asset.
    op_name = warehouse_names.definition("rank_tables") if warehouse_names.prefix else "__".join(key.path)

    @dg.multi_asset(name=op_name, specs=[spec])
    @partial(rename_resources, warehouse_names=warehouse_names)
    @resolve_annotations
    def warehouse_health(
        context: dg.AssetExecutionContext,
        warehouse: WarehouseResource,
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        other = find_other_warehouse(context.instance, warehouse_names)
        if other is not None:
            raise dg.Failure(other, allow_retries=False)
        current_policies = policies.current()
        if current_policies.trouble:
            context.log.error(current_policies.trouble)
        lines = rank_warehouse(warehouse, context.instance, cards, current_policies)
        report = report_tables(context, warehouse, lines, current_policies)
        report_conditions(context, warehouse, cards, current_policies)
        now_ms = warehouse.time().now_ms()
        states = state_samples([line.evaluation for line in lines], now_ms)
        write_metrics(warehouse.names, "states", states, warehouse.environment())
        for line in lines[:_SHOWN]:
            context.log.info("%s: %s; next: %s", line.need.table, line.status.line(now_ms), line.status.next_step())
        pending_plans = dg.MetadataValue.md(
            list_waiting_plans(warehouse, Launchpad(context.run, warehouse.names), [line.need.table for line in lines])
        )
        trouble = {"policy file": dg.MetadataValue.text(current_policies.trouble)} if current_policies.trouble else {}
        metadata = ranking_metadata(lines, find_holders(warehouse, lines), warehouse_names, now_ms)
        metadata |= {**report, "plans that wait for approval": pending_plans}
        return dg.MaterializeResult(metadata={**trouble, **metadata})

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
    for evaluation in changed_conditions(context.instance, warehouse.names, tables):
        context.log.info("%s: %s", evaluation.asset_key.path[-1], evaluation.description)
        context.log_event(evaluation)


def report_tables(
    context: dg.AssetExecutionContext, warehouse: WarehouseResource, lines: Sequence[TableLine], policies: Policies
) -> dict[str, dg.MetadataValue]:
    """Write the report on all tables as an HTML page, and return a link to it as metadata.

    A failure is logged and named in the metadata; the ranking is more important than its page.

    Args:
        context: context of the asset.
        warehouse: the warehouse.
        lines: lines of the ranking.
        policies: policies in force.
    """
    try:
        settings = Settings.from_environment(warehouse.environment())
        files = report_files(warehouse.names, settings, context.instance.root_directory)
        if files is None:
            return {}
        scores = read_scores(files.scores)
        evaluations, now_ms = [line.evaluation for line in lines], warehouse.time().now_ms()
        report = gather_report(warehouse.names, evaluations, policies, now_ms, scores, dagster_url=settings.ui_url)
        write_report(report, files, scores)
    except Exception as error:
        context.log.exception("the report on all tables was not written")
        return {"report": dg.MetadataValue.text(f"not written: {type(error).__name__}: {error}")}
    context.log.info("report on all tables: %s", files.page)
    link = {"report address": dg.MetadataValue.url(files.address)} if files.address else {}
    return {**link, "report": dg.MetadataValue.path(str(files.page))}


def rank_warehouse(
    warehouse: WarehouseResource, instance: dg.DagsterInstance, cards: Sequence[TableCard], policies: Policies
) -> list[TableLine]:
    """Rank the tables of the warehouse by state, then by score.

    Args:
        warehouse: the warehouse.
        instance: Dagster instance, for checks, runs and budgets.
        cards: descriptions of the tables in the loaded definitions.
        policies: policies in force.

    Returns:
        A line for every table, the table that needs a person most urgently first.
    """
    settings = Settings.from_environment(warehouse.environment())
    return [_make_line(evaluation) for evaluation in evaluate_states(warehouse, instance, cards, policies, settings)]


def _make_line(evaluation: TableEvaluation) -> TableLine:
    """Return the line of one table, with overdue work and compute costs if the table can be read."""
    table = evaluation.table
    if table is None:
        return TableLine(evaluation)
    work = due_work(table.facts, table.policy_of, table.now)
    overdue = find_overdue_work(work, table.policy, table.now.table_ms).values()
    seconds = sum(entry.seconds or 0.0 for entry in iterate_ledger(table.store, _RUNS, heads=True))
    return TableLine(evaluation, seconds, min((item.since_ms for item in overdue), default=None))


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


def list_waiting_plans(warehouse: WarehouseResource, launchpad: Launchpad, tables: Sequence[str]) -> str:
    """Return a Markdown line with an approval link for every plan that waits for approval, oldest plan first.

    Lines break where a table would widen the page.

    Args:
        warehouse: warehouse of the tables.
        launchpad: maker of links to the warehouse's jobs.
        tables: full names of the tables to search.
    """
    plans, troubles = [], []
    for table in tables:
        try:
            plans += [(table, pending) for pending in waiting_plans(warehouse.store(table))]
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            troubles.append(f"{plain_cell(table)}: {plain_cell(cut_words(str(error)))}")
    lines = [
        f"- [{pending.plan.hash}]({approval_link(launchpad, table, pending.plan.hash)}): {plain_cell(table)}, "
        f"{pending.plan.action} of {count_text(len(pending.plan.items), 'unit')}: "
        f"reads {size_text(pending.plan.estimate.bytes_in)}, frees {size_text(pending.plan.estimate.bytes_freed)}; "
        f"waits since {utc_text(pending.since_ms)} UTC: {plain_cell(pending.why)}"
        for table, pending in sorted(plans, key=lambda item: item[1].since_ms)
    ]
    more = f"\n\nand {len(lines) - _SHOWN} more: `dredge plans '*'`" if len(lines) > _SHOWN else ""
    text = "\n".join(lines[:_SHOWN]) + more if lines else "none waits"
    return "\n\n".join([text, *(f"not readable: {line}" for line in troubles[:_SHOWN])])


def ranking_metadata(
    lines: Sequence[TableLine],
    holders: Sequence[tuple[str, str, str, int]],
    warehouse_names: names.WarehouseNames,
    now_ms: int,
) -> dict[str, dg.MetadataValue]:
    """Return the ranking for display, and the numbers to plot.

    Args:
        lines: lines of the ranking, the table that needs a person most urgently first.
        holders: result of `find_holders`.
        warehouse_names: names of the warehouse in Dagster.
        now_ms: time of the ranking (epoch ms).
    """
    due = [line for line in lines if line.need.due_bytes]
    return {
        "most urgent": dg.MetadataValue.text(_name_most_urgent(lines, now_ms)),
        "states": state_counts([line.evaluation for line in lines]),
        "worst tables": worst_tables(lines),
        names.WAREHOUSE_PATH: dg.MetadataValue.text(warehouse_names.path),
        "tables": dg.MetadataValue.md(ranking_table(lines, warehouse_names)),
        "declined": dg.MetadataValue.md(_declined_rows([status for line in lines for status in line.obstacles])),
        "holders of old data": dg.MetadataValue.md(_holder_rows(holders)),
        "maintained tables": dg.MetadataValue.int(len(lines)),
        "tables that need a person": dg.MetadataValue.int(sum(line.status.state.needs_attention for line in lines)),
        "tables with work due": dg.MetadataValue.int(len(due)),
        "tables with work overdue": dg.MetadataValue.int(sum(line.overdue_since_ms is not None for line in lines)),
        "worst score": dg.MetadataValue.float(max((line.need.score for line in lines), default=0.0)),
        "due compactions read": dg.MetadataValue.text(size_text(sum(line.need.due_bytes for line in due))),
        "due compactions read (bytes)": dg.MetadataValue.int(sum(line.need.due_bytes for line in due)),
        "size of all tables": dg.MetadataValue.text(size_text(sum(line.need.total_bytes for line in lines))),
    }


def _name_most_urgent(lines: Sequence[TableLine], now_ms: int) -> str:
    """Return one line about the first table of the ranking, with its state, reason and next step.

    Args:
        lines: lines of the ranking, the table that needs a person most urgently first.
        now_ms: time of the ranking (epoch ms).
    """
    first = lines[0] if lines else None
    if first is None or (first.status.state.is_calm and first.need.score < _UNHEALTHY):
        return "nothing: no table needs help"
    status = first.status
    score = f" (score {first.need.score:g}: {first.need.costs_most})" if status.state.is_calm else ""
    return f"{first.need.table} is {cut_words(status.line(now_ms))}{score}; next: {status.action}, {first.when}"


def state_counts(evaluations: Sequence[TableEvaluation]) -> dg.TableMetadataValue:
    """Return the number of tables in each state, with the meaning of the state, as a table that pages show inline."""
    records = [
        dg.TableRecord({"state": state.value, "tables": count, "meaning": STATE_HELP[state]})
        for state, count in count_states(evaluations).items()
    ]
    columns = [
        dg.TableColumn("state", "string", description="the most urgent state first"),
        dg.TableColumn("tables", "int"),
        dg.TableColumn("meaning", "string"),
    ]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def worst_tables(lines: Sequence[TableLine]) -> dg.TableMetadataValue:
    """Return the first 15 tables of the ranking as a table that pages show inline; long names and texts are cut.

    Args:
        lines: lines of the ranking.
    """
    records = []
    for line in lines[:_WORST]:
        status = line.status
        waits = f"; waits for {status.waits}" if status.waits else ""
        why = cut_end(cut_words(f"{status.why}{waits}", _CELL_WORD_LENGTH), _REASON_LENGTH)
        step = status.action if line.when == "-" else f"{status.action}: {line.when}"
        step = cut_end(cut_words(step, _CELL_WORD_LENGTH), _STEP_LENGTH)
        records.append(
            dg.TableRecord(
                {
                    "table": cut_middle(line.need.table, _NAME_LENGTH),
                    "state": status.label,
                    "score": line.need.score,
                    "why, and next step": f"{why}. Next: {step}",
                }
            )
        )
    # Four columns: the page is so narrow that each further one makes the rows twice as high.
    descriptions = {
        "table": "full name; the list *tables* below links to its layout",
        "state": "the list *states* above explains it",
        "score": "need of maintenance, 0 (healthy) to 100",
        "why, and next step": "the reason with its numbers, then what happens next and when; 'by hand': by a person",
    }
    columns = [
        dg.TableColumn(name, "float" if name == "score" else "string", description=text)
        for name, text in descriptions.items()
    ]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def ranking_table(lines: Sequence[TableLine], warehouse_names: names.WarehouseNames) -> str:
    """Return one Markdown row with a link to the layout for each of the first 50 tables of the ranking."""
    if not lines:
        return "the warehouse has no tables yet"
    rows = [f"| {' | '.join(_COLUMNS)} |", "|---|---|---|---|---|---|--:|---|---|---|---|--:|--:|--:|"]
    for line in lines[:_SHOWN]:
        need, status = line.need, line.status
        asset_path = "/".join(quote(part, safe="") for part in warehouse_names.layout_key(need.table).path)
        cells = [
            f"[{plain_cell(need.table)}](/assets/{asset_path})",
            *map(plain_cell, (status.label, status.why, status.action, line.when)),
            utc_text(status.since_ms),
            f"{need.score:g}",
            ", ".join(f"{name} {points:g} of {weight:g}" for name, points, weight in need.parts if points) or "-",
            plain_cell(need.costs_most),
            *map(utc_text, (need.last_compaction_ms, need.oldest_level0_ms)),
            f"{need.level0_files:,}",
            f"{line.seconds:.1f} s",
            size_text(need.total_bytes),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    more = f"\n\nand {len(lines) - _SHOWN} more tables" if len(lines) > _SHOWN else ""
    return "\n".join(rows) + more


def cut_end(text: str, length: int) -> str:
    """Return a text of at most `length` characters, cut at the end."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def cut_words(text: str, length: int = _WORD_LENGTH) -> str:
    """Return a text whose words have at most `length` characters; of a longer word, such as a path, the end is kept."""
    return " ".join(word if len(word) <= length else f"…{word[1 - length :]}" for word in text.split(" "))


def cut_middle(name: str, length: int) -> str:
    """Return a name of at most `length` characters, cut in the middle, because both ends identify it."""
    if len(name) <= length:
        return name
    half = (length - 1) // 2
    return f"{name[: length - 1 - half]}…{name[-half:]}"


def _declined_rows(statuses: Sequence[TableStatus]) -> str:
    if not statuses:
        return "no table has an obstacle"
    rows = [
        f"| {plain_cell(f'{status.table}/{status.partition}' if status.partition else status.table)} "
        f"| {status.state.value if status.reason is None else status.reason.value} | {plain_cell(status.text)} |"
        for status in statuses[:_SHOWN]
    ]
    more = f"\n\nand {len(statuses) - _SHOWN} more" if len(statuses) > _SHOWN else ""
    return "\n".join(["| subject | reason code | why |", "|---|---|---|", *rows]) + more


def _holder_rows(holders: Sequence[tuple[str, str, str, int]]) -> str:
    if not holders:
        return "no old data is kept"
    rows = [
        f"| {plain_cell(table)} | {plain_cell(holder)} | {plain_cell(kind)} | {size_text(size)} |"
        for table, holder, kind, size in holders
    ]
    return "\n".join(["| table | holder | kind | held alone |", "|---|---|---|--:|", *rows])
