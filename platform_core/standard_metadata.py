"""Metadata of events under the keys that Dagster's UI, OpenLineage and DataHub read: location, rows, columns, lineage.

OpenLineage's listener reads ``uri`` and ``dagster/column_schema`` from events, not from definitions.
"""

from __future__ import annotations

from typing import Final

import dagster as dg

from dredge.platform_core.health import TableHealth
from dredge.platform_core.table_card import TableCard
from lsm_core.metadata.store import TableStore

SCHEMA_ID: Final = "schema id"
"""Metadata key of a materialisation of data for the id of the table's schema at that time."""
_MOST_COLUMNS: Final = 500
"""Most columns of a table whose columns and lineage are stored with events; Dagster stores 200 bytes per column."""


def column_schema(card: TableCard) -> dg.TableSchema:
    """Return the columns of a table with SQL types, comments and constraints."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                column.type,
                description=column.description or None,
                constraints=dg.TableColumnConstraints(
                    nullable=column.nullable, other=["primary key"] if column.name in card.primary_keys else []
                ),
            )
            for column in card.columns
        ]
    )


def location_metadata(root: str) -> dict[str, dg.MetadataValue]:
    """Return the location of a table, for Dagster and for OpenLineage.

    Args:
        root: path or address of the table, or "" if it is unknown.
    """
    return {key: dg.MetadataValue.text(root) for key in ("dagster/uri", "uri")} if root else {}


def rows_metadata(store: TableStore, health: TableHealth, partition: str | None) -> dict[str, dg.MetadataValue]:
    """Return the number of rows that readers see, if metadata alone show it.

    Args:
        store: the table.
        health: health of the whole table.
        partition: path of the partition of the event, or None for an event of the whole table.
    """
    rows = {"dagster/row_count": visible_rows(store, health)}
    if partition is not None:
        rows["dagster/partition_row_count"] = visible_rows(store, health.of_partition(partition))
    return {key: dg.MetadataValue.int(count) for key, count in rows.items() if count is not None}


def visible_rows(store: TableStore, health: TableHealth) -> int | None:
    """Return the number of rows that a batch read returns, if it can be computed without a read.

    Args:
        store: the table.
        health: health of the table, or of some of its partitions.

    Returns:
        The number, or None if files have to be merged or rows filtered to count them.
    """
    options, buckets = store.options, health.buckets
    if options.get("data-evolution.enabled") or options.get("scan.fallback-branch") is not None:
        return None
    rows = sum(bucket.rows - bucket.deleted_rows for bucket in buckets)
    if not store.has_primary_key:
        return rows
    if options.get("record-level.expire-time") is not None:
        return None
    deletes = sum(bucket.deletes for bucket in buckets)
    if deletes and options.merge_engine != "deduplicate":  # a retraction of no row may leave a row
        return None
    merged = all(bucket.sorted_runs <= 1 and not bucket.hidden_rows for bucket in buckets)
    return rows - deletes if merged else None


def schema_metadata(card: TableCard) -> dict[str, dg.MetadataValue]:
    """Return the columns of a table; nothing if there are more than 500, which would make every event large."""
    if not 0 < len(card.columns) <= _MOST_COLUMNS:
        return {}
    return {"dagster/column_schema": dg.MetadataValue.table_schema(column_schema(card))}


def layout_metadata(card: TableCard, data: dg.AssetKey, events: int = 1) -> dict[str, dg.MetadataValue]:
    """Return location, columns and lineage of a layout: each column comes from the same column of the data.

    Args:
        card: description of the table.
        data: key of the data asset.
        events: number of events that store the metadata; columns and lineage are left out if they would be large.
    """
    entries = location_metadata(card.root)
    if not 0 < len(card.columns) * max(events, 1) <= _MOST_COLUMNS:
        return entries
    deps = {column.name: [dg.TableColumnDep(data, column.name)] for column in card.columns}
    lineage = dg.MetadataValue.column_lineage(dg.TableColumnLineage(deps_by_column=deps))
    return {**entries, **schema_metadata(card), "dagster/column_lineage": lineage}


def read_observation(card: TableCard, data: dg.AssetKey, snapshot: int | None) -> dg.AssetObservation:
    """Return the observation of the data that a run of the layout has read.

    DataHub takes it as the input of the step that materialises the layout, and OpenLineage its columns.

    Args:
        card: description of the table.
        data: key of the data asset.
        snapshot: snapshot after the run, or None without snapshots.
    """
    description = "read by maintenance" if snapshot is None else f"read by maintenance, snapshot {snapshot}"
    return dg.AssetObservation(data, description, metadata={**location_metadata(card.root), **schema_metadata(card)})
