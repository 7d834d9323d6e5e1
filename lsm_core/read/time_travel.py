"""From "which version of the table?" to one snapshot."""

from __future__ import annotations

from typing import Final

from lsm_core.errors import InvalidOption, TableNotFound, UnsupportedFeature
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import schemas, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number

# Options that name another version, or a set of changes: ignoring one would answer another question than the one asked.
_OTHER_READS: Final = (
    "scan.tag-name",
    "scan.timestamp",
    "scan.timestamp-millis",
    "scan.watermark",
    "scan.version",
    "scan.file-creation-time-millis",
    "scan.creation-time-millis",
    "incremental-between",
    "incremental-between-timestamp",
    "incremental-to-auto-tag",
)
_NEWEST: Final = frozenset({"default", "full", "latest-full", "latest"})
_PINNED: Final = frozenset({"default", "from-snapshot", "from-snapshot-full"})


def resolve(store: TableStore, snapshot_id: int | None = None) -> Snapshot | None:
    """The snapshot to read: the one named, else that of the options, else the latest; None when nothing was committed.

    Raises :class:`SnapshotNotFound` (``expired`` set when it once existed) for a named snapshot that is not there,
    :class:`TableNotFound` when the whole table is gone, and as :func:`_of_options`. Source class: ``CoreOptions.startupMode`` for batch reads.
    """
    snapshot_id = _of_options(store) if snapshot_id is None else whole_number(snapshot_id, "snapshot_id", store.name)
    if snapshot_id is not None:
        return snapshots.read(store, snapshot_id)
    found = snapshots.latest(store)
    if found is None and not schemas.list_schema_ids(store.file_io, store.root, store.branch):
        raise TableNotFound(f"table {store.name} was dropped or renamed since it was opened")
    return found


def _of_options(store: TableStore) -> int | None:
    """`scan.snapshot-id`, None for the latest. Raises InvalidOption for a mode that contradicts it, UnsupportedFeature for other reads."""
    options = store.options
    for key in _OTHER_READS:
        if options.get(key) is not None:
            raise UnsupportedFeature(f"read option '{key}'", store.name)
    mode = str(options.get("scan.mode")).lower()
    pinned: int | None = options.get("scan.snapshot-id")
    if mode not in _NEWEST | _PINNED:
        raise UnsupportedFeature(f"read option 'scan.mode' = '{mode}'", store.name)
    if pinned is not None and mode not in _PINNED:
        raise InvalidOption("scan.mode", mode, f"{_listed(_PINNED)} together with scan.snapshot-id", store.name)
    if pinned is None and mode not in _NEWEST:
        raise InvalidOption("scan.mode", mode, f"{_listed(_NEWEST)}, or scan.snapshot-id with it", store.name)
    return pinned


def _listed(modes: frozenset[str]) -> str:
    return ", ".join(sorted(modes))
