"""Partitions of a commit in the list of a metastore (`metastore.partitioned-table`).

Source: Paimon `AddPartitionCommitCallback`, `HiveCatalog.dropPartitions`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import DredgeError
from lsm_core.format.manifest import ADD, partitions_of
from lsm_core.format.partitions import partition_dirs, partition_spec_values
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.branches import MAIN, list_branches, open_branch
from lsm_core.metadata.store import TableStore

_LOG = logging.getLogger(__name__)


def list_partitions(store: TableStore, snapshot: Snapshot, entries: pa.Table) -> None:
    """Add the partitions that a published commit wrote to the metastore's list, and remove those that it emptied.

    A failure does not undo the commit: it is logged as a warning, and the next commit in the partition tries again.

    Args:
        store: the table.
        snapshot: the published snapshot.
        entries: entries of the change.
    """
    if store.partition_list is None or not store.schema.partition_keys:
        return
    adds = pc.equal(entries.column("kind"), ADD)
    added = partitions_of(entries.filter(adds))
    try:
        _add(store, added)
        if snapshot.commit_kind is CommitKind.OVERWRITE:
            deleted = set(partitions_of(entries.filter(pc.invert(adds)))) - set(added)
            emptied = sorted(_without_files(store, snapshot, deleted))
            if emptied:
                store.partition_list.remove(partition_spec_values(store.schema, emptied, store.options))
    except DredgeError as error:
        _LOG.warning(
            "table %s: snapshot %d is published, but the metastore's list of partitions is not up to date: %s; "
            "Catalog.register_table lists all partitions again",
            store.name,
            snapshot.id,
            error,
        )


def list_all_partitions(store: TableStore) -> int:
    """Add all partitions of the newest snapshot to the metastore's list.

    Args:
        store: the table.

    Returns:
        The number of partitions.

    Raises:
        MetastoreFailed: the metastore cannot be used, or refuses the request.
    """
    snapshot = snapshots.latest(store)
    if store.partition_list is None or snapshot is None:
        return 0
    partitions = _live(store, snapshot)
    _add(store, partitions)
    return len(partitions)


def _add(store: TableStore, partitions: list[bytes]) -> None:
    if partitions and store.partition_list is not None:
        specs = partition_spec_values(store.schema, partitions, store.options)
        directories = partition_dirs(store.schema, partitions, store.options)
        store.partition_list.add(list(zip(specs, directories, strict=True)))


def _without_files(store: TableStore, snapshot: Snapshot, partitions: Collection[bytes]) -> set[bytes]:
    """Return those partitions that have no files, neither in a snapshot nor in the newest one of another branch."""
    left = set(partitions)
    if left:
        left -= set(_live(store, snapshot))
    for branch in (MAIN, *list_branches(store)) if left else ():
        if branch != store.branch:
            other = open_branch(store, branch)
            newest = snapshots.latest(other)
            left -= set() if newest is None else set(_live(other, newest))
    return left


def _live(store: TableStore, snapshot: Snapshot) -> list[bytes]:
    return partitions_of(manifests.live_entries(store, snapshot, columns=["partition"]))
