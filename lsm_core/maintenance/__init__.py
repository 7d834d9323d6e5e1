"""Looking after tables: observe -> score -> plan -> apply -> verify -> record, from metadata, explained, and undoable."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from lsm_core.errors import InvalidOption
from lsm_core.maintenance.actions.compact import Runner, plan_compaction
from lsm_core.maintenance.actions.rescale import plan_rescale
from lsm_core.maintenance.actions.snapshots import plan_expiry
from lsm_core.maintenance.actions.sweep import plan_sweep
from lsm_core.maintenance.apply import apply_plan, dry_run, restore
from lsm_core.maintenance.explain_row import ColumnStory, RowStory, RowVersion, explain_row
from lsm_core.maintenance.observe import BucketHealth, health
from lsm_core.maintenance.plan import (
    CompactItem,
    Declined,
    DeleteItem,
    ExpireItem,
    MaintenancePlan,
    PlanEstimate,
    PlannedFile,
    RescaleItem,
    load_plan,
    save_plan,
)
from lsm_core.maintenance.record import Applied, LedgerEntry, applied_before, read_ledger
from lsm_core.maintenance.reports import (
    BucketDifference,
    CompactionReport,
    ExpiryReport,
    RescaleReport,
    RestoreReport,
    SweepReport,
    Verification,
    VerifyReport,
)
from lsm_core.maintenance.trash import Trash, TrashRecord, read_trash
from lsm_core.maintenance.verify import ReferenceJudge, verify_snapshots
from lsm_core.metadata.store import TableStore

_PLANNERS: dict[str, Callable[..., MaintenancePlan]] = {
    "compact": plan_compaction,
    "expire_snapshots": plan_expiry,
    "trash": plan_sweep,
    "rescale": plan_rescale,
}


def plan_maintenance(store: TableStore, action: str, **args: Any) -> MaintenancePlan:
    """Plan "compact", "expire_snapshots", "rescale" or "trash"; ``args`` as the planners take them.

    Raises InvalidOption naming an action or an argument that does not exist, and what the planner raises.
    """
    planner = _PLANNERS.get(action)
    if planner is None:
        raise InvalidOption("action", action, ", ".join(_PLANNERS), store.name)
    known = list(signature(planner).parameters)[1:]
    for name in args:
        if name not in known:
            raise InvalidOption(f"{action} argument", name, ", ".join(known), store.name)
    return planner(store, **args)


__all__ = [
    "Applied",
    "BucketDifference",
    "BucketHealth",
    "ColumnStory",
    "CompactItem",
    "CompactionReport",
    "Declined",
    "DeleteItem",
    "ExpireItem",
    "ExpiryReport",
    "LedgerEntry",
    "MaintenancePlan",
    "PlanEstimate",
    "PlannedFile",
    "ReferenceJudge",
    "RescaleItem",
    "RescaleReport",
    "RestoreReport",
    "RowStory",
    "RowVersion",
    "Runner",
    "SweepReport",
    "Trash",
    "TrashRecord",
    "Verification",
    "VerifyReport",
    "applied_before",
    "apply_plan",
    "dry_run",
    "explain_row",
    "health",
    "load_plan",
    "plan_compaction",
    "plan_expiry",
    "plan_maintenance",
    "plan_rescale",
    "plan_sweep",
    "read_ledger",
    "read_trash",
    "restore",
    "save_plan",
    "verify_snapshots",
]
