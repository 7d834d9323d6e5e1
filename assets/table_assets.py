"""The two assets of every table: its data, which writers commit, and its layout, which maintenance materialises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import dagster as dg

from dredge.platform_core import names
from dredge.platform_core.dagster_internals import allow_early_features
from dredge.platform_core.metadata import plain_cell, table_metadata, terms_table
from dredge.platform_core.partitions import partitions_definition
from dredge.platform_core.table_card import TableCard

with allow_early_features():  # Dagster calls backfill policies beta
    _BACKFILL: Final = dg.BackfillPolicy.multi_run(max_partitions_per_run=31)
    """A backfill of a month takes one or two runs, each with one plan over its partitions, and one commit."""


def data_asset(
    card: TableCard, warehouse_names: names.WarehouseNames, references: Mapping[str, Any] | None = None
) -> dg.AssetSpec:
    """Return the data asset of one table, which sensors materialise after each commit of a writer.

    The data version is the newest APPEND or OVERWRITE snapshot, so that a compaction triggers no downstream asset.

    Args:
        card: description of the table.
        warehouse_names: names of the warehouse.
        references: metadata with code references, or None for none.
    """
    database, _ = names.split(card.name)
    return dg.AssetSpec(
        warehouse_names.data_key(card.name),
        description=_describe_data(card),
        metadata={**table_metadata(card), **(references or {})},
        group_name=warehouse_names.definition(names.part(database)),
        owners=[names.OWNER],
        kinds={"paimon", "parquet"},
        tags={"dredge/table": names.tag_value(card.name)},
        partitions_def=partitions_definition(card, warehouse_names),
    )


def _describe_data(card: TableCard) -> str:
    """Return the description at the top of the asset page."""
    kind = (
        "append-only table" if card.append_only else f"primary-key table ({plain_cell(', '.join(card.primary_keys))})"
    )
    parted = f", partitioned by {plain_cell(', '.join(card.partition_keys))}" if card.partitioned else ""
    paragraphs = [f"{plain_cell(card.name)}: {kind}{parted}."]
    if card.unreadable:
        paragraphs = [f"{plain_cell(card.name)} cannot be opened: {plain_cell(str(card.refusal))}."]
    elif card.refusal:
        paragraphs.append(f"Dredge reads its metadata but does not maintain it: {plain_cell(card.refusal)}.")
    if card.comment:
        paragraphs.append(plain_cell(card.comment))
    return "\n\n".join(paragraphs)


def layout_asset(
    card: TableCard,
    warehouse_names: names.WarehouseNames,
    graph: dg.GraphDefinition,
    references: Mapping[str, Any] | None = None,
) -> dg.AssetsDefinition:
    """Return the layout asset of one table; materialising it merges all files that can be merged.

    Args:
        card: description of the table.
        warehouse_names: names of the warehouse in Dagster.
        graph: ops that materialise the layout.
        references: metadata with code references, or None for none.
    """
    key = warehouse_names.layout_key(card.name)
    data = warehouse_names.data_key(card.name)
    database, _ = names.split(card.name)
    description = (
        f"Layout of {plain_cell(card.name)}: maintenance declines: {plain_cell(card.refusal)}."
        if card.refusal
        else f"File layout of {plain_cell(card.name)}. Materialize it to run a full compaction now; "
        f"{_describe_upkeep(card)} "
        "A compaction never changes the rows that readers see; the blocking check merged_view_unchanged verifies that."
    )

    location = {"dagster/uri": card.root} if card.root else {}
    spec = dg.AssetSpec(
        key,
        deps=[data],
        description=description,
        partitions_def=partitions_definition(card, warehouse_names),
        group_name=warehouse_names.definition(names.part(database)),
        owners=[names.OWNER],
        kinds={"dredge", "spark"},
        tags={"dredge/table": names.tag_value(card.name)},
        metadata={names.TABLE_NAME: card.name, **location, "terms": terms_table(), **(references or {})},
    )
    return dg.AssetsDefinition(
        keys_by_input_name={"data": data},
        keys_by_output_name={"result": key},
        node_def=graph,
        specs=[spec],
        backfill_policy=_BACKFILL if card.partitioned else None,
    )


def _describe_upkeep(card: TableCard) -> str:
    """Describe who compacts the table automatically."""
    if card.writers_may_compact:
        return (
            "its writers compact it by themselves after their commits, because it is not write-only. Sensors watch "
            "that they do, "
            "and start a run only when the writers fall behind, are silent, or do not compact at all."
        )
    return "sensors start compactions by the table's own rules when sorted runs pile up."
