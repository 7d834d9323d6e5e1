"""Tags: named snapshots that outlive expiry; reading and writing their files.

Deleting a tag's data files is part of maintenance (`lsm_core.maintenance.actions.delete_tag`).

Source: ``TagManager``, ``SuccessFileTagCallback``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from lsm_core.clock import local_offset_ms
from lsm_core.errors import CorruptFile, InvalidData, InvalidOption, SnapshotNotFound
from lsm_core.format.side_files import Tag
from lsm_core.format.snapshot import Snapshot
from lsm_core.format.tag_periods import TagPeriods
from lsm_core.json_text import parse_json, pretty, time_of
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import check_name

PREFIX: Final = "tag-"
_SUCCESS: Final = "_SUCCESS"
_MAX_NAME_BYTES: Final = 200
_MOST_RETAINED_DAYS: Final = 100_000_000
_MOST_RETAINED_MS: Final = _MOST_RETAINED_DAYS * 24 * 3_600_000
"""Longest retention of a tag in ms: readers cannot parse a tag file with a longer retention."""


def tag_dir(store: TableStore) -> str:
    """Return the directory of the tags of the store's branch."""
    return f"{store.metadata_root}/tag"


def tag_path(store: TableStore, name: str) -> str:
    """Return the path of a tag's file.

    Raises:
        InvalidData: the name would lead out of the directory.
    """
    return f"{tag_dir(store)}/{PREFIX}{check_name(name, store.name, 'tag name')}"


def success_path(store: TableStore, name: str) -> str:
    """Return the path of a tag's success file (option `tag.create-success-file`).

    Raises:
        InvalidData: the name would lead out of the directory.
    """
    return f"{tag_dir(store)}/tag-success-file/{check_name(name, store.name, 'tag name')}{_SUCCESS}"


def list_names(store: TableStore) -> list[str]:
    """Return the names of all tags, sorted, without reading a tag file."""
    listed = store.file_io.list_dir(tag_dir(store))
    return sorted(f.name[len(PREFIX) :] for f in listed if not f.is_dir and f.name.startswith(PREFIX))


def list_tags(store: TableStore) -> dict[str, Snapshot]:
    """Return the snapshot of every tag, by name.

    Raises:
        CorruptFile: a tag file is damaged.
    """
    return {name: tag.snapshot for name, tag in list_details(store).items()}


def list_details(store: TableStore) -> dict[str, Tag]:
    """Return every tag with snapshot, creation time and retention time, by name.

    Raises:
        CorruptFile: a tag file is damaged.
    """
    details: dict[str, Tag] = {}
    for name in list_names(store):
        path = f"{tag_dir(store)}/{PREFIX}{name}"
        with suppress(FileNotFoundError):  # deleted during the listing
            details[name] = Tag.from_json(store.file_io.read_bytes(path), path)
    return details


def read_tag(store: TableStore, name: str) -> Snapshot:
    """Return the snapshot of a tag.

    Raises:
        SnapshotNotFound: the tag does not exist; the message names table and tag.
        CorruptFile: the tag file is damaged.
    """
    tag = try_read(store, name)
    if tag is None:
        existing = ", ".join(list_names(store)) or "none"
        raise SnapshotNotFound(f"table {store.name} has no tag '{name}'; it has: {existing}")
    return tag.snapshot


def try_read(store: TableStore, name: str) -> Tag | None:
    """Return a tag, or None if it does not exist.

    Raises:
        CorruptFile: the tag file is damaged.
        InvalidData: the name would lead out of the directory.
    """
    path = tag_path(store, name)
    try:
        return Tag.from_json(store.file_io.read_bytes(path), path)
    except FileNotFoundError:
        return None


def find_snapshot(store: TableStore, snapshot_id: int) -> Snapshot:
    """Return a snapshot from its file or, if it has expired, from a tag that keeps it (Java `findSnapshot`).

    Raises:
        SnapshotNotFound: neither the snapshot nor a tag of it exists.
        CorruptFile: a file is damaged.
    """
    snapshot = snapshots.try_read(store, snapshot_id)
    if snapshot is not None:
        return snapshot
    for tagged in list_tags(store).values():
        if tagged.id == snapshot_id:
            return tagged
    return snapshots.read(store, snapshot_id)


# -- writing -----------------------------------------------------------------------------------------------------------


def check_new_name(store: TableStore, name: str) -> str:
    """Check the name of a new tag, and return it.

    Raises:
        InvalidData: the name is blank, too long or not a plain file name.
    """
    if not isinstance(name, str) or not name.strip():
        raise InvalidData(store.name, "", f"tag name {name!r} is blank")
    if len(name.encode("utf-8", "surrogatepass")) > _MAX_NAME_BYTES:  # temporary files have longer names
        raise InvalidData(store.name, "", f"tag name {name[:40]!r}... is longer than {_MAX_NAME_BYTES} bytes")
    return check_name(name, store.name, "tag name")


def require_retention(time_retained_ms: int | None, table: str) -> None:
    """Raise InvalidOption for a retention time (ms) that readers of a tag's file would refuse; None is accepted."""
    if time_retained_ms is not None and time_retained_ms > _MOST_RETAINED_MS:
        raise InvalidOption("time_retained", f"{time_retained_ms} ms", f"at most {_MOST_RETAINED_DAYS} d", table)


def made_now(store: TableStore, snapshot: Snapshot, time_retained_ms: int | None) -> Tag:
    """Return a new tag of ``snapshot``.

    As in Java, the tag records its creation time (this machine's local time) only if its retention is limited.

    Args:
        store: the table.
        snapshot: the snapshot to keep.
        time_retained_ms: retention in ms, or None for unlimited.

    Returns:
        The tag, not yet written.

    Raises:
        InvalidOption: the retention is longer than a tag's file can hold.
    """
    if time_retained_ms is None:
        return Tag(snapshot)
    require_retention(time_retained_ms, store.name)
    now = store.clock.now_ms()
    return Tag(snapshot, now + local_offset_ms(now), time_retained_ms)


def create(store: TableStore, name: str, tag: Tag) -> bool:
    """Write a new tag and its success file; delete the tag again if its snapshot expired during the creation.

    The tag is not deleted if another tag keeps the same snapshot, because the snapshot's files then still exist.

    Args:
        store: the table.
        name: name of the tag.
        tag: the tag.

    Returns:
        False if a tag of this name exists.

    Raises:
        SnapshotNotFound: the snapshot expired during the creation, and no other tag keeps it.
        InvalidData: the name would lead out of the directory.
        StorageFull: the storage is full.
    """
    path, snapshot = tag_path(store, name), tag.snapshot
    if not store.file_io.write_exclusive(path, tag.to_json()):
        return False
    if not snapshots.exists(store, snapshot.id):
        other_snapshots = (other for other_name, other in list_tags(store).items() if other_name != name)
        if snapshot.id not in {other.id for other in other_snapshots}:
            store.delete(path)
            raise SnapshotNotFound(
                f"table {store.name}: snapshot {snapshot.id} expired while tag '{name}' was created", expired=True
            )
    tell_success(store, name)
    return True


def replace(store: TableStore, name: str, tag: Tag) -> None:
    """Overwrite an existing tag.

    Raises:
        InvalidData: the name would lead out of the directory.
        StorageFull: the storage is full.
    """
    store.file_io.overwrite(tag_path(store, name), tag.to_json())


def delete(store: TableStore, name: str) -> bool:
    """Delete a tag file and its success file; data files remain.

    Returns:
        Whether the tag existed.

    Raises:
        InvalidData: the name would lead out of the directory.
    """
    existed = store.delete(tag_path(store, name))
    store.delete(success_path(store, name))
    return existed


def rename(store: TableStore, name: str, new_name: str) -> None:
    """Rename a tag.

    After an interruption the tag has one or both names, and the call can be repeated.

    Args:
        store: the table.
        name: the current name.
        new_name: name to give to the tag.

    Raises:
        SnapshotNotFound: the tag does not exist; the message names it.
        InvalidOption: another tag has the new name.
        InvalidData: a name would lead out of the directory.
    """
    old, new = tag_path(store, name), tag_path(store, check_new_name(store, new_name))
    read_tag(store, name)
    data = store.file_io.read_bytes(old)
    if old == new:
        return
    if not store.file_io.write_exclusive(new, data) and store.file_io.read_bytes(new) != data:
        raise InvalidOption("new_name", new_name, "a name that no other tag has", store.name)
    if store.file_io.exists(success_path(store, name)):
        success_data = store.file_io.read_bytes(success_path(store, name))
        store.file_io.overwrite(success_path(store, new_name), success_data)
    delete(store, name)


def tell_success(store: TableStore, name: str) -> None:
    """Write or update the tag's success file, if option `tag.create-success-file` is set."""
    if not store.options.get("tag.create-success-file"):
        return
    path, now = success_path(store, name), store.clock.now_ms()
    created = now
    with suppress(CorruptFile, FileNotFoundError, KeyError, TypeError, ValueError):
        created = time_of(parse_json(store.file_io.read_bytes(path))["creationTime"])
    store.file_io.overwrite(path, pretty({"creationTime": created, "modificationTime": now}).encode())


def periods(store: TableStore) -> TagPeriods | None:
    """Return the time periods (such as days) for each of which the table gets an automatic tag, and their tag names.

    Returns:
        The periods, or None unless `tag.automatic-creation` is process-time or watermark.
    """
    options = store.options
    if options.tag_creation not in ("process-time", "watermark"):
        return None
    length = options.get("tag.creation-period-duration")
    return TagPeriods.of(str(options.get("tag.creation-period")), str(options.get("tag.period-formatter")), length)
