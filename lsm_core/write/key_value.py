"""Writer of one bucket of a primary-key table.

It numbers the rows, buffers them, and merges them by key into level-0 files.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_core.commit import CommitMessage
from lsm_core.commit.overwrite import can_be_raised
from lsm_core.files import KeyValueFileWriter
from lsm_core.format.manifest import SOURCE_APPEND, DataFileMeta
from lsm_core.format.schema import kv_arrow_schema
from lsm_core.merge import RunInput, merge_function, merge_streams
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.read.inputs import Shapes
from lsm_core.write.background import BucketCompaction
from lsm_core.write.buffer import BufferPool, SortBuffer
from lsm_core.write.gathering import may_gather, merge_flushes, most_flushes

_MOST_BUFFERED: Final = 1 << 30
"""Bytes of one bucket in memory, whatever the pool allows: Arrow's text offsets end at 2 GiB."""


def seen_at_once(
    store: TableStore,
    partition: bytes,
    bucket: int,
    total_buckets: int,
    files: Sequence[DataFileMeta],
    *,
    pipelined: bool = False,
) -> list[DataFileMeta]:
    """Return files of the top level with the content of ``files``, where readers see compacted rows alone.

    ``files`` are all that an overwrite leaves in a bucket. They are merged, unless the commit can move them to the top
    level unchanged; replaced files are deleted. Java's writers compact an overwrite too. It has no changelog, as no
    overwrite has one.

    Args:
        store: the table.
        partition: BinaryRow of the partition.
        bucket: number of the bucket.
        total_buckets: number of buckets of the partition.
        files: files of level 0.
        pipelined: encode in another thread.

    Raises:
        DredgeError: as `run_bucket_task`; ``files`` still exist then.
    """
    top = store.options.num_levels - 1
    if not files or all(file.level > 0 for file in files):
        return list(files)
    if store.options.get("overwrite-upgrade") and can_be_raised(Shapes(store).of(tuple(files))):
        return list(files)
    from lsm_core.compact.task import BucketTask  # not at the top: few writers merge what they wrote
    from lsm_core.compact.unit import discard, run_bucket_task

    task = BucketTask(
        partition,
        bucket,
        total_buckets,
        files=tuple(files),
        unit_names=tuple(file.file_name for file in files),
        output_level=top,
        drop_delete=True,
        verification=store.options.verification,
    )
    message = run_bucket_task(store.copy({"changelog-producer": "none"}), task, pipelined=pipelined).message
    if not message.compact_after:
        return list(files)  # nothing but deletes: no row is hidden, and their partition must be seen to be written
    kept = {file.file_name for file in message.compact_after}
    discard(store, task, [file for file in files if file.file_name not in kept])
    return list(message.compact_after)


def settle_shared_buckets(store: TableStore, messages: list[CommitMessage]) -> None:
    """Apply `seen_at_once` to an overwrite whose writers shared their buckets.

    ``messages`` are changed in place, bucket by bucket, so that they always name the existing files. Raises the errors
    of `seen_at_once`.
    """
    moves = store.bucket_mode is BucketMode.CROSS_PARTITION  # such rows come on top of what is there
    if moves or store.options.write_only or not (store.has_primary_key and store.options.batch_scan_skips_level0):
        return
    places: dict[tuple[bytes, int], list[int]] = {}
    for number, message in enumerate(messages):
        places.setdefault((message.partition, message.bucket), []).append(number)
    for (partition, bucket), numbers in places.items():
        if bucket < 0:  # postponed rows have no bucket yet
            continue
        files = [file for number in numbers for file in messages[number].new_files]
        total = messages[numbers[0]].total_buckets
        files = seen_at_once(store, partition, bucket, total, files, pipelined=True)
        for number in numbers:
            messages[number] = replace(messages[number], new_files=tuple(files) if number == numbers[0] else ())


class KeyValueBucket:
    """Buffer of one bucket of a partition.

    Every incoming row gets the next sequence number. :meth:`flush` sorts and merges the buffer into rolling files of
    level 0, in which each key occurs once. With a ``compaction``, every flush also collects the result of a finished
    compaction and requests the next one.

    Source: Paimon `MergeTreeWriter`.
    """

    def __init__(
        self,
        store: TableStore,
        pool: BufferPool,
        partition: bytes,
        bucket: int,
        total_buckets: int,
        first_sequence: int,
        compaction: BucketCompaction | None = None,
        *,
        input_changelog: bool = False,
        raises_files: bool = False,
    ) -> None:
        """Start with an empty buffer.

        Args:
            store: the table.
            pool: memory and disk shared with other buckets.
            partition: BinaryRow of the partition.
            bucket: number of the bucket.
            total_buckets: number of buckets of the partition.
            first_sequence: sequence number of the first row.
            compaction: compaction of the bucket, or None.
            input_changelog: also write all incoming rows to changelog files (`changelog-producer` = input).
            raises_files: write files of the top level, because the bucket will hold nothing else and readers do not see
                level 0.
        """
        self._store = store
        self.compaction = compaction
        self.partition, self.bucket, self.total_buckets = partition, bucket, total_buckets
        self._next = first_sequence
        self._layout = kv_arrow_schema(store.schema)
        function = merge_function(store.schema, store.options.raw, store.name)
        self._pool, self._flushed = pool, list[list[DataFileMeta]]()
        self._buffer = SortBuffer(pool, function, self._layout, store.name, keeps_all=input_changelog)
        self._function, self._input_changelog = function, input_changelog
        self._raises_files = raises_files
        self.files: list[DataFileMeta] = []
        self.changelog: list[DataFileMeta] = []

    @property
    def buffered_bytes(self) -> int:
        """Bytes of rows in memory."""
        return self._buffer.bytes

    def add(self, rows: pa.Table, kinds: pa.Array | None) -> None:
        """Buffer rows (the table's columns) in arrival order; ``kinds`` is int8, or None for all inserts."""
        count = rows.num_rows
        numbers = pa.array(np.arange(self._next, self._next + count, dtype=np.int64))
        self._next += count
        kinds = pa.repeat(pa.scalar(0, pa.int8()), count) if kinds is None else kinds
        keys = [rows.column(name) for name in self._store.schema.trimmed_primary_keys]
        table = pa.table([*keys, numbers, kinds, *rows.columns], schema=self._layout)
        self._buffer.add(table, rows.nbytes + 9 * count)
        if self._buffer.bytes > _MOST_BUFFERED:
            self.make_room()

    def make_room(self) -> None:
        """Spill the rows in memory, or flush them if spilling is off or its budget is used up. Raises StorageFull."""
        if not self._buffer.spill():
            self.flush()

    def number_from(self, first_sequence: int) -> None:
        """Number later rows from ``first_sequence`` on, unless the next number is larger already."""
        self._next = max(self._next, first_sequence)

    def flush(self, wait: bool = False) -> None:
        """Merge the buffer by key and write it to level 0.

        After a failure no file of that flush is left; its rows are lost, so this writer refuses further calls.

        Args:
            wait: wait for the running compaction.

        Raises:
            DredgeError: the write or a compaction failed.
        """
        compaction, stalls = self.compaction, False
        if len(self._buffer):
            stalls = compaction is not None and compaction.waits_at_flush
            files = self._write_level0()
            self.files += files
            if compaction is not None:
                compaction.add(files)
            elif files:
                self._flushed.append(files)
        if compaction is not None:
            compaction.sync(wait or stalls, stalls=stalls)
            compaction.trigger()

    def settle(self, wait: bool, full: bool = False) -> None:
        """Flush, and wait for compactions while the bucket has too many sorted runs; :meth:`drain` cannot fail then.

        Args:
            wait: wait for the running compaction in any case.
            full: compact everything, and wait for it.
        """
        self.flush(wait or full)
        if self._raises_files:
            place = self.partition, self.bucket, self.total_buckets
            self.files = seen_at_once(self._store, *place, self.files)
        elif self.compaction is None and not self._store.options.write_only:
            self._gather()
        if self.compaction is not None:
            stalls = self.compaction.waits_at_commit
            self.compaction.sync(wait or full or stalls, stalls=stalls)
            if full:
                self.compaction.trigger(full=True)
                self.compaction.sync(wait=True)

    def _gather(self) -> None:
        """Merge the flushes since the last commit if they are many, so that readers see one sorted run."""
        place = self.partition, self.bucket, self.total_buckets
        many = len(self._flushed) > most_flushes(self._store)
        if many and may_gather(self._store, self._function, self.files):
            self.files = merge_flushes(self._store, self._pool, place, self._function, self._flushed)

    def drain(self) -> CommitMessage:
        """Return a commit message of the files written and compacted since the last call.

        The bucket can still be written.
        """
        files, self.files = tuple(self.files), []
        self._flushed = []
        changelog, self.changelog = tuple(self.changelog), []
        before, after, changes = ((), (), ()) if self.compaction is None else self.compaction.drain()
        vectors = ((), ()) if self.compaction is None else self.compaction.vectors.drain()
        return CommitMessage(
            self.partition,
            self.bucket,
            self.total_buckets,
            new_files=files,
            compact_new_index_files=vectors[0],
            compact_deleted_index_files=vectors[1],
            changelog_files=changelog,
            compact_before=before,
            compact_after=after,
            compact_changelog=changes,
        )

    def discard_compaction(self) -> None:
        """Discard the results of compactions that are in no message yet."""
        if self.compaction is not None:
            self.compaction.discard()

    def _write_level0(self) -> list[DataFileMeta]:
        place = self._store, self.partition, self.bucket, self.total_buckets
        writer = KeyValueFileWriter(*place, level=0, file_source=SOURCE_APPEND)
        changelog_writer = KeyValueFileWriter.of_changes(*place, level=0) if self._input_changelog else None
        try:
            with closing(self._buffer.drain()) as drained:
                merged = drained if changelog_writer is None else self._merged(drained, changelog_writer)
                for batch in merged:
                    writer.write(batch)
            changes = [] if changelog_writer is None else changelog_writer.close()
            files = writer.close()
        except BaseException:
            self._buffer.spoil()
            writer.abort()
            if changelog_writer is not None:
                changelog_writer.abort()
            raise
        self.changelog += changes
        return files

    def _merged(
        self, versions: Generator[pa.RecordBatch, None, None], changelog_writer: KeyValueFileWriter
    ) -> Iterator[pa.RecordBatch]:
        """Write all versions, in merge order, to the changelog, and yield the merged keys."""

        def passing() -> Iterator[pa.RecordBatch]:
            for batch in versions:
                changelog_writer.write(batch)
                yield batch

        return merge_streams([RunInput(passing(), name="the write buffer")], self._function)

    def abort(self) -> None:
        """Discard the buffer and unpublished compactions.

        Files of earlier flushes stay in :attr:`files` and :attr:`changelog` for the caller to delete.
        """
        self._buffer.clear()
        self.discard_compaction()
