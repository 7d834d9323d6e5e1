"""The trash: files that expiries set aside are deleted for good once their grace is over."""

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


class SweepTrash(Action):
    """The action "trash". The command line reaches it through its verb `trash`, which also lists."""

    name = "trash"
    help = "Delete the files in the trash whose grace is over and that nothing needs."
    arguments = (Argument("now_ms", ArgumentKind.TIME, "The plan's time (epoch ms); default: the table's clock."),)

    def item_types(self) -> tuple[type[PlanItem], ...]:
        """The files that go."""
        from lsm_core.maintenance.trash import DeleteItem

        return (DeleteItem,)

    def plan(self, store: TableStore, **arguments: Any) -> MaintenancePlan:
        """See `plan_sweep`."""
        from lsm_core.maintenance.actions.trash.sweeping import plan_sweep

        return plan_sweep(store, **arguments)

    def apply(self, store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> Outcome:
        """See `apply_sweep`."""
        from lsm_core.maintenance.actions.trash.sweeping import apply_sweep

        return apply_sweep(store, plan)

    def unchanged(self, plan: MaintenancePlan) -> Report:
        """A SweepReport that says that nothing was done."""
        from lsm_core.maintenance.actions.trash.sweeping import SweepReport

        return SweepReport(plan.hash, declined=plan.declined)

    def dry_run(self, plan: MaintenancePlan) -> Report:
        """What applying ``plan`` would report."""
        from lsm_core.maintenance.actions.trash.sweeping import foresee_sweep

        return foresee_sweep(plan)


ACTION = SweepTrash()
