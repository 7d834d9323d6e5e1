"""The committer, which turns commit messages into snapshots; repeat a commit whose outcome is unknown to learn it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.attempt import (
    CommitHooks,
    CommitRun,
    NothingToMerge,
    Request,
    abort,
    compacted,
    is_unknown,
    messages_of,
    missing_file,
    remove,
    without_changelog,
)
from lsm_core.commit.conflicts import Rescan, StrictMode, columns_unchanged_since, replacing_all_of, unchanged_since
from lsm_core.commit.history import AddedFiles, Lookup, Signatures, find_applied, latest_of_user
from lsm_core.commit.message import CommitMessage, IndexChange, Parts, deletions_of, has_deletes, split
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
from lsm_core.format.manifest import ADD, ManifestFileMeta, partitions_of
from lsm_core.format.side_files import Statistics
from lsm_core.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from lsm_core.iceberg.settings import writes_metadata
from lsm_core.json_text import require_whole
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.manifests import NO_ENTRIES
from lsm_core.metadata.statistics import PREFIX as STATISTICS_PREFIX
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import Purpose, require_appends_only, require_possible

_LOG = logging.getLogger(__name__)
BATCH: Final = BATCH_COMMIT_IDENTIFIER


@dataclass(frozen=True)
class CommitResult:
    """Snapshots of a commit: none for a commit without changes, two for a commit of new data and a compaction.

    Attributes:
        snapshot_ids: ids of the snapshots.
    """

    snapshot_ids: list[int]

    @property
    def snapshot_id(self) -> int | None:
        """Id of the last snapshot, or None."""
        return self.snapshot_ids[-1] if self.snapshot_ids else None


class Committer:
    """Commits messages of one user to one table.

    A commit has three outcomes. A returned result means that the commit is done. :class:`CommitUnknown` means that the
    snapshot may exist and no file was deleted. A second commit of the same messages with the same user finds out
    whether the snapshot exists. :class:`CommitConflict` or any other error means that nothing was committed: the new
    manifests are deleted, and the caller may :func:`abort` its data files.

    Source: Paimon `FileStoreCommitImpl`.
    """

    def __init__(self, store: TableStore, commit_user: str | None = None, hooks: CommitHooks | None = None) -> None:
        """Prepare commits.

        Args:
            store: the table.
            commit_user: user of the commits, by which retries from other processes are recognised; None for a random
                user.
            hooks: hooks that are called at the phases of a commit.
        """
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
        columns_from: int | None = None,
    ) -> CommitResult:
        """Commit messages; if they contain no change, no snapshot is written.

        If the same named user has already committed the same files with the same identifier, the commit is not
        repeated. Its snapshots are returned again.

        Args:
            messages: commit messages of writers.
            commit_identifier: identifier of the commit within its user.
            watermark: watermark of the snapshot (epoch ms); None or a smaller value keeps the previous watermark.
            properties: additional properties of the snapshot; None for none.
            made_from: id of the snapshot that the change was computed from. The commit fails if a later commit, except
                a compaction, has changed one of the change's buckets. None for no such check.
            columns_from: id of the snapshot from which columns of existing rows were computed (data evolution). The
                commit fails if a later commit, except a compaction, has changed columns of the same rows, or if the
                rows are gone. None for no such check.

        Raises:
            CommitConflict: the change conflicts with the newest snapshot, or an earlier commit added the files.
            CommitUnknown: the outcome could not be read.
            CorruptFile: a new file is missing.
            InvalidData: a message was made for another table or branch.
            TableNotFound: the table was dropped, renamed or replaced since it was opened.
            UnsupportedFeature: the table cannot be written; no file was written.
        """
        messages = messages_of(self._store, messages)
        parts = self._parts(messages)
        ids = []
        if parts.has_append:
            request = self._request(parts.append_kind, parts.append, commit_identifier, watermark, properties)
            request = replace(request, index=parts.append_index, changelog=parts.append_changelog)
            if made_from is not None:
                request = replace(request, rescan=unchanged_since(self._store, parts.append, made_from))
            elif columns_from is not None:
                partitions = sorted({message.partition for message in messages})
                rescan = columns_unchanged_since(self._store, parts.append, partitions, columns_from)
                request = replace(request, rescan=rescan)
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
        """Commit only the compaction part of messages, if ``source`` finds no conflict.

        Args:
            messages: commit messages of compactions.
            source: function that takes the entries of the change and returns a :data:`Rescan`. The rescan is called at
                every attempt. It returns the live entries and the change, or raises :class:`CommitConflict`.
            properties: additional properties of the snapshot; None for none.
            kind: kind of the snapshot; OVERWRITE if the new files contain different rows than the replaced files.

        Raises:
            DredgeError: the errors of :meth:`commit`.
        """
        parts = self._parts(messages_of(self._store, messages))
        if not parts.has_compact:
            return CommitResult([])
        request = replace(self._request(kind, parts.compact, BATCH, None, properties), by_writer=False)
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
        """Replace all files in a scope (some partitions or the whole table) by the new files of messages.

        Files that concurrent commits added to the scope before this commit are replaced, too.

        Changelog files of the messages are deleted, as in Java. Files with rows that follow their keys into partitions
        outside the scope (`CommitMessage.follows`) are added to these partitions.

        Args:
            messages: commit messages of writers.
            partition_spec: None for the partitions that get new files (the whole table if it has no partitions). ``{}``
                for the whole table; ``{column: value}`` for the partitions with these values. A list of such mappings
                for the partitions that match at least one mapping.
            commit_identifier: identifier of the commit within its user.
            watermark: watermark of the snapshot (epoch ms); None or a smaller value keeps the previous watermark.
            properties: additional properties of the snapshot; None for none.

        Raises:
            ColumnNotFound: a column of the spec is not a partition column.
            InvalidData: a value of the spec does not fit, or a new file is outside the scope.
            DredgeError: the errors of :meth:`commit`.
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
        """Delete all rows of some partitions, including rows of concurrent commits before this one.

        Args:
            partitions: values by partition column; columns that are left out match every value. None empties the table.
            commit_identifier: identifier of the commit within its user.
            properties: additional properties of the snapshot; None for none.

        Raises:
            InvalidOption: ``partitions`` is empty, or contains an empty mapping.
            DredgeError: the errors of :meth:`overwrite`.
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
        """Delete all rows of whole partitions, including rows of concurrent commits before this one.

        Args:
            partitions: BinaryRows of the partitions; if empty, nothing is committed.
            commit_identifier: identifier of the commit within its user.
            properties: additional properties of the snapshot; None for none.
            still: function of live entries that returns the partitions still to be dropped. It is called at every
                attempt, so that a partition with new rows can be kept. None to drop all ``partitions``.

        Raises:
            CommitConflict: no partition is left to be dropped.
            DredgeError: the errors of :meth:`overwrite`.
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
                reason = (
                    f"table {self._store.name}: another commit wrote to the partitions "
                    "to drop, or dropped them; plan again"
                )
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
        """Merge small manifests and manifests with deletions, in a COMPACT snapshot without changes of data files.

        If no manifest would change, nothing is committed. Memory holds the deletions and two manifests. Raises the
        errors of :meth:`commit`.
        """
        request = self._request(CommitKind.COMPACT, self._parts(()).append, BATCH, None, properties)
        if snapshots.latest_id(self._store) is None:
            return CommitResult([])
        try:
            return CommitResult([self._commit_part(replace(request, merge=compacted))])
        except NothingToMerge:
            return CommitResult([])

    def remove_files(self, entries: pa.Table, *, properties: Mapping[str, str] | None = None) -> CommitResult:
        """Remove files from the table with all their rows.

        Args:
            entries: ADD entries (`ENTRY_SCHEMA`) of the files; if empty, nothing is committed.
            properties: additional properties of the snapshot; None for none.

        Raises:
            CommitConflict: a file is no longer in the table, or has deletion vectors.
            DredgeError: the errors of :meth:`commit`.
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
        """Commit a snapshot without some manifests that cannot be read.

        Args:
            names: names of the manifests; nothing is committed if the newest snapshot lists none of them.
            lost_rows: number of unmerged rows in the files that only these manifests list.
            properties: additional properties of the snapshot; None for none.

        Raises:
            DredgeError: the errors of :meth:`commit`.
        """

        def without(store: TableStore, metas: Sequence[ManifestFileMeta], writer: TableStore) -> list[ManifestFileMeta]:
            del writer
            staying = [meta for meta in metas if meta.file_name not in names]
            if len(staying) == len(metas):
                raise NothingToMerge(f"table {store.name} has none of the manifests {', '.join(sorted(names)[:5])}")
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
        """Replace all files of some partitions by new files; the messages list the new files and every file to delete.

        Raises:
            CommitConflict: a concurrent commit has added or removed a file of a partition, or has added deletion
                vectors that the messages do not delete.
            DredgeError: the errors of :meth:`commit`.
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
        # Index files are not dropped with the partition: messages list the index files that they have read, so
        # index files of other commits are not lost.
        rescan = replacing_all_of(self._store, entries, partitions_of(entries))
        return CommitResult([self._commit_part(replace(request, rescan=rescan, index=parts.append_index))])

    def commit_statistics(self, statistics: Statistics, *, properties: Mapping[str, str] | None = None) -> CommitResult:
        """Publish statistics of the table in a snapshot of kind ANALYZE, which changes no row.

        Later snapshots keep the statistics until the schema changes.

        Raises:
            CorruptFile: a statistics file with the new file's name already exists.
            DredgeError: the errors of :meth:`commit`.

        Source: Paimon `commitStatistics`.
        """
        name = self._store.new_file_name(STATISTICS_PREFIX)
        path = self._store.statistics_path(name)
        request = self._request(CommitKind.ANALYZE, self._parts(()).append, BATCH, None, properties)
        try:
            if not self._store.file_io.write_exclusive(path, statistics.to_json()):
                raise CorruptFile(path, "a statistics file of this name already exists; analyze again")
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
        """Make those commits of ``committables`` that this user has not made yet, in order of identifier.

        Identifiers up to the user's last committed identifier are skipped. If all of the user's snapshots have expired,
        commits whose files were in the table are skipped. If a crash left only the first snapshot of an identifier, its
        compaction is committed now. The compaction is left out if its inputs were replaced since; this loses no row.

        Args:
            committables: commit messages by commit identifier.
            watermark: watermark of the snapshots (epoch ms); None or a smaller value keeps the previous watermark.
            properties: additional properties of the snapshots; None for none.

        Returns:
            The ids of the new snapshots.

        Raises:
            CorruptFile: a file of a commit is missing.
            InvalidData: ``committables`` is not a mapping of whole numbers to commit messages.
            DredgeError: the errors of :meth:`commit`.
        """
        looked_at = snapshots.latest_id(self._store) or 0
        done = latest_of_user(self._store, self.commit_user)
        if not isinstance(committables, Mapping) or not all(type(number) is int for number in committables):
            accepted = "commits are a mapping of identifiers (whole numbers) to lists of CommitMessage"
            raise InvalidData(self._store.name, "", f"{committables!r:.200} cannot be committed: {accepted}")
        pending = sorted(number for number in committables if done is None or number >= done.identifier)
        # All messages are checked before the first are committed.
        numbered = {number: messages_of(self._store, committables[number]) for number in pending}
        ids: list[int] = []
        for identifier, messages in numbered.items():
            parts = self._parts(messages)
            finished = done.kinds if done is not None and identifier == done.identifier else frozenset()
            # If all snapshots of this user have expired, the new files may have been committed already.
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
        """Commit the compaction part of messages and return the ids of its snapshots: one, or none if it was left out.

        Args:
            run: function that commits a request and returns the id of its snapshot.
            request: the compaction part.
            messages: messages that contain this part.
            may_be_left_out: whether the compaction is skipped with a warning if it conflicts or one of its files is
                missing. This is safe if the rows are already in the table: only the work of the compaction is lost.
        """
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
        with self._store.naming_lost_table():
            return CommitRun(self._store, request, self._hooks).run()

    # ----------------------------------------------------------------------------------------------------------------

    def _parts(self, messages: Iterable[CommitMessage]) -> Parts:
        """Check that the table exists and can be written, and return the append and compaction parts of messages."""
        self._store.require_folder()
        # Every attempt checks the features that the files of its base snapshot need.
        parts = split(messages)
        if parts.has_append or not parts.has_compact:
            require_possible(self._store, Purpose.WRITE)
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
        if kind is CommitKind.OVERWRITE or (kind is CommitKind.COMPACT and entries.num_rows):
            require_appends_only(self._store, "a commit that replaces files")
        purpose = Purpose.COMPACT if kind is CommitKind.COMPACT and entries.num_rows else Purpose.WRITE
        request = Request(kind, entries, self.commit_user, identifier, watermark, properties, strict=self._strict)
        return replace(request, purpose=purpose)

    def _has_work(self, scope: Scope, added: pa.Table) -> bool:
        """Return whether an overwrite adds files, or removes files in ``scope``; otherwise no snapshot is written."""
        if added.num_rows:
            return True
        latest = snapshots.latest(self._store)
        _, entries = entries_source(self._store, added, scope)(latest)
        if has_deletes(entries) or latest is None:
            return has_deletes(entries)
        drops = scope.matcher(self._store)
        return any(drops(entry.partition) for entry in manifests.index_entries(self._store, latest))

    def _with_new_files(self, request: Request, messages: Sequence[CommitMessage]) -> Request:
        """Check that the new files of ``request`` exist, and return the request with a check for every attempt.

        The check at every attempt is that the table never contained the files. Requests that remove files do not get
        this check.

        Raises:
            CorruptFile: a new file is missing.
        """
        missing = missing_file(self._store, [(message, message.written(by_writer=True)) for message in messages])
        if missing is not None:
            self._store.require_same()
            raise CorruptFile(
                missing,
                f"commit {request.identifier} of {self.commit_user} needs this "
                "file, which was deleted; write the rows again",
            )
        if has_deletes(request.entries):
            return request  # a second commit would conflict anyway: the files to delete would be missing
        if request.discards_duplicates(self._store):
            return request  # every attempt leaves out the files that the table has
        return replace(request, added=AddedFiles(self._store, messages))

    def _commit_part(self, request: Request, messages: Sequence[CommitMessage] = ()) -> int:
        """Commit one request and return its snapshot id.

        If the user was named, or an earlier outcome was unknown, the commit is first searched in the table. If it is
        already there, nothing is committed, and the id of its snapshot is returned.
        """
        if self._named:
            lookup = Lookup(request.user, request.identifier, request.kind, request.entries, request.index.new_names)
            snapshot_id = find_applied(self._store, lookup, self._signatures)
            if snapshot_id is not None:
                if writes_metadata(self._store.options):
                    from lsm_core.iceberg.writing import publish_again

                    publish_again(self._store, snapshot_id)
                return snapshot_id
            # A retry may have written the rows of a numbered commit again to other files. These rows must not
            # be committed twice.
            looked_at = snapshots.latest_id(self._store) or 0
            done = None if request.identifier == BATCH else latest_of_user(self._store, self.commit_user)
            if done is not None and done.identifier == request.identifier:
                compacts = request.kind is CommitKind.COMPACT
                if any((kind is CommitKind.COMPACT) == compacts for kind in done.kinds):
                    reason = (
                        f"table {self._store.name}: commit {request.identifier} is already in the table with "
                        "other files"
                    )
                    raise CommitConflict(ConflictKind.ALREADY_COMMITTED, (), self.commit_user, done.snapshot_id, reason)
            request = replace(request, looked_at=None if request.identifier == BATCH else looked_at)
        if messages:
            request = self._with_new_files(request, messages)
        try:
            return self._run(request)
        except CommitUnknown:
            self._named = True  # from now on this user's commits are looked up first
            raise
