"""Compaction: a plan from metadata, explained bucket by bucket, and its execution with one commit at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from lsm_core.commit import Committer, abort
from lsm_core.compact import BucketResult, BucketTask, Judge
from lsm_core.errors import CommitConflict, CommitUnknown
from lsm_core.format.file_meta import ENTRY_SCHEMA, DataFileMeta, table_to_entries
from lsm_core.format.partition_path import partition_bytes, partition_text
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.actions.bins import choose_bins
from lsm_core.maintenance.actions.explain import why_not_packed, why_packed
from lsm_core.maintenance.actions.missing import PLACE_COLUMNS, missing_places
from lsm_core.maintenance.actions.sort import SortOrder, checked_order, sort_item, sort_task
from lsm_core.maintenance.actions.trees import Place, as_planned, plan_tree, why_tree_is_stale
from lsm_core.maintenance.plan import (
    EXPIRED_AT,
    PLAN_PROPERTY,
    CompactItem,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    bucket_name,
    facts_of,
)
from lsm_core.metadata import manifests, snapshots, support
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_compactable
from lsm_core.metadata.tree_files import bucket_groups, tree_files
from lsm_core.options import whole_number
from lsm_core.tree import DataFile, Decline, DeclineReason, Trigger

ACTION: Final = "compact"
Runner = Callable[[TableStore, Sequence[BucketTask]], Iterable[BucketResult]]
# File bytes that one core decodes, merges and encodes a second (kernels.md, zstd level 1); only for forecasts.
_BYTES_PER_SECOND: Final = 25_000_000
_SECONDS_PER_TASK: Final = 0.1


def plan_compaction(
    store: TableStore,
    full: bool = False,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    buckets: Sequence[int] | None = None,
    now_ms: int | None = None,
    order_by: Sequence[str] | None = None,
    strategy: str = "order",
) -> MaintenancePlan:
    """Plan the compaction of every chosen bucket that needs one; the others are in ``declined`` with their numbers.

    ``partitions`` are typed values (None = null), ``now_ms`` epoch ms. ``order_by``: sort compaction, all files of each partition are
    rewritten along ``strategy`` ("order", "zorder", "hilbert") over these columns. Reads metadata only. Raises UnsupportedFeature,
    CorruptFile, InvalidFilter (a partition that does not fit the schema), ColumnNotFound and InvalidOption (`order_by`, `strategy`,
    a bucket that no partition can have).
    """
    order = checked_order(store, order_by, strategy, buckets)
    require_compactable(store)
    now = store.clock.now_ms() if now_ms is None else now_ms
    wanted = None if buckets is None else sorted(whole_number(b, "buckets", store.name) for b in buckets)
    chosen = None if partitions is None else [partition_bytes(store.schema, p, store.name) for p in partitions]
    plan = MaintenancePlan(
        ACTION,
        store.name,
        None,
        options=dict(store.options.raw),
        arguments={
            "full": full,
            "partitions": None if chosen is None else " ".join(sorted(p.hex() for p in chosen)),
            "buckets": None if wanted is None else " ".join(map(str, wanted)),
            **(order.arguments() if order is not None else {}),
        },
        created_ms=now,
    )
    snapshot = snapshots.latest(store)
    if snapshot is None:
        missing_places(store, (), None, wanted, ENTRY_SCHEMA.empty_table)
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    groups = bucket_groups(manifests.live_entries(store, snapshot, partitions=chosen, buckets=wanted))
    outcomes = [_plan_bucket(store, group, full, now, order) for group in groups]
    found = {(partition, bucket) for partition, bucket, _, _ in groups}
    outcomes += missing_places(store, found, chosen, wanted, partial(_places, store, snapshot, chosen))
    items = sorted((o for o in outcomes if isinstance(o, CompactItem)), key=lambda i: (i.partition_text, i.bucket))
    declined = sorted((o for o in outcomes if isinstance(o, Declined)), key=lambda d: (d.partition_text, d.bucket or 0))
    return replace(
        plan, base_snapshot=snapshot.id, items=tuple(items), declined=tuple(declined), estimate=_estimate(items)
    )


def _places(store: TableStore, snapshot: Snapshot, partitions: Sequence[bytes] | None) -> pa.Table:
    return manifests.live_entries(store, snapshot, partitions=partitions, columns=PLACE_COLUMNS)


def _plan_bucket(
    store: TableStore, group: tuple[bytes, int, int, pa.Table], full: bool, now_ms: int, order: SortOrder | None
) -> CompactItem | Declined:
    partition, bucket, total_buckets, entries = group
    files = tree_files(store, entries)
    place = Place(partition, partition_text(store.schema, partition, store.options), bucket, total_buckets)
    if order is not None:
        return sort_item(partition, place.text, bucket, total_buckets, files, order)
    return (
        plan_tree(store, place, entries, full, now_ms)
        if store.schema.primary_keys
        else _plan_bins(store, place, files, full)
    )


def _plan_bins(store: TableStore, place: Place, files: Sequence[DataFile], full: bool) -> CompactItem | Declined:
    bins = choose_bins(store, files, full)
    least = store.options.min_file_num
    if isinstance(bins, Decline):
        small, least = int(bins.facts.get("small_files") or 0), int(bins.facts.get("min_files") or least)
        return place.declined(str(bins.reason), why_not_packed(files, small, least), dict(bins.facts))
    taken = [file for chosen in bins for file in chosen]
    return CompactItem(
        partition=place.partition,
        partition_text=place.text,
        bucket=place.bucket,
        total_buckets=place.total_buckets,
        inputs=tuple(as_planned(file) for file in taken),
        output_level=0,
        trigger=str(Trigger.SMALL_FILES),
        reason=why_packed(len(taken), len(bins), least, full),
        facts=facts_of({"files": len(files), "small_files": len(taken), "bins": len(bins)}),
        bins=tuple(tuple(file.name for file in chosen) for chosen in bins),
        full=full,
    )


def _estimate(items: Sequence[CompactItem]) -> PlanEstimate:
    size = sum(item.bytes_in for item in items)
    return PlanEstimate(
        bytes_in=size,
        bytes_out=size,
        rows_in=sum(item.rows_in for item in items),
        files_in=sum(len(item.inputs) for item in items),
        tasks=len(items),
        seconds=round(size / _BYTES_PER_SECOND + _SECONDS_PER_TASK * len(items), 2),
    )


@dataclass(frozen=True)
class Executed:
    """What execution left behind: committed results by item, buckets skipped as stale, and the new snapshot."""

    results: tuple[tuple[CompactItem, BucketResult], ...]
    stale: tuple[Declined, ...]
    snapshot_id: int | None


def execute(store: TableStore, plan: MaintenancePlan, runner: Runner) -> Executed:
    """Run the plan's buckets through ``runner`` and publish one COMPACT commit.

    Buckets whose inputs are gone or moved are skipped, before the work or when the commit meets a conflict. Output of
    failed work is deleted; after CommitUnknown nothing is. Raises VerificationFailed, CorruptFile, CommitConflict.
    """
    require_compactable(store)
    tasks, stale = _tasks(store, plan)
    if not tasks:
        return Executed((), tuple(stale), None)
    by_place = {(item.partition, item.bucket): item for item in plan.compactions}
    done: list[BucketResult] = []
    try:
        for result in runner(store, [task for _, task in tasks]):
            done.append(result)  # noqa: PERF402  (what came before an error must be known, to abort it)
    except BaseException:
        abort(store, [result.message for result in done])
        raise
    committed, conflicts, snapshot_id = _commit(store, plan, done)
    for result, error in conflicts:
        item = by_place[result.message.partition, result.message.bucket]
        stale.append(_stale(item, f"another commit took its inputs while it was compacted ({error})"))
    pairs = tuple((by_place[r.message.partition, r.message.bucket], r) for r in committed)
    return Executed(pairs, tuple(stale), snapshot_id)


def _commit(
    store: TableStore, plan: MaintenancePlan, done: list[BucketResult]
) -> tuple[list[BucketResult], list[tuple[BucketResult, CommitConflict]], int | None]:
    """One commit of everything that still fits; buckets in conflict are dropped, their output deleted, and reported."""
    conflicts: list[tuple[BucketResult, CommitConflict]] = []
    remaining = [result for result in done if not result.message.is_empty]
    while remaining:
        try:
            committed = Committer(store).commit([r.message for r in remaining], properties=_properties(plan))
            return remaining, conflicts, committed.snapshot_ids[-1] if committed.snapshot_ids else None
        except CommitConflict as error:
            touched = [r for r in remaining if _names(r) & set(error.files)]
            if not touched:
                abort(store, [r.message for r in remaining])
                raise
            abort(store, [r.message for r in touched])
            conflicts += [(r, error) for r in touched]
            remaining = [r for r in remaining if r not in touched]
        except CommitUnknown:
            raise
        except Exception:
            abort(store, [r.message for r in remaining])
            raise
    return [], conflicts, None


def _properties(plan: MaintenancePlan) -> dict[str, str]:
    clocks = [item.expire_at_ms for item in plan.compactions if item.expire_at_ms is not None]
    return {PLAN_PROPERTY: plan.hash, **({EXPIRED_AT: str(max(clocks))} if clocks else {})}


def _names(result: BucketResult) -> set[str]:
    return {file.file_name for file in (*result.message.compact_before, *result.message.compact_after)}


def _tasks(store: TableStore, plan: MaintenancePlan) -> tuple[list[tuple[CompactItem, BucketTask]], list[Declined]]:
    """Work for the items whose inputs are as planned, read from the newest snapshot; the others are stale."""
    items = plan.compactions
    snapshot = snapshots.latest(store)
    if not items or snapshot is None:
        return [], [_stale(item, "the table has no snapshot any more") for item in items]
    partitions = sorted({item.partition for item in items})
    buckets = sorted({item.bucket for item in items})
    entries = manifests.live_entries(store, snapshot, partitions=partitions, buckets=buckets)
    support.require_current(store, entries, "compacting it")
    live = {(partition, bucket): (total, table) for partition, bucket, total, table in bucket_groups(entries)}
    tasks, stale = [], []
    for item in items:
        total, table = live.get((item.partition, item.bucket), (item.total_buckets, None))
        reason = _why_stale(store, item, table)
        if table is None or reason:
            stale.append(_stale(item, reason))
            continue
        tasks.append(
            (
                item,
                _task(
                    item, total, tuple(e.file for e in table_to_entries(table)), snapshot.id, store.options.verification
                ),
            )
        )
    return tasks, stale


def _why_stale(store: TableStore, item: CompactItem, table: pa.Table | None) -> str:
    """Why the plan no longer fits this bucket; "" when it does. New files alone never make it stale."""
    if table is None:
        return "the bucket is empty now"
    files = tree_files(store, table)
    now = {file.name: file for file in files}
    for planned in item.inputs:
        found = now.get(planned.name)
        if found is None:
            return f"input {planned.name} is gone"
        if found.level != planned.level:
            return f"input {planned.name} moved from level {planned.level} to {found.level}"
    if item.bins:
        return ""
    return why_tree_is_stale(store, item, now, table)


def _task(
    item: CompactItem, total_buckets: int, files: tuple[DataFileMeta, ...], snapshot_id: int, verification: str
) -> BucketTask:
    if item.order_by:
        return replace(sort_task(item, total_buckets, files, snapshot_id), verification=verification)
    return BucketTask(
        partition=item.partition,
        bucket=item.bucket,
        total_buckets=total_buckets,
        files=files,
        unit_names=() if item.bins else tuple(file.name for file in item.inputs),
        output_level=item.output_level,
        drop_delete=item.drop_delete,
        base_snapshot=snapshot_id,
        verification=verification,
        bins=item.bins,
        by_file=item.by_file,
        now_ms=item.expire_at_ms,
    )


def _stale(item: CompactItem, reason: str) -> Declined:
    return Declined(
        bucket_name(item.partition_text, item.bucket), "stale", reason, {}, item.partition_text, item.bucket
    )


def local_runner(judge: Judge | None) -> Runner:
    """Runs tasks in this process, with ``judge`` for V2."""

    def run(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
        from lsm_core.compact import run_tasks_locally

        return iter(run_tasks_locally(store, tasks, judge))

    return run


__all__ = ["ACTION", "DeclineReason", "Executed", "Runner", "execute", "local_runner", "plan_compaction"]
