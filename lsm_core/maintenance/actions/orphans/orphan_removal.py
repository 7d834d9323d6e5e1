"""Removal of orphan files: candidates are listed first, what is in use is computed afterwards, and every doubt keeps a file."""

from __future__ import annotations

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
    Declined,
    MaintenancePlan,
    Outcome,
    PlanEstimate,
    Report,
    Runner,
    TaskRunner,
    size_text,
)
from lsm_core.maintenance.actions.orphans.listing import list_in_parts, list_table
from lsm_core.maintenance.actions.orphans.survey import MOST_NAMED, Survey, survey_in_parts, survey_of
from lsm_core.maintenance.actions.trash.sweeping import plan_sweep, sweep_files
from lsm_core.maintenance.deletions import deletable_path
from lsm_core.maintenance.file_kinds import KINDS
from lsm_core.maintenance.holders import Held, History, HolderKind, find_holders, history_of
from lsm_core.maintenance.own_files import OwnFiles, is_absolute
from lsm_core.maintenance.trash import ORPHANS, DeleteItem, TrashRecord, held_line, read_trash, write_record
from lsm_core.metadata import branches, hints, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number
from lsm_core.storage import is_link

FLOOR_MS: Final = 24 * 3_600_000
"""Younger files may belong to a commit that is still being made (Java's default too)."""
MOST_PERCENT: Final = 20
"""More of a table than this goes only when that is asked for by name."""
LISTED_HERE: Final = 256
"""So many folders at most are listed by the process that plans, whoever runs parts."""
FOLDERS_A_PART: Final = 128
"""Folders that a part lists at least: each part also reads, once, what all snapshots name."""
_MOST_HOLDERS: Final = 100
_MOST_LINES: Final = 10_000
_MOST_GAPS: Final = 100
_GRACE: Final = "dredge.trash-grace"


@dataclass(frozen=True)
class OrphanReport(Report):
    """What a removal of orphan files did: files recorded for deletion, or (direct mode) deleted, already gone and failed.

    ``trash_id`` names the deletion record, ``not_before_ms`` (epoch ms) is when a sweep may delete its files. ``held``: what files are
    kept for, and how many; ``failed``: files that could not be deleted, each with the reason.
    """

    left_alone: ClassVar[Mapping[str, str]] = {"held": "in use", "declined": "left alone", "failed": "not deleted"}

    plan_hash: str
    base_snapshot: int | None
    files_recorded: int = 0
    bytes_recorded: int = 0
    files_deleted: int = 0
    bytes_freed: int = 0
    files_missing: int = 0
    trash_id: str | None = None
    not_before_ms: int | None = None
    held: tuple[Declined, ...] = ()
    declined: tuple[Declined, ...] = ()
    failed: tuple[Declined, ...] = ()
    dry_run: bool = False

    @property
    def changed(self) -> bool:
        """Whether a file was recorded or deleted."""
        return self.files_recorded > 0 and not self.dry_run

    def lines(self, table: str) -> list[str]:
        """How many files, where they are, and how to undo it."""
        if not self.files_recorded:
            return ["no orphan files"]
        size = f"{self.files_recorded} orphan files ({size_text(self.bytes_recorded)})"
        if self.dry_run:
            return [f"would remove {size}"]
        if self.trash_id is None:
            gone = f", {self.files_missing} were gone already" if self.files_missing else ""
            return [f"{self.files_deleted} orphan files ({size_text(self.bytes_freed)}) deleted at once{gone}"]
        wait = f"{size} wait in the trash until {utc_text(self.not_before_ms)} UTC"
        return [wait, f"undo with: dredge restore {table} {self.trash_id}"]


# -- planning ------------------------------------------------------------------------------------------------------------


def plan_orphans(
    store: TableStore,
    older_than_ms: int | None = None,
    max_share: int | None = None,
    now_ms: int | None = None,
    runner: Runner | None = None,
) -> MaintenancePlan:
    """Plan to remove files of the table that nothing names and that were last changed before ``older_than_ms`` (Java `OrphanFilesClean`).

    ``older_than_ms`` and ``now_ms`` are epoch ms; by default a file must be 24 hours old by the table's clock and by the clock of the
    storage, which a file that is written and deleted again tells where it matters. ``max_share``: percent of the table's files, or bytes,
    that may go (20). ``runner``: where it runs parts elsewhere (`TaskRunner`), these list the folders of a large table, and say what of their files nothing
    names; the plan is the same. Everything of an unknown name stays and is in ``declined``, as do counts and examples of what is in use, by holder.
    Raises InvalidOption (also for a time in the future), UnsupportedFeature (branches, manifests with unknown fields), CorruptFile when
    something that might name files cannot be read, and PlanRefused: nothing is in use, a listing lacks what must be there, the oldest or
    newest snapshot changed meanwhile, a deletion record cannot be read, or more than ``max_share`` would go.
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
    found, held = _surveyed(store, limit, now, runner)
    orphans = found.orphans.sort_by([("folder", "ascending"), ("name", "ascending")])
    plan = MaintenancePlan.begun(
        ORPHANS, store, snapshots.latest_id(store), {"older_than_ms": older_than_ms, "max_share": max_share}, now
    )
    notes = [*_in_use(found), *_strange(found)]
    young, young_size = found.young_files, found.young_size
    if len(orphans):
        _require_sound(store, before, found, held)
        if older_than_ms is None:
            orphans, uncertain = _old_enough(store, found.newest_ms, orphans)
            young += len(uncertain)
            young_size += pc.sum(uncertain.column("size")).as_py() or 0
    links, items = _split_links(orphans, store)
    _require_share(store, found, items, percent)
    return replace(
        plan,
        items=tuple(items),
        declined=(*_young(young, young_size, older_than_ms), *notes, *links),
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


def _surveyed(store: TableStore, limit: int, now: int, runner: Runner | None) -> tuple[Survey, Held]:
    """The survey of all files, and what holds those of them that it takes for orphans, found out after everything was listed."""
    known = OwnFiles.of(store)
    if not isinstance(runner, TaskRunner) or not known.has_parts:
        return survey_of(store, list_table(store), limit, now)
    listing, folders = list_in_parts(store, known)
    if len(folders) <= LISTED_HERE:
        return survey_of(store, list_table(store), limit, now)
    found, _ = survey_of(store, listing, limit, now)
    parts = min(runner.slots(), -(-len(folders) // FOLDERS_A_PART))
    for part in survey_in_parts(store, known, folders, limit, now, runner, parts):
        found = found.plus(part)
    # Asked once more, about the few: the parts asked at different times.
    held = find_holders(store, one_array(found.orphans.column("name")), read_trash(store).records)
    codes = held.codes[numpy_array(pc.index_in(found.orphans.column("name"), value_set=held.names))]
    return replace(found, orphans=found.orphans.filter(arrow_array(codes < 0))), held


def _require_sound(store: TableStore, before: Mapping[str, History], found: Survey, held: Held) -> None:
    """Raise PlanRefused where what was listed cannot be all, or where the table moved while it was looked at."""
    if not held.snapshots:
        raise _refused(
            store, RefusalRule.NOTHING_IN_USE, "there is no snapshot, tag or changelog that could name a file"
        )
    after = history_of(store)
    for branch, was in before.items():
        at = store if branch == branches.MAIN else branches.open_branch(store, branch) if branch in after else None
        if at is None:
            if store.file_io.exists(f"{store.root}/branch/branch-{branch}"):
                raise _refused(
                    store, RefusalRule.LISTING_INCOMPLETE, f"branch {branch} is there and was not listed again"
                )
            continue
        now = after[branch]
        of = "" if branch == branches.MAIN else f" of branch {branch}"
        ends = [one.snapshots[:1] + one.snapshots[-1:] for one in (was, now)]
        if ends[0] != ends[1]:
            seen = " and then ".join("none" if not end else f"{end[0]} to {end[-1]}" for end in ends)
            raise _refused(store, RefusalRule.SNAPSHOTS_MOVED, f"there were snapshots {seen}{of}; plan again")
        _require_whole_history(at, was, now, of)
    if set(after) - set(before):
        raise _refused(
            store, RefusalRule.SNAPSHOTS_MOVED, f"branch {min(set(after) - set(before))} was made; plan again"
        )
    if not found.lists.issuperset(held.in_use):
        raise _refused(store, RefusalRule.LISTING_INCOMPLETE, "the newest snapshot's manifest lists were not listed")
    for partition, bucket, count in held.filled_buckets():
        if found.filled.isdisjoint(store.bucket_dirs(partition, bucket)):
            detail = f"{count} live files lie in {store.bucket_dir(partition, bucket)}, of which none was listed"
            raise _refused(store, RefusalRule.LISTING_INCOMPLETE, detail)


def _require_whole_history(store: TableStore, was: History, now: History, of: str) -> None:
    """What was listed once and is there must be listed again; so must what hints and gaps between ids lead to."""
    root = store.metadata_root
    lost = [f"{root}/snapshot/snapshot-{number}" for number in sorted({*was.snapshots} - {*now.snapshots})]
    lost += [f"{root}/tag/tag-{name}" for name in sorted({*was.tags} - {*now.tags})]
    lost += [f"{root}/changelog/changelog-{number}" for number in sorted({*was.changelogs} - {*now.changelogs})]
    for path in lost:
        if store.file_io.exists(path):
            raise _refused(store, RefusalRule.LISTING_INCOMPLETE, f"{path} is there and was not listed again")
    if set(now.tags) - set(was.tags):
        raise _refused(
            store, RefusalRule.SNAPSHOTS_MOVED, f"tag {min(set(now.tags) - set(was.tags))}{of} was made; plan again"
        )
    ids = now.snapshots
    suspects = [hints.read_hint(store.file_io, store.snapshot_dir, name) for name in (hints.LATEST, hints.EARLIEST)]
    suspects += [ids[-1] + 1] if ids else [1]
    for left, right in pairwise(ids):
        suspects += range(left + 1, min(right, left + 1 + _MOST_GAPS))
    for number in dict.fromkeys(suspects):
        if number is not None and number not in ids and snapshots.exists(store, number):
            raise _refused(store, RefusalRule.LISTING_INCOMPLETE, f"snapshot {number}{of} is there and was not listed")


def _old_enough(store: TableStore, newest: int, orphans: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Orphans that are old by the storage's clock too, and those that are not: a cleaner's clock may be days ahead."""
    last = pc.max(orphans.column("mtime_ms")).as_py()
    if last >= newest - FLOOR_MS:
        newest = max(newest, _storage_time(store) or newest)
    old = pc.less(orphans.column("mtime_ms"), arrow_scalar(newest - FLOOR_MS, pa.int64()))
    return orphans.filter(old), orphans.filter(pc.invert(old))


def _storage_time(store: TableStore) -> int | None:
    """What time it is where the files are (epoch ms), by writing one; None where none can be written."""
    folder, name = f"{store.root}/dredge", f".clock.{uuid.uuid4()}.tmp"
    try:
        store.file_io.mkdirs(folder)
        with store.file_io.open_output(f"{folder}/{name}") as out:
            out.write(b"0")
        return next((one.mtime_ms for one in store.file_io.list_dir(folder) if one.name == name), None)
    except StorageRefused:
        return None
    finally:
        with suppress(OSError, CorruptFile):
            store.delete(f"{folder}/{name}")


def _split_links(orphans: pa.Table, store: TableStore) -> tuple[list[Declined], list[DeleteItem]]:
    """Orphans as items of the plan, and what is a link or lies behind one: that may lead anywhere, so it stays."""
    links: list[Declined] = []
    items: list[DeleteItem] = []
    behind: dict[str, str | None] = {}
    for row in orphans.to_pylist():  # one object a file of the plan
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


def _require_share(store: TableStore, found: Survey, items: Sequence[DeleteItem], percent: int) -> None:
    total = max(found.size, 1)
    size = sum(item.size for item in items)
    share, what = max((len(items) / max(found.files, 1), "files"), (size / total, "bytes"))
    if share * 100 > percent:
        detail = (
            f"{len(items)} of {found.files} files and {size_text(size)} of {size_text(total)}, more than {percent} % of the {what}; "
            "max_share (--max-share) allows more"
        )
        raise PlanRefused(RefusalRule.SHARE_LIMIT, share, store.name, detail)


# -- what stays, and why -------------------------------------------------------------------------------------------------


def _in_use(found: Survey) -> Iterator[Declined]:
    """Files that are in use: count, bytes and examples by holder, snapshots of one kind together where there are many."""
    named = [(holder.name, holder.kind, [files]) for holder, files in found.held.items()]
    if len(named) > _MOST_HOLDERS:
        groups = {kind: [files for _, of, (files,) in named if of is kind] for kind in HolderKind}
        named = [(f"{len(group)} of kind {kind}", kind, group) for kind, group in groups.items() if group]
    for name, kind, group in named:
        count, size = sum(one.files for one in group), sum(one.size for one in group)
        examples = ", ".join(group[0].examples)
        text = f"{count} files ({size_text(size)}) are held by {name}, such as {examples}"
        yield Declined(name, "held", text, {"holder": kind.value, "files": count, "size": size, "examples": examples})


def _strange(found: Survey) -> Iterator[Declined]:
    """What is of no known kind, by name as far as there are few, and places that other tables use."""
    for path, size in found.unknown:
        yield Declined(path, "unknown", "a file of an unknown name", {"size": size})
    for path, why in sorted(found.strange.items())[:MOST_NAMED]:
        yield Declined(path, "unknown", why)
    more = found.unknown_files - len(found.unknown) + max(len(found.strange) - MOST_NAMED, 0)
    if more:
        yield Declined(f"{more} more", "unknown", "files and directories of unknown names", {"files": more})
    for place, tables in found.shared.items():
        yield Declined(place, "shared", f"not looked at: {tables} may keep files there too")


def _young(files: int, size: int, older_than_ms: int | None) -> Iterator[Declined]:
    if files:
        than = "24 hours" if older_than_ms is None else f"{utc_text(older_than_ms)} UTC"
        text = f"{files} files ({size_text(size)}) are younger than {than}"
        yield Declined("young files", "young", text, {"files": files, "size": size})


def _refused(store: TableStore, rule: RefusalRule, detail: str) -> PlanRefused:
    return PlanRefused(rule, table=store.name, detail=detail)


# -- applying ------------------------------------------------------------------------------------------------------------


def apply_orphans(store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> Outcome:
    """Phase one of the delete: record the files that still nothing names; in direct mode (`dredge.delete-mode`) phase two at once.

    ``runner`` may delete many files in parts (`TaskRunner`). What became needed since planning leaves the record. A plan that was recorded before is not recorded again. Its report is an OrphanReport.
    """
    items = plan.items_of(DeleteItem)
    blank = replace(foresee_orphans(plan), dry_run=False, files_recorded=0, bytes_recorded=0)
    records = read_trash(store).records
    record = next((one for one in records if one.plan_hash == plan.hash), None)
    direct = store.options.delete_mode == "direct"
    held = list(blank.held)
    if record is None:
        free = _present(store, items)  # what was swept since is no orphan any more
        if not direct:  # there the sweep asks at once
            names = [PurePosixPath(item.path).name for item in free]
            holders = find_holders(store, arrow_array(names, pa.string()), records).by_name()
            for item, name in zip(free, names, strict=True):
                if name in holders:
                    facts = {"holder": holders[name].kind.value}
                    held.append(Declined(item.path, "held", f"held by {holders[name].name}", facts))
            free = tuple(item for item, name in zip(free, names, strict=True) if name not in holders)
        record = _write_record(store, plan, free, 0 if direct else int(store.options.get(_GRACE))) if free else None
    elif not direct:
        record = None  # recorded by an earlier call, which told of it
    if record is None:
        return Outcome(replace(blank, held=tuple(held)))
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
    return Outcome(report, [*lines, *map(held_line, report.held[:_MOST_LINES])])


def _present(store: TableStore, items: Sequence[DeleteItem]) -> tuple[DeleteItem, ...]:
    """Those whose files are there: one listing a directory, not a question a file."""
    found: list[DeleteItem] = []
    for folder, group in groupby(sorted(items, key=_folder_of), key=_folder_of):
        path = folder if is_absolute(folder) else f"{store.root}/{folder}"
        names = {status.name for status in store.file_io.list_dir(path)}
        found += [item for item in group if PurePosixPath(item.path).name in names]
    return tuple(found)


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
    """Whether a file of ``plan`` is still there."""
    return any(store.file_io.exists(deletable_path(store, item.path)) for item in plan.items_of(DeleteItem))


def foresee_orphans(plan: MaintenancePlan) -> OrphanReport:
    """What applying ``plan`` would report."""
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


__all__ = ["FLOOR_MS", "OrphanReport", "apply_orphans", "foresee_orphans", "orphans_fit", "plan_orphans"]
