"""Compaction: merge files of the buckets that need it, or sort the files of append tables; verified, in one COMPACT commit."""

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


class Compact(Action):
    """The action "compact"."""

    name = "compact"
    verb = "compact"
    help = "Compact what needs it (or, with --full, everything), or sort all files so that filters skip most of them (--order-by)."
    commits = True
    arguments = (
        Argument("full", ArgumentKind.FLAG, "Everything to the last level."),
        Argument(
            "partitions",
            ArgumentKind.PARTITIONS,
            "Only this partition; may be repeated. Empty value: null.",
            "--partition",
        ),
        Argument("buckets", ArgumentKind.NUMBERS, "Only this bucket; may be repeated.", "--bucket"),
        Argument("order_by", ArgumentKind.COLUMNS, "Sort append tables without buckets by these columns: a,b"),
        Argument("strategy", ArgumentKind.TEXT, 'With --order-by: "order" (the default), "zorder" or "hilbert".'),
        Argument("now_ms", ArgumentKind.TIME, "The plan's time (epoch ms); default: the table's clock."),
    )

    def item_types(self) -> tuple[type[PlanItem], ...]:
        """One item a bucket."""
        from lsm_core.maintenance.actions.compact.compaction import CompactItem

        return (CompactItem,)

    def plan(self, store: TableStore, **arguments: Any) -> MaintenancePlan:
        """See `plan_compaction`."""
        from lsm_core.maintenance.actions.compact.planning import plan_compaction

        return plan_compaction(store, **arguments)

    def apply(self, store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> Outcome:
        """See `apply_compaction`."""
        from lsm_core.maintenance.actions.compact.execution import apply_compaction

        return apply_compaction(store, plan, runner)

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """How the result will be verified, where there is one."""
        setting = plan.options.get("dredge.verification", "full")
        return [f"verification before publishing: {setting}"] if plan.items else []

    def unchanged(self, plan: MaintenancePlan) -> Report:
        """A CompactionReport that says that nothing was done."""
        from lsm_core.maintenance.actions.compact.compaction import CompactionReport

        return CompactionReport(None, plan.base_snapshot, plan.hash, declined=plan.declined)


ACTION = Compact()
