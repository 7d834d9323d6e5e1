"""The LSM tree of a bucket as immutable values: levels, choice of files to compact, and rewrite or upgrade per file.

This package has no I/O, no clock, and no knowledge of merge engines: only sizes, levels and key ranges are used.
Compactions are executed in `lsm_core.compact`. Begin with `model` and `universal`.
"""

from __future__ import annotations

from lsm_core.tree.append import pick_full_window, pick_small_files, pick_windows
from lsm_core.tree.clustering import cluster_runs, last_level, pick_clustering
from lsm_core.tree.early_full import EarlyFullCompaction
from lsm_core.tree.model import (
    CompactUnit,
    DataFile,
    Decision,
    Decline,
    DeclineReason,
    Facts,
    Levels,
    LevelSortedRun,
    Pick,
    RunSizes,
    SortedRun,
    State,
    Trigger,
    Violation,
    check_levels,
    find_violations,
    interval_partition,
    newest_first,
    oldest_first,
)
from lsm_core.tree.row_ids import group_by_row_id, pick_row_ranges
from lsm_core.tree.strategy import (
    ForceUpLevel0Compaction,
    PickOptions,
    Strategy,
    decide_bucket,
    decide_sizes,
    pick_full_compaction,
    post_filter,
    strategy_from_options,
)
from lsm_core.tree.task import Rewrite, TaskPlan, Upgrade, close_unit, drops_delete, plan_task
from lsm_core.tree.universal import OffPeakHours, UniversalCompaction, pick_oldest
