"""The table's file layout: the asset that maintenance materialises, a graph of observe, plan, apply, verify and record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from orchestration import names
from orchestration.model import TableCard
from orchestration.ops.layout_ops import PLAN_CONFIG, apply_op, observe_op, plan_op, record_op, verify_op
from orchestration.partitions import partitions_definition


def layout_asset(card: TableCard, warehouse_path: str) -> dg.AssetsDefinition:
    """Return the layout asset of one table: materialise it to compact (set ``full: true`` to merge everything)."""
    key = names.layout_key(warehouse_path, card.name)
    data = names.data_key(warehouse_path, card.name)
    database, _ = names.split(card.name)
    observe = observe_op(card).alias("observe")
    plan = plan_op(card).alias("plan")
    apply = apply_op(card).alias("apply")
    verify = verify_op(card, key).alias("verify")
    record = record_op(card).alias("record")

    @dg.graph_asset(
        key=key,
        ins={"data": dg.AssetIn(key=data, dagster_type=dg.Nothing)},
        config=dg.ConfigMapping(config_schema=PLAN_CONFIG, config_fn=_spread),
        description=_describe(card),
        partitions_def=partitions_definition(card),
        group_name=names.part(database),
        owners=[names.OWNER],
        kinds={"dredge", "spark"},
        tags={"dredge/table": names.tag_value(card.name)},
        metadata={"dagster/uri": card.root} if card.root else None,
    )
    def layout(data: Any) -> Any:
        report = apply(plan(observe(data)))
        return record(report, verify(report))

    return layout


def _spread(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the launch config (names and hashes only) to the two ops that plan."""
    return {verb: {"config": dict(config)} for verb in ("plan", "apply")}


def _describe(card: TableCard) -> str:
    if card.refusal:
        return f"Layout of **{card.name}**: maintenance declines: {card.refusal}."
    return (
        f"Layout of **{card.name}**: how its rows lie in files. Sensors materialise it when sorted runs pile up; "
        "a compaction never changes what the table says, and the blocking check *merged_view_unchanged* proves it."
    )
