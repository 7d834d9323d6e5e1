"""The tree of one bucket as values: files, sorted runs, levels, sections, invariants, and the result of a strategy.

Level 0 is ordered newest first; every higher level is one sorted run. Sections have disjoint key ranges and the fewest
possible sorted runs. The invariants are checked in tests after each step, and in production before and after
maintenance. A strategy returns a `Pick` (unit and trigger) or a `Decline` (reason), each with the numbers that decided.

Source: ``Levels``, ``IntervalPartition``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import count, groupby, pairwise
from typing import Any

from lsm_core.errors import CorruptFile


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
        first_row_id: id of the first row with row tracking, or None.
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
    first_row_id: int | None = None

    def upgrade(self, level: int) -> DataFile:
        """Return the same file on another level; only metadata changes."""
        return replace(self, level=level)


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Files in key order with disjoint key ranges (Java `SortedRun`). Use :meth:`of` to sort them.

    Attributes:
        files: the files, ascending by key.
    """

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
    """A sorted run and its level; each level-0 file is its own run (Java `LevelSortedRun`).

    Attributes:
        level: number of the level.
        run: the sorted run.
    """

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


def interval_partition(files: Iterable[DataFile]) -> list[list[SortedRun]]:
    """Divide files into sections with disjoint key ranges, each with the fewest possible sorted runs, in key order.

    Key ranges are closed: files that share an endpoint belong to one section and to different runs.
    """
    ordered = sorted(files, key=lambda f: (f.min_key, f.max_key))
    sections: list[list[SortedRun]] = []
    current: list[DataFile] = []
    reach: Any = None
    for file in ordered:
        if current and file.min_key > reach:
            sections.append(_split_into_runs(current))
            current = []
        reach = file.max_key if not current or file.max_key > reach else reach
        current.append(file)
    if current:
        sections.append(_split_into_runs(current))
    return sections


def _split_into_runs(section: list[DataFile]) -> list[SortedRun]:
    """Assign each file, by ascending smallest key, to the run with the smallest end key.

    If this run overlaps the file, a new run is started.
    """
    ticket = count()
    heap: list[tuple[Any, int, list[DataFile]]] = []  # the ticket keeps files of equal end keys from being compared
    for file in section:
        if heap and heap[0][0] < file.min_key:
            _, _, files = heapq.heappop(heap)
        else:
            files = []
        files.append(file)
        heapq.heappush(heap, (file.max_key, next(ticket), files))
    runs = [files for _, _, files in heap]
    runs.sort(key=lambda files: (files[0].min_key, files[0].max_key))
    return [SortedRun(tuple(files)) for files in runs]


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant of a bucket's LSM tree, such as overlapping files on a level above 0.

    Attributes:
        message: description of the violation.
        files: names of the files that violate it.
    """

    message: str
    files: tuple[str, ...]


def find_violations(files: Iterable[DataFile]) -> tuple[Violation, ...]:
    """Return every violated invariant of one bucket's files.

    No file is listed twice. Levels and row counts are not negative, and a file has no more deletes than rows. Key and
    sequence ranges are not reversed. Files of one level above 0 never share a key. Level-0 files may overlap, because
    each level-0 file is its own run.
    """
    files = tuple(files)
    violations: list[Violation] = []
    names: set[str] = set()
    for file in files:
        violations.extend(_file_violations(file))
        if file.name in names:
            violations.append(Violation(f"file {file.name} is listed twice", (file.name,)))
        names.add(file.name)
    upper = sorted((f for f in files if f.level > 0), key=lambda f: (f.level, f.min_key, f.max_key))
    for level, group in groupby(upper, key=lambda f: f.level):
        run = tuple(group)
        reach = run[0]
        for previous, file in pairwise(run):
            reach = previous if previous.max_key >= reach.max_key else reach
            if file.min_key <= reach.max_key:
                message = f"files {reach.name} and {file.name} of level {level} overlap in key range"
                violations.append(Violation(message, (reach.name, file.name)))
    return tuple(violations)


def _file_violations(file: DataFile) -> list[Violation]:
    violations = []
    if file.level < 0:
        violations.append(Violation(f"file {file.name} has level {file.level}", (file.name,)))
    if file.max_key < file.min_key:
        violations.append(Violation(f"file {file.name} has a largest key below its smallest", (file.name,)))
    if file.max_sequence < file.min_sequence:
        violations.append(
            Violation(
                f"file {file.name} has the reversed sequence range {file.min_sequence}..{file.max_sequence}",
                (file.name,),
            )
        )
    if file.row_count < 0 or (file.delete_row_count or 0) > max(file.row_count, 0) > 0:
        violations.append(
            Violation(
                f"file {file.name} counts {file.row_count} rows, {file.delete_row_count} of them deletes", (file.name,)
            )
        )
    return violations


def check_levels(files: Iterable[DataFile]) -> None:
    """Check the invariants of one bucket's files.

    Raises:
        CorruptFile: an invariant is violated; the error names the files.
    """
    for violation in find_violations(files):
        raise CorruptFile(" and ".join(violation.files), violation.message)


def newest_first(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """Return level-0 files by largest sequence number, descending; ties by smallest number, creation time and name."""
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
        num_levels: the configured number of levels, but at least 2. The number is raised if a file is on a higher
            level, because the table may have had more levels earlier.
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
        return list(self._runs)

    @cached_property
    def _runs(self) -> tuple[LevelSortedRun, ...]:
        newest = (LevelSortedRun(0, SortedRun((f,))) for f in self.level0)
        return (*newest, *(LevelSortedRun(n, self.level(n)) for n in sorted(self._by_level) if n > 0))

    @property
    def total_size(self) -> int:
        """Size of all files (bytes)."""
        return sum(f.size for f in self.files)

    def validate(self) -> None:
        """Check the invariants of the files.

        Raises:
            CorruptFile: an invariant is violated; the error names the files.
        """
        check_levels(self.files)

    def replaced(self, before: Iterable[DataFile], after: Iterable[DataFile]) -> Levels:
        """Return the levels after ``after`` has replaced the files of ``before``."""
        removed = {(f.name, f.level) for f in before}
        return Levels((*(f for f in self.files if (f.name, f.level) not in removed), *after), self.num_levels)


Facts = Mapping[str, int | float | None]


class Trigger(StrEnum):
    """Rule of the compaction strategy that requested a compaction."""

    OPTIMIZATION_INTERVAL = "optimization-interval"
    TOTAL_SIZE = "total-size-threshold"
    INCREMENTAL_SIZE = "incremental-size-threshold"
    SIZE_AMPLIFICATION = "size-amplification"
    SIZE_RATIO = "size-ratio"
    FILE_COUNT = "file-count"
    FORCE_LEVEL0 = "force-level-0"
    FULL = "full"
    DELTA_COMMITS = "delta-commits"
    SMALL_FILES = "small-files"
    SORT = "sort"
    RECOVERY = "recovery"


class DeclineReason(StrEnum):
    """Reason of the compaction strategy for compacting nothing."""

    EMPTY = "empty"
    TOO_FEW_RUNS = "too-few-runs"
    WITHIN_LIMITS = "within-limits"
    NO_LEVEL0 = "no-level-0"
    WAITING = "waiting"
    NOTHING_TO_CHANGE = "nothing-to-change"
    ALREADY_COMPACTED = "already-compacted"
    TOO_FEW_SMALL_FILES = "too-few-small-files"


@dataclass(frozen=True, slots=True)
class Pick:
    """Decision to compact a unit.

    Attributes:
        unit: the files to compact.
        trigger: the rule that requested the compaction.
        facts: the numbers that decided, by name.
    """

    unit: CompactUnit
    trigger: Trigger
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decline:
    """Decision to compact nothing.

    Attributes:
        reason: why nothing is compacted.
        facts: the numbers that decided, by name.
    """

    reason: DeclineReason
    facts: Facts = field(default_factory=dict)

    def text(self) -> str:
        """Return the reason and its numbers on one line."""
        numbers = ", ".join(f"{name} {value}" for name, value in self.facts.items())
        return f"{self.reason}: {numbers}" if numbers else str(self.reason)


Decision = Pick | Decline


@dataclass(frozen=True, slots=True)
class RunSizes:
    """Levels and sizes of all sorted runs of a bucket, newest first: all that the rules of a strategy look at.

    Attributes:
        levels: level of each run.
        sizes: size of each run (bytes).
        total: size of all runs (bytes).
    """

    levels: Sequence[int]
    sizes: Sequence[int]
    total: int

    @staticmethod
    def of(runs: Sequence[LevelSortedRun]) -> RunSizes:
        """Return the levels and sizes of ``runs``."""
        sizes = [run.size for run in runs]
        return RunSizes([run.level for run in runs], sizes, sum(sizes))

    @property
    def oldest_size(self) -> int:
        """Size of the oldest run (bytes), 0 without runs."""
        return self.sizes[-1] if self.sizes else 0

    def __len__(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True, slots=True)
class RunPick:
    """Decision to compact the newest runs of a bucket.

    Attributes:
        count: number of runs.
        output_level: level of the output.
        trigger: the rule that requested the compaction.
        facts: the numbers that decided, by name.
        full: whether these are all runs.
    """

    count: int
    output_level: int
    trigger: Trigger
    facts: Facts
    full: bool

    def of_runs(self, runs: Sequence[LevelSortedRun]) -> Pick:
        """Return the same decision with the files of ``runs``, all runs of the bucket."""
        unit = CompactUnit.of_runs(self.output_level, runs[: self.count], full=self.full)
        return Pick(unit, self.trigger, self.facts)


RunDecision = RunPick | Decline


@dataclass(frozen=True, slots=True)
class State:
    """State of the compaction rules that depend on earlier decisions; :meth:`of` derives it from a bucket's files.

    Attributes:
        last_full_ms: time of the last full compaction (epoch ms), or None if there was none.
        skipped_forces: number of decisions without a compaction of level 0 since the last forced one.
    """

    last_full_ms: int | None = None
    skipped_forces: int = 0

    @staticmethod
    def of(levels: Levels) -> State:
        """Derive the state from the levels of a bucket.

        The creation time of the last level's newest file is taken as the time of the last full compaction. Every commit
        adds a level-0 file and makes one decision. So the number of level-0 files, minus one for the coming decision,
        gives the number of decisions since the last forced compaction.
        """
        created = [f.creation_ms for f in levels.level(levels.max_level).files]
        return State(max(created, default=None), max(len(levels.level0) - 1, 0))
