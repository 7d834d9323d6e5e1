"""Rollback by a new commit, which has the content of an older snapshot (Java `rollbackToAsLatest`).

All snapshots are kept and no file is deleted. So the same action, with the snapshot before the new commit as target,
undoes the rollback. Files of the older snapshot are copied, not referenced again. If a snapshot dropped a file, engines
other than Dredge delete the file when they expire that snapshot, even if a later snapshot references the file. Java
keeps a tag for that reason.
"""

from __future__ import annotations

import shlex
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
from lsm_core.format.manifest import ADD, DELETE, table_to_entries
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    Declined,
    Fact,
    MaintenancePlan,
    PlanEstimate,
    size_text,
)
from lsm_core.maintenance.actions.rollback import find_target
from lsm_core.maintenance.actions.undo.replaced_files import Place, ReplacedFiles
from lsm_core.maintenance.actions.undo.undoing import COUNTS, ReturnReport, UndoItem, count_returned, return_files
from lsm_core.metadata import manifests, snapshots, tags
from lsm_core.metadata.indexes import deletion_files, vector_files
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.manifests import tracks_rows
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.metadata.support import require_compactable
from lsm_core.read.partition_choice import chosen_from_text, chosen_to_text, encode_chosen

AS_LATEST_PROPERTY: Final = "dredge.as-latest"
"""Snapshot property: id of the older snapshot whose content the new snapshot, or some of its partitions, has."""
_ACTION: Final = "rollback_as_latest"
_BYTES_PER_SECOND: Final = 100_000_000


@dataclass(frozen=True)
class AsLatestItem(UndoItem):
    """Changes of one bucket that give the bucket the rows of the older snapshot.

    Attributes:
        inputs: current files that are removed.
        restored: files of the older snapshot that are restored as copies.
    """

    item_kind: ClassVar[str] = "as-latest"
    title: ClassVar[str] = "would put back"


@dataclass(frozen=True)
class RollbackAsLatestReport(ReturnReport):
    """Report of a rollback by a new commit.

    Attributes:
        version: id of the older snapshot.
        partitions: paths of the chosen partitions, empty if the whole table was rolled back.
    """

    version: int | None = None
    partitions: tuple[str, ...] = ()

    def lines(self, table: str) -> list[str]:
        """Return lines on the new content, and how to revert the change."""
        if self.snapshot_id is None:
            return ["nothing was rolled back"]
        files = f"{self.files_removed} files removed, {self.files_restored} put back"
        head = (
            f"snapshot {self.snapshot_id} of {table} has the content of snapshot {self.version}: "
            f"{files}, {size_text(self.bytes_copied)} copied"
        )
        only = "".join(f" --partition {shlex.quote(text.replace('/', ','))}" for text in self.partitions)
        back = f"dredge rollback-as-latest {shlex.quote(table)} --snapshot {self.base_snapshot}{only}"
        return [head, f"snapshots {self.version} to {self.base_snapshot} stay; back with: {back}"]


def plan_rollback_as_latest(
    store: TableStore,
    snapshot_id: int | None = None,
    tag: str | None = None,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    now_ms: int | None = None,
) -> MaintenancePlan:
    """Plan a commit that gives the table, or some partitions, the content of an older snapshot or tag.

    Only metadata is read.

    Args:
        store: the table.
        snapshot_id: id of the older snapshot.
        tag: name of a tag, in place of ``snapshot_id``.
        partitions: partitions to change (typed values, None = null), None for all.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        InvalidOption: not exactly one of ``snapshot_id`` and ``tag`` is given.
        SnapshotNotFound: the snapshot or tag does not exist.
        InvalidFilter: a partition does not fit the table.
        UnsupportedFeature: the table has dynamic or postponed buckets or row tracking, or its number of buckets differs
            from the older snapshot's.
        CorruptFile: metadata cannot be read.
    """
    _require_able(store)
    target = find_target(store, snapshot_id, tag)
    latest = snapshots.latest(store)
    chosen = encode_chosen(store, partitions, None)
    arguments: dict[str, Fact] = {
        "snapshot_id": snapshot_id,
        "tag": tag,
        "partitions": chosen_to_text(chosen),
        "to_snapshot": target.id,
        "committed_ms": target.time_millis,
    }
    plan = MaintenancePlan.begin(_ACTION, store, None if latest is None else latest.id, arguments, now_ms)
    buckets = [] if latest is None else _changes(store, target, latest, chosen)
    if not buckets:
        text = f"the table has the content of snapshot {target.id}"
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
    feature = reasons.get(store.bucket_mode) or ("row tracking" if tracks_rows(store) else "")
    if feature:
        raise UnsupportedFeature(
            f"an older version as the newest in tables with {feature} (rollback goes back to it)", store.name
        )


def _changes(
    store: TableStore, target: Snapshot, latest: Snapshot, chosen: Sequence[bytes] | None
) -> list[ReplacedFiles]:
    """Return the changes, one per bucket, that turn ``latest`` into ``target`` in ``chosen`` partitions (None: all).

    Raises:
        UnsupportedFeature: the number of buckets differs between the two snapshots.
        CorruptFile: metadata cannot be read.
    """
    now, then = (manifests.data_manifests(store, snapshot) for snapshot in (latest, target))
    difference = manifests.difference(store, now, then)
    if chosen is not None and store.schema.partition_keys:
        difference = difference.filter(pc.is_in(difference.column("partition"), pa.array(chosen, pa.binary())))
    groups = {(partition, bucket): (total, table) for partition, bucket, total, table in bucket_groups(difference)}
    partitions = chosen if store.schema.partition_keys else None
    vectors_now, vectors_then = (vector_files(store, snapshot, partitions) for snapshot in (latest, target))
    marked = {place for place in {*vectors_now, *vectors_then} if vectors_now.get(place) != vectors_then.get(place)}
    places = sorted({*groups, *marked})
    touched = sorted({partition for partition, _ in places})
    live = manifests.live_entries(store, latest, partitions=touched) if places else difference
    present = {(partition, bucket): (total, table) for partition, bucket, total, table in bucket_groups(live)}
    changes = []
    for place in places:
        total, table = groups.get(place) or present.get(place) or (store.options.bucket, difference.slice(0, 0))
        entries = table_to_entries(table) if place in groups else []
        removed = {entry.file.file_name: entry.file for entry in entries if entry.kind == DELETE}
        back = {entry.file.file_name: entry.file for entry in entries if entry.kind == ADD}
        total = max((entry.total_buckets for entry in entries if entry.kind == ADD), default=total)
        if store.bucket_mode is BucketMode.FIXED and back and total != store.options.bucket:
            buckets = f"{total}, now {store.options.bucket}"
            text = f"going back to snapshot {target.id}, since which the number of buckets changed ({buckets})"
            raise UnsupportedFeature(text, store.name)
        changes.append(
            ReplacedFiles(
                *place,
                total,
                inputs=tuple(back.values()),
                outputs=tuple(removed.values()),
                left=frozenset(),
                vectors=deletion_files(store, *place, vectors_then.get(place, ())),
                live=tuple(entry.file for entry in table_to_entries(present[place][1])) if place in present else (),
                index_files=vectors_now.get(place, ()),
            )
        )
    return changes


def apply_rollback_as_latest(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Copy the files to restore and commit them, with kind OVERWRITE, which streaming reads skip.

    After an error other than CommitUnknown the copies are deleted.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a RollbackAsLatestReport.

    Raises:
        PlanStale, CommitConflict: a commit changed the plan's partitions after planning.
        PlanRefused: a file to copy is missing.
        CorruptFile: a file is damaged.
        VerificationFailed: a copy differs from its source.
    """
    _require_able(store)
    if not plan.items:
        return ApplyOutcome(RollbackAsLatestReport(None, plan.base_snapshot, plan.hash, declined=plan.declined))
    buckets = _as_planned(store, plan)
    verified = store.options.verification != COUNTS
    messages: list[CommitMessage] = []
    with discard_on_failure(store, messages):
        for bucket in buckets:
            return_files(store, bucket, messages, verified, all_vectors=True)
        number = int(plan.arguments["to_snapshot"] or 0)
        properties = {PLAN_PROPERTY: plan.hash, AS_LATEST_PROPERTY: str(number)}
        base = _base(store, plan)
        committed = Committer(store).commit_compaction(
            messages,
            lambda entries: _rescan_untouched(
                store, base, _chosen(plan), [bucket.place for bucket in buckets], entries
            ),
            properties=properties,
            kind=CommitKind.OVERWRITE,
        )
    items = plan.items_of(AsLatestItem)
    report = RollbackAsLatestReport(
        committed.snapshot_id,
        plan.base_snapshot,
        plan.hash,
        version=number,
        **count_returned(messages),
        verification="V1" if verified else "V0",
        partitions=() if _chosen(plan) is None else tuple(dict.fromkeys(item.partition_text for item in items)),
        declined=plan.declined,
    )
    return ApplyOutcome(report, [item.line("as latest") for item in items])


def find_restored_snapshot(snapshot: Snapshot) -> int | None:
    """Return the id of the older snapshot whose content ``snapshot`` committed again, None if it is no such rollback.

    A rollback of some partitions names the older snapshot too.

    Args:
        snapshot: snapshot that may be such a rollback.
    """
    number = (snapshot.properties or {}).get(AS_LATEST_PROPERTY, "")
    return int(number) if number.isascii() and number.isdigit() else None


def _chosen(plan: MaintenancePlan) -> list[bytes] | None:
    return chosen_from_text(plan.arguments["partitions"])


def _base(store: TableStore, plan: MaintenancePlan) -> Snapshot:
    """Return the snapshot that was the newest at planning. Raises PlanStale."""
    snapshot = snapshots.try_read(store, plan.base_snapshot or 0)
    if snapshot is None:
        raise PlanStale(f"snapshot {plan.base_snapshot}, at which it was made, is gone", store.name)
    return snapshot


def _as_planned(store: TableStore, plan: MaintenancePlan) -> list[ReplacedFiles]:
    """Return the changes of the plan's buckets.

    Raises PlanStale if the changes are not as planned, or a commit changed the plan's partitions after planning.
    """
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
        _rescan_untouched(store, base, _chosen(plan), [bucket.place for bucket in buckets], with_nothing)(latest)
    except CommitConflict as conflict:
        raise PlanStale(str(conflict), store.name) from conflict
    return buckets


def _rescan_untouched(
    store: TableStore, base: Snapshot, chosen: Sequence[bytes] | None, places: Sequence[Place], entries: pa.Table
) -> Rescan:
    """Return a function that reads the live entries for each commit attempt of the rollback.

    The function raises CommitConflict if a snapshot after ``base`` changed data files or deletion vectors of the
    ``chosen`` partitions (None for all). Else it returns the live entries and ``entries`` (those of the rollback).
    """
    partitions = sorted({partition for partition, _ in places})
    partition_filter = chosen if store.schema.partition_keys else None

    def source(latest: Snapshot | None) -> tuple[pa.Table, pa.Table]:
        if latest is None or latest.id < base.id:
            raise CommitConflict(ConflictKind.BASE_GONE, reason=f"table {store.name}: it was rolled back meanwhile")
        for number in range(base.id + 1, latest.id + 1):
            later = snapshots.read(store, number)
            delta = manifests.delta_entries(store, later)
            if partition_filter is not None:
                delta = delta.filter(pc.is_in(delta.column("partition"), pa.array(partition_filter, pa.binary())))
            if delta.num_rows or vector_files(store, later, partition_filter) != vector_files(
                store, base, partition_filter
            ):
                reason = f"table {store.name}: snapshot {number} was committed since, and would be lost"
                raise CommitConflict(ConflictKind.BUCKET_CHANGED, (), later.commit_user, number, reason)
        return manifests.live_entries(store, latest, partitions=partitions), entries

    return source


def rollback_as_latest_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether no commit changed the plan's partitions after planning.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    with suppress(DredgeError):
        return bool(_as_planned(store, plan))
    return False


WORK: Final = ActionWork(
    plan_rollback_as_latest,
    apply_rollback_as_latest,
    RollbackAsLatestReport,
    (AsLatestItem,),
    commits=True,
    fits=rollback_as_latest_fits,
    remarks=lambda plan: [
        (
            f"a new snapshot will have the content of snapshot {plan.arguments['to_snapshot']}; "
            "files that come back are copied"
        )
    ],
)
