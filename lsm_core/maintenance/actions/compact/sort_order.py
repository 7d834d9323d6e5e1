"""Sort compaction: what may be sorted by what, and one partition's item (Java `CompactProcedure` with `order_by`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lsm_core.compact import BucketTask
from lsm_core.compact.clustering import SortTask
from lsm_core.errors import ColumnNotFound, InvalidOption, UnsupportedFeature
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.maintenance.action import PlannedFile, facts_of
from lsm_core.maintenance.actions.compact.compaction import CompactItem
from lsm_core.merge.curves import HILBERT, ORDER, STRATEGIES, sortable
from lsm_core.metadata.store import TableStore
from lsm_core.tree import DataFile, Trigger
from lsm_core.types import to_sql


@dataclass(frozen=True)
class SortOrder:
    """The columns to sort by, and `merge.curves.STRATEGIES`: "order", "zorder" or "hilbert"."""

    columns: tuple[str, ...]
    strategy: str = ORDER

    def arguments(self) -> Mapping[str, str]:
        """As plans keep them."""
        return {"order_by": json.dumps(list(self.columns), ensure_ascii=False), "strategy": self.strategy}


def checked_order(
    store: TableStore, order_by: Sequence[str] | None, strategy: str, buckets: Sequence[int] | None = None
) -> SortOrder | None:
    """The order, if ``store`` can be sorted by it; None where no ``order_by`` asks for one.

    Raises UnsupportedFeature for tables with a primary key or with buckets and for types without order, ColumnNotFound, and
    InvalidOption for an unknown strategy, a curve without columns, no column or one twice, a partition column, chosen buckets.
    """
    wanted = strategy.lower() if isinstance(strategy, str) else strategy
    if wanted not in STRATEGIES:
        raise InvalidOption("strategy", strategy, ", ".join(STRATEGIES), store.name)
    if order_by is None:
        if wanted != ORDER:
            raise InvalidOption("strategy", strategy, f"{ORDER} where no order_by names the columns", store.name)
        return None
    if store.has_primary_key:
        raise UnsupportedFeature(
            "sort compaction of tables with a primary key: their rows lie in key order", store.name
        )
    if store.options.bucket != -1:
        raise UnsupportedFeature(
            "sort compaction of append tables with buckets: their rows keep their order", store.name
        )
    if buckets is not None:
        raise InvalidOption("buckets", list(buckets), "nothing: the table has no buckets to choose", store.name)
    columns = (order_by,) if isinstance(order_by, str) else tuple(order_by)
    if not columns or len(set(columns)) < len(columns):
        raise InvalidOption("order_by", list(columns), "one column or several different ones", store.name)
    if wanted == HILBERT and len(columns) < 2:
        raise InvalidOption("order_by", list(columns), "at least two columns for a Hilbert curve", store.name)
    for name in columns:
        _require_sortable(store, name)
    return SortOrder(columns, wanted)


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
    """All ``files`` of a partition, to be rewritten in ``order``."""
    by = ", ".join(order.columns)
    along = "in the order of" if order.strategy == ORDER else f"along a {order.strategy} curve over"
    return CompactItem(
        partition=partition,
        partition_text=text,
        bucket=bucket,
        total_buckets=total_buckets,
        inputs=tuple(PlannedFile(f.name, f.level, f.size, f.row_count, f.delete_row_count) for f in files),
        output_level=0,
        trigger=str(Trigger.SORT),
        reason=f"{len(files)} file{'s'[: len(files) - 1]} rewritten {along} {by}",
        facts=facts_of({"files": len(files), "rows": sum(f.row_count for f in files), **order.arguments()}),
        bins=(tuple(file.name for file in files),),
        full=True,
        order_by=order.columns,
        strategy=order.strategy,
    )


def sort_task(item: CompactItem, total_buckets: int, files: tuple[DataFileMeta, ...], snapshot_id: int) -> BucketTask:
    """The item as work."""
    return SortTask(
        partition=item.partition,
        bucket=item.bucket,
        total_buckets=total_buckets,
        files=files,
        base_snapshot=snapshot_id,
        bins=item.bins,
        order_by=item.order_by,
        strategy=item.strategy,
    )
