"""Which tables must rest: a failed blocking check stops further maintenance until it passes again."""

from __future__ import annotations

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES

from orchestration import names

_LOOK_BACK = 50


def latest_evaluation(instance: dg.DagsterInstance, layout: dg.AssetKey, check: str) -> dg.AssetCheckEvaluation | None:
    """Return the newest evaluation of a check of a layout without partitions, None before the first."""
    records = instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(layout, check), limit=1, status=set(COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES)
    )
    return records[0].evaluation if records else None


def blocking_failure(instance: dg.DagsterInstance, layout: dg.AssetKey, partition: str | None = None) -> str | None:
    """Return why the partition (``None``: any part of the table) may not be touched, None when it may.

    Only the newest evaluation counts, also where it is one under the layout's former key: execute the check again once the table
    is repaired, and the block ends.
    """
    for name in (names.MERGED_VIEW_CHECK, names.TREE_CHECK):
        records = [
            record
            for key in (layout, names.former_layout_key(layout))
            for record in instance.event_log_storage.get_asset_check_execution_history(
                dg.AssetCheckKey(key, name),
                limit=_LOOK_BACK if partition is None else 1,
                status=set(COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES),
                partition_filter=PartitionKeyFilter(key=partition) if partition is not None else None,
            )
        ]
        seen: set[str | None] = set()
        for record in records:
            if record.partition in seen:
                continue
            seen.add(record.partition)
            evaluation = record.evaluation
            if evaluation is not None and not evaluation.passed and evaluation.severity == dg.AssetCheckSeverity.ERROR:
                where = f" of {record.partition}" if record.partition else ""
                return f"blocked: {name}{where} failed: {evaluation.description or 'see its metadata'}"
    return None
