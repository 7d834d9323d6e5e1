"""Deletion of a branch and of the files that only this branch needs, and the restore of a deleted branch."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from lsm_core.clock import utc_text
from lsm_core.errors import CorruptFile, InvalidOption, MetastoreFailed, PlanRefused, PlanStale, RefusalRule
from lsm_core.maintenance.action import (
    ActionWork,
    ApplyOutcome,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    PlanItem,
    size_text,
)
from lsm_core.maintenance.actions.sweep_trash import sweep_at_once
from lsm_core.maintenance.deletions import (
    TrashReport,
    data_items,
    deletable_path,
    may_delete,
    metadata_item,
    split_used,
)
from lsm_core.maintenance.trash import (
    DELETED_BRANCH,
    DeleteItem,
    TrashRecord,
    forget,
    read_claim,
    read_trash,
    write_record,
)
from lsm_core.maintenance.used_files import Lineage, branch_lineages, changelog_files, metadata_files, select_added
from lsm_core.metadata import branches, changelogs, manifests, snapshots
from lsm_core.metadata.indexes import index_file_path
from lsm_core.metadata.store import OutcomeUnknown, SnapshotPublisher, TableStore


@dataclass(frozen=True)
class BranchItem(PlanItem):
    """Branch to delete.

    Attributes:
        branch: name of the branch.
        snapshots: number of the branch's snapshots.
        newest: id of the branch's newest snapshot, 0 for none.
        tags: number of the branch's tags.
        metadata_files: number of the branch's metadata files.
        continues: id of the deletion record in the trash if an interrupted deletion of this branch is continued, else
            "".
        history: name of the newest snapshot's manifest list, "" for none. If it differs when the plan is applied, the
            branch was written to or replaced.
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
    history: str = ""

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan.

        The cells are the branch's name, its number of snapshots, the id of its newest snapshot, and its numbers of tags
        and metadata files.
        """
        return (self.branch, self.snapshots, self.newest or None, self.tags, self.metadata_files)


@dataclass(frozen=True)
class BranchDeletionReport(TrashReport):
    """Report of the deletion of a branch.

    Attributes:
        branch: name of the branch, "" if nothing was done.
    """

    branch: str = ""

    @property
    def changed(self) -> bool:
        """Whether a branch was deleted."""
        return bool(self.branch)

    def lines(self, table: str) -> list[str]:
        """Return lines on the branch, its files, and how to undo the deletion."""
        if not self.branch:
            return ["no branch was deleted"]
        first = f"branch {self.branch} is deleted"
        if self.trash_id is None and not self.files_deleted:
            return [first]
        if self.trash_id is None:
            return [first, f"{self.files_deleted} files ({size_text(self.bytes_freed)}) deleted at once"]
        size = f"{self.files_recorded} files ({size_text(self.bytes_recorded)})"
        wait = f"{size} that only it needed wait in the trash until {utc_text(self.not_before_ms)} UTC"
        return [first, wait, f"undo with: dredge restore {shlex.quote(table)} {self.trash_id}"]


def plan_branch_deletion(store: TableStore, branch: str) -> MaintenancePlan:
    """Plan to delete a branch, and the data and metadata files that only this branch needs. Only metadata is read.

    Java's `FileSystemBranchManager.dropBranch` leaves the branch's data files and manifests behind.

    Args:
        store: the table.
        branch: name of the branch.

    Raises:
        TableNotFound: the branch does not exist.
        InvalidOption: the branch is main, or the branch that ``store`` has opened.
        InvalidData: the name is no valid branch name.
        CorruptFile: metadata that may reference files of the branch cannot be read.
    """
    if branch == store.branch:
        raise InvalidOption("branch", branch, "another branch than the one that is open", store.name)
    for key in ("scan.fallback-branch", "scan.primary-branch"):
        if store.options.get(key) == branch:
            raise InvalidOption("branch", branch, f"a branch that '{key}' does not name; unset it first", store.name)
    branches.require_branch(store, branch)
    plan = MaintenancePlan.begin("delete_branch", store, snapshots.latest_id(store), {"branch": branch})
    interrupted = _find_interrupted(store, branch)
    if interrupted is not None:
        item = BranchItem(branch, 0, 0, 0, len(interrupted.metadata), interrupted.trash_id)
        cost = PlanEstimate(bytes_freed=interrupted.size, files_in=len(interrupted.files), tasks=1)
        return replace(plan, items=(item, *(replace(file, trash_id="") for file in interrupted.files)), estimate=cost)
    view = branches.open_branch(store, branch)
    ids, paths = snapshots.list_ids(view), branches.metadata_paths(store, branch)
    tagged = sum("/tag/tag-" in path and path.count("/") == 3 for path in paths)
    newest, history = max(ids, default=0), branches.newest_manifest_list(view)
    item = BranchItem(branch, len(ids), newest, tagged, len(paths), history=history)
    candidates = {
        file.path: file for file in list_needed_files(view, branch_lineages(view), f"belonged to branch {branch}")
    }
    free, held = split_used(store, list(candidates.values()), without_branch=branch)
    if store.publisher is not None:
        size = sum(file.size for file in free)
        text = (
            f"{len(free)} files ({size_text(size)}) that only it needs stay: the server keeps them; clean orphan files"
        )
        left = (Declined(f"branch {branch}", "server", text, {"files": len(free), "size": size}),) if free else ()
        return replace(plan, items=(item,), declined=left, estimate=PlanEstimate(tasks=1))
    return replace(
        plan,
        items=(item, *free),
        declined=tuple(_still_needed(held)),
        estimate=PlanEstimate(bytes_freed=sum(file.size for file in free), files_in=len(free), tasks=1),
    )


def _find_interrupted(store: TableStore, branch: str) -> TrashRecord | None:
    """Return the trash's record of an interrupted deletion of ``branch``, or None.

    The record must contain every remaining metadata file of the branch with the same bytes, and at least one deleted
    file. A record that a sweep or restore has claimed is not returned.
    """
    records = [
        record for record in read_trash(store).records if record.action == DELETED_BRANCH and record.branch == branch
    ]
    left = {
        path: store.file_io.read_bytes(f"{store.root}/{path}")
        for path in (branches.metadata_paths(store, branch) if records else ())
    }
    for record in reversed(records):
        if left.items() < dict(record.metadata).items() and read_claim(store, record.trash_id) is None:
            return record
    return None


def list_needed_files(view: TableStore, lineages: Sequence[Lineage], why: str) -> Iterator[DeleteItem]:
    """Yield all files that the snapshots of a branch reference, except files under external paths.

    Args:
        view: the branch, opened as a table.
        lineages: lines of consecutive snapshots or changelogs of the branch.
        why: reason of the deletion, as text.
    """
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
                elif may_delete(view, indexes[name].external_path):
                    path = index_file_path(view, indexes[name])
                else:
                    continue
                yield metadata_item(view, path, kind, size, why)
            whole = manifests.live_entries(view, snapshot) if position == 0 else manifests.delta_entries(view, snapshot)
            yield from data_items(view, select_added(whole), "data", why)
            if snapshot.changelog_manifest_list:
                yield from data_items(view, select_added(manifests.changelog_entries(view, snapshot)), "changelog", why)


def _drop_on_server(store: TableStore, publisher: SnapshotPublisher, item: BranchItem) -> None:
    """Let the catalog server delete a branch.

    Raises:
        PlanStale: the branch was written to since planning.
        MetastoreFailed: the server refused, or may still delete the branch.
    """
    if branches.newest_manifest_list(branches.open_branch(store, item.branch)) != item.history:
        raise PlanStale(f"branch {item.branch} was written to since; plan it again", store.name)
    try:
        publisher.drop_branch(item.branch)
    except OutcomeUnknown as error:
        if branches.metadata_paths(store, item.branch):
            reason = f"branch '{item.branch}' may or may not be deleted: {error}"
            raise MetastoreFailed(publisher.address, reason) from error


def _still_needed(held: Sequence[Declined]) -> Iterator[Declined]:
    """Summarise ``held``, the files of the branch that are not deleted, by the snapshot, tag or branch that needs them.

    The files of each such holder are counted in one entry instead of listed, because a branch may share many files with
    main.
    """
    files, sizes = Counter[str](), Counter[str]()
    for item in held:
        files[str(item.facts["holder"])] += 1
        sizes[str(item.facts["holder"])] += int(item.facts["size"] or 0)
    for holder, count in files.items():
        text = f"{count} data files ({size_text(sizes[holder])}) stay: {holder} needs them"
        yield Declined(holder, "held", text, {"files": count, "size": sizes[holder], "holder": holder})


def apply_branch_deletion(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Record the whole branch in the trash, then delete its metadata files, schemas last.

    The data files that only the branch needs are deleted by a sweep of the trash, or at once in direct mode
    (`dredge.delete-mode`). An interrupted deletion is continued.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a BranchDeletionReport.

    Raises:
        PlanStale: the branch was written to, or replaced by a new branch of the same name, after planning. If the
            branch was written to during the deletion, the deleted metadata has been written back.
    """
    item = next(iter(plan.items_of(BranchItem)), None)
    if item is None or not branches.metadata_paths(store, item.branch):
        if item is not None:
            branches.remove_folder(store, item.branch)
        return ApplyOutcome(BranchDeletionReport(plan.hash, declined=plan.declined))
    if store.publisher is not None:
        _drop_on_server(store, store.publisher, item)
        return ApplyOutcome(BranchDeletionReport(plan.hash, declined=plan.declined, branch=item.branch))
    record = _find_interrupted(store, item.branch) or _write_branch_record(store, plan, item)
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
        deletion_fields, swept = sweep_at_once(store)
        report = replace(report, **deletion_fields)
    return ApplyOutcome(report, [{"event": "deleted branch", "branch": item.branch}, *swept])


def _write_branch_record(store: TableStore, plan: MaintenancePlan, item: BranchItem) -> TrashRecord:
    """Record the planned files of the branch in the trash, without files that became needed after planning.

    Such files are needed, for example, by a new branch that was created from the branch to delete. Raises PlanStale if
    the branch was written to, or replaced by a new branch of the same name, after planning.
    """
    view = branches.open_branch(store, item.branch)
    if item.continues or (snapshots.latest_id(view) or 0) != item.newest:
        raise PlanStale(f"branch {item.branch} was written to since", store.name)
    if branches.newest_manifest_list(view) != item.history:
        raise PlanStale(f"branch {item.branch} has another history than the one that was planned", store.name)
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
    """Delete the branch's metadata files: tags and hints first, then snapshots by ascending id, then schemas.

    Until the last schema is deleted, the branch can be opened. A branch without a schema would block all deletions of
    the table. The newest snapshot is deleted after all older ones, so that no reader takes an older snapshot for the
    newest. If the branch is written to meanwhile, the deleted files are written back and PlanStale is raised.
    """
    for path in sorted(record.metadata, key=_age):
        if "/schema/schema-" in path and set(branches.metadata_paths(store, record.branch)) - set(record.metadata):
            write_branch_metadata(store, record)
            forget(store, record.trash_id)
            raise PlanStale(
                f"branch {record.branch} was written to while it was deleted; it is there as before", store.name
            )
        store.delete(_own_path(store, record, path))
    branches.remove_folder(store, record.branch)


_NUMBERED: Final = re.compile(r"/(snapshot|schema)/\1-([0-9]+)")


def _age(path: str) -> tuple[int, int, str]:
    """Return the sort key of a metadata file: tags, hints and other files first, then snapshots and schemas by id."""
    match = _NUMBERED.search(path)
    return (0, 0, path) if match is None else (1 + (match[1] == "schema"), int(match[2]), path)


def _own_path(store: TableStore, record: TrashRecord, path: str) -> str:
    """Return the absolute path of a metadata file that the trash's record of a deleted branch lists.

    Raises:
        CorruptFile: the path is not in the metadata of the record's branch.
    """
    if not path.startswith(f"branch/branch-{record.branch}/"):
        raise CorruptFile(path, f"deletion record {record.trash_id} names it, it is not of branch {record.branch}")
    return deletable_path(store, path)


def write_branch_metadata(store: TableStore, record: TrashRecord) -> None:
    """Write the missing metadata files of a deleted branch: schemas first, then snapshots by descending id.

    Until the newest snapshot is written, the branch is empty for readers.

    Args:
        store: the table.
        record: record of the deleted branch in the trash.
    """
    for path in sorted(record.metadata, key=_age, reverse=True):
        where = _own_path(store, record, path)
        store.file_io.write_exclusive(where, record.metadata[path])


def require_no_other(store: TableStore, record: TrashRecord, *, is_resumed: bool) -> None:
    """Check that no existing branch has the name of a deleted branch that is to be restored.

    Args:
        store: the table.
        record: record of the deleted branch in the trash.
        is_resumed: whether an interrupted restore may have written files of this branch already; these are accepted.

    Raises:
        PlanRefused: a branch of the same name was created after the deletion.
    """
    for path in branches.metadata_paths(store, record.branch):
        if not is_resumed or record.metadata.get(path) != store.file_io.read_bytes(f"{store.root}/{path}"):
            detail = f"another branch '{record.branch}' is there now ({path})"
            raise PlanRefused(RefusalRule.HISTORY_CHANGED, table=store.name, detail=detail)


def branch_deletion_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether the branch of the plan still exists.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    return any(branches.metadata_paths(store, item.branch) for item in plan.items_of(BranchItem))


WORK: Final = ActionWork(
    plan_branch_deletion,
    apply_branch_deletion,
    BranchDeletionReport,
    (BranchItem, DeleteItem),
    fits=branch_deletion_fits,
)
