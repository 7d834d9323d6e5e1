"""Compaction of buckets (`BucketTask`) as one Spark job.

A large bucket is cut into pieces by key ranges, and small buckets share a Spark task. A bucket that needs more memory
than an executor has is declined. Spark tasks create empty files ("notes") in a folder of the job (`WriteFolder`): one
when a task begins, and one for each finished unit (a bucket or a piece). From these notes the driver derives the
progress of the job, on classic sessions and on Connect. The notes also identify the files of task attempts that were
killed or whose answer was lost.
"""

from __future__ import annotations

import heapq
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lsm_core.commit import CommitMessage, abort, discard_on_failure
from lsm_core.compact import BucketResult, BucketTask, run_bucket_task
from lsm_core.compact.pieces import Task, count_pieces, cut_task, input_size, join, rewritten_sizes
from lsm_core.compact.splice import SplicedGroup
from lsm_core.compact.task import task_from_bytes
from lsm_core.errors import DredgeError
from lsm_core.format.entry_files import file_sizes
from lsm_core.json_text import parse_json
from lsm_core.maintenance.action import size_text
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata.store import TableStore
from lsm_core.options import memory_size
from lsm_core.read.key_range import KeyRange
from lsm_core.spark.spark_tasks import (
    ANSWER_DDL,
    Shipped,
    TaskOutcome,
    answer,
    collect,
    failure,
    raise_first,
    run_tasks,
    shipped_store,
    slots_of,
    this_executor,
    translate_errors,
    use_this_python,
)
from lsm_core.spark.write_folder import WriteFolder, new_family
from lsm_core.tracing import record_span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = logging.getLogger(__name__)
_UNITS: Final = pa.schema([("task", pa.int32()), ("unit", pa.int32()), ("share", pa.int32()), ("payload", pa.binary())])
_TASKS_PER_SLOT: Final = 4
"""Spark tasks per task slot: few enough to cost little, enough for the last tasks to end together."""
_TASK_BYTES: Final = 512 << 20
"""Maximum average of input bytes per Spark task, which bounds the work that is lost with an executor."""
_UNIT_BYTES: Final = 1 << 20
"""Fixed cost of a bucket or piece (open, write and re-read files), as input bytes that are compacted in that time."""
_CUT_BY_DRIVER: Final = 8
"""The driver samples the keys of up to this number of large buckets itself, because a Spark job would take longer."""
_WORKER_BYTES: Final = 190 << 20
"""Resident size of a Python worker with Arrow and Dredge, before it compacts anything (measured)."""
_DECODED: Final = 8
"""Usual maximum of bytes in memory per byte in a file."""
_LEAST_WINDOWS: Final = 16
"""Maximum divisor of `dredge.merge-budget`."""
_TELL_SECONDS: Final = 1.0
_LOG_SECONDS: Final = 15.0
_DONE: Final = ".unit"


@dataclass(frozen=True)
class JobProgress:
    """Progress of a compaction on Spark.

    Attributes:
        table: Name of the table.
        units_done: Number of finished buckets, including those that failed or were declined.
        units: Number of all buckets of the plan.
        bytes_done: Input bytes (file sizes) that are done.
        bytes: All input bytes.
        rows_done: Unmerged input rows that are done.
        rows: All unmerged input rows.
        seconds: Seconds since the start.
        seconds_left: Estimated remaining seconds at the present rate; None while nothing is done.
    """

    table: str
    units_done: int
    units: int
    bytes_done: int
    bytes: int
    rows_done: int
    rows: int
    seconds: float
    seconds_left: float | None

    def text(self) -> str:
        """Return the progress as text for people.

        Example: "12 of 1,000 buckets, 12 MiB of 1.0 GiB, 120,000 of 10,000,000 rows, about 35 s left".
        """
        left = "" if self.seconds_left is None else f", about {self.seconds_left:.0f} s left"
        return (
            f"{self.units_done:,} of {self.units:,} buckets, {size_text(self.bytes_done)} of {size_text(self.bytes)}, "
            f"{self.rows_done:,} of {self.rows:,} rows{left}"
        )


Tell = Callable[[JobProgress], object]


class Meter:
    """Counter of the progress of a compaction plan over all its Spark jobs; it reports to the log and to a function."""

    def __init__(self, table: str, tell: Tell | None, units: int, size: int, rows: int) -> None:
        self._table, self._tell = table, tell
        self._whole = (units, size, rows)
        self._before = (0, 0, 0)
        self._began = time.monotonic()
        self._logged = self._began

    def add(self, units: int, size: int, rows: int) -> None:
        """Count buckets as finished, including those that failed or were declined, and report the progress.

        Args:
            units: Number of buckets.
            size: Input bytes of the buckets (file sizes).
            rows: Unmerged input rows of the buckets.
        """
        self._before = (self._before[0] + units, self._before[1] + size, self._before[2] + rows)
        self.say(0, 0, 0)

    def say(self, units: int, size: int, rows: int) -> None:
        """Report the progress: the buckets counted by `add` plus the finished part of the running job.

        Args:
            units: Number of buckets that the running job has finished.
            size: Input bytes that the running job has finished (file sizes).
            rows: Unmerged input rows that the running job has finished.
        """
        done = [known + now for known, now in zip(self._before, (units, size, rows), strict=True)]
        whole = [max(all_of_it, now) for all_of_it, now in zip(self._whole, done, strict=True)]
        seconds = time.monotonic() - self._began
        share = done[1] / whole[1] if whole[1] else done[0] / max(1, whole[0])
        left = seconds / share - seconds if share else None
        progress = JobProgress(self._table, done[0], whole[0], done[1], whole[1], done[2], whole[2], seconds, left)
        last = done[0] >= whole[0]
        if last or time.monotonic() - self._logged >= _LOG_SECONDS:
            self._logged = time.monotonic()
            _LOG.info("compacting table %s: %s", self._table, progress.text())
        if self._tell is not None:
            self._tell(progress)


def meter_of(store: TableStore, tasks: Sequence[BucketTask], tell: Tell | None) -> Meter:
    """Return a progress meter whose totals are the buckets, input bytes and rows of ``tasks``.

    Args:
        store: The table.
        tasks: The tasks whose progress is reported.
        tell: Function that receives each `JobProgress`; None to report to the log only.
    """
    sizes = [input_size(task) for task in tasks]
    return Meter(store.name, tell, len(tasks), sum(size for size, _ in sizes), sum(rows for _, rows in sizes))


# -- memory ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Memory limit of the Python workers of an executor, and the number of workers that run at once.

    Attributes:
        executor: Bytes for all workers of an executor; None without a limit.
        workers: Number of workers that run at once.
    """

    executor: int | None
    workers: int

    @classmethod
    def of(cls, spark: SparkSession, executor_memory: int | None) -> Memory:
        """Return the memory limit and the number of workers of an executor.

        Args:
            spark: The session.
            executor_memory: Limit in bytes. If None, the setting `spark.executor.pyspark.memory`, which Spark itself
                enforces, is the limit. Without this setting there is no limit.

        Raises:
            InvalidOption: The setting is not a memory size.
        """
        workers = int(str(spark.conf.get("spark.executor.cores", None) or 0)) or slots_of(spark)
        each = max(1, int(str(spark.conf.get("spark.task.cpus", None) or 1)))
        setting = spark.conf.get("spark.executor.pyspark.memory", None)
        if executor_memory is None and setting:
            text = str(setting)
            executor_memory = int(text) << 20 if text.isdigit() else memory_size(text)
        return cls(executor_memory, max(1, workers // each))

    def share(self, store: TableStore, task: BucketTask) -> int | None:
        """Return the smallest divisor of the merge budget with which a task fits into memory beside other tasks.

        Returns:
            The divisor (1 without a limit), 0 if the task fits only alone on an executor, or None if the task does not
                fit at all.
        """
        if self.executor is None:
            return 1
        share = 1
        while share <= _LEAST_WINDOWS:
            if memory_needed(store, task, share) * self.workers <= self.executor:
                return share
            share *= 2
        return 0 if memory_needed(store, task, _LEAST_WINDOWS) <= self.executor else None


def memory_needed(store: TableStore, task: BucketTask, share: int = 1) -> int:
    """Return the maximum memory (bytes) of a worker that runs a task with the merge budget divided by ``share``.

    The memory does not grow with the bucket beyond the merge budget, because rows are merged in windows of keys.
    """
    return _WORKER_BYTES + min(store.options.merge_budget // share, _DECODED * input_size(task)[0])


# -- the job ---------------------------------------------------------------------------------------------------


def compact_in_tasks(
    spark: SparkSession, store: TableStore, tasks: Sequence[BucketTask], memory: Memory, meter: Meter
) -> Iterator[BucketResult]:
    """Compact buckets as one Spark job and yield one result per task, in the order of ``tasks``.

    Tasks that fit only alone on an executor run one by one in a second job. A failed task has a result with
    `BucketResult.error`. A task that does not fit into ``memory`` has a result with `BucketResult.declined`.

    Raises:
        SparkFailed: Spark did not finish the job. The job's files are deleted as far as they can be found.
    """
    shares = [memory.share(store, task) for task in tasks]
    done: dict[int, BucketResult] = {}
    for at, (task, share) in enumerate(zip(tasks, shares, strict=True)):
        if share is None:
            demand = size_text(memory_needed(store, task, _LEAST_WINDOWS))
            text = f"needs {demand}, an executor has {size_text(memory.executor or 0)}"
            done[at] = BucketResult.without(task, declined=f"its task {text} for Python's workers")
            meter.add(1, *input_size(task))
    shared_tasks = [at for at, share in enumerate(shares) if share]
    single_tasks = [at for at, share in enumerate(shares) if share == 0]
    messages: list[CommitMessage] = []
    with discard_on_failure(store, messages):
        for chosen, one_by_one in ((shared_tasks, False), (single_tasks, True)):
            picked = [tasks[at] for at in chosen]
            if not picked:
                continue
            windows = [shares[at] or _LEAST_WINDOWS for at in chosen]
            for at, result in zip(chosen, _job(spark, store, picked, windows, one_by_one, meter), strict=True):
                done[at] = result
                messages.append(result.message)
    kept = [done[at].message for at in reversed(range(len(tasks)))]
    with discard_on_failure(store, kept):  # files of results that the caller did not take
        for at in range(len(tasks)):
            kept.pop()
            yield done[at]


def _job(
    spark: SparkSession,
    store: TableStore,
    tasks: Sequence[BucketTask],
    windows: Sequence[int],
    one_by_one: bool,
    meter: Meter,
) -> list[BucketResult]:
    pieces = [[task] for task in tasks] if one_by_one else cut_by_keys(spark, store, tasks)
    units = [piece for parts in pieces for piece in parts]
    owner = [number for number, parts in enumerate(pieces) for _ in parts]
    sizes = [input_size(task)[0] // len(parts) for task, parts in zip(tasks, pieces, strict=True) for _ in parts]
    groups = [0] * len(units) if one_by_one else pack_units(sizes, _TASKS_PER_SLOT * slots_of(spark))
    rows = pa.table(
        [
            pa.array(groups, pa.int32()),
            pa.array(range(len(units)), pa.int32()),
            pa.array([windows[number] for number in owner], pa.int32()),
            pa.array([unit.to_bytes() for unit in units], pa.binary()),
        ],
        schema=_UNITS,
    )
    title, family, folder = f"compacting table {store.name}", new_family(), WriteFolder.plan(store)
    use_this_python(spark)
    spare = max(groups) + 1 < slots_of(spark)
    outcomes: list[TaskOutcome] = []
    answered: dict[int, BucketResult] = {}
    failed = True
    try:
        named = name_job(
            spark,
            f"{title}: {len(tasks):,} buckets, {size_text(sum(sizes))}",
            table=store.name,
            tasks=max(groups) + 1,
            files_in=sum(len(task.unit_names or task.files) for task in tasks),
            bytes_in=sum(sizes),
        )
        with named, translate_errors(title):
            spread = spark.createDataFrame(rows).repartitionById(max(groups) + 1, "task")
            job = spread.mapInArrow(Shipped(_compact_units, store.to_json(), family, folder.folder, spare), ANSWER_DDL)
            with _watched(folder, pieces, owner, meter):
                outcomes = collect(job, title)
        answered = {
            outcome.task: BucketResult.from_bytes(outcome.answer) for outcome in outcomes if outcome.error is None
        }
        failed = False
    finally:
        places = {folder for task in tasks for folder in store.write_dirs(task.partition, task.bucket)}
        messages = [result.message for result in answered.values()]
        folder.end(family, messages, {*places, f"{store.root}/index"}, failed=failed)
    return _results(store, tasks, pieces, outcomes, answered)


def pack_units(sizes: Sequence[int], tasks: int) -> list[int]:
    """Distribute units of work to Spark tasks of about equal size, and return the task number of each unit.

    Args:
        sizes: Bytes of each unit.
        tasks: Wanted number of tasks. There are more tasks if their average size would exceed 512 MiB, and never more
            tasks than units.
    """
    costs = [size + _UNIT_BYTES for size in sizes]
    count = min(len(sizes), max(tasks, -(-sum(costs) // _TASK_BYTES)))
    heap = [(0, number) for number in range(count)]
    task_numbers = [0] * len(sizes)
    for at in sorted(range(len(sizes)), key=lambda at: -costs[at]):
        load, number = heap[0]
        task_numbers[at] = number
        heapq.heapreplace(heap, (load + costs[at], number))
    return task_numbers


def _results(
    store: TableStore,
    tasks: Sequence[BucketTask],
    pieces: Sequence[Sequence[BucketTask]],
    outcomes: Sequence[TaskOutcome],
    answered: dict[int, BucketResult],
) -> list[BucketResult]:
    """Return one result per task, joined from the results of its pieces (the key ranges into which it was cut).

    If one piece failed, the task has failed and the files of its other pieces are deleted.

    Args:
        store: The table.
        tasks: Compaction tasks, one per bucket.
        pieces: Pieces of each task. Pieces are numbered over all tasks, from 0.
        outcomes: Outcomes of pieces; `TaskOutcome.task` is the number of the piece.
        answered: Result of each piece that succeeded, by the number of the piece.
    """
    ends = list(accumulate(map(len, pieces), initial=0))
    errors = {outcome.task: outcome.error for outcome in outcomes if outcome.error is not None}
    results: list[BucketResult] = []
    with discard_on_failure(store, [result.message for result in answered.values()]):
        for task, cut, (start, end) in zip(tasks, pieces, pairwise(ends), strict=True):
            own = [answered[at] for at in range(start, end) if at in answered]
            error = next((errors[at] for at in range(start, end) if at in errors), None)
            try:
                if error is not None:
                    abort(store, [result.message for result in own])
                    results.append(BucketResult.without(task, error))
                else:
                    results.append(join(store, cut, own))
            except DredgeError as unjoined:  # its files are gone: see `join`
                results.append(BucketResult.without(task, unjoined))
    return results


def _compact_units(
    store_text: str, family: str, folder: str, spare: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Compact the units (buckets or pieces) of one Spark task in sequence, and verify each unit.

    A unit is verified by a second merge of sampled keys with the row-by-row reference (`ReferenceJudge`).

    Args:
        store_text: The table as JSON.
        family: Prefix of the UUIDs in the names of the job's files.
        folder: Path of the folder in which each finished unit is noted.
        spare: Whether some cores have no task of the job, so that a second thread saves time.
        batches: Rows with the columns `unit` (number), `share` (divisor of the merge budget) and `payload` (the
            serialized `BucketTask`).

    Yields:
        Answer or error of each unit, as a batch of one row (`ANSWER_SCHEMA`).
    """
    store = shipped_store(store_text).in_family(family)
    notes, attempt, has_files = WriteFolder(store, folder), store.own_uuid, False
    done: list[BucketResult] = []
    try:
        for batch in batches:
            for place in range(batch.num_rows):  # one per unit
                if not has_files:
                    notes.begin(attempt)
                    has_files = True
                unit, share, payload = (batch.column(name)[place].as_py() for name in ("unit", "share", "payload"))
                try:
                    task = task_from_bytes(payload)
                    result = run_bucket_task(store, task, ReferenceJudge(), pipelined=spare, share=share)
                except Exception as error:  # noqa: BLE001  (an outcome: the other units are not affected)
                    yield failure(unit, error)
                else:
                    done.append(result.written_by(this_executor()))
                    yield answer(unit, done[-1].to_bytes())
                notes.note(f"{unit}{_DONE}")
        if any(result.message.written() for result in done):
            notes.finish(attempt)
        else:
            notes.forget(attempt)
    except BaseException:
        abort(store, [result.message for result in done])
        notes.forget(attempt)
        raise


def cut_by_keys(
    spark: SparkSession, store: TableStore, tasks: Sequence[Task], *, whole: bool = False
) -> list[list[Task]]:
    """Cut the tasks of large buckets into pieces, and return the pieces of each task in the order of ``tasks``.

    A piece is the same task limited to a range of keys. The task of a small bucket is its only piece. The driver
    samples the keys of up to 8 large buckets itself. For more large buckets, Spark tasks sample the keys.

    Args:
        spark: The session.
        store: The table.
        tasks: The tasks to cut.
        whole: Whether the tasks read all their files, not only those that a compaction rewrites.

    Raises:
        CorruptFile: A file is missing or damaged.
        PlanStale: The table has changed since the plan was made.
        SparkFailed: The Spark job failed.
    """
    if whole:
        sizes = [sum(size for _, size, _ in file_sizes(task.files)) for task in tasks]
    else:
        sizes = rewritten_sizes(store, tasks, slots_of(spark))
    counts = count_pieces(sizes, slots_of(spark), store.options.piece_size)
    chosen = [at for at, count in enumerate(counts) if count > 1]
    pieces = [[task] for task in tasks]
    if len(chosen) <= _CUT_BY_DRIVER:
        for at in chosen:
            pieces[at] = cut_task(store, tasks[at], counts[at], whole=whole)
        return pieces
    payloads = [b"%d\n%b" % (counts[at], tasks[at].to_bytes()) for at in chosen]
    work = partial(_bounds, store.to_json(), whole)
    outcomes = run_tasks(spark, f"cutting buckets of table {store.name}", payloads, work)
    raise_first(outcomes)
    for at, outcome in zip(chosen, outcomes, strict=True):
        untouched, spliced, cuts = parse_json(outcome.answer)
        task = replace(
            tasks[at],
            untouched=None if untouched is None else tuple(untouched),
            spliced=tuple(map(SplicedGroup.of_list, spliced)),
        )
        bounds = [bytes.fromhex(text) for text in cuts]
        ranges = map(KeyRange, [None, *bounds], [*bounds, None])
        pieces[at] = [replace(task, piece=key_range) for key_range in ranges] if bounds else [task]
    return pieces


def _bounds(store_text: str, whole: bool, payload: bytes) -> bytes:
    """Return as JSON what a large bucket's task keeps and splices, and the keys at which it is cut (hex).

    Args:
        store_text: The table as JSON.
        whole: Whether the task reads all its files, not only those that a compaction rewrites.
        payload: Number of pieces in decimal digits, a newline, and the serialized task.
    """
    count, _, task = payload.partition(b"\n")
    pieces = cut_task(shipped_store(store_text), BucketTask.from_bytes(task), int(count), whole=whole)
    cuts = [piece.piece.low.hex() for piece in pieces if piece.piece and piece.piece.low]
    return json.dumps([pieces[0].untouched, [group.to_list() for group in pieces[0].spliced], cuts]).encode()


# -- what the driver sees of a job ------------------------------------------------------------------------------


@contextmanager
def _watched(
    folder: WriteFolder, pieces: Sequence[Sequence[BucketTask]], owner: Sequence[int], meter: Meter
) -> Iterator[None]:
    """Report the progress of the job from its tasks' notes about once a second during the block, and at its end.

    Args:
        folder: Folder with the notes.
        pieces: Pieces of each bucket task. Pieces are numbered over all tasks, from 0.
        owner: Index of the bucket task of each piece.
        meter: Receives the finished tasks, bytes and rows.
    """
    sizes = [input_size(parts[0]) for parts in pieces]
    counts = [len(parts) for parts in pieces]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_TELL_SECONDS):
            with suppress(OSError, DredgeError):
                names = [size_and_rows.name for size_and_rows in folder.store.file_io.list_dir(folder.folder)]
                done = {int(name.removesuffix(_DONE)) for name in names if name.endswith(_DONE)}
                left = list(counts)
                for unit in done:
                    left[owner[unit]] -= 1
                shares = [(count - remaining) / count for count, remaining in zip(counts, left, strict=True)]
                size = sum(int(share * size_and_rows[0]) for share, size_and_rows in zip(shares, sizes, strict=True))
                rows = sum(int(share * size_and_rows[1]) for share, size_and_rows in zip(shares, sizes, strict=True))
                meter.say(left.count(0), size, rows)

    thread = threading.Thread(target=watch, name="dredge-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    meter.add(len(pieces), sum(size for size, _ in sizes), sum(rows for _, rows in sizes))


@contextmanager
def name_job(spark: SparkSession, text: str, **attributes: str | float | None) -> Iterator[None]:
    """Describe the jobs of the block by a text in Spark's UI (on Connect: by a tag), and record a tracing span.

    Args:
        spark: Spark session.
        text: description of the jobs.
        attributes: attributes of the span.
    """
    with record_span("spark_job", job=text, **attributes), _describe_jobs(spark, text):
        yield


@contextmanager
def _describe_jobs(spark: SparkSession, text: str) -> Iterator[None]:
    context: Any = None
    with suppress(Exception):  # as Connect's sessions raise it
        context = spark.sparkContext
    if context is None:
        tag = text.replace(",", "")
        spark.addTag(tag)
        try:
            yield
        finally:
            spark.removeTag(tag)
        return
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)
