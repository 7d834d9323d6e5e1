"""Finds out from the snapshots themselves whether a commit is in the table already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.changes import identities
from lsm_core.errors import SnapshotNotFound
from lsm_core.format.file_meta import ADD
from lsm_core.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore

_CLOCK_SKEW_MS: Final = 3_600_000


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


def find_applied(store: TableStore, lookup: Lookup) -> int | None:
    """The snapshot that holds exactly this commit, or None.

    User, identifier and kind alone do not decide, because batch commits share one identifier: the files it added must be
    ours too (for an overwrite or delete without new files, the files it took away).
    """
    since = _not_before(lookup.entries)
    wanted = _signature(lookup.entries, lookup.kind)
    if not wanted:
        return None
    for snapshot in _newest_first(store):
        if since is not None and snapshot.time_millis < since:
            return None
        if snapshot.commit_user != lookup.user:
            continue
        if snapshot.commit_identifier != lookup.identifier:
            if _older(snapshot.commit_identifier, lookup.identifier):
                return None
            continue
        delta = manifests.delta_entries(store, snapshot) if snapshot.commit_kind == lookup.kind else None
        if delta is not None and _signature(delta, lookup.kind) == wanted:
            return snapshot.id
    return None


def _older(identifier: int, than: int) -> bool:
    """Identifiers of one user never decrease, except that batch commits all share the largest one."""
    return BATCH_COMMIT_IDENTIFIER not in {identifier, than} and identifier < than


def latest_of_user(store: TableStore, user: str) -> LastOfUser | None:
    """The user's newest identifier with the kinds committed under it; None when no snapshot is theirs."""
    identifier: int | None = None
    kinds: set[CommitKind] = set()
    for snapshot in _newest_first(store):
        if snapshot.commit_user != user:
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


def _not_before(entries: pa.Table) -> int | None:
    """A commit cannot be older than its newest file (with an hour for clocks that disagree)."""
    times = entries.column("creation_time_ms")
    if times.null_count:
        return None
    newest = pc.max(times).as_py()
    return None if newest is None else int(newest) - _CLOCK_SKEW_MS


def _signature(entries: pa.Table, kind: CommitKind) -> frozenset[tuple[object, ...]]:
    """What identifies a commit: the files it added; without any, the files it took away (with their kind)."""
    added = entries.filter(pc.equal(entries.column("kind"), ADD))
    if kind is CommitKind.COMPACT or not added.num_rows:
        kinds = entries.column("kind").to_pylist()
        return frozenset((k, *which) for k, which in zip(kinds, identities(entries), strict=True))
    return frozenset((ADD, *which) for which in identities(added))


__all__ = ["LastOfUser", "Lookup", "find_applied", "latest_of_user"]
