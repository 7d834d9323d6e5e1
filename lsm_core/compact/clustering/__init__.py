"""Sort compaction of append tables without buckets: all files of a partition rewritten in an order that lets filters skip files.

Sampled keys cut the partition into ranges (`ranges`), rows are spread over them and spilled where they do not fit (`spread`), each
range is sorted (`sorting`) and written to rolling files (`rewrite`).
"""

from __future__ import annotations

from lsm_core.compact.clustering.rewrite import sort_files
from lsm_core.compact.clustering.task import SortTask, task_from_bytes

__all__ = ["SortTask", "sort_files", "task_from_bytes"]
