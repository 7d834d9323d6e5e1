"""Deletion of a tag: files that it alone kept wait in the trash until a sweep after the grace."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan, Report
from lsm_core.maintenance.actions import NOW, BuiltInAction


class DeleteTag(BuiltInAction):
    """Action "delete_tag". The command line has it as `dredge tag delete` too."""

    name = "delete_tag"
    help = "Delete a tag; the files that it alone kept wait in the trash until `dredge trash --sweep` after the grace."
    arguments = (Argument("tag", ArgumentKind.TEXT, "Name of the tag.", required=True), NOW)
    items = ("actions.delete_tag.tag_deletion.DropTagItem", "trash.DeleteItem")
    planned_by = "actions.delete_tag.tag_deletion.plan_tag_deletion"
    applied_by = "actions.delete_tag.tag_deletion.apply_tag_deletion"
    fits_by = "actions.delete_tag.tag_deletion.tag_deletion_fits"
    report = "actions.delete_tag.tag_deletion.TagDeletionReport"
    traced_by = "actions.delete_tag.tag_deletion.trace_of_record"

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """Return lines on the freed space."""
        from lsm_core.maintenance.deletions import when_freed

        return when_freed(plan) if plan.items else []

    def dry_run(self, plan: MaintenancePlan) -> Report:
        """Return the report that applying the plan would give."""
        from lsm_core.maintenance.actions.delete_tag.tag_deletion import foresee_tag_deletion

        return foresee_tag_deletion(plan)


ACTION = DeleteTag()
