"""Expiry of tags: those whose time is over, and automatic ones beyond their number, deleted as by `delete_tag`."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind
from lsm_core.maintenance.actions import NOW
from lsm_core.maintenance.actions.delete_tag import DeleteTag


class ExpireTags(DeleteTag):
    """Action "expire_tags"; it differs from `delete_tag` only in its choice of tags.

    The command line has it as `dredge tag expire` too.
    """

    name = "expire_tags"
    help = "Expire tags: those kept long enough, and automatic ones beyond tag.num-retained-max."
    arguments = (
        Argument("older_than_ms", ArgumentKind.AGE, 'Also all older than an age such as "30 d".', "--older-than"),
        NOW,
    )
    planned_by = "actions.expire_tags.tag_expiry.plan_tag_expiry"


ACTION = ExpireTags()
