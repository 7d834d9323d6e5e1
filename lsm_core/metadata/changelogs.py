"""Long-lived changelogs: expired snapshots whose changes can still be streamed. Source classes: ``ChangelogManager``, ``Changelog``."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar, empty_table
from lsm_core.errors import CorruptFile, SnapshotNotFound
from lsm_core.format.file_meta import ENTRY_SCHEMA, SOURCE_APPEND
from lsm_core.format.side_files import decode_changelog, encode_changelog
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import hints, manifests
from lsm_core.metadata.store import TableStore

PREFIX: Final = "changelog-"


def changelog_dir(store: TableStore) -> str:
    """Return the directory of the changelogs and their hints, of the store's branch."""
    return f"{store.metadata_root}/changelog"


def changelog_path(store: TableStore, snapshot_id: int) -> str:
    """Return the path of the changelog of an expired snapshot."""
    return f"{changelog_dir(store)}/{PREFIX}{int(snapshot_id)}"


def list_changelogs(store: TableStore) -> list[int]:
    """Return the ids of expired snapshots whose changelog is kept, ascending."""
    return hints.list_ids(store.file_io, changelog_dir(store), PREFIX)


def latest_id(store: TableStore) -> int | None:
    """Return the newest id, None without any; the hint is checked before it is believed."""
    return hints.find_latest(store.file_io, changelog_dir(store), PREFIX)


def earliest_id(store: TableStore) -> int | None:
    """Return the oldest id, None without any; the hint is checked before it is believed."""
    return hints.find_earliest(store.file_io, changelog_dir(store), PREFIX)


def exists(store: TableStore, snapshot_id: int) -> bool:
    """Tell whether the changelog of that snapshot is there."""
    return store.file_io.exists(changelog_path(store, snapshot_id))


def read_changelog(store: TableStore, snapshot_id: int) -> Snapshot:
    """Return the expired snapshot. Raises SnapshotNotFound naming table and id, CorruptFile."""
    path = changelog_path(store, snapshot_id)
    try:
        found = decode_changelog(store.file_io.read_bytes(path), path)
    except FileNotFoundError as error:
        kept = list_changelogs(store)
        has = f"it keeps {kept[0]} to {kept[-1]}" if kept else "it keeps none"
        raise SnapshotNotFound(f"table {store.name} has no changelog of snapshot {snapshot_id}; {has}") from error
    if found.id != snapshot_id:
        raise CorruptFile(path, f"holds snapshot id {found.id}")
    return found


# -- writing: expiry leaves a changelog behind, and takes it away in the end -------------------------------------------


def write_changelog(store: TableStore, snapshot: Snapshot) -> None:
    """Keep ``snapshot`` as a changelog and point LATEST at it; one that is there is replaced. Raises StorageFull."""
    store.file_io.overwrite(changelog_path(store, snapshot.id), encode_changelog(snapshot))
    hints.write_hint(store.file_io, changelog_dir(store), hints.LATEST, snapshot.id)


def delete_changelogs(store: TableStore, ids: list[int]) -> None:
    """Delete the changelogs of ``ids`` (ascending), oldest first; hints name what stays before anything goes.

    Java believes a hint LATEST whose changelog is gone as long as the next one is not there, so it must never stand alone.
    """
    going = set(ids)
    point_hints(store, [number for number in list_changelogs(store) if number not in going])
    for number in ids:
        store.delete(changelog_path(store, number))


def point_hints(store: TableStore, kept: list[int]) -> None:
    """Let EARLIEST and LATEST name the first and last of ``kept`` (ascending); without any they are deleted."""
    folder = changelog_dir(store)
    if not kept:
        store.delete(f"{folder}/{hints.EARLIEST}")
        store.delete(f"{folder}/{hints.LATEST}")
        return
    hints.write_hint(store.file_io, folder, hints.EARLIEST, kept[0])
    hints.write_hint(store.file_io, folder, hints.LATEST, kept[-1])


# -- what a changelog keeps alive --------------------------------------------------------------------------------------


def keeps_deltas(store: TableStore) -> bool:
    """Whether streams read what snapshots added (no changelog producer): an expired snapshot's own data files are its changelog then."""
    return store.options.changelog_producer == "none"


def kept_lists(store: TableStore, changelog: Snapshot) -> list[tuple[str, int | None]]:
    """Return the manifest lists that a changelog keeps, name and size in bytes (None: not recorded), as far as they are there.

    That of its changelog files; without a producer those of the data too, as Java leaves them behind (`SnapshotDeletion`). What expired
    while the table had a producer has none, and an expiry that was interrupted leaves a changelog without lists: nobody can read
    such a one, so it keeps nothing.
    """
    lists = [(changelog.changelog_manifest_list, changelog.changelog_manifest_list_size)]
    if keeps_deltas(store):
        lists.append((changelog.base_manifest_list, changelog.base_manifest_list_size))
        lists.append((changelog.delta_manifest_list, changelog.delta_manifest_list_size))
    return [
        (name, size) for name, size in lists if name is not None and store.file_io.exists(store.manifest_path(name))
    ]


def kept_entries(store: TableStore, changelog: Snapshot) -> pa.Table:
    """Return the entries (`ENTRY_SCHEMA`) of the files that a changelog keeps. Raises CorruptFile.

    Its changelog files; without a producer also the files of its delta that a writer (not a compaction) made, added or deleted.
    """
    lists = {name for name, _ in kept_lists(store, changelog)}
    found = [empty_table(ENTRY_SCHEMA)]
    if changelog.changelog_manifest_list in lists:
        found.append(manifests.changelog_entries(store, changelog))
    if keeps_deltas(store) and changelog.delta_manifest_list in lists:
        changes = manifests.delta_entries(store, changelog)
        found.append(changes.filter(is_written(changes)))
    return pa.concat_tables(found)


def is_written(entries: pa.Table) -> pa.ChunkedArray:
    """Tell of each entry whether a writer made its file, or nobody recorded who did (format.md 4.3, `_FILE_SOURCE`)."""
    source = pc.fill_null(entries.column("file_source"), arrow_scalar(SOURCE_APPEND, pa.int8()))
    return pc.equal(source, arrow_scalar(SOURCE_APPEND, pa.int8()))


__all__ = [
    "changelog_dir",
    "changelog_path",
    "delete_changelogs",
    "earliest_id",
    "exists",
    "is_written",
    "keeps_deltas",
    "kept_entries",
    "kept_lists",
    "latest_id",
    "list_changelogs",
    "point_hints",
    "read_changelog",
    "write_changelog",
]
