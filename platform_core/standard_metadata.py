"""Metadata of events under the keys that Dagster's UI, OpenLineage and DataHub read: location, rows, columns, lineage.

OpenLineage's listener reads ``uri`` and ``dagster/column_schema`` from events, not from definitions.
"""

from __future__ import annotations

import hashlib
from typing import Final

import dagster as dg

from dredge.platform_core.health import TableHealth
from dredge.platform_core.table_card import TableCard
from lsm_core.metadata.store import TableStore

COLUMNS: Final = "columns"
"""Metadata key of an observation of data for `columns_text`, by which a later change is detected."""
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


def columns_text(card: TableCard) -> str:
    """Return the number of columns and a hash of names, types and comments, which differs after each change."""
    content = repr([(column.name, column.type, column.description) for column in card.columns])
    return f"{len(card.columns)}, {hashlib.sha256(content.encode()).hexdigest()[:8]}"


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


def lineage_metadata(card: TableCard, data: dg.AssetKey) -> dict[str, dg.MetadataValue]:
    """Return the lineage of a layout, if it has at most 500 columns: each comes from the same column of the data.

    Args:
        card: description of the table.
        data: key of the data asset.
    """
    if not 0 < len(card.columns) <= _MOST_COLUMNS:
        return {}
    deps = {column.name: [dg.TableColumnDep(data, column.name)] for column in card.columns}
    return {"dagster/column_lineage": dg.MetadataValue.column_lineage(dg.TableColumnLineage(deps_by_column=deps))}


def layout_metadata(card: TableCard, data: dg.AssetKey, events: int = 1) -> dict[str, dg.MetadataValue]:
    """Return location, columns and lineage of a layout, for the materialisations of a run.

    Args:
        card: description of the table.
        data: key of the data asset.
        events: number of events that store the metadata; columns and lineage are left out if they would be large.
    """
    small = len(card.columns) * events <= _MOST_COLUMNS
    return {
        **location_metadata(card.root),
        **({**schema_metadata(card), **lineage_metadata(card, data)} if small else {}),
    }


def columns_observation(card: TableCard, data: dg.AssetKey, description: str) -> dg.AssetObservation:
    """Return the observation of a data asset with the location and the columns of the table.

    In a run of the layout, DataHub takes it as the input of the step that materialises the layout.

    Args:
        card: description of the table.
        data: key of the data asset.
        description: reason of the observation, or what it is about.
    """
    columns = {COLUMNS: dg.MetadataValue.text(columns_text(card))}
    metadata = {**columns, **location_metadata(card.root), **schema_metadata(card)}
    return dg.AssetObservation(data, description, metadata=metadata)
