"""Run one bucket's task: decide per file between rewriting and upgrading, do it, verify it, and say what happened."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from lsm_core.commit import CommitMessage
from lsm_core.compact.allocator import keep_small_arrays
from lsm_core.compact.append import concatenate
from lsm_core.compact.clustering import SortTask, sort_files
from lsm_core.compact.content import Content
from lsm_core.compact.rewrite import Rewritten, rewrite
from lsm_core.compact.task import V1, V2, BucketReport, BucketResult, BucketTask, Judge, Witness
from lsm_core.compact.upgrade import upgraded
from lsm_core.compact.verify import check_content, check_counters, check_metadata, check_tree
from lsm_core.errors import DredgeError, PlanStale
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_compactable
from lsm_core.read.inputs import Shapes
from lsm_core.tree import CompactUnit, Levels, TaskPlan, plan_task


def run_bucket_task(
    store: TableStore, task: BucketTask, judge: Judge | None = None, *, pipelined: bool = True
) -> BucketResult:
    """Execute ``task`` and return its commit message and numbers; nothing is published.

    V0 and V1 always run; with verification "V2" and a ``judge`` it too must agree. Raises :class:`VerificationFailed`,
    :class:`CorruptFile`, :class:`PlanStale`, :class:`UnsupportedFeature`, :class:`StorageFull`; after any of them no
    output file is left. ``pipelined`` uses a second thread for merging.
    """
    require_compactable(store)
    keep_small_arrays()
    started = time.perf_counter()
    done: list[Rewritten] = []
    shapes = Shapes(store)
    witness: Witness | None = None
    try:
        if task.is_append:
            plan = None
            for names in task.bins:
                done.append(
                    sort_files(store, task, names, pipelined=pipelined)
                    if isinstance(task, SortTask)
                    else concatenate(store, task, names)
                )
        else:
            plan = _plan(store, task, shapes)
            by_name = {file.file_name: file for file in task.files}
            groups = [[by_name[file.name] for run in runs for file in run.files] for runs in plan.rewrites]
            if judge is not None and task.verification == V2 and groups:
                witness = judge.watch(store, task.partition, task.bucket, [file for group in groups for file in group])
            for files in groups:
                done.append(rewrite(store, task, files, shapes, pipelined=pipelined, witness=witness))
        return _finish(store, task, plan, done, shapes, witness, started)
    except BaseException:
        discard(store, task, [file for part in done for file in part.after])
        raise


def discard(store: TableStore, task: BucketTask, files: Sequence[DataFileMeta]) -> None:
    """Delete output files that will not be published; one that cannot be deleted stays as an orphan."""
    for file in files:
        for path in store.data_paths(task.partition, task.bucket, file):
            with suppress(OSError, DredgeError):
                store.file_io.delete(path)


def _plan(store: TableStore, task: BucketTask, known: Shapes) -> TaskPlan:
    options = store.options
    shapes = known.of(task.files)
    wanted = set(task.unit_names)
    missing = wanted - {shape.name for shape in shapes}
    if missing:
        raise PlanStale(f"table {store.name}, bucket {task.bucket}: {min(missing)} is not a live file any more")
    levels = Levels(shapes, options.num_levels)
    unit = CompactUnit(task.output_level, tuple(s for s in shapes if s.name in wanted), by_file=task.by_file)
    plan = plan_task(
        levels,
        unit,
        options.compaction_file_size(has_primary_key=True),
        force_rewrite_all=options.force_rewrite_all,
    )
    if task.drop_delete and not plan.drop_delete:
        raise PlanStale(
            f"table {store.name}, bucket {task.bucket}: deletes cannot go at level {task.output_level}, "
            f"older files lie at level {levels.highest_nonempty}"
        )
    return plan


def _finish(
    store: TableStore,
    task: BucketTask,
    plan: TaskPlan | None,
    done: list[Rewritten],
    shapes: Shapes,
    witness: Witness | None,
    started: float,
) -> BucketResult:
    """Verify everything that was written, then put the message and the report together."""
    by_name = {file.file_name: file for file in task.files}
    moved = [by_name[file.name] for file in plan.upgrades] if plan is not None else []
    before = [file for part in done for file in part.before]
    after = [file for part in done for file in part.after]
    for part in done:
        rows_in = sum(file.row_count for file in part.before)
        check_counters(rows_in, part.content.rows, part.dropped, part.after)
        if plan is not None:
            check_metadata(task, part, shapes)
        check_content(store, task, part, witness)
    raised = upgraded(moved, task.output_level)
    level, checked = V1, 0
    if plan is not None:
        check_tree(store, task, [*before, *moved], [*after, *raised], shapes)
    if witness is not None:
        checked, level = witness.verdict(after, task.drop_delete), V2
    message = CommitMessage(
        task.partition,
        task.bucket,
        task.total_buckets,
        compact_before=(*before, *moved),
        compact_after=(*after, *raised),
    )
    report = _report(done, len(moved), level, checked)
    return BucketResult(message, report.with_seconds(time.perf_counter() - started))


def _report(done: list[Rewritten], upgrades: int, level: str, checked: int) -> BucketReport:
    content = Content()
    dropped: dict[str, int] = {}
    for part in done:
        content = content.plus(part.content)
        for reason, rows in part.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + rows
    before = [file for part in done for file in part.before]
    after = [file for part in done for file in part.after]
    return BucketReport(
        rows_in=sum(file.row_count for file in before),
        rows_out=content.rows,
        rows_dropped=dropped,
        bytes_in=sum(file.file_size for file in before),
        bytes_out=sum(file.file_size for file in after),
        files_in=len(before),
        files_out=len(after),
        files_upgraded=upgrades,
        digest=content.text(),
        verification=level,
        keys_checked=checked,
        keys_folded=sum(part.keys_folded for part in done),
        keys_one_by_one=sum(part.keys_one_by_one for part in done),
    )
