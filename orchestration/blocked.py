"""Which tables must rest: a failed blocking check stops further maintenance until it passes again, a run at work the next one."""

from __future__ import annotations

from typing import Final

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES

from orchestration import names

_LOOK_BACK = 50
PARTITION_TAG: Final = "dagster/partition"
_AT_WORK: Final = 100
_WORKING: Final = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


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


def run_at_work(
    instance: dg.DagsterInstance,
    table: str,
    layout: dg.AssetKey,
    partition: str | None = None,
    *,
    anywhere: bool = False,
) -> str | None:
    """Return the id of the newest run at work on the table's partition (``anywhere``: on any part of the table), None: there is none.

    Also of one that a person started and that has none of our tags.
    """
    tags: dict[str, str | list[str]] = {names.TAG_TABLE: table}
    if partition is not None:
        tags[PARTITION_TAG] = partition
    found = instance.get_runs(dg.RunsFilter(tags=tags, statuses=_WORKING), limit=1)
    if found:
        return found[0].run_id
    for run in instance.get_runs(dg.RunsFilter(statuses=_WORKING), limit=_AT_WORK):
        if layout in (run.asset_selection or ()) and (anywhere or run.tags.get(PARTITION_TAG) == partition):
            return run.run_id
    return None
