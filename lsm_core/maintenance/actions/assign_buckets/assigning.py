"""Postponed rows move into buckets: replayed file by file in the order in which they came, written as any writer of that many buckets would.

Semantics of Paimon's compaction of postpone tables (Flink `PostponeBucketCompactSplitSource`): a partition that has buckets keeps
their number, another gets `postpone.default-bucket-num`; the postponed files go and the new ones come in one COMPACT snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import CommitMessage, Committer, discard_on_failure
from lsm_core.commit.overwrite import partition_matcher
from lsm_core.errors import PlanStale, UnsupportedFeature, VerificationFailed
from lsm_core.files import open_kv
from lsm_core.format.file_meta import DataFileMeta, table_to_entries
from lsm_core.format.kv_layout import VALUE_KIND
from lsm_core.format.partition_path import partition_text
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    Declined,
    MaintenancePlan,
    Outcome,
    PlanEstimate,
    PlannedFile,
    Report,
    RewriteItem,
)
from lsm_core.metadata import manifests, snapshots, support
from lsm_core.metadata.store import POSTPONE_BUCKET, BucketMode, TableStore
from lsm_core.metadata.support import require_compactable
from lsm_core.metadata.tree_files import bucket_groups
from lsm_core.write.postpone import in_order
from lsm_core.write.table_write import StoredRows

_BYTES_PER_SECOND: Final = 12_000_000
"""File bytes that one core reads, routes, sorts and writes a second; only for forecasts."""


@dataclass(frozen=True)
class AssignItem(RewriteItem):
    """The postponed files of one partition, ``inputs`` in the order of their replay, and the number of its ``buckets``."""

    item_kind: ClassVar[str] = "assign_buckets"
    title: ClassVar[str] = "would assign buckets"
    columns: ClassVar[tuple[str, ...]] = ("partition", "buckets", "files", "rows", "bytes", "why")

    buckets: int
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """Buckets, and what moves into them."""
        rows, size = (sum(getattr(file, name) for file in self.inputs) for name in ("rows", "size"))
        return self.partition_text or "-", self.buckets, len(self.inputs), rows, size, self.reason


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
    default = max(1, int(store.options.get("postpone.default-bucket-num")))
    matches = None if partitions is None else partition_matcher(store, partitions)
    snapshot = snapshots.latest(store)
    arguments = {"partitions": None if partitions is None else str(list(partitions))}
    plan = MaintenancePlan.begun("assign_buckets", store, None if snapshot is None else snapshot.id, arguments, now_ms)
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    items, declined = [], []
    groups = bucket_groups(manifests.live_entries(store, snapshot))
    for partition, buckets in groupby(groups, key=itemgetter(0)):
        if matches is not None and not matches(partition):
            continue
        placed = list(buckets)
        text = partition_text(store.schema, partition, store.options)
        waiting = [entry.file for _, b, _, group in placed if b == POSTPONE_BUCKET for entry in table_to_entries(group)]
        if not waiting:
            declined.append(Declined(text or "table", "none-postponed", "no rows wait for a bucket", {}, text))
            continue
        known = {total for _, b, total, _ in placed if b >= 0}
        count = max(known, default=default)
        reason = f"it has {count} buckets" if known else f"postpone.default-bucket-num is {default}"
        inputs = tuple(
            PlannedFile(f.file_name, f.level, f.file_size, f.row_count, f.delete_row_count) for f in in_order(waiting)
        )
        items.append(AssignItem(partition, text, inputs, count, reason))
    size = sum(file.size for item in items for file in item.inputs)
    estimate = PlanEstimate(
        bytes_in=size,
        bytes_out=size,
        rows_in=sum(file.rows for item in items for file in item.inputs),
        files_in=sum(len(item.inputs) for item in items),
        tasks=len(items),
        seconds=round(size / _BYTES_PER_SECOND, 2),
    )
    return replace(plan, items=tuple(items), declined=tuple(declined), estimate=estimate)


def apply_assignment(store: TableStore, plan: MaintenancePlan) -> Outcome:
    """Write the planned rows into their buckets and let the postponed files go, in one COMPACT commit.

    Memory is that of a write buffer. Raises PlanStale when a planned file is gone, CommitConflict when that happens meanwhile,
    VerificationFailed when not all rows were read, CorruptFile; after any of them no file of it is left. Its report is an AssignReport.
    """
    require_compactable(store)
    done: list[CommitMessage] = []
    with discard_on_failure(store, done):
        for item in plan.items_of(AssignItem):
            files = _live(store, item)
            for message in _moved(store, item, files):
                # Nothing is seen before the postponed files go: both are one compaction.
                done.append(replace(message, new_files=(), compact_after=message.new_files))
            done.append(CommitMessage(item.partition, POSTPONE_BUCKET, POSTPONE_BUCKET, compact_before=files))
        result = Committer(store).commit(done, properties={PLAN_PROPERTY: plan.hash})
    new = [file for message in done for file in message.compact_after]
    report = AssignReport(
        snapshot_id=result.snapshot_id,
        base_snapshot=plan.base_snapshot,
        plan_hash=plan.hash,
        partitions=tuple(item.partition_text for item in plan.items_of(AssignItem)),
        files_in=plan.estimate.files_in,
        files_out=len(new),
        rows_in=plan.estimate.rows_in,
        rows_out=sum(file.row_count for file in new),
        bytes_in=plan.estimate.bytes_in,
        bytes_out=sum(file.file_size for file in new),
        declined=plan.declined,
    )
    lines = [
        {"event": "assigned", "partition": item.partition_text, "buckets": item.buckets}
        for item in plan.items_of(AssignItem)
    ]
    return Outcome(report, lines)


def _live(store: TableStore, item: AssignItem) -> tuple[DataFileMeta, ...]:
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
        return all(_live(store, item) for item in plan.items_of(AssignItem))
    except PlanStale:
        return False


def _moved(store: TableStore, item: AssignItem, files: Sequence[DataFileMeta]) -> list[CommitMessage]:
    """Every row of ``files`` in its bucket."""
    schema = replace(store.schema, options={**store.schema.options, "bucket": str(item.buckets)})
    target = TableStore(
        store.file_io, store.root, store.name, schema, None, store.clock, store.branch, store.dynamic_options
    )
    names, rows = list(store.schema.field_names), 0
    with StoredRows(target, beside=True) as writer:
        for file in files:
            with closing(open_kv(store, item.partition, POSTPONE_BUCKET, file)) as batches:  # type: ignore[type-var]
                for batch in batches:
                    rows += batch.num_rows
                    writer.write(pa.Table.from_batches([batch.select(names)]), batch.column(VALUE_KIND))
        if rows != sum(file.rows for file in item.inputs):
            raise VerificationFailed("V0", [f"{rows} rows read, {sum(file.rows for file in item.inputs)} were planned"])
        return writer.prepare_commit()
