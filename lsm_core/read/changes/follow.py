"""What one snapshot adds to a stream, by the table's changelog producer. Source classes: ``FollowUpScanner`` and its kinds."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Final

from lsm_core.errors import InvalidOption
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import snapshots
from lsm_core.metadata.indexes import deletion_vectors
from lsm_core.metadata.store import TableStore
from lsm_core.read.changes.choice import Choice
from lsm_core.read.changes.incremental import added_files, changelog_files, removed_files
from lsm_core.read.changes.rows import Rows, file_rows, removed_rows, split_rows
from lsm_core.read.scan import plan_version
from lsm_core.read.versions import Version

_OVERWRITE: Final = "streaming-read-overwrite"
_APPEND_OVERWRITE: Final = "streaming-read-append-overwrite"


@dataclass(frozen=True)
class Follower:
    """Turns snapshots into rows. ``producer``: "none" for append tables; ``overwrites``: whether OVERWRITE snapshots count."""

    choice: Choice
    producer: str
    overwrites: bool

    @staticmethod
    def of(choice: Choice) -> Follower:
        """Raises InvalidOption when overwrites are asked for where they would be told twice or not at all."""
        store = choice.store
        producer = store.options.changelog_producer if store.has_primary_key else "none"
        wanted = bool(store.options.get(_OVERWRITE))
        if wanted and not store.has_primary_key:
            raise InvalidOption(_OVERWRITE, "true", f"{_APPEND_OVERWRITE} for tables without primary key", store.name)
        if wanted and producer in ("lookup", "full-compaction"):
            accepted = f"false with changelog-producer={producer}, whose compactions tell of overwrites already"
            raise InvalidOption(_OVERWRITE, "true", accepted, store.name)
        appended = bool(store.options.get(_APPEND_OVERWRITE)) and not store.has_primary_key
        return Follower(choice, producer, wanted or appended)

    def changes(self, snapshot: Snapshot) -> Rows | None:
        """The changed rows of a snapshot as they were written, None when it adds nothing to the stream.

        No producer: data files of APPEND snapshots; input: changelog files of APPEND snapshots; lookup and
        full-compaction: those of COMPACT snapshots. An OVERWRITE that counts: what it removed, then what it added.
        """
        store = self.choice.store
        if snapshot.commit_kind is CommitKind.OVERWRITE:
            return self._replaced(snapshot) if self.overwrites else None
        if self.producer == "none":
            found = added_files(store, snapshot) if snapshot.commit_kind is CommitKind.APPEND else None
        else:
            kind = CommitKind.APPEND if self.producer == "input" else CommitKind.COMPACT
            found = changelog_files(store, snapshot) if snapshot.commit_kind is kind else None
        return None if found is None or not found.num_rows else file_rows(self.choice, found)

    def _replaced(self, snapshot: Snapshot) -> Rows:
        store = self.choice.store
        if store.has_primary_key:
            removed = removed_files(store, snapshot)
            before = snapshots.try_read(store, snapshot.id - 1)
            vectors = {} if before is None or not removed.num_rows else deletion_vectors(store, before)
            with closing(removed_rows(self.choice, removed, vectors)) as batches:
                yield from batches
        with closing(file_rows(self.choice, added_files(store, snapshot))) as batches:
            yield from batches

    def whole(self, snapshot: Snapshot) -> Rows:
        """All rows of a version, as a stream begins with them.

        With the producers lookup and full-compaction only what compactions have told of: levels above 0, or the top level. Else
        all that was written, what waits for a compaction too.
        """
        store = self.choice.store
        top = range(store.options.num_levels - 1, store.options.num_levels)
        scan = plan_version(
            Version(snapshot, store),
            columns=self.choice.columns,
            filter=self.choice.predicate,
            levels=top if self.producer == "full-compaction" else None,
            level_0=self.producer != "lookup",
        )
        for split in scan.splits:
            with closing(split_rows(self.choice, split)) as batches:
                yield from batches


def ends_stream(store: TableStore, snapshot: Snapshot | None) -> bool:
    """Whether the snapshot's watermark lies beyond `scan.bounded.watermark` (ms). Source class: ``BoundedChecker``."""
    bound = store.options.get("scan.bounded.watermark")
    if bound is None or snapshot is None or snapshot.watermark is None:
        return False
    return bool(snapshot.watermark > int(bound))


def too_young(store: TableStore, snapshot: Snapshot) -> bool:
    """Whether the snapshot is younger than `streaming.read.snapshot.delay`."""
    delay = store.options.get("streaming.read.snapshot.delay")
    return delay is not None and snapshot.time_millis > store.clock.now_ms() - int(delay)


__all__ = ["Follower", "ends_stream", "too_young"]
