"""Partitions of a table in Dagster: dynamic partitions whose keys are Paimon's partition paths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import dagster as dg

from dredge.platform_core import names
from dredge.platform_core.table_card import TableCard

_FORBIDDEN: Final = ("...", "\a", "\b", "\f", "\n", "\r", "\t", "\v", "\0")


def partitions_definition(
    card: TableCard, warehouse_names: names.WarehouseNames
) -> dg.DynamicPartitionsDefinition | None:
    """Return the table's dynamic partitions, or None if the table has no partition keys."""
    return dg.DynamicPartitionsDefinition(name=warehouse_names.partitions_name(card.name)) if card.partitioned else None


def usable_keys(keys: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split partition paths into paths that Dagster accepts as partition keys, and paths that Dagster refuses."""
    usable: list[str] = []
    refused: list[str] = []
    for key in keys:
        (refused if not key or any(part in key for part in _FORBIDDEN) else usable).append(key)
    return usable, refused


def partition_of(
    context: dg.OpExecutionContext | dg.AssetCheckExecutionContext | dg.AssetExecutionContext,
) -> str | None:
    """Return the partition key of the run, or None for a run without a partition or over a range of partitions."""
    return context.partition_key if context.has_partition_key else None


def partitions_of(context: dg.OpExecutionContext | dg.AssetCheckExecutionContext) -> tuple[str, ...]:
    """Return the partition keys of the run: several for a backfill, none for a run without partitions."""
    if context.has_partition_key:
        return (context.partition_key,)
    return tuple(context.partition_keys) if names.RANGE_TAG in context.run.tags else ()
