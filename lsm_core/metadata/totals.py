"""What each partition, or each bucket, holds, added up from manifests one at a time. Source classes: ``PartitionEntry``, ``BucketEntry``."""

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
    """Rows, bytes and files per ``keys`` ("partition" as bytes, "bucket"), and when the newest file was made (epoch ms).

    Additions minus deletions, as manifests come: files never have to be matched, and memory is that of one manifest and the groups.
    The newest file is of all that manifests still tell of, deleted ones too, as in Java. Groups without files are left out. ``waiting``:
    whether files that wait for a bucket count (by bucket they always do). ``partitions``: only these. Raises CorruptFile.
    """
    known: pa.Table | None = None
    pending: list[pa.Table] = []
    metas = manifests.prune(
        manifests.data_manifests(store, snapshot), store.schema.partition_types, partitions, None, None
    )
    for meta in metas:

        def signed(entries: pa.Table) -> pa.Table:
            return _signed(manifests.keep_rows(entries, partitions, None, None), keys, waiting)

        pending.append(_added_up(manifests.read_manifest(store, meta, signed), keys))
        # Folding when as many groups are new as are known keeps both memory and work in proportion.
        if known is None or sum(part.num_rows for part in pending) >= known.num_rows:
            known, pending = _added_up(pa.concat_tables([*([known] if known else []), *pending]), keys), []
    if known is None:
        known = _signed(manifests.entries_of(store, []), keys, waiting)
    known = _added_up(pa.concat_tables([known, *pending]), keys)
    return known.filter(pc.greater(known.column("file_count"), 0))


def _signed(entries: pa.Table, keys: Sequence[str], waiting: bool) -> pa.Table:
    sign = pc.cast(pc.if_else(pc.equal(entries.column("kind"), 0), 1, -1), pa.int64())
    if "bucket" not in keys and not waiting:  # what waits for a bucket is in no partition that can be read
        real = pc.greater_equal(entries.column("bucket"), 0)
        entries, sign = entries.filter(real), sign.filter(real)
    columns = {name: entries.column(name) for name in keys}
    columns["record_count"] = pc.multiply(entries.column("row_count"), sign)
    columns["file_size_in_bytes"] = pc.multiply(entries.column("file_size"), sign)
    columns["file_count"] = sign
    columns[NEWEST] = entries.column("creation_time_ms")
    return pa.table(columns)


def _added_up(part: pa.Table, keys: Sequence[str]) -> pa.Table:
    added = part.group_by(list(keys)).aggregate([*((name, "sum") for name in _SUMS), (NEWEST, "max")])
    names = {**{f"{name}_sum": name for name in _SUMS}, f"{NEWEST}_max": NEWEST}
    return added.rename_columns([names.get(name, name) for name in added.column_names]).select([*keys, *_SUMS, NEWEST])


__all__ = ["NEWEST", "totals"]
