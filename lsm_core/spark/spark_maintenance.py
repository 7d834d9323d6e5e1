"""Maintenance through Spark: a compaction is one job and one commit on the driver (or several, see `commit_every`), a rescale is one job; expiry
and orphan cleaning have tasks look at snapshots, list folders and delete files where there are very many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lsm_core.compact import BucketResult, BucketTask
from lsm_core.compact.clustering import SortTask
from lsm_core.errors import UnsupportedFeature
from lsm_core.maintenance.action import MaintenancePlan, TaskRunner
from lsm_core.maintenance.actions.assign_buckets.assigning import AssignTask
from lsm_core.maintenance.actions.compact.compaction import CompactionReport, CompactItem
from lsm_core.maintenance.actions.compact.planning import plan_compaction
from lsm_core.maintenance.actions.expire_snapshots.expiry import ExpiryReport, plan_expiry
from lsm_core.maintenance.actions.orphans.orphan_removal import OrphanReport, plan_orphans
from lsm_core.maintenance.actions.rescale.rescaling import RescaleReport, RescaleTask, plan_rescale
from lsm_core.maintenance.apply import apply_plan
from lsm_core.maintenance.apply import dry_run as report_only
from lsm_core.metadata.store import TableStore
from lsm_core.spark.compaction_job import Memory, Meter, Tell, compact_in_tasks, meter_of, named_job
from lsm_core.spark.spark_rebucket import rebucket_on_spark
from lsm_core.spark.spark_sort import shares_of, sort_on_spark
from lsm_core.spark.spark_tasks import raise_first, run_tasks, slots_of, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact_table(
    spark: SparkSession,
    table: Any,
    full: bool = False,
    *,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    buckets: Sequence[int] | None = None,
    where: str | None = None,
    order_by: Sequence[str] | None = None,
    strategy: str | None = None,
    commit_every: int | None = None,
    progress: Tell | None = None,
    executor_memory: int | None = None,
) -> CompactionReport:
    """Plan from metadata, run all chosen buckets as one Spark job (small ones share a task, a big one is several), verify (V0, V1, V2), publish
    one commit.

    Without ``full`` each bucket's strategy picks its unit, or says in ``declined`` why not. ``where`` chooses partitions by a condition on their
    columns ("dt >= '2024-01-01' AND h IN (1, 2)") in place of ``partitions``. ``order_by`` sorts an append table without
    buckets along ``strategy`` ("order", "zorder", "hilbert", "auto"), large partitions with a task per range; ``strategy`` alone sorts by option
    `clustering.columns`.

    ``commit_every``: a job and a commit for so many buckets, each kept whatever becomes of the others: buckets that failed are in the
    report's ``failed``, and its ``units`` tell what became of each. ``progress`` is called about once a second with a `JobProgress`.
    ``executor_memory``: bytes that the Python workers of an executor may take together (default: `spark.executor.pyspark.memory`, else nobody
    asks): tasks that would take more get smaller windows, or an executor alone, or are declined by name.

    Raises VerificationFailed, CorruptFile, CommitConflict, UnsupportedFeature, SparkFailed, InvalidFilter, InvalidOption; nothing is committed
    then (with ``commit_every``: of what failed), and what finished or killed tasks wrote is deleted.
    """
    store = store_of(table, spark)
    plan = plan_compaction(store, full, partitions, buckets, None, order_by, strategy, commit_every, where)
    return apply_compaction(spark, store, plan, progress=progress, executor_memory=executor_memory)


def apply_compaction(
    spark: SparkSession,
    table: Any,
    plan: MaintenancePlan,
    approved_by: str | None = None,
    *,
    progress: Tell | None = None,
    executor_memory: int | None = None,
) -> CompactionReport:
    """Apply a compaction plan as it stands, its tasks on Spark. Raises PlanStale and what `compact_table` raises."""
    runner = spark_runner(spark, progress=progress, executor_memory=executor_memory, plan=plan)
    report = apply_plan(store_of(table, spark), plan, runner, approved_by)
    if not isinstance(report, CompactionReport):
        raise UnsupportedFeature(f"a plan to {plan.action} as a compaction", plan.table)
    return report


def spark_runner(
    spark: SparkSession,
    *,
    progress: Tell | None = None,
    executor_memory: int | None = None,
    plan: MaintenancePlan | None = None,
) -> TaskRunner:
    """Return what does the work of plans on Spark, for `lsm_core.maintenance.apply_plan`: compaction tasks, and parts of other actions (`TaskRunner`).

    ``progress`` and ``executor_memory``: see `compact_table`; ``plan``: what progress is told of, over all its commits (None: of each alone).
    """
    memory = Memory.of(spark, executor_memory)
    meter: Meter | None = None
    if plan is not None:
        items = plan.items_of(CompactItem)
        files = [file for item in items for file in item.inputs]
        sizes = sum(file.size for file in files), sum(file.rows for file in files)
        meter = Meter(plan.table, progress, len(items), *sizes)

    return _SparkRunner(spark, memory, meter, progress)


@dataclass(frozen=True)
class _SparkRunner:
    """See `spark_runner`."""

    spark: SparkSession
    memory: Memory
    meter: Meter | None
    progress: Tell | None

    def slots(self) -> int:
        """See TaskRunner."""
        return slots_of(self.spark)

    def run_parts(self, title: str, work: Callable[[bytes], bytes], parts: Sequence[bytes]) -> list[bytes]:
        """See TaskRunner."""
        with named_job(self.spark, f"{title}: {len(parts):,} parts"):
            outcomes = run_tasks(self.spark, title, parts, work)
        raise_first(outcomes)
        return [outcome.answer for outcome in outcomes]

    def __call__(self, store: TableStore, tasks: Sequence[BucketTask], /) -> Iterator[BucketResult]:
        """See Runner."""
        spark = self.spark
        for kind in (AssignTask, RescaleTask):
            yield from rebucket_on_spark(spark, store, [task for task in tasks if isinstance(task, kind)])
        tasks = [task for task in tasks if not isinstance(task, AssignTask | RescaleTask)]
        shares = [shares_of(store, task) if isinstance(task, SortTask) else 1 for task in tasks]
        single = [task for task, count in zip(tasks, shares, strict=True) if count == 1]
        meter = self.meter or meter_of(store, single, self.progress)
        yield from compact_in_tasks(spark, store, single, self.memory, meter)
        for task in tasks:
            if isinstance(task, SortTask) and shares_of(store, task) > 1:
                yield sort_on_spark(spark, store, task)


def remove_orphan_files(
    spark: SparkSession,
    table: Any,
    *,
    older_than_ms: int | None = None,
    max_share: int | None = None,
    dry_run: bool = False,
) -> OrphanReport:
    """Remove files that nothing names, last changed before ``older_than_ms`` (epoch ms; default: 24 hours ago), as `Table.remove_orphan_files` does;
    ``dry_run`` only reports.

    Of a table of many folders tasks list them, and say which files nothing names: the driver sees those, and counts of the others. In direct
    mode tasks delete many files. The report is that of one process. Raises PlanRefused with the rule that forbids it, InvalidOption, CorruptFile,
    UnsupportedFeature, SparkFailed.
    """
    store, runner = store_of(table, spark), spark_runner(spark)
    plan = plan_orphans(store, older_than_ms, max_share, runner=runner)
    report = report_only(plan) if dry_run else apply_plan(store, plan, runner)
    assert isinstance(report, OrphanReport)
    return report


def rescale_table(
    spark: SparkSession,
    table: Any,
    bucket_num: int | None = None,
    *,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    where: str | None = None,
) -> RescaleReport:
    """Rewrite whole partitions with ``bucket_num`` buckets (None: the table's option `bucket`) as one Spark job, verify them (V1), and replace
    them in one OVERWRITE commit; the report is that of one process.

    ``partitions`` and ``where`` choose as in `compact_table`. Raises PlanStale, CommitConflict, VerificationFailed, UnsupportedFeature, InvalidOption,
    InvalidFilter, CorruptFile, SparkFailed; nothing is committed then, and what tasks wrote is deleted, also what killed workers began.
    """
    store = store_of(table, spark)
    report = apply_plan(store, plan_rescale(store, bucket_num, partitions, where=where), spark_runner(spark))
    assert isinstance(report, RescaleReport)
    return report


def expire_snapshots(
    spark: SparkSession,
    table: Any,
    *,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than_ms: int | None = None,
    max_deletes: int | None = None,
    dry_run: bool = False,
) -> ExpiryReport:
    """Expire snapshots of ``table`` by the format's rules (None: the table's options); ``dry_run`` only reports.

    ``older_than_ms`` is an epoch time. Files are recorded in the trash, or deleted at once with `dredge.delete-mode=direct`. Where very many
    snapshots are to be looked at, or files deleted, tasks do; the report is that of one process.
    Raises UnsupportedFeature, PlanStale, CorruptFile, SparkFailed.
    """
    store, runner = store_of(table, spark), spark_runner(spark)
    plan = plan_expiry(
        store,
        retain_max=retain_max,
        retain_min=retain_min,
        older_than_ms=older_than_ms,
        max_deletes=max_deletes,
        runner=runner,
    )
    if dry_run:
        report = report_only(plan)
        assert isinstance(report, ExpiryReport)
        return report
    done = apply_plan(store, plan, runner)
    assert isinstance(done, ExpiryReport)
    return done


__all__ = [
    "apply_compaction",
    "compact_table",
    "expire_snapshots",
    "remove_orphan_files",
    "rescale_table",
    "spark_runner",
]
