"""Consumers: how far each stream has read, which holds back expiry. Read-only here. Source class: ``ConsumerManager``."""

from __future__ import annotations

from lsm_core.format.side_files import decode_consumer
from lsm_core.metadata.store import TableStore

_PREFIX = "consumer-"


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


def min_next_snapshot(store: TableStore) -> int | None:
    """Return the smallest next snapshot of all consumers, or None without any: nothing from it on may expire."""
    return min(list_consumers(store).values(), default=None)
