"""Assignment of rows to new buckets on Spark, for postponed rows and for rescaled partitions, in two passes of tasks.

Tasks of the first pass read files and send rows to their buckets; tasks of the second pass write one bucket each. Rows
cross the shuffle with their original position, so that every bucket is written in the order in which one process would
write it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.commit import CommitMessage, abort, discard_on_failure
from lsm_core.compact import BucketReport, BucketResult
from lsm_core.compact.pieces import count_pieces
from lsm_core.compact.row_digests import Content, content_of
from lsm_core.compact.task_vectors import TaskVectors
from lsm_core.errors import VerificationFailed
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.partitions import partition_text
from lsm_core.format.schema import VALUE_KIND
from lsm_core.maintenance.action import size_text
from lsm_core.maintenance.actions.assign_buckets import AssignTask, replay_rows
from lsm_core.maintenance.actions.rescale import (
    RescaleTask,
    in_order,
    read_again,
    require_same_content,
    stored_rows,
)
from lsm_core.merge import Digest
from lsm_core.metadata.store import TableStore
from lsm_core.spark.compaction_job import cut_by_keys, name_job
from lsm_core.spark.spark_tasks import (
    ANSWER_DDL,
    PAYLOADS,
    Shipped,
    batches_of,
    collect,
    raise_first,
    slots_of,
    this_executor,
    translate_errors,
    use_this_python,
)
from lsm_core.spark.spark_write import MESSAGES, MESSAGES_DDL, answers, in_pieces, receive_groups, send_groups
from lsm_core.spark.write_folder import WriteFolder, new_family
from lsm_core.write import BucketHistory, RoutedRows
from lsm_core.write.incoming_rows import ALL
from lsm_core.write.table_write import StoredRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_BYTES: Final = 64 << 20
_PLACE_SHIFT: Final = 40  # a message's place = source, then its first row in it (below 2^40 rows a source)
_READ: Final = -1
"""Bucket number of a message that has row count and digest of a source, to verify the result, and no rows."""
RebucketTask: TypeAlias = AssignTask | RescaleTask


@dataclass(frozen=True)
class _Job:
    """Tasks with the same number of buckets, sent to Spark.

    Attributes:
        store: The table.
        target: The table with the new number of buckets.
        history: Largest sequence number of each bucket.
        folder: Folder in which tasks note that they write files.
    """

    store: TableStore
    target: TableStore
    history: BucketHistory
    sources: tuple[RebucketTask, ...]
    """Input of each task, in the order of the rows: one postponed file, one bucket, or a part of one bucket."""
    folder: WriteFolder

    @property
    def rescales(self) -> bool:
        """Whether the new buckets replace the old buckets; the sources then contain all rows of the old buckets."""
        return isinstance(self.sources[0], RescaleTask)

    @property
    def buckets(self) -> int:
        """Number of buckets that a partition gets."""
        return self.target.options.bucket

    def rows(self, source: RebucketTask, seen: _Seen) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``source`` in order with all columns; postponed rows also have their row kinds.

        The number of unmerged rows of a rescaled bucket is added to ``seen``.
        """
        if isinstance(source, AssignTask):
            return replay_rows(self.store, source.partition, source.files[0])
        return stored_rows(self.store, source, seen.of_file)

    def writer(self, family: str = "") -> StoredRows:
        """Return a writer that reads no metadata; ``family`` is the prefix of the UUIDs in its file names."""
        return StoredRows(self.target.in_family(family), beside=not self.rescales, planned=self.history)


def rebucket_on_spark(spark: SparkSession, store: TableStore, tasks: Sequence[RebucketTask]) -> Iterator[BucketResult]:
    """Move the rows of tasks to new buckets, and yield the result of each bucket that gets rows.

    Tasks with the same number of buckets share one Spark job.

    On an error all files of the tasks are deleted, including unfinished files of killed workers.

    Raises:
        VerificationFailed: The new files do not hold the rows of the old ones.
        CorruptFile: A file is missing or damaged.
        SparkFailed: The Spark job failed.
    """
    for buckets, group in groupby(sorted(tasks, key=attrgetter("total_buckets")), key=attrgetter("total_buckets")):
        yield from _rebucketed(spark, store, tuple(group), buckets)


def _rebucketed(
    spark: SparkSession, store: TableStore, tasks: tuple[RebucketTask, ...], buckets: int
) -> list[BucketResult]:
    target = tasks[0].target(store)
    doing = "rescaling" if isinstance(tasks[0], RescaleTask) else "assigning buckets of"
    title, folder, family = f"{doing} table {store.name}", WriteFolder.plan(store), new_family()
    results: list[BucketResult] | None = None
    try:
        history = BucketHistory.of_whole_table(target, ignore=isinstance(tasks[0], RescaleTask))
        job = _Job(store, target, history, _sources(spark, store, tasks), folder)
        payloads = [b"%d" % number for number in range(len(job.sources))]
        parallel = int(str(spark.conf.get("spark.sql.shuffle.partitions", "8")))
        partitions = len({task.partition for task in tasks})
        slots = buckets if partitions == 1 else buckets * max(1, -(-parallel // buckets))
        size = size_text(sum(file.file_size for task in tasks for file in task.files))
        rows = pa.table([pa.array(range(len(payloads)), pa.int32()), pa.array(payloads, pa.binary())], schema=PAYLOADS)
        use_this_python(spark)
        named = name_job(
            spark, f"{title}: {partitions:,} partitions, {size}, {buckets:,} buckets each", table=store.name
        )
        with named, translate_errors(title), batches_of(spark, _BATCH_BYTES):
            listed = spark.createDataFrame(rows).repartitionById(len(payloads), "task")
            moved = listed.mapInArrow(Shipped(_read, job, slots), MESSAGES_DDL)
            placed = moved.repartitionById(slots, "slot").sortWithinPartitions("partition", "bucket", "place")
            outcomes = collect(placed.mapInArrow(Shipped(_written, job, family), ANSWER_DDL), title)
        answers = [BucketResult.from_bytes(outcome.answer) for outcome in outcomes if outcome.error is None]
        written = [result for result in answers if result.message.bucket != _READ]
        with discard_on_failure(store, [result.message for result in written]):
            raise_first(outcomes)
            if job.rescales:
                _require_same(
                    store, job.sources, written, [result for result in answers if result.message.bucket == _READ]
                )
        results = written
    finally:
        messages = [result.message for result in results or ()]
        places = {place for message in messages for place in store.write_dirs(message.partition, message.bucket)}
        folder.end(family, messages, places or None, failed=results is None)
    return results


def _sources(spark: SparkSession, store: TableStore, tasks: Sequence[RebucketTask]) -> tuple[RebucketTask, ...]:
    """Return the input of each Spark task: a postponed file, a bucket, or a part of a large bucket.

    A bucket with more bytes than one task should read is divided by key ranges or, in tables without keys, by files.
    The order of the rows is kept.
    """
    old = [task for task in tasks if isinstance(task, RescaleTask)]
    if not old:
        return tuple(replace(task, files=(file,)) for task in tasks for file in task.files)
    if store.schema.primary_keys:
        return tuple(piece for pieces in cut_by_keys(spark, store, old, whole=True) for piece in pieces)
    sizes = [sum(file.file_size for file in task.files) for task in old]
    counts = count_pieces(sizes, slots_of(spark), store.options.piece_size)
    sources: list[RebucketTask] = []
    for task, size, count in zip(old, sizes, counts, strict=True):
        files = in_order(task.files)
        ends = accumulate(file.file_size for file in files)
        share = [
            min(count - 1, (end - file.file_size) * count // max(1, size))
            for file, end in zip(files, ends, strict=True)
        ]
        for _, group in groupby(zip(share, files, strict=True), key=itemgetter(0)):
            sources.append(replace(task, files=tuple(file for _, file in group)))
    return tuple(sources)


def _require_same(
    store: TableStore, sources: Sequence[RebucketTask], written: Sequence[BucketResult], read: Sequence[BucketResult]
) -> None:
    """Verify that no row was lost or read twice.

    If several tasks read parts of an old bucket, each row must be in exactly one part (verification V0). The old and
    new files of every partition must have the same rows (V1).

    Args:
        store: The table.
        sources: Inputs of the tasks.
        written: Results of the new buckets.
        read: Row counts and digests of the rows that were read.

    Raises:
        VerificationFailed: A check failed.
    """
    read_digests: dict[bytes, Digest] = {}
    rows: dict[bytes, int] = {}
    written_by_partition: dict[bytes, list[BucketResult]] = {}
    for result in read:
        partition = result.message.partition
        read_digests[partition] = read_digests.get(partition, Digest()).add(Digest.from_text(result.report.digest))
        rows[partition] = rows.get(partition, 0) + result.report.rows_in
    held: dict[bytes, int] = {}
    for source in sources:
        if source.piece is not None and source.piece.is_first:
            living = TaskVectors(store, source).count_living(source.files)
            held[source.partition] = held.get(source.partition, 0) + living
    for partition in sorted({*rows, *held}):
        count, whole = rows.get(partition, 0), held.get(partition, 0)
        if count != whole:
            where = partition_text(store.schema, partition, store.options) or f"table {store.name}"
            raise VerificationFailed("V0", [f"{where}: the pieces read {count} rows of {whole}"])
    for result in written:
        written_by_partition.setdefault(result.message.partition, []).append(result)
    for partition in sorted({*read_digests, *written_by_partition}):
        require_same_content(
            store, partition, written_by_partition.get(partition, ()), Content(read_digests.get(partition, Digest()))
        )


def _read(job: _Job, slots: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the first pass: send the rows of sources by bucket to the task (``slot``) that writes the bucket."""

    def slot(routed: RoutedRows) -> int:
        return zlib.crc32(routed.partition) % (slots // job.buckets) * job.buckets + routed.bucket

    for batch in batches:
        for number, payload in zip(batch.column("task").to_pylist(), batch.column("payload").to_pylist(), strict=True):
            source, seen = job.sources[int(payload)], _Seen()
            yield from send_groups(_routed(job, seen, source, number), slot)
            if job.rescales:
                rows_in = seen.rows if source.piece is not None else 0
                report = BucketReport(rows_in=rows_in, digest=seen.content.live.text())
                result = BucketResult(CommitMessage(source.partition, _READ, source.total_buckets), report)
                values = (
                    number % slots,
                    source.partition,
                    _READ,
                    number << _PLACE_SHIFT,
                    result.to_bytes(),
                    None,
                    False,
                )
                columns = [pa.array([value], field.type) for value, field in zip(values, MESSAGES, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=MESSAGES)


class _Seen:
    """Totals of one input of a task, updated while it is read.

    ``content`` has the count and digest of the merged rows, and ``rows`` is the number of unmerged rows.
    """

    content = Content()
    rows = 0

    def of_file(self, file: DataFileMeta, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch to the number of unmerged rows."""
        del file
        self.rows += batch.num_rows


def _routed(job: _Job, seen: _Seen, source: RebucketTask, number: int) -> Iterator[tuple[int, RoutedRows]]:
    """Yield the rows of one source as pairs (position of the rows in the job's input, rows of one bucket).

    Args:
        job: Table, tasks and settings of the Spark job.
        seen: Totals of the source, to which the rows of a rescaled bucket are added.
        source: The source to read.
        number: Index of the source among all sources of the job.
    """
    writer, count = job.writer(), 0
    with closing(job.rows(source, seen)) as batches:  # type: ignore[type-var]
        for piece in in_pieces(batches):
            kinds, rows = None, piece
            if not job.rescales:
                kinds, rows = one_array(piece.column(VALUE_KIND)), piece.drop_columns([VALUE_KIND])
            else:
                for batch in piece.to_batches():
                    seen.content = seen.content.plus(content_of(batch, job.store.schema))
            for routed in writer.routed(rows, kinds, ALL.after(count)):
                yield (number << _PLACE_SHIFT) + count, routed
            count += piece.num_rows


def _written(job: _Job, family: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the second pass: write all buckets of the task, and read rescaled buckets again to verify them.

    Yields the results, or the error, as rows with the columns of `ANSWER_DDL`.
    """

    def write() -> list[bytes]:
        source_results: list[bytes] = []
        writer = job.writer(family)
        attempt, has_files = writer.store.own_uuid, False
        messages: list[CommitMessage] = []
        try:
            for _, routed in receive_groups(job.target.schema, _row_messages(batches, source_results)):
                if not has_files:
                    job.folder.begin(attempt)
                    has_files = True
                writer.add_routed(routed)
            if has_files:
                messages = writer.prepare_commit()
            if job.rescales:
                results = [read_again(job.target, message) for message in messages]
            else:
                results = [BucketResult(message, BucketReport()) for message in messages]
            if messages:
                job.folder.finish(attempt)
            elif has_files:
                job.folder.forget(attempt)
        except BaseException:
            writer.abort()
            abort(job.target, messages)
            job.folder.forget(attempt)
            raise
        return [*source_results, *(result.written_by(this_executor()).to_bytes() for result in results)]

    return answers(write)


def _row_messages(batches: Iterator[pa.RecordBatch], source_results: list[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the messages that contain rows, and collect the results of the first pass from the other messages.

    A message without rows has the serialized row count and digest of one input; it is added to ``source_results``.
    """
    for batch in batches:
        are_results = pc.equal(batch.column("bucket"), _READ)
        source_results += batch.filter(are_results).column("rows").to_pylist()  # one per source
        yield batch.filter(pc.invert(are_results))
