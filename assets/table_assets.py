"""The two assets of every table: the data (observed) and its layout (what maintenance materialises)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from orchestration import names
from orchestration.health import table_health
from orchestration.metadata import health_metadata, table_metadata
from orchestration.ops.layout_ops import PLAN_CONFIG, apply_op, observe_op, plan_op, record_op, verify_op
from orchestration.partitions import partition_of, partitions_definition
from orchestration.quirks import early_features, typed
from orchestration.resources.warehouse import WarehouseResource
from orchestration.table_card import TableCard


def data_asset(card: TableCard, warehouse_path: str) -> dg.AssetsDefinition:
    """Return the data asset of one table: "observe" in the UI looks at it now, sensors report it by themselves.

    Its data version is the newest APPEND or OVERWRITE snapshot, so that no compaction re-runs what hangs on it.
    """
    key = names.data_key(warehouse_path, card.name)
    database, _ = names.split(card.name)
    spec = dg.AssetSpec(
        key,
        description=_describe_data(card),
        metadata=table_metadata(card),
        group_name=names.part(database),
        owners=[names.OWNER],
        kinds={"paimon", "parquet"},
        tags={"dredge/table": names.tag_value(card.name)},
        partitions_def=partitions_definition(card),
    )
    with early_features():  # beta; the stable decorator knows neither owners nor kinds

        @dg.multi_observable_source_asset(
            specs=[spec], name=names.op_name("look", card.name), partitions_def=spec.partitions_def
        )
        @typed
        def look(context: dg.AssetExecutionContext, warehouse: WarehouseResource) -> Iterator[dg.ObserveResult]:
            if card.unreadable:
                yield dg.ObserveResult(asset_key=key, metadata={"unreadable": card.refusal or ""})
                return
            seen = table_health(warehouse.store(card.name)).of_partition(partition_of(context))
            version = dg.DataVersion(str(seen.data_version)) if seen.data_version is not None else None
            yield dg.ObserveResult(asset_key=key, metadata=health_metadata(seen), data_version=version)

    made: dg.AssetsDefinition = look
    return made


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
