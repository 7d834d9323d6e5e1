"""Snapshot expiry: which ids go, which files that frees, phase one of the two-phase delete, and the report of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.clock import utc_text
from lsm_core.errors import CorruptFile, PlanStale, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.action import Applied, Declined, MaintenancePlan, Outcome, PlanEstimate, PlanItem, Report
from lsm_core.maintenance.actions.expire_snapshots.retention import RetentionPolicy
from lsm_core.maintenance.actions.trash.sweeping import plan_sweep, sweep_records
from lsm_core.maintenance.trash import DeleteItem, TrashRecord, held_line, read_trash, write_record
from lsm_core.maintenance.used_files import added, metadata_files, read_lineages, removed, still_used
from lsm_core.metadata import consumers, manifests, snapshots
from lsm_core.metadata.indexes import index_file_path
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_expirable

_MOST_LINES: Final = 10_000
_EXTERNAL: Final = "data-file.external-paths"
_PATHS: Final = {"statistics": TableStore.statistics_path}


@dataclass(frozen=True)
class ExpireItem(PlanItem):
    """One snapshot that expires; ``time_ms`` is its commit time (epoch ms)."""

    item_kind: ClassVar[str] = "expire"
    title: ClassVar[str] = "would expire"
    columns: ClassVar[tuple[str, ...]] = ("snapshot", "committed (UTC)", "why")

    snapshot_id: int
    time_ms: int
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """Id, time and reason."""
        return (self.snapshot_id, utc_text(self.time_ms), self.reason)


@dataclass(frozen=True)
class ExpiryReport(Report):
    """What an expiry did: ids whose snapshot JSON is gone, files recorded for deletion (or deleted, direct mode).

    ``trash_id`` names the deletion record, ``not_before_ms`` (epoch ms) is when a sweep may delete its files;
    ``bytes_freed`` counts files already deleted; ``held`` are files that something retained still needs.
    """

    left_alone: ClassVar[Mapping[str, str]] = {"held": "held", "declined": "left alone"}

    plan_hash: str
    base_snapshot: int | None
    expired: tuple[int, ...] = ()
    earliest: int | None = None
    files_recorded: int = 0
    bytes_recorded: int = 0
    files_deleted: int = 0
    bytes_freed: int = 0
    trash_id: str | None = None
    not_before_ms: int | None = None
    held: tuple[Declined, ...] = ()
    declined: tuple[Declined, ...] = ()
    dry_run: bool = False

    @property
    def changed(self) -> bool:
        """Whether a snapshot expired."""
        return bool(self.expired)

    def lines(self, table: str) -> list[str]:
        """Which snapshots expired, where their files are, and how to undo it."""
        if not self.expired:
            return ["no snapshot expired"]
        first = f"expired snapshots {self.expired[0]} to {self.expired[-1]}; the earliest is now {self.earliest}"
        if self.trash_id is None:
            size = f"{self.files_deleted} files ({self.bytes_freed:,} bytes)"
            return [first, f"{size} deleted at once (dredge.delete-mode=direct)"]
        size = f"{self.files_recorded} files ({self.bytes_recorded:,} bytes)"
        wait = f"{size} wait in the trash until {utc_text(self.not_before_ms)} UTC"
        return [first, wait, f"undo with: dredge restore {table} {self.trash_id}"]


def plan_expiry(
    store: TableStore,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than_ms: int | None = None,
    max_deletes: int | None = None,
    now_ms: int | None = None,
) -> MaintenancePlan:
    """Plan which snapshots expire and which files nothing needs afterwards (Java `ExpireSnapshotsImpl`).

    ``older_than_ms`` and ``now_ms`` are epoch ms. Reads metadata only. Raises InvalidOption, UnsupportedFeature
    (branches, long-lived changelogs) and CorruptFile when a snapshot, tag, branch or consumer cannot be read.
    """
    _require_expirable(store)
    now = store.clock.now_ms() if now_ms is None else now_ms
    policy = RetentionPolicy.of(store.options, now, retain_max, retain_min, older_than_ms, max_deletes)
    arguments = {"retain_max": policy.retain_max, "retain_min": policy.retain_min, "max_deletes": policy.max_deletes}
    arguments["older_than_ms"] = policy.older_than_ms
    plan = MaintenancePlan.begun("expire_snapshots", store, snapshots.latest_id(store), arguments, now)
    ids = snapshots.list_ids(store)
    if not ids:
        return replace(plan, declined=(Declined("snapshots", "empty", "the table has no snapshot"),))

    def time_of(snapshot_id: int) -> int | None:
        try:
            return snapshots.read(store, snapshot_id).time_millis
        except SnapshotNotFound:
            return None

    chosen = policy.choose(ids[0], ids[-1], consumers.min_next_snapshot(store), time_of)
    kept = Declined(
        f"snapshots {chosen.end}..{ids[-1]}", "retained", chosen.limit, {"first_kept": chosen.end, "latest": ids[-1]}
    )
    if chosen.is_empty:
        return replace(plan, declined=(kept,))
    times = {number: time for number in ids if number < chosen.end and (time := time_of(number)) is not None}
    items = [ExpireItem(number, time, chosen.reason_of(number)) for number, time in times.items()]
    candidates = {item.path: item for item in _candidates(store, list(times), chosen.end)}
    deletions, held = split_used(store, list(candidates.values()), set(times))
    freed = sum(item.size for item in deletions)
    return replace(
        plan,
        items=(*items, *deletions),
        declined=(kept, *held, *_left_outside(store, list(times), chosen.end)),
        estimate=PlanEstimate(bytes_freed=freed, files_in=len(deletions), tasks=1),
    )


def _require_expirable(store: TableStore) -> None:
    if store.branch != "main":
        raise UnsupportedFeature(f"expiring the snapshots of branch {store.branch}", store.name)
    require_expirable(store)


def split_used(
    store: TableStore, candidates: Sequence[DeleteItem], without: set[int]
) -> tuple[list[DeleteItem], list[Declined]]:
    """Candidates that nothing retained needs, and the data files that something does, with its name.

    Manifest-side files shared with newer snapshots are the rule, so they are dropped without a word.
    """
    lineages = read_lineages(store, without=without)
    used = still_used(store, lineages, {PurePosixPath(item.path).name for item in candidates}).holders
    free = [item for item in candidates if PurePosixPath(item.path).name not in used]
    held = [
        Declined(item.path, "held", f"held by {used[name]}", {"size": item.size, "holder": used[name]})
        for item in candidates
        if (name := PurePosixPath(item.path).name) in used and item.kind in {"data", "changelog"}
    ]
    return free, held


def _candidates(store: TableStore, expiring: Sequence[int], end: int) -> Iterator[DeleteItem]:
    """Files that only the expiring snapshots may need (format.md 17: data files by the deltas of their successors)."""
    if not expiring:
        return
    for snapshot, gone in _replaced(store, expiring, end):
        number = snapshot.id
        yield from _data_items(store, gone, "data", f"replaced by snapshot {number} ({snapshot.commit_kind.value})")
    for number in expiring:
        snapshot = snapshots.read(store, number)
        indexes = {entry.file_name: entry for entry in manifests.index_entries(store, snapshot)}
        for name, kind, size in metadata_files(store, snapshot):
            if kind != "index":
                path = _PATHS.get(kind, TableStore.manifest_path)(store, name)
            elif indexes[name].external_path is None:
                path = index_file_path(store, indexes[name])
            else:
                continue  # as data files outside the table's root: never ours to delete
            yield DeleteItem(_relative(store, path), kind, size, f"belonged to snapshot {number}")
        if snapshot.changelog_manifest_list:
            entries = added(manifests.changelog_entries(store, snapshot))
            yield from _data_items(store, entries, "changelog", f"changelog of snapshot {number}")


def _replaced(store: TableStore, expiring: Sequence[int], end: int) -> Iterator[tuple[Snapshot, pa.Table]]:
    """Manifest entries that each snapshot after the first expiring one dropped."""
    for number in range(expiring[0] + 1, end + 1):
        try:
            snapshot = snapshots.read(store, number)
        except SnapshotNotFound:
            continue
        yield snapshot, removed(manifests.delta_entries(store, snapshot))


def _left_outside(store: TableStore, expiring: Sequence[int], end: int) -> list[Declined]:
    """Says how many files under `data-file.external-paths` nothing names any more and nobody deletes."""
    if not expiring or not store.options.get(_EXTERNAL):
        return []
    files = size = 0
    for _, gone in _replaced(store, expiring, end):
        outside = gone.filter(pc.is_valid(gone.column("external_path")))
        files += outside.num_rows
        size += pc.sum(outside.column("file_size")).as_py() or 0
    text = f"{files} replaced files lie outside the table's directory, under {_EXTERNAL}: they are not deleted"
    return [Declined(_EXTERNAL, "outside", text, {"files": files, "size": size})] if files else []


def _data_items(store: TableStore, entries: pa.Table, kind: str, reason: str) -> Iterator[DeleteItem]:
    """Delete items of data files and their extra files; files outside the table's root are never ours to delete."""
    inside = entries.filter(pc.is_null(entries.column("external_path")))
    columns = ["partition", "bucket", "file_name", "file_size", "extra_files"]
    for row in inside.select(columns).to_pylist():  # one object a file of the plan, not a row of data
        for name, size in ((row["file_name"], row["file_size"]), *((extra, 0) for extra in row["extra_files"] or ())):
            path = store.data_path(row["partition"], row["bucket"], name)
            yield DeleteItem(_relative(store, path), kind, size, reason)


def _relative(store: TableStore, path: str) -> str:
    root = store.root.rstrip("/") + "/"
    if not path.startswith(root):
        raise CorruptFile(path, f"lies outside of table {store.name}")
    return path[len(root) :]


def apply_expiry(store: TableStore, plan: MaintenancePlan) -> Outcome:
    """Phase one of the delete (`_expire`), and in direct mode (`dredge.delete-mode`) phase two at once. Its report is an ExpiryReport."""
    report = _expire(store, plan)
    if report.trash_id is not None and store.options.delete_mode == "direct":
        # Everything that is due, so that what an interrupted expiry left behind goes too.
        swept = sweep_records(store, plan_sweep(store))
        report = replace(report, files_deleted=swept.files_deleted, bytes_freed=swept.bytes_freed, trash_id=None)
    lines = [{"event": "expired", "snapshot": number} for number in report.expired]
    return Outcome(report, [*lines, *map(held_line, report.held[:_MOST_LINES])])


def expiry_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether a snapshot of ``plan`` is still there."""
    return not {item.snapshot_id for item in plan.items_of(ExpireItem)}.isdisjoint(snapshots.list_ids(store))


def foresee_expiry(plan: MaintenancePlan) -> ExpiryReport:
    """What applying ``plan`` would report."""
    deletions = plan.items_of(DeleteItem)
    return ExpiryReport(
        plan.hash,
        plan.base_snapshot,
        expired=tuple(item.snapshot_id for item in plan.items_of(ExpireItem)),
        files_recorded=len(deletions),
        bytes_recorded=sum(item.size for item in deletions),
        held=tuple(item for item in plan.declined if item.reason == "held"),
        declined=tuple(item for item in plan.declined if item.reason != "held"),
        dry_run=True,
    )


def trace_of_expiry(store: TableStore, plan: MaintenancePlan) -> Applied | None:
    """The deletion record that an application of ``plan`` wrote, while it is in the trash."""
    for record in read_trash(store).records:
        if record.plan_hash == plan.hash:
            return Applied(None, record.created_ms, f"deletion record {record.trash_id}")
    return None


def _expire(store: TableStore, plan: MaintenancePlan) -> ExpiryReport:
    """Phase one: record what goes, drop the expired snapshot files oldest first, move the EARLIEST hint.

    What became needed since planning (a new tag, say) leaves the record. Raises PlanStale when a consumer or a changed
    history needs an expiring snapshot. A crash between any two steps leaves a table whose snapshots are all whole.
    """
    _require_expirable(store)
    present = set(snapshots.list_ids(store))
    going = [item.snapshot_id for item in plan.items_of(ExpireItem) if item.snapshot_id in present]
    if not going:
        return ExpiryReport(plan.hash, plan.base_snapshot, earliest=min(present, default=None), declined=plan.declined)
    _require_fresh(store, plan, present, going)
    deletions, held = split_used(store, plan.items_of(DeleteItem), set(going))
    # The exact bytes of the snapshot files, checked: a restore writes them back.
    texts = {}
    for number in going:
        path = store.snapshot_path(number)
        try:
            data = store.file_io.read_bytes(path)
        except FileNotFoundError as error:
            raise PlanStale(f"snapshot {number} was expired by somebody else meanwhile", store.name) from error
        Snapshot.from_json(data, path)
        texts[number] = data.decode()
    now = store.clock.now_ms()
    grace = 0 if store.options.delete_mode == "direct" else store.options.trash_grace_expiry
    record = TrashRecord(
        trash_id=f"expire-{going[0]}-{going[-1]}-{plan.hash[:12]}-{now}",
        action="expire_snapshots",
        table=store.name,
        plan_hash=plan.hash,
        created_ms=now,
        not_before_ms=now + grace,
        snapshots=texts,
        files=tuple(deletions),
    )
    write_record(store, record)
    for number in going:
        store.file_io.delete(store.snapshot_path(number))
    # Held at planning or at applying, each file once.
    held_once = {item.subject: item for item in (*plan.declined, *held) if item.reason == "held"}
    earliest = min(present - set(going))
    snapshots.write_earliest_hint(store, earliest)
    return ExpiryReport(
        plan.hash,
        plan.base_snapshot,
        expired=tuple(going),
        earliest=earliest,
        files_recorded=len(deletions),
        bytes_recorded=record.size,
        trash_id=record.trash_id,
        not_before_ms=record.not_before_ms,
        held=tuple(held_once.values()),
        declined=tuple(item for item in plan.declined if item.reason != "held"),
    )


def _require_fresh(store: TableStore, plan: MaintenancePlan, present: set[int], going: Sequence[int]) -> None:
    if min(present) != going[0]:
        raise PlanStale(f"snapshot {min(present)} is older than snapshot {going[0]}, the first of the plan", store.name)
    if max(present) <= going[-1]:
        raise PlanStale(f"snapshot {going[-1]} is the newest now; the table was rolled back", store.name)
    wanted = consumers.min_next_snapshot(store)
    if wanted is not None and wanted <= going[-1]:
        raise PlanStale(f"a consumer reads from snapshot {wanted} now", store.name)
    times: Mapping[int, int] = {item.snapshot_id: item.time_ms for item in plan.items_of(ExpireItem)}
    for number in going:
        if snapshots.read(store, number).time_millis != times[number]:
            raise PlanStale(f"snapshot {number} was written again after a rollback", store.name)
