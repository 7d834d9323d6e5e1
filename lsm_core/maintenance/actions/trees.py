"""Planning the compaction of one bucket of a primary-key table: its unit, what that does to each file, and whether it still fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lsm_core.maintenance.actions.choose import NOTHING_EXPIRED, decide, keeps_tombstones, levels_of
from lsm_core.maintenance.actions.explain import why_declined, why_picked
from lsm_core.maintenance.plan import CompactItem, Declined, PlannedFile, bucket_name, facts_of
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import tree_files
from lsm_core.read.prune import ExpiredFiles, expired_files, expiry_of
from lsm_core.tree import CompactUnit, DataFile, Decline, Levels, Pick, TaskPlan, plan_task


@dataclass(frozen=True)
class Place:
    """Which bucket is being planned."""

    partition: bytes
    text: str
    bucket: int
    total_buckets: int

    def declined(self, reason: str, text: str, facts: Mapping[str, object]) -> Declined:
        """The bucket is left alone."""
        return Declined(bucket_name(self.text, self.bucket), reason, text, facts_of(facts), self.text, self.bucket)


def plan_tree(store: TableStore, place: Place, entries: pa.Table, full: bool, now_ms: int) -> CompactItem | Declined:
    """What to do with the bucket whose live files are ``entries``, at epoch ms ``now_ms``."""
    files = tree_files(store, entries)
    levels = levels_of(store, files)
    expired = expired_files(store, entries, now_ms)
    decision = decide(store, files, now_ms, full, expired)
    if isinstance(decision, Decline):
        facts = {**decision.facts, "sorted_runs": len(levels.runs()), "bytes": levels.total_size}
        facts["rows"] = sum(file.row_count for file in files)
        return place.declined(str(decision.reason), why_declined(decision, levels, store.options), facts)
    return _item(store, place, levels, decision, expired, now_ms)


def _item(
    store: TableStore, place: Place, levels: Levels, decision: Pick, expired: ExpiredFiles, now_ms: int
) -> CompactItem:
    unit = decision.unit
    task = _task_of(store, levels, unit, expired)
    drop = task.drop_delete and not keeps_tombstones(store, task.rewritten_files, now_ms)
    dropped = _tombstones(task.rewritten_files) if drop else 0
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


def why_tree_is_stale(store: TableStore, item: CompactItem, files: Mapping[str, DataFile], entries: pa.Table) -> str:
    """Why ``item`` no longer fits the bucket whose live files these are; "" when it does."""
    unit = CompactUnit(item.output_level, tuple(files[p.name] for p in item.inputs), item.full, item.by_file)
    expired = NOTHING_EXPIRED if item.expire_at_ms is None else expired_files(store, entries, item.expire_at_ms)
    again = _task_of(store, levels_of(store, tuple(files.values())), unit, expired)
    if item.drop_delete and not again.drop_delete:
        return f"older files lie below level {item.output_level} now, so deletes may not be dropped"
    if {file.name for file in again.upgrades} != set(item.upgrades):
        return "what would be upgraded changed"
    return ""


def as_planned(file: DataFile) -> PlannedFile:
    """A file as plans name it."""
    return PlannedFile(file.name, file.level, file.size, file.row_count, file.delete_row_count)


def _task_of(store: TableStore, levels: Levels, unit: CompactUnit, expired: ExpiredFiles) -> TaskPlan:
    options = store.options
    return plan_task(
        levels,
        unit,
        options.compaction_file_size(has_primary_key=True),
        force_rewrite_all=options.force_rewrite_all,
        must_rewrite=lambda file: file.name in expired.known,
    )


def _tombstones(files: Sequence[DataFile]) -> int | None:
    counts = [file.delete_row_count for file in files]
    return None if any(count is None for count in counts) else sum(count or 0 for count in counts)


__all__ = ["Place", "as_planned", "plan_tree", "why_tree_is_stale"]
