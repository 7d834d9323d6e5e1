"""Rescale: the merged rows of whole partitions are written to a new number of buckets and replace the old files.

Semantics of Paimon's `rescale` procedure: the table's option `bucket` is not changed. Alter the option before, because
writers refuse a partition whose number of buckets differs. Delete records that are not needed any more are dropped. The
commit fails if another commit changed one of the partitions during the rescale, so that no row is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import CommitMessage, Committer, discard_on_failure
from lsm_core.commit.overwrite import partition_matcher
from lsm_core.compact import BucketReport, BucketResult, BucketTask
from lsm_core.compact.row_digests import Content, content_of
from lsm_core.compact.task import V1
from lsm_core.errors import InvalidOption, PlanStale, UnsupportedFeature, VerificationFailed
from lsm_core.format.manifest import DataFileMeta, IndexFileMeta, table_to_entries
from lsm_core.format.partitions import partition_text
from lsm_core.maintenance.action import (
    NO_SUCH_PARTITION,
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    PlannedFile,
    RewriteItem,
    RewriteReport,
    Runner,
)
from lsm_core.merge import Digest
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import require_in_place, vector_files
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_allowed_places, require_compactable, require_current
from lsm_core.options import whole_number
from lsm_core.progress import advance, stage
from lsm_core.read import Split, read_bucket_merged
from lsm_core.read.key_range import KeyBounds
from lsm_core.read.partition_choice import chosen_partitions
from lsm_core.read.scan import read_raw
from lsm_core.write.bucket import buckets_of
from lsm_core.write.table_write import StoredRows

_BYTES_PER_SECOND: Final = 12_000_000
"""File bytes that one core reads, routes, sorts, writes and reads back per second; only for forecasts."""
_MOST_BUCKETS: Final = (1 << 31) - 1
"""Largest number of buckets: manifests store the number as a signed 32-bit integer."""
_CHANGES_WRITTEN: Final[Mapping[str, str]] = {"lookup": "any", "full-compaction": "top"}
"""By changelog producer, the levels above 0 whose rows are in the changelog: any of them, or the top one."""
Bucket = tuple[bytes, int, tuple[DataFileMeta, ...], tuple[IndexFileMeta, ...]]
"""Partition (serialised), bucket number, data files of the bucket, and index files with their deletion vectors."""


@dataclass(frozen=True)
class RescaleItem(RewriteItem):
    """Partition to rewrite with a new number of buckets.

    Attributes:
        inputs: all live files of the partition.
        buckets_before: current number of buckets.
        buckets_after: new number of buckets.
        reason: why the partition is rewritten.
    """

    item_kind: ClassVar[str] = "rescale"
    title: ClassVar[str] = "would rescale"
    columns: ClassVar[tuple[str, ...]] = ("partition", "buckets", "then", "files", "bytes", "why")

    buckets_before: int
    buckets_after: int
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan.

        The cells are the partition, the numbers of buckets before and after, the number of files, their bytes, and the
        reason.
        """
        place = (self.partition_text or "-", self.buckets_before, self.buckets_after)
        return (*place, len(self.inputs), self.bytes_in, self.reason)


@dataclass(frozen=True)
class RescaleReport(RewriteReport):
    """Report of a rescale.

    Attributes:
        partitions: paths of the rewritten partitions.
        digest: digest of the merged rows; the new files were read back and have the same digest.
        verification: always "V1": the new files were read back and compared.
        warnings: steps for the user before these partitions can be written to again, because a rescale does not change
            the option `bucket`.
    """

    partitions: tuple[str, ...] = ()
    digest: str = ""
    verification: str = "V1"
    warnings: tuple[str, ...] = ()

    def lines(self, table: str) -> list[str]:
        """Return lines on partitions, files and rows; then the warnings."""
        if self.snapshot_id is None:
            return ["nothing was rescaled"]
        files = f"{len(self.partitions)} partitions, {self.files_in} files in, {self.files_out} out"
        rows = f"{self.rows_in:,} rows in, {self.rows_out:,} merged rows out; verified: {self.verification}"
        return [f"snapshot {self.snapshot_id}: {files}", rows, *(f"warning: {warning}" for warning in self.warnings)]


def plan_rescale(
    store: TableStore,
    bucket_num: int | None = None,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    now_ms: int | None = None,
    where: str | None = None,
) -> MaintenancePlan:
    """Plan the rescale of every chosen partition whose number of buckets is not ``bucket_num``.

    Only metadata is read.

    Args:
        store: the table.
        bucket_num: new number of buckets, None for the table's option `bucket`.
        partitions: partitions to rescale (typed values, columns may be missing), None for all.
        now_ms: time of planning (epoch ms), None for the table's clock.
        where: condition on partition columns in place of ``partitions``.

    Raises:
        UnsupportedFeature: the table has no fixed number of buckets.
        InvalidOption: an argument is invalid.
        InvalidFilter, ColumnNotFound, InvalidData: partitions or condition do not fit the table.
        CorruptFile: metadata cannot be read.
    """
    require_compactable(store)
    if store.options.bucket < 1:
        raise UnsupportedFeature("rescale of a table without a fixed number of buckets", store.name)
    target = store.options.bucket if bucket_num is None else whole_number(bucket_num, "bucket_num", store.name, least=1)
    if target > _MOST_BUCKETS:
        raise InvalidOption("bucket_num", bucket_num, f"at most {_MOST_BUCKETS:,} buckets", store.name)
    if where is not None:
        partitions = chosen_partitions(store, {"where": where, "partitions": partitions})
    selects_none = where is not None and not partitions
    matches = None if partitions is None or selects_none else partition_matcher(store, partitions)
    snapshot = snapshots.latest(store)
    arguments = {"bucket_num": target, "partitions": None if partitions is None else str(list(partitions))}
    plan = MaintenancePlan.begin("rescale", store, None if snapshot is None else snapshot.id, arguments, now_ms)
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    items, declined = [], []
    entries = manifests.live_entries(store, snapshot)
    require_allowed_places(store, entries)
    placed = bucket_groups(entries.filter(pc.greater_equal(entries.column("bucket"), 0)))
    for partition, buckets in groupby(placed, key=itemgetter(0)):
        if selects_none or (matches is not None and not matches(partition)):
            continue
        entries = pa.concat_tables([group for _, _, _, group in buckets])
        before = int(pc.max(entries.column("total_buckets")).as_py())
        text = partition_text(store.schema, partition, store.options)
        if before == target:
            why = f"it has {target} buckets already"
            declined.append(Declined(text or "table", "same-buckets", why, {"buckets": target}, text))
            continue
        files = [entry.file for entry in table_to_entries(entries)]
        why = why_changes_wait(store, files)
        if why:
            declined.append(Declined(text or "table", "changelog", why, {}, text))
            continue
        reason = f"{before} -> {target} buckets"
        if target != store.options.bucket:
            reason += (
                f"; writers refuse this partition as long as the table's option 'bucket' is {store.options.bucket}"
            )
        inputs = tuple(PlannedFile(f.file_name, f.level, f.file_size, f.row_count, f.delete_row_count) for f in files)
        items.append(RescaleItem(partition, text, inputs, before, target, reason))
    if not items and not declined:
        declined.append(
            Declined("table", "empty", "the table has no file") if partitions is None else NO_SUCH_PARTITION
        )
    size = sum(item.bytes_in for item in items)
    estimate = PlanEstimate(
        bytes_in=size,
        bytes_out=size,
        rows_in=sum(item.rows_in for item in items),
        files_in=sum(len(item.inputs) for item in items),
        tasks=len(items),
        seconds=round(size / _BYTES_PER_SECOND, 2),
    )
    return replace(plan, items=tuple(items), declined=tuple(declined), estimate=estimate)


def why_changes_wait(store: TableStore, files: Iterable[DataFileMeta]) -> str:
    """Return why an overwrite must not rewrite files, or "" if it may rewrite them.

    With some changelog producers, compactions write the changelog of files. An overwrite writes no changelog, so
    rewriting files before that compaction would lose their changes.

    Args:
        store: the table.
        files: live files to rewrite.
    """
    producer = store.options.changelog_producer
    written_from = _CHANGES_WRITTEN.get(producer)
    lowest = 0 if written_from is None else store.options.num_levels - 1 if written_from == "top" else 1
    if all(file.level >= lowest for file in files):
        return ""
    return f"changes of it wait for the changelog of changelog-producer = {producer}: compact it fully first"


def apply_rescale(store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> ApplyOutcome:
    """Rewrite the planned partitions, check that their rows stay the same, and replace their files in one commit.

    The commit is an OVERWRITE. The memory needed is that of a read and a write buffer. After an error other than
    CommitUnknown the new files are deleted.

    Args:
        store: the table.
        plan: plan to apply.
        runner: executor that distributes the work, None for this process.

    Returns:
        ApplyOutcome with a RescaleReport.

    Raises:
        PlanStale: a partition changed since planning.
        CommitConflict: a partition changed while its rows were written.
        VerificationFailed: the new files do not hold the same rows.
        CorruptFile: a file is damaged.
    """
    require_compactable(store)
    done: list[CommitMessage] = []
    live = Digest()
    old = [(item, bucket) for item in plan.items_of(RescaleItem) for bucket in live_buckets(store, item)]
    tasks = [
        RescaleTask(partition, bucket, item.buckets_after, files, index_files=indexes)
        for item, (partition, bucket, files, indexes) in old
    ]
    with discard_on_failure(store, done), stage(f"rescaling {store.name}", len(tasks), "buckets"):
        for result in (runner or _rescale_in_process)(store, tasks) if tasks else ():
            advance()
            done.append(result.message)
            live = live.add(Digest.from_text(result.report.digest))
        done += [
            CommitMessage(partition, bucket, item.buckets_before, deleted_files=files, deleted_index_files=indexes)
            for item, (partition, bucket, files, indexes) in old
        ]
        committed = Committer(store).replace_partitions(done, properties={PLAN_PROPERTY: plan.hash})
    content = Content(live)
    new = [file for message in done for file in message.new_files]
    warnings = []
    counts = sorted({item.buckets_after for item in plan.items_of(RescaleItem)} - {store.options.bucket})
    if counts and committed.snapshot_id is not None:
        # Writers refuse these partitions until the option is changed; Paimon's procedure does not change it either.
        where = "partitions" if store.schema.partition_keys else "table"
        warnings.append(
            f"the option 'bucket' of table {store.name} stays {store.options.bucket}: writers refuse the rescaled "
            f"{where} until SchemaChange.set_option('bucket', '{counts[0]}') makes it {counts[0]}, "
            "and then refuse partitions with another number"
        )
    report = RescaleReport(
        snapshot_id=committed.snapshot_id,
        base_snapshot=plan.base_snapshot,
        plan_hash=plan.hash,
        partitions=tuple(item.partition_text for item in plan.items_of(RescaleItem)),
        files_in=plan.estimate.files_in,
        files_out=len(new),
        rows_in=plan.estimate.rows_in,
        rows_out=content.rows,
        bytes_in=plan.estimate.bytes_in,
        bytes_out=sum(file.file_size for file in new),
        digest=content.text(),
        declined=plan.declined,
        warnings=tuple(warnings),
    )
    lines = [
        {"event": "rescaled", "partition": item.partition_text, "from": item.buckets_before, "to": item.buckets_after}
        for item in plan.items_of(RescaleItem)
    ]
    return ApplyOutcome(report, lines)


def live_buckets(store: TableStore, item: RewriteItem) -> list[Bucket]:
    """Return the buckets of a planned partition with their current files.

    Args:
        store: the table.
        item: planned partition.

    Raises:
        PlanStale: the current files are not the planned files.
    """
    snapshot = snapshots.latest(store)
    where = item.partition_text or f"table {store.name}"
    if snapshot is None:
        raise PlanStale(f"{where} is empty now", store.name)
    entries = manifests.live_entries(store, snapshot, partitions=[item.partition])
    require_current(store, entries, "rescaling it")
    require_in_place(store, snapshot, entries)
    vectors = vector_files(store, snapshot, [item.partition])
    buckets = [
        (p, b, tuple(e.file for e in table_to_entries(group)), vectors.get((p, b), ()))
        for p, b, _, group in bucket_groups(entries)
    ]
    now = {(file.file_name, file.level) for _, _, files, _ in buckets for file in files}
    if now != {(file.name, file.level) for file in item.inputs}:
        raise PlanStale(f"{where} got or lost files since it was planned", store.name)
    return buckets


def rescale_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether all partitions of the plan still have exactly the planned files.

    Args:
        store: the table.
        plan: plan to compare with the table.

    Raises:
        WriterStale: the schema changed.
        CorruptFile: metadata cannot be read.
    """
    try:
        return all(live_buckets(store, item) for item in plan.items_of(RescaleItem))
    except PlanStale:
        return False


@dataclass(frozen=True)
class RescaleTask(BucketTask):
    """Task for a runner: write the rows of one old bucket's ``files`` into ``total_buckets`` new buckets.

    The tasks of a rescale cover all buckets of a partition. A runner may split a task by key range (``piece``), or in
    tables without a key by files in order (:func:`in_order`).

    The runner returns one result for every new bucket that gets rows. ``new_files`` of the result's commit message
    contain these rows, and the report has the ``digest`` of the rows read back. The runner raises VerificationFailed
    unless the results of a partition together have the content of the old files.
    """

    def target(self, store: TableStore) -> TableStore:
        """Return the table opened with the new number of buckets, for writing into the partition's new buckets."""
        return store.with_buckets(self.total_buckets)


def _rescale_in_process(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
    """Rewrite the partitions of ``tasks`` one after the other, in this process."""
    for partition, group in groupby(tasks, key=attrgetter("partition")):
        read_content, target = Content(), store
        with ExitStack() as until_written:
            writer: StoredRows | None = None
            for task in group:
                assert isinstance(task, RescaleTask)
                if writer is None:
                    target = task.target(store)
                    writer = until_written.enter_context(StoredRows(target))
                with closing(stored_rows(store, task)) as batches:  # type: ignore[type-var]
                    for batch in batches:
                        read_content = read_content.plus(content_of(batch, store.schema))
                        writer.write(batch)
            assert writer is not None
            messages = writer.prepare_commit()
        with discard_on_failure(store, messages):
            results = [read_again(target, message) for message in messages]
            require_same_content(store, partition, results, read_content)
        yield from results


def in_order(files: Iterable[DataFileMeta]) -> list[DataFileMeta]:
    """Return the files of an append-table bucket in the order of their rows.

    Args:
        files: files of the bucket.
    """
    return sorted(files, key=lambda f: (f.min_sequence_number, f.creation_time_ms or 0, f.file_name))


def stored_rows(
    store: TableStore, task: RescaleTask, seen: Callable[[DataFileMeta, pa.RecordBatch], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all merged rows of a task's old bucket, or only the rows of the task's key range (``piece``).

    Rows of level 0 are included, although batch reads may skip level 0.

    Args:
        store: the table.
        task: task whose rows are read.
        seen: function that is called with the file and the batch for each batch that is read. The function is not
            called in tables without a primary key.

    Raises:
        CorruptFile: a file is damaged.
    """
    deletions = task.deletions(store)
    if store.schema.primary_keys:
        within = None if task.piece is None else KeyBounds(store, task.piece)
        return read_bucket_merged(
            store, task.partition, task.bucket, list(task.files), deletions=deletions, within=within, seen=seen
        )
    ordered = in_order(task.files)
    marks = tuple(deletions.get(file.file_name) for file in ordered)
    split = Split(task.partition, task.bucket, ordered, raw=True, deletions=marks)
    return read_raw(store, split, columns=store.schema.field_names)


def read_again(target: TableStore, message: CommitMessage) -> BucketResult:
    """Read the new files of a commit message back, and return the result with the digest of their rows.

    Args:
        target: table opened with the new number of buckets.
        message: commit message of one new bucket.

    Raises:
        VerificationFailed: a row is in the wrong bucket.
    """
    content = Content()
    written = RescaleTask(message.partition, message.bucket, message.total_buckets, message.new_files)
    with closing(stored_rows(target, written)) as batches:  # type: ignore[type-var]
        for batch in batches:
            content = content.plus(content_of(batch, target.schema))
            if np.any(buckets_of(target, batch) != message.bucket):
                raise VerificationFailed("V1", [f"bucket {message.bucket} would hold rows of other buckets"])
    report = BucketReport(
        rows_out=content.rows, digest=content.live.text(), rows_read_again=content.rows, verification=V1
    )
    return BucketResult(message, report)


def require_same_content(
    store: TableStore, partition: bytes, results: Sequence[BucketResult], old_content: Content
) -> None:
    """Check that the new buckets of a partition together have the rows of its old files.

    Args:
        store: the table.
        partition: partition in Paimon's binary form.
        results: results of the partition's new buckets.
        old_content: content of the partition's old files.

    Raises:
        VerificationFailed: the contents differ.
    """
    new_content = Digest()
    for result in results:
        new_content = new_content.add(Digest.from_text(result.report.digest))
    if Content(new_content) != old_content:
        where = partition_text(store.schema, partition, store.options) or f"table {store.name}"
        raise VerificationFailed(
            "V1", [f"{where}: {new_content.rows} rows re-read, {old_content.rows} merged rows before, digests differ"]
        )


WORK: Final = ActionWork(plan_rescale, apply_rescale, RescaleReport, (RescaleItem,), commits=True, fits=rescale_fits)
