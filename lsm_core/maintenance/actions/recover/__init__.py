"""Recovery of a table with a very large level 0 by bounded passes, each of which is verified and committed."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan
from lsm_core.maintenance.actions import NOW, PARTITIONS, BuiltInAction


class Recover(BuiltInAction):
    """Action "recover": one pass. The command line's verb `recover` makes pass after pass."""

    name = "recover"
    help = "Merge a bounded part of a very large level 0, the oldest files first."
    commits = True
    arguments = (
        Argument("files", ArgumentKind.NUMBER, "Level-0 files of a pass, at most (10000)."),
        PARTITIONS,
        NOW,
    )
    items = ("actions.compact.compaction.CompactItem",)
    planned_by = "actions.recover.recovering.plan_recovery"
    applied_by = "actions.recover.recovering.apply_recovery"
    fits_by = "actions.recover.recovering.recovery_fits"
    report = "actions.recover.recovering.RecoveryPass"
    runs_tasks = True

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """Return lines on the remaining work and the verification of the result."""
        if not plan.items:
            return []
        from lsm_core.maintenance.actions.recover.recovering import describe_remaining

        return [
            describe_remaining(plan),
            f"verification before publishing: {plan.options.get('dredge.verification', 'full')}",
        ]


ACTION = Recover()
