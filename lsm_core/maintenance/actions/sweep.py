"""The trash's second half: delete what a record set aside, after its grace, or put its snapshots back."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from lsm_core.errors import CorruptFile, DredgeError, PlanRefused
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance import trash
from lsm_core.maintenance.actions.used import Used, read_lineages, still_used
from lsm_core.maintenance.plan import Declined, DeleteItem, MaintenancePlan, PlanEstimate
from lsm_core.maintenance.reports import RestoreReport, SweepReport
from lsm_core.maintenance.trash import TrashRecord
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import inside_really

ACTION: Final = "trash"
UNREADABLE: Final = "unreadable"
"""Reason of a deletion record that cannot be read."""


def plan_sweep(store: TableStore, now_ms: int | None = None) -> MaintenancePlan:
    """Plan the deletion of every recorded file whose grace is over and that nothing needs (``now_ms``: epoch ms).

    A record that cannot be read is in ``declined`` with its file. Raises CorruptFile when a snapshot, tag or branch cannot be read.
    """
    now = store.clock.now_ms() if now_ms is None else now_ms
    found = trash.read_trash(store)
    records = found.records
    due, declined = _due(store, records, now)
    declined += [_unreadable(error) for error in found.unreadable]
    used = _used_by_others(store, due, records)
    items = [file for record in due for file in record.files if PurePosixPath(file.path).name not in used.holders]
    kept = [
        _held(file, used) for record in due for file in record.files if PurePosixPath(file.path).name in used.holders
    ]
    return MaintenancePlan(
        ACTION,
        store.name,
        snapshots.latest_id(store),
        items=tuple(items),
        declined=(*declined, *kept),
        estimate=PlanEstimate(bytes_freed=sum(item.size for item in items), files_in=len(items), tasks=1),
        options=dict(store.options.raw),
        arguments={"records": " ".join(record.trash_id for record in due)},
        created_ms=now,
    )


def _due(store: TableStore, records: Sequence[TrashRecord], now_ms: int) -> tuple[list[TrashRecord], list[Declined]]:
    due, declined = [], []
    for record in records:
        if record.not_before_ms > now_ms:
            wait = (record.not_before_ms - now_ms + 999) // 1000
            text = f"its grace lasts {wait} s more; restore {record.trash_id} undoes it"
            declined.append(Declined(record.trash_id, "grace", text, {"not_before_ms": record.not_before_ms}))
        elif trash.claimed_for(store, record.trash_id) == trash.RESTORE:
            declined.append(Declined(record.trash_id, "restoring", "a restore of this record was begun"))
        else:
            due.append(record)
    return due, declined


def _unreadable(error: CorruptFile) -> Declined:
    text = f"{error}; put the file back from a copy, or move it away: its files then stay as they are"
    return Declined(PurePosixPath(error.path).name, UNREADABLE, text, {"path": error.path})


def _used_by_others(store: TableStore, due: Sequence[TrashRecord], records: Sequence[TrashRecord]) -> Used:
    """Needed by anything alive, or by a record that can still be restored."""
    if not due:
        return Used()
    ids = {record.trash_id for record in due}
    pending = [record for record in records if record.trash_id not in ids]
    names = {PurePosixPath(file.path).name for record in due for file in record.files}
    return still_used(store, read_lineages(store, pending=pending), names)


def _held(file: DeleteItem, used: Used) -> Declined:
    holder = used.holders[PurePosixPath(file.path).name]
    return Declined(
        file.path, "held", f"held by {holder}", {"size": file.size, "holder": holder, "trash_id": file.trash_id}
    )


@dataclass
class _Tally:
    deleted: int = 0
    freed: int = 0
    missing: int = 0


def apply_sweep(store: TableStore, plan: MaintenancePlan) -> SweepReport:
    """Phase two: claim the plan's records, learn anew what is used, delete the rest, drop the records.

    The used set is computed after the claims: a restore that came first keeps its record, one that comes later is
    refused. Files still needed stay, and from then on belong to whoever needs them.
    """
    chosen = set(str(plan.arguments.get("records") or "").split())
    everything = trash.read_trash(store).records
    mine, declined = [], list(plan.declined)
    for record in everything:
        if record.trash_id in chosen:
            if trash.claim(store, record.trash_id, trash.SWEEP):
                mine.append(record)
            else:
                declined.append(Declined(record.trash_id, "stale", "it is being restored"))
    used = _used_by_others(store, mine, everything)
    planned = {(item.trash_id, item.path) for item in plan.deletions}
    tally, kept = _Tally(), []
    for record in mine:
        held, left = _delete_files(store, record, used, planned, tally)
        kept += held
        if not left:
            trash.forget(store, record.trash_id)
    for trash_id in trash.stray_claims(store):
        trash.forget(store, trash_id)
    return SweepReport(
        plan_hash=plan.hash,
        records=tuple(record.trash_id for record in mine),
        files_deleted=tally.deleted,
        bytes_freed=tally.freed,
        files_missing=tally.missing,
        kept=tuple(kept),
        declined=tuple(item for item in declined if item.reason != "held"),
    )


def _target(store: TableStore, file: DeleteItem) -> str:
    """Where a recorded file lies. Raises CorruptFile for a path that would leave the table, also through a link."""
    if file.path.startswith("/"):
        raise CorruptFile(file.path, f"an absolute path in deletion record {file.trash_id}")
    return inside_really(store.root, f"{store.root}/{file.path}")


def _delete_files(
    store: TableStore, record: TrashRecord, used: Used, planned: AbstractSet[tuple[str, str]], tally: _Tally
) -> tuple[list[Declined], int]:
    """Delete the planned files of a record; return what is held, and how many wait for the next plan (free only now)."""
    kept, left = [], 0
    for file in record.files:
        if PurePosixPath(file.path).name in used.holders:
            kept.append(_held(file, used))
        elif (record.trash_id, file.path) not in planned:
            left += 1
        elif store.file_io.delete(_target(store, file)):
            tally.deleted += 1
            tally.freed += file.size
        else:
            tally.missing += 1
    return kept, left


def restore(store: TableStore, trash_id: str) -> RestoreReport:
    """Put the snapshots of a record back, newest first, and drop the record; its files then are in use again.

    Raises InvalidOption for an unknown id and PlanRefused when a sweep has begun, when a file is already gone, or when
    the snapshot after the restored ones is itself in the trash (restore that record first: history has no holes).
    """
    record = trash.find_record(store, trash_id)
    if trash.claimed_for(store, trash_id) == trash.SWEEP:
        raise PlanRefused(f"sweep-has-begun: the files of {trash_id} are being deleted", table=store.name)
    _require_restorable(store, record)
    if not trash.claim(store, trash_id, trash.RESTORE):
        raise PlanRefused(f"sweep-has-begun: the files of {trash_id} are being deleted", table=store.name)
    _require_files(store, record)
    ids = sorted(record.snapshots)
    for number in reversed(ids):
        _put_back(store, number, record.snapshots[number].encode())
    earliest = snapshots.list_ids(store)[0]
    snapshots.write_earliest_hint(store, earliest)
    trash.forget(store, trash_id)
    return RestoreReport(trash_id, tuple(ids), len(record.files), earliest)


def _put_back(store: TableStore, number: int, data: bytes) -> None:
    path = store.snapshot_path(number)
    Snapshot.from_json(data, path)
    if not store.file_io.write_exclusive(path, data) and store.file_io.read_bytes(path) != data:
        raise PlanRefused(f"history-changed: another snapshot {number} is there now", table=store.name)


def _require_restorable(store: TableStore, record: TrashRecord) -> None:
    present = set(snapshots.list_ids(store))
    following = max(record.snapshots, default=0) + 1
    if following in present:
        return
    later = [other.trash_id for other in trash.read_trash(store).records if following in other.snapshots]
    hint = f"restore {later[0]} first" if later else f"snapshot {following} is gone"
    raise PlanRefused(f"no-holes-in-history: {hint}", table=store.name)


def _require_files(store: TableStore, record: TrashRecord) -> None:
    """All files must still be there; the claim that proved otherwise is given back."""
    try:
        for file in record.files:
            path = _target(store, file)
            if not store.file_io.exists(path):
                raise PlanRefused(f"files-are-gone: {file.path} of {record.trash_id} was deleted", table=store.name)
    except DredgeError:
        trash.release(store, record.trash_id)
        raise


__all__ = ["ACTION", "apply_sweep", "plan_sweep", "restore"]
