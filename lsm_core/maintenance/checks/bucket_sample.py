"""Choice of the buckets and keys that a check of rows reads; the choice is the same for the same snapshot.

`read_sampled_rows` reads the rows of the sampled keys as readers see them. The rows are few enough to fit into memory
with all their columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from lsm_core.arrays import chosen_rows
from lsm_core.errors import SnapshotNotFound
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.format.partitions import partition_text, partition_values
from lsm_core.maintenance.action import bucket_name
from lsm_core.maintenance.checks.outcome import CheckInput, CheckLimits
from lsm_core.maintenance.reference.sampling import Place, Sample
from lsm_core.metadata import snapshots
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors, require_in_place
from lsm_core.metadata.live_files import bucket_groups, entries_of_buckets, live_parts
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.metadata.support import require_readable
from lsm_core.read import plan_scan, read_split
from lsm_core.read.key_range import KeyBounds, KeyRange
from lsm_core.read.merge_read import as_tree
from lsm_core.read.table_versions import resolve

_ALL = (1 << 64) - 1


@dataclass(frozen=True)
class SampledBucket:
    """Bucket that a check reads.

    Attributes:
        place: the bucket, and the range of keys to read.
        total: number of buckets of the partition.
        files: live files that overlap the range of keys.
        deletions: deletion vectors by data file.
    """

    place: Place
    total: int
    files: tuple[DataFileMeta, ...]
    deletions: dict[str, DeletionFile]

    @property
    def name(self) -> str:
        """Name of the bucket for people."""
        store = self.place.store
        return bucket_name(partition_text(store.schema, self.place.partition, store.options), self.place.bucket)

    @property
    def rows(self) -> int:
        """Number of rows stored in the files."""
        return sum(file.row_count for file in self.files)

    def sample(self, keys: int) -> Sample:
        """Return a sample of about ``keys`` keys of the bucket, or of all keys of a small bucket."""
        return sample_of(self.files, keys)


def sample_of(files: Sequence[DataFileMeta], keys: int) -> Sample:
    """Return the sample of about ``keys`` keys of the bucket with ``files``, or of all keys of a small bucket.

    Args:
        files: live files of the bucket.
        keys: wanted number of keys.
    """
    largest = max((file.row_count for file in files), default=0)
    limit = None if largest <= keys else min(_ALL, int(keys / largest * _ALL))
    return Sample(limit, np.empty(0, np.uint64))


@dataclass(frozen=True)
class BucketSample:
    """Buckets that a check reads.

    Attributes:
        looked_at: partition and number of each chosen bucket.
        buckets: number of buckets of the table.
        rows: number of stored rows of the table, before merging.
        totals: number of buckets by partition.
    """

    looked_at: Sequence[tuple[bytes, int]]
    buckets: int
    rows: int
    totals: Mapping[bytes, int]

    def numbers(self, rows_read: int) -> dict[str, float | str]:
        """Return numbers for a check's report by name: the buckets and rows that were read, and those of the table."""
        return {"buckets_read": len(self.looked_at), "buckets": self.buckets, "rows_read": rows_read, "rows": self.rows}


def draw_buckets(check_input: CheckInput, *, partitions: bool = False) -> BucketSample:
    """Choose buckets within the limit of rows, at least one, in an order that depends on the snapshot alone.

    Postponed rows have no bucket yet and are left out.

    Args:
        check_input: store, snapshot and limits.
        partitions: choose whole partitions, for checks that need all buckets of a partition.

    Raises:
        UnsupportedFeature: Dredge cannot read the table, whose intact files would look damaged.
    """
    require_readable(check_input.store, check_input.snapshot)
    sums: dict[tuple[bytes, int], int] = {}
    totals: dict[bytes, int] = {}
    columns = ["partition", "bucket", "total_buckets", "row_count"]
    for _, part in live_parts(check_input.store, check_input.snapshot, columns=columns):
        grouped = part.group_by(columns[:2], use_threads=False).aggregate(
            [("row_count", "sum"), ("total_buckets", "max")]
        )
        listed = (grouped.column(name).to_pylist() for name in grouped.column_names)
        for partition, bucket, rows, total in zip(*listed, strict=True):
            if bucket >= -1:
                totals[partition] = max(totals.get(partition, 0), total)
                sums[partition, bucket] = sums.get((partition, bucket), 0) + rows
    units: dict[tuple[bytes, int | None], list[tuple[bytes, int]]] = {}
    for place in sums:
        units.setdefault((place[0], None if partitions else place[1]), []).append(place)
    chosen: list[tuple[bytes, int]] = []
    left = check_input.limits.rows
    for unit in sorted(units, key=lambda unit: hashlib.sha256(f"{check_input.seed} {unit}".encode()).digest()):
        rows = sum(sums[place] for place in units[unit])
        if chosen and rows > left:
            continue
        chosen += units[unit]
        left -= rows
    return BucketSample(sorted(chosen), len(sums), sum(sums.values()), totals)


def draw_units(check_input: CheckInput) -> BucketSample:
    """Choose buckets within the limit of rows, at least one, in an order that depends on the snapshot alone.

    In a table without a fixed number of buckets, whole partitions are chosen, because keys may move between buckets.

    Args:
        check_input: store, snapshot and limits.
    """
    return draw_buckets(check_input, partitions=check_input.store.bucket_mode is not BucketMode.FIXED)


def open_bucket(check_input: CheckInput, partition: bytes, bucket: int) -> SampledBucket:
    """Return a bucket with its files; of a bucket above the row limit, only the files that overlap one key range.

    Args:
        check_input: store, snapshot and limits.
        partition: partition in Paimon's binary form.
        bucket: number of the bucket.

    Raises:
        CorruptFile: a manifest cannot be read.
    """
    store, snapshot = check_input.store, check_input.snapshot
    entries = entries_of_buckets(store, snapshot, partition, [bucket])
    require_in_place(store, snapshot, entries)
    ((_, _, total, table),) = bucket_groups(entries)
    files = tuple(entry.file for entry in table_to_entries(table))
    deletions = deletion_vectors(store, snapshot, [partition], [bucket]).get((partition, bucket), {})
    place = Place(store, partition, bucket, salt=check_input.seed)
    within = _one_range(check_input, files) if sum(file.row_count for file in files) > check_input.limits.rows else None
    if within is not None:
        place = Place(store, partition, bucket, within, check_input.seed)
        files = tuple(file for file, shape in zip(files, as_tree(store, files), strict=True) if within.meets(shape))
    return SampledBucket(place, total, files, deletions)


def _one_range(check_input: CheckInput, files: Sequence[DataFileMeta]) -> KeyBounds | None:
    """Return the key range of one file of the level with most files, or None if no level above 0 has several files."""
    levels: dict[int, list[DataFileMeta]] = {}
    for file in files:
        if file.level > 0:
            levels.setdefault(file.level, []).append(file)
    most = max(levels.values(), key=len, default=[])
    if len(most) < 2:
        return None
    shapes = sorted(zip(as_tree(check_input.store, most), most, strict=True), key=lambda pair: pair[0].min_key)
    at = check_input.seed // 2 % len(shapes)
    high = shapes[at + 1][1].min_key if at + 1 < len(shapes) else None
    return KeyBounds(check_input.store, KeyRange(shapes[at][1].min_key, high))


_MAX_BYTES: Final = 64 << 20


def check_input_at(store: TableStore, snapshot_id: int | None = None, *, rows: int, keys: int) -> CheckInput:
    """Return the input of a check of the rows of one snapshot, with the schema that readers of the snapshot use.

    Args:
        store: the table.
        snapshot_id: the snapshot, None for the newest one with the newest schema.
        rows: largest number of stored rows in the chosen buckets; the first bucket is chosen even if it has more rows.
        keys: approximate number of keys to check per bucket.

    Raises:
        SnapshotNotFound: the snapshot does not exist, or the table has no snapshot yet.
    """
    limits = CheckLimits(rows=rows, keys=keys)
    if snapshot_id is not None:
        version = resolve(store, snapshot_id)
        if version.snapshot is not None:
            return CheckInput("expectations", version.store, version.snapshot, limits)
    newest = snapshots.latest(store)
    if newest is None:
        raise SnapshotNotFound(f"table {store.name}: nothing was committed yet, so there are no rows to compare")
    return CheckInput("expectations", store, newest, limits)


class SampledRows(NamedTuple):
    """Rows of the sampled keys.

    Attributes:
        rows: the rows with all columns.
        keys: number of keys per bucket whose rows were read: `limits.keys`, or fewer if the rows would take more than
            64 MiB.
        whole: whether these are all rows that readers of the snapshot see.
    """

    rows: pa.Table
    keys: int
    whole: bool


def read_sampled_rows(check_input: CheckInput) -> SampledRows:
    """Read the rows of the sampled keys by a scan of the snapshot, as any reader does.

    Args:
        check_input: store, snapshot and limits.
    """
    store, keys = check_input.store, check_input.limits.keys
    sample = draw_units(check_input)
    opened = {
        (partition, bucket): open_bucket(check_input, partition, bucket) for partition, bucket in sample.looked_at
    }
    names = list(store.schema.field_names)
    binaries = sorted({binary for binary, _ in opened})
    partitions = [partition_values(store.schema, binary) for binary in binaries]
    scan = plan_scan(
        store,
        snapshot_id=check_input.snapshot.id,
        columns=names,
        partitions=partitions if store.schema.partition_keys else None,
    )
    kept: list[tuple[SampledBucket, pa.RecordBatch]] = []
    total = 0
    for split in scan.splits:
        bucket = opened.get((split.partition, split.bucket))
        if bucket is None:
            continue
        with closing(read_split(scan.store, split, names)) as batches:
            for batch in batches:
                kept.append((bucket, _sampled(bucket, batch, keys)))
                total += kept[-1][1].nbytes
                while total > _MAX_BYTES and keys > 1:
                    keys //= 2
                    kept = [(kept_bucket, _sampled(kept_bucket, rows, keys)) for kept_bucket, rows in kept]
                    total = sum(rows.nbytes for _, rows in kept)
    schema = pa.schema([store.schema.arrow_schema.field(name) for name in names])
    whole = len(opened) == sample.buckets and all(
        bucket.place.within is None and bucket.sample(keys).limit is None for bucket in opened.values()
    )
    return SampledRows(pa.Table.from_batches([rows for _, rows in kept], schema=schema), keys, whole)


def _sampled(bucket: SampledBucket, batch: pa.RecordBatch, keys: int) -> pa.RecordBatch:
    """Return the rows of ``batch`` whose keys are in the bucket's sample of about ``keys`` keys."""
    return chosen_rows(batch, pa.array(bucket.sample(keys).chosen(bucket.place.ranks(batch))))
