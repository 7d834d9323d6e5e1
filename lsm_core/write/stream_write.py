"""Long-lived writer: makes many commits, compacts in the background, and reads the snapshots of other writers."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow.compute as pc

from lsm_core.commit import CommitMessage
from lsm_core.errors import CorruptFile, InvalidData, SnapshotNotFound
from lsm_core.format.manifest import ADD, DataFileMeta, ManifestEntry, entries_to_table, table_to_entries
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.store import TableStore
from lsm_core.write.background import BucketCompaction, Compactor
from lsm_core.write.cross_partition import Known
from lsm_core.write.key_value import KeyValueBucket
from lsm_core.write.restore import live_files, live_vectors
from lsm_core.write.table_write import TableWrite

_NEVER: Final = -1


Place = tuple[bytes, int]


@dataclass(frozen=True)
class Touch:
    """Change of one bucket by a snapshot that another writer committed.

    Attributes:
        snapshot_id: id of the snapshot.
        place: partition and bucket.
        added: files that the snapshot added to the bucket, on any level.
        moved: whether the snapshot did more in the bucket than add level-0 files, for example a compaction.
    """

    snapshot_id: int
    place: Place
    added: tuple[DataFileMeta, ...]
    moved: bool


@dataclass
class TableChanges:
    """Changes of the table by the snapshots since the last call of :meth:`Follower.advance`.

    Attributes:
        own: commit kinds of this writer's snapshots, by commit identifier.
        touches: changes by other writers.
        lost: whether some of these snapshots are missing (for example expired), so that any bucket may have changed.
    """

    own: dict[int, set[CommitKind]] = field(default_factory=dict)
    touches: list[Touch] = field(default_factory=list)
    lost: bool = False


class Follower:
    """Reader that reads each new snapshot once, and also the delta manifests of other writers' snapshots.

    An earlier run of the same job has the same commit user; its snapshots are treated like those of other writers.
    """

    def __init__(self, store: TableStore, user: str) -> None:
        self._store, self._user = store, user
        self.seen = snapshots.latest_id(store) or 0

    def advance(self, handed_out: Container[int]) -> TableChanges:
        """Return the changes since the last call; afterwards :attr:`seen` is the newest snapshot's id.

        Args:
            handed_out: identifiers of this writer's commits whose outcome is not known yet.

        Raises:
            CorruptFile: a snapshot or manifest cannot be read.
        """
        changes = TableChanges()
        latest = snapshots.latest_id(self._store) or 0
        if latest < self.seen:  # rolled back: ids are handed out again
            changes.lost = True
        for snapshot_id in range(self.seen + 1, latest + 1):
            try:
                snapshot = snapshots.read(self._store, snapshot_id)
                if snapshot.commit_user == self._user and snapshot.commit_identifier in handed_out:
                    changes.own.setdefault(snapshot.commit_identifier, set()).add(snapshot.commit_kind)
                else:
                    changes.touches += self._touches(snapshot)
            except (SnapshotNotFound, CorruptFile):
                if snapshots.exists(self._store, snapshot_id):
                    raise
                changes.lost = True  # it expired meanwhile
        self.seen = latest
        return changes

    def _touches(self, snapshot: Snapshot) -> Iterator[Touch]:
        entries = manifests.delta_entries(self._store, snapshot)
        for partition, bucket, _, group in bucket_groups(entries):
            plain = pc.and_(pc.equal(group.column("kind"), ADD), pc.equal(group.column("level"), 0))
            added = tuple(entry.file for entry in table_to_entries(group) if entry.kind == ADD)
            yield Touch(snapshot.id, (partition, bucket), added, not pc.all(plain).as_py())


class StreamTableWrite(TableWrite):
    """Writer that makes many commits for one commit user.

    Each :meth:`checkpoint` first reads the snapshots since the previous checkpoint. Files that other writers added are
    added to the LSM tree of their bucket. If another writer compacted or overwrote a bucket, its tree is read again and
    its uncommitted compactions are discarded, because they may refer to deleted files. Buckets without changes since
    their last commit are released.

    Source: Paimon `StreamTableWriteImpl`, `AbstractFileStoreWrite`.
    """

    def __init__(self, store: TableStore, commit_user: str, compactor: Compactor | None) -> None:
        """Open a writer.

        Args:
            store: the table.
            commit_user: commit user, the name of the job.
            compactor: compacts the buckets of this writer; None for no compaction (`write-only`).

        Raises:
            UnsupportedFeature: the table cannot be written.
        """
        super().__init__(store, commit_user, compactor=compactor, follow=True)
        self._follower = Follower(store, commit_user)
        self._handed: dict[int, dict[Place, CommitMessage]] = {}
        self._kinds: dict[int, set[CommitKind]] = {}
        self._modified: dict[Place, int] = {}
        self._last = _NEVER
        self._committed = _NEVER
        # Commits between two full compactions (Java `GlobalFullCompactionSinkWrite`), and the buckets changed
        # since the last one.
        every = store.options.get("full-compaction.delta-commits")
        emits_at_full = store.options.changelog_producer == "full-compaction"
        self._delta_commits = max(1, every or 1) if emits_at_full or every is not None else None
        self._due: set[Place] = set()

    def compact(self, partition: bytes, bucket: int, full: bool = False) -> None:
        """Compact a bucket in this writer, after reading the newest snapshots of the table.

        Args:
            partition: BinaryRow of the partition.
            bucket: number of the bucket.
            full: compact all files, instead of the files that the table's options select.
        """
        self._catch_up()
        super().compact(partition, bucket, full)

    def checkpoint(self, wait_compaction: bool, commit_identifier: int) -> list[CommitMessage]:
        """Flush all buckets and return the messages of one commit.

        With `lookup-wait`, tables whose compactions look up keys wait for these compactions. Every
        `full-compaction.delta-commits` commits, all changed buckets are compacted fully. With the full-compaction
        changelog producer this option defaults to every commit.

        Args:
            wait_compaction: wait for running compactions.
            commit_identifier: number of the commit, larger than the previous identifier.

        Returns:
            One message per changed bucket.

        Raises:
            InvalidData: the identifier is not larger than the previous identifier.
            WriterStale: the table's schema changed.
            DredgeError: a flush or compaction failed. No message was returned; abort the writer.
        """
        if commit_identifier <= self._last:
            reason = f"commit identifier {commit_identifier} after {self._last}: identifiers of a writer must increase"
            raise InvalidData(self.store.name, "", reason)
        self._catch_up()
        # What a lookup tells comes with the rows that it tells of.
        options, compacts = self.store.options, self._compactor is not None and self._compactor.automatic
        looks_up = compacts and options.needs_lookup and bool(options.get("lookup-wait"))
        every = self._delta_commits if compacts else None
        full = every is not None and commit_identifier % every == 0
        messages = self._prepared(wait_compaction or looks_up, full)
        self._due = set() if full else self._due | {(m.partition, m.bucket) for m in messages if not m.is_empty}
        self._last = commit_identifier
        handed: dict[Place, CommitMessage] = {}
        for message in messages:
            place = message.partition, message.bucket
            if not message.is_empty:
                handed[place] = message
                self._modified[place] = commit_identifier
                continue
            # A bucket that has nothing to hand out is let go once a later commit than its last is in the table.
            compaction = self._compaction(place)
            waits = (compaction and compaction.is_running) or (every is not None and place in self._due)
            if self._modified.get(place, _NEVER) < self._committed and not waits:
                del self._buckets[place]
                self._modified.pop(place, None)
                self._history.forget(place[0])
                if self._indexes is not None and all(partition != place[0] for partition, _ in self._buckets):
                    self._indexes.forget(place[0])
        if handed:
            self._handed[commit_identifier] = handed
        return list(handed.values())

    @property
    def last_identifier(self) -> int:
        """Commit identifier of the last :meth:`checkpoint`, or -1 before the first checkpoint."""
        return self._last

    @property
    def open_buckets(self) -> int:
        """Number of open buckets."""
        return len(self._buckets)

    def _known_keys(self) -> Known:
        """Return the state in which keys are looked up: the last snapshot read, and this writer's uncommitted files."""
        waiting = {
            identifier: messages
            for identifier, messages in self._handed.items()
            if CommitKind.APPEND not in self._kinds.get(identifier, ()) and any(m.new_files for m in messages.values())
        }
        self._keys_after = tuple(sorted(waiting))
        pending = [
            ManifestEntry(ADD, message.partition, message.bucket, message.total_buckets, file)
            for messages in waiting.values()
            for message in messages.values()
            for file in message.new_files
        ]
        seen = self._follower.seen
        snapshot = snapshots.read(self.store, seen) if seen else None
        return Known(snapshot, entries_to_table(pending) if pending else None)

    # -- what others did -----------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Read the snapshots up to the newest one."""
        self.store.require_same()
        before = self._follower.seen
        changes = self._follower.advance(self._handed)
        if self._indexes is not None and self._follower.seen != before:
            self._indexes.follow(snapshots.read(self.store, self._follower.seen) if self._follower.seen else None)
        renew = self._settled(changes)
        if changes.lost:
            renew |= set(self._buckets)
        for touch in changes.touches:
            if touch.place in self._buckets and self._touched(touch):
                renew.add(touch.place)
        self._renew(renew & set(self._buckets))

    def _touched(self, touch: Touch) -> bool:
        """Add another writer's new files to a bucket's LSM tree; return whether the tree must be read again instead."""
        writer = self._buckets[touch.place]
        if not isinstance(writer, KeyValueBucket):
            return False
        newest = max((file.max_sequence_number for file in touch.added), default=_NEVER)
        writer.number_from(newest + 1)
        compaction = writer.compaction
        if compaction is None or touch.snapshot_id <= compaction.base:
            return False
        if touch.moved or any(compaction.would_bring_back(file) for file in touch.added):
            return True
        compaction.add(touch.added)
        return False

    def _settled(self, changes: TableChanges) -> set[Place]:
        """Forget messages of commits whose outcome is known; return the buckets whose LSM trees must be read again."""
        renew: set[Place] = set()
        self._committed = max([self._committed, *changes.own])
        for identifier, kinds in changes.own.items():
            self._kinds.setdefault(identifier, set()).update(kinds)
        for identifier, messages in list(self._handed.items()):
            due = {CommitKind.APPEND for message in messages.values() if message.new_files}
            if any(message.compact_before or message.compact_after for message in messages.values()):
                due.add(CommitKind.COMPACT)
            missing = due - self._kinds.get(identifier, set())
            if missing and identifier >= self._committed:
                continue
            for place in messages:
                compaction = self._compaction(place)
                if compaction is not None and (missing or compaction.is_blocked_by(identifier)):
                    renew.add(place)
            del self._handed[identifier]
        self._kinds = {i: kinds for i, kinds in self._kinds.items() if i in self._handed}
        return renew

    def _renew(self, places: set[Place]) -> None:
        """Reset the LSM trees of some buckets to the last snapshot read, and add this writer's uncommitted files."""
        compactions = {place: compaction for place in places if (compaction := self._compaction(place)) is not None}
        if not compactions:
            return
        for compaction in compactions.values():
            compaction.discard()
        snapshot = snapshots.read(self.store, self._follower.seen) if self._follower.seen else None
        trees = live_files(self.store, snapshot, compactions)
        indexes = live_vectors(self.store, snapshot, trees)
        for place, files in trees.items():
            writer = self._buckets[place]
            assert isinstance(writer, KeyValueBucket)
            # Files that were handed out and are not known to be committed, and the last such commit that compacts.
            pending: list[DataFileMeta] = []
            blocked = None
            for identifier, messages in self._handed.items():
                message = messages.get(place)
                if message is None:
                    continue
                if CommitKind.APPEND not in self._kinds.get(identifier, ()):
                    pending += message.new_files
                if message.compact_before or message.compact_after:
                    blocked = identifier
            tree = {file.file_name: file for file in (*pending, *writer.files, *files)}
            compactions[place].reset(tree.values(), self._follower.seen, blocked, indexes.get(place, ()))
            writer.number_from(1 + max((file.max_sequence_number for file in tree.values()), default=_NEVER))

    def _compaction(self, place: Place) -> BucketCompaction | None:
        writer = self._buckets.get(place)
        return writer.compaction if isinstance(writer, KeyValueBucket) else None
