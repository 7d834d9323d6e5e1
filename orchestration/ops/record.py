"""Record: materialise the layout asset with what changed: numbers that plot, levels before and after, links to the story."""

from __future__ import annotations

import dagster as dg

from lsm_core.maintenance import CompactionReport
from orchestration import names
from orchestration.metadata import level_diagram, look_metadata, report_metadata
from orchestration.model import Look, TableCard
from orchestration.ops.payload import Verdict, partition_of, report_from_json
from orchestration.partitions import look_at
from orchestration.quirks import early_features, typed
from orchestration.resources.warehouse import WarehouseResource


def record_op(card: TableCard) -> dg.OpDefinition:
    """Return the op whose output is the table's layout asset."""

    @dg.op(
        name=names.op_name("record", card.name),
        description=f"Write down what maintenance did to {card.name}: health before and after, rows, bytes and how it was verified.",
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def record(
        context: dg.OpExecutionContext, look: str, report: str, verdict: str, warehouse: WarehouseResource
    ) -> dg.Output[None]:
        done, checked = report_from_json(report), Verdict.from_json(verdict)
        before = Look.from_json(look)
        after = (
            before
            if card.refusal is not None
            else look_at(warehouse.store(card.name)).of_partition(partition_of(context))
        )
        metadata = {
            **look_metadata(after),
            **_story(context, before, after, done, checked),
            **(report_metadata(done) if done.snapshot_id is not None else {}),
        }
        version = dg.DataVersion(str(after.snapshot)) if after.snapshot is not None else None
        with early_features():  # data_version of an output is beta
            return dg.Output(None, metadata=metadata, data_version=version)

    return record


def _story(
    context: dg.OpExecutionContext, before: Look, after: Look, done: CompactionReport, checked: Verdict
) -> dict[str, dg.MetadataValue]:
    tags = context.run.tags
    told: dict[str, dg.MetadataValue] = {
        "action": dg.MetadataValue.text("compacted" if done.snapshot_id is not None else "nothing to do"),
        "why": dg.MetadataValue.text(tags.get(names.TAG_REASON) or _why_not(done) or "asked for by a person"),
        "plan": dg.MetadataValue.text(done.plan_hash),
        "compared": dg.MetadataValue.text(f"{checked.level}: {checked.text}"),
        "run": dg.MetadataValue.dagster_run(context.run_id),
    }
    if done.snapshot_id is not None:
        told |= {
            "snapshot before": dg.MetadataValue.int(done.snapshot_id - 1),
            "snapshot published": dg.MetadataValue.int(done.snapshot_id),
            "levels": dg.MetadataValue.md(level_diagram(before, after)),
        }
    if done.declined:
        lines = [f"- `{item.subject}`: {item.text}" for item in done.declined[:20]]
        told["left alone"] = dg.MetadataValue.md("\n".join(lines))
    return told


def _why_not(done: CompactionReport) -> str:
    return "" if done.snapshot_id is not None else "; ".join(item.text for item in done.declined[:3])
