"""Which runs a pass of a recovery merges: a very large level 0 is taken from its oldest files on, so much at a time."""

from __future__ import annotations

from lsm_core.tree.levels import Levels
from lsm_core.tree.model import CompactUnit
from lsm_core.tree.universal import UniversalCompaction


def pick_oldest(levels: Levels, size_ratio: int) -> CompactUnit:
    """The unit of all level-0 files of ``levels``, and of the runs below them that are not larger (``size_ratio``: percent) than what is taken.

    ``levels`` holds the oldest level-0 files of a bucket, whose newer ones are left out, and all of its higher levels. What is taken are
    neighbours in age, and the output lies between what is newer and what is older: on the level above the next run, on the last one where
    none is left. As runs of like size join, a row is rewritten about log2(passes) times.
    """
    runs = levels.runs()
    count = sum(run.level == 0 for run in runs)
    unit = UniversalCompaction(size_ratio=size_ratio).extend(levels.max_level, runs, count, 0, force=True)
    assert unit is not None  # it is forced
    return CompactUnit(unit.output_level, unit.files)
