"""Repair of a table's history: wrong or missing hints, damaged snapshots, and gaps in the ids of snapshots."""

from __future__ import annotations

from lsm_core.maintenance.actions import NOW, BuiltInAction


class Repair(BuiltInAction):
    """Action "repair"."""

    name = "repair"
    verb = "repair"
    help = (
        "Correct the hints LATEST and EARLIEST, set damaged snapshots aside, and bridge gaps in the ids of snapshots, "
        "which stop expiry elsewhere."
    )
    arguments = (NOW,)
    items = (
        "actions.repair.history_repair.SetAsideItem",
        "actions.repair.history_repair.BridgeItem",
        "actions.repair.history_repair.HintItem",
    )
    planned_by = "actions.repair.history_repair.plan_repair"
    applied_by = "actions.repair.history_repair.apply_repair"
    fits_by = "actions.repair.history_repair.repair_fits"
    report = "actions.repair.history_repair.RepairReport"


ACTION = Repair()
