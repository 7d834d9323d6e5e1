"""Finds out from the snapshots themselves whether a commit is in the table already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.changes import identities, rows_of
from lsm_core.errors import SnapshotNotFound
from lsm_core.format.file_meta import ADD, DELETE
from lsm_core.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore

_MOST_SIGNATURES: Final = 1_000
_CLOCK_SKEW_MS: Final = 600_000


@dataclass(frozen=True)
class Lookup:
    """The commit to look for: who, which identifier, which kind, and the entries it brought."""

    user: str
    identifier: int
    kind: CommitKind
    entries: pa.Table


@dataclass(frozen=True)
class LastOfUser:
    """A user's newest commit identifier and the kinds of snapshot it already has."""

    identifier: int
    kinds: frozenset[CommitKind]


class Signatures:
    """Remembers what snapshots brought, so that a stream of commits by one user reads each of them once at most."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[tuple[object, ...]]] = {}

    def of(self, store: TableStore, snapshot: Snapshot) -> frozenset[tuple[object, ...]]:
        """The signature of a snapshot's own changes."""
        key = snapshot.delta_manifest_list  # unlike ids, which a rollback hands out again, its name is unique
        if key not in self._known:
            if len(self._known) >= _MOST_SIGNATURES:
                self._known.clear()
            self._known[key] = _signature(manifests.delta_entries(store, snapshot), snapshot.commit_kind)
        return self._known[key]


def find_applied(store: TableStore, lookup: Lookup, signatures: Signatures) -> int | None:
    """The snapshot that holds exactly this commit, or None.

    User, identifier and kind alone do not decide, because batch commits share one identifier: the files it added must be
    ours too (for an overwrite or delete without new files, the files it took away).
    """
    wanted = _signature(lookup.entries, lookup.kind)
    rows = rows_of(lookup.entries, ADD) - rows_of(lookup.entries, DELETE)
    if not wanted:
        return None
    for snapshot in snapshots_since(store, lookup.entries.column("creation_time_ms").to_pylist()):
        if snapshot.commit_user != lookup.user:
            continue
        if snapshot.commit_identifier != lookup.identifier:
            if _older(snapshot.commit_identifier, lookup.identifier):
                return None
            continue
        if not _may_be(snapshot, lookup.kind, rows):
            continue
        if signatures.of(store, snapshot) == wanted:
            return snapshot.id
    return None


def _may_be(snapshot: Snapshot, kind: CommitKind, rows: int) -> bool:
    """What the snapshot itself tells, before its manifests are read; an overwrite deletes what it finds, so counts differ."""
    return snapshot.commit_kind == kind and (kind is CommitKind.OVERWRITE or snapshot.delta_record_count == rows)


def _older(identifier: int, than: int) -> bool:
    """Identifiers of one user never decrease, except that batch commits all share the largest one."""
    return BATCH_COMMIT_IDENTIFIER not in {identifier, than} and identifier < than


def latest_of_user(store: TableStore, user: str) -> LastOfUser | None:
    """The user's newest numbered commit with the kinds of its snapshots; None when there is none. Batch commits have no number."""
    identifier: int | None = None
    kinds: set[CommitKind] = set()
    for snapshot in _newest_first(store):
        if snapshot.commit_user != user or snapshot.commit_identifier == BATCH_COMMIT_IDENTIFIER:
            continue
        if identifier is not None and snapshot.commit_identifier != identifier:
            break
        identifier = snapshot.commit_identifier
        kinds.add(snapshot.commit_kind)
    return None if identifier is None else LastOfUser(identifier, frozenset(kinds))


def _newest_first(store: TableStore) -> Iterator[Snapshot]:
    latest = snapshots.latest_id(store)
    for snapshot_id in range(latest or 0, 0, -1):
        try:
            yield snapshots.read(store, snapshot_id)
        except SnapshotNotFound:
            return  # expired from here on


def snapshots_since(store: TableStore, created: Sequence[int | None]) -> Iterator[Snapshot]:
    """Snapshots, newest first, that may name files of these creation times (epoch ms; None: unknown).

    A commit cannot be older than its newest file (give or take ten minutes, for clocks that disagree).
    """
    known = [time for time in created if time is not None]
    since = max(known) - _CLOCK_SKEW_MS if known and len(known) == len(created) else None
    for snapshot in _newest_first(store):
        if since is not None and snapshot.time_millis < since:
            return
        yield snapshot


def _signature(entries: pa.Table, kind: CommitKind) -> frozenset[tuple[object, ...]]:
    """What identifies a commit: the files it added; without any, the files it took away (with their kind)."""
    added = entries.filter(pc.equal(entries.column("kind"), ADD))
    if kind is CommitKind.COMPACT or not added.num_rows:
        kinds = entries.column("kind").to_pylist()
        return frozenset((k, *which) for k, which in zip(kinds, identities(entries), strict=True))
    return frozenset((ADD, *which) for which in identities(added))


__all__ = ["LastOfUser", "Lookup", "Signatures", "find_applied", "latest_of_user", "snapshots_since"]
