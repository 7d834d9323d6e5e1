"""Missing manifests that the newest snapshot references: a commit continues the table without them."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan
from lsm_core.maintenance.actions import NOW, BuiltInAction


class RemoveUnexistingManifests(BuiltInAction):
    """Action "remove_unexisting_manifests"."""

    name = "remove_unexisting_manifests"
    verb = "remove-unexisting-manifests"
    help = "List the manifests that the table references and that are missing (--dry-run), or drop them by a commit."
    commits = True
    arguments = (
        Argument(
            "max_share", ArgumentKind.NUMBER, "Percent of the table's manifests that may be taken out (default: 20)."
        ),
        NOW,
    )
    items = ("actions.remove_unexisting_manifests.missing_manifests.MissingManifestItem",)
    planned_by = "actions.remove_unexisting_manifests.missing_manifests.plan_missing_manifests"
    applied_by = "actions.remove_unexisting_manifests.missing_manifests.apply_missing_manifests"
    fits_by = "actions.remove_unexisting_manifests.missing_manifests.missing_manifests_fit"
    report = "actions.remove_unexisting_manifests.missing_manifests.MissingManifestsReport"

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """Return lines on the consequences."""
        if not plan.items:
            return []
        return [
            (
                "files that they alone add are lost to the table (they stay on disk); "
                "files that they alone delete come back"
            ),
            (
                "a tag or snapshot from before they were written has all its rows: "
                "a rollback loses less where few commits came since"
            ),
        ]


ACTION = RemoveUnexistingManifests()
