"""Rollback to an older version: newer snapshots go to the trash; `restore` brings them back until the next commit."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan
from lsm_core.maintenance.actions import NOW, BuiltInAction


class Rollback(BuiltInAction):
    """Action "rollback"."""

    name = "rollback"
    verb = "rollback"
    help = (
        "Go back to a snapshot, a tag, a time or a watermark; "
        "newer snapshots wait in the trash until `dredge trash --sweep` after the grace."
    )
    arguments = (
        Argument("snapshot_id", ArgumentKind.NUMBER, "This snapshot (or a tag of it).", "--snapshot"),
        Argument("tag", ArgumentKind.TEXT, "The snapshot of this tag, also one that has expired."),
        Argument(
            "timestamp_ms", ArgumentKind.NUMBER, "The newest snapshot not younger than this (epoch ms).", "--timestamp"
        ),
        Argument("watermark", ArgumentKind.NUMBER, "The newest snapshot with a watermark (epoch ms) of this or less."),
        NOW,
    )
    one_of = ("snapshot_id", "tag", "timestamp_ms", "watermark")
    items = ("actions.rollback.rolling_back.TakeBackItem", "trash.DeleteItem")
    planned_by = "actions.rollback.rolling_back.plan_rollback"
    applied_by = "actions.rollback.rolling_back.apply_rollback"
    fits_by = "actions.rollback.rolling_back.rollback_fits"
    report = "actions.rollback.rolling_back.RollbackReport"
    traced_by = "actions.delete_tag.tag_deletion.trace_of_record"

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """Return lines on the new newest snapshot and the freed space."""
        from lsm_core.maintenance.deletions import when_freed

        if not plan.items:
            return []
        return [f"the newest snapshot will be {plan.arguments['to_snapshot']}", *when_freed(plan)]


ACTION = Rollback()
