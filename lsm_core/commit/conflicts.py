"""Conflict checks: whether a change can still be applied to the newest snapshot.

A change conflicts if a later commit has changed its inputs. The base of a commit is the set of live entries that the
change may conflict with. This base is read from as few manifests as possible.

Source: ``ConflictDetection``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array
from lsm_core.commit.message import IDENTITY, IndexChange, identities
from lsm_core.errors import CommitConflict, ConflictKind, CorruptFile, SnapshotNotFound
from lsm_core.format.manifest import (
    ADD,
    BLOB_EXTENSION,
    DELETE,
    IndexManifestEntry,
    ManifestFileMeta,
    merge_entries,
    partitions_of,
)
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.live_files import Search, bucket_groups, find_live, tree_files
from lsm_core.metadata.manifests import NO_ENTRIES
from lsm_core.metadata.store import TableStore
from lsm_core.options.table_options import PaimonVersion

_STRICT: Final = "commit.strict-mode.last-safe-snapshot"

Rescan = Callable[[Snapshot | None], tuple[pa.Table, pa.Table]]
"""Function of the latest snapshot that returns (live entries, entries of the change); called at every attempt."""
NEEDED_COLUMNS = ("kind", "total_buckets", "row_count", *IDENTITY)
"""Columns of base entries that the checks need if the change adds no file above level 0."""
_BLAME_DEPTH = 50


def check(store: TableStore, base: pa.Table, delta: pa.Table, kind: CommitKind, latest: Snapshot | None) -> None:
    """Raise :class:`CommitConflict` if a change conflicts with the live entries of its partitions.

    The error names the conflicting files and, if it can be found, the commit that added them.

    Args:
        store: the table.
        base: live entries that the change may conflict with.
        delta: ADD and DELETE entries of the change.
        kind: kind of the new snapshot.
        latest: newest snapshot, where the search for the conflicting commit starts; None if the table has none.
    """
    if kind is not CommitKind.OVERWRITE:
        _check_bucket_count(store, base, delta, latest)
    _check_identity(store, base, delta, latest)
    if store.schema.primary_keys and adds_above_level0(delta):
        _check_tree(store, base, delta, latest)
    if manifests.evolves(store):
        _check_row_ids(store, delta, latest)


class StrictMode:
    """Strict mode of a committer: refuse to commit after certain commits of other users since the last safe snapshot.

    The option is `commit.strict-mode.last-safe-snapshot`.

    Source: Paimon `StrictModeChecker`.
    """

    def __init__(self, store: TableStore, user: str, safe: int) -> None:
        """Create the checker of one committer.

        Args:
            store: the table.
            user: commit user of the committer.
            safe: id of the last snapshot up to which commits of other users are accepted; -1 to check nothing until the
                committer's own first commit.
        """
        self._store, self._user, self._safe = store, user, safe

    @staticmethod
    def of(store: TableStore, user: str) -> StrictMode | None:
        """Return the checker, or None if the table does not use strict mode."""
        safe = store.options.get(_STRICT)
        return None if safe is None else StrictMode(store, user, int(safe))

    def check(self, latest: Snapshot | None, kind: CommitKind, partitions: Sequence[bytes]) -> None:
        """Raise :class:`CommitConflict` for a compaction or overwrite by another user since the last safe snapshot.

        For an overwrite, an APPEND snapshot of another user is a conflict too. Since Paimon 2.0 a commit conflicts only
        if it changed one of ``partitions``. An expired snapshot since the last safe snapshot is also a conflict.
        """
        if self._safe < 0:
            return
        newest = 0 if latest is None else latest.id
        for number in range(self._safe + 1, newest + 1):
            snapshot = snapshots.try_read(self._store, number)
            if snapshot is None:
                raise self._conflict(number, None, "a snapshot that has expired")
            if snapshot.commit_user != self._user and self._counts(snapshot, kind, partitions):
                raise self._conflict(number, snapshot.commit_user, f"the {snapshot.commit_kind.value} snapshot")
        self._safe = newest

    def published(self, snapshot_id: int) -> None:
        """Record a snapshot of this committer as the last safe snapshot."""
        self._safe = snapshot_id

    def _counts(self, snapshot: Snapshot, kind: CommitKind, partitions: Sequence[bytes]) -> bool:
        rewrote = snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.OVERWRITE)
        wrote = snapshot.commit_kind is CommitKind.APPEND and kind is CommitKind.OVERWRITE
        if not rewrote and not wrote:
            return False
        by_partition = self._store.options.paimon_version.at_least(PaimonVersion.V2_0)
        if rewrote and not by_partition:
            return True
        delta = manifests.delta_entries(self._store, snapshot)
        if wrote:
            delta = delta.filter(pc.greater_equal(delta.column("bucket"), 0))
        if not by_partition:
            return bool(delta.num_rows)
        touched = set(partitions_of(delta))
        if rewrote:
            touched |= {entry.partition for entry in self._index_changes(snapshot)}
        return not touched.isdisjoint(partitions)

    def _index_changes(self, snapshot: Snapshot) -> list[IndexManifestEntry]:
        before = snapshots.try_read(self._store, snapshot.id - 1)
        if before is not None and before.index_manifest == snapshot.index_manifest:
            return []
        return manifests.index_entries(self._store, snapshot)

    def _conflict(self, number: int, user: str | None, cause: str) -> CommitConflict:
        reason = (
            f"table {self._store.name}: {cause} of another user follows snapshot "
            f"{self._safe}, the newest that {_STRICT} "
            "allows"
        )
        return CommitConflict(ConflictKind.STRICT_MODE, (), user, number, reason)


def adds_above_level0(delta: pa.Table) -> bool:
    """Return whether a file is added to a level whose files must not overlap."""
    added = pc.equal(delta.column("kind"), arrow_scalar(ADD))
    return bool(pc.any(pc.and_(added, pc.greater(delta.column("level"), arrow_scalar(0)))).as_py())


def _check_bucket_count(store: TableStore, base: pa.Table, delta: pa.Table, latest: Snapshot | None) -> None:
    columns = ["partition", "total_buckets", "file_name"]
    counted = [
        side.select(columns).filter(pc.greater(side.column("total_buckets"), arrow_scalar(0))) for side in (base, delta)
    ]
    if len(set().union(*(pc.unique(side.column("total_buckets")).to_pylist() for side in counted))) <= 1:
        return
    by = ["partition", "total_buckets"]
    smallest_names = pa.concat_tables(
        [side.group_by(by, use_threads=False).aggregate([("file_name", "min")]) for side in counted]
    )
    seen: dict[bytes, int] = {}
    for partition, buckets in zip(
        smallest_names["partition"].to_pylist(), smallest_names["total_buckets"].to_pylist(), strict=True
    ):
        if seen.setdefault(partition, buckets) != buckets:
            at = latest.id if latest is not None else None
            reason = (
                f"table {store.name}: a partition of {seen[partition]} buckets would get files of {buckets} buckets"
            )
            files = smallest_names["file_name_min"].to_pylist()[-1:]
            raise CommitConflict(ConflictKind.BUCKET_COUNT, files, None, at, reason)


def _check_identity(store: TableStore, base: pa.Table, delta: pa.Table, latest: Snapshot | None) -> None:
    """Raise CommitConflict for a file that is added again, or a removed file that is missing or on another level.

    Args:
        store: the table.
        base: live entries that the change may conflict with.
        delta: ADD and DELETE entries of the change.
        latest: newest snapshot, where the search for the conflicting commit starts; None if the table has none.
    """
    is_named = pc.is_in(base.column("file_name"), pc.unique(delta.column("file_name")))
    near = manifests.filter_rows(base.select(IDENTITY), is_named)
    present = set(identities(near))
    kinds = delta.column("kind").to_pylist()
    delta_identities = identities(delta)
    twice = [which for which, count in Counter(delta_identities).items() if count > 1]
    if twice:
        reason = f"table {store.name}: the commit adds a file twice"
        raise CommitConflict(ConflictKind.FILE_TWICE, _names(twice), reason=reason)
    missing = [
        which for which, kind in zip(delta_identities, kinds, strict=True) if kind == DELETE and which not in present
    ]
    if missing:
        names = _names(missing)
        user, snapshot_id = blame(store, latest, set(names), DELETE)
        reason = f"table {store.name}: files to replace were deleted or moved to another level; plan again"
        raise CommitConflict(ConflictKind.INPUTS_GONE, names, user, snapshot_id, reason)
    known = [which for which, kind in zip(delta_identities, kinds, strict=True) if kind == ADD and which in present]
    if known:
        names = _names(known)
        user, snapshot_id = blame(store, latest, set(names), ADD)
        reason = f"table {store.name}: files are already in the table"
        raise CommitConflict(ConflictKind.FILES_KNOWN, names, user, snapshot_id, reason)


def _check_tree(store: TableStore, base: pa.Table, delta: pa.Table, latest: Snapshot | None) -> None:
    """Raise CommitConflict if key ranges overlap in one bucket on a level above 0.

    Args:
        store: the table.
        base: live entries that the change may conflict with.
        delta: ADD and DELETE entries of the change.
        latest: newest snapshot, where the search for the conflicting commit starts; None if the table has none.
    """
    removed = set(identities(delta.filter(pc.equal(delta.column("kind"), DELETE))))
    added = delta.filter(pc.equal(delta.column("kind"), arrow_scalar(ADD)))
    touched = {(bytes(p), b) for p, b in zip(added["partition"].to_pylist(), added["bucket"].to_pylist(), strict=True)}
    buckets = pa.array(sorted({bucket for _, bucket in touched}), pa.int32())
    upper = base.filter(pc.and_(pc.greater(base.column("level"), 0), pc.is_in(base.column("bucket"), buckets)))
    keep = pa.array([which not in removed for which in identities(upper)], pa.bool_())
    after = pa.concat_tables([upper.filter(keep), added.filter(pc.greater(added.column("level"), 0))])
    for partition, bucket, _, group in bucket_groups(after):
        if (bytes(partition), bucket) not in touched or store.options.clusters_keys:
            continue
        by_level = sorted(tree_files(store, group), key=lambda file: (file.level, file.min_key))
        for left, right in itertools.pairwise(by_level):
            if left.level == right.level and left.max_key >= right.min_key:
                ours = set(added.column("file_name").to_pylist())
                foreign = [name for name in (left.name, right.name) if name not in ours]
                user, snapshot_id = blame(store, latest, set(foreign), ADD)
                reason = f"table {store.name}: key ranges overlap on level {left.level} of bucket {bucket}"
                raise CommitConflict(ConflictKind.KEY_RANGES, [left.name, right.name], user, snapshot_id, reason)


def _check_row_ids(store: TableStore, delta: pa.Table, latest: Snapshot | None) -> None:
    """Raise CommitConflict if files of a data-evolution table would have overlapping but different ranges of row ids.

    That happens if another commit added columns to a part of the rows that a compaction joined. The files of BLOB
    values cover parts of ranges, so each must be inside of one range.

    Args:
        store: the table.
        delta: ADD and DELETE entries of the change.
        latest: newest snapshot, where the search for the conflicting commit starts; None if the table has none.

    Source: ``ConflictDetection.checkRowIdRangeConflicts`` of Paimon 2.0.
    """
    added = delta.filter(
        pc.and_(pc.equal(delta.column("kind"), arrow_scalar(ADD)), pc.is_valid(delta.column("first_row_id")))
    )
    if not added.num_rows:
        return
    live = NO_ENTRIES if latest is None else manifests.live_entries(store, latest, partitions=partitions_of(added))
    removed = set(identities(delta.filter(pc.equal(delta.column("kind"), DELETE))))
    keep = pa.array([which not in removed for which in identities(live)], pa.bool_())
    live = live.filter(pc.and_(keep, pc.is_valid(live.column("first_row_id"))))
    ours = added.column("file_name").combine_chunks()
    for _, _, _, group in bucket_groups(pa.concat_tables([live, added])):
        names = misplaced_row_ids(group, ours)
        if names:
            foreign = set(names) - set(ours.to_pylist())
            user, snapshot_id = blame(store, latest, foreign, ADD)
            reason = f"table {store.name}: another commit changed columns or values of the same row ids; do it again"
            raise CommitConflict(ConflictKind.ROW_IDS, names, user, snapshot_id, reason)


def misplaced_row_ids(entries: pa.Table, added: pa.Array) -> list[str]:
    """Return the names of files whose row ids overlap those of added files, but do not fit them; [] if all fit.

    All files with the same row ids must have the same range of row ids. A file of BLOB values must be inside of one
    such range.

    Args:
        entries: files of one bucket of a data-evolution table, with their row ids.
        added: names of the added files; other files are not compared with each other.
    """
    entries = entries.sort_by([("first_row_id", "ascending"), ("row_count", "ascending")])
    is_blob = numpy_array(pc.ends_with(entries.column("file_name"), BLOB_EXTENSION))
    is_added = numpy_array(pc.is_in(entries.column("file_name"), added))
    first = numpy_array(entries.column("first_row_id")).astype(np.int64)
    after = first + numpy_array(entries.column("row_count")).astype(np.int64)
    plain, blobs = np.flatnonzero(~is_blob), np.flatnonzero(is_blob)
    reached = np.maximum.accumulate(after[plain])
    begins = np.flatnonzero(np.r_[True, first[plain][1:] >= reached[:-1]][: len(plain)])
    group = np.cumsum(np.bincount(begins, minlength=len(plain)))[: len(plain)] - 1
    starts, ends = first[plain][begins], np.maximum.reduceat(after[plain], begins) if len(plain) else after[plain]
    touched = np.bincount(group, weights=is_added[plain], minlength=len(begins)) > 0
    unlike = (first[plain] != starts[group]) | (after[plain] != ends[group])
    split = np.bincount(group, weights=unlike, minlength=len(begins)) > 0
    wrong = list(plain[(touched & split)[group]])
    if len(blobs):
        holder = np.searchsorted(starts, first[blobs], "right") - 1
        inside = (holder >= 0) & (after[blobs] <= np.r_[ends, -1][holder])
        concerned = is_added[blobs] | np.r_[touched, False][holder]
        wrong += list(blobs[~inside & concerned])
    return sorted(entries.column("file_name").take(arrow_array(np.asarray(wrong, np.int64))).to_pylist())


def blame(store: TableStore, latest: Snapshot | None, names: set[str], kind: int) -> tuple[str | None, int | None]:
    """Return (user, snapshot id) of the newest commit that added or deleted (``kind``) one of the files.

    Both are None if no such commit is among the newest 50 snapshots, or if snapshots cannot be read.
    """
    name_array = pa.array(sorted(names), pa.string())
    for snapshot_id in range(latest.id, max(latest.id - _BLAME_DEPTH, 0), -1) if latest is not None and names else ():
        try:
            snapshot = snapshots.read(store, snapshot_id)
            delta = manifests.delta_entries(store, snapshot)
        except (SnapshotNotFound, CorruptFile, OSError):
            break  # expired below here: the message stays less precise
        hit = pc.and_(pc.equal(delta.column("kind"), kind), pc.is_in(delta.column("file_name"), name_array))
        if pc.any(hit).as_py():
            return snapshot.commit_user, snapshot.id
    return None, None


def _names(files: list[tuple[object, ...]]) -> list[str]:
    return sorted({str(which[3]) for which in files})


def unchanged_since(store: TableStore, entries: pa.Table, snapshot_id: int) -> Rescan:
    """Return a function that checks at each attempt that no later commit changed the buckets of a commit.

    Otherwise the function raises :class:`CommitConflict`, which names the later commit. Later compactions are no
    conflict. A later snapshot that cannot be read (expired, rolled back) is a conflict.

    Args:
        store: the table.
        entries: entries of the commit.
        snapshot_id: id of the snapshot that the commit was computed from; later commits are those after it.

    Returns:
        A function from the latest snapshot (or None) to (live entries of the changed partitions, ``entries``).
    """
    touched = {
        (bytes(p), b) for p, b in zip(entries["partition"].to_pylist(), entries["bucket"].to_pylist(), strict=True)
    }
    last_checked = snapshot_id

    def source(latest: Snapshot | None) -> tuple[pa.Table, pa.Table]:
        nonlocal last_checked
        if latest is None or latest.id < snapshot_id:
            reason = (
                f"table {store.name}: snapshot {snapshot_id}, from which this change "
                "was computed, has expired; do it again"
            )
            raise CommitConflict(ConflictKind.BASE_GONE, reason=reason)
        for number in range(last_checked + 1, latest.id + 1):
            _require_apart(store, number, touched)
        last_checked = max(last_checked, latest.id)
        columns = None if adds_above_level0(entries) else list(NEEDED_COLUMNS)
        return manifests.live_entries(store, latest, partitions=partitions_of(entries), columns=columns), entries

    return source


def _require_apart(store: TableStore, number: int, touched: set[tuple[bytes, int]]) -> None:
    try:
        snapshot = snapshots.read(store, number)
        if snapshot.commit_kind is CommitKind.COMPACT:
            return
        delta = manifests.delta_entries(store, snapshot)
    except SnapshotNotFound as error:
        reason = f"table {store.name}: snapshot {number} expired meanwhile, so its changes are unknown; do it again"
        raise CommitConflict(ConflictKind.BASE_GONE, reason=reason) from error
    near = delta.filter(pc.is_in(delta.column("partition"), pa.array(sorted({p for p, _ in touched}), pa.binary())))
    places = zip(near["partition"].to_pylist(), near["bucket"].to_pylist(), near["file_name"].to_pylist(), strict=True)
    names = [name for partition, bucket, name in places if (bytes(partition), bucket) in touched]
    if names:
        reason = f"table {store.name}: another commit changed a bucket that this change was computed from; do it again"
        raise CommitConflict(ConflictKind.BUCKET_CHANGED, names, snapshot.commit_user, snapshot.id, reason)


def columns_unchanged_since(
    store: TableStore, entries: pa.Table, partitions: Sequence[bytes], snapshot_id: int
) -> Rescan:
    """Return a function that checks at each attempt that no later commit changed columns of the same rows.

    Otherwise the function raises :class:`CommitConflict`. It does so too if the rows of a file with some columns are no
    longer in the table. Later compactions are no conflict if they kept the range of row ids.

    Args:
        store: the table, which has data evolution.
        entries: entries of the commit; files with row ids contain columns of existing rows.
        partitions: the commit's partitions (BinaryRow bytes).
        snapshot_id: id of the snapshot that the columns were computed from.

    Returns:
        A function from the latest snapshot (or None) to (live entries of ``partitions``, ``entries``).

    Source: ``ConflictDetection.checkForRowIdFromSnapshot`` and ``checkRowIdExistence`` of Paimon 2.0.
    """
    ours = entries.filter(pc.is_valid(entries.column("first_row_id"))).select(_RANGE)
    last_checked = snapshot_id

    def source(latest: Snapshot | None) -> tuple[pa.Table, pa.Table]:
        nonlocal last_checked
        gone = f"table {store.name}: snapshot {snapshot_id}, from which columns were computed, is gone; do it again"
        if latest is None or latest.id < snapshot_id:
            raise CommitConflict(ConflictKind.BASE_GONE, reason=gone)
        for number in range(last_checked + 1, latest.id + 1):
            try:
                snapshot = snapshots.read(store, number)
                delta = None if snapshot.commit_kind is CommitKind.COMPACT else manifests.delta_entries(store, snapshot)
            except SnapshotNotFound as error:
                raise CommitConflict(ConflictKind.BASE_GONE, reason=gone) from error
            names = [] if delta is None else overlapping_row_ids(delta, ours)
            if names:
                reason = f"table {store.name}: another commit changed columns of the same rows; do it again"
                raise CommitConflict(ConflictKind.ROW_IDS, names, snapshot.commit_user, number, reason)
        last_checked = max(last_checked, latest.id)
        live = manifests.live_entries(store, latest, partitions=list(partitions))
        ranges = set(map(tuple, zip(*(live.column(name).to_pylist() for name in _RANGE[:-1]), strict=True)))
        names = ours.column("file_name").to_pylist()
        mine = zip(*(ours.column(name).to_pylist() for name in _RANGE[:-1]), strict=True)
        # Files of BLOB values cover parts of a range: `_check_row_ids` compares them.
        plain = [(name, place) for name, place in zip(names, mine, strict=True) if not name.endswith(BLOB_EXTENSION)]
        missing = [name for name, place in plain if place not in ranges]
        if missing:
            reason = f"table {store.name}: rows whose columns change were removed or joined with others; do it again"
            raise CommitConflict(ConflictKind.ROW_IDS, missing, None, latest.id, reason)
        return live.select(list(NEEDED_COLUMNS)), entries

    return source


_RANGE: Final = ("partition", "bucket", "first_row_id", "row_count", "file_name")


def overlapping_row_ids(entries: pa.Table, ours: pa.Table) -> list[str]:
    """Return the names of added files with row ids of ``ours``.

    Args:
        entries: entries of another commit (`ENTRY_SCHEMA`).
        ours: partition, bucket, first_row_id and row_count of files with columns of existing rows.
    """
    added = entries.filter(pc.and_(pc.equal(entries.column("kind"), ADD), pc.is_valid(entries.column("first_row_id"))))
    if not added.num_rows or not ours.num_rows:
        return []
    # Row ids are unique over all partitions.
    first, count = (numpy_array(ours.column(name)).astype(np.int64) for name in ("first_row_id", "row_count"))
    order = np.argsort(first)
    first, after = first[order], np.maximum.accumulate((first + count)[order])
    low = numpy_array(added.column("first_row_id")).astype(np.int64)
    high = low + numpy_array(added.column("row_count")).astype(np.int64)
    before = np.searchsorted(first, high, "left") - 1  # last of our ranges that begins before the end
    hits = (before >= 0) & (after[before] > low)
    return sorted(added.column("file_name").filter(arrow_array(hits)).to_pylist())


def replacing_all_of(store: TableStore, entries: pa.Table, partitions: list[bytes]) -> Rescan:
    """Return a function that checks at each attempt that a commit deletes exactly the live files of some partitions.

    Otherwise the function raises :class:`CommitConflict`, which names the added or removed files and their commit.

    Args:
        store: the table.
        entries: entries of the commit.
        partitions: the partitions (BinaryRow bytes).

    Returns:
        A function from the latest snapshot (or None) to (live entries of the partitions, ``entries``).
    """
    deletions = entries.filter(pc.equal(entries.column("kind"), DELETE))
    expected = set(identities(deletions))

    def source(latest: Snapshot | None) -> tuple[pa.Table, pa.Table]:
        live = NO_ENTRIES if latest is None else manifests.live_entries(store, latest, partitions=partitions)
        existing = set(identities(live))
        if existing == expected:
            return live, entries
        place = IDENTITY.index("file_name")
        appeared = sorted({str(which[place]) for which in existing - expected})
        removed = sorted({str(which[place]) for which in expected - existing})
        user, number = blame(store, latest, set(appeared or removed), ADD if appeared else DELETE)
        change = "got files that the new ones do not hold" if appeared else "lost files that are to be replaced"
        reason = f"table {store.name}: a partition {change}; nothing was replaced"
        raise CommitConflict(ConflictKind.PARTITION_CHANGED, appeared or removed, user, number, reason)

    return source


_MOST_DELTAS: Final = 256


@dataclass(frozen=True)
class _ListedEntry:
    """Live entry of a partition, and the manifest that lists it.

    Attributes:
        manifest: file name of the manifest.
        entry: table with one row, the entry.
    """

    manifest: str
    entry: pa.Table


class BaseEntries:
    """Base of one change (the live entries that it may conflict with), kept over all attempts of the commit.

    The first attempt reads manifests. Later attempts read only the delta manifests of snapshots committed since.
    """

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._snapshot_id = 0
        self._delta_list = ""
        self._search: Search | None = None
        self._near: pa.Table | None = None
        self._listed: dict[bytes, _ListedEntry] = {}
        self._seen: frozenset[str] = frozenset()

    def at(
        self,
        latest: Snapshot,
        metas: Sequence[ManifestFileMeta],
        entries: pa.Table,
        index: IndexChange,
        *,
        are_new: bool,
    ) -> pa.Table:
        """Return the live entries that a change may conflict with.

        For each partition of the change without such entries, one live entry is added, because it records the
        partition's number of buckets.

        Args:
            latest: the snapshot.
            metas: all manifests of ``latest``.
            entries: entries of the change.
            index: index files of the change.
            are_new: whether none of the added files was in the table before.

        Returns:
            The columns `NEEDED_COLUMNS`, or all columns if the change adds files above level 0.

        Raises:
            CorruptFile: a manifest cannot be read.
        """
        search = _search_of(self._store, entries, index, are_new=are_new)
        near = None if search.is_empty else self._advanced(latest, search)
        if near is None:
            near = find_live(self._store, latest, search, metas)
        self._snapshot_id, self._delta_list = latest.id, latest.delta_manifest_list
        self._search, self._near = search, near
        sides = (side.select(["partition", "total_buckets"]) for side in (entries, near))
        needed_partitions, known_partitions = (
            set(partitions_of(side.filter(pc.greater(side.column("total_buckets"), arrow_scalar(0))))) for side in sides
        )
        return pa.concat_tables([near, *self._one_of_each(metas, needed_partitions - known_partitions, search.columns)])

    def _one_of_each(
        self, metas: Sequence[ManifestFileMeta], partitions: set[bytes], columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        """Yield one live entry of each partition, which records the partition's number of buckets.

        The newest manifests are read first. Every commit checks that all live files of a partition have the same number
        of buckets, so one entry is enough. An entry of an earlier attempt is still live if its manifest is still listed
        and no manifest with deletions was added.

        Args:
            metas: all manifests of the newest snapshot, oldest first.
            partitions: the partitions; those without a live entry that has a number of buckets are left out.
            columns: columns of the returned entries.
        """
        names = frozenset(meta.file_name for meta in metas)
        if any(meta.num_deleted_files > 0 and meta.file_name not in self._seen for meta in metas):
            self._listed.clear()
        self._seen = names
        left, later = set(partitions), NO_ENTRIES.select(list(columns))
        for partition in partitions:
            listed = self._listed.get(partition)
            if listed is not None and listed.manifest in names and listed.entry.column_names == list(columns):
                left.discard(partition)
                yield listed.entry
        for meta in reversed(metas):
            if not left:
                return
            if not manifests.prune([meta], self._store.schema.partition_types, list(left), None, None):
                continue

            def sought(entries: pa.Table) -> pa.Table:
                here = manifests.keep_rows(entries.select(list(columns)), list(left), None, None)
                return here.filter(pc.greater(here.column("total_buckets"), 0))

            here = manifests.read_manifest(self._store, meta, sought)
            # What was deleted later is not live.
            merged = merge_entries(pa.concat_tables([here, later]).combine_chunks())
            live = merged.filter(pc.equal(merged.column("kind"), ADD))
            for partition in partitions_of(live):
                left.discard(partition)
                entry = live.filter(pc.equal(live.column("partition"), pa.scalar(partition, pa.binary()))).slice(0, 1)
                self._listed[partition] = _ListedEntry(meta.file_name, entry)
                yield entry
            later = merged.filter(pc.equal(merged.column("kind"), DELETE))

    def _advanced(self, latest: Snapshot, search: Search) -> pa.Table | None:
        """Return the base of the last attempt with the changes of later snapshots applied, or None.

        The result is None if there was no attempt with this search, if the later snapshots cannot be read (expired or
        rolled back), or if they are too many.

        Args:
            latest: newest snapshot.
            search: files that the change may conflict with.
        """
        until = latest.id
        known = self._search == search and self._snapshot_id <= until <= self._snapshot_id + _MOST_DELTAS
        if self._near is None or not known:
            return None
        tables = [self._near]
        try:
            # Ids are reused after a rollback; names of manifest lists are unique.
            base = latest if until == self._snapshot_id else snapshots.read(self._store, self._snapshot_id)
            if base.delta_manifest_list != self._delta_list:
                return None
            for number in range(self._snapshot_id + 1, until + 1):
                delta = manifests.delta_entries(self._store, snapshots.read(self._store, number))
                tables.append(search.keep(delta))
            merged = merge_entries(pa.concat_tables(tables).combine_chunks())
        except (SnapshotNotFound, CorruptFile, OSError):
            return None
        return merged.filter(pc.equal(merged.column("kind"), ADD))


def _search_of(store: TableStore, entries: pa.Table, index: IndexChange, *, are_new: bool) -> Search:
    """Return the search for live entries that a commit's entries and index files may conflict with.

    Removed files must be live, added files must not. In a bucket from which the commit also removes files, the added
    files are not searched: if the removed files are live, the commit was not made yet.

    Args:
        store: the table.
        entries: entries of the commit.
        index: index files that the commit adds and removes.
        are_new: whether none of the added files was in the table before, so that no added file is searched.
    """
    columns = (entries.column(name).to_pylist() for name in ("kind", "partition", "bucket", "file_name", "level"))
    listed = list(zip(*columns, strict=True))  # a tuple a file of the commit
    losing = {(partition, bucket) for kind, partition, bucket, _, _ in listed if kind == DELETE}
    sought = frozenset(
        (name, level)
        for kind, partition, bucket, name, level in listed
        if kind == DELETE or not (are_new or (partition, bucket) in losing)
    )
    marked = frozenset(vector.data_file for entry in index.added for vector in entry.deletion_vectors or ())
    tree = bool(store.schema.primary_keys) and adds_above_level0(entries)
    return Search(
        partitions=list(dict.fromkeys(partitions_of(entries) + index.partitions)),
        buckets=sorted({bucket for _, _, bucket, _, _ in listed} | {entry.bucket for entry in index.added}),
        names=sorted({name for _, _, _, name, _ in listed} | marked),
        sought=sought,
        columns=NO_ENTRIES.column_names if tree else list(NEEDED_COLUMNS),
        anywhere=marked,
        tree=tree,
    )
