"""Tags: named snapshots that outlive expiry, read and written. Source classes: ``TagManager``, ``SuccessFileTagCallback``.

What deleting a tag frees is the matter of maintenance (`lsm_core.maintenance.actions.delete_tag`): here are its files alone.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from lsm_core.clock import local_offset_ms
from lsm_core.errors import CorruptFile, InvalidData, InvalidOption, SnapshotNotFound
from lsm_core.format.json_text import pretty
from lsm_core.format.side_files import Tag
from lsm_core.format.snapshot import Snapshot
from lsm_core.format.tag_periods import TagPeriods
from lsm_core.json_reader import parse_json, time_of
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import check_name

PREFIX: Final = "tag-"
_SUCCESS: Final = "_SUCCESS"
_LONGEST: Final = 200


def tag_dir(store: TableStore) -> str:
    """Return the directory of the tags of the store's branch."""
    return f"{store.metadata_root}/tag"


def tag_path(store: TableStore, name: str) -> str:
    """Return the path of a tag's file. Raises InvalidData for a hostile name."""
    return f"{tag_dir(store)}/{PREFIX}{check_name(name, store.name, 'tag name')}"


def success_path(store: TableStore, name: str) -> str:
    """Return the path of the file that tells others that a tag was made (`tag.create-success-file`). Raises InvalidData."""
    return f"{tag_dir(store)}/tag-success-file/{check_name(name, store.name, 'tag name')}{_SUCCESS}"


def list_names(store: TableStore) -> list[str]:
    """Return the names of all tags, sorted; no file is read."""
    listed = store.file_io.list_dir(tag_dir(store))
    return sorted(f.name[len(PREFIX) :] for f in listed if not f.is_dir and f.name.startswith(PREFIX))


def list_tags(store: TableStore) -> dict[str, Snapshot]:
    """Return every tag with the snapshot it names, by name. Raises CorruptFile."""
    return {name: tag.snapshot for name, tag in list_details(store).items()}


def list_details(store: TableStore) -> dict[str, Tag]:
    """Return every tag with its snapshot, when it was made and how long it is kept, by name. Raises CorruptFile."""
    found: dict[str, Tag] = {}
    for name in list_names(store):
        path = f"{tag_dir(store)}/{PREFIX}{name}"
        with suppress(FileNotFoundError):  # deleted while we were reading
            found[name] = Tag.from_json(store.file_io.read_bytes(path), path)
    return found


def read_tag(store: TableStore, name: str) -> Snapshot:
    """Return the snapshot that a tag names. Raises SnapshotNotFound naming table and tag, CorruptFile."""
    found = try_read(store, name)
    if found is None:
        known = ", ".join(list_names(store)) or "none"
        raise SnapshotNotFound(f"table {store.name} has no tag '{name}'; it has: {known}")
    return found.snapshot


def try_read(store: TableStore, name: str) -> Tag | None:
    """Return a tag, None when it is not there. Raises CorruptFile, InvalidData for a hostile name."""
    path = tag_path(store, name)
    try:
        return Tag.from_json(store.file_io.read_bytes(path), path)
    except FileNotFoundError:
        return None


def find_snapshot(store: TableStore, snapshot_id: int) -> Snapshot:
    """Return a snapshot that is there, or that has expired and has a tag. Raises SnapshotNotFound (Java `findSnapshot`), CorruptFile."""
    found = snapshots.try_read(store, snapshot_id)
    if found is not None:
        return found
    for tagged in list_tags(store).values():
        if tagged.id == snapshot_id:
            return tagged
    return snapshots.read(store, snapshot_id)


# -- writing -----------------------------------------------------------------------------------------------------------


def check_new_name(store: TableStore, name: str) -> str:
    """Return ``name`` when a tag may be called so. Raises InvalidData for a blank or long one and one that is no plain file name."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidData(store.name, "", f"tag name {name!r} is blank")
    if len(name.encode("utf-8", "surrogatepass")) > _LONGEST:  # drafts of its file have longer names
        raise InvalidData(store.name, "", f"tag name {name[:40]!r}... is longer than {_LONGEST} bytes")
    return check_name(name, store.name, "tag name")


def made_now(store: TableStore, snapshot: Snapshot, time_retained_ms: int | None) -> Tag:
    """A tag of ``snapshot``; as in Java it tells when it was made (this machine's wall clock) only where it is kept for a limited time."""
    if time_retained_ms is None:
        return Tag(snapshot)
    now = store.clock.now_ms()
    return Tag(snapshot, now + local_offset_ms(now), time_retained_ms)


def create(store: TableStore, name: str, tag: Tag) -> bool:
    """Write a new tag; False when there is one of that name. Raises InvalidData, StorageFull.

    Raises SnapshotNotFound, and takes the tag back, when its snapshot expired meanwhile and no other tag names it: its files may be gone.
    """
    path, held = tag_path(store, name), tag.snapshot
    if not store.file_io.write_exclusive(path, tag.to_json()):
        return False
    if not snapshots.exists(store, held.id):
        others = (other for one, other in list_tags(store).items() if one != name)
        if held.id not in {other.id for other in others}:
            store.delete(path)
            raise SnapshotNotFound(
                f"table {store.name}: snapshot {held.id} expired while tag '{name}' was made of it", expired=True
            )
    tell_success(store, name)
    return True


def replace(store: TableStore, name: str, tag: Tag) -> None:
    """Write a tag in place of the one of that name. Raises InvalidData, StorageFull."""
    store.file_io.overwrite(tag_path(store, name), tag.to_json())


def delete(store: TableStore, name: str) -> bool:
    """Delete a tag's files; False when there was no tag. Data files stay. Raises InvalidData."""
    gone = store.delete(tag_path(store, name))
    store.delete(success_path(store, name))
    return gone


def rename(store: TableStore, name: str, new_name: str) -> None:
    """Give a tag another name. Interrupted, it leaves the tag under one or both names, and can be called again.

    Raises SnapshotNotFound naming the tag that is not there, InvalidOption when another tag has the new name, InvalidData.
    """
    old, new = tag_path(store, name), tag_path(store, check_new_name(store, new_name))
    read_tag(store, name)
    data = store.file_io.read_bytes(old)
    if old == new:
        return
    if not store.file_io.write_exclusive(new, data) and store.file_io.read_bytes(new) != data:
        raise InvalidOption("new_name", new_name, "the name of no other tag", store.name)
    if store.file_io.exists(success_path(store, name)):
        told = store.file_io.read_bytes(success_path(store, name))
        store.file_io.overwrite(success_path(store, new_name), told)
    delete(store, name)


def tell_success(store: TableStore, name: str) -> None:
    """Write, or date anew, the file that tells others that the tag is there, where `tag.create-success-file` asks for it."""
    if not store.options.get("tag.create-success-file"):
        return
    path, now = success_path(store, name), store.clock.now_ms()
    created = now
    with suppress(CorruptFile, FileNotFoundError, KeyError, TypeError, ValueError):
        created = time_of(parse_json(store.file_io.read_bytes(path))["creationTime"])
    store.file_io.overwrite(path, pretty({"creationTime": created, "modificationTime": now}).encode())


def periods(store: TableStore) -> TagPeriods | None:
    """Periods of the table's automatic tags (`tag.automatic-creation` process-time or watermark), None where it makes none."""
    options = store.options
    if options.tag_creation not in ("process-time", "watermark"):
        return None
    length = options.get("tag.creation-period-duration")
    return TagPeriods.of(str(options.get("tag.creation-period")), str(options.get("tag.period-formatter")), length)
