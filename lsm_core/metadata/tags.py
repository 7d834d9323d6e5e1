"""Tags: named snapshots that outlive expiry. Source class: ``TagManager``."""

from __future__ import annotations

from lsm_core.clock import local_offset_ms
from lsm_core.errors import SnapshotNotFound
from lsm_core.format.side_files import Tag
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import check_name

_PREFIX = "tag-"


def tag_path(store: TableStore, name: str) -> str:
    """Return the path of a tag's file. Raises InvalidData for a hostile name."""
    return f"{store.metadata_root}/tag/{_PREFIX}{check_name(name, store.name, 'tag name')}"


def list_tags(store: TableStore) -> dict[str, Snapshot]:
    """Return every tag with the snapshot it names, by name. Raises CorruptFile."""
    return {name: tag.snapshot for name, tag in list_details(store).items()}


def list_details(store: TableStore) -> dict[str, Tag]:
    """Return every tag with its snapshot, when it was made and how long it is kept, by name. Raises CorruptFile."""
    found: dict[str, Tag] = {}
    for status in store.file_io.list_dir(f"{store.metadata_root}/tag"):
        if status.is_dir or not status.name.startswith(_PREFIX):
            continue
        try:
            found[status.name[len(_PREFIX) :]] = Tag.from_json(store.file_io.read_bytes(status.path), status.path)
        except FileNotFoundError:  # deleted while we were reading
            continue
    return found


def read_tag(store: TableStore, name: str) -> Snapshot:
    """Return the snapshot that a tag names. Raises SnapshotNotFound naming table and tag, CorruptFile."""
    path = tag_path(store, name)
    try:
        return Snapshot.from_json(store.file_io.read_bytes(path), path)
    except FileNotFoundError as error:
        known = ", ".join(sorted(list_tags(store))) or "none"
        raise SnapshotNotFound(f"table {store.name} has no tag '{name}'; it has: {known}") from error


def made_now(store: TableStore, snapshot: Snapshot, time_retained_ms: int | None) -> Tag:
    """A tag of ``snapshot``; as in Java it tells when it was made (this machine's wall clock) only where it is kept for a limited time."""
    if time_retained_ms is None:
        return Tag(snapshot)
    now = store.clock.now_ms()
    return Tag(snapshot, now + local_offset_ms(now), time_retained_ms)


def create(store: TableStore, name: str, tag: Tag) -> bool:
    """Write a new tag; False when there is one of that name. Raises InvalidData, StorageFull.

    Raises SnapshotNotFound, and takes the tag back, when its snapshot expired meanwhile: its files may be gone.
    """
    path = tag_path(store, name)
    if not store.file_io.write_exclusive(path, tag.to_json()):
        return False
    if not snapshots.exists(store, tag.snapshot.id):
        store.file_io.delete(path)
        raise SnapshotNotFound(
            f"table {store.name}: snapshot {tag.snapshot.id} expired while tag '{name}' was made of it", expired=True
        )
    return True
