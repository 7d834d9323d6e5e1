"""Division of a large bucket's task into tasks over disjoint key ranges ("pieces"), and the join of their results.

The cut keys between pieces are quantiles of keys sampled from the row groups of the files to rewrite, so that pieces
cost about the same. For the sample only key columns are decoded. A piece that begins inside a row group must decode the
group from its start, and every piece opens its files; both are part of the cost.

`run_tasks_locally` runs tasks and pieces on threads of this process, which run in parallel because Arrow releases
Python's global interpreter lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.commit import CommitMessage
from lsm_core.compact.exact_keys import find_untouched, sort_keys
from lsm_core.compact.splice_search import beside_spliced, find_spliced
from lsm_core.compact.task import BucketReport, BucketResult, BucketTask, Judge
from lsm_core.compact.task_vectors import TaskVectors, join_vectors
from lsm_core.compact.unit import discard_result, execute_task, plan_of, require_executable
from lsm_core.compact.verify import check_tree
from lsm_core.errors import DredgeError, VerificationFailed
from lsm_core.files import open_kv
from lsm_core.files.formats import FileSource
from lsm_core.format.binary_row import encode_rows
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.entry_files import file_sizes
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import key_names
from lsm_core.merge import key_bytes
from lsm_core.metadata.store import TableStore
from lsm_core.read.key_range import KeyBounds, KeyRange
from lsm_core.read.merge_read import Shapes
from lsm_core.read.scan import usable_cores
from lsm_core.tracing import in_current_span

Task = TypeVar("Task", bound=BucketTask)
_UNEVEN: Final = 1.5
"""A task is cut if its bytes are at least this multiple of the fair share (all bytes / workers)."""
_SAMPLED_FILES: Final = 64
_SAMPLED_GROUPS: Final = 48
_KEYS_OF_A_GROUP: Final = 16
_DECODING: Final = 0.4
"""Fraction of a row's compaction time (decode, merge, encode, verify) that decoding takes."""
_OPENING: Final = 8_000.0
"""Cost of opening a file, in rows that are compacted in the same time."""
_LEAST_GAIN: Final = 1.2
"""Smallest speed-up for which a task is cut into pieces."""


def count_pieces(sizes: Sequence[int], workers: int, least: int) -> list[int]:
    """Return, for each task, the number of pieces (tasks over key ranges) into which the task is cut.

    A fair share is all bytes / workers. A task of at least 1.5 fair shares is cut into about (its bytes / fair share)
    pieces. So no task is cut if there are many buckets of similar size, and a single huge bucket uses every worker.

    Args:
        sizes: input bytes of each task.
        workers: number of workers.
        least: smallest bytes of a piece.
    """
    total = sum(sizes)
    if workers < 2 or not total:
        return [1] * len(sizes)
    shares = [size * workers / total for size in sizes]
    return [
        max(1, min(round(share), size // max(1, least))) if share >= _UNEVEN else 1
        for share, size in zip(shares, sizes, strict=True)
    ]


def rewritten_bytes(store: TableStore, task: BucketTask) -> int:
    """Return the file bytes that the task rewrites; 0 for append tables, whose tasks are not cut.

    Raises:
        PlanStale: a file of the plan is no longer live.
    """
    return 0 if task.is_append else sum(file.file_size for file in _files_to_rewrite(store, task, Shapes(store)))


def input_size(task: BucketTask) -> tuple[int, int]:
    """Return the total bytes (file sizes) and the total rows of the input files of a task."""
    names = set(task.unit_names) or {name for names in task.bins for name in names}
    chosen = [(size, rows) for name, size, rows in file_sizes(task.files) if name in names]
    return sum(size for size, _ in chosen), sum(rows for _, rows in chosen)


def rewritten_sizes(store: TableStore, tasks: Sequence[BucketTask], workers: int) -> list[int]:
    """Return the bytes that each task rewrites, or more if no task is large enough to be cut for ``workers``.

    The largest tasks are planned one by one, until it is known that the others are too small to be cut
    (:func:`count_pieces`). So a driver does not plan 10,000 similar buckets again.

    Args:
        store: the table.
        tasks: the tasks.
        workers: number of workers.

    Raises:
        PlanStale: a file of the plan is no longer live.
    """
    sizes = [0 if task.is_append else input_size(task)[0] for task in tasks]
    total, largest = 0, 0
    for at in sorted(range(len(tasks)), key=lambda at: -sizes[at]):
        if max(largest, sizes[at]) * workers < _UNEVEN * total:
            return sizes  # no share of all bytes, which are at least ``total``, is large enough
        sizes[at] = rewritten_bytes(store, tasks[at])
        total, largest = total + sizes[at], max(largest, sizes[at])
    return sizes


def cut_task(store: TableStore, task: Task, pieces: int, *, whole: bool = False) -> list[Task]:
    """Cut a task into at most ``pieces`` tasks over disjoint key ranges, in key order.

    Key columns of a few row groups are decoded.

    Args:
        store: the table.
        task: the task.
        pieces: largest number of pieces.
        whole: True if the task reads all its files, False if it reads only files that a compaction rewrites.

    Returns:
        The pieces, or the task itself if cutting gains no time.

    Raises:
        CorruptFile: a file cannot be read; the error names it.
        PlanStale: a file of the plan is no longer live.
    """
    if pieces < 2 or task.is_append or task.piece is not None:
        return [task]
    shapes = Shapes(store)
    parts = [task] if whole else untouched_parts(store, task, shapes)
    task = replace(parts[0], piece=None)
    files = list(task.files) if whole else _files_to_rewrite(store, task, shapes)
    sample = _Sample.of(store, task, files)
    if sample is None:
        return parts
    bounds = sample.cuts(pieces)
    ranges = _ranges(bounds)
    if len(ranges) < 2:
        return parts
    uncut, longest = sample.rows + _OPENING * len(files), 0.0
    for key_range in ranges:
        within = KeyBounds(store, key_range)
        opened_files = sum(within.meets(shape) for shape in shapes.of(files))
        longest = max(longest, sample.cost(key_range) + _OPENING * opened_files)
    if uncut < _LEAST_GAIN * longest:
        return parts
    cuts = [part.piece.low for part in parts if part.piece is not None and part.piece.low is not None]
    bounds = beside_spliced(store, task.spliced, bounds)
    return [replace(task, piece=key_range) for key_range in _ranges(sort_keys(store, [*cuts, *bounds]))]


def untouched_parts(store: TableStore, task: Task, shapes: Shapes | None = None) -> list[Task]:
    """Return the tasks over the key ranges between files that the task keeps, as no other file has a key among theirs.

    Args:
        store: the table.
        task: the task, for all keys; the files that it keeps are found if they have not been (`BucketTask.untouched`).
        shapes: cache of the key ranges of files; None for a new cache.

    Returns:
        The tasks in key order; one if nothing is kept, or if all other files are on one side of the kept files.

    Raises:
        CorruptFile: a file cannot be read; the error names it.
        PlanStale: a file of the plan is no longer live.
    """
    if task.is_append or task.by_file or task.piece is not None or task.untouched is not None:
        return [task]
    shapes = shapes or Shapes(store)
    untouched = find_untouched(store, task, plan_of(store, task, shapes), shapes)
    task = replace(task, untouched=untouched.names)
    task = replace(task, spliced=find_spliced(store, task, plan_of(store, task, shapes), shapes))
    if not untouched.cuts:
        return [task]
    return [replace(task, piece=key_range) for key_range in _ranges(untouched.cuts)]


def _ranges(cuts: Sequence[bytes]) -> list[KeyRange]:
    return [KeyRange(low, high) for low, high in zip([None, *cuts], [*cuts, None], strict=True)]


def run_bucket_task(
    store: TableStore, task: BucketTask, judge: Judge | None = None, *, pipelined: bool = True, share: int = 1
) -> BucketResult:
    """Execute ``task`` and return its commit message and numbers; nothing is published.

    Files in whose key range no other file has a key are kept; what lies between them is rewritten range by range. The
    checks of `BucketTask.verification` come first, then the second merge of sampled keys by ``judge`` (V2) if given.
    After an error no output file is left. The result of a task for one key range (`BucketTask.piece`) cannot be
    committed alone: :func:`join` joins the results of all key ranges.

    Args:
        store: the table.
        task: the task.
        judge: merges sampled keys again to verify the result (V2); None to skip this verification.
        pipelined: use a second thread: for merging, then for re-reading.
        share: number of tasks (key ranges) of the bucket that share one merge budget and one sample of keys for V2.

    Raises:
        VerificationFailed: a check failed.
        CorruptFile: an input is missing or damaged.
        PlanStale: a file of the plan is no longer live.
        UnsupportedFeature: the table is not supported.
        StorageFull: the disk is full.
    """
    require_executable(store, task)
    shapes = Shapes(store)
    parts = untouched_parts(store, task, shapes)
    if len(parts) == 1:
        return execute_task(store, parts[0], judge, pipelined=pipelined, share=share, shapes=shapes)
    results: list[BucketResult] = []
    try:
        for part in parts:
            results.append(execute_task(store, part, judge, pipelined=pipelined, share=share, shapes=shapes))
    except BaseException:
        for result in results:
            discard_result(store, task, result)
        raise
    seconds = sum(result.report.seconds for result in results)  # one after the other
    result = join(store, parts, results)
    return replace(result, report=replace(result.report, seconds=seconds))


def _files_to_rewrite(store: TableStore, task: BucketTask, shapes: Shapes) -> list[DataFileMeta]:
    names = {file.name for file in plan_of(store, task, shapes).rewritten_files}
    return [file for file in task.files if file.file_name in names]


@dataclass(frozen=True, eq=False)
class _Sample:
    """Keys of sampled rows.

    Attributes:
        encoded: distinct keys as BinaryRows, ascending.
        comparable: the same keys as bytes in key order.
        ranks: index of each sampled row's key in ``encoded``.
        groups: row group of each sampled row.
        weights: number of rows that each sampled row represents.
    """

    encoded: list[bytes]
    comparable: list[bytes]
    ranks: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]

    @staticmethod
    def of(store: TableStore, task: BucketTask, files: Sequence[DataFileMeta]) -> _Sample | None:
        """Sample the ``files`` with the most rows, at most 64; return None if there are no rows."""
        chosen = sorted(files, key=lambda file: -file.row_count)[:_SAMPLED_FILES]
        key_tables: list[pa.Table] = []
        groups: list[npt.NDArray[np.int64]] = []
        weights: list[npt.NDArray[np.float64]] = []
        first = 0
        for file in chosen:
            sampled = _SampledKeys(max(1, _SAMPLED_GROUPS // len(chosen)))
            keys = sampled.keys(store, task, file)
            key_tables.append(keys)
            groups.append(sampled.groups + first)
            weights.append(sampled.weights)
            first += sampled.total
        if not key_tables or not sum(part.num_rows for part in key_tables):
            return None
        columns = [column.combine_chunks() for column in pa.concat_tables(key_tables).columns]
        encoded = encode_rows(columns, store.schema.trimmed_key_types).to_numpy(zero_copy_only=False)
        comparable = key_bytes(columns).to_numpy(zero_copy_only=False)
        distinct, ranks = np.unique(comparable, return_inverse=True)
        firsts = np.zeros(len(distinct), np.int64)
        firsts[ranks] = np.arange(len(ranks))
        weight = np.concatenate(weights)
        weight *= sum(file.row_count for file in files) / weight.sum()
        return _Sample(list(encoded[firsts]), list(distinct), ranks, np.concatenate(groups), weight)

    @property
    def rows(self) -> float:
        """Number of rows that the sample represents."""
        return float(self.weights.sum())

    def cuts(self, pieces: int) -> list[bytes]:
        """Return up to ``pieces - 1`` cut keys (ascending BinaryRows) between key ranges of about the same cost."""
        below = np.concatenate(([0.0], np.cumsum(np.bincount(self.ranks, self.weights))))
        middle = int(np.searchsorted(below, self.rows / 2))
        repeated_cost = _DECODING * self._decoded_twice(middle)
        share = (self.rows + (pieces - 1) * repeated_cost) / pieces
        cut_weights = share + np.arange(pieces - 1) * (share - repeated_cost)
        places = np.clip(np.rint(np.interp(cut_weights, below, np.arange(len(below)))), 0, len(self.encoded))
        return [self.encoded[place] for place in np.unique(places.astype(np.int64)) if 0 < place < len(self.encoded)]

    def cost(self, key_range: KeyRange) -> float:
        """Return the cost of compacting a key range, in rows.

        Rows before the range that must be decoded, because the range begins inside a row group, count as a fraction.
        """
        low = 0 if key_range.low is None else self.encoded.index(key_range.low)
        high = len(self.encoded) if key_range.high is None else self.encoded.index(key_range.high)
        inside = (self.ranks >= low) & (self.ranks < high)
        return float(self.weights[inside].sum()) + _DECODING * self._decoded_twice(low)

    def _decoded_twice(self, rank: int) -> float:
        """Return the number of rows that both pieces (tasks over key ranges) decode if the keys are cut at one key.

        If the cut is inside a row group, the second piece must decode the group from its start.

        Args:
            rank: index of the cut key in :attr:`encoded`.
        """
        inside = np.bincount(self.groups, self.weights)
        below = np.bincount(self.groups, self.weights * (self.ranks < rank))
        return float(below[(below > 0) & (below < inside)].sum())


class _SampledKeys:
    """Sampled keys of one file: evenly spaced rows of evenly spaced row groups."""

    def __init__(self, most_groups: int) -> None:
        self._most = most_groups
        self._rows: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.total = 0
        self.groups: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.weights: npt.NDArray[np.float64] = np.zeros(0)

    def keys(self, store: TableStore, task: BucketTask, file: DataFileMeta) -> pa.Table:
        """Return the key columns of the sampled rows."""
        key_batches: list[pa.RecordBatch] = []
        source = open_kv(
            store,
            task.partition,
            task.bucket,
            file,
            columns=(),
            need_sequence=False,
            need_kind=False,
            row_groups=self._choose,
        )
        first_row = 0
        with closing(source) as batches:  # type: ignore[type-var]
            for batch in batches:
                sampled_rows = (
                    self._rows[(self._rows >= first_row) & (self._rows < first_row + batch.num_rows)] - first_row
                )
                key_batches.append(batch.take(pa.array(sampled_rows)))
                first_row += batch.num_rows
        return pa.Table.from_batches(key_batches).select(list(key_names(store.schema)))

    def _choose(self, source: FileSource) -> list[int]:
        """Return the indexes of the row groups to read; record the sampled rows and how many rows each represents."""
        counts = np.asarray(source.group_rows, np.int64)
        self.total = len(counts)
        chosen = np.unique(np.linspace(0, len(counts) - 1, min(self._most, len(counts))).astype(np.int64))
        starts = np.cumsum(counts[chosen]) - counts[chosen]
        # evenly spaced row numbers of each group from its first row on; none of an empty group
        evenly = np.arange(_KEYS_OF_A_GROUP)
        rows_of_groups: list[Any] = [np.unique(evenly * rows // _KEYS_OF_A_GROUP)[:rows] for rows in counts[chosen]]
        self._rows = np.concatenate([start + part for start, part in zip(starts, rows_of_groups, strict=True)])
        self.groups = np.repeat(chosen, [len(part) for part in rows_of_groups])
        read = max(1, int(counts[chosen].sum()))
        scale = source.rows / read
        self.weights = np.concatenate(
            [
                np.full(len(part), scale * rows / max(1, len(part)))
                for part, rows in zip(rows_of_groups, counts[chosen], strict=True)
            ]
        )
        return [int(group) for group in chosen]


# -- joining -----------------------------------------------------------------------------------------------------------

_DIGEST_MODULUS = 1 << 128


def join(store: TableStore, pieces: Sequence[BucketTask], results: Sequence[BucketResult]) -> BucketResult:
    """Join the results of a task's pieces (tasks over key ranges) to one result of the task that was cut.

    Counts are verified over all pieces (verification V0). Every row of the rewritten files must have been read by
    exactly one piece. The sum of rows read proves this, because a piece reads only rows of its range. The bucket must
    be a valid LSM tree afterwards.

    Args:
        store: the table.
        pieces: the pieces, or the task itself if it was not cut.
        results: results of the pieces, in the order of ``pieces``.

    Raises:
        VerificationFailed: V0 failed; the output files of all pieces are deleted.
    """
    if len(results) == 1:
        return results[0]
    task = replace(pieces[0], piece=None)
    try:
        return _join_results(store, task, results)
    except BaseException:
        for result in results:
            discard_result(store, task, result)
        raise


def _join_results(store: TableStore, task: BucketTask, results: Sequence[BucketResult]) -> BucketResult:
    shapes = Shapes(store)
    plan = plan_of(store, task, shapes)
    by_name = {file.file_name: file for file in task.files}
    rewritten = [by_name[file.name] for file in plan.rewritten_files]
    moved = [by_name[file.name] for file in plan.upgrades]
    rows_in = sum(result.report.rows_in for result in results)
    marks = TaskVectors(store, task)
    expected_rows = marks.count_living(rewritten)
    if rows_in != expected_rows:
        raise VerificationFailed("V0", [f"the pieces read {rows_in} rows of {expected_rows}"])
    after = [file for result in results for file in result.message.compact_after]
    check_tree(store, task, [*rewritten, *moved], after, shapes)
    before = (*rewritten, *moved)
    new = join_vectors(
        *(
            {name: DeletionVector.from_bytes(data, f"<marks of {name}>") for name, data in result.marks.items()}
            for result in results
        )
    )
    vectors = marks.change(rewritten, new)
    message = CommitMessage(
        task.partition,
        task.bucket,
        task.total_buckets,
        compact_before=before,
        compact_after=tuple(after),
        compact_new_index_files=vectors.new,
        compact_deleted_index_files=vectors.deleted,
    )
    changelog = tuple(file for result in results for file in result.message.compact_changelog)
    message = replace(message, compact_changelog=changelog)
    return BucketResult(message, _report(rewritten, len(moved), message, [result.report for result in results]))


def _report(
    rewritten: Sequence[DataFileMeta], upgrades: int, message: CommitMessage, reports: Sequence[BucketReport]
) -> BucketReport:
    new_files = message.own_files()
    verified = [report for report in reports if report.rows_in] or reports  # a piece without rows verifies nothing
    reasons = sorted({reason for report in reports for reason in report.rows_dropped})
    digests = [report.digest for report in reports]
    return BucketReport(
        rows_in=sum(report.rows_in for report in reports),
        rows_out=sum(report.rows_out for report in reports),
        rows_dropped={reason: sum(report.rows_dropped.get(reason, 0) for report in reports) for reason in reasons},
        bytes_in=sum(file.file_size for file in rewritten),
        bytes_out=sum(file.file_size for file in new_files),
        files_in=len(rewritten),
        files_out=len(new_files),
        files_upgraded=upgrades,
        files_kept=reports[0].files_kept,
        bytes_kept=reports[0].bytes_kept,
        groups_spliced=sum(report.groups_spliced for report in reports),
        bytes_spliced=sum(report.bytes_spliced for report in reports),
        seconds=max(report.seconds for report in reports),
        # digests of rewrites and pieces are added; without one of them the sum is unknown
        digest=f"{sum(int(text, 16) for text in digests) % _DIGEST_MODULUS:032x}" if all(digests) else "",
        verification=min(report.verification for report in verified),
        setting=reports[0].setting,
        rows_read_again=sum(report.rows_read_again for report in reports),
        keys_checked=sum(report.keys_checked for report in reports),
        keys_folded=sum(report.keys_folded for report in reports),
        keys_one_by_one=sum(report.keys_one_by_one for report in reports),
        changes_told=sum(report.changes_told for report in reports),
        written_by={name: executor for report in reports for name, executor in report.written_by.items()},
    )


def run_tasks_locally(
    store: TableStore,
    tasks: Sequence[BucketTask],
    judge: Judge | None = None,
    *,
    threads: int | None = None,
    keep_going: bool = False,
) -> Iterator[BucketResult]:
    """Run tasks on threads and yield their results in the order of ``tasks``; the largest task starts first.

    A task that is much larger than all bytes / threads is cut into tasks over key ranges, which share its memory
    budget. A single task that is not cut uses two threads: to merge and to encode.

    If a task fails, its error is raised after the running tasks have finished. The output files of results that were
    not yielded yet are deleted. The caller must abort the results that it has received.

    Args:
        store: the table.
        tasks: compaction tasks of buckets.
        judge: merges sampled keys again to verify the result (V2); None to skip this verification.
        threads: number of threads; None for one thread per core of this process.
        keep_going: whether to continue after a DredgeError; the failed task's result contains the error
            (`BucketResult.error`).
    """
    workers = usable_cores() if threads is None else threads
    # Two pieces take two fifths more work than the whole: both decode the row groups at the cut, and hold Python's lock
    # twice as often.
    pieces = [[task] for task in tasks]
    if workers > 2 or (workers == 2 and len(tasks) != 1):
        sizes = rewritten_sizes(store, tasks, workers)
        piece_counts = count_pieces(sizes, workers, store.options.piece_size)
        pieces = [cut_task(store, task, count) for task, count in zip(tasks, piece_counts, strict=True)]
    if workers < 2 or sum(map(len, pieces)) < 2:
        for task in tasks:
            try:
                result = run_bucket_task(store, task, judge, pipelined=workers > 1)
            except DredgeError as error:
                if not keep_going:
                    raise
                result = BucketResult.without(task, error)
            yield result
        return
    run_task = in_current_span(run_bucket_task)
    by_size = sorted(range(len(tasks)), key=lambda i: -sum(file.file_size for file in tasks[i].files) / len(pieces[i]))
    with ThreadPoolExecutor(workers, thread_name_prefix="dredge-compact") as pool:
        futures: dict[int, list[Future[BucketResult]]] = {
            i: [
                pool.submit(run_task, store, piece, judge, pipelined=False, share=len(pieces[i])) for piece in pieces[i]
            ]
            for i in by_size
        }
        handed_out = 0
        try:
            for i in range(len(tasks)):
                error_of_task = next(
                    (e for future in futures[i] if isinstance(e := future.exception(), DredgeError)), None
                )
                if keep_going and error_of_task is not None:
                    handed_out = i + 1
                    for future in futures[i]:
                        if future.exception() is None:
                            discard_result(store, tasks[i], future.result())
                    yield BucketResult.without(tasks[i], error_of_task)
                    continue
                results = [future.result() for future in futures[i]]
                handed_out = i + 1  # from here on, join deletes the files of a failure
                yield join(store, pieces[i], results)
        finally:
            not_handed_out = [(i, future) for i in range(handed_out, len(tasks)) for future in futures[i]]
            running = [(i, future) for i, future in not_handed_out if not future.cancel()]
            for i, future in running:
                if future.exception() is None:  # waits for a running one
                    discard_result(store, tasks[i], future.result())
