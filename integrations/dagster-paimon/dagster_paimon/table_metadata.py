"""Metadata of tables under the names that Dagster's catalog, OpenLineage and DataHub know."""

from __future__ import annotations

from typing import Any

import dagster as dg

from lsm_core import Table
from lsm_core.format.snapshot import Snapshot
from lsm_core.types import to_sql


def table_metadata(table: Table) -> dict[str, Any]:
    """Return the metadata of a table for an asset.

    Args:
        table: the table.

    Returns:
        Values of `dagster/column_schema`, `dagster/table_name`, `dagster/uri` and `dagster/storage_kind`.
    """
    keys = set(table.primary_keys)
    columns = [
        dg.TableColumn(
            field.name,
            to_sql(field.type),
            description=field.description or None,
            constraints=dg.TableColumnConstraints(
                nullable=field.type.nullable, unique=field.name in keys and len(keys) == 1
            ),
        )
        for field in table.schema.fields
    ]
    return {
        "dagster/column_schema": dg.TableSchema(columns),
        "dagster/table_name": table.name,
        "dagster/uri": table.store.root,
        "dagster/storage_kind": "paimon",
    }


def snapshot_metadata(table: Table, before: Snapshot | None, partitioned: bool) -> dict[str, Any]:
    """Return the metadata of a table after a write.

    Args:
        table: the table, opened after the write.
        before: newest snapshot before the write, None for an empty table.
        partitioned: whether the asset has partitions; then the rows of the whole table are no figure of the run.

    Returns:
        The metadata of :func:`table_metadata`, the id of the newest snapshot, and the number of rows in the table's
        files (for a table with a primary key, versions that are not yet merged count too).
    """
    latest = table.latest_snapshot()
    metadata = table_metadata(table)
    if latest is None:
        return metadata
    metadata["paimon/snapshot_id"] = latest.id
    records = latest.total_record_count
    if table.primary_keys:
        metadata["paimon/records_in_files"] = records
    elif not partitioned:
        metadata["dagster/row_count"] = records
    if before is not None and before.id == latest.id:
        metadata["paimon/unchanged"] = True
    return metadata
