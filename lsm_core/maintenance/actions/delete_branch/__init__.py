"""Deletion of a branch: its metadata is deleted, and its own files wait in the trash, from where it can be restored."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind
from lsm_core.maintenance.actions import BuiltInAction


class DeleteBranch(BuiltInAction):
    """Action "delete_branch". The command line has it as verb `branch` too."""

    name = "delete_branch"
    help = (
        "Delete a branch; the files that only it needs wait in the trash until `dredge trash --sweep` after the grace."
    )
    arguments = (Argument("branch", ArgumentKind.TEXT, "The branch.", required=True),)
    items = ("actions.delete_branch.deleting.BranchItem", "trash.DeleteItem")
    planned_by = "actions.delete_branch.deleting.plan_branch_deletion"
    applied_by = "actions.delete_branch.deleting.apply_branch_deletion"
    fits_by = "actions.delete_branch.deleting.branch_deletion_fits"
    report = "actions.delete_branch.deleting.BranchDeletionReport"


ACTION = DeleteBranch()
