"""Assignment of buckets: postponed rows move into real buckets, in one COMPACT commit."""

from __future__ import annotations

from lsm_core.maintenance.actions import NOW, PARTITIONS, BuiltInAction


class AssignBuckets(BuiltInAction):
    """Action "assign_buckets"."""

    name = "assign_buckets"
    verb = "assign-buckets"
    help = "Move postponed rows (option 'bucket' = -2) into real buckets, where readers see them."
    commits = True
    arguments = (PARTITIONS, NOW)
    items = ("actions.assign_buckets.assigning.AssignItem",)
    planned_by = "actions.assign_buckets.assigning.plan_assignment"
    applied_by = "actions.assign_buckets.assigning.apply_assignment"
    fits_by = "actions.assign_buckets.assigning.assignment_fits"
    report = "actions.assign_buckets.assigning.AssignReport"
    runs_tasks = True


ACTION = AssignBuckets()
