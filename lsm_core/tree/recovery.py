"""Choice of runs for one pass of a recovery, which merges a very large level 0 in parts, oldest files first."""

from __future__ import annotations

from lsm_core.tree.levels import Levels
from lsm_core.tree.model import CompactUnit
from lsm_core.tree.universal import UniversalCompaction


def pick_oldest(levels: Levels, size_ratio: int) -> CompactUnit:
    """Return a unit of all given level-0 files and the runs below that are not larger than the files taken so far.

    The taken files are adjacent in age, so the output is between newer and older files: on the level above the next
    run, or on the last level. Because runs of similar size are merged, a row is rewritten about log2(passes) times.

    Args:
        levels: the oldest level-0 files of a bucket, without the newer ones, and all its higher levels.
        size_ratio: percent by which the next run may be larger.

    Returns:
        The unit.
    """
    runs = levels.runs()
    count = sum(run.level == 0 for run in runs)
    unit = UniversalCompaction(size_ratio=size_ratio).extend(levels.max_level, runs, count, 0, force=True)
    assert unit is not None  # it is forced
    return CompactUnit(unit.output_level, unit.files)
