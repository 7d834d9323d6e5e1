"""Undo of a compaction: the replaced files return in a new COMPACT snapshot, and no later commit is lost."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind
from lsm_core.maintenance.actions import BuiltInAction


class Undo(BuiltInAction):
    """Action "undo"."""

    name = "undo"
    verb = "undo"
    help = "Undo a compaction: put the files that it replaced back, in a new snapshot."
    commits = True
    arguments = (
        Argument("run_id", ArgumentKind.TEXT, "The compaction's run, as `dredge ledger` lists them.", required=True),
        Argument("partial", ArgumentKind.FLAG, "Undo the buckets that can be undone and leave the others."),
        Argument(
            "allow_changes",
            ArgumentKind.FLAG,
            "Also where reads would return other rows than now (after a compaction that changed rows), "
            "or an open writer could interfere.",
        ),
    )
    items = ("actions.undo.undoing.UndoItem",)
    planned_by = "actions.undo.undoing.plan_undo"
    applied_by = "actions.undo.undoing.apply_undo"
    fits_by = "actions.undo.undoing.undo_fits"
    report = "actions.undo.undoing.UndoReport"


ACTION = Undo()
