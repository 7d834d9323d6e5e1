"""Where a stream begins: with a version in full, or with the changes of a snapshot. Source class: ``StartingScanner``."""

from __future__ import annotations

from dataclasses import dataclass

from lsm_core.errors import InvalidOption
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import consumers, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import parse_digits, whole_number
from lsm_core.read.changes.history import earliest_kept, first_since
from lsm_core.read.versions import Mode, Startup, millis, newest_compacted, startup


@dataclass(frozen=True)
class Start:
    """``full``: the version to read as a whole first, None for none; ``following``: the snapshot whose changes come then."""

    following: int
    full: Snapshot | None = None


@dataclass(frozen=True)
class Beginning:
    """How one stream begins, checked and settled when it is opened, but for what the table does not have yet."""

    store: TableStore
    consumer_id: str | None
    from_snapshot: int | None
    asked: Startup

    @staticmethod
    def of(store: TableStore, consumer_id: str | None, from_snapshot: int | None) -> Beginning:
        """Raises InvalidOption for options that no stream can begin with."""
        number = None if from_snapshot is None else whole_number(from_snapshot, "from_snapshot", store.name, least=0)
        asked = startup(store)
        if asked.changes or (asked.mode is Mode.FROM_SNAPSHOT and _number(asked) is None):
            raise InvalidOption(str(asked.key), asked.value, "nothing in a stream: it begins at a snapshot", store.name)
        return Beginning(store, consumer_id, number, asked)

    def find(self) -> Start | None:
        """Where the stream begins; None while nothing is committed that it could begin with.

        A consumer goes on where it was; else ``from_snapshot`` counts, else the options. Snapshots that are not kept any more
        are passed over, as in Java. Raises SnapshotNotFound, CorruptFile.
        """
        store = self.store
        if self.consumer_id is not None and not store.options.get("consumer.ignore-progress"):
            progress = consumers.read_consumer(store, self.consumer_id)
            if progress is not None:
                return self._follow(progress)
        if self.from_snapshot is not None:
            return self._follow(self.from_snapshot)
        if self.asked.mode is Mode.FROM_SNAPSHOT:
            return self._follow(_number(self.asked) or 0)
        if self.asked.mode is Mode.FROM_TIMESTAMP:
            since = first_since(store, millis(store, str(self.asked.key), self.asked.value))
            return None if since is None else Start(since)
        if self.asked.mode is Mode.FROM_CREATION:
            return self._created_since(int(self.asked.value))
        if self.asked.mode is Mode.LATEST:
            return Start((snapshots.latest_id(store) or 0) + 1)
        full = self._full()
        return None if full is None else Start(full.id + 1, full)

    def settled(self) -> int | None:
        """The snapshot that comes first where that is settled by opening the stream (mode latest), else None."""
        start = self.find() if self.asked.mode is Mode.LATEST else None
        return None if start is None else start.following

    def _follow(self, snapshot_id: int) -> Start | None:
        first = earliest_kept(self.store)
        return None if first is None else Start(max(snapshot_id, first))

    def _created_since(self, moment: int) -> Start | None:
        """The changes since ``moment``; all files made since then, when older snapshots are not kept that would show it."""
        first, since = earliest_kept(self.store), first_since(self.store, moment)
        last = snapshots.latest_id(self.store)
        if first is None or since is None or last is None:
            return None
        if first < since <= last:
            return Start(since)
        full = snapshots.latest(self.store)
        return None if full is None else Start(full.id + 1, full)

    def _full(self) -> Snapshot | None:
        store = self.store
        if self.asked.mode is Mode.FROM_SNAPSHOT_FULL:
            first = snapshots.earliest_id(store)
            return None if first is None else snapshots.read(store, max(int(self.asked.value), first))
        compacted = newest_compacted(store) if self.asked.mode is Mode.COMPACTED_FULL else None
        return compacted or snapshots.latest(store)


def _number(asked: Startup) -> int | None:
    """The snapshot id that the options name, None where they name something else."""
    if asked.key == "scan.snapshot-id":
        return int(asked.value)
    text = str(asked.value)
    return parse_digits(text) if asked.key == "scan.version" and text.isdigit() else None


__all__ = ["Beginning", "Start"]
