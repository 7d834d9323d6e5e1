"""Merge inputs of a bucket's files: key-disjoint sections, their ordered runs, and the age order of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from lsm_core.format.manifest import DataFileMeta, ManifestEntry, entries_to_table
from lsm_core.metadata.live_files import tree_files
from lsm_core.metadata.store import TableStore
from lsm_core.tree import DataFile, interval_partition, newest_first

Files = tuple[DataFileMeta, ...]


@dataclass(frozen=True)
class Section:
    """Files of a bucket whose key ranges overlap each other, and no other file's range.

    Attributes:
        runs: the smallest number of runs of key-ordered files; a run may mix levels.
        groups: the same files by age, oldest first: each level above 0 is one group, the highest first, then each
            level-0 file. Groups are in key order too.
    """

    runs: tuple[Files, ...]
    groups: tuple[Files, ...]

    @property
    def files(self) -> Files:
        """All files, run by run."""
        return tuple(file for run in self.runs for file in run)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.file_size for file in self.files)

    @property
    def disjoint_sequences(self) -> bool:
        """Whether the sequence number ranges of the groups are disjoint, so that a group's range orders its rows."""
        return all(before[1] < after[0] for before, after in pairwise(sorted(map(sequence_range, self.groups))))


def sequence_range(files: Files) -> tuple[int, int]:
    """Return the smallest and largest sequence number of ``files``."""
    return min(f.min_sequence_number for f in files), max(f.max_sequence_number for f in files)


def as_tree(store: TableStore, files: Sequence[DataFileMeta]) -> list[DataFile]:
    """Return the files of one bucket as the tree package uses them: with keys as order-preserving bytes."""
    return tree_files(store, entries_to_table([ManifestEntry(0, b"", 0, 0, file) for file in files]))


class Shapes:
    """Cache of the files of one bucket as the tree package uses them."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._known: dict[tuple[str, int], DataFile] = {}

    def of(self, files: Sequence[DataFileMeta]) -> list[DataFile]:
        """Return the tree files of ``files``, in their order."""
        new = [file for file in files if (file.file_name, file.level) not in self._known]
        if new:
            self._known.update(((shape.name, shape.level), shape) for shape in as_tree(self._store, new))
        return [self._known[file.file_name, file.level] for file in files]


def sections_of(store: TableStore, files: Sequence[DataFileMeta], shapes: Shapes | None = None) -> list[Section]:
    """Return the key-disjoint sections of ``files``, in key order.

    Args:
        store: the table.
        files: files of one bucket.
        shapes: cache of their tree files; None for a new one.
    """
    if not files:
        return []
    shapes = shapes or Shapes(store)
    by_name = {file.file_name: file for file in files}

    def metas(chosen: Sequence[DataFile]) -> Files:
        return tuple(by_name[file.name] for file in chosen)

    sections = []
    for runs in interval_partition(shapes.of(files)):
        inside = [file for run in runs for file in run.files]
        groups: list[list[DataFile]] = []
        for level in sorted({file.level for file in inside if file.level > 0}, reverse=True):
            members = sorted((file for file in inside if file.level == level), key=attrgetter("min_key", "max_key"))
            clean = all(file.max_key < following.min_key for file, following in pairwise(members))
            groups += [members] if clean else [[file] for file in members]  # a broken level is still merged in order
        level0 = newest_first(file for file in inside if file.level == 0)
        groups += [[file] for file in reversed(level0)]
        sections.append(Section(tuple(metas(run.files) for run in runs), tuple(map(metas, groups))))
    return sections
