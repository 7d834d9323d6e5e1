"""From the files of a bucket to merge inputs: which files form one ordered stream, and how old each stream is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from lsm_core.format.file_meta import DataFileMeta, ManifestEntry, entries_to_table
from lsm_core.metadata import tree_files
from lsm_core.metadata.store import TableStore
from lsm_core.tree import DataFile, interval_partition, newest_first


@dataclass(frozen=True)
class InputFiles:
    """Files whose concatenation is sorted by key; ``level`` and ``age`` settle ties with other inputs (larger age = newer).

    ``rank`` orders inputs by sequence number when no two of them share any (see :func:`disjoint_sequences`).
    """

    files: tuple[DataFileMeta, ...]
    level: int
    age: int
    rank: int = 0

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.file_size for file in self.files)


Section = tuple[InputFiles, ...]
"""Inputs that overlap in key range, oldest first: higher levels before lower ones, then level 0 by age."""


def as_tree(store: TableStore, files: Sequence[DataFileMeta]) -> list[DataFile]:
    """Files of one bucket as the tree room sees them: keys as order-preserving bytes."""
    return list(tree_files(store, entries_to_table([ManifestEntry(0, b"", 0, 0, file) for file in files])))


def sections_of(store: TableStore, files: Sequence[DataFileMeta]) -> list[Section]:
    """Key-disjoint sections of ``files`` in key order, each with as few inputs as the order of ages allows."""
    if not files:
        return []
    by_name = {file.file_name: file for file in files}
    sections = interval_partition(as_tree(store, files))
    return [section_inputs([list(run.files) for run in section], by_name) for section in sections]


def section_inputs(runs: Sequence[Sequence[DataFile]], by_name: dict[str, DataFileMeta]) -> Section:
    """Merge inputs of one section, given as runs of non-overlapping files.

    Runs may mix levels, so a run has no age of its own. Where sequence numbers can tie between files the inputs are
    therefore one per level and one per level-0 file; where they cannot, age never decides and the runs serve as they are.
    """
    files = [file for run in runs for file in run]
    groups = _by_level(files)
    if len(groups) > len(runs) and disjoint_sequences(groups):
        groups = [sorted(run, key=attrgetter("min_key")) for run in runs]
    ranks = {id(group): rank for rank, group in enumerate(sorted(groups, key=lambda g: max(f.max_sequence for f in g)))}
    return tuple(
        InputFiles(tuple(by_name[file.name] for file in group), max(file.level for file in group), age, ranks[id(group)])
        for age, group in enumerate(groups)
    )


def disjoint_sequences(groups: Sequence[Sequence[DataFile]]) -> bool:
    """Whether no two groups share a sequence number, going by their ranges."""
    ranges = sorted((min(f.min_sequence for f in g), max(f.max_sequence for f in g)) for g in groups)
    return all(before[1] < after[0] for before, after in zip(ranges, ranges[1:], strict=False))


def sequences_can_be_skipped(section: Section) -> bool:
    """Whether the files' ranges alone order the rows of a key: then the sequence column need not be decoded."""
    ranges = sorted(
        (min(f.min_sequence_number for f in one.files), max(f.max_sequence_number for f in one.files)) for one in section
    )
    return all(before[1] < after[0] for before, after in zip(ranges, ranges[1:], strict=False))


def _by_level(files: Sequence[DataFile]) -> list[list[DataFile]]:
    """Oldest first: the levels from the highest down, then each level-0 file (oldest: smallest maximal sequence)."""
    levels = sorted({file.level for file in files if file.level > 0}, reverse=True)
    groups: list[list[DataFile]] = []
    for level in levels:
        members = sorted((file for file in files if file.level == level), key=attrgetter("min_key"))
        clean = all(a.max_key < b.min_key for a, b in zip(members, members[1:], strict=False))
        groups += [members] if clean else [[file] for file in members]
    level0 = [file for file in files if file.level == 0]
    return groups + [[file] for file in reversed(newest_first(level0))]
