"""Compaction of one bucket: rewrite or upgrade a unit, verify the result, return a commit message.

The choice of the files is in `lsm_core.tree`, and plans are in `lsm_core.maintenance`. Nothing is published here:
`lsm_core.commit` turns the message into a snapshot. Begin with `unit`.
"""

from __future__ import annotations

from lsm_core.compact.pieces import run_bucket_task, run_tasks_locally
from lsm_core.compact.task import BucketReport, BucketResult, BucketTask, Judge
