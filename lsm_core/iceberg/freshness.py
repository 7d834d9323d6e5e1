"""Freshness of the Iceberg metadata: the snapshot that Iceberg readers see, compared with the table's newest one.

For a table with a primary key, Iceberg readers see the files that need no merge: those of the top level, or with
published deletion vectors those above level 0. `shown_from_level` has the rule, and `lsm_core.maintenance.iceberg_lag`
the age of the rows that readers do not see.

Source: ``IcebergCommitCallback.shouldAddFileToIceberg``.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lsm_core.errors import CorruptFile
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.iceberg.state import (
    IcebergState,
    IcebergStorage,
    catalog_folder,
    commit_identity,
    is_moved,
    metadata_folder,
    read_state,
    read_version_hint,
    storage_of,
    table_folder,
)
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions

_FORMAT_VERSION: Final = "metadata.iceberg.format-version"
_DATA_KINDS: Final = frozenset({CommitKind.APPEND, CommitKind.OVERWRITE})


class IcebergCondition(StrEnum):
    """Relation of the current Iceberg metadata to the table's newest snapshot."""

    CURRENT = "current"
    """Iceberg readers see the newest snapshot."""
    BEHIND = "behind"
    """Iceberg readers see an older snapshot: a writer stopped before it wrote metadata, or does not write any."""
    MISSING = "missing"
    """There is no metadata yet: no commit has written any since the option was turned on."""
    REPLACED = "replaced"
    """Iceberg readers see a snapshot that a rollback, undo or fast-forward has taken back."""
    MOVED = "moved"
    """The metadata names files in the directory that the table had before it was renamed or copied."""
    UNREADABLE = "unreadable"
    """The current metadata file is damaged."""
    UNLISTED = "unlisted"
    """The metadata is current, but the Hive metastore, where its readers look for it, names none or another."""
    LEFT_OVER = "left over"
    """The option is off, and Iceberg readers still find the metadata of the time when it was on."""


NEEDS_WRITING: Final = frozenset(
    {
        IcebergCondition.BEHIND,
        IcebergCondition.MISSING,
        IcebergCondition.REPLACED,
        IcebergCondition.MOVED,
        IcebergCondition.UNREADABLE,
        IcebergCondition.UNLISTED,
    }
)
"""Conditions that writing the metadata of the newest snapshot ends."""


@dataclass(frozen=True)
class IcebergView:
    """What Iceberg readers of a table see.

    Attributes:
        condition: relation of the metadata to the newest snapshot.
        folder: folder of the metadata.
        newest: id of the table's newest snapshot.
        shown: id of the snapshot that Iceberg readers see, or None if they see none.
        since_ms: commit time (epoch ms) of the oldest snapshot with new rows that the metadata lacks. None if it lacks
            none, or if its snapshot was taken back.
        error: error of reading the metadata or its entry in a metastore, or "".
    """

    condition: IcebergCondition
    folder: str
    newest: int
    shown: int | None = None
    since_ms: int | None = None
    error: str = ""

    @property
    def text(self) -> str:
        """Condition in one sentence for people."""
        shown = "no snapshot" if self.shown is None else f"snapshot {self.shown}"
        return {
            IcebergCondition.CURRENT: f"Iceberg metadata names the newest snapshot {self.newest}",
            IcebergCondition.BEHIND: (
                f"Iceberg metadata names {shown}, and the newest is {self.newest}: the last commits wrote none"
            ),
            IcebergCondition.MISSING: f"there is no Iceberg metadata in {self.folder} yet",
            IcebergCondition.REPLACED: (
                f"Iceberg metadata names {shown}, which a rollback or fast-forward has taken back; the newest is "
                f"{self.newest}"
            ),
            IcebergCondition.MOVED: (
                f"Iceberg metadata in {self.folder} names files in another directory: the table was renamed or copied"
            ),
            IcebergCondition.UNREADABLE: f"the Iceberg metadata is damaged: {self.error}",
            IcebergCondition.UNLISTED: (
                f"Iceberg metadata names the newest snapshot {self.newest}, but its entry in the Hive metastore does "
                f"not: {self.error}"
            ),
            IcebergCondition.LEFT_OVER: (
                f"metadata.iceberg.storage is off, but Iceberg readers still find {shown} in {self.folder}; files that "
                "it names may be deleted: drop the Iceberg table and the folder, or turn the option on"
            ),
        }[self.condition]


def shown_from_level(options: TableOptions) -> int:
    """Return the lowest level whose files Iceberg readers of a table with a primary key see.

    Args:
        options: options of the table.
    """
    vectors = options.deletion_vectors_enabled and bool(options.get("deletion-vectors.bitmap64"))
    if vectors and options.raw.get(_FORMAT_VERSION, "").strip() == "3":
        return 1
    return options.num_levels - 1


def read_view(store: TableStore, newest: Snapshot | None = None) -> IcebergView | None:
    """Return what Iceberg readers of the table see, from small metadata files.

    Args:
        store: the table.
        newest: newest snapshot, if the caller has just read it; None to read it.

    Returns:
        The view. None if the table has no Iceberg metadata, is a branch, or has no snapshot.

    Raises:
        InvalidOption: an option has an unknown value.
    """
    if store.branch != "main":
        return None
    newest = snapshots.latest(store) if newest is None else newest
    if newest is None:
        return None
    folder = metadata_folder(store)
    if folder is None:
        return _left_over(store, newest)
    try:
        state = read_state(store, folder)
    except CorruptFile as error:
        return IcebergView(IcebergCondition.UNREADABLE, folder, newest.id, error=error.finding)
    if state is None or state.current is None:
        return IcebergView(IcebergCondition.MISSING, folder, newest.id, since_ms=_first_time(store, newest))
    shown = state.current.snapshot_id
    condition = _condition(store, state, newest)
    if condition is IcebergCondition.CURRENT and storage_of(store.options) is IcebergStorage.HIVE_CATALOG:
        from lsm_core.iceberg.hive_entry import entry_problem

        problem = entry_problem(store, folder, state.version)
        if problem:
            return IcebergView(IcebergCondition.UNLISTED, folder, newest.id, shown, error=problem)
    since = _time_after(store, state, newest) if condition is IcebergCondition.BEHIND else None
    return IcebergView(condition, folder, newest.id, shown, since)


def _condition(store: TableStore, state: IcebergState, newest: Snapshot) -> IcebergCondition:
    current = state.current
    assert current is not None
    if is_moved(state, store.root):
        return IcebergCondition.MOVED
    if current.snapshot_id > newest.id:
        return IcebergCondition.REPLACED
    is_newest = current.snapshot_id == newest.id
    snapshot = newest if is_newest else snapshots.try_read(store, current.snapshot_id)
    if snapshot is not None and current.commit_identity not in (None, commit_identity(snapshot)):
        return IcebergCondition.REPLACED
    return IcebergCondition.CURRENT if is_newest else IcebergCondition.BEHIND


def _time_after(store: TableStore, state: IcebergState, newest: Snapshot) -> int:
    """Return the commit time (epoch ms) of the first snapshot after the current one of Iceberg that still exists."""
    current = state.current
    assert current is not None
    following = snapshots.try_read(store, current.snapshot_id + 1)
    return min(newest.time_millis, current.timestamp_ms if following is None else following.time_millis)


def _first_time(store: TableStore, newest: Snapshot) -> int:
    earliest = snapshots.earliest_id(store)
    first = None if earliest is None else snapshots.try_read(store, earliest)
    return newest.time_millis if first is None else first.time_millis


def _left_over(store: TableStore, newest: Snapshot) -> IcebergView | None:
    """Return the view of metadata that is left from a time when the option was on, or None without any.

    Only a table whose schema has changed may have had the option, so most tables cost no request, and the others two:
    every engine that writes metadata writes the hint, too.
    """
    if store.schema.id == 0:
        return None
    for folder in (table_folder(store.root), catalog_folder(store.root)):
        if folder is not None and (version := read_version_hint(store.file_io, folder)) is not None:
            return IcebergView(IcebergCondition.LEFT_OVER, folder, newest.id, version)
    return None


class CommitTimes:
    """Times of the commits that wrote rows, read from the snapshots on demand.

    Snapshots are read once each, at most `MOST_READ` of them.
    """

    MOST_READ: Final = 256

    def __init__(self, store: TableStore, newest: int) -> None:
        self._store = store
        self._newest = newest
        self._known: dict[int, Snapshot | None] = {}
        self._ids: list[int] | None = None

    def first_after(self, time_ms: int) -> int:
        """Return the time of the first commit of rows after a time.

        Args:
            time_ms: time of a full compaction (epoch ms), which all earlier rows took part in; 0 without one.

        Returns:
            The time (epoch ms). ``time_ms`` itself, a lower bound, if the snapshots do not reach back that far, are too
            many to read, or show no commit of rows since.
        """
        ids = self._list()
        if len(self._known) >= self.MOST_READ:
            return time_ms
        low, high = 0, len(ids)
        while low < high:  # bisection, because times grow with the ids
            middle = (low + high) // 2
            snapshot = self._read(ids[middle])
            if snapshot is not None and snapshot.time_millis > time_ms:
                high = middle
            else:
                low = middle + 1
        if low == 0 and ids[:1] != [1]:
            return time_ms
        for number in ids[low:]:
            if len(self._known) >= self.MOST_READ:
                break
            snapshot = self._read(number)
            if snapshot is not None and snapshot.commit_kind in _DATA_KINDS:
                return snapshot.time_millis
        return time_ms

    def _list(self) -> list[int]:
        if self._ids is None:
            self._ids = [number for number in snapshots.list_ids(self._store) if number <= self._newest]
        return self._ids

    def _read(self, number: int) -> Snapshot | None:
        if number not in self._known:
            with suppress(CorruptFile):  # other parts of the health report a damaged snapshot
                self._known[number] = snapshots.try_read(self._store, number)
        return self._known.get(number)


def has_storage(store: TableStore) -> bool:
    """Return whether commits of the table are to publish Iceberg metadata.

    Raises:
        InvalidOption: an option has an unknown value.
    """
    return storage_of(store.options) is not IcebergStorage.DISABLED
