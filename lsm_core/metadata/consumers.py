"""Consumers: how far each stream has read, which holds back expiry. Source class: ``ConsumerManager``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lsm_core.format.side_files import decode_consumer, encode_consumer
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number
from lsm_core.storage import check_name

_PREFIX = "consumer-"
_MOST_ID = 2**63 - 1
"""Ids of snapshots are 64-bit numbers with a sign."""


@dataclass(frozen=True)
class Consumer:
    """Progress of one stream: the id of the snapshot that it reads next, and when it last said so (epoch ms)."""

    consumer_id: str
    next_snapshot: int
    seen_ms: int


def consumer_path(store: TableStore, consumer_id: str) -> str:
    """Return the path of a consumer's file. Raises InvalidData for a hostile name."""
    return f"{store.metadata_root}/consumer/{_PREFIX}{check_name(consumer_id, store.name, 'consumer id')}"


def list_consumers(store: TableStore) -> dict[str, int]:
    """Return each consumer's next snapshot id, by name. Raises CorruptFile naming the file."""
    return {one.consumer_id: one.next_snapshot for one in list_details(store)}


def list_details(store: TableStore) -> list[Consumer]:
    """Return all consumers, by name. Raises CorruptFile naming the file."""
    found: list[Consumer] = []
    for status in store.file_io.list_dir(f"{store.metadata_root}/consumer"):
        if status.is_dir or not status.name.startswith(_PREFIX):
            continue
        try:
            following = decode_consumer(store.file_io.read_bytes(status.path), status.path)
        except FileNotFoundError:  # reset while we were reading
            continue
        found.append(Consumer(status.name[len(_PREFIX) :], following, status.mtime_ms))
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
    return store.delete(consumer_path(store, consumer_id))


def reset_consumer(store: TableStore, consumer_id: str, next_snapshot: int | None = None) -> None:
    """Let a consumer read from ``next_snapshot`` on, or forget it (None). Raises InvalidData, InvalidOption for no snapshot's number."""
    if next_snapshot is None:
        delete_consumer(store, consumer_id)
    else:
        write_consumer(
            store, consumer_id, whole_number(next_snapshot, "next_snapshot", store.name, least=1, most=_MOST_ID)
        )


def list_stale(store: TableStore, now_ms: int) -> list[Consumer]:
    """Return the consumers that said nothing for longer than `consumer.expiration-time` before ``now_ms``; none where that is unset."""
    lasting = store.options.get("consumer.expiration-time")
    return [] if lasting is None else [one for one in list_details(store) if one.seen_ms < now_ms - int(lasting)]


def min_next_snapshot(store: TableStore, but: Collection[str] = ()) -> int | None:
    """Return the smallest next snapshot of all consumers but ``but``, or None without any: nothing from it on may expire."""
    found = list_consumers(store)
    return min((following for name, following in found.items() if name not in but), default=None)
