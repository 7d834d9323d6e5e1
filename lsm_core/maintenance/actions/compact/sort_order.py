"""Sort compaction: allowed tables and columns, the plan's item of a partition, and the times of earlier sorts.

Source: Java `CompactProcedure` with `order_by`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lsm_core.compact import BucketTask
from lsm_core.compact.task import SortTask
from lsm_core.errors import ColumnNotFound, InvalidOption, UnsupportedFeature
from lsm_core.format.manifest import DataFileMeta
from lsm_core.maintenance.action import PlannedFile, facts_of
from lsm_core.maintenance.actions.compact.compaction import CompactItem
from lsm_core.maintenance.ledger import DONE, iterate_ledger
from lsm_core.merge.curves import HILBERT, ORDER, STRATEGIES, ZORDER, sortable
from lsm_core.metadata import manifests
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.tree import DataFile, Trigger
from lsm_core.types import to_sql


@dataclass(frozen=True)
class SortOrder:
    """Columns and strategy of a sort compaction.

    Attributes:
        columns: columns to sort by.
        strategy: one of `merge.curves.STRATEGIES`: "order", "zorder" or "hilbert".
    """

    columns: tuple[str, ...]
    strategy: str = ORDER

    def text(self) -> str:
        """Return the order as text: "in the order of a", "along a zorder curve over a, b"."""
        by = ", ".join(self.columns)
        return f"in the order of {by}" if self.strategy == ORDER else f"along a {self.strategy} curve over {by}"

    def arguments(self) -> Mapping[str, str]:
        """Return the sort order as arguments of a compaction plan."""
        return {"order_by": json.dumps(list(self.columns), ensure_ascii=False), "strategy": self.strategy}


AUTO: Final = "auto"
"""Strategy that depends on the number of columns, as in option `clustering.strategy`."""
_CURVE_COLUMNS: Final = 5
"""Number of columns from which on `auto` means a Hilbert curve (Java `CoreOptions.clusteringStrategy`)."""


def require_order(
    store: TableStore, order_by: Sequence[str] | None, strategy: str | None, buckets: Sequence[int] | None = None
) -> SortOrder:
    """Check that a table can be sorted by some columns, and return the order.

    Args:
        store: the table.
        order_by: names of the columns to sort by, None for the columns of option `clustering.columns`.
        strategy: one of `STRATEGIES`, `AUTO`, or None for "order". Without ``order_by``, `AUTO` means option
            `clustering.strategy`.
        buckets: must be None, because a sort rewrites all buckets.

    Raises:
        UnsupportedFeature: the table has a fixed number of buckets, or a primary key without dynamic buckets, or a
            column's type has no order.
        ColumnNotFound: a column does not exist.
        InvalidOption: the strategy is unknown, a Hilbert curve has fewer than two columns, there are no columns to sort
            by, a column is repeated or a partition column, or ``buckets`` is not None.
    """
    strategy_name = strategy.strip().lower() if isinstance(strategy, str) else (ORDER if strategy is None else strategy)
    if strategy_name not in (*STRATEGIES, AUTO):
        raise InvalidOption("strategy", strategy, ", ".join((*STRATEGIES, AUTO)), store.name)
    columns = store.options.clustering_columns if order_by is None else order_by
    if order_by is None and strategy_name == AUTO:
        strategy_name = clustering_strategy(store)
    if order_by is None and not columns:
        accepted = "the columns to sort by: the table's option 'clustering.columns' names none"
        raise InvalidOption("order_by", order_by, accepted, store.name)
    if manifests.evolves(store):
        reason = "a sort would change the row ids; plan a compaction without order_by and strategy"
        raise UnsupportedFeature(f"sort compaction with 'data-evolution.enabled' = 'true': {reason}", store.name)
    if store.options.clusters_incrementally and not store.has_primary_key:
        raise UnsupportedFeature(
            "sort compaction with 'clustering.incremental' = 'true': plan a compaction without order_by and strategy, "
            "which sorts by 'clustering.columns'",
            store.name,
        )
    if store.has_primary_key and store.bucket_mode is not BucketMode.DYNAMIC:
        raise UnsupportedFeature(
            "sort compaction of tables with a primary key, unless their buckets are dynamic: "
            "their rows are in key order",
            store.name,
        )
    if store.options.bucket != -1:
        raise UnsupportedFeature(
            "sort compaction of append tables with buckets: their rows keep their order", store.name
        )
    if buckets is not None:
        raise InvalidOption("buckets", list(buckets), "nothing: the table has no buckets to choose", store.name)
    columns = (columns,) if isinstance(columns, str) else tuple(columns)
    if not columns or len(set(columns)) < len(columns):
        raise InvalidOption("order_by", list(columns), "one column or several different ones", store.name)
    if strategy_name == AUTO:
        strategy_name = auto_strategy(len(columns))
    if strategy_name == HILBERT and len(columns) < 2:
        raise InvalidOption("order_by", list(columns), "at least two columns for a Hilbert curve", store.name)
    for name in columns:
        _require_sortable(store, name)
    return SortOrder(columns, strategy_name)


def clustering_order(store: TableStore) -> SortOrder:
    """Return the order of a table with incremental clustering; partition columns are left out.

    Args:
        store: the table.

    Raises:
        UnsupportedFeature: a column's type has no order.
        ColumnNotFound: a column does not exist.
        InvalidOption: `clustering.strategy` is unknown, or `clustering.columns` names no column to sort by.
    """
    columns = tuple(
        name for name in dict.fromkeys(store.options.clustering_columns) if name not in store.schema.partition_keys
    )
    if not columns:
        accepted = "at least one column that is no partition column, for 'clustering.incremental' = 'true'"
        raise InvalidOption("clustering.columns", store.options.text("clustering.columns"), accepted, store.name)
    for name in columns:
        _require_sortable(store, name)
    strategy = clustering_strategy(store)
    strategy = auto_strategy(len(columns)) if strategy == AUTO else strategy
    return SortOrder(columns, ORDER if strategy == HILBERT and len(columns) == 1 else strategy)


def clustering_strategy(store: TableStore) -> str:
    """Return option `clustering.strategy`: one of `STRATEGIES`, or `AUTO`, which is also the default.

    Args:
        store: the table.

    Raises:
        InvalidOption: the option has an unknown value.
    """
    text = (store.options.text("clustering.strategy") or AUTO).strip().lower()
    if text not in (*STRATEGIES, AUTO):
        raise InvalidOption("clustering.strategy", text, ", ".join((*STRATEGIES, AUTO)), store.name)
    return text


def auto_strategy(columns: int) -> str:
    """Return the strategy that `AUTO` selects for a number of columns.

    Args:
        columns: number of columns to sort by.
    """
    return ORDER if columns == 1 else ZORDER if columns < _CURVE_COLUMNS else HILBERT


def _require_sortable(store: TableStore, name: str) -> None:
    if not store.schema.has_field(name):
        raise ColumnNotFound(store.name, name, store.schema.field_names)
    if name in store.schema.partition_keys:
        accepted = "no partition column: all rows of a partition hold the same value"
        raise InvalidOption("order_by", name, accepted, store.name)
    if not sortable(store.schema.arrow_schema.field(name).type):
        kind = to_sql(store.schema.field(name).type.with_nullable(nullable=True))
        raise UnsupportedFeature(f"sorting by column '{name}' of type {kind}", store.name)


def sort_item(
    partition: bytes, text: str, bucket: int, total_buckets: int, files: Sequence[DataFile], order: SortOrder
) -> CompactItem:
    """Return the plan's item that rewrites all files of a partition in order.

    Args:
        partition: partition in Paimon's binary form.
        text: Paimon's path of the partition.
        bucket: number of the bucket.
        total_buckets: number of buckets of the partition.
        files: all live files of the partition.
        order: columns and strategy of the sort.
    """
    return CompactItem(
        partition=partition,
        partition_text=text,
        bucket=bucket,
        total_buckets=total_buckets,
        inputs=tuple(PlannedFile(f.name, f.level, f.size, f.row_count, f.delete_row_count) for f in files),
        output_level=0,
        trigger=str(Trigger.SORT),
        reason=f"{len(files)} file{'s'[: len(files) - 1]} rewritten {order.text()}",
        facts=facts_of({"files": len(files), "rows": sum(f.row_count for f in files), **order.arguments()}),
        bins=(tuple(file.name for file in files),),
        full=True,
        order_by=order.columns,
        strategy=order.strategy,
    )


def sort_task(item: CompactItem, total_buckets: int, files: Sequence[DataFileMeta], snapshot_id: int) -> BucketTask:
    """Return the task that executes an item of a sort compaction.

    Args:
        item: item of the plan.
        total_buckets: number of buckets of the partition.
        files: current metadata of the files to sort.
        snapshot_id: snapshot that the task is based on.
    """
    return SortTask(
        partition=item.partition,
        bucket=item.bucket,
        total_buckets=total_buckets,
        files=files,
        output_level=item.output_level,
        base_snapshot=snapshot_id,
        bins=item.bins,
        order_by=item.order_by,
        strategy=item.strategy,
    )


_RUNS: Final = 500
"""Number of newest runs that are read: a partition that was sorted earlier counts as unsorted."""
_BUCKET: Final = "bucket-"


def read_sort_times(store: TableStore) -> dict[str, int]:
    """Return the end time (epoch ms) of the newest sort compaction of each partition, by Paimon's partition path.

    Only the newest runs in the ledger (record of maintenance runs) are read. Unreadable entries are skipped.

    Args:
        store: the table.
    """
    ended: dict[str, int] = {}
    for entry in iterate_ledger(store, _RUNS, heads=True):
        if entry.action != "compact" or entry.outcome != DONE or not entry.report.get("sorted_by"):
            continue
        verification = entry.report.get("verification")
        digests = verification.get("digests") if isinstance(verification, dict) else None
        for bucket in digests if isinstance(digests, dict) else ():
            partition = str(bucket).rpartition(_BUCKET)[0].removesuffix("/")
            ended[partition] = entry.time_ms
    return ended
