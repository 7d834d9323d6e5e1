"""Snapshot expiry: old snapshots are removed by the table's retention; their files wait in the trash until a sweep."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan, Report
from lsm_core.maintenance.actions import NOW, BuiltInAction


class ExpireSnapshots(BuiltInAction):
    """Action "expire_snapshots"."""

    name = "expire_snapshots"
    verb = "expire"
    help = "Expire old snapshots; their files wait in the trash until `dredge trash --sweep` after the grace."
    arguments = (
        Argument("retain_max", ArgumentKind.NUMBER, "Keep at most so many snapshots."),
        Argument("retain_min", ArgumentKind.NUMBER, "Keep at least so many snapshots."),
        Argument(
            "older_than_ms", ArgumentKind.AGE, 'Between the two, those older than an age such as "1 h".', "--older-than"
        ),
        Argument("max_deletes", ArgumentKind.NUMBER, "Expire at most so many."),
        NOW,
    )
    items = (
        "actions.expire_snapshots.expiry.ExpireConsumerItem",
        "actions.expire_snapshots.expiry.ExpireItem",
        "trash.DeleteItem",
    )
    planned_by = "actions.expire_snapshots.expiry.plan_expiry"
    applied_by = "actions.expire_snapshots.expiry.apply_expiry"
    fits_by = "actions.expire_snapshots.expiry.expiry_fits"
    report = "actions.expire_snapshots.expiry.ExpiryReport"
    runs_tasks = True
    plans_with_tasks = True
    traced_by = "actions.expire_snapshots.expiry.trace_of_expiry"

    def dry_run(self, plan: MaintenancePlan) -> Report:
        """Return the report that applying the plan would give."""
        from lsm_core.maintenance.actions.expire_snapshots.expiry import foresee_expiry

        return foresee_expiry(plan)


ACTION = ExpireSnapshots()
