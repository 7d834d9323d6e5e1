"""Health of a table for sensors, ops and checks: the engine's `BucketHealth`, read once per snapshot and process."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from lsm_core.errors import SnapshotNotFound, UnsupportedFeature
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.iceberg.freshness import has_storage
from lsm_core.maintenance import BucketHealth, count_assigned_rows, health, waiting_items
from lsm_core.maintenance.iceberg_lag import IcebergLag, read_iceberg_lag
from lsm_core.maintenance.table_ranking import score_of
from lsm_core.maintenance.writers_compact import describe_upkeep, writers_compact
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.metadata.support import require_compactable
from lsm_core.storage import Kept

_KEPT_BUCKETS: Final = 100_000
"""Most buckets whose health a process caches (about 2 KB each)."""


_AGES_KEPT_MS: Final = 60 * 60 * 1000
"""Time for which ages in a cached health are valid."""


@dataclass(frozen=True)
class PartitionHealth:
    """Health of one partition.

    Attributes:
        text: path of the partition, or "" in a table without partitions.
        buckets: health of the buckets, at least one.
    """

    text: str
    buckets: tuple[BucketHealth, ...]

    @cached_property
    def worst(self) -> BucketHealth:
        """Bucket with the most sorted runs; among equals, the one with the largest size amplification."""
        return max(
            self.buckets, key=lambda bucket: (bucket.sorted_runs, bucket.facts.get("amplification_percent") or 0)
        )

    @property
    def sorted_runs(self) -> int:
        """Number of sorted runs in the worst bucket."""
        return self.worst.sorted_runs

    @property
    def level0_files(self) -> int:
        """Largest number of level-0 files in one bucket."""
        return max(bucket.level0_files for bucket in self.buckets)

    @property
    def small_files(self) -> int:
        """Number of small files in all buckets."""
        return sum(bucket.small_files for bucket in self.buckets)

    @property
    def score(self) -> float:
        """Need of maintenance, 0 (healthy) to 100 (urgent).

        Many tiny buckets count like one bucket of their total size.
        """
        return score_of(self.buckets)[0]

    @property
    def total_bytes(self) -> int:
        """Total bytes of the data files."""
        return sum(bucket.total_bytes for bucket in self.buckets)

    @property
    def rows(self) -> int:
        """Number of stored rows before merging."""
        return sum(bucket.rows for bucket in self.buckets)

    @property
    def deletes(self) -> int:
        """Number of stored delete rows."""
        return sum(bucket.deletes for bucket in self.buckets)

    @property
    def deleted_rows(self) -> int:
        """Number of stored rows that deletion vectors mark as deleted."""
        return sum(bucket.deleted_rows for bucket in self.buckets)

    @property
    def files(self) -> int:
        """Number of data files."""
        return sum(bucket.files for bucket in self.buckets)

    @property
    def iceberg_since_ms(self) -> int | None:
        """Commit time (epoch ms) from which on rows may be invisible to Iceberg readers, None if they see all."""
        times = [bucket.iceberg_since_ms for bucket in self.buckets if bucket.iceberg_since_ms is not None]
        return min(times, default=None)

    @property
    def iceberg_rows(self) -> int:
        """Number of stored rows in files that Iceberg readers do not see."""
        return sum(bucket.iceberg_rows for bucket in self.buckets)

    @property
    def newest_file_ms(self) -> int:
        """Creation time of the newest file (epoch ms), or 0 if no file has one."""
        return max(bucket.newest_file_ms or 0 for bucket in self.buckets)

    @property
    def cost_minor(self) -> int:
        """Bytes of the files that the table's own compaction rules would pick now."""
        return sum(bucket.cost_minor for bucket in self.buckets)

    @cached_property
    def shape(self) -> Hashable:
        """Value that changes if a commit changes the partition's files, but not as time passes."""
        return tuple((item.bucket, shape_of(item), item.newest_file_ms) for item in self.buckets)


def shape_of(bucket: BucketHealth) -> Hashable:
    """Return a bucket's files and bytes per level, rows and deleted rows, which only a commit can change."""
    return (
        tuple(bucket.files_per_level.items()),
        tuple(bucket.bytes_per_level.items()),
        bucket.rows,
        bucket.deleted_rows,
    )


@dataclass(frozen=True)
class TableHealth:
    """Health of the buckets of all or some partitions in one snapshot, ordered by partition and bucket.

    Attributes:
        table: full name of the table.
        snapshot: id of the snapshot, or None before the first commit.
        data_version: id of the newest snapshot, up to `snapshot`, that changed the rows. The id of the earliest
            snapshot if all snapshots that changed rows have expired.
        measured_ms: time of the measurement (epoch ms), to which the lags in `buckets` refer.
        buckets: health of the buckets.
        waiting: number of postponed rows, which have no bucket yet, by partition path.
        commit: text that identifies the commit, because ids of snapshots are reused after a rollback or fast-forward.
        data_commit: `version_text` of the snapshot that last changed the rows, or "" if this snapshot has expired.
        writers_compact: whether one of the table's newest compactions was made by its writers.
        upkeep: one line for people about who compacts the table.
        iceberg: lag of the table's Iceberg readers, None if it publishes no Iceberg metadata and none is left over.
    """

    table: str
    snapshot: int | None
    data_version: int | None
    measured_ms: int
    buckets: tuple[BucketHealth, ...] = ()
    waiting: Mapping[str, int] = field(default_factory=dict)
    commit: str = ""
    data_commit: str = ""
    writers_compact: bool = False
    upkeep: str = ""
    iceberg: IcebergLag | None = None

    def of_partition(self, partition: str | None) -> TableHealth:
        """Return the health of one partition, or of all partitions if `partition` is None."""
        return self.of_partitions(() if partition is None else (partition,))

    def of_partitions(self, partitions: Collection[str]) -> TableHealth:
        """Return the health of the given partitions, or of all partitions if `partitions` is empty."""
        if not partitions:
            return self
        selected = tuple(bucket for bucket in self.buckets if bucket.partition_text in partitions)
        waiting = {text: rows for text, rows in self.waiting.items() if text in partitions}
        return replace(self, buckets=selected, waiting=waiting)

    @cached_property
    def partitions(self) -> tuple[PartitionHealth, ...]:
        """Partitions with files, sorted by path."""
        groups: dict[str, list[BucketHealth]] = {}
        for bucket in self.buckets:
            groups.setdefault(bucket.partition_text, []).append(bucket)
        return tuple(PartitionHealth(text, tuple(group)) for text, group in sorted(groups.items()))


_newest: Final = Kept(_KEPT_BUCKETS)
"""By root of the table: key and health of its newest snapshot, weighed by buckets."""


def table_health(store: TableStore, snapshot: Snapshot | int | None = None) -> TableHealth:
    """Return the health of a snapshot from metadata; no data file is opened.

    The process caches the health of each table until snapshot, schema or options change. If the table's compaction
    rules depend on time, the cached health is valid for at most one minute. If it has ages of waiting files, it is
    valid for at most an hour. The state of Iceberg metadata is read each time, because it changes without a commit.

    Args:
        store: the table.
        snapshot: the snapshot or a snapshot id, or None for the newest snapshot.

    Raises:
        SnapshotNotFound: the snapshot does not exist.
        CorruptFile: a metadata file is damaged.
    """
    if not isinstance(snapshot, Snapshot):
        snapshot = snapshots.latest(store) if snapshot is None else snapshots.read(store, snapshot)
    now = store.clock.now_ms()
    if snapshot is None:
        return TableHealth(store.name, None, None, now)
    state = _cached_health(store, snapshot, now)
    return replace(state, iceberg=read_iceberg_lag(store, state.buckets, snapshot)) if has_storage(store) else state


def _cached_health(store: TableStore, snapshot: Snapshot, now: int) -> TableHealth:
    """Return the health of a snapshot, without the state of Iceberg metadata that commits keep up to date.

    Args:
        store: the table.
        snapshot: the snapshot.
        now: current time (epoch ms).
    """
    options = tuple(sorted(store.schema.options.items()))
    commit = f"{snapshot.delta_manifest_list} {snapshot.time_millis}"
    minute = now // 60_000 if depends_on_time(store) else 0
    cache_key = (store.name, snapshot.id, snapshot.base_manifest_list, commit, store.schema.id, options, minute)
    cached: tuple[Hashable, TableHealth] | None = _newest.get(store.root)
    if cached is not None and cached[0] == cache_key:
        known = cached[1]
        if abs(now - known.measured_ms) < _AGES_KEPT_MS or not any(_has_ages(bucket) for bucket in known.buckets):
            return known
    buckets = tuple(health(store, now_ms=now, snapshot_id=snapshot.id))
    waiting: dict[str, int] = {}
    if store.bucket_mode is BucketMode.POSTPONE:
        items = waiting_items(store, manifests.live_entries(store, snapshot))
        waiting = {item.partition_text: item.rows_in for item in items}
    data_change = data_snapshot(store, snapshot.id)
    data_version, data_commit = (
        (data_change.id, version_text(data_change)) if data_change else (snapshots.earliest_id(store), "")
    )
    by_writers = writers_compact(store, snapshot)
    upkeep = describe_upkeep(store, by_writers=by_writers)
    iceberg = None if has_storage(store) else read_iceberg_lag(store, buckets, snapshot)
    table_state = TableHealth(
        store.name, snapshot.id, data_version, now, buckets, waiting, commit, data_commit, by_writers, upkeep, iceberg
    )
    _newest.put(store.root, (cache_key, table_state), min(len(buckets) + 1, _KEPT_BUCKETS))
    return table_state


def _has_ages(bucket: BucketHealth) -> bool:
    """Return whether time alone changes the health of a bucket: its score and its lags."""
    return bucket.ro_lag_ms > 0 or (bucket.oldest_level0_ms is not None and bucket.sorted_runs > 1)


def refusal_of(store: TableStore) -> str | None:
    """Return why Dredge refuses to compact the table (an unsupported feature), or None if compaction is safe."""
    try:
        require_compactable(store)
    except UnsupportedFeature as error:
        return str(error)
    return None


def depends_on_time(store: TableStore) -> bool:
    """Return whether time changes what the table's options compact: an interval, off-peak hours, or expiring rows."""
    options = store.options
    timed = bool(options.optimization_interval) or options.offpeak_start >= 0
    return timed or (store.has_primary_key and options.get("record-level.expire-time") is not None)


def data_version(store: TableStore, latest: int) -> int | None:
    """Return the id of the newest snapshot up to the id `latest` that changed the rows that readers see.

    Returns:
        The id; the id of the earliest snapshot if no existing snapshot changed rows; None without snapshots.
    """
    snapshot = data_snapshot(store, latest)
    return snapshots.earliest_id(store) if snapshot is None else snapshot.id


def data_snapshot(store: TableStore, latest: int) -> Snapshot | None:
    """Return the newest snapshot that changed the rows.

    Args:
        store: the table.
        latest: id of the newest snapshot to consider.

    Returns:
        The snapshot, or None if no existing snapshot changed rows.
    """
    earliest = snapshots.earliest_id(store)
    for number in range(latest, min(earliest or latest, latest) - 1, -1):
        try:
            snapshot = snapshots.read(store, number)
        except SnapshotNotFound:
            break
        if changes_data(store, snapshot):
            return snapshot
    return None


def changes_data(store: TableStore, snapshot: Snapshot) -> bool:
    """Return whether a snapshot changed the rows that readers see.

    Commits of kind APPEND or OVERWRITE do, and commits that assign buckets to postponed rows.
    """
    written = snapshot.commit_kind in {CommitKind.APPEND, CommitKind.OVERWRITE}
    return written or bool(count_assigned_rows(store, snapshot.id))


def version_text(snapshot: Snapshot) -> str:
    """Return ``12-3fa9c1``: a snapshot's id and a hash of the commit, because ids are reused after a rollback."""
    commit = f"{snapshot.delta_manifest_list} {snapshot.time_millis}"
    return f"{snapshot.id}-{hashlib.sha256(commit.encode()).hexdigest()[:6]}"
