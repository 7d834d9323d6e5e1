"""Commit of an older snapshot's content as a new snapshot: no later snapshot is lost."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan
from lsm_core.maintenance.actions import NOW, PARTITIONS, BuiltInAction


class RollbackAsLatest(BuiltInAction):
    """Action "rollback_as_latest"."""

    name = "rollback_as_latest"
    verb = "rollback-as-latest"
    help = (
        "Commit the content of an older snapshot or tag as the newest snapshot, of all partitions or of some; "
        "the snapshots between stay."
    )
    commits = True
    arguments = (
        Argument("snapshot_id", ArgumentKind.NUMBER, "This snapshot (or a tag of it).", "--snapshot"),
        Argument("tag", ArgumentKind.TEXT, "The snapshot of this tag, also one that has expired."),
        PARTITIONS,
        NOW,
    )
    items = ("actions.rollback_as_latest.as_latest.AsLatestItem",)
    planned_by = "actions.rollback_as_latest.as_latest.plan_rollback_as_latest"
    applied_by = "actions.rollback_as_latest.as_latest.apply_rollback_as_latest"
    fits_by = "actions.rollback_as_latest.as_latest.rollback_as_latest_fits"
    report = "actions.rollback_as_latest.as_latest.RollbackAsLatestReport"

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """Return a line on the new content of the table."""
        if not plan.items:
            return []
        return [
            (
                f"a new snapshot will have the content of snapshot {plan.arguments['to_snapshot']}; "
                "files that come back are copied"
            )
        ]


ACTION = RollbackAsLatest()
