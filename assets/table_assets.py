"""The two assets of every table: the data (which writers make) and its layout (what maintenance materialises)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from orchestration import names
from orchestration.metadata import table_metadata
from orchestration.ops.layout_ops import PLAN_CONFIG, apply_op, observe_op, plan_op, record_op, verify_op
from orchestration.partitions import partitions_definition
from orchestration.table_card import TableCard


def data_asset(card: TableCard, warehouse_path: str) -> dg.AssetSpec:
    """Return the data asset of one table: sensors report each commit of a writer as its materialisation.

    Its data version is the newest APPEND or OVERWRITE snapshot, so that no compaction re-runs what hangs on it.
    """
    database, _ = names.split(card.name)
    return dg.AssetSpec(
        names.data_key(warehouse_path, card.name),
        description=_describe_data(card),
        metadata=table_metadata(card),
        group_name=names.part(database),
        owners=[names.OWNER],
        kinds={"paimon", "parquet"},
        tags={"dredge/table": names.tag_value(card.name)},
        partitions_def=partitions_definition(card),
    )


def _describe_data(card: TableCard) -> str:
    """Return what the asset page says first."""
    kind = "append-only table" if card.append_only else f"primary-key table ({', '.join(card.primary_keys)})"
    parted = f", partitioned by {', '.join(card.partition_keys)}" if card.partitioned else ""
    told = [f"{card.name}: {kind}{parted}."]
    if card.unreadable:
        told = [f"{card.name} cannot be opened: {card.refusal}."]
    elif card.refusal:
        told.append(f"Dredge reads its metadata and leaves its files alone: {card.refusal}.")
    if card.comment:
        told.append(card.comment)
    return "\n\n".join(told)


def layout_asset(card: TableCard, warehouse_path: str) -> dg.AssetsDefinition:
    """Return the layout asset of one table: materialise it to merge what there is to merge, all of it."""
    key = names.layout_key(warehouse_path, card.name)
    data = names.data_key(warehouse_path, card.name)
    database, _ = names.split(card.name)
    observe = observe_op(card).alias("observe")
    plan = plan_op(card).alias("plan")
    apply = apply_op(card).alias("apply")
    verify = verify_op(card, key).alias("verify")
    record = record_op(card).alias("record")
    description = (
        f"Layout of {card.name}: maintenance declines: {card.refusal}."
        if card.refusal
        else f"Layout of {card.name}: how its rows lie in files. Materialize it to merge all that there is to merge now; sensors do it by "
        "the table's own rules when sorted runs pile up. A compaction never changes what the table says, and the blocking check merged_view_unchanged proves it."
    )

    @dg.graph_asset(
        key=key,
        ins={"data": dg.AssetIn(key=data, dagster_type=dg.Nothing)},
        config=dg.ConfigMapping(config_schema=PLAN_CONFIG, config_fn=_spread),
        description=description,
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
