"""Any action of maintenance as a run over the table that its configuration names: planned, applied, verified and told by one op for all actions.

What a job may be given are the action's own arguments, typed by pydantic: a new action has its job at once. Where a plan is only made, or
must be approved first, it is kept with the table under its hash, and `apply_plan` takes that hash and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeAlias

import dagster as dg
from pydantic import Field, create_model

from lsm_core.errors import DredgeError, InvalidOption, PlanStale
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance import MaintenancePlan, load_plan, plan_maintenance
from lsm_core.maintenance.action import Action, Argument, ArgumentKind, find_action
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import duration
from orchestration import names
from orchestration.blocked import blocking_failure, started_before
from orchestration.health import table_health
from orchestration.metadata import health_metadata, number_metadata, plan_metadata
from orchestration.ops.approval import wait_for_approval, why_approved_first
from orchestration.ops.layout_ops import (
    Verdict,
    apply_exactly,
    compare_published,
    first_line,
    measured_metadata,
    nothing_to_do,
    ruled_store,
    story_metadata,
    undo_metadata,
)
from orchestration.partitions import usable_keys
from orchestration.policies.rounds import COMPACT, RECOVER
from orchestration.quirks import typed
from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import WarehouseResource

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
    }
)
"""What may be done while a blocking check fails."""
TellChecks: TypeAlias = Callable[
    [dg.OpExecutionContext, WarehouseResource, TableStore, Verdict, Sequence[str | None]], None
]
"""Tells what the checks of a layout say once a job has materialised these partitions of it (`checks.layout_checks.tell_checks`, a layer above)."""
_TYPES: Final[Mapping[ArgumentKind, tuple[Any, Any]]] = {
    ArgumentKind.FLAG: (bool, False),
    ArgumentKind.NUMBER: (int | None, None),
    ArgumentKind.NUMBERS: (list[int], []),
    ArgumentKind.TEXT: (str | None, None),
    ArgumentKind.COLUMNS: (list[str], []),
    ArgumentKind.PARTITIONS: (list[str], []),
    ArgumentKind.AGE: (str | None, None),
}
"""How a launchpad takes an argument, and its default; what is not here is not offered, as on the command line."""
_SHAPES: Final[Mapping[ArgumentKind, str]] = {
    ArgumentKind.PARTITIONS: " Partitions by their paths, as the asset lists them.",
    ArgumentKind.AGE: " An age, such as '2 d'.",
}
_PASSES: Final = "passes"
_MANY: Final = 10_000
_MOST_PARTITIONS: Final = 200
"""So many partitions that a run changed are told one by one; with more there is one observation of the table."""


class TableAction(dg.Config):
    """What every action is given."""

    table: str = Field(description="the table: db.table")
    dry_run: bool = Field(default=False, description="plan only: keep the plan for apply_plan, and change nothing")


class PlanOnly(dg.Config):
    """What `plan_only` is given: any action, with its arguments as its own job takes them."""

    table: str = Field(description="the table: db.table")
    action: str = Field("compact", description="what to plan: the name of any action's job")
    arguments: dict[str, Any] = Field({}, description="its arguments, as that job takes them")


class ApprovedPlan(dg.Config):
    """What `apply_plan` is given: names and a hash, so that what was looked at is what is done."""

    table: str = Field(description="the table: db.table")
    hash: str = Field(description="the whole hash of a plan that waits, or was saved otherwise")
    approved_by: str = Field(description="who approves it: written to the table's ledger")


@cache
def config_of(action: str) -> type[TableAction]:
    """Return what the job of ``action`` may be given: the table, and the action's own arguments."""
    given: dict[str, Any] = {}
    for argument in find_action(action).arguments:
        if argument.kind not in _TYPES:
            continue
        kind, default = (str, ...) if argument.required else _TYPES[argument.kind]
        given[argument.name] = (kind, Field(default, description=argument.help + _SHAPES.get(argument.kind, "")))
    if action == "recover":
        given[_PASSES] = (
            int,
            Field(default=_MANY, description="So many passes, then stop; default: all that are left."),
        )
    made: type[TableAction] = create_model(action, __base__=TableAction, **given)
    return made


@cache
def table_op(tell_checks: TellChecks) -> dg.OpDefinition:
    """Return the op behind the jobs of all actions, and `plan_only`; ``tell_checks`` evaluates the checks of the layouts that it materialises."""

    @dg.op(
        name="maintain_table",
        description="Plan one action over one table, apply the plan, compare what was published with what was there before, and record it.",
        config_schema={"action": str, "given": dict},
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def maintain_table(
        context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource
    ) -> dg.Output[None]:
        asked = context.op_config
        given = {name: value for name, value in asked["given"].items() if value is not None and value != []}
        table, dry_run = str(given.pop("table")), bool(given.pop("dry_run", False))
        with said_in_one_line(table):
            store = begin(context, warehouse, table)
            action = find_action(str(asked["action"]), table)
            passes = int(given.pop(_PASSES, 1))
            if passes < 1:
                raise InvalidOption(_PASSES, passes, "1 or more", table)
            arguments = arguments_of(action, store, given)
            plan = plan_maintenance(store, action.name, spark.task_runner(), **arguments)
            context.log.info(first_line(plan))
            context.add_output_metadata(plan_metadata(plan))
            tags = names.run_tags(table, None, plan.hash, action.name, nothing_to_do(plan) or "asked for by a person")
            context.instance.add_run_tags(context.run_id, tags)
            for left in plan.declined if not plan.items else ():
                context.log.info(f"{left.subject}: declined: {left.text}")
            why = (
                f"planned only, by run {context.run_id}"
                if dry_run
                else why_approved_first(warehouse, table, action.name)
            )
            if plan.items and why:
                context.add_output_metadata(wait_for_approval(context, store, plan, why))
                return dg.Output(None)
            while plan.items:
                told = carry_out(context, warehouse, spark, store, plan, f"dagster run {context.run_id}", tell_checks)
                context.add_output_metadata(told)
                passes -= 1
                if passes <= 0:
                    break
                plan = plan_maintenance(store, action.name, spark.task_runner(), **arguments)
                context.log.info(first_line(plan))
        return dg.Output(None)

    return maintain_table


@cache
def apply_plan_op(tell_checks: TellChecks) -> dg.OpDefinition:
    """Return the op that applies a saved plan, whole and as it is, or refuses in one line; ``tell_checks`` as in `table_op`."""

    @dg.op(
        name="apply_approved_plan",
        description="Apply the saved plan of exactly this hash, as somebody approved it; an unknown or stale one is refused.",
        config_schema=ApprovedPlan.to_fields_dict(),
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def apply_approved_plan(
        context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource
    ) -> dg.Output[None]:
        asked = ApprovedPlan(**context.op_config)
        with said_in_one_line(asked.table):
            who = " ".join(asked.approved_by.split())
            if not who:
                raise InvalidOption("approved_by", asked.approved_by, "the name of who approves the plan", asked.table)
            if not re.fullmatch("[0-9a-f]{32}", asked.hash.strip()):
                raise InvalidOption("hash", asked.hash, "the whole hash of a saved plan: 32 hex digits", asked.table)
            store = begin(context, warehouse, asked.table)
            plan = load_plan(store, asked.hash.strip())
            context.log.info(f"{first_line(plan)}, approved by {who}")
            tags = names.run_tags(asked.table, None, plan.hash, plan.action, f"approved by {who}")
            context.instance.add_run_tags(context.run_id, tags)
            told = carry_out(
                context, warehouse, spark, store, plan, f"{who} (dagster run {context.run_id})", tell_checks
            )
            context.add_output_metadata(told)
        return dg.Output(None)

    return apply_approved_plan


@contextmanager
def said_in_one_line(table: str) -> Iterator[None]:
    """Turn what the engine refuses into a failure of the run in one line, which nobody tries again."""
    try:
        yield
    except DredgeError as error:
        said = " ".join(str(error).split())
        where = "" if table in said else f"{table}: "
        raise dg.Failure(f"{where}{type(error).__name__}: {said}", allow_retries=False) from error


def begin(context: dg.OpExecutionContext, warehouse: WarehouseResource, table: str) -> TableStore:
    """Open the table for this run. Raises dg.Failure where another run is at work on it, TableNotFound and the like."""
    store = ruled_store(warehouse, table)
    context.instance.add_run_tags(context.run_id, {names.TAG_TABLE: names.table_value(table)})
    other = started_before(context.instance, context.run_id, table, names.layout_key(warehouse.path, table))
    if other is not None:
        text = f"{table}: run {other[:8]} is at work on it: nothing was done; launch this again when it has ended"
        raise dg.Failure(text, allow_retries=False)
    return store


def arguments_of(action: Action, store: TableStore, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a launchpad was given as the action's plan takes it. Raises InvalidOption naming the argument."""
    declared = {argument.name: argument for argument in action.arguments if argument.kind in _TYPES}
    found: dict[str, Any] = {}
    for name, value in given.items():
        argument = declared.get(name)
        if argument is None:
            accepted = f"{action.name} takes {', '.join(declared) or 'no arguments'}"
            raise InvalidOption(f"{action.name} argument", name, accepted, store.name)
        found[name] = _argument(argument, store, value)
    return found


def _argument(argument: Argument, store: TableStore, value: Any) -> Any:
    if argument.kind is ArgumentKind.AGE:
        try:
            return store.clock.now_ms() - duration(value)
        except InvalidOption as error:
            raise InvalidOption(argument.name, value, error.accepted, store.name) from error
    if argument.kind is ArgumentKind.FLAG and not isinstance(value, bool):  # the text "false" would be true
        raise InvalidOption(argument.name, value, "true or false", store.name)
    if argument.kind is not ArgumentKind.PARTITIONS:
        return value
    here = {state.text: state for state in table_health(store).partitions}
    for path in value:
        if path not in here:
            known = ", ".join(sorted(here)[:3]) or "none"
            raise InvalidOption(argument.name, path, f"the path of a partition of the table ({known} ...)", store.name)
    return [dict(here[path].buckets[0].partition) for path in value]


def carry_out(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    spark: SparkResource,
    store: TableStore,
    plan: MaintenancePlan,
    approved_by: str,
    tell_checks: TellChecks,
) -> dict[str, dg.MetadataValue]:
    """Apply one plan exactly, compare what was published, tell the layout of both, and return what was told and the numbers.

    Raises dg.Failure where a blocking check forbids it, nothing of the plan fits any more, a part could not be done, or the comparison fails.
    """
    table, layout = store.name, names.layout_key(warehouse.path, store.name)
    touched: Sequence[str | None] = [None]
    if plan.action in {COMPACT, RECOVER}:  # other partitions are none of its business
        touched = (
            usable_keys(sorted({str(getattr(item, "partition_text", "")) for item in plan.items} - {""}))[0] or touched
        )
    found = (blocking_failure(context.instance, layout, one) for one in touched if plan.action not in REPAIRS)
    blocked = next((why for why in found if why is not None), None)
    if blocked is not None:
        text = f"{table}: {blocked}: nothing was done; repair the table, then execute the check again"
        raise dg.Failure(text, allow_retries=False)
    done, stale = apply_exactly(context, store, plan, spark, approved_by)
    if stale:
        raise PlanStale(f"plan {plan.hash}: {stale}; nothing was done, plan it anew", table)
    for line in done.lines:
        context.log.info(f"{table}: {line}")
    partitions = _partitions_of(plan)
    rewrote = done.published is not None and snapshots.read(store, done.published).commit_kind is CommitKind.COMPACT
    if rewrote:
        context.instance.add_run_tags(context.run_id, {names.published_tag(table): str(done.published)})
        verdict = compare_published(context, warehouse, spark, table, done.published, partitions, check_follows=False)
    else:
        verdict = Verdict(
            ok=True, level="V0", text="nothing to compare: no snapshot that must say what the one before it said"
        )
    told = {**story_metadata(context, table, done, verdict), "approved by": dg.MetadataValue.text(approved_by)}
    told |= {**undo_metadata(context, table, done), **measured_metadata(done)}
    if done.changed:
        materialised = _record(context, store, layout, told, "; ".join(done.lines), partitions if rewrote else None)
        if materialised:
            tell_checks(context, warehouse, store, verdict, materialised)
    if done.failed:
        first = done.failed[0]
        text = f"{table}: {len(done.failed)} {done.undone}, {first.subject} for one: {first.text}"
        raise dg.Failure(text, allow_retries=False)
    return {**told, **number_metadata(done.numbers)}


def _partitions_of(plan: MaintenancePlan) -> Sequence[str | None]:
    """Return the partitions that a plan works on as Dagster names them; [None] for a table without any, or a plan over the whole table."""
    found = sorted({str(getattr(item, "partition_text", "")) for item in plan.items} - {""})
    return usable_keys(found)[0][: _MOST_PARTITIONS + 1] or [None]


def _record(
    context: dg.OpExecutionContext,
    store: TableStore,
    layout: dg.AssetKey,
    told: Mapping[str, dg.MetadataValue],
    description: str,
    rewritten: Sequence[str | None] | None,
) -> Sequence[str | None]:
    """Tell the layout what was done: the materialisation of what was ``rewritten``, which is returned; an observation of the table for everything else (None)."""
    whole = bool(store.schema.partition_keys) and (rewritten is None or None in rewritten)
    if rewritten is None or whole or len(rewritten) > _MOST_PARTITIONS:
        context.log_event(dg.AssetObservation(layout, description=description, metadata=told))
        return ()
    health = table_health(store)
    for partition in rewritten:
        now = {**told, **health_metadata(health.of_partition(partition))}
        context.log_event(dg.AssetMaterialization(layout, description=description, metadata=now, partition=partition))
    return rewritten


__all__ = [
    "PLAN_ONLY",
    "ApprovedPlan",
    "PlanOnly",
    "TableAction",
    "TellChecks",
    "apply_plan_op",
    "arguments_of",
    "begin",
    "carry_out",
    "config_of",
    "said_in_one_line",
    "table_op",
]
