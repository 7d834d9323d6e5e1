"""Snapshot expiry: which ids go, which files that frees, and phase one of the two-phase delete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile, PlanStale, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.actions.used import added, metadata_files, read_lineages, removed, still_used
from lsm_core.maintenance.plan import Declined, DeleteItem, ExpireItem, MaintenancePlan, PlanEstimate
from lsm_core.maintenance.policy import ExpiryRange, RetentionPolicy
from lsm_core.maintenance.reports import ExpiryReport
from lsm_core.maintenance.trash import TrashRecord, write_record
from lsm_core.metadata import consumers, manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_expirable

ACTION: Final = "expire_snapshots"
_EXTERNAL: Final = "data-file.external-paths"
_PATHS: Final = {"index": TableStore.index_path, "statistics": TableStore.statistics_path}


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
    plan = MaintenancePlan(
        ACTION,
        store.name,
        snapshots.latest_id(store),
        options=dict(store.options.raw),
        arguments=arguments,
        created_ms=now,
    )
    ids = snapshots.list_ids(store)
    if not ids:
        return replace(plan, declined=(Declined("snapshots", "empty", "the table has no snapshot"),))
    chosen = policy.choose(ids[0], ids[-1], consumers.min_next_snapshot(store), _Times(store))
    kept = Declined(
        f"snapshots {chosen.end}..{ids[-1]}", "retained", chosen.limit, {"first_kept": chosen.end, "latest": ids[-1]}
    )
    if chosen.is_empty:
        return replace(plan, declined=(kept,))
    return _fill(store, plan, [number for number in ids if number < chosen.end], chosen, kept)


class _Times:
    """Commit times by id, read when asked for."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def __call__(self, snapshot_id: int) -> int | None:
        try:
            return snapshots.read(self._store, snapshot_id).time_millis
        except SnapshotNotFound:
            return None


def _require_expirable(store: TableStore) -> None:
    if store.branch != "main":
        raise UnsupportedFeature(f"expiring the snapshots of branch {store.branch}", store.name)
    require_expirable(store)


def _fill(
    store: TableStore, plan: MaintenancePlan, expiring: Sequence[int], chosen: ExpiryRange, kept: Declined
) -> MaintenancePlan:
    items = []
    for number in expiring:
        try:
            items.append(ExpireItem(number, snapshots.read(store, number).time_millis, chosen.reason_of(number)))
        except SnapshotNotFound:
            continue
    candidates = {item.path: item for item in _candidates(store, [item.snapshot_id for item in items], chosen.end)}
    deletions, held = split_used(store, list(candidates.values()), {item.snapshot_id for item in items})
    freed = sum(item.size for item in deletions)
    return replace(
        plan,
        items=(*items, *deletions),
        declined=(kept, *held, *_left_outside(store, [item.snapshot_id for item in items], chosen.end)),
        estimate=PlanEstimate(bytes_freed=freed, files_in=len(deletions), tasks=1),
    )


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
        for name, kind, size in metadata_files(store, snapshot):
            path = _PATHS.get(kind, TableStore.manifest_path)(store, name)
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


def apply_expiry(store: TableStore, plan: MaintenancePlan) -> ExpiryReport:
    """Phase one: record what goes, drop the expired snapshot files oldest first, move the EARLIEST hint.

    What became needed since planning (a new tag, say) leaves the record. Raises PlanStale when a consumer or a changed
    history needs an expiring snapshot. A crash between any two steps leaves a table whose snapshots are all whole.
    """
    _require_expirable(store)
    present = set(snapshots.list_ids(store))
    going = [item.snapshot_id for item in plan.expirations if item.snapshot_id in present]
    if not going:
        return ExpiryReport(plan.hash, plan.base_snapshot, earliest=min(present, default=None), declined=plan.declined)
    _require_fresh(store, plan, present, going)
    deletions, held = split_used(store, plan.deletions, set(going))
    now = store.clock.now_ms()
    grace = 0 if store.options.delete_mode == "direct" else store.options.trash_grace_expiry
    record = TrashRecord(
        trash_id=f"expire-{going[0]}-{going[-1]}-{plan.hash[:12]}-{now}",
        action=ACTION,
        table=store.name,
        plan_hash=plan.hash,
        created_ms=now,
        not_before_ms=now + grace,
        snapshots={number: _text(store, number) for number in going},
        files=tuple(deletions),
    )
    write_record(store, record)
    for number in going:
        store.file_io.delete(store.snapshot_path(number))
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
        held=_merge_held(plan.declined, held),
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
    times: Mapping[int, int] = {item.snapshot_id: item.time_ms for item in plan.expirations}
    for number in going:
        if snapshots.read(store, number).time_millis != times[number]:
            raise PlanStale(f"snapshot {number} was written again after a rollback", store.name)


def _text(store: TableStore, snapshot_id: int) -> str:
    """The exact JSON of a snapshot file, checked, so that a restore writes back the same bytes."""
    path = store.snapshot_path(snapshot_id)
    try:
        data = store.file_io.read_bytes(path)
    except FileNotFoundError as error:
        raise PlanStale(f"snapshot {snapshot_id} was expired by somebody else meanwhile", store.name) from error
    Snapshot.from_json(data, path)
    return data.decode()


def _merge_held(planned: Sequence[Declined], found: Sequence[Declined]) -> tuple[Declined, ...]:
    """Held at planning or at applying, each file once."""
    held = {item.subject: item for item in planned if item.reason == "held"}
    held.update({item.subject: item for item in found})
    return tuple(held.values())


__all__ = ["ACTION", "apply_expiry", "plan_expiry"]
