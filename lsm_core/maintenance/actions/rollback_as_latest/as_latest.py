"""An older version as the newest: a commit that takes away what came since and puts back what went (Java `rollbackToAsLatest`).

Nothing is deleted, and the snapshots between stay, so it is undone by the same act to the snapshot before it. Files that come back are
copied, because other engines delete a file that a snapshot dropped when they expire that, whoever names it later (Java keeps a tag for that).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import CommitMessage, Committer, discard_on_failure
from lsm_core.commit.conflicts import Rescan
from lsm_core.errors import (
    CommitConflict,
    ConflictKind,
    DredgeError,
    PlanStale,
    SnapshotNotFound,
    UnsupportedFeature,
)
from lsm_core.format.file_meta import ADD, DELETE, table_to_entries
from lsm_core.format.partition_path import partition_bytes
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    Declined,
    Fact,
    MaintenancePlan,
    Outcome,
    PlanEstimate,
    Report,
    size_text,
)
from lsm_core.maintenance.actions.rollback.rolling_back import find_target
from lsm_core.maintenance.actions.undo.replaced_files import Place, ReplacedFiles
from lsm_core.maintenance.actions.undo.undoing import COUNTS, UndoItem, put_back_counts, put_files_back
from lsm_core.metadata import manifests, snapshots, tags
from lsm_core.metadata.indexes import deletion_files, vector_files
from lsm_core.metadata.row_tracking import tracks_rows
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.metadata.support import require_compactable
from lsm_core.metadata.tree_files import bucket_groups

AS_LATEST_PROPERTY: Final = "dredge.as-latest"
"""Snapshot property: the id of the snapshot whose version it says again."""
_ACTION: Final = "rollback_as_latest"
_BYTES_PER_SECOND: Final = 100_000_000


@dataclass(frozen=True)
class AsLatestItem(UndoItem):
    """One bucket: ``inputs`` are the files that go, and those that move to another level; ``restored`` come back as copies, or move back."""

    item_kind: ClassVar[str] = "as-latest"
    title: ClassVar[str] = "would put back"


@dataclass(frozen=True)
class RollbackAsLatestReport(Report):
    """Which version is the newest again: ``version`` is the id of the older snapshot, ``snapshot_id`` the new one (None: nothing was done).

    Files and unmerged rows of files; ``bytes_copied`` of files that came back. ``verification``: "V1" where the copies were read back, else "V0".
    ``partitions``: the paths of those that changed, where some were chosen.
    """

    snapshot_id: int | None
    base_snapshot: int | None
    plan_hash: str
    version: int | None = None
    files_removed: int = 0
    files_restored: int = 0
    files_moved: int = 0
    rows_removed: int = 0
    rows_restored: int = 0
    bytes_copied: int = 0
    verification: str = "V0"
    partitions: tuple[str, ...] = ()
    declined: tuple[Declined, ...] = ()

    def lines(self, table: str) -> list[str]:
        """What the table says now, and how to take that back."""
        if self.snapshot_id is None:
            return ["nothing was rolled back"]
        files = f"{self.files_removed} files removed, {self.files_restored} put back, {self.files_moved} moved"
        head = f"snapshot {self.snapshot_id} of {table} says what snapshot {self.version} says: {files}, {size_text(self.bytes_copied)} copied"
        only = "".join(f" --partition {text.replace('/', ',')}" for text in self.partitions)
        back = f"dredge rollback-as-latest {table} --snapshot {self.base_snapshot}{only}"
        return [head, f"snapshots {self.version} to {self.base_snapshot} stay; back with: {back}"]


def plan_rollback_as_latest(
    store: TableStore,
    snapshot_id: int | None = None,
    tag: str | None = None,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    now_ms: int | None = None,
) -> MaintenancePlan:
    """Plan a commit after which the table, or these ``partitions`` (typed values, None = null), say what a snapshot or tag says.

    Reads metadata only. Raises InvalidOption unless one of the two is given, SnapshotNotFound, InvalidFilter, CorruptFile, UnsupportedFeature
    for tables whose rows are in buckets by an index, wait for a bucket, or have numbers of their own (row tracking), and where the number of
    buckets changed since.
    """
    _require_able(store)
    target = find_target(store, snapshot_id, tag)
    latest = snapshots.latest(store)
    chosen = None if partitions is None else sorted({partition_bytes(store.schema, p, store.name) for p in partitions})
    arguments: dict[str, Fact] = {
        "snapshot_id": snapshot_id,
        "tag": tag,
        "partitions": None if chosen is None else " ".join(one.hex() for one in chosen),
        "to_snapshot": target.id,
        "committed_ms": target.time_millis,
    }
    plan = MaintenancePlan.begun(_ACTION, store, None if latest is None else latest.id, arguments, now_ms)
    buckets = [] if latest is None else _changes(store, target, latest, chosen)
    if not buckets:
        text = f"the table says what snapshot {target.id} says"
        return replace(plan, declined=(Declined(f"snapshot {target.id}", "same", text, {"snapshot": target.id}),))
    items = tuple(AsLatestItem.of(store, bucket) for bucket in buckets)
    copied = sum(item.bytes_copied for item in items)
    estimate = PlanEstimate(
        bytes_in=copied,
        bytes_out=copied,
        rows_in=sum(file.rows for item in items for file in item.restored),
        files_in=sum(len(item.restored) for item in items),
        tasks=len(items),
        seconds=round(copied / _BYTES_PER_SECOND, 2),
    )
    return replace(plan, items=items, estimate=estimate)


def _require_able(store: TableStore) -> None:
    require_compactable(store)
    reasons = {
        BucketMode.DYNAMIC: "dynamic buckets",
        BucketMode.CROSS_PARTITION: "dynamic buckets",
        BucketMode.POSTPONE: "postponed buckets",
    }
    what = reasons.get(store.bucket_mode) or ("row tracking" if tracks_rows(store) else "")
    if what:
        raise UnsupportedFeature(
            f"an older version as the newest in tables with {what} (rollback goes back to it)", store.name
        )


def _changes(
    store: TableStore, target: Snapshot, latest: Snapshot, chosen: Sequence[bytes] | None
) -> list[ReplacedFiles]:
    """What turns ``latest`` into ``target``, bucket by bucket, in ``chosen`` partitions (None: all). Raises UnsupportedFeature, CorruptFile."""
    now, then = (manifests.data_manifests(store, one) for one in (latest, target))
    difference = manifests.difference(store, now, then)
    if chosen is not None and store.schema.partition_keys:
        difference = difference.filter(pc.is_in(difference.column("partition"), pa.array(chosen, pa.binary())))
    groups = {(partition, bucket): (total, table) for partition, bucket, total, table in bucket_groups(difference)}
    wanted = chosen if store.schema.partition_keys else None
    vectors_now, vectors_then = (vector_files(store, one, wanted) for one in (latest, target))
    marked = {place for place in {*vectors_now, *vectors_then} if vectors_now.get(place) != vectors_then.get(place)}
    places = sorted({*groups, *marked})
    touched = sorted({partition for partition, _ in places})
    live = manifests.live_entries(store, latest, partitions=touched) if places else difference
    present = {(partition, bucket): (total, table) for partition, bucket, total, table in bucket_groups(live)}
    found = []
    for place in places:
        total, table = groups.get(place) or present.get(place) or (store.options.bucket, difference.slice(0, 0))
        entries = table_to_entries(table) if place in groups else []
        gone = {one.file.file_name: one.file for one in entries if one.kind == DELETE}
        back = {one.file.file_name: one.file for one in entries if one.kind == ADD}
        moved = [name for name in back if name in gone]
        total = max((one.total_buckets for one in entries if one.kind == ADD), default=total)
        if store.bucket_mode is BucketMode.FIXED and back and total != store.options.bucket:
            text = f"going back to snapshot {target.id}, since which the number of buckets changed ({total}, now {store.options.bucket})"
            raise UnsupportedFeature(text, store.name)
        found.append(
            ReplacedFiles(
                *place,
                total,
                inputs=tuple(file for name, file in back.items() if name not in moved),
                outputs=tuple(file for name, file in gone.items() if name not in moved),
                moved=tuple((gone[name], back[name]) for name in moved),
                left=frozenset(),
                vectors=deletion_files(store, *place, vectors_then.get(place, ())),
                live=tuple(one.file for one in table_to_entries(present[place][1])) if place in present else (),
                index_files=vectors_now.get(place, ()),
            )
        )
    return found


def apply_rollback_as_latest(store: TableStore, plan: MaintenancePlan) -> Outcome:
    """Copy the files that come back and commit (kind OVERWRITE, which streams pass over). Its report is a RollbackAsLatestReport.

    Raises PlanStale and CommitConflict where something was committed since (to the plan's partitions), PlanRefused where a file is gone,
    CorruptFile, VerificationFailed; after any of them no copy is left.
    """
    _require_able(store)
    if not plan.items:
        return Outcome(RollbackAsLatestReport(None, plan.base_snapshot, plan.hash, declined=plan.declined))
    buckets = _as_planned(store, plan)
    verified = store.options.verification != COUNTS
    made: list[CommitMessage] = []
    with discard_on_failure(store, made):
        for bucket in buckets:
            put_files_back(store, bucket, made, verified, all_vectors=True)
        number = int(plan.arguments["to_snapshot"] or 0)
        properties = {PLAN_PROPERTY: plan.hash, AS_LATEST_PROPERTY: str(number)}
        base = _base(store, plan)
        committed = Committer(store).commit_compaction(
            made,
            lambda entries: _untouched(store, base, _chosen(plan), [bucket.place for bucket in buckets], entries),
            properties=properties,
            kind=CommitKind.OVERWRITE,
        )
    items = plan.items_of(AsLatestItem)
    report = RollbackAsLatestReport(
        committed.snapshot_id,
        plan.base_snapshot,
        plan.hash,
        version=number,
        **put_back_counts(made, buckets),
        verification="V1" if verified else "V0",
        partitions=() if _chosen(plan) is None else tuple(dict.fromkeys(item.partition_text for item in items)),
        declined=plan.declined,
    )
    return Outcome(report, [item.line("as latest") for item in items])


def _chosen(plan: MaintenancePlan) -> list[bytes] | None:
    given = plan.arguments["partitions"]
    return None if given is None else [bytes.fromhex(text) for text in str(given).split()]


def _base(store: TableStore, plan: MaintenancePlan) -> Snapshot:
    """The snapshot that the plan was made at. Raises PlanStale."""
    found = snapshots.try_read(store, plan.base_snapshot or 0)
    if found is None:
        raise PlanStale(f"snapshot {plan.base_snapshot}, at which it was made, is gone", store.name)
    return found


def _as_planned(store: TableStore, plan: MaintenancePlan) -> list[ReplacedFiles]:
    """The buckets of the plan. Raises PlanStale unless they are as planned, and nothing was committed to its partitions since."""
    base, latest = _base(store, plan), snapshots.latest(store)
    try:
        target = tags.find_snapshot(store, int(plan.arguments["to_snapshot"] or 0))
    except SnapshotNotFound as error:
        raise PlanStale(f"snapshot {plan.arguments['to_snapshot']} has expired", store.name) from error
    if latest is None or target.time_millis != plan.arguments["committed_ms"]:
        raise PlanStale(f"snapshot {target.id} was written again after a rollback", store.name)
    buckets = _changes(store, target, base, _chosen(plan))
    if tuple(AsLatestItem.of(store, bucket) for bucket in buckets) != plan.items:
        raise PlanStale(f"snapshot {base.id} was written again after a rollback", store.name)
    with_nothing = manifests.entries_of(store, [])
    try:
        _untouched(store, base, _chosen(plan), [bucket.place for bucket in buckets], with_nothing)(latest)
    except CommitConflict as conflict:
        raise PlanStale(str(conflict), store.name) from conflict
    return buckets


def _untouched(
    store: TableStore, base: Snapshot, chosen: Sequence[bytes] | None, places: Sequence[Place], entries: pa.Table
) -> Rescan:
    """``entries`` as long as no snapshot after ``base`` changed a file or a deletion vector of ``chosen`` partitions (None: of any)."""
    partitions = sorted({partition for partition, _ in places})
    wanted = chosen if store.schema.partition_keys else None

    def source(latest: Snapshot | None) -> tuple[pa.Table, pa.Table]:
        if latest is None or latest.id < base.id:
            raise CommitConflict(ConflictKind.BASE_GONE, reason=f"table {store.name}: it was rolled back meanwhile")
        for number in range(base.id + 1, latest.id + 1):
            later = snapshots.read(store, number)
            delta = manifests.delta_entries(store, later)
            if wanted is not None:
                delta = delta.filter(pc.is_in(delta.column("partition"), pa.array(wanted, pa.binary())))
            if delta.num_rows or vector_files(store, later, wanted) != vector_files(store, base, wanted):
                reason = f"table {store.name}: snapshot {number} was committed since, and would be lost"
                raise CommitConflict(ConflictKind.BUCKET_CHANGED, (), later.commit_user, number, reason)
        return manifests.live_entries(store, latest, partitions=partitions), entries

    return source


def rollback_as_latest_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether nothing was committed to the plan's partitions since."""
    with suppress(DredgeError):
        return bool(_as_planned(store, plan))
    return False


__all__ = [
    "AS_LATEST_PROPERTY",
    "AsLatestItem",
    "RollbackAsLatestReport",
    "apply_rollback_as_latest",
    "plan_rollback_as_latest",
    "rollback_as_latest_fits",
]
