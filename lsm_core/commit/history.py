"""Search in the snapshots of a table for a commit or a file that the table may already contain or have contained."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.message import CommitMessage, identities, rows_of
from lsm_core.errors import CommitConflict, ConflictKind, SnapshotNotFound
from lsm_core.format.manifest import ADD, DELETE
from lsm_core.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from lsm_core.metadata import changelogs, manifests, snapshots, tags
from lsm_core.metadata.branches import all_stores
from lsm_core.metadata.store import TableStore

_MOST_SIGNATURES: Final = 1_000
_CLOCK_SKEW_MS: Final = 600_000
_ADDS_LEVEL0: Final = frozenset({CommitKind.APPEND, CommitKind.OVERWRITE})


@dataclass(frozen=True)
class Lookup:
    """Commit that is searched for in the snapshots of a table.

    Attributes:
        user: commit user.
        identifier: commit identifier.
        kind: kind of the snapshot that the commit publishes.
        entries: ADD and DELETE entries of the commit's data files.
        index: names of the commit's new index files.
    """

    user: str
    identifier: int
    kind: CommitKind
    entries: pa.Table
    index: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LastOfUser:
    """Newest commit of a user that has a commit identifier of its own, as commits of streams do.

    Attributes:
        identifier: commit identifier.
        kinds: kinds of the snapshots that this user published with this identifier: one or two.
        snapshot_id: id of the newest of these snapshots.
    """

    identifier: int
    kinds: frozenset[CommitKind]
    snapshot_id: int


class Signatures:
    """Cache of the file sets by which a repeated commit is recognised, one set for each snapshot.

    The set of a snapshot (its signature) has the files that the snapshot added, and for a COMPACT also those that it
    removed. With the cache, a stream of commits reads each snapshot at most once.
    """

    def __init__(self) -> None:
        self._known: dict[str, frozenset[tuple[object, ...]]] = {}

    def of(self, store: TableStore, snapshot: Snapshot) -> frozenset[tuple[object, ...]]:
        """Return the signature of a snapshot: the set of the files that its own changes added or removed."""
        key = snapshot.delta_manifest_list  # unique, whereas ids are reused after a rollback
        if key not in self._known:
            if len(self._known) >= _MOST_SIGNATURES:
                self._known.clear()
            self._known[key] = _signature(manifests.delta_entries(store, snapshot), snapshot.commit_kind)
        return self._known[key]


def find_applied(store: TableStore, lookup: Lookup, signatures: Signatures) -> int | None:
    """Return the id of the snapshot with exactly this commit, or None.

    All batch commits have the same identifier, so user, identifier and kind are not sufficient: the added files must be
    the same too. For a COMPACT, or a commit without added files, all added and removed files must be the same. A commit
    of index files alone is recognised by its new index files.
    """
    signature = _signature(lookup.entries, lookup.kind)
    rows = rows_of(lookup.entries, ADD) - rows_of(lookup.entries, DELETE)
    if not signature and not lookup.index:
        return None
    for snapshot in snapshots_since(store, lookup.entries.column("creation_time_ms").to_pylist()):
        if snapshot.commit_user != lookup.user:
            continue
        if snapshot.commit_identifier != lookup.identifier:
            # Identifiers of one user never decrease, except that batch commits all share the largest one.
            numbered = BATCH_COMMIT_IDENTIFIER not in {snapshot.commit_identifier, lookup.identifier}
            if numbered and snapshot.commit_identifier < lookup.identifier:
                return None
            continue
        # The fields of the snapshot are compared before its manifests are read. The row counts of an overwrite
        # may differ, because it deletes the files that it finds.
        same_count = lookup.kind is CommitKind.OVERWRITE or snapshot.delta_record_count == rows
        if snapshot.commit_kind != lookup.kind or not same_count or signatures.of(store, snapshot) != signature:
            continue
        # A commit without data files (only vectors changed) is recognised by the index files that it added.
        if signature or lookup.index <= _index_names(store, snapshot) - _index_names_before(store, snapshot):
            return snapshot.id
    return None


def _index_names(store: TableStore, snapshot: Snapshot) -> set[str]:
    return {entry.file_name for entry in manifests.index_entries(store, snapshot)}


def _index_names_before(store: TableStore, snapshot: Snapshot) -> set[str]:
    before = snapshots.try_read(store, snapshot.id - 1)
    return set() if before is None else _index_names(store, before)


def latest_of_user(store: TableStore, user: str) -> LastOfUser | None:
    """Return the user's newest commit with an identifier of its own, or None; batch commits share one identifier."""
    own_snapshots: list[Snapshot] = []
    for snapshot in _newest_first(store):
        if snapshot.commit_user != user or snapshot.commit_identifier == BATCH_COMMIT_IDENTIFIER:
            continue
        if own_snapshots and snapshot.commit_identifier != own_snapshots[0].commit_identifier:
            break
        own_snapshots.append(snapshot)
    if not own_snapshots:
        return None
    return LastOfUser(
        own_snapshots[0].commit_identifier,
        frozenset(snapshot.commit_kind for snapshot in own_snapshots),
        own_snapshots[0].id,
    )


def _newest_first(store: TableStore) -> Iterator[Snapshot]:
    latest = snapshots.latest_id(store)
    for snapshot_id in range(latest or 0, 0, -1):
        try:
            yield snapshots.read(store, snapshot_id)
        except SnapshotNotFound:
            return  # expired from here on


def snapshots_since(store: TableStore, created: Sequence[int | None]) -> Iterator[Snapshot]:
    """Yield the snapshots, newest first, that may have added files created at ``created`` (epoch ms; None if unknown).

    A commit is not older than its newest file; clocks of different machines may differ by up to ten minutes.
    """
    since = _since(created, max)
    for snapshot in _newest_first(store):
        if since is not None and snapshot.time_millis < since:
            return
        yield snapshot


def _since(created: Sequence[int | None], pick: Callable[[Iterable[int]], int]) -> int | None:
    known = [time for time in created if time is not None]
    return pick(known) - _CLOCK_SKEW_MS if known and len(known) == len(created) else None


@dataclass(frozen=True)
class _Seen:
    """Snapshot that was the newest when a message was made or checked; its id is 0 if the table had no snapshot.

    Ids are reused after a rollback, so the name of the delta manifest list identifies the snapshot.

    Attributes:
        snapshot_id: id of the snapshot, or 0.
        delta_list: name of the snapshot's delta manifest list; empty if unknown.
    """

    snapshot_id: int
    delta_list: str = ""

    def is_below(self, store: TableStore, latest: Snapshot) -> bool | None:
        """Return whether this snapshot is ``latest`` or an ancestor of it.

        The result is None if this snapshot has expired or its manifest list is unknown.
        """
        if not 0 < self.snapshot_id <= latest.id:
            return self.snapshot_id == 0
        if not self.delta_list:
            return None
        same_id = latest if self.snapshot_id == latest.id else snapshots.try_read(store, self.snapshot_id)
        return None if same_id is None else same_id.delta_manifest_list == self.delta_list


class AddedFiles:
    """New files of messages, and the check whether the table has or had any of them.

    A file that was added before must never be added again. Its rows may already be in the output of a compaction, or
    may have been deleted, and the file itself may be deleted at any time. Only commits after the creation of the
    messages are read: the snapshots after the oldest origin (newest snapshot when a message was made) or, without
    origins, after the files' creation times. If these snapshots have expired, everything that can keep their files is
    read: tags, branches, changelogs and the deletion records of the trash.
    """

    def __init__(self, store: TableStore, messages: Sequence[CommitMessage]) -> None:
        self._store, self._complete = store, True
        mine = [message for message in messages if message.written()]
        self.names = frozenset(file.file_name for message in mine for file in message.written())
        self._partitions = sorted({message.partition for message in mine})
        known = [message.origin for message in mine if message.origin is not None]
        oldest = min(
            (_Seen(origin.snapshot_id, origin.delta_list) for origin in known),
            key=lambda origin: origin.snapshot_id,
            default=_Seen(0),
        )
        self._origin = oldest if len(known) == len(mine) else None
        self._last_checked: _Seen | None = None
        self._lines: dict[tuple[_Seen, str], bool | None] = {}
        self._oldest = _since([file.creation_time_ms for message in mine for file in message.own_files()], min)

    def are_new(self, latest: Snapshot) -> bool:
        """Return whether all snapshots since the messages' creation exist, and none of them added one of the files.

        If so, none of the files was ever in the table, and :meth:`require_new` does not read these snapshots again.
        """
        if not self._is_below(self._last_checked, latest) and not self._is_below(self._origin, latest):
            return False
        for snapshot in self._later(latest, self._last_checked):
            if snapshot.commit_kind in _ADDS_LEVEL0 and self._named(manifests.delta_entries(self._store, snapshot)):
                return False
        if self._complete:
            self._last_checked = _Seen(latest.id, latest.delta_manifest_list)
        return self._complete

    def require_new(self, latest: Snapshot | None) -> None:
        """Raise :class:`CommitConflict` if a file is or was in the table; the error names the commit if it is known.

        A repeated call at a later snapshot reads only the new snapshots.
        """
        for snapshot in self._later(latest, self._last_checked):
            if snapshot.commit_kind in _ADDS_LEVEL0:
                known_names = self._named(manifests.delta_entries(self._store, snapshot))
                if known_names:
                    self._refuse(known_names, snapshot)
        if not self._complete:
            self._refuse(self._kept(), None)
        self._last_checked = None if latest is None else _Seen(latest.id, latest.delta_manifest_list)

    def in_use(self) -> set[str]:
        """Return the names of the messages' files that the table uses: files that are live, were added, or are kept.

        Tags, branches, changelogs and the deletion records of the trash keep files. The result includes index files.
        """
        latest = snapshots.latest(self._store)
        if latest is None or not self.names:
            return set()
        used_names = self._used(self._store, latest)
        for snapshot in self._later(latest):
            used_names |= self._named(manifests.delta_entries(self._store, snapshot))
            used_names |= self._named(manifests.changelog_entries(self._store, snapshot))
            used_names |= self.names & _index_names(self._store, snapshot)
        return used_names if self._complete else used_names | self._kept()

    def _later(self, latest: Snapshot | None, known: _Seen | None = None) -> Iterator[Snapshot]:
        """Yield the snapshots after ``known``, newest first, that may have added the files.

        At the end, :attr:`_complete` is True if no snapshot was missing.

        ``latest``: newest snapshot, or None. ``known``: last snapshot to leave out; None to use the messages' creation.
        """
        self._complete = True
        newest, counted, first = 0 if latest is None else latest.id, False, 0
        if latest is not None and known is not None and self._is_below(known, latest):
            counted, first = True, known.snapshot_id
        elif latest is not None and self._origin is not None:
            counted = self._is_below(self._origin, latest) is not False  # else rolled back: times decide
            first = self._origin.snapshot_id if counted else 0
        for number in range(newest, first, -1):
            snapshot = latest if latest is not None and number == newest else snapshots.try_read(self._store, number)
            if snapshot is None:
                self._complete = False
                return
            if not counted and self._oldest is not None and snapshot.time_millis < self._oldest:
                return
            yield snapshot

    def _is_below(self, seen: _Seen | None, latest: Snapshot) -> bool | None:
        """Return whether ``seen`` is ``latest`` or an ancestor of it, computed once per attempt; False for no ``seen``.

        The result is None if this is unknown, because ``seen`` has expired or its manifest list is unknown.
        """
        if seen is None:
            return False
        line = (seen, latest.delta_manifest_list)
        if line not in self._lines:
            self._lines[line] = seen.is_below(self._store, latest)
        return self._lines[line]

    def _kept(self) -> set[str]:
        """Return the names of files that tags, branches, changelogs or the trash keep after snapshots expired."""
        kept_names: set[str] = set()
        for store in all_stores(self._store):
            newest = snapshots.latest(store) if store.branch != self._store.branch else None
            for snapshot in [*tags.list_tags(store).values(), *([newest] if newest is not None else [])]:
                kept_names |= self._used(store, snapshot)
            for number in changelogs.list_changelogs(store):
                changelog = changelogs.read_changelog(store, number)
                if self._oldest is None or changelog.time_millis >= self._oldest:
                    kept_names |= self._named(changelogs.kept_entries(store, changelog))
        for status in self._store.file_io.list_dir(self._store.trash_dir):
            with suppress(FileNotFoundError):  # swept meanwhile
                words = re.split(rb'["/]', self._store.file_io.read_bytes(status.path))
                kept_names |= self.names & {word.decode(errors="replace") for word in words}
        return kept_names

    def _used(self, store: TableStore, snapshot: Snapshot) -> set[str]:
        live = manifests.live_entries(store, snapshot, partitions=self._partitions, columns=["file_name"])
        return self._named(live) | (self.names & _index_names(store, snapshot))

    def _named(self, entries: pa.Table) -> set[str]:
        name_array = pa.array(sorted(self.names), pa.string())
        names = entries.column("file_name")
        return set(names.filter(pc.is_in(names, name_array)).to_pylist())

    def _refuse(self, names: set[str], snapshot: Snapshot | None) -> None:
        if names:
            user, number = (None, None) if snapshot is None else (snapshot.commit_user, snapshot.id)
            reason = (
                f"table {self._store.name}: these files were already committed; messages can be committed only once"
            )
            raise CommitConflict(ConflictKind.FILES_KNOWN, sorted(names), user, number, reason)


def _signature(entries: pa.Table, kind: CommitKind) -> frozenset[tuple[object, ...]]:
    """Return the signature of a commit: a set that identifies the commit by its files.

    The set has the identity (`IDENTITY`) of each added file. For a COMPACT, or a commit without added files, the set
    has all added and removed files, each with the kind of its entry.
    """
    added = entries.filter(pc.equal(entries.column("kind"), ADD))
    if kind is CommitKind.COMPACT or not added.num_rows:
        kinds = entries.column("kind").to_pylist()
        return frozenset((k, *which) for k, which in zip(kinds, identities(entries), strict=True))
    return frozenset((ADD, *which) for which in identities(added))
