"""Does a change still fit the table as it is now? The checks of format.md 14.3 a, b and c."""

from __future__ import annotations

import itertools
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.changes import IDENTITY, identities, partitions_of
from lsm_core.errors import CommitConflict, ConflictKind, CorruptFile, SnapshotNotFound
from lsm_core.format.file_meta import ADD, DELETE
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import bucket_groups, tree_files

NEEDED_COLUMNS = ("kind", "total_buckets", "row_count", *IDENTITY)
"""What the checks read of base entries when no file of a level above 0 is added."""
_BLAME_DEPTH = 50


def check(store: TableStore, base: pa.Table, delta: pa.Table, kind: CommitKind, latest: Snapshot | None) -> None:
    """Raise :class:`CommitConflict` unless ``delta`` fits on top of ``base`` (live entries of its partitions).

    Names the files in the way and, where it can be learned, the commit that put them there.
    """
    if kind is not CommitKind.OVERWRITE:
        _check_bucket_count(store, base, delta, latest)
    _check_identity(store, base, delta, latest)
    if store.schema.primary_keys and adds_above_level0(delta):
        _check_tree(store, base, delta, latest)


def adds_above_level0(delta: pa.Table) -> bool:
    """Whether a file lands on a level whose files must not overlap."""
    added = pc.equal(delta.column("kind"), ADD)
    return bool(pc.any(pc.and_(added, pc.greater(delta.column("level"), 0))).as_py())


def _check_bucket_count(store: TableStore, base: pa.Table, delta: pa.Table, latest: Snapshot | None) -> None:
    columns = ["partition", "total_buckets", "file_name"]
    counted = [side.select(columns).filter(pc.greater(side.column("total_buckets"), 0)) for side in (base, delta)]
    if len(set().union(*(pc.unique(side.column("total_buckets")).to_pylist() for side in counted))) <= 1:
        return
    by = ["partition", "total_buckets"]
    both = pa.concat_tables(
        [side.group_by(by, use_threads=False).aggregate([("file_name", "min")]) for side in counted]
    )
    seen: dict[bytes, int] = {}
    for partition, buckets in zip(both["partition"].to_pylist(), both["total_buckets"].to_pylist(), strict=True):
        if seen.setdefault(partition, buckets) != buckets:
            at = latest.id if latest is not None else None
            reason = (
                f"table {store.name}: a partition of {seen[partition]} buckets would get files of {buckets} buckets"
            )
            files = both["file_name_min"].to_pylist()[-1:]
            raise CommitConflict(ConflictKind.BUCKET_COUNT, files, None, at, reason)


def _check_identity(store: TableStore, base: pa.Table, delta: pa.Table, latest: Snapshot | None) -> None:
    """No file may be added twice, and every file to take away must be there, on the same level."""
    near = base.filter(pc.is_in(base.column("file_name"), pc.unique(delta.column("file_name"))))
    present = set(identities(near))
    kinds = delta.column("kind").to_pylist()
    wanted = identities(delta)
    twice = [which for which, count in Counter(wanted).items() if count > 1]
    if twice:
        reason = f"table {store.name}: one commit names a file twice"
        raise CommitConflict(ConflictKind.FILE_TWICE, _names(twice), reason=reason)
    gone = [which for which, kind in zip(wanted, kinds, strict=True) if kind == DELETE and which not in present]
    if gone:
        names = _names(gone)
        user, snapshot_id = blame(store, latest, set(names), DELETE)
        reason = f"table {store.name}: files to replace are gone or moved to another level"
        raise CommitConflict(ConflictKind.INPUTS_GONE, names, user, snapshot_id, reason)
    known = [which for which, kind in zip(wanted, kinds, strict=True) if kind == ADD and which in present]
    if known:
        names = _names(known)
        user, snapshot_id = blame(store, latest, set(names), ADD)
        reason = f"table {store.name}: files are already in the table"
        raise CommitConflict(ConflictKind.FILES_KNOWN, names, user, snapshot_id, reason)


def _check_tree(store: TableStore, base: pa.Table, delta: pa.Table, latest: Snapshot | None) -> None:
    """On levels above 0 the files of one bucket must keep disjoint key ranges."""
    taken = set(identities(delta.filter(pc.equal(delta.column("kind"), DELETE))))
    added = delta.filter(pc.equal(delta.column("kind"), ADD))
    touched = {(bytes(p), b) for p, b in zip(added["partition"].to_pylist(), added["bucket"].to_pylist(), strict=True)}
    buckets = pa.array(sorted({bucket for _, bucket in touched}), pa.int32())
    upper = base.filter(pc.and_(pc.greater(base.column("level"), 0), pc.is_in(base.column("bucket"), buckets)))
    keep = pa.array([which not in taken for which in identities(upper)], pa.bool_())
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
    """The newest commit (user, snapshot id) that added or deleted one of ``names``; looks back 50 snapshots at most."""
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


def _names(found: list[tuple[object, ...]]) -> list[str]:
    return sorted({str(which[3]) for which in found})


__all__ = ["NEEDED_COLUMNS", "adds_above_level0", "blame", "check", "partitions_of"]
