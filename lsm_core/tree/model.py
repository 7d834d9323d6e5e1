"""What a tree is made of: files, sorted runs, and the unit of work that a strategy hands over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file as the tree sees it (Java `DataFileMeta`).

    ``min_key`` and ``max_key`` are any totally ordered values of one kind (normalised key bytes in production), both
    inclusive; ``size`` is in bytes, ``creation_ms`` epoch ms; ``delete_row_count`` None = unknown.
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
        """The same file at another level: a change of metadata alone."""
        return replace(self, level=level)


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Files in key order whose key ranges do not meet (Java `SortedRun`). Build with :meth:`of` to sort them."""

    files: tuple[DataFile, ...] = ()

    @staticmethod
    def of(files: Iterable[DataFile]) -> SortedRun:
        """A run of ``files`` sorted by their smallest key."""
        return SortedRun(tuple(sorted(files, key=lambda f: (f.min_key, f.max_key))))

    @property
    def size(self) -> int:
        """Bytes of all files."""
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
        """Whether some file of the run shares a key of the closed range ``[low, high]``."""
        return any(f.min_key <= high and low <= f.max_key for f in self.files)


@dataclass(frozen=True, slots=True)
class LevelSortedRun:
    """A sorted run and the level it lies in; each level-0 file is a run of its own (Java `LevelSortedRun`)."""

    level: int
    run: SortedRun

    @property
    def size(self) -> int:
        """Bytes of the run."""
        return self.run.size


@dataclass(frozen=True, slots=True)
class CompactUnit:
    """Files to compact together and the level that their rows go to (Java `CompactUnit`).

    ``full``: the unit holds every run of the tree. ``by_file``: each file is rewritten on its own instead of being
    merged with its neighbours (Java `FileRewriteCompactTask`).
    """

    output_level: int
    files: tuple[DataFile, ...]
    full: bool = False
    by_file: bool = False

    @staticmethod
    def of_runs(output_level: int, runs: Iterable[LevelSortedRun], *, full: bool = False) -> CompactUnit:
        """All files of ``runs``, in run order."""
        return CompactUnit(output_level, tuple(f for level_run in runs for f in level_run.run.files), full)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.files)
