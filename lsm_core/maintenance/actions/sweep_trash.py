"""Sweep of the trash: delete the files that earlier actions recorded for deletion, unless they are still needed.

An expiry, or another action that frees files, only lists these files in a deletion record in the table's trash. The
sweep deletes the listed files after a grace period, within which the action can be undone.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final, TypeVar

import pyarrow as pa

from lsm_core.arrays import arrow_array
from lsm_core.clock import utc_text
from lsm_core.errors import StorageRefused
from lsm_core.json_text import parse_json
from lsm_core.maintenance import trash
from lsm_core.maintenance.action import (
    ActionWork,
    ApplyOutcome,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    Report,
    Runner,
    TaskRunner,
    size_text,
)
from lsm_core.maintenance.deletions import DeletionReport, deletable_path, under_lock
from lsm_core.maintenance.file_holders import HolderKind, find_holders
from lsm_core.maintenance.trash import ORPHANS, DeleteItem, TrashRecord, ledger_line_of_held
from lsm_core.maintenance.used_files import UsedFiles, find_used, read_lineages
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.progress import advance, stage
from lsm_core.storage import FileIO, PathBelow, delete_files
from lsm_core.storage.file_io import Deleted

_MOST_LINES: Final = 10_000
DELETED_HERE: Final = 10_000
"""Largest number of files that the sweeping process deletes itself, even if a `TaskRunner` is given."""
FILES_A_PART: Final = 1_000
UNREADABLE: Final = "unreadable"
"""Reason of a deletion record that cannot be read."""
_DATA_FOLDER: Final = re.compile(r"bucket-(\d+|postpone)|[^/=]+=.*", re.DOTALL)
"""Names of bucket and partition folders."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class SweepReport(Report):
    """Report of a sweep, which deletes the files of deletion records whose grace period is over.

    Attributes:
        plan_hash: hash of the plan.
        records: ids of the swept deletion records. Records with remaining files wait for the next sweep.
        files_deleted: number of deleted files.
        bytes_freed: bytes of the deleted files.
        files_missing: number of files that did not exist any more.
        kept: files that are still needed, each with the snapshot, tag, branch or record that needs it.
        declined: deletion records left unchanged.
        failed: files that could not be deleted, with the reason.
        dry_run: whether nothing was changed.
    """

    left_alone: ClassVar[Mapping[str, str]] = {"kept": "kept", "declined": "left alone", "failed": "not deleted"}

    plan_hash: str = ""
    records: tuple[str, ...] = ()
    files_deleted: int = 0
    bytes_freed: int = 0
    files_missing: int = 0
    kept: tuple[Declined, ...] = ()
    declined: tuple[Declined, ...] = ()
    failed: tuple[Declined, ...] = ()
    dry_run: bool = False

    @property
    def unreadable(self) -> tuple[Declined, ...]:
        """Unreadable deletion records; their files are kept until the records are repaired or removed."""
        return tuple(item for item in self.declined if item.reason == UNREADABLE)

    @property
    def changed(self) -> bool:
        """Whether a deletion record was swept."""
        return bool(self.records)

    def lines(self, table: str) -> list[str]:
        """Return one line with files, bytes and records."""
        word = "would delete" if self.dry_run else "deleted"
        return [f"{word} {self.files_deleted} files ({size_text(self.bytes_freed)}) of {len(self.records)} records"]


def plan_sweep(store: TableStore, now_ms: int | None = None, runner: Runner | None = None) -> MaintenancePlan:
    """Plan the deletion of every recorded file whose grace period is over and that is not needed any more.

    Records that are unreadable, in their grace period, or being restored are in ``declined``.

    Args:
        store: the table.
        now_ms: time of planning (epoch ms), None for the table's clock.
        runner: a `TaskRunner` distributes the reading of very many snapshots.

    Raises:
        CorruptFile: a snapshot, tag or branch cannot be read.
    """
    now = store.clock.now_ms() if now_ms is None else now_ms
    records_read = trash.read_trash(store)
    records = records_read.records
    due, declined = [], []
    for record in records:
        if record.not_before_ms > now:
            text = f"its grace lasts until {utc_text(record.not_before_ms)} UTC; restore {record.trash_id} undoes it"
            declined.append(Declined(record.trash_id, "grace", text, {"not_before_ms": record.not_before_ms}))
        elif trash.read_claim(store, record.trash_id) == trash.RESTORE:
            declined.append(Declined(record.trash_id, "restoring", "a restore of this record was begun"))
        else:
            due.append(record)
    for error in records_read.unreadable:
        text = f"{error}; put the file back from a copy, or move it away: its files then stay as they are"
        declined.append(Declined(PurePosixPath(error.path).name, UNREADABLE, text, {"path": error.path}))
    used = _used_by_others(store, due, records, runner)
    items = [file for record in due for file in record.files if PurePosixPath(file.path).name not in used.holders]
    kept = [
        _held(file, used) for record in due for file in record.files if PurePosixPath(file.path).name in used.holders
    ]
    arguments = {"records": " ".join(record.trash_id for record in due)}
    return replace(
        MaintenancePlan.begin("trash", store, snapshots.latest_id(store), arguments, now),
        items=tuple(items),
        declined=(*declined, *kept),
        estimate=PlanEstimate(bytes_freed=sum(item.size for item in items), files_in=len(items), tasks=1),
    )


def _used_by_others(
    store: TableStore, due: Sequence[TrashRecord], records: Sequence[TrashRecord], runner: Runner | None = None
) -> UsedFiles:
    """Return the files of the ``due`` records that are still needed.

    Such files are needed by a snapshot, changelog, tag or branch, or by a deletion record that can still be restored.

    ``runner``: with a `TaskRunner`, many snapshots are read by parallel tasks; None reads them in this process.
    """
    ids = {record.trash_id for record in due}
    pending = [record for record in records if record.trash_id not in ids]
    expired, orphans = (
        {PurePosixPath(file.path).name for record in due if (record.action == ORPHANS) is sort for file in record.files}
        for sort in (False, True)
    )
    used = find_used(store, read_lineages(store, pending=pending), expired, runner) if expired else UsedFiles()
    if orphans:
        # Orphans were unreferenced, but a late commit may reference them now, so more kinds of holders are searched.
        for name, holder in find_holders(store, arrow_array(sorted(orphans), pa.string()), pending).by_name().items():
            used.add([name], holder.name, orphans, pending=holder.kind is HolderKind.GRACE)
    return used


def _held(file: DeleteItem, used: UsedFiles) -> Declined:
    holder = used.holders[PurePosixPath(file.path).name]
    return Declined(
        file.path, "held", f"held by {holder}", {"size": file.size, "holder": holder, "trash_id": file.trash_id}
    )


def apply_sweep(store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> ApplyOutcome:
    """Delete the planned files that nothing needs now, and the deletion records that leave no file for a later sweep.

    Args:
        store: the table.
        plan: plan made by :func:`plan_sweep`.
        runner: with a `TaskRunner`, many files are deleted in parts.

    Returns:
        ApplyOutcome with a SweepReport.
    """
    report, outcomes = sweep_files(store, plan, runner)
    lines = [{"event": "swept", "trash_id": name} for name in report.records]
    return ApplyOutcome(report, [*lines, *outcomes, *map(ledger_line_of_held, report.kept[:_MOST_LINES])])


def sweep_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether at least one deletion record of the plan still exists.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    names = str(plan.arguments.get("records") or "").split()
    return any(store.file_io.exists(trash.record_path(store, name)) for name in names)


def foresee_sweep(plan: MaintenancePlan) -> SweepReport:
    """Return the report that applying a plan would give.

    Args:
        plan: plan that may be applied.
    """
    return SweepReport(
        plan.hash,
        tuple(str(plan.arguments.get("records") or "").split()),
        files_deleted=len(plan.items),
        bytes_freed=sum(item.size for item in plan.items_of(DeleteItem)),
        kept=tuple(item for item in plan.declined if item.reason == "held"),
        declined=tuple(item for item in plan.declined if item.reason != "held"),
        dry_run=True,
    )


def sweep_at_once(store: TableStore, runner: Runner | None = None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Sweep all due deletion records, right after an action in direct mode (`dredge.delete-mode`) wrote its record.

    Records of interrupted actions are swept too.

    Args:
        store: the table.
        runner: with a `TaskRunner`, many files are deleted in parts.

    Returns:
        Fields of the action's report by name, and ledger lines with the result and reason for each file.
    """
    swept, lines = sweep_files(store, plan_sweep(store, runner=runner), runner)
    report_fields = {
        "files_deleted": swept.files_deleted,
        "bytes_freed": swept.bytes_freed,
        "files_missing": swept.files_missing,
        "failed": swept.failed,
        "trash_id": None,
    }
    return report_fields, [*lines, *map(ledger_line_of_held, swept.kept[:_MOST_LINES])]


_Deleted = TypeVar("_Deleted", bound=DeletionReport)


def sweep_if_direct(
    store: TableStore, report: _Deleted, runner: Runner | None = None
) -> tuple[_Deleted, list[dict[str, Any]]]:
    """Sweep all due deletion records at once if the table is in direct mode and the action recorded files.

    Args:
        store: the table.
        report: report of the action.
        runner: a `TaskRunner` distributes the deletion of many files.

    Returns:
        The report with the result of the sweep, and the ledger lines of the sweep.
    """
    if report.trash_id is None or store.options.delete_mode != "direct":
        return report, []
    report_fields, lines = sweep_at_once(store, runner)
    return replace(report, **report_fields), lines


def sweep_files(
    store: TableStore, plan: MaintenancePlan, runner: Runner | None = None
) -> tuple[SweepReport, list[dict[str, Any]]]:
    """Claim the records of a plan, read the references again, delete unneeded files, and drop the records.

    A claim marks a record as being swept. A restore that began before the claim keeps its record; a restore after the
    claim is refused. References are read after all claims. Files that are still needed are kept.

    A record waits for the next sweep if a file could not be deleted, became unneeded only after planning, or is needed
    by another deletion record. All other swept records are dropped, so no record lists their kept files any more.

    Args:
        store: the table.
        plan: plan of a sweep, whose records are claimed.
        runner: with a `TaskRunner`, many files are deleted in parts.

    Returns:
        The report, and ledger lines with the result of each unneeded file ("deleted", "gone already", "failed" or
            "skipped") and the reason. If there are very many files, only the first ones have a line.
    """
    chosen = set(str(plan.arguments.get("records") or "").split())
    all_records = trash.read_trash(store).records
    mine, declined = [], list(plan.declined)
    with under_lock(store, "a sweep of the trash"):  # only the storage or this lock makes claims exclusive
        for record in all_records:
            if record.trash_id in chosen:
                if trash.claim(store, record.trash_id, trash.SWEEP):
                    mine.append(record)
                else:
                    declined.append(Declined(record.trash_id, "stale", "it is being restored"))
    used = _used_by_others(store, mine, all_records, runner)
    planned = {(item.trash_id, item.path) for item in plan.items_of(DeleteItem)}
    deleted = freed = missing = 0
    kept, failed = [], []
    outcomes = _Outcomes()
    for record in mine:
        left = 0  # number of the record's files that a later sweep must delete
        linkless: set[tuple[str, str]] = set()
        free: list[tuple[DeleteItem, str]] = []
        for file in record.files:
            if PurePosixPath(file.path).name in used.holders:
                kept.append(_held(file, used))
                left += PurePosixPath(file.path).name in used.waiting
            elif (record.trash_id, file.path) not in planned:
                left += 1
                outcomes.add("skipped", file, "nothing needs it since the plan was made: the next sweep takes it")
            else:  # a record that names another place ends the sweep
                free.append((file, deletable_path(store, file.path, linkless)))
        with stage(f"deleting files of {store.name}", len(free), "files"):
            for (file, _), outcome in zip(free, _delete_files(store, [path for _, path in free], runner), strict=True):
                advance()
                if isinstance(outcome, OSError):
                    left += 1
                    failed.append(Declined(file.path, "failed", str(outcome), {"size": file.size}))
                    outcomes.add("failed", file, str(outcome))
                    continue
                outcomes.add("deleted" if outcome else "gone already", file, file.reason)
                deleted += outcome
                freed += file.size if outcome else 0
                missing += not outcome
        if store.options.get("snapshot.clean-empty-directories"):
            _delete_empty_folders(store, (file.path for file, _ in free))
        if not left:
            trash.forget(store, record.trash_id)
    for trash_id in trash.find_stray_claims(store):
        trash.forget(store, trash_id)
    report = SweepReport(
        plan_hash=plan.hash,
        records=tuple(record.trash_id for record in mine),
        files_deleted=deleted,
        bytes_freed=freed,
        files_missing=missing,
        kept=tuple(kept),
        declined=tuple(item for item in declined if item.reason != "held"),
        failed=tuple(failed),
    )
    return report, outcomes.lines()


def _delete_empty_folders(store: TableStore, paths: Iterable[str]) -> None:
    """Delete the bucket and partition folders of deleted files that are empty now, the deepest first.

    A writer that creates its first file of the bucket at the same moment fails and tries again, as with Java. A folder
    that cannot be deleted is logged and kept.

    Args:
        store: the table.
        paths: deleted files; paths outside the table's folder are skipped.

    Source: `FileDeletionBase.cleanEmptyDirectories`.
    """
    folders: set[PurePosixPath] = set()
    for parent in {PurePosixPath(path).parent for path in paths if not PurePosixPath(path).is_absolute()}:
        for folder in (parent, *parent.parents):
            if not _DATA_FOLDER.fullmatch(folder.name):
                break
            folders.add(folder)
    for folder in sorted(folders, key=lambda each: -len(each.parts)):
        try:
            store.file_io.delete_empty_dir(PathBelow.of(store.root, f"{store.root}/{folder}"))
        except (OSError, StorageRefused) as error:
            _LOG.warning("table %s: folder %s cannot be deleted: %s", store.name, folder, error)


def _delete_files(store: TableStore, paths: Sequence[str], runner: Runner | None) -> Iterator[Deleted]:
    """Delete files and yield the result of each, in order.

    ``runner``: with a `TaskRunner`, parallel tasks delete many files; None deletes them in this process.

    If a worker dies and its task runs again, files that the first run deleted are reported as missing.
    """
    if not isinstance(runner, TaskRunner) or len(paths) <= DELETED_HERE:
        yield from delete_files(store.file_io, paths)
        return
    size = max(FILES_A_PART, -(-len(paths) // (4 * runner.slots())))
    pairs = [(getattr(path, "root", ""), path) for path in paths]
    parts = [json.dumps(pairs[at : at + size]).encode() for at in range(0, len(pairs), size)]
    work = partial(_delete_part, store.file_io)
    for answer in runner.run_parts(f"deleting files of table {store.name}", work, parts):
        yield from (OSError(outcome) if isinstance(outcome, str) else outcome is True for outcome in parse_json(answer))


def _delete_part(file_io: FileIO, payload: bytes) -> bytes:
    """Delete the files in ``payload`` (JSON list of [root folder or "", path]), in a parallel task.

    Returns a JSON list with the result of each file: true, false if the file was missing, or the error's text.
    """
    outcomes = delete_files(file_io, [PathBelow.of(root, path) if root else path for root, path in parse_json(payload)])
    return json.dumps([str(outcome) if isinstance(outcome, OSError) else outcome for outcome in outcomes]).encode()


class _Outcomes:
    """Ledger lines of a sweep: one per file that was deleted, missing, skipped or not deletable, up to a limit."""

    def __init__(self) -> None:
        self._lines: list[dict[str, Any]] = []
        self._more: Counter[str] = Counter()

    def add(self, event: str, file: DeleteItem, why: str) -> None:
        if len(self._lines) < _MOST_LINES:
            self._lines.append({"event": event, "file": file.path, "reason": why})
        else:
            self._more[event] += 1

    def lines(self) -> list[dict[str, Any]]:
        """Return one line per file up to the limit, then one line per result that counts the remaining files."""
        return [*self._lines, *({"event": event, "more_files": count} for event, count in sorted(self._more.items()))]


WORK: Final = ActionWork(plan_sweep, apply_sweep, SweepReport, (DeleteItem,), fits=sweep_fits, dry_run=foresee_sweep)
