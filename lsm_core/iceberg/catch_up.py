"""Iceberg metadata brought up to date without a commit: after a rollback, a killed writer, or for a new option."""

from __future__ import annotations

import logging

from lsm_core.iceberg.freshness import NEEDS_WRITING, IcebergCondition, read_view
from lsm_core.iceberg.manifest_damage import read_view_of_files
from lsm_core.iceberg.settings import writes_metadata
from lsm_core.iceberg.writing import write_metadata
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore

_LOG = logging.getLogger(__name__)


def bring_up_to_date(store: TableStore, *, drops_older: bool = False, checks_manifests: bool = False) -> bool:
    """Write the Iceberg metadata of the newest snapshot, unless the metadata names it already.

    The UUID of the Iceberg table stays, so that readers and catalogs go on with the same table.

    Args:
        store: the table.
        drops_older: whether to write metadata of the newest snapshot alone, also if current metadata exists. Iceberg
            readers then no longer read older snapshots, which may expire.
        checks_manifests: whether to write it also if current metadata names damaged manifests (`read_view_of_files`).

    Returns:
        Whether metadata was written.

    Raises:
        DredgeError: the metadata cannot be written.
        OSError: the storage failed.
    """
    if store.branch != "main" or not writes_metadata(store.options):
        return False
    newest = snapshots.latest(store)
    read = read_view_of_files if checks_manifests else read_view
    view = None if newest is None else read(store, newest)
    if newest is None or view is None or not (drops_older or view.condition in NEEDS_WRITING):
        return False
    rebuilds = drops_older or view.condition in (IcebergCondition.MOVED, IcebergCondition.UNREADABLE)
    return write_metadata(store, newest, keeps_table=True, rebuilds=rebuilds)


def publish_history(store: TableStore) -> None:
    """Make Iceberg metadata true after an action that may have changed the table's history; log a failure."""
    try:
        bring_up_to_date(store)
    except Exception as error:  # noqa: BLE001 - the action is done, and the next commit writes the metadata
        _LOG.warning("table %s: its Iceberg metadata was not brought up to date: %s", store.name, error)
