"""Branches of a table: each has its own metadata and shares the data files.

Source: ``FileSystemBranchManager``.
"""

from __future__ import annotations

import contextlib
from typing import Final

from lsm_core.errors import InvalidOption, MetastoreFailed, SnapshotNotFound, TableExists, TableNotFound
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import snapshots, tags
from lsm_core.metadata.store import OutcomeUnknown, SnapshotPublisher, TableStore, list_schema_ids, metadata_root
from lsm_core.storage import check_name, inside_really

MAIN: Final = "main"
_PREFIX: Final = "branch-"
NAME_PREFIX: Final = "branch_"
"""Prefix of a branch in a table name, after the dollar sign: "db.orders$branch_dev"."""


def branch_name(table: str, branch: str) -> str:
    """Return the name of a table on a branch.

    Args:
        table: the table's name, with or without a branch suffix.
        branch: the branch; ``main`` gives the plain name.

    Returns:
        A name like ``db.orders$branch_dev``.
    """
    plain = table.partition(f"${NAME_PREFIX}")[0]
    return plain if branch == MAIN else f"{plain}${NAME_PREFIX}{branch}"


def list_branches(store: TableStore) -> list[str]:
    """Return the names of all branches except main, sorted."""
    return list(change_times(store))


def change_times(store: TableStore) -> dict[str, int]:
    """Return the last modification time of each branch's directory, without main.

    An interrupted deletion can leave a directory without files; such a directory is not a branch.

    Returns:
        Branch name to modification time (epoch ms), sorted by name.
    """
    folders = [f for f in store.file_io.list_dir(f"{store.root}/branch") if f.is_dir and f.name.startswith(_PREFIX)]
    times = {f.name[len(_PREFIX) :]: f.mtime_ms for f in sorted(folders, key=lambda folder: folder.name)}
    return {name: time for name, time in times.items() if _holds_files(store, name)}


def _holds_files(store: TableStore, branch: str) -> bool:
    return bool(list_schema_ids(store.file_io, store.root, branch) or metadata_paths(store, branch))


def open_branch(store: TableStore, branch: str) -> TableStore:
    """Return the same table on a branch.

    Args:
        store: the table, on any branch.
        branch: name of the branch; ``main`` for the table itself.

    Returns:
        The table with the metadata of that branch.

    Raises:
        TableNotFound: the branch does not exist; the message names table and branch.
    """
    name = branch_name(store.name, branch)
    opened = TableStore.open(store.file_io, store.root, name, store.clock, store.given_options, branch)
    return opened.in_catalog_of(store)


def newest_manifest_list(branch: TableStore) -> str:
    """Return the name of the newest snapshot's delta manifest list, by which a snapshot is recognised.

    The name is unique to the snapshot. It is "" for a branch without snapshots.

    Args:
        branch: the branch, opened as a table.

    Raises:
        CorruptFile: the snapshot is damaged.
    """
    newest = snapshots.latest(branch)
    return "" if newest is None else newest.delta_manifest_list


def other_stores(store: TableStore, excluded: str | None = None) -> list[TableStore]:
    """Return the table on every branch, main included, except the branch of ``store``.

    Args:
        store: the table, on any branch.
        excluded: name of one more branch to leave out, or None.

    Returns:
        One store per branch.

    Raises:
        TableNotFound: a branch has lost its schema, so the files that the branch needs are unknown.
    """
    stores = []
    for name in [MAIN, *list_branches(store)]:
        if name in (store.branch, excluded):
            continue
        try:
            stores.append(open_branch(store, name))
        except TableNotFound:
            if name == MAIN or metadata_paths(store, name):  # otherwise the branch was deleted meanwhile
                raise
    return stores


def all_stores(store: TableStore) -> list[TableStore]:
    """Return the table on every branch, main first.

    Code that deletes files must check that no branch uses the files.

    Raises:
        TableNotFound: a branch has lost its schema, so the files that the branch needs are unknown.
    """
    others = other_stores(store)
    position = 0 if store.branch == MAIN else 1 + sum(other.branch < store.branch for other in others[1:])
    return [*others[:position], store, *others[position:]]


def branch_dir(store: TableStore, branch: str) -> str:
    """Return the directory of a branch's metadata.

    Raises:
        InvalidOption: the branch is main.
        InvalidData: the name would lead out of the table's directory.
    """
    if branch == MAIN:
        raise InvalidOption("branch", branch, "a branch besides main", store.name)
    return metadata_root(store.root, check_name(branch, store.name, "branch name"))


def metadata_paths(store: TableStore, branch: str) -> list[str]:
    """Return the paths of all files below a branch's directory; links are not followed.

    Returns:
        Paths relative to the table's root, sorted. Temporary files of interrupted writers are left out.
    """
    paths: list[str] = []
    folders = [branch_dir(store, branch)]
    while folders:
        for status in store.file_io.list_dir(folders.pop()):
            if status.is_dir:
                folders.append(status.path)
            # A killed writer's temporary file is not part of the branch.
            elif not (status.name.startswith(".") and status.name.endswith(".tmp")):
                paths.append(status.path.removeprefix(f"{store.root}/"))
    return sorted(paths)


def require_branch(store: TableStore, branch: str) -> None:
    """Check that a branch exists.

    Raises:
        TableNotFound: the branch has no files; the message lists the existing branches.
        InvalidOption: the branch is main.
        InvalidData: the name would lead out of the table's directory.
    """
    if not metadata_paths(store, branch):
        existing = ", ".join(list_branches(store)) or "none"
        plain = branch_name(store.name, MAIN)
        raise TableNotFound(f"table {plain} has no branch '{branch}'; it has: {existing}")


def create_branch(
    store: TableStore, branch: str, from_tag: str | None = None, from_snapshot: int | None = None
) -> TableStore:
    """Create a branch by copying metadata, and return the table on it; no data file is copied.

    The branch starts with the rows of a tag or snapshot and the schemas up to the schema of that snapshot. If neither
    is given, the branch starts empty, with all schemas. A call after an interrupted attempt completes the branch.

    Args:
        store: the table, on the branch to copy from.
        branch: name of the new branch.
        from_tag: the tag to start from, or None.
        from_snapshot: the snapshot id to start from, or None.

    Returns:
        The table on the new branch.

    Raises:
        TableExists: the branch exists, or a concurrent process is creating it.
        InvalidOption: Paimon does not accept the name (blank, `main`, digits only), or both tag and snapshot are set.
        InvalidData: the name would lead out of the table's directory.
        SnapshotNotFound: the tag or snapshot does not exist, or was deleted during the copy.
        CorruptFile: a metadata file cannot be read.
    """
    _check_new_name(store, branch)
    if from_tag is not None and from_snapshot is not None:
        raise InvalidOption(
            "from_snapshot", from_snapshot, f"a tag or a snapshot, not both (from_tag is {from_tag!r})", store.name
        )
    if store.publisher is not None:
        return _create_on_server(store, store.publisher, branch, from_tag, from_snapshot)
    folder = branch_dir(store, branch)
    files, source = _collect_files(store, folder, from_tag, from_snapshot)
    present = {f"{store.root}/{path}" for path in metadata_paths(store, branch)}
    is_interrupted_attempt = present < set(files) and all(
        store.file_io.read_bytes(path) == files[path] for path in present
    )
    if present and not is_interrupted_attempt:
        raise TableExists(f"table {branch_name(store.name, MAIN)} already has a branch '{branch}'")
    for path, data in files.items():  # schemas first: a branch without a schema blocks every deletion
        if not store.file_io.write_exclusive(path, data) and store.file_io.read_bytes(path) != data:
            raise TableExists(f"another writer is creating branch '{branch}' of table {store.name}")
    if source is not None and not store.file_io.exists(source):
        # The expiry may have missed the new branch, so the files that the branch needs may be deleted.
        for path in reversed(files):
            store.delete(path)
        remove_folder(store, branch)
        message = f"{source} was deleted while branch '{branch}' of table {store.name} was created"
        raise SnapshotNotFound(message, expired=True)
    return open_branch(store, branch)


def _create_on_server(
    store: TableStore, publisher: SnapshotPublisher, branch: str, from_tag: str | None, from_snapshot: int | None
) -> TableStore:
    """Let the catalog server create a branch, and return the table on it.

    Raises:
        InvalidOption: the branch is to begin with a snapshot, which the servers' protocol does not have.
        MetastoreFailed: the server may still create the branch.
    """
    if from_snapshot is not None:
        accepted = "a tag of this snapshot as from_tag: catalog servers create branches from tags only"
        raise InvalidOption("from_snapshot", from_snapshot, accepted, store.name)
    try:
        publisher.create_branch(branch, from_tag)
    except OutcomeUnknown as error:
        if not list_schema_ids(store.file_io, store.root, branch):
            raise MetastoreFailed(publisher.address, f"branch '{branch}' may or may not be created: {error}") from error
    return open_branch(store, branch)


def _check_new_name(store: TableStore, branch: str) -> None:
    """Check the name of a new branch by Paimon's rules; '$' is refused too, because no table name can contain it."""
    if not isinstance(branch, str) or not branch.strip() or branch == MAIN or branch.isdecimal() or "$" in branch:
        accepted = "a name that is not blank, not 'main', not digits alone, and without '$'"
        raise InvalidOption("branch", branch, accepted, store.name)


def _collect_files(
    store: TableStore, folder: str, from_tag: str | None, from_snapshot: int | None
) -> tuple[dict[str, bytes], str | None]:
    """Return the metadata files of a new branch, and the source tag or snapshot whose data files they need.

    Args:
        store: the table.
        folder: directory of the new branch.
        from_tag: tag to copy, or None.
        from_snapshot: id of the snapshot to copy if no tag is given, or None.

    Returns:
        The content by path, in the order of writing. Then the path of the source tag or snapshot file (None for an
        empty branch).
    """
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
        # The tag holds the whole snapshot: it may have expired, or another one may have its id since a rollback.
        files[path] = snapshot.to_json()
        with contextlib.suppress(FileNotFoundError):
            data = store.file_io.read_bytes(original)
            if snapshots.is_same(Snapshot.from_json(data, original), snapshot):
                files[path] = data
    schema_ids = list_schema_ids(store.file_io, store.root, store.branch)
    last_schema_id = (
        schema_ids[-1] if snapshot is None and schema_ids else -1 if snapshot is None else snapshot.schema_id
    )
    schema_files = {
        f"{folder}/schema/schema-{schema_id}": store.file_io.read_bytes(store.schema_path(schema_id))
        for schema_id in schema_ids
        if schema_id <= last_schema_id
    }
    if not schema_files:
        raise TableNotFound(f"table {store.name} has no schema up to {last_schema_id} (under {store.metadata_root})")
    return {**schema_files, **files}, source


def rename_branch(store: TableStore, branch: str, to: str) -> None:
    """Rename a branch in one step.

    Args:
        store: the table, on any branch except ``branch``.
        branch: the current name.
        to: the new name.

    Raises:
        TableNotFound: the branch does not exist.
        TableExists: the new name is in use.
        InvalidOption: Paimon does not accept the new name, or ``store`` is opened on this branch.
        InvalidData: a name would lead out of the table's directory.
    """
    store.require_own_snapshots("a rename of a branch")
    require_branch(store, branch)
    _check_new_name(store, to)
    if branch == store.branch:
        raise InvalidOption("branch", branch, "a branch other than the one that is open", store.name)
    if not remove_folder(store, to) or not store.file_io.rename(branch_dir(store, branch), branch_dir(store, to)):
        raise TableExists(f"table {branch_name(store.name, MAIN)} already has a branch '{to}'")


def remove_folder(store: TableStore, branch: str) -> bool:
    """Remove the directory of a branch if it contains no files.

    Returns:
        True if the directory contained no files or did not exist.

    Raises:
        CorruptFile: the directory is a link.
    """
    folder = branch_dir(store, branch)
    if metadata_paths(store, branch):
        return False
    if store.file_io.exists(folder):
        store.file_io.delete_dir(inside_really(store.root, folder))
    return True
