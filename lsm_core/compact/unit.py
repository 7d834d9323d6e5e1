"""Execution of one bucket's task: choose between rewrite and upgrade for each file, execute, verify, and report."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from lsm_core.commit import CommitMessage
from lsm_core.compact.clustering.rewrite import sort_files
from lsm_core.compact.rewrite import ProducedChangelog, RewriteResult, changelog_of_upgrade, concatenate, rewrite
from lsm_core.compact.row_digests import Content
from lsm_core.compact.row_ranges import check_samples, join_columns, move_vectors
from lsm_core.compact.task import COUNTS, V0, V1, V2, BucketReport, BucketResult, BucketTask, Judge, SortTask, Witness
from lsm_core.compact.task_vectors import TaskVectors, join_vectors, superseded_rows
from lsm_core.compact.verify import check_changes, check_content, check_counters, check_metadata, check_tree
from lsm_core.errors import DredgeError, PlanStale, UnsupportedFeature
from lsm_core.files.vector_writer import VectorChange, discard_index_files
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.manifest import DataFileMeta
from lsm_core.metadata.indexes import deleted_rows
from lsm_core.metadata.manifests import evolves, tracks_rows, with_row_ids
from lsm_core.metadata.store import POSTPONE_BUCKET, TableStore
from lsm_core.metadata.support import Purpose, require_possible
from lsm_core.read.evolution import without_blobs
from lsm_core.read.key_range import KeyBounds
from lsm_core.read.merge_read import Shapes
from lsm_core.read.prune import expired_among
from lsm_core.storage.allocator import keep_small_arrays
from lsm_core.tracing import record_span
from lsm_core.tree import CompactUnit, Levels, TaskPlan, plan_task
from lsm_core.tree.task import upgrade_of

_LOG = logging.getLogger(__name__)


def require_executable(store: TableStore, task: BucketTask) -> None:
    """Raise UnsupportedFeature if the table or the task's bucket cannot be compacted."""
    require_possible(store, Purpose.COMPACT)  # the files of its snapshot were checked when the task was created
    if task.bucket == POSTPONE_BUCKET:
        raise UnsupportedFeature("compaction of postponed rows before they have buckets (assign_buckets)", store.name)


def execute_task(
    store: TableStore,
    task: BucketTask,
    judge: Judge | None = None,
    *,
    pipelined: bool = True,
    share: int = 1,
    shapes: Shapes | None = None,
) -> BucketResult:
    """Execute a task, or one piece of it, without a search for files to keep; nothing is published.

    `compact.pieces.run_bucket_task`, which describes the other arguments and errors, calls this function for each key
    range. ``shapes`` is a cache of the key ranges of files, or None for a new one.
    """
    if task.is_append and tracks_rows(store) and not evolves(store):
        store = with_row_ids(store)
    keep_small_arrays()
    execution = _Execution(store, task, pipelined=pipelined, share=share, shapes=shapes)
    try:
        if execution.plan is None:
            execution.rewrite_bins()
        else:
            execution.rewrite_runs(execution.plan, judge)
        with record_span("verify", table=store.name, bucket=task.bucket) as span:
            result = execution.verify_and_report()
            report = result.report
            span.set(level=report.verification, files=report.files_out, bytes=report.bytes_out, rows=report.rows_out)
        return result
    except BaseException:
        execution.discard_outputs()
        raise


def discard_result(store: TableStore, task: BucketTask, result: BucketResult) -> None:
    """Delete all files of a result that will not be published."""
    discard(store, task, result.message.own_files())
    discard_index_files(store, task.partition, task.bucket, result.message.own_index_files())


def discard(store: TableStore, task: BucketTask, files: Sequence[DataFileMeta]) -> None:
    """Delete output files that will not be published; a file that cannot be deleted remains as an orphan."""
    for file in files:
        for path in store.data_paths(task.partition, task.bucket, file):
            try:
                store.delete(path)
            except (OSError, DredgeError) as error:
                _LOG.warning(
                    "%s of table %s could not be deleted and remains as an orphan: %s", path, store.name, error
                )


def plan_of(store: TableStore, task: BucketTask, shape_cache: Shapes) -> TaskPlan:
    """Return the files that the task rewrites and those that it upgrades.

    Args:
        store: the table.
        task: the task.
        shape_cache: cache of the key ranges of files.

    Raises:
        PlanStale: a file of the task is no longer live, or deletes must be kept because of new files on higher levels.
    """
    options = store.options
    shapes = shape_cache.of(task.files)
    unit_names = set(task.unit_names)
    missing = unit_names - {shape.name for shape in shapes}
    if missing:
        raise PlanStale(
            f"table {store.name}, bucket {task.bucket}: {min(missing)} is no longer a live file: "
            "plan the compaction again"
        )
    levels = Levels(shapes, options.num_levels)
    unit = CompactUnit(task.output_level, tuple(s for s in shapes if s.name in unit_names), by_file=task.by_file)
    # An upgrade rewrites a file's manifest entry, which would lose fields that are not known here.
    has_unknown_fields = {file.file_name for file in task.files if file.unknown is not None}
    expired = frozenset() if task.now_ms is None else expired_among(store, task.files, task.now_ms).known
    marked = deleted_rows(task.index_files) if task.output_level == levels.max_level else {}
    plan = plan_task(
        levels,
        unit,
        options.compaction_file_size(has_primary_key=True),
        force_rewrite_all=options.force_rewrite_all,
        must_rewrite=lambda file: file.name in expired or file.name in marked or file.name in has_unknown_fields,
        marks_above=options.deletion_vectors_enabled,
        upgrade_rule=lambda file: upgrade_of(options, file.level, task.output_level, levels.max_level),
        untouched=task.untouched or (),
    )
    if task.drop_delete and not plan.drop_delete:
        raise PlanStale(
            f"table {store.name}, bucket {task.bucket}: deletes cannot be dropped at level {task.output_level}, "
            f"older files are at level {levels.highest_nonempty}: plan the compaction again"
        )
    return plan


class _Execution:
    """One execution of a task: the files that it wrote, their verification, and the result.

    Attributes:
        store: the table.
        task: the task.
        share: number of tasks (key ranges) of the bucket that share one merge budget and one sample of keys for V2.
        pipelined: whether to use a second thread: for merging, then for re-reading.
        started: start of the execution, in seconds of `time.perf_counter`.
        shapes: cache of the files' :class:`DataFile` objects.
        vectors: deletion vectors of the task's files.
        plan: which files of the task are rewritten and upgraded; None for append tables.
        within: key range of the task; None for a task of all keys.
        files_by_name: the task's files, by file name.
        joins_columns: whether the columns of several files are joined by row id (data evolution).
        does_upgrades: whether this task also does the upgrades: always, or only in the task of the bucket's first key
            range.
        rewrites: results of the rewrites so far.
        upgrade_changelogs: changelogs of the upgrades so far.
        witness: collects rows for the check by the judge (verification V2); None without a judge.
    """

    def __init__(
        self, store: TableStore, task: BucketTask, *, pipelined: bool, share: int, shapes: Shapes | None
    ) -> None:
        self.store, self.task, self.share, self.pipelined = store, task, share, pipelined
        self.started = time.perf_counter()
        self.shapes, self.vectors = shapes or Shapes(store), TaskVectors(store, task)
        self.plan = None if task.is_append else plan_of(store, task, self.shapes)
        self.within = None if task.is_append or task.piece is None else KeyBounds(store, task.piece)
        self.files_by_name = {file.file_name: file for file in task.files}
        self.joins_columns = evolves(store)
        self.does_upgrades = task.piece is None or task.piece.is_first
        self.rewrites: list[RewriteResult] = []
        self.upgrade_changelogs: list[ProducedChangelog] = []
        self.witness: Witness | None = None

    def rewrite_bins(self) -> None:
        """Rewrite each bin (group of files that become one rolling output) of an append table."""
        store, task = self.store, self.task
        for names in task.bins:
            if self.joins_columns:
                self.rewrites.append(join_columns(store, task, names))
            elif isinstance(task, SortTask):
                self.rewrites.append(sort_files(store, task, names, pipelined=self.pipelined))
            else:
                self.rewrites.append(concatenate(store, task, names, self.vectors))

    def rewrite_runs(self, plan: TaskPlan, judge: Judge | None) -> None:
        """Merge the sorted runs of each planned rewrite, and write the changelogs of upgrades.

        ``judge`` verifies the result by a second merge of sampled keys (V2); None skips this verification.
        """
        store, task, within = self.store, self.task, self.within
        # the files of every rewrite that have keys of the task's range
        groups = [
            [
                self.files_by_name[file.name]
                for run in runs
                for file in run.files
                if within is None or within.meets(file)
            ]
            for runs in plan.rewrites
        ]
        groups = [files for files in groups if files]
        if judge is not None and task.verification != COUNTS and groups:
            inputs = [file for group in groups for file in group]
            self.witness = judge.watch(store, task, inputs, within, self.share)
        for files in groups:
            self.rewrites.append(
                rewrite(
                    store,
                    task,
                    files,
                    self.shapes,
                    pipelined=self.pipelined,
                    witness=self.witness,
                    within=within,
                    share=self.share,
                    deletions=self.vectors.places,
                )
            )
        for file in plan.compared if self.does_upgrades else ():
            changelog = changelog_of_upgrade(
                store,
                task,
                self.files_by_name[file.name],
                self.shapes,
                share=self.share,
                deletions=self.vectors.places,
            )
            self.upgrade_changelogs += [] if changelog is None else [changelog]

    @property
    def changelogs(self) -> list[ProducedChangelog]:
        """Changelogs of rewrites, then those of upgrades."""
        return [*(part.changelog for part in self.rewrites if part.changelog is not None), *self.upgrade_changelogs]

    def discard_outputs(self) -> None:
        """Delete all files written so far."""
        discard(self.store, self.task, [file for part in self.rewrites for file in part.after])
        discard(self.store, self.task, [file for changelog in self.changelogs for file in changelog.files])

    def verify_and_report(self) -> BucketResult:
        """Verify all written files, then build the message and the report."""
        task = self.task
        upgraded = (
            [self.files_by_name[file.name] for file in self.plan.upgrades]
            if self.plan is not None and self.does_upgrades
            else []
        )
        # bytes, statistics and source of an upgraded file are unchanged
        upgraded_entries = [file.upgrade(task.output_level) for file in upgraded]
        before = [file for part in self.rewrites for file in part.before]
        after = [file for part in self.rewrites for file in part.after]
        rows_read_again = self._verify_files()
        if self.plan is not None and task.piece is None:
            check_tree(self.store, task, [*before, *upgraded], [*after, *upgraded_entries], self.shapes)
        keys_checked = 0
        if self.witness is not None:
            counts = {name: rows for part in self.rewrites for name, rows in (part.rows_read or {}).items()}
            if task.piece is None:  # all rows of the files, except those that vectors mark
                counts = {file.file_name: self.vectors.count_living([file]) for file in before}
            unseen = {name: rows for part in self.rewrites for name, rows in part.unseen.items()}
            counts = {name: rows - unseen.get(name, 0) for name, rows in counts.items()}
            seen = [replace(file, row_count=file.row_count - unseen.get(file.file_name, 0)) for file in after]
            keys_checked = self.witness.verify(seen, task.drop_delete, counts)
        if self.joins_columns and task.verification != COUNTS:
            keys_checked = sum(check_samples(self.store, task, part) for part in self.rewrites)
        superseded: dict[str, DeletionVector] = {}
        if self.plan is not None and self.store.options.deletion_vectors_enabled:
            superseded = self._find_superseded(self.plan, upgraded)
        if self.witness is not None and self.plan is not None:
            self.witness.check_lookups(
                [file for file in task.files if file.level > task.output_level],
                {file.file_name for part in self.rewrites for file in part.above},
                superseded if self.store.options.deletion_vectors_enabled else None,
                self.vectors.vector,
                alone=task.piece is None and not any(file.level == 0 for file in upgraded),
            )
        moved = [move_vectors(part, self.vectors) for part in self.rewrites] if self.joins_columns else []
        change = VectorChange()
        if task.piece is None:
            change = self.vectors.change(before, superseded, join_vectors(*moved))
        message = CommitMessage(
            task.partition,
            task.bucket,
            task.total_buckets,
            compact_before=(*before, *upgraded),
            compact_after=(*after, *upgraded_entries),
            compact_changelog=tuple(file for changelog in self.changelogs for file in changelog.files),
            compact_new_index_files=change.new,
            compact_deleted_index_files=change.deleted,
        )
        report = replace(
            self._count(len(upgraded)),
            changes_told=sum(changelog.content.rows for changelog in self.changelogs),
            verification=V2 if keys_checked or self.witness is not None else V0 if task.verification == COUNTS else V1,
            setting=task.verification,
            rows_read_again=rows_read_again,
            keys_checked=keys_checked,
            seconds=time.perf_counter() - self.started,
        )
        pending = {name: vector.to_bytes(bitmap64=True)[0] for name, vector in superseded.items()}
        return BucketResult(message, report, {} if task.piece is None else pending)

    def _verify_files(self) -> int:
        """Check counters, metadata and content of the written files, and return the number of re-read rows."""
        threads, rows_read_again = 2 if self.pipelined else 1, 0
        for part in self.rewrites:
            check_counters(self._rows_in(part), part.content.rows, part.dropped, part.after)
            if self.plan is not None:
                check_metadata(self.store, self.task, part, self.shapes)
            stored = without_blobs(self.store) if self.joins_columns else self.store
            rows_read_again += check_content(stored, self.task, part, self.witness, threads=threads)
        for changelog in self.changelogs:
            check_counters(changelog.content.rows, changelog.content.rows, {}, changelog.files)
            check_changes(self.store, self.task, changelog, threads=threads)
        return rows_read_again

    def _find_superseded(self, plan: TaskPlan, upgraded: Sequence[DataFileMeta]) -> dict[str, DeletionVector]:
        """Return the rows above the output that are no longer valid, by file.

        Rewrites with lookups have found these rows already. For rewrites without lookups, a pass over the keys finds
        them.
        """
        without_lookup = [file for part in self.rewrites if part.superseded is None for file in part.before]
        compared_names = {file.name for file in plan.compared} if self.upgrade_changelogs else set()
        upgraded_without_lookup = [file for file in upgraded if file.file_name not in compared_names]
        store, task = self.store, self.task
        return join_vectors(
            *(part.superseded or {} for part in self.rewrites),
            *(changelog.superseded for changelog in self.upgrade_changelogs),
            superseded_rows(store, task, without_lookup, self.vectors, self.shapes, self.within, self.share),
            superseded_rows(store, task, upgraded_without_lookup, self.vectors, self.shapes, None, self.share),
        )

    def _rows_in(self, part: RewriteResult) -> int:
        """Return the input rows of a rewrite.

        For a task of one key range, these are the rows read within the range. For a whole task, these are the row
        counts in the files' metadata minus the rows that deletion vectors mark. Rows of data-evolution tables are
        counted once per row id, deleted rows too.
        """
        if part.row_ids is not None:
            return part.row_ids
        if self.task.piece is None or part.rows_read is None:
            return self.vectors.count_living(part.before)
        return sum(part.rows_read.values())

    def _count(self, upgrades: int) -> BucketReport:
        """Return a report with the counts of rows, bytes and files that were read and written.

        Args:
            upgrades: number of files that were only moved to another level.
        """
        digests = [part.digest for part in self.rewrites]
        content = Content()
        dropped: dict[str, int] = {}
        for part in self.rewrites:
            content = content.plus(part.content)
            for reason, rows in part.dropped.items():
                dropped[reason] = dropped.get(reason, 0) + rows
        before = [file for part in self.rewrites for file in part.before]
        after = [file for part in self.rewrites for file in part.after]
        return BucketReport(
            rows_in=sum(self._rows_in(part) for part in self.rewrites),
            rows_out=content.rows,
            rows_dropped=dropped,
            bytes_in=sum(file.file_size for file in before),
            bytes_out=sum(file.file_size for file in after),
            files_in=len(before),
            files_out=len(after),
            files_upgraded=upgrades,
            files_kept=0 if self.plan is None else len(self.plan.untouched),
            bytes_kept=0 if self.plan is None else sum(file.size for file in self.plan.untouched),
            groups_spliced=sum(len(part.spliced) for part in self.rewrites),
            bytes_spliced=sum(group.size for part in self.rewrites for group in part.spliced),
            digest="" if None in digests else f"{sum(digest or 0 for digest in digests) % (1 << 128):032x}",
            keys_folded=sum(part.keys_folded for part in self.rewrites),
            keys_one_by_one=sum(part.keys_one_by_one for part in self.rewrites),
        )
