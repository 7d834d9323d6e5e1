"""Purge: a table's rows and its whole history are deleted; its schema stays.

The files wait in the trash for an undo.
"""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan
from lsm_core.maintenance.actions import NOW, BuiltInAction


class Purge(BuiltInAction):
    """Action "purge"."""

    name = "purge"
    verb = "purge"
    help = (
        "Empty a table AND drop its history: all rows, snapshots and changelogs are deleted, the schema stays. "
        "Name the table twice."
    )
    commits = True
    arguments = (
        Argument("confirm", ArgumentKind.TEXT, "The table's name once more: database.table.", required=True),
        NOW,
    )
    items = ("actions.purge.purging.PurgeItem",)
    planned_by = "actions.purge.purging.plan_purge"
    applied_by = "actions.purge.purging.apply_purge"
    fits_by = "actions.purge.purging.purge_fits"
    report = "actions.purge.purging.PurgeReport"

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """Return a line on how long it can be undone."""
        if not plan.items:
            return []
        if plan.options.get("dredge.delete-mode") == "direct":
            return ["the files are deleted at once (dredge.delete-mode=direct): this cannot be undone"]
        return ["the files wait in the trash for their grace: until then `dredge restore` brings the snapshots back"]


ACTION = Purge()
