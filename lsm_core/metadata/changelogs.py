"""Long-lived changelogs: expired snapshots whose changelog is still kept. Source classes: ``ChangelogManager``, ``Changelog``."""

from __future__ import annotations

from typing import Final

from lsm_core.errors import SnapshotNotFound
from lsm_core.format.side_files import decode_changelog
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import hints
from lsm_core.metadata.store import TableStore

_PREFIX: Final = "changelog-"


def changelog_dir(store: TableStore) -> str:
    """Return the directory of the changelogs and their hints, of the store's branch."""
    return f"{store.metadata_root}/changelog"


def changelog_path(store: TableStore, snapshot_id: int) -> str:
    """Return the path of the changelog of an expired snapshot."""
    return f"{changelog_dir(store)}/{_PREFIX}{int(snapshot_id)}"


def list_changelogs(store: TableStore) -> list[int]:
    """Return the ids of expired snapshots whose changelog is kept, ascending."""
    return hints.list_ids(store.file_io, changelog_dir(store), _PREFIX)


def latest_id(store: TableStore) -> int | None:
    """Return the newest id, None without any; the hint is checked before it is believed."""
    return hints.find_latest(store.file_io, changelog_dir(store), _PREFIX)


def earliest_id(store: TableStore) -> int | None:
    """Return the oldest id, None without any; the hint is checked before it is believed."""
    return hints.find_earliest(store.file_io, changelog_dir(store), _PREFIX)


def read_changelog(store: TableStore, snapshot_id: int) -> Snapshot:
    """Return the expired snapshot. Raises SnapshotNotFound naming table and id, CorruptFile."""
    path = changelog_path(store, snapshot_id)
    try:
        return decode_changelog(store.file_io.read_bytes(path), path)
    except FileNotFoundError as error:
        kept = list_changelogs(store)
        has = f"it keeps {kept[0]} to {kept[-1]}" if kept else "it keeps none"
        raise SnapshotNotFound(f"table {store.name} has no changelog of snapshot {snapshot_id}; {has}") from error


__all__ = ["changelog_dir", "changelog_path", "earliest_id", "latest_id", "list_changelogs", "read_changelog"]
