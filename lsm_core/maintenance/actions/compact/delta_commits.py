"""Full compactions by number of commits (`full-compaction.delta-commits`), derived from the table's history alone."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar
from lsm_core.errors import InvalidOption
from lsm_core.format.manifest import ADD
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions

_WRITES = (CommitKind.APPEND, CommitKind.OVERWRITE)
_LONGEST_WALK = 4
"""Number of snapshots read per counted commit, as compactions and statistics are in between."""


def commits_between_full(options: TableOptions, *, has_primary_key: bool) -> int | None:
    """Return how many commits may be between two full compactions.

    Args:
        options: options of the table.
        has_primary_key: whether the table has levels at all.

    Returns:
        `full-compaction.delta-commits`; 1 if only the changelog producer full-compaction asks for them; None if neither
            is set.

    Source:
        Java `StoreSinkWrite` and `GlobalFullCompactionSinkWrite`.
    """
    if not has_primary_key:
        return None
    try:
        commits = options.get("full-compaction.delta-commits")
    except InvalidOption:  # stored by another engine, to which 0 means that commits ask for no full compaction
        commits = None
    if commits is None and options.changelog_producer != "full-compaction":
        return None
    return max(1, int(commits or 1))


class FullCompactionsByCommits:
    """Buckets whose last full compaction is as many commits ago as the table's options allow.

    Java counts checkpoints of one running job. Here the history decides, so all writers and dedicated jobs share the
    count.
    """

    def __init__(self, store: TableStore, snapshot: Snapshot | None) -> None:
        """Read the history back to the commits that count.

        Args:
            store: the table.
            snapshot: the newest snapshot, None for a table without one.

        Raises:
            CorruptFile: a snapshot or manifest cannot be read.
        """
        self._most = commits_between_full(store.options, has_primary_key=bool(store.schema.primary_keys))
        self._commits: dict[tuple[bytes, int], int] = {}
        self._whole = 0
        if self._most is None or snapshot is None:
            return
        first = snapshots.earliest_id(store) or snapshot.id
        for snapshot_id in range(snapshot.id, max(first, snapshot.id - self._most * _LONGEST_WALK) - 1, -1):
            earlier = snapshot if snapshot_id == snapshot.id else snapshots.try_read(store, snapshot_id)
            if earlier is None:  # it expired meanwhile
                break
            if earlier.commit_kind in _WRITES:
                self._whole += 1
                if self._whole >= self._most:
                    return
            elif earlier.commit_kind is CommitKind.COMPACT:
                self._record_full(manifests.delta_entries(store, earlier), store.options.num_levels - 1)
        else:
            if first == 1:
                return
        self._whole = self._most  # older commits are expired: a full compaction too early is better than none

    @property
    def counts(self) -> bool:
        """Whether the options of the table ask for full compactions by commits at all."""
        return self._most is not None

    def is_due(self, partition: bytes, bucket: int) -> bool:
        """Return whether a bucket, if anything of it is not in the last level, must be compacted as a whole.

        Args:
            partition: serialised BinaryRow.
            bucket: number of the bucket.
        """
        return self._most is not None and self._commits.get((partition, bucket), self._whole) >= self._most

    def _record_full(self, entries: pa.Table, last_level: int) -> None:
        """Record the number of commits after a compaction for the buckets that it wrote to the last level."""
        full = entries.filter(
            pc.and_(
                pc.equal(entries.column("kind"), arrow_scalar(ADD)),
                pc.equal(entries.column("level"), arrow_scalar(last_level)),
            )
        )
        places = full.select(["partition", "bucket"]).group_by(["partition", "bucket"]).aggregate([])
        for place in places.to_pylist():  # one a bucket
            self._commits.setdefault((place["partition"], place["bucket"]), self._whole)
