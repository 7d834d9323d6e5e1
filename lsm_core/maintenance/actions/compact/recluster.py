"""Sort compaction of tables with dynamic buckets: a partition's merged rows are written in order into new buckets.

Rows that are close in the order share a bucket, so that filters can skip whole buckets. Semantics of Flink's
`SortCompactAction`, which overwrites the partitions. Unlike in Flink, the commit fails if another commit changed one of
the partitions during the sort, so that no row is lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from lsm_core.commit import CommitMessage, Committer, discard_on_failure
from lsm_core.compact.clustering.ranges import Cuts
from lsm_core.compact.clustering.rewrite import range_bytes
from lsm_core.compact.clustering.sorting import RangeDistributor, sort_batches
from lsm_core.compact.row_digests import Content, content_of
from lsm_core.errors import PlanStale, VerificationFailed
from lsm_core.files import SpillSpace
from lsm_core.format.manifest import table_to_entries
from lsm_core.format.partitions import partition_text
from lsm_core.maintenance.action import PLAN_PROPERTY, ApplyOutcome, Declined, MaintenancePlan, PlannedFile, RewriteItem
from lsm_core.maintenance.actions.compact.compaction import CompactionReport, Verification
from lsm_core.maintenance.actions.compact.sort_order import SortOrder
from lsm_core.maintenance.actions.rescale import (
    Bucket,
    RescaleTask,
    live_buckets,
    stored_rows,
    why_changes_wait,
)
from lsm_core.maintenance.ledger import peak_memory
from lsm_core.merge.curves import Curve
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.live_files import BucketGroup
from lsm_core.metadata.store import TableStore
from lsm_core.write.restore import hash_entries
from lsm_core.write.table_write import StoredRows

_SAMPLED_A_BATCH: Final = 256
"""Smallest number of rows sampled from each larger batch, to scale the z-order or Hilbert curve to the values."""


@dataclass(frozen=True)
class ReclusterItem(RewriteItem):
    """Partition whose merged rows are written again in order.

    Attributes:
        inputs: files of all buckets of the partition.
        buckets: number of buckets of the partition.
        order_by: columns to sort by.
        strategy: strategy of the sort.
        reason: reason of the rewrite.
    """

    item_kind: ClassVar[str] = "recluster"
    title: ClassVar[str] = "would sort"
    columns: ClassVar[tuple[str, ...]] = ("partition", "buckets", "files", "bytes", "why")

    buckets: int
    order_by: tuple[str, ...]
    strategy: str
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: partition, numbers of buckets and files, bytes, and reason."""
        return (self.partition_text or "-", self.buckets, len(self.inputs), self.bytes_in, self.reason)


def recluster_items(
    store: TableStore, groups: Sequence[BucketGroup], order: SortOrder
) -> list[ReclusterItem | Declined]:
    """Return an item for each partition to sort, or its declined entry.

    A partition is declined if a later compaction must still write the changelog of its files. A sort writes no
    changelog, so these changes would be lost.

    Args:
        store: the table.
        groups: buckets of the partitions, sorted by partition.
        order: columns and strategy of the sort.
    """
    items: list[ReclusterItem | Declined] = []
    for partition, buckets in groupby(groups, key=itemgetter(0)):
        listed = [group for _, _, _, group in buckets]
        files = [entry.file for group in listed for entry in table_to_entries(group)]
        text = partition_text(store.schema, partition, store.options)
        why = why_changes_wait(store, files)
        if why:
            items.append(Declined(text or "table", "changelog", why, {}, text))
            continue
        inputs = tuple(PlannedFile(f.file_name, f.level, f.file_size, f.row_count, f.delete_row_count) for f in files)
        reason = f"{len(files)} files of {len(listed)} buckets rewritten {order.text()}"
        items.append(ReclusterItem(partition, text, inputs, len(listed), order.columns, order.strategy, reason))
    return items


def recluster_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether all partitions of the plan still have exactly the planned files.

    Args:
        store: the table.
        plan: plan to compare with the table.

    Raises:
        WriterStale: the schema changed.
        CorruptFile: metadata cannot be read.
    """
    try:
        return all(live_buckets(store, item) for item in plan.items_of(ReclusterItem))
    except PlanStale:
        return False


def apply_recluster(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Sort the planned partitions, check that their rows stay the same, and replace the files in one OVERWRITE commit.

    The work is done in this process. The memory needed is that of a read, a write buffer and a third of the merge
    budget. After an error other than CommitUnknown the new files are deleted.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a CompactionReport.

    Raises:
        PlanStale: a partition changed since planning.
        CommitConflict: a partition changed while its rows were written.
        VerificationFailed: the new files do not hold the same rows.
        CorruptFile: a file is damaged.
    """
    started = time.perf_counter()
    items = plan.items_of(ReclusterItem)
    new_messages: list[CommitMessage] = []
    digests: dict[str, str] = {}
    rows = 0
    old = [(item, live_buckets(store, item)) for item in items]
    with discard_on_failure(store, new_messages):
        for item, buckets in old:
            messages, content = _sort_partition(store, item, buckets)
            new_messages += messages
            digests[f"{item.partition_text}/bucket-all" if item.partition_text else "bucket-all"] = content.text()
            rows += content.rows
        removals = [message for item, buckets in old for message in _replaced(store, item, buckets)]
        committed = Committer(store).replace_partitions(
            [*new_messages, *removals], properties={PLAN_PROPERTY: plan.hash}
        )
    new = [file for message in new_messages for file in message.new_files]
    report = CompactionReport(
        snapshot_id=committed.snapshot_id,
        base_snapshot=plan.base_snapshot,
        plan_hash=plan.hash,
        files_in=sum(len(item.inputs) for item in items),
        files_out=len(new),
        rows_in=sum(item.rows_in for item in items),
        rows_out=rows,
        bytes_in=sum(item.bytes_in for item in items),
        bytes_out=sum(file.file_size for file in new),
        predicted_seconds=plan.estimate.seconds,
        seconds=round(time.perf_counter() - started, 3),
        peak_rss_bytes=peak_memory(),
        verification=Verification("V1", units=len(items), digests=digests, rows_read_again=rows),
        declined=plan.declined,
        commits=0 if committed.snapshot_id is None else 1,
        sorted_by=next((SortOrder(item.order_by, item.strategy).text() for item in items), ""),
    )
    lines = [{"event": "sorted", "partition": item.partition_text, "buckets": item.buckets} for item in items]
    return ApplyOutcome(report, lines)


def _sort_partition(
    store: TableStore, item: ReclusterItem, buckets: Sequence[Bucket]
) -> tuple[list[CommitMessage], Content]:
    """Write the new buckets of a partition in the planned order, and check them.

    Returns:
        The commit messages of the new buckets, and digests of the partition's live and deleted rows.

    Raises:
        VerificationFailed: the rows of the new buckets differ from the rows of the old buckets.
    """
    read_content, schema, budget = Content(), store.schema.arrow_schema, range_bytes(store)
    curve = Curve(item.order_by, item.strategy, int(store.options.get("zorder.var-length-contribution")))
    samples: list[pa.Table] = []
    with SpillSpace.of(store.options) as space, StoredRows(store) as writer:
        spread = RangeDistributor(curve, Cuts(), schema, budget, space)
        for batch in _merged_rows(store, buckets, schema):
            read_content = read_content.plus(content_of(batch, store.schema))
            step = max(1, batch.num_rows // _SAMPLED_A_BATCH)
            chosen = batch.select(list(item.order_by)).take(pa.array(np.arange(0, batch.num_rows, step)))
            samples.append(pa.Table.from_batches([chosen]))
            spread.add(batch)
        if samples:
            curve = curve.scaled(pa.concat_tables(samples))
        for batch in sort_batches(spread.take(0), curve, schema, budget, space):
            writer.write(batch)
        messages = writer.prepare_commit()
    with discard_on_failure(store, messages):
        written_content = Content()
        written = [(m.partition, m.bucket, m.new_files, ()) for m in messages]
        for batch in _merged_rows(store, written, schema):
            written_content = written_content.plus(content_of(batch, store.schema))
        if written_content != read_content:
            where = item.partition_text or f"table {store.name}"
            text = (
                f"{where}: {written_content.rows} rows re-read, {read_content.rows} merged rows before, digests differ"
            )
            raise VerificationFailed("V1", [text])
    return messages, read_content


def _merged_rows(store: TableStore, buckets: Sequence[Bucket], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the merged rows of ``buckets``, cast to ``schema``."""
    for partition, bucket, files, indexes in buckets:
        task = RescaleTask(partition, bucket, -1, files, index_files=indexes)
        with closing(stored_rows(store, task)) as batches:  # type: ignore[type-var]
            for batch in batches:
                if batch.schema.equals(schema):
                    yield batch
                else:
                    yield from pa.Table.from_batches([batch]).cast(schema).combine_chunks().to_batches()


def _replaced(store: TableStore, item: ReclusterItem, buckets: Sequence[Bucket]) -> list[CommitMessage]:
    """Return the commit messages that remove a partition's old data files, deletion vectors and hash indexes."""
    snapshot = snapshots.latest(store)
    entries = [] if snapshot is None else manifests.index_entries(store, snapshot)
    hashes = {entry.bucket: entry for entry in hash_entries(entries).get(item.partition, [])}
    total = store.options.bucket
    messages = []
    for partition, bucket, files, indexes in buckets:
        known = hashes.pop(bucket, None)
        deleted_indexes = (*indexes, *(() if known is None else (known.file,)))
        messages.append(
            CommitMessage(partition, bucket, total, deleted_files=files, deleted_index_files=deleted_indexes)
        )
    messages += [
        CommitMessage(item.partition, bucket, total, deleted_index_files=(entry.file,))
        for bucket, entry in hashes.items()
    ]
    return messages
