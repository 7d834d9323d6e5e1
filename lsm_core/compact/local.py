"""Run the tasks of a plan in this process: threads over buckets, since Arrow leaves Python's lock while it works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from lsm_core.compact.task import BucketResult, BucketTask, Judge
from lsm_core.compact.unit import discard, run_bucket_task
from lsm_core.metadata.store import TableStore


def run_tasks_locally(
    store: TableStore, tasks: Sequence[BucketTask], judge: Judge | None = None, *, threads: int = 2
) -> Iterator[BucketResult]:
    """Results in the order of ``tasks``; the largest task starts first. A lone task gets a merging thread of its own.

    When a task fails its error is raised, running tasks are awaited, and the outputs of results that were not handed
    out are deleted; those handed out already are the caller's to abort.
    """
    if len(tasks) < 2 or threads < 2:
        for task in tasks:
            yield run_bucket_task(store, task, judge, pipelined=threads > 1)
        return
    by_size = sorted(range(len(tasks)), key=lambda i: -sum(file.file_size for file in tasks[i].files))
    with ThreadPoolExecutor(threads, thread_name_prefix="dredge-compact") as pool:
        futures: dict[int, Future[BucketResult]] = {
            i: pool.submit(run_bucket_task, store, tasks[i], judge, pipelined=False) for i in by_size
        }
        handed = 0
        try:
            for i in range(len(tasks)):
                result = futures[i].result()
                handed = i + 1
                yield result
        finally:
            _clean(store, tasks, futures, handed)


def _clean(
    store: TableStore, tasks: Sequence[BucketTask], futures: dict[int, Future[BucketResult]], handed: int
) -> None:
    rest = [i for i in range(handed, len(tasks)) if not futures[i].cancel()]
    for i in rest:
        if futures[i].exception() is None:  # waits for a running one
            discard(store, tasks[i], futures[i].result().message.own_files())
