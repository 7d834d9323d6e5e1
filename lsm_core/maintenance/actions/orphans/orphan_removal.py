"""Removal of orphan files: candidates are listed first and references are read afterwards; in doubt a file is kept."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import PurePosixPath
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array, one_array
from lsm_core.clock import SystemClock, utc_text
from lsm_core.errors import CorruptFile, InvalidOption, PlanRefused, RefusalRule, StorageRefused, UnsupportedFeature
from lsm_core.maintenance.action import (
    ActionWork,
    ApplyOutcome,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    Runner,
    TaskRunner,
    size_text,
)
from lsm_core.maintenance.actions.expire_snapshots import trace_of_expiry
from lsm_core.maintenance.actions.orphans.listing import list_in_parts, list_table
from lsm_core.maintenance.actions.orphans.survey import MOST_NAMED, Survey, survey_in_parts, survey_of
from lsm_core.maintenance.actions.sweep_trash import plan_sweep, sweep_files
from lsm_core.maintenance.deletions import DeletionReport, deletable_path
from lsm_core.maintenance.file_allowlist import KINDS, OwnFiles, is_absolute
from lsm_core.maintenance.file_holders import FileHolders, History, HolderKind, find_holders, history_of
from lsm_core.maintenance.trash import ORPHANS, DeleteItem, TrashRecord, ledger_line_of_held, read_trash, write_record
from lsm_core.metadata import branches, hints, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number
from lsm_core.storage import is_link

FLOOR_MS: Final = 24 * 3_600_000
"""Default smallest age of a candidate: younger files may belong to a running commit (Java's default too)."""
MOST_PERCENT: Final = 20
"""Default largest percentage of a table's files, and of their bytes, that one plan may remove."""
LISTED_HERE: Final = 256
"""Largest number of folders that the planning process lists itself, even if a `TaskRunner` is given."""
FOLDERS_A_PART: Final = 128
"""Smallest number of folders of a distributed task, as each task also reads all references once."""
_MOST_HOLDERS: Final = 100
_MOST_LINES: Final = 10_000
_MOST_GAPS: Final = 100
_GRACE: Final = "dredge.trash-grace"


@dataclass(frozen=True)
class OrphanReport(DeletionReport):
    """Report of a removal of orphan files.

    ``held`` has one entry with counts for each snapshot, tag, changelog or branch that needed files at planning, and
    one entry for each planned file that became needed afterwards.
    """

    left_alone: ClassVar[Mapping[str, str]] = {"held": "in use", "declined": "left alone", "failed": "not deleted"}

    @property
    def changed(self) -> bool:
        """Whether a file was recorded or deleted."""
        return self.files_recorded > 0 and not self.dry_run

    def lines(self, table: str) -> list[str]:
        """Return lines on the number and bytes of the files, and how to undo the removal."""
        if not self.files_recorded:
            return ["no orphan files"]
        size = f"{self.files_recorded} orphan files ({size_text(self.bytes_recorded)})"
        if self.dry_run:
            return [f"would remove {size}"]
        if self.trash_id is None:
            missing = f", {self.files_missing} were gone already" if self.files_missing else ""
            return [f"{self.files_deleted} orphan files ({size_text(self.bytes_freed)}) deleted at once{missing}"]
        wait = f"{size} wait in the trash until {utc_text(self.not_before_ms)} UTC"
        return [wait, f"undo with: dredge restore {shlex.quote(table)} {self.trash_id}"]


# -- planning ----------------------------------------------------------------------------------------------------------


def plan_orphans(
    store: TableStore,
    older_than_ms: int | None = None,
    max_share: int | None = None,
    now_ms: int | None = None,
    runner: Runner | None = None,
) -> MaintenancePlan:
    """Plan to remove unreferenced files of the table (Java `OrphanFilesClean`).

    By default a file must be 24 hours old by the table's clock and by the clock of the storage. If necessary, a file is
    written and deleted again to read the storage's clock. Files with unknown names are kept and listed in ``declined``.
    ``declined`` also has counts and examples of referenced files for each snapshot, tag or branch that needs them.

    Args:
        store: the table.
        older_than_ms: only files last changed before this time are removed (epoch ms), None for 24 hours ago.
        max_share: largest percentage of the table's files, and of their bytes, to remove, None for 20.
        now_ms: time of planning (epoch ms), None for the table's clock.
        runner: a `TaskRunner` distributes the listing of a large table and the search for references; the plan is the
            same.

    Raises:
        InvalidOption: an argument is invalid, for example a time in the future.
        UnsupportedFeature: ``store`` is a branch, or a manifest has unknown fields.
        CorruptFile: metadata that might reference files cannot be read.
        PlanRefused: there is no snapshot, tag or changelog, the listing is incomplete, a deletion record in the trash
            cannot be read, or more than ``max_share`` would be removed. Also if the oldest or newest snapshot changed,
            or a tag or branch was created, during planning.
    """
    if store.branch != branches.MAIN:
        raise UnsupportedFeature(
            f"removing orphan files of branch {store.branch}; main removes those of all", store.name
        )
    now = store.clock.now_ms() if now_ms is None else now_ms
    limit = _limit(store, older_than_ms, now)
    percent = MOST_PERCENT if max_share is None else max_share
    if not 0 < percent <= 100:
        raise InvalidOption("max_share", max_share, "percent: 1 to 100", store.name)
    before = history_of(store)
    survey, held = _survey_all(store, limit, now, runner)
    orphans = survey.orphans.sort_by([("folder", "ascending"), ("name", "ascending")])
    plan = MaintenancePlan.begin(
        ORPHANS, store, snapshots.latest_id(store), {"older_than_ms": older_than_ms, "max_share": max_share}, now
    )
    notes = [*_in_use(survey), *_decline_unknown(survey)]
    young, young_size = survey.young_files, survey.young_size
    if len(orphans):
        _require_sound(store, before, survey, held)
        if older_than_ms is None:
            orphans, uncertain = _old_enough(store, survey.newest_ms, orphans)
            young += len(uncertain)
            young_size += pc.sum(uncertain.column("size")).as_py() or 0
    links, items = _split_links(orphans, store)
    _require_share(store, survey, items, percent)
    return replace(
        plan,
        items=tuple(items),
        declined=(*_describe_young(young, young_size, older_than_ms), *notes, *links),
        estimate=PlanEstimate(
            bytes_freed=sum(item.size for item in items), files_in=len(items), tasks=1 if items else 0
        ),
    )


def _limit(store: TableStore, older_than_ms: int | None, now: int) -> int:
    if older_than_ms is None:
        return now - FLOOR_MS
    older_than_ms = whole_number(older_than_ms, "older_than_ms", store.name)
    if older_than_ms > max(now, SystemClock().now_ms()):
        accepted = f"a time that has passed (it is {utc_text(now)} UTC now)"
        raise InvalidOption("older_than", f"{utc_text(older_than_ms)} UTC", accepted, store.name)
    return older_than_ms


def _survey_all(store: TableStore, limit: int, now: int, runner: Runner | None) -> tuple[Survey, FileHolders]:
    """Return the survey (counts, unreferenced files) of all files, and the references to files read after the listing.

    Files that were last changed before ``limit`` (epoch ms) are old enough to be removed; ``now`` is the time of
    planning (epoch ms).

    ``runner``: with a `TaskRunner`, parallel tasks list many folders; None lists all folders in this process.
    """
    known = OwnFiles.of(store)
    if not isinstance(runner, TaskRunner) or not known.has_parts:
        return survey_of(store, list_table(store), limit, now)
    listing, folders = list_in_parts(store, known)
    if len(folders) <= LISTED_HERE:
        return survey_of(store, list_table(store), limit, now)
    survey, _ = survey_of(store, listing, limit, now)
    parts = min(runner.slots(), -(-len(folders) // FOLDERS_A_PART))
    for part in survey_in_parts(store, known, folders, limit, now, runner, parts):
        survey = survey.plus(part)
    # Read the references once more for the few orphans: the parts read them at different times.
    held = find_holders(store, one_array(survey.orphans.column("name")), read_trash(store).records)
    codes = held.codes[numpy_array(pc.index_in(survey.orphans.column("name"), value_set=held.names))]
    return replace(survey, orphans=survey.orphans.filter(arrow_array(codes < 0))), held


def _require_sound(store: TableStore, before: Mapping[str, History], survey: Survey, held: FileHolders) -> None:
    """Raise PlanRefused if the listing is incomplete, or if the table's history changed during planning.

    ``before`` is the history of each branch before the listing.
    """
    if not held.snapshots:
        raise _refusal(
            store, RefusalRule.NOTHING_IN_USE, "there is no snapshot, tag or changelog that could name a file"
        )
    after = history_of(store)
    for branch, history_before in before.items():
        at = store if branch == branches.MAIN else branches.open_branch(store, branch) if branch in after else None
        if at is None:
            if store.file_io.exists(f"{store.root}/branch/branch-{branch}"):
                raise _refusal(
                    store, RefusalRule.LISTING_INCOMPLETE, f"branch {branch} is there and was not listed again"
                )
            continue
        now = after[branch]
        of = "" if branch == branches.MAIN else f" of branch {branch}"
        ends = [history.snapshots[:1] + history.snapshots[-1:] for history in (history_before, now)]
        if ends[0] != ends[1]:
            seen = " and then ".join("none" if not end else f"{end[0]} to {end[-1]}" for end in ends)
            raise _refusal(store, RefusalRule.SNAPSHOTS_MOVED, f"there were snapshots {seen}{of}; plan again")
        _require_whole_history(at, history_before, now, of)
    if set(after) - set(before):
        raise _refusal(
            store, RefusalRule.SNAPSHOTS_MOVED, f"branch {min(set(after) - set(before))} was made; plan again"
        )
    if not survey.lists.issuperset(held.in_use):
        raise _refusal(store, RefusalRule.LISTING_INCOMPLETE, "the newest snapshot's manifest lists were not listed")
    for partition, bucket, count in held.filled_buckets():
        if survey.filled.isdisjoint(store.bucket_dirs(partition, bucket)):
            detail = f"{store.bucket_dir(partition, bucket)} has {count} live files, of which none was listed"
            raise _refusal(store, RefusalRule.LISTING_INCOMPLETE, detail)


def _require_whole_history(store: TableStore, was: History, now: History, of: str) -> None:
    """Raise PlanRefused if the second listing of the snapshots, tags and changelogs misses an existing file.

    A file of the first listing that still exists must be listed again. A snapshot must be listed if it exists and a
    hint file names it, or if its id is in a gap of the listed ids or directly above them. PlanRefused is raised too if
    a tag was created between the listings. ``was`` and ``now`` are the two listings; ``of`` names the branch in errors.
    """
    root = store.metadata_root
    lost = [f"{root}/snapshot/snapshot-{number}" for number in sorted({*was.snapshots} - {*now.snapshots})]
    lost += [f"{root}/tag/tag-{name}" for name in sorted({*was.tags} - {*now.tags})]
    lost += [f"{root}/changelog/changelog-{number}" for number in sorted({*was.changelogs} - {*now.changelogs})]
    for path in lost:
        if store.file_io.exists(path):
            raise _refusal(store, RefusalRule.LISTING_INCOMPLETE, f"{path} is there and was not listed again")
    if set(now.tags) - set(was.tags):
        raise _refusal(
            store, RefusalRule.SNAPSHOTS_MOVED, f"tag {min(set(now.tags) - set(was.tags))}{of} was made; plan again"
        )
    ids = now.snapshots
    suspects = [hints.read_hint(store.file_io, store.snapshot_dir, name) for name in (hints.LATEST, hints.EARLIEST)]
    suspects += [ids[-1] + 1] if ids else [1]
    for left, right in pairwise(ids):
        suspects += range(left + 1, min(right, left + 1 + _MOST_GAPS))
    for number in dict.fromkeys(suspects):
        if number is not None and number not in ids and snapshots.exists(store, number):
            raise _refusal(store, RefusalRule.LISTING_INCOMPLETE, f"snapshot {number}{of} is there and was not listed")


def _old_enough(store: TableStore, newest: int, orphans: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split orphans into files that are 24 hours old by the storage's clock too, and younger files.

    The local clock may be days ahead of the storage's clock. ``newest`` is the newest change time of a listed file
    (epoch ms), so the storage's clock shows at least this time. If an orphan is younger than 24 hours by that time, the
    storage's clock is read.
    """
    last = pc.max(orphans.column("mtime_ms")).as_py()
    if last >= newest - FLOOR_MS:
        newest = max(newest, _storage_time(store) or newest)
    old = pc.less(orphans.column("mtime_ms"), arrow_scalar(newest - FLOOR_MS, pa.int64()))
    return orphans.filter(old), orphans.filter(pc.invert(old))


def _storage_time(store: TableStore) -> int | None:
    """Return the storage's time (epoch ms), read from a file written for this purpose; None if writing fails."""
    folder, name = f"{store.root}/dredge", f".clock.{uuid.uuid4()}.tmp"
    try:
        store.file_io.mkdirs(folder)
        with store.file_io.open_output(f"{folder}/{name}") as out:
            out.write(b"0")
        return next((status.mtime_ms for status in store.file_io.list_dir(folder) if status.name == name), None)
    except StorageRefused:
        return None
    finally:
        with suppress(OSError, CorruptFile):
            store.delete(f"{folder}/{name}")


def _split_links(orphans: pa.Table, store: TableStore) -> tuple[list[Declined], list[DeleteItem]]:
    """Split orphans into declined entries and items to delete.

    Symbolic links, and files below a linked folder, are kept and declined, because the linked file may be anywhere. At
    most 50 of them are listed.
    """
    links: list[Declined] = []
    items: list[DeleteItem] = []
    behind: dict[str, str | None] = {}
    for row in orphans.to_pylist():  # one object per file of the plan
        folder, name = row["folder"], row["name"]
        if folder not in behind:
            behind[folder] = _leads_away(store, folder)
        path = f"{folder}/{name}"
        relative = path.removeprefix(f"{store.root}/")
        why = behind[folder] or ("a symbolic link" if is_link(path) else None)
        if why:
            links.append(Declined(relative, "link", why))
            continue
        reason = f"nothing names it; last changed {utc_text(row['mtime_ms'])} UTC"
        items.append(DeleteItem(relative, KINDS[row["kind"]].value, row["size"], reason))
    return links[:MOST_NAMED], sorted(items, key=lambda item: item.path)


def _leads_away(store: TableStore, folder: str) -> str | None:
    try:
        deletable_path(store, f"{folder}/file".removeprefix(f"{store.root}/"))
    except CorruptFile as error:
        return str(error)
    return None


def _require_share(store: TableStore, survey: Survey, items: Sequence[DeleteItem], percent: int) -> None:
    total = max(survey.size, 1)
    size = sum(item.size for item in items)
    share, unit = max((len(items) / max(survey.files, 1), "files"), (size / total, "bytes"))
    if share * 100 > percent:
        detail = (
            f"{len(items)} of {survey.files} files and {size_text(size)} of {size_text(total)}, "
            f"more than {percent} % of the {unit}; max_share (--max-share) allows more"
        )
        raise PlanRefused(RefusalRule.SHARE_LIMIT, share, store.name, detail)


# -- kept files --------------------------------------------------------------------------------------------------------


def _in_use(survey: Survey) -> Iterator[Declined]:
    """Yield declined entries with the count, bytes and examples of the files that a snapshot, tag or branch needs.

    If very many snapshots need files, the entries are grouped by kind.
    """
    named = [(holder.name, holder.kind, [files]) for holder, files in survey.held.items()]
    if len(named) > _MOST_HOLDERS:
        groups = {kind: [files for _, of, (files,) in named if of is kind] for kind in HolderKind}
        named = [(f"{len(group)} of kind {kind}", kind, group) for kind, group in groups.items() if group]
    for name, kind, group in named:
        count, size = sum(files.files for files in group), sum(files.size for files in group)
        examples = ", ".join(group[0].examples)
        text = f"{count} files ({size_text(size)}) are held by {name}, such as {examples}"
        yield Declined(name, "held", text, {"holder": kind.value, "files": count, "size": size, "examples": examples})


def _decline_unknown(survey: Survey) -> Iterator[Declined]:
    """Yield declined entries of files with unknown names, and of external paths that other tables use.

    Only the first files are named; the remaining ones are counted.
    """
    for path, size in survey.unknown:
        yield Declined(path, "unknown", "a file of an unknown name", {"size": size})
    for path, why in sorted(survey.strange.items())[:MOST_NAMED]:
        yield Declined(path, "unknown", why)
    more = survey.unknown_files - len(survey.unknown) + max(len(survey.strange) - MOST_NAMED, 0)
    if more:
        yield Declined(f"{more} more", "unknown", "files and directories of unknown names", {"files": more})
    for place, tables in survey.shared.items():
        yield Declined(place, "shared", f"not looked at: {tables} may keep files there too")


def _describe_young(files: int, size: int, older_than_ms: int | None) -> Iterator[Declined]:
    if files:
        than = "24 hours" if older_than_ms is None else f"{utc_text(older_than_ms)} UTC"
        text = f"{files} files ({size_text(size)}) are younger than {than}"
        yield Declined("young files", "young", text, {"files": files, "size": size})


def _refusal(store: TableStore, rule: RefusalRule, detail: str) -> PlanRefused:
    return PlanRefused(rule, table=store.name, detail=detail)


# -- applying ----------------------------------------------------------------------------------------------------------


def apply_orphans(store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> ApplyOutcome:
    """Record in the trash the planned files that are still unreferenced.

    In direct mode (`dredge.delete-mode`) the files are deleted at once. Files that became referenced after planning are
    left out of the record. If the plan has a record already, no second record is written.

    Args:
        store: the table.
        plan: plan to apply.
        runner: a `TaskRunner` distributes the deletion of very many files.

    Returns:
        ApplyOutcome with an OrphanReport.
    """
    items = plan.items_of(DeleteItem)
    blank = replace(foresee_orphans(plan), dry_run=False, files_recorded=0, bytes_recorded=0)
    records = read_trash(store).records
    record = next((record for record in records if record.plan_hash == plan.hash), None)
    direct = store.options.delete_mode == "direct"
    held = list(blank.held)
    if record is None:
        free = _select_existing(store, items)  # files swept since are no orphans any more
        if not direct:  # in direct mode the sweep reads the references at once
            names = [PurePosixPath(item.path).name for item in free]
            holders = find_holders(store, arrow_array(names, pa.string()), records).by_name()
            for item, name in zip(free, names, strict=True):
                if name in holders:
                    facts = {"holder": holders[name].kind.value}
                    held.append(Declined(item.path, "held", f"held by {holders[name].name}", facts))
            free = tuple(item for item, name in zip(free, names, strict=True) if name not in holders)
        record = _write_record(store, plan, free, 0 if direct else int(store.options.get(_GRACE))) if free else None
    elif not direct:
        record = None  # recorded and reported by an earlier call
    if record is None:
        return ApplyOutcome(replace(blank, held=tuple(held)))
    report = replace(
        blank,
        files_recorded=len(record.files),
        bytes_recorded=record.size,
        trash_id=record.trash_id,
        not_before_ms=record.not_before_ms,
        held=tuple(held),
    )
    if direct:
        swept, lines = sweep_files(store, plan_sweep(store, runner=runner), runner)
        report = replace(
            report,
            files_deleted=swept.files_deleted,
            bytes_freed=swept.bytes_freed,
            files_missing=swept.files_missing,
            trash_id=record.trash_id if swept.failed else None,
            held=(*held, *swept.kept),
            failed=swept.failed,
        )
    else:
        lines = [{"event": "orphan", "file": item.path, "reason": item.reason} for item in record.files[:_MOST_LINES]]
    return ApplyOutcome(report, [*lines, *map(ledger_line_of_held, report.held[:_MOST_LINES])])


def _select_existing(store: TableStore, items: Sequence[DeleteItem]) -> tuple[DeleteItem, ...]:
    """Return the items whose files exist; each directory is listed once, instead of one request per file."""
    existing: list[DeleteItem] = []
    for folder, group in groupby(sorted(items, key=_folder_of), key=_folder_of):
        path = folder if is_absolute(folder) else f"{store.root}/{folder}"
        names = {status.name for status in store.file_io.list_dir(path)}
        existing += [item for item in group if PurePosixPath(item.path).name in names]
    return tuple(existing)


def _folder_of(item: DeleteItem) -> str:
    return item.path.rpartition("/")[0]


def _write_record(store: TableStore, plan: MaintenancePlan, files: Sequence[DeleteItem], grace_ms: int) -> TrashRecord:
    now = store.clock.now_ms()
    record = TrashRecord(
        trash_id=f"orphans-{plan.hash[:12]}-{now}",
        action=ORPHANS,
        table=store.name,
        plan_hash=plan.hash,
        created_ms=now,
        not_before_ms=now + grace_ms,
        snapshots={},
        files=tuple(files),
    )
    write_record(store, record)
    return record


def orphans_fit(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether at least one file of the plan still exists.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    return any(store.file_io.exists(deletable_path(store, item.path)) for item in plan.items_of(DeleteItem))


def foresee_orphans(plan: MaintenancePlan) -> OrphanReport:
    """Return the report that applying a plan would give.

    Args:
        plan: plan that may be applied.
    """
    items = plan.items_of(DeleteItem)
    return OrphanReport(
        plan.hash,
        plan.base_snapshot,
        files_recorded=len(items),
        bytes_recorded=sum(item.size for item in items),
        held=tuple(item for item in plan.declined if item.reason == "held"),
        declined=tuple(item for item in plan.declined if item.reason != "held"),
        dry_run=True,
    )


WORK: Final = ActionWork(
    plan_orphans,
    apply_orphans,
    OrphanReport,
    (DeleteItem,),
    fits=orphans_fit,
    trace=trace_of_expiry,
    dry_run=foresee_orphans,
)
