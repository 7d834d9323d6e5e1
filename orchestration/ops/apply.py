"""Apply: run the plan on Spark, publish one commit, and answer with numbers; a retry replans from the newest snapshot."""

from __future__ import annotations

from typing import Final

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CommitConflict, CommitUnknown, DredgeError, LockTimeout, PlanStale, SparkFailed, StorageFull
from lsm_core.maintenance import CompactionReport, MaintenancePlan, Verification, applied_before, apply_plan
from lsm_core.metadata import manifests, snapshots
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
                return _told(context, card, found)
            chosen = plan_partition(store, partition_of(context), full=bool(settings_of(context)["full"]))
            say(
                context,
                f"try {context.retry_number + 1}: replanned over snapshot {chosen.base_snapshot} as {chosen.hash}",
            )
        return _told(context, card, _carry_out(context, store, chosen, spark))

    return apply


def _told(context: dg.OpExecutionContext, card: TableCard, report: CompactionReport) -> str:
    """Return the report as JSON; what was published is written down with the run, where the check looks for it."""
    context.add_output_metadata(report_metadata(report))
    if report.snapshot_id is not None:
        context.instance.add_run_tags(context.run_id, {names.published_tag(card.name): str(report.snapshot_id)})
    return report_to_json(report)


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
    """Return the report of the snapshot that carried ``plan`` out though its commit's outcome was unknown; None: there is none.

    Its files, rows and bytes are those of the snapshot's own manifest entries. What only the interrupted application knew
    (rows dropped and why, keys compared, seconds) is lost, so the verification says V0.
    """
    applied = applied_before(store, plan)
    if applied is None or applied.snapshot_id is None:
        return None
    entries = manifests.delta_entries(store, snapshots.read(store, applied.snapshot_id))
    is_added = pc.equal(entries.column("kind"), 0)
    added, removed = entries.filter(is_added), entries.filter(pc.invert(is_added))
    # A file that only changes its level is removed and added under one name: it was not rewritten.
    moved = pc.is_in(removed.column("file_name"), added.column("file_name").combine_chunks())
    new = pc.invert(pc.is_in(added.column("file_name"), removed.column("file_name").combine_chunks()))
    read, written = removed.filter(pc.invert(moved)), added.filter(new)
    worst = max(plan.compactions, key=lambda item: item.runs_before, default=None)
    return CompactionReport(
        applied.snapshot_id,
        plan.base_snapshot,
        plan.hash,
        files_in=read.num_rows,
        files_out=written.num_rows,
        files_upgraded=removed.num_rows - read.num_rows,
        rows_in=_total(read, "row_count"),
        rows_out=_total(written, "row_count"),
        bytes_in=_total(read, "file_size"),
        bytes_out=_total(written, "file_size"),
        runs_before=worst.runs_before if worst else 0,
        runs_after=worst.runs_after if worst else 0,
        verification=Verification("V0", independence="the commit's outcome was unknown: found in the table afterwards"),
        declined=plan.declined,
        commits=1,
    )


def _total(entries: pa.Table, column: str) -> int:
    return int(pc.sum(entries.column(column)).as_py() or 0)
