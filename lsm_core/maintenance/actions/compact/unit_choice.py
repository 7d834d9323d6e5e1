"""Choice of the files to compact in one bucket: the unit of the tree's strategies, or the bins of an append table.

It is used by plans, by health, and by writers that compact, so that all three follow the same rules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lsm_core.clock import local_offset_ms
from lsm_core.format.manifest import ADD, DataFileMeta, IndexFileMeta, ManifestEntry, entries_to_table
from lsm_core.format.partitions import partition_text
from lsm_core.maintenance.action import Declined, PlannedFile, bucket_name, facts_of
from lsm_core.maintenance.actions.compact.compaction import CompactItem
from lsm_core.maintenance.actions.compact.reasons import why_declined, why_not_packed, why_packed, why_picked
from lsm_core.merge.order_free import order_free
from lsm_core.metadata import support
from lsm_core.metadata.indexes import deleted_rows
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import tree_files
from lsm_core.read.compacted import has_unmarked_levels
from lsm_core.read.prune import ExpiredFiles, expired_files, expiry_of
from lsm_core.tree import (
    CompactUnit,
    DataFile,
    Decision,
    Decline,
    Levels,
    Pick,
    TaskPlan,
    Trigger,
    close_unit,
    decide_bucket,
    pick_full_window,
    pick_small_files,
    pick_windows,
    plan_task,
    post_filter,
)
from lsm_core.tree.upgrades import upgrade_of

if TYPE_CHECKING:
    from lsm_core.compact import BucketTask

NOTHING_EXPIRED: Final = ExpiredFiles()
NOTHING_DELETED: Final[Mapping[str, int]] = MappingProxyType({})


def levels_of(store: TableStore, files: Sequence[DataFile]) -> Levels:
    """Return the tree of a bucket.

    Args:
        store: the table.
        files: live files of the bucket.
    """
    return Levels(files, store.options.num_levels)


def decide(
    store: TableStore,
    files: Sequence[DataFile],
    now_ms: int,
    full: bool = False,
    expired: ExpiredFiles = NOTHING_EXPIRED,
    marked: Collection[str] = (),
    *,
    full_is_due: bool = False,
) -> Decision:
    """Return the decision of the table's options for all live files of one bucket.

    Off-peak hours are those of this machine's time zone, as in Paimon. Where merging a part of the runs could change a
    row (order-sensitive tables), the unit is extended until no older run overlaps it, unless
    `dredge.compaction.order-sensitive` is `as-paimon`.

    Args:
        store: the table.
        files: live files of the bucket.
        now_ms: time of the decision (epoch ms).
        full: whether a full compaction is requested.
        expired: files with rows whose record-level lifetime is over.
        marked: names of files with a deletion vector.
        full_is_due: whether a full compaction is due by `full-compaction.delta-commits`, if not all is in the last
            level.
    """
    levels = levels_of(store, files)
    full_is_due = full_is_due and not full and any(file.level != levels.max_level for file in files)
    decision = decide_bucket(
        levels,
        store.options,
        now_ms,
        full=full or full_is_due,
        utc_offset_ms=local_offset_ms(now_ms),
        must_rewrite=lambda file: file.name in expired.known or file.name in marked,
    )
    if isinstance(decision, Decline):
        return decision
    if full_is_due:
        decision = replace(decision, trigger=Trigger.DELTA_COMMITS)
    unit = decision.unit
    retracts = any(file.delete_row_count != 0 for file in unit.files)
    over = any(file.name in expired.possible for file in unit.files)
    # Where keys are looked up, a unit includes the older rows of its keys: merging it first changes no row.
    if not over and store.options.needs_lookup:
        return decision
    if order_free(store.schema, store.options.raw, retracts, store.name, over).ok:
        return decision
    if store.options.order_sensitive == "as-paimon":
        return decision
    closed = close_unit(levels, unit)
    if closed == unit:
        return decision
    return post_filter(Pick(closed, decision.trigger, {**decision.facts, "closed_files": len(closed.files)}))


def keeps_tombstones(store: TableStore, files: Sequence[DataFile], now_ms: int) -> bool:
    """Return whether deletes must outlive this compaction.

    On tables with `sequence.field` a late, older insert of a deleted key would come back, so
    `dredge.tombstone-retention` keeps tombstones of files younger than that. The deletes of
    `partial-update.remove-record-on-*` alone need no retention: there any later insert brings the row back, however
    small its ordering fields, in Java too (`PartialUpdateMergeFunction.add`); a kept delete would only lend it the
    deleted values.

    Args:
        store: the table.
        files: files to compact.
        now_ms: time of the compaction (epoch ms).
    """
    retention = store.options.tombstone_retention
    if retention <= 0 or not store.options.sequence_field:
        return False
    return any(file.delete_row_count != 0 and now_ms - file.creation_ms < retention for file in files)


def choose_bins(
    store: TableStore, files: Sequence[DataFile], full: bool, deleted: Mapping[str, int] = NOTHING_DELETED
) -> list[list[DataFile]] | Decline:
    """Return the bins of one bucket of an append table, each to become one rolling output, or the reason for none.

    Without buckets any small files are combined (`AppendCompactCoordinator`). With `bucket` > 0 only neighbours by
    sequence number are (`BucketedAppendCompactManager`), because rows of a bucket keep their order; ``full`` then means
    everything from the first small file on, if the large ones are those that a compaction would not call small.

    Args:
        store: the table.
        files: live files of the bucket.
        full: whether a full compaction is requested.
        deleted: number of rows that a deletion vector marks, by file name; files with more than
            `compaction.delete-ratio-threshold` of their rows are taken too, in a full compaction all.
    """
    options = store.options
    most = 0.0 if full else float(options.get("compaction.delete-ratio-threshold"))
    marked = {file.name for file in files if deleted.get(file.name, 0) > most * file.row_count}
    target, small_below = (
        options.target_file_size(has_primary_key=False),
        options.compaction_file_size(has_primary_key=False),
    )
    if options.bucket < 1:
        least = options.min_file_num
        return pick_small_files(files, target, small_below, least, options.open_file_cost, full, marked)
    if full:
        return pick_full_window(files, small_below, options.force_rewrite_all, marked)
    return pick_windows(files, target, options.min_file_num)


@dataclass(frozen=True)
class Place:
    """Bucket that is being planned.

    Attributes:
        partition: partition in Paimon's binary form.
        text: Paimon's path of the partition.
        bucket: number of the bucket.
        total_buckets: number of buckets of the partition.
    """

    partition: bytes
    text: str
    bucket: int
    total_buckets: int

    def declined(self, reason: str, text: str, facts: Mapping[str, object]) -> Declined:
        """Return the bucket as declined.

        Args:
            reason: short code.
            text: reason in one sentence.
            facts: figures of the reason.
        """
        return Declined(bucket_name(self.text, self.bucket), reason, text, facts_of(facts), self.text, self.bucket)


def plan_tree(
    store: TableStore,
    place: Place,
    entries: pa.Table,
    full: bool,
    now_ms: int,
    marked: Collection[str] = (),
    *,
    full_is_due: bool = False,
) -> CompactItem | Declined:
    """Plan the compaction of one bucket of a table with a primary key.

    Args:
        store: the table.
        place: the bucket.
        entries: its live entries.
        full: whether a full compaction is requested.
        now_ms: time of planning (epoch ms).
        marked: names of files with a deletion vector.
        full_is_due: see :func:`decide`.
    """
    files = tree_files(store, entries)
    levels = levels_of(store, files)
    expired = expired_files(store, entries, now_ms)
    # Levels of the time before the option marked nothing in each other: as one level they need no marks.
    full = full or has_unmarked_levels(store, entries)
    decision = decide(store, files, now_ms, full, expired, marked, full_is_due=full_is_due)
    if (age := decision.facts.get("since_full_ms")) is not None:
        # A plan names the moment, not the age, so that the same plan made again is equal.
        weighed = {"last_full_ms": now_ms - int(age), **decision.facts}
        del weighed["since_full_ms"]
        decision = replace(decision, facts=weighed)
    if isinstance(decision, Decline):
        facts: dict[str, object] = {**decision.facts, "sorted_runs": len(levels.runs()), "bytes": levels.total_size}
        facts["rows"] = sum(file.row_count for file in files)
        return place.declined(str(decision.reason), why_declined(decision, levels, store.options), facts)
    unit = decision.unit
    task = task_of(store, levels, unit, expired, marked)
    kept = not store.options.deletion_vectors_enabled and keeps_tombstones(store, task.rewritten_files, now_ms)
    drop = task.drop_delete and not kept
    deletes = [file.delete_row_count for file in task.rewritten_files] if drop else []
    dropped = None if None in deletes else sum(count or 0 for count in deletes)
    inside = {file.name for file in unit.files}
    runs_left = [run for run in levels.runs() if not all(file.name in inside for file in run.run.files)]
    facts = {**decision.facts, "bytes": unit.size, "rewritten_files": len(task.rewritten_files)}
    if expired.possible:
        facts["expired_files"] = sum(file.name in expired.known for file in unit.files)
    return CompactItem(
        partition=place.partition,
        partition_text=place.text,
        bucket=place.bucket,
        total_buckets=place.total_buckets,
        inputs=tuple(as_planned(file) for file in unit.files),
        output_level=unit.output_level,
        trigger=str(decision.trigger),
        reason=why_picked(decision, levels, store.options, dropped),
        facts=facts_of(facts),
        upgrades=tuple(file.name for file in task.upgrades),
        drop_delete=drop,
        full=unit.full,
        by_file=unit.by_file,
        tombstones_dropped=dropped,
        runs_before=len(levels.runs()),
        runs_after=len(runs_left) + (not unit.by_file or unit.full),
        expire_at_ms=None if expiry_of(store) is None else now_ms,
    )


def why_tree_is_stale(
    store: TableStore,
    item: CompactItem,
    files: Mapping[str, DataFile],
    entries: pa.Table,
    marked: Collection[str] = (),
) -> str:
    """Return the reason why an item no longer fits its bucket, "" if it fits.

    Args:
        store: the table.
        item: the planned item.
        files: live files of the bucket by name.
        entries: their manifest entries.
        marked: names of files with a deletion vector.
    """
    unit = CompactUnit(item.output_level, tuple(files[p.name] for p in item.inputs), item.full, item.by_file)
    expired = NOTHING_EXPIRED if item.expire_at_ms is None else expired_files(store, entries, item.expire_at_ms)
    again = task_of(store, levels_of(store, tuple(files.values())), unit, expired, marked)
    if item.drop_delete and not again.drop_delete:
        return f"older files are below level {item.output_level} now, so deletes may not be dropped"
    if {file.name for file in again.upgrades} != set(item.upgrades):
        return "the files to upgrade changed"
    return ""


def as_planned(file: DataFile) -> PlannedFile:
    """Return a file in the form of plans.

    Args:
        file: the file.
    """
    return PlannedFile(file.name, file.level, file.size, file.row_count, file.delete_row_count)


def task_of(
    store: TableStore, levels: Levels, unit: CompactUnit, expired: ExpiredFiles, marked: Collection[str]
) -> TaskPlan:
    """Return the rewrites and upgrades of the files of a unit.

    Args:
        store: the table.
        levels: tree of the bucket.
        unit: the unit.
        expired: see :func:`decide`.
        marked: see :func:`decide`.
    """
    options = store.options
    marked = marked if unit.output_level == levels.max_level else ()
    return plan_task(
        levels,
        unit,
        options.compaction_file_size(has_primary_key=True),
        force_rewrite_all=options.force_rewrite_all,
        must_rewrite=lambda file: file.name in expired.known or file.name in marked,
        marks_above=options.deletion_vectors_enabled,
        upgrade_rule=lambda file: upgrade_of(options, file, unit.output_level, levels.max_level),
    )


def plan_bins(
    store: TableStore, place: Place, files: Sequence[DataFile], full: bool, deleted: Mapping[str, int] = NOTHING_DELETED
) -> CompactItem | Declined:
    """Plan the compaction of one bucket of an append table.

    Args:
        store: the table.
        place: the bucket.
        files: its live files.
        full: whether a full compaction is requested.
        deleted: see :func:`choose_bins`.
    """
    bins = choose_bins(store, files, full, deleted)
    least = store.options.min_file_num
    if isinstance(bins, Decline):
        small, least = int(bins.facts.get("small_files") or 0), int(bins.facts.get("min_files") or least)
        return place.declined(str(bins.reason), why_not_packed(files, small, least), dict(bins.facts))
    chosen_files = [file for chosen in bins for file in chosen]
    marked_rows = sum(deleted.get(file.name, 0) for file in chosen_files)
    facts = {"files": len(files), "small_files": len(chosen_files), "bins": len(bins)}
    return CompactItem(
        partition=place.partition,
        partition_text=place.text,
        bucket=place.bucket,
        total_buckets=place.total_buckets,
        inputs=tuple(as_planned(file) for file in chosen_files),
        output_level=0,
        trigger=str(Trigger.SMALL_FILES),
        reason=why_packed(len(chosen_files), len(bins), least, full, marked_rows),
        facts=facts_of(facts | ({"deleted_rows": marked_rows} if marked_rows else {})),
        bins=tuple(tuple(file.name for file in chosen) for chosen in bins),
        full=full,
    )


def bucket_task(
    store: TableStore,
    partition: bytes,
    bucket: int,
    total_buckets: int,
    files: Sequence[DataFileMeta],
    full: bool,
    index_files: Sequence[IndexFileMeta] = (),
) -> BucketTask | None:
    """Return the compaction that the table's options pick for a bucket now, or None.

    Args:
        store: the table.
        partition: partition in Paimon's binary form.
        bucket: number of the bucket.
        total_buckets: number of buckets of the partition.
        files: all files of the bucket.
        full: whether to compact everything.
        index_files: files with the deletion vectors.

    Raises:
        WriterStale: the schema changed since the table was opened.
    """
    if not files:
        return None
    entries = entries_to_table([ManifestEntry(ADD, partition, bucket, total_buckets, file) for file in files])
    support.require_current(store, entries, "compacting it")
    place = Place(partition, partition_text(store.schema, partition, store.options), bucket, total_buckets)
    item = plan_tree(store, place, entries, full, store.clock.now_ms(), deleted_rows(index_files))
    if isinstance(item, Declined):
        return None
    from lsm_core.compact import BucketTask  # health decides with this module, and executes nothing

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
        index_files=tuple(index_files),
    )
