"""Few files from many small tasks: a task with few rows per bucket leaves them to one writer beside the driver.

The data source cannot ask Spark for a shuffle, so each task would make a file in every bucket of its rows. Tasks whose
files would be small put their rows into the folder of the write instead. When all tasks have ended, one writer makes
the files for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import one_array
from lsm_core.spark.spark_tasks import TaskOutcome
from lsm_core.spark.spark_write import WriteJob
from lsm_core.write import RoutedRows
from lsm_core.write.bucket import groups as bucket_groups

# Several tasks may write one bucket: each counts in a range of its own, or two versions of a key could share a sequence
# number and their order would be left to chance (paimon 5872).
SEQUENCES_PER_TASK: Final = 1 << 32
_GATHERED_BYTES: Final = 8 << 20
"""A task with more rows (decoded bytes) writes them itself: one process could not keep up with many such tasks."""
_SMALL_FILE_BYTES: Final = 1 << 20
"""A task whose buckets get more rows (decoded bytes, on average) writes them itself."""
_PIECE_BYTES: Final = 32 << 20


def write_or_leave(
    job: WriteJob, batches: Iterable[pa.RecordBatch], task: int, kind_column: str | None
) -> tuple[tuple[bytes, ...], str]:
    """Write the rows of one task, or leave them to :func:`write_gathered` where its files would be small.

    Args:
        job: The write.
        batches: The rows of Spark partition `task`.
        task: The number of the Spark partition.
        kind_column: The column that holds row kinds, or None.

    Returns:
        The commit messages as bytes, and the name of the file with the rows that were left; one of them is empty.

    Raises:
        DredgeError: As `WriteJob.write` and `WriteJob.routed`.
    """
    held: list[pa.RecordBatch] = []
    rows = iter(batches)
    size = 0
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size > _GATHERED_BYTES:
            break
    routed = job.routed(chain(held, rows), task, kind_column)
    if size <= _GATHERED_BYTES:
        groups = [group for _, group in routed]
        if not groups:
            return (), ""
        if size < _SMALL_FILE_BYTES * len(groups):
            assert job.folder is not None
            return (), job.folder.put([joined_groups(groups)])
        return tuple(job.write(iter(groups), task, sequence_offset=task * SEQUENCES_PER_TASK)), ""
    return tuple(job.write((group for _, group in routed), task, sequence_offset=task * SEQUENCES_PER_TASK)), ""


def joined_groups(groups: Sequence[RoutedRows]) -> tuple[pa.Table, pa.Array | None]:
    """Return the rows of several buckets as one table, with their kinds (int8; None: all inserts)."""
    table = pa.concat_tables([group.rows for group in groups]).combine_chunks()
    if all(group.kinds is None for group in groups):
        return table, None
    kinds = [
        pa.array(np.zeros(group.rows.num_rows, np.int8)) if group.kinds is None else one_array(group.kinds)
        for group in groups
    ]
    return table, pa.concat_arrays(kinds)


def write_gathered(job: WriteJob, left: Sequence[tuple[int, str]], wrote: Sequence[int]) -> list[TaskOutcome]:
    """Write the rows that tasks left, in the order of the DataFrame.

    Args:
        job: The write, whose tasks have ended.
        left: For each task that left rows its number and the name of its file, in the order of tasks.
        wrote: The numbers of the tasks that wrote files themselves.

    Returns:
        An outcome per commit message.

    Raises:
        DredgeError: As `WriteJob.write`, and CorruptFile if a file of rows is missing. New files are then deleted.
    """
    outcomes: list[TaskOutcome] = []
    # Rows between those of two tasks that wrote files count between them, too.
    for run in runs_between(left, wrote):
        first = run[0][0]
        shared = bool(wrote) or len(run) < len(left)
        groups = _groups(job, [name for _, name in run], not shared)
        offset = first * SEQUENCES_PER_TASK if shared else None
        outcomes += [TaskOutcome(first, data) for data in job.write(groups, first, sequence_offset=offset)]
    return outcomes


def runs_between(left: Sequence[tuple[int, str]], wrote: Sequence[int]) -> list[list[tuple[int, str]]]:
    """Return the tasks that left rows in runs without a task between them that wrote files."""
    runs: list[list[tuple[int, str]]] = []
    numbers = np.sort(np.array(wrote, np.int64))
    before = -1
    for task, name in left:  # one per task
        place = int(np.searchsorted(numbers, task))
        if place != before:
            runs.append([])
            before = place
        runs[-1].append((task, name))
    return runs


def _groups(job: WriteJob, names: Sequence[str], alone: bool) -> Iterator[RoutedRows]:
    """The rows of files by bucket, in pieces; ``alone``: no task wrote files itself."""
    assert job.folder is not None
    assign = job.assign(alone=alone)
    for rows, kinds in _pieces(job.folder.rows(names)):
        for partition, bucket, positions in bucket_groups(job.store, rows, assign):
            at = pa.array(positions)
            yield RoutedRows(partition, bucket, rows.take(at), None if kinds is None else kinds.take(at))


def _pieces(rows: Iterable[tuple[pa.Table, pa.Array | None]]) -> Iterator[tuple[pa.Table, pa.Array | None]]:
    held: list[RoutedRows] = []
    size = 0
    for piece, kinds in rows:
        held.append(RoutedRows(b"", 0, piece, kinds))
        size += piece.nbytes
        if size >= _PIECE_BYTES:
            yield joined_groups(held)
            held, size = [], 0
    if held:
        yield joined_groups(held)
