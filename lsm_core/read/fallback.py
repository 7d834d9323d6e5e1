"""Reads of tables that take missing partitions from another branch (`scan.fallback-branch`, `scan.primary-branch`).

A partition is never merged from two branches: the first branch that has it provides all of its rows. Writes,
compactions, changes and streams use the table's own branch only.

Source: ``FallbackReadFileStoreTable``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from lsm_core.errors import SnapshotNotFound, TableNotFound, UnsupportedFeature
from lsm_core.format.manifest import partitions_of
from lsm_core.format.schema import TableSchema
from lsm_core.metadata import branches, snapshots
from lsm_core.metadata.live_files import compacted_only
from lsm_core.metadata.manifests import live_entries
from lsm_core.metadata.store import TableStore
from lsm_core.read.scan import Scan, plan_scan, plan_version, visible
from lsm_core.read.table_versions import Version, naming_lost_version, resolve

FALLBACK: Final = "scan.fallback-branch"
PRIMARY: Final = "scan.primary-branch"
OWN_BRANCH_ONLY: Final[Mapping[str, None]] = {FALLBACK: None, PRIMARY: None}
"""Dynamic options with which a table reads its own branch only."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class OtherBranch:
    """Version of another branch that provides partitions of a read.

    Attributes:
        version: the version of the branch.
        first: whether the branch has priority over the table's own branch.
    """

    version: Version
    first: bool


def find_other_branch(store: TableStore, version_arguments: Mapping[str, Any]) -> OtherBranch | None:
    """Return the version of the other branch that a read of the table needs, or None for a read of one branch.

    As in Java, a branch that does not exist is ignored with a logged error. A snapshot id of the own branch means
    the newest snapshot of the other branch at that time, else for the first snapshot of the other branch.

    Args:
        store: the table.
        version_arguments: the read's version, as one of `snapshot_id`, `tag`, `timestamp_ms` and `watermark`.

    Raises:
        UnsupportedFeature: the branches have different columns or keys.
        SnapshotNotFound: the version does not exist.
    """
    name, first = store.options.get(FALLBACK), False
    if not name:
        name, first = store.options.get(PRIMARY), True
    if not name or name == store.branch:
        return None
    options = {key: value for key, value in store.given_options.items() if key != "bucket"} | dict(OWN_BRANCH_ONLY)
    title = branches.branch_name(store.name, name)
    try:
        other = TableStore.open(store.file_io, store.root, title, store.clock, options, name).in_catalog_of(store)
    except TableNotFound:
        key = PRIMARY if first else FALLBACK
        _LOG.error("table %s: only its own branch is read, because branch %s ('%s') is missing", store.name, name, key)
        return None
    _require_same_rows(store, other)
    return OtherBranch(_version_of_other(store, other, dict(version_arguments)), first)


def _version_of_other(store: TableStore, other: TableStore, arguments: dict[str, Any]) -> Version:
    """Return the version of the other branch that belongs to the version of the table."""
    number = arguments.get("snapshot_id")
    if number is None and all(value is None for value in arguments.values()):
        number = other.options.get("scan.snapshot-id")
    if number is None:
        try:
            return resolve(other, **arguments)
        except SnapshotNotFound:
            if arguments.get("timestamp_ms") is None and not _starts_at_time(other):
                raise
            return Version(None, other)
    other = other.copy({"scan.snapshot-id": None}) if other.options.get("scan.snapshot-id") else other
    ids = snapshots.list_ids(other)
    if not ids:
        return Version(None, other)
    time_ms = snapshots.read(store, int(number)).time_millis
    try:
        return resolve(other, timestamp_ms=time_ms)
    except SnapshotNotFound:
        return resolve(other, snapshot_id=1)


def _starts_at_time(store: TableStore) -> bool:
    return any(store.options.get(key) is not None for key in ("scan.timestamp-millis", "scan.timestamp"))


def _require_same_rows(store: TableStore, other: TableStore) -> None:
    """Raise UnsupportedFeature unless rows of the other branch fit the table.

    Java compares the types of the columns only, and then reads columns with other names by their position.
    """
    own, theirs = (_layout(schema) for schema in (store.schema, other.schema))
    if own != theirs:
        reason = f"a fallback branch with other columns or partition columns ({other.branch})"
        raise UnsupportedFeature(f"{reason}; give branch {other.branch} the columns of the table", store.name)


def _layout(schema: TableSchema) -> tuple[object, ...]:
    columns = [(field.name, field.type.with_nullable(nullable=True)) for field in schema.fields]
    return columns, schema.partition_keys


def plan_read(
    store: TableStore,
    *,
    columns: Sequence[str] | None = None,
    filter: object = None,  # noqa: A002 - the public API calls it so
    levels: Collection[int] | None = None,
    limit: int | None = None,
    dictionaries: bool = False,
    **version_arguments: Any,
) -> Scan:
    """Plan a read as `plan_scan`, with the partitions that the table's options take from another branch.

    Args:
        store: the table.
        columns: columns to return, in this order; None for all.
        filter: condition on the rows: tuples (column, operator, value), SQL text or an Arrow expression; None for all.
        levels: levels of the files to read; None for all.
        limit: number of rows that the caller will read; None for all.
        dictionaries: whether text columns are returned as Arrow dictionaries of int32.
        **version_arguments: `snapshot_id`, `tag`, `timestamp_ms` or `watermark` of the version; None for the newest.

    Raises:
        UnsupportedFeature: the branches have different columns.
        DredgeError: the errors of `plan_scan`.
    """
    how: dict[str, Any] = {"columns": columns, "filter": filter, "limit": limit, "dictionaries": dictionaries}
    how["levels"] = levels
    if not (store.options.get(FALLBACK) or store.options.get(PRIMARY)):
        return plan_scan(store, **version_arguments, **how)
    with store.naming_lost_table():
        version = resolve(store, **version_arguments)
        return plan_branches(version, find_other_branch(store, version_arguments), **how)


def plan_branches(version: Version, other: OtherBranch | None, **how: Any) -> Scan:
    """Plan a read of a version, with partitions of another branch.

    Args:
        version: the version of the table's own branch.
        other: the version of the other branch; None to read the own branch only.
        **how: keyword arguments of `plan_version`, without a choice of partitions.
    """
    with naming_lost_version(version.store, version.snapshot):
        if other is None:
            return plan_version(version, **how)
        theirs = other.version
        primary = theirs if other.first else version
        present = _partitions_of(primary, how.get("levels"))
        own = plan_version(version, **how)
        further = plan_version(theirs, **how)
    origin = theirs.store.branch, theirs.store.schema.id
    marked = [split.of_branch(origin) for split in further.splits]
    before, after = (marked, own.splits) if other.first else (own.splits, marked)
    return replace(own, splits=(*before, *(split for split in after if split.partition not in present)))


def partition_sources(
    version: Version, version_arguments: Mapping[str, Any] | None = None
) -> list[tuple[Version, frozenset[bytes]]]:
    """Return the versions whose partitions a table has, each with the partitions that an earlier version provides.

    Args:
        version: the version of the table's own branch.
        version_arguments: the arguments that chose the version; None for the newest.

    Source: ``FallbackReadScan.listPartitionEntries``.
    """
    store = version.store
    if not (store.options.get(FALLBACK) or store.options.get(PRIMARY)):
        return [(version, frozenset())]
    other = find_other_branch(store, version_arguments or {})
    if other is None:
        return [(version, frozenset())]
    first, second = (other.version, version) if other.first else (version, other.version)
    present: Collection[bytes] = ()
    if first.snapshot is not None:
        present = partitions_of(live_entries(first.store, first.snapshot, columns=["partition"]))
    return [(first, frozenset()), (second, frozenset(present))]


def _partitions_of(version: Version, levels: Collection[int] | None) -> set[bytes]:
    """Return the partitions in which a batch read of some levels (None: all) sees files."""
    store, snapshot = version.store, version.snapshot
    if snapshot is None:
        return set()
    hidden = store.has_primary_key and compacted_only(store)
    keep = partial(visible, store, hidden)
    entries = live_entries(store, snapshot, levels=levels, columns=["partition"], keep=keep)
    return set(partitions_of(entries))
