"""A long-lived writer: many commits, compaction in the background, and a view of the table that follows what others do to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lsm_core.commit import CommitMessage
from lsm_core.errors import InvalidData
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.snapshot import CommitKind
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.write.background import BucketCompaction, Compactor
from lsm_core.write.follow import Follower, News, Place, Touch
from lsm_core.write.key_value import KeyValueBucket
from lsm_core.write.restore import BucketHistory, live_files
from lsm_core.write.table_write import TableWrite

_NEVER: Final = -1


class StreamTableWrite(TableWrite):
    """A writer of one commit user over many commits (Java `StreamTableWriteImpl`, `AbstractFileStoreWrite`).

    Each :meth:`checkpoint` first looks at the snapshots since the last one. Files that others added join the tree of their
    bucket; when others compacted or overwrote a bucket, its tree is read anew and compactions that were not handed out are
    thrown away, so that none is built on files that are gone. Buckets that did nothing since their last commit are released.
    """

    def __init__(self, store: TableStore, commit_user: str, compactor: Compactor | None) -> None:
        """``compactor`` None: nothing is compacted (`write-only`). Raises :class:`UnsupportedFeature`."""
        super().__init__(store, commit_user, compactor=compactor)
        self._history = BucketHistory(store, follow=True)
        self._follower = Follower(store, commit_user)
        self._handed: dict[int, dict[Place, CommitMessage]] = {}
        self._kinds: dict[int, set[CommitKind]] = {}
        self._modified: dict[Place, int] = {}
        self._last = _NEVER
        self._committed = _NEVER

    def compact(self, partition: bytes, bucket: int, full: bool = False) -> None:
        """As :meth:`TableWrite.compact`, over the bucket as it is in the table now."""
        self._catch_up()
        super().compact(partition, bucket, full)

    def checkpoint(self, wait_compaction: bool, commit_identifier: int) -> list[CommitMessage]:
        """Flush everything for the commit ``commit_identifier``, which must be larger than the last one.

        Raises :class:`InvalidData` for an identifier that does not grow, :class:`WriterStale`, and what flushes and
        compactions failed with: nothing was handed out then, abort the writer.
        """
        if commit_identifier <= self._last:
            reason = f"commit identifier {commit_identifier} after {self._last}: identifiers of a writer must grow"
            raise InvalidData(self.store.name, "", reason)
        self._catch_up()
        messages = self._prepared(wait_compaction)
        self._last = commit_identifier
        handed: dict[Place, CommitMessage] = {}
        for message in messages:
            place = message.partition, message.bucket
            if message.is_empty:
                self._release(place)
            else:
                handed[place] = message
                self._modified[place] = commit_identifier
        if handed:
            self._handed[commit_identifier] = handed
        return list(handed.values())

    @property
    def last_identifier(self) -> int:
        """The identifier of the last :meth:`checkpoint`, -1 before the first."""
        return self._last

    @property
    def open_buckets(self) -> int:
        """Buckets that are held open."""
        return len(self._buckets)

    # -- what others did -----------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Follow the table to its newest snapshot."""
        news = self._follower.advance(self._handed)
        renew = self._settled(news)
        if news.lost:
            renew |= set(self._buckets)
        for touch in news.touches:
            if touch.place in self._buckets and self._touched(touch):
                renew.add(touch.place)
        self._renew(renew & set(self._buckets))

    def _touched(self, touch: Touch) -> bool:
        """Take in what another user added to a bucket; whether its tree must be read anew."""
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

    def _settled(self, news: News) -> set[Place]:
        """Forget messages whose outcome is known; the buckets whose tree waited for it, or turned out otherwise than was thought."""
        renew: set[Place] = set()
        self._committed = max([self._committed, *news.own])
        for identifier, kinds in news.own.items():
            self._kinds.setdefault(identifier, set()).update(kinds)
        for identifier, messages in list(self._handed.items()):
            missing = _kinds_of(messages) - self._kinds.get(identifier, set())
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
        """Read the trees of ``places`` as they are at the snapshot that was seen last, our uncommitted files on top."""
        compactions = {place: found for place in places if (found := self._compaction(place)) is not None}
        if not compactions:
            return
        for compaction in compactions.values():
            compaction.discard()
        snapshot = snapshots.read(self.store, self._follower.seen) if self._follower.seen else None
        for place, files in live_files(self.store, snapshot, compactions).items():
            writer = self._buckets[place]
            assert isinstance(writer, KeyValueBucket)
            pending, blocked = self._pending(place)
            tree = {file.file_name: file for file in (*pending, *writer.files, *files)}
            compactions[place].reset(tree.values(), self._follower.seen, blocked)
            writer.number_from(1 + max((file.max_sequence_number for file in tree.values()), default=_NEVER))

    def _pending(self, place: Place) -> tuple[list[DataFileMeta], int | None]:
        """Files of ``place`` that were handed out and are not known to be committed, and the last such commit that compacts."""
        files: list[DataFileMeta] = []
        blocked = None
        for identifier, messages in self._handed.items():
            message = messages.get(place)
            if message is None:
                continue
            if CommitKind.APPEND not in self._kinds.get(identifier, ()):
                files += message.new_files
            if message.compact_before or message.compact_after:
                blocked = identifier
        return files, blocked

    def _compaction(self, place: Place) -> BucketCompaction | None:
        writer = self._buckets.get(place)
        return writer.compaction if isinstance(writer, KeyValueBucket) else None

    def _release(self, place: Place) -> None:
        """Let go of a bucket that has nothing to hand out, once a later commit than its last is in the table."""
        compaction = self._compaction(place)
        if self._modified.get(place, _NEVER) < self._committed and not (compaction and compaction.is_running):
            del self._buckets[place]
            self._modified.pop(place, None)
            self._history.forget(place[0])


def _kinds_of(messages: Mapping[Place, CommitMessage]) -> set[CommitKind]:
    """The snapshots that messages become."""
    kinds = {CommitKind.APPEND for message in messages.values() if message.new_files}
    if any(message.compact_before or message.compact_after for message in messages.values()):
        kinds.add(CommitKind.COMPACT)
    return kinds


__all__ = ["StreamTableWrite"]
