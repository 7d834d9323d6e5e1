"""Plan: ask the engine what to merge; the plan is explained, hashed, and compared with the one that asked for the run."""

from __future__ import annotations

import dagster as dg

from lsm_core.maintenance import Declined, MaintenancePlan, plan_compaction
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.metadata import plan_metadata
from orchestration.model import Look, TableCard
from orchestration.ops.payload import partition_of, say, settings_of
from orchestration.partitions import partition_values_of
from orchestration.quirks import typed
from orchestration.resources.warehouse import WarehouseResource, refusal_of

PLAN_CONFIG = {
    "plan": dg.Field(str, default_value="", description="hash of the plan that a sensor saw; empty when a person asks"),
    "full": dg.Field(
        bool, default_value=False, description="merge everything into the last level, whatever the rules say"
    ),
}


def plan_op(card: TableCard) -> dg.OpDefinition:
    """Return the op that plans the compaction of ``card``'s table or one of its partitions."""

    @dg.op(
        name=names.op_name("plan", card.name),
        description=f"Decide what to merge in {card.name}, and say why; declined buckets come with their reason.",
        config_schema=PLAN_CONFIG,
        out=dg.Out(str),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def plan(context: dg.OpExecutionContext, look: str, warehouse: WarehouseResource) -> str:
        settings, partition = settings_of(context), partition_of(context)
        seen = Look.from_json(look)
        if (
            card.partitioned and partition is None and card.refusal is None
        ):  # Dagster could run no check over it afterwards
            raise dg.Failure(f"{card.name} is partitioned: choose a partition for the run", allow_retries=False)
        if card.unreadable:
            made = declined_plan(card.name, card.refusal or "it cannot be opened")
        else:
            made = plan_partition(warehouse.store(card.name), partition, full=bool(settings["full"]))
        expected = str(settings["plan"])
        if expected and expected != made.hash:
            say(
                context,
                f"the table moved on since plan {expected} (now snapshot {made.base_snapshot}): replanned as {made.hash}",
            )
        for item in made.compactions:
            say(context, f"{item.partition_text}/{item.bucket}: {item.reason} -> level {item.output_level}")
        for left in made.declined:
            say(context, f"{left.subject}: declined: {left.text}")
        say(
            context,
            f"plan {made.hash} over snapshot {made.base_snapshot} (seen: {seen.snapshot}): {len(made.items)} units",
        )
        context.add_output_metadata(plan_metadata(made))
        return made.to_json()

    return plan


def plan_partition(store: TableStore, partition: str | None, *, full: bool) -> MaintenancePlan:
    """Plan over the newest snapshot for one partition path (None: the whole table); an unsupported table is declined."""
    refusal = refusal_of(store)
    if refusal is not None:
        return declined_plan(store.name, refusal)
    if partition is None:
        return plan_compaction(store, full=full)
    values = partition_values_of(store, partition)
    if values is None:
        return declined_plan(store.name, f"partition {partition} holds no file any more", reason="empty")
    return plan_compaction(store, full=full, partitions=[values])


def declined_plan(table: str, text: str, reason: str = "unsupported") -> MaintenancePlan:
    """Return a plan that leaves the whole table alone, for one reason."""
    return MaintenancePlan("compact", table, None, declined=(Declined(table, reason, text),))
