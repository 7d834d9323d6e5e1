"""The table as data: an observed asset whose version is its newest APPEND or OVERWRITE, so no compaction re-runs a mart."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from orchestration import names
from orchestration.health import table_health
from orchestration.metadata import health_metadata, table_metadata
from orchestration.model import TableCard
from orchestration.partitions import partition_of, partitions_definition
from orchestration.quirks import early_features, typed
from orchestration.resources.warehouse import WarehouseResource


def data_asset(card: TableCard, warehouse_path: str) -> dg.AssetsDefinition:
    """Return the data asset of one table; "observe" in the UI looks at it now, sensors report it by themselves."""
    key = names.data_key(warehouse_path, card.name)
    database, _ = names.split(card.name)
    spec = dg.AssetSpec(
        key,
        description=describe(card),
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


def describe(card: TableCard) -> str:
    """Return what the asset page says first."""
    kind = "append-only table" if card.append_only else f"primary-key table ({', '.join(card.primary_keys)})"
    parted = f", partitioned by {', '.join(card.partition_keys)}" if card.partitioned else ""
    told = [f"**{card.name}**: {kind}{parted}."]
    if card.unreadable:
        told = [f"**{card.name}** cannot be opened: {card.refusal}."]
    elif card.refusal:
        told.append(f"Dredge reads its metadata and leaves its files alone: {card.refusal}.")
    if card.comment:
        told.append(card.comment)
    return "\n\n".join(told)
