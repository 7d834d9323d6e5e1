"""Fast-forward: a branch's history replaces the table's own since the branch began."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind
from lsm_core.maintenance.actions import BuiltInAction


class FastForward(BuiltInAction):
    """Action "fast_forward". The command line has it as verb `branch` too."""

    name = "fast_forward"
    help = "Replace the table's history by a branch's; commits to the table since the branch began are dropped."
    arguments = (Argument("branch", ArgumentKind.TEXT, "The branch.", required=True),)
    items = (
        "actions.fast_forward.forwarding.ForwardItem",
        "actions.fast_forward.forwarding.DropItem",
        "trash.DeleteItem",
    )
    planned_by = "actions.fast_forward.forwarding.plan_fast_forward"
    applied_by = "actions.fast_forward.forwarding.apply_fast_forward"
    fits_by = "actions.fast_forward.forwarding.fast_forward_fits"
    report = "actions.fast_forward.forwarding.FastForwardReport"


ACTION = FastForward()
