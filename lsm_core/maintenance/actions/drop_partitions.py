"""Dropping of partitions: the plan, the OVERWRITE commit and the report (Java `FileStoreCommitImpl.dropPartitions`)."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pyarrow as pa

from lsm_core.commit import Committer
from lsm_core.commit.overwrite import partition_matcher
from lsm_core.errors import CommitConflict, ConflictKind, InvalidOption, PlanStale, UnsupportedFeature
from lsm_core.format.partitions import partition_names
from lsm_core.maintenance.action import (
    NO_SUCH_PARTITION,
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    CommitReport,
    Declined,
    MaintenancePlan,
    PartitionItem,
    PlanEstimate,
    size_text,
)
from lsm_core.metadata import snapshots
from lsm_core.metadata.live_files import totals
from lsm_core.metadata.store import POSTPONE_BUCKET, TableStore
from lsm_core.metadata.support import require_writable

_Counts = tuple[int, int, int]


@dataclass(frozen=True)
class DropPartitionItem(PartitionItem):
    """Partition to drop, if its files are still unchanged when the plan is applied.

    Attributes:
        files: number of live data files.
        rows: number of rows in these files, before merging.
        size: bytes of these files.
    """

    item_kind: ClassVar[str] = "drop-partition"
    title: ClassVar[str] = "would drop"
    columns: ClassVar[tuple[str, ...]] = ("partition", "files", "rows", "bytes")

    files: int
    rows: int
    size: int

    @property
    def counts(self) -> _Counts:
        """Numbers of files, rows and bytes of the partition at planning."""
        return (self.files, self.rows, self.size)

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: the partition, and its numbers of files, rows and bytes."""
        return (self.partition_text, *self.counts)


@dataclass(frozen=True)
class PartitionDropReport(CommitReport):
    """Report of dropping partitions.

    Attributes:
        dropped: paths of the dropped partitions.
        files: number of files in the dropped partitions.
        rows: number of rows in these files, before merging.
        size: bytes of these files.
        before: id of the last snapshot with the dropped partitions.
    """

    dropped: tuple[str, ...] = ()
    files: int = 0
    rows: int = 0
    size: int = 0
    before: int | None = None

    def lines(self, table: str) -> list[str]:
        """Return lines on the dropped partitions and how to bring them back."""
        if self.snapshot_id is None:
            return ["no partition was dropped"]
        named = ", ".join(self.dropped[:5]) + (" ..." if len(self.dropped) > 5 else "")
        flags = " ".join(f"--partition {shlex.quote(text.replace('/', ','))}" for text in self.dropped[:5])
        return [
            f"snapshot {self.snapshot_id}: {len(self.dropped)} partitions dropped ({named})",
            (
                f"{self.rows:,} rows in {self.files} files ({size_text(self.size)}) are gone from the table; "
                f"snapshot {self.before} holds them until it expires"
            ),
            (
                f"back with: dredge rollback-as-latest {shlex.quote(table)} --snapshot {self.before} "
                f"{flags}{' ...' if len(self.dropped) > 5 else ''}"
            ),
        ]


def plan_dropping(
    store: TableStore, partitions: Sequence[Mapping[str, Any]] | None = None, now_ms: int | None = None
) -> MaintenancePlan:
    """Plan to drop partitions. Only metadata is read; the memory needed grows with the number of partitions.

    Args:
        store: the table.
        partitions: partitions to drop (typed values, None = null). A missing partition column matches all its values.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        InvalidOption: no partition is given.
        ColumnNotFound, InvalidData: a partition does not fit the table's partition columns.
        UnsupportedFeature: the table has no partitions.
        CorruptFile: metadata cannot be read.
    """
    require_writable(store)
    if not store.schema.partition_keys:
        raise UnsupportedFeature("dropping partitions of a table without partitions", store.name)
    if not partitions:
        raise InvalidOption(
            "partitions", None, "at least one partition (`dredge drop-partitions T --partition dt=1`)", store.name
        )
    matches = partition_matcher(store, partitions)
    snapshot = snapshots.latest(store)
    plan = MaintenancePlan.begin("drop_partitions", store, None if snapshot is None else snapshot.id, {}, now_ms)
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    # Rows that wait for a bucket are dropped with their partition where the table postpones rows.
    by_partition = totals(store, snapshot, ["partition"], waiting=store.options.bucket == POSTPONE_BUCKET)
    keys = by_partition.column("partition").to_pylist()
    names = partition_names(store.schema, keys, store.options)
    counts = zip(
        *(by_partition.column(name).to_pylist() for name in ("file_count", "record_count", "file_size_in_bytes")),
        strict=True,
    )
    items = [
        DropPartitionItem(key, name, *count)
        for key, name, count in zip(keys, names, counts, strict=True)
        if matches(key)
    ]
    arguments = {"partitions": ", ".join(sorted(item.partition_text for item in items))}
    estimate = PlanEstimate(
        bytes_freed=sum(item.size for item in items),
        rows_in=sum(item.rows for item in items),
        files_in=sum(item.files for item in items),
        tasks=1 if items else 0,
    )
    nothing = () if items else (NO_SUCH_PARTITION,)
    ordered = tuple(sorted(items, key=lambda item: item.partition_text))
    return replace(plan, items=ordered, declined=nothing, estimate=estimate, arguments=arguments)


def apply_dropping(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Drop the planned partitions whose files are unchanged, in one OVERWRITE commit.

    A partition that was written to or compacted after planning is kept and reported. No file is deleted.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a PartitionDropReport.

    Raises:
        PlanStale: every planned partition changed after planning.
        CommitConflict, CommitUnknown: the commit failed.
        CorruptFile: metadata cannot be read.
    """
    planned = {item.partition: item for item in plan.items_of(DropPartitionItem)}
    unchanged: set[bytes] = set()

    def select_unchanged(live: pa.Table) -> Collection[bytes]:
        by_partition = live.group_by("partition").aggregate(
            [("file_name", "count"), ("row_count", "sum"), ("file_size", "sum")]
        )
        columns = ("file_name_count", "row_count_sum", "file_size_sum")
        counts = zip(*(by_partition.column(name).to_pylist() for name in columns), strict=True)
        unchanged.clear()
        unchanged.update(
            partition
            for partition, count in zip(by_partition.column("partition").to_pylist(), counts, strict=True)
            if partition in planned and planned[partition].counts == count
        )
        return unchanged

    try:
        committed = Committer(store).drop_exactly(
            sorted(planned), properties={PLAN_PROPERTY: plan.hash}, still=select_unchanged
        )
    except CommitConflict as conflict:
        if conflict.kind is not ConflictKind.PARTITION_CHANGED:
            raise
        raise PlanStale("all of its partitions were written to, or dropped, since", store.name) from conflict
    done = [item for item in planned.values() if item.partition in unchanged and committed.snapshot_id is not None]
    late = [
        Declined(
            item.partition_text,
            "changed",
            "it was written to, or dropped, since it was planned",
            {},
            item.partition_text,
        )
        for item in planned.values()
        if item not in done
    ]
    report = PartitionDropReport(
        committed.snapshot_id,
        plan.base_snapshot,
        plan.hash,
        dropped=tuple(item.partition_text for item in done),
        files=sum(item.files for item in done),
        rows=sum(item.rows for item in done),
        size=sum(item.size for item in done),
        before=None if committed.snapshot_id is None else committed.snapshot_id - 1,
        declined=(*plan.declined, *late),
    )
    return ApplyOutcome(
        report, [{"event": "dropped", "partition": item.partition_text, "rows": item.rows} for item in done]
    )


def dropping_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether a partition of the plan still has the planned files.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    snapshot = snapshots.latest(store)
    planned = {item.partition: item.counts for item in plan.items_of(DropPartitionItem)}
    if snapshot is None or not planned:
        return False
    by_partition = totals(
        store, snapshot, ["partition"], waiting=store.options.bucket == POSTPONE_BUCKET, partitions=list(planned)
    )
    columns = ("file_count", "record_count", "file_size_in_bytes")
    counts = zip(*(by_partition.column(name).to_pylist() for name in columns), strict=True)
    return any(
        planned[key] == count for key, count in zip(by_partition.column("partition").to_pylist(), counts, strict=True)
    )


WORK: Final = ActionWork(
    plan_dropping,
    apply_dropping,
    PartitionDropReport,
    (DropPartitionItem,),
    commits=True,
    fits=dropping_fits,
    remarks=lambda _: ["their files are deleted when the snapshots that hold them expire"],
)
