"""Long-lived changelogs: expired snapshots whose changes can still be streamed.

Source: ``ChangelogManager``, ``Changelog``.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar, empty_table
from lsm_core.errors import CorruptFile, SnapshotNotFound
from lsm_core.format.manifest import ENTRY_SCHEMA, SOURCE_APPEND
from lsm_core.format.side_files import decode_changelog, encode_changelog
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import hints, manifests
from lsm_core.metadata.store import TableStore

PREFIX: Final = "changelog-"


def changelog_dir(store: TableStore) -> str:
    """Return the directory of the changelogs and their hints, for the store's branch."""
    return f"{store.metadata_root}/changelog"


def changelog_path(store: TableStore, snapshot_id: int) -> str:
    """Return the path of the changelog of an expired snapshot."""
    return f"{changelog_dir(store)}/{PREFIX}{int(snapshot_id)}"


def list_changelogs(store: TableStore) -> list[int]:
    """Return the ids of expired snapshots that still have a changelog, ascending."""
    return hints.list_ids(store.file_io, changelog_dir(store), PREFIX)


def latest_id(store: TableStore) -> int | None:
    """Return the newest changelog id, or None without changelogs.

    The hint file is verified before it is used.
    """
    return hints.find_latest(store.file_io, changelog_dir(store), PREFIX)


def earliest_id(store: TableStore) -> int | None:
    """Return the oldest changelog id, or None without changelogs.

    The hint file is verified before it is used.
    """
    return hints.find_earliest(store.file_io, changelog_dir(store), PREFIX)


def exists(store: TableStore, snapshot_id: int) -> bool:
    """Return whether the changelog of a snapshot exists."""
    return store.file_io.exists(changelog_path(store, snapshot_id))


def read_changelog(store: TableStore, snapshot_id: int) -> Snapshot:
    """Return an expired snapshot from its changelog.

    Raises:
        SnapshotNotFound: the changelog does not exist; the message names table and id.
        CorruptFile: the file is unreadable or contains a different id than its name.
    """
    path = changelog_path(store, snapshot_id)
    try:
        changelog = decode_changelog(store.file_io.read_bytes(path), path)
    except FileNotFoundError as error:
        ids = list_changelogs(store)
        available = f"it keeps {ids[0]} to {ids[-1]}" if ids else "it keeps none"
        raise SnapshotNotFound(f"table {store.name} has no changelog of snapshot {snapshot_id}; {available}") from error
    if changelog.id != snapshot_id:
        raise CorruptFile(path, f"holds snapshot id {changelog.id}")
    return changelog


# -- writing: expiry of a snapshot creates its changelog, expiry of changelogs deletes it ------------------------------


def write_changelog(store: TableStore, snapshot: Snapshot) -> None:
    """Store ``snapshot`` as a changelog, and write its id into the hint LATEST; an existing changelog is replaced.

    Raises:
        StorageFull: the file cannot be written.
    """
    store.file_io.overwrite(changelog_path(store, snapshot.id), encode_changelog(snapshot))
    hints.write_hint(store.file_io, changelog_dir(store), hints.LATEST, snapshot.id)


def delete_changelogs(store: TableStore, ids: list[int]) -> None:
    """Delete changelogs, oldest first, after writing hints that name the remaining changelogs.

    Java trusts a LATEST hint if no changelog with the next id exists, even if the hinted changelog was deleted. The
    hint must therefore never name a deleted changelog.

    Args:
        store: the table.
        ids: snapshot ids, ascending.
    """
    deleted = set(ids)
    point_hints(store, [snapshot_id for snapshot_id in list_changelogs(store) if snapshot_id not in deleted])
    for snapshot_id in ids:
        store.delete(changelog_path(store, snapshot_id))


def point_hints(store: TableStore, kept: list[int]) -> None:
    """Write the smallest and largest of the ids ``kept`` into the hints EARLIEST and LATEST of the changelogs.

    Both hints are deleted if no changelog remains.

    Args:
        store: the table.
        kept: ids of the remaining changelogs, ascending.
    """
    folder = changelog_dir(store)
    if not kept:
        store.delete(f"{folder}/{hints.EARLIEST}")
        store.delete(f"{folder}/{hints.LATEST}")
        return
    hints.write_hint(store.file_io, folder, hints.EARLIEST, kept[0])
    hints.write_hint(store.file_io, folder, hints.LATEST, kept[-1])


# -- files that a changelog keeps --------------------------------------------------------------------------------------


def keeps_deltas(store: TableStore) -> bool:
    """Return whether the table has no changelog producer, so that changelogs keep data files.

    Without a producer, streams read the data files that a snapshot added. These files are kept as the changelog of an
    expired snapshot.
    """
    return store.options.changelog_producer == "none"


def kept_lists(store: TableStore, changelog: Snapshot) -> list[tuple[str, int | None]]:
    """Return the existing manifest lists that a changelog keeps.

    A changelog keeps the manifest list of its changelog files. Without a changelog producer, it also keeps the lists of
    data files, as in Java (`SnapshotDeletion`).

    Some changelogs keep no list: changelogs of snapshots that expired while the table had a producer, and changelogs of
    an interrupted expiry, which no reader can use.

    Returns:
        Name and size in bytes (None if not recorded) of each list.
    """
    lists = [(changelog.changelog_manifest_list, changelog.changelog_manifest_list_size)]
    if keeps_deltas(store):
        lists.append((changelog.base_manifest_list, changelog.base_manifest_list_size))
        lists.append((changelog.delta_manifest_list, changelog.delta_manifest_list_size))
    return [
        (name, size) for name, size in lists if name is not None and store.file_io.exists(store.manifest_path(name))
    ]


def kept_entries(store: TableStore, changelog: Snapshot) -> pa.Table:
    """Return the manifest entries of the files that a changelog keeps.

    These are the changelog files. Without a changelog producer they include the data files that a writer (not a
    compaction) added or deleted in the snapshot.

    Returns:
        A table of `ENTRY_SCHEMA`.

    Raises:
        CorruptFile: a manifest list or manifest is missing or damaged.
    """
    lists = {name for name, _ in kept_lists(store, changelog)}
    parts = [empty_table(ENTRY_SCHEMA)]
    if changelog.changelog_manifest_list in lists:
        parts.append(manifests.changelog_entries(store, changelog))
    if keeps_deltas(store) and changelog.delta_manifest_list in lists:
        changes = manifests.delta_entries(store, changelog)
        parts.append(changes.filter(is_written(changes)))
    return pa.concat_tables(parts)


def is_written(entries: pa.Table) -> pa.ChunkedArray:
    """Return a mask of the entries whose file was added by a write, not by a compaction.

    A file without a recorded source (`_FILE_SOURCE` is null) counts as added by a write.
    """
    source = pc.fill_null(entries.column("file_source"), arrow_scalar(SOURCE_APPEND, pa.int8()))
    return pc.equal(source, arrow_scalar(SOURCE_APPEND, pa.int8()))
