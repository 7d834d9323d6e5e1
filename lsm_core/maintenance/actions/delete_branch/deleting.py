"""The deletion of a branch: what it frees, phase one of the two-phase delete, the report, and how the branch is put back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from lsm_core.clock import utc_text
from lsm_core.errors import CorruptFile, InvalidOption, PlanRefused, PlanStale, RefusalRule
from lsm_core.maintenance.action import Declined, MaintenancePlan, Outcome, PlanEstimate, PlanItem, Report, size_text
from lsm_core.maintenance.actions.trash.sweeping import swept_at_once
from lsm_core.maintenance.deletions import data_items, deletable_path, metadata_item, split_used
from lsm_core.maintenance.trash import (
    DELETED_BRANCH,
    DeleteItem,
    TrashRecord,
    claimed_for,
    forget,
    read_trash,
    write_record,
)
from lsm_core.maintenance.used_files import Lineage, added, branch_lineages, changelog_files, metadata_files
from lsm_core.metadata import branches, changelogs, manifests, snapshots
from lsm_core.metadata.indexes import index_file_path
from lsm_core.metadata.store import TableStore


@dataclass(frozen=True)
class BranchItem(PlanItem):
    """The branch that goes: how many snapshots, tags and files of metadata it has, and its newest snapshot (0: none).

    ``continues``: the deletion record of an attempt that was interrupted, which is finished; "" for none.
    """

    item_kind: ClassVar[str] = "branch"
    title: ClassVar[str] = "would delete"
    columns: ClassVar[tuple[str, ...]] = ("branch", "snapshots", "newest", "tags", "files of metadata")

    branch: str
    snapshots: int
    newest: int
    tags: int
    metadata_files: int
    continues: str = ""

    def cells(self) -> tuple[Any, ...]:
        """Name and counts."""
        return (self.branch, self.snapshots, self.newest or None, self.tags, self.metadata_files)


@dataclass(frozen=True)
class BranchDeletionReport(Report):
    """What the deletion of ``branch`` did: files recorded for deletion (or deleted, direct mode), and how to undo it.

    ``trash_id`` names the deletion record, ``not_before_ms`` (epoch ms) is when a sweep may delete its files. ``files_missing`` and
    ``failed``: see `DeletionReport`.
    """

    left_alone: ClassVar[Mapping[str, str]] = {"declined": "left alone", "failed": "not deleted"}

    plan_hash: str
    branch: str = ""
    files_recorded: int = 0
    bytes_recorded: int = 0
    files_deleted: int = 0
    bytes_freed: int = 0
    files_missing: int = 0
    trash_id: str | None = None
    not_before_ms: int | None = None
    failed: tuple[Declined, ...] = ()
    declined: tuple[Declined, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether a branch was deleted."""
        return bool(self.branch)

    def lines(self, table: str) -> list[str]:
        """What went, where the files are, and how to undo it."""
        if not self.branch:
            return ["no branch was deleted"]
        first = f"branch {self.branch} is deleted"
        if self.trash_id is None:
            return [first, f"{self.files_deleted} files ({size_text(self.bytes_freed)}) deleted at once"]
        size = f"{self.files_recorded} files ({size_text(self.bytes_recorded)})"
        wait = f"{size} that only it needed wait in the trash until {utc_text(self.not_before_ms)} UTC"
        return [first, wait, f"undo with: dredge restore {table} {self.trash_id}"]


def plan_branch_deletion(store: TableStore, branch: str) -> MaintenancePlan:
    """Plan to delete ``branch`` and what only it needs (Java `FileSystemBranchManager.dropBranch`, which leaves the files behind).

    Reads metadata only. Raises TableNotFound for a branch that is not there, InvalidOption for main and the branch that is open,
    InvalidData, CorruptFile when anything that may need its files cannot be read.
    """
    if branch == store.branch:
        raise InvalidOption("branch", branch, "another branch than the one that is open", store.name)
    branches.require_branch(store, branch)
    plan = MaintenancePlan.begun("delete_branch", store, snapshots.latest_id(store), {"branch": branch})
    begun = _begun(store, branch)
    if begun is not None:
        item = BranchItem(branch, 0, 0, 0, len(begun.metadata), begun.trash_id)
        cost = PlanEstimate(bytes_freed=begun.size, files_in=len(begun.files), tasks=1)
        return replace(plan, items=(item, *(replace(file, trash_id="") for file in begun.files)), estimate=cost)
    view = branches.open_branch(store, branch)
    ids, paths = snapshots.list_ids(view), branches.metadata_paths(store, branch)
    tagged = sum("/tag/tag-" in path and path.count("/") == 3 for path in paths)
    item = BranchItem(branch, len(ids), max(ids, default=0), tagged, len(paths))
    candidates = {file.path: file for file in needed_files(view, branch_lineages(view), f"belonged to branch {branch}")}
    free, held = split_used(store, list(candidates.values()), without_branch=branch)
    return replace(
        plan,
        items=(item, *free),
        declined=tuple(_still_needed(held)),
        estimate=PlanEstimate(bytes_freed=sum(file.size for file in free), files_in=len(free), tasks=1),
    )


def _begun(store: TableStore, branch: str) -> TrashRecord | None:
    """The record of a deletion of ``branch`` that was interrupted: what is left of the branch is in it, byte for byte."""
    records = [one for one in read_trash(store).records if one.action == DELETED_BRANCH and one.branch == branch]
    left = {
        path: store.file_io.read_bytes(f"{store.root}/{path}")
        for path in (branches.metadata_paths(store, branch) if records else ())
    }
    for record in reversed(records):
        if left.items() < dict(record.metadata).items() and claimed_for(store, record.trash_id) is None:
            return record
    return None


def needed_files(view: TableStore, lineages: Sequence[Lineage], why: str) -> Iterator[DeleteItem]:
    """All files that lines of history of one branch name, but for those outside the table's directory; ``why`` is their reason to go."""
    for lineage in lineages:
        for position, snapshot in enumerate(lineage.snapshots):
            if lineage.changelog:
                for name, kind, size in changelog_files(view, snapshot):
                    yield metadata_item(view, view.manifest_path(name), kind, size, why)
                yield from data_items(view, changelogs.kept_entries(view, snapshot), "changelog", why)
                continue
            indexes = {entry.file_name: entry for entry in manifests.index_entries(view, snapshot)}
            for name, kind, size in metadata_files(view, snapshot):
                if kind != "index":
                    path = view.statistics_path(name) if kind == "statistics" else view.manifest_path(name)
                elif indexes[name].external_path is None:
                    path = index_file_path(view, indexes[name])
                else:
                    continue
                yield metadata_item(view, path, kind, size, why)
            whole = manifests.live_entries(view, snapshot) if position == 0 else manifests.delta_entries(view, snapshot)
            yield from data_items(view, added(whole), "data", why)
            if snapshot.changelog_manifest_list:
                yield from data_items(view, added(manifests.changelog_entries(view, snapshot)), "changelog", why)


def _still_needed(held: Sequence[Declined]) -> Iterator[Declined]:
    """A line for each holder of data files, not for each of the many files that a branch shares with main."""
    files, sizes = Counter[str](), Counter[str]()
    for item in held:
        files[str(item.facts["holder"])] += 1
        sizes[str(item.facts["holder"])] += int(item.facts["size"] or 0)
    for holder, count in files.items():
        text = f"{count} data files ({size_text(sizes[holder])}) stay: {holder} needs them"
        yield Declined(holder, "held", text, {"files": count, "size": sizes[holder], "holder": holder})


def apply_branch_deletion(store: TableStore, plan: MaintenancePlan) -> Outcome:
    """Phase one: record all of the branch, then delete its metadata, schemas last; in direct mode phase two at once.

    An attempt that was interrupted is finished. Its report is a BranchDeletionReport. Raises PlanStale when the branch was written to since
    the plan was made, or while it is deleted (it is then whole again).
    """
    item = next(iter(plan.items_of(BranchItem)), None)
    if item is None or not branches.metadata_paths(store, item.branch):
        if item is not None:
            branches.remove_folder(store, item.branch)
        return Outcome(BranchDeletionReport(plan.hash, declined=plan.declined))
    record = _begun(store, item.branch) or _recorded(store, plan, item)
    _delete_metadata(store, record)
    report = BranchDeletionReport(
        plan.hash,
        item.branch,
        files_recorded=len(record.files),
        bytes_recorded=record.size,
        trash_id=record.trash_id,
        not_before_ms=record.not_before_ms,
        declined=plan.declined,
    )
    swept: list[dict[str, Any]] = []
    if store.options.delete_mode == "direct":
        told, swept = swept_at_once(store)
        report = replace(report, **told)
    return Outcome(report, [{"event": "deleted branch", "branch": item.branch}, *swept])


def _recorded(store: TableStore, plan: MaintenancePlan, item: BranchItem) -> TrashRecord:
    """Write the record. What became needed since planning (a branch made from this one, say) leaves it."""
    view = branches.open_branch(store, item.branch)
    if item.continues or (snapshots.latest_id(view) or 0) != item.newest:
        raise PlanStale(f"branch {item.branch} was written to since", store.name)
    free, _ = split_used(store, plan.items_of(DeleteItem), without_branch=item.branch)
    paths = branches.metadata_paths(store, item.branch)
    now = store.clock.now_ms()
    record = TrashRecord(
        trash_id=f"delete-branch-{plan.hash[:12]}-{now}",
        action=DELETED_BRANCH,
        table=store.name,
        plan_hash=plan.hash,
        created_ms=now,
        not_before_ms=now
        + (0 if store.options.delete_mode == "direct" else int(store.options.get("dredge.trash-grace"))),
        snapshots={},
        files=tuple(free),
        branch=item.branch,
        metadata={path: store.file_io.read_bytes(f"{store.root}/{path}") for path in paths},
    )
    write_record(store, record)
    return record


def _delete_metadata(store: TableStore, record: TrashRecord) -> None:
    """Until the last schema goes the branch can be opened: a branch without one would keep everybody from deleting anything.

    The newest snapshot goes last of all, so that nobody reads an older one for it.
    """
    for path in sorted(record.metadata, key=_age):
        if "/schema/schema-" in path and set(branches.metadata_paths(store, record.branch)) - set(record.metadata):
            put_back(store, record)
            forget(store, record.trash_id)
            raise PlanStale(
                f"branch {record.branch} was written to while it was deleted; it is there as before", store.name
            )
        store.delete(_own_path(store, record, path))
    branches.remove_folder(store, record.branch)


_NUMBERED: Final = re.compile(r"/(snapshot|schema)/\1-([0-9]+)")


def _age(path: str) -> tuple[int, int, str]:
    """The order in which a branch's files go: hints, tags and what else there is, snapshots by their numbers, schemas."""
    found = _NUMBERED.search(path)
    return (0, 0, path) if found is None else (1 + (found[1] == "schema"), int(found[2]), path)


def _own_path(store: TableStore, record: TrashRecord, path: str) -> str:
    """Where a file of the branch's metadata lies. Raises CorruptFile for one that is not the branch's."""
    if not path.startswith(f"branch/branch-{record.branch}/"):
        raise CorruptFile(path, f"deletion record {record.trash_id} names it, it is not of branch {record.branch}")
    return deletable_path(store, path)


def put_back(store: TableStore, record: TrashRecord) -> None:
    """Write those of the branch's own files that are gone, schemas first, then the newest snapshot: until that is there the branch is empty."""
    for path in sorted(record.metadata, key=_age, reverse=True):
        where = _own_path(store, record, path)
        store.file_io.write_exclusive(where, record.metadata[path])


def require_no_other(store: TableStore, record: TrashRecord, *, begun: bool) -> None:
    """Raise PlanRefused when another branch of the same name is there; ``begun``: a restore that was interrupted has left parts of this one."""
    for path in branches.metadata_paths(store, record.branch):
        if not begun or record.metadata.get(path) != store.file_io.read_bytes(f"{store.root}/{path}"):
            detail = f"another branch '{record.branch}' is there now ({path})"
            raise PlanRefused(RefusalRule.HISTORY_CHANGED, table=store.name, detail=detail)


def branch_deletion_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether the branch of ``plan`` is still there."""
    return any(branches.metadata_paths(store, item.branch) for item in plan.items_of(BranchItem))
