"""Marking partitions done, for those who wait for their data: `partition.mark-done-action`. Source class: ``SuccessFileMarkDoneAction``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from lsm_core.errors import CorruptFile, InvalidOption, UnsupportedFeature
from lsm_core.format.json_text import ObjectReader, parse_object, pretty
from lsm_core.format.partition_path import partition_bytes, partition_dir
from lsm_core.metadata.store import TableStore
from lsm_core.storage import inside_really

_ACTIONS: Final = "partition.mark-done-action"
_AT_END: Final = "partition.end-input-to-done"
_SUCCESS_FILE: Final = "success-file"
_KNOWN: Final = (_SUCCESS_FILE, "done-partition", "mark-event", "http-report", "custom")


def mark_partitions_done(store: TableStore, partitions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Carry out `partition.mark-done-action` for whole partitions given as values; returns their paths below the table.

    `success-file`: `_SUCCESS` in the partition's directory, JSON with when it was first and last marked (epoch ms by the table's clock). The
    directory need not hold data. Raises InvalidOption for a table without partitions or an unknown action, InvalidFilter for what
    is no whole partition, UnsupportedFeature for actions that need a metastore, a server or a Java class.
    """
    if not store.schema.partition_keys:
        raise InvalidOption("partitions", list(partitions), "nothing: the table has no partitions", store.name)
    return _mark(store, [partition_bytes(store.schema, values, store.name) for values in partitions])


def mark_end_of_input(store: TableStore, partitions: Iterable[bytes]) -> list[str]:
    """With `partition.end-input-to-done`, mark the partitions (serialised rows) that a batch has written; else nothing. Raises as above."""
    if not store.options.get(_AT_END) or not store.schema.partition_keys:
        return []
    return _mark(store, list(dict.fromkeys(partitions)))


def check_end_of_input(store: TableStore) -> None:
    """With `partition.end-input-to-done`, raise before anything is written what :func:`mark_end_of_input` would."""
    if store.options.get(_AT_END) and store.schema.partition_keys:
        _require_known_actions(store)


def _require_known_actions(store: TableStore) -> None:
    wanted = [one.strip() for one in str(store.options.get(_ACTIONS)).split(",") if one.strip()]
    for action in wanted:
        if action not in _KNOWN:
            raise InvalidOption(_ACTIONS, action, ", ".join(_KNOWN), store.name)
        if action != _SUCCESS_FILE:
            raise UnsupportedFeature(f"marking partitions done by '{action}' ({_ACTIONS})", store.name)


def _mark(store: TableStore, partitions: Sequence[bytes]) -> list[str]:
    _require_known_actions(store)
    now, marked = store.clock.now_ms(), []
    for partition in partitions:
        name = partition_dir(store.schema, partition, store.options)
        path = f"{store.root}/{name}/_SUCCESS"
        store.file_io.mkdirs(f"{store.root}/{name}")
        path = inside_really(store.root, path)
        content = {"creationTime": _created(store, path) or now, "modificationTime": now}
        store.file_io.overwrite(path, pretty(content).encode())
        marked.append(name)
    return marked


def _created(store: TableStore, path: str) -> int | None:
    """When the partition was first marked; None when it never was, or nobody can read it (as Java has it)."""
    try:
        return ObjectReader(parse_object(store.file_io.read_bytes(path), path), path).optional_integer("creationTime")
    except (FileNotFoundError, CorruptFile):
        return None


__all__ = ["check_end_of_input", "mark_end_of_input", "mark_partitions_done"]
