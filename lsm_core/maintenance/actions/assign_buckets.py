"""Assignment of postponed rows to buckets: postponed files are read in order, and each row is written to its bucket.

Postponed rows are the rows of bucket -2 in a table with `bucket` = -2. Semantics of Paimon's compaction of such tables
(Flink `PostponeBucketCompactSplitSource`): a partition with buckets keeps its number of buckets. A partition without
buckets gets `postpone.default-bucket-num` buckets. One COMPACT snapshot removes the postponed files and adds the new
files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import CommitMessage, Committer, discard_on_failure
from lsm_core.commit.overwrite import partition_matcher
from lsm_core.compact.task import BucketReport, BucketResult, BucketTask
from lsm_core.errors import PlanStale, UnsupportedFeature, VerificationFailed
from lsm_core.files import open_kv
from lsm_core.format.manifest import DELETE, DataFileMeta, table_to_entries
from lsm_core.format.partitions import partition_text
from lsm_core.format.schema import VALUE_KIND
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    PlannedFile,
    RewriteItem,
    RewriteReport,
    Runner,
)
from lsm_core.maintenance.actions.compact.unit_choice import bucket_task
from lsm_core.maintenance.actions.undo.replaced_files import find_undone_compaction
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.store import POSTPONE_BUCKET, BucketMode, TableStore
from lsm_core.metadata.support import require_compactable, require_current
from lsm_core.write.background import Compactor
from lsm_core.write.postpone import in_order
from lsm_core.write.table_write import StoredRows

_BYTES_PER_SECOND: Final = 12_000_000
"""File bytes that one core reads, routes, sorts and writes per second; only for forecasts."""
_NEWEST: Final = 100
"""Number of newest snapshots among which the last compaction is searched."""


@dataclass(frozen=True)
class AssignItem(RewriteItem):
    """Postponed files of one partition, whose rows are to be assigned to buckets.

    Attributes:
        inputs: the postponed files, in the order in which they are read.
        buckets: number of buckets of the partition.
        reason: why the partition gets this number of buckets.
    """

    item_kind: ClassVar[str] = "assign_buckets"
    title: ClassVar[str] = "would assign buckets"
    columns: ClassVar[tuple[str, ...]] = ("partition", "buckets", "files", "rows", "bytes", "why")

    buckets: int
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: partition, buckets, files, rows, bytes and reason."""
        place = (self.partition_text or "-", self.buckets)
        return (*place, len(self.inputs), self.rows_in, self.bytes_in, self.reason)

    def ledger_line(self) -> dict[str, Any]:
        """Return the line of the applied item for the ledger (record of maintenance runs)."""
        return {"event": "assigned", "partition": self.partition_text, "buckets": self.buckets}


@dataclass(frozen=True)
class AssignReport(RewriteReport):
    """Report of an assignment. Bytes are file sizes.

    Attributes:
        partitions: paths of the partitions whose rows were assigned.
    """

    partitions: tuple[str, ...] = ()

    def lines(self, table: str) -> list[str]:
        """Return lines with partitions, files and rows."""
        if self.snapshot_id is None:
            return ["no rows were postponed"]
        files = f"{len(self.partitions)} partitions, {self.files_in} files in, {self.files_out} out"
        return [f"snapshot {self.snapshot_id}: {files}", f"{self.rows_in:,} postponed rows, {self.rows_out:,} written"]


def plan_assignment(
    store: TableStore, partitions: Sequence[Mapping[str, Any]] | None = None, now_ms: int | None = None
) -> MaintenancePlan:
    """Plan the assignment of postponed rows to buckets in every chosen partition. Only metadata is read.

    Args:
        store: the table.
        partitions: partitions to choose (typed values, columns may be missing), None for all.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        UnsupportedFeature: the table's option `bucket` is not -2, or the table cannot be compacted.
        InvalidOption, ColumnNotFound, InvalidData: a partition does not fit the table's partition columns.
        CorruptFile: metadata cannot be read.
    """
    require_compactable(store)
    if store.bucket_mode is not BucketMode.POSTPONE:
        raise UnsupportedFeature("assigning buckets in a table without postponed ones ('bucket' = -2)", store.name)
    matches = None if partitions is None else partition_matcher(store, partitions)
    snapshot = snapshots.latest(store)
    arguments = {"partitions": None if partitions is None else str(list(partitions))}
    plan = MaintenancePlan.begin("assign_buckets", store, None if snapshot is None else snapshot.id, arguments, now_ms)
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    entries = manifests.live_entries(store, snapshot)
    items = [item for item in waiting_items(store, entries) if matches is None or matches(item.partition)]
    known = {item.partition for item in items}
    others = [p for p in pc.unique(entries.column("partition")).to_pylist() if matches is None or matches(p)]
    declined = []
    for text in sorted(partition_text(store.schema, p, store.options) for p in others if p not in known):
        declined.append(Declined(text or "table", "none-postponed", "no rows wait for a bucket", {}, text))
    size = sum(item.bytes_in for item in items)
    estimate = PlanEstimate(
        bytes_in=size,
        bytes_out=size,
        rows_in=sum(item.rows_in for item in items),
        files_in=sum(len(item.inputs) for item in items),
        tasks=len(items),
        seconds=estimate_seconds(items),
    )
    return replace(plan, items=tuple(items), declined=tuple(declined), estimate=estimate)


def waiting_items(store: TableStore, entries: pa.Table) -> list[AssignItem]:
    """Return an item for every partition with postponed rows, ordered by the serialised partition.

    Args:
        store: the table.
        entries: live manifest entries (`ENTRY_SCHEMA`) of all buckets.
    """
    default = max(1, int(store.options.get("postpone.default-bucket-num")))
    items = []
    for partition, buckets in groupby(bucket_groups(entries), key=itemgetter(0)):
        placed = list(buckets)
        waiting = [entry.file for _, b, _, group in placed if b == POSTPONE_BUCKET for entry in table_to_entries(group)]
        if not waiting:
            continue
        known = {total for _, b, total, _ in placed if b >= 0}
        count = max(known, default=default)
        reason = f"it has {count} buckets" if known else f"postpone.default-bucket-num is {default}"
        inputs = tuple(
            PlannedFile(f.file_name, f.level, f.file_size, f.row_count, f.delete_row_count) for f in in_order(waiting)
        )
        text = partition_text(store.schema, partition, store.options)
        items.append(AssignItem(partition, text, inputs, count, reason))
    return items


def estimate_seconds(items: Sequence[AssignItem]) -> float:
    """Return the predicted time of an assignment on one core, in seconds.

    Args:
        items: planned partitions.
    """
    return round(sum(item.bytes_in for item in items) / _BYTES_PER_SECOND, 2)


def apply_assignment(store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> ApplyOutcome:
    """Write the planned rows into their buckets and remove the postponed files, in one COMPACT commit.

    The work needs the memory of one write buffer. After an error other than CommitUnknown the new files are deleted.

    Args:
        store: the table.
        plan: plan to apply.
        runner: executor that distributes the work, None for this process.

    Returns:
        ApplyOutcome with an AssignReport.

    Raises:
        PlanStale: a planned file is no longer postponed, or a partition's number of buckets changed.
        CommitConflict: another commit removed a planned file during the work.
        VerificationFailed: the number of rows read differs from the metadata of a file.
        CorruptFile: a file cannot be read.
    """
    items = plan.items_of(AssignItem)
    snapshot_id, new = place_rows(store, [(item, live_files(store, item)) for item in items], plan.hash, runner)
    report = AssignReport(
        snapshot_id=snapshot_id,
        base_snapshot=plan.base_snapshot,
        plan_hash=plan.hash,
        partitions=tuple(item.partition_text for item in items),
        files_in=plan.estimate.files_in,
        files_out=len(new),
        rows_in=plan.estimate.rows_in,
        rows_out=sum(file.row_count for file in new),
        bytes_in=plan.estimate.bytes_in,
        bytes_out=sum(file.file_size for file in new),
        declined=plan.declined,
    )
    return ApplyOutcome(report, [item.ledger_line() for item in items])


def live_files(store: TableStore, item: AssignItem) -> tuple[DataFileMeta, ...]:
    """Return the current metadata of the files of a planned partition, in the order of ``item.inputs``.

    Args:
        store: the table.
        item: the planned partition.

    Raises:
        PlanStale: a planned file is no longer postponed, or the partition's number of buckets changed.
    """
    snapshot = snapshots.latest(store)
    where = item.partition_text or f"table {store.name}"
    if snapshot is None:
        raise PlanStale(f"{where} is empty now", store.name)
    entries = manifests.live_entries(store, snapshot, partitions=[item.partition])
    require_current(store, entries, "assigning buckets")
    counts = pc.unique(
        entries.filter(pc.greater_equal(entries.column("bucket"), 0)).column("total_buckets")
    ).to_pylist()
    if counts and counts != [item.buckets]:
        raise PlanStale(f"{where} has {counts[0]} buckets now, {item.buckets} were planned", store.name)
    postponed = {
        entry.file.file_name: entry.file for entry in table_to_entries(entries) if entry.bucket == POSTPONE_BUCKET
    }
    for file in item.inputs:
        if file.name not in postponed:
            raise PlanStale(f"{where}: the postponed file {file.name} is no longer in the table", store.name)
    return tuple(postponed[file.name] for file in item.inputs)


def assignment_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether all files of the plan are still postponed, and the partitions' numbers of buckets are unchanged.

    Args:
        store: the table.
        plan: plan to compare with the table.

    Raises:
        WriterStale: the schema changed.
        CorruptFile: metadata cannot be read.
    """
    try:
        return all(live_files(store, item) for item in plan.items_of(AssignItem))
    except PlanStale:
        return False


@dataclass(frozen=True)
class AssignTask(BucketTask):
    """Task for a runner: write the rows of a partition's postponed ``files`` into ``total_buckets`` buckets.

    The ``files`` are in the order in which they must be read. The task has one result for every bucket that gets rows;
    ``new_files`` of the result's commit message contain these rows.
    """

    def target(self, store: TableStore) -> TableStore:
        """Return the table opened with the partition's number of buckets, for writing into these buckets."""
        return store.with_buckets(self.total_buckets)


def place_rows(
    store: TableStore,
    files_by_item: Sequence[tuple[AssignItem, Sequence[DataFileMeta]]],
    plan_hash: str,
    runner: Runner | None = None,
) -> tuple[int | None, list[DataFileMeta]]:
    """Assign the postponed rows of planned partitions to buckets, in one commit.

    Raises the errors of :func:`apply_assignment` except PlanStale.

    Args:
        store: the table.
        files_by_item: planned partitions, each with the metadata of its postponed files.
        plan_hash: hash of the plan, recorded in the snapshot.
        runner: executor that distributes the work, None for this process.

    Returns:
        The id of the new snapshot (None if there was nothing to do), and the new data files.
    """
    tasks = [AssignTask(item.partition, POSTPONE_BUCKET, item.buckets, tuple(files)) for item, files in files_by_item]
    if not tasks:
        return None, []
    require_compactable(store)
    done: list[CommitMessage] = []
    with discard_on_failure(store, done):
        for result in (runner or _assign_in_process)(store, tasks):
            # The new files become visible together with the removal of the postponed ones: one compaction.
            done.append(_as_compaction(store, result.message))
        new = [file for message in done for file in message.compact_after]
        for task in tasks:
            files = tuple(task.files)
            done.append(CommitMessage(task.partition, POSTPONE_BUCKET, POSTPONE_BUCKET, compact_before=files))
        return Committer(store).commit(done, properties={PLAN_PROPERTY: plan_hash}).snapshot_id, new


def _assign_in_process(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
    """Run the tasks in this process: write every postponed row into its bucket, and yield one result per bucket."""
    for task in tasks:
        assert isinstance(task, AssignTask)
        target = task.target(store)
        # Where readers see only compacted rows, the new files are compacted at once, as Java's writer does.
        hidden = target.options.batch_scan_skips_level0
        compactor = Compactor(target, bucket_task, ReferenceJudge(), automatic=True) if hidden else None
        with StoredRows(target, beside=True, compactor=compactor) as writer:
            for file in task.files:
                for rows in replay_rows(store, task.partition, file):
                    writer.write(pa.Table.from_batches([rows.drop_columns([VALUE_KIND])]), rows.column(VALUE_KIND))
            messages = writer.prepare_commit(wait_compaction=True)
        yield from [BucketResult(message, BucketReport()) for message in messages]


def _as_compaction(store: TableStore, message: CommitMessage) -> CommitMessage:
    """Return ``message`` with all its changes as one compaction.

    Files that the message both added and compacted away were never committed, so they are deleted from storage.
    """
    written = {file.file_name for file in message.new_files}
    replaced = {file.file_name for file in message.compact_before}
    after = [*(file for file in message.new_files if file.file_name not in replaced), *message.compact_after]
    kept = {file.file_name for file in after}
    for file in message.new_files:
        if file.file_name not in kept:
            for path in store.data_paths(message.partition, message.bucket, file):
                store.delete(path)
    before = tuple(file for file in message.compact_before if file.file_name not in written)
    return replace(message, new_files=(), compact_before=before, compact_after=tuple(after))


def replay_rows(store: TableStore, partition: bytes, file: DataFileMeta) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a postponed file in order: the table's columns, and the row kind in column `_VALUE_KIND`.

    Args:
        store: the table.
        partition: partition in Paimon's binary form.
        file: the postponed file.

    Raises:
        CorruptFile: the file cannot be read.
        VerificationFailed: the number of rows in the file differs from its metadata.
    """
    rows, names = 0, [*store.schema.field_names, VALUE_KIND]
    with closing(open_kv(store, partition, POSTPONE_BUCKET, file)) as batches:  # type: ignore[type-var]
        for batch in batches:
            rows += batch.num_rows
            yield batch.select(names)
    if rows != file.row_count:
        raise VerificationFailed("V0", [f"{rows} rows read of {file.file_name}, metadata count {file.row_count}"])


def newest_compaction(store: TableStore) -> int | None:
    """Return the id of the newest compaction snapshot that must have the same rows as the snapshot before it.

    Compactions that assigned postponed rows to buckets, or that were undone later, are skipped.

    Args:
        store: the table.

    Returns:
        Id of the compaction's snapshot, or None if none of the newest 100 snapshots qualifies. A compaction whose
            preceding snapshot has expired does not qualify.

    Raises:
        CorruptFile: a snapshot cannot be read.
    """
    ids = snapshots.list_ids(store)
    undone: set[int | None] = set()
    for snapshot in list(snapshots.iterate(store, ids[-_NEWEST:]))[::-1]:
        undone_compaction = find_undone_compaction(store, snapshot)
        if undone_compaction is not None:
            undone.add(undone_compaction.snapshot_id)
        elif (
            snapshot.commit_kind is CommitKind.COMPACT
            and snapshot.id not in undone
            and snapshot.id - 1 in ids
            and not count_assigned_rows(store, snapshot.id)
        ):
            return snapshot.id
    return None


def count_assigned_rows(store: TableStore, snapshot_id: int) -> int:
    """Return the number of postponed rows that a snapshot assigned to buckets.

    Readers do not see postponed rows. A read after the assignment can therefore return more rows than before.

    Args:
        store: the table.
        snapshot_id: id of the snapshot.

    Raises:
        SnapshotNotFound: the snapshot does not exist.
        CorruptFile: metadata cannot be read.
    """
    if store.bucket_mode is not BucketMode.POSTPONE:
        return 0
    snapshot = snapshots.read(store, snapshot_id)
    if snapshot.commit_kind is not CommitKind.COMPACT:
        return 0
    entries = manifests.delta_entries(store, snapshot)
    is_assigned = pc.and_(pc.equal(entries.column("kind"), DELETE), pc.equal(entries.column("bucket"), POSTPONE_BUCKET))
    return int(pc.sum(entries.filter(is_assigned).column("row_count")).as_py() or 0)


WORK: Final = ActionWork(
    plan_assignment, apply_assignment, AssignReport, (AssignItem,), commits=True, fits=assignment_fits
)
