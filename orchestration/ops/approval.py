"""Plans that must be approved: what the policy demands, where such a plan waits, and how a run's page leads on from there."""

from __future__ import annotations

from typing import Final

import dagster as dg

from lsm_core.maintenance import MaintenancePlan, hold_plan
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.metadata import launch_link
from orchestration.policies import policy_source
from orchestration.resources.warehouse import WarehouseResource

APPLY_PLAN: Final = "apply_plan"


def why_approved_first(warehouse: WarehouseResource, table: str, action: str) -> str:
    """Return who demands that a person approves the action's plans before they are applied, "" where nobody does."""
    policy = policy_source(warehouse.policy_file).current().of(table)
    return (
        f"approval of {action} is required ({policy.origin(f'approval.{policy.approved_as(action)}')})"
        if policy.needs_approval(action)
        else ""
    )


def waiting_text(plan: MaintenancePlan) -> str:
    """Return ``waits for approval: plan HASH``, which runs, ticks and pages all say."""
    return f"waits for approval: plan {plan.hash}"


def wait_for_approval(
    context: dg.OpExecutionContext, store: TableStore, plan: MaintenancePlan, why: str
) -> dict[str, dg.MetadataValue]:
    """Keep ``plan`` for somebody to approve, say so in the run's log and tag, and return the way to go on for its page."""
    hold_plan(store, plan, why)
    asked = {"table": store.name, "hash": plan.hash, "approved_by": ""}
    context.log.info(
        f"{store.name}: {waiting_text(plan)}: launch the job {APPLY_PLAN} with {asked}, or `dredge apply {plan.hash} --approved-by NAME`"
    )
    context.instance.add_run_tags(context.run_id, {names.TAG_WAITS: plan.hash})
    return waiting_metadata(context.run, store.name, plan.hash, why)


def waiting_metadata(run: dg.DagsterRun, table: str, plan_hash: str, why: str) -> dict[str, dg.MetadataValue]:
    """Return the link that opens `apply_plan` filled in, and why the plan waits."""
    link = launch_link(run, APPLY_PLAN, {"table": table, "hash": plan_hash, "approved_by": ""})
    return {
        "waits for approval": dg.MetadataValue.md(f"plan `{plan_hash}`: [approve and apply it]({link})"),
        "why": dg.MetadataValue.text(why),
    }


__all__ = ["APPLY_PLAN", "wait_for_approval", "waiting_metadata", "waiting_text", "why_approved_first"]
