"""From the files of a bucket to merge inputs: key-disjoint sections, their ordered streams, and who is older than whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from lsm_core.format.file_meta import DataFileMeta, ManifestEntry, entries_to_table
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import tree_files
from lsm_core.tree import DataFile, interval_partition, newest_first

Files = tuple[DataFileMeta, ...]


@dataclass(frozen=True)
class Section:
    """Files that overlap in key range, and nothing else of their bucket does with them.

    ``runs``: the fewest streams of key-ordered files; a run may mix levels. ``groups``: the same files by age, oldest
    first: each level > 0 one group, the highest first, then each level-0 file from the oldest on; a group too is in key order.
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
        """Whether no two groups share a sequence number, going by their ranges: then a group's range orders its rows."""
        return all(before[1] < after[0] for before, after in pairwise(sorted(map(sequence_range, self.groups))))


def sequence_range(files: Files) -> tuple[int, int]:
    """Smallest and largest sequence number of ``files``."""
    return min(f.min_sequence_number for f in files), max(f.max_sequence_number for f in files)


def as_tree(store: TableStore, files: Sequence[DataFileMeta]) -> list[DataFile]:
    """Files of one bucket as the tree room sees them: keys as order-preserving bytes."""
    return tree_files(store, entries_to_table([ManifestEntry(0, b"", 0, 0, file) for file in files]))


class Shapes:
    """Files of one bucket as the tree room sees them, each worked out once."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._known: dict[tuple[str, int], DataFile] = {}

    def of(self, files: Sequence[DataFileMeta]) -> list[DataFile]:
        """The shapes of ``files``, in their order."""
        new = [file for file in files if (file.file_name, file.level) not in self._known]
        if new:
            self._known.update(((shape.name, shape.level), shape) for shape in as_tree(self._store, new))
        return [self._known[file.file_name, file.level] for file in files]


def sections_of(store: TableStore, files: Sequence[DataFileMeta], shapes: Shapes | None = None) -> list[Section]:
    """Key-disjoint sections of ``files``, in key order."""
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
            clean = all(one.max_key < following.min_key for one, following in pairwise(members))
            groups += [members] if clean else [[file] for file in members]  # a broken level is still merged in order
        level0 = newest_first(file for file in inside if file.level == 0)
        groups += [[file] for file in reversed(level0)]
        sections.append(Section(tuple(metas(run.files) for run in runs), tuple(map(metas, groups))))
    return sections
