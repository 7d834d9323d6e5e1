"""Rewrite of the files of a partition in curve order."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa

from lsm_core.compact.clustering.ranges import plan_layout, range_count
from lsm_core.compact.clustering.sorting import PARTS, RangeDistributor, batch_rows, sort_batches
from lsm_core.compact.pipeline import ahead
from lsm_core.compact.rewrite import RewriteResult
from lsm_core.compact.row_digests import Content, content_of
from lsm_core.compact.task import SortTask
from lsm_core.compact.task_vectors import TaskVectors
from lsm_core.files import AppendFileWriter, SpillSpace, open_append
from lsm_core.format.manifest import SOURCE_COMPACT, DataFileMeta
from lsm_core.format.schema import append_arrow_schema
from lsm_core.metadata.store import TableStore
from lsm_core.read.merge_read import decoded_row_bytes

_MOST_RANGE_BYTES: Final = 1 << 30
"""Largest decoded bytes of a range: its text column becomes one Arrow array, which is limited to 2 GiB."""


def sort_files(store: TableStore, task: SortTask, names: Sequence[str], *, pipelined: bool = False) -> RewriteResult:
    """Rewrite files as rolling files, sorted by the task's curve; on failure no output file is left.

    Args:
        store: the table.
        task: the task.
        names: names of the files to rewrite.
        pipelined: use two threads: first to decode and to distribute rows, then to sort and to encode.

    Returns:
        The files read and written; ``content`` has the number and the digest of the rows read.

    Raises:
        CorruptFile: an input is missing or damaged; the error names it.
        StorageFull: the disk is full.
    """
    by_name = {file.file_name: file for file in task.files}
    files = tuple(by_name[name] for name in names)
    read = _ReadContent()
    source = _sort_rows(store, task, files, read, pipelined)
    after = write_sorted(store, task, first_sequence(files), ahead(source) if pipelined else source)
    return RewriteResult(files, after, read.content, {})


def first_sequence(files: Sequence[DataFileMeta]) -> int:
    """Return the first sequence number of the files that replace ``files``."""
    return min((file.min_sequence_number for file in files), default=0)


def write_sorted(
    store: TableStore, task: SortTask, sequence: int, batches: Iterable[pa.RecordBatch]
) -> tuple[DataFileMeta, ...]:
    """Write sorted ``batches`` to rolling files of the task's output level; on failure no file is left.

    Args:
        store: the table.
        task: the task.
        sequence: first sequence number.
        batches: the rows.
    """
    writer = AppendFileWriter(
        store, task.partition, task.bucket, task.total_buckets, file_source=SOURCE_COMPACT, first_sequence=sequence
    )
    try:
        with closing(batches):  # type: ignore[type-var]
            for batch in batches:
                writer.write(batch)
                del batch
        return tuple(file.upgrade(task.output_level) for file in writer.close())
    except BaseException:
        writer.abort()
        raise


def range_bytes(store: TableStore) -> int:
    """Return the maximum decoded bytes of a range that is sorted in memory."""
    return min(store.options.merge_budget // PARTS, _MOST_RANGE_BYTES)


def estimate_ranges(store: TableStore, task: SortTask, files: Sequence[DataFileMeta]) -> tuple[int, float]:
    """Return the number of ranges for sorting ``files``, and the estimated bytes of a decoded row.

    The number has a safety margin. A range that is still larger than the budget is sorted in runs, which are merged.
    """
    row_bytes = decoded_row_bytes(store, task.partition, task.bucket, files, store.schema.field_names)
    return range_count(sum(file.row_count for file in files), row_bytes, range_bytes(store) * 2 // 3), row_bytes


class _ReadContent:
    """Number and digest of the rows read so far."""

    content = Content()


def _sort_rows(
    store: TableStore, task: SortTask, files: Sequence[DataFileMeta], read: _ReadContent, pipelined: bool
) -> Generator[pa.RecordBatch, None, None]:
    """Yield all rows of ``files`` in sorted order; all rows are read before the first batch is yielded."""
    budget, schema = range_bytes(store), append_arrow_schema(store.schema)
    ranges, row_bytes = estimate_ranges(store, task, files)
    layout = plan_layout(store, task, files, ranges)
    with SpillSpace.of(store.options) as space:
        spread = RangeDistributor(layout.curve, layout.cuts, schema, budget, space)
        source = _read_rows(store, task, files, batch_rows(row_bytes, budget))
        with closing(ahead(source) if pipelined else source) as batches:  # type: ignore[type-var]
            for batch in batches:
                read.content = read.content.plus(content_of(batch, store.schema))
                spread.add(batch)
        for place in range(layout.cuts.ranges):
            yield from sort_batches(spread.take(place), layout.curve, schema, budget, space)


def _read_rows(
    store: TableStore, task: SortTask, files: Sequence[DataFileMeta], rows: int
) -> Generator[pa.RecordBatch, None, None]:
    marks = TaskVectors(store, task)
    for file in files:
        batches = open_append(store, task.partition, task.bucket, file, batch_rows=rows, deleted=marks.vector(file))
        with closing(batches):  # type: ignore[type-var]
            yield from batches
