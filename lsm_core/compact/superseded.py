"""Rows above its output that a compaction supersedes: those of the keys that leave level 0 (merge-on-write).

Source: ``LookupChangelogMergeFunctionWrapper`` with a ``BucketedDvMaintainer``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

import pyarrow as pa

from lsm_core.compact.task import BucketTask
from lsm_core.compact.task_vectors import TaskVectors
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.merge import KeySpec
from lsm_core.metadata.store import TableStore
from lsm_core.read.inputs import Shapes, sections_of
from lsm_core.read.key_range import KeyBounds
from lsm_core.read.lookup import RowsAbove, SortedKeys
from lsm_core.read.merge_read import Merging
from lsm_core.read.prune import expiry_of, living_at


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
        shapes: cache of the files' keys.
        within: range of keys; None for all.
        share: number of pieces that share one merge budget.

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
    merging = Merging(
        store,
        task.partition,
        task.bucket,
        columns,
        drop_delete=False,
        exact=True,
        living=living_at(store, task.now_ms),
        opener=None if within is None else within.open,
        budget=store.options.merge_budget // share,
    )
    spec = KeySpec.of(store.schema, table=store.name)
    vectors: dict[str, list[DeletionVector]] = {}
    rows = RowsAbove(store, task.partition, task.bucket, above, pa.schema([]), deletions=marks.places)
    with rows:
        for section in sections_of(store, new, shapes):
            with closing(merging.section(section)) as windows:
                for window in windows:
                    wanted = SortedKeys(spec.keys(window), window.select(list(keys)))
                    for hits in rows.find(wanted):
                        vectors.setdefault(hits.file.file_name, []).append(DeletionVector.of(hits.positions))
    return {name: DeletionVector.union(parts) for name, parts in vectors.items()}


def joined_vectors(*vectors_by_file: Mapping[str, DeletionVector]) -> dict[str, DeletionVector]:
    """Return by file the rows that any of ``vectors_by_file`` marks."""
    names = dict.fromkeys(name for vectors_of_part in vectors_by_file for name in vectors_of_part)
    return {
        name: DeletionVector.union(
            [vectors_of_part[name] for vectors_of_part in vectors_by_file if name in vectors_of_part]
        )
        for name in names
    }
