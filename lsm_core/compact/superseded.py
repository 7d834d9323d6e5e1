"""Which rows above its output a compaction supersedes: those of the keys that come up from level 0 (merge-on-write, Java
`LookupChangelogMergeFunctionWrapper` with a `BucketedDvMaintainer`)."""

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
    """By file above the task's output level, the rows that are no answer any more once the level-0 files ``raised`` are up there.

    Rows that are marked already are left out. One pass over the key columns of ``raised`` (of their keys ``within``) in key order, a
    semi-join a window with the levels above; deletes supersede as other rows do, rows whose lifetime is over do not. ``share``: so
    many pieces share one merge budget. Raises :class:`CorruptFile` naming a damaged file.
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
    found: dict[str, list[DeletionVector]] = {}
    rows = RowsAbove(store, task.partition, task.bucket, above, pa.schema([]), deletions=marks.places)
    with rows:
        for section in sections_of(store, new, shapes):
            with closing(merging.section(section)) as windows:
                for window in windows:
                    asked = SortedKeys(spec.keys(window), window.select(list(keys)))
                    for hits in rows.find(asked):
                        found.setdefault(hits.file.file_name, []).append(DeletionVector.of(hits.positions))
    return {name: DeletionVector.union(parts) for name, parts in found.items()}


def joined_vectors(*found: Mapping[str, DeletionVector]) -> dict[str, DeletionVector]:
    """By file, the rows that any of ``found`` marks."""
    names = dict.fromkeys(name for vectors in found for name in vectors)
    return {name: DeletionVector.union([vectors[name] for vectors in found if name in vectors]) for name in names}


__all__ = ["joined_vectors", "superseded_rows"]
