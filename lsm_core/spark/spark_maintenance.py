"""Maintenance through Spark: a compaction is a task per bucket, or per piece of a big one, and one commit on the driver; expiry is metadata only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from lsm_core.commit import discard_on_failure
from lsm_core.compact import BucketResult, BucketTask, run_bucket_task
from lsm_core.compact.clustering import SortTask, task_from_bytes
from lsm_core.compact.pieces import cut_task, join, pieces_wanted, rewritten_bytes
from lsm_core.errors import UnsupportedFeature
from lsm_core.maintenance.action import MaintenancePlan, Runner
from lsm_core.maintenance.actions.assign_buckets.assigning import AssignTask
from lsm_core.maintenance.actions.compact.compaction import CompactionReport
from lsm_core.maintenance.actions.compact.planning import plan_compaction
from lsm_core.maintenance.actions.expire_snapshots.expiry import ExpiryReport, plan_expiry
from lsm_core.maintenance.apply import apply_plan
from lsm_core.maintenance.apply import dry_run as report_only
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata.store import TableStore
from lsm_core.read.key_range import KeyRange
from lsm_core.spark.spark_assign import assign_on_spark
from lsm_core.spark.spark_sort import shares_of, sort_on_spark
from lsm_core.spark.spark_tasks import raise_first, run_tasks, slots_of, store_of, this_executor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact_table(
    spark: SparkSession,
    table: Any,
    full: bool = False,
    *,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    buckets: Sequence[int] | None = None,
    order_by: Sequence[str] | None = None,
    strategy: str = "order",
) -> CompactionReport:
    """Plan from metadata, run every chosen bucket as one Spark task (a big one as several), verify (V0, V1, V2), publish one commit.

    Without ``full`` each bucket's strategy picks its unit, or says in ``declined`` why not. ``order_by`` sorts an append table without
    buckets along ``strategy`` ("order", "zorder", "hilbert"), large partitions with a task per range. Raises VerificationFailed, CorruptFile,
    CommitConflict, UnsupportedFeature, SparkFailed; nothing is committed then, and outputs of finished tasks are deleted.
    """
    store = store_of(table)
    plan = plan_compaction(store, full, partitions, buckets, None, order_by, strategy)
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
        waiting = [task for task in tasks if isinstance(task, AssignTask)]
        yield from assign_on_spark(spark, store, waiting)
        tasks = [task for task in tasks if not isinstance(task, AssignTask)]
        shares = [shares_of(store, task) if isinstance(task, SortTask) else 1 for task in tasks]
        yield from in_tasks(store, [task for task, count in zip(tasks, shares, strict=True) if count == 1])
        for task in tasks:
            if isinstance(task, SortTask) and shares_of(store, task) > 1:
                yield sort_on_spark(spark, store, task)

    def in_tasks(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
        pieces = _cut(spark, store, tasks)
        payloads = [piece.to_bytes() for parts in pieces for piece in parts]
        outcomes = run_tasks(
            spark, f"compacting table {store.name}", payloads, partial(_compact_bucket, store.to_json())
        )
        results = [BucketResult.from_bytes(outcome.answer) for outcome in outcomes if outcome.error is None]
        with discard_on_failure(store, [result.message for result in results]):
            raise_first(outcomes)
        ends = list(accumulate(map(len, pieces), initial=0))
        for number, (task, (start, end)) in enumerate(zip(tasks, pairwise(ends), strict=True)):
            # what it could not join is deleted; those handed out are the caller's
            with discard_on_failure(store, [result.message for result in results[ends[number + 1] :]]):
                joined = join(store, task, results[start:end])
            yield joined

    return run


def _cut(spark: SparkSession, store: TableStore, tasks: Sequence[BucketTask]) -> list[list[BucketTask]]:
    """The pieces of every task; keys of those that are cut are sampled by Spark tasks."""
    sizes = [rewritten_bytes(store, task) for task in tasks]
    counts = pieces_wanted(sizes, slots_of(spark), store.options.piece_size)
    chosen = [at for at, count in enumerate(counts) if count > 1]
    payloads = [b"%d\n%b" % (counts[at], tasks[at].to_bytes()) for at in chosen]
    outcomes = run_tasks(spark, f"cutting buckets of table {store.name}", payloads, partial(_bounds, store.to_json()))
    raise_first(outcomes)
    pieces = [[task] for task in tasks]
    for at, outcome in zip(chosen, outcomes, strict=True):
        bounds = [bytes.fromhex(text) for text in outcome.answer.decode().split()]
        if bounds:
            ranges = map(KeyRange, [None, *bounds], [*bounds, None])
            pieces[at] = [replace(tasks[at], piece=one) for one in ranges]
    return pieces


def _bounds(store_text: str, payload: bytes) -> bytes:
    """One Spark task: the keys at which a big bucket is cut (hex, one a word), none where cutting gains nothing."""
    count, _, task = payload.partition(b"\n")
    pieces = cut_task(TableStore.from_json(store_text), BucketTask.from_bytes(task), int(count))
    return b" ".join(piece.piece.low.hex().encode() for piece in pieces if piece.piece and piece.piece.low)


def _compact_bucket(store_text: str, payload: bytes) -> bytes:
    """One Spark task: rewrite or upgrade one bucket's unit, or rewrite a piece of it, judged by the scalar reference."""
    store, task = TableStore.from_json(store_text), task_from_bytes(payload)
    result = run_bucket_task(store, task, ReferenceJudge(), pipelined=task.piece is None)
    return result.written_by(this_executor()).to_bytes()


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

    ``older_than_ms`` is an epoch time. Files are recorded in the trash, or deleted at once with `dredge.delete-mode=direct`.
    Raises UnsupportedFeature, PlanStale, CorruptFile.
    """
    del spark  # reachability is a join over metadata: less work than starting a job
    store = store_of(table)
    plan = plan_expiry(
        store, retain_max=retain_max, retain_min=retain_min, older_than_ms=older_than_ms, max_deletes=max_deletes
    )
    if dry_run:
        report = report_only(plan)
        assert isinstance(report, ExpiryReport)
        return report
    done = apply_plan(store, plan)
    assert isinstance(done, ExpiryReport)
    return done


__all__ = ["apply_compaction", "compact_table", "expire_snapshots", "spark_runner"]
