"""Split: a part of a scan inside one bucket, and its serialised form for other processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

import pyarrow as pa

from lsm_core.commit import CommitMessage
from lsm_core.errors import CorruptFile
from lsm_core.format.manifest import DataFileMeta
from lsm_core.json_reader import parse_json
from lsm_core.metadata.indexes import DeletionFile
from lsm_core.read.inputs import Section

_VERSION: Final = 3


@dataclass(frozen=True)
class SplitFiles:
    """Files of a split.

    Attributes:
        files: the files.
        sections: key-disjoint sections; empty where rows need no merging.
        deletions: the deletion vector of each file; None where no row is deleted.
    """

    files: tuple[DataFileMeta, ...]
    sections: tuple[Section, ...] = ()
    deletions: tuple[DeletionFile | None, ...] = ()


class Split:
    """Part of a scan inside one bucket, readable independently; immutable.

    Attributes:
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        raw: whether the rows of ``files``, one file after the other, are the result. Otherwise the result is the merge
            of each of ``sections``, in key order, without deleted rows; ``files`` lists the same files once.
        raw_convertible: whether the split is raw by Paimon's stricter rule, which other engines use. A split of several
            key-disjoint files is raw here, but in Paimon only where the whole bucket needs no merging.
        file_count: number of files.
        size: bytes on disk.
        row_count: rows stored in the files: exact for raw splits without deletions, an upper bound otherwise.
    """

    __slots__ = ("_load", "_parts", "bucket", "file_count", "partition", "raw", "raw_convertible", "row_count", "size")

    def __init__(
        self,
        partition: bytes,
        bucket: int,
        files: Sequence[DataFileMeta],
        raw: bool,
        sections: Sequence[Section] = (),
        deletions: Sequence[DeletionFile | None] = (),
        raw_convertible: bool | None = None,
    ) -> None:
        self.partition, self.bucket, self.raw = partition, bucket, raw
        self.raw_convertible = (raw and len(files) == 1) if raw_convertible is None else raw_convertible
        vectors = tuple(deletions) or (None,) * len(files)
        self._parts: SplitFiles | None = SplitFiles(tuple(files), tuple(sections), vectors)
        self._load: Callable[[], SplitFiles] | None = None
        self.file_count = len(files)
        self.size = sum(file.file_size for file in files)
        self.row_count = sum(file.row_count for file in files)

    @classmethod
    def planned(
        cls,
        place: tuple[bytes, int],
        raw: tuple[bool, bool],
        totals: tuple[int, int, int],
        load: Callable[[], SplitFiles],
    ) -> Split:
        """Return a split of a plan whose file objects are created on demand: a plan may list a million files.

        Args:
            place: partition and bucket.
            raw: whether its rows need no merge, by Dredge's rule and by Paimon's.
            totals: number of files, bytes and rows.
            load: creates the file objects.
        """
        split = cls.__new__(cls)
        split.partition, split.bucket = place
        split.file_count, split.size, split.row_count = totals
        split.raw, split.raw_convertible = raw
        split._parts, split._load = None, load  # noqa: SLF001
        return split

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """The files, each once."""
        return self._load_parts().files

    @property
    def sections(self) -> tuple[Section, ...]:
        """Key-disjoint sections to merge; empty for raw splits."""
        return self._load_parts().sections

    @property
    def deletions(self) -> tuple[DeletionFile | None, ...]:
        """The deletion vector (index file, offset, length) of each file; None for a file without one."""
        return self._load_parts().deletions

    def _load_parts(self) -> SplitFiles:
        if self._parts is None:
            assert self._load is not None
            self._parts, self._load = self._load(), None
        return self._parts

    def to_bytes(self) -> bytes:
        """Return the split as bytes for a worker of another process (no pickle)."""
        parts = self._load_parts()
        places = {file.file_name: place for place, file in enumerate(parts.files)}
        shape = [
            [[[places[file.file_name] for file in part] for part in side] for side in (section.runs, section.groups)]
            for section in parts.sections
        ]
        vectors = [None if vector is None else astuple(vector) for vector in parts.deletions]
        kinds = {"raw": self.raw, "raw_convertible": self.raw_convertible}
        head = json.dumps({"version": _VERSION, **kinds, "sections": shape, "deletions": vectors}).encode()
        return head + b"\n" + CommitMessage(self.partition, self.bucket, 0, new_files=parts.files).to_bytes()

    @staticmethod
    def from_bytes(data: bytes) -> Split:
        """Return the split of :meth:`to_bytes`.

        Raises:
            CorruptFile: the bytes are not a split.
        """
        head, _, message_bytes = data.partition(b"\n")
        try:
            shape = parse_json(head)
            message = CommitMessage.from_bytes(message_bytes)
            files = message.new_files
            sections = [
                Section(*(tuple(tuple(files[i] for i in part) for part in side) for side in section))
                for section in shape["sections"]
            ]
            vectors = [None if fields is None else DeletionFile(*fields) for fields in shape["deletions"]]
            raw, raw_convertible = bool(shape["raw"]), bool(shape["raw_convertible"])
            return Split(message.partition, message.bucket, files, raw, sections, vectors, raw_convertible)
        except (KeyError, IndexError, TypeError, ValueError, pa.ArrowException) as error:
            raise CorruptFile("<split>", f"unreadable: {error!r}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        parts = self._load_parts()
        return Split, (
            self.partition,
            self.bucket,
            parts.files,
            self.raw,
            parts.sections,
            parts.deletions,
            self.raw_convertible,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Split):
            return NotImplemented
        mine, theirs = ((s.partition, s.bucket, s.raw, s.size, s.row_count) for s in (self, other))
        return mine == theirs and self._load_parts() == other._load_parts()

    def __hash__(self) -> int:
        return hash((self.partition, self.bucket, self.raw, self.size, self.row_count))

    def __repr__(self) -> str:
        return f"Split(bucket={self.bucket}, raw={self.raw}, files={self.file_count}, size={self.size})"
