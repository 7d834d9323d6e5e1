"""Turns messages into snapshots: succeeded, failed or unknown, and safe to ask again (format.md 14)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lsm_core.commit.attempt import CommitRun, KnownBase, Request
from lsm_core.commit.changes import Parts, has_deletes, split
from lsm_core.commit.history import Lookup, Signatures, find_applied, latest_of_user
from lsm_core.commit.message import CommitMessage
from lsm_core.commit.overwrite import Scope, entries_source, scope_of
from lsm_core.commit.phases import CommitHooks
from lsm_core.errors import CommitUnknown
from lsm_core.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_compactable, require_writable

BATCH: Final = BATCH_COMMIT_IDENTIFIER


@dataclass(frozen=True)
class CommitResult:
    """Ids of the snapshots that hold the commit: none for an empty one, two when data and compaction came together."""

    snapshot_ids: list[int]

    @property
    def snapshot_id(self) -> int | None:
        """The last of them."""
        return self.snapshot_ids[-1] if self.snapshot_ids else None


class Committer:
    """Commits messages of one user to one table (Java `FileStoreCommitImpl`).

    Outcomes: a result; :class:`CommitConflict` or another error = definitely nothing happened (own manifests are
    removed, the caller may :func:`abort` its data files); :class:`CommitUnknown` = nothing was cleaned, and committing the
    same messages again with the same user finds out whether they are in already.
    """

    def __init__(self, store: TableStore, commit_user: str | None = None, hooks: CommitHooks | None = None) -> None:
        """``commit_user`` None makes a fresh one; name it to make retries from other processes recognisable."""
        self._store = store
        self._named = commit_user is not None
        self.commit_user = commit_user or str(uuid.uuid4())
        self._hooks = hooks or CommitHooks()
        self._base = KnownBase()
        self._signatures = Signatures()

    def commit(
        self,
        messages: Iterable[CommitMessage],
        *,
        commit_identifier: int = BATCH,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Commit; an empty list of changes writes nothing. ``watermark`` in epoch ms.

        Raises :class:`CommitConflict`, :class:`CommitUnknown`, :class:`UnsupportedFeature` (before any file is written).
        """
        parts = self._parts(messages)
        ids = []
        if parts.append.num_rows:
            ids.append(
                self._one(self._request(parts.append_kind, parts.append, commit_identifier, watermark, properties))
            )
        if parts.compact.num_rows:
            ids.append(
                self._one(self._request(CommitKind.COMPACT, parts.compact, commit_identifier, watermark, properties))
            )
        return CommitResult(ids)

    def overwrite(
        self,
        messages: Iterable[CommitMessage],
        partition_spec: Mapping[str, Any] | None = None,
        *,
        commit_identifier: int = BATCH,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Replace a scope by the new files of ``messages``, whatever was committed to it meanwhile.

        ``partition_spec`` None: the partitions that get files, or the whole table when it has no partitions; ``{}``:
        the whole table; ``{column: value}``: the partitions with these values. Raises as :meth:`commit`, and
        :class:`ColumnNotFound` or :class:`InvalidData` for a spec that does not fit.
        """
        parts = self._parts(messages)
        scope = scope_of(self._store, parts.append, partition_spec)
        ids = []
        if not scope.is_empty and self._has_work(scope, parts.append):
            request = self._request(CommitKind.OVERWRITE, parts.append, commit_identifier, watermark, properties)
            rescan = entries_source(self._store, parts.append, scope)
            ids.append(self._one(Request(**{**vars(request), "rescan": rescan})))
        if parts.compact.num_rows:
            ids.append(
                self._one(self._request(CommitKind.COMPACT, parts.compact, commit_identifier, watermark, properties))
            )
        return CommitResult(ids)

    def filter_and_commit(
        self,
        committables: Mapping[int, Sequence[CommitMessage]],
        *,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> list[int]:
        """Commit, in order of identifier, what this user has not committed yet; returns the new snapshot ids.

        Idempotent: identifiers up to the user's last are skipped. A crash between the two snapshots of an identifier is
        healed: its missing compaction part is committed.
        """
        done = latest_of_user(self._store, self.commit_user)
        ids: list[int] = []
        for identifier in sorted(committables):
            if done is not None and identifier < done.identifier:
                continue
            parts = self._parts(committables[identifier])
            finished = done.kinds if done is not None and identifier == done.identifier else frozenset()
            if parts.append.num_rows and not finished:
                request = self._request(parts.append_kind, parts.append, identifier, watermark, properties)
                ids.append(CommitRun(self._store, request, self._hooks, self._base).run())
            if parts.compact.num_rows and CommitKind.COMPACT not in finished:
                request = self._request(CommitKind.COMPACT, parts.compact, identifier, watermark, properties)
                ids.append(CommitRun(self._store, request, self._hooks, self._base).run())
        return ids

    # ----------------------------------------------------------------------------------------------------------------

    def _parts(self, messages: Iterable[CommitMessage]) -> Parts:
        require_writable(self._store)
        parts = split(messages, self._store.name)
        if parts.compact.num_rows:
            require_compactable(self._store)
        return parts

    def _request(
        self,
        kind: CommitKind,
        entries: pa.Table,
        identifier: int,
        watermark: int | None,
        properties: Mapping[str, str] | None,
    ) -> Request:
        return Request(kind, entries, self.commit_user, identifier, watermark, properties)

    def _has_work(self, scope: Scope, added: pa.Table) -> bool:
        """An overwrite that brings nothing and meets nothing writes no snapshot."""
        if added.num_rows:
            return True
        _, entries = entries_source(self._store, added, scope)(snapshots.latest(self._store))
        return has_deletes(entries)

    def _one(self, request: Request) -> int:
        """Commit one part, unless an earlier attempt of ours, reported as unknown, is in the table already."""
        if self._named:
            lookup = Lookup(request.user, request.identifier, request.kind, request.entries)
            found = find_applied(self._store, lookup, self._signatures)
            if found is not None:
                return found
        try:
            return CommitRun(self._store, request, self._hooks, self._base).run()
        except CommitUnknown:
            self._named = True  # from now on this user's commits are looked up first
            raise


__all__ = ["BATCH", "CommitResult", "Committer"]
