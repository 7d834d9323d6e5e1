"""Invariants of a table after any operation or fault, checked without the code that decides about deletions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from lsm_core import Table
from lsm_core.format.manifest import table_to_entries
from lsm_core.maintenance import read_trash
from lsm_core.metadata import branches, changelogs, manifests, snapshots, tags
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.store import TableStore
from lsm_core.read.merge_read import as_tree
from lsm_core.tree.model import find_violations
from tests.faults.histories import FAR, HOUR, Rows, content, opened
from tests.support.references import changelog_references, file_names, metadata_references

_HISTORY: Final = re.compile(
    r"(branch/branch-[^/]+/)?(snapshot/(snapshot-\d+|EARLIEST|LATEST)|schema/schema-\d+|tag/tag-.+|changelog/(changelog-\d+|EARLIEST|LATEST))"
)
_OWN: Final = re.compile(r"dredge/(ledger|plans)/.+")
_FOLDER: Final = ".folder"
"""Name of the empty object that represents a folder."""


def answers(table: Table) -> dict[str, Rows]:
    """Return the rows of every branch by name."""
    return {store.branch: content(Table(store)) for store in branches.all_stores(table.store)}


class Truth:
    """Rows of each version at its first read; a version with equal metadata must always have equal rows."""

    def __init__(self) -> None:
        self._known: dict[bytes, Rows] = {}

    def require_sound(self, table: Table, at: object) -> None:
        """Assert that all snapshots and tags of all branches have their known rows and valid LSM trees."""
        for store in branches.all_stores(table.store):
            first = Table(store)
            for snapshot in snapshots.iterate(store):
                self._same(store, snapshot.to_json(), content(first, snapshot_id=snapshot.id), (at, snapshot.id))
                if store.schema.primary_keys:
                    for _, _, _, found in bucket_groups(manifests.live_entries(store, snapshot)):
                        tree = as_tree(store, [entry.file for entry in table_to_entries(found)])
                        assert not find_violations(tree), at
            for name, tagged in tags.list_tags(store).items():
                self._same(store, tagged.to_json(), content(first, tag=name), (at, name))

    def _same(self, store: TableStore, version: bytes, found: Rows, at: object) -> None:
        assert self._known.setdefault(version, found) == found, (store.name, at)


def needed(table: Table) -> set[str]:
    """Return the bare names of all files that a snapshot, tag or changelog of any branch needs."""
    names = set[str]()
    for store in branches.all_stores(table.store):
        for snapshot in [*snapshots.iterate(store), *tags.list_tags(store).values()]:
            names |= metadata_references(store, snapshot)
            names |= file_names(manifests.live_entries(store, snapshot))
            names |= file_names(manifests.changelog_entries(store, snapshot))
        for number in changelogs.list_changelogs(store):
            names |= changelog_references(store, changelogs.read_changelog(store, number))
    return names


def cleaned(warehouse: str, file_io: Any) -> Table:
    """Delete the trash and the orphan files at a time when all files are old; return the table.

    The files of a deleted trash record may become orphans, so the trash is emptied repeatedly.
    """
    for _ in range(2):
        table = opened(warehouse, FAR, file_io)
        assert not table.sweep_trash(now_ms=FAR + 48 * HOUR).failed
        table.remove_orphan_files(older_than_ms=FAR, max_share=100)
    table.sweep_trash(now_ms=FAR + 48 * HOUR)
    return opened(warehouse, FAR, file_io)


def require_clean(table: Table, files: Iterable[str], at: object) -> None:
    """Assert that ``files`` (relative to the table) are exactly the needed files, and that the trash is empty."""
    assert not read_trash(table.store).records, at
    wanted = needed(table)
    others = {name for name in files if not _HISTORY.fullmatch(name) and not _OWN.fullmatch(name)}
    there = {name.rpartition("/")[2] for name in others} - {_FOLDER}
    assert there == wanted, (at, "strays", there - wanted, "lost", wanted - there)


__all__ = ["Truth", "answers", "cleaned", "needed", "require_clean"]
