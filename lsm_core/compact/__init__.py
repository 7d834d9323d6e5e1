"""Compaction of one bucket: rewrite or upgrade a unit, verify the result, return a commit message.

Nothing is published here.
"""

from __future__ import annotations

from lsm_core.compact.pieces import run_tasks_locally
from lsm_core.compact.task import BucketReport, BucketResult, BucketTask, Judge
from lsm_core.compact.unit import run_bucket_task
