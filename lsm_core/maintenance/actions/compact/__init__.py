"""Compaction: merge files of buckets that need it, or sort files of append tables; verified, in one COMPACT commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan, Report
from lsm_core.maintenance.actions import NOW, PARTITIONS, WHERE, BuiltInAction

if TYPE_CHECKING:
    from lsm_core.errors import DredgeError


class Compact(BuiltInAction):
    """Action "compact"."""

    name = "compact"
    verb = "compact"
    help = (
        "Compact what needs it (or, with --full, everything), "
        "or sort all files so that filters skip most of them (--order-by)."
    )
    commits = True
    arguments = (
        Argument("full", ArgumentKind.FLAG, "Everything to the last level."),
        Argument(
            "compact_strategy",
            ArgumentKind.TEXT,
            'Paimon\'s words for the same: "full", or "minor" (what the table\'s rules pick; the default).',
        ),
        PARTITIONS,
        WHERE,
        Argument(
            "partition_idle_time", ArgumentKind.TEXT, "Only partitions without new data for this long, such as 7d."
        ),
        Argument("buckets", ArgumentKind.NUMBERS, "Only this bucket; may be repeated.", "--bucket"),
        Argument(
            "order_by",
            ArgumentKind.COLUMNS,
            "Sort append tables without buckets, or tables of dynamic buckets, by these columns: a,b",
        ),
        Argument(
            "strategy",
            ArgumentKind.TEXT,
            'How to sort: "order", "zorder", "hilbert", or "auto" (by the number of columns). '
            "Without --order-by: by the table's clustering.columns.",
            aliases=("--order-strategy",),
        ),
        Argument(
            "commit_every",
            ArgumentKind.NUMBER,
            "One commit per this many buckets, kept even if others fail (default: one commit, all or nothing).",
        ),
        NOW,
    )
    items = (
        "actions.assign_buckets.assigning.AssignItem",
        "actions.compact.compaction.CompactItem",
        "actions.compact.recluster.ReclusterItem",
    )
    planned_by = "actions.compact.planning.plan_compaction"
    applied_by = "actions.compact.execution.apply_compaction"
    fits_by = "actions.compact.execution.compaction_fits"
    report = "actions.compact.compaction.CompactionReport"
    runs_tasks = True

    def parts(self, plan: MaintenancePlan) -> tuple[MaintenancePlan, ...]:
        """See `parts_of`."""
        from lsm_core.maintenance.actions.compact.compaction import parts_of

        return parts_of(plan)

    def report_of_parts(
        self, plan: MaintenancePlan, outcomes: Sequence[tuple[MaintenancePlan, Report | DredgeError]]
    ) -> Report:
        """See `report_of_parts`."""
        from lsm_core.maintenance.actions.compact.compaction import report_of_parts

        return report_of_parts(plan, outcomes)

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """Return lines on the verification of the result, and on the compaction after an assignment of buckets."""
        setting = plan.options.get("dredge.verification", "full")
        lines = [f"verification before publishing: {setting}"] if plan.items else []
        waits = any(item.item_kind == "assign_buckets" for item in plan.items)
        return [*lines, "the buckets to compact are chosen again once the rows have their buckets"] if waits else lines


ACTION = Compact()
