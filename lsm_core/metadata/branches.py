"""Branches: metadata of their own over shared files. Source class: ``FileSystemBranchManager``."""

from __future__ import annotations

import contextlib
from typing import Final

from lsm_core.errors import InvalidOption, SnapshotNotFound, TableExists, TableNotFound
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import schemas, snapshots, tags
from lsm_core.metadata.store import TableStore
from lsm_core.storage import check_name, inside_really

MAIN: Final = "main"
_PREFIX: Final = "branch-"
# How the name of a table says that a branch of it is meant ("db.orders$branch_dev").
NAME_PREFIX: Final = "branch_"


def branch_name(table: str, branch: str) -> str:
    """How ``table`` (whatever branch its own name says) is called on ``branch``."""
    plain = table.partition(f"${NAME_PREFIX}")[0]
    return plain if branch == MAIN else f"{plain}${NAME_PREFIX}{branch}"


def list_branches(store: TableStore) -> list[str]:
    """Return the names of all branches but main, sorted."""
    return list(change_times(store))


def change_times(store: TableStore) -> dict[str, int]:
    """Return when the directory of each branch but main last changed (epoch ms), by name, sorted.

    Directories without any file, which a deletion that was interrupted leaves behind, are no branches.
    """
    folders = [f for f in store.file_io.list_dir(f"{store.root}/branch") if f.is_dir and f.name.startswith(_PREFIX)]
    times = {f.name[len(_PREFIX) :]: f.mtime_ms for f in sorted(folders, key=lambda folder: folder.name)}
    return {name: time for name, time in times.items() if _holds_files(store, name)}


def _holds_files(store: TableStore, branch: str) -> bool:
    return bool(schemas.list_schema_ids(store.file_io, store.root, branch) or metadata_paths(store, branch))


def open_branch(store: TableStore, branch: str) -> TableStore:
    """Return the same table on a branch (``main`` for the table itself). Raises TableNotFound naming table and branch."""
    name = branch_name(store.name, branch)
    return TableStore.open(store.file_io, store.root, name, store.clock, store.given_options, branch)


def other_stores(store: TableStore, but: str | None = None) -> list[TableStore]:
    """Return the table on every branch (main among them) but that of ``store``, and but ``but``.

    Raises TableNotFound for a branch whose schema is gone: what it needs cannot be told.
    """
    found = []
    for name in [MAIN, *list_branches(store)]:
        if name in (store.branch, but):
            continue
        try:
            found.append(open_branch(store, name))
        except TableNotFound:
            if name == MAIN or metadata_paths(store, name):  # else it was deleted meanwhile
                raise
    return found


def all_stores(store: TableStore) -> list[TableStore]:
    """Return the table on every branch, main first: whoever deletes files must ask each of them. Raises as :func:`other_stores`."""
    others = other_stores(store)
    place = 0 if store.branch == MAIN else 1 + sum(one.branch < store.branch for one in others[1:])
    return [*others[:place], store, *others[place:]]


def branch_dir(store: TableStore, branch: str) -> str:
    """Return the directory of a branch's metadata. Raises InvalidData for a hostile name, InvalidOption for main."""
    if branch == MAIN:
        raise InvalidOption("branch", branch, "a branch besides main", store.name)
    return schemas.metadata_root(store.root, check_name(branch, store.name, "branch name"))


def metadata_paths(store: TableStore, branch: str) -> list[str]:
    """Return the paths of all files below a branch's directory, relative to the table's root, sorted; links are not followed."""
    found: list[str] = []
    folders = [branch_dir(store, branch)]
    while folders:
        for status in store.file_io.list_dir(folders.pop()):
            if status.is_dir:
                folders.append(status.path)
            elif not (
                status.name.startswith(".") and status.name.endswith(".tmp")
            ):  # what a killed writer left is nothing yet
                found.append(status.path.removeprefix(f"{store.root}/"))
    return sorted(found)


def require_branch(store: TableStore, branch: str) -> None:
    """Raise TableNotFound naming the branches that there are when there is no such one; InvalidData, InvalidOption as :func:`branch_dir`."""
    if not metadata_paths(store, branch):
        known = ", ".join(list_branches(store)) or "none"
        plain = branch_name(store.name, MAIN)
        raise TableNotFound(f"table {plain} has no branch '{branch}'; it has: {known}")


def create_branch(
    store: TableStore, branch: str, from_tag: str | None = None, from_snapshot: int | None = None
) -> TableStore:
    """Create a branch of the table (or of the branch that ``store`` is on) and return it: no file but metadata is copied.

    It begins with the rows of a tag or of a snapshot, else empty, with the schemas up to that version's, else all. An attempt that was
    interrupted is finished. Raises TableExists, InvalidOption for a name that Paimon does not take (blank, `main`, digits alone) or for
    tag and snapshot together, InvalidData for a hostile one, SnapshotNotFound also when the tag or snapshot goes meanwhile, CorruptFile.
    """
    _check_new(store, branch)
    if from_tag is not None and from_snapshot is not None:
        raise InvalidOption(
            "from_snapshot", from_snapshot, f"a tag or a snapshot, and not both ({from_tag!r})", store.name
        )
    folder = branch_dir(store, branch)
    wanted, source = _beginning(store, folder, from_tag, from_snapshot)
    present = {f"{store.root}/{path}" for path in metadata_paths(store, branch)}
    begun = present < set(wanted) and all(store.file_io.read_bytes(path) == wanted[path] for path in present)
    if present and not begun:
        raise TableExists(f"table {branch_name(store.name, MAIN)} has a branch '{branch}' already")
    for path, data in wanted.items():  # schemas first: a branch without one lets nobody delete anything
        if not store.file_io.write_exclusive(path, data) and store.file_io.read_bytes(path) != data:
            raise TableExists(f"somebody else is creating branch '{branch}' of table {store.name}")
    if source is not None and not store.file_io.exists(source):
        # Whoever expired it may not have seen the branch; what the branch needs may go.
        for path in reversed(wanted):
            store.delete(path)
        remove_folder(store, branch)
        raise SnapshotNotFound(f"{source} went while branch '{branch}' of table {store.name} was created", expired=True)
    return open_branch(store, branch)


def _check_new(store: TableStore, branch: str) -> None:
    """A '$' is refused beside what Paimon refuses: no table name could say which branch is meant."""
    if not isinstance(branch, str) or not branch.strip() or branch == MAIN or branch.isdecimal() or "$" in branch:
        accepted = "a name that is not blank, not 'main', not digits alone, and without '$'"
        raise InvalidOption("branch", branch, accepted, store.name)


def _beginning(
    store: TableStore, folder: str, from_tag: str | None, from_snapshot: int | None
) -> tuple[dict[str, bytes], str | None]:
    """The files of a new branch by path, in the order in which they are written, and the file that keeps what they need."""
    snapshot: Snapshot | None = None
    source: str | None = None
    files: dict[str, bytes] = {}
    if from_tag is not None:
        snapshot, source = tags.read_tag(store, from_tag), tags.tag_path(store, from_tag)
        files[f"{folder}/tag/{source.rpartition('/')[2]}"] = store.file_io.read_bytes(source)
    elif from_snapshot is not None:
        snapshot, source = snapshots.read(store, from_snapshot), store.snapshot_path(from_snapshot)
    if snapshot is not None:
        path = f"{folder}/snapshot/snapshot-{snapshot.id}"
        original = store.snapshot_path(snapshot.id)
        # The tag keeps all of a snapshot that has expired, or whose number another one has since a rollback.
        files[path] = snapshot.to_json()
        with contextlib.suppress(FileNotFoundError):
            data = store.file_io.read_bytes(original)
            if snapshots.is_same(Snapshot.from_json(data, original), snapshot):
                files[path] = data
    ids = schemas.list_schema_ids(store.file_io, store.root, store.branch)
    last = ids[-1] if snapshot is None and ids else -1 if snapshot is None else snapshot.schema_id
    copied = {
        f"{folder}/schema/schema-{number}": store.file_io.read_bytes(store.schema_path(number))
        for number in ids
        if number <= last
    }
    if not copied:
        raise TableNotFound(f"table {store.name} has no schema up to {last} (under {store.metadata_root})")
    return {**copied, **files}, source


def rename_branch(store: TableStore, branch: str, to: str) -> None:
    """Rename a branch, in one step. Raises TableNotFound, TableExists, InvalidOption for a name that Paimon does not take, InvalidData."""
    require_branch(store, branch)
    _check_new(store, to)
    if branch == store.branch:
        raise InvalidOption("branch", branch, "another branch than the one that is open", store.name)
    if not remove_folder(store, to) or not store.file_io.rename(branch_dir(store, branch), branch_dir(store, to)):
        raise TableExists(f"table {branch_name(store.name, MAIN)} has a branch '{to}' already")


def remove_folder(store: TableStore, branch: str) -> bool:
    """Remove the directory of a branch once no file is left in it; False when there is one. Raises CorruptFile for a link."""
    folder = branch_dir(store, branch)
    if metadata_paths(store, branch):
        return False
    if store.file_io.exists(folder):
        store.file_io.delete_dir(inside_really(store.root, folder))
    return True


__all__ = [
    "MAIN",
    "NAME_PREFIX",
    "all_stores",
    "branch_dir",
    "branch_name",
    "change_times",
    "create_branch",
    "list_branches",
    "metadata_paths",
    "open_branch",
    "other_stores",
    "remove_folder",
    "rename_branch",
    "require_branch",
]
