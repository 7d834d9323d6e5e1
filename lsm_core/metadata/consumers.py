"""Consumers: how far each stream has read, which holds back expiry. Source class: ``ConsumerManager``."""

from __future__ import annotations

from lsm_core.format.side_files import decode_consumer, encode_consumer
from lsm_core.metadata.store import TableStore
from lsm_core.storage import check_name

_PREFIX = "consumer-"


def consumer_path(store: TableStore, consumer_id: str) -> str:
    """Return the path of a consumer's file. Raises InvalidData for a hostile name."""
    return f"{store.metadata_root}/consumer/{_PREFIX}{check_name(consumer_id, store.name, 'consumer id')}"


def list_consumers(store: TableStore) -> dict[str, int]:
    """Return each consumer's next snapshot id, by name. Raises CorruptFile naming the file."""
    found: dict[str, int] = {}
    for status in store.file_io.list_dir(f"{store.metadata_root}/consumer"):
        if status.is_dir or not status.name.startswith(_PREFIX):
            continue
        try:
            following = decode_consumer(store.file_io.read_bytes(status.path), status.path)
        except FileNotFoundError:  # reset while we were reading
            continue
        found[status.name[len(_PREFIX) :]] = following
    return found


def read_consumer(store: TableStore, consumer_id: str) -> int | None:
    """Return the id of the snapshot that the consumer reads next, None when it never said. Raises CorruptFile, InvalidData."""
    path = consumer_path(store, consumer_id)
    try:
        return decode_consumer(store.file_io.read_bytes(path), path)
    except FileNotFoundError:
        return None


def write_consumer(store: TableStore, consumer_id: str, next_snapshot: int) -> None:
    """Record that everything before ``next_snapshot`` was read; replaces what was recorded. Raises InvalidData, StorageFull."""
    store.file_io.overwrite(consumer_path(store, consumer_id), encode_consumer(next_snapshot))


def delete_consumer(store: TableStore, consumer_id: str) -> bool:
    """Forget a consumer, so that it holds back expiry no longer; False when there was none. Raises InvalidData."""
    return store.file_io.delete(consumer_path(store, consumer_id))


def min_next_snapshot(store: TableStore) -> int | None:
    """Return the smallest next snapshot of all consumers, or None without any: nothing from it on may expire."""
    return min(list_consumers(store).values(), default=None)
