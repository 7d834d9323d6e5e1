"""Repair of a table's history: hints that are wrong or missing, damaged snapshots, and gaps in the ids of snapshots, which are bridged."""

from __future__ import annotations

from lsm_core.maintenance.actions import NOW, BuiltInAction


class Repair(BuiltInAction):
    """The action "repair"."""

    name = "repair"
    verb = "repair"
    help = (
        "Set the hints LATEST and EARLIEST right, set damaged snapshots aside, and bridge gaps in the ids of snapshots, "
        "which end expiry elsewhere."
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
