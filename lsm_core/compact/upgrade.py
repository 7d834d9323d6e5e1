"""Move files to another level without touching their bytes (Java `MergeTreeCompactTask.upgrade`)."""

from __future__ import annotations

from collections.abc import Iterable

from lsm_core.format.file_meta import DataFileMeta


def upgraded(files: Iterable[DataFileMeta], level: int) -> tuple[DataFileMeta, ...]:
    """The same files on ``level``: name, size, statistics and source stay as they are."""
    return tuple(file.upgrade(level) for file in files)
