"""Expiry of tags: those whose time is over, and automatic ones beyond their number, go as `delete_tag` lets them go."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan, Report
from lsm_core.maintenance.actions import NOW, BuiltInAction


class ExpireTags(BuiltInAction):
    """The action "expire_tags". The command line reaches it through `dredge tag expire`, too."""

    name = "expire_tags"
    help = "Expire tags: those kept long enough, and automatic ones beyond tag.num-retained-max."
    arguments = (
        Argument("older_than_ms", ArgumentKind.AGE, 'Also all older than an age such as "30 d".', "--older-than"),
        NOW,
    )
    items = ("actions.delete_tag.tag_deletion.DropTagItem", "trash.DeleteItem")
    planned_by = "actions.expire_tags.tag_expiry.plan_tag_expiry"
    applied_by = "actions.delete_tag.tag_deletion.apply_tag_deletion"
    fits_by = "actions.delete_tag.tag_deletion.tag_deletion_fits"
    report = "actions.delete_tag.tag_deletion.TagDeletionReport"
    traced_by = "actions.delete_tag.tag_deletion.trace_of_record"

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """What is freed, and when."""
        from lsm_core.maintenance.deletions import when_freed

        return when_freed(plan) if plan.items else []

    def dry_run(self, plan: MaintenancePlan) -> Report:
        """What applying ``plan`` would report."""
        from lsm_core.maintenance.actions.delete_tag.tag_deletion import foresee_tag_deletion

        return foresee_tag_deletion(plan)


ACTION = ExpireTags()
