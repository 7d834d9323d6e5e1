"""The five ops behind a table's layout asset: observe its health, plan, apply the plan on Spark, verify what was published, record it."""

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
    find_action,
    load_plan,
    plan_maintenance,
    proof_of,
    rows_given_buckets,
    save_plan,
    undone_by,
    verify_snapshots,
)
from lsm_core.maintenance.action import PlanEstimate, size_text
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.health import TableHealth, refusal_of, table_health
from orchestration.metadata import (
    cost_metadata,
    declined_table,
    health_metadata,
    launch_link,
    level_diagram,
    number_metadata,
    plain_cell,
    plan_metadata,
)
from orchestration.ops.approval import wait_for_approval, waiting_metadata, waiting_text, why_approved_first
from orchestration.ops.kept_for_undo import kept_for_undo
from orchestration.partitions import partitions_of
from orchestration.pipes_worker import told_of
from orchestration.policies import Reason, policy_source
from orchestration.policies.policy import SortRule
from orchestration.policies.rounds import COMPACT, due_action, values_of
from orchestration.quirks import PipesFailed, early_features, named_op, typed
from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import WarehouseResource
from orchestration.table_card import TableCard, count_text
from orchestration.tree_picture import tree_picture

PLAN_CONFIG: Final = {
    "plan": dg.Field(str, default_value="", description="hash of the saved plan to apply; empty: plan now"),
    "full": dg.Field(
        bool,
        is_required=False,
        description="compact: merge everything (true; what a run does that names no plan) or what the table's own rules pick (false)",
    ),
    "action": dg.Field(str, default_value=COMPACT, description="what to do to the table: any action of `dredge plan`"),
    "arguments": dg.Field(dict, default_value={}, description="the action's arguments, as Python takes them"),
}
PASSING: Final = (
    CommitConflict,
    CommitUnknown,
    LockLost,
    LockTimeout,
    MetastoreFailed,
    PlanStale,
    SparkFailed,
    StorageFull,
)
"""Errors that a second try may cure; everything else stays an error however often it is tried."""
RETRIES: Final = 2
UNDOABLE: Final = frozenset({"compact", "recover"})
"""Actions whose runs the action undo takes back."""
_TOLD: Final = 3
COMPARE_LIMIT: Final = 256 * 1024 * 1024
"""Rewritten bytes above which the verify op leaves the comparison to the check merged_view_unchanged: twice would take too long."""


COMPARE_FILES: Final = 1_000
"""Files to read above which the same holds: to open small files is what takes long."""


@dataclass(frozen=True)
class ChosenPlan:
    """What the plan op hands on: the plan's JSON; ``replaced`` says why it is not the one that the run was started with, else ""; ``waits`` why it must be approved first, else ""."""

    plan: str
    replaced: str = ""
    waits: str = ""


@dataclass(frozen=True)
class AppliedPlan:
    """What the apply op hands on: the action's report as plain values.

    ``published``: the snapshot that it committed, None: none. ``replaced`` says why another plan was applied than the run was started
    with, with both hashes, else "". ``ledger_run``: the run's entry in the table's ledger, "" where it has none;
    ``failed``: what could not be done though nothing forbade it, ``undone``: in words, what those are;
    ``waits``: why the plan must be approved before it is applied, else "".
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


@dataclass(frozen=True)
class Verdict:
    """What the verify op found: ``ok``, the ``level`` of the comparison, and one sentence."""

    ok: bool
    level: str
    text: str


CHOSEN: Final = TypeAdapter(ChosenPlan)
APPLIED: Final = TypeAdapter(AppliedPlan)
VERDICT: Final = TypeAdapter(Verdict)


def ruled_store(warehouse: WarehouseResource, table: str) -> TableStore:
    """Open the table as runs maintain it: with the options that its policy overrides. Raises as `WarehouseResource.store`."""
    store, options = warehouse.store(table), policy_source(warehouse.policy_file).current().of(table).options
    return store.copy(options) if options else store


def card_of(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> TableCard:
    """Describe the table whose layout the run materialises, as it is now: the ops of all tables are the same."""
    (key,) = context.assets_def.keys
    return warehouse.card(str(context.assets_def.get_asset_spec(key).metadata[names.TABLE_NAME]))


@cache
def observe_op() -> dg.OpDefinition:
    """Return the op that shows the table's (or partition's) health before anything is done; metadata only."""

    @dg.op(
        name="observe",
        description="Look at the health of the table or partition: sorted runs, files and bytes per bucket, from metadata only.",
        ins={"data": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def observe(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> None:
        card = card_of(context, warehouse)
        if card.refusal is not None:
            return  # the plan says why
        health = table_health(warehouse.store(card.name)).of_partitions(partitions_of(context))
        context.add_output_metadata(health_metadata(health))
        for state in health.partitions:
            context.log.debug(  # the run's first line is the plan's
                f"{card.name} {state.text or '(whole table)'}: {state.sorted_runs} sorted runs, {state.files} files"
            )

    return observe


@cache
def plan_op() -> dg.OpDefinition:
    """Return the op that fetches the plan of the run, or makes one where the run names none."""

    @dg.op(
        name="plan",
        description="Decide what to merge, and say why; declined buckets come with their reason.",
        ins={"observed": dg.In(dg.Nothing)},
        config_schema=PLAN_CONFIG,
        out=dg.Out(str),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def plan(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> str:
        card = card_of(context, warehouse)
        partitions = partitions_of(context)
        if card.partitioned and not partitions and card.refusal is None:
            # Dagster could run no check over it afterwards
            raise dg.Failure(f"{card.name} is partitioned: choose a partition for the run", allow_retries=False)
        replaced = ""
        if card.unreadable:
            made = declined_plan(card.name, card.refusal or "it cannot be opened")
        else:
            made, replaced = _plan_of_run(context, ruled_store(warehouse, card.name))
        context.log.info(first_line(made, partitions))
        if names.TAG_PLAN not in context.run.tags:  # a run that a person started is found like a sensor's from here on
            reason = nothing_to_do(made) or "asked for by a person"
            single = partitions[0] if len(partitions) == 1 else None
            tags = names.run_tags(card.name, single, made.hash, made.action, reason)
            context.instance.add_run_tags(context.run_id, tags)
        for item in made.items:
            context.log.info(", ".join(f"{name} {cell}" for name, cell in zip(item.columns, item.cells(), strict=True)))
        for left in made.declined:
            context.log.info(f"{left.subject}: declined: {left.text}")
        context.add_output_metadata(plan_metadata(made))
        waits = why_approved_first(warehouse, card.name, made.action) if made.items else ""
        if waits:
            context.add_output_metadata(wait_for_approval(context, ruled_store(warehouse, card.name), made, waits))
        return CHOSEN.dump_json(ChosenPlan(made.to_json(), replaced, waits)).decode()

    return plan


def nothing_to_do(plan: MaintenancePlan) -> str:
    """Return ``nothing to do: 1 sorted run < 5; ...`` for a plan without items, "" for one that does something."""
    if plan.items:
        return ""
    why = list(dict.fromkeys(item.text for item in plan.declined))
    more = f"; and {len(why) - _TOLD} more reasons" if len(why) > _TOLD else ""
    return f"nothing to do: {'; '.join(why[:_TOLD]) or 'nothing in the table calls for it'}{more}"


def first_line(plan: MaintenancePlan, partitions: Sequence[str] = ()) -> str:
    """Return what a run says first: what it will do and by which plan, or why there is nothing to do."""
    where = f"/{partitions[0]}" if partitions else ""
    more = f" and {count_text(len(partitions) - 1, 'more partition')}" if len(partitions) > 1 else ""
    subject = f"{plan.table}{where}{more}"
    if not plan.items:
        return f"{subject}: {nothing_to_do(plan)}"
    units = count_text(len(plan.items), "unit")
    size = f", {size_text(plan.estimate.bytes_in)}" if plan.estimate.bytes_in else ""
    return f"{subject}: {plan.action}: {units}{size}: plan {plan.hash} over snapshot {plan.base_snapshot}"


def _plan_of_run(context: dg.OpExecutionContext, store: TableStore) -> tuple[MaintenancePlan, str]:
    """Return the saved plan that the run was started with; without one, or when it cannot be had, a new plan (and why)."""
    partitions, wanted = partitions_of(context), str(_config(context)["plan"])
    if not wanted:
        return _new_plan(context, store), ""
    try:
        plan = load_plan(store, wanted)
    except (PlanStale, CorruptFile) as error:
        return _replan(context, store, f"{type(error).__name__}: plan {wanted}: {error}")
    # Items of actions that work on the whole table name no partition.
    named = {item.partition_text for item in plan.items if hasattr(item, "partition_text")}
    others = sorted(named.difference(partitions)) if partitions else []
    if others:
        text = f"plan {plan.hash} of {store.name} is for partition {others[0]}, this run for {', '.join(partitions[:_TOLD])}"
        raise dg.Failure(text, allow_retries=False)
    return plan, ""


def _new_plan(context: dg.OpExecutionContext, store: TableStore) -> MaintenancePlan:
    config = _config(context)
    full = config.get("full", config["action"] == COMPACT and not config["plan"])
    arguments = dict(config["arguments"]) | ({"full": True} if full else {})
    try:
        return plan_partitions(store, partitions_of(context), str(config["action"]), **arguments)
    except DredgeError as error:
        raise dg.Failure(f"{type(error).__name__}: {error}", allow_retries=False) from error


def _replan(context: dg.OpExecutionContext, store: TableStore, why: str) -> tuple[MaintenancePlan, str]:
    """Return a plan over the newest snapshot, and the sentence that says why, with its hash."""
    made = _new_plan(context, store)
    text = f"{why}; replanned over snapshot {made.base_snapshot} as {made.hash}"
    context.log.warning(text)
    return made, text


def plan_partition(
    store: TableStore, partition: str | None, action: str = COMPACT, **arguments: Any
) -> MaintenancePlan:
    """Plan as `plan_partitions` does, for one partition path (None: the whole table)."""
    return plan_partitions(store, () if partition is None else (partition,), action, **arguments)


def plan_due(
    store: TableStore, partition: str | None, files: int, *, full: bool, sort: SortRule | None = None
) -> MaintenancePlan:
    """Plan the compaction of a partition path (None: the whole table) that is due: a ``sort``, ``full``, or as the table's own rules pick.

    Of a bucket with more than ``files`` level-0 files the plan is one pass of a recovery over the oldest ones: each pass is a commit of its own, and the next run goes on. Raises what `plan_maintenance` raises.
    """
    if sort is not None:
        return plan_partition(store, partition, **sort.arguments)
    chosen = () if partition is None else (partition,)
    worst = max((one.level0_files for one in table_health(store).of_partitions(chosen).buckets), default=0)
    action, arguments = due_action(worst, files, store.options.compaction_trigger, full=full)
    plan = plan_partition(store, partition, action, **arguments)
    return plan if plan.items or action == COMPACT else plan_partition(store, partition, full=full)


def plan_partitions(
    store: TableStore, partitions: Sequence[str], action: str = COMPACT, **arguments: Any
) -> MaintenancePlan:
    """Plan an action over the newest snapshot, for these partition paths where the action takes partitions (none: the whole table).

    An unsupported table is declined. Raises what `plan_maintenance` raises.
    """
    refusal = refusal_of(store)
    if refusal is not None:
        return declined_plan(store.name, refusal, action)
    limits = [item.name for item in find_action(action, store.name).arguments if item.kind is ArgumentKind.PARTITIONS]
    if not partitions or not limits:
        return plan_maintenance(store, action, **arguments)
    chosen = values_of(store, table_health(store), partitions)
    if not chosen:
        gone = f"partition {partitions[0]} holds" if len(partitions) == 1 else f"{len(partitions)} partitions hold"
        return declined_plan(store.name, f"{gone} no file any more", action, reason="empty")
    return plan_maintenance(store, action, **{**arguments, limits[0]: chosen})


def declined_plan(table: str, text: str, action: str = COMPACT, *, reason: str = "unsupported") -> MaintenancePlan:
    """Return a plan that leaves the whole table alone, for one reason."""
    return MaintenancePlan(action, table, None, declined=(Declined(table, reason, text),))


def apply_op(table: str) -> dg.OpDefinition:
    """Return the op that carries a plan out, one at a time per table (its pool); all else is the same for every table."""
    return named_op(_apply_op(), names.op_name("apply", table), names.table_pool(table))


@cache
def _apply_op() -> dg.OpDefinition:

    @dg.op(
        name="apply",
        description="Merge what the plan names on Spark, verify it in flight (V0, V1, V2) and publish one commit.",
        config_schema=PLAN_CONFIG,
        out=dg.Out(str),
        retry_policy=dg.RetryPolicy(max_retries=RETRIES, delay=1),
        tags={"dagster/kind/spark": ""},
    )
    @typed
    def apply(
        context: dg.OpExecutionContext, plan: str, warehouse: WarehouseResource, spark: SparkResource
    ) -> dg.Output[str]:  # where another program did the work Dagster takes no plain value
        card = card_of(context, warehouse)
        chosen = CHOSEN.validate_json(plan)
        given = MaintenancePlan.from_json(chosen.plan)
        if not given.items or chosen.waits:
            lines = [waiting_text(given) if chosen.waits else nothing_to_do(given)]
            left = () if chosen.waits else given.declined
            done = AppliedPlan(given.action, given.hash, None, lines, {}, left, chosen.replaced, waits=chosen.waits)
            return dg.Output(APPLIED.dump_json(done).decode())
        store = ruled_store(warehouse, card.name)
        try:
            done = _carry_out(context, store, given, chosen.replaced, spark)
        except PASSING as error:
            context.log.info(f"{type(error).__name__}: {error}")
            raise
        except DredgeError as error:
            raise dg.Failure(f"{store.name}: {type(error).__name__}: {error}", allow_retries=False) from error
        for line in done.lines:
            context.log.info(line)
        context.add_output_metadata(number_metadata(done.numbers))
        if done.published is not None:  # the check reads there what was published
            context.instance.add_run_tags(context.run_id, {names.published_tag(card.name): str(done.published)})
        return dg.Output(APPLIED.dump_json(done).decode())

    return apply


def _carry_out(
    context: dg.OpExecutionContext, store: TableStore, given: MaintenancePlan, replaced: str, spark: SparkResource
) -> AppliedPlan:
    """Apply the given plan; when the table has moved past it, or its first try failed, a new one over the newest snapshot.

    A plan of another action than the run is configured for is not replaced: the new one would do something else.
    """
    plan, replaceable = given, given.action == _config(context)["action"]
    if context.retry_number:
        found = _published_by(store, given, replaced)
        if found is not None:
            return found
        if replaceable:
            plan, replaced = _replan(context, store, f"plan {given.hash}: try {context.retry_number} failed")
    approved_by = f"dagster run {context.run_id}"
    try:
        done, stale = apply_exactly(context, store, plan, spark, approved_by, replaced)
        if not stale:
            return done
    except PlanStale as error:
        stale = str(error)
    if not replaceable:
        text = f"PlanStale: plan {plan.hash} ({plan.action}): {stale}; plan it anew with action and arguments"
        raise dg.Failure(text, allow_retries=False)
    plan, replaced = _replan(context, store, f"PlanStale: plan {plan.hash}: {stale}")
    done, stale = apply_exactly(context, store, plan, spark, approved_by, replaced)
    if stale and context.retry_number < RETRIES:
        raise dg.RetryRequested(max_retries=RETRIES, seconds_to_wait=1)
    return done


def apply_exactly(
    context: dg.OpExecutionContext,
    store: TableStore,
    plan: MaintenancePlan,
    spark: SparkResource,
    approved_by: str,
    replaced: str = "",
) -> tuple[AppliedPlan, str]:
    """Apply one plan, and return why nothing of it fits the table any more ("" when something did, or it was applied before).

    A commit whose outcome is unknown is looked for in the table. Raises what `apply_plan` raises.
    """
    try:
        if spark.uses_pipes and find_action(plan.action, store.name).runs_tasks:
            told = _apply_elsewhere(context, store, plan, spark, approved_by)
        else:
            runner = spark.task_runner() if find_action(plan.action, store.name).runs_tasks else None
            told = told_of(apply_plan(store, plan, runner=runner, approved_by=approved_by), store.name)
    except CommitUnknown as error:
        context.log.info(str(error))
        found = _published_by(store, plan, replaced)
        if found is None:
            raise
        return found, ""
    done = APPLIED.validate_python(
        {**told, "action": plan.action, "plan_hash": plan.hash, "replaced": replaced, "predicted": plan.estimate}
    )
    stale = [f"{item.subject}: {item.text}" for item in done.left_alone if item.reason == "stale"]
    return done, "" if done.changed or told["before"] else "; ".join(stale[:3])


def _apply_elsewhere(
    context: dg.OpExecutionContext, store: TableStore, plan: MaintenancePlan, spark: SparkResource, approved_by: str
) -> Mapping[str, Any]:
    """Have the program of `SparkResource.submit` apply the plan, and return what it tells (`told_of`).

    Raises PlanStale, CommitUnknown where the program ended without a word, dg.Failure naming every other error.
    """
    save_plan(store, plan)
    warehouse = context.resources.warehouse
    asked = {
        "warehouse": warehouse.path,
        "catalog_options": warehouse.catalog_options,
        "clock": warehouse.clock,
        "table": store.name,
        "options": {key: value for key, value in store.options.raw.items() if store.schema.options.get(key) != value},
        "hash": plan.hash,
        "approved_by": approved_by,
    }
    try:
        with early_features():  # how many writers a client expects is preview
            client = dg.PipesSubprocessClient(env=spark.driver_environment())
            ended = client.run(context=context, command=spark.command(), extras=asked)
        messages = ended.get_custom_messages()
    except PipesFailed as error:
        context.log.warning(str(error))
        messages = ()
    if not messages:
        ended_so = (
            f"{shlex.join(spark.command())} ended without telling what became of plan {plan.hash} "
            "(what it wrote is in the run's stdout and stderr)"
        )
        raise CommitUnknown((plan.base_snapshot or 0) + 1, ended_so)
    told: Mapping[str, Any] = messages[-1]
    if "error" not in told:
        return told
    if told["error"] == PlanStale.__name__:
        raise PlanStale(str(told["text"]), store.name)
    passing = told["error"] in {kind.__name__ for kind in PASSING}
    raise dg.Failure(f"{store.name}: {told['error']}: {told['text']}", allow_retries=passing)


def _published_by(store: TableStore, plan: MaintenancePlan, replaced: str) -> AppliedPlan | None:
    """Return what the snapshot did that carried ``plan`` out though its commit's outcome was unknown; None: there is none.

    Its files, rows and bytes are those of the snapshot's own manifest entries. What only the interrupted application knew
    (rows dropped and why, keys compared, seconds) is lost.
    """
    applied = applied_before(store, plan)
    if applied is None or applied.snapshot_id is None:
        return None
    read, written = _rewritten(store, applied.snapshot_id)
    numbers = {
        "files_in": read.num_rows,
        "files_out": written.num_rows,
        "rows_in": _total(read, "row_count"),
        "rows_out": _total(written, "row_count"),
        "bytes_in": _total(read, "file_size"),
        "bytes_out": _total(written, "file_size"),
        "verification": "the commit's outcome was unknown: found in the table afterwards",
    }
    lines = [f"it did happen, as snapshot {applied.snapshot_id}"]
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


def _rewritten(store: TableStore, snapshot_id: int) -> tuple[pa.Table, pa.Table]:
    """Return the manifest entries of the files that a snapshot replaced, and of those that it wrote instead.

    A file that only changes its level is removed and added under one name: it was not rewritten.
    """
    entries = manifests.delta_entries(store, snapshots.read(store, snapshot_id))
    is_added = pc.equal(entries.column("kind"), 0)
    added, removed = entries.filter(is_added), entries.filter(pc.invert(is_added))
    moved = pc.is_in(removed.column("file_name"), added.column("file_name").combine_chunks())
    kept = pc.is_in(added.column("file_name"), removed.column("file_name").combine_chunks())
    return removed.filter(pc.invert(moved)), added.filter(pc.invert(kept))


def _total(entries: pa.Table, column: str) -> int:
    return int(pc.sum(entries.column(column)).as_py() or 0)


def _config(context: dg.OpExecutionContext) -> Mapping[str, Any]:
    """Return the op's configuration: names and hashes only."""
    config: Mapping[str, Any] = context.op_config or {}
    return config


@cache
def verify_op() -> dg.OpDefinition:
    """Return the op that compares the published snapshot with the one before it; a difference blocks the table."""

    @dg.op(
        name="verify",
        description="Prove that the merged rows are the same before and after, bucket by bucket.",
        out=dg.Out(str),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def verify(context: dg.OpExecutionContext, report: str, warehouse: WarehouseResource, spark: SparkResource) -> str:
        card = card_of(context, warehouse)
        verdict = compare_published(
            context,
            warehouse,
            spark,
            card.name,
            APPLIED.validate_json(report).published,
            partitions_of(context) or [None],
        )
        context.add_output_metadata({"level": verdict.level, "verdict": verdict.text})
        return VERDICT.dump_json(verdict).decode()

    return verify


def compare_published(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    spark: SparkResource,
    table: str,
    published: int | None,
    partitions: Sequence[str | None],
    *,
    check_follows: bool = True,
) -> Verdict:
    """Compare the published snapshot (None: there is none) with the one before it, and tell the outcome.

    Where the check merged_view_unchanged follows in the same run (``check_follows``), large ones are left to it.

    Raises dg.Failure on a difference, after the check merged_view_unchanged was told of it for the ``partitions``, so that the table rests.
    """
    kept = None
    if published is None:
        verdict = Verdict(ok=True, level="V0", text="nothing was published, so nothing could change")
    else:
        store = warehouse.store(table)
        replaced, written = _rewritten(store, published)
        size = _total(replaced, "file_size")
        chosen = [one for one in partitions if one is not None]
        proof = proof_of(store, published)
        if proof.replaced_only:
            files = replaced.num_rows + written.num_rows
        else:
            files = sum(one.files for one in table_health(store, published).of_partitions(chosen).partitions)
            files += replaced.num_rows + proof.passes * COMPARE_FILES
        large = size > COMPARE_LIMIT or files > COMPARE_FILES
        if check_follows and large and not rows_given_buckets(store, published):
            by_spark = spark.uses_spark and not proof.replaced_only
            where = "on Spark" if by_spark else "in the run's own process"
            much = f"{size_text(size)} rewritten" if size > COMPARE_LIMIT else f"{count_text(files, 'file')} to read"
            text = f"{much}: compared by the check {names.MERGED_VIEW_CHECK} alone, {where}"
            verdict = Verdict(ok=True, level="V3" if by_spark else "V1", text=text)
        else:
            verdict = _compare(store, published)
        if not verdict.ok:
            kept = kept_for_undo(store, published)
            verdict = replace(verdict, text=f"{verdict.text}; {kept.text}")
    context.log.info(verdict.text)
    if verdict.ok:
        return verdict
    # The run ends before the blocking check itself could run: it fails from here, and the table must rest.
    undo = kept.metadata if kept is not None else {}
    for partition in partitions:
        evaluation = dg.AssetCheckEvaluation(
            asset_key=names.layout_key(warehouse.path, table),
            check_name=names.MERGED_VIEW_CHECK,
            passed=False,
            severity=dg.AssetCheckSeverity.ERROR,
            description=verdict.text,
            metadata={"found by": dg.MetadataValue.text("the run's own comparison"), **undo},
            partition=partition,
        )
        context.log_event(evaluation)  # type: ignore[arg-type]  # stored at once; Dagster's type leaves evaluations out
    raise dg.Failure(verdict.text, allow_retries=False)


def _compare(store: TableStore, snapshot: int) -> Verdict:
    pair = f"snapshots {snapshot - 1} and {snapshot}"
    try:
        if rows := rows_given_buckets(store, snapshot):
            return Verdict(ok=True, level="V0", text=bucket_text(snapshot, rows))
        if (undo := judge_undo(store, snapshot)) is not None:
            return undo
        proof = proof_of(store, snapshot)
        pair = f"snapshots {proof.before} and {snapshot}"
        found = verify_snapshots(
            store,
            proof.before,
            snapshot,
            replaced_only=proof.replaced_only,
            places=proof.places,
            appended=proof.appended,
        )
    except DredgeError as error:
        return Verdict(ok=False, level="V1", text=f"{pair} could not be compared: {error}")
    text = f"{pair}: {found.buckets} buckets, {found.by_reference} share their files, {found.by_digest} compared by digest ({found.rows_a:,} rows)"
    if proof.text():
        text = f"{text}; {proof.text()}"
    wrong = ", ".join(difference.bucket for difference in found.differences)
    return Verdict(found.ok, found.level, text if found.ok else f"{text}: DIFFERENT in {wrong}")


def judge_undo(store: TableStore, snapshot: int) -> Verdict | None:
    """Return what there is to say of a snapshot that undid a compaction, None of any other: it need not say what the one before it says.

    Where nobody committed in between it must say what was said before that compaction. Raises CorruptFile, SnapshotNotFound for ``snapshot`` itself.
    """
    undone = undone_by(store, snapshots.read(store, snapshot))
    if undone is None:
        return None
    number = undone.snapshot_id
    what = f"snapshot {snapshot} undid {'a compaction' if number is None else f'snapshot {number}'}"
    if number is None or not undone.whole or number != snapshot - 1:
        text = f"{what}, in whole or in part, and others may have committed since: there is nothing to compare it with; the undo read back what it put back"
        return Verdict(ok=True, level="V0", text=text)
    try:
        found = verify_snapshots(store, number - 1, snapshot)
    except SnapshotNotFound as error:
        return Verdict(ok=True, level="V0", text=f"{what}: there is nothing left to compare it with ({error})")
    wrong = ", ".join(difference.bucket for difference in found.differences)
    text = (
        f"{what}: snapshots {number - 1} and {snapshot} {'say the same' if found.ok else f'are DIFFERENT in {wrong}'}"
    )
    return Verdict(found.ok, found.level, text)


def bucket_text(snapshot: int, rows: int) -> str:
    """Return why the snapshot in which postponed rows got their buckets is not compared with the one before."""
    waited = count_text(rows, "postponed row")
    return (
        f"snapshot {snapshot}: {waited} got a bucket, which readers see from then on: there is nothing to compare with"
    )


@cache
def record_op() -> dg.OpDefinition:
    """Return the op whose output is the table's layout asset: what changed, in numbers that plot, with levels before and after."""

    @dg.op(
        name="record",
        description="Write down what maintenance did: health before and after, rows, bytes and how it was verified.",
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def record(
        context: dg.OpExecutionContext, report: str, verdict: str, warehouse: WarehouseResource
    ) -> dg.Output[None]:
        card = card_of(context, warehouse)
        done, compared = APPLIED.validate_json(report), VERDICT.validate_json(verdict)
        if card.refusal is not None:
            now = TableHealth(card.name, None, None, 0)
        else:
            now = table_health(warehouse.store(card.name)).of_partitions(partitions_of(context))
        metadata = story_metadata(context, card.name, done, compared)
        if done.published is not None:
            metadata |= _levels(warehouse.store(card.name), done.published, partitions_of(context))
        metadata |= undo_metadata(context, card.name, done)
        metadata |= {**measured_metadata(done), **health_metadata(now)}
        if done.published is not None:
            metadata |= {
                "snapshot before": dg.MetadataValue.int(done.published - 1),
                "snapshot published": dg.MetadataValue.int(done.published),
            }
        if done.changed:
            if done.action == COMPACT:
                learned = calibration_of(warehouse.store(card.name), but_for=done.plan_hash)
                metadata |= cost_metadata(done.predicted, done.numbers, learned)
            metadata["ledger"] = dg.MetadataValue.path(warehouse.store(card.name).ledger_dir)
            metadata["runbook"] = dg.MetadataValue.md(
                f"`dredge ledger TABLE` lists the runs of {plain_cell(card.name)}, `dredge undo TABLE RUN` takes one back; more in docs/platform.md, *When something is wrong*"
            )
        version = dg.DataVersion(str(now.snapshot)) if now.snapshot is not None else None
        with early_features():  # data_version of an output is beta
            return dg.Output(None, metadata=metadata, data_version=version)

    return record


def story_metadata(
    context: dg.OpExecutionContext, table: str, done: AppliedPlan, compared: Verdict
) -> dict[str, dg.MetadataValue]:
    """Return what was done and why (or why nothing was), by which plan and run, and how it was compared, each under its name."""
    declined = "; ".join(dict.fromkeys(item.text for item in done.left_alone[:_TOLD]))
    why_not = "" if done.changed else declined or "; ".join(done.lines).removeprefix("nothing to do: ")
    told: dict[str, dg.MetadataValue] = {
        "action": dg.MetadataValue.text(done.action if done.changed else "nothing to do"),
        "why": dg.MetadataValue.text(context.run.tags.get(names.TAG_REASON) or why_not or "asked for by a person"),
        "plan": dg.MetadataValue.text(done.plan_hash),
        "outcome": dg.MetadataValue.text("; ".join(done.lines)),
        "compared": dg.MetadataValue.text(f"{compared.level}: {compared.text}"),
        "run": dg.MetadataValue.dagster_run(context.run_id),
    }
    if done.waits:
        told["action"] = dg.MetadataValue.text(Reason.APPROVAL.value)
        told |= waiting_metadata(context.run, table, done.plan_hash, done.waits)
    if done.replaced:
        told["plan replaced"] = dg.MetadataValue.text(done.replaced)
    if done.left_alone:
        told["left alone"] = dg.MetadataValue.md(declined_table(done.left_alone))
    return told


def measured_metadata(done: AppliedPlan) -> dict[str, dg.MetadataValue]:
    """Return what was predicted and measured, and the report's numbers; {} where nothing was done."""
    return {**cost_metadata(done.predicted, done.numbers), **number_metadata(done.numbers)} if done.changed else {}


def undo_metadata(context: dg.OpExecutionContext, table: str, done: AppliedPlan) -> dict[str, dg.MetadataValue]:
    """Return a link to the job that takes back what the run did, filled in; {} where nothing was done that it can take back.

    The run's log says the same in words, and so does its tag `dredge/undo`.
    """
    if done.published is None or not done.ledger_run or done.action not in UNDOABLE:
        return {}
    asked = {"table": table, "run_id": done.ledger_run}
    context.log.info(f"to take this back launch the job undo with {asked}")
    context.instance.add_run_tags(context.run_id, {names.TAG_UNDO: done.ledger_run})
    link = launch_link(context.run, "undo", asked)
    return {
        "undo": dg.MetadataValue.md(
            f"[launch the job undo]({link}) of {plain_cell(table)}: run_id {plain_cell(str(done.ledger_run))}"
        )
    }


def _levels(store: TableStore, published: int, partitions: Sequence[str]) -> dict[str, dg.MetadataValue]:
    """Return picture and diagram of what the snapshot changed; in words when one of the two has expired meanwhile."""
    try:
        before, after = (table_health(store, number).of_partitions(partitions) for number in (published - 1, published))
    except SnapshotNotFound as error:
        return {"levels": dg.MetadataValue.text(f"not known: {error}")}
    picture = tree_picture(before, after)
    drawn = {"tree before and after": dg.MetadataValue.md(picture)} if picture else {}
    return {**drawn, "levels": dg.MetadataValue.md(level_diagram(before, after))}
