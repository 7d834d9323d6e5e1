"""What happened to the table since a long-lived writer last looked: its own commits, and what others changed in which bucket."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

import pyarrow.compute as pc

from lsm_core.errors import CorruptFile, SnapshotNotFound
from lsm_core.format.file_meta import ADD, DataFileMeta, table_to_entries
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import bucket_groups

Place = tuple[bytes, int]


@dataclass(frozen=True)
class Touch:
    """Snapshot ``snapshot_id``, which is not this writer's, changed a bucket. ``moved``: it did more than add files of level 0."""

    snapshot_id: int
    place: Place
    added: tuple[DataFileMeta, ...]
    moved: bool


@dataclass
class News:
    """``own``: commit identifiers of this writer with the kinds of their snapshots. ``lost``: the history has a gap, so everything may have changed."""

    own: dict[int, set[CommitKind]] = field(default_factory=dict)
    touches: list[Touch] = field(default_factory=list)
    lost: bool = False


class Follower:
    """Reads every new snapshot once, and the deltas of those that are not this writer's: an earlier life of the job has its name too."""

    def __init__(self, store: TableStore, user: str) -> None:
        self._store, self._user = store, user
        self.seen = snapshots.latest_id(store) or 0

    def advance(self, handed_out: Container[int]) -> News:
        """What came since the last call; afterwards :attr:`seen` is the newest snapshot's id. Raises :class:`CorruptFile`.

        ``handed_out``: the identifiers of this writer's commits whose outcome is not known.
        """
        news = News()
        latest = snapshots.latest_id(self._store) or 0
        if latest < self.seen:  # rolled back: ids are handed out again
            news.lost = True
        for snapshot_id in range(self.seen + 1, latest + 1):
            try:
                snapshot = snapshots.read(self._store, snapshot_id)
                if snapshot.commit_user == self._user and snapshot.commit_identifier in handed_out:
                    news.own.setdefault(snapshot.commit_identifier, set()).add(snapshot.commit_kind)
                else:
                    news.touches += self._touches(snapshot)
            except (SnapshotNotFound, CorruptFile):
                if snapshots.exists(self._store, snapshot_id):
                    raise
                news.lost = True  # it expired meanwhile
        self.seen = latest
        return news

    def _touches(self, snapshot: Snapshot) -> Iterator[Touch]:
        entries = manifests.delta_entries(self._store, snapshot)
        for partition, bucket, _, group in bucket_groups(entries):
            plain = pc.and_(pc.equal(group.column("kind"), ADD), pc.equal(group.column("level"), 0))
            added = tuple(entry.file for entry in table_to_entries(group) if entry.kind == ADD)
            yield Touch(snapshot.id, (partition, bucket), added, not pc.all(plain).as_py())


__all__ = ["Follower", "News", "Place", "Touch"]
