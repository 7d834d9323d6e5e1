"""Restore from the trash: put back what an earlier action deleted, as long as no sweep has begun to delete its files.

A deletion record in the trash stores the deleted snapshots, changelogs and tags, and lists the files that a sweep
deletes later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final

from lsm_core.clock import utc_text
from lsm_core.errors import CorruptFile, DredgeError, InvalidOption, PlanRefused, RefusalRule
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance import snapshot_exchange, trash
from lsm_core.maintenance.action import ActionWork, Applied, ApplyOutcome, MaintenancePlan, PlanItem, Report
from lsm_core.maintenance.actions.delete_branch import require_no_other, write_branch_metadata
from lsm_core.maintenance.actions.fast_forward import digest_text, exchange, is_stand_in
from lsm_core.maintenance.deletions import deletable_path, under_lock
from lsm_core.maintenance.ledger import read_ledger
from lsm_core.maintenance.trash import TrashRecord
from lsm_core.metadata import changelogs, hints, snapshots, tags
from lsm_core.metadata.branches import MAIN, change_times, open_branch
from lsm_core.metadata.store import TableStore
from lsm_core.storage import inside_really


@dataclass(frozen=True)
class RestoreItem(PlanItem):
    """Deletion record of the trash that a restore puts back.

    Attributes:
        trash_id: id of the deletion record.
        first_snapshot: id of the record's first snapshot or changelog, None if the record lists none (orphan files, a
            deleted branch, only tags).
        last_snapshot: id of the record's last snapshot or changelog, None if the record lists none.
        files: number of recorded files, which a sweep will not delete any more.
        changelogs: whether the ids are those of changelogs instead of snapshots.
        branch: branch to which the snapshots belong.
        whole_branch: whether the record is of a deleted branch (its snapshots are not listed).
        others: names of tags, changelogs and schemas that are put back too, as text.
    """

    item_kind: ClassVar[str] = "restore"
    title: ClassVar[str] = "would restore"
    columns: ClassVar[tuple[str, ...]] = ("trash id", "snapshots", "others", "files")

    trash_id: str
    first_snapshot: int | None
    last_snapshot: int | None
    files: int
    changelogs: bool = False
    branch: str = "main"
    whole_branch: bool = False
    others: str = ""

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: the record, its content and its number of files."""
        which = "-" if self.first_snapshot is None else f"{self.first_snapshot}..{self.last_snapshot}"
        return (self.trash_id, f"branch {self.branch}" if self.whole_branch else which, self.others or None, self.files)


@dataclass(frozen=True)
class RestoreReport(Report):
    """Report of a restore.

    Attributes:
        trash_id: id of the deletion record in the trash.
        restored: ids of the snapshots that can be read again, or of the changelogs that can be streamed again.
        files_kept: number of files that will not be deleted any more.
        earliest: id of the oldest snapshot or changelog after the restore.
        changelogs: whether ``restored`` are changelogs.
        orphans: whether the record was of orphan files.
        branch: name of the restored branch, "" if the record was not of a branch.
        others: names of tags, changelogs and schemas that were put back too.
        snapshot_id: None, unless another process made a commit during the undo of a rollback. Then it is the id of the
            snapshot below that commit, which has the content of the newest restored snapshot.
    """

    left_alone: ClassVar[Mapping[str, str]] = {}

    trash_id: str
    restored: tuple[int, ...] = ()
    files_kept: int = 0
    earliest: int | None = None
    changelogs: bool = False
    orphans: bool = False
    branch: str = ""
    others: tuple[str, ...] = ()
    snapshot_id: int | None = None

    @property
    def changed(self) -> bool:
        """Whether anything was put back, or orphan files were kept from deletion."""
        return bool(self.restored or self.branch or self.others) or self.orphans

    def lines(self, table: str) -> list[str]:
        """Return lines, for people, on the restored snapshots, changelogs, tags or files."""
        if self.orphans:
            return [f"{self.files_kept} files that nothing names are kept"]
        if self.branch:
            return [f"branch {self.branch} can be read again; {self.files_kept} files are in use again"]
        if not self.changed:
            return [f"no {'changelog' if self.changelogs else 'snapshot'} was restored"]
        kind = "changelogs" if self.changelogs else "snapshots"
        which = [f"{kind} {self.restored[0]} to {self.restored[-1]}"] if self.restored else []
        return [f"{', '.join([*which, *self.others])} can be read again; {self.files_kept} files are in use again"]


def plan_restore(store: TableStore, trash_id: str) -> MaintenancePlan:
    """Plan to put the content of a deletion record back.

    Args:
        store: the table.
        trash_id: id of the record.

    Raises:
        InvalidOption: the record does not exist; the message names the run that restored or swept the record.
        PlanRefused: a sweep has begun to delete the files; the snapshot that follows is missing (if it is in the trash,
            restore its record first, because ids must have no gap); commits were made after the rollback or
            fast-forward to undo; or a branch has the name of the deleted branch.
        UnsupportedFeature: a catalog server publishes the snapshots, and the record is of a rollback, a fast-forward
            or a deleted branch.
    """
    record = _record(store, trash_id)
    _require_own_snapshots(store, record)
    if trash.read_claim(store, trash_id) == trash.SWEEP:
        raise _sweep_has_begun(store, trash_id)
    plan = MaintenancePlan.begin("restore", store, snapshots.latest_id(store), {"trash_id": trash_id})
    if record.action == trash.DELETED_BRANCH:
        require_no_other(store, record, is_resumed=trash.read_claim(store, trash_id) == trash.RESTORE)
        item = RestoreItem(trash_id, None, None, len(record.files), branch=record.branch, whole_branch=True)
        return replace(plan, items=(item,))
    _require_fitting(_branch_of(store, record), record)
    ids = sorted(record.snapshots)
    is_changelogs = record.action == trash.EXPIRED_CHANGELOGS
    if record.action == trash.ORPHANS:
        return replace(plan, items=(RestoreItem(trash_id, None, None, len(record.files)),))
    others = ", ".join(_names(record))
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    item = RestoreItem(trash_id, first, last, len(record.files), is_changelogs, record.branch, others=others)
    return replace(plan, items=(item,) if ids or others else ())


def _require_own_snapshots(store: TableStore, record: TrashRecord) -> None:
    """Refuse to undo a rollback, a fast-forward or a branch deletion of a table that is now behind a catalog server.

    Such a record is older than the server's catalog, because the server does this work without a record.

    Raises:
        UnsupportedFeature: the server would not learn of the restored snapshots or branch.
    """
    if record.action in (trash.ROLLED_BACK, trash.FORWARDED, trash.DELETED_BRANCH):
        store.require_own_snapshots(f"a restore of {record.trash_id}")


def _branch_of(store: TableStore, record: TrashRecord) -> TableStore:
    """Return the branch to which the snapshots of a record in the trash belong, opened as a table.

    Raises:
        PlanRefused: the record was written by a fast-forward of an old Dredge version, which cannot be undone.
        TableNotFound: the branch does not exist.
    """
    if record.action == trash.FORWARDED and not record.came:
        detail = f"{record.trash_id} does not record the files that a fast-forward added in place of its content"
        raise _refusal(store, RefusalRule.HISTORY_CHANGED, detail)
    return store if record.branch == store.branch else open_branch(store, record.branch)


def apply_restore(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Put back what a record of the trash lists, then delete the record, under the table's lock if there is one.

    A deleted branch is restored unchanged.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a RestoreReport.

    Raises:
        PlanRefused: a file is missing, or a new snapshot or tag has the id or name of a deleted one. The errors of
            :func:`plan_restore` are raised too.
        LockTimeout: another process holds the table's lock.
    """
    trash_id = str(plan.arguments["trash_id"])
    record = _record(store, trash_id)
    _require_own_snapshots(store, record)
    if record.action != trash.DELETED_BRANCH:
        store = _branch_of(store, record)
    with under_lock(store, "a restore"):
        return _restore(store, plan, record)


def _restore(store: TableStore, plan: MaintenancePlan, record: TrashRecord) -> ApplyOutcome:
    trash_id, whole_branch = record.trash_id, record.action == trash.DELETED_BRANCH
    is_resumed = trash.read_claim(store, trash_id) == trash.RESTORE
    if not trash.claim(store, trash_id, trash.RESTORE):
        raise _sweep_has_begun(store, trash_id)
    if record.action == trash.ORPHANS:
        kept = sum(store.file_io.exists(deletable_path(store, file.path)) for file in record.files)
        trash.forget(store, trash_id)
        return ApplyOutcome(RestoreReport(trash_id, files_kept=kept, orphans=True))
    try:
        expired, others = _read_checked(store, record, is_resumed=is_resumed)
    except DredgeError:
        trash.release(store, record.trash_id)  # a failed restore must not block a sweep
        raise
    if whole_branch:
        write_branch_metadata(store, record)
        trash.forget(store, trash_id)
        return ApplyOutcome(RestoreReport(trash_id, files_kept=len(record.files), branch=record.branch))
    cover = None
    if record.action == trash.ROLLED_BACK:
        cover = _undo_rollback(store, record, plan.hash)
    elif record.action == trash.FORWARDED:
        texts = {store.snapshot_path(number): record.snapshots[number].encode() for number in expired}
        exchange(store, [f"{store.root}/{path}" for path in record.came], {**texts, **others})
    elif expired:
        _put_back(store, record, expired)
    for path, data in sorted(others.items()):
        store.file_io.write_exclusive(path, data)
    is_changelogs = record.action == trash.EXPIRED_CHANGELOGS
    if is_changelogs or any(path.startswith(changelogs.changelog_dir(store)) for path in others):
        changelogs.point_hints(store, changelogs.list_changelogs(store))
    first = changelogs.list_changelogs(store) if is_changelogs else snapshots.list_ids(store)
    trash.forget(store, trash_id)
    report = RestoreReport(
        trash_id,
        tuple(expired),
        len(record.files),
        min(first, default=None),
        changelogs=is_changelogs,
        others=_names(record),
        snapshot_id=cover,
    )
    return ApplyOutcome(report)


def _read_checked(
    store: TableStore, record: TrashRecord, *, is_resumed: bool
) -> tuple[dict[int, Snapshot], dict[str, bytes]]:
    """Return the snapshots to put back by id, and the content of the tags and changelogs to put back by path.

    ``is_resumed`` is whether an interrupted restore may have put files back already. Raises PlanRefused if a file is
    missing, or does not fit the current history.
    """
    for file in record.files:
        if not store.file_io.exists(deletable_path(store, file.path)):
            raise _refusal(store, RefusalRule.FILES_ARE_GONE, f"{file.path} of {record.trash_id} was deleted")
    others: dict[str, bytes] = {}
    if record.action == trash.DELETED_BRANCH:
        require_no_other(store, record, is_resumed=is_resumed)
    else:
        _require_fitting(store, record)
        others = {_small_path(store, record, path): data for path, data in record.metadata.items()}
    for path, data in others.items():
        if path.removeprefix(f"{store.root}/") in record.came:
            continue  # checked already
        if store.file_io.exists(path) and store.file_io.read_bytes(path) != data:
            raise _refusal(store, RefusalRule.HISTORY_CHANGED, f"another {PurePosixPath(path).name} is there now")
    return {number: _expired(store, record, number) for number in sorted(record.snapshots)}, others


def _put_back(store: TableStore, record: TrashRecord, expired: Mapping[int, Snapshot]) -> None:
    """Write the ``expired`` snapshots or changelogs again, newest first, so that the ids never have a gap."""
    is_changelogs = record.action == trash.EXPIRED_CHANGELOGS
    for number in sorted(expired, reverse=True):
        if is_changelogs and snapshots.exists(store, number):
            continue  # the snapshot itself came back meanwhile
        path = changelogs.changelog_path(store, number) if is_changelogs else store.snapshot_path(number)
        data = record.snapshots[number].encode()
        if not store.file_io.write_exclusive(path, data) and store.file_io.read_bytes(path) != data:
            raise _refusal(store, RefusalRule.HISTORY_CHANGED, f"another {PurePosixPath(path).name} is there now")
    if not is_changelogs:
        snapshots.write_earliest_hint(store, snapshots.list_ids(store)[0])
        # A snapshot that can be read needs no changelog beside it.
        changelog_ids = [number for number in changelogs.list_changelogs(store) if number in expired]
        if changelog_ids:
            changelogs.delete_changelogs(store, changelog_ids)


def _undo_rollback(store: TableStore, record: TrashRecord, plan_hash: str) -> int | None:
    """Undo a rollback: restore the snapshots of a record, so that the newest of them is the table's newest again.

    Readers see the change as one step: a cover (temporary newest snapshot) hides the snapshots that are written below.

    Returns:
        The id of the cover (temporary newest snapshot) if a commit was made on the cover, so that the cover stays.
        None if the cover was removed.

    Raises:
        PlanRefused: a commit was made after the rollback, on the rollback's target.
    """
    if not record.snapshots:
        return None
    newest = max(record.snapshots)
    cover = snapshot_exchange.find_cover(store, newest + 1, record.trash_id)
    whole = all(snapshot_exchange.has_snapshot(store, number, text) for number, text in record.snapshots.items())
    if cover is None and not whole:
        to_come = Snapshot.from_json(record.snapshots[newest].encode(), store.snapshot_path(newest))
        cover = snapshot_exchange.build_cover(store, to_come, newest + 1, record.trash_id, plan_hash)
        # Without the hint readers find the cover by listing, as soon as it exists.
        store.delete(f"{store.snapshot_dir}/{hints.LATEST}")
        path = store.snapshot_path(cover.id)
        if not store.file_io.write_exclusive(path, cover.to_json()):
            cover = snapshot_exchange.find_cover(store, newest + 1, record.trash_id)
            if cover is None:
                raise _refusal(store, RefusalRule.HISTORY_CHANGED, f"another snapshot-{newest + 1} is there now")
    try:
        snapshot_exchange.restore_snapshots(store, record.snapshots)
    except PlanRefused:
        if cover is not None:
            snapshot_exchange.remove_cover(store, cover)
        trash.release(store, record.trash_id)
        raise
    if record.target_written and record.target is not None:
        store.delete(store.snapshot_path(record.target))  # the target had expired before the rollback
    snapshots.write_earliest_hint(store, snapshots.list_ids(store)[0])
    if cover is None:
        snapshots.point_latest(store)
        return None
    return None if snapshot_exchange.remove_cover(store, cover) else cover.id


def _names(record: TrashRecord) -> tuple[str, ...]:
    """Return the names of a record's tags, changelogs and schemas, as text for people."""
    paths = [PurePosixPath(path) for path in sorted(record.metadata)]
    tag_names = [f"tag {path.name.removeprefix(tags.PREFIX)}" for path in paths if path.parent.name == "tag"]
    return (*tag_names, *(path.name.replace("-", " ") for path in paths if path.parent.name in ("changelog", "schema")))


_SMALL: Final = re.compile(
    r"(branch/branch-[^/]+/)?"
    r"(tag/tag-[^/]+|tag/tag-success-file/[^/]+_SUCCESS|changelog/changelog-[1-9][0-9]{0,18}|schema/schema-[0-9]{1,19})"
)
_EXCHANGED: Final = re.compile(
    r"(branch/branch-[^/]+/)?(snapshot/snapshot-[1-9][0-9]{0,18}|tag/tag-[^/]+|schema/schema-[0-9]{1,19})"
)


def _small_path(store: TableStore, record: TrashRecord, path: str) -> str:
    """Return the absolute path of a tag, changelog or schema file of a record.

    Raises:
        CorruptFile: Dredge never records such a path, or the path is outside the branch.
    """
    place = f"{store.root}/{path}"
    if not _SMALL.fullmatch(path) or not place.startswith(f"{store.metadata_root}/"):
        raise CorruptFile(
            path, f"no tag, changelog or schema of branch {store.branch}, in deletion record {record.trash_id}"
        )
    return inside_really(store.root, place)


def _expired(store: TableStore, record: TrashRecord, number: int) -> Snapshot:
    """Return the expired snapshot with the id ``number`` from a deletion record.

    Raises CorruptFile, and PlanRefused if another engine expired the snapshot's changelog.
    """
    snapshot = Snapshot.from_json(record.snapshots[number].encode(), store.snapshot_path(number))
    listed = snapshot.changelog_manifest_list
    if listed is not None and not store.file_io.exists(store.manifest_path(listed)):
        raise _refusal(store, RefusalRule.FILES_ARE_GONE, f"the changelog of snapshot {number} was deleted ({listed})")
    return snapshot


def restore_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether the record that the plan restores is still in the trash.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    return any(store.file_io.exists(trash.record_path(store, item.trash_id)) for item in plan.items_of(RestoreItem))


def trace_of_restore(store: TableStore, plan: MaintenancePlan) -> Applied | None:
    """Return the earlier application of a plan, recognised by the restored content instead of by the ledger.

    Args:
        store: the table.
        plan: plan that may have been applied before.

    Returns:
        The application, or None. The deletion record in the trash must no longer exist, and the planned snapshots,
            changelogs or branch must exist. For a record without snapshots (orphan files, only tags) the result is
            always None.
    """
    item = next(iter(plan.items_of(RestoreItem)), None)
    if item is None or store.file_io.exists(trash.record_path(store, item.trash_id)):
        return None
    if item.whole_branch:
        created_ms = change_times(store).get(item.branch)
        return None if created_ms is None else Applied(None, created_ms, f"branch {item.branch} is there")
    if item.first_snapshot is None or item.last_snapshot is None:
        return None  # a restore of orphans leaves no trace except in the ledger
    if item.branch != store.branch:
        if item.branch != MAIN and item.branch not in change_times(store):
            return None
        store = open_branch(store, item.branch)
    if not _select_existing(store, changelog=item.changelogs).issuperset(
        range(item.first_snapshot, item.last_snapshot + 1)
    ):
        return None
    first = (
        changelogs.changelog_path(store, item.first_snapshot)
        if item.changelogs
        else store.snapshot_path(item.first_snapshot)
    )
    status = store.file_io.list_dir(first.rpartition("/")[0])
    back = next((file.mtime_ms for file in status if file.name == PurePosixPath(first).name), store.clock.now_ms())
    kind = "changelogs" if item.changelogs else "snapshots"
    return Applied(None, back, f"{kind} {item.first_snapshot} to {item.last_snapshot} can be read")


def _select_existing(store: TableStore, *, changelog: bool) -> set[int]:
    """Return the ids of the existing snapshots; with ``changelog`` also the ids of the existing changelogs."""
    ids = set(snapshots.list_ids(store))
    return ids | set(changelogs.list_changelogs(store)) if changelog else ids


def _record(store: TableStore, trash_id: str) -> TrashRecord:
    """Return the record with an id from the trash.

    Raises:
        InvalidOption: the record does not exist; the message says whether it was restored or swept.
    """
    try:
        return trash.find_record(store, trash_id)
    except InvalidOption as error:
        fate = ""
        with suppress(CorruptFile, TypeError, ValueError):  # anyone may write into the ledger's folder
            for entry in read_ledger(store, heads=True):
                run = f"by run {entry.run_id} at {utc_text(entry.time_ms)} UTC"
                if entry.outcome == "done" and entry.report.get("trash_id") == trash_id:
                    ids = [int(number) for number in entry.report.get("expired") or entry.report.get("restored") or ()]
                    is_changelogs = entry.action == trash.EXPIRED_CHANGELOGS
                    back = _select_existing(store, changelog=is_changelogs).issuperset(ids)
                    if entry.action == "restore":
                        fate = f"it was restored already, {run}"
                    elif ids and back:
                        kind = "changelogs" if is_changelogs else "snapshots"
                        fate = f"it was restored already: {kind} {ids[0]} to {ids[-1]} can be read"
                elif entry.outcome == "done" and trash_id in (entry.report.get("records") or ()):
                    fate = f"its files were deleted {run}"
        if not fate:
            raise
        raise InvalidOption(error.key, error.value, f"{error.accepted}; {fate}", error.table) from error


def _sweep_has_begun(store: TableStore, trash_id: str) -> PlanRefused:
    return _refusal(store, RefusalRule.SWEEP_HAS_BEGUN, f"the files of {trash_id} are being deleted")


def _refusal(store: TableStore, rule: RefusalRule, detail: str) -> PlanRefused:
    return PlanRefused(rule, table=store.name, detail=detail)


def _require_fitting(store: TableStore, record: TrashRecord) -> None:
    """Raise PlanRefused if the snapshots or changelogs to restore would not fit the current history."""
    if record.action == trash.ROLLED_BACK:
        _require_nothing_newer(store, record)
    elif record.action == trash.FORWARDED:
        _require_as_forwarded(store, record)
    elif record.snapshots:
        _require_no_hole(store, record)


def _require_nothing_newer(store: TableStore, record: TrashRecord) -> None:
    """Raise PlanRefused if commits were made after the rollback that would be lost by undoing the rollback.

    Snapshots newer than the rollback's target are allowed only if the record lists them, or if an interrupted undo of
    the rollback wrote a cover (temporary newest snapshot) and they are the cover or were committed on top of it.
    """
    covering = max(record.snapshots, default=0) + 1
    for number in snapshots.list_ids(store):
        if number <= (record.target or 0):
            continue
        if number in record.snapshots and snapshot_exchange.has_snapshot(store, number, record.snapshots[number]):
            continue
        if number >= covering and snapshot_exchange.find_cover(store, covering, record.trash_id) is not None:
            continue  # an interrupted undo: commits made on its cover are kept
        detail = f"snapshot {number} was committed after the rollback to snapshot {record.target}"
        raise _refusal(store, RefusalRule.HISTORY_CHANGED, detail)


def _require_as_forwarded(store: TableStore, record: TrashRecord) -> None:
    """Check that a fast-forward can be undone: the table's history did not change after the fast-forward.

    Two changes are allowed: files that the fast-forward brought may have expired, and an earlier, interrupted undo may
    have put back some of the former files.

    Raises:
        PlanRefused: the history changed otherwise; the message names the change.
        CorruptFile: the record has a path that a fast-forward never records.
    """
    mine = {
        store.snapshot_path(number)[len(store.root) + 1 :]: text.encode() for number, text in record.snapshots.items()
    }
    mine |= record.metadata
    for path, digest in record.came.items():
        if not _EXCHANGED.fullmatch(path) or not f"{store.root}/{path}".startswith(f"{store.metadata_root}/"):
            raise CorruptFile(path, f"no snapshot, tag or schema of branch {store.branch}, in {record.trash_id}")
        place = inside_really(store.root, f"{store.root}/{path}")
        now = store.file_io.read_bytes(place) if store.file_io.exists(place) else None
        if now is not None and now != mine.get(path) and digest_text(now) != digest and not is_stand_in(now):
            raise _refusal(store, RefusalRule.HISTORY_CHANGED, f"{path} was written after the fast-forward")
    for other in trash.read_trash(store).records:
        if other.trash_id == record.trash_id:
            break  # oldest first
        if other.action == trash.FORWARDED and not record.came.items().isdisjoint(other.came.items()):
            detail = f"{record.trash_id} is of the second half of an interrupted fast-forward; restore {other.trash_id}"
            raise _refusal(store, RefusalRule.HISTORY_CHANGED, detail)
    forwarded_ids = {int(path.rpartition("-")[2]) for path in record.came if "snapshot/snapshot-" in path}
    present = snapshots.list_ids(store)
    newest = max((*forwarded_ids, *record.snapshots), default=0)
    if present and present[-1] > newest:
        detail = f"snapshot {present[-1]} was committed after the fast-forward"
        raise _refusal(store, RefusalRule.HISTORY_CHANGED, detail)
    after = sorted((set(present) - forwarded_ids) | set(record.snapshots))
    for first, last in snapshots.gaps(after):
        raise _refusal(store, RefusalRule.NO_HOLES_IN_HISTORY, f"snapshots {first} to {last} have expired since")


def _require_no_hole(store: TableStore, record: TrashRecord) -> None:
    if record.action == trash.ORPHANS:
        return
    is_changelogs = record.action == trash.EXPIRED_CHANGELOGS
    following = max(record.snapshots, default=0) + 1
    if following in _select_existing(store, changelog=is_changelogs):
        return
    # The successor in the trash may be a changelog or a snapshot, but a snapshot is never followed by a changelog.
    branch_records = [other for other in trash.read_trash(store).records if other.branch == record.branch]
    records = [other for other in branch_records if is_changelogs or other.action != trash.EXPIRED_CHANGELOGS]
    records.sort(key=lambda other: other.action != record.action)
    later = [other.trash_id for other in records if following in other.snapshots]
    hint = f"restore {later[0]} first" if later else f"snapshot {following} is gone"
    raise _refusal(store, RefusalRule.NO_HOLES_IN_HISTORY, hint)


WORK: Final = ActionWork(
    plan_restore,
    apply_restore,
    RestoreReport,
    (RestoreItem,),
    replaces_schemas=True,
    fits=restore_fits,
    trace=trace_of_restore,
)
