"""The levels of one bucket: level 0 newest first, and one sorted run per higher level.

Source: ``Levels``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lsm_core.tree.invariants import check_levels
from lsm_core.tree.model import DataFile, LevelSortedRun, SortedRun


def newest_first(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """Return level-0 files by descending maximal sequence, then by minimal sequence, creation time and name."""
    return tuple(sorted(files, key=lambda f: (-f.max_sequence, f.min_sequence, f.creation_ms, f.name)))


def oldest_first(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """Return files in age order for a merge: highest level first, then level 0 from its oldest to its newest file.

    The position in this tuple is the ``age`` that orders rows which are equal in everything else.
    """
    files = tuple(files)
    upper = sorted((f for f in files if f.level > 0), key=lambda f: (-f.level, f.min_key, f.name))
    return (*upper, *reversed(newest_first(f for f in files if f.level == 0)))


@dataclass(frozen=True)
class Levels:
    """All live files of one bucket by level, from 0 to ``max_level``.

    Attributes:
        files: the files.
        num_levels: the configured number of levels, raised if a file is on a higher level, because the table may have
            had more levels earlier.
    """

    files: tuple[DataFile, ...]
    num_levels: int
    _by_level: dict[int, list[DataFile]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __init__(self, files: Iterable[DataFile], num_levels: int) -> None:
        files = tuple(files)
        by_level: dict[int, list[DataFile]] = {}
        for file in files:
            by_level.setdefault(file.level, []).append(file)
        object.__setattr__(self, "files", files)
        object.__setattr__(self, "num_levels", max([num_levels, 2, *(level + 1 for level in by_level)]))
        object.__setattr__(self, "_by_level", by_level)

    @property
    def max_level(self) -> int:
        """Number of the last level."""
        return self.num_levels - 1

    @property
    def level0(self) -> tuple[DataFile, ...]:
        """Files of level 0, newest first."""
        return newest_first(self._by_level.get(0, ()))

    def level(self, number: int) -> SortedRun:
        """Return the run of level ``number`` > 0; it has no files if the level is empty."""
        return SortedRun.of(self._by_level.get(number, ()))

    @property
    def highest_nonempty(self) -> int:
        """Number of the highest level with a file, or -1 for an empty tree."""
        return max(self._by_level, default=-1)

    def runs(self) -> list[LevelSortedRun]:
        """Return all sorted runs, newest first: one per level-0 file, then one per non-empty higher level."""
        runs = [LevelSortedRun(0, SortedRun((f,))) for f in self.level0]
        runs += [LevelSortedRun(n, self.level(n)) for n in sorted(self._by_level) if n > 0]
        return runs

    @property
    def total_size(self) -> int:
        """Size of all files (bytes)."""
        return sum(f.size for f in self.files)

    def awaited(self, needs_lookup: bool) -> bool:
        """Return whether readers wait for a compaction.

        If keys are looked up, level 0 is invisible until it is moved up.

        Args:
            needs_lookup: whether compactions look keys up.

        Returns:
            Whether level 0 has files that must move up.

        Source: `MergeTreeCompactManager.compactNotCompleted`, without its condition on running tasks.
        """
        return needs_lookup and bool(self._by_level.get(0))

    def validate(self) -> None:
        """Check the invariants of the files.

        Raises:
            CorruptFile: key ranges of one level overlap, or a file is impossible; the path names the files.
        """
        check_levels(self.files)

    def replaced(self, before: Iterable[DataFile], after: Iterable[DataFile]) -> Levels:
        """Return the levels after ``after`` has replaced the files of ``before``."""
        removed = {(f.name, f.level) for f in before}
        return Levels((*(f for f in self.files if (f.name, f.level) not in removed), *after), self.num_levels)
