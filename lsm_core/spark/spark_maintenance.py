"""Maintenance of tables on Spark.

A compaction is one job and one commit on the driver (or several, see `commit_every`), and a rescale is one job. Expiry
and orphan removal use tasks for very many snapshots, folders or files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from lsm_core.compact import BucketResult, BucketTask
from lsm_core.compact.task import SortTask
from lsm_core.errors import UnsupportedFeature
from lsm_core.maintenance.action import MaintenancePlan, TaskRunner, find_action
from lsm_core.maintenance.actions.assign_buckets import AssignTask
from lsm_core.maintenance.actions.compact.compaction import CompactionReport, CompactItem
from lsm_core.maintenance.actions.compact.planning import plan_compaction
from lsm_core.maintenance.actions.expire_snapshots import ExpiryReport, plan_expiry
from lsm_core.maintenance.actions.orphans.orphan_removal import OrphanReport, plan_orphans
from lsm_core.maintenance.actions.rescale import RescaleReport, RescaleTask, plan_rescale
from lsm_core.maintenance.apply import apply_plan
from lsm_core.maintenance.apply import dry_run as report_only
from lsm_core.metadata.store import TableStore
from lsm_core.spark.compaction_job import Memory, Meter, Tell, compact_in_tasks, meter_of, name_job
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
    """Compact buckets of a table in one Spark job, verify the new files and publish them in one commit.

    The plan is made from metadata. Small buckets share a task, and a large bucket is divided among several tasks. After
    an error nothing is committed (with ``commit_every``: nothing of the failed job), and all files that finished or
    killed tasks wrote are deleted. The verification compares row counts (V0), reads the new files back (V1), and merges
    sampled keys again with a row-by-row reference (V2).

    Args:
        spark: The session that compacts.
        table: A `Table`, or the name of a table ("db.t").
        full: Rewrite each bucket completely. If false, the compaction strategy selects the files of each bucket;
            ``declined`` of the report lists the buckets without a compaction, with the reason.
        partitions: The partitions to compact, each as column values; None for all.
        buckets: The bucket numbers to compact; None for all.
        where: A condition on partition columns ("dt >= '2024-01-01' AND h IN (1, 2)"), in place of ``partitions``.
        order_by: Columns to sort an append table without buckets by; large partitions use a task per range.
        strategy: Curve of the sort: "order", "zorder", "hilbert" or "auto". Without ``order_by``, the option
            `clustering.columns` names the columns.
        commit_every: Number of buckets per job and commit; a failed job does not undo the commits of other jobs. The
            report lists failed buckets in ``failed`` and the outcome of each commit in ``units``.
        progress: Function that is called about once a second with a `JobProgress`; None for no progress.
        executor_memory: Bytes that all Python workers of an executor may use together; None for
            `spark.executor.pyspark.memory`, or no limit if this setting is absent. Tasks that need more memory
            merge fewer rows at once or run alone on an executor, or are listed in ``declined``.

    Raises:
        VerificationFailed: The new files do not hold the rows of the old ones.
        CorruptFile: A file of the table is missing or damaged.
        CommitConflict: Another commit changed the same files.
        UnsupportedFeature: The table or the arguments cannot be compacted this way.
        SparkFailed: The Spark job failed.
        InvalidFilter: ``where`` is not a condition on partition columns.
        InvalidOption: An argument or an option of the table is invalid.
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
    """Apply a compaction plan unchanged, with its tasks on Spark.

    Args:
        spark: The session that compacts.
        table: A `Table`, or the name of a table ("db.t").
        plan: The plan.
        approved_by: Approver of the plan, for the ledger; None without one.
        progress: Function that is called about once a second with a `JobProgress`; None for no progress.
        executor_memory: Bytes that all Python workers of an executor may use together; None for
            `spark.executor.pyspark.memory`.

    Raises:
        PlanStale: The table has changed since the plan was made.
        UnsupportedFeature: The plan is not a compaction; nothing was done. Other errors are those of `compact_table`.
    """
    if not issubclass(find_action(plan.action, plan.table).work.report, CompactionReport):
        raise UnsupportedFeature(f"a plan to {plan.action} as a compaction", plan.table)
    runner = spark_runner(spark, progress=progress, executor_memory=executor_memory, plan=plan)
    return cast("CompactionReport", apply_plan(store_of(table, spark), plan, runner, approved_by))


def spark_runner(
    spark: SparkSession,
    *,
    progress: Tell | None = None,
    executor_memory: int | None = None,
    plan: MaintenancePlan | None = None,
) -> TaskRunner:
    """Return a runner that executes the tasks of maintenance plans on Spark, for `lsm_core.maintenance.apply_plan`.

    The runner executes the tasks of compactions, and the parts into which other actions divide their work
    (`TaskRunner.run_parts`).

    Args:
        spark: The session that runs the tasks.
        progress: Function that is called about once a second with a `JobProgress`; None for no progress.
        executor_memory: Bytes that all Python workers of an executor may use together; None for
            `spark.executor.pyspark.memory`.
        plan: The plan whose total (over all commits) is 100 % of the progress; None to report each commit separately.
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
    """Runner that executes the tasks of maintenance plans on Spark.

    Attributes:
        spark: The session that runs the tasks.
        memory: Memory limit of the Python workers.
        meter: Meter of the progress of a whole plan; None to report each commit separately.
        progress: Function that receives the progress; None for no progress.
    """

    spark: SparkSession
    memory: Memory
    meter: Meter | None
    progress: Tell | None

    def slots(self) -> int:
        """Return the number of Spark tasks that run at once."""
        return slots_of(self.spark)

    def run_parts(self, title: str, work: Callable[[bytes], bytes], parts: Sequence[bytes]) -> list[bytes]:
        """Run ``work`` on each of ``parts`` in one Spark job, and return the results in the order of the parts.

        Raises the error of the first part that failed. ``title`` names the work in errors and in Spark's UI.
        """
        with name_job(self.spark, f"{title}: {len(parts):,} parts"):
            outcomes = run_tasks(self.spark, title, parts, work)
        raise_first(outcomes)
        return [outcome.answer for outcome in outcomes]

    def __call__(self, store: TableStore, tasks: Sequence[BucketTask], /) -> Iterator[BucketResult]:
        """Run the bucket tasks of a plan for table ``store`` on Spark, and yield their results as tasks finish."""
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
    """Move files that no metadata references (orphans) to the trash.

    If the table has many folders, tasks list the folders and find the orphans; the driver receives only the orphans and
    the counts of all other files. With `dredge.delete-mode=direct`, tasks delete large numbers of files. The report
    equals the report of a single process.

    Args:
        spark: The session that lists and deletes.
        table: A `Table`, or the name of a table ("db.t").
        older_than_ms: Remove only files last modified before this epoch time in milliseconds; None for 24 hours ago.
        max_share: Maximum percentage of the files, or bytes, that may be removed; None for 20.
        dry_run: Report only, and remove nothing.

    Raises:
        PlanRefused: A safety rule forbids the removal; the error names the rule.
        InvalidOption: An argument or an option of the table is invalid.
        CorruptFile: A metadata file is missing or damaged.
        UnsupportedFeature: The table has a feature that Dredge does not support here.
        SparkFailed: The Spark job failed.
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
    """Rewrite partitions with a new number of buckets in one Spark job, and replace them in one OVERWRITE commit.

    Before the commit, the new files are read back and compared with the old rows. After an error nothing is committed,
    and all files that tasks wrote are deleted, including unfinished files of killed workers. The report equals the
    report of a single process.

    Args:
        spark: The session that rewrites.
        table: A `Table`, or the name of a table ("db.t").
        bucket_num: The new number of buckets; None for the table's option `bucket`.
        partitions: The partitions to rewrite, each as column values; None for all.
        where: A condition on partition columns ("dt >= '2024-01-01'"), in place of ``partitions``.

    Raises:
        PlanStale: The table has changed since the plan was made.
        CommitConflict: Another commit changed the same partitions.
        VerificationFailed: The new files do not hold the rows of the old ones.
        UnsupportedFeature: The table cannot be rescaled.
        InvalidOption: An argument or an option of the table is invalid.
        InvalidFilter: ``where`` is not a condition on partition columns.
        CorruptFile: A file of the table is missing or damaged.
        SparkFailed: The Spark job failed.
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
    """Expire snapshots of a table by Paimon's rules.

    Files are recorded in the trash, or deleted at once with `dredge.delete-mode=direct`. Tasks read snapshots and
    delete files if the numbers are very large. The report equals the report of a single process.

    Args:
        spark: The session that expires.
        table: A `Table`, or the name of a table ("db.t").
        retain_max: Maximum number of snapshots to keep; None for the table's option.
        retain_min: Minimum number of snapshots to keep; None for the table's option.
        older_than_ms: Expire snapshots older than this epoch time in milliseconds; None for the table's option.
        max_deletes: Maximum number of snapshots to expire; None for the table's option.
        dry_run: Report only, and expire nothing.

    Raises:
        UnsupportedFeature: The table has a feature that Dredge does not support here.
        PlanStale: The table has changed since the plan was made.
        CorruptFile: A metadata file is missing or damaged.
        SparkFailed: The Spark job failed.
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
