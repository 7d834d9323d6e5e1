"""Compaction on Spark: one task per bucket, data read and written by the tasks, one commit on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lsm_core.commit import abort
from lsm_core.compact import BucketResult, BucketTask, run_bucket_task
from lsm_core.errors import UnsupportedFeature
from lsm_core.maintenance.actions.compact import Runner, plan_compaction
from lsm_core.maintenance.apply import apply_plan
from lsm_core.maintenance.plan import MaintenancePlan
from lsm_core.maintenance.reports import CompactionReport
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata.store import TableStore
from lsm_core.spark.jobs import run_tasks, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact_table(
    spark: SparkSession,
    table: Any,
    full: bool = False,
    *,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    buckets: Sequence[int] | None = None,
) -> CompactionReport:
    """Plan from metadata, run every chosen bucket as one Spark task, verify (V0, V1, V2) and publish all as one commit.

    Without ``full`` each bucket's strategy picks its unit, or says in ``declined`` why not. Raises VerificationFailed, CorruptFile,
    CommitConflict, UnsupportedFeature, SparkFailed; nothing is committed then, and outputs of finished tasks are deleted.
    """
    store = store_of(table)
    plan = plan_compaction(store, full=full, partitions=partitions, buckets=buckets)
    return apply_compaction(spark, store, plan)


def apply_compaction(
    spark: SparkSession, table: Any, plan: MaintenancePlan, approved_by: str | None = None
) -> CompactionReport:
    """Apply a compaction plan as it stands, its tasks on Spark. Raises PlanStale and what `compact_table` raises."""
    report = apply_plan(store_of(table), plan, spark_runner(spark), approved_by)
    if not isinstance(report, CompactionReport):
        raise UnsupportedFeature(f"a plan to {plan.action} as a compaction", plan.table)
    return report


def spark_runner(spark: SparkSession) -> Runner:
    """Return what executes a plan's bucket tasks on Spark, for `lsm_core.maintenance.apply_plan`."""

    def run(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
        work = partial(_compact_bucket, store.to_json())
        outcomes = run_tasks(spark, f"compacting table {store.name}", [task.to_bytes() for task in tasks], work)
        results = [BucketResult.from_bytes(outcome.answer) for outcome in outcomes if outcome.error is None]
        failed = next((outcome.error for outcome in outcomes if outcome.error is not None), None)
        if failed is not None:
            abort(store, [result.message for result in results])
            raise failed
        yield from results

    return run


def _compact_bucket(store_text: str, payload: bytes) -> bytes:
    """One Spark task: rewrite or upgrade one bucket's unit, judged by the scalar reference."""
    store = TableStore.from_json(store_text)
    return run_bucket_task(store, BucketTask.from_bytes(payload), ReferenceJudge()).to_bytes()


__all__ = ["apply_compaction", "compact_table", "spark_runner"]
