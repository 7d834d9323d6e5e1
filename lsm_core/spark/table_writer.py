"""Writer of the data source `dredge`: tasks write their own rows, and the driver publishes one snapshot.

A data source cannot ask Spark for a shuffle, so each task would make a file in every bucket of its rows. A task whose
files would be small puts its rows into the folder of the write instead. When all tasks have ended, one writer in a
process beside the driver makes the data files from these rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lsm_core.arrays import one_array
from lsm_core.commit import abort, discard_on_failure
from lsm_core.errors import DredgeError, InvalidOption, UnsupportedFeature
from lsm_core.metadata.store import TableStore
from lsm_core.spark.overwrite_scope import OVERWRITE_MODE, overwrite_scope
from lsm_core.spark.spark_tasks import (
    IN_CATALOG,
    OfOneRelease,
    TaskOutcome,
    decode,
    encode,
    raise_first,
    raises_typed_errors,
)
from lsm_core.spark.spark_write import SEQUENCES_PER_TASK, WriteJob, task_number
from lsm_core.write import RoutedRows
from lsm_core.write.bucket import groups as bucket_groups

_GATHERED_BYTES: Final = 8 << 20
"""A task with more rows (decoded bytes) writes them itself: one process could not keep up with many such tasks."""
_SMALL_FILE_BYTES: Final = 1 << 20
"""A task whose buckets get more rows (decoded bytes, on average) writes them itself."""
_PIECE_BYTES: Final = 32 << 20


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """Commit messages of one task as versioned bytes, or the ``failure`` that ended it and deleted its files."""

    messages: tuple[bytes, ...] = ()
    staged: str = ""
    """File with the task's rows for the single writer (`WriteFolder`); "" if the task wrote data files itself."""
    failure: bytes = b""
    overwrite_mode: str = ""
    """`spark.sql.sources.partitionOverwriteMode` of the session, which only tasks can read."""


class NoWriter(DataSourceArrowWriter):
    """Writer that discards all rows, for an existing table in mode `ignore`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Read and discard the rows of one Spark partition, which Spark sends in any case."""
        deque(iterator, maxlen=0)
        return TaskMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing."""


class TableWriter(OfOneRelease, DataSourceArrowWriter):
    """Writer of a DataFrame as one commit; with ``overwrite`` the commit replaces the whole table or some partitions.

    Row order between tasks is the order of the DataFrame's partitions. Tasks with small files leave their rows to one
    writer (`write_gathered`). `write_table`, which shuffles by bucket first, makes fewer files of large frames.

    If keys may move between partitions, tasks only check their rows, and one process writes all rows after the tasks
    have ended.
    """

    def __init__(
        self,
        store: TableStore,
        overwrite: bool,
        overwrite_mode: str | None = None,
        numbered: tuple[str, int] | None = None,
        kind_column: str | None = None,
        replace_where: str | None = None,
    ) -> None:
        """Plan the write.

        Args:
            store: The table.
            overwrite: Whether the commit replaces rows.
            overwrite_mode: "static" or "dynamic", in place of the session's mode.
            numbered: User and number of a commit that must happen once.
            kind_column: Column of row kinds.
            replace_where: Condition that chooses the partitions to replace.

        Raises:
            InvalidOption: An option is invalid.
            UnsupportedFeature: The table cannot be written.
        """
        if overwrite_mode is not None and overwrite_mode.lower() not in {"static", "dynamic"}:
            raise InvalidOption("partitionOverwriteMode", overwrite_mode, "static or dynamic", store.name)
        self._job, self._overwrite_mode = WriteJob.plan(store, overwrite, numbered=numbered), overwrite_mode
        self._kind_column, self._replace_where = kind_column, replace_where
        self._is_there, self._stages = self._job.folder is None, self._job.keys_move
        if self._stages:
            self._job = replace(self._job, assigners=1)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one Spark partition.

        An error is passed to `commit`. If it were raised here, Spark would kill the other tasks and their files would
        remain.
        """
        task, context = task_number(), TaskContext.get()
        # A query inside another, but for those of streams: Spark writes for a CREATE TABLE AS SELECT (`saveAsTable`).
        own, outer = (context.getLocalProperty(f"spark.sql.execution.{key}") for key in ("id", "root.id"))
        if own != outer and context.getLocalProperty("sql.streaming.queryId") is None:
            return TaskMessage(failure=encode(UnsupportedFeature(IN_CATALOG, self._job.store.name)))
        if self._is_there:
            deque(iterator, maxlen=0)  # Spark sends the rows all the same
            return TaskMessage()
        messages: tuple[bytes, ...] = ()
        staged = ""
        try:
            if self._stages:
                assert self._job.folder is not None
                staged = self._job.folder.put(
                    (rows, kinds) for _, rows, kinds in self._job.check_rows(iterator, task, self._kind_column)
                )
            else:
                messages, staged = write_or_leave(self._job, iterator, task, self._kind_column)
        except Exception as error:  # noqa: BLE001  (raised by commit)
            return TaskMessage(failure=encode(error))
        return TaskMessage(messages, staged, overwrite_mode=context.getLocalProperty(OVERWRITE_MODE) or "")

    @raises_typed_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the files of all tasks as one snapshot, unless this commit (user and number) was made before.

        Raises:
            DredgeError: The error of the first task that failed; the files of all tasks are deleted.
            CommitConflict: Another commit changed the same files; the files of all tasks are deleted.
            InvalidData: A row is outside the overwritten partitions; the files of all tasks are deleted.
            CommitUnknown: The outcome of the commit is not known; the files are kept.
        """
        if self._is_there:
            return
        of_session = max(
            (message.overwrite_mode for message in messages if isinstance(message, TaskMessage)), default=""
        )
        # Only what a session sets reaches the tasks. Else it is Spark's own default, as in Paimon's connector.
        scope = overwrite_scope(self._job.store, self._overwrite_mode, of_session or "static")
        outcomes = self._outcomes(messages)
        outcomes = self._moved(messages, outcomes) if self._stages else self._gathered(messages, outcomes)
        self._job.commit(outcomes, self._replace_where or scope)

    def _moved(
        self, messages: Sequence[WriterCommitMessage | None], outcomes: Sequence[TaskOutcome]
    ) -> list[TaskOutcome]:
        """Write the rows that all tasks stored in files (staged rows) to the buckets of their keys.

        Returns the commit messages of this write, as outcomes of one task. ``outcomes`` holds the errors of the tasks.

        Raises the error of the first task that failed, StorageFull, CorruptFile.
        """
        assert self._job.folder is not None
        try:
            raise_first(outcomes)
            names = [message.staged for message in messages if isinstance(message, TaskMessage)]
            staged = ((place, RoutedRows(b"", 0, *piece)) for place, piece in enumerate(self._job.folder.rows(names)))
            return [
                TaskOutcome(0, data) for data in self._job.write((rows for _, rows in self._job.moved(staged)), task=0)
            ]
        except BaseException:
            self._job.end(failed=True)
            raise

    def _gathered(
        self, messages: Sequence[WriterCommitMessage | None], outcomes: Sequence[TaskOutcome]
    ) -> list[TaskOutcome]:
        """Write the rows that tasks stored in files (staged rows) because their data files would be small.

        Returns ``outcomes`` (those of the tasks) and the outcomes of this write.

        Raises the error of the first task that failed, StorageFull, CorruptFile.
        """
        task_messages = {task: message for task, message in enumerate(messages) if isinstance(message, TaskMessage)}
        left = [(task, message.staged) for task, message in task_messages.items() if message.staged]
        if not left:
            return list(outcomes)
        commit_messages = self._job.messages(outcomes)
        try:
            with discard_on_failure(self._job.store, commit_messages):
                raise_first(outcomes)
                return [
                    *outcomes,
                    *write_gathered(self._job, left, [task for task in task_messages if task_messages[task].messages]),
                ]
        except BaseException:
            self._job.end(failed=True)
            raise

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the files of all tasks of a write in which a task ended without a message.

        Spark also calls this method after a failed commit, with the messages of all tasks. Nothing is deleted then,
        because the commit has deleted its files if this was safe.
        """
        if self._is_there or all(message is not None for message in messages):
            return
        with suppress(DredgeError, OSError):
            abort(self._job.store, self._job.messages(self._outcomes(messages)))
        self._job.end(failed=True)

    def _outcomes(self, messages: list[WriterCommitMessage | None]) -> list[TaskOutcome]:
        """Return the outcomes of the tasks: one per commit message or failure."""
        title, outcomes = f"writing table {self._job.store.name}", []
        for task, message in enumerate(messages):
            if isinstance(message, TaskMessage):
                outcomes += [TaskOutcome(task, data) for data in message.messages]
                outcomes += [TaskOutcome(task, error=decode(message.failure, title))] if message.failure else []
        return outcomes


# -- few files from many small tasks -----------------------------------------------------------------------------------


def write_or_leave(
    job: WriteJob, batches: Iterable[pa.RecordBatch], task: int, kind_column: str | None
) -> tuple[tuple[bytes, ...], str]:
    """Write the rows of one task to data files, or store them for :func:`write_gathered`.

    Rows are stored if their files would be small, and in a table with `sequence.snapshot-ordering`.

    Args:
        job: The write.
        batches: The rows of Spark partition `task`.
        task: The number of the Spark partition.
        kind_column: The column that holds row kinds, or None.

    Returns:
        The commit messages as bytes, and the name of the file with the stored rows; one of them is empty.

    Raises:
        DredgeError: A row cannot be written, the schema of the table changed, or the storage is full.
    """
    if job.store.options.snapshot_ordering:
        # All rows of a commit have one sequence number there, so that only one writer of a bucket can order them.
        assert job.folder is not None
        staged = job.folder.put((rows, kinds) for _, rows, kinds in job.check_rows(iter(batches), task, kind_column))
        return (), staged
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
            return (), job.folder.put([join_groups(groups)])
        return tuple(job.write(iter(groups), task, sequence_offset=task * SEQUENCES_PER_TASK)), ""
    return tuple(job.write((group for _, group in routed), task, sequence_offset=task * SEQUENCES_PER_TASK)), ""


def join_groups(groups: Sequence[RoutedRows]) -> tuple[pa.Table, pa.Array | None]:
    """Return (rows of several buckets as one table, int8 row kinds or None for all inserts)."""
    table = pa.concat_tables([group.rows for group in groups]).combine_chunks()
    if all(group.kinds is None for group in groups):
        return table, None
    kinds = [
        pa.array(np.zeros(group.rows.num_rows, np.int8)) if group.kinds is None else one_array(group.kinds)
        for group in groups
    ]
    return table, pa.concat_arrays(kinds)


def write_gathered(job: WriteJob, left: Sequence[tuple[int, str]], wrote: Sequence[int]) -> list[TaskOutcome]:
    """Write the rows that tasks stored in files of the write's folder, in the order of the DataFrame.

    Args:
        job: The write, whose tasks have ended.
        left: Number and file name of each task that stored rows, in the order of tasks.
        wrote: The numbers of the tasks that wrote files themselves.

    Returns:
        An outcome per commit message.

    Raises:
        CorruptFile: A file of stored rows is missing or damaged; new data files are then deleted.
        DredgeError: The schema of the table changed, or the storage is full; new data files are then deleted.
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
    """Group the tasks that stored their rows, so that no task between two tasks of a group wrote data files.

    Args:
        left: number of each task that stored rows, ascending, with the name of the file of these rows.
        wrote: numbers of the tasks that wrote data files.
    """
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
    """Yield the rows of staged files by bucket.

    Args:
        job: The write, with the folder of the staged files.
        names: Names of the staged files.
        alone: Whether no other process writes rows of this job.
    """
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
            yield join_groups(held)
            held, size = [], 0
    if held:
        yield join_groups(held)
