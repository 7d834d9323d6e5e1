"""The levels of one bucket: level 0 newest first, every higher level one sorted run (Java `Levels`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lsm_core.tree.invariants import check_levels
from lsm_core.tree.model import DataFile, LevelSortedRun, SortedRun


def newest_first(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """Level-0 order: largest maximal sequence first, then smallest minimal sequence, creation time, name."""
    return tuple(sorted(files, key=lambda f: (-f.max_sequence, f.min_sequence, f.creation_ms, f.name)))


def oldest_first(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """Files in age order for a merge: highest level first, then level 0 from its oldest to its newest file.

    The position in this tuple is the ``age`` that breaks ties between rows equal in everything else.
    """
    files = tuple(files)
    upper = sorted((f for f in files if f.level > 0), key=lambda f: (-f.level, f.min_key, f.name))
    return (*upper, *reversed(newest_first(f for f in files if f.level == 0)))


@dataclass(frozen=True)
class Levels:
    """All live files of one bucket by level. Level numbers run from 0 to ``max_level``.

    ``num_levels`` is the configured count; a file found higher raises it, as the table may have had more levels once.
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
        """The run of level ``number`` > 0; empty where the level is."""
        return SortedRun.of(self._by_level.get(number, ()))

    @property
    def highest_nonempty(self) -> int:
        """Number of the highest level that holds a file; -1 for an empty tree."""
        return max(self._by_level, default=-1)

    def runs(self) -> list[LevelSortedRun]:
        """All sorted runs, newest first: one per level-0 file, then one per non-empty higher level."""
        runs = [LevelSortedRun(0, SortedRun((f,))) for f in self.level0]
        runs += [LevelSortedRun(n, self.level(n)) for n in sorted(self._by_level) if n > 0]
        return runs

    @property
    def total_size(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.files)

    def awaited(self, needs_lookup: bool) -> bool:
        """Whether readers wait for a compaction: where keys are looked up, level 0 is out of sight until it moved up.

        Source: `MergeTreeCompactManager.compactNotCompleted`, without the part about a task that is running.
        """
        return needs_lookup and bool(self._by_level.get(0))

    def validate(self) -> None:
        """Raise CorruptFile naming the two files of one level > 0 whose key ranges meet, or an impossible file."""
        check_levels(self.files)

    def replaced(self, before: Iterable[DataFile], after: Iterable[DataFile]) -> Levels:
        """The levels once the files of ``before`` gave way to those of ``after``."""
        gone = {(f.name, f.level) for f in before}
        return Levels((*(f for f in self.files if (f.name, f.level) not in gone), *after), self.num_levels)
