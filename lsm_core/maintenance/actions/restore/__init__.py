"""Restore of expired snapshots and changelogs from the trash, while their files still exist."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind
from lsm_core.maintenance.actions import BuiltInAction


class Restore(BuiltInAction):
    """Action "restore"."""

    name = "restore"
    verb = "restore"
    help = "Put expired snapshots or changelogs back, while their files still exist."
    arguments = (
        Argument("trash_id", ArgumentKind.TEXT, "A deletion record, as `dredge trash` lists them.", required=True),
    )
    items = ("actions.restore.restoring.RestoreItem",)
    planned_by = "actions.restore.restoring.plan_restore"
    applied_by = "actions.restore.restoring.apply_restore"
    fits_by = "actions.restore.restoring.restore_fits"
    report = "actions.restore.restoring.RestoreReport"
    traced_by = "actions.restore.restoring.trace_of_restore"


ACTION = Restore()
