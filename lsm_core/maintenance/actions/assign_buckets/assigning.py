"""Postponed rows move into buckets: replayed file by file in the order in which they came, written as any writer of that many buckets would.

Semantics of Paimon's compaction of postpone tables (Flink `PostponeBucketCompactSplitSource`): a partition that has buckets keeps
their number, another gets `postpone.default-bucket-num`; the postponed files go and the new ones come in one COMPACT snapshot.
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
from lsm_core.format.file_meta import DELETE, DataFileMeta, table_to_entries
from lsm_core.format.kv_layout import VALUE_KIND
from lsm_core.format.partition_path import partition_text
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    Declined,
    MaintenancePlan,
    Outcome,
    PlanEstimate,
    PlannedFile,
    Report,
    RewriteItem,
    Runner,
)
from lsm_core.maintenance.actions.compact.unit_choice import bucket_task
from lsm_core.maintenance.actions.undo.replaced_files import undone_by
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata import manifests, snapshots, support
from lsm_core.metadata.store import POSTPONE_BUCKET, BucketMode, TableStore
from lsm_core.metadata.support import require_compactable
from lsm_core.metadata.tree_files import bucket_groups
from lsm_core.write.background import Compactor
from lsm_core.write.postpone import in_order
from lsm_core.write.table_write import StoredRows

_BYTES_PER_SECOND: Final = 12_000_000
"""File bytes that one core reads, routes, sorts and writes a second; only for forecasts."""
_NEWEST: Final = 100
"""Among so many of a table's newest snapshots the last compaction is looked for."""


@dataclass(frozen=True)
class AssignItem(RewriteItem):
    """The postponed files of one partition, ``inputs`` in the order of their replay, and the number of its ``buckets``."""

    item_kind: ClassVar[str] = "assign_buckets"
    title: ClassVar[str] = "would assign buckets"
    columns: ClassVar[tuple[str, ...]] = ("partition", "buckets", "files", "rows", "bytes", "why")

    buckets: int
    reason: str

    @property
    def bytes_in(self) -> int:
        """Bytes of the postponed files."""
        return sum(file.size for file in self.inputs)

    @property
    def rows_in(self) -> int:
        """Postponed rows."""
        return sum(file.rows for file in self.inputs)

    def cells(self) -> tuple[Any, ...]:
        """Buckets, and what moves into them."""
        place = (self.partition_text or "-", self.buckets)
        return (*place, len(self.inputs), self.rows_in, self.bytes_in, self.reason)

    def told(self) -> dict[str, Any]:
        """The ledger's line once it was carried out."""
        return {"event": "assigned", "partition": self.partition_text, "buckets": self.buckets}


@dataclass(frozen=True)
class AssignReport(Report):
    """What moved: partitions, files, rows replayed and rows that the new files hold; ``snapshot_id`` None = nothing."""

    snapshot_id: int | None
    base_snapshot: int | None
    plan_hash: str
    partitions: tuple[str, ...] = ()
    files_in: int = 0
    files_out: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    declined: tuple[Declined, ...] = ()

    def lines(self, table: str) -> list[str]:
        """Partitions, files and rows."""
        if self.snapshot_id is None:
            return ["no rows were postponed"]
        files = f"{len(self.partitions)} partitions, {self.files_in} files in, {self.files_out} out"
        return [f"snapshot {self.snapshot_id}: {files}", f"{self.rows_in:,} postponed rows, {self.rows_out:,} written"]


def plan_assignment(
    store: TableStore, partitions: Sequence[Mapping[str, Any]] | None = None, now_ms: int | None = None
) -> MaintenancePlan:
    """Plan buckets for the postponed rows of every chosen partition. Reads metadata only.

    ``partitions``: typed values, columns may be left out; None = all. ``now_ms`` epoch ms. Raises UnsupportedFeature for a table
    without postponed buckets, InvalidOption, ColumnNotFound, InvalidData, CorruptFile.
    """
    require_compactable(store)
    if store.bucket_mode is not BucketMode.POSTPONE:
        raise UnsupportedFeature("assigning buckets in a table without postponed ones ('bucket' = -2)", store.name)
    matches = None if partitions is None else partition_matcher(store, partitions)
    snapshot = snapshots.latest(store)
    arguments = {"partitions": None if partitions is None else str(list(partitions))}
    plan = MaintenancePlan.begun("assign_buckets", store, None if snapshot is None else snapshot.id, arguments, now_ms)
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
        seconds=seconds_of(items),
    )
    return replace(plan, items=tuple(items), declined=tuple(declined), estimate=estimate)


def waiting_items(store: TableStore, entries: pa.Table) -> list[AssignItem]:
    """An item for every partition with postponed rows among live ``entries`` (`ENTRY_SCHEMA`), ordered by partition bytes."""
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


def seconds_of(items: Sequence[AssignItem]) -> float:
    """What carrying ``items`` out takes on one core, for forecasts."""
    return round(sum(item.bytes_in for item in items) / _BYTES_PER_SECOND, 2)


def apply_assignment(store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> Outcome:
    """Write the planned rows into their buckets and let the postponed files go, in one COMPACT commit.

    Memory is that of a write buffer; ``runner`` spreads the work (None: this process does it). Raises PlanStale when a planned file is
    gone, CommitConflict when that happens meanwhile, VerificationFailed when not all rows were read, CorruptFile; after any of them no
    file of it is left. Its report is an AssignReport.
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
    return Outcome(report, [item.told() for item in items])


def live_files(store: TableStore, item: AssignItem) -> tuple[DataFileMeta, ...]:
    """The planned files as they are now, in their order. Raises PlanStale when one is gone."""
    snapshot = snapshots.latest(store)
    where = item.partition_text or f"table {store.name}"
    if snapshot is None:
        raise PlanStale(f"{where} is empty now", store.name)
    entries = manifests.live_entries(store, snapshot, partitions=[item.partition])
    support.require_current(store, entries, "assigning buckets")
    counts = pc.unique(
        entries.filter(pc.greater_equal(entries.column("bucket"), 0)).column("total_buckets")
    ).to_pylist()
    if counts and counts != [item.buckets]:
        raise PlanStale(f"{where} has {counts[0]} buckets now, {item.buckets} were planned", store.name)
    there = {entry.file.file_name: entry.file for entry in table_to_entries(entries) if entry.bucket == POSTPONE_BUCKET}
    for file in item.inputs:
        if file.name not in there:
            raise PlanStale(f"{where}: the postponed file {file.name} is not there any more", store.name)
    return tuple(there[file.name] for file in item.inputs)


def assignment_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether all files of ``plan`` still wait. Raises WriterStale, CorruptFile."""
    try:
        return all(live_files(store, item) for item in plan.items_of(AssignItem))
    except PlanStale:
        return False


@dataclass(frozen=True)
class AssignTask(BucketTask):
    """What runners are given: the postponed ``files`` of a partition, in the order of their replay, for ``total_buckets`` buckets.

    It has a result for every bucket that gets rows, whose ``new_files`` hold them.
    """

    def target(self, store: TableStore) -> TableStore:
        """The table as writers of the partition's buckets see it."""
        return store.with_buckets(self.total_buckets)


def place_rows(
    store: TableStore,
    found: Sequence[tuple[AssignItem, Sequence[DataFileMeta]]],
    plan_hash: str,
    runner: Runner | None = None,
) -> tuple[int | None, list[DataFileMeta]]:
    """Carry items out, each given with its files, in one commit; returns its snapshot (None: there was nothing to do) and the new files.

    Raises what :func:`apply_assignment` raises but for PlanStale.
    """
    tasks = [AssignTask(item.partition, POSTPONE_BUCKET, item.buckets, tuple(files)) for item, files in found]
    if not tasks:
        return None, []
    require_compactable(store)
    done: list[CommitMessage] = []
    with discard_on_failure(store, done):
        for result in (runner or _assigned_here)(store, tasks):
            # Nothing is seen before the postponed files go: all is one compaction.
            done.append(_as_compaction(store, result.message))
        new = [file for message in done for file in message.compact_after]
        for task in tasks:
            done.append(CommitMessage(task.partition, POSTPONE_BUCKET, POSTPONE_BUCKET, compact_before=task.files))
        return Committer(store).commit(done, properties={PLAN_PROPERTY: plan_hash}).snapshot_id, new


def _assigned_here(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
    """Every row of the tasks in its bucket, by this process."""
    for task in tasks:
        assert isinstance(task, AssignTask)
        target = task.target(store)
        # Where readers see compacted rows alone these are compacted at once, as Java's writer of them does.
        hidden = target.options.batch_scan_skips_level0
        compactor = Compactor(target, bucket_task, ReferenceJudge(), automatic=True) if hidden else None
        with StoredRows(target, beside=True, compactor=compactor) as writer:
            for file in task.files:
                for rows in replayed_rows(store, task.partition, file):
                    writer.write(pa.Table.from_batches([rows.drop_columns([VALUE_KIND])]), rows.column(VALUE_KIND))
            messages = writer.prepare_commit(wait_compaction=True)
        yield from [BucketResult(message, BucketReport()) for message in messages]


def _as_compaction(store: TableStore, message: CommitMessage) -> CommitMessage:
    """``message`` as one compaction: what was written and compacted again before any commit goes, and was never there."""
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


def replayed_rows(store: TableStore, partition: bytes, file: DataFileMeta) -> Iterator[pa.RecordBatch]:
    """The rows of a postponed file as they came: the table's columns, and their kinds as `_VALUE_KIND`.

    Raises CorruptFile, and VerificationFailed ("V0") at the end of a file that does not hold the rows that metadata count.
    """
    rows, names = 0, [*store.schema.field_names, VALUE_KIND]
    with closing(open_kv(store, partition, POSTPONE_BUCKET, file)) as batches:  # type: ignore[type-var]
        for batch in batches:
            rows += batch.num_rows
            yield batch.select(names)
    if rows != file.row_count:
        raise VerificationFailed("V0", [f"{rows} rows read of {file.file_name}, metadata count {file.row_count}"])


def newest_compaction(store: TableStore) -> int | None:
    """The newest snapshot that must say what the one before it says: a compaction's, which gave no row a bucket, and that nobody undid since.

    None: there is none among the newest 100, or its predecessor has expired. Raises CorruptFile.
    """
    ids = snapshots.list_ids(store)
    undone: set[int | None] = set()
    for snapshot in list(snapshots.iterate(store, ids[-_NEWEST:]))[::-1]:
        taken_back = undone_by(store, snapshot)
        if taken_back is not None:
            undone.add(taken_back.snapshot_id)
        elif (
            snapshot.commit_kind is CommitKind.COMPACT
            and snapshot.id not in undone
            and snapshot.id - 1 in ids
            and not rows_given_buckets(store, snapshot.id)
        ):
            return snapshot.id
    return None


def rows_given_buckets(store: TableStore, snapshot_id: int) -> int:
    """How many postponed rows got their buckets in a snapshot: where any did, readers see more than before, as they should.

    Raises SnapshotNotFound, CorruptFile.
    """
    if store.bucket_mode is not BucketMode.POSTPONE:
        return 0
    snapshot = snapshots.read(store, snapshot_id)
    if snapshot.commit_kind is not CommitKind.COMPACT:
        return 0
    entries = manifests.delta_entries(store, snapshot)
    taken = pc.and_(pc.equal(entries.column("kind"), DELETE), pc.equal(entries.column("bucket"), POSTPONE_BUCKET))
    return int(pc.sum(entries.filter(taken).column("row_count")).as_py() or 0)
