"""The health of a table as sensors, ops and checks use it: the engine's `BucketHealth`, read from metadata once a snapshot and process."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Final

from lsm_core.errors import SnapshotNotFound, UnsupportedFeature
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance import BucketHealth, health, rows_given_buckets, waiting_items
from lsm_core.maintenance.ranking import score_of
from lsm_core.maintenance.writers_compact import writers_compact
from lsm_core.metadata import manifests, snapshots, support
from lsm_core.metadata.store import BucketMode, TableStore

_KEPT_BUCKETS: Final = 100_000
"""How many buckets' health a process keeps (about 2 KB each); with more it forgets all and reads again."""


@dataclass(frozen=True)
class PartitionHealth:
    """All buckets (at least one) of one partition; ``text`` is Paimon's partition path, "" in a table without partitions."""

    text: str
    buckets: tuple[BucketHealth, ...]

    @cached_property
    def worst(self) -> BucketHealth:
        """The bucket with the most sorted runs; of several, the one with the largest size amplification."""
        return max(
            self.buckets, key=lambda bucket: (bucket.sorted_runs, bucket.facts.get("amplification_percent") or 0)
        )

    @property
    def sorted_runs(self) -> int:
        """Sorted runs of the worst bucket."""
        return self.worst.sorted_runs

    @property
    def level0_files(self) -> int:
        """Level-0 files of the bucket that has most."""
        return max(bucket.level0_files for bucket in self.buckets)

    @property
    def small_files(self) -> int:
        """Small files of all buckets."""
        return sum(bucket.small_files for bucket in self.buckets)

    @property
    def score(self) -> float:
        """How much it needs maintenance, 0 (healthy) to 100 (act): many tiny buckets weigh as much as one of their size."""
        return score_of(self.buckets)[0]

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(bucket.total_bytes for bucket in self.buckets)

    @property
    def rows(self) -> int:
        """Stored rows, unmerged."""
        return sum(bucket.rows for bucket in self.buckets)

    @property
    def deletes(self) -> int:
        """Stored rows that delete."""
        return sum(bucket.deletes for bucket in self.buckets)

    @property
    def deleted_rows(self) -> int:
        """Stored rows that deletion vectors mark."""
        return sum(bucket.deleted_rows for bucket in self.buckets)

    @property
    def files(self) -> int:
        """Data files."""
        return sum(bucket.files for bucket in self.buckets)

    @property
    def newest_file_ms(self) -> int:
        """When the newest file was written (epoch ms); 0 where no file tells."""
        return max(bucket.newest_file_ms or 0 for bucket in self.buckets)

    @property
    def cost_minor(self) -> int:
        """Bytes that the table's own rules would compact right now; 0: none."""
        return sum(bucket.cost_minor for bucket in self.buckets)

    @cached_property
    def shape(self) -> Hashable:
        """What only a commit changes, and time does not."""
        return tuple((item.bucket, shape_of(item), item.newest_file_ms) for item in self.buckets)


def shape_of(bucket: BucketHealth) -> Hashable:
    """Return files, bytes and rows of a bucket, and how many are marked: equal as long as no commit touches it."""
    return (
        tuple(bucket.files_per_level.items()),
        tuple(bucket.bytes_per_level.items()),
        bucket.rows,
        bucket.deleted_rows,
    )


@dataclass(frozen=True)
class TableHealth:
    """Every bucket of one snapshot (None: no commit yet), ordered by partition and bucket, or those of one partition.

    ``data_version``: the newest snapshot up to this one that changed what the table says. ``waiting``: postponed rows by partition path. Lags in ``buckets`` are those at
    ``measured_ms`` (epoch ms). ``data_commit`` is `version_text` of that snapshot, "" where it has expired. ``writers_compact``: whether its writers compacted it lately. ``commit`` tells snapshots of the same id apart: after a rollback or a fast-forward the ids are given again.
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

    def of_partition(self, partition: str | None) -> TableHealth:
        """Return the same with the buckets of one partition alone (``None``: with all)."""
        return self.of_partitions(() if partition is None else (partition,))

    def of_partitions(self, partitions: Collection[str]) -> TableHealth:
        """Return the same with the buckets of these partitions alone (none named: with all)."""
        if not partitions:
            return self
        kept = tuple(bucket for bucket in self.buckets if bucket.partition_text in partitions)
        waiting = {text: rows for text, rows in self.waiting.items() if text in partitions}
        return replace(self, buckets=kept, waiting=waiting)

    @cached_property
    def partitions(self) -> tuple[PartitionHealth, ...]:
        """The partitions that hold files, sorted by path."""
        groups: dict[str, list[BucketHealth]] = {}
        for bucket in self.buckets:
            groups.setdefault(bucket.partition_text, []).append(bucket)
        return tuple(PartitionHealth(text, tuple(group)) for text, group in sorted(groups.items()))


_newest: Final[dict[str, tuple[Hashable, TableHealth]]] = {}
_lock: Final = Lock()


def table_health(store: TableStore, snapshot: Snapshot | int | None = None) -> TableHealth:
    """Return the health of a snapshot (its id, or itself where it has just been read; default: the newest) from metadata; no data file is opened.

    A process reads it once as long as snapshot, schema and options stay (where rules depend on time: once a minute), whichever
    sensor asks. Raises SnapshotNotFound, CorruptFile.
    """
    if not isinstance(snapshot, Snapshot):
        snapshot = snapshots.latest(store) if snapshot is None else snapshots.read(store, snapshot)
    now = store.clock.now_ms()
    if snapshot is None:
        return TableHealth(store.name, None, None, now)
    options = tuple(sorted(store.schema.options.items()))
    commit = f"{snapshot.delta_manifest_list} {snapshot.time_millis}"
    minute = now // 60_000 if ages(store) else 0
    state = (store.name, snapshot.id, snapshot.base_manifest_list, commit, store.schema.id, options, minute)
    with _lock:
        kept = _newest.get(store.root)
    if kept is not None and kept[0] == state:
        return kept[1]
    buckets = tuple(health(store, now_ms=now, snapshot_id=snapshot.id))
    waiting: dict[str, int] = {}
    if store.bucket_mode is BucketMode.POSTPONE:
        items = waiting_items(store, manifests.live_entries(store, snapshot))
        waiting = {item.partition_text: item.rows_in for item in items}
    written = data_snapshot(store, snapshot.id)
    number, data_commit = (written.id, version_text(written)) if written else (snapshots.earliest_id(store), "")
    by_writers = writers_compact(store, snapshot)
    found = TableHealth(store.name, snapshot.id, number, now, buckets, waiting, commit, data_commit, by_writers)
    with _lock:
        if len(buckets) + sum(len(other.buckets) for _, other in _newest.values()) > _KEPT_BUCKETS:
            _newest.clear()
        _newest[store.root] = (state, found)
    return found


def refusal_of(store: TableStore) -> str | None:
    """Return why compacting the table could lose data, None when it is safe."""
    try:
        support.require_compactable(store)
    except UnsupportedFeature as error:
        return str(error)
    return None


def ages(store: TableStore) -> bool:
    """Whether what the table's own rules would compact depends on the time, too."""
    options = store.options
    timed = bool(options.optimization_interval) or options.offpeak_start >= 0
    return timed or (store.has_primary_key and options.get("record-level.expire-time") is not None)


def data_version(store: TableStore, latest: int) -> int | None:
    """Return the newest snapshot up to ``latest`` that changed what the table says, as far as they reach back.

    See `changes_data`; the earliest snapshot where none of those that are there did.
    """
    found = data_snapshot(store, latest)
    return snapshots.earliest_id(store) if found is None else found.id


def data_snapshot(store: TableStore, latest: int) -> Snapshot | None:
    """Return the newest snapshot up to ``latest`` that changed what the table says, None when it has expired."""
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
    """Whether the table says something else than before: an APPEND, an OVERWRITE, or one in which postponed rows got their buckets."""
    written = snapshot.commit_kind in {CommitKind.APPEND, CommitKind.OVERWRITE}
    return written or bool(rows_given_buckets(store, snapshot.id))


def version_text(snapshot: Snapshot) -> str:
    """Return ``12-3fa9c1``: the snapshot's id and its commit's own hash, for ids are given again after a rollback."""
    commit = f"{snapshot.delta_manifest_list} {snapshot.time_millis}"
    return f"{snapshot.id}-{hashlib.sha256(commit.encode()).hexdigest()[:6]}"
