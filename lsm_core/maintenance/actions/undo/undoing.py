"""Undoing a compaction: its outputs go and its inputs come back, under new names, in a COMPACT snapshot on top of all others.

The inputs are copied rather than named again, because other engines take it that a file which a snapshot dropped never comes back: when
they expire that snapshot they delete it, whoever names it later (Java `SnapshotDeletion`). Files that only changed their level move back.
"""

from __future__ import annotations

import hashlib
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
from lsm_core.format.file_meta import SOURCE_COMPACT, DataFileMeta
from lsm_core.format.partition_path import partition_text
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    Declined,
    Fact,
    MaintenancePlan,
    Outcome,
    PlanEstimate,
    PlannedFile,
    Report,
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
    still_on_top,
    vectors_of,
)
from lsm_core.maintenance.reports import BucketDifference
from lsm_core.maintenance.verify import bucket_content
from lsm_core.metadata import snapshots
from lsm_core.metadata.indexes import deletion_files, read_vector
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_compactable
from lsm_core.read.prune import living_at

_BYTES_PER_SECOND: Final = 100_000_000
"""File bytes copied and read back a second; only for forecasts."""
_READ_PER_SECOND: Final = 50_000_000
"""File bytes of a bucket that one core reads and digests a second."""
_CHUNK: Final = 8 << 20
COUNTS: Final = "counts"


@dataclass(frozen=True)
class UndoItem(RewriteItem):
    """One bucket: ``inputs`` are the files that the compaction wrote, which go, and those that it moved to another level.

    ``restored``: copies of the files that come back, by the names and levels that they had, those that move back among them (``moved``).
    """

    item_kind: ClassVar[str] = "undo"
    title: ClassVar[str] = "would undo"
    columns: ClassVar[tuple[str, ...]] = ("partition", "bucket", "files go", "come back", "bytes copied", "move back")

    bucket: int
    total_buckets: int
    restored: tuple[PlannedFile, ...]
    moved: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: TableStore, bucket: ReplacedFiles) -> Self:
        """What a plan says of ``bucket``."""
        return cls(
            partition=bucket.partition,
            partition_text=partition_text(store.schema, bucket.partition, store.options),
            inputs=planned_files((*bucket.outputs, *(now for now, _ in bucket.moved))),
            bucket=bucket.bucket,
            total_buckets=bucket.total_buckets,
            restored=planned_files((*bucket.inputs, *(before for _, before in bucket.moved))),
            moved=tuple(now.file_name for now, _ in bucket.moved),
        )

    def line(self, event: str) -> dict[str, Any]:
        """The ledger's line of the bucket: names and levels."""
        return {
            "event": event,
            "bucket": bucket_name(self.partition_text, self.bucket),
            "removed": [[file.name, file.level] for file in self.inputs if file.name not in self.moved],
            "restored": [[file.name, file.level] for file in self.restored],
        }

    @property
    def bytes_copied(self) -> int:
        """Bytes of the files that come back as copies."""
        return sum(file.size for file in self.restored if file.name not in self.moved)

    def cells(self) -> tuple[Any, ...]:
        """How many files, and what is copied."""
        kept = len(self.moved)
        place = (self.partition_text or "-", self.bucket)
        return (*place, len(self.inputs) - kept, len(self.restored) - kept, self.bytes_copied, kept)

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> Self:
        """Read back :meth:`to_object`. Raises KeyError, TypeError or ValueError for anything else."""
        restored = tuple(PlannedFile(**file) for file in value["restored"])
        return replace(super().from_object({**value, "restored": ()}), restored=restored)


@dataclass(frozen=True)
class UndoReport(Report):
    """What an undo did: ``undone_run`` and its snapshot, ``snapshot_id`` the one that undid it (None: nothing was done).

    Files and unmerged rows of files; ``bytes_copied`` of the files that came back. ``verification``: "V1" where the copies were read back and
    the merged rows of every bucket compared with those of now, else "V0". ``differences``: buckets that answer otherwise than before the undo.
    """

    snapshot_id: int | None
    base_snapshot: int | None
    plan_hash: str
    undone_run: str = ""
    undone_snapshot: int | None = None
    files_removed: int = 0
    files_restored: int = 0
    files_moved: int = 0
    rows_removed: int = 0
    rows_restored: int = 0
    bytes_copied: int = 0
    predicted_seconds: float = 0.0
    verification: str = "V0"
    differences: tuple[BucketDifference, ...] = ()
    declined: tuple[Declined, ...] = ()

    def lines(self, table: str) -> list[str]:
        """Files, rows and whether reads answer as before."""
        if self.snapshot_id is None:
            return ["nothing was undone"]
        files = f"{self.files_removed} files removed, {self.files_restored} put back, {self.files_moved} moved back"
        rows = f"{self.rows_removed:,} stored rows removed, {self.rows_restored:,} put back, {size_text(self.bytes_copied)} copied"
        answers = {
            "V0": "answers before and after were not compared ('dredge.verification' = 'counts')",
            "V1": "verified: V1, copies read back; every bucket answers as before",
        }[self.verification]
        changed = [
            f"warning: {one.bucket} answered {one.rows_a:,} rows and answers {one.rows_b:,} now, or others"
            for one in self.differences
        ]
        if changed:
            answers = "verified: V1, copies read back; these buckets answer otherwise than before:"
        head = f"snapshot {self.snapshot_id} undoes snapshot {self.undone_snapshot} (run {self.undone_run}): {files}"
        return [head, rows, answers, *changed]


def plan_undo(store: TableStore, run_id: str, partial: bool = False, allow_changes: bool = False) -> MaintenancePlan:
    """Plan to undo the compaction of ``run_id``; ``partial``: those of its buckets that can be, the others are in ``declined``.

    ``allow_changes``: also where merged rows differ afterwards. Reads metadata only. Raises InvalidOption for what is no compaction's run,
    PlanRefused naming rule and bucket where later commits built on its files, files are gone, readers would not see all rows, or
    its changes were told to streams; UnsupportedFeature, CorruptFile.
    """
    require_compactable(store)
    found = find_compaction(store, run_id, allow_changes=allow_changes)
    if found.unfit and (not partial or not found.buckets):
        first = found.unfit[0]
        more = f" (and {len(found.unfit) - 1} more buckets)" if len(found.unfit) > 1 else ""
        hint = f"; with `partial` the other {len(found.buckets)} buckets can be undone" if found.buckets else ""
        detail = f"{place_text(store, first.place)}{more}: {first.text}{hint}"
        raise PlanRefused(first.rule, table=store.name, detail=detail)
    items = tuple(UndoItem.of(store, bucket) for bucket in found.buckets)
    declined = [
        Declined(
            place_text(store, one.place),
            one.rule.value,
            one.text,
            {},
            partition_text(store.schema, one.place[0], store.options),
            one.place[1],
        )
        for one in found.unfit
    ]
    copied = sum(item.bytes_copied for item in items)
    compared = (
        0
        if store.options.verification == COUNTS
        else sum(f.file_size for b in found.buckets for f in (b.live if store.has_primary_key else b.outputs))
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
    plan = MaintenancePlan.begun("undo", store, snapshots.latest_id(store), arguments)
    return replace(plan, items=items, declined=tuple(declined), estimate=estimate)


def planned_files(files: Sequence[DataFileMeta]) -> tuple[PlannedFile, ...]:
    """``files`` as plans name them."""
    return tuple(PlannedFile(f.file_name, f.level, f.file_size, f.row_count, f.delete_row_count) for f in files)


def apply_undo(store: TableStore, plan: MaintenancePlan) -> Outcome:
    """Copy the files of every bucket of ``plan``, compare what it answers, and put them in place in one commit. Its report is an UndoReport.

    Memory is that of one bucket's merge. Raises PlanStale where a bucket is not as planned, CommitConflict where it changed meanwhile, VerificationFailed where it
    would answer otherwise than now (unless the plan allows that), CorruptFile; after any of them no copy is left.
    """
    require_compactable(store)
    found = _found(store, plan)
    chosen = _as_planned(store, plan, found)
    allowed, verified = bool(plan.arguments["allow_changes"]), store.options.verification != COUNTS
    living = living_at(store, found.clock)
    made: list[CommitMessage] = []
    differences: list[BucketDifference] = []
    with discard_on_failure(store, made):
        for bucket in chosen:
            # A keyed bucket gets all of its vectors back; of append files only those that return have any of theirs.
            message = put_files_back(store, bucket, made, verified, all_vectors=store.has_primary_key)
            if not verified:
                continue
            # Files of append tables stand alone: what did not change says the same.
            others = [file for file in bucket.live if file not in message.compact_before]
            beside = others if store.has_primary_key else []
            gone = {index.file_name for index in message.compact_deleted_index_files}
            kept = [index for index in bucket.index_files if index.file_name not in gone]
            vectors = deletion_files(store, *bucket.place, [*kept, *message.compact_new_index_files])
            was = [*beside, *message.compact_before], vectors_of(bucket, store)
            will_be = [*beside, *message.compact_after], vectors
            before, after = (bucket_content(store, *bucket.place, *side, living) for side in (was, will_be))
            if before.live != after.live:
                name = place_text(store, bucket.place)
                differences.append(
                    BucketDifference(name, before.live.rows, after.live.rows, before.text(), after.text())
                )
        if differences and not allowed:
            raise VerificationFailed("V1", [_would_differ(store, one) for one in differences])
        properties = {PLAN_PROPERTY: plan.hash, UNDO_PROPERTY: found.run_id}
        committed = Committer(store).commit_compaction(
            made, partial(still_on_top, store, chosen), properties=properties
        )
    report = UndoReport(
        snapshot_id=committed.snapshot_id,
        base_snapshot=plan.base_snapshot,
        plan_hash=plan.hash,
        undone_run=found.run_id,
        undone_snapshot=found.snapshot_id,
        **put_back_counts(made, chosen),
        predicted_seconds=plan.estimate.seconds,
        verification="V1" if verified else "V0",
        differences=tuple(differences),
        declined=plan.declined,
    )
    return Outcome(report, [item.line("undone") for item in plan.items_of(UndoItem)])


def put_back_counts(made: Sequence[CommitMessage], buckets: Sequence[ReplacedFiles]) -> dict[str, Any]:
    """What a report says in numbers of the files that ``made`` removes, puts back and, by ``buckets``, moves to another level."""
    moved = {now.file_name for bucket in buckets for now, _ in bucket.moved}
    removed = [file for message in made for file in message.compact_before if file.file_name not in moved]
    restored = [file for message in made for file in message.compact_after if file.file_name not in moved]
    return {
        "files_removed": len(removed),
        "files_restored": len(restored),
        "files_moved": len(moved),
        "rows_removed": sum(file.row_count for file in removed),
        "rows_restored": sum(file.row_count for file in restored),
        "bytes_copied": sum(file.file_size for file in restored),
    }


def _would_differ(store: TableStore, one: BucketDifference) -> str:
    return (
        f"{one.bucket} of table {store.name} answers {one.rows_a} rows now and would answer {one.rows_b}, or others, as before the compaction; "
        "allow_changes takes them"
    )


def _found(store: TableStore, plan: MaintenancePlan) -> Compaction:
    """What the plan's compaction did, as it stands now."""
    return find_compaction(store, str(plan.arguments["run_id"]), allow_changes=bool(plan.arguments["allow_changes"]))


def _as_planned(store: TableStore, plan: MaintenancePlan, found: Compaction) -> list[ReplacedFiles]:
    """The buckets of the plan's items. Raises PlanStale unless each is as it was planned."""
    by_place = {bucket.place: bucket for bucket in found.buckets}
    chosen = []
    for item in plan.items_of(UndoItem):
        bucket = by_place.get((item.partition, item.bucket))
        if bucket is None or UndoItem.of(store, bucket) != item:
            why = next(
                (one.text for one in found.unfit if one.place == (item.partition, item.bucket)), "its files changed"
            )
            raise PlanStale(f"{bucket_name(item.partition_text, item.bucket)}: {why}", store.name)
        chosen.append(bucket)
    return chosen


def undo_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether all buckets of ``plan`` are as planned. Raises WriterStale, CorruptFile."""
    with suppress(PlanRefused, PlanStale):
        return bool(_as_planned(store, plan, _found(store, plan)))
    return False


def put_files_back(
    store: TableStore, bucket: ReplacedFiles, made: list[CommitMessage], verified: bool, *, all_vectors: bool
) -> CommitMessage:
    """Copy a bucket's files; its message is added to ``made`` before the first copy is begun, and with its index files at the end.

    ``verified``: copies are read back. ``all_vectors``: files that stay get the deletion vectors back that they had, not only those that
    return. Raises PlanRefused where a file is gone, CorruptFile, VerificationFailed.
    """
    names = {file.file_name: _new_name(store, file.file_name) for file in bucket.inputs}
    copies = {file.file_name: _renamed(store, file, names[file.file_name]) for file in bucket.inputs}
    message = CommitMessage(
        *(bucket.partition, bucket.bucket, bucket.total_buckets),
        compact_before=(*bucket.outputs, *(now for now, _ in bucket.moved)),
        compact_after=(*copies.values(), *(before for _, before in bucket.moved)),
    )
    made.append(message)
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
    changed = {}
    for name in sorted(concerned):
        place, follows = before.get(name), names.get(name, name)
        if place != now.get(name) and (place is None or follows in present):
            changed[follows] = None if place is None else read_vector(store, place)
    if changed:
        change = change_vectors(store, bucket.partition, bucket.bucket, bucket.index_files, changed, present)
        message = replace(message, compact_new_index_files=change.new, compact_deleted_index_files=change.deleted)
        made[-1] = message
    return message


def _new_name(store: TableStore, name: str) -> str:
    """A new name that tells the same format."""
    return store.new_file_name(store.options.data_file_prefix, name.rpartition(".")[2] if "." in name else "")


def _renamed(store: TableStore, file: DataFileMeta, name: str) -> DataFileMeta:
    """The copy's metadata: it lies in the table's own directory, made by a compaction. Raises CorruptFile for a side file of another name."""
    for extra in file.extra_files:
        if not extra.startswith(file.file_name):
            raise CorruptFile(
                file.file_name, f"table {store.name}: a file beside it is called {extra}, so that it cannot be copied"
            )
    extras = tuple(name + extra.removeprefix(file.file_name) for extra in file.extra_files)
    return replace(file, file_name=name, extra_files=extras, external_path=None, file_source=SOURCE_COMPACT)


def _copy(store: TableStore, source: str, target: str, size: int | None, verified: bool) -> None:
    """Copy a file in pieces. Raises PlanRefused where ``source`` is gone, CorruptFile where it is not of ``size`` bytes, VerificationFailed."""
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
    again = hashlib.blake2b()
    with store.file_io.open_input(target) as written:
        while part := written.read(_CHUNK):
            again.update(part)
    if again.digest() != digest.digest():
        raise VerificationFailed("V1", [f"{target} is not what was copied from {source}"])
