"""Postponed rows get their buckets on Spark: tasks read the postponed files and send rows to their buckets, a task per bucket writes them.

Rows cross the shuffle with their place in the replay, so every bucket is written in the order in which the rows came.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lsm_core.arrays import one_array
from lsm_core.commit import CommitMessage, discard_on_failure
from lsm_core.compact import BucketReport, BucketResult
from lsm_core.format.kv_layout import VALUE_KIND
from lsm_core.maintenance.actions.assign_buckets.assigning import AssignTask, replayed_rows
from lsm_core.metadata.store import TableStore
from lsm_core.spark.spark_tasks import ANSWER_DDL, PAYLOADS, Shipped, batches_of, collect, raise_first, translated
from lsm_core.spark.spark_write import MESSAGES_DDL, answers, in_pieces, received, sent
from lsm_core.write import BucketHistory, RoutedRows
from lsm_core.write.incoming_rows import ALL
from lsm_core.write.table_write import StoredRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_BYTES: Final = 64 << 20
_PLACE_SHIFT: Final = 40  # a message's place = file, then its first row in it (below 2^40 rows a file)


@dataclass(frozen=True)
class _Job:
    """Tasks of as many buckets each; sent to Spark's tasks. ``target``: the table as writers of so many buckets see it."""

    store: TableStore
    target: TableStore
    history: BucketHistory
    tasks: tuple[AssignTask, ...]

    def writer(self) -> StoredRows:
        """A writer that reads no metadata."""
        return StoredRows(self.target, beside=True, planned=self.history)


def assign_on_spark(spark: SparkSession, store: TableStore, tasks: Sequence[AssignTask]) -> Iterator[BucketResult]:
    """Results of all buckets that get rows: one Spark job for the partitions of as many buckets.

    Raises VerificationFailed where a file does not hold its rows, CorruptFile, SparkFailed; what finished tasks wrote is deleted then
    (a killed worker leaves files that no snapshot names).
    """
    for buckets, group in groupby(sorted(tasks, key=attrgetter("total_buckets")), key=attrgetter("total_buckets")):
        yield from _assigned(spark, store, tuple(group), buckets)


def _assigned(
    spark: SparkSession, store: TableStore, tasks: tuple[AssignTask, ...], buckets: int
) -> list[BucketResult]:
    target, what = tasks[0].target(store), f"assigning buckets of table {store.name}"
    job = _Job(store, target, BucketHistory.of_whole_table(target), tasks)
    files = [(at, place) for at, task in enumerate(tasks) for place in range(len(task.files))]
    payloads = [b"%d %d" % file for file in files]
    parallel = int(str(spark.conf.get("spark.sql.shuffle.partitions", "8")))
    slots = buckets if len(tasks) == 1 else buckets * max(1, -(-parallel // buckets))
    rows = pa.table([pa.array(range(len(payloads)), pa.int32()), pa.array(payloads, pa.binary())], schema=PAYLOADS)
    with translated(what), batches_of(spark, _BATCH_BYTES):
        listed = spark.createDataFrame(rows).repartitionById(len(payloads), "task")
        moved = listed.mapInArrow(Shipped(_read, job, slots), MESSAGES_DDL)
        placed = moved.repartitionById(slots, "slot").sortWithinPartitions("partition", "bucket", "place")
        outcomes = collect(placed.mapInArrow(Shipped(_written, job), ANSWER_DDL), what)
    messages = [CommitMessage.from_bytes(outcome.answer) for outcome in outcomes if outcome.error is None]
    with discard_on_failure(store, messages):
        raise_first(outcomes)
    return [BucketResult(message, BucketReport()) for message in messages]


def _read(job: _Job, slots: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first pass: the rows of postponed files by bucket, as messages to the task (``slot``) that writes the bucket."""
    buckets = job.target.options.bucket

    def slot(routed: RoutedRows) -> int:
        return zlib.crc32(routed.partition) % (slots // buckets) * buckets + routed.bucket

    for batch in batches:
        for number, payload in zip(batch.column("task").to_pylist(), batch.column("payload").to_pylist(), strict=True):
            at, place = map(int, payload.split())
            yield from sent(_routed(job, job.tasks[at], place, number), slot)


def _routed(job: _Job, task: AssignTask, file: int, number: int) -> Iterator[tuple[int, RoutedRows]]:
    """The rows of one file by bucket, each group with its place; ``number``: of the file among all, in the order of the replay."""
    writer, seen = job.writer(), 0
    for piece in in_pieces(replayed_rows(job.store, task.partition, task.files[file])):
        kinds = one_array(piece.column(VALUE_KIND))
        for routed in writer.routed(piece.drop_columns([VALUE_KIND]), kinds, ALL.after(seen)):
            yield (number << _PLACE_SHIFT) + seen, routed
        seen += piece.num_rows


def _written(job: _Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The second: a writer for all buckets of the task."""

    def write() -> list[bytes]:
        writer = job.writer()
        try:
            for _, routed in received(job.target.schema, batches):
                writer.add_routed(routed)
            return [message.to_bytes() for message in writer.prepare_commit()]
        except BaseException:
            writer.abort()
            raise

    return answers(write)


__all__ = ["assign_on_spark"]
