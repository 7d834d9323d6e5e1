"""Expiry of changelogs that outlive their snapshots, by their own retention, never while a consumer needs them."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan, Report
from lsm_core.maintenance.actions import NOW, BuiltInAction


class ExpireChangelogs(BuiltInAction):
    """Action "expire_changelogs"."""

    name = "expire_changelogs"
    verb = "expire-changelogs"
    help = "Expire changelogs that outlived their snapshots; their files wait in the trash as those of snapshots do."
    arguments = (
        Argument(
            "retain_max", ArgumentKind.NUMBER, "Keep those of at most so many snapshots, counted from the newest."
        ),
        Argument("retain_min", ArgumentKind.NUMBER, "Keep those of at least so many snapshots, counted alike."),
        Argument(
            "older_than_ms", ArgumentKind.AGE, 'Between the two, those older than an age such as "1 h".', "--older-than"
        ),
        Argument("max_deletes", ArgumentKind.NUMBER, "Expire at most so many."),
        Argument(
            "delete_all", ArgumentKind.FLAG, "Every changelog that outlived its snapshot and that no consumer needs."
        ),
        NOW,
    )
    items = ("actions.expire_changelogs.changelog_expiry.ExpireChangelogItem", "trash.DeleteItem")
    planned_by = "actions.expire_changelogs.changelog_expiry.plan_changelog_expiry"
    applied_by = "actions.expire_changelogs.changelog_expiry.apply_changelog_expiry"
    fits_by = "actions.expire_changelogs.changelog_expiry.changelog_expiry_fits"
    report = "actions.expire_changelogs.changelog_expiry.ChangelogExpiryReport"
    traced_by = "actions.expire_snapshots.expiry.trace_of_expiry"

    def dry_run(self, plan: MaintenancePlan) -> Report:
        """Return the report that applying the plan would give."""
        from lsm_core.maintenance.actions.expire_changelogs.changelog_expiry import foresee_changelog_expiry

        return foresee_changelog_expiry(plan)


ACTION = ExpireChangelogs()
