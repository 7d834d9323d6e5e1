"""Commit messages: files that a writer or compaction added and removed, and their conversion to changes of snapshots.

The changes of writers become the first snapshot, those of compactions the second one. Index files are checked against
the previous index manifest, and written to the next index manifest.

Source: ``CommitMessageImpl``, ``ManifestEntryChanges``, ``IndexManifestFileHandler``.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import compress
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CommitConflict, ConflictKind, CorruptFile, SnapshotNotFound
from lsm_core.format.index_sources import decode_sources
from lsm_core.format.manifest import (
    ADD,
    DELETE,
    ENTRY_SCHEMA,
    HASH_INDEX,
    SOURCE_COMPACT,
    VECTORS_INDEX,
    DataFileMeta,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
    entries_to_table,
)
from lsm_core.format.partitions import partition_text
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.format.stats import SimpleStats
from lsm_core.json_text import parse_json
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.manifests import NO_ENTRIES
from lsm_core.metadata.store import TableStore

_VERSION: Final = 3
_READABLE: Final = (1, 2, _VERSION)  # version 1 has no origin, version 2 no index files
_GROUPS: Final = (
    "new_files",
    "deleted_files",
    "compact_before",
    "compact_after",
    "changelog_files",
    "compact_changelog",
)
_INDEX_GROUPS: Final = (
    "new_index_files",
    "deleted_index_files",
    "compact_new_index_files",
    "compact_deleted_index_files",
)

WrittenFile = DataFileMeta | IndexFileMeta
_OPTIONAL: Final = ("index_state", "keys_as_of", "keys_after", "follows")


@dataclass(frozen=True)
class Origin:
    """Table for which a commit message was made, and its newest snapshot at that time.

    Attributes:
        table: name of the table.
        root: directory of the table.
        branch: name of the branch.
        snapshot_id: id of the newest snapshot when the message was made; 0 if the table had no snapshot.
        delta_list: name of the delta manifest list of this snapshot, or "" if unknown. Ids are reused after a rollback,
            but these names are unique.
    """

    table: str
    root: str
    branch: str
    snapshot_id: int
    delta_list: str = ""


@dataclass(frozen=True)
class CommitMessage:
    """Changes of one bucket.

    ``new_files``, ``deleted_files`` and ``changelog_files`` become an APPEND or OVERWRITE snapshot; ``compact_before``,
    ``compact_after`` and ``compact_changelog`` become a COMPACT snapshot. A file with the same name in both
    ``compact_before`` and ``compact_after`` was *upgraded*: its level changed, its bytes did not.

    A message names each index file that it replaces. The commit conflicts if a concurrent commit has already replaced
    this index file. The deletion vector of a removed data file must be removed in the same message.

    Attributes:
        partition: BinaryRow of the partition (with arity prefix).
        bucket: number of the bucket.
        total_buckets: number of buckets of the partition.
        new_files: data files that a writer added.
        deleted_files: data files that an SQL statement or overwrite removed.
        compact_before: inputs of a compaction.
        compact_after: outputs of a compaction.
        changelog_files: changelog files of a writer.
        compact_changelog: changelog files of a compaction.
        origin: table and its newest snapshot when the message was made (`Origin`); None if the process that made the
            message also commits it.
        new_index_files: index files added with the first snapshot.
        deleted_index_files: index files removed with the first snapshot.
        compact_new_index_files: index files added with the COMPACT snapshot.
        compact_deleted_index_files: index files removed with the COMPACT snapshot.
        index_state: fingerprint of the names of all hash index files of the partition when the rows got their buckets,
            or None if no row got a bucket from a hash index.
        keys_as_of: id of the snapshot at which the partition of each key was looked up (0 for an empty table), in
            tables whose keys may move between partitions.
        keys_after: identifiers of the user's commits that were pending at this lookup and must be committed first; None
            without a lookup.
        follows: whether the rows follow their keys into a partition that no written row named. An overwrite adds these
            files to the partition and does not replace its files.

    Source: Paimon `CommitMessageImpl`.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    new_files: tuple[DataFileMeta, ...] = ()
    deleted_files: tuple[DataFileMeta, ...] = ()
    compact_before: tuple[DataFileMeta, ...] = ()
    compact_after: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    compact_changelog: tuple[DataFileMeta, ...] = ()
    origin: Origin | None = None
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()
    compact_new_index_files: tuple[IndexFileMeta, ...] = ()
    compact_deleted_index_files: tuple[IndexFileMeta, ...] = ()
    index_state: str | None = None
    keys_as_of: int | None = None
    keys_after: tuple[int, ...] | None = None
    follows: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the message changes nothing."""
        return not any(getattr(self, group) for group in (*_GROUPS, *_INDEX_GROUPS))

    def own_files(self) -> list[DataFileMeta]:
        """Return the files that were created for this message, each once; upgraded files are left out."""
        new = {file.file_name for file in self.new_files}
        kept = {file.file_name for file in (*self.compact_before, *self.deleted_files)} - new
        own = (*self.new_files, *self.compact_after, *self.changelog_files, *self.compact_changelog)
        return list({file.file_name: file for file in reversed(own) if file.file_name not in kept}.values())[::-1]

    def own_index_files(self) -> list[IndexFileMeta]:
        """Return the index files that were created for this message, each once."""
        own = (*self.new_index_files, *self.compact_new_index_files)
        return list({file.file_name: file for file in own}.values())

    def written(self, *, by_writer: bool = False) -> list[WrittenFile]:
        """Return all data and index files that were created for this message.

        Args:
            by_writer: return only the writer's files, which belong to the first snapshot.
        """
        if by_writer:
            return [*self.new_files, *self.changelog_files, *self.new_index_files]
        return [*self.own_files(), *self.own_index_files()]

    def to_bytes(self) -> bytes:
        """Return a versioned JSON document (bytes as base64), for any process that has this class."""
        document: dict[str, Any] = {
            "version": _VERSION,
            "partition": _text(self.partition),
            "bucket": self.bucket,
            "total_buckets": self.total_buckets,
        }
        if self.origin is not None:
            document["origin"] = asdict(self.origin)
        for group in _GROUPS:
            files = getattr(self, group)
            if files:
                document[group] = [_file_to_object(file) for file in files]
        for member in _OPTIONAL:
            if (known := getattr(self, member)) is not None:
                document[member] = known
        for group in _INDEX_GROUPS:
            if indexes := getattr(self, group):
                document[group] = [file.to_list() for file in indexes]
        return json.dumps(document, separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> CommitMessage:
        """Return the message that :meth:`to_bytes` serialised; raise :class:`CorruptFile` for unreadable bytes."""
        try:
            document = parse_json(data, unique=True)
            version = document["version"]
            if version not in _READABLE:
                raise CorruptFile(
                    "<commit message>", f"version {version!r}; this Dredge reads versions 1 to {_VERSION}"
                )
            groups: dict[str, Any] = {
                group: tuple(_file_from_object(f) for f in document.get(group, ())) for group in _GROUPS
            }
            indexes = {
                group: tuple(IndexFileMeta.of_list(f) for f in document.get(group, ())) for group in _INDEX_GROUPS
            }
            state, as_of, after, follows = (document.get(member) for member in _OPTIONAL)
            made_by, origin = document.get("origin"), None
            if made_by is not None:
                table, root, branch = (str(made_by[member]) for member in ("table", "root", "branch"))
                known = str(made_by.get("delta_list", ""))  # missing in messages of older Dredge versions
                origin = Origin(table, root, branch, int(made_by["snapshot_id"]), known)
            return CommitMessage(
                base64.b64decode(document["partition"], validate=True),
                int(document["bucket"]),
                int(document["total_buckets"]),
                **{**groups, **indexes},
                origin=origin,
                index_state=None if state is None else str(state),
                keys_as_of=None if as_of is None else int(as_of),
                keys_after=None if after is None else tuple(int(number) for number in after),
                follows=None if follows is None else bool(follows),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptFile("<commit message>", f"unreadable: {error!r}") from error


def index_state_of(names: Iterable[str]) -> str:
    """Return a fingerprint of the names of a partition's hash index files; different files give different texts."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:32]


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _file_to_object(file: DataFileMeta) -> dict[str, Any]:
    """Return the JSON members of one file; members with their default are left out to keep messages small."""
    value: dict[str, Any] = {}
    for member in fields(file):
        item = getattr(file, member.name)
        if item == member.default:
            continue
        if isinstance(item, bytes):
            value[member.name] = {"b": _text(item)}
        elif isinstance(item, SimpleStats):
            value[member.name] = [_text(item.min_values), _text(item.max_values), item.null_counts]
        else:
            value[member.name] = item
    return value


def _file_from_object(value: Mapping[str, Any]) -> DataFileMeta:
    known = {member.name for member in fields(DataFileMeta)}
    unknown = sorted(set(value) - known)
    if unknown:
        raise ValueError(f"unknown file members {unknown}")
    return DataFileMeta(**{name: _member(name, item) for name, item in value.items()})


def _member(name: str, item: Any) -> Any:
    if name in {"key_stats", "value_stats"}:
        low, high, nulls = item
        return SimpleStats(
            base64.b64decode(low, validate=True),
            base64.b64decode(high, validate=True),
            None if nulls is None else tuple(nulls),
        )
    if isinstance(item, dict):
        return base64.b64decode(item["b"], validate=True)
    return tuple(item) if isinstance(item, list) else item


IDENTITY = ("partition", "bucket", "level", "file_name", "extra_files", "embedded_index", "external_path")
"""Columns that identify the file of an entry (Java `FileEntry.Identifier`)."""


@dataclass(frozen=True)
class IndexChange:
    """Change of a table's index files; its truth value is False if it changes nothing.

    Attributes:
        added: new index files of messages.
        removed: removed index files of messages.
        dropped: function that returns True for a partition that loses all index files, including files of unknown types
            (overwritten and dropped partitions). None for no such partition.
        states: (partition, fingerprint) pairs: the hash indexes of a partition must still have this fingerprint, or a
            key could be in two buckets (`CommitMessage.index_state`).
        keys_as_of: id of the oldest snapshot at which keys were looked up (`CommitMessage.keys_as_of`), or None.
        keys_after: identifiers of the same user's commits that must be committed before this change.
    """

    added: tuple[IndexManifestEntry, ...] = ()
    removed: tuple[IndexManifestEntry, ...] = ()
    dropped: Callable[[bytes], bool] | None = None
    states: tuple[tuple[bytes, str], ...] = ()
    keys_as_of: int | None = None
    keys_after: frozenset[int] = frozenset()

    @staticmethod
    def of(
        partition: bytes,
        bucket: int,
        new: Sequence[IndexFileMeta],
        deleted: Sequence[IndexFileMeta],
        state: str | None = None,
        keys_as_of: int | None = None,
        keys_after: Iterable[int] = (),
    ) -> IndexChange:
        """Return the change of one bucket's index files.

        Args:
            partition: the bucket's partition, as BinaryRow bytes.
            bucket: number of the bucket.
            new: index files to add.
            deleted: index files to remove.
            state: fingerprint that the partition's hash indexes must still have (:attr:`states`); None for no check.
            keys_as_of: id of the oldest snapshot at which keys were looked up, or None.
            keys_after: identifiers of the same user's commits that must be committed before this change.
        """
        return IndexChange(
            tuple(IndexManifestEntry.of(ADD, partition, bucket, file) for file in new),
            tuple(IndexManifestEntry.of(DELETE, partition, bucket, file) for file in deleted),
            states=() if state is None else ((partition, state),),
            keys_as_of=keys_as_of,
            keys_after=frozenset(keys_after),
        )

    def __add__(self, other: IndexChange) -> IndexChange:
        together = self.added + other.added, self.removed + other.removed, self.dropped or other.dropped
        lookups = [known for known in (self.keys_as_of, other.keys_as_of) if known is not None]
        states = tuple(dict.fromkeys(self.states + other.states))
        return IndexChange(*together, states, min(lookups, default=None), self.keys_after | other.keys_after)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.dropped or self.states) or self.keys_as_of is not None

    @property
    def takes_rows(self) -> bool:
        """Whether the change adds or removes index files with deletion vectors, which hide rows of data files."""
        return any(entry.index_type == VECTORS_INDEX for entry in (*self.added, *self.removed))

    @property
    def partitions(self) -> list[bytes]:
        """Partitions of the added and removed index files, each once."""
        return list(dict.fromkeys(entry.partition for entry in (*self.added, *self.removed)))

    @cached_property
    def new_names(self) -> frozenset[str]:
        """Names of the added index files."""
        return frozenset(entry.file_name for entry in self.added)


NO_CHANGE: Final = IndexChange()


def next_index_manifest(
    store: TableStore,
    drafts: TableStore,
    latest: Snapshot | None,
    change: IndexChange,
    base: pa.Table,
    delta: pa.Table,
    user: str,
) -> str | None:
    """Write the index manifest that results from a change, and return its name.

    Indexes of a primary-key table whose data files change are left out. If nothing changes, the name of the current
    index manifest is returned. The result is None if no index file remains.

    Args:
        store: the table.
        drafts: the table with a recording FileIO, for new files.
        latest: newest snapshot, or None.
        change: change of the index files.
        base: live entries of the touched partitions.
        delta: entries of data files of the same commit.
        user: commit user.

    Raises:
        CommitConflict: the change conflicts with the newest snapshot. The kind is `INPUTS_GONE` for deletion vectors of
            missing data files, and `FILES_KNOWN` for index files that are already in the table. It is `BASE_GONE` if a
            snapshot or pending commit that the key lookup needs is missing, else `INDEX_CHANGED`.
    """
    previous = None if latest is None else latest.index_manifest
    takes_files = bool(pc.any(pc.equal(delta.column("kind"), DELETE)).as_py())
    if not change and (previous is None or not takes_files):
        return previous
    live = [] if latest is None else manifests.index_entries(store, latest)
    _require_states(store, latest, live, change.states)
    _require_no_write_since(store, latest, change, user)
    drops = change.dropped or (lambda _: False)
    removed = {(_place(entry), entry.file_name) for entry in change.removed if not drops(entry.partition)}
    if lost := removed - {(_place(entry), entry.file_name) for entry in live}:
        cause = "another commit replaced index files that this commit replaces"
        raise _conflict(store, latest, cause, sorted(name for _, name in lost))
    stale = _stale_indexes(store, live, delta)
    keep = [
        not drops(entry.partition) and (_place(entry), entry.file_name) not in removed and entry.file_name not in stale
        for entry in live
    ]
    staying = list(compress(live, keep))
    _require_one_a_bucket(store, latest, staying, change.added)
    _require_vectors_fit(store, latest, staying, change.added, base, delta)
    return manifests.write_index_manifest(drafts, previous, keep, change.added)


def _stale_indexes(store: TableStore, live: Sequence[IndexManifestEntry], delta: pa.Table) -> set[str]:
    """Return the names of index files that cover other data files than those of their level after a commit.

    Paimon's readers ignore such index files, and its writers replace them. Without an index they scan the data files.

    Args:
        store: the table.
        live: index files of the newest snapshot.
        delta: ADD and DELETE entries of data files in the same commit.

    Source: `PkSortedBucketIndexState.fromActiveDataFiles`, `PrimaryKeyIndexSourcePolicy` (Paimon 2.0).
    """
    if not store.has_primary_key or not any(entry.is_global for entry in live):
        return set()
    is_add = pc.equal(delta.column("kind"), ADD)
    removed = _places_of(delta.filter(pc.invert(is_add))).keys()
    changed = {(partition, bucket) for partition, bucket, _ in removed}
    compacted = pc.fill_null(pc.equal(delta.column("file_source"), SOURCE_COMPACT), fill_value=False)
    new = delta.filter(pc.and_(is_add, compacted))
    columns = (new.column(name).to_pylist() for name in ("partition", "bucket", "level"))
    levels = set(zip(*columns, strict=True))
    stale = set()
    for entry in (entry for entry in live if entry.is_global):
        place, index = (entry.partition, entry.bucket), entry.global_index
        sources = decode_sources(index.source_meta or b"") if index is not None else None
        if sources is None:  # an unknown form: no longer valid as soon as a file of its bucket is replaced
            is_stale = place in changed
        else:
            is_stale = (*place, sources.level) in levels or any((*place, name) in removed for name, _ in sources.files)
        if is_stale:
            stale.add(entry.file_name)
    return stale


def _require_states(
    store: TableStore,
    latest: Snapshot | None,
    live: Sequence[IndexManifestEntry],
    states: Sequence[tuple[bytes, str]],
) -> None:
    """Raise CommitConflict if buckets were assigned with an older hash index, because a key could get two buckets.

    Args:
        store: the table.
        latest: newest snapshot, or None.
        live: index files of the newest snapshot.
        states: (partition, fingerprint of its hash indexes at the assignment) pairs.
    """
    names: dict[bytes, list[str]] = {partition: [] for partition, _ in states}
    for entry in live:
        if entry.index_type == HASH_INDEX and entry.partition in names:
            names[entry.partition].append(entry.file_name)
    for partition, state in states:
        if index_state_of(names[partition]) == state:
            continue
        text = partition_text(store.schema, partition, store.options)
        cause = (
            f"the hash index of {f'partition {text}' if text else 'the table'} was changed by another commit since "
            "its rows were assigned"
        )
        raise _conflict(store, latest, f"{cause} to buckets, so a key could lie in two of them", names[partition])


def _require_no_write_since(store: TableStore, latest: Snapshot | None, change: IndexChange, user: str) -> None:
    """Raise CommitConflict if another commit may have moved or added a key since the keys of the change were looked up.

    Commits of the same user that were pending at the lookup must be in the table now.
    """
    if change.keys_as_of is None:
        return
    keys_as_of, waiting = change.keys_as_of, set(change.keys_after)
    now = 0 if latest is None else latest.id
    if now < keys_as_of:
        reason = f"table {store.name}: snapshot {keys_as_of}, at which keys were looked up, has expired; write again"
        raise CommitConflict(ConflictKind.BASE_GONE, (), None, now or None, reason)
    for number in range(keys_as_of + 1, now + 1):
        try:
            snapshot = snapshots.read(store, number)
        except SnapshotNotFound as error:
            reason = f"table {store.name}: snapshot {number} expired meanwhile, so its changes are unknown; do it again"
            raise CommitConflict(ConflictKind.BASE_GONE, (), None, now, reason) from error
        if snapshot.commit_kind is CommitKind.COMPACT:
            continue
        if snapshot.commit_user != user or snapshot.commit_identifier not in change.keys_after:
            reason = (
                f"table {store.name}: another commit followed the lookup of the partitions of the keys; write again"
            )
            raise CommitConflict(ConflictKind.INDEX_CHANGED, (), snapshot.commit_user, number, reason)
        waiting.discard(snapshot.commit_identifier)
    if waiting:
        reason = (
            f"table {store.name}: commit {min(waiting)} of {user} is not in the "
            "table, but this commit depends on its keys; "
            "commit the messages in order"
        )
        raise CommitConflict(ConflictKind.BASE_GONE, (), user, now or None, reason)


def _place(entry: IndexManifestEntry) -> _Place:
    return entry.partition, entry.bucket, entry.index_type


def _require_one_a_bucket(
    store: TableStore,
    latest: Snapshot | None,
    staying: Sequence[IndexManifestEntry],
    added: Sequence[IndexManifestEntry],
) -> None:
    """Check that each bucket has at most one hash index file and one index file of deletion vectors.

    Tables in bucket-unaware mode may have several index files of deletion vectors.

    Args:
        store: the table.
        latest: newest snapshot, or None.
        staying: index files of the newest snapshot that the change keeps.
        added: index files that the change adds.

    Raises:
        CommitConflict: a bucket would get a second one.
    """
    names = [entry.file_name for entry in staying]
    if again := sorted({entry.file_name for entry in added} & set(names)):
        reason = f"table {store.name}: index files are already in the table"
        raise CommitConflict(ConflictKind.FILES_KNOWN, again, None, None, reason)
    single_files: dict[_Place, str] = {
        _place(entry): entry.file_name for entry in staying if _is_single(store, entry.index_type)
    }
    for entry in added:
        if not _is_single(store, entry.index_type):
            continue
        known = single_files.setdefault(_place(entry), entry.file_name)
        if known != entry.file_name:
            cause = (
                f"bucket {entry.bucket} has another index file ({entry.index_type}) than the one this change comes from"
            )
            raise _conflict(store, latest, cause, [known, entry.file_name])


def _is_single(store: TableStore, index_type: str) -> bool:
    return index_type == HASH_INDEX or (index_type == VECTORS_INDEX and not _without_buckets(store))


def _without_buckets(store: TableStore) -> bool:
    return not store.has_primary_key and store.options.bucket < 0


def _require_vectors_fit(
    store: TableStore,
    latest: Snapshot | None,
    staying: Sequence[IndexManifestEntry],
    added: Sequence[IndexManifestEntry],
    base: pa.Table,
    delta: pa.Table,
) -> None:
    """Check that each data file has at most one deletion vector, and that each vector has a live data file.

    Args:
        store: the table.
        latest: newest snapshot, or None.
        staying: index files of the newest snapshot that the change keeps.
        added: index files that the change adds.
        base: live entries of data files in the touched partitions.
        delta: ADD and DELETE entries of data files in the same commit.

    Raises:
        CommitConflict: a check fails because of another commit.
    """
    # A vector that another commit added to a removed data file would be lost, and the deleted rows would reappear
    # (format.md 14.3 d).
    is_add = pc.equal(delta.column("kind"), ADD)
    removed_places = _places_of(delta.filter(pc.invert(is_add)))
    new = _places_of(delta.filter(is_add))
    touched = {partition for partition, _, _ in removed_places} | {entry.partition for entry in added}
    near = [entry for entry in staying if entry.partition in touched]
    left = {place: entry.file_name for entry in near for place in _vectors_of(entry)}
    if forgotten := sorted(name for _, _, name in (removed_places.keys() - new.keys()) & left.keys()):
        cause = "rows of a file that is to be replaced were deleted by another commit (deletion vectors)"
        raise _conflict(store, latest, cause, forgotten)
    vectors = [place for entry in added for place in _vectors_of(entry)]
    if not vectors:
        return
    twice = sorted({left[place] for place in vectors if place in left})
    if twice or len(set(vectors)) != len(vectors):
        cause = "another commit deleted rows of the same file (deletion vectors)"
        raise _conflict(store, latest, cause, twice or sorted({name for _, _, name in vectors}))
    file_names = pa.array(sorted({name for _, _, name in vectors}), pa.string())
    existing = (
        _places_of(base.filter(pc.is_in(base.column("file_name"), file_names))).keys() - removed_places.keys()
        | new.keys()
    )
    if missing := sorted({name for _, _, name in set(vectors) - existing}):
        reason = f"table {store.name}: files whose rows are to be deleted (deletion vectors) were removed; do it again"
        raise CommitConflict(ConflictKind.INPUTS_GONE, missing, None, latest.id if latest else None, reason)


def _vectors_of(entry: IndexManifestEntry) -> list[tuple[bytes, int, str]]:
    if entry.index_type != VECTORS_INDEX:
        return []
    return [(entry.partition, entry.bucket, vector.data_file) for vector in entry.deletion_vectors or ()]


def _places_of(entries: pa.Table) -> Mapping[tuple[bytes, int, str], None]:
    columns = (entries.column(name).to_pylist() for name in ("partition", "bucket", "file_name"))
    return dict.fromkeys(zip(*columns, strict=True))


def _conflict(store: TableStore, latest: Snapshot | None, cause: str, files: Sequence[str]) -> CommitConflict:
    at = None if latest is None else latest.id
    return CommitConflict(ConflictKind.INDEX_CHANGED, files, None, at, f"table {store.name}: {cause}")


@dataclass(frozen=True)
class Parts:
    """Content of the two snapshots that messages may become; an empty table means that a snapshot is not needed.

    Attributes:
        append: entries of the first snapshot.
        compact: entries of the second snapshot.
        append_index: index files of the first snapshot.
        compact_index: index files of the second snapshot.
        append_changelog: changelog entries of the first snapshot.
        compact_changelog: changelog entries of the second snapshot.
    """

    append: pa.Table
    compact: pa.Table
    append_index: IndexChange = NO_CHANGE
    compact_index: IndexChange = NO_CHANGE
    append_changelog: pa.Table = field(default_factory=lambda: NO_ENTRIES)
    compact_changelog: pa.Table = field(default_factory=lambda: NO_ENTRIES)

    @property
    def has_append(self) -> bool:
        """Whether the first snapshot (changes of writers) is needed."""
        return bool(self.append.num_rows or self.append_index or self.append_changelog.num_rows)

    @property
    def has_compact(self) -> bool:
        """Whether the second snapshot (changes of compactions) is needed."""
        return bool(self.compact.num_rows or self.compact_index or self.compact_changelog.num_rows)

    @property
    def append_kind(self) -> CommitKind:
        """Kind of the first snapshot: OVERWRITE if it removes files or changes deletion vectors, else APPEND."""
        takes = has_deletes(self.append) or self.append_index.takes_rows
        return CommitKind.OVERWRITE if takes else CommitKind.APPEND


def split(messages: Iterable[CommitMessage]) -> Parts:
    """Return the append and compaction parts of messages; DELETE entries come before ADD entries."""
    append: list[ManifestEntry] = []
    compact: list[ManifestEntry] = []
    append_changelog: list[ManifestEntry] = []
    compact_changelog: list[ManifestEntry] = []
    append_index = compact_index = NO_CHANGE
    for message in messages:
        append += _entries(message, message.deleted_files, DELETE) + _entries(message, message.new_files, ADD)
        compact += _entries(message, message.compact_before, DELETE) + _entries(message, message.compact_after, ADD)
        append_changelog += _entries(message, message.changelog_files, ADD)
        compact_changelog += _entries(message, message.compact_changelog, ADD)
        place = (message.partition, message.bucket)
        append_index += IndexChange.of(
            *place,
            message.new_index_files,
            message.deleted_index_files,
            message.index_state,
            message.keys_as_of,
            message.keys_after or (),
        )
        compact_index += IndexChange.of(*place, message.compact_new_index_files, message.compact_deleted_index_files)
    changelogs = _table(append_changelog), _table(compact_changelog)
    return Parts(_table(append), _table(compact), append_index, compact_index, *changelogs)


def _entries(message: CommitMessage, files: Sequence[DataFileMeta], kind: int) -> list[ManifestEntry]:
    return [ManifestEntry(kind, message.partition, message.bucket, message.total_buckets, file) for file in files]


def _table(entries: Sequence[ManifestEntry]) -> pa.Table:
    return entries_to_table(entries) if entries else NO_ENTRIES


def has_deletes(entries: pa.Table) -> bool:
    """Return whether any entry removes a file."""
    return bool(pc.any(pc.equal(entries.column("kind"), DELETE)).as_py())


def rows_of(entries: pa.Table, kind: int) -> int:
    """Return the number of rows in the files of all entries of ``kind`` (ADD or DELETE)."""
    return int(pc.sum(entries.column("row_count").filter(pc.equal(entries.column("kind"), kind))).as_py() or 0)


def deletions_of(live: pa.Table) -> pa.Table:
    """Return a DELETE entry for every entry of ``live``; all other fields are equal."""
    index = live.schema.get_field_index("kind")
    return live.set_column(index, ENTRY_SCHEMA.field("kind"), pa.array(np.full(live.num_rows, DELETE, np.int8)))


def identities(entries: pa.Table) -> list[tuple[object, ...]]:
    """Return for each entry the values that identify its file: partition, bucket, level, file name and others.

    The columns are `IDENTITY`. Each entry becomes a tuple of Python objects, so there should be few entries.
    """
    columns = [entries.column(name).to_pylist() for name in IDENTITY]
    columns[4] = [tuple(extra or ()) for extra in columns[4]]
    return list(zip(*columns, strict=True))


_Place = tuple[bytes, int, str]
