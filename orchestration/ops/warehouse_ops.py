"""Ops over many tables in one run: `maintain` (one combined plan, most urgent tables first) and weekly orphan plans."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Final

import dagster as dg
from pydantic import Field

from dredge.orchestration.ops.approval import approval_reason, wait_for_approval
from dredge.orchestration.ops.common import TableFailed, TableUnreadable, fail_in_one_line, job_op, process_tables
from dredge.orchestration.ops.layout_ops import open_with_policy
from dredge.orchestration.ops.table_ops import apply_and_report
from dredge.platform_core import names
from dredge.platform_core.failure_records import find_lasting, list_failures, table_failure_tags
from dredge.platform_core.health import refusal_of
from dredge.platform_core.metadata import declined_table, plain_cell
from dredge.platform_core.obstacles import RunningRuns, find_blocking_failure, find_suspension
from dredge.platform_core.policies import History, Policies, policy_source
from dredge.platform_core.policies.budgets import Budget
from dredge.platform_core.policies.permanent_failures import PermanentFailure
from dredge.platform_core.policies.rounds import Round
from dredge.platform_core.resources.spark_resource import SparkResource
from dredge.platform_core.resources.warehouse import WarehouseResource, list_tables
from dredge.platform_core.table_card import count_text
from lsm_core.clock import SystemClock, utc_text
from lsm_core.errors import DredgeError, PlanStale
from lsm_core.maintenance import Declined, MaintenancePlan, applied_before, load_plan, plan_maintenance
from lsm_core.maintenance.action import size_text
from lsm_core.maintenance.combined import ROUTINE, UNREADABLE, CombinedItem, CombinedPlan
from lsm_core.metadata.store import TableStore

_SHOWN: Final = 200
_HOUR_SECONDS: Final = 3_600
_MOST_RECORDED: Final = 100
"""Most tables whose failures a run records in its tags."""


class MaintainConfig(dg.Config):
    """Configuration of the job `maintain`."""

    pattern: str = Field("*", description="tables to maintain: a database, 'db.*', '*.orders', or one table")
    actions: list[str] = Field(
        list(ROUTINE), description="actions for each table, in this order; each is the name of a job"
    )
    max_bytes: str | None = Field(None, description="most bytes to compact, like '10 gb'")
    max_tables: int | None = Field(None, description="most tables to maintain")
    max_time: str | None = Field(None, description="time after which no further action starts, like '1 h'")
    resume: str | None = Field(None, description="hash of a plan to continue; the pattern is ignored then")
    unattended: bool = Field(
        default=False,
        description=(
            "true: respect the policies' hours and budgets and skip suspended tables, like sensors and the schedule; "
            "false: ignore all three"
        ),
    )
    dry_run: bool = Field(default=False, description="true: plan only, and show the actions in their order")


@job_op(
    "maintain_tables",
    "Plan many tables together, the most urgent first within the limits, "
    "then apply each table's plan in its own commit.",
    config=MaintainConfig,
)
def maintain_op(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> dg.Output[None]:
    """Maintain many tables by one combined plan."""
    config = MaintainConfig(**context.op_config)
    start_seconds = time.monotonic()
    rules = build_round(context.instance, warehouse, unattended=config.unattended)
    if config.unattended:
        remaining = compute_budget(
            context.instance,
            warehouse.names,
            rules.policies,
            RunningRuns(context.instance, warehouse.names),
            SystemClock().now_ms(),
        )
        rules = replace(rules, budget=replace(remaining, in_turn=True))
    if rules.policies.trouble:
        context.log.warning(rules.policies.trouble)
    with fail_in_one_line("the warehouse"):
        catalog = warehouse.catalog()
        if config.resume:
            plan = catalog.load_maintenance(config.resume.strip())
        else:
            plan = catalog.plan_maintenance(
                config.pattern,
                config.actions,
                max_bytes=config.max_bytes or None,
                max_tables=config.max_tables,
                max_time=config.max_time or None,
                save=not config.dry_run,
                rules=rules,
            )
    context.log.info(
        f"plan {plan.hash}: {count_text(len(plan.items), 'plan')} of {count_text(len(plan.tables), 'table')}"
    )
    left_alone = [declined for declined in plan.declined if declined.reason not in {"nothing", "failed"}]
    for declined in left_alone[:_SHOWN]:
        context.log.info(f"{declined.subject}: left alone ({declined.reason}): {declined.text}")
    metadata = {"plan": plan.hash, "planned actions in order": dg.MetadataValue.md(_order_table(plan))}
    if left_alone:
        metadata["left alone"] = dg.MetadataValue.md(declined_table(left_alone))
    context.add_output_metadata(metadata)
    if config.dry_run:
        return dg.Output(None)
    if config.unattended:  # these bytes count towards the hour's budget of the sensors
        context.instance.add_run_tags(
            context.run_id, {warehouse.names.bytes_tag(): str(sum(item.bytes_in for item in plan.items))}
        )

    def maintain(item: CombinedItem) -> None:
        if plan.limits.max_seconds is not None and time.monotonic() - start_seconds >= plan.limits.max_seconds:
            text = f"max_time of {plan.limits.max_seconds:g} s reached; launch maintain with resume: {plan.hash}"
            context.log.info(f"{item.table}: {item.action}: postponed: {text}")
            return
        # Read the rules again: an hour may have passed since planning.
        latest = build_round(context.instance, warehouse, unattended=config.unattended)
        _maintain_item(context, warehouse, spark, item, latest)

    def process(entry: CombinedItem | Declined) -> None:
        if isinstance(entry, CombinedItem):
            maintain(entry)
        elif entry.reason == UNREADABLE:
            raise TableUnreadable(entry.text, [str(entry.facts["file"])] if "file" in entry.facts else [])
        else:
            raise TableFailed(entry.text)

    entries = _list_entries(plan, unattended=config.unattended)
    process_tables(context, entries, process, unattended_in=warehouse if config.unattended else None)
    return dg.Output(None)


def _list_entries(plan: CombinedPlan, *, unattended: bool) -> dict[str, CombinedItem | Declined]:
    """Return the work of a run by name: failed planning, unreadable parts of tables, and plans to apply.

    Args:
        plan: plan of all tables.
        unattended: whether no person started the run. Only then are unreadable parts included, which the run records.

    Returns:
        Plans to apply (`CombinedItem`), and failed or unreadable entries (`Declined`). A name is the table with
        ``: `` and the action or the number of the unreadable part.
    """
    entries: dict[str, CombinedItem | Declined] = {
        f"{declined.subject}: {declined.facts.get('action')}": declined
        for declined in plan.declined
        if declined.reason == "failed"
    }
    unreadable = [declined for declined in plan.declined if declined.reason == UNREADABLE] if unattended else []
    entries |= {f"{item.subject}: part {number}": item for number, item in enumerate(unreadable, 1)}
    for item in plan.items:
        name = f"{item.table}: {item.action}"
        entries[f"{name} ({item.plan_hash[:12]})" if name in entries else name] = item
    return entries


def _order_table(plan: CombinedPlan) -> str:
    if not plan.items:
        return "no table needs maintenance"
    rows = [
        f"| {plain_cell(item.table)} | {item.action} | {item.score:g} | {size_text(item.bytes_in)} "
        f"| {size_text(item.bytes_freed)} | {item.seconds:.1f} | {plain_cell(item.reason)} |"
        for item in plan.items[:_SHOWN]
    ]
    more = f"\n\nand {len(plan.items) - _SHOWN} more" if len(plan.items) > _SHOWN else ""
    head = [
        "| table | action | score (0-100) | reads | frees | estimated seconds | why |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    return "\n".join([*head, *rows]) + more


def _maintain_item(
    context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource, item: CombinedItem, rules: Round
) -> None:
    """Apply the plan of one table, store the plan for approval, or log why the plan is skipped.

    Args:
        context: context of the op.
        warehouse: warehouse of the table.
        spark: Spark resource for the tasks.
        item: table, action and hash of the stored plan.
        rules: rules that may forbid the plan now.

    Raises:
        TableFailed: the plan failed.
    """
    store: TableStore | None = None
    plan: MaintenancePlan | None = None
    try:
        store = open_with_policy(warehouse, item.table)
        plan = load_plan(store, item.plan_hash)
        forbidden = None if applied_before(store, plan) is not None else rules.why_not(store, plan)
        if forbidden is not None:
            context.log.info(f"{forbidden.subject}: left alone ({forbidden.reason}): {forbidden.text}")
            return
        why = approval_reason(warehouse, item.table, item.action)
        if why:
            wait_for_approval(context, warehouse.names, store, plan, why)
            return
        apply_and_report(context, warehouse, spark, store, plan, f"dagster run {context.run_id}")
    except PlanStale as error:  # already applied, or the table changed: the next round plans again
        context.log.info(f"{item.table}: {item.action}: {error}")
    except dg.Failure as error:
        if store is not None and plan is not None:
            _record_failure(context, warehouse, store, plan, error)
        raise TableFailed(error.description or str(error)) from error
    except DredgeError as error:
        if store is not None and plan is not None:
            _record_failure(context, warehouse, store, plan, error)
        raise


def _record_failure(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    store: TableStore,
    plan: MaintenancePlan,
    error: Exception,
) -> None:
    """Record a failure that no retry heals, so that later maintenance runs and sensors do not start the plan again."""
    recorded = sum(key.startswith(names.failure_tag_prefix()) for key in _run_tags(context))
    if recorded >= _MOST_RECORDED:
        return  # the others fail again in the next round, and are recorded then
    partitions = {str(getattr(item, "partition_text", "")) for item in plan.items}
    partition = partitions.pop() if len(partitions) == 1 else ""
    tags = table_failure_tags(warehouse.names, store, plan.hash, partition, error)
    if tags:
        context.instance.add_run_tags(context.run_id, tags)


def _run_tags(context: dg.OpExecutionContext) -> Mapping[str, str]:
    run = context.instance.get_run_by_id(context.run_id)
    return {} if run is None else run.tags


def build_round(instance: dg.DagsterInstance, warehouse: WarehouseResource, *, unattended: bool) -> Round:
    """Return the rules of one maintenance round over many tables, from current policies and runs, without a budget.

    Args:
        instance: Dagster instance, for failed checks, running runs, suspensions and failures.
        warehouse: the warehouse.
        unattended: whether no person started the round. Suspensions, and failures that no retry heals, apply only to
            unattended rounds.
    """
    policies, at_work = policy_source(*warehouse.policy_place).current(), RunningRuns(instance, warehouse.names)
    recorded = cache(partial(list_failures, instance, warehouse.names))
    lasting: dict[str, list[PermanentFailure]] = {}

    def known(table: str, partition: str) -> History:
        layout = warehouse.names.layout_key(table)
        suspended = find_suspension(instance, warehouse.names, table) if unattended else None
        return History(
            blocked=find_blocking_failure(instance, layout, partition or None),
            at_work=at_work.of(table, layout, anywhere=True),
            suspended=None if suspended is None else suspended.text(),
            apply_job=warehouse.names.definition(names.APPLY_PLAN_JOB),
            resume_job=warehouse.names.definition(names.RESUME_JOB),
        )

    def failures(store: TableStore) -> list[PermanentFailure]:
        if store.name not in lasting:
            lasting[store.name] = find_lasting(instance, warehouse.names, store, recorded().get(store.name, ()))
        return lasting[store.name]

    return Round(policies, unattended, approved=True, known=known, failures=failures)


def compute_budget(
    instance: dg.DagsterInstance,
    warehouse_names: names.WarehouseNames,
    policies: Policies,
    at_work: RunningRuns,
    now_ms: int,
) -> Budget:
    """Return the budget of the policies that remains at a time.

    The tables of running runs use up the limit of tables. The expected bytes of runs that sensors or schedules started
    in the last hour use up the limit of bytes.

    Args:
        instance: Dagster instance.
        warehouse_names: names of the warehouse in Dagster.
        policies: policies in force.
        at_work: running runs.
        now_ms: epoch ms of the wall clock.
    """
    limit, spent = policies.bytes_an_hour, 0
    if limit is not None:
        since = datetime.datetime.fromtimestamp(now_ms / 1000 - _HOUR_SECONDS, datetime.UTC)
        runs = instance.get_runs(dg.RunsFilter(created_after=since))
        tags = [run.tags.get(warehouse_names.bytes_tag(), "") for run in runs]
        spent = sum(int(tag) for tag in tags if tag.isdigit())
    return Budget(limit, policies.concurrent_tables, spent, frozenset(at_work.tables()))


@job_op(
    "plan_orphans",
    "List files that no snapshot, branch, tag, plan or deletion record of a table references. "
    "Each plan waits for approval; nothing is deleted.",
)
def orphan_plans_op(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
    """Plan the removal of orphan files, table by table, for a person to approve."""
    tables, left_out = list_tables(warehouse)
    policies = policy_source(*warehouse.policy_place).current()
    for line in [*([policies.trouble] if policies.trouble else []), *left_out]:
        context.log.warning(line)
    plans: dict[str, str] = {}

    def plan_table(table: str) -> None:
        store = _open(context, warehouse, table)
        if store is None:
            return
        arguments = policies.of(table).retention_arguments("orphans", store.clock.now_ms())
        plan = plan_maintenance(store, "orphans", spark.task_runner(), **arguments)
        if not plan.items:
            return
        metadata = wait_for_approval(
            context, warehouse.names, store, plan, f"weekly plan of {utc_text(store.clock.now_ms())} UTC"
        )
        freed = f"{count_text(len(plan.items), 'file')}, {size_text(plan.estimate.bytes_freed)}"
        plans[table] = f"{freed}: {metadata['waits for approval'].value}"

    try:
        process_tables(context, {table: table for table in tables}, plan_table, unattended_in=warehouse)
    finally:
        rows = [f"| {plain_cell(table)} | {text} |" for table, text in list(plans.items())[:_SHOWN]]
        listed = "\n".join(["| table | orphan files |", "|---|---|", *rows]) if rows else "no table has orphan files"
        context.add_output_metadata({"plans": dg.MetadataValue.md(listed)})


def _open(context: dg.OpExecutionContext, warehouse: WarehouseResource, table: str) -> TableStore | None:
    """Open a table, or log the reason and return None if maintenance may not change the table."""
    try:
        store = warehouse.store(table)
        refusal = refusal_of(store)
    except DredgeError as error:
        refusal = str(error)
    if refusal is not None:
        context.log.info(f"{table}: left alone: {refusal}")
        return None
    return store
