"""Elements of a tree: files, sorted runs, and the unit of work of a strategy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file in the tree (Java `DataFileMeta`).

    Attributes:
        name: file name.
        level: level of the file.
        size: size in bytes.
        min_key: smallest key; keys are totally ordered values of one type (normalised key bytes in production).
        max_key: largest key, inclusive.
        row_count: number of rows.
        min_sequence: smallest sequence number.
        max_sequence: largest sequence number.
        creation_ms: time of creation (epoch ms).
        delete_row_count: number of delete rows, or None if unknown.
        schema_id: id of the file's schema.
    """

    name: str
    level: int
    size: int
    min_key: Any
    max_key: Any
    row_count: int = 0
    min_sequence: int = 0
    max_sequence: int = 0
    creation_ms: int = 0
    delete_row_count: int | None = 0
    schema_id: int = 0

    def upgrade(self, level: int) -> DataFile:
        """Return the same file on another level; only metadata changes."""
        return replace(self, level=level)


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Files in key order with disjoint key ranges (Java `SortedRun`). Use :meth:`of` to sort them."""

    files: tuple[DataFile, ...] = ()

    @staticmethod
    def of(files: Iterable[DataFile]) -> SortedRun:
        """Return a run of ``files``, sorted by smallest key."""
        return SortedRun(tuple(sorted(files, key=lambda f: (f.min_key, f.max_key))))

    @property
    def size(self) -> int:
        """Size of all files (bytes)."""
        return sum(f.size for f in self.files)

    @property
    def min_key(self) -> Any:
        """Smallest key of the run."""
        return self.files[0].min_key

    @property
    def max_key(self) -> Any:
        """Largest key of the run."""
        return self.files[-1].max_key

    def overlaps(self, low: Any, high: Any) -> bool:
        """Return whether a file of the run overlaps the closed range ``[low, high]``."""
        return any(f.min_key <= high and low <= f.max_key for f in self.files)


@dataclass(frozen=True, slots=True)
class LevelSortedRun:
    """A sorted run and its level; each level-0 file is its own run (Java `LevelSortedRun`)."""

    level: int
    run: SortedRun

    @property
    def size(self) -> int:
        """Size of the run (bytes)."""
        return self.run.size


@dataclass(frozen=True, slots=True)
class CompactUnit:
    """Files to compact together, and the level of the output (Java `CompactUnit`).

    Attributes:
        output_level: level of the output.
        files: the files, in run order.
        full: whether the unit contains every run of the tree.
        by_file: whether each file is rewritten separately instead of merged with its neighbours (Java
            `FileRewriteCompactTask`).
    """

    output_level: int
    files: tuple[DataFile, ...]
    full: bool = False
    by_file: bool = False

    @staticmethod
    def of_runs(output_level: int, runs: Iterable[LevelSortedRun], *, full: bool = False) -> CompactUnit:
        """Return a unit of all files of ``runs``, in run order."""
        return CompactUnit(output_level, tuple(f for level_run in runs for f in level_run.run.files), full)

    @property
    def size(self) -> int:
        """Size of all files (bytes)."""
        return sum(f.size for f in self.files)
