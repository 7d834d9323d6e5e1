"""Recovery: a table with a very large level 0 is brought back by bounded passes, each of which is verified and commits."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind, MaintenancePlan
from lsm_core.maintenance.actions import NOW, PARTITIONS, BuiltInAction


class Recover(BuiltInAction):
    """The action "recover": one pass. The command line reaches it through its verb `recover`, which makes pass after pass."""

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
        """How much there is to do, and how the result will be verified."""
        if not plan.items:
            return []
        from lsm_core.maintenance.actions.recover.recovering import what_is_left

        return [
            what_is_left(plan),
            f"verification before publishing: {plan.options.get('dredge.verification', 'full')}",
        ]


ACTION = Recover()
