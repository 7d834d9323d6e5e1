"""The plan of dropping partitions, the commit that does it, and its report (Java `FileStoreCommitImpl.dropPartitions`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from lsm_core.commit import Committer
from lsm_core.commit.overwrite import partition_matcher
from lsm_core.errors import CommitConflict, ConflictKind, InvalidOption, PlanStale, UnsupportedFeature
from lsm_core.format.partition_path import partition_names
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    Declined,
    MaintenancePlan,
    Outcome,
    PlanEstimate,
    PlanItem,
    Report,
    size_text,
)
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import POSTPONE_BUCKET, TableStore
from lsm_core.metadata.support import require_writable
from lsm_core.metadata.totals import totals

_Counts = tuple[int, int, int]


@dataclass(frozen=True)
class DropPartitionItem(PlanItem):
    """One partition that is dropped as long as it holds just this. ``partition``: serialised BinaryRow; ``rows`` unmerged; ``size`` in bytes."""

    item_kind: ClassVar[str] = "drop-partition"
    title: ClassVar[str] = "would drop"
    columns: ClassVar[tuple[str, ...]] = ("partition", "files", "rows", "bytes")

    partition: bytes
    partition_text: str
    files: int
    rows: int
    size: int

    @property
    def counts(self) -> _Counts:
        """Files, rows and bytes."""
        return (self.files, self.rows, self.size)

    def cells(self) -> tuple[Any, ...]:
        """The partition and what it holds."""
        return (self.partition_text, *self.counts)


@dataclass(frozen=True)
class PartitionDropReport(Report):
    """Which partitions were dropped, with how many files, unmerged rows and bytes; ``snapshot_id``: the commit, None = nothing."""

    snapshot_id: int | None
    base_snapshot: int | None
    plan_hash: str
    dropped: tuple[str, ...] = ()
    files: int = 0
    rows: int = 0
    size: int = 0
    before: int | None = None
    declined: tuple[Declined, ...] = ()

    def lines(self, table: str) -> list[str]:
        """What was dropped, and how it comes back."""
        if self.snapshot_id is None:
            return ["no partition was dropped"]
        named = ", ".join(self.dropped[:5]) + (" ..." if len(self.dropped) > 5 else "")
        flags = " ".join(f"--partition {text.replace('/', ',')}" for text in self.dropped[:5])
        return [
            f"snapshot {self.snapshot_id}: {len(self.dropped)} partitions dropped ({named})",
            f"{self.rows:,} rows in {self.files} files ({size_text(self.size)}) are gone from the table; snapshot {self.before} holds them until it expires",
            f"back with: dredge rollback-as-latest {table} --snapshot {self.before} {flags}{' ...' if len(self.dropped) > 5 else ''}",
        ]


def plan_dropping(
    store: TableStore, partitions: Sequence[Mapping[str, Any]] | None = None, now_ms: int | None = None
) -> MaintenancePlan:
    """Plan to drop the partitions that one of ``partitions`` (typed values, None = null; columns may be left out) matches.

    Reads metadata only, in memory of the partitions. Raises InvalidOption for no partition, ColumnNotFound, InvalidData,
    UnsupportedFeature for a table without partitions, CorruptFile.
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
    plan = MaintenancePlan.begun("drop_partitions", store, None if snapshot is None else snapshot.id, {}, now_ms)
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    # What waits for a bucket is dropped with its partition where the table postpones rows.
    found = totals(store, snapshot, ["partition"], waiting=store.options.bucket == POSTPONE_BUCKET)
    keys = found.column("partition").to_pylist()
    names = partition_names(store.schema, keys, store.options)
    counts = zip(
        *(found.column(name).to_pylist() for name in ("file_count", "record_count", "file_size_in_bytes")), strict=True
    )
    items = [
        DropPartitionItem(key, name, *count)
        for key, name, count in zip(keys, names, counts, strict=True)
        if matches(key)
    ]
    asked = {"partitions": ", ".join(sorted(item.partition_text for item in items))}
    estimate = PlanEstimate(
        bytes_freed=sum(item.size for item in items),
        rows_in=sum(item.rows for item in items),
        files_in=sum(item.files for item in items),
        tasks=1 if items else 0,
    )
    nothing = () if items else (Declined("table", "empty", "no such partition holds a file"),)
    ordered = tuple(sorted(items, key=lambda item: item.partition_text))
    return replace(plan, items=ordered, declined=nothing, estimate=estimate, arguments=asked)


def apply_dropping(store: TableStore, plan: MaintenancePlan) -> Outcome:
    """Drop the planned partitions that still hold what was planned, in one OVERWRITE commit. Its report is a PartitionDropReport.

    One that was written to, or compacted, since stays and is told; no file is deleted. Raises PlanStale where that leaves none,
    CommitConflict, CommitUnknown, CorruptFile.
    """
    planned = {item.partition: item for item in plan.items_of(DropPartitionItem)}
    going: set[bytes] = set()

    def still(live: pa.Table) -> Collection[bytes]:
        found = live.group_by("partition").aggregate(
            [("file_name", "count"), ("row_count", "sum"), ("file_size", "sum")]
        )
        columns = ("file_name_count", "row_count_sum", "file_size_sum")
        counts = zip(*(found.column(name).to_pylist() for name in columns), strict=True)
        going.clear()
        going.update(
            partition
            for partition, count in zip(found.column("partition").to_pylist(), counts, strict=True)
            if partition in planned and planned[partition].counts == count
        )
        return going

    try:
        committed = Committer(store).drop_exactly(sorted(planned), properties={PLAN_PROPERTY: plan.hash}, still=still)
    except CommitConflict as conflict:
        if conflict.kind is not ConflictKind.PARTITION_CHANGED:
            raise
        raise PlanStale("all of its partitions were written to, or dropped, since", store.name) from conflict
    done = [item for item in planned.values() if item.partition in going and committed.snapshot_id is not None]
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
    return Outcome(report, [{"event": "dropped", "partition": item.partition_text, "rows": item.rows} for item in done])


def dropping_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether a partition of ``plan`` still holds what was planned."""
    snapshot = snapshots.latest(store)
    planned = {item.partition: item.counts for item in plan.items_of(DropPartitionItem)}
    if snapshot is None or not planned:
        return False
    found = totals(
        store, snapshot, ["partition"], waiting=store.options.bucket == POSTPONE_BUCKET, partitions=list(planned)
    )
    columns = ("file_count", "record_count", "file_size_in_bytes")
    counts = zip(*(found.column(name).to_pylist() for name in columns), strict=True)
    return any(planned[key] == count for key, count in zip(found.column("partition").to_pylist(), counts, strict=True))


__all__ = ["DropPartitionItem", "PartitionDropReport", "apply_dropping", "dropping_fits", "plan_dropping"]
