"""Sort compaction on Spark: tasks read files and shuffle rows by sort range; one task per range sorts and writes rows.

A small partition is one task without a shuffle (`compact`). For a large partition, a first task samples the keys to
choose the ranges. Rows cross the shuffle as Arrow streams, so that every type is preserved.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lsm_core.commit import CommitMessage, discard_on_failure
from lsm_core.compact import BucketReport, BucketResult
from lsm_core.compact.clustering.ranges import Cuts, Layout, plan_layout
from lsm_core.compact.clustering.rewrite import estimate_ranges, first_sequence, range_bytes, write_sorted
from lsm_core.compact.clustering.sorting import RangeDistributor, batch_rows, sort_batches
from lsm_core.compact.rewrite import RewriteResult
from lsm_core.compact.row_digests import Content, content_of
from lsm_core.compact.task import COUNTS, V0, V1, SortTask
from lsm_core.compact.task_vectors import TaskVectors
from lsm_core.compact.unit import discard
from lsm_core.compact.verify import check_content, check_counters
from lsm_core.errors import VerificationFailed
from lsm_core.files import SpillSpace, open_append
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import append_arrow_schema
from lsm_core.merge import Digest
from lsm_core.metadata.manifests import tracks_rows, with_row_ids
from lsm_core.metadata.store import TableStore
from lsm_core.spark.spark_tasks import (
    ANSWER_DDL,
    PAYLOADS,
    Shipped,
    TaskOutcome,
    answer,
    batches_of,
    collect,
    failure,
    raise_first,
    run_tasks,
    shipped_store,
    this_executor,
    translate_errors,
)
from lsm_core.spark.write_folder import WriteFolder, new_family
from lsm_core.storage.allocator import keep_small_arrays

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MESSAGES: Final = pa.schema([("share", pa.int32()), ("rows", pa.binary()), ("digest", pa.string())])
_MESSAGES_DDL: Final = "share INT, rows BINARY, digest STRING"
_MESSAGE_BYTES: Final = 4 * 1024 * 1024
_BATCH_BYTES: Final = 32 * 1024 * 1024


def shares_of(store: TableStore, task: SortTask) -> int:
    """Return the number of Spark tasks that write the sorted rows: one per target file size of the input files."""
    target = store.options.target_file_size(has_primary_key=False)
    return max(1, -(-sum(file.file_size for file in task.files_to_sort) // max(1, target)))


def sort_on_spark(spark: SparkSession, store: TableStore, task: SortTask) -> BucketResult:
    """Sort one large partition and return its commit message and counts, without a commit.

    The input rows are compared with the rows read back from the new files. After an error all files of the tasks are
    deleted, including unfinished files of killed workers.

    Raises:
        VerificationFailed: The new files do not hold the rows of the old ones.
        CorruptFile: A file of the partition is missing or damaged.
        StorageFull: The storage has no space left.
        SparkFailed: The Spark job failed.
    """
    started = time.perf_counter()
    title = f"sorting table {store.name}"
    target_shares = shares_of(store, task)
    planned = run_tasks(spark, title, [b"%d\n%b" % (target_shares, task.to_bytes())], partial(_layout, store.to_json()))
    raise_first(planned)
    layout = Layout.from_json(planned[0].answer.decode())
    shares = min(target_shares, layout.cuts.ranges)
    readers = _groups(task.files_to_sort, 2 * shares)
    payloads = [replace(task, files=tuple(files), bins=()).to_bytes() for files in readers]
    rows = pa.table([pa.array(range(len(payloads)), pa.int32()), pa.array(payloads, pa.binary())], schema=PAYLOADS)
    text, light = layout.to_json(), replace(task, files=(), bins=()).to_bytes()
    first = first_sequence(task.files_to_sort)
    folder, family = WriteFolder.plan(store), new_family()
    result: BucketResult | None = None
    try:
        with translate_errors(title), batches_of(spark, _BATCH_BYTES):
            files = spark.createDataFrame(rows).repartitionById(len(payloads), "task")
            sent = files.mapInArrow(Shipped(_reader, store.to_json(), text, shares), _MESSAGES_DDL)
            ranges = sent.repartitionById(shares, "share")
            about = (store.to_json(), family, folder.folder)
            outcomes = collect(
                ranges.mapInArrow(Shipped(_sorter, about, light, text, shares, first), ANSWER_DDL), title
            )
        result = _join_shares(store, task, outcomes, started)
    finally:
        messages = [] if result is None else [result.message]
        folder.end(family, messages, set(store.write_dirs(task.partition, task.bucket)), failed=result is None)
    return result


def _layout(store_text: str, payload: bytes) -> bytes:
    """Sample a partition in one Spark task, and return its layout in sort ranges that fit into memory, as JSON.

    The wanted number of ranges is a multiple of the number of shares (the parts that one task each sorts and writes).
    """
    store, (count, _, task_bytes) = shipped_store(store_text), payload.partition(b"\n")
    task, shares = SortTask.from_bytes(task_bytes), int(count)
    ranges, _ = estimate_ranges(store, task, task.files_to_sort)
    whole = -(-max(ranges, shares) // shares) * shares
    return plan_layout(store, task, task.files_to_sort, whole).to_json().encode()


def _groups(files: Sequence[DataFileMeta], most: int) -> list[list[DataFileMeta]]:
    """Return the files in at most ``most`` groups of about equal size in bytes."""
    groups: list[list[DataFileMeta]] = [[] for _ in range(min(most, len(files)))]
    sizes = [0] * len(groups)
    for file in sorted(files, key=lambda f: -f.file_size):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(file)
        sizes[smallest] += file.file_size
    return groups


def _opened(store_text: str, family: str = "") -> TableStore:
    store = shipped_store(store_text).in_family(family)
    return with_row_ids(store) if tracks_rows(store) else store


# -- the reading tasks -----------------------------------------------------------------------------------------------


def _reader(
    store_text: str, layout_text: str, shares: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    store, layout = _opened(store_text), Layout.from_json(layout_text)
    keep_small_arrays()
    outer, _ = layout.shares(shares)
    for batch in batches:
        for place in range(batch.num_rows):  # one per task
            task = SortTask.from_bytes(batch.column("payload")[place].as_py())
            yield from _routed(store, task, layout, outer)


def _routed(store: TableStore, task: SortTask, layout: Layout, outer: Cuts) -> Iterator[pa.RecordBatch]:
    """Yield messages (rows for one sort task each) that together have all rows of the files of ``task``.

    Each message also has the count and digest of its rows, with which the result is verified.
    """
    budget, schema = range_bytes(store), append_arrow_schema(store.schema)
    _, row_bytes = estimate_ranges(store, task, task.files)
    seen, sent, held = Content(), Content(), _Held(outer.ranges, schema)
    marks, place, size = TaskVectors(store, task), (task.partition, task.bucket), batch_rows(row_bytes, budget)
    for file in task.files:
        rows = open_append(store, *place, file, batch_rows=size, deleted=marks.vector(file))
        with closing(rows):  # type: ignore[type-var]
            for batch in rows:
                seen = seen.plus(content_of(batch, store.schema))
                order, stretches = outer.split(layout.curve.keys(batch))
                for share, start, end in stretches:
                    held.add(share, batch.take(pa.array(order[start:end])))
                if held.size > budget:
                    for share, part in held.emptied():
                        content = content_of(part, store.schema)
                        sent = sent.plus(content)
                        yield _message(share, part, content)
    for share, part in held.emptied():
        content = content_of(part, store.schema)
        sent = sent.plus(content)
        yield _message(share, part, content)
    if sent != seen:
        raise VerificationFailed("V1", [f"{seen.rows} rows read, {sent.rows} sent to their ranges, digests differ"])


class _Held:
    """Buffer of rows by number of the task that sorts the rows, before they are sent; ``size`` is in decoded bytes."""

    def __init__(self, shares: int, schema: pa.Schema) -> None:
        self._parts: list[list[pa.RecordBatch]] = [[] for _ in range(shares)]
        self._schema = schema
        self.size = 0

    def add(self, share: int, batch: pa.RecordBatch) -> None:
        """Buffer the rows of ``batch`` for the sort task with number ``share``."""
        self._parts[share].append(batch)
        self.size += batch.nbytes

    def emptied(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (number of the sort task, batch of about 4 MiB) for all buffered rows, and empty the buffer."""
        for share, parts in enumerate(self._parts):
            table = pa.Table.from_batches(parts, self._schema).combine_chunks()
            parts.clear()
            most = max(1, int(_MESSAGE_BYTES * table.num_rows / max(1, table.nbytes)))
            for batch in table.to_batches(max_chunksize=most):
                yield share, batch
        self.size = 0


def _message(share: int, batch: pa.RecordBatch, content: Content) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    columns = [pa.array([share], pa.int32()), pa.array([sink.getvalue().to_pybytes()]), pa.array([content.live.text()])]
    return pa.RecordBatch.from_arrays(columns, schema=_MESSAGES)


# -- the sorting tasks -----------------------------------------------------------------------------------------------


def _sorter(
    about: tuple[str, str, str],
    task_bytes: bytes,
    layout_text: str,
    shares: int,
    sequence: int,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    share = first.column("share")[0].as_py()
    keep_small_arrays()
    try:
        store_text, family, folder = about
        store, layout = _opened(store_text, family), Layout.from_json(layout_text)
        own = Layout(layout.curve, layout.shares(shares)[1][share])
        messages = _received(first, batches)
        notes = WriteFolder(store, folder)
        done = _sort_share(store, notes, SortTask.from_bytes(task_bytes), own, sequence, messages)
    except Exception as error:  # noqa: BLE001  (an outcome: the driver then cleans up after all tasks)
        yield failure(share, error)
    else:
        yield answer(share, done.to_bytes())


def _received(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, Content]]:
    batch: pa.RecordBatch | None = first
    while batch is not None:
        for place in range(batch.num_rows):  # one per message
            live = Digest.from_text(batch.column("digest")[place].as_py())
            with pa.ipc.open_stream(batch.column("rows")[place].as_buffer()) as stream:
                yield stream.read_next_batch(), Content(live=live)
        batch = next(batches, None)


def _sort_share(
    store: TableStore,
    notes: WriteFolder,
    task: SortTask,
    layout: Layout,
    sequence: int,
    messages: Iterator[tuple[pa.RecordBatch, Content]],
) -> BucketResult:
    """Sort and write the rows of one sort task, and verify that the rows read back are the rows of the messages.

    Args:
        store: The table.
        notes: Folder in which the task notes that it writes files.
        task: The sort of the whole partition.
        layout: Layout of this task's sort ranges.
        sequence: First sequence number of the new files.
        messages: Pairs (rows of the task, counts and digest of these rows).
    """
    received, after = _ReceivedContent(), tuple[DataFileMeta, ...]()
    notes.begin(store.own_uuid)
    try:
        after = write_sorted(store, task, sequence, _sorted(store, layout, messages, received))
        content = received.content
        check_counters(content.rows, content.rows, {}, after)
        again = check_content(store, task, RewriteResult((), after, content, {}))
        notes.finish(store.own_uuid)
    except BaseException:
        discard(store, task, after)
        notes.forget(store.own_uuid)
        raise
    message = CommitMessage(task.partition, task.bucket, task.total_buckets, compact_after=after)
    sizes = sum(file.file_size for file in after)
    report = BucketReport(rows_out=content.rows, bytes_out=sizes, digest=content.live.text(), rows_read_again=again)
    return BucketResult(message, report).written_by(this_executor())


class _ReceivedContent:
    """Row count and digest of the received messages, updated with each message."""

    content = Content()


def _sorted(
    store: TableStore, layout: Layout, messages: Iterator[tuple[pa.RecordBatch, Content]], received: _ReceivedContent
) -> Generator[pa.RecordBatch, None, None]:
    budget, schema = range_bytes(store), append_arrow_schema(store.schema)
    with SpillSpace.of(store.options) as space:
        spread = RangeDistributor(layout.curve, layout.cuts, schema, budget, space)
        for batch, content in messages:
            received.content = received.content.plus(content)
            spread.add(batch)
        for place in range(layout.cuts.ranges):
            yield from sort_batches(spread.take(place), layout.curve, schema, budget, space)


def _join_shares(store: TableStore, task: SortTask, outcomes: Sequence[TaskOutcome], started: float) -> BucketResult:
    """Return the joined result of all sorting tasks; raise an error if a task failed or a row was lost.

    Args:
        store: The table.
        task: The sort of the whole partition.
        outcomes: Outcome of each sorting task.
        started: Start of the sort by `time.perf_counter`, in seconds.
    """
    results = [BucketResult.from_bytes(outcome.answer) for outcome in outcomes if outcome.error is None]
    before, rows_out = task.files_to_sort, sum(result.report.rows_out for result in results)
    marks = TaskVectors(store, task)
    rows_in = marks.count_living(before)
    with discard_on_failure(store, [result.message for result in results]):
        raise_first(outcomes)
        if rows_in != rows_out:
            raise VerificationFailed("V0", [f"{rows_in} rows in, {rows_out} out"])
    after = tuple(file for result in results for file in result.message.compact_after)
    content = Digest()
    for result in results:
        content = content.add(Digest.from_text(result.report.digest))
    report = BucketReport(
        rows_in=rows_in,
        rows_out=rows_out,
        bytes_in=sum(file.file_size for file in before),
        bytes_out=sum(file.file_size for file in after),
        files_in=len(before),
        files_out=len(after),
        seconds=time.perf_counter() - started,
        verification=V0 if task.verification == COUNTS else V1,
        setting=task.verification,
        rows_read_again=sum(result.report.rows_read_again for result in results),
        digest=Content(live=content).text(),
        written_by={name: who for result in results for name, who in result.report.written_by.items()},
    )
    messages = [result.message for result in results]
    with discard_on_failure(store, messages):
        vectors = marks.change(before)
    message = CommitMessage(
        task.partition,
        task.bucket,
        task.total_buckets,
        compact_before=before,
        compact_after=after,
        compact_new_index_files=vectors.new,
        compact_deleted_index_files=vectors.deleted,
    )
    return BucketResult(message, report)
