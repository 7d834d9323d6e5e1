"""Totals per partition or bucket, computed from manifests one at a time.

Source: ``PartitionEntry``, ``BucketEntry``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore

_SUMS: Final = ("record_count", "file_size_in_bytes", "file_count")
NEWEST: Final = "last_update_time"


def totals(
    store: TableStore,
    snapshot: Snapshot,
    keys: Sequence[str],
    *,
    waiting: bool = False,
    partitions: Collection[bytes] | None = None,
) -> pa.Table:
    """Return rows, bytes and files per key, and the creation time of the newest file (epoch ms).

    Additions and deletions are summed with opposite signs as manifests are read, so files need no matching. Memory
    holds one manifest and the groups. As in Java, the newest file is taken from all manifest entries, including deleted
    files. Groups without files are left out.

    Args:
        store: the table.
        snapshot: the snapshot to read.
        keys: grouping columns: "partition" (bytes), "bucket".
        waiting: whether to include files that still wait for a bucket; by bucket they are always included.
        partitions: partitions to include (serialised rows), or None for all.

    Returns:
        One row per group.

    Raises:
        CorruptFile: a manifest list or manifest is damaged.
    """
    groups: pa.Table | None = None
    pending: list[pa.Table] = []
    metas = manifests.prune(
        manifests.data_manifests(store, snapshot), store.schema.partition_types, partitions, None, None
    )
    for meta in metas:

        def sign_entries(entries: pa.Table) -> pa.Table:
            return _to_signed_counts(manifests.keep_rows(entries, partitions, None, None), keys, waiting)

        pending.append(_aggregate(manifests.read_manifest(store, meta, sign_entries), keys))
        # Merging when the new groups are as many as the known ones keeps memory and work proportional to the groups.
        if groups is None or sum(part.num_rows for part in pending) >= groups.num_rows:
            groups, pending = _aggregate(pa.concat_tables([*([groups] if groups else []), *pending]), keys), []
    if groups is None:
        groups = _to_signed_counts(manifests.entries_of(store, []), keys, waiting)
    groups = _aggregate(pa.concat_tables([groups, *pending]), keys)
    return groups.filter(pc.greater(groups.column("file_count"), 0))


def _to_signed_counts(entries: pa.Table, keys: Sequence[str], waiting: bool) -> pa.Table:
    sign = pc.cast(pc.if_else(pc.equal(entries.column("kind"), 0), 1, -1), pa.int64())
    if "bucket" not in keys and not waiting:  # files that wait for a bucket cannot be read yet
        has_bucket = pc.greater_equal(entries.column("bucket"), 0)
        entries, sign = entries.filter(has_bucket), sign.filter(has_bucket)
    columns = {name: entries.column(name) for name in keys}
    columns["record_count"] = pc.multiply(entries.column("row_count"), sign)
    columns["file_size_in_bytes"] = pc.multiply(entries.column("file_size"), sign)
    columns["file_count"] = sign
    columns[NEWEST] = entries.column("creation_time_ms")
    return pa.table(columns)


def _aggregate(part: pa.Table, keys: Sequence[str]) -> pa.Table:
    sums = part.group_by(list(keys)).aggregate([*((name, "sum") for name in _SUMS), (NEWEST, "max")])
    names = {**{f"{name}_sum": name for name in _SUMS}, f"{NEWEST}_max": NEWEST}
    return sums.rename_columns([names.get(name, name) for name in sums.column_names]).select([*keys, *_SUMS, NEWEST])
