"""Index files that a snapshot adds and removes: their checks, and the next index manifest.

Source: Paimon `IndexManifestFileHandler`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.message import index_state_of
from lsm_core.errors import CommitConflict, ConflictKind, SnapshotNotFound
from lsm_core.format.manifest import ADD, DELETE, HASH_INDEX, VECTORS_INDEX, IndexFileMeta, IndexManifestEntry
from lsm_core.format.partitions import partition_text
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore

_Place = tuple[bytes, int, str]


@dataclass(frozen=True)
class IndexChange:
    """Change of a table's index files; false when it changes nothing.

    Attributes:
        added: new index files of messages.
        removed: removed index files of messages.
        dropped: returns true for partitions that lose all index files (an overwrite, dropped partitions), also files of
            unknown types.
        states: state that the hash indexes of partitions must have for their rows to be in the right buckets
            (`CommitMessage.index_state`).
        keys_as_of: oldest snapshot at which keys were located (`CommitMessage.keys_as_of`).
        keys_after: commits of the same user that must come before this one.
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
        """Return the change of one bucket."""
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
        """Whether deletion vectors change."""
        return any(entry.index_type == VECTORS_INDEX for entry in (*self.added, *self.removed))

    @property
    def partitions(self) -> list[bytes]:
        """Partitions that get or lose index files by name."""
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
    """Return the name of the index manifest after a change, which is written if anything changes.

    Args:
        store: the table.
        drafts: the table with a recording FileIO, for new files.
        latest: newest snapshot, or None.
        change: change of the index files.
        base: live entries of the touched partitions.
        delta: entries of data files of the same commit.
        user: commit user.

    Raises:
        CommitConflict: the change does not fit the newest snapshot (`INDEX_CHANGED`, or `INPUTS_GONE` for vectors of
            missing data files).
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
    keep = [not drops(entry.partition) and (_place(entry), entry.file_name) not in removed for entry in live]
    staying = list(compress(live, keep))
    _require_one_a_bucket(store, latest, staying, change.added)
    _require_vectors_fit(store, latest, staying, change.added, base, delta)
    return manifests.write_index_manifest(drafts, previous, keep, change.added)


def _require_states(
    store: TableStore,
    latest: Snapshot | None,
    live: Sequence[IndexManifestEntry],
    states: Sequence[tuple[bytes, str]],
) -> None:
    """Refuse rows whose buckets were assigned by an older index, because one key could get two buckets."""
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
    """Refuse rows whose keys were located at an older snapshot, if another commit may have moved or added a key since.

    Commits of the same user that were pending then must be in the table now.
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
    """Require one hash index and one file of vectors per bucket.

    Tables without buckets may have several files of vectors.
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
    """Require that no data file has two vectors, no removed file leaves one, and all new vectors have a file."""
    # A vector that appeared on a data file since would be lost with the file, and its rows come back
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
    wanted = pa.array(sorted({name for _, _, name in vectors}), pa.string())
    existing = (
        _places_of(base.filter(pc.is_in(base.column("file_name"), wanted))).keys() - removed_places.keys() | new.keys()
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
