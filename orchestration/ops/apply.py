"""Apply: run the plan on Spark, publish one commit, and answer with numbers; a retry replans from the newest snapshot."""

from __future__ import annotations

from typing import Final

import dagster as dg

from lsm_core.errors import CommitConflict, CommitUnknown, DredgeError, LockTimeout, PlanStale, SparkFailed, StorageFull
from lsm_core.maintenance import CompactionReport, MaintenancePlan, apply_plan
from lsm_core.maintenance.plan import PLAN_PROPERTY
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.metadata import report_metadata
from orchestration.model import TableCard
from orchestration.ops.payload import partition_of, report_to_json, say, settings_of
from orchestration.ops.plan import PLAN_CONFIG, plan_partition
from orchestration.quirks import typed
from orchestration.resources.spark import SparkResource
from orchestration.resources.warehouse import WarehouseResource

PASSING: Final = (CommitConflict, CommitUnknown, LockTimeout, PlanStale, SparkFailed, StorageFull)
"""Errors that a second look at the table may cure; everything else stays an error however often it is tried."""
RETRIES: Final = 2


def apply_op(card: TableCard) -> dg.OpDefinition:
    """Return the op that carries a plan out, one at a time per table (its pool)."""

    @dg.op(
        name=names.op_name("apply", card.name),
        description=f"Merge what the plan names in {card.name} on Spark, verify it in flight (V0, V1, V2) and publish one commit.",
        config_schema=PLAN_CONFIG,
        out=dg.Out(str),
        pool=names.table_pool(card.name),
        retry_policy=dg.RetryPolicy(max_retries=RETRIES, delay=1),
        tags={"dagster/kind/spark": ""},
    )
    @typed
    def apply(context: dg.OpExecutionContext, plan: str, warehouse: WarehouseResource, spark: SparkResource) -> str:
        chosen = MaintenancePlan.from_json(plan)
        if not chosen.items:
            return report_to_json(CompactionReport(None, chosen.base_snapshot, chosen.hash, declined=chosen.declined))
        store = warehouse.store(card.name)
        if context.retry_number:
            found = _published_by(store, chosen)
            if found is not None:
                say(context, f"try {context.retry_number + 1}: it did happen, as snapshot {found.snapshot_id}")
                context.add_output_metadata(report_metadata(found))
                return report_to_json(found)
            chosen = plan_partition(store, partition_of(context), full=bool(settings_of(context)["full"]))
            say(
                context,
                f"try {context.retry_number + 1}: replanned over snapshot {chosen.base_snapshot} as {chosen.hash}",
            )
        report = _carry_out(context, store, chosen, spark)
        context.add_output_metadata(report_metadata(report))
        return report_to_json(report)

    return apply


def _carry_out(
    context: dg.OpExecutionContext, store: TableStore, plan: MaintenancePlan, spark: SparkResource
) -> CompactionReport:
    try:
        report = apply_plan(store, plan, runner=spark.bucket_runner(), approved_by=f"dagster run {context.run_id}")
    except CommitUnknown as error:
        found = _published_by(store, plan)
        if found is None:
            raise
        say(context, f"{error}: it did happen, as snapshot {found.snapshot_id}")
        return found
    except PASSING as error:
        say(context, f"{type(error).__name__}: {error}")
        raise
    except DredgeError as error:
        raise dg.Failure(f"{store.name}: {type(error).__name__}: {error}", allow_retries=False) from error
    if not isinstance(report, CompactionReport):
        raise dg.Failure(f"{store.name}: plan {plan.hash} is no compaction but {plan.action}", allow_retries=False)
    if report.snapshot_id is None and report.stale and context.retry_number < RETRIES:
        raise dg.RetryRequested(max_retries=RETRIES, seconds_to_wait=1)
    say(
        context,
        f"snapshot {report.snapshot_id}: {report.runs_before} -> {report.runs_after} sorted runs, "
        f"{report.files_in} -> {report.files_out} files, {report.rows_in:,} -> {report.rows_out:,} rows in {report.seconds:.2f} s",
    )
    return report


def _published_by(store: TableStore, plan: MaintenancePlan) -> CompactionReport | None:
    """Look whether an unknown commit is in the table after all (its snapshot names the plan): then it must be verified."""
    for snapshot in reversed(list(snapshots.iterate(store))):
        if plan.base_snapshot is not None and snapshot.id <= plan.base_snapshot:
            return None
        if (snapshot.properties or {}).get(PLAN_PROPERTY) == plan.hash:
            return CompactionReport(snapshot.id, plan.base_snapshot, plan.hash, commits=1)
    return None
