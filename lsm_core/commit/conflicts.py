"""Conflict checks: whether a change still fits the newest snapshot.

This includes changes that were computed from one snapshot. They fit only while other commits leave their inputs
unchanged.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.changes import IDENTITY, identities, partitions_of
from lsm_core.errors import CommitConflict, ConflictKind, CorruptFile, SnapshotNotFound
from lsm_core.format.manifest import ADD, DELETE, IndexManifestEntry
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.live_files import bucket_groups, tree_files
from lsm_core.metadata.manifests import NO_ENTRIES
from lsm_core.metadata.store import TableStore
from lsm_core.options.paimon_version import PaimonVersion

_STRICT: Final = "commit.strict-mode.last-safe-snapshot"

Rescan = Callable[[Snapshot | None], tuple[pa.Table, pa.Table]]
"""(live entries, entries of the change) at the latest snapshot; asked anew at every attempt."""
NEEDED_COLUMNS = ("kind", "total_buckets", "row_count", *IDENTITY)
"""What the checks read of base entries when no file of a level above 0 is added."""
_BLAME_DEPTH = 50


def check(store: TableStore, base: pa.Table, delta: pa.Table, kind: CommitKind, latest: Snapshot | None) -> None:
    """Raise :class:`CommitConflict` unless a change fits the live entries of its partitions.

    The error names the conflicting files and, where it can be read, the commit that added them.
    """
    if kind is not CommitKind.OVERWRITE:
        _check_bucket_count(store, base, delta, latest)
    _check_identity(store, base, delta, latest)
    if store.schema.primary_keys and adds_above_level0(delta):
        _check_tree(store, base, delta, latest)


class StrictMode:
    """Commits of other users that one committer refuses to follow (`commit.strict-mode.last-safe-snapshot`).

    Attributes:
        safe: last snapshot up to which other commits are accepted; -1 to check nothing before the first own commit.

    Source: Paimon `StrictModeChecker`.
    """

    def __init__(self, store: TableStore, user: str, safe: int) -> None:
        self._store, self._user, self._safe = store, user, safe

    @staticmethod
    def of(store: TableStore, user: str) -> StrictMode | None:
        """Return the checker, or None where the table does not use strict mode."""
        safe = store.options.get(_STRICT)
        return None if safe is None else StrictMode(store, user, int(safe))

    def check(self, latest: Snapshot | None, kind: CommitKind, partitions: Sequence[bytes]) -> None:
        """Raise :class:`CommitConflict` for a compaction or overwrite by another user since the last safe snapshot.

        Before an overwrite, any rows of another user are a conflict. Since Paimon 2.0 this applies only where one of
        ``partitions`` was changed. An expired snapshot is a conflict too.
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
        """Note that an own snapshot is safe."""
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
    added = pc.equal(delta.column("kind"), ADD)
    return bool(pc.any(pc.and_(added, pc.greater(delta.column("level"), 0))).as_py())


def _check_bucket_count(store: TableStore, base: pa.Table, delta: pa.Table, latest: Snapshot | None) -> None:
    columns = ["partition", "total_buckets", "file_name"]
    counted = [side.select(columns).filter(pc.greater(side.column("total_buckets"), 0)) for side in (base, delta)]
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
    """Refuse a file that is added twice, and a removed file that is missing or on another level."""
    near = base.filter(pc.is_in(base.column("file_name"), pc.unique(delta.column("file_name"))))
    present = set(identities(near))
    kinds = delta.column("kind").to_pylist()
    wanted = identities(delta)
    twice = [which for which, count in Counter(wanted).items() if count > 1]
    if twice:
        reason = f"table {store.name}: the commit adds a file twice"
        raise CommitConflict(ConflictKind.FILE_TWICE, _names(twice), reason=reason)
    missing = [which for which, kind in zip(wanted, kinds, strict=True) if kind == DELETE and which not in present]
    if missing:
        names = _names(missing)
        user, snapshot_id = blame(store, latest, set(names), DELETE)
        reason = f"table {store.name}: files to replace were deleted or moved to another level; plan again"
        raise CommitConflict(ConflictKind.INPUTS_GONE, names, user, snapshot_id, reason)
    known = [which for which, kind in zip(wanted, kinds, strict=True) if kind == ADD and which in present]
    if known:
        names = _names(known)
        user, snapshot_id = blame(store, latest, set(names), ADD)
        reason = f"table {store.name}: files are already in the table"
        raise CommitConflict(ConflictKind.FILES_KNOWN, names, user, snapshot_id, reason)


def _check_tree(store: TableStore, base: pa.Table, delta: pa.Table, latest: Snapshot | None) -> None:
    """Refuse overlapping key ranges in one bucket on a level above 0."""
    removed = set(identities(delta.filter(pc.equal(delta.column("kind"), DELETE))))
    added = delta.filter(pc.equal(delta.column("kind"), ADD))
    touched = {(bytes(p), b) for p, b in zip(added["partition"].to_pylist(), added["bucket"].to_pylist(), strict=True)}
    buckets = pa.array(sorted({bucket for _, bucket in touched}), pa.int32())
    upper = base.filter(pc.and_(pc.greater(base.column("level"), 0), pc.is_in(base.column("bucket"), buckets)))
    keep = pa.array([which not in removed for which in identities(upper)], pa.bool_())
    after = pa.concat_tables([upper.filter(keep), added.filter(pc.greater(added.column("level"), 0))])
    for partition, bucket, _, group in bucket_groups(after):
        if (bytes(partition), bucket) not in touched:
            continue
        by_level = sorted(tree_files(store, group), key=lambda file: (file.level, file.min_key))
        for left, right in itertools.pairwise(by_level):
            if left.level == right.level and left.max_key >= right.min_key:
                ours = set(added.column("file_name").to_pylist())
                foreign = [name for name in (left.name, right.name) if name not in ours]
                user, snapshot_id = blame(store, latest, set(foreign), ADD)
                reason = f"table {store.name}: key ranges overlap on level {left.level} of bucket {bucket}"
                raise CommitConflict(ConflictKind.KEY_RANGES, [left.name, right.name], user, snapshot_id, reason)


def blame(store: TableStore, latest: Snapshot | None, names: set[str], kind: int) -> tuple[str | None, int | None]:
    """Return user and snapshot id of the newest commit that added or deleted one of the files, within 50 snapshots."""
    wanted = pa.array(sorted(names), pa.string())
    for snapshot_id in range(latest.id, max(latest.id - _BLAME_DEPTH, 0), -1) if latest is not None and names else ():
        try:
            snapshot = snapshots.read(store, snapshot_id)
            delta = manifests.delta_entries(store, snapshot)
        except (SnapshotNotFound, CorruptFile, OSError):
            break  # expired below here: the message stays less precise
        hit = pc.and_(pc.equal(delta.column("kind"), kind), pc.is_in(delta.column("file_name"), wanted))
        if pc.any(hit).as_py():
            return snapshot.commit_user, snapshot.id
    return None, None


def _names(files: list[tuple[object, ...]]) -> list[str]:
    return sorted({str(which[3]) for which in files})


def unchanged_since(store: TableStore, entries: pa.Table, snapshot_id: int) -> Rescan:
    """Return a source for entries that fit while no commit after a snapshot, except compactions, changes their buckets.

    The source raises :class:`CommitConflict`, which names that commit; also where it cannot be read (expired, rolled
    back).
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


def replacing_all_of(store: TableStore, entries: pa.Table, partitions: list[bytes]) -> Rescan:
    """Return a source for entries that fit while the files they delete are exactly the live files of some partitions.

    The source raises :class:`CommitConflict`, which names the added or removed files and their commit.
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
