"""Fast-forward: a branch's history takes the place of the table's own since the branch began."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind
from lsm_core.maintenance.actions import BuiltInAction


class FastForward(BuiltInAction):
    """The action "fast_forward". The command line reaches it through its verb `branch`, too."""

    name = "fast_forward"
    help = "Let the table have a branch's history; what was committed to it since the branch began is dropped."
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
