"""Sweep of the trash: files that expiries set aside are deleted once their grace is over."""

from __future__ import annotations

from lsm_core.maintenance.action import MaintenancePlan, Report
from lsm_core.maintenance.actions import NOW, BuiltInAction


class SweepTrash(BuiltInAction):
    """Action "trash". The command line has it as verb `trash`, which also lists."""

    name = "trash"
    help = "Delete the files in the trash whose grace is over and that nothing needs."
    arguments = (NOW,)
    items = ("trash.DeleteItem",)
    planned_by = "actions.trash.sweeping.plan_sweep"
    runs_tasks = True
    plans_with_tasks = True
    applied_by = "actions.trash.sweeping.apply_sweep"
    fits_by = "actions.trash.sweeping.sweep_fits"
    report = "actions.trash.sweeping.SweepReport"

    def dry_run(self, plan: MaintenancePlan) -> Report:
        """Return the report that applying the plan would give."""
        from lsm_core.maintenance.actions.trash.sweeping import foresee_sweep

        return foresee_sweep(plan)


ACTION = SweepTrash()
