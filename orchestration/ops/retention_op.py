"""The op that keeps tables from growing old: old partitions are dropped, expired snapshots go to the trash, and from there after its grace."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import dagster as dg

from lsm_core.errors import DredgeError
from lsm_core.maintenance import apply_plan, plan_maintenance
from lsm_core.maintenance.action import TaskRunner
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.metadata import declined_table, number_metadata
from orchestration.ops.approval import wait_for_approval, why_approved_first
from orchestration.ops.each_table import TableFailed, each_table
from orchestration.ops.warehouse_ops import round_of
from orchestration.policies import Policies, policy_source
from orchestration.quirks import typed
from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import WarehouseResource, list_tables

RETENTION: Final = ("expire_partitions", "expire_tags", "expire_snapshots", "expire_changelogs", "trash")
"""The actions that retention is made of, in their order."""


def _asked_for(store: TableStore, action: str, arguments: Mapping[str, int]) -> bool:
    """Whether the table's options or policy ask for ``action``: partitions grow old where one of them says when."""
    if action != "expire_partitions":
        return True
    told = "older_than_ms" in arguments or store.options.get("partition.expiration-time") is not None
    return bool(store.schema.partition_keys) and told


@dg.op(
    name="expire",
    description="Drop old partitions, expire old tags, snapshots and changelogs of every table (files go to the trash), then delete what the trash held long enough.",
    out=dg.Out(dg.Nothing),
    tags={"dagster/kind/dredge": ""},
)
@typed
def retention_op(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
    """Apply each table's own retention, or what its policy says instead; a blocked table, one that rests altogether, and one with a run at work, keeps everything until the next time.

    A table that fails stops no other; at the end the op fails and names those that did.
    """
    tables, left_out = list_tables(warehouse.catalog())
    policies = policy_source(warehouse.policy_file).current()
    for line in [*([policies.trouble] if policies.trouble else []), *left_out]:
        context.log.warning(line)
    each_table(
        context, {table: table for table in tables}, partial(_expire, context, warehouse, spark.task_runner(), policies)
    )


def _expire(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    runner: TaskRunner | None,
    policies: Policies,
    table: str,
) -> None:
    """Plan and apply all actions of one table, where very much is to be looked at or deleted by ``runner``'s tasks; raises what they raise,
    with the action's name before it.
    """
    layout, policy = names.layout_key(warehouse.path, table), policies.of(table)
    try:
        store = warehouse.store(table)
    except DredgeError as error:  # shown as such on its asset's page; nothing of it can expire
        context.log.info(f"{table}: nothing expires: {error}")
        return
    resting = round_of(context.instance, warehouse, unattended=True).upkeep(store, RETENTION[0])
    if resting is not None:
        context.log.info(f"{table}: nothing expires: {resting.text}")
        return
    lines: list[str] = []
    told: dict[str, dg.MetadataValue] = {}
    changed = False
    for action in RETENTION:
        arguments = policy.retention_arguments(action, store.clock.now_ms())
        if not _asked_for(store, action, arguments):
            continue
        try:
            plan = plan_maintenance(store, action, runner, **arguments)
            why = why_approved_first(warehouse, table, action) if plan.items else ""
            if why:
                wait_for_approval(context, store, plan, why)
                continue
            report = apply_plan(store, plan, runner, approved_by=f"dagster run {context.run_id}")
        except DredgeError as error:
            raise TableFailed(f"{action}: {type(error).__name__}: {error}") from error
        changed = changed or report.changed
        lines += report.lines(table)
        told |= number_metadata(report.numbers(), f"{action}: ")
        told |= {
            f"{action}: {title}": dg.MetadataValue.md(declined_table(items))
            for title, items in report.declined_lists().items()
            if items
        }
    for line in lines:
        context.log.info(f"{table}: {line}")
    # An hour in which nothing grew old enough leaves nothing behind in Dagster's storage but the run's own log.
    if changed:
        context.log_event(dg.AssetObservation(layout, description="; ".join(lines), metadata=told))
