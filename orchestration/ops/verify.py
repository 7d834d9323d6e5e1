"""Verify: compare the published snapshot with the one before it, by reference and digests; a difference blocks the table."""

from __future__ import annotations

from typing import Final

import dagster as dg

from lsm_core.errors import DredgeError
from lsm_core.maintenance import verify_snapshots
from orchestration import names
from orchestration.model import TableCard, size_text
from orchestration.ops.payload import Verdict, partition_of, report_from_json, say
from orchestration.quirks import typed
from orchestration.resources.spark import SparkResource
from orchestration.resources.warehouse import WarehouseResource

LIMIT: Final = 256 * 1024 * 1024
"""Rewritten bytes above which this op leaves the comparison to the check merged_view_unchanged: twice would take too long."""


def verify_op(card: TableCard, layout: dg.AssetKey) -> dg.OpDefinition:
    """Return the op that looks once more at what was published."""

    @dg.op(
        name=names.op_name("verify", card.name),
        description=f"Prove that the merged rows of {card.name} are the same before and after, bucket by bucket.",
        out=dg.Out(str),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def verify(context: dg.OpExecutionContext, report: str, warehouse: WarehouseResource, spark: SparkResource) -> str:
        done = report_from_json(report)
        if done.snapshot_id is None:
            verdict = Verdict(ok=True, level="V0", text="nothing was published, so nothing could change")
        elif done.bytes_in > LIMIT:
            where = "on Spark" if spark.uses_spark else "in the run's own process"
            text = (
                f"{size_text(done.bytes_in)} rewritten: compared by the check {names.MERGED_VIEW_CHECK} alone, {where}"
            )
            verdict = Verdict(ok=True, level=done.verification.level, text=text)
        else:
            verdict = _compare(warehouse, card.name, done.snapshot_id)
        say(context, verdict.text)
        context.add_output_metadata({"level": verdict.level, "verdict": verdict.text})
        if not verdict.ok:
            block(context, layout, partition_of(context), verdict.text)
            raise dg.Failure(verdict.text, allow_retries=False)
        return verdict.to_json()

    return verify


def _compare(warehouse: WarehouseResource, table: str, snapshot: int) -> Verdict:
    try:
        found = verify_snapshots(warehouse.store(table), snapshot - 1, snapshot)
    except DredgeError as error:
        return Verdict(
            ok=False, level="V1", text=f"snapshots {snapshot - 1} and {snapshot} could not be compared: {error}"
        )
    text = (
        f"snapshots {snapshot - 1} and {snapshot}: {found.buckets} buckets, {found.by_reference} share their files, "
        f"{found.by_digest} compared by digest ({found.rows_a:,} rows)"
    )
    wrong = ", ".join(difference.bucket for difference in found.differences)
    return Verdict(found.ok, found.level, text if found.ok else f"{text}: DIFFERENT in {wrong}")


def block(context: dg.OpExecutionContext, layout: dg.AssetKey, partition: str | None, text: str) -> None:
    """Fail the blocking check from here: the run ends before the check itself could run, and the table must rest."""
    evaluation = dg.AssetCheckEvaluation(
        asset_key=layout,
        check_name=names.MERGED_VIEW_CHECK,
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=text,
        metadata={"found by": dg.MetadataValue.text("the verify op")},
        partition=partition,
    )
    context.log_event(evaluation)  # type: ignore[arg-type]  # stored at once; Dagster's type leaves evaluations out
