"""Choice of the files to compact in one bucket: a unit of files of the LSM tree, or bins of files of an append table.

Plans, health checks and writers that compact all use this choice, so that they follow the same rules. Every choice is
explained in a sentence with figures, for plans, ticks and ledgers. Commits for `full-compaction.delta-commits` are
counted in the table's snapshots.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar
from lsm_core.clock import local_offset_ms
from lsm_core.errors import InvalidOption
from lsm_core.format.manifest import ADD, DataFileMeta, IndexFileMeta, ManifestEntry, entries_to_table, is_blob_file
from lsm_core.format.partitions import partition_text
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.action import Declined, PlannedFile, bucket_name, facts_of, size_text
from lsm_core.maintenance.actions.compact.compaction import CompactItem
from lsm_core.merge.order_free import order_free
from lsm_core.metadata import manifests, snapshots, support
from lsm_core.metadata.indexes import deleted_rows
from lsm_core.metadata.live_files import has_unmarked_levels, tree_files
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions
from lsm_core.read.prune import ExpiredFiles, expired_files, expiry_of
from lsm_core.tree import (
    CompactUnit,
    DataFile,
    Decision,
    Decline,
    DeclineReason,
    Levels,
    Pick,
    RunSizes,
    State,
    TaskPlan,
    Trigger,
    close_unit,
    decide_bucket,
    decide_sizes,
    pick_full_window,
    pick_row_ranges,
    pick_small_files,
    pick_windows,
    plan_task,
    post_filter,
)
from lsm_core.tree.task import upgrade_of

if TYPE_CHECKING:
    from lsm_core.compact import BucketTask

Ints = npt.NDArray[np.int64]
_RULES: Final = {
    Trigger.OPTIMIZATION_INTERVAL: "the last full compaction is older than compaction.optimization-interval",
    Trigger.TOTAL_SIZE: "total size below compaction.total-size-threshold",
    Trigger.INCREMENTAL_SIZE: "bytes outside the last level above compaction.incremental-size-threshold",
    Trigger.SIZE_AMPLIFICATION: "size amplification",
    Trigger.SIZE_RATIO: "runs of similar size",
    Trigger.FILE_COUNT: "too many runs",
    Trigger.FORCE_LEVEL0: "level 0 is forced up",
    Trigger.FULL: "full compaction asked for",
    Trigger.DELTA_COMMITS: "as many commits since the last full compaction as full-compaction.delta-commits allows",
    Trigger.SMALL_FILES: "small files",
}


def describe_rule(trigger: Trigger) -> str:
    """Return the text of a rule that requested a compaction.

    Args:
        trigger: the rule.
    """
    return _RULES[trigger]


def why_picked(pick: Pick, levels: Levels, options: TableOptions, dropped: int | None) -> str:
    """Return why files of a bucket are compacted, as text.

    For example "15 sorted runs >= 5; size amplification: all to level 5; up to 195 tombstones dropped".

    Args:
        pick: decision to compact.
        levels: LSM tree of the bucket.
        options: options of the table.
        dropped: largest number of delete records that may be dropped, None if unknown.
    """
    runs, trigger = len(levels.runs()), options.compaction_trigger
    parts = [f"{runs} sorted run{'s' if runs != 1 else ''}{_against(runs, trigger)}"]
    target = f"to level {pick.unit.output_level}"
    some = f"{len(pick.unit.files)} of {len(levels.files)} files"
    scope = f"all {target}" if pick.unit.full else f"{some} {target}"
    if pick.unit.by_file:
        why = "as compaction.force-rewrite-all-files asks" if options.force_rewrite_all else "as they hold expired rows"
        scope = f"{some} rewritten one by one, {why}"
    parts.append(f"{_RULES[pick.trigger]}: {scope}")
    if dropped is None:
        parts.append("an unknown number of tombstones dropped")
    elif dropped:
        parts.append(f"up to {dropped:,} tombstone{'s' if dropped != 1 else ''} dropped")
    return "; ".join(parts)


def _against(runs: int, trigger: int) -> str:
    return f" >= {trigger}" if runs >= trigger else f" < {trigger}"


def why_declined(decline: Decline, levels: Levels, options: TableOptions) -> str:
    """Return why a bucket is not compacted, as text.

    For example "4 sorted runs < 5; 52 KiB; a full compaction would ... save one merge of 4,155 rows".

    Args:
        decline: decision not to compact.
        levels: LSM tree of the bucket.
        options: options of the table.
    """
    files, runs = levels.files, len(levels.runs())
    if decline.reason is DeclineReason.EMPTY:
        return "the bucket is empty"
    if runs == 1:
        return "one sorted run: nothing to merge"
    rows, deletes = sum(file.row_count for file in files), sum(file.delete_row_count or 0 for file in files)
    parts = [f"{runs} sorted runs{_against(runs, options.compaction_trigger)}"]
    if decline.reason is DeclineReason.WITHIN_LIMITS:
        # Enough runs, yet no rule picks any: show the two ratios that decided it.
        percent, limit = decline.facts.get("amplification_percent"), decline.facts.get("max_amplification_percent")
        ratios = (
            f"newer runs hold {percent} % of the oldest run's bytes (limit {limit} %) "
            "and the newest are of unlike sizes: none picked"
        )
        parts.append(decline.text() if percent is None or limit is None else ratios)
    elif decline.reason is DeclineReason.WAITING:
        number, every = decline.facts.get("skipped_calls"), decline.facts.get("every_calls")
        parts.append(f"level 0 is forced up once in {every} decisions, this is number {number}")
    elif decline.reason is not DeclineReason.TOO_FEW_RUNS:
        parts.append(decline.text())
    parts.append(size_text(levels.total_size))
    dropping = f"drop up to {deletes:,} delete{'s' if deletes != 1 else ''} and " if deletes else ""
    parts.append(f"a full compaction would {dropping}save one merge of {rows:,} rows")
    return "; ".join(parts)


def why_not_packed(files: Sequence[DataFile], small: int, least: int) -> str:
    """Return why no files of an append bucket are compacted, for example "3 small files < 5".

    Args:
        files: live files of the bucket.
        small: number of small files.
        least: smallest number of small files that are compacted.
    """
    if not files:
        return "no files"
    if small >= least:
        return f"{small} small files, not more than the large ones behind the first of them ({len(files)} in all)"
    return f"{small} small file{'s' if small != 1 else ''} < {least} ({len(files)} in all)"


def why_packed(files: int, bins: int, least: int, full: bool, deleted: int = 0) -> str:
    """Return why files of an append bucket are compacted, for example "18 small files >= 5 -> 1 bin".

    Args:
        files: number of files to compact.
        bins: number of bins.
        least: smallest number of small files that are compacted.
        full: whether a full compaction is requested.
        deleted: number of rows in these files that deletion vectors mark as deleted.
    """
    if deleted:
        counted = f"{files} file{'s' if files != 1 else ''} with {deleted} deleted rows"
        return f"{counted} -> {bins} bin{'s' if bins != 1 else ''}"
    rule = "; full compaction asked for" if full else f" >= {least}"
    return f"{files} small files{rule} -> {bins} bin{'s' if bins != 1 else ''}"


def why_not_joined(files: Sequence[DataFile], largest: int, least: int) -> str:
    """Return why no files of a data-evolution table are joined, for example "3 files with adjacent row ids < 5".

    Args:
        files: live files of the partition.
        largest: largest number of files with adjacent row ids that fit into one file.
        least: smallest number of such files that are joined.
    """
    if not files:
        return "no files"
    return f"{largest} file{'s' if largest != 1 else ''} with adjacent row ids < {least} ({len(files)} in all)"


def why_joined(files: int, rows: int, bins: int, least: int, full: bool) -> str:
    """Return why files of a data-evolution table are joined, for example "6 files >= 5 with 40 row ids -> 1 file".

    Args:
        files: number of files to join.
        rows: number of row ids of these files.
        bins: number of files that replace them.
        least: smallest number of files with adjacent row ids that are joined.
        full: whether a full compaction is requested.
    """
    rule = "(full compaction asked for)" if full else f">= {least}"
    return f"{files} files {rule} with {rows:,} adjacent row ids -> {bins} file{'s' if bins != 1 else ''}"


_VERDICT_BYTES: Final = 1 << 10
"""Approximate memory of one cached verdict of the order of merges, with the options in its key."""
NOTHING_EXPIRED: Final = ExpiredFiles()
NOTHING_DELETED: Final[Mapping[str, int]] = MappingProxyType({})


def levels_of(store: TableStore, files: Sequence[DataFile]) -> Levels:
    """Return the LSM tree of a bucket: its files by level.

    Args:
        store: the table.
        files: live files of the bucket.
    """
    return Levels(files, store.options.num_levels)


def decide(
    store: TableStore,
    files: Sequence[DataFile] | Levels,
    now_ms: int,
    full: bool = False,
    expired: ExpiredFiles = NOTHING_EXPIRED,
    marked: Collection[str] = (),
    *,
    full_is_due: bool = False,
) -> Decision:
    """Decide by the table's options which files of one bucket to compact, or that none are compacted.

    Off-peak hours are in the time zone of this machine, as in Paimon. In an order-sensitive table, merging only some of
    the runs could change a row. In such a table more runs are added to the chosen files until no older run overlaps
    the files. No runs are added if `dredge.compaction.order-sensitive` is `as-paimon`. No runs are added either if
    the compaction looks up the older rows of its keys (`lookup`, deletion vectors) and no row has expired.

    Args:
        store: the table.
        files: live files of the bucket, or its LSM tree.
        now_ms: time of the decision (epoch ms).
        full: whether a full compaction is requested.
        expired: files with rows whose record-level lifetime is over.
        marked: names of files with a deletion vector.
        full_is_due: whether `full-compaction.delta-commits` requires a full compaction, unless all files are in the
            last level already.
    """
    levels = files if isinstance(files, Levels) else levels_of(store, files)
    full_is_due = full_is_due and not full and any(file.level != levels.max_level for file in levels.files)
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
    if _is_order_free(store, retracts, over):
        return decision
    if store.options.order_sensitive == "as-paimon":
        return decision
    closed = close_unit(levels, unit)
    if closed == unit:
        return decision
    return post_filter(Pick(closed, decision.trigger, {**decision.facts, "closed_files": len(closed.files)}))


@dataclass(frozen=True)
class FileColumns:
    """Numbers of all files of a bucket as arrays, from which the rules decide without an object for each file.

    Attributes:
        level: level of each file.
        size: size of each file (bytes).
        min_sequence: smallest sequence number of each file.
        max_sequence: largest sequence number of each file.
        created: creation time of each file (epoch ms), 0 if unknown.
        has_deletes: whether each file has delete records, or an unknown number of them.
        names: names of the files, read only if all other numbers of two level-0 files are equal.
    """

    level: Ints
    size: Ints
    min_sequence: Ints
    max_sequence: Ints
    created: Ints
    has_deletes: npt.NDArray[np.bool_]
    names: pa.ChunkedArray

    def newest_first(self) -> Ints:
        """Return the positions of the level-0 files in the order of `lsm_core.tree.newest_first`."""
        places = np.flatnonzero(self.level == 0)
        keys = (self.created[places], self.min_sequence[places], -self.max_sequence[places])
        order = np.lexsort(keys)
        equal = np.ones(max(len(order) - 1, 0), np.bool_)
        for key in keys:
            equal &= key[order][1:] == key[order][:-1]
        if equal.any():
            names = self.names.take(arrow_array(places)).to_pylist()
            by_name = np.empty(len(places), np.int64)
            by_name[sorted(range(len(places)), key=names.__getitem__)] = np.arange(len(places))
            order = np.lexsort((by_name, *keys))
        chosen: Ints = places[order]
        return chosen


@dataclass(frozen=True)
class SizedDecision:
    """Decision of :func:`decide_by_sizes`.

    Attributes:
        cost: bytes of the files to compact, 0 if nothing is compacted.
        reason: rule that picked the files, or the reason for no files.
        facts: figures on which the decision is based.
    """

    cost: int
    reason: Trigger | DeclineReason
    facts: Mapping[str, int | float | None]


def decide_by_sizes(store: TableStore, files: FileColumns, now_ms: int) -> SizedDecision | None:
    """Return the result of :func:`decide` without expired and marked files, computed from arrays.

    Args:
        store: the table.
        files: live files of the bucket.
        now_ms: time of the decision (epoch ms).

    Returns:
        The decision; None if it depends on the keys of the files, so that :func:`decide` must be called.
    """
    num_levels = max(store.options.num_levels, 2, int(files.level.max(initial=0)) + 1)
    newest = files.newest_first()
    upper = np.unique(files.level[files.level > 0])
    counts = np.bincount(files.level, minlength=num_levels)
    bytes_of_level = [int(files.size[files.level == level].sum()) for level in upper]
    level0_sizes = files.size[newest].tolist()
    runs = RunSizes(
        [0] * len(newest) + upper.tolist(), [*level0_sizes, *bytes_of_level], sum(level0_sizes) + sum(bytes_of_level)
    )
    top = files.created[files.level == num_levels - 1]
    state = State(int(top.max()) if len(top) else None, max(len(newest) - 1, 0))
    decision = decide_sizes(
        store.options, num_levels, runs, now_ms, state, utc_offset_ms=local_offset_ms(now_ms)
    )  # fmt: skip
    if isinstance(decision, Decline):
        return SizedDecision(0, decision.reason, decision.facts)
    levels = runs.levels[: decision.count]
    if len(levels) == 1 and levels[0] == decision.output_level and counts[levels[0]] == 1:
        return SizedDecision(0, DeclineReason.NOTHING_TO_CHANGE, decision.facts)
    newest_picked = newest[: decision.count]
    retracts = bool(files.has_deletes[newest_picked].any()) or bool(
        files.has_deletes[np.isin(files.level, [level for level in levels if level > 0])].any()
    )
    in_order = store.options.needs_lookup or _is_order_free(store, retracts)
    if not in_order and store.options.order_sensitive != "as-paimon":
        return None
    return SizedDecision(sum(runs.sizes[: decision.count]), decision.trigger, decision.facts)


def _is_order_free(store: TableStore, retracts: bool, has_expired: bool = True) -> bool:
    """Return the result of :func:`order_free`, which is the same for many buckets; it is cached with the open table.

    Args:
        store: the table.
        retracts: whether the files may hold -U or -D rows.
        has_expired: whether some rows may be expired.
    """
    options = store.options.raw
    key = ("order-free", store.branch, store.schema.id, frozenset(options.items()), retracts, has_expired)
    is_free: bool | None = store.kept.get(key)
    if is_free is None:
        is_free = order_free(store.schema, options, retracts, store.name, has_expired).ok
        store.kept.put(key, is_free, _VERDICT_BYTES)
    return is_free


def keeps_tombstones(store: TableStore, files: Sequence[DataFile], now_ms: int) -> bool:
    """Return whether a compaction must keep delete records.

    In a table with `sequence.field`, an insert that arrives late can be older than the delete of its key. If the delete
    record were dropped, that insert would bring the key back. So delete records are kept if a file with deletes is
    younger than `dredge.tombstone-retention`.

    With `partial-update.remove-record-on-*` but no `sequence.field`, nothing is kept. In such a table every later
    insert brings the row back, as in Java (`PartialUpdateMergeFunction.add`).

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
    """Return the bins of files to compact in one bucket of an append table, or a Decline with the reason for no bins.

    The files of a bin are rewritten together. In tables without buckets a bin combines any small files
    (`AppendCompactCoordinator`). With `bucket` > 0 the rows of a bucket keep their order, so a bin combines only files
    that are neighbours by sequence number (`BucketedAppendCompactManager`). A full compaction of such a bucket takes
    all files from the first small file on. In tables with data evolution a bin combines all columns of adjacent row ids
    (`DataEvolutionCompactCoordinator`), and keeps rows that deletion vectors mark.

    Args:
        store: the table.
        files: live files of the bucket.
        full: whether a full compaction is requested.
        deleted: number of rows that a deletion vector marks as deleted, by file name. A file is compacted too if the
            ratio of such rows exceeds `compaction.delete-ratio-threshold`, or 0 in a full compaction. With `bucket` > 0
            this holds only for full compactions.
    """
    options = store.options
    if manifests.evolves(store):
        plain = [file for file in files if not is_blob_file(file.name)]
        target = options.target_file_size(has_primary_key=False)
        return pick_row_ranges(plain, target, options.min_file_num, options.open_file_cost, full)
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
        """Return the plan's declined entry for this bucket.

        Args:
            reason: short code of the reason.
            text: reason in one sentence.
            facts: figures behind the reason, by name.
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
    files: Sequence[DataFile] | None = None,
) -> CompactItem | Declined:
    """Plan the compaction of one bucket of a table with a primary key.

    Args:
        store: the table.
        place: bucket to plan.
        entries: live manifest entries of the bucket.
        full: whether a full compaction is requested.
        now_ms: time of planning (epoch ms).
        marked: names of files with a deletion vector.
        full_is_due: whether `full-compaction.delta-commits` requires a full compaction.
        files: files of ``entries`` if the caller has them, else None.
    """
    files = tree_files(store, entries) if files is None else files
    levels = levels_of(store, files)
    expired = expired_files(store, entries, now_ms)
    # Levels written before deletion-vectors.enabled have no vectors for rows that newer levels replaced: merge them.
    full = full or has_unmarked_levels(store, entries)
    decision = decide(store, levels, now_ms, full, expired, marked, full_is_due=full_is_due)
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
        inputs=tuple(to_planned_file(file) for file in unit.files),
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
    """Return why a bucket of a primary-key table can no longer be compacted as planned, "" if it can.

    Args:
        store: the table.
        item: the bucket's item of the plan.
        files: live files of the bucket by name.
        entries: manifest entries of these files.
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


def to_planned_file(file: DataFile) -> PlannedFile:
    """Convert a data file to the form in which plans store files.

    Args:
        file: data file of a bucket.
    """
    return PlannedFile(file.name, file.level, file.size, file.row_count, file.delete_row_count)


def task_of(
    store: TableStore, levels: Levels, unit: CompactUnit, expired: ExpiredFiles, marked: Collection[str]
) -> TaskPlan:
    """Return which files of a compaction unit are rewritten, and which are only upgraded to a higher level.

    Args:
        store: the table.
        levels: LSM tree of the bucket.
        unit: files to compact together, and their output level.
        expired: files with rows whose record-level lifetime is over.
        marked: names of files with a deletion vector.
    """
    options = store.options
    marked = marked if unit.output_level == levels.max_level else ()
    upgrades = {
        level: upgrade_of(options, level, unit.output_level, levels.max_level)
        for level in {file.level for file in unit.files}
    }
    return plan_task(
        levels,
        unit,
        options.compaction_file_size(has_primary_key=True),
        force_rewrite_all=options.force_rewrite_all,
        must_rewrite=lambda file: file.name in expired.known or file.name in marked,
        marks_above=options.deletion_vectors_enabled,
        upgrade_rule=lambda file: upgrades[file.level],
    )


def plan_bins(
    store: TableStore, place: Place, files: Sequence[DataFile], full: bool, deleted: Mapping[str, int] = NOTHING_DELETED
) -> CompactItem | Declined:
    """Plan the compaction of one bucket of an append table.

    Args:
        store: the table.
        place: bucket to plan.
        files: live files of the bucket.
        full: whether a full compaction is requested.
        deleted: number of rows that a deletion vector marks as deleted, by file name.
    """
    bins = choose_bins(store, files, full, deleted)
    least = store.options.min_file_num
    if isinstance(bins, Decline):
        small, least = int(bins.facts.get("small_files") or 0), int(bins.facts.get("min_files") or least)
        explain = why_not_joined if manifests.evolves(store) else why_not_packed
        return place.declined(str(bins.reason), explain(files, small, least), dict(bins.facts))
    chosen_files = [file for chosen in bins for file in chosen]
    marked_rows = sum(deleted.get(file.name, 0) for file in chosen_files)
    facts = {"files": len(files), "small_files": len(chosen_files), "bins": len(bins)}
    reason = why_packed(len(chosen_files), len(bins), least, full, marked_rows)
    if manifests.evolves(store):
        rows = sum({file.first_row_id: file.row_count for file in chosen_files}.values())
        facts, marked_rows = {**facts, "row_ids": rows}, 0
        reason = why_joined(len(chosen_files), rows, len(bins), least, full)
    return CompactItem(
        partition=place.partition,
        partition_text=place.text,
        bucket=place.bucket,
        total_buckets=place.total_buckets,
        inputs=tuple(to_planned_file(file) for file in chosen_files),
        output_level=0,
        trigger=str(Trigger.SMALL_FILES),
        reason=reason,
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
    """Return the compaction task that the table's options choose for a bucket now, or None for no compaction.

    Args:
        store: the table.
        partition: partition in Paimon's binary form.
        bucket: number of the bucket.
        total_buckets: number of buckets of the partition.
        files: all files of the bucket.
        full: whether a full compaction is requested.
        index_files: index files with the deletion vectors of the bucket.

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
    from lsm_core.compact import BucketTask  # imported here, as health checks use this module without executing tasks

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


_WRITES = (CommitKind.APPEND, CommitKind.OVERWRITE)
_LONGEST_WALK = 4
"""Number of snapshots read per counted commit, as compactions and statistics are in between."""


def commits_between_full(options: TableOptions, *, has_primary_key: bool) -> int | None:
    """Return the number of write commits after which a full compaction is due.

    Args:
        options: options of the table.
        has_primary_key: whether the table has a primary key; without one the result is None.

    Returns:
        `full-compaction.delta-commits`, or 1 if that option is unset and `changelog-producer` is full-compaction, or
            None if neither option requires full compactions.

    Source:
        Java `StoreSinkWrite` and `GlobalFullCompactionSinkWrite`.
    """
    if not has_primary_key:
        return None
    try:
        commits = options.get("full-compaction.delta-commits")
    except InvalidOption:  # stored by another engine, to which 0 means that commits ask for no full compaction
        commits = None
    if commits is None and options.changelog_producer != "full-compaction":
        return None
    return max(1, int(commits or 1))


class FullCompactionsByCommits:
    """Decision which buckets are due for a full compaction by the number of commits (`full-compaction.delta-commits`).

    Java counts the checkpoints of one running job. Here the commits are counted in the table's snapshots, so all
    writers and dedicated compaction jobs share the count.
    """

    def __init__(self, store: TableStore, snapshot: Snapshot | None) -> None:
        """Read the table's snapshots backwards, until enough write commits are counted.

        Args:
            store: the table.
            snapshot: the newest snapshot, None for a table without snapshots.

        Raises:
            CorruptFile: a snapshot or manifest cannot be read.
        """
        self._most = commits_between_full(store.options, has_primary_key=bool(store.schema.primary_keys))
        self._commits: dict[tuple[bytes, int], int] = {}
        self._whole = 0
        if self._most is None or snapshot is None:
            return
        first = snapshots.earliest_id(store) or snapshot.id
        for snapshot_id in range(snapshot.id, max(first, snapshot.id - self._most * _LONGEST_WALK) - 1, -1):
            earlier = snapshot if snapshot_id == snapshot.id else snapshots.try_read(store, snapshot_id)
            if earlier is None:  # it expired meanwhile
                break
            if earlier.commit_kind in _WRITES:
                self._whole += 1
                if self._whole >= self._most:
                    return
            elif earlier.commit_kind is CommitKind.COMPACT:
                self._record_full(manifests.delta_entries(store, earlier), store.options.num_levels - 1)
        else:
            if first == 1:
                return
        self._whole = self._most  # older commits are expired: a full compaction too early is better than none

    @property
    def counts(self) -> bool:
        """Whether the table's options require full compactions after a number of commits."""
        return self._most is not None

    def is_due(self, partition: bytes, bucket: int) -> bool:
        """Return whether a full compaction of a bucket is due.

        The answer does not consider whether all files of the bucket are in the last level already. If older commits
        have expired, a bucket without a full compaction in the remaining snapshots is due.

        Args:
            partition: partition as a serialised BinaryRow.
            bucket: number of the bucket.
        """
        return self._most is not None and self._commits.get((partition, bucket), self._whole) >= self._most

    def _record_full(self, entries: pa.Table, last_level: int) -> None:
        """Record how many write commits followed a snapshot, for each bucket that the snapshot compacted completely.

        Snapshots are visited newest first, so a bucket keeps the number of its newest full compaction.

        Args:
            entries: delta entries of the snapshot; a bucket was compacted completely if it got a file in the last
                level.
            last_level: number of the last level.
        """
        full = entries.filter(
            pc.and_(
                pc.equal(entries.column("kind"), arrow_scalar(ADD)),
                pc.equal(entries.column("level"), arrow_scalar(last_level)),
            )
        )
        places = full.select(["partition", "bucket"]).group_by(["partition", "bucket"]).aggregate([])
        for place in places.to_pylist():  # one row per bucket
            self._commits.setdefault((place["partition"], place["bucket"]), self._whole)
