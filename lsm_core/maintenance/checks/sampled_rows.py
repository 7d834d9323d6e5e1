"""What readers see of the sampled keys of a table: few enough rows that all of their columns can be held."""

from __future__ import annotations

from contextlib import closing
from typing import Final

import pyarrow as pa

from lsm_core.arrays import chosen_rows
from lsm_core.errors import SnapshotNotFound
from lsm_core.format.partition_path import partition_values
from lsm_core.maintenance.checks.bucket_sample import SampledBucket, draw_units, open_bucket
from lsm_core.maintenance.checks.outcome import CheckLimits, Question
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.read import plan_scan, read_split
from lsm_core.read.table_versions import resolve

_MOST_BYTES: Final = 64 << 20


def question_at(store: TableStore, snapshot_id: int | None = None, *, rows: int, keys: int) -> Question:
    """Return the question about the rows of one snapshot, with the schema that its readers have.

    Args:
        store: the table.
        snapshot_id: the snapshot, None for the newest one with the newest schema.
        rows: number of rows that are looked at, apart from the first bucket.
        keys: number of keys per bucket that are judged.

    Raises:
        SnapshotNotFound: there is no such snapshot, or nothing was committed yet.
    """
    limits = CheckLimits(rows=rows, keys=keys)
    if snapshot_id is not None:
        version = resolve(store, snapshot_id)
        if version.snapshot is not None:
            return Question("expectations", version.store, version.snapshot, limits)
    newest = snapshots.latest(store)
    if newest is None:
        raise SnapshotNotFound(f"table {store.name}: nothing was committed yet, so there are no rows to compare")
    return Question("expectations", store, newest, limits)


def read_sampled_rows(question: Question) -> tuple[pa.Table, int]:
    """Read the rows of sampled keys as any reader does: by a scan of the snapshot.

    Returns:
        The rows with all columns, and the number of keys per bucket of which every row is there: that of the question's limits,
        or fewer where rows are so wide that they would take more than 64 MiB.
    """
    store, keys = question.store, question.limits.keys
    sample = draw_units(question)
    opened = {(partition, bucket): open_bucket(question, partition, bucket) for partition, bucket in sample.looked_at}
    names = list(store.schema.field_names)
    partitions = [partition_values(store.schema, one) for one in sorted({place[0] for place in opened})]
    scan = plan_scan(
        store,
        snapshot_id=question.snapshot.id,
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
                while total > _MOST_BYTES and keys > 1:
                    keys //= 2
                    kept = [(one, _sampled(one, rows, keys)) for one, rows in kept]
                    total = sum(rows.nbytes for _, rows in kept)
    schema = pa.schema([store.schema.arrow_schema.field(name) for name in names])
    return pa.Table.from_batches([rows for _, rows in kept], schema=schema), keys


def _sampled(bucket: SampledBucket, batch: pa.RecordBatch, keys: int) -> pa.RecordBatch:
    """Return the rows of the bucket's sample of so many keys."""
    return chosen_rows(batch, pa.array(bucket.sample(keys).chosen(bucket.place.ranks(batch))))


__all__ = ["question_at", "read_sampled_rows"]
