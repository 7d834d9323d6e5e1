"""Branches: metadata of their own over shared files. Source class: ``FileSystemBranchManager``."""

from __future__ import annotations

from typing import Final

from lsm_core.metadata.store import TableStore

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
    """Return when the directory of each branch but main last changed (epoch ms), by name, sorted."""
    folders = [f for f in store.file_io.list_dir(f"{store.root}/branch") if f.is_dir and f.name.startswith(_PREFIX)]
    return {f.name[len(_PREFIX) :]: f.mtime_ms for f in sorted(folders, key=lambda folder: folder.name)}


def open_branch(store: TableStore, branch: str) -> TableStore:
    """Return the same table on a branch (``main`` for the table itself). Raises TableNotFound naming table and branch."""
    name = branch_name(store.name, branch)
    return TableStore.open(store.file_io, store.root, name, store.clock, store.given_options, branch)


def all_stores(store: TableStore) -> list[TableStore]:
    """Return the table on main and on every branch: whoever deletes files must ask each of them."""
    return [open_branch(store, name) for name in [MAIN, *list_branches(store)]]
