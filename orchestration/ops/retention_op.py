"""Op that enforces retention: it drops old partitions, expires tags and snapshots, and empties the trash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import dagster as dg

from dredge.orchestration.ops.approval import approval_reason, wait_for_approval
from dredge.orchestration.ops.common import TableFailed, TableUnreadable, job_op, process_tables
from dredge.orchestration.ops.warehouse_ops import build_round
from dredge.platform_core.metadata import declined_table, number_metadata
from dredge.platform_core.policies import Policies, policy_source
from dredge.platform_core.resources.spark_resource import SparkResource
from dredge.platform_core.resources.warehouse import WarehouseResource, list_tables
from lsm_core.errors import DredgeError
from lsm_core.maintenance import Declined, apply_plan, plan_maintenance
from lsm_core.maintenance.action import TaskRunner
from lsm_core.maintenance.combined import UNREADABLE
from lsm_core.metadata.store import TableStore

RETENTION: Final = ("expire_partitions", "expire_tags", "expire_snapshots", "expire_changelogs", "trash")
"""Names of the actions of retention, in the order in which they run."""


def _applies_to(store: TableStore, action: str, arguments: Mapping[str, int]) -> bool:
    """Return whether retention runs the action; expiring partitions needs an age in the table's options or policy.

    Args:
        store: the table.
        action: name of the action.
        arguments: arguments of the action under the policy, by name.
    """
    if action != "expire_partitions":
        return True
    has_age = "older_than_ms" in arguments or store.options.get("partition.expiration-time") is not None
    return bool(store.schema.partition_keys) and has_age


@job_op(
    "expire",
    "Drop old partitions and expire old tags, snapshots and changelogs of every table. "
    "Their files move to the trash. Then delete trash files whose grace period is over.",
)
def retention_op(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
    """Apply the retention of each table, as the table's policy or options define it.

    An unsupported table, or a table with a failed blocking check, a running run, or a pause that covers retention, is
    skipped. If a table fails, the op continues with the next table. A table that cannot be read is only a warning.

    Raises:
        dg.Failure: at the end, if tables failed; the message names the failed tables.
    """
    tables, left_out = list_tables(warehouse)
    policies = policy_source(*warehouse.policy_place).current()
    for line in [*([policies.trouble] if policies.trouble else []), *left_out]:
        context.log.warning(line)
    process_tables(
        context,
        {table: table for table in tables},
        partial(_expire, context, warehouse, spark.task_runner(), policies),
        unattended_in=warehouse,
    )


def _expire(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    runner: TaskRunner | None,
    policies: Policies,
    table: str,
) -> None:
    """Plan and apply all retention actions of one table.

    Args:
        context: context of the op.
        warehouse: warehouse of the table.
        runner: runner for the tasks of large plans, or None to use this process.
        policies: current policies.
        table: full name of the table.

    Raises:
        TableFailed: an action failed; the message names the action.
        TableUnreadable: a part of the history cannot be read and does not expire; the other actions were applied.
    """
    layout, policy = warehouse.names.layout_key(table), policies.of(table)
    try:
        store = warehouse.store(table)
    except DredgeError as error:  # the page of its asset shows the error; nothing can expire
        context.log.warning(f"{table}: nothing expires: {error}")
        return
    hold = build_round(context.instance, warehouse, unattended=True).upkeep(store, RETENTION[0])
    if hold is not None:
        context.log.info(f"{table}: nothing expires: {hold.text}")
        return
    lines: list[str] = []
    metadata: dict[str, dg.MetadataValue] = {}
    changed = False
    unreadable: list[Declined] = []
    for action in RETENTION:
        arguments = policy.retention_arguments(action, store.clock.now_ms())
        if not _applies_to(store, action, arguments):
            continue
        try:
            plan = plan_maintenance(store, action, runner, **arguments)
            unreadable += [
                replace(item, text=f"{action}: {item.text}") for item in plan.declined if item.reason == UNREADABLE
            ]
            why = approval_reason(warehouse, table, action) if plan.items else ""
            if why:
                wait_for_approval(context, warehouse.names, store, plan, why)
                continue
            report = apply_plan(store, plan, runner, approved_by=f"dagster run {context.run_id}")
        except DredgeError as error:
            raise TableFailed(f"{action}: {type(error).__name__}: {error}") from error
        changed = changed or report.changed
        lines += report.lines(table)
        metadata |= number_metadata(report.numbers(), f"{action}: ")
        metadata |= {
            f"{action}: {title}": dg.MetadataValue.md(declined_table(items))
            for title, items in report.declined_lists().items()
            if items
        }
    for line in lines:
        context.log.info(f"{table}: {line}")
    # If nothing expired, store no event, so that hourly runs do not fill Dagster's storage.
    if changed:
        context.log_event(dg.AssetObservation(layout, description="; ".join(lines), metadata=metadata))
    if unreadable:
        files = [str(item.facts["file"]) for item in unreadable if "file" in item.facts]
        raise TableUnreadable("; ".join(item.text for item in unreadable), files)
