"""Undo of a compaction: its outputs are removed and its inputs restored under new names, in a new COMPACT snapshot.

The inputs are copied and not referenced again. If a snapshot dropped a file, engines other than Dredge delete the file
when they expire that snapshot, even if a later snapshot references the file (Java `SnapshotDeletion`). This includes
files of which the compaction changed only the level: Java's scan leaves out every file that a manifest of the snapshot
deletes, even if a later manifest adds the file on the same level again (`FileEntry.readDeletedEntries`).
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, Self

from lsm_core.commit import CommitMessage, Committer, discard_on_failure
from lsm_core.errors import (
    CorruptFile,
    PlanRefused,
    PlanStale,
    RefusalRule,
    VerificationFailed,
)
from lsm_core.files.vector_writer import change_vectors
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.manifest import SOURCE_COMPACT, DataFileMeta
from lsm_core.format.partitions import partition_text
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    CommitReport,
    Declined,
    Fact,
    MaintenancePlan,
    PlanEstimate,
    PlannedFile,
    RewriteItem,
    bucket_name,
    size_text,
)
from lsm_core.maintenance.actions.undo.replaced_files import (
    UNDO_PROPERTY,
    Compaction,
    ReplacedFiles,
    find_compaction,
    place_text,
    rescan_unchanged,
    vectors_of,
)
from lsm_core.maintenance.lone_versions import BucketFiles
from lsm_core.maintenance.verify import BucketDifference, bucket_content, with_lone_versions_merged
from lsm_core.metadata import snapshots
from lsm_core.metadata.indexes import deletion_files, read_vector
from lsm_core.metadata.live_files import compacted_only
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_compactable
from lsm_core.read.prune import living_at

_BYTES_PER_SECOND: Final = 100_000_000
"""File bytes copied and read back per second; only for forecasts."""
_READ_PER_SECOND: Final = 50_000_000
"""File bytes of a bucket that one core reads and digests per second."""
_CHUNK: Final = 8 << 20
COUNTS: Final = "counts"


@dataclass(frozen=True)
class UndoItem(RewriteItem):
    """Changes of one bucket by an undo.

    Attributes:
        inputs: current files to remove: files that the compaction wrote, and files that it moved to a new level.
        bucket: number of the bucket.
        total_buckets: number of buckets of the partition.
        restored: files that are restored, with their former names and levels.
        moved: empty; plans of earlier versions name files that are moved back to their former level.
    """

    item_kind: ClassVar[str] = "undo"
    title: ClassVar[str] = "would undo"
    columns: ClassVar[tuple[str, ...]] = ("partition", "bucket", "files go", "come back", "bytes copied")

    bucket: int
    total_buckets: int
    restored: tuple[PlannedFile, ...]
    moved: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: TableStore, bucket: ReplacedFiles) -> Self:
        """Return the plan's item that undoes a compaction in one bucket.

        Args:
            store: the table.
            bucket: files that the compaction replaced.
        """
        return cls(
            partition=bucket.partition,
            partition_text=partition_text(store.schema, bucket.partition, store.options),
            inputs=to_planned_files(bucket.outputs),
            bucket=bucket.bucket,
            total_buckets=bucket.total_buckets,
            restored=to_planned_files(bucket.inputs),
        )

    def line(self, event: str) -> dict[str, Any]:
        """Return the ledger line of the bucket, with names and levels of the removed and the restored files.

        Restored files have their former names, not the names of the copies.

        Args:
            event: event name of the ledger line.
        """
        return {
            "event": event,
            "bucket": bucket_name(self.partition_text, self.bucket),
            "removed": [[file.name, file.level] for file in self.inputs],
            "restored": [[file.name, file.level] for file in self.restored],
        }

    @property
    def bytes_copied(self) -> int:
        """Bytes of the files that are restored as copies."""
        return sum(file.size for file in self.restored)

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan.

        The cells are the partition, the bucket, the numbers of files to remove and to restore, and the bytes to copy.
        """
        return (self.partition_text or "-", self.bucket, len(self.inputs), len(self.restored), self.bytes_copied)

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> Self:
        """Return the item from the values of :meth:`to_object`.

        Args:
            value: fields of the item as JSON values.

        Raises:
            KeyError, TypeError, ValueError: ``value`` does not describe an item.
        """
        restored = tuple(PlannedFile(**file) for file in value["restored"])
        return replace(super().from_object({**value, "restored": ()}), restored=restored)


@dataclass(frozen=True)
class ReturnReport(CommitReport):
    """Report of an action that restores files of an older snapshot. Rows are counted before merging.

    Attributes:
        files_removed: number of removed files.
        files_restored: number of files restored as copies.
        files_moved: 0; files of which only the level changed are restored as copies, too.
        rows_removed: number of rows in the removed files.
        rows_restored: number of rows in the restored files.
        bytes_copied: bytes of the copied files.
        verification: "V1" if the copies were read back, else "V0".
    """

    files_removed: int = 0
    files_restored: int = 0
    files_moved: int = 0
    rows_removed: int = 0
    rows_restored: int = 0
    bytes_copied: int = 0
    verification: str = "V0"


@dataclass(frozen=True)
class UndoReport(ReturnReport):
    """Report of an undo; with verification "V1", the merged rows of every readable bucket were compared too.

    Attributes:
        undone_run: id of the compaction's run.
        undone_snapshot: id of the compaction's snapshot.
        predicted_seconds: seconds that the plan predicted.
        differences: buckets whose merged rows were changed by the undo.
        unreadable: buckets whose rows could not be read before the undo, each with the damaged file and the reason.
            Their rows before and after were not compared.
        hidden_rows: number of restored rows of level 0 that readers do not see before the next compaction.
    """

    undone_run: str = ""
    undone_snapshot: int | None = None
    predicted_seconds: float = 0.0
    differences: tuple[BucketDifference, ...] = ()
    unreadable: tuple[str, ...] = ()
    hidden_rows: int = 0

    def lines(self, table: str) -> list[str]:
        """Return lines on files and rows, and on the differences that readers see."""
        if self.snapshot_id is None:
            return ["nothing was undone"]
        files = f"{self.files_removed} files removed, {self.files_restored} put back"
        copied = size_text(self.bytes_copied)
        rows = f"{self.rows_removed:,} stored rows removed, {self.rows_restored:,} put back, {copied} copied"
        answers = {
            "V0": "answers before and after were not compared ('dredge.verification' = 'counts')",
            "V1": "verified: V1, copies read back; every bucket answers as before",
        }[self.verification]
        changed = [
            f"warning: {bucket.bucket} answered {bucket.rows_a:,} rows and answers {bucket.rows_b:,} now, or others"
            for bucket in self.differences
        ]
        changed += [f"warning: not compared, because it could not be read before: {text}" for text in self.unreadable]
        if self.hidden_rows:
            changed.append(
                f"warning: readers see {self.hidden_rows:,} rows put back into level 0 only after the next compaction: "
                f"dredge compact {shlex.quote(table)}"
            )
        if self.differences:
            answers = "verified: V1, copies read back; these buckets answer otherwise than before:"
        elif self.unreadable:
            answers = "verified: V1, copies read back; every bucket that was readable answers as before"
        head = f"snapshot {self.snapshot_id} undoes snapshot {self.undone_snapshot} (run {self.undone_run}): {files}"
        return [head, rows, answers, *changed]


def plan_undo(store: TableStore, run_id: str, partial: bool = False, allow_changes: bool = False) -> MaintenancePlan:
    """Plan to undo a compaction. Only metadata is read.

    Args:
        store: the table.
        run_id: id of the compaction's run in the ledger.
        partial: if some buckets cannot be undone, list them in ``declined`` and undo the remaining buckets.
        allow_changes: accept three effects that otherwise stop the undo. First, merged rows change, which is checked
            when the plan is applied. Second, a writer that was opened after the compaction may give newer rows the
            sequence numbers of restored rows. Third, readers do not see restored rows of level 0 before the next
            compaction.

    Raises:
        InvalidOption: the run does not exist, is not a compaction, or published no snapshot.
        PlanRefused: nothing can be undone, because the compaction was rolled back or undone already, because its
            metadata no longer exists, or because its snapshot assigned postponed rows to buckets. Also if a bucket
            cannot be undone (with ``partial``: no bucket can be undone), because later commits used files that the
            compaction wrote, because files to restore are missing, because the compaction wrote a changelog for the
            bucket, because newer rows have sequence numbers of restored rows, or because of the second or third effect
            that ``allow_changes`` accepts. The message names the rule and the bucket.
        UnsupportedFeature: the table cannot be compacted here.
        WriterStale: the schema changed.
        CorruptFile: metadata cannot be read.
    """
    require_compactable(store)
    compaction = find_compaction(store, run_id, allow_changes=allow_changes)
    if compaction.unfit and (not partial or not compaction.buckets):
        first = compaction.unfit[0]
        more = f" (and {len(compaction.unfit) - 1} more buckets)" if len(compaction.unfit) > 1 else ""
        hint = (
            f"; with `partial` the other {len(compaction.buckets)} buckets can be undone" if compaction.buckets else ""
        )
        detail = f"{place_text(store, first.place)}{more}: {first.text}{hint}"
        raise PlanRefused(first.rule, table=store.name, detail=detail)
    items = tuple(UndoItem.of(store, bucket) for bucket in compaction.buckets)
    declined = [
        Declined(
            place_text(store, unfit.place),
            unfit.rule.value,
            unfit.text,
            {},
            partition_text(store.schema, unfit.place[0], store.options),
            unfit.place[1],
        )
        for unfit in compaction.unfit
    ]
    copied = sum(item.bytes_copied for item in items)
    compared = (
        0
        if store.options.verification == COUNTS
        else sum(f.file_size for b in compaction.buckets for f in (b.live if store.has_primary_key else b.outputs))
    )
    estimate = PlanEstimate(
        bytes_in=copied,
        bytes_out=copied,
        rows_in=sum(file.rows for item in items for file in item.restored),
        files_in=sum(len(item.restored) for item in items),
        tasks=len(items),
        seconds=round(copied / _BYTES_PER_SECOND + 2 * compared / _READ_PER_SECOND, 2),
    )
    arguments: dict[str, Fact] = {"run_id": run_id, "partial": bool(partial), "allow_changes": bool(allow_changes)}
    plan = MaintenancePlan.begin("undo", store, snapshots.latest_id(store), arguments)
    return replace(plan, items=items, declined=tuple(declined), estimate=estimate)


def to_planned_files(files: Sequence[DataFileMeta]) -> tuple[PlannedFile, ...]:
    """Convert data files to the form in which plans store files.

    Args:
        files: metadata of the files.
    """
    return tuple(PlannedFile(f.file_name, f.level, f.file_size, f.row_count, f.delete_row_count) for f in files)


def apply_undo(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Copy the files to restore, compare the merged rows of each bucket, and replace the files in one commit.

    With `dredge.verification` = counts, neither the copies nor the merged rows are compared. Otherwise the rows of the
    bucket after the undo must be readable. If output files of the compaction are damaged or missing, the bucket is
    restored without comparison, and the report names the damaged file.

    The memory needed is that of merging one bucket. After an error other than CommitUnknown the copies are deleted.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with an UndoReport.

    Raises:
        PlanStale: a bucket is not as planned.
        PlanRefused: the compaction was rolled back or undone already, or a file to copy is missing.
        CommitConflict: another commit changed a bucket during the undo.
        CommitUnknown: the storage did not report whether the commit was published.
        VerificationFailed: the undo would change the merged rows of a bucket, and the plan does not allow changes; or
            a copy differs from its source.
        CorruptFile: a file that is restored, or that stays in the bucket, is damaged.
    """
    require_compactable(store)
    compaction = _find_planned(store, plan)
    chosen = _as_planned(store, plan, compaction)
    allowed, verified = bool(plan.arguments["allow_changes"]), store.options.verification != COUNTS
    living = living_at(store, compaction.clock)
    messages: list[CommitMessage] = []
    differences: list[BucketDifference] = []
    unreadable: list[str] = []
    with discard_on_failure(store, messages):
        for bucket in chosen:
            # In a primary-key table all vectors of the bucket are restored, else only the vectors of restored files.
            message = return_files(store, bucket, messages, verified, all_vectors=store.has_primary_key)
            if not verified:
                continue
            # Files of append tables are independent: only changed files need a comparison.
            others = [file for file in bucket.live if file not in message.compact_before]
            siblings = others if store.has_primary_key else []
            deleted_indexes = {index.file_name for index in message.compact_deleted_index_files}
            kept = [index for index in bucket.index_files if index.file_name not in deleted_indexes]
            vectors = deletion_files(store, *bucket.place, [*kept, *message.compact_new_index_files])
            was = [*siblings, *message.compact_before], vectors_of(bucket, store)
            will_be = [*siblings, *message.compact_after], vectors
            after = bucket_content(store, *bucket.place, *will_be, living)
            try:
                before = bucket_content(store, *bucket.place, *was, living)
            except CorruptFile as error:
                # The files that stay were readable for `after`: the damaged file is one that the undo removes.
                unreadable.append(f"{place_text(store, bucket.place)}: {error}")
                continue
            if before.live != after.live:  # the compaction may have merged keys that had one version
                restored, compacted = (BucketFiles(*bucket.place, *side) for side in (will_be, was))
                after = with_lone_versions_merged(store, after, restored, compacted, living)
            if before.live != after.live:
                name = place_text(store, bucket.place)
                differences.append(
                    BucketDifference(name, before.live.rows, after.live.rows, before.text(), after.text())
                )
        if differences and not allowed:
            raise VerificationFailed("V1", [_would_differ(store, difference) for difference in differences])
        properties = {PLAN_PROPERTY: plan.hash, UNDO_PROPERTY: compaction.run_id}
        committed = Committer(store).commit_compaction(
            messages, partial(rescan_unchanged, store, chosen), properties=properties
        )
    report = UndoReport(
        snapshot_id=committed.snapshot_id,
        base_snapshot=plan.base_snapshot,
        plan_hash=plan.hash,
        undone_run=compaction.run_id,
        undone_snapshot=compaction.snapshot_id,
        **count_returned(messages),
        predicted_seconds=plan.estimate.seconds,
        verification="V1" if verified else "V0",
        differences=tuple(differences),
        unreadable=tuple(unreadable),
        hidden_rows=_count_hidden(store, messages),
        declined=plan.declined,
    )
    return ApplyOutcome(report, [item.line("undone") for item in plan.items_of(UndoItem)])


def count_returned(messages: Sequence[CommitMessage]) -> dict[str, Any]:
    """Count the removed and the restored files; return the values of the report's fields by field name.

    Args:
        messages: commit messages, one per bucket.
    """
    removed = [file for message in messages for file in message.compact_before]
    restored = [file for message in messages for file in message.compact_after]
    return {
        "files_removed": len(removed),
        "files_restored": len(restored),
        "rows_removed": sum(file.row_count for file in removed),
        "rows_restored": sum(file.row_count for file in restored),
        "bytes_copied": sum(file.file_size for file in restored),
    }


def _count_hidden(store: TableStore, messages: Sequence[CommitMessage]) -> int:
    """Return the number of restored rows that readers do not see before the next compaction."""
    if not (store.has_primary_key and compacted_only(store)):
        return 0
    return sum(file.row_count for message in messages for file in message.compact_after if file.level == 0)


def _would_differ(store: TableStore, difference: BucketDifference) -> str:
    return (
        f"{difference.bucket} of table {store.name} answers {difference.rows_a} rows now and would answer "
        f"{difference.rows_b}, or others, as before the compaction; allow_changes takes them"
    )


def _find_planned(store: TableStore, plan: MaintenancePlan) -> Compaction:
    """Return the compaction that the plan undoes, with the current state of its buckets."""
    return find_compaction(store, str(plan.arguments["run_id"]), allow_changes=bool(plan.arguments["allow_changes"]))


def _as_planned(store: TableStore, plan: MaintenancePlan, compaction: Compaction) -> list[ReplacedFiles]:
    """Return the current state of the planned buckets from ``compaction``. Raises PlanStale if they changed."""
    by_place = {bucket.place: bucket for bucket in compaction.buckets}
    chosen = []
    for item in plan.items_of(UndoItem):
        bucket = by_place.get((item.partition, item.bucket))
        if bucket is None or UndoItem.of(store, bucket) != item:
            why = next(
                (unfit.text for unfit in compaction.unfit if unfit.place == (item.partition, item.bucket)),
                "its files changed",
            )
            raise PlanStale(f"{bucket_name(item.partition_text, item.bucket)}: {why}", store.name)
        chosen.append(bucket)
    return chosen


def undo_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether all buckets of the plan can still be undone exactly as planned.

    Args:
        store: the table.
        plan: plan to compare with the table.

    Raises:
        WriterStale: the schema changed.
        CorruptFile: metadata cannot be read.
    """
    with suppress(PlanRefused, PlanStale):
        return bool(_as_planned(store, plan, _find_planned(store, plan)))
    return False


def return_files(
    store: TableStore, bucket: ReplacedFiles, messages: list[CommitMessage], verified: bool, *, all_vectors: bool
) -> CommitMessage:
    """Copy the files to restore in one bucket, and return the bucket's commit message.

    The message is added to ``messages`` before the first copy begins, so that the caller can delete the copies after an
    error. The index files are added to the message at the end.

    Args:
        store: the table.
        bucket: files that the compaction replaced.
        messages: list of commit messages, to which this function adds one.
        verified: read the copies back and compare them with their sources.
        all_vectors: also restore the deletion vectors of files that stay in the bucket, not only of restored files.

    Raises:
        PlanRefused: a file is missing.
        CorruptFile: a file is damaged.
        VerificationFailed: a copy differs from its source.
    """
    names = {file.file_name: _new_name(store, file.file_name) for file in bucket.inputs}
    copies = {file.file_name: _copy_metadata(store, file, names[file.file_name]) for file in bucket.inputs}
    message = CommitMessage(
        *(bucket.partition, bucket.bucket, bucket.total_buckets),
        compact_before=bucket.outputs,
        compact_after=tuple(copies.values()),
    )
    messages.append(message)
    for file in bucket.inputs:
        copy = copies[file.file_name]
        sources = store.data_paths(bucket.partition, bucket.bucket, file)
        targets = store.data_paths(bucket.partition, bucket.bucket, copy)
        for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
            _copy(store, source, target, None if number else file.file_size, verified)
    replaced = {file.file_name for file in message.compact_before}
    present = {file.file_name for file in bucket.live if file.file_name not in replaced}
    present |= {file.file_name for file in message.compact_after}
    now, before = vectors_of(bucket, store), bucket.vectors
    concerned = {*now, *before} if all_vectors else names.keys() & before.keys()
    changed: dict[str, DeletionVector | None] = {}
    for name in sorted(concerned):
        place, copy_name = before.get(name), names.get(name)
        if copy_name is not None:
            if name in now:  # the file of which only the level changed goes
                changed[name] = None
            if place is not None:
                changed[copy_name] = read_vector(store, place)
        elif place != now.get(name) and (place is None or name in present):
            changed[name] = None if place is None else read_vector(store, place)
    if changed:
        change = change_vectors(store, bucket.partition, bucket.bucket, bucket.index_files, changed, present)
        message = replace(message, compact_new_index_files=change.new, compact_deleted_index_files=change.deleted)
        messages[-1] = message
    return message


def _new_name(store: TableStore, name: str) -> str:
    """Return a new unique file name with the same file extension as ``name``."""
    return store.new_file_name(store.options.data_file_prefix, name.rpartition(".")[2] if "." in name else "")


def _copy_metadata(store: TableStore, file: DataFileMeta, name: str) -> DataFileMeta:
    """Return the metadata of the copy of ``file`` that is called ``name``.

    The copy is in the table's own directory. Its file source is COMPACT. With `sequence.snapshot-ordering` the file
    source stays, because it decides whether the stored sequence numbers or the snapshot's id order the rows.

    Raises:
        CorruptFile: the name of an extra file does not begin with the name of the data file.
    """
    for extra in file.extra_files:
        if not extra.startswith(file.file_name):
            raise CorruptFile(
                file.file_name, f"table {store.name}: a file beside it is called {extra}, so that it cannot be copied"
            )
    extras = tuple(name + extra.removeprefix(file.file_name) for extra in file.extra_files)
    source = file.file_source if store.options.snapshot_ordering else SOURCE_COMPACT
    return replace(file, file_name=name, extra_files=extras, external_path=None, file_source=source)


def _copy(store: TableStore, source: str, target: str, size: int | None, verified: bool) -> None:
    """Copy a file in chunks; if ``verified``, read the copy back and compare it.

    Raises:
        PlanRefused: ``source`` is missing.
        CorruptFile: ``source`` does not have ``size`` bytes.
        VerificationFailed: the copy differs from ``source``.
    """
    try:
        read = store.file_io.open_input(source)
    except FileNotFoundError as error:
        raise PlanRefused(RefusalRule.FILES_ARE_GONE, table=store.name, detail=f"{source} was deleted") from error
    digest, copied = hashlib.blake2b(), 0
    with read, store.file_io.open_output(target) as out:
        while part := read.read(_CHUNK):
            out.write(part)
            digest.update(part)
            copied += len(part)
        if size is not None and copied != size:
            raise CorruptFile(source, f"{copied} bytes, metadata record {size}")
    if not verified:
        return
    written_digest = hashlib.blake2b()
    with store.file_io.open_input(target) as written:
        while part := written.read(_CHUNK):
            written_digest.update(part)
    if written_digest.digest() != digest.digest():
        raise VerificationFailed("V1", [f"{target} is not what was copied from {source}"])


WORK: Final = ActionWork(plan_undo, apply_undo, UndoReport, (UndoItem,), commits=True, fits=undo_fits)
