"""The two assets of every table: the data (which writers make) and its layout (what maintenance materialises)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import dagster as dg

from orchestration import names
from orchestration.metadata import plain_cell, table_metadata
from orchestration.ops.layout_ops import PLAN_CONFIG, apply_op, observe_op, plan_op, record_op, verify_op
from orchestration.partitions import partitions_definition
from orchestration.quirks import TableAssets, early_features, named_graph
from orchestration.table_card import TableCard

with early_features():  # Dagster calls backfill policies beta
    _BACKFILL: Final = dg.BackfillPolicy.multi_run(max_partitions_per_run=31)
    """A backfill of an idle month is a run or two: a plan over all of its partitions, and one commit."""


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
    kind = (
        "append-only table" if card.append_only else f"primary-key table ({plain_cell(', '.join(card.primary_keys))})"
    )
    parted = f", partitioned by {plain_cell(', '.join(card.partition_keys))}" if card.partitioned else ""
    paragraphs = [f"{plain_cell(card.name)}: {kind}{parted}."]
    if card.unreadable:
        paragraphs = [f"{plain_cell(card.name)} cannot be opened: {plain_cell(str(card.refusal))}."]
    elif card.refusal:
        paragraphs.append(f"Dredge reads its metadata and leaves its files alone: {plain_cell(card.refusal)}.")
    if card.comment:
        paragraphs.append(plain_cell(card.comment))
    return "\n\n".join(paragraphs)


def layout_asset(card: TableCard, warehouse_path: str) -> dg.AssetsDefinition:
    """Return the layout asset of one table: materialise it to merge what there is to merge, all of it."""
    key = names.layout_key(warehouse_path, card.name)
    data = names.data_key(warehouse_path, card.name)
    database, _ = names.split(card.name)
    description = (
        f"Layout of {plain_cell(card.name)}: maintenance declines: {plain_cell(card.refusal)}."
        if card.refusal
        else f"Layout of {plain_cell(card.name)}: how its rows lie in files. Materialize it to merge all that there is to merge now; sensors do it by "
        "the table's own rules when sorted runs pile up. A compaction never changes what the table says, and the blocking check merged_view_unchanged proves it."
    )

    located = {"dagster/uri": card.root} if card.root else {}
    spec = dg.AssetSpec(
        key,
        deps=[data],
        description=description,
        partitions_def=partitions_definition(card),
        group_name=names.part(database),
        owners=[names.OWNER],
        kinds={"dredge", "spark"},
        tags={"dredge/table": names.tag_value(card.name)},
        metadata={names.TABLE_NAME: card.name, **located},
    )
    graph = layout_graph(card.name, names.node_name(warehouse_path, card.name))
    return TableAssets(
        keys_by_input_name={"data": data},
        keys_by_output_name={"result": key},
        node_def=graph,
        specs=[spec],
        backfill_policy=_BACKFILL if card.partitioned else None,
    )


def layout_graph(table: str, name: str) -> dg.GraphDefinition:
    """Return the five ops of one table's layout as a graph; only ``apply``, which has the table's pool, is its own."""
    return named_graph(_common_graph(), name, {_APPLY: apply_op(table)})


_APPLY: Final = "apply"


@cache
def _common_graph() -> dg.GraphDefinition:
    observe, plan, verify, record = (op.alias(op.name) for op in (observe_op(), plan_op(), verify_op(), record_op()))
    apply = apply_op("any.table").alias(_APPLY)

    @dg.graph(
        name="layout",
        ins={"data": dg.GraphIn()},
        config=dg.ConfigMapping(config_schema=PLAN_CONFIG, config_fn=_spread),
    )
    def layout(data: Any) -> Any:
        report = apply(plan(observe(data)))
        return record(report, verify(report))

    return layout


def _spread(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the launch config (names and hashes only) to the two ops that plan."""
    return {verb: {"config": dict(config)} for verb in ("plan", "apply")}
