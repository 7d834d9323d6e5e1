"""Restoring expired snapshots from the trash, while their files are still there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsm_core.maintenance.action import (
    Action,
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


class Restore(Action):
    """The action "restore"."""

    name = "restore"
    verb = "restore"
    help = "Put expired snapshots back, while their files are still there."
    arguments = (
        Argument("trash_id", ArgumentKind.TEXT, "A deletion record, as `dredge trash` lists them.", required=True),
    )

    def item_types(self) -> tuple[type[PlanItem], ...]:
        """The deletion record."""
        from lsm_core.maintenance.actions.restore.restoring import RestoreItem

        return (RestoreItem,)

    def plan(self, store: TableStore, **arguments: Any) -> MaintenancePlan:
        """See `plan_restore`."""
        from lsm_core.maintenance.actions.restore.restoring import plan_restore

        return plan_restore(store, **arguments)

    def apply(self, store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> Outcome:
        """See `apply_restore`."""
        from lsm_core.maintenance.actions.restore.restoring import apply_restore

        return apply_restore(store, plan)

    def unchanged(self, plan: MaintenancePlan) -> Report:
        """A RestoreReport that says that nothing was done."""
        from lsm_core.maintenance.actions.restore.restoring import RestoreReport

        return RestoreReport(str(plan.arguments["trash_id"]))


ACTION = Restore()
