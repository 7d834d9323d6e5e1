"""Cut a scan into splits: files that go straight to the file reader, and sections that have to be merged (Java `MergeTreeSplitGenerator`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from lsm_core.commit import CommitMessage
from lsm_core.errors import CorruptFile
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.metadata.store import TableStore
from lsm_core.read.inputs import Section, sections_of

T = TypeVar("T")


@dataclass(frozen=True)
class Split:
    """A share of a scan inside one bucket, readable on its own.

    ``raw``: the rows of ``files``, one file after the other, are the answer. Otherwise the answer is the merge of each
    of ``sections`` (in key order) without deleted rows; ``files`` then lists the same files once.
    """

    partition: bytes
    bucket: int
    files: tuple[DataFileMeta, ...]
    raw: bool
    sections: tuple[Section, ...] = ()

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.file_size for file in self.files)

    @property
    def row_count(self) -> int:
        """Rows stored in the files: exact for raw splits, an upper bound otherwise."""
        return sum(file.row_count for file in self.files)

    def to_bytes(self) -> bytes:
        """Bytes for a worker of another process (no pickle)."""
        places = {file.file_name: place for place, file in enumerate(self.files)}
        shape = [
            [[[places[file.file_name] for file in part] for part in side] for side in (section.runs, section.groups)]
            for section in self.sections
        ]
        head = json.dumps({"version": 1, "raw": self.raw, "sections": shape}).encode()
        return head + b"\n" + CommitMessage(self.partition, self.bucket, 0, new_files=self.files).to_bytes()

    @staticmethod
    def from_bytes(data: bytes) -> Split:
        """Inverse of :meth:`to_bytes`; raises :class:`CorruptFile` on anything else."""
        head, _, rest = data.partition(b"\n")
        try:
            shape = json.loads(head)
            message = CommitMessage.from_bytes(rest)
            files = message.new_files
            sections = tuple(
                Section(*(tuple(tuple(files[i] for i in part) for part in side) for side in section))
                for section in shape["sections"]
            )
            return Split(message.partition, message.bucket, files, bool(shape["raw"]), sections)
        except (KeyError, IndexError, TypeError, ValueError, pa.ArrowException) as error:
            raise CorruptFile("<split>", f"unreadable: {error!r}") from error


def append_splits(store: TableStore, partition: bytes, bucket: int, files: Sequence[DataFileMeta]) -> Iterator[Split]:
    """Splits of one bucket of an append table: its files in the order in which they were written."""
    ordered = sorted(files, key=lambda f: (f.min_sequence_number, f.creation_time_ms or 0, f.file_name))
    for packed in pack(ordered, lambda file: file.file_size, store):
        yield Split(partition, bucket, tuple(packed), raw=True)


def key_value_splits(
    store: TableStore, partition: bytes, bucket: int, files: Sequence[DataFileMeta]
) -> Iterator[Split]:
    """Splits of one bucket of a primary-key table."""
    if len({file.level for file in files}) == 1 and all(_is_plain(file) and file.level > 0 for file in files):
        for packed in pack(list(files), lambda file: file.file_size, store):
            yield Split(partition, bucket, tuple(packed), raw=True)
        return
    for sections in pack(sections_of(store, files), lambda section: section.size, store):
        members = tuple(file for section in sections for file in section.files)
        if all(is_raw(section) for section in sections):
            yield Split(partition, bucket, members, raw=True)
        else:
            yield Split(partition, bucket, members, raw=False, sections=tuple(sections))


def is_raw(section: Section) -> bool:
    """Whether the rows of a section need no merging: one run, and none of its rows is a delete."""
    return len(section.runs) == 1 and all(_is_plain(file) for file in section.files)


def pack(items: Sequence[T], size: Callable[[T], int], store: TableStore) -> Iterator[list[T]]:
    """Neighbours together up to `source.split.target-size`, every item counting at least `source.split.open-file-cost`."""
    target, cost = store.options.source_split_target, store.options.open_file_cost
    current: list[T] = []
    total = 0
    for item in items:
        weight = max(size(item), cost)
        if current and total + weight > target:
            yield current
            current, total = [], 0
        current.append(item)
        total += weight
    if current:
        yield current


def _is_plain(file: DataFileMeta) -> bool:
    """No deletes for certain: an unknown count (null) may hide some."""
    return file.delete_row_count == 0
