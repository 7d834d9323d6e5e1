"""The five ops of a table's layout asset: observe health, plan, apply the plan, verify and record the commit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from dredge.checks.definition import report_evaluation
from dredge.checks.merged_view import VerifyVerdict, bucket_text, judge_undo
from dredge.checks.undo_protection import keep_for_undo
from dredge.orchestration.ops.approval import approval_reason, wait_for_approval, waiting_metadata, waiting_text
from dredge.orchestration.ops.common import job_op, op_of, report_failure
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import PipesFailed, allow_early_features
from dredge.platform_core.health import TableHealth, refusal_of, table_health
from dredge.platform_core.metadata import (
    Launchpad,
    cost_metadata,
    declined_table,
    health_metadata,
    level_diagram,
    number_metadata,
    plain_cell,
    plan_metadata,
    state_metadata,
)
from dredge.platform_core.op_templates import OpTemplate
from dredge.platform_core.partitions import partitions_of
from dredge.platform_core.pipes_worker import report_object
from dredge.platform_core.policies import Reason, policy_source
from dredge.platform_core.policies.permanent_failures import find_permanent_error, restore_remote_error
from dredge.platform_core.policies.policy import SortRule
from dredge.platform_core.policies.rounds import COMPACT, due_action, judge_table, values_of
from dredge.platform_core.resource_names import rename_resources
from dredge.platform_core.resources.spark_resource import SparkResource
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.standard_metadata import columns_observation, layout_metadata
from dredge.platform_core.table_card import TableCard, count_text
from dredge.platform_core.tree_picture import tree_picture
from lsm_core.errors import (
    CommitConflict,
    CommitUnknown,
    CorruptFile,
    DredgeError,
    LockLost,
    LockTimeout,
    MetastoreFailed,
    PlanStale,
    SnapshotNotFound,
    SparkFailed,
    StorageFull,
)
from lsm_core.maintenance import (
    ArgumentKind,
    Declined,
    MaintenancePlan,
    applied_before,
    apply_plan,
    calibration_of,
    count_assigned_rows,
    find_action,
    load_plan,
    plan_maintenance,
    proof_of,
    save_plan,
    verify_snapshots,
)
from lsm_core.maintenance.action import PlanEstimate, size_text
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore

PLAN_CONFIG: Final = {
    "plan": dg.Field(str, default_value="", description="hash of the stored plan to apply; empty: plan now"),
    "full": dg.Field(
        bool,
        is_required=False,
        description=(
            "compact: merge everything (true, the default of a run without a plan) "
            "or only the files that the table's own rules pick (false)"
        ),
    ),
    "action": dg.Field(
        str, default_value=COMPACT, description="action to run on the table: any action of `dredge plan`"
    ),
    "arguments": dg.Field(dict, default_value={}, description="arguments of the action, as in Python"),
}
TRANSIENT_ERRORS: Final = (
    CommitConflict,
    CommitUnknown,
    LockLost,
    LockTimeout,
    MetastoreFailed,
    PlanStale,
    SparkFailed,
    StorageFull,
)
"""Errors after which a retry may succeed; all errors of other classes are permanent."""
RETRIES: Final = 2
UNDOABLE: Final = frozenset({"compact", "recover"})
"""Names of the actions whose runs the action `undo` can undo."""
_MOST_NAMED: Final = 3
COMPARE_LIMIT: Final = 256 * 1024 * 1024
"""Rewritten bytes above which the verify op leaves the comparison to the check merged_view_unchanged.

Comparing large rewrites twice would take too long.
"""


COMPARE_FILES: Final = 1_000
"""Number of files to read above which the verify op also leaves the comparison to the check.

Opening many small files takes most of the time.
"""


@dataclass(frozen=True)
class RunPlan:
    """Output of the plan op.

    Attributes:
        plan: the plan in JSON form.
        replaced: why the plan is not the plan that the run was started with, or "".
        waits: why the plan needs approval first, or "".
    """

    plan: str
    replaced: str = ""
    waits: str = ""


@dataclass(frozen=True)
class AppliedPlan:
    """Output of the apply op: the report of the action as plain values.

    Attributes:
        action: name of the action.
        plan_hash: hash of the applied plan.
        published: id of the snapshot that the action committed, or None.
        lines: the report as text lines.
        numbers: measured numbers of the report, such as rows and bytes, by name.
        left_alone: what the action did not change (such as buckets), with the reasons.
        replaced: why the applied plan is not the plan that the run was started with, with both hashes, or "".
        changed: whether the table changed.
        predicted: estimate of the plan.
        ledger_run: id of the run in the table's ledger, or "".
        failed: items of the plan that failed with an error.
        undone: label for the items of `failed`, such as "buckets failed".
        waits: why the plan needs approval first, or "".
    """

    action: str
    plan_hash: str
    published: int | None
    lines: Sequence[str]
    numbers: Mapping[str, Any]
    left_alone: Sequence[Declined]
    replaced: str = ""
    changed: bool = False
    predicted: PlanEstimate = field(default_factory=PlanEstimate)
    ledger_run: str = ""
    failed: Sequence[Declined] = ()
    undone: str = ""
    waits: str = ""


CHOSEN: Final = TypeAdapter(RunPlan)
APPLIED: Final = TypeAdapter(AppliedPlan)
VERDICT: Final = TypeAdapter(VerifyVerdict)


def open_with_policy(warehouse: WarehouseResource, table: str) -> TableStore:
    """Open a table; the table options that the policy sets override the table's own.

    Raises:
        TableNotFound: the table does not exist.
        CorruptFile: a metadata file is damaged.
        InvalidOption: an option is invalid.
    """
    store, options = warehouse.store(table), policy_source(*warehouse.policy_place).current().of(table).options
    return store.copy(options) if options else store


def card_of(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> TableCard:
    """Return the description of the run's table, which is found through the metadata of the layout asset.

    All tables share the ops, so the op itself does not name the table.
    """
    (key,) = context.assets_def.keys
    return warehouse.card(str(context.assets_def.get_asset_spec(key).metadata[names.TABLE_NAME]))


@job_op(
    "observe",
    "Show the health of the table or partition from metadata: sorted runs, files and bytes per bucket.",
    ins={"data": dg.In(dg.Nothing)},
)
def observe_op(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> None:
    """Show the health of the table or partition before maintenance, from metadata only."""
    card = card_of(context, warehouse)
    if card.refusal is not None:
        return  # the plan gives the reason
    with report_failure(context, warehouse, card.name):
        health = table_health(warehouse.store(card.name)).of_partitions(partitions_of(context))
    context.add_output_metadata(health_metadata(health))
    for state in health.partitions:
        context.log.debug(  # the run's first line is the plan's
            f"{card.name} {state.text or '(whole table)'}: {state.sorted_runs} sorted runs, {state.files} files"
        )


@job_op(
    "plan",
    "Decide which files to merge and why. Declined buckets are listed with their reason.",
    config=PLAN_CONFIG,
    out=dg.Out(str),
    ins={"observed": dg.In(dg.Nothing)},
)
def plan_op(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> str:
    """Load the plan of the run, or make one if the run names none; return a `RunPlan` as JSON."""
    card = card_of(context, warehouse)
    partitions = partitions_of(context)
    if card.partitioned and not partitions and card.refusal is None:
        # Dagster cannot run partitioned checks after a run without a partition.
        raise dg.Failure(f"{card.name} is partitioned: choose a partition for the run", allow_retries=False)
    replaced = ""
    if card.unreadable:
        chosen_plan = make_declined_plan(card.name, card.refusal or "it cannot be opened")
    else:
        with report_failure(context, warehouse, card.name):
            chosen_plan, replaced = _plan_of_run(context, open_with_policy(warehouse, card.name))
    context.log.info(plan_log_line(chosen_plan, partitions))
    if names.TAG_PLAN not in context.run.tags:  # tag a run by hand like a sensor's run, so that it can be found
        reason = explain_empty_plan(chosen_plan) or "asked for by a person"
        single = partitions[0] if len(partitions) == 1 else None
        tags = warehouse.names.run_tags(card.name, single, chosen_plan.hash, chosen_plan.action, reason)
        context.instance.add_run_tags(context.run_id, tags)
    for item in chosen_plan.items:
        context.log.info(", ".join(f"{name} {cell}" for name, cell in zip(item.columns, item.cells(), strict=True)))
    for declined in chosen_plan.declined:
        context.log.info(f"{declined.subject}: declined: {declined.text}")
    context.add_output_metadata(plan_metadata(chosen_plan))
    waits = approval_reason(warehouse, card.name, chosen_plan.action) if chosen_plan.items else ""
    if waits:
        context.add_output_metadata(
            wait_for_approval(context, warehouse.names, open_with_policy(warehouse, card.name), chosen_plan, waits)
        )
    return CHOSEN.dump_json(RunPlan(chosen_plan.to_json(), replaced, waits)).decode()


def explain_empty_plan(plan: MaintenancePlan) -> str:
    """Return ``nothing to do: 1 sorted run < 5; ...`` for a plan without work, or "" for a plan with work."""
    if plan.items:
        return ""
    reasons = list(dict.fromkeys(item.text for item in plan.declined))
    more = f"; and {len(reasons) - _MOST_NAMED} more reasons" if len(reasons) > _MOST_NAMED else ""
    return f"nothing to do: {'; '.join(reasons[:_MOST_NAMED]) or 'no part of the table needs it'}{more}"


def plan_log_line(plan: MaintenancePlan, partitions: Sequence[str] = ()) -> str:
    """Return the first log line of a run.

    Args:
        plan: plan of the run.
        partitions: partitions of the run, if any.

    Returns:
        The action, the number of items (units of work, such as buckets) and bytes, and the plan's hash, or why no work
        is due.
    """
    where = f"/{partitions[0]}" if partitions else ""
    more = f" and {count_text(len(partitions) - 1, 'more partition')}" if len(partitions) > 1 else ""
    subject = f"{plan.table}{where}{more}"
    if not plan.items:
        return f"{subject}: {explain_empty_plan(plan)}"
    units = count_text(len(plan.items), "unit")
    size = f", {size_text(plan.estimate.bytes_in)}" if plan.estimate.bytes_in else ""
    return f"{subject}: {plan.action}: {units}{size}: plan {plan.hash} over snapshot {plan.base_snapshot}"


def _plan_of_run(context: dg.OpExecutionContext, store: TableStore) -> tuple[MaintenancePlan, str]:
    """Return the saved plan that the run was started with, or a new plan.

    Returns:
        The plan, and why the saved plan could not be used. The reason is "" if the saved plan was used or the run names
        no saved plan.

    Raises:
        dg.Failure: the saved plan is for partitions that are not part of the run.
    """
    partitions, plan_hash = partitions_of(context), str(_config(context)["plan"])
    if not plan_hash:
        return _make_plan(context, store), ""
    try:
        plan = load_plan(store, plan_hash)
    except (PlanStale, CorruptFile) as error:
        return _replan(context, store, f"{type(error).__name__}: plan {plan_hash}: {error}")
    # Items of actions over the whole table have no partition.
    planned_partitions = {item.partition_text for item in plan.items if hasattr(item, "partition_text")}
    others = sorted(planned_partitions.difference(partitions)) if partitions else []
    if others:
        text = (
            f"plan {plan.hash} of {store.name} is for partition {others[0]}, "
            f"this run for {', '.join(partitions[:_MOST_NAMED])}"
        )
        raise dg.Failure(text, allow_retries=False)
    return plan, ""


def _make_plan(context: dg.OpExecutionContext, store: TableStore) -> MaintenancePlan:
    config = _config(context)
    full = config.get("full", config["action"] == COMPACT and not config["plan"])
    arguments = dict(config["arguments"]) | ({"full": True} if full else {})
    try:
        return plan_partitions(store, partitions_of(context), str(config["action"]), **arguments)
    except DredgeError as error:
        raise dg.Failure(f"{type(error).__name__}: {error}", allow_retries=False) from error


def _replan(context: dg.OpExecutionContext, store: TableStore, why: str) -> tuple[MaintenancePlan, str]:
    """Return a new plan over the newest snapshot, and a sentence with the reason `why` and the new plan's hash.

    Args:
        context: context of the op.
        store: the table.
        why: reason to replace the earlier plan.
    """
    new_plan = _make_plan(context, store)
    text = f"{why}; replanned over snapshot {new_plan.base_snapshot} as {new_plan.hash}"
    context.log.warning(text)
    return new_plan, text


def plan_partition(
    store: TableStore, partition: str | None, action: str = COMPACT, **arguments: Any
) -> MaintenancePlan:
    """Plan an action for one partition, or for the whole table.

    Args:
        store: the table.
        partition: path of the partition, or None for the whole table.
        action: name of the action.
        arguments: arguments of the action besides the partitions, by name.

    Raises:
        InvalidOption: the action or an argument does not exist, or a required argument is missing.
    """
    return plan_partitions(store, () if partition is None else (partition,), action, **arguments)


def plan_due(
    store: TableStore, partition: str | None, files: int, *, full: bool, sort: SortRule | None = None
) -> MaintenancePlan:
    """Plan the due compaction of a partition.

    If a bucket has more than `files` level-0 files, the plan merges only the oldest of these files (one pass of the
    action `recover`). Each pass is a separate commit, and the next run continues with the next files. If the pass has
    no work, a normal compaction is planned.

    Args:
        store: the table.
        partition: path of the partition, or None for the whole table.
        files: most level-0 files of one pass.
        full: whether to compact all files instead of the files that the table's own rules pick.
        sort: sort rule of a due sort compaction, or None.
    """
    if sort is not None:
        return plan_partition(store, partition, **sort.arguments)
    paths = () if partition is None else (partition,)
    level0_files = max((bucket.level0_files for bucket in table_health(store).of_partitions(paths).buckets), default=0)
    action, arguments = due_action(level0_files, files, store.options.compaction_trigger, full=full)
    plan = plan_partition(store, partition, action, **arguments)
    return plan if plan.items or action == COMPACT else plan_partition(store, partition, full=full)


def plan_partitions(
    store: TableStore, partitions: Sequence[str], action: str = COMPACT, **arguments: Any
) -> MaintenancePlan:
    """Plan an action over the newest snapshot.

    For an unsupported table, or for partitions without files, the result is a plan without work, which states the
    reason.

    Args:
        store: the table.
        partitions: partition paths to plan, if the action takes partitions; empty for the whole table.
        action: name of the action.
        arguments: arguments of the action besides the partitions, by name.

    Raises:
        InvalidOption: the action or an argument does not exist, or a required argument is missing.
    """
    refusal = refusal_of(store)
    if refusal is not None:
        return make_declined_plan(store.name, refusal, action)
    partition_arguments = [
        item.name for item in find_action(action, store.name).arguments if item.kind is ArgumentKind.PARTITIONS
    ]
    if not partitions or not partition_arguments:
        return plan_maintenance(store, action, **arguments)
    chosen = values_of(store, table_health(store), partitions)
    if not chosen:
        emptied = f"partition {partitions[0]} has" if len(partitions) == 1 else f"{len(partitions)} partitions have"
        return make_declined_plan(store.name, f"{emptied} no files any more", action, reason="empty")
    return plan_maintenance(store, action, **{**arguments, partition_arguments[0]: chosen})


def make_declined_plan(table: str, text: str, action: str = COMPACT, *, reason: str = "unsupported") -> MaintenancePlan:
    """Return a plan without work that states why nothing is done on the table.

    Args:
        table: full name of the table.
        text: why nothing is done.
        action: name of the action.
        reason: short code of the reason, such as "unsupported" or "empty".
    """
    return MaintenancePlan(action, table, None, declined=(Declined(table, reason, text),))


def _apply(
    context: dg.OpExecutionContext, plan: str, warehouse: WarehouseResource, spark: SparkResource
) -> dg.Output[str]:  # Dagster refuses a plain value if a Pipes process did the work
    """Apply `plan`, the `RunPlan` of the plan op as JSON, and return an `AppliedPlan` as JSON."""
    card = card_of(context, warehouse)
    chosen = CHOSEN.validate_json(plan)
    requested = MaintenancePlan.from_json(chosen.plan)
    if not requested.items or chosen.waits:
        lines = [waiting_text(requested) if chosen.waits else explain_empty_plan(requested)]
        declined = () if chosen.waits else requested.declined
        applied = AppliedPlan(
            requested.action, requested.hash, None, lines, {}, declined, chosen.replaced, waits=chosen.waits
        )
        return dg.Output(APPLIED.dump_json(applied).decode())
    with report_failure(context, warehouse, card.name):
        store = open_with_policy(warehouse, card.name)
        try:
            applied = _apply_or_replan(context, warehouse, store, requested, chosen.replaced, spark)
        except TRANSIENT_ERRORS as error:
            context.log.info(f"{type(error).__name__}: {error}")
            raise
        except DredgeError as error:
            raise dg.Failure(f"{store.name}: {type(error).__name__}: {error}", allow_retries=False) from error
    for line in applied.lines:
        context.log.info(line)
    context.add_output_metadata(number_metadata(applied.numbers))
    if applied.published is not None:  # the check reads the published snapshot from this tag
        context.instance.add_run_tags(context.run_id, {names.published_tag(card.name): str(applied.published)})
    return dg.Output(APPLIED.dump_json(applied).decode())


_apply_op: Final = job_op(
    "apply",
    "Merge the planned files, on Spark if configured, verify the output (V0, V1, V2) and commit once.",
    config=PLAN_CONFIG,
    out=dg.Out(str),
    kind="spark",
    retry_policy=dg.RetryPolicy(max_retries=RETRIES, delay=1),
)(_apply)


@cache
def _apply_template(prefix: str) -> OpTemplate:
    warehouse_names = names.WarehouseNames("", prefix=prefix)
    return OpTemplate(op_of(_apply_op, warehouse_names), rename_resources(_apply, warehouse_names))


def apply_op(table: str, warehouse_names: names.WarehouseNames) -> dg.OpDefinition:
    """Return a table's op that applies a plan. The table's pool lets one such op run at a time."""
    template = _apply_template(warehouse_names.prefix)
    return template.make_op(warehouse_names.op_name("apply", table), warehouse_names.table_pool(table))


def _apply_or_replan(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    store: TableStore,
    requested: MaintenancePlan,
    replaced: str,
    spark: SparkResource,
) -> AppliedPlan:
    """Apply the requested plan, or a new plan over the newest snapshot if the table changed or an earlier try failed.

    If the action of the plan is not the action of the run's configuration, the plan is not replaced, because a new plan
    would execute a different action.

    Args:
        context: context of the op.
        warehouse: warehouse of the table.
        store: the table.
        requested: plan to apply.
        replaced: why `requested` replaces the plan that the run was started with, or "".
        spark: Spark resource for the tasks.

    Raises:
        dg.Failure: the plan is stale and cannot be replaced.
    """
    plan, replaceable = requested, requested.action == _config(context)["action"]
    if context.retry_number:
        earlier = _find_published(store, requested, replaced)
        if earlier is not None:
            return earlier
        if replaceable:
            plan, replaced = _replan(context, store, f"plan {requested.hash}: try {context.retry_number} failed")
    approved_by = f"dagster run {context.run_id}"
    try:
        applied, stale = apply_exactly(context, warehouse, store, plan, spark, approved_by, replaced)
        if not stale:
            return applied
    except PlanStale as error:
        stale = str(error)
    if not replaceable:
        text = f"PlanStale: plan {plan.hash} ({plan.action}): {stale}; plan again with its action and arguments"
        raise dg.Failure(text, allow_retries=False)
    plan, replaced = _replan(context, store, f"PlanStale: plan {plan.hash}: {stale}")
    applied, stale = apply_exactly(context, warehouse, store, plan, spark, approved_by, replaced)
    if stale and context.retry_number < RETRIES:
        raise dg.RetryRequested(max_retries=RETRIES, seconds_to_wait=1)
    return applied


def apply_exactly(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    store: TableStore,
    plan: MaintenancePlan,
    spark: SparkResource,
    approved_by: str,
    replaced: str = "",
) -> tuple[AppliedPlan, str]:
    """Apply one plan unchanged.

    If the outcome of the plan's commit is unknown, the table is searched for the commit. Errors of the application
    pass through.

    Args:
        context: context of the op.
        warehouse: warehouse of the table.
        store: the table.
        plan: plan to apply.
        spark: Spark resource for the tasks.
        approved_by: name of the person or run that approves the plan.
        replaced: why `plan` replaces the plan that the run was started with, or "".

    Returns:
        The applied plan, and why the plan no longer fits the table in any of its items (units of work, such as
        buckets). The reason is "" if the table was changed or the plan had been applied before.
    """
    try:
        if spark.uses_pipes and find_action(plan.action, store.name).runs_tasks:
            report = _apply_with_pipes(context, warehouse, store, plan, spark, approved_by)
        else:
            runner = spark.task_runner() if find_action(plan.action, store.name).runs_tasks else None
            report = report_object(apply_plan(store, plan, runner=runner, approved_by=approved_by), store.name)
    except CommitUnknown as error:
        context.log.info(str(error))
        earlier = _find_published(store, plan, replaced)
        if earlier is None:
            raise
        return earlier, ""
    applied = APPLIED.validate_python(
        {**report, "action": plan.action, "plan_hash": plan.hash, "replaced": replaced, "predicted": plan.estimate}
    )
    stale = [f"{item.subject}: {item.text}" for item in applied.left_alone if item.reason == "stale"]
    return applied, "" if applied.changed or report["before"] else "; ".join(stale[:3])


def _apply_with_pipes(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    store: TableStore,
    plan: MaintenancePlan,
    spark: SparkResource,
    approved_by: str,
) -> Mapping[str, Any]:
    """Apply a plan by the program that `SparkResource.submit` starts, and return the program's `report_object`.

    Args:
        context: context of the op.
        warehouse: warehouse of the table.
        store: the table.
        plan: plan to apply, which is saved first.
        spark: Spark resource with the command line of the program.
        approved_by: name of the person or run that approves the plan.

    Raises:
        PlanStale: the plan does not fit the table any more.
        CommitUnknown: the program ended without a report.
        dg.Failure: the program failed with an error of a different kind; the message names the error.
    """
    save_plan(store, plan)
    request = {
        "warehouse": warehouse.path,
        "catalog_options": warehouse.catalog_options,
        "clock": warehouse.clock,
        "table": store.name,
        "options": {key: value for key, value in store.options.raw.items() if store.schema.options.get(key) != value},
        "hash": plan.hash,
        "approved_by": approved_by,
    }
    try:
        with allow_early_features():  # the client's number of writers is a preview feature
            client = dg.PipesSubprocessClient(env=spark.driver_environment())
            invocation = client.run(context=context, command=spark.command(), extras=request)
        messages = invocation.get_custom_messages()
    except PipesFailed as error:
        context.log.warning(str(error))
        messages = ()
    if not messages:
        text = (
            f"{shlex.join(spark.command())} ended without a report about plan {plan.hash} "
            "(see its output in the run's stdout and stderr)"
        )
        raise CommitUnknown((plan.base_snapshot or 0) + 1, text)
    report: Mapping[str, Any] = messages[-1]
    if "error" not in report:
        return report
    if report["error"] == PlanStale.__name__:
        raise PlanStale(str(report["text"]), store.name)
    cause = restore_remote_error(report)  # lets the run's record name the error and the damaged file
    transient = report["error"] in {kind.__name__ for kind in TRANSIENT_ERRORS}
    retryable = transient and find_permanent_error(cause) is None
    raise dg.Failure(f"{store.name}: {report['error']}: {report['text']}", allow_retries=retryable) from cause


def _find_published(store: TableStore, plan: MaintenancePlan, replaced: str) -> AppliedPlan | None:
    """Find the snapshot of a plan whose commit had an unknown outcome; return the applied plan or None.

    Files, rows and bytes come from the manifest entries of the snapshot. Numbers that are not in the metadata, such as
    dropped rows, compared keys and durations, are missing.

    Args:
        store: the table.
        plan: the plan.
        replaced: why `plan` replaces the plan that the run was started with, or "".
    """
    applied = applied_before(store, plan)
    if applied is None or applied.snapshot_id is None:
        return None
    replaced_files, written_files = _rewritten_files(store, applied.snapshot_id)
    numbers = {
        "files_in": replaced_files.num_rows,
        "files_out": written_files.num_rows,
        "rows_in": _sum_column(replaced_files, "row_count"),
        "rows_out": _sum_column(written_files, "row_count"),
        "bytes_in": _sum_column(replaced_files, "file_size"),
        "bytes_out": _sum_column(written_files, "file_size"),
        "verification": "the outcome of the commit was unknown: the table has its snapshot",
    }
    lines = [f"the plan was applied, as snapshot {applied.snapshot_id}"]
    return AppliedPlan(
        plan.action,
        plan.hash,
        applied.snapshot_id,
        lines,
        numbers,
        plan.declined,
        replaced,
        changed=True,
        predicted=plan.estimate,
    )


def _rewritten_files(store: TableStore, snapshot_id: int) -> tuple[pa.Table, pa.Table]:
    """Return the manifest entries of the files that a snapshot replaced, and of the files that it wrote instead.

    A file that only changes its level is deleted and added under the same name. It does not count as rewritten.
    """
    entries = manifests.delta_entries(store, snapshots.read(store, snapshot_id))
    is_added = pc.equal(entries.column("kind"), 0)
    added, removed = entries.filter(is_added), entries.filter(pc.invert(is_added))
    moved = pc.is_in(removed.column("file_name"), added.column("file_name").combine_chunks())
    kept = pc.is_in(added.column("file_name"), removed.column("file_name").combine_chunks())
    return removed.filter(pc.invert(moved)), added.filter(pc.invert(kept))


def _sum_column(entries: pa.Table, column: str) -> int:
    return int(pc.sum(entries.column(column)).as_py() or 0)


def _config(context: dg.OpExecutionContext) -> Mapping[str, Any]:
    """Return the configuration of the op."""
    config: Mapping[str, Any] = context.op_config or {}
    return config


@job_op(
    "verify",
    "Compare the merged rows before and after the commit by bucket. A difference blocks the table.",
    out=dg.Out(str),
)
def verify_op(context: dg.OpExecutionContext, report: str, warehouse: WarehouseResource, spark: SparkResource) -> str:
    """Compare the published snapshot with the previous snapshot; a difference blocks the table.

    The argument `report` is the `AppliedPlan` of the apply op as JSON. The result is a `VerifyVerdict` (result of the
    comparison) as JSON.
    """
    card = card_of(context, warehouse)
    published = APPLIED.validate_json(report).published
    with report_failure(context, warehouse, card.name):
        verdict = compare_published(context, warehouse, spark, card.name, published, partitions_of(context) or [None])
    context.add_output_metadata({"level": verdict.level, "verdict": verdict.text})
    return VERDICT.dump_json(verdict).decode()


def compare_published(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    spark: SparkResource,
    table: str,
    published: int | None,
    partitions: Sequence[str | None],
    *,
    check_follows: bool = True,
) -> VerifyVerdict:
    """Compare the published snapshot with the previous snapshot, and report the result.

    Args:
        context: context of the op.
        warehouse: the warehouse.
        spark: Spark resource of the platform.
        table: full name of the table.
        published: published snapshot, or None if the run published none.
        partitions: partitions of the run, or [None] for a table without partitions.
        check_follows: whether the check merged_view_unchanged runs later in the same run. Then large comparisons are
            left to this check.

    Returns:
        The result of the comparison, which is always successful; a difference raises an error.

    Raises:
        dg.Failure: the rows differ. The check merged_view_unchanged of the partitions has failed by then, so further
            maintenance of the table is blocked.
    """
    kept_files = None
    if published is None:
        verdict = VerifyVerdict(ok=True, level="V0", text="no snapshot was published, so no row could change")
    else:
        store = warehouse.store(table)
        replaced, written = _rewritten_files(store, published)
        size = _sum_column(replaced, "file_size")
        chosen = [partition for partition in partitions if partition is not None]
        proof = proof_of(store, published)
        if proof.replaced_only:
            files = replaced.num_rows + written.num_rows
        else:
            files = sum(
                partition.files for partition in table_health(store, published).of_partitions(chosen).partitions
            )
            files += replaced.num_rows + proof.passes * COMPARE_FILES
        large = size > COMPARE_LIMIT or files > COMPARE_FILES
        if check_follows and large and not count_assigned_rows(store, published):
            by_spark = spark.uses_spark and not proof.replaced_only
            place = "on Spark" if by_spark else "in the run's own process"
            size_reason = (
                f"{size_text(size)} rewritten" if size > COMPARE_LIMIT else f"{count_text(files, 'file')} to read"
            )
            text = f"{size_reason}: compared by the check {names.MERGED_VIEW_CHECK} alone, {place}"
            verdict = VerifyVerdict(ok=True, level="V3" if by_spark else "V1", text=text)
        else:
            verdict = _compare_snapshots(store, published)
        if not verdict.ok:
            kept_files = keep_for_undo(store, published, Launchpad(context.run, warehouse.names))
            verdict = replace(verdict, text=f"{verdict.text}; {kept_files.text}")
    context.log.info(verdict.text)
    if verdict.ok:
        return verdict
    # The run fails before the blocking check runs, so report the failed check here: it blocks the table.
    undo = kept_files.metadata if kept_files is not None else {}
    for partition in partitions:
        result = dg.AssetCheckResult(
            check_name=names.MERGED_VIEW_CHECK,
            passed=False,
            description=verdict.text,
            metadata={"found by": "the run's own comparison", **undo},
        )
        report_evaluation(context, warehouse.names.layout_key(table), result, partition)
    raise dg.Failure(verdict.text, allow_retries=False)


def _compare_snapshots(store: TableStore, snapshot: int) -> VerifyVerdict:
    pair = f"snapshots {snapshot - 1} and {snapshot}"
    try:
        if rows := count_assigned_rows(store, snapshot):
            return VerifyVerdict(ok=True, level="V0", text=bucket_text(snapshot, rows))
        if (undo := judge_undo(store, snapshot)) is not None:
            return undo
        proof = proof_of(store, snapshot)
        pair = f"snapshots {proof.before} and {snapshot}"
        comparison = verify_snapshots(
            store,
            proof.before,
            snapshot,
            replaced_only=proof.replaced_only,
            places=proof.places,
            appended=proof.appended,
        )
    except DredgeError as error:
        return VerifyVerdict(ok=False, level="V1", text=f"{pair} could not be compared: {error}")
    text = (
        f"{pair}: {comparison.buckets} buckets, {comparison.by_reference} share their files, "
        f"{comparison.by_digest} compared by digest ({comparison.rows_a:,} rows)"
    )
    if proof.text():
        text = f"{text}; {proof.text()}"
    differing_buckets = ", ".join(difference.bucket for difference in comparison.differences)
    return VerifyVerdict(
        comparison.ok, comparison.level, text if comparison.ok else f"{text}: DIFFERENT in {differing_buckets}"
    )


@job_op("record", "Record the result of the run: health before and after, rows, bytes and the verification.")
def record_op(
    context: dg.OpExecutionContext, report: str, verdict: str, warehouse: WarehouseResource
) -> dg.Output[None]:
    """Materialise the layout asset, with numbers that Dagster plots and the levels before and after.

    The arguments are JSON: `report` is the `AppliedPlan`, `verdict` the `VerifyVerdict` (result of the comparison).
    """
    card = card_of(context, warehouse)
    applied, comparison = APPLIED.validate_json(report), VERDICT.validate_json(verdict)
    if card.refusal is not None:
        health = TableHealth(card.name, None, None, 0)
    else:
        health = table_health(warehouse.store(card.name)).of_partitions(partitions_of(context))
    metadata = {
        **({} if card.refusal is not None else _state_metadata(warehouse, card.name, health)),
        **outcome_metadata(context, warehouse.names, card.name, applied, comparison),
    }
    if applied.published is not None:
        metadata |= _level_metadata(warehouse.store(card.name), applied.published, partitions_of(context))
    metadata |= undo_metadata(context, warehouse.names, card.name, applied)
    metadata |= {**measurement_metadata(applied), **health_metadata(health)}
    if applied.published is not None:
        metadata |= {
            "snapshot before": dg.MetadataValue.int(applied.published - 1),
            "snapshot published": dg.MetadataValue.int(applied.published),
        }
    if applied.changed:
        if applied.action == COMPACT:
            calibration = calibration_of(warehouse.store(card.name), but_for=applied.plan_hash)
            metadata |= cost_metadata(applied.predicted, applied.numbers, calibration)
        metadata["ledger"] = dg.MetadataValue.path(warehouse.store(card.name).ledger_dir)
        metadata["runbook"] = dg.MetadataValue.md(
            f"`dredge ledger TABLE` lists the runs of {plain_cell(card.name)}, `dredge undo TABLE RUN` undoes one; "
            "more in docs/platform.md, *When something is wrong*"
        )
    data = warehouse.names.data_key(card.name)
    metadata |= layout_metadata(card, data, len(partitions_of(context)))
    if not card.unreadable:
        context.log_event(columns_observation(card, data, f"read by maintenance, snapshot {health.snapshot}"))
    version = dg.DataVersion(str(health.snapshot)) if health.snapshot is not None else None
    with allow_early_features():  # the data_version of an output is a beta feature
        return dg.Output(None, metadata=metadata, data_version=version)


def _state_metadata(warehouse: WarehouseResource, table: str, health: TableHealth) -> dict[str, dg.MetadataValue]:
    """Return the state of a table after the maintenance of this run, as metadata of the layout asset.

    The state comes from the table's metadata alone. Dagster's facts would show this run as still running.

    Args:
        warehouse: the warehouse.
        table: full name of the table.
        health: health of the table after the run.
    """
    store, policy = warehouse.store(table), policy_source(*warehouse.policy_place).current().of(table)
    status, now_ms = judge_table(store, health, policy), store.clock.now_ms()
    return state_metadata(status.line(now_ms), status.next_step(), now_ms)


def outcome_metadata(
    context: dg.OpExecutionContext,
    warehouse_names: names.WarehouseNames,
    table: str,
    applied: AppliedPlan,
    verdict: VerifyVerdict,
) -> dict[str, dg.MetadataValue]:
    """Return metadata about the work of a run and the reasons for the work.

    Args:
        context: context of the op.
        warehouse_names: names of the warehouse in Dagster.
        table: full name of the table.
        applied: the applied plan.
        verdict: result of the comparison.
    """
    declined = "; ".join(dict.fromkeys(item.text for item in applied.left_alone[:_MOST_NAMED]))
    decline_reason = "" if applied.changed else declined or "; ".join(applied.lines).removeprefix("nothing to do: ")
    metadata: dict[str, dg.MetadataValue] = {
        "action": dg.MetadataValue.text(applied.action if applied.changed else "nothing to do"),
        "why": dg.MetadataValue.text(
            context.run.tags.get(names.TAG_REASON) or decline_reason or "asked for by a person"
        ),
        "plan": dg.MetadataValue.text(applied.plan_hash),
        "outcome": dg.MetadataValue.text("; ".join(applied.lines)),
        "compared": dg.MetadataValue.text(f"{verdict.level}: {verdict.text}"),
        "run": dg.MetadataValue.dagster_run(context.run_id),
    }
    if applied.waits:
        metadata["action"] = dg.MetadataValue.text(Reason.APPROVAL.value)
        metadata |= waiting_metadata(Launchpad(context.run, warehouse_names), table, applied.plan_hash, applied.waits)
    if applied.replaced:
        metadata["plan replaced"] = dg.MetadataValue.text(applied.replaced)
    if applied.left_alone:
        metadata["left alone"] = dg.MetadataValue.md(declined_table(applied.left_alone))
    return metadata


def measurement_metadata(applied: AppliedPlan) -> dict[str, dg.MetadataValue]:
    """Return the predicted and measured costs and the numbers of the report; {} if the run changed nothing."""
    return (
        {**cost_metadata(applied.predicted, applied.numbers), **number_metadata(applied.numbers)}
        if applied.changed
        else {}
    )


def undo_metadata(
    context: dg.OpExecutionContext, warehouse_names: names.WarehouseNames, table: str, applied: AppliedPlan
) -> dict[str, dg.MetadataValue]:
    """Return a link to the job `undo` with a filled-in configuration; {} if the run did nothing that can be undone.

    The run's log and the run tag `dredge/undo` get the same information.
    """
    if applied.published is None or not applied.ledger_run or applied.action not in UNDOABLE:
        return {}
    config = {"table": table, "run_id": applied.ledger_run}
    job = warehouse_names.definition("undo")
    context.log.info(f"to undo this run launch the job {job} with {config}")
    context.instance.add_run_tags(context.run_id, {names.TAG_UNDO: applied.ledger_run})
    link = Launchpad(context.run, warehouse_names).link("undo", config)
    return {
        "undo": dg.MetadataValue.md(
            f"[launch the job {job}]({link}) of {plain_cell(table)}: run_id {plain_cell(str(applied.ledger_run))}"
        )
    }


def _level_metadata(store: TableStore, published: int, partitions: Sequence[str]) -> dict[str, dg.MetadataValue]:
    """Return picture and diagram of the LSM tree before and after a snapshot, or a text if a snapshot has expired.

    Args:
        store: the table.
        published: id of the snapshot.
        partitions: paths of the partitions to show; empty for all partitions.
    """
    try:
        before, after = (table_health(store, number).of_partitions(partitions) for number in (published - 1, published))
    except SnapshotNotFound as error:
        return {"levels": dg.MetadataValue.text(f"unknown: {error}")}
    picture = tree_picture(before, after)
    pictures = {"tree before and after": dg.MetadataValue.md(picture)} if picture else {}
    return {**pictures, "levels": dg.MetadataValue.md(level_diagram(before, after))}


def layout_graph(table: str, warehouse_names: names.WarehouseNames) -> dg.GraphDefinition:
    """Return the graph that materialises one table's layout asset: observe, plan, apply, verify and record.

    All tables share the ops, except ``apply``, which has a pool per table.

    Args:
        table: full name of the table.
        warehouse_names: names of the warehouse in Dagster.
    """
    shared, apply = _shared_ops(warehouse_names.prefix), apply_op(table, warehouse_names)
    return dg.GraphDefinition(
        warehouse_names.node_name(table),
        node_defs=[*shared, apply],
        dependencies={
            dg.NodeInvocation(op.name, alias=node): inputs
            for (node, inputs), op in zip(_INPUTS.items(), (*shared, apply), strict=True)
        },
        input_mappings=[_DATA],
        output_mappings=[_RESULT],
        config=_CONFIG,
    )


@cache
def _shared_ops(prefix: str) -> tuple[dg.OpDefinition, ...]:
    """Return the ops that all tables of a warehouse share, in the order of `_INPUTS`.

    Args:
        prefix: prefix of the names of the warehouse's definitions, or "".
    """
    warehouse_names = names.WarehouseNames("", prefix=prefix)
    return tuple(op_of(op, warehouse_names) for op in (observe_op, plan_op, verify_op, record_op))


_INPUTS: Final[Mapping[str, Mapping[str, dg.DependencyDefinition]]] = {
    "observe": {},
    "plan": {"observed": dg.DependencyDefinition("observe")},
    "verify": {"report": dg.DependencyDefinition("apply")},
    "record": {"report": dg.DependencyDefinition("apply"), "verdict": dg.DependencyDefinition("verify")},
    "apply": {"plan": dg.DependencyDefinition("plan")},
}
"""Inputs of each node of a layout's graph."""
_DATA: Final = dg.InputMapping(graph_input_name="data", mapped_node_name="observe", mapped_node_input_name="data")
_RESULT: Final = dg.OutputMapping(
    graph_output_name="result", mapped_node_name="record", mapped_node_output_name="result"
)
_CONFIG: Final = dg.ConfigMapping(
    config_schema=PLAN_CONFIG,
    # The two ops that plan get the configuration of the launchpad: names and hashes only.
    config_fn=lambda config: {verb: {"config": dict(config)} for verb in ("plan", "apply")},
)
