"""Rescale: whole partitions rewritten with another number of buckets, in one OVERWRITE commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsm_core.maintenance.action import (
    Action,
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


class Rescale(Action):
    """The action "rescale"."""

    name = "rescale"
    verb = "rescale"
    help = "Rewrite partitions with another number of buckets (default: the table's option 'bucket', altered before)."
    commits = True
    arguments = (
        Argument("bucket_num", ArgumentKind.NUMBER, "The new number of buckets; default: the table's option 'bucket'."),
        Argument(
            "partitions",
            ArgumentKind.PARTITIONS,
            "Only this partition; may be repeated. Empty value: null.",
            "--partition",
        ),
        Argument("now_ms", ArgumentKind.TIME, "The plan's time (epoch ms); default: the table's clock."),
    )

    def item_types(self) -> tuple[type[PlanItem], ...]:
        """One item a partition."""
        from lsm_core.maintenance.actions.rescale.rescaling import RescaleItem

        return (RescaleItem,)

    def plan(self, store: TableStore, **arguments: Any) -> MaintenancePlan:
        """See `plan_rescale`."""
        from lsm_core.maintenance.actions.rescale.rescaling import plan_rescale

        return plan_rescale(store, **arguments)

    def apply(self, store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> Outcome:
        """See `apply_rescale`."""
        from lsm_core.maintenance.actions.rescale.rescaling import apply_rescale

        return apply_rescale(store, plan)

    def unchanged(self, plan: MaintenancePlan) -> Report:
        """A RescaleReport that says that nothing was done."""
        from lsm_core.maintenance.actions.rescale.rescaling import RescaleReport

        return RescaleReport(None, plan.base_snapshot, plan.hash, declined=plan.declined)


ACTION = Rescale()
