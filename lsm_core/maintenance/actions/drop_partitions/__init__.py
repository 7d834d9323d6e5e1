"""Drop of partitions by a plan that lists them with their content; a partition that is written to meanwhile is kept."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan
from lsm_core.maintenance.actions import NOW, PARTITIONS, BuiltInAction


class DropPartitions(BuiltInAction):
    """Action "drop_partitions"."""

    name = "drop_partitions"
    verb = "drop-partitions"
    help = (
        "Drop partitions in one commit; `dredge rollback-as-latest` brings them back while the snapshot before exists."
    )
    commits = True
    arguments = (
        Argument(
            "partitions",
            ArgumentKind.PARTITIONS,
            "These partitions; columns may be left out. May be repeated. Empty value: null.",
            PARTITIONS.flag,
        ),
        NOW,
    )
    items = ("actions.drop_partitions.dropping.DropPartitionItem",)
    planned_by = "actions.drop_partitions.dropping.plan_dropping"
    applied_by = "actions.drop_partitions.dropping.apply_dropping"
    fits_by = "actions.drop_partitions.dropping.dropping_fits"
    report = "actions.drop_partitions.dropping.PartitionDropReport"

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """Return a line on when files are deleted."""
        return ["their files are deleted when the snapshots that hold them expire"] if plan.items else []


ACTION = DropPartitions()
