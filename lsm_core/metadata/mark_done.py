"""Marking partitions as done for downstream consumers: `partition.mark-done-action`.

Source: ``SuccessFileMarkDoneAction``, ``MarkPartitionDoneEventAction``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from lsm_core.errors import CorruptFile, InvalidOption, UnsupportedFeature
from lsm_core.format.partitions import partition_bytes, partition_dir, partition_spec_values
from lsm_core.json_text import ObjectReader, parse_object, pretty
from lsm_core.metadata.store import PartitionList, SnapshotPublisher, TableStore
from lsm_core.storage import inside_really

_ACTIONS: Final = "partition.mark-done-action"
_AT_END: Final = "partition.end-input-to-done"
_SUCCESS_FILE, _EVENT = "success-file", "mark-event"
_IN_METASTORE: Final = "metastore.partitioned-table"
_KNOWN: Final = (_SUCCESS_FILE, "done-partition", _EVENT, "http-report", "custom")


def mark_partitions_done(store: TableStore, partitions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Run the actions of option `partition.mark-done-action` for whole partitions.

    `success-file` writes `_SUCCESS` into the partition's directory: JSON with the first and last time of marking (epoch
    ms, table clock). The directory need not contain data. `mark-event` marks the partition on the catalog server or in
    the Hive metastore that keeps the table's partitions (`metastore.partitioned-table`).

    Args:
        store: the table.
        partitions: values of all partition columns, one mapping per partition.

    Returns:
        Paths of the partitions, relative to the table's directory.

    Raises:
        InvalidOption: the table has no partitions, or an action is unknown.
        InvalidFilter: a mapping does not describe a whole partition.
        UnsupportedFeature: an action needs a metastore, a server or a Java class.
    """
    if not store.schema.partition_keys:
        raise InvalidOption("partitions", list(partitions), "no value: the table has no partitions", store.name)
    return _mark(store, [partition_bytes(store.schema, values, store.name) for values in partitions])


def mark_end_of_input(store: TableStore, partitions: Iterable[bytes]) -> list[str]:
    """Mark the partitions that a batch has written, if `partition.end-input-to-done` is set.

    Args:
        store: the table.
        partitions: serialised rows of the written partitions.

    Returns:
        Paths of the marked partitions, relative to the table's directory.

    Raises:
        InvalidOption: an action of `partition.mark-done-action` is unknown.
        UnsupportedFeature: an action needs a metastore, a server or a Java class.
    """
    if not store.options.get(_AT_END) or not store.schema.partition_keys:
        return []
    return _mark(store, list(dict.fromkeys(partitions)))


def check_end_of_input(store: TableStore) -> None:
    """Check before a write that the actions of `partition.mark-done-action` can be run at the end of the write.

    Raises:
        InvalidOption: an action is unknown.
        UnsupportedFeature: an action needs a metastore, a server or a Java class.
    """
    if store.options.get(_AT_END) and store.schema.partition_keys:
        _require_known_actions(store)


def _require_known_actions(store: TableStore) -> list[str]:
    """Return the actions of `partition.mark-done-action`, after checking that each can be run."""
    actions = [action.strip() for action in str(store.options.get(_ACTIONS)).split(",") if action.strip()]
    for action in actions:
        if action not in _KNOWN:
            raise InvalidOption(_ACTIONS, action, ", ".join(_KNOWN), store.name)
        if action == _EVENT and (_marker(store) is None or not store.options.get(_IN_METASTORE)):
            needs = f"which needs a catalog server or Hive metastore that keeps its partitions ({_IN_METASTORE} = true)"
            raise UnsupportedFeature(f"marking partitions done by '{action}' ({_ACTIONS}), {needs}", store.name)
        if action not in (_SUCCESS_FILE, _EVENT):
            raise UnsupportedFeature(f"marking partitions done by '{action}' ({_ACTIONS})", store.name)
    return actions


def _mark(store: TableStore, partitions: Sequence[bytes]) -> list[str]:
    actions = _require_known_actions(store)
    now = store.clock.now_ms()
    names = [partition_dir(store.schema, partition, store.options) for partition in partitions]
    for name in names if _SUCCESS_FILE in actions else ():
        path = f"{store.root}/{name}/_SUCCESS"
        store.file_io.mkdirs(f"{store.root}/{name}")
        path = inside_really(store.root, path)
        content = {"creationTime": _read_creation_time(store, path) or now, "modificationTime": now}
        store.file_io.overwrite(path, pretty(content).encode())
    marker = _marker(store)
    if _EVENT in actions and marker is not None:
        marker.mark_partitions_done(partition_spec_values(store.schema, partitions, store.options), store.branch)
    return names


def _marker(store: TableStore) -> SnapshotPublisher | PartitionList | None:
    """Return the server that keeps the partitions of a table, or None."""
    return store.publisher if store.publisher is not None else store.partition_list


def _read_creation_time(store: TableStore, path: str) -> int | None:
    """Return the time (epoch ms) at which a partition was first marked, from its marker file ``path``.

    The result is None if the partition was not marked, or if the file is unreadable (as in Java).
    """
    try:
        return ObjectReader(parse_object(store.file_io.read_bytes(path), path), path).optional_integer("creationTime")
    except (FileNotFoundError, CorruptFile):
        return None
