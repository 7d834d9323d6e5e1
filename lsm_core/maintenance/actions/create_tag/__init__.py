"""Creation of a tag of a snapshot, or move of a tag to another snapshot."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan
from lsm_core.maintenance.actions import NOW, BuiltInAction


class CreateTag(BuiltInAction):
    """Action "create_tag". The command line has it as `dredge tag create` too."""

    name = "create_tag"
    help = "Tag a snapshot, so that it outlives expiry."
    arguments = (
        Argument("tag", ArgumentKind.TEXT, "Name of the tag.", required=True),
        Argument("snapshot_id", ArgumentKind.NUMBER, "This snapshot (default: the newest).", "--snapshot"),
        Argument("time_retained", ArgumentKind.TEXT, 'Expire it after a time such as "7 d" (expire_tags).'),
        Argument("replace", ArgumentKind.FLAG, "Move a tag of that name, if there is one."),
        NOW,
    )
    items = ("actions.create_tag.tag_creation.TagItem", "trash.DeleteItem")
    planned_by = "actions.create_tag.tag_creation.plan_tag_creation"
    applied_by = "actions.create_tag.tag_creation.apply_tag_creation"
    fits_by = "actions.create_tag.tag_creation.tag_creation_fits"
    report = "actions.create_tag.tag_creation.TagCreationReport"
    traced_by = "actions.create_tag.tag_creation.trace_of_creation"

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """Return lines on the space that a replacement frees."""
        from lsm_core.maintenance.deletions import when_freed
        from lsm_core.maintenance.trash import DeleteItem

        return when_freed(plan) if plan.items_of(DeleteItem) else []


ACTION = CreateTag()
