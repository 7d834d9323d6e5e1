"""When a writer waits for its compaction: a bucket with too many sorted runs must not get more of them (Java `MergeTreeCompactManager`)."""

from __future__ import annotations

from collections.abc import Iterable

from lsm_core.format.file_meta import DataFileMeta


def sorted_runs(files: Iterable[DataFileMeta]) -> int:
    """Sorted runs of a bucket: a file of level 0 is one, a higher level is one."""
    levels = [file.level for file in files]
    return levels.count(0) + len({level for level in levels if level > 0})


def waits_at_flush(runs: int, stop_trigger: int) -> bool:
    """Whether a flush waits for the running compaction before it asks for the next (`num-sorted-run.stop-trigger`)."""
    return runs > stop_trigger


def waits_at_commit(runs: int, stop_trigger: int) -> bool:
    """Whether preparing a commit waits: one run more than at a flush, for jobs that fail again and again before they compact."""
    return runs > stop_trigger + 1


__all__ = ["sorted_runs", "waits_at_commit", "waits_at_flush"]
