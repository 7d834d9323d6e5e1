"""The op that keeps one table from growing old: old partitions are dropped, expired snapshots go to the trash, and from there after its grace."""

from __future__ import annotations

from typing import Final

import dagster as dg

from lsm_core.errors import DredgeError
from lsm_core.maintenance import apply_plan, plan_maintenance
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.blocked import blocking_failure
from orchestration.metadata import declined_table, number_metadata
from orchestration.quirks import typed
from orchestration.resources.warehouse import WarehouseResource
from orchestration.table_card import TableCard

RETENTION: Final = ("expire_partitions", "expire_tags", "expire_snapshots", "expire_changelogs", "trash")
"""The actions that retention is made of, in their order."""


def _asked_for(store: TableStore, action: str) -> bool:
    """Whether the table's options ask for ``action``: partitions grow old where they say when."""
    if action != "expire_partitions":
        return True
    return bool(store.schema.partition_keys) and store.options.get("partition.expiration-time") is not None


def expire_op(card: TableCard, layout: dg.AssetKey) -> dg.OpDefinition:
    """Return the op that applies the table's own retention; a blocked table keeps everything."""

    @dg.op(
        name=names.op_name("expire", card.name),
        description=f"Drop old partitions, expire old tags, snapshots and changelogs of {card.name} (files go to the trash), then delete what the trash held long enough.",
        out=dg.Out(dg.Nothing),
        pool=names.table_pool(card.name),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def expire(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> None:
        reason = card.refusal or blocking_failure(context.instance, layout)
        if reason is not None:
            context.log.info(f"{card.name}: nothing expires: {reason}")
            return
        store, lines = warehouse.store(card.name), []
        told: dict[str, dg.MetadataValue] = {}
        for action in (name for name in RETENTION if _asked_for(store, name)):
            try:
                plan = plan_maintenance(store, action)
                report = apply_plan(store, plan, approved_by=f"dagster run {context.run_id}")
            except DredgeError as error:
                raise dg.Failure(f"{card.name}: {action}: {type(error).__name__}: {error}") from error
            lines += report.lines(card.name)
            told |= number_metadata(report.numbers(), f"{action}: ")
            told |= {
                f"{action}: {title}": dg.MetadataValue.md(declined_table(items))
                for title, items in report.declined_lists().items()
                if items
            }
        for line in lines:
            context.log.info(f"{card.name}: {line}")
        context.log_event(dg.AssetObservation(layout, description="; ".join(lines), metadata=told))

    return expire
