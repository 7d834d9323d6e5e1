"""Sort compaction of append tables without buckets.

A partition's files are rewritten in an order that lets filters skip files.

Sampled keys cut the partition into ranges (`ranges`). Rows are distributed over them, and spilled where they do not fit
(`spread`). Each range is sorted (`sorting`) and written to rolling files (`rewrite`).
"""

from __future__ import annotations

from lsm_core.compact.clustering.rewrite import sort_files
from lsm_core.compact.clustering.task import SortTask, task_from_bytes
