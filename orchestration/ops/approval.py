"""Plans that need approval: the policy's rule, the stored plan, and the link to approve the plan."""

from __future__ import annotations

from typing import Final

import dagster as dg

from dredge.platform_core import names
from dredge.platform_core.metadata import Launchpad
from dredge.platform_core.policies import policy_source
from dredge.platform_core.resources.warehouse import WarehouseResource
from lsm_core.maintenance import MaintenancePlan, hold_plan
from lsm_core.metadata.store import TableStore

APPLY_PLAN: Final = names.APPLY_PLAN_JOB


def approval_reason(warehouse: WarehouseResource, table: str, action: str) -> str:
    """Return the policy rule that requires approval of an action's plans, or "" if no approval is required."""
    policy = policy_source(*warehouse.policy_place).current().of(table)
    return (
        f"approval of {action} is required ({policy.origin(f'approval.{policy.approved_as(action)}')})"
        if policy.needs_approval(action)
        else ""
    )


def waiting_text(plan: MaintenancePlan) -> str:
    """Return ``waits for approval: plan HASH``, the text used by runs, ticks and pages."""
    return f"waits for approval: plan {plan.hash}"


def wait_for_approval(
    context: dg.OpExecutionContext,
    warehouse_names: names.WarehouseNames,
    store: TableStore,
    plan: MaintenancePlan,
    why: str,
) -> dict[str, dg.MetadataValue]:
    """Store a plan until a person approves it.

    The run's log and tag name the plan.

    Args:
        context: context of the op.
        warehouse_names: names of the warehouse in Dagster.
        store: the table.
        plan: plan to store.
        why: rule that requires the approval.

    Returns:
        Metadata with the link to approve and apply the plan.
    """
    hold_plan(store, plan, why)
    config = {"table": store.name, "hash": plan.hash, "approved_by": ""}
    context.log.info(
        f"{store.name}: {waiting_text(plan)}: launch the job {warehouse_names.definition(APPLY_PLAN)} with {config}, "
        f"or run `dredge apply {plan.hash} --approved-by NAME`"
    )
    context.instance.add_run_tags(context.run_id, {names.TAG_WAITS: plan.hash})
    return waiting_metadata(Launchpad(context.run, warehouse_names), store.name, plan.hash, why)


def approval_link(launchpad: Launchpad, table: str, plan_hash: str) -> str:
    """Return the link to the launchpad of the job `apply_plan`, with a plan's table and hash filled in."""
    return launchpad.link(APPLY_PLAN, {"table": table, "hash": plan_hash, "approved_by": ""})


def waiting_metadata(launchpad: Launchpad, table: str, plan_hash: str, why: str) -> dict[str, dg.MetadataValue]:
    """Return metadata with the link to approve a plan, and the rule `why` that requires approval."""
    link = approval_link(launchpad, table, plan_hash)
    return {
        "waits for approval": dg.MetadataValue.md(f"plan `{plan_hash}`: [approve and apply it]({link})"),
        "why": dg.MetadataValue.text(why),
    }
