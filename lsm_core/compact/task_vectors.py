"""Deletion vectors of one task's files: the rows that a rewrite leaves out, and the new index files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lsm_core.compact.task import BucketTask
from lsm_core.files.vector_writer import VectorChange, change_vectors
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.metadata.indexes import read_vector
from lsm_core.metadata.store import TableStore


class TaskVectors:
    """Vectors of the files of a task at its base snapshot; each is read once, on demand."""

    def __init__(self, store: TableStore, task: BucketTask) -> None:
        """Find the vectors of the task's files.

        Raises:
            CorruptFile: an index manifest has two vectors of one file.
        """
        self._store, self._task = store, task
        self.places = task.deletions(store)
        self._read: dict[str, DeletionVector] = {}

    def vector(self, file: DataFileMeta) -> DeletionVector | None:
        """Return the deleted rows of ``file``, or None without any.

        Raises:
            CorruptFile: the index file is damaged; the error names it.
        """
        place = self.places.get(file.file_name)
        if place is None:
            return None
        if file.file_name not in self._read:
            self._read[file.file_name] = read_vector(self._store, place, file.row_count)
        return self._read[file.file_name]

    def living(self, files: Iterable[DataFileMeta]) -> int:
        """Return the number of rows of ``files`` that no vector marks."""
        vectors = ((file.row_count, self.vector(file)) for file in files)
        return sum(rows - (0 if vector is None else vector.cardinality) for rows, vector in vectors)

    def change(
        self, rewritten: Iterable[DataFileMeta], new: Mapping[str, DeletionVector] | None = None
    ) -> VectorChange:
        """Write the index files that apply once files are rewritten, and other files have more deleted rows.

        Vectors of files that do not exist at the base snapshot are removed too. Errors are those of `change_vectors`.

        Args:
            rewritten: files that are replaced.
            new: rows to add to the vectors of other files, by file name; None for none.
        """
        task = self._task
        by_name = {file.file_name: file for file in task.files}
        changed: dict[str, DeletionVector | None] = {file.file_name: None for file in rewritten}
        present = by_name.keys() - changed.keys()
        for name, vector in (new or {}).items():
            old = self.vector(by_name[name])
            changed[name] = vector if old is None else DeletionVector.union([old, vector])
        return change_vectors(self._store, task.partition, task.bucket, task.index_files, changed, present)
