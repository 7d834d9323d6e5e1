"""Other numbers of buckets: the merged rows of whole partitions, routed anew, in place of the files they came from.

Semantics of Paimon's `rescale` procedure: the table's option `bucket` stays as it is (alter it before; writers refuse a
partition with another number), deletes that nothing needs any more go, and a partition that anybody committed to meanwhile
makes the whole commit fail, so that no row is lost.
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
from lsm_core.compact.content import Content, content_of
from lsm_core.compact.task import V1
from lsm_core.errors import InvalidOption, PlanStale, UnsupportedFeature, VerificationFailed
from lsm_core.format.file_meta import DataFileMeta, table_to_entries
from lsm_core.format.manifest import IndexFileMeta
from lsm_core.format.partition_path import partition_text
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    Declined,
    MaintenancePlan,
    Outcome,
    PlanEstimate,
    PlannedFile,
    Report,
    RewriteItem,
    Runner,
)
from lsm_core.merge import Digest
from lsm_core.metadata import manifests, snapshots, support
from lsm_core.metadata.indexes import require_in_place, vector_files
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_compactable, require_declared_places
from lsm_core.metadata.tree_files import bucket_groups
from lsm_core.options import whole_number
from lsm_core.progress import advance, stage
from lsm_core.read import Split, read_bucket_merged
from lsm_core.read.key_range import KeyBounds
from lsm_core.read.partition_choice import chosen_partitions
from lsm_core.read.raw_read import read_raw
from lsm_core.write.bucket import buckets_of
from lsm_core.write.table_write import StoredRows

_BYTES_PER_SECOND: Final = 12_000_000
"""File bytes that one core reads, routes, sorts, writes and reads back a second; only for forecasts."""
_MOST_BUCKETS: Final = (1 << 31) - 1
"""Manifests keep the number of a bucket, and how many there are, in 32 bits with a sign."""
_CHANGES_WRITTEN: Final[Mapping[str, str]] = {"lookup": "any", "full-compaction": "top"}
"""By changelog producer, the levels above 0 whose rows are in the changelog: any of them, or the top one."""
Bucket = tuple[bytes, int, tuple[DataFileMeta, ...], tuple[IndexFileMeta, ...]]
"""Partition, bucket, data files, and the index files that hold deletion vectors of these."""


@dataclass(frozen=True)
class RescaleItem(RewriteItem):
    """One partition that is rewritten with ``buckets_after`` buckets; ``inputs`` are all its files."""

    item_kind: ClassVar[str] = "rescale"
    title: ClassVar[str] = "would rescale"
    columns: ClassVar[tuple[str, ...]] = ("partition", "buckets", "then", "files", "bytes", "why")

    buckets_before: int
    buckets_after: int
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """Buckets before and after, and what is rewritten."""
        size = sum(file.size for file in self.inputs)
        place = (self.partition_text or "-", self.buckets_before, self.buckets_after)
        return (*place, len(self.inputs), size, self.reason)


@dataclass(frozen=True)
class RescaleReport(Report):
    """What a rescale did: partitions rewritten, stored rows in and merged rows out, bytes of files; ``snapshot_id`` None = nothing.

    ``digest``: of the merged rows, which the new files were re-read to have as well (``verification`` V1). ``warnings``: what is left to
    do before these partitions can be written again: a rescale leaves the table's options alone.
    """

    snapshot_id: int | None
    base_snapshot: int | None
    plan_hash: str
    partitions: tuple[str, ...] = ()
    files_in: int = 0
    files_out: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    digest: str = ""
    verification: str = "V1"
    declined: tuple[Declined, ...] = ()
    warnings: tuple[str, ...] = ()

    def lines(self, table: str) -> list[str]:
        """Partitions, files and rows; then the warnings."""
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
    """Plan ``bucket_num`` buckets (None: the table's option `bucket`) for every chosen partition that has another number.

    ``partitions``: typed values, columns may be left out; None = all. ``where``: in their place a condition on partition columns. ``now_ms`` epoch ms. Reads metadata only. Raises
    UnsupportedFeature (no fixed number of buckets), InvalidOption, InvalidFilter, ColumnNotFound, InvalidData, CorruptFile.
    """
    require_compactable(store)
    if store.options.bucket < 1:
        raise UnsupportedFeature("rescale of a table without a fixed number of buckets", store.name)
    target = store.options.bucket if bucket_num is None else whole_number(bucket_num, "bucket_num", store.name, least=1)
    if target > _MOST_BUCKETS:
        raise InvalidOption("bucket_num", bucket_num, f"at most {_MOST_BUCKETS:,} buckets", store.name)
    if where is not None:
        partitions = chosen_partitions(store, {"where": where, "partitions": partitions})
    matches = None if partitions is None else partition_matcher(store, partitions)
    snapshot = snapshots.latest(store)
    arguments = {"bucket_num": target, "partitions": None if partitions is None else str(list(partitions))}
    plan = MaintenancePlan.begun("rescale", store, None if snapshot is None else snapshot.id, arguments, now_ms)
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    items, declined = [], []
    entries = manifests.live_entries(store, snapshot)
    require_declared_places(store, entries)
    placed = bucket_groups(entries.filter(pc.greater_equal(entries.column("bucket"), 0)))
    for partition, buckets in groupby(placed, key=itemgetter(0)):
        if matches is not None and not matches(partition):
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
    size = sum(file.size for item in items for file in item.inputs)
    estimate = PlanEstimate(
        bytes_in=size,
        bytes_out=size,
        rows_in=sum(file.rows for item in items for file in item.inputs),
        files_in=sum(len(item.inputs) for item in items),
        tasks=len(items),
        seconds=round(size / _BYTES_PER_SECOND, 2),
    )
    return replace(plan, items=tuple(items), declined=tuple(declined), estimate=estimate)


def why_changes_wait(store: TableStore, files: Iterable[DataFileMeta]) -> str:
    """Return why files must not be rewritten by an overwrite, "" where they may be.

    An overwrite writes no changes. So those that a compaction has yet to write would be in no changelog.

    Args:
        store: the table.
        files: live files.
    """
    producer = store.options.changelog_producer
    written_from = _CHANGES_WRITTEN.get(producer)
    lowest = 0 if written_from is None else store.options.num_levels - 1 if written_from == "top" else 1
    if all(file.level >= lowest for file in files):
        return ""
    return f"changes of it wait for the changelog of changelog-producer = {producer}: compact it fully first"


def apply_rescale(store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> Outcome:
    """Rewrite the planned partitions, check that they say the same (V1), and replace them in one OVERWRITE commit.

    Memory is that of a read and a write buffer; ``runner`` spreads the work (None: this process does it). Raises PlanStale when a partition
    changed since the plan, CommitConflict when it changed while the rows were written, VerificationFailed, CorruptFile; after any of them no
    file of it is left. Its report is a RescaleReport.
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
        for result in (runner or _rescaled_here)(store, tasks) if tasks else ():
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
        # What keeps these partitions from being written: Paimon's procedure does not touch the table's option either.
        where = "partitions" if store.schema.partition_keys else "table"
        warnings.append(
            f"the option 'bucket' of table {store.name} stays {store.options.bucket}: writers refuse the rescaled {where} until "
            f"SchemaChange.set_option('bucket', '{counts[0]}') makes it {counts[0]}, and then refuse what has another number"
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
    return Outcome(report, lines)


def live_buckets(store: TableStore, item: RewriteItem) -> list[Bucket]:
    """The partition's files as they are now. Raises PlanStale unless they are the planned ones."""
    snapshot = snapshots.latest(store)
    where = item.partition_text or f"table {store.name}"
    if snapshot is None:
        raise PlanStale(f"{where} is empty now", store.name)
    entries = manifests.live_entries(store, snapshot, partitions=[item.partition])
    support.require_current(store, entries, "rescaling it")
    require_in_place(store, snapshot, entries)
    vectors = vector_files(store, snapshot, [item.partition])
    found = [
        (p, b, tuple(e.file for e in table_to_entries(group)), vectors.get((p, b), ()))
        for p, b, _, group in bucket_groups(entries)
    ]
    now = {(file.file_name, file.level) for _, _, files, _ in found for file in files}
    if now != {(file.name, file.level) for file in item.inputs}:
        raise PlanStale(f"{where} got or lost files since it was planned", store.name)
    return found


def rescale_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether all partitions of ``plan`` are as planned. Raises WriterStale, CorruptFile."""
    try:
        return all(live_buckets(store, item) for item in plan.items_of(RescaleItem))
    except PlanStale:
        return False


@dataclass(frozen=True)
class RescaleTask(BucketTask):
    """What runners are given: the ``files`` of one old bucket, with the ``index_files`` of their deletion vectors, for ``total_buckets`` buckets.

    A runner may cut it: by ``piece``, or where there are no keys by its files in their order (`in_order`). All buckets of a partition are among the tasks. There is a result for every bucket that gets rows, whose ``new_files`` hold them, and whose
    report has the ``digest`` of what they say, read again; together they say what the old files did, or the runner raises VerificationFailed.
    """

    def target(self, store: TableStore) -> TableStore:
        """The table as writers of the partition's new buckets see it."""
        return store.with_buckets(self.total_buckets)


def _rescaled_here(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
    """The partitions of ``tasks`` one after the other, by this process."""
    for partition, group in groupby(tasks, key=attrgetter("partition")):
        said, target = Content(), store
        with ExitStack() as until_written:
            writer: StoredRows | None = None
            for task in group:
                assert isinstance(task, RescaleTask)
                if writer is None:
                    target = task.target(store)
                    writer = until_written.enter_context(StoredRows(target))
                with closing(stored_rows(store, task)) as batches:  # type: ignore[type-var]
                    for batch in batches:
                        said = said.plus(content_of(batch, store.schema))
                        writer.write(batch)
            assert writer is not None
            messages = writer.prepare_commit()
        with discard_on_failure(store, messages):
            results = [read_again(target, message) for message in messages]
            require_same_content(store, partition, results, said)
        yield from results


def in_order(files: Iterable[DataFileMeta]) -> list[DataFileMeta]:
    """Files of an append bucket in the order in which their rows came."""
    return sorted(files, key=lambda f: (f.min_sequence_number, f.creation_time_ms or 0, f.file_name))


def stored_rows(
    store: TableStore, task: RescaleTask, seen: Callable[[DataFileMeta, pa.RecordBatch], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """All merged rows of the task's bucket (of its ``piece``): also those on level 0 that batch reads of some tables leave out. Raises CorruptFile.

    ``seen`` is shown every batch that is read from a file and merged.
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
    """The result that tells what the new files of ``message`` say, as they are read back. Raises VerificationFailed for a row in a bucket that is not its own."""
    found = Content()
    written = RescaleTask(message.partition, message.bucket, message.total_buckets, message.new_files)
    with closing(stored_rows(target, written)) as batches:  # type: ignore[type-var]
        for batch in batches:
            found = found.plus(content_of(batch, target.schema))
            if np.any(buckets_of(target, batch) != message.bucket):
                raise VerificationFailed("V1", [f"bucket {message.bucket} would hold rows of other buckets"])
    report = BucketReport(rows_out=found.rows, digest=found.live.text(), rows_read_again=found.rows, verification=V1)
    return BucketResult(message, report)


def require_same_content(store: TableStore, partition: bytes, results: Sequence[BucketResult], said: Content) -> None:
    """V1: the ``results`` of a partition say together what its old files ``said``. Raises VerificationFailed."""
    found = Digest()
    for result in results:
        found = found.add(Digest.from_text(result.report.digest))
    if Content(found) != said:
        where = partition_text(store.schema, partition, store.options) or f"table {store.name}"
        raise VerificationFailed(
            "V1", [f"{where}: {found.rows} rows re-read, {said.rows} merged rows before, digests differ"]
        )
