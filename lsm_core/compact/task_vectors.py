"""Deletion vectors of a compaction task: deleted rows of its inputs, rows that it supersedes, and new index files.

When a key leaves level 0, the compaction marks the key's older rows above the output level as deleted (merge-on-write).

Source: ``LookupChangelogMergeFunctionWrapper`` with a ``BucketedDvMaintainer``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

import pyarrow as pa

from lsm_core.compact.task import BucketTask
from lsm_core.files.vector_writer import VectorChange, change_vectors
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.manifest import DataFileMeta
from lsm_core.merge import KeySpec
from lsm_core.metadata.indexes import read_vector
from lsm_core.metadata.store import TableStore
from lsm_core.read.key_range import KeyBounds
from lsm_core.read.lookup import RowsAbove, SortedKeys
from lsm_core.read.merge_read import BucketMerge, BucketSource, Shapes, sections_of
from lsm_core.read.prune import expiry_of, living_at


class TaskVectors:
    """Deletion vectors of a task's files at the task's base snapshot; each vector is read once, when it is needed."""

    def __init__(self, store: TableStore, task: BucketTask) -> None:
        """Find the deletion vectors of the task's files.

        Raises:
            CorruptFile: an index manifest has two vectors of one file.
        """
        self._store, self._task = store, task
        self.places = task.deletions(store)
        self._read: dict[str, DeletionVector] = {}

    def vector(self, file: DataFileMeta) -> DeletionVector | None:
        """Return the deletion vector of ``file``, or None if the file has none.

        Raises:
            CorruptFile: the index file is damaged; the error names it.
        """
        place = self.places.get(file.file_name)
        if place is None:
            return None
        if file.file_name not in self._read:
            self._read[file.file_name] = read_vector(self._store, place, file.row_count)
        return self._read[file.file_name]

    def count_living(self, files: Iterable[DataFileMeta]) -> int:
        """Return the number of rows of ``files`` that no vector marks."""
        vectors = ((file.row_count, self.vector(file)) for file in files)
        return sum(rows - (0 if vector is None else vector.cardinality) for rows, vector in vectors)

    def change(
        self,
        rewritten: Iterable[DataFileMeta],
        new: Mapping[str, DeletionVector] | None = None,
        moved: Mapping[str, DeletionVector] | None = None,
    ) -> VectorChange:
        """Write the bucket's new index files: without rewritten files, and with additional deleted rows.

        Vectors of files that do not exist at the base snapshot are removed too. Raises the errors of `change_vectors`.

        Args:
            rewritten: files that the compaction replaces.
            new: deleted rows to add, by name of a file that is not rewritten; None for none.
            moved: deleted rows of the files that the compaction wrote, by name; None for none.
        """
        task = self._task
        by_name = {file.file_name: file for file in task.files}
        changed: dict[str, DeletionVector | None] = {file.file_name: None for file in rewritten}
        present = by_name.keys() - changed.keys()
        for name, vector in (new or {}).items():
            old = self.vector(by_name[name])
            changed[name] = vector if old is None else DeletionVector.union([old, vector])
        changed |= moved or {}
        return change_vectors(self._store, task.partition, task.bucket, task.index_files, changed, present)


def superseded_rows(
    store: TableStore,
    task: BucketTask,
    raised: Sequence[DataFileMeta],
    marks: TaskVectors,
    shapes: Shapes,
    within: KeyBounds | None = None,
    share: int = 1,
) -> dict[str, DeletionVector]:
    """Return the rows above the output level that the level-0 files ``raised`` supersede.

    Rows that are already marked are left out. One pass over the key columns of ``raised`` in key order, with one
    semi-join for each window, searches the levels above. Deletes supersede rows too; expired rows do not.

    Args:
        store: the table.
        task: the task.
        raised: files that leave level 0.
        marks: deletion vectors of the task's files.
        shapes: cache of the key ranges of files.
        within: range of keys; None for all.
        share: number of tasks (key ranges) that share one merge budget.

    Returns:
        Deletion vectors by file.

    Raises:
        CorruptFile: a file is damaged; the error names it.
    """
    new = [file for file in raised if file.level == 0 and task.output_level > 0]
    above = [file for file in task.files if file.level > task.output_level]
    if not new or not above:
        return {}
    low = min(shape.min_key for shape in shapes.of(new))
    high = max(shape.max_key for shape in shapes.of(new))
    above = [
        file
        for file, shape in zip(above, shapes.of(above), strict=True)
        if shape.min_key <= high and low <= shape.max_key
    ]
    if not above:
        return {}
    keys = store.schema.trimmed_primary_keys
    expiry = expiry_of(store)
    columns = keys if expiry is None else tuple(dict.fromkeys((*keys, expiry.field)))
    opener = None if within is None else within.open
    source = BucketSource(store, task.partition, task.bucket, living=living_at(store, task.now_ms), opener=opener)
    merge = BucketMerge(source, columns, drop_delete=False, exact=True, budget=store.options.merge_budget // share)
    spec = KeySpec.of(store.schema, table=store.name)
    vectors: dict[str, list[DeletionVector]] = {}
    rows = RowsAbove(store, task.partition, task.bucket, above, pa.schema([]), deletions=marks.places)
    with rows:
        for section in sections_of(store, new, shapes):
            with closing(merge.section(section)) as windows:
                for window in windows:
                    window_keys = SortedKeys(spec.keys(window), window.select(list(keys)))
                    for hits in rows.find(window_keys):
                        vectors.setdefault(hits.file.file_name, []).append(DeletionVector.of(hits.positions))
    return {name: DeletionVector.union(parts) for name, parts in vectors.items()}


def join_vectors(*vectors_by_file: Mapping[str, DeletionVector]) -> dict[str, DeletionVector]:
    """Return the union of the deletion vectors of all ``vectors_by_file``, by file name."""
    names = dict.fromkeys(name for vectors_of_part in vectors_by_file for name in vectors_of_part)
    return {
        name: DeletionVector.union(
            [vectors_of_part[name] for vectors_of_part in vectors_by_file if name in vectors_of_part]
        )
        for name in names
    }
