"""Op for the jobs of all maintenance actions: it plans, applies, verifies and records one action over one table.

The configuration of a job has the arguments of its action, typed by pydantic, so a new action gets its job
automatically. A plan that is only made, or that needs approval, is stored with the table under its hash. The job
`apply_plan` applies a stored plan by its hash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import dagster as dg
from pydantic import Field, create_model

from dredge.checks.layout_checks import report_checks
from dredge.checks.merged_view import VerifyVerdict
from dredge.orchestration.ops.approval import approval_reason, wait_for_approval
from dredge.orchestration.ops.common import fail_in_one_line, job_op, report_failure
from dredge.orchestration.ops.layout_ops import (
    apply_exactly,
    compare_published,
    explain_empty_plan,
    measurement_metadata,
    open_with_policy,
    outcome_metadata,
    plan_log_line,
    undo_metadata,
)
from dredge.platform_core import names
from dredge.platform_core.health import table_health
from dredge.platform_core.metadata import health_metadata, number_metadata, plan_metadata
from dredge.platform_core.obstacles import find_blocking_failure, find_earlier_run
from dredge.platform_core.partitions import usable_keys
from dredge.platform_core.policies.rounds import COMPACT, RECOVER
from dredge.platform_core.resources.spark_resource import SparkResource
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.standard_metadata import layout_metadata
from lsm_core.errors import InvalidOption, PlanStale
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance import MaintenancePlan, load_plan, plan_maintenance
from lsm_core.maintenance.action import Action, Argument, ArgumentKind, find_action
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import duration

PLAN_ONLY: Final = "plan_only"
REPAIRS: Final = frozenset(
    {
        "undo",
        "restore",
        "repair",
        "rollback",
        "rollback_as_latest",
        "create_tag",
        "remove_unexisting_files",
        "remove_unexisting_manifests",
        "rewrite_file_index",
        "refresh_iceberg",
    }
)
"""Actions that may run while a blocking check fails."""
_TYPES: Final[Mapping[ArgumentKind, tuple[Any, Any]]] = {
    ArgumentKind.FLAG: (bool, False),
    ArgumentKind.NUMBER: (int | None, None),
    ArgumentKind.NUMBERS: (list[int], []),
    ArgumentKind.TEXT: (str | None, None),
    ArgumentKind.COLUMNS: (list[str], []),
    ArgumentKind.PARTITIONS: (list[str], []),
    ArgumentKind.AGE: (str | None, None),
}
"""Type and default in the launchpad, by kind of argument.

Arguments of kinds that are missing here are not offered, as on the command line.
"""
_SHAPES: Final[Mapping[ArgumentKind, str]] = {
    ArgumentKind.PARTITIONS: " Paths of partitions, as the asset lists them.",
    ArgumentKind.AGE: " An age, such as '2 d'.",
}
_PASSES: Final = "passes"
_MANY: Final = 10_000
_MOST_PARTITIONS: Final = 200
"""Most partitions that a run materialises one by one; with more partitions, the run reports one observation."""


class TableActionConfig(dg.Config):
    """Configuration that the jobs of all actions have: the table, and whether to plan only."""

    table: str = Field(description="full name of the table: db.table")
    dry_run: bool = Field(default=False, description="true: store the plan for apply_plan, and change nothing")


class PlanOnlyConfig(dg.Config):
    """Configuration of the job `plan_only`: a table, the action to plan, and the arguments of the action."""

    table: str = Field(description="full name of the table: db.table")
    action: str = Field("compact", description="action to plan: the name of its job")
    arguments: dict[str, Any] = Field({}, description="arguments of the action, as in its job")


class ApplyPlanConfig(dg.Config):
    """Configuration of the job `apply_plan`: the hash makes sure that the reviewed plan is the one that is applied."""

    table: str = Field(description="full name of the table: db.table")
    hash: str = Field(description="whole hash of a stored plan")
    approved_by: str = Field(description="name of the person who approves the plan; written to the table's ledger")


@cache
def config_of(action: str) -> type[TableActionConfig]:
    """Return the configuration class of an action's job.

    Its fields are those of `TableActionConfig` and the arguments of the action; for `recover` also the most passes.
    """
    fields: dict[str, Any] = {}
    for argument in find_action(action).arguments:
        if argument.kind not in _TYPES:
            continue
        kind, default = (str, ...) if argument.required else _TYPES[argument.kind]
        fields[argument.name] = (kind, Field(default, description=argument.help + _SHAPES.get(argument.kind, "")))
    if action == "recover":
        fields[_PASSES] = (int, Field(default=_MANY, description="Most passes to run; default: until no pass is left."))
    config_class: type[TableActionConfig] = create_model(action, __base__=TableActionConfig, **fields)
    return config_class


@job_op(
    "maintain_table",
    "Plan one action over one table, apply the plan, compare the rows before and after the commit, "
    "and record the result.",
    config={"action": str, "given": dict},
)
def table_op(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> dg.Output[None]:
    """Plan, apply, verify and record one action over one table."""
    config = context.op_config
    config_values = {name: value for name, value in config["given"].items() if value is not None and value != []}
    table, dry_run = str(config_values.pop("table")), bool(config_values.pop("dry_run", False))
    with report_failure(context, warehouse, table), fail_in_one_line(table):
        store = open_for_run(context, warehouse, table)
        action = find_action(str(config["action"]), table)
        passes = int(config_values.pop(_PASSES, 1))
        if passes < 1:
            raise InvalidOption(_PASSES, passes, "1 or more", table)
        arguments = arguments_of(action, store, config_values)
        plan = plan_maintenance(store, action.name, spark.task_runner(), **arguments)
        context.log.info(plan_log_line(plan))
        context.add_output_metadata(plan_metadata(plan))
        tags = warehouse.names.run_tags(
            table, None, plan.hash, action.name, explain_empty_plan(plan) or "asked for by a person"
        )
        context.instance.add_run_tags(context.run_id, tags)
        for declined in plan.declined if not plan.items else ():
            context.log.info(f"{declined.subject}: declined: {declined.text}")
        why = f"planned only, by run {context.run_id}" if dry_run else approval_reason(warehouse, table, action.name)
        if plan.items and why:
            context.add_output_metadata(wait_for_approval(context, warehouse.names, store, plan, why))
            return dg.Output(None)
        while plan.items:
            metadata = apply_and_report(context, warehouse, spark, store, plan, f"dagster run {context.run_id}")
            context.add_output_metadata(metadata)
            passes -= 1
            if passes <= 0:
                break
            plan = plan_maintenance(store, action.name, spark.task_runner(), **arguments)
            context.log.info(plan_log_line(plan))
    return dg.Output(None)


@job_op(
    "apply_approved_plan",
    "Apply the stored plan of this hash unchanged. An unknown or stale plan is refused.",
    config=ApplyPlanConfig,
)
def apply_plan_op(
    context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource
) -> dg.Output[None]:
    """Apply a stored plan unchanged, or fail with one line if the plan cannot be applied."""
    config = ApplyPlanConfig(**context.op_config)
    with report_failure(context, warehouse, config.table), fail_in_one_line(config.table):
        approver = " ".join(config.approved_by.split())
        if not approver:
            raise InvalidOption("approved_by", config.approved_by, "the name of the approver", config.table)
        if not re.fullmatch("[0-9a-f]{32}", config.hash.strip()):
            raise InvalidOption("hash", config.hash, "the whole hash of a saved plan: 32 hex digits", config.table)
        store = open_for_run(context, warehouse, config.table)
        plan = load_plan(store, config.hash.strip())
        context.log.info(f"{plan_log_line(plan)}, approved by {approver}")
        tags = warehouse.names.run_tags(config.table, None, plan.hash, plan.action, f"approved by {approver}")
        context.instance.add_run_tags(context.run_id, tags)
        metadata = apply_and_report(
            context, warehouse, spark, store, plan, f"{approver} (dagster run {context.run_id})"
        )
        context.add_output_metadata(metadata)
    return dg.Output(None)


def open_for_run(context: dg.OpExecutionContext, warehouse: WarehouseResource, table: str) -> TableStore:
    """Open the table for this run, and tag the run with the table, so that later runs on the table find this run.

    Raises:
        dg.Failure: a run that began earlier is working on the table.
        TableNotFound: the table does not exist.
    """
    store = open_with_policy(warehouse, table)
    context.instance.add_run_tags(context.run_id, {names.TAG_TABLE: warehouse.names.table_value(table)})
    other = find_earlier_run(context.instance, warehouse.names, context.run_id, table)
    if other is not None:
        text = f"{table}: run {other[:8]} is working on it: nothing was done; launch this again after it has ended"
        raise dg.Failure(text, allow_retries=False)
    return store


def arguments_of(action: Action, store: TableStore, config: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the configuration of a job to arguments of the action's plan.

    Args:
        action: the action.
        store: the table.
        config: values of the configuration by argument name.

    Returns:
        Values by argument name.

    Raises:
        InvalidOption: an argument is unknown or invalid; the message names the argument.
    """
    declared = {argument.name: argument for argument in action.arguments if argument.kind in _TYPES}
    arguments: dict[str, Any] = {}
    for name, value in config.items():
        argument = declared.get(name)
        if argument is None:
            accepted = f"{action.name} takes {', '.join(declared) or 'no arguments'}"
            raise InvalidOption(f"{action.name} argument", name, accepted, store.name)
        arguments[name] = _convert_argument(argument, store, value)
    return arguments


def _convert_argument(argument: Argument, store: TableStore, value: Any) -> Any:
    if argument.kind is ArgumentKind.AGE:
        try:
            return store.clock.now_ms() - duration(value)
        except InvalidOption as error:
            raise InvalidOption(argument.name, value, error.accepted, store.name) from error
    if argument.kind is ArgumentKind.FLAG and not isinstance(value, bool):  # the text "false" would be true
        raise InvalidOption(argument.name, value, "true or false", store.name)
    if argument.kind is not ArgumentKind.PARTITIONS:
        return value
    states = {state.text: state for state in table_health(store).partitions}
    for path in value:
        if path not in states:
            known = ", ".join(sorted(states)[:3]) or "none"
            raise InvalidOption(argument.name, path, f"the path of an existing partition ({known} ...)", store.name)
    return [dict(states[path].buckets[0].partition) for path in value]


def apply_and_report(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    spark: SparkResource,
    store: TableStore,
    plan: MaintenancePlan,
    approved_by: str,
) -> dict[str, dg.MetadataValue]:
    """Apply one plan unchanged and report to the layout asset.

    If the published snapshot is a compaction, its rows are compared with those of the previous snapshot. Failed checks
    do not stop the actions of `REPAIRS`.

    Args:
        context: context of the op.
        warehouse: warehouse of the table.
        spark: Spark resource for tasks and comparisons.
        store: the table.
        plan: plan to apply.
        approved_by: name of the person or run that approves the plan.

    Returns:
        Metadata of the run.

    Raises:
        dg.Failure: a blocking check fails, an item of the plan failed, or the compared rows differ.
        PlanStale: no item of the plan fits the table any more.
    """
    table, layout = store.name, warehouse.names.layout_key(store.name)
    touched: Sequence[str | None] = [None]
    if plan.action in {COMPACT, RECOVER}:  # failed checks of other partitions do not matter
        touched = (
            usable_keys(sorted({str(getattr(item, "partition_text", "")) for item in plan.items} - {""}))[0] or touched
        )
    failures = (
        find_blocking_failure(context.instance, layout, partition)
        for partition in touched
        if plan.action not in REPAIRS
    )
    blocked = next((why for why in failures if why is not None), None)
    if blocked is not None:
        text = f"{table}: {blocked}: nothing was done; repair the table, then execute the check again"
        raise dg.Failure(text, allow_retries=False)
    done, stale = apply_exactly(context, warehouse, store, plan, spark, approved_by)
    if stale:
        raise PlanStale(f"plan {plan.hash}: {stale}; nothing was done, plan again", table)
    for line in done.lines:
        context.log.info(f"{table}: {line}")
    paths = sorted({str(getattr(item, "partition_text", "")) for item in plan.items} - {""})
    partitions: Sequence[str | None] = usable_keys(paths)[0][: _MOST_PARTITIONS + 1] or [None]
    rewrote = done.published is not None and snapshots.read(store, done.published).commit_kind is CommitKind.COMPACT
    if rewrote:
        context.instance.add_run_tags(context.run_id, {names.published_tag(table): str(done.published)})
        verdict = compare_published(context, warehouse, spark, table, done.published, partitions, check_follows=False)
    else:
        verdict = VerifyVerdict(
            ok=True, level="V0", text="nothing to compare: no snapshot that must have the same rows as the previous one"
        )
    metadata = {
        **outcome_metadata(context, warehouse.names, table, done, verdict),
        "approved by": dg.MetadataValue.text(approved_by),
    }
    metadata |= {**undo_metadata(context, warehouse.names, table, done), **measurement_metadata(done)}
    if done.changed:
        data, events = warehouse.names.data_key(table), len(partitions) if rewrote else 1
        recorded = {**metadata, **layout_metadata(warehouse.card(table), data, events)}
        materialised = _record(context, store, layout, recorded, "; ".join(done.lines), partitions if rewrote else None)
        if materialised:
            report_checks(context, warehouse, store, verdict, materialised)
    if done.failed:
        first = done.failed[0]
        text = f"{table}: {len(done.failed)} {done.undone}, for example {first.subject}: {first.text}"
        raise dg.Failure(text, allow_retries=False)
    return {**metadata, **number_metadata(done.numbers)}


def _record(
    context: dg.OpExecutionContext,
    store: TableStore,
    layout: dg.AssetKey,
    metadata: Mapping[str, dg.MetadataValue],
    description: str,
    rewritten: Sequence[str | None] | None,
) -> Sequence[str | None]:
    """Report a run to the layout asset, by materialisations of the rewritten partitions or by one observation.

    Args:
        context: context of the op.
        store: the table.
        layout: key of the layout asset.
        metadata: metadata of each event.
        description: description of each event.
        rewritten: paths of the rewritten partitions, or None to store one observation.

    Returns:
        The rewritten partitions that were materialised. Empty if one observation of the table was stored instead.
    """
    whole = bool(store.schema.partition_keys) and (rewritten is None or None in rewritten)
    if rewritten is None or whole or len(rewritten) > _MOST_PARTITIONS:
        context.log_event(dg.AssetObservation(layout, description=description, metadata=metadata))
        return ()
    health = table_health(store)
    for partition in rewritten:
        partition_metadata = {**metadata, **health_metadata(health.of_partition(partition))}
        context.log_event(
            dg.AssetMaterialization(layout, description=description, metadata=partition_metadata, partition=partition)
        )
    return rewritten
