"""Turns messages into snapshots: succeeded, failed or unknown, and safe to ask again (format.md 14)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.attempt import CommitHooks, CommitRun, Request
from lsm_core.commit.changes import Parts, deletions_of, has_deletes, partitions_of, split
from lsm_core.commit.conflicts import Rescan, StrictMode, replacing_all_of, unchanged_since
from lsm_core.commit.drafts import abort, is_unknown, messages_of, missing_file, remove, without_changelog
from lsm_core.commit.history import AddedFiles, Lookup, Signatures, find_applied, latest_of_user
from lsm_core.commit.index_changes import IndexChange
from lsm_core.commit.manifest_merge import NothingToMerge, compacted
from lsm_core.commit.message import CommitMessage
from lsm_core.commit.overwrite import (
    Scope,
    entries_source,
    loses_partitions,
    overwrite_entries,
    replaced_text,
    scope_of,
    scope_of_drop,
    upgraded,
)
from lsm_core.errors import CommitConflict, CommitUnknown, ConflictKind, CorruptFile, InvalidData
from lsm_core.format.file_meta import ADD
from lsm_core.format.json_text import require_whole
from lsm_core.format.manifest import ManifestFileMeta
from lsm_core.format.side_files import Statistics
from lsm_core.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.manifests import NO_ENTRIES
from lsm_core.metadata.statistics import PREFIX as STATISTICS_PREFIX
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import Purpose, require_possible

_LOG = logging.getLogger(__name__)
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
        require_whole(commit_user or "", store.name, "commit user")
        self._store = store
        self._named = commit_user is not None
        self.commit_user = commit_user or str(uuid.uuid4())
        self._hooks = hooks or CommitHooks()
        self._signatures = Signatures()
        self._strict = StrictMode.of(store, self.commit_user)

    def commit(
        self,
        messages: Iterable[CommitMessage],
        *,
        commit_identifier: int = BATCH,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
        made_from: int | None = None,
    ) -> CommitResult:
        """Commit; an empty list of changes writes nothing. ``watermark`` in epoch ms.

        ``made_from``: the snapshot that the change was worked out from; it fails when another commit but a compaction has
        touched one of its buckets since. A commit of the same files by the same named user and identifier happens once: its
        snapshots are given again. Raises :class:`CommitConflict` (also for files that another commit added before),
        :class:`CommitUnknown`, :class:`CorruptFile` when a new file is gone, :class:`InvalidData` for messages of another
        table or branch, :class:`UnsupportedFeature` (before any file is written).
        """
        messages = messages_of(self._store, messages)
        parts = self._parts(messages)
        ids = []
        if parts.has_append:
            request = self._request(parts.append_kind, parts.append, commit_identifier, watermark, properties)
            request = replace(request, index=parts.append_index, changelog=parts.append_changelog)
            if made_from is not None:
                request = replace(request, rescan=unchanged_since(self._store, parts.append, made_from))
            ids.append(self._commit_part(request, messages))
        if parts.has_compact:
            request = self._request(CommitKind.COMPACT, parts.compact, commit_identifier, watermark, properties)
            request = replace(request, index=parts.compact_index, changelog=parts.compact_changelog)
            ids += self._compaction(self._commit_part, request, messages, may_be_left_out=bool(ids))
        return CommitResult(ids)

    def commit_compaction(
        self,
        messages: Iterable[CommitMessage],
        source: Callable[[pa.Table], Rescan],
        *,
        properties: Mapping[str, str] | None = None,
        kind: CommitKind = CommitKind.COMPACT,
    ) -> CommitResult:
        """Commit the compactions of ``messages``, whatever else they hold left out, as long as ``source`` lets them.

        ``kind``: OVERWRITE where what they leave says something else than what they replace, so that a version of the table takes its place.

        ``source(entries)`` is asked at every attempt for the live entries and those of the change at the newest snapshot, and raises
        :class:`CommitConflict` where the change does not fit it. Raises as :meth:`commit`.
        """
        parts = self._parts(messages_of(self._store, messages))
        if not parts.has_compact:
            return CommitResult([])
        request = self._request(kind, parts.compact, BATCH, None, properties)
        rescan = source(parts.compact)
        request = replace(request, rescan=rescan, index=parts.compact_index, changelog=parts.compact_changelog)
        return CommitResult([self._commit_part(request)])

    def overwrite(
        self,
        messages: Iterable[CommitMessage],
        partition_spec: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        commit_identifier: int = BATCH,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Replace a scope by the new files of ``messages``, whatever was committed to it meanwhile. Changelog files are not
        committed, as in Java: they are deleted.

        ``partition_spec`` None: the partitions that get files, or the whole table when it has no partitions; ``{}``:
        the whole table; ``{column: value}``: the partitions with these values; a list of these: those that one of them matches. Files that follow their keys out of the scope
        (`CommitMessage.follows`) are added there. Raises as :meth:`commit`, and :class:`ColumnNotFound` or :class:`InvalidData` for
        a spec that does not fit.
        """
        messages = without_changelog(self._store, messages_of(self._store, messages))
        parts = self._parts(messages)
        scope = scope_of(self._store, split(m for m in messages if not m.follows).append, partition_spec)
        added = upgraded(self._store, parts.append, scope)
        ids = []
        replaced = NO_ENTRIES
        if (added.num_rows or not scope.is_empty) and self._has_work(scope, added):
            source = entries_source(self._store, added, scope)

            def rescan(latest: Snapshot | None) -> tuple[pa.Table, pa.Table]:
                nonlocal replaced
                replaced, change = source(latest)
                return replaced, change

            request = self._request(CommitKind.OVERWRITE, added, commit_identifier, watermark, properties)
            index = replace(parts.append_index, dropped=scope.matcher(self._store))
            request = replace(request, rescan=rescan, index=index)
            ids.append(self._commit_part(request, messages))
        level = logging.WARNING if loses_partitions(self._store, scope, replaced, added) else logging.INFO
        number, replaced_content = ids[-1] if ids else "none", replaced_text(self._store, scope, replaced)
        _LOG.log(level, "table %s: overwrite (snapshot %s) replaced %s", self._store.name, number, replaced_content)
        if parts.has_compact:
            request = self._request(CommitKind.COMPACT, parts.compact, commit_identifier, watermark, properties)
            ids.append(self._commit_part(replace(request, index=parts.compact_index)))
        return CommitResult(ids)

    def drop(
        self,
        partitions: Sequence[Mapping[str, Any]] | None,
        *,
        commit_identifier: int = BATCH,
        properties: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Delete all rows of the partitions that one of these specs matches; None empties the table.

        What was committed there meanwhile goes too. Specs may leave partition columns out. Raises as :meth:`overwrite`,
        and :class:`InvalidOption` for no spec or an empty one.
        """
        nothing = self._parts(()).append
        scope = Scope(None) if partitions is None else scope_of_drop(self._store, partitions)
        return self._drop(scope, nothing, commit_identifier, properties)

    def drop_exactly(
        self,
        partitions: Sequence[bytes],
        *,
        commit_identifier: int = BATCH,
        properties: Mapping[str, str] | None = None,
        still: Callable[[pa.Table], Collection[bytes]] | None = None,
    ) -> CommitResult:
        """As :meth:`drop`, of whole partitions (serialised rows); of none, nothing.

        ``still``: those that go, of the partitions in the live entries it is given; asked at every attempt, so that a partition
        that was written to meanwhile may stay. Raises :class:`CommitConflict` when none of them goes any more.
        """
        scope, nothing = Scope(tuple(partitions)), self._parts(()).append
        if still is None:
            return self._drop(scope, nothing, commit_identifier, properties)
        going: set[bytes] = set()

        def source(latest: Snapshot | None) -> tuple[pa.Table, pa.Table]:
            live, _ = overwrite_entries(self._store, latest, nothing, scope)
            going.clear()
            going.update(still(live))
            live = live.filter(pc.is_in(live.column("partition"), pa.array(sorted(going), pa.binary())))
            if not live.num_rows:
                reason = f"table {self._store.name}: the partitions to drop were written to, or dropped, meanwhile"
                raise CommitConflict(ConflictKind.PARTITION_CHANGED, reason=reason)
            return live, deletions_of(live)

        if scope.is_empty or not self._has_work(scope, nothing):
            return CommitResult([])
        request = self._request(CommitKind.OVERWRITE, nothing, commit_identifier, None, properties)
        index = IndexChange(dropped=going.__contains__)
        return CommitResult([self._commit_part(replace(request, rescan=source, index=index))])

    def _drop(
        self, scope: Scope, nothing: pa.Table, identifier: int, properties: Mapping[str, str] | None = None
    ) -> CommitResult:
        if scope.is_empty or not self._has_work(scope, nothing):
            return CommitResult([])
        request = self._request(CommitKind.OVERWRITE, nothing, identifier, None, properties)
        index = IndexChange(dropped=scope.matcher(self._store))
        rescan = entries_source(self._store, nothing, scope)
        return CommitResult([self._commit_part(replace(request, rescan=rescan, index=index))])

    def compact_manifests(self, *, properties: Mapping[str, str] | None = None) -> CommitResult:
        """Merge the manifests that are small or hold deletions, in a COMPACT snapshot that changes no file; nothing when there are none.

        Memory is that of the deletions and of two manifests. Raises :class:`CommitConflict`, :class:`CommitUnknown`,
        :class:`CorruptFile`, :class:`UnsupportedFeature`.
        """
        request = self._request(CommitKind.COMPACT, self._parts(()).append, BATCH, None, properties)
        if snapshots.latest_id(self._store) is None:
            return CommitResult([])
        try:
            return CommitResult([self._commit_part(replace(request, merge=compacted))])
        except NothingToMerge:
            return CommitResult([])

    def remove_files(self, entries: pa.Table, *, properties: Mapping[str, str] | None = None) -> CommitResult:
        """Take files out of the table whatever they hold: ``entries`` (`ENTRY_SCHEMA`) as they were added; nothing for none.

        Raises :class:`CommitConflict` when one of them is not in the table any more, or has deletion vectors, and as :meth:`commit`.
        """
        nothing = self._parts(()).append
        if not entries.num_rows:
            return CommitResult([])
        deletions = pa.concat_tables([nothing, deletions_of(entries.select(nothing.column_names))])
        return CommitResult(
            [self._commit_part(self._request(CommitKind.OVERWRITE, deletions, BATCH, None, properties))]
        )

    def leave_out_manifests(
        self, names: Collection[str], lost_rows: int, *, properties: Mapping[str, str] | None = None
    ) -> CommitResult:
        """Go on without the manifests of these names, which cannot be read; ``lost_rows``: unmerged rows that they alone counted.

        Nothing when the table has none of them any more. Raises as :meth:`commit`.
        """

        def without(store: TableStore, metas: Sequence[ManifestFileMeta], writer: TableStore) -> list[ManifestFileMeta]:
            del writer
            staying = [meta for meta in metas if meta.file_name not in names]
            if len(staying) == len(metas):
                raise NothingToMerge(f"table {store.name} has no such manifest")
            return staying

        request = self._request(CommitKind.OVERWRITE, self._parts(()).append, BATCH, None, properties)
        try:
            return CommitResult([self._commit_part(replace(request, merge=without, lost_rows=lost_rows))])
        except NothingToMerge:
            return CommitResult([])

    def replace_partitions(
        self,
        messages: Iterable[CommitMessage],
        *,
        commit_identifier: int = BATCH,
        properties: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Replace the files that ``messages`` delete, which must be all that their partitions hold, by the new ones.

        Raises :class:`CommitConflict` when a partition got or lost a file since, or deletion vectors of one that the messages do
        not delete too, so that no concurrent commit is lost.
        """
        parts = self._parts(without_changelog(self._store, messages_of(self._store, messages)))
        entries = parts.append
        if not entries.num_rows:
            return CommitResult([])
        new = pc.equal(entries.column("kind"), ADD)
        touched = Scope(tuple(partitions_of(entries)))
        entries = pa.concat_tables(
            [entries.filter(pc.invert(new)), upgraded(self._store, entries.filter(new), touched)]
        )
        request = self._request(CommitKind.OVERWRITE, entries, commit_identifier, None, properties)
        # Index files are not dropped with the partition: messages name those that they read, so that none of others is lost.
        rescan = replacing_all_of(self._store, entries, partitions_of(entries))
        return CommitResult([self._commit_part(replace(request, rescan=rescan, index=parts.append_index))])

    def commit_statistics(self, statistics: Statistics, *, properties: Mapping[str, str] | None = None) -> CommitResult:
        """Publish what was found out about the table (Java `commitStatistics`): a snapshot of kind ANALYZE that changes no row.

        Later snapshots name the same statistics until the schema changes. Raises as :meth:`commit`.
        """
        name = self._store.new_file_name(STATISTICS_PREFIX)
        path = self._store.statistics_path(name)
        request = self._request(CommitKind.ANALYZE, self._parts(()).append, BATCH, None, properties)
        try:
            if not self._store.file_io.write_exclusive(path, statistics.to_json()):
                raise CorruptFile(path, "statistics of that name are there already")
            return CommitResult([self._commit_part(replace(request, statistics=name))])
        except BaseException as error:
            if not is_unknown(error):
                remove(self._store.file_io, [path])
            raise

    def filter_and_commit(
        self,
        committables: Mapping[int, Sequence[CommitMessage]],
        *,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> list[int]:
        """Commit, in order of identifier, what this user has not committed yet; returns the new snapshot ids.

        Idempotent: identifiers up to the user's last are skipped, and where all of its snapshots have expired those whose
        files the table knows. A crash between the two snapshots of an identifier is
        healed: its missing compaction part is committed, or left out where others took its inputs meanwhile, since its rows
        are in the table anyway. Raises :class:`CorruptFile` when a file of a commit that is to be made is gone.
        """
        looked_at = snapshots.latest_id(self._store) or 0
        done = latest_of_user(self._store, self.commit_user)
        if not isinstance(committables, Mapping) or not all(type(number) is int for number in committables):
            accepted = "commits are a mapping of identifiers (whole numbers) to lists of CommitMessage"
            raise InvalidData(self._store.name, "", f"{committables!r:.200} cannot be committed: {accepted}")
        wanted = sorted(number for number in committables if done is None or number >= done.identifier)
        # All messages are checked before the first are committed.
        numbered = {number: messages_of(self._store, committables[number]) for number in wanted}
        ids: list[int] = []
        for identifier, messages in numbered.items():
            parts = self._parts(messages)
            finished = done.kinds if done is not None and identifier == done.identifier else frozenset()
            # Where all snapshots of this user have expired, the table may hold, or have held, the commit's new files.
            new = {file.file_name for message in messages for file in message.written(by_writer=True)}
            if done is None and new and new <= AddedFiles(self._store, messages).in_use():
                _LOG.info("table %s: commit %d is in the table, its snapshot has expired", self._store.name, identifier)
            elif parts.has_append and not finished:
                request = self._request(parts.append_kind, parts.append, identifier, watermark, properties)
                request = replace(
                    request, index=parts.append_index, changelog=parts.append_changelog, looked_at=looked_at
                )
                ids.append(self._run(self._with_new_files(request, messages)))
            if parts.has_compact and CommitKind.COMPACT not in finished:
                request = self._request(CommitKind.COMPACT, parts.compact, identifier, watermark, properties)
                request = replace(request, index=parts.compact_index, changelog=parts.compact_changelog)
                ids += self._compaction(self._run, request, messages, may_be_left_out=True)
        return ids

    def _compaction(
        self,
        run: Callable[[Request], int],
        request: Request,
        messages: Sequence[CommitMessage],
        *,
        may_be_left_out: bool,
    ) -> list[int]:
        """Commit the compaction part of ``messages``. Where the rows are in the table without it, a conflict only costs its work."""
        nothing: dict[str, Any] = dict.fromkeys(
            ("new_files", "deleted_files", "changelog_files", "new_index_files", "deleted_index_files"), ()
        )
        compactions = [replace(message, **nothing) for message in messages]
        if may_be_left_out:
            missing = missing_file(self._store, [(message, message.written()) for message in compactions])
            if missing is not None:
                _LOG.warning("table %s: a compaction is left out, its file %s is gone", self._store.name, missing)
                return []
        try:
            return [run(request)]
        except CommitConflict as conflict:
            if not may_be_left_out:
                raise
            _LOG.warning("table %s: a compaction is left out: %s", self._store.name, conflict)
            abort(self._store, compactions)
            return []

    def _run(self, request: Request) -> int:
        return CommitRun(self._store, request, self._hooks).run()

    # ----------------------------------------------------------------------------------------------------------------

    def _parts(self, messages: Iterable[CommitMessage]) -> Parts:
        # What the newest snapshot's files need every attempt asks, of the snapshot that it begins with.
        require_possible(self._store, Purpose.WRITE)
        parts = split(messages)
        if parts.has_compact:
            require_possible(self._store, Purpose.COMPACT)
        return parts

    def _request(
        self,
        kind: CommitKind,
        entries: pa.Table,
        identifier: int,
        watermark: int | None,
        properties: Mapping[str, str] | None,
    ) -> Request:
        purpose = Purpose.COMPACT if kind is CommitKind.COMPACT and entries.num_rows else Purpose.WRITE
        request = Request(kind, entries, self.commit_user, identifier, watermark, properties, strict=self._strict)
        return replace(request, purpose=purpose)

    def _has_work(self, scope: Scope, added: pa.Table) -> bool:
        """An overwrite that brings nothing and meets nothing writes no snapshot."""
        if added.num_rows:
            return True
        latest = snapshots.latest(self._store)
        _, entries = entries_source(self._store, added, scope)(latest)
        if has_deletes(entries) or latest is None:
            return has_deletes(entries)
        drops = scope.matcher(self._store)
        return any(drops(entry.partition) for entry in manifests.index_entries(self._store, latest))

    def _with_new_files(self, request: Request, messages: Sequence[CommitMessage]) -> Request:
        """``request`` with the check that its new files are there, and are new to the table at every attempt."""
        missing = missing_file(self._store, [(message, message.written(by_writer=True)) for message in messages])
        if missing is not None:
            raise CorruptFile(missing, f"commit {request.identifier} of {self.commit_user} needs it, and it is gone")
        if has_deletes(request.entries):
            return request  # made once already, it would find nothing to delete
        return replace(request, added=AddedFiles(self._store, messages))

    def _commit_part(self, request: Request, messages: Sequence[CommitMessage] = ()) -> int:
        """Commit one part, unless an earlier attempt of ours, reported as unknown, is in the table already."""
        if self._named:
            lookup = Lookup(request.user, request.identifier, request.kind, request.entries, request.index.new_names)
            snapshot_id = find_applied(self._store, lookup, self._signatures)
            if snapshot_id is not None:
                return snapshot_id
            # A numbered commit of this user may be there with other files: written again by a retry, it must not count twice.
            looked_at = snapshots.latest_id(self._store) or 0
            done = None if request.identifier == BATCH else latest_of_user(self._store, self.commit_user)
            if done is not None and done.identifier == request.identifier:
                compacts = request.kind is CommitKind.COMPACT
                if any((kind is CommitKind.COMPACT) == compacts for kind in done.kinds):
                    reason = f"table {self._store.name}: commit {request.identifier} is in the table already, with other files"
                    raise CommitConflict(ConflictKind.ALREADY_COMMITTED, (), self.commit_user, done.snapshot_id, reason)
            request = replace(request, looked_at=None if request.identifier == BATCH else looked_at)
        if messages:
            request = self._with_new_files(request, messages)
        try:
            return self._run(request)
        except CommitUnknown:
            self._named = True  # from now on this user's commits are looked up first
            raise


__all__ = ["BATCH", "CommitResult", "Committer"]
