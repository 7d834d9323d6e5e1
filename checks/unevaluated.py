"""Results of checks that a failed run planned and never evaluated; Dagster would show these checks as failed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import dagster as dg

from dredge.platform_core import names
from dredge.platform_core.dagster_internals import report_evaluation_of_run
from dredge.platform_core.obstacles import read_applying_record
from lsm_core.clock import utc_text

_MOST_EVENTS: Final = 10_000
_EVALUATED_LATER: Final = "not evaluated"
"""Metadata key of a result that an earlier evaluation made, for the reason and the time of that evaluation."""


def report_unevaluated(
    instance: dg.DagsterInstance,
    warehouse_names: names.WarehouseNames,
    run: dg.DagsterRun,
    assets: Collection[dg.AssetKey],
) -> list[dg.AssetCheckKey]:
    """Give each check that a failed run did not evaluate a result, so that Dagster does not show it as failed.

    The result repeats the newest evaluation, so a failed blocking check still blocks. A check without an earlier
    evaluation warns. If the run published a snapshot, merged_view_unchanged warns that the snapshot is not compared
    yet, unless its newest evaluation failed.

    Args:
        instance: Dagster instance.
        warehouse_names: names of the warehouse in Dagster.
        run: the failed run.
        assets: the assets whose checks get results.

    Returns:
        The checks that got a result, once for each partition.
    """
    reported = []
    for check, partition in _find_unevaluated(instance, run.run_id):
        if check.asset_key not in assets:
            continue
        report_evaluation_of_run(instance, run, _evaluation_for(instance, warehouse_names, run, check, partition))
        reported.append(check)
    return reported


def _find_unevaluated(instance: dg.DagsterInstance, run_id: str) -> Iterator[tuple[dg.AssetCheckKey, str | None]]:
    """Yield the checks of a run, with a partition or None, that were planned and have no evaluation."""
    types = {dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED, dg.DagsterEventType.ASSET_CHECK_EVALUATION}
    records = instance.get_records_for_run(run_id, of_type=types, limit=_MOST_EVENTS).records
    planned: dict[tuple[dg.AssetCheckKey, str | None], None] = {}
    for record in records:
        event = record.event_log_entry.dagster_event
        data: Any = None if event is None else event.event_specific_data
        if isinstance(data, dg.AssetCheckEvaluation):
            planned.pop((data.asset_check_key, data.partition), None)
        elif data is not None:  # planned
            subset = data.partitions_subset
            for partition in subset.get_partition_keys() if subset is not None else [None]:
                planned[data.asset_check_key, partition] = None
    yield from planned


def _evaluation_for(
    instance: dg.DagsterInstance,
    warehouse_names: names.WarehouseNames,
    run: dg.DagsterRun,
    check: dg.AssetCheckKey,
    partition: str | None,
) -> dg.AssetCheckEvaluation:
    """Return the evaluation to report for a check that a failed run did not evaluate.

    It repeats the newest evaluation. It is a warning if there is none, or if the run published a snapshot that
    merged_view_unchanged has not compared yet.

    Args:
        instance: Dagster instance.
        warehouse_names: names of the warehouse in Dagster.
        run: the failed run.
        check: key of the check.
        partition: partition of the check, or None.
    """
    name = check.name
    failed = f"run {run.run_id[:8]} failed before this check"
    earlier = read_applying_record(instance, check, partition)
    evaluation = None if earlier is None else earlier.evaluation
    published = _published_snapshot(warehouse_names, run.tags) if name == names.MERGED_VIEW_CHECK else None
    metadata: Mapping[str, dg.MetadataValue] = {} if evaluation is None else evaluation.metadata
    if published is not None and (evaluation is None or evaluation.passed):
        passed, severity = False, dg.AssetCheckSeverity.WARN
        text = f"snapshot {published} is not compared yet: {failed}; execute this check"
    elif earlier is None or evaluation is None:
        passed, severity = False, dg.AssetCheckSeverity.WARN
        text = f"not evaluated yet: {failed}; execute this check, or repeat the run"
    else:
        passed, severity, text = evaluation.passed, evaluation.severity, evaluation.description or ""
        evaluated_ms = int((earlier.event.timestamp if earlier.event else earlier.create_timestamp) * 1000)
        since = metadata.get(_EVALUATED_LATER)
        note = f"{failed}: this is the result of {utc_text(evaluated_ms)} UTC"
        metadata = {**metadata, _EVALUATED_LATER: since or dg.MetadataValue.text(note)}
    return dg.AssetCheckEvaluation(
        check.asset_key, name, passed, metadata, severity=severity, description=text, partition=partition
    )


def _published_snapshot(warehouse_names: names.WarehouseNames, tags: Mapping[str, str]) -> str | None:
    """Return the id of the snapshot that a run published in its table, or None."""
    table = warehouse_names.table_of(tags)
    number = None if table is None else tags.get(names.published_tag(table))
    return number if number is not None and number.isdecimal() else None


def names_of(checks: Collection[dg.AssetCheckKey]) -> str:
    """Return the names of checks, each once, for a log line."""
    return ", ".join(dict.fromkeys(check.name for check in checks))
