"""Compaction inside a writer: the LSM tree of each bucket, with at most one running compaction per bucket.

The writer's thread chooses units and takes results; a background thread compacts. Nothing is committed here: the files
that a compaction replaced and wrote are part of the next commit message.

Source: Paimon `MergeTreeWriter`, `MergeTreeCompactManager`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lsm_core.commit import CommitMessage
from lsm_core.errors import DredgeError
from lsm_core.files.vector_writer import discard_index_files
from lsm_core.format.manifest import DataFileMeta, IndexFileMeta
from lsm_core.metadata.store import TableStore

if TYPE_CHECKING:
    from lsm_core.compact import BucketResult, BucketTask, Judge

Chooser = Callable[
    [TableStore, bytes, int, int, Sequence[DataFileMeta], bool, Sequence[IndexFileMeta]], "BucketTask | None"
]
"""Function that returns the compaction task of a bucket, or None if nothing needs compaction.

Its arguments: store, partition, bucket, total buckets, all files of the bucket, whether to compact everything, and the
index files with the bucket's deletion vectors.
"""
_NONE: Final = -1


@dataclass(frozen=True)
class WriteStall:
    """Wait of a writer for a compaction, because of too many sorted runs (`num-sorted-run.stop-trigger`).

    Attributes:
        partition: BinaryRow of the bucket's partition.
        bucket: number of the bucket.
        sorted_runs: sorted runs when the wait began.
        seconds: duration of the wait.
    """

    partition: bytes
    bucket: int
    sorted_runs: int
    seconds: float


class Compactor:
    """Compaction service of one writer, used by all its buckets: choice of tasks, verification, background thread.

    Args:
        store: the table.
        choose: returns the compaction task of a bucket, or None.
        judge: verifies compaction results by a second merge of sampled keys (verification level V2); None to skip this
            verification.
        automatic: whether every flush starts a compaction; if False, only an explicit request does
            (``requested`` of :meth:`BucketCompaction.trigger`).
    """

    def __init__(self, store: TableStore, choose: Chooser, judge: Judge | None, *, automatic: bool) -> None:
        self.store, self.choose, self.judge, self.automatic = store, choose, judge, automatic
        self._pool: ThreadPoolExecutor | None = None
        self._stalls: list[WriteStall] = []

    def add_stall(self, stall: WriteStall) -> None:
        """Record a wait of the writer; :meth:`take_stalls` returns it."""
        self._stalls.append(stall)

    def take_stalls(self) -> list[WriteStall]:
        """Return the waits of the writer since the last call of this method."""
        stalls, self._stalls = self._stalls, []
        return stalls

    def submit(self, task: BucketTask) -> Future[BucketResult]:
        """Start a compaction task on the background thread, which runs the tasks of all buckets one at a time."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="dredge-writer-compact")
        from lsm_core.compact import run_bucket_task  # a late import, because most writers compact nothing

        return self._pool.submit(run_bucket_task, self.store, task, self.judge, pipelined=False)

    def close(self) -> None:
        """Stop the background thread after its current task."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


@dataclass(frozen=True)
class Bucket:
    """Partition and number of a bucket.

    Attributes:
        partition: BinaryRow of the partition.
        number: number of the bucket.
        total: number of buckets of the partition.
    """

    partition: bytes
    number: int
    total: int


class VectorFiles:
    """Index files with a bucket's deletion vectors, updated by the compactions of one writer.

    Index files that compactions wrote or replaced are also collected for the next commit message (:meth:`drain`).
    """

    def __init__(self) -> None:
        self.live: tuple[IndexFileMeta, ...] = ()
        self._replaced: list[IndexFileMeta] = []
        self._made: list[IndexFileMeta] = []

    def reset(self, live: Sequence[IndexFileMeta]) -> None:
        """Set the live index files to ``live``, and forget which files compactions replaced and wrote."""
        self.live, self._replaced, self._made = tuple(live), [], []

    def take(self, message: CommitMessage) -> list[IndexFileMeta]:
        """Apply the message of a finished compaction.

        Returns:
            Index files that were written and replaced again between two commits; the caller can delete them.
        """
        replaced_names = {file.file_name for file in message.compact_deleted_index_files}
        unneeded = [file for file in self._made if file.file_name in replaced_names]
        made_here = {file.file_name for file in unneeded}
        self._made = [file for file in self._made if file.file_name not in replaced_names]
        self._replaced += [file for file in message.compact_deleted_index_files if file.file_name not in made_here]
        self._made += message.compact_new_index_files
        self.live = (
            *(file for file in self.live if file.file_name not in replaced_names),
            *message.compact_new_index_files,
        )
        return unneeded

    def drain(self) -> tuple[tuple[IndexFileMeta, ...], tuple[IndexFileMeta, ...]]:
        """Return two tuples for a commit message: index files that compactions wrote, and those that they replaced.

        Both cover the time since the last call.
        """
        drained = tuple(self._made), tuple(self._replaced)
        self._made, self._replaced = [], []
        return drained


class BucketCompaction:
    """LSM tree of one bucket and its running compaction.

    Attributes:
        files: live files of the bucket at snapshot ``base``, with the later changes by this writer, committed or not.
        base: id of the snapshot at which the files of other writers were read.
        index_files: index files with the deletion vectors of ``files``.
        blocked: identifier of a commit whose outcome must be known before a compaction can start, or None.
    """

    def __init__(
        self,
        compactor: Compactor,
        place: Bucket,
        files: Iterable[DataFileMeta],
        base: int,
        index_files: Sequence[IndexFileMeta] = (),
    ) -> None:
        self._shared, self._place = compactor, place
        self._running: Future[BucketResult] | None = None
        self._before: dict[str, DataFileMeta] = {}
        self._after: dict[str, DataFileMeta] = {}
        self._changelog: list[DataFileMeta] = []
        self._stop = compactor.store.options.stop_trigger
        self._newest_dropped = _NONE
        """Largest sequence number of the files whose deletes were dropped by a compaction not yet in a message."""
        self.vectors = VectorFiles()
        self.reset(files, base, index_files=index_files)

    def reset(
        self,
        files: Iterable[DataFileMeta],
        base: int,
        blocked: int | None = None,
        index_files: Sequence[IndexFileMeta] = (),
    ) -> None:
        """Set the bucket's LSM tree to the files of snapshot ``base``.

        Args:
            files: live files of the bucket, which may include files that this writer added since.
            base: id of the snapshot.
            blocked: identifier of a commit whose outcome must be known before a compaction can start, or None.
            index_files: index files with the deletion vectors of ``files``.
        """
        self.vectors.reset(index_files)
        self._tree = {file.file_name: file for file in files}
        self.base, self.blocked = base, blocked

    @property
    def files(self) -> list[DataFileMeta]:
        """Files of the bucket's LSM tree, including uncommitted changes by this writer."""
        return list(self._tree.values())

    @property
    def is_running(self) -> bool:
        """Whether a compaction is running, or is finished but :meth:`sync` has not taken its result."""
        return self._running is not None

    @property
    def waits_at_flush(self) -> bool:
        """Whether a flush must wait for the running compaction."""
        return waits_at_flush(sorted_runs(self._tree.values()), self._stop)

    @property
    def waits_at_commit(self) -> bool:
        """Whether preparing a commit must wait for the running compaction."""
        return waits_at_commit(sorted_runs(self._tree.values()), self._stop)

    def add(self, files: Iterable[DataFileMeta]) -> None:
        """Add new level-0 files to the bucket's tree."""
        self._tree.update((file.file_name, file) for file in files)

    def trigger(self, full: bool = False, *, requested: bool = False) -> None:
        """Start the compaction that the table's options choose.

        Nothing is started while a compaction of the bucket is running, or while the outcome of a commit is unknown.

        Args:
            full: compact all files of the bucket into its top level.
            requested: True for an explicit request, False for the automatic start at a flush.

        Raises:
            WriterStale: the table's schema changed.
        """
        if self._running is not None or self.blocked is not None or not (requested or self._shared.automatic):
            return
        place = self._place
        where = self._shared.store, place.partition, place.number, place.total
        task = self._shared.choose(*where, self.files, full, self.vectors.live)
        if task is None:
            return
        if task.drop_delete:
            unit = set(task.unit_names)
            deletes = [f.max_sequence_number for f in task.files if f.file_name in unit and f.delete_row_count != 0]
            self._newest_dropped = max([self._newest_dropped, *deletes])
        self._running = self._shared.submit(task)

    def sync(self, wait: bool, *, stalls: bool = False) -> None:
        """Take the result of a finished compaction.

        Args:
            wait: wait for the running compaction, if there is one.
            stalls: whether the wait is caused by too many sorted runs; such a wait is recorded as a `WriteStall`.

        Raises:
            DredgeError: the compaction failed.
        """
        running = self._running
        if running is None or not (wait or running.done()):
            return
        self._running = None
        runs, began, waits = sorted_runs(self._tree.values()), time.monotonic(), not running.done()
        result = running.result()
        if stalls and waits:
            place, seconds = self._place, time.monotonic() - began
            self._shared.add_stall(WriteStall(place.partition, place.number, runs, seconds))
        self._take(result.message)

    def drain(self) -> tuple[tuple[DataFileMeta, ...], tuple[DataFileMeta, ...], tuple[DataFileMeta, ...]]:
        """Return three tuples: files that compactions replaced, files that they wrote, and their changelog files.

        Each tuple covers the time since the last call. Files written and replaced again in this time are left out. The
        changelog files of their compactions are included, because the changes did happen.
        """
        drained = tuple(self._before.values()), tuple(self._after.values()), tuple(self._changelog)
        self._before, self._after, self._changelog = {}, {}, []
        if self._running is None:
            self._newest_dropped = _NONE
        return drained

    def discard(self) -> None:
        """Discard the running compaction and results that :meth:`drain` has not returned, and delete their files."""
        running, self._running = self._running, None
        if running is not None and not running.cancel() and running.exception() is None:
            self._delete(running.result().message.own_files())
            self._delete_indexes(running.result().message.own_index_files())
        self._delete_indexes(self.vectors.drain()[0])
        self._delete(file for file in self._after.values() if file.file_name not in self._before)
        self._delete(self._changelog)
        self._before, self._after, self._changelog = {}, {}, []
        self._newest_dropped = _NONE

    def would_bring_back(self, file: DataFileMeta) -> bool:
        """Return whether a compaction of this writer, not committed yet, may have dropped deletes of rows in ``file``.

        After the commit of that compaction, the deleted rows would be visible again.

        Args:
            file: new file of another writer.
        """
        return file.min_sequence_number <= self._newest_dropped

    def is_blocked_by(self, identifier: int) -> bool:
        """Return whether compaction waits for the outcome of commit ``identifier`` or of an earlier commit."""
        return self.blocked is not None and self.blocked <= identifier

    def _take(self, message: CommitMessage) -> None:
        """Apply the message of a finished compaction to the bucket's LSM tree.

        Files written and replaced again between two commits are deleted. An upgraded file, which is in both lists of
        the message, is kept.
        """
        output_names = {file.file_name for file in message.compact_after}
        for file in message.compact_before:
            name = file.file_name
            self._tree.pop(name, None)
            if self._after.get(name) != file:
                self._before[name] = file
                continue
            del self._after[name]
            if name not in self._before and name not in output_names:
                self._delete([file])
        self._changelog += message.compact_changelog
        self._after.update((file.file_name, file) for file in message.compact_after)
        self.add(message.compact_after)
        self._delete_indexes(self.vectors.take(message))

    def _delete_indexes(self, files: Sequence[IndexFileMeta]) -> None:
        discard_index_files(self._shared.store, self._place.partition, self._place.number, files)

    def _delete(self, files: Iterable[DataFileMeta]) -> None:
        store, place = self._shared.store, self._place
        for path in [p for file in files for p in store.data_paths(place.partition, place.number, file)]:
            with suppress(OSError, DredgeError):
                store.delete(path)


def sorted_runs(files: Iterable[DataFileMeta]) -> int:
    """Return the number of sorted runs of a bucket: one per file of level 0, and one per non-empty higher level."""
    levels = [file.level for file in files]
    return levels.count(0) + len({level for level in levels if level > 0})


def waits_at_flush(runs: int, stop_trigger: int) -> bool:
    """Return whether a flush waits for the running compaction before the next one.

    Args:
        runs: sorted runs of the bucket.
        stop_trigger: value of `num-sorted-run.stop-trigger`.
    """
    return runs > stop_trigger


def waits_at_commit(runs: int, stop_trigger: int) -> bool:
    """Return whether `prepare_commit` waits for the running compaction.

    As in Java, one run more than at a flush is allowed, for jobs that restart repeatedly before a compaction ends.

    Args:
        runs: sorted runs of the bucket.
        stop_trigger: value of `num-sorted-run.stop-trigger`.
    """
    return runs > stop_trigger + 1
