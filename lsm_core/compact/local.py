"""Execution of the tasks of a plan in this process: threads over buckets and their pieces.

Arrow releases Python's lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from lsm_core.compact.pieces import cut_task, join, pieces_wanted, rewritten_bytes
from lsm_core.compact.task import BucketResult, BucketTask, Judge
from lsm_core.compact.unit import discard_result, run_bucket_task
from lsm_core.errors import DredgeError
from lsm_core.metadata.store import TableStore
from lsm_core.read.parallel import usable_cores


def run_tasks_locally(
    store: TableStore,
    tasks: Sequence[BucketTask],
    judge: Judge | None = None,
    *,
    threads: int | None = None,
    keep_going: bool = False,
) -> Iterator[BucketResult]:
    """Yield results in the order of ``tasks``; the largest task starts first.

    A task that is much larger than its share is cut into pieces by key (`compact.pieces`), which share its memory. A
    lone task of two threads, or one that cannot be cut, gets a thread that merges beside one that encodes. When a task
    fails, its error is raised, running tasks are awaited, and the outputs of results that were not returned yet are
    deleted. Results already returned must be aborted by the caller.

    Args:
        store: the table.
        tasks: the tasks.
        judge: verification V2; None for none.
        threads: number of threads; None for one for each core of this process.
        keep_going: return a DredgeError of a task as its result (`BucketResult.error`).
    """
    workers = usable_cores() if threads is None else threads
    # Two pieces take two fifths more work than the whole: both decode the row groups at the cut, and hold Python's lock
    # twice as often.
    pieces = [[task] for task in tasks]
    if workers > 2 or (workers == 2 and len(tasks) != 1):
        sizes = [rewritten_bytes(store, task) for task in tasks]
        piece_counts = pieces_wanted(sizes, workers, store.options.piece_size)
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
    by_size = sorted(range(len(tasks)), key=lambda i: -sum(file.file_size for file in tasks[i].files) / len(pieces[i]))
    with ThreadPoolExecutor(workers, thread_name_prefix="dredge-compact") as pool:
        futures: dict[int, list[Future[BucketResult]]] = {
            i: [
                pool.submit(run_bucket_task, store, piece, judge, pipelined=False, share=len(pieces[i]))
                for piece in pieces[i]
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
                yield join(store, tasks[i], results)
        finally:
            not_handed_out = [(i, future) for i in range(handed_out, len(tasks)) for future in futures[i]]
            running = [(i, future) for i, future in not_handed_out if not future.cancel()]
            for i, future in running:
                if future.exception() is None:  # waits for a running one
                    discard_result(store, tasks[i], future.result())
