"""Consumers: the read position of each stream; expiry keeps all snapshots from this position on.

Source: ``ConsumerManager``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lsm_core.format.side_files import decode_consumer, encode_consumer
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number
from lsm_core.storage import FileStatus, check_name

_PREFIX = "consumer-"
_MAX_SNAPSHOT_ID = 2**63 - 1
"""Largest snapshot id; ids are signed 64-bit integers."""


@dataclass(frozen=True)
class Consumer:
    """Read position of one stream.

    Attributes:
        consumer_id: id of the consumer (Paimon's `consumer-id`).
        next_snapshot: id of the snapshot that the stream reads next.
        seen_ms: time at which the stream last recorded its position (epoch ms).
    """

    consumer_id: str
    next_snapshot: int
    seen_ms: int


def consumer_path(store: TableStore, consumer_id: str) -> str:
    """Return the path of a consumer's file.

    Raises:
        InvalidData: the name would lead out of the directory.
    """
    return f"{store.metadata_root}/consumer/{_PREFIX}{check_name(consumer_id, store.name, 'consumer id')}"


def list_consumers(store: TableStore) -> dict[str, int]:
    """Return the id of the snapshot that each consumer reads next, by consumer id.

    Raises:
        CorruptFile: a consumer file is unreadable; the message names it.
    """
    return {consumer.consumer_id: consumer.next_snapshot for consumer in list_details(store)}


def list_details(store: TableStore) -> list[Consumer]:
    """Return all consumers, ordered by consumer id.

    Raises:
        CorruptFile: a consumer file is unreadable; the message names it.
    """
    details: list[Consumer] = []
    for status in _list_files(store):
        next_snapshot = read_position(store, status.path)
        if next_snapshot is not None:
            details.append(Consumer(status.name.removeprefix(_PREFIX), next_snapshot, status.mtime_ms))
    return details


def list_paths(store: TableStore) -> dict[str, str]:
    """Return the path of each consumer's file, by consumer id; the files are not read."""
    return {status.name.removeprefix(_PREFIX): status.path for status in _list_files(store)}


def _list_files(store: TableStore) -> list[FileStatus]:
    listed = store.file_io.list_dir(f"{store.metadata_root}/consumer")
    return [status for status in listed if not status.is_dir and status.name.startswith(_PREFIX)]


def read_position(store: TableStore, path: str) -> int | None:
    """Return the id of the snapshot that the consumer of the file ``path`` reads next.

    Returns:
        The id, or None if the file does not exist.

    Raises:
        CorruptFile: the file is unreadable.
    """
    try:
        return decode_consumer(store.file_io.read_bytes(path), path)
    except FileNotFoundError:
        return None


def read_consumer(store: TableStore, consumer_id: str) -> int | None:
    """Return the id of the snapshot that a consumer reads next.

    Returns:
        The id, or None if the consumer has recorded no position.

    Raises:
        CorruptFile: the file is unreadable.
        InvalidData: the name would lead out of the directory.
    """
    return read_position(store, consumer_path(store, consumer_id))


def write_consumer(store: TableStore, consumer_id: str, next_snapshot: int) -> None:
    """Record that a consumer has read all snapshots before ``next_snapshot``; replace its earlier record.

    Raises:
        InvalidData: the name would lead out of the directory.
        StorageFull: the file cannot be written.
    """
    store.file_io.overwrite(consumer_path(store, consumer_id), encode_consumer(next_snapshot))


def delete_consumer(store: TableStore, consumer_id: str) -> bool:
    """Delete a consumer, so that the snapshots that it has not read may expire.

    Returns:
        Whether the consumer existed.

    Raises:
        InvalidData: the name would lead out of the directory.
    """
    return store.delete(consumer_path(store, consumer_id))


def reset_consumer(store: TableStore, consumer_id: str, next_snapshot: int | None = None) -> None:
    """Set a consumer's next snapshot, or delete the consumer.

    Args:
        store: the table.
        consumer_id: id of the consumer.
        next_snapshot: the snapshot to read next, or None to delete the consumer.

    Raises:
        InvalidOption: the number cannot be a snapshot id.
        InvalidData: the name would lead out of the directory.
    """
    if next_snapshot is None:
        delete_consumer(store, consumer_id)
    else:
        write_consumer(
            store, consumer_id, whole_number(next_snapshot, "next_snapshot", store.name, least=1, most=_MAX_SNAPSHOT_ID)
        )


def list_stale(store: TableStore, now_ms: int) -> list[Consumer]:
    """Return the consumers that have not recorded a position for longer than option `consumer.expiration-time`.

    Args:
        store: the table.
        now_ms: the current time (epoch ms).

    Returns:
        The stale consumers; an empty list if the option is not set.
    """
    lifetime = store.options.get("consumer.expiration-time")
    return (
        []
        if lifetime is None
        else [consumer for consumer in list_details(store) if consumer.seen_ms < now_ms - int(lifetime)]
    )


def min_next_snapshot(store: TableStore, excluded: Collection[str] = ()) -> int | None:
    """Return the smallest next snapshot of all consumers; snapshots from this id on must not expire.

    Args:
        store: the table.
        excluded: names of consumers to ignore.

    Returns:
        The id, or None if no consumer remains.
    """
    positions = list_consumers(store)
    return min((next_snapshot for name, next_snapshot in positions.items() if name not in excluded), default=None)
