"""Compaction of append tables with incremental clustering (`clustering.incremental`): files are sorted level by level.

Such a table is compacted in no other way, because a compaction that joins small files would undo the order.

Source: ``IncrementalClusterManager``, ``HistoryPartitionCluster``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.action import Declined, facts_of, size_text
from lsm_core.maintenance.actions.compact.compaction import CompactItem
from lsm_core.maintenance.actions.compact.unit_choice import NOTHING_DELETED, Place, describe_rule, to_planned_file
from lsm_core.metadata import manifests
from lsm_core.metadata.live_files import BucketGroup, bucket_groups
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.options import TableOptions
from lsm_core.tree import DataFile, Decision, Decline, DeclineReason, Pick, cluster_runs, pick_clustering

if TYPE_CHECKING:
    from lsm_core.maintenance.actions.compact.sort_order import SortOrder

_IDLE: Final = "clustering.history-partition.idle-to-full-sort"
_LIMIT: Final = "clustering.history-partition.limit"


def choose_clustering(
    store: TableStore, files: Sequence[DataFile], full: bool, deleted: Mapping[str, int] = NOTHING_DELETED
) -> Decision:
    """Decide which files of one bucket to sort together, and the level of the sorted files.

    Args:
        store: the table.
        files: live files of the bucket, in the order of their manifest entries.
        full: whether all files are sorted. If all files are on the last level, they are sorted again only if the table
            had other `clustering.columns` when the first of them was written, or if they have deleted rows.
        deleted: number of rows that a deletion vector marks as deleted, by file name.
    """
    sort_again = full and bool(files) and (_has_other_columns(store, files[0]) or any(f.name in deleted for f in files))
    return pick_clustering(files, store.options, full, sort_again=sort_again)


def _has_other_columns(store: TableStore, file: DataFile) -> bool:
    """Return whether the table had other `clustering.columns` with the schema of ``file`` than it has now."""
    if file.schema_id == store.schema.id:
        return False
    former = TableOptions(store.schema_of(file.schema_id).options, store.name, stored=True)
    return former.clustering_columns != store.options.clustering_columns


def plan_clustering(
    store: TableStore,
    place: Place,
    files: Sequence[DataFile],
    full: bool,
    order: SortOrder,
    deleted: Mapping[str, int] = NOTHING_DELETED,
) -> CompactItem | Declined:
    """Plan the sort of one bucket of a table with incremental clustering.

    Args:
        store: the table.
        place: bucket to plan.
        files: live files of the bucket, in the order of their manifest entries.
        full: whether all files are sorted.
        order: columns and strategy of the sort.
        deleted: number of rows that a deletion vector marks as deleted, by file name.
    """
    decision, runs = choose_clustering(store, files, full, deleted), cluster_runs(files)
    size, trigger = sum(file.size for file in files), store.options.compaction_trigger
    if isinstance(decision, Decline):
        facts: dict[str, object] = {**decision.facts, "sorted_runs": len(runs), "bytes": size}
        facts["rows"] = sum(file.row_count for file in files)
        return place.declined(str(decision.reason), _why_not_sorted(decision, len(runs), size, trigger), facts)
    unit = decision.unit
    sorted_names = {file.name for file in unit.files}
    runs_left = sum(not all(file.name in sorted_names for file in run.run.files) for run in runs)
    facts = {**decision.facts, "bytes": unit.size, "rewritten_files": len(unit.files), **order.arguments()}
    return CompactItem(
        partition=place.partition,
        partition_text=place.text,
        bucket=place.bucket,
        total_buckets=place.total_buckets,
        inputs=tuple(to_planned_file(file) for file in unit.files),
        output_level=unit.output_level,
        trigger=str(decision.trigger),
        reason=_why_sorted(decision, len(files), len(runs), trigger, order),
        facts=facts_of(facts),
        bins=(tuple(file.name for file in unit.files),),
        full=unit.full,
        runs_before=len(runs),
        runs_after=runs_left + 1,
        order_by=order.columns,
        strategy=order.strategy,
    )


def _why_sorted(pick: Pick, files: int, runs: int, trigger: int, order: SortOrder) -> str:
    """Return why files are sorted: "6 runs >= 5; too many runs: 2 of 6 files to level 4, in the order of a"."""
    unit = pick.unit
    scope = "all" if unit.full else f"{len(unit.files)} of {files} files"
    against = ">=" if runs >= trigger else "<"
    rule = f"{runs} run{'s' if runs != 1 else ''} {against} {trigger}; {describe_rule(pick.trigger)}"
    return f"{rule}: {scope} to level {unit.output_level}, {order.text()}"


def _why_not_sorted(decline: Decline, runs: int, size: int, trigger: int) -> str:
    """Return why nothing is sorted, for example "3 runs < 5; 52 KiB"."""
    if decline.reason is DeclineReason.EMPTY:
        return "the bucket is empty"
    if decline.reason is DeclineReason.ALREADY_COMPACTED:
        return "all files were sorted together"
    if decline.reason is DeclineReason.TOO_FEW_RUNS:
        return f"{runs} run{'s' if runs != 1 else ''} < {trigger}; {size_text(size)}"
    return f"{runs} runs >= {trigger}; {size_text(size)}; {decline.text()}"


def find_history_groups(
    store: TableStore, snapshot: Snapshot, chosen: Collection[bytes] | None, now_ms: int
) -> list[BucketGroup]:
    """Return the buckets of idle partitions that are to be sorted in addition to the partitions chosen by the caller.

    A partition is idle if its newest file below the last level is older than
    `clustering.history-partition.idle-to-full-sort`. At most `clustering.history-partition.limit` partitions are
    returned, the longest idle first. The list is empty if the first option is unset or the caller chose all partitions.

    Args:
        store: the table.
        snapshot: the snapshot to read.
        chosen: partitions that the caller chose (as bytes), or None for all.
        now_ms: time of planning (epoch ms).
    """
    idle = store.options.get(_IDLE)
    if idle is None or chosen is None or not store.schema.partition_keys or store.bucket_mode is not BucketMode.UNAWARE:
        return []
    top = store.options.num_levels - 1
    columns = ["partition", "level", "creation_time_ms"]
    entries = manifests.live_entries(store, snapshot, columns=columns)
    unsorted = entries.filter(pc.less(entries.column("level"), arrow_scalar(top)))
    newest = unsorted.group_by("partition").aggregate([("creation_time_ms", "max")])
    is_idle = pc.less(pc.fill_null(newest.column("creation_time_ms_max"), 0), pa.scalar(now_ms - int(idle), pa.int64()))
    is_chosen = pc.is_in(newest.column("partition"), pa.array(list(chosen), newest.schema.field("partition").type))
    candidates = newest.filter(pc.and_(is_idle, pc.invert(is_chosen))).sort_by("creation_time_ms_max")
    partitions = candidates.column("partition").slice(0, int(store.options.get(_LIMIT))).to_pylist()
    return bucket_groups(manifests.live_entries(store, snapshot, partitions=partitions)) if partitions else []
