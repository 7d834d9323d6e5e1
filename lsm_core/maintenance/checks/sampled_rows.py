"""Rows of the sampled keys as readers see them: few enough that all of their columns fit into memory."""

from __future__ import annotations

from contextlib import closing
from typing import Final

import pyarrow as pa

from lsm_core.arrays import chosen_rows
from lsm_core.errors import SnapshotNotFound
from lsm_core.format.partitions import partition_values
from lsm_core.maintenance.checks.bucket_sample import SampledBucket, draw_units, open_bucket
from lsm_core.maintenance.checks.outcome import CheckLimits, Question
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.read import plan_scan, read_split
from lsm_core.read.table_versions import resolve

_MAX_BYTES: Final = 64 << 20


def question_at(store: TableStore, snapshot_id: int | None = None, *, rows: int, keys: int) -> Question:
    """Return the question about the rows of one snapshot, with the schema that its readers have.

    Args:
        store: the table.
        snapshot_id: the snapshot, None for the newest one with the newest schema.
        rows: number of rows to check, apart from the first bucket.
        keys: number of keys per bucket to judge.

    Raises:
        SnapshotNotFound: the snapshot does not exist, or the table has no snapshot yet.
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
    """Read the rows of the sampled keys by a scan of the snapshot, as any reader does.

    Args:
        question: store, snapshot and limits.

    Returns:
        The rows with all columns, and the number of keys per bucket whose rows are complete: that of the limits, or
            fewer where the rows would take more than 64 MiB.
    """
    store, keys = question.store, question.limits.keys
    sample = draw_units(question)
    opened = {(partition, bucket): open_bucket(question, partition, bucket) for partition, bucket in sample.looked_at}
    names = list(store.schema.field_names)
    binaries = sorted({binary for binary, _ in opened})
    partitions = [partition_values(store.schema, binary) for binary in binaries]
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
                while total > _MAX_BYTES and keys > 1:
                    keys //= 2
                    kept = [(kept_bucket, _sampled(kept_bucket, rows, keys)) for kept_bucket, rows in kept]
                    total = sum(rows.nbytes for _, rows in kept)
    schema = pa.schema([store.schema.arrow_schema.field(name) for name in names])
    return pa.Table.from_batches([rows for _, rows in kept], schema=schema), keys


def _sampled(bucket: SampledBucket, batch: pa.RecordBatch, keys: int) -> pa.RecordBatch:
    """Return the rows of the bucket's sample of ``keys`` keys."""
    return chosen_rows(batch, pa.array(bucket.sample(keys).chosen(bucket.place.ranks(batch))))
