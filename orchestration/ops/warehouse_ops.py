"""What is done to many tables in one run: maintenance by one plan, the worst first, and the weekly plans for orphan files, which nobody applies unasked."""

from __future__ import annotations

import datetime
import time
from dataclasses import replace
from functools import cache
from typing import Final

import dagster as dg
from pydantic import Field

from lsm_core.clock import SystemClock, utc_text
from lsm_core.errors import DredgeError, PlanStale
from lsm_core.maintenance import applied_before, load_plan, plan_maintenance
from lsm_core.maintenance.action import size_text
from lsm_core.maintenance.combined import ROUTINE, CombinedItem, CombinedPlan
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.blocked import RunsAtWork, blocking_failure, suspension
from orchestration.health import refusal_of
from orchestration.metadata import declined_table, plain_cell
from orchestration.ops.approval import wait_for_approval, why_approved_first
from orchestration.ops.each_table import TableFailed, each_table
from orchestration.ops.layout_ops import ruled_store
from orchestration.ops.table_ops import TellChecks, carry_out, said_in_one_line
from orchestration.policies import History, Policies, policy_source
from orchestration.policies.budgets import Budget
from orchestration.policies.rounds import Round
from orchestration.quirks import typed
from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import WarehouseResource, list_tables
from orchestration.table_card import count_text

_SHOWN: Final = 200
_HOUR_SECONDS: Final = 3_600


class Maintenance(dg.Config):
    """What `maintain` is given."""

    pattern: str = Field("*", description="which tables: a database, 'db.*', '*.orders', or one table")
    actions: list[str] = Field(list(ROUTINE), description="what to do to each, in this order: names of actions' jobs")
    max_bytes: str | None = Field(None, description="compact so much at most, like '10 gb'")
    max_tables: int | None = Field(None, description="touch so many tables at most")
    max_time: str | None = Field(None, description="begin nothing once this is over, like '1 h'")
    resume: str | None = Field(None, description="go on with the plan of this hash, whatever the pattern says")
    unattended: bool = Field(
        default=False,
        description="keep to the policies' hours and budgets, and leave suspended tables alone, as sensors do; what its schedule does. By hand none of these holds",
    )
    dry_run: bool = Field(default=False, description="plan only: say what would be done in which order")


@cache
def maintain_op(tell_checks: TellChecks) -> dg.OpDefinition:
    """Return the op that looks after many tables by one combined plan; ``tell_checks`` evaluates the checks of the layouts that it materialises."""

    @dg.op(
        name="maintain_tables",
        description="Plan many tables as one, the worst first within the bounds, then apply each table's plan in a commit of its own.",
        config_schema=Maintenance.to_fields_dict(),
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def maintain_tables(
        context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource
    ) -> dg.Output[None]:
        asked = Maintenance(**context.op_config)
        began = time.monotonic()
        rules = round_of(context.instance, warehouse, unattended=asked.unattended)
        if asked.unattended:
            left = budget_left(context.instance, rules.policies, RunsAtWork(context.instance), SystemClock().now_ms())
            rules = replace(rules, budget=replace(left, in_turn=True))
        if rules.policies.trouble:
            context.log.warning(rules.policies.trouble)
        with said_in_one_line("the warehouse"):
            catalog = warehouse.catalog()
            if asked.resume:
                plan = catalog.load_maintenance(asked.resume.strip())
            else:
                plan = catalog.plan_maintenance(
                    asked.pattern,
                    asked.actions,
                    max_bytes=asked.max_bytes or None,
                    max_tables=asked.max_tables,
                    max_time=asked.max_time or None,
                    save=not asked.dry_run,
                    rules=rules,
                )
        context.log.info(
            f"plan {plan.hash}: {count_text(len(plan.items), 'plan')} of {count_text(len(plan.tables), 'table')}"
        )
        left_alone = [one for one in plan.declined if one.reason not in {"nothing", "failed"}]
        for one in left_alone[:_SHOWN]:
            context.log.info(f"{one.subject}: left alone ({one.reason}): {one.text}")
        told = {"plan": plan.hash, "what and in which order": dg.MetadataValue.md(_order(plan))}
        if left_alone:
            told["left alone"] = dg.MetadataValue.md(declined_table(left_alone))
        context.add_output_metadata(told)
        if asked.dry_run:
            return dg.Output(None)
        if asked.unattended:  # what it reads is no longer left for sensors to start within this hour
            context.instance.add_run_tags(
                context.run_id, {names.bytes_tag(): str(sum(item.bytes_in for item in plan.items))}
            )

        def maintain(item: CombinedItem) -> None:
            if plan.limits.max_seconds is not None and time.monotonic() - began >= plan.limits.max_seconds:
                text = f"{plan.limits.max_seconds:g} s are over; launch maintain with resume: {plan.hash} to go on"
                context.log.info(f"{item.table}: {item.action}: later: {text}")
                return
            # as things are by now: an hour may have passed
            latest = round_of(context.instance, warehouse, unattended=asked.unattended)
            _maintain_item(context, warehouse, spark, item, latest, tell_checks)

        # A failed plan is told beside those that were declined, and so is a table that fails now.
        failed = {
            f"{one.subject}: {one.facts.get('action')}": one.text for one in plan.declined if one.reason == "failed"
        }
        tables: dict[str, CombinedItem | str] = {**failed}
        for item in plan.items:
            name = f"{item.table}: {item.action}"
            tables[f"{name} ({item.plan_hash[:12]})" if name in tables else name] = item

        def do(given: CombinedItem | str) -> None:
            if isinstance(given, str):
                raise TableFailed(given)
            maintain(given)

        each_table(context, tables, do)
        return dg.Output(None)

    return maintain_tables


def _order(plan: CombinedPlan) -> str:
    if not plan.items:
        return "nothing calls for anything"
    rows = [
        f"| {plain_cell(item.table)} | {item.action} | {item.score:g} | {size_text(item.bytes_in)} | {size_text(item.bytes_freed)} | {item.seconds:.1f} | {plain_cell(item.reason)} |"
        for item in plan.items[:_SHOWN]
    ]
    more = f"\n\nand {len(plan.items) - _SHOWN} more" if len(plan.items) > _SHOWN else ""
    head = ["| table | action | score | reads | frees | seconds, about | why |", "|---|---|--:|--:|--:|--:|---|"]
    return "\n".join([*head, *rows]) + more


def _maintain_item(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    spark: SparkResource,
    item: CombinedItem,
    rules: Round,
    tell_checks: TellChecks,
) -> None:
    """Apply one table's part, or say why it rests. Raises TableFailed."""
    try:
        store = ruled_store(warehouse, item.table)
        plan = load_plan(store, item.plan_hash)
        forbidden = None if applied_before(store, plan) is not None else rules.why_not(store, plan)
        if forbidden is not None:
            context.log.info(f"{forbidden.subject}: left alone ({forbidden.reason}): {forbidden.text}")
            return
        why = why_approved_first(warehouse, item.table, item.action)
        if why:
            wait_for_approval(context, store, plan, why)
            return
        carry_out(context, warehouse, spark, store, plan, f"dagster run {context.run_id}", tell_checks)
    except PlanStale as error:  # applied by somebody else, or the table moved on: the next round plans it anew
        context.log.info(f"{item.table}: {item.action}: {error}")
    except dg.Failure as error:
        raise TableFailed(error.description or str(error)) from error


def round_of(instance: dg.DagsterInstance, warehouse: WarehouseResource, *, unattended: bool) -> Round:
    """Return the rules of a round over many tables at this moment, with what Dagster knows of checks, runs and, where nobody asked for it, suspensions; without a budget."""
    policies, at_work = policy_source(warehouse.policy_file).current(), RunsAtWork(instance)

    def known(table: str, partition: str) -> History:
        layout = names.layout_key(warehouse.path, table)
        suspended = suspension(instance, table) if unattended else None
        return History(
            blocked=blocking_failure(instance, layout, partition or None),
            at_work=at_work.of(table, layout, anywhere=True),
            suspended=None if suspended is None else suspended.text(),
        )

    return Round(policies, unattended, approved=True, known=known)


def budget_left(instance: dg.DagsterInstance, policies: Policies, at_work: RunsAtWork, now_ms: int) -> Budget:
    """Return what is left of the budgets (epoch ms of the wall's clock): tables at work, and what runs that nobody asked for within the last hour were expected to read."""
    limit, spent = policies.bytes_an_hour, 0
    if limit is not None:
        since = datetime.datetime.fromtimestamp(now_ms / 1000 - _HOUR_SECONDS, datetime.UTC)
        tags = [run.tags.get(names.bytes_tag(), "") for run in instance.get_runs(dg.RunsFilter(created_after=since))]
        spent = sum(int(one) for one in tags if one.isdigit())
    return Budget(limit, policies.concurrent_tables, spent, frozenset(at_work.tables()))


@cache
def orphan_plans_op() -> dg.OpDefinition:
    """Return the op that plans the removal of files that nothing names, table by table, for somebody to approve."""

    @dg.op(
        name="plan_orphans",
        description="List what no snapshot, branch, tag, plan or deletion record of a table names; each plan waits for approval, nothing is deleted.",
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def plan_orphans(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
        tables, left_out = list_tables(warehouse.catalog())
        policies = policy_source(warehouse.policy_file).current()
        for line in [*([policies.trouble] if policies.trouble else []), *left_out]:
            context.log.warning(line)
        found: dict[str, str] = {}

        def plan_table(table: str) -> None:
            store = _open(context, warehouse, table)
            if store is None:
                return
            arguments = policies.of(table).retention_arguments("orphans", store.clock.now_ms())
            plan = plan_maintenance(store, "orphans", spark.task_runner(), **arguments)
            if not plan.items:
                return
            told = wait_for_approval(context, store, plan, f"weekly plan of {utc_text(store.clock.now_ms())} UTC")
            freed = f"{count_text(len(plan.items), 'file')}, {size_text(plan.estimate.bytes_freed)}"
            found[table] = f"{freed}: {told['waits for approval'].value}"

        try:
            each_table(context, {table: table for table in tables}, plan_table)
        finally:
            rows = [f"| {plain_cell(table)} | {text} |" for table, text in list(found.items())[:_SHOWN]]
            listed = "\n".join(["| table | orphan files |", "|---|---|", *rows]) if rows else "no table has any"
            context.add_output_metadata({"plans": dg.MetadataValue.md(listed)})

    return plan_orphans


def _open(context: dg.OpExecutionContext, warehouse: WarehouseResource, table: str) -> TableStore | None:
    """Open a table that maintenance may touch; None, and a line in the log, for others: they are shown as such on their assets' pages."""
    try:
        store = warehouse.store(table)
        refusal = refusal_of(store)
    except DredgeError as error:
        refusal = str(error)
    if refusal is not None:
        context.log.info(f"{table}: left alone: {refusal}")
        return None
    return store


__all__ = ["Maintenance", "budget_left", "maintain_op", "orphan_plans_op", "round_of"]
