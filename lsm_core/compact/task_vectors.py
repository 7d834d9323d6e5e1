"""The deletion vectors of one task's files: which rows a rewrite leaves out, and the index files that follow it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lsm_core.compact.task import BucketTask
from lsm_core.files.vector_writer import VectorChange, change_vectors
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.metadata.indexes import read_vector
from lsm_core.metadata.store import TableStore


class TaskVectors:
    """Vectors of the files of a task as they are at its base snapshot; each is read once, when it is asked for."""

    def __init__(self, store: TableStore, task: BucketTask) -> None:
        """Raises :class:`CorruptFile` for an index manifest with two vectors of one file."""
        self._store, self._task = store, task
        self.places = task.deletions(store)
        self._read: dict[str, DeletionVector] = {}

    def vector(self, file: DataFileMeta) -> DeletionVector | None:
        """The rows of ``file`` that are gone; None where none is. Raises :class:`CorruptFile` naming the index file."""
        place = self.places.get(file.file_name)
        if place is None:
            return None
        if file.file_name not in self._read:
            self._read[file.file_name] = read_vector(self._store, place, file.row_count)
        return self._read[file.file_name]

    def living(self, files: Iterable[DataFileMeta]) -> int:
        """Rows of ``files`` that no vector marks."""
        vectors = ((file.row_count, self.vector(file)) for file in files)
        return sum(rows - (0 if vector is None else vector.cardinality) for rows, vector in vectors)

    def change(self, gone: Iterable[DataFileMeta], new: Mapping[str, DeletionVector] | None = None) -> VectorChange:
        """Write the index files that follow when ``gone`` are rewritten, and other files have ``new`` vectors.

        ``new`` marks come to those that a file has. Vectors of files that are not there at the base snapshot go too. Raises what
        `change_vectors` raises.
        """
        task = self._task
        by_name = {file.file_name: file for file in task.files}
        changed: dict[str, DeletionVector | None] = {file.file_name: None for file in gone}
        present = by_name.keys() - changed.keys()
        for name, vector in (new or {}).items():
            old = self.vector(by_name[name])
            changed[name] = vector if old is None else DeletionVector.union([old, vector])
        return change_vectors(self._store, task.partition, task.bucket, task.index_files, changed, present)


__all__ = ["TaskVectors"]
