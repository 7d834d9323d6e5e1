"""What can be done to a table: a folder an action, which holds its arguments, plan items, plan(), apply() and report.

A folder's ``ACTION`` imports the working modules when they are needed only, so that listing actions and flags costs nothing.
A new action is a new folder and its name in `lsm_core.maintenance.action.BUILT_IN`.
"""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lsm_core.maintenance.action import (
    Action,
    Applied,
    Argument,
    ArgumentKind,
    MaintenancePlan,
    Outcome,
    PlanItem,
    Report,
    Runner,
)

if TYPE_CHECKING:
    from lsm_core.metadata.store import TableStore

# Arguments that several actions take.
PARTITIONS: Final = Argument(
    "partitions",
    ArgumentKind.PARTITIONS,
    'Only this partition; may be repeated. Empty value: null; K="": the empty text; in quotes a value may hold anything, such as ",K=".',
    "--partition",
)
WHERE: Final = Argument(
    "where",
    ArgumentKind.TEXT,
    "Only partitions for which this is true, in place of --partition: \"dt >= '2024-01-01' AND h IN (1, 2)\".",
)
NOW: Final = Argument("now_ms", ArgumentKind.TIME, "The plan's time (epoch ms); default: the table's clock.")


class BuiltInAction(Action):
    """An action that names its parts as "module.name" within `lsm_core.maintenance`.

    ``items``: the types of its plans' items; ``planned_by`` and ``applied_by``: what :meth:`plan` and :meth:`apply` call;
    ``fits_by``: what :meth:`fits` calls, "" where only applying tells; ``report``: the type of its report. ``traced_by``: what :meth:`trace` calls, "" where an application leaves nothing else behind. Where it ``runs_tasks`` ``applied_by`` takes a runner too.
    """

    items: ClassVar[tuple[str, ...]]
    planned_by: ClassVar[str]
    applied_by: ClassVar[str]
    fits_by: ClassVar[str] = ""
    report: ClassVar[str]
    traced_by: ClassVar[str] = ""

    def item_types(self) -> tuple[type[PlanItem], ...]:
        """See ``items``."""
        return tuple(_part(name) for name in self.items)

    def plan(self, store: TableStore, **arguments: Any) -> MaintenancePlan:
        """See ``planned_by``."""
        plan: MaintenancePlan = _part(self.planned_by)(store, **arguments)
        return plan

    def apply(self, store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> Outcome:
        """See ``applied_by``."""
        outcome: Outcome = _part(self.applied_by)(store, plan, *((runner,) if self.runs_tasks else ()))
        return outcome

    def fits(self, store: TableStore, plan: MaintenancePlan) -> bool:
        """See ``fits_by``."""
        return bool(_part(self.fits_by)(store, plan)) if self.fits_by else True

    def trace(self, store: TableStore, plan: MaintenancePlan) -> Applied | None:
        """See ``traced_by``."""
        found: Applied | None = _part(self.traced_by)(store, plan) if self.traced_by else None
        return found

    def unchanged(self, plan: MaintenancePlan) -> Report:
        """A ``report`` with what the plan tells for its fields: nothing was done."""
        told = {
            "plan_hash": plan.hash,
            "base_snapshot": plan.base_snapshot,
            "snapshot_id": None,
            "declined": plan.declined,
        }
        if "trash_id" in plan.arguments:
            told["trash_id"] = str(plan.arguments["trash_id"])
        kind = _part(self.report)
        report: Report = kind(**{one.name: told[one.name] for one in fields(kind) if one.name in told})
        return report


def _part(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(f"lsm_core.maintenance.{module}"), attribute)
