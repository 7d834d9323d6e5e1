"""Missing data files that the table references: listed by the plan, removed from the table by a commit."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan
from lsm_core.maintenance.actions import NOW, PARTITIONS, BuiltInAction


class RemoveUnexistingFiles(BuiltInAction):
    """Action "remove_unexisting_files"."""

    name = "remove_unexisting_files"
    verb = "remove-unexisting-files"
    help = (
        "List the data files that the table references and that are missing (--dry-run), "
        "or remove them from the table by a commit."
    )
    commits = True
    arguments = (
        PARTITIONS,
        Argument("max_share", ArgumentKind.NUMBER, "Percent of the table's files that may be taken out (default: 20)."),
        NOW,
    )
    items = ("actions.remove_unexisting_files.missing_files.MissingFileItem",)
    planned_by = "actions.remove_unexisting_files.missing_files.plan_missing_files"
    applied_by = "actions.remove_unexisting_files.missing_files.apply_missing_files"
    fits_by = "actions.remove_unexisting_files.missing_files.missing_files_fit"
    report = "actions.remove_unexisting_files.missing_files.MissingFilesReport"

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """Return a line on the consequences."""
        if not plan.items:
            return []
        return [
            (
                "their rows are lost; an older version of a key in them may become visible "
                "(without this the table cannot be read)"
            )
        ]


ACTION = RemoveUnexistingFiles()
