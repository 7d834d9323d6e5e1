"""Partition expiry: old partitions are dropped by a commit; their files are deleted when snapshots expire."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan
from lsm_core.maintenance.actions import NOW, BuiltInAction


class ExpirePartitions(BuiltInAction):
    """Action "expire_partitions"."""

    name = "expire_partitions"
    verb = "expire-partitions"
    help = "Drop the partitions that are older than the table keeps them (`partition.expiration-time`), in one commit."
    commits = True
    arguments = (
        Argument(
            "older_than_ms",
            ArgumentKind.AGE,
            'Partitions of an earlier time than an age such as "30 d" ago; '
            "default: the table's option 'partition.expiration-time'.",
            "--older-than",
        ),
        Argument("strategy", ArgumentKind.TEXT, "values-time, or update-time: when a partition last got a file."),
        Argument("timestamp_pattern", ArgumentKind.TEXT, 'How values make a time, such as "$dt $hour:00:00".'),
        Argument("timestamp_formatter", ArgumentKind.TEXT, "Java's pattern of that time, such as yyyyMMdd."),
        Argument("max_expires", ArgumentKind.NUMBER, "Drop at most so many."),
        NOW,
    )
    items = ("actions.expire_partitions.partition_expiry.ExpirePartitionItem",)
    planned_by = "actions.expire_partitions.partition_expiry.plan_partition_expiry"
    applied_by = "actions.expire_partitions.partition_expiry.apply_partition_expiry"
    fits_by = "actions.expire_partitions.partition_expiry.partition_expiry_fits"
    report = "actions.expire_partitions.partition_expiry.PartitionExpiryReport"

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """Return a line on when files are deleted."""
        return ["their files are deleted when the snapshots that hold them expire"] if plan.items else []


ACTION = ExpirePartitions()
