"""Tags of a table as refs of its Iceberg metadata, kept equal when tags are created, moved, renamed and deleted.

Source: ``IcebergCommitCallback.notifyCreation``, ``notifyDeletion``.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from lsm_core.iceberg.settings import writes_metadata
from lsm_core.iceberg.state import metadata_folder, version_path
from lsm_core.iceberg.table_metadata import decode_metadata
from lsm_core.metadata import snapshots, tags
from lsm_core.metadata.store import TableStore

_LOG = logging.getLogger(__name__)


def publish_tags(store: TableStore) -> None:
    """Make the refs of the newest Iceberg metadata those of the table's tags; log a failure instead of raising it."""
    try:
        write_tags(store)
    except Exception as error:  # noqa: BLE001 - the tags themselves are changed; the next commit writes the refs
        _LOG.warning("table %s: its tags were not written to its Iceberg metadata: %s", store.name, error)


def write_tags(store: TableStore) -> bool:
    """Make the refs of the newest Iceberg metadata those of the table's tags.

    Tags of snapshots that the metadata does not list are left out, because readers would refuse the metadata.

    Returns:
        Whether the metadata was changed.

    Raises:
        DredgeError: the metadata or a tag cannot be read, or the metadata cannot be written.
    """
    if store.branch != "main" or not writes_metadata(store.options):
        return False
    latest = snapshots.latest(store)
    folder = metadata_folder(store)
    if latest is None or folder is None:
        return False
    path = version_path(folder, latest.id)
    if not store.file_io.exists(path):
        return False
    metadata = decode_metadata(store.file_io.read_bytes(path), path)
    current = metadata.current
    if current is None or not current.is_of(latest):
        return False
    ids = {entry.snapshot_id for entry in metadata.snapshots}
    refs = {name: snapshot.id for name, snapshot in tags.list_tags(store).items() if snapshot.id in ids}
    if refs == dict(metadata.refs):
        return False
    address = metadata.location.rstrip("/")
    prefix = address.removesuffix(store.root) if address.endswith(store.root) else ""
    data = replace(metadata, refs=refs).to_json(prefix + folder, store.clock.now_ms())
    store.file_io.overwrite(path, data)
    return True
