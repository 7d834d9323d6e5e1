"""Restoring: the snapshots or changelogs of a deletion record come back, and its files are in use again, as long as no sweep has begun."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, ClassVar

from lsm_core.clock import utc_text
from lsm_core.errors import CorruptFile, DredgeError, InvalidOption, PlanRefused, RefusalRule
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance import trash
from lsm_core.maintenance.action import Applied, MaintenancePlan, Outcome, PlanItem, Report
from lsm_core.maintenance.actions.delete_branch.deleting import put_back, require_no_other
from lsm_core.maintenance.deletions import deletable_path
from lsm_core.maintenance.record import read_ledger
from lsm_core.maintenance.trash import TrashRecord
from lsm_core.metadata import changelogs, snapshots
from lsm_core.metadata.branches import MAIN, change_times, open_branch
from lsm_core.metadata.store import TableStore


@dataclass(frozen=True)
class RestoreItem(PlanItem):
    """One deletion record whose snapshots (``first_snapshot`` to ``last_snapshot``), or the changelogs of these, are put back.

    ``files`` counts those that are in use again then. A record of orphans has no snapshots (None): its files are merely kept. ``branch``:
    where; ``whole_branch``: all of it was deleted (no snapshots are told).
    """

    item_kind: ClassVar[str] = "restore"
    title: ClassVar[str] = "would restore"
    columns: ClassVar[tuple[str, ...]] = ("trash id", "snapshots", "files")

    trash_id: str
    first_snapshot: int | None
    last_snapshot: int | None
    files: int
    changelogs: bool = False
    branch: str = "main"
    whole_branch: bool = False

    def cells(self) -> tuple[Any, ...]:
        """The record, what it brings back and how many files it holds."""
        which = "-" if self.first_snapshot is None else f"{self.first_snapshot}..{self.last_snapshot}"
        return (self.trash_id, f"branch {self.branch}" if self.whole_branch else which, self.files)


@dataclass(frozen=True)
class RestoreReport(Report):
    """What a restore put back: ids of snapshots that can be read again, or of changelogs (``changelogs``) that can be streamed again.

    ``branch``: the deleted branch that is there again, "" where it was not a branch.
    """

    left_alone: ClassVar[Mapping[str, str]] = {}

    trash_id: str
    restored: tuple[int, ...] = ()
    files_kept: int = 0
    earliest: int | None = None
    changelogs: bool = False
    orphans: bool = False
    branch: str = ""

    @property
    def changed(self) -> bool:
        """Whether a snapshot or a branch came back, or orphans are kept."""
        return bool(self.restored or self.branch) or self.orphans

    def lines(self, table: str) -> list[str]:
        """What can be read again."""
        if self.orphans:
            return [f"{self.files_kept} files that nothing names are kept"]
        if self.branch:
            return [f"branch {self.branch} can be read again; {self.files_kept} files are in use again"]
        if not self.restored:
            return [f"no {'changelog' if self.changelogs else 'snapshot'} was restored"]
        kind = "changelogs" if self.changelogs else "snapshots"
        which = f"{kind} {self.restored[0]} to {self.restored[-1]} can be read again"
        return [f"{which}; {self.files_kept} files are in use again"]


def plan_restore(store: TableStore, trash_id: str) -> MaintenancePlan:
    """Plan to put the snapshots, or the changelogs, of the deletion record ``trash_id`` back.

    Raises InvalidOption for an unknown id (and one that was restored or swept, naming the run) and PlanRefused when a sweep has begun, or when the snapshot after the restored ones is
    itself in the trash (restore that record first: history has no holes).
    """
    record = _record(store, trash_id)
    if trash.claimed_for(store, trash_id) == trash.SWEEP:
        raise _sweep_has_begun(store, trash_id)
    plan = MaintenancePlan.begun("restore", store, snapshots.latest_id(store), {"trash_id": trash_id})
    if record.action == trash.DELETED_BRANCH:
        require_no_other(store, record, begun=trash.claimed_for(store, trash_id) == trash.RESTORE)
        item = RestoreItem(trash_id, None, None, len(record.files), branch=record.branch, whole_branch=True)
        return replace(plan, items=(item,))
    _require_no_hole(_branch_of(store, record), record)
    ids = sorted(record.snapshots)
    told = record.action == trash.EXPIRED_CHANGELOGS
    if record.action == trash.ORPHANS:
        return replace(plan, items=(RestoreItem(trash_id, None, None, len(record.files)),))
    files = len(record.files)
    items = [RestoreItem(trash_id, ids[0], ids[-1], files, told, record.branch)] if ids else []
    return replace(plan, items=tuple(items))


def _branch_of(store: TableStore, record: TrashRecord) -> TableStore:
    """The branch whose history the record belongs to. Raises PlanRefused for what a fast-forward dropped, TableNotFound."""
    if record.action == trash.FORWARDED:
        detail = (
            f"{record.trash_id} holds what a fast-forward replaced; the history that took its place would have to go"
        )
        raise _refused(store, RefusalRule.HISTORY_CHANGED, detail)
    return store if record.branch == store.branch else open_branch(store, record.branch)


def apply_restore(store: TableStore, plan: MaintenancePlan) -> Outcome:
    """Put the snapshots (or changelogs) back, newest first, and drop the record. Its report is a RestoreReport.

    A deleted branch comes back as it was. Raises what :func:`plan_restore` raises, and PlanRefused when a file is already gone or another snapshot has taken an id.
    """
    trash_id = str(plan.arguments["trash_id"])
    record = _record(store, trash_id)
    whole_branch = record.action == trash.DELETED_BRANCH
    if not whole_branch:
        store = _branch_of(store, record)
        _require_no_hole(store, record)
    begun = trash.claimed_for(store, trash_id) == trash.RESTORE
    if not trash.claim(store, trash_id, trash.RESTORE):
        raise _sweep_has_begun(store, trash_id)
    if record.action == trash.ORPHANS:
        kept = sum(store.file_io.exists(deletable_path(store, file.path)) for file in record.files)
        trash.forget(store, trash_id)
        return Outcome(RestoreReport(trash_id, files_kept=kept, orphans=True))
    try:
        for file in record.files:
            if not store.file_io.exists(deletable_path(store, file.path)):
                raise _refused(store, RefusalRule.FILES_ARE_GONE, f"{file.path} of {record.trash_id} was deleted")
        if whole_branch:
            require_no_other(store, record, begun=begun)
        expired = {number: _expired(store, record, number) for number in sorted(record.snapshots)}
    except DredgeError:
        trash.release(store, record.trash_id)  # a restore that cannot be done keeps no sweep waiting
        raise
    if whole_branch:
        put_back(store, record)
        trash.forget(store, trash_id)
        return Outcome(RestoreReport(trash_id, files_kept=len(record.files), branch=record.branch))
    told = record.action == trash.EXPIRED_CHANGELOGS
    for number in reversed(expired):
        if told and snapshots.exists(store, number):
            continue  # the snapshot itself came back meanwhile
        path = changelogs.changelog_path(store, number) if told else store.snapshot_path(number)
        data = record.snapshots[number].encode()
        if not store.file_io.write_exclusive(path, data) and store.file_io.read_bytes(path) != data:
            raise _refused(store, RefusalRule.HISTORY_CHANGED, f"another {PurePosixPath(path).name} is there now")
    if told:
        left = changelogs.list_changelogs(store)
        changelogs.point_hints(store, left)
        earliest = left[0] if left else None
    else:
        earliest = snapshots.list_ids(store)[0]
        snapshots.write_earliest_hint(store, earliest)
        # A snapshot that can be read needs no changelog beside it.
        there = [number for number in changelogs.list_changelogs(store) if number in expired]
        if there:
            changelogs.delete_changelogs(store, there)
    trash.forget(store, trash_id)
    return Outcome(RestoreReport(trash_id, tuple(expired), len(record.files), earliest, told))


def _expired(store: TableStore, record: TrashRecord, number: int) -> Snapshot:
    """What the record keeps of that id. Raises CorruptFile, and PlanRefused where another engine expired its changelog since."""
    found = Snapshot.from_json(record.snapshots[number].encode(), store.snapshot_path(number))
    listed = found.changelog_manifest_list
    if listed is not None and not store.file_io.exists(store.manifest_path(listed)):
        raise _refused(store, RefusalRule.FILES_ARE_GONE, f"the changelog of snapshot {number} was deleted ({listed})")
    return found


def restore_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether the deletion record of ``plan`` is still there."""
    return any(store.file_io.exists(trash.record_path(store, item.trash_id)) for item in plan.items_of(RestoreItem))


def trace_of_restore(store: TableStore, plan: MaintenancePlan) -> Applied | None:
    """The snapshots of ``plan``, while all of them can be read and their record is gone: told before the ledger tells it."""
    item = next(iter(plan.items_of(RestoreItem)), None)
    if item is None or store.file_io.exists(trash.record_path(store, item.trash_id)):
        return None
    if item.whole_branch:
        there = change_times(store).get(item.branch)
        return None if there is None else Applied(None, there, f"branch {item.branch} is there")
    if item.first_snapshot is None or item.last_snapshot is None:
        return None  # what was done with orphans leaves nothing behind but the ledger's word
    if item.branch != store.branch:
        if item.branch != MAIN and item.branch not in change_times(store):
            return None
        store = open_branch(store, item.branch)
    if not _present(store, changelog=item.changelogs).issuperset(range(item.first_snapshot, item.last_snapshot + 1)):
        return None
    first = (
        changelogs.changelog_path(store, item.first_snapshot)
        if item.changelogs
        else store.snapshot_path(item.first_snapshot)
    )
    status = store.file_io.list_dir(first.rpartition("/")[0])
    back = next((one.mtime_ms for one in status if one.name == PurePosixPath(first).name), store.clock.now_ms())
    kind = "changelogs" if item.changelogs else "snapshots"
    return Applied(None, back, f"{kind} {item.first_snapshot} to {item.last_snapshot} can be read")


def _present(store: TableStore, *, changelog: bool) -> set[int]:
    """Ids that can be read, or at least streamed."""
    ids = set(snapshots.list_ids(store))
    return ids | set(changelogs.list_changelogs(store)) if changelog else ids


def _record(store: TableStore, trash_id: str) -> TrashRecord:
    """The record. Raises InvalidOption, which says what became of one that was there, as the ledger and the snapshots tell it."""
    try:
        return trash.find_record(store, trash_id)
    except InvalidOption as error:
        told = ""
        with suppress(CorruptFile, TypeError, ValueError):  # anybody may write there
            for entry in read_ledger(store, heads=True):
                run = f"by run {entry.run_id} at {utc_text(entry.time_ms)} UTC"
                if entry.outcome == "done" and entry.report.get("trash_id") == trash_id:
                    ids = [int(number) for number in entry.report.get("expired") or entry.report.get("restored") or ()]
                    told_changelogs = entry.action == trash.EXPIRED_CHANGELOGS
                    back = _present(store, changelog=told_changelogs).issuperset(ids)
                    if entry.action == "restore":
                        told = f"it was restored already, {run}"
                    elif ids and back:
                        kind = "changelogs" if told_changelogs else "snapshots"
                        told = f"it was restored already: {kind} {ids[0]} to {ids[-1]} can be read"
                elif entry.outcome == "done" and trash_id in (entry.report.get("records") or ()):
                    told = f"its files were deleted {run}"
        if not told:
            raise
        raise InvalidOption(error.key, error.value, f"{error.accepted}; {told}", error.table) from error


def _sweep_has_begun(store: TableStore, trash_id: str) -> PlanRefused:
    return _refused(store, RefusalRule.SWEEP_HAS_BEGUN, f"the files of {trash_id} are being deleted")


def _refused(store: TableStore, rule: RefusalRule, detail: str) -> PlanRefused:
    return PlanRefused(rule, table=store.name, detail=detail)


def _require_no_hole(store: TableStore, record: TrashRecord) -> None:
    if record.action == trash.ORPHANS:
        return
    told = record.action == trash.EXPIRED_CHANGELOGS
    following = max(record.snapshots, default=0) + 1
    if following in _present(store, changelog=told):
        return
    # A changelog may follow that is in the trash, or a snapshot that is; a snapshot does not follow on a changelog.
    found = [one for one in trash.read_trash(store).records if one.branch == record.branch]
    records = [one for one in found if told or one.action != trash.EXPIRED_CHANGELOGS]
    records.sort(key=lambda one: one.action != record.action)
    later = [other.trash_id for other in records if following in other.snapshots]
    hint = f"restore {later[0]} first" if later else f"snapshot {following} is gone"
    raise _refused(store, RefusalRule.NO_HOLES_IN_HISTORY, hint)
