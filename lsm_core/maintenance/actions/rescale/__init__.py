"""Rescale: whole partitions rewritten with another number of buckets, in one OVERWRITE commit."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind
from lsm_core.maintenance.actions import NOW, PARTITIONS, WHERE, BuiltInAction


class Rescale(BuiltInAction):
    """Action "rescale"."""

    name = "rescale"
    verb = "rescale"
    help = "Rewrite partitions with another number of buckets (default: the table's option 'bucket', altered before)."
    commits = True
    arguments = (
        Argument("bucket_num", ArgumentKind.NUMBER, "The new number of buckets; default: the table's option 'bucket'."),
        PARTITIONS,
        WHERE,
        NOW,
    )
    items = ("actions.rescale.rescaling.RescaleItem",)
    planned_by = "actions.rescale.rescaling.plan_rescale"
    applied_by = "actions.rescale.rescaling.apply_rescale"
    fits_by = "actions.rescale.rescaling.rescale_fits"
    report = "actions.rescale.rescaling.RescaleReport"
    runs_tasks = True


ACTION = Rescale()
