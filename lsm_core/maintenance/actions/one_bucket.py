"""What a writer that compacts by itself asks: the unit to compact in one bucket, by the very rules of a maintenance plan."""

from __future__ import annotations

from collections.abc import Sequence

from lsm_core.compact import BucketTask
from lsm_core.format.file_meta import ADD, DataFileMeta, ManifestEntry, entries_to_table
from lsm_core.format.partition_path import partition_text
from lsm_core.maintenance.actions.trees import Place, plan_tree
from lsm_core.maintenance.plan import Declined
from lsm_core.metadata import support
from lsm_core.metadata.store import TableStore


def bucket_task(
    store: TableStore, partition: bytes, bucket: int, total_buckets: int, files: Sequence[DataFileMeta], full: bool
) -> BucketTask | None:
    """The compaction that the table's options pick for a bucket of ``files`` (all of them) now; None if they pick none.

    ``full``: of everything. Raises WriterStale when the table's schema changed since it was opened.
    """
    if not files:
        return None
    entries = entries_to_table([ManifestEntry(ADD, partition, bucket, total_buckets, file) for file in files])
    support.require_current(store, entries, "compacting it")
    place = Place(partition, partition_text(store.schema, partition, store.options), bucket, total_buckets)
    item = plan_tree(store, place, entries, full, store.clock.now_ms())
    if isinstance(item, Declined):
        return None
    return BucketTask(
        partition=partition,
        bucket=bucket,
        total_buckets=total_buckets,
        files=tuple(files),
        unit_names=tuple(file.name for file in item.inputs),
        output_level=item.output_level,
        drop_delete=item.drop_delete,
        verification=store.options.verification,
        by_file=item.by_file,
        now_ms=item.expire_at_ms,
    )


__all__ = ["bucket_task"]
