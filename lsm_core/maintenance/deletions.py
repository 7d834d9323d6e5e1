"""Shared parts of deleting actions: plan items for files, their paths, the check for further use, and reports."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.clock import utc_text
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.format.manifest import DELETE
from lsm_core.format.snapshot import Snapshot
from lsm_core.iceberg.state import catalog_folder, warehouse_of
from lsm_core.locks import held, lock_settings, table_lock
from lsm_core.maintenance.action import Declined, MaintenancePlan, Report, Runner
from lsm_core.maintenance.file_allowlist import EXTERNAL, is_absolute
from lsm_core.maintenance.trash import DeleteItem
from lsm_core.maintenance.used_files import find_used, metadata_files, names_of, read_lineages
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import index_file_path
from lsm_core.metadata.store import TableStore
from lsm_core.options import ALLOWED_PLACES, EXTERNAL_ROOTS, TableOptions
from lsm_core.storage import inside_really

_PATHS: Final = {"statistics": TableStore.statistics_path}


@dataclass(frozen=True)
class TrashReport(Report):
    """Report of an action that records files for deletion or, in direct mode, deletes the files at once.

    Attributes:
        plan_hash: hash of the plan.
        files_recorded: number of files in the new deletion record of the trash.
        bytes_recorded: bytes of the recorded files.
        files_deleted: number of files deleted at once (direct mode).
        bytes_freed: bytes of the deleted files.
        files_missing: number of files that were already missing (direct mode).
        trash_id: id of the deletion record, None if nothing was recorded or the files were deleted at once.
        not_before_ms: time from which a sweep may delete the recorded files (epoch ms), None without such files.
        failed: files that could not be deleted, with the reason; the next sweep tries again (direct mode).
        declined: files, snapshots and other subjects of the plan that were left unchanged, with the reason.
    """

    left_alone: ClassVar[Mapping[str, str]] = {"declined": "left alone", "failed": "not deleted"}

    plan_hash: str
    files_recorded: int = field(default=0, kw_only=True)
    bytes_recorded: int = field(default=0, kw_only=True)
    files_deleted: int = field(default=0, kw_only=True)
    bytes_freed: int = field(default=0, kw_only=True)
    files_missing: int = field(default=0, kw_only=True)
    trash_id: str | None = field(default=None, kw_only=True)
    not_before_ms: int | None = field(default=None, kw_only=True)
    failed: tuple[Declined, ...] = field(default=(), kw_only=True)
    declined: tuple[Declined, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class DeletionReport(TrashReport):
    """Report of a deletion: files recorded for deletion, or deleted in direct mode.

    Attributes:
        base_snapshot: newest snapshot at planning.
        held: files that are kept because a retained snapshot, tag, branch or plan needs them, with the reason.
        dry_run: whether nothing was changed.
    """

    left_alone: ClassVar[Mapping[str, str]] = {"held": "held", "declined": "left alone", "failed": "not deleted"}

    base_snapshot: int | None
    held: tuple[Declined, ...] = ()
    dry_run: bool = False

    def file_lines(self, table: str) -> list[str]:
        """Return lines that say where the files are and how to undo the deletion.

        Args:
            table: name of the table.
        """
        if self.trash_id is None:
            size = f"{self.files_deleted} files ({self.bytes_freed:,} bytes)"
            missing = f", {self.files_missing} were gone already" if self.files_missing else ""
            return [f"{size} deleted at once{missing} (dredge.delete-mode=direct)"]
        size = f"{self.files_recorded} files ({self.bytes_recorded:,} bytes)"
        wait = f"{size} wait in the trash until {utc_text(self.not_before_ms)} UTC"
        return [wait, f"undo with: dredge restore {shlex.quote(table)} {self.trash_id}"]


def describe_freed_space(plan: MaintenancePlan) -> list[str]:
    """Return lines for people on the number and bytes of the files that a plan frees, and on when they are deleted.

    Args:
        plan: plan that deletes files.
    """
    files = plan.items_of(DeleteItem)
    if not files:
        return ["frees no file"]
    size = f"frees {len(files)} files ({sum(item.size for item in files):,} bytes)"
    grace = grace_ms(TableOptions(plan.options, plan.table, stored=True))
    if not grace:
        return [f"{size} at once (dredge.delete-mode=direct)"]
    return [f"{size}: applied now, a sweep deletes them from {utc_text(plan.created_ms + grace)} UTC on"]


def grace_ms(options: TableOptions) -> int:
    """Return how long (ms) deleted files wait in the trash; 0 in direct mode (`dredge.delete-mode`).

    Args:
        options: options of the table.
    """
    return 0 if options.delete_mode == "direct" else options.trash_grace_expiry


def files_left_text(store: TableStore, error: CorruptFile) -> str:
    """Return the text for people that no file is freed, because damaged metadata does not show the unused files.

    Args:
        store: the table.
        error: error of reading the metadata.
    """
    return (
        f"its files stay on disk until `dredge orphans {shlex.quote(store.name)}` removes them, which works once this "
        f"deletion is swept from the trash: {error.finding}"
    )


@contextmanager
def under_lock(store: TableStore, activity: str) -> Iterator[None]:
    """Hold the table's lock, if it has one (`dredge.lock`), so that no other process changes the history meanwhile.

    Commits take the lock too, so no commit can happen while the context is open.

    Args:
        store: the table.
        activity: name of the work, for the lock file and errors.

    Raises:
        LockTimeout: another process holds the lock; the message names that process.
    """
    lock = table_lock(store.file_io, store.root, store.name, store.options, store.clock, activity)
    if lock is None:
        yield
        return
    with held(lock, lock_settings(store.options)):
        yield


def require_main(store: TableStore, activity: str) -> None:
    """Raise an error if ``store`` is a branch, for work that concerns a table with all of its branches.

    Args:
        store: the table or branch.
        activity: name of the work, for the error.

    Raises:
        UnsupportedFeature: ``store`` is a branch.
    """
    if store.branch != "main":
        raise UnsupportedFeature(f"{activity} of branch {store.branch}", store.name)


def split_used(
    store: TableStore,
    candidates: Sequence[DeleteItem],
    *,
    without: AbstractSet[int] = frozenset(),
    without_changelogs: AbstractSet[int] = frozenset(),
    without_branch: str | None = None,
    without_tags: AbstractSet[str] = frozenset(),
    dropped: AbstractSet[int] = frozenset(),
    unreadable: AbstractSet[int] = frozenset(),
    runner: Runner | None = None,
) -> tuple[list[DeleteItem], list[Declined]]:
    """Split files to delete into unused files, and data or changelog files that a snapshot, tag or branch still needs.

    Metadata files (manifest lists, manifests, index files, statistics) that are still in use are left out of both
    results, because most of them are shared with newer snapshots.

    Args:
        store: the table.
        candidates: files to delete.
        without: ids of the snapshots that are removed.
        without_changelogs: ids of the changelogs that are removed.
        without_branch: name of the branch that is removed.
        without_tags: names of the tags that are removed.
        dropped: ids of the snapshots that are removed and leave no changelog.
        unreadable: ids of damaged snapshots that are not read, because the retained snapshots before and after them
            reference the same files.
        runner: `TaskRunner` that reads very many snapshots in parallel; None for this process.

    Returns:
        The unused files, and each data or changelog file in use with the snapshot, tag or branch that needs the file.

    Raises:
        CorruptFile: a retained snapshot, tag or changelog cannot be read.
    """
    lineages = read_lineages(
        store,
        without=without,
        without_changelogs=without_changelogs,
        without_branch=without_branch,
        without_tags=without_tags,
        dropped=dropped | unreadable,
    )
    names = {PurePosixPath(item.path).name for item in candidates}
    found_holders = find_used(store, lineages, names, runner)
    for number in sorted(unreadable):
        successor_removals = manifests.delta_entries(store, snapshots.read(store, number + 1))
        successor_removals = successor_removals.filter(pc.equal(successor_removals.column("kind"), DELETE))
        found_holders.add(names_of(successor_removals).to_pylist(), f"snapshot {number}, which cannot be read", names)
    used = found_holders.holders
    free = [item for item in candidates if PurePosixPath(item.path).name not in used]
    held = [
        Declined(item.path, "held", f"held by {used[name]}", {"size": item.size, "holder": used[name]})
        for item in candidates
        if (name := PurePosixPath(item.path).name) in used and item.kind in {"data", "changelog"}
    ]
    return free, held


def metadata_item(store: TableStore, path: str, kind: str, size: int, reason: str) -> DeleteItem:
    """Return the plan item that deletes a metadata file, for example a manifest.

    Args:
        store: the table.
        path: absolute path of the file.
        kind: kind of the file, see `DeleteItem.kind`.
        size: size of the file in bytes, 0 if unknown.
        reason: reason of the deletion.

    Raises:
        CorruptFile: the path is outside the table.
    """
    return DeleteItem(_relative(store, path), kind, size, reason)


def metadata_items(store: TableStore, snapshot: Snapshot, reason: str) -> Iterator[DeleteItem]:
    """Yield delete items of a snapshot's lists, manifests, statistics, and index files inside the table.

    Args:
        store: the table.
        snapshot: the snapshot.
        reason: reason of the deletion.

    Raises:
        CorruptFile: metadata cannot be read.
    """
    indexes = {entry.file_name: entry for entry in manifests.index_entries(store, snapshot)}
    for name, kind, size in metadata_files(store, snapshot):
        if kind != "index":
            path = _PATHS.get(kind, TableStore.manifest_path)(store, name)
        elif may_delete(store, indexes[name].external_path):
            path = index_file_path(store, indexes[name])
        else:
            continue
        yield metadata_item(store, path, kind, size, reason)


def may_delete(store: TableStore, external_path: str | None) -> bool:
    """Return whether a file of the table may be deleted: inside the table's folder, or where the operator allows it.

    Args:
        store: the table.
        external_path: external path of the file, or None for a file in the table's folder.
    """
    return external_path is None or store.external_paths.may_delete(external_path)


def data_items(store: TableStore, entries: pa.Table, kind: str, reason: str) -> Iterator[DeleteItem]:
    """Yield delete items of data files and their extra files, without external files that may not be deleted.

    Args:
        store: the table.
        entries: manifest entries.
        kind: kind of the files.
        reason: reason of the deletion.
    """
    columns = ["partition", "bucket", "file_name", "file_size", "extra_files", "external_path"]
    for row in entries.select(columns).to_pylist():  # one object per file of the plan, not per row of data
        external = row["external_path"]
        if not may_delete(store, external):
            continue
        for name, size in ((row["file_name"], row["file_size"]), *((extra, 0) for extra in row["extra_files"] or ())):
            path = store.data_path(row["partition"], row["bucket"], name, external)
            yield DeleteItem(_relative(store, path), kind, size, reason)


def count_external_files(store: TableStore, tables: Iterable[pa.Table], kind: str) -> list[Declined]:
    """Return a declined entry that counts the files outside the table's folder that a deletion leaves, or no entry.

    Args:
        store: the table.
        tables: manifest entries of the files; read only for tables that may have external files.
        kind: adjective of the files for the text, as in "replaced".
    """
    external = store.external_paths
    if not (external.declared or external.roots):  # reading the entries a second time is for tables that may need it
        return []
    files = size = 0
    folders: set[str] = set()
    for entries in tables:
        outside = entries.filter(pc.is_valid(entries.column("external_path")))
        paths = outside.column("external_path").to_pylist()  # one object per file of the plan
        kept = [not external.may_delete(path) for path in paths]
        outside = outside.filter(pa.array(kept, pa.bool_()))
        files += outside.num_rows
        size += pc.sum(outside.column("file_size")).as_py() or 0
        folders |= {path.rpartition("/")[0] for path, stays in zip(paths, kept, strict=True) if stays}
    if not files:
        return []
    text = (
        f"{files} {kind} files are outside the table's directory, such as in {min(folders)}: they are not deleted, "
        f"because {EXTERNAL_ROOTS} does not allow this folder with ':rw'"
    )
    return [Declined(EXTERNAL, "outside", text, {"files": files, "size": size})]


def _relative(store: TableStore, path: str) -> str:
    """Return the path of a file in plans and deletion records: relative to the table's folder, or absolute outside."""
    root = store.root.rstrip("/") + "/"
    if path.startswith(root):
        return path[len(root) :]
    if store.external_paths.permission(path) is None:
        raise CorruptFile(path, f"it is outside of table {store.name}")
    return path


def item_exists(store: TableStore, item: DeleteItem) -> bool:
    """Return whether the file of an item exists.

    Args:
        store: the table.
        item: the item.
    """
    return store.file_io.exists(item.path if is_absolute(item.path) else f"{store.root}/{item.path}")


def deletable_path(store: TableStore, path: str, linkless: set[tuple[str, str]] | None = None) -> str:
    """Return the absolute path of a file in a plan or deletion record in the trash.

    Args:
        store: the table.
        path: path relative to the table's root, or an absolute path below a declared external path or in the table's
            own folder of an Iceberg Hadoop catalog.
        linkless: cache of folders that were already checked for symbolic links; None for no cache.

    Raises:
        CorruptFile: the path is outside the table and its external paths, possibly through a symbolic link, or in
            another table's folder, or the operator allows no deletion there.
    """
    if not is_absolute(path):
        return inside_really(store.root, f"{store.root}/{path}", linkless)
    warehouse = warehouse_of(store.root)
    if warehouse is not None and path.rpartition("/")[0] == catalog_folder(store.root):
        return inside_really(warehouse, path, linkless)  # the caller checks names with the allow-list
    _require_no_user(store, path, linkless)
    try:
        return store.external_paths.deletable(path, store.file_io)
    except UnsupportedFeature as error:
        reason = f"it is outside of the table's folder: {error.feature} ({ALLOWED_PLACES} allows declared paths too)"
        raise CorruptFile(path, reason) from None


def _require_no_user(store: TableStore, path: str, known: set[tuple[str, str]] | None) -> None:
    """Raise CorruptFile if another table declares the external folder of a file, and no schema of this table does.

    Plans and records are files that others may have forged. ``known`` caches the checked folders; None for no cache.
    """
    folder = path.rpartition("/")[0]
    if store.external_paths.is_declared(folder) or (known is not None and ("", folder) in known):
        return
    from lsm_core.maintenance.actions.orphans.listing import declared_places, tables_using

    users = tables_using(store, folder)
    if users and not any(f"{folder}/".startswith(f"{own}/") for own in declared_places(store.file_io, store.root)):
        reason = f"another table ({users}) declares this external path, and table {store.name} never did"
        raise CorruptFile(path, reason)
    if known is not None:
        known.add(("", folder))
