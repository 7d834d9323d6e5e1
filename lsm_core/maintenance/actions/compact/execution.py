"""Execution of a compaction: buckets whose files are still as planned are merged, verified and published in one commit.

In an order-sensitive table, merging the newest runs before older runs can change rows (`merge.order_free`). With
`dredge.compaction.order-sensitive` = `as-paimon` such merges are made as in Paimon, and the report warns about the
affected keys.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa

from lsm_core.commit import CommitMessage, Committer, abort, discard_on_failure
from lsm_core.commit.message import WrittenFile
from lsm_core.compact import BucketResult, BucketTask, Judge
from lsm_core.compact.exact_keys import NEVER
from lsm_core.errors import CommitConflict, DredgeError, PlanStale
from lsm_core.format.entry_files import EntryFiles
from lsm_core.format.manifest import DataFileMeta, is_blob_file, table_to_entries
from lsm_core.format.schema import KEY_PREFIX
from lsm_core.format.snapshot import Snapshot
from lsm_core.iceberg.tag_refs import publish_tags
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    Declined,
    MaintenancePlan,
    Runner,
    bucket_name,
)
from lsm_core.maintenance.actions.assign_buckets import (
    AssignItem,
    assignment_fits,
    live_files,
    place_rows,
)
from lsm_core.maintenance.actions.compact.compaction import (
    EXPIRED_AT,
    TAG_PREFIX,
    CompactionReport,
    CompactItem,
    UnitOutcome,
    Verification,
    describe_checks,
    parts_of,
    report_of_parts,
)
from lsm_core.maintenance.actions.compact.planning import plan_compaction, plan_units
from lsm_core.maintenance.actions.compact.recluster import ReclusterItem, apply_recluster, recluster_fits
from lsm_core.maintenance.actions.compact.sort_order import SortOrder, sort_task
from lsm_core.maintenance.actions.compact.unit_choice import why_tree_is_stale
from lsm_core.maintenance.ledger import peak_memory
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.merge import EXPIRED, KeySpec, RunInput, merge_streams
from lsm_core.merge.engines.expire_rows import Living
from lsm_core.merge.engines.internal import Differences
from lsm_core.merge.order_free import order_free
from lsm_core.metadata import manifests, paimon_version, snapshots, tags
from lsm_core.metadata.indexes import deleted_rows, require_in_place, vector_files
from lsm_core.metadata.live_files import bucket_groups, iter_tree_files
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_compactable, require_current
from lsm_core.progress import reached, stage
from lsm_core.read import read_bucket_merged
from lsm_core.read.prune import living_at
from lsm_core.tree import DataFile, Trigger, group_by_row_id

_SHOWN: Final = 5


@dataclass(frozen=True)
class ChangedKeys:
    """Keys whose merged row was changed by a compaction.

    Attributes:
        count: number of changed keys.
        examples: some of the keys: values by column.
    """

    count: int = 0
    examples: tuple[dict[str, Any], ...] = ()

    def warning(self, store: TableStore) -> str:
        """Return one line for people with the number of changed keys and examples; "" if no key changed.

        Args:
            store: the table.
        """
        if not self.count:
            return ""
        reasons = order_free(store.schema, store.options.raw, has_retracts=True, table=store.name).reasons
        shown = "; ".join(", ".join(f"{name}={value!r}" for name, value in key.items()) for key in self.examples)
        advice = "'dredge.compaction.order-sensitive' = 'closed' prevents that"
        return f"{self.count} keys of {store.name} have another answer now ({shown}); {reasons[0]}; {advice}"


def changed_keys(
    store: TableStore, snapshot_id: int, messages: Iterable[CommitMessage], now_ms: int | None = None
) -> ChangedKeys:
    """Find the keys whose merged row differs before and after a compaction, bucket by bucket, in bounded memory.

    Files that other commits added during the compaction are read on both sides of the comparison. Rows past their
    record-level expiry are ignored.

    Args:
        store: the table.
        snapshot_id: snapshot of the compaction.
        messages: commit messages of the compaction, one per bucket.
        now_ms: time that decides record-level expiry (epoch ms), None if rows do not expire.
    """
    living, snapshot = living_at(store, now_ms), snapshots.read(store, snapshot_id)
    count = 0
    examples: list[dict[str, Any]] = []
    for message in messages:
        entries = manifests.live_entries(store, snapshot, partitions=[message.partition], buckets=[message.bucket])
        after = [entry.file for _, _, _, table in bucket_groups(entries) for entry in table_to_entries(table)]
        new_files = {(file.file_name, file.level) for file in message.compact_after}
        before = [file for file in after if (file.file_name, file.level) not in new_files] + list(
            message.compact_before
        )
        for keys in _differing(store, message, (before, after), living):
            count += keys.num_rows
            examples += keys.slice(0, _SHOWN - len(examples)).to_pylist() if len(examples) < _SHOWN else []
    return ChangedKeys(count, tuple(examples))


def _differing(
    store: TableStore,
    message: CommitMessage,
    file_lists: tuple[list[DataFileMeta], list[DataFileMeta]],
    living: Living | None,
) -> Iterator[pa.Table]:
    spec = KeySpec.of(store.schema, table=store.name)
    sides = [
        read_bucket_merged(store, message.partition, message.bucket, files, keep_system=True, living=living)
        for files in file_lists
    ]
    inputs = [RunInput(side, 0, age) for age, side in enumerate(sides)]
    with closing(sides[0]), closing(sides[1]):
        for batch in merge_streams(inputs, Differences(spec), key_spec=spec):
            names = [f"{KEY_PREFIX}{name}" for name in spec.key_columns]
            yield pa.Table.from_batches([batch.select(names)]).rename_columns(list(spec.key_columns))


EntriesOf: TypeAlias = Callable[[TableStore, Snapshot, Sequence[CompactItem]], pa.Table]
"""Function that returns the live entries (`ENTRY_SCHEMA`) of the items' buckets at a snapshot, and maybe of others."""


def read_bucket_entries(store: TableStore, snapshot: Snapshot, items: Sequence[CompactItem]) -> pa.Table:
    """Return the live manifest entries of the items' buckets.

    The entries are filtered by partition and bucket separately, so further buckets of the same partitions may be
    included.

    Args:
        store: the table.
        snapshot: snapshot whose entries are read.
        items: planned buckets.
    """
    partitions, buckets = sorted({item.partition for item in items}), sorted({item.bucket for item in items})
    return manifests.live_entries(store, snapshot, partitions=partitions, buckets=buckets)


def apply_compaction(
    store: TableStore,
    plan: MaintenancePlan,
    runner: Runner | None = None,
    entries_of: EntriesOf = read_bucket_entries,
) -> ApplyOutcome:
    """Apply a compaction plan.

    If the plan contains postponed rows, a separate first commit assigns them to buckets. The buckets to compact are
    then chosen again by the plan's arguments. Raises the errors of :func:`execute` and :func:`place_rows`.

    Args:
        store: the table.
        plan: plan to apply.
        runner: executor of compaction tasks, None for this process.
        entries_of: function that returns the live manifest entries of the planned buckets.

    Returns:
        ApplyOutcome with a CompactionReport, and one ledger line per bucket.
    """
    if plan.items_of(ReclusterItem):
        return apply_recluster(store, plan)
    mixed, snapshot = None, snapshots.latest(store)
    if store.schema.primary_keys:  # rows merged by the rules of one version may meet rows of another
        judged = paimon_version.read_evidence(store.file_io, store.snapshot_dir, store.kept, snapshot)
        mixed = paimon_version.mixed(store.options, store.version_found, judged)
    assigned = _assign(store, plan, runner) if plan.items_of(AssignItem) else _AssignedRows()
    units = plan
    if assigned.snapshot_id is not None:
        units, snapshot = plan_units(store, plan), None
    keep_going = "commit_every" in plan.arguments
    runner = runner or local_runner(ReferenceJudge(), keep_going=keep_going)
    done = execute(store, units, runner, plan.hash, snapshot, entries_of, keep_going=keep_going)
    changed, warnings = ChangedKeys(), [f"of {store.name}: {mixed}"] if mixed and done.results else []
    if done.snapshot_id is not None and store.options.order_sensitive == "as-paimon" and store.schema.primary_keys:
        # Find the rows of an order-sensitive table that changed because it was compacted as by Paimon.
        messages = [result.message for _, result in done.results]
        retracts = any(file.delete_row_count != 0 for message in messages for file in message.compact_before)
        if not order_free(store.schema, store.options.raw, retracts, store.name).ok:
            clock = next((item.expire_at_ms for item, _ in done.results), None)
            changed = changed_keys(store, done.snapshot_id, messages, clock)
            warnings += [changed.warning(store)] if changed.count else []
    # Expired rows that were left out of a part of the runs only, as Paimon does it.
    parts = [r for item, r in done.results if not item.full and store.options.order_sensitive == "as-paimon"]
    if rows := sum(result.report.rows_dropped.get(EXPIRED, 0) for result in parts):
        advice = "'dredge.compaction.order-sensitive' = 'closed' prevents that"
        warnings.append(
            f"{rows} expired rows of {store.name} are gone; older versions of them may be read "
            f"until a full compaction; {advice}"
        )
    report = _report(units, done, store.options.verification, changed.count, tuple(warnings))
    if plan.items_of(AssignItem):
        report = assigned.extend_report(replace(report, plan_hash=plan.hash, base_snapshot=plan.base_snapshot))
    lines = [
        {
            "event": "compacted",
            "bucket": bucket_name(item.partition_text, item.bucket),
            "trigger": item.trigger,
            "reason": item.reason,
            "place": [item.partition.hex(), item.bucket],
            "inputs": [[file.name, file.level] for file in item.inputs],
            "outputs": [[file.file_name, file.level] for file in result.message.compact_after],
            "output_level": item.output_level,
            "tombstones_dropped": item.tombstones_dropped,
            **asdict(result.report),
        }
        for item, result in done.results
    ]
    lines += [{"event": "failed", "bucket": item.subject, "error": item.text} for item in done.failed]
    return ApplyOutcome(report, [*(item.ledger_line() for item in assigned.items), *lines])


@dataclass(frozen=True)
class _AssignedRows:
    """Result of assigning postponed rows to buckets before a compaction.

    Attributes:
        items: partitions whose postponed rows were assigned.
        stale: partitions that were skipped because a planned file is no longer postponed, or because the number of
            buckets changed.
        snapshot_id: snapshot of the assignment, None if nothing was assigned.
    """

    items: tuple[AssignItem, ...] = ()
    stale: tuple[Declined, ...] = ()
    snapshot_id: int | None = None

    def extend_report(self, report: CompactionReport) -> CompactionReport:
        """Return ``report`` of the compaction that followed, with the assigned rows and their commit added."""
        return replace(
            report,
            rows_assigned=sum(item.rows_in for item in self.items),
            snapshot_id=self.snapshot_id if report.snapshot_id is None else report.snapshot_id,
            commits=report.commits + (self.snapshot_id is not None),
            declined=(*report.declined, *self.stale),
        )


def _assign(store: TableStore, plan: MaintenancePlan, runner: Runner | None) -> _AssignedRows:
    """Assign the plan's postponed rows (bucket -2) to buckets; partitions whose planned files changed are skipped."""
    files_by_item, stale = [], []
    for item in plan.items_of(AssignItem):
        try:
            files_by_item.append((item, live_files(store, item)))
        except PlanStale as error:
            stale.append(Declined(item.partition_text or "table", "stale", str(error), {}, item.partition_text))
    snapshot_id, _ = place_rows(store, files_by_item, plan.hash, runner)
    return _AssignedRows(tuple(item for item, _ in files_by_item), tuple(stale), snapshot_id)


@dataclass(frozen=True)
class ExecutionResult:
    """Result of executing a compaction plan.

    Attributes:
        results: (item of the plan, result of its task) of each committed bucket.
        stale: buckets that were skipped because their files changed or their task would not fit into memory.
        snapshot_id: id of the new snapshot, None if nothing was committed.
        tag: tag on the snapshot before the compaction, "" for none.
        failed: buckets whose task failed.
    """

    results: tuple[tuple[CompactItem, BucketResult], ...]
    stale: tuple[Declined, ...]
    snapshot_id: int | None
    tag: str = ""
    failed: tuple[Declined, ...] = ()


def execute(
    store: TableStore,
    plan: MaintenancePlan,
    runner: Runner,
    plan_hash: str | None = None,
    snapshot: Snapshot | None = None,
    entries_of: EntriesOf = read_bucket_entries,
    *,
    keep_going: bool = False,
) -> ExecutionResult:
    """Compact the plan's buckets and publish them in one COMPACT commit.

    A bucket is skipped if an input file is missing or moved, before the work or at the commit. A bucket whose task
    would not fit into memory is skipped too. The output files of failed work are deleted. After CommitUnknown no file
    is deleted.

    Args:
        store: the table.
        plan: the plan to apply.
        runner: executor of the tasks.
        plan_hash: hash recorded in the snapshot, None for the hash of ``plan``.
        snapshot: newest snapshot if the caller has just read it, else None.
        entries_of: function that returns the live manifest entries of the planned buckets.
        keep_going: if a bucket fails, report the failure and commit the buckets that succeeded. If no bucket
            succeeded, the first error is raised.

    Raises:
        VerificationFailed: the output of a bucket is wrong.
        CorruptFile: a file is damaged.
        CommitConflict: concurrent commits changed the planned files, so nothing was committed.
    """
    snapshot = snapshot or snapshots.latest(store)
    require_compactable(store, snapshot)
    tasks, stale = tasks_of_plan(store, plan, snapshot, entries_of)
    if not tasks:
        return ExecutionResult((), tuple(stale), None)
    by_place = {(item.partition, item.bucket): item for item in plan.items_of(CompactItem)}
    done: list[BucketResult] = []
    messages: list[CommitMessage] = []
    failed: list[Declined] = []
    errors: list[DredgeError] = []
    rows, through = sum(item.rows_in for item, _ in tasks), 0
    with discard_on_failure(store, messages), stage(f"compacting {store.name}", rows, "rows"):
        for result in runner(store, [task for _, task in tasks]):
            item = by_place[result.message.partition, result.message.bucket]
            through += item.rows_in
            reached(through)  # upgraded files and sorted rows report no progress while they are read
            if result.declined:
                stale.append(_decline(item, "memory", result.declined))
            elif result.error is not None:
                errors.append(result.error)
                failed.append(_decline(item, "failed", f"{type(result.error).__name__}: {result.error}"))
            else:
                done.append(result)
                messages.append(result.message)
        if errors and not (keep_going and done):
            raise errors[0]
        tag = (
            _create_tag_before(store, plan_hash or plan.hash)
            if any(not message.is_empty for message in messages)
            else ""
        )
        committed, conflicts, snapshot_id = _commit(store, plan, done, plan_hash or plan.hash)
    for result, error in conflicts:
        item = by_place[result.message.partition, result.message.bucket]
        stale.append(_stale(item, f"another commit took its inputs while it was compacted ({error})"))
    pairs = tuple((by_place[r.message.partition, r.message.bucket], r) for r in committed)
    return ExecutionResult(pairs, tuple(stale), snapshot_id, tag, tuple(failed))


def _create_tag_before(store: TableStore, plan_hash: str) -> str:
    """Tag the newest snapshot before a compaction (`dredge.pre-compaction-tag`) and return the tag's name.

    The tagged snapshot references all files that the compaction replaces. The tag stays until its retention ends, even
    if nothing is published. Returns "" if the option is not set. Raises StorageFull, InvalidData.
    """
    retained = store.options.pre_compaction_tag
    newest = None if retained is None else snapshots.latest(store)
    if retained is None or newest is None:
        return ""
    name = f"{TAG_PREFIX}{newest.id}-{plan_hash[:8]}"
    tags.create(
        store, name, tags.made_now(store, newest, retained)
    )  # the tag exists already if the same plan was tried before
    publish_tags(store)
    return name


def _commit(
    store: TableStore, plan: MaintenancePlan, done: list[BucketResult], plan_hash: str
) -> tuple[list[BucketResult], list[tuple[BucketResult, CommitConflict]], int | None]:
    """Commit the compacted buckets; buckets in conflict with other commits are left out and their new files deleted.

    Args:
        store: the table.
        plan: the plan of the compaction.
        done: results of the buckets to commit.
        plan_hash: hash recorded in the snapshot.

    Returns:
        The committed results, the results in conflict each with the error, and the snapshot id (None for no commit).
    """
    conflicts: list[tuple[BucketResult, CommitConflict]] = []
    clocks = [item.expire_at_ms for item in plan.items_of(CompactItem) if item.expire_at_ms is not None]
    properties = {PLAN_PROPERTY: plan_hash, **({EXPIRED_AT: str(max(clocks))} if clocks else {})}
    remaining = [result for result in done if not result.message.is_empty]
    while remaining:
        try:
            committed = Committer(store).commit([r.message for r in remaining], properties=properties)
            return remaining, conflicts, committed.snapshot_ids[-1] if committed.snapshot_ids else None
        except CommitConflict as error:
            touched = [r for r in remaining if {f.file_name for f in _conflicting_files(r.message)} & set(error.files)]
            if not touched:
                raise
            abort(store, [r.message for r in touched])
            conflicts += [(r, error) for r in touched]
            remaining = [r for r in remaining if r not in touched]
    return [], conflicts, None


def _conflicting_files(message: CommitMessage) -> list[WrittenFile]:
    """Return all files of a compaction's commit message that a CommitConflict can name."""
    data = [*message.compact_before, *message.compact_after]
    return [*data, *message.compact_new_index_files, *message.compact_deleted_index_files]


def compaction_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether a planned bucket still has its planned files, or all planned postponed files still exist.

    A plan that sorts a table of dynamic buckets fits only if all its partitions still have the planned files.

    Args:
        store: the table.
        plan: plan to compare with the table.

    Raises:
        WriterStale: the schema changed.
        CorruptFile: metadata cannot be read.
    """
    if plan.items_of(ReclusterItem):
        return recluster_fits(store, plan)
    waits = bool(plan.items_of(AssignItem)) and assignment_fits(store, plan)
    return waits or bool(tasks_of_plan(store, plan)[0])


def tasks_of_plan(
    store: TableStore,
    plan: MaintenancePlan,
    snapshot: Snapshot | None = None,
    entries_of: EntriesOf = read_bucket_entries,
) -> tuple[list[tuple[CompactItem, BucketTask]], list[Declined]]:
    """Return a task for each planned bucket whose input files are as planned, and the stale buckets.

    Args:
        store: the table.
        plan: the plan to apply.
        snapshot: snapshot to compare the plan with, None for the newest.
        entries_of: function that returns the live manifest entries of the planned buckets.

    Returns:
        Pairs of the planned item and its task, and the declined entries of the stale buckets.

    Raises:
        WriterStale: the schema changed since the table was opened.
        CorruptFile: metadata cannot be read.
    """
    items, snapshot = plan.items_of(CompactItem), snapshot or snapshots.latest(store)
    if not items or snapshot is None:
        return [], [_stale(item, "the table has no snapshot any more") for item in items]
    partitions = sorted({item.partition for item in items})
    buckets = sorted({item.bucket for item in items})
    entries = [entries_of(store, snapshot, items)]
    require_current(store, entries[0], "compacting it")
    require_in_place(store, snapshot, entries[0])
    groups = bucket_groups(entries.pop())  # with its only reference
    live = {(partition, bucket): (total, table) for partition, bucket, total, table in groups}
    vectors = vector_files(store, snapshot, partitions, buckets)
    tasks, stale = [], []
    buckets_now = [live.get((item.partition, item.bucket), (item.total_buckets, None)) for item in items]
    trees = iter_tree_files(store, [table for _, table in buckets_now if table is not None])
    for item, (total, table) in zip(items, buckets_now, strict=True):
        index_files = vectors.get((item.partition, item.bucket), ())
        files = None if table is None else next(trees)
        reason = _why_stale(store, item, table, files or (), deleted_rows(index_files))
        if table is None or reason:
            stale.append(_stale(item, reason))
            continue
        if item.order_by:
            task: BucketTask = sort_task(item, total, EntryFiles(table), snapshot.id)
        else:
            task = BucketTask(
                partition=item.partition,
                bucket=item.bucket,
                total_buckets=total,
                files=EntryFiles(table),
                unit_names=() if item.bins else tuple(file.name for file in item.inputs),
                output_level=item.output_level,
                drop_delete=item.drop_delete,
                base_snapshot=snapshot.id,
                bins=item.bins,
                by_file=item.by_file,
                now_ms=item.expire_at_ms,
            )
        tasks.append((item, replace(task, verification=store.options.verification, index_files=index_files)))
    return tasks, stale


def _why_stale(
    store: TableStore,
    item: CompactItem,
    table: pa.Table | None,
    files: Sequence[DataFile],
    marked: Collection[str],
) -> str:
    """Return why a bucket is no longer as planned, "" if it is.

    New files at level 0 are not a reason. ``table`` has the live entries of the bucket, None if it is empty, and
    ``files`` their files. ``marked`` are the names of files with a deletion vector.
    """
    if table is None:
        return "the bucket is empty now"
    now = {file.name: file for file in files}
    for planned in item.inputs:
        live_file = now.get(planned.name)
        if live_file is None:
            return f"input {planned.name} is gone"
        if live_file.level != planned.level:
            return f"input {planned.name} moved from level {planned.level} to {live_file.level}"
    if item.bins:
        return _why_row_ids_are_stale(item, files) if manifests.evolves(store) else ""
    input_names = {planned.name for planned in item.inputs}
    between = {file.level for file in files if 0 < file.level <= item.output_level and file.name not in input_names}
    if item.trigger == Trigger.RECOVERY and between:  # files newer than the output must be above it
        return f"level {min(between)} got other files"
    return why_tree_is_stale(store, item, now, table, marked)


def _why_row_ids_are_stale(item: CompactItem, files: Sequence[DataFile]) -> str:
    """Return which file that was not planned has row ids of a planned bin, "" if there is none.

    Args:
        item: planned partition of a data-evolution table.
        files: live files of the partition.
    """
    planned = {file.name for file in item.inputs}
    for group in group_by_row_id([file for file in files if not is_blob_file(file.name)]):
        added = next((file.name for file in group if file.name not in planned), None)
        if added is not None and any(file.name in planned for file in group):
            return f"{added} has further columns of planned row ids"
    return ""


def _decline(item: CompactItem, code: str, reason: str) -> Declined:
    return Declined(bucket_name(item.partition_text, item.bucket), code, reason, {}, item.partition_text, item.bucket)


def _stale(item: CompactItem, reason: str) -> Declined:
    return _decline(item, "stale", reason)


def local_runner(judge: Judge | None, *, keep_going: bool = False) -> Runner:
    """Return a runner that executes tasks in this process.

    Args:
        judge: reference implementation that verifies merged rows (V2), None to skip this verification.
        keep_going: whether the error of a task is returned as its result, so that the remaining tasks still run.
    """

    def run(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
        from lsm_core.compact import run_tasks_locally

        return iter(run_tasks_locally(store, tasks, judge, keep_going=keep_going))

    return run


def _report(
    plan: MaintenancePlan, done: ExecutionResult, setting: str, changed: int, warnings: tuple[str, ...]
) -> CompactionReport:
    """Return the report of the executed compaction ``done``.

    ``setting`` is the value of `dredge.verification`, ``changed`` the number of keys whose row changed, and
    ``warnings`` are sentences for people.
    """
    reports = [result.report for _, result in done.results]
    items = [item for item, _ in done.results]
    dropped: dict[str, int] = {}
    for report in reports:
        for reason, rows in report.rows_dropped.items():
            dropped[reason] = dropped.get(reason, 0) + rows
    worst = max(items, key=lambda item: item.runs_before, default=None)
    units = [UnitOutcome.of(item, result.report, done.snapshot_id) for item, result in done.results]
    return CompactionReport(
        snapshot_id=done.snapshot_id,
        base_snapshot=plan.base_snapshot,
        plan_hash=plan.hash,
        files_in=sum(r.files_in for r in reports),
        files_out=sum(r.files_out for r in reports),
        files_upgraded=sum(r.files_upgraded for r in reports),
        files_kept=sum(r.files_kept for r in reports),
        bytes_kept=sum(r.bytes_kept for r in reports),
        groups_spliced=sum(r.groups_spliced for r in reports),
        bytes_spliced=sum(r.bytes_spliced for r in reports),
        rows_in=sum(r.rows_in for r in reports),
        rows_out=sum(r.rows_out for r in reports),
        rows_dropped=dropped,
        bytes_in=sum(r.bytes_in for r in reports),
        bytes_out=sum(r.bytes_out for r in reports),
        predicted_seconds=plan.estimate.seconds,
        peak_rss_bytes=peak_memory(),
        changelog_rows=sum(r.changes_told for r in reports),
        runs_before=worst.runs_before if worst else 0,
        runs_after=worst.runs_after if worst else 0,
        verification=Verification(
            level=min((r.verification for r in reports), default="V0"),
            keys_checked=sum(r.keys_checked for r in reports),
            units=len(reports),
            independence=describe_checks(setting, sum(r.groups_spliced for r in reports)),
            setting=setting,
            rows_read_again=sum(r.rows_read_again for r in reports),
            digests={bucket_name(i.partition_text, i.bucket): r.digest for i, r in zip(items, reports, strict=True)},
        ),
        declined=(*plan.declined, *done.stale),
        failed=done.failed,
        units=(
            *units,
            *(UnitOutcome(item.subject, item.reason, text=item.text) for item in (*done.stale, *done.failed)),
        ),
        commits=0 if done.snapshot_id is None else 1,
        changed_keys=changed,
        warnings=warnings,
        keys_folded=sum(r.keys_folded for r in reports),
        keys_one_by_one=sum(r.keys_one_by_one for r in reports),
        tag_before=done.tag,
        executors=tuple(sorted({who for r in reports for who in r.written_by.values()})),
        sorted_by=next((SortOrder(item.order_by, item.strategy).text() for item in items if item.order_by), ""),
    )


def _remarks(plan: MaintenancePlan) -> list[str]:
    lines = [f"verification before publishing: {plan.options.get('dredge.verification', 'full')}"]
    if plan.options.get("dredge.compaction.exact-keys", "").lower() != NEVER and any(
        item.output_level and len(item.inputs) > 1 and not item.by_file for item in plan.items_of(CompactItem)
    ):
        lines.append("files in whose key range no other file has a key are kept: the estimate is an upper bound")
    if plan.items_of(AssignItem):
        lines.append("the buckets to compact are chosen again once the rows have their buckets")
    return lines


WORK: Final = ActionWork(
    plan_compaction,
    apply_compaction,
    CompactionReport,
    (AssignItem, CompactItem, ReclusterItem),
    commits=True,
    fits=compaction_fits,
    remarks=_remarks,
    parts=parts_of,
    report_of_parts=report_of_parts,
)
