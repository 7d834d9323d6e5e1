"""Removal of orphan files: unreferenced files of crashes and other engines, found by listing, deleted in two phases."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan, Report
from lsm_core.maintenance.actions import NOW, BuiltInAction


class RemoveOrphanFiles(BuiltInAction):
    """Action "orphans"."""

    name = "orphans"
    verb = "orphans"
    help = "Remove unreferenced files; they wait in the trash until `dredge trash --sweep` after the grace."
    arguments = (
        Argument(
            "older_than_ms",
            ArgumentKind.AGE,
            'Files that were last changed longer ago than an age such as "3 d" (default: 24 h).',
            "--older-than",
        ),
        Argument(
            "max_share",
            ArgumentKind.NUMBER,
            "Percent of the table's files, or of its bytes, that may go (default: 20).",
        ),
        NOW,
    )
    items = ("trash.DeleteItem",)
    planned_by = "actions.orphans.orphan_removal.plan_orphans"
    applied_by = "actions.orphans.orphan_removal.apply_orphans"
    fits_by = "actions.orphans.orphan_removal.orphans_fit"
    report = "actions.orphans.orphan_removal.OrphanReport"
    runs_tasks = True
    plans_with_tasks = True
    traced_by = "actions.expire_snapshots.expiry.trace_of_expiry"

    def dry_run(self, plan: MaintenancePlan) -> Report:
        """Return the report that applying the plan would give."""
        from lsm_core.maintenance.actions.orphans.orphan_removal import foresee_orphans

        return foresee_orphans(plan)


ACTION = RemoveOrphanFiles()
