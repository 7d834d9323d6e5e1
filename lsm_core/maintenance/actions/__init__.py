"""Built-in actions: one folder per action with its arguments, plan items, plan(), apply() and report.

A folder's ``ACTION`` imports the working modules only when they are needed, so that listing actions and flags is cheap.
A new action is a new folder and its name in `lsm_core.maintenance.action.BUILT_IN`.
"""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lsm_core.maintenance.action import (
    Action,
    Applied,
    ApplyOutcome,
    Argument,
    ArgumentKind,
    MaintenancePlan,
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
    'Only this partition; may be repeated. Empty value: null; K="": the empty text; '
    'a quoted value may hold any text, for example ",K=".',
    "--partition",
)
WHERE: Final = Argument(
    "where",
    ArgumentKind.TEXT,
    "Only partitions for which this is true, in place of --partition: \"dt >= '2024-01-01' AND h IN (1, 2)\".",
)
NOW: Final = Argument("now_ms", ArgumentKind.TIME, "The plan's time (epoch ms); default: the table's clock.")


class BuiltInAction(Action):
    """Action that names its functions as "module.name" within `lsm_core.maintenance`.

    Attributes:
        items: types of its plans' items.
        planned_by: function of :meth:`plan`.
        applied_by: function of :meth:`apply`; it takes a runner too if the action ``runs_tasks``.
        fits_by: function of :meth:`fits`, "" if only applying can show it.
        report: type of its report.
        traced_by: function of :meth:`trace`, "" if an application leaves no other trace.
    """

    items: ClassVar[tuple[str, ...]]
    planned_by: ClassVar[str]
    applied_by: ClassVar[str]
    fits_by: ClassVar[str] = ""
    report: ClassVar[str]
    traced_by: ClassVar[str] = ""

    def item_types(self) -> tuple[type[PlanItem], ...]:
        """Return the types in ``items``."""
        return tuple(_import_name(name) for name in self.items)

    def plan(self, store: TableStore, **arguments: Any) -> MaintenancePlan:
        """Plan by ``planned_by``."""
        plan: MaintenancePlan = _import_name(self.planned_by)(store, **arguments)
        return plan

    def apply(self, store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> ApplyOutcome:
        """Apply by ``applied_by``."""
        outcome: ApplyOutcome = _import_name(self.applied_by)(store, plan, *((runner,) if self.runs_tasks else ()))
        return outcome

    def fits(self, store: TableStore, plan: MaintenancePlan) -> bool:
        """Decide by ``fits_by``."""
        return bool(_import_name(self.fits_by)(store, plan)) if self.fits_by else True

    def trace(self, store: TableStore, plan: MaintenancePlan) -> Applied | None:
        """See ``traced_by``."""
        applied: Applied | None = _import_name(self.traced_by)(store, plan) if self.traced_by else None
        return applied

    def unchanged(self, plan: MaintenancePlan) -> Report:
        """Return a ``report`` of no work, with the fields that the plan defines.

        Args:
            plan: the plan.
        """
        values = {
            "plan_hash": plan.hash,
            "base_snapshot": plan.base_snapshot,
            "snapshot_id": None,
            "declined": plan.declined,
        }
        if "trash_id" in plan.arguments:
            values["trash_id"] = str(plan.arguments["trash_id"])
        kind = _import_name(self.report)
        report: Report = kind(**{field.name: values[field.name] for field in fields(kind) if field.name in values})
        return report


def _import_name(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(f"lsm_core.maintenance.{module}"), attribute)
