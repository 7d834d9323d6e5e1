"""Observe: look at a table's (or partition's) health before anything is planned; metadata only."""

from __future__ import annotations

import dagster as dg

from orchestration import names
from orchestration.metadata import look_metadata
from orchestration.model import Look, TableCard
from orchestration.ops.payload import partition_of, say
from orchestration.partitions import look_at
from orchestration.quirks import typed
from orchestration.resources.warehouse import WarehouseResource


def observe_op(card: TableCard) -> dg.OpDefinition:
    """Return the op that looks at ``card``'s table."""

    @dg.op(
        name=names.op_name("observe", card.name),
        description=f"Look at the health of {card.name}: sorted runs, files and bytes per bucket, from metadata only.",
        ins={"data": dg.In(dg.Nothing)},
        out=dg.Out(str),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def observe(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> str:
        partition = partition_of(context)
        if card.refusal is not None:
            say(context, f"{card.name}: left alone: {card.refusal}")
            return Look(card.name, None, None).to_json()
        look = look_at(warehouse.store(card.name)).of_partition(partition)
        context.add_output_metadata(look_metadata(look))
        for state in look.partitions():
            say(
                context,
                f"{card.name} {state.text or '(whole table)'}: {state.sorted_runs} sorted runs, {state.files} files",
            )
        return look.to_json()

    return observe
