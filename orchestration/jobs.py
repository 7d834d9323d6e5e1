"""Jobs: one that maintains each table (its layout and the checks), one each for retention, expectations and the ranking; and their schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from orchestration import names
from orchestration.ops.retention_op import expire_op
from orchestration.resources.settings import Settings
from orchestration.resources.warehouse import WarehouseResource
from orchestration.table_card import TableCard

# One process a run: an op costs milliseconds, a process seconds.
_EXECUTOR: Final = dg.in_process_executor


def maintenance_job(card: TableCard, warehouse_path: str) -> UnresolvedAssetJobDefinition:
    """Return the job that materialises one table's layout and runs its blocking checks."""
    return dg.define_asset_job(
        name=names.job_name(card.name),
        selection=dg.AssetSelection.assets(names.layout_key(warehouse_path, card.name)),
        description=f"Maintain {card.name}: observe, plan, apply on Spark, verify, record; then the blocking checks.",
        tags={names.TAG_TABLE: card.name},
        executor_def=_EXECUTOR,
    )


def retention_job(cards: Sequence[TableCard], warehouse_path: str) -> dg.JobDefinition:
    """Return the job that expires snapshots and sweeps the trash of every table, one op a table."""
    ops = [expire_op(card, names.layout_key(warehouse_path, card.name)) for card in cards if not card.unreadable]

    @dg.graph(
        name=names.RETENTION_JOB,
        description="Expire old snapshots of every table, then delete what the trash held long enough.",
    )
    def retention() -> None:
        for op in ops:
            op()

    return retention.to_job(tags={names.TAG_ACTION: "expire"}, executor_def=_EXECUTOR)


def expectations_job(cards: Sequence[TableCard], warehouse_path: str) -> UnresolvedAssetJobDefinition:
    """Return the job that runs the great-expectations suites of all tables, in one process."""
    keys = [
        dg.AssetCheckKey(names.data_key(warehouse_path, card.name), names.SUITE_CHECK)
        for card in cards
        if card.refusal is None
    ]
    return dg.define_asset_job(
        name=names.EXPECTATIONS_JOB,
        selection=dg.AssetSelection.checks(*keys),
        description="Hold the data to its own rules: keys present and unique, NOT NULL columns without nulls.",
        tags={names.TAG_ACTION: "expectations"},
        executor_def=_EXECUTOR,
    )


def warehouse_health_job(warehouse_path: str) -> UnresolvedAssetJobDefinition:
    """Return the job that ranks all tables."""
    return dg.define_asset_job(
        name=names.WAREHOUSE_HEALTH,
        selection=dg.AssetSelection.assets(names.warehouse_health_key(warehouse_path)),
        description="Rank all tables: what hurts most, what comes next and when, what is declined and why.",
        tags={names.TAG_ACTION: "rank"},
        executor_def=_EXECUTOR,
    )


def job_schedule(job: Any, cron: str, settings: Settings, description: str) -> dg.ScheduleDefinition:
    """Return the schedule of ``job``, named after it; a replay in flight makes its tick skip and say so."""

    @dg.schedule(
        job=job,
        cron_schedule=cron,
        name=f"{job.name}_schedule",
        execution_timezone="UTC",
        description=description,
        default_status=dg.DefaultScheduleStatus.RUNNING if settings.schedules_on else dg.DefaultScheduleStatus.STOPPED,
    )
    def due(context: dg.ScheduleEvaluationContext, warehouse: WarehouseResource) -> dg.RunRequest | dg.SkipReason:
        replaying = warehouse.replaying()
        if replaying is not None:
            return dg.SkipReason(replaying)
        return dg.RunRequest(run_key=context.scheduled_execution_time.isoformat())

    return due
