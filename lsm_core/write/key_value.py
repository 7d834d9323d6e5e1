"""Writer of one bucket of a primary-key table: numbers the rows, buffers them, and merges them by key into files.

The buffer keeps rows in memory and in sorted runs on the local disk. All buckets of a writer share one `BufferPool`.
When the pool's memory is used up, the bucket with the most buffered bytes is sorted and spilled, so that a flush writes
few large files from any number of rows. When the pool's disk budget is used up too, this bucket is flushed.

If spilling is off or the disk budget is used up, a bucket is flushed many times. Each flush is a sorted run that
readers must merge until it is compacted. So the flushes of one bucket are merged into one sorted run before the commit.

Source: ``MergeTreeWriter``, ``MemoryPoolFactory``, ``SortBufferWriteBuffer``.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_core.commit import CommitMessage
from lsm_core.commit.overwrite import can_be_raised
from lsm_core.errors import DredgeError
from lsm_core.files import KeyValueFileWriter, SpilledRun, SpillSpace, open_kv
from lsm_core.format.manifest import SOURCE_APPEND, DataFileMeta
from lsm_core.format.schema import kv_arrow_schema
from lsm_core.merge import FoldFunction, MergeFunction, RunInput, merge_function, merge_streams, merge_unsorted
from lsm_core.merge.engines.internal import AllVersions
from lsm_core.merge.order_free import order_free
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.options import TableOptions
from lsm_core.read.merge_read import Shapes, next_pass
from lsm_core.write.background import BucketCompaction

_LOG: Final = logging.getLogger(__name__)
_DECODED_FROM_STORED: Final = 4
"""Estimated ratio of a row's size in memory to the row's size in a data file."""

Place = tuple[bytes, int, int]
"""Partition, bucket, total buckets."""
Flush = Sequence[DataFileMeta]
"""Files of level 0 whose keys ascend from file to file."""


def most_flushes(store: TableStore) -> int:
    """Return the maximum number of flushes that one write may commit without a merge.

    This is `num-sorted-run.stop-trigger` minus `num-sorted-run.compaction-trigger`, and at least 1.
    """
    return max(1, store.options.stop_trigger - store.options.compaction_trigger)


def may_gather(store: TableStore, function: MergeFunction, files: Sequence[DataFileMeta]) -> bool:
    """Return whether ``files`` may be merged with each other before they are merged with older rows.

    They may if the final rows are the same as after one merge of all rows.

    Args:
        store: the table.
        function: the merge engine.
        files: files to merge first.
    """
    if not isinstance(function, FoldFunction):
        return True
    retracts = any(file.delete_row_count != 0 for file in files)
    return order_free(store.schema, store.options.raw, retracts, store.name).ok


def merge_flushes(
    store: TableStore, pool: BufferPool, place: Place, function: MergeFunction, flushes: Sequence[Flush]
) -> list[DataFileMeta]:
    """Merge the files of several uncommitted flushes into one sorted run, and delete the input files.

    More flushes than `local-sort.max-num-file-handles` are merged in several passes.

    Args:
        store: the table.
        pool: memory of the writer.
        place: partition, bucket and total buckets of the files.
        function: the merge engine.
        flushes: the files of each flush, oldest first.

    Returns:
        The files with the rows of all flushes. After a storage error some flushes may be unmerged; no row is lost.
    """
    runs = [list(flush) for flush in flushes]
    while len(runs) > 1:
        following: list[list[DataFileMeta]] = []
        for start in range(0, len(runs), pool.handles):
            group = runs[start : start + pool.handles]
            try:
                following.append(_merge_group(store, pool, place, function, group) if len(group) > 1 else group[0])
            except (DredgeError, OSError) as error:  # the files of these flushes are still complete
                _LOG.info("table %s: the flushes of a write are committed without a merge: %s", store.name, error)
                return [file for flush in (*following, *runs[start:]) for file in flush]
            if len(group) > 1:
                _delete(store, place, [file for flush in group for file in flush])
        runs = following
    return runs[0] if runs else []


def _merge_group(
    store: TableStore, pool: BufferPool, place: Place, function: MergeFunction, group: Sequence[Flush]
) -> list[DataFileMeta]:
    files = [file for flush in group for file in flush]
    stored = max(1, sum(file.file_size for file in files) // max(1, sum(file.row_count for file in files)))
    fair = pool.memory // (2 * len(group) * stored * _DECODED_FROM_STORED)
    batch_rows = max(_FEWEST_ROWS, min(fair, _MOST_ROWS))
    writer = KeyValueFileWriter(store, *place, level=0, file_source=SOURCE_APPEND)
    try:
        with ExitStack() as opened:
            runs = [opened.enter_context(closing(_rows(store, place, flush, batch_rows))) for flush in group]
            inputs = [RunInput(rows, 0, age, f"flush {age}") for age, rows in enumerate(runs)]
            for batch in merge_streams(inputs, function, batch_rows=batch_rows):
                writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _rows(store: TableStore, place: Place, flush: Flush, batch_rows: int) -> Generator[pa.RecordBatch, None, None]:
    for file in flush:
        yield from open_kv(store, place[0], place[1], file, batch_rows=batch_rows)


def _delete(store: TableStore, place: Place, files: Sequence[DataFileMeta]) -> None:
    for path in [path for file in files for path in store.data_paths(place[0], place[1], file)]:
        with suppress(OSError, DredgeError):
            store.delete(path)


_FEWEST_ROWS: Final = 16
_MOST_ROWS: Final = 65_536
_OUTPUT_ROWS: Final = 131_072

Batches = Generator[pa.RecordBatch, None, None]


class BufferPool:
    """Memory and local disk that the buckets of one writer share.

    Attributes:
        memory: bytes of `write-buffer-size`.
        batch_bytes: bytes of a spilled batch. One batch of each of `local-sort.max-num-file-handles` runs takes half of
            the memory together.

    Raises:
        InvalidOption: an option of the buffer cannot be used.
    """

    def __init__(self, options: TableOptions) -> None:
        self.memory = options.write_buffer_size
        self.handles = max(2, int(options.get("local-sort.max-num-file-handles")))
        self.batch_bytes = max(1, self.memory // (2 * self.handles))
        # With `sequence.snapshot-ordering` all files of a commit have one sequence number, so that readers cannot order
        # the versions of a key in two files. Spilling merges them into one file.
        self._always_spills = options.snapshot_ordering
        self._spillable = bool(options.get("write-buffer-spillable"))
        self._disk = int(options.get("write-buffer-spill.max-disk-size"))
        self._space = SpillSpace.of(options)
        self.disk_used = 0

    @property
    def may_spill(self) -> bool:
        """Whether spilling is enabled and the disk budget has room; as in Java, the last run may exceed the budget.

        Always true in a table with `sequence.snapshot-ordering`.
        """
        return self._always_spills or (self._spillable and self.disk_used < self._disk)

    def spill(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> SpilledRun:
        """Write ``batches`` to a run on the local disk.

        Raises:
            StorageFull: the disk is full; the error names the file, which is deleted.
        """
        run = self._space.spill(batches, schema)
        self.disk_used += run.size
        return run

    def free(self, run: SpilledRun) -> None:
        """Release the disk space of a run."""
        run.delete()
        self.disk_used -= run.size

    def close(self) -> None:
        """Delete all spilled runs; the pool can still be used afterwards."""
        self._space.close()
        self.disk_used = 0


class SortBuffer:
    """Rows of one bucket in KV layout, added in arrival order; :meth:`drain` returns them merged by key.

    Spilled runs are in merge order (key, user sequence, sequence number), as the merge kernels require. A later run is
    newer. Merge engines that build a row from several versions must see all versions of a key at once, so their runs
    keep every version. For the other merge engines, rows are merged by key before they are spilled.
    """

    def __init__(
        self, pool: BufferPool, function: MergeFunction, schema: pa.Schema, table: str, *, keeps_all: bool = False
    ) -> None:
        """Create an empty buffer.

        Args:
            pool: memory and disk shared with other buckets.
            function: merge function of the table.
            schema: Arrow schema of the KV layout.
            table: name of the table, for errors.
            keeps_all: return every version from :meth:`drain`, in merge order.
        """
        self._pool, self._schema, self._table = pool, schema, table
        versions = AllVersions(function.key_spec)
        self._function: MergeFunction = versions if keeps_all else function
        self._in_runs: MergeFunction = versions if isinstance(function, FoldFunction) else self._function
        self._memory: list[pa.Table] = []
        self._runs: list[SpilledRun] = []
        self._rows = 0
        self._row_bytes = 0.0
        self._broken = False
        self.bytes = 0

    def __len__(self) -> int:
        """Return the number of rows added since the last :meth:`drain`."""
        return self._rows

    def add(self, rows: pa.Table, size: int) -> None:
        """Buffer rows of ``size`` bytes. Raises DredgeError after a failure that lost rows."""
        self._require_whole()
        self._memory.append(rows)
        self._rows += rows.num_rows
        self.bytes += size

    def spill(self) -> bool:
        """Move the rows in memory to a sorted run on disk; return False if the pool does not allow spilling."""
        self._require_whole()
        if not self._memory:
            return True
        if not self._pool.may_spill:
            return False
        self._broken = True
        self._runs.append(self._pool.spill(self._sorted(self._in_runs, self._pool.batch_bytes), self._schema))
        self._broken = False
        return True

    def drain(self) -> Batches:
        """Yield all rows by ascending key and empty the buffer.

        Each key occurs once unless ``keeps_all`` is set; delete rows are kept. If the caller does not consume all
        rows, the remaining rows are lost, and later calls raise DredgeError.
        """
        self._require_whole()
        self._broken = True
        if not self._runs:
            yield from self._sorted(self._function, None)
        else:
            yield from self._merged()
        self.clear()

    def spoil(self) -> None:
        """Mark drained rows as lost: from now on every method except :meth:`clear` raises DredgeError."""
        self._broken = True

    def clear(self) -> None:
        """Discard all rows, and reset the state that :meth:`spoil` set."""
        self._memory.clear()
        for run in self._runs:
            self._pool.free(run)
        self._runs.clear()
        self._rows, self.bytes, self._broken = 0, 0, False

    def _merged(self) -> Batches:
        """Yield the rows of all runs and of the memory as one merged stream.

        If there are more runs than may be open at once, runs are first merged in passes.
        """
        if self._memory and len(self._runs) >= self._pool.handles:
            self._runs.append(self._pool.spill(self._sorted(self._in_runs, self._pool.batch_bytes), self._schema))
        while len(self._runs) > self._pool.handles:
            self._one_pass()
        inputs = [run.batches() for run in self._runs]
        if self._memory:
            inputs.append(self._sorted(self._in_runs, self._pool.batch_bytes))
        with closing(self._streams(inputs, self._function)) as merged:
            yield from merged

    def _one_pass(self) -> None:
        sizes = [float(run.size) for run in self._runs]
        fewer: list[SpilledRun] = []
        done = 0
        for group in next_pass(sizes, self._pool.handles, 0):
            chosen = self._runs[group.start : group.stop]
            fewer += self._runs[done : group.start]
            done = group.stop
            if len(chosen) == 1:
                fewer += chosen
                continue
            with closing(self._streams([run.batches() for run in chosen], self._in_runs)) as merged:
                fewer.append(self._pool.spill(self._cut(merged, self._pool.batch_bytes), self._schema))
            for run in chosen:
                self._pool.free(run)
        self._runs = [*fewer, *self._runs[done:]]

    def _streams(self, inputs: list[Iterator[pa.RecordBatch]], function: MergeFunction) -> Batches:
        """Merge ``inputs`` (oldest first), which together use about half of the pool's memory."""
        sources = [RunInput(batches, 0, age, f"spilled run {age}") for age, batches in enumerate(inputs)]
        row_bytes = max(1.0, self._row_bytes)
        fair = int(self._pool.memory / (2 * len(inputs) * row_bytes))
        try:
            yield from merge_streams(sources, function, batch_rows=max(_FEWEST_ROWS, min(fair, _MOST_ROWS)))
        finally:
            for batches in inputs:
                batches.close()  # type: ignore[attr-defined]

    def _sorted(self, function: MergeFunction, cut: int | None) -> Batches:
        """Yield the rows in memory, merged by ``function`` and sorted by key.

        The memory of the rows is released batch by batch.

        Args:
            function: merge function for rows with equal keys.
            cut: size of the batches (about, in bytes), or None for batches of a fixed number of rows.
        """
        table = pa.concat_tables(self._memory).combine_chunks()
        self._row_bytes = max(self._row_bytes, table.nbytes / max(1, table.num_rows))
        self._memory.clear()
        self.bytes = 0
        merged = merge_unsorted(table, function)
        del table
        batches = merged.to_batches(max_chunksize=_OUTPUT_ROWS)
        del merged
        batches.reverse()
        while batches:
            yield from self._cut(iter((batches.pop(),)), cut)

    @staticmethod
    def _cut(batches: Iterator[pa.RecordBatch], size: int | None) -> Batches:
        for batch in batches:
            rows = batch.num_rows
            if size is not None:
                rows = max(_FEWEST_ROWS, int(size * batch.num_rows / max(1, batch.nbytes)))
            for start in range(0, batch.num_rows, max(1, rows)):
                yield batch.slice(start, rows)

    def _require_whole(self) -> None:
        if self._broken:
            raise DredgeError(
                f"table {self._table}: an earlier failure of this writer lost rows; abort it and write them again"
            )


_MOST_BUFFERED: Final = 1 << 30
"""Largest bytes of one bucket in memory, even if the pool is larger: Arrow's text offsets end at 2 GiB."""


def seen_at_once(
    store: TableStore,
    partition: bytes,
    bucket: int,
    total_buckets: int,
    files: Sequence[DataFileMeta],
    *,
    pipelined: bool = False,
) -> list[DataFileMeta]:
    """Merge the level-0 files of an overwritten bucket to the top level, for tables whose readers skip level 0.

    ``files`` must be all files of the bucket after the overwrite. If the commit can upgrade the files to the top level
    unchanged, they are not merged. Replaced files are deleted. No changelog is written, because an overwrite has none.
    Java's writers compact after an overwrite too.

    Args:
        store: the table.
        partition: BinaryRow of the partition.
        bucket: number of the bucket.
        total_buckets: number of buckets of the partition.
        files: files of level 0.
        pipelined: merge and encode on two threads.

    Returns:
        The files that replace ``files``, or ``files`` if they were not merged.

    Raises:
        DredgeError: a file cannot be read or written; ``files`` still exist.
    """
    top = store.options.num_levels - 1
    if not files or all(file.level > 0 for file in files) or store.options.clusters_keys:
        return list(files)
    if store.options.get("overwrite-upgrade") and can_be_raised(Shapes(store).of(tuple(files))):
        return list(files)
    from lsm_core.compact.pieces import run_bucket_task
    from lsm_core.compact.task import BucketTask  # not at the top: few writers merge what they wrote
    from lsm_core.compact.unit import discard

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
    """Apply `seen_at_once` to an overwrite in which several writers wrote to the same bucket.

    ``messages`` are changed in place, bucket by bucket, so that after an error they still name the existing files.
    Raises DredgeError if a file cannot be read or written.
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
    """Writer of one bucket of a primary-key table.

    Every incoming row gets the next sequence number. :meth:`flush` sorts and merges the buffer into rolling files of
    level 0, in which each key occurs once. With a ``compaction``, every flush also takes the result of a finished
    compaction and starts the next compaction.

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
            raises_files: write the files directly to the top level, because the bucket will have no other files and
                readers skip level 0.
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
        """Bytes of the rows that the bucket buffers in memory."""
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

        After a failure no file of this flush is left. Its rows are lost, so further calls raise an error.

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
        """Flush, and wait for the running compaction if the bucket has too many sorted runs.

        All work that can fail is done here, so that :meth:`drain` only hands over files.

        Args:
            wait: wait for the running compaction in any case.
            full: compact all files too, and wait until this compaction is finished.
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
        """Merge the flushes since the last commit into one sorted run, if they are more than `most_flushes` allows."""
        place = self.partition, self.bucket, self.total_buckets
        many = len(self._flushed) > most_flushes(self._store)
        if many and may_gather(self._store, self._function, self.files):
            self.files = merge_flushes(self._store, self._pool, place, self._function, self._flushed)

    def drain(self) -> CommitMessage:
        """Return a commit message of the files written and compacted since the last call.

        The writer can still be used.
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
        """Discard compactions whose results are in no commit message yet."""
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
        """Write all versions, in merge order, to the changelog, and yield one merged row per key."""

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
