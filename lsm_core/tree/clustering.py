"""Choice of the files to sort in a bucket of an append table with incremental clustering.

Level 0 holds files in the order in which they were written, each of them a run; a higher level is one run, whose files
were sorted together. Ranges of files may overlap on every level, because rows of an append table have no key.

Source: ``IncrementalClusterManager``, ``IncrementalClusterStrategy``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lsm_core.options import PaimonVersion
from lsm_core.tree.model import (
    CompactUnit,
    DataFile,
    Decision,
    Decline,
    DeclineReason,
    LevelSortedRun,
    Pick,
    SortedRun,
    State,
    Trigger,
)
from lsm_core.tree.universal import UniversalCompaction, UniversalOptions


class ClusterOptions(UniversalOptions, Protocol):
    """Options that decide which files are sorted."""

    @property
    def num_levels(self) -> int:
        """Number of levels."""


def cluster_runs(files: Sequence[DataFile]) -> list[LevelSortedRun]:
    """Return the runs of a bucket by level: one per file of level 0, and one per higher level with files.

    Args:
        files: live files of the bucket, in the order of their manifest entries.
    """
    by_level: dict[int, list[DataFile]] = {}
    for file in files:
        by_level.setdefault(file.level, []).append(file)
    runs = [LevelSortedRun(0, SortedRun((file,))) for file in by_level.pop(0, ())]
    return runs + [LevelSortedRun(level, SortedRun(tuple(by_level[level]))) for level in sorted(by_level)]


def last_level(files: Sequence[DataFile], num_levels: int) -> int:
    """Return the number of the last level: that of `num-levels`, or a higher one that has a file.

    Args:
        files: live files of the bucket.
        num_levels: option `num-levels`.
    """
    return max([num_levels - 1, 1, *(file.level for file in files)])


def pick_clustering(
    files: Sequence[DataFile], options: ClusterOptions, full: bool = False, *, sort_again: bool = False
) -> Decision:
    """Return the files to sort together and the level of the sorted files, or why nothing is sorted.

    Args:
        files: live files of the bucket, in the order of their manifest entries.
        options: the table's options.
        full: whether to sort all files. If they already are one run on the last level, nothing is sorted.
        sort_again: whether to sort even that one run again, because the columns to sort by changed or because files
            have deleted rows.

    Returns:
        A `Pick` (sort these files) or a `Decline` (sort nothing, with the reason).
    """
    runs, top = cluster_runs(files), last_level(files, options.num_levels)
    if not full:
        rules = UniversalCompaction(
            options.max_size_amplification,
            options.size_ratio,
            options.compaction_trigger,
            through_level1=options.paimon_version.at_least(PaimonVersion.V2_1),
        )
        return rules.decide(top + 1, runs, 0, State())[0]
    facts = {"sorted_runs": len(runs), "files": len(files)}
    if not runs:
        return Decline(DeclineReason.EMPTY, facts)
    if len(runs) == 1 and runs[0].level == top and not sort_again:
        return Decline(DeclineReason.ALREADY_COMPACTED, facts)
    return Pick(CompactUnit.of_runs(top, runs, full=True), Trigger.FULL, facts)
