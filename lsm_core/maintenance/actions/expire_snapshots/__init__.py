"""Snapshot expiry: old snapshots go by the table's retention; their files wait in the trash until a sweep after the grace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsm_core.maintenance.action import (
    Action,
    Applied,
    Argument,
    ArgumentKind,
    MaintenancePlan,
    Outcome,
    PlanItem,
    Report,
    Runner,
)

if TYPE_CHECKING:
    from lsm_core.metadata.store import TableStore


class ExpireSnapshots(Action):
    """The action "expire_snapshots"."""

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
        Argument("now_ms", ArgumentKind.TIME, "The plan's time (epoch ms); default: the table's clock."),
    )

    def item_types(self) -> tuple[type[PlanItem], ...]:
        """The snapshots that expire, and the files that nothing needs then."""
        from lsm_core.maintenance.actions.expire_snapshots.expiry import ExpireItem
        from lsm_core.maintenance.trash import DeleteItem

        return (ExpireItem, DeleteItem)

    def plan(self, store: TableStore, **arguments: Any) -> MaintenancePlan:
        """See `plan_expiry`."""
        from lsm_core.maintenance.actions.expire_snapshots.expiry import plan_expiry

        return plan_expiry(store, **arguments)

    def apply(self, store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> Outcome:
        """See `apply_expiry`."""
        from lsm_core.maintenance.actions.expire_snapshots.expiry import apply_expiry

        return apply_expiry(store, plan)

    def unchanged(self, plan: MaintenancePlan) -> Report:
        """A ExpiryReport that says that nothing was done."""
        from lsm_core.maintenance.actions.expire_snapshots.expiry import ExpiryReport

        return ExpiryReport(plan.hash, plan.base_snapshot, declined=plan.declined)

    def dry_run(self, plan: MaintenancePlan) -> Report:
        """What applying ``plan`` would report."""
        from lsm_core.maintenance.actions.expire_snapshots.expiry import foresee_expiry

        return foresee_expiry(plan)

    def trace(self, store: TableStore, plan: MaintenancePlan) -> Applied | None:
        """See `trace_of_expiry`."""
        from lsm_core.maintenance.actions.expire_snapshots.expiry import trace_of_expiry

        return trace_of_expiry(store, plan)


ACTION = ExpireSnapshots()
