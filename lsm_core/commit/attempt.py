"""Attempts to commit one change as one snapshot: read the base, check, write and merge manifests, publish.

Manifests are merged at every commit, which keeps their number small.

Source: ``FileStoreCommitImpl``, ``ManifestFileMerger``.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.conflicts import BaseEntries, Rescan, StrictMode, check
from lsm_core.commit.drafts import RecordingFileIO, mark_unknown, remove
from lsm_core.commit.history import AddedFiles
from lsm_core.commit.message import IDENTITY, NO_CHANGE, IndexChange, next_index_manifest, partitions_of, rows_of
from lsm_core.commit.publish import PublishOutcome, Retries, publish
from lsm_core.errors import (
    CommitConflict,
    CommitUnknown,
    ConflictKind,
    CorruptFile,
    DredgeError,
    SnapshotNotFound,
)
from lsm_core.format.json_text import parse_object
from lsm_core.format.manifest import (
    ADD,
    DELETE,
    Cancelling,
    HashesMeet,
    ManifestFileMeta,
    has_unknown,
    merge_entries,
)
from lsm_core.format.snapshot import MAX_SEQUENCE, CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.manifests import NO_ENTRIES, assign, prune, tracks_rows
from lsm_core.metadata.store import TableStore, list_schema_ids
from lsm_core.metadata.support import Purpose, require_supported
from lsm_core.options import written_as

_NEEDED = ("kind", *IDENTITY)


def merge_manifests(
    store: TableStore, metas: Sequence[ManifestFileMeta], writer: TableStore | None = None
) -> list[ManifestFileMeta]:
    """Return the base manifests of the next snapshot from all manifests of the last one (base then delta, in order).

    Live entries do not change. Manifests with unknown fields are never rewritten.

    Args:
        store: the table.
        metas: manifests of the last snapshot.
        writer: state through which new manifests are written; None for ``store``.
    """
    full = full_merge(store, metas, store.options.manifest_target_size, store.options.manifest_full_threshold, writer)
    if full is not None:
        return full
    return minor_merge(store, metas, store.options.manifest_target_size, store.options.manifest_merge_min_count, writer)


class NothingToMerge(DredgeError):
    """No manifest can be merged: the snapshot keeps its manifests."""


def compacted(
    store: TableStore, metas: Sequence[ManifestFileMeta], writer: TableStore | None = None
) -> list[ManifestFileMeta]:
    """Return the manifests after a merge of all that are small or hold deletions, however few.

    Raises NothingToMerge when none changes.

    Source: Paimon `compactManifest`.
    """
    target = store.options.manifest_target_size
    merged = full_merge(store, metas, target, 1, writer)
    if merged is None:
        merged = minor_merge(store, metas, target, 1, writer)
    if {meta.file_name for meta in merged} == {meta.file_name for meta in metas}:
        raise NothingToMerge(f"table {store.name} has no manifests to merge")
    return merged


def full_merge(
    store: TableStore,
    metas: Sequence[ManifestFileMeta],
    target: int,
    threshold: int,
    writer: TableStore | None = None,
) -> list[ManifestFileMeta] | None:
    """Rewrite all manifests that hold deletions, are affected by them, or are small.

    Deletions never survive, so kept manifests may come first in the result. Memory is that of the deletions and of two
    manifests.

    Returns:
        The manifests, or None where a rewrite is not worth it.
    """
    must = [meta for meta in metas if meta.num_deleted_files > 0 or meta.file_size < target]
    if not must or sum(meta.file_size for meta in must) < threshold:
        return None
    chosen = {meta.file_name for meta in must}
    deletions = pa.concat_tables(
        [NO_ENTRIES.select(_NEEDED)]
        + [
            manifests.read_manifest(store, meta, lambda part: _of_kind(part, DELETE).select(_NEEDED))
            for meta in must
            if meta.num_deleted_files
        ]
    )
    deleted_names, deleted_partitions = pc.unique(deletions.column("file_name")), partitions_of(deletions)
    kept: list[ManifestFileMeta] = []
    rewritten: list[ManifestFileMeta] = []
    for meta in metas:
        if meta.file_name in chosen:
            rewritten.append(meta)
            continue
        # A large manifest is rewritten only when a deletion cancels one of its additions.
        if deletions.num_rows and prune([meta], store.schema.partition_types, deleted_partitions, None, None):
            names = manifests.read_manifest(store, meta, lambda part: part.select(["file_name"])).column("file_name")
            if pc.any(pc.is_in(names, deleted_names)).as_py():
                rewritten.append(meta)
                continue
        kept.append(meta)
    if len(rewritten) <= 1:
        return None
    try:
        return kept + manifests.write_manifests(writer or store, _live(store, rewritten, Cancelling(deletions)))
    except (_UnknownFields, HashesMeet):
        return None


class _UnknownFields(ValueError):
    """A manifest has entries with unknown fields, which could not be written again."""


def _live(store: TableStore, metas: Sequence[ManifestFileMeta], cancelling: Cancelling) -> Iterator[pa.Table]:
    """Yield the live entries of manifests, one manifest after another."""
    for meta in metas:
        entries = manifests.read_manifest(store, meta)
        if has_unknown(entries) is not None:
            raise _UnknownFields(meta.file_name)
        yield cancelling.survivors(entries)


def minor_merge(
    store: TableStore,
    metas: Sequence[ManifestFileMeta],
    target: int,
    min_count: int,
    writer: TableStore | None = None,
) -> list[ManifestFileMeta]:
    """Merge neighbours into files of the target size, in order; the tail only if it has ``min_count`` files."""
    result: list[ManifestFileMeta] = []
    group: list[ManifestFileMeta] = []
    size = 0
    for meta in metas:
        group.append(meta)
        size += meta.file_size
        if size >= target:
            result += _merge_group(store, group, writer)
            group, size = [], 0
    return result + (_merge_group(store, group, writer) if len(group) >= max(min_count, 1) else group)


def _merge_group(
    store: TableStore, group: Sequence[ManifestFileMeta], writer: TableStore | None
) -> list[ManifestFileMeta]:
    if len(group) == 1:
        return list(group)
    tables = [manifests.read_manifest(store, meta) for meta in group]
    result: list[ManifestFileMeta] = []
    together: list[int] = []
    for place in range(len(group) + 1):
        # Entries with fields that this version does not know stay where they are, and so does the order around them.
        if place < len(group) and has_unknown(tables[place]) is None:
            together.append(place)
            continue
        if len(together) == 1:
            result.append(group[together[0]])
        elif together:
            merged = merge_entries(pa.concat_tables([tables[number] for number in together]))
            result += manifests.write_manifests(writer or store, merged) if merged.num_rows else []
        together = []
        result += group[place : place + 1]
    return result


def _of_kind(entries: pa.Table, kind: int) -> pa.Table:
    return entries.filter(pc.equal(entries.column("kind"), kind))


_LOG = logging.getLogger(__name__)
_CATCHING_UP = 8
"""So often at most the base is brought up to date in one attempt."""


class Phase(StrEnum):
    """Phases of a commit, in order. Compactors and writers use the first and third for their own work."""

    PLAN = "plan"
    READ_BASE = "read_base"
    WRITE_FILES = "write_files"
    WRITE_MANIFESTS = "write_manifests"
    PUBLISH = "publish"
    CLEAN = "clean"


Hook = Callable[[Phase, Mapping[str, object]], None]


class CommitHooks:
    """Hooks that call ``hook(phase, info)`` when a phase begins.

    ``info`` holds plain values such as ``snapshot_id`` and ``attempt``. A hook that raises an error stops the commit at
    its step, as a crash would.
    """

    def __init__(self, hook: Hook | None = None) -> None:
        self._hook = hook

    def enter(self, phase: Phase, **info: object) -> None:
        """Call the hook for the beginning of a phase."""
        if self._hook is not None:
            self._hook(phase, info)


@dataclass(frozen=True)
class Request:
    """Content of one snapshot.

    Attributes:
        kind: kind of the snapshot.
        entries: manifest entries of the change.
        user: commit user.
        identifier: commit identifier.
        watermark: epoch ms, or None.
        properties: properties of the snapshot.
        rescan: returns base and entries again at every attempt, for overwrites and compactions.
        added: new files of writers, which must be new to the table; compactions name the files that they replace
            instead.
        index: index files that are added and removed.
        changelog: entries of changelog files.
        merge: returns the base manifests of the snapshot from all manifests of the previous one.
        lost_rows: rows that ``merge`` loses.
        strict: checks commits of other users at every attempt.
        statistics: statistics file of the snapshot; None to keep the previous one.
        purpose: features that the files of the previous snapshot must not need.
        looked_at: snapshot up to which the user's commits were searched for this one; None if it may be committed
            again.
    """

    kind: CommitKind
    entries: pa.Table
    user: str
    identifier: int
    watermark: int | None = None
    properties: Mapping[str, str] | None = None
    rescan: Rescan | None = None
    added: AddedFiles | None = None
    index: IndexChange = NO_CHANGE
    changelog: pa.Table = field(default_factory=lambda: NO_ENTRIES)
    merge: Callable[[TableStore, Sequence[ManifestFileMeta], TableStore], list[ManifestFileMeta]] = merge_manifests
    lost_rows: int = 0
    strict: StrictMode | None = None
    statistics: str | None = None
    purpose: Purpose = Purpose.WRITE
    looked_at: int | None = None


class CommitRun:
    """Runs one :class:`Request` through attempts.

    Every file that an attempt creates is deleted after a definite failure and kept while the outcome is unknown.

    Source: Paimon `FileStoreCommitImpl.tryCommit`.
    """

    def __init__(self, store: TableStore, request: Request, hooks: CommitHooks) -> None:
        # New metadata goes through the recorder; publishing does not, so that no cleaning can ever reach a
        # snapshot file.
        self._files = RecordingFileIO(store.file_io)
        self._store = store
        self._drafts = copy.copy(store)
        self._drafts.file_io, self._drafts.kept = self._files, store.kept
        self._request = request
        self._hooks = hooks
        self._retries = Retries.of(store.options)
        self._delta: tuple[str, int] | None = None
        self._changelog: tuple[str, int] | None = None
        self._delta_files: list[str] = []
        self._base_id = self._next_row_id = 0
        self._latest: Snapshot | None = None
        self._base = BaseEntries(store)

    def run(self) -> int:
        """Commit, and return the id of the published snapshot.

        Raises:
            CommitConflict: the change does not fit; nothing was committed.
            CommitUnknown: the outcome could not be read; no file was deleted.
            DredgeError: the storage failed before publishing; nothing was committed.
        """
        while True:
            self._files.take()
            attempt_files: list[str] = []
            try:
                snapshot, attempt_files = self._prepare()
                self._hooks.enter(Phase.PUBLISH, snapshot_id=snapshot.id, attempt=self._retries.attempt)
            except (CorruptFile, SnapshotNotFound, FileNotFoundError):
                self._clean(self._files.take())
                # Only a newer snapshot explains why files of the one we read are gone.
                newest = snapshots.latest_id(self._store)
                if newest in (None, self._base_id) or not self._retries.wait():
                    self._clean_all()
                    raise
                continue
            except BaseException:
                self._clean(self._files.take() + attempt_files)
                self._clean_all()
                raise
            if self._publish(snapshot, attempt_files):
                if self._request.strict is not None:
                    self._request.strict.published(snapshot.id)
                return snapshot.id
            if not self._retries.wait():
                self._clean_all()
                attempts = self._retries.attempt + 1
                reason = (
                    f"table {self._store.name}: other commits took the next snapshot id {attempts} times; "
                    "retry, or raise commit.max-retries"
                )
                raise CommitConflict(ConflictKind.RACES_LOST, (), None, snapshot.id, reason)

    def _publish(self, snapshot: Snapshot, attempt_files: list[str]) -> bool:
        try:
            outcome = publish(self._store, snapshot, self._retries, self._latest)
        except CommitUnknown:
            raise  # it may be visible: every file it names must stay
        except DredgeError:
            self._clean(attempt_files)
            self._clean_all()
            raise
        except BaseException as error:  # interrupted
            mark_unknown(error)
            raise
        self._hooks.enter(Phase.CLEAN, snapshot_id=snapshot.id, outcome=outcome.value)
        if outcome is PublishOutcome.TAKEN:
            self._clean(attempt_files)
        return outcome is PublishOutcome.PUBLISHED

    # -- one attempt -------------------------------------------------------------------------------------------------

    def _read_base(self) -> tuple[Snapshot | None, list[ManifestFileMeta], pa.Table, pa.Table]:
        """Read the latest snapshot, its manifests, the live entries that may conflict, and the change's entries."""
        store, request = self._store, self._request
        if self._retries.attempt:  # before any manifest is written; the committer checked it for the first attempt
            store.require_folder()
        latest = self._latest = snapshots.latest(store)
        self._base_id = latest.id if latest is not None else 0
        self._hooks.enter(Phase.READ_BASE, snapshot_id=self._base_id, attempt=self._retries.attempt)
        require_supported(store, request.purpose, latest)
        # All manifests of the latest snapshot, base then delta, are the base of the next one.
        old = [] if latest is None else manifests.data_manifests(store, latest)
        if request.rescan is not None:
            base, entries = request.rescan(latest)
            self._forget_delta()
            return latest, old, base, entries
        if latest is None:
            return latest, old, request.entries.slice(0, 0), request.entries
        are_new = request.added is not None and request.added.are_new(latest)
        return latest, old, self._base.at(latest, old, request.entries, request.index, are_new=are_new), request.entries

    def _prepare(self) -> tuple[Snapshot, list[str]]:
        """Read the latest snapshot, check, and write manifests.

        Returns:
            The snapshot to publish, and the files of this attempt.
        """
        store, request = self._store, self._request
        latest, old, base, entries = self._read_base()
        # Beside writers that commit all the time the base is outdated when it is read: what came meanwhile is
        # soon added to it.
        for _ in range(_CATCHING_UP if self._retries.attempt and request.rescan is None else 0):
            if snapshots.latest_id(store) in (None, self._base_id):
                break
            latest, old, base, entries = self._read_base()
        if request.strict is not None:
            request.strict.check(latest, request.kind, list({*partitions_of(entries), *request.index.partitions}))
        check(store, base, entries, request.kind, latest)
        if request.looked_at is not None:
            self._require_first(request.looked_at)
        if request.added is not None:
            request.added.require_new(latest)
        self._next_row_id = (latest.next_row_id or 0) if latest is not None else 0
        if tracks_rows(store):  # by the snapshot that this attempt makes: never those of the attempt before
            entries, self._next_row_id = assign(entries, self._base_id + 1, self._next_row_id)
            self._forget_delta()
        self._hooks.enter(Phase.WRITE_MANIFESTS, snapshot_id=self._base_id + 1, attempt=self._retries.attempt)
        if self._delta is None:
            self._files.take()
            self._delta = manifests.write_list(self._drafts, manifests.write_manifests(self._drafts, entries))
            if request.changelog.num_rows:
                changelog_manifests = manifests.write_manifests(self._drafts, request.changelog)
                self._changelog = manifests.write_list(self._drafts, changelog_manifests)
            self._delta_files = self._files.take()
        index_manifest = next_index_manifest(store, self._drafts, latest, request.index, base, entries, request.user)
        base_list = manifests.write_list(self._drafts, request.merge(store, old, self._drafts))
        return self._snapshot(latest, entries, base_list, index_manifest), self._files.take()

    def _require_first(self, looked_at: int) -> None:
        """Refuse the commit if another process of the same user has meanwhile committed its number with other files."""
        request, store = self._request, self._store
        for number in range(looked_at + 1, self._base_id + 1):
            snapshot = snapshots.try_read(store, number)
            if snapshot is None or (snapshot.commit_user, snapshot.commit_identifier) != (
                request.user,
                request.identifier,
            ):
                continue
            if (snapshot.commit_kind is CommitKind.COMPACT) == (request.kind is CommitKind.COMPACT):
                reason = (
                    f"table {store.name}: commit {request.identifier} of {request.user} was made meanwhile by "
                    "another process"
                )
                raise CommitConflict(ConflictKind.ALREADY_COMMITTED, (), request.user, number, reason)

    def _snapshot(
        self, latest: Snapshot | None, entries: pa.Table, base_list: tuple[str, int], index_manifest: str | None
    ) -> Snapshot:
        assert self._delta is not None
        request, store = self._request, self._store
        store.require_same()
        schema_id = max(list_schema_ids(store.file_io, store.root, store.branch), default=store.identity.id)
        added, deleted = rows_of(entries, ADD), rows_of(entries, DELETE) + request.lost_rows
        marks = [mark for mark in (request.watermark, latest.watermark if latest else None) if mark is not None]
        return Snapshot(
            id=self._base_id + 1,
            schema_id=schema_id,
            base_manifest_list=base_list[0],
            base_manifest_list_size=base_list[1],
            delta_manifest_list=self._delta[0],
            delta_manifest_list_size=self._delta[1],
            changelog_manifest_list=None if self._changelog is None else self._changelog[0],
            changelog_manifest_list_size=None if self._changelog is None else self._changelog[1],
            index_manifest=index_manifest,
            commit_user=request.user,
            commit_identifier=request.identifier,
            commit_kind=request.kind,
            time_millis=store.clock.now_ms(),
            total_record_count=(latest.total_record_count if latest else 0) + added - deleted,
            delta_record_count=added - deleted,
            changelog_record_count=rows_of(request.changelog, ADD),
            watermark=max(marks) if marks else None,
            statistics=request.statistics or _inherited_statistics(store, latest, schema_id),
            properties={**(request.properties or {}), **numbered(store, latest, entries)} or None,
            next_row_id=self._next_row_id,
            log_offsets=latest.log_offsets if latest else None,
            others=latest.others if latest else None,
            writer_version=written_as(store.options.paimon_version),
        )

    # -- cleaning ----------------------------------------------------------------------------------------------------

    def _forget_delta(self) -> None:
        self._clean(self._delta_files)
        self._delta, self._changelog, self._delta_files = None, None, []

    def _clean_all(self) -> None:
        self._forget_delta()
        self._clean(self._files.take())

    def _clean(self, paths: list[str]) -> None:
        remove(self._store.file_io, paths)


def numbered(store: TableStore, latest: Snapshot | None, entries: pa.Table) -> dict[str, str]:
    """Return the property with the largest sequence number, for `write.sequence-number-init-mode` = snapshot.

    Java keeps it as a property of snapshots. Where the previous snapshot lacks it, all live files are read.
    """
    if store.options.get("write.sequence-number-init-mode") != "snapshot" or not store.schema.primary_keys:
        return {}
    known = None if latest is None else (latest.properties or {}).get(MAX_SEQUENCE)
    tables = [entries]
    if latest is not None and known is None:
        tables.append(manifests.live_entries(store, latest, columns=["max_sequence_number"]))
    numbers = [pc.max(table.column("max_sequence_number")).as_py() for table in tables if table.num_rows]
    return {MAX_SEQUENCE: str(max([int(known or -1), *numbers]))}


def _inherited_statistics(store: TableStore, latest: Snapshot | None, schema_id: int) -> str | None:
    """Return the statistics file that the next snapshot keeps, or None.

    Statistics are valid for the schema that they were computed for. A file that cannot be read now may be readable
    later, so it is kept while the schema stays. A damaged file is dropped.
    """
    if latest is None or latest.statistics is None:
        return None
    try:
        path = store.statistics_path(latest.statistics)
        statistics = parse_object(store.file_io.read_bytes(path), path)
    except (OSError, DredgeError) as error:
        stays = latest.schema_id == schema_id and not isinstance(error, (FileNotFoundError, CorruptFile))
        consequence = "are kept unread" if stays else "end here"
        _LOG.warning(
            "table %s: statistics %s cannot be read and %s: %s", store.name, latest.statistics, consequence, error
        )
        return latest.statistics if stays else None
    return latest.statistics if statistics.get("schemaId") == schema_id else None
