"""adopt_warehouse: the first look at a warehouse that others have written so far: every table is opened, its tree checked and its needs told; nothing is changed."""

from __future__ import annotations

from functools import cache
from typing import Final

import dagster as dg

from checks.definition import evaluation_of, is_off, under_policy
from checks.tree_invariants import inspect_tree
from lsm_core.maintenance.ranking import need_of
from orchestration import names
from orchestration.health import TableHealth, table_health
from orchestration.metadata import plain_cell
from orchestration.ops.each_table import TableFailed, each_table
from orchestration.partitions import usable_keys
from orchestration.policies import policy_source
from orchestration.quirks import typed
from orchestration.resources.warehouse import WarehouseResource, describe_warehouse
from orchestration.table_card import TableCard, count_text

_SHOWN: Final = 500


@cache
def adopt_op() -> dg.OpDefinition:
    """Return the op that looks at every table once and evaluates its first check."""

    @dg.op(
        name="look_at_warehouse",
        description="Open every table, add its partitions to Dagster, check that its files lie as they should, and say what it needs; nothing is changed.",
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def look_at_warehouse(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> None:
        troubles: list[str] = []
        cards = describe_warehouse(warehouse, troubles)
        for line in troubles:
            context.log.warning(line)
        rows: list[str] = []

        def look(card: TableCard) -> None:
            if card.refusal is not None:
                context.log.info("%s: left alone: %s", card.name, card.refusal)
                rows.append(f"| {plain_cell(card.name)} | left alone | {plain_cell(card.refusal)} |")
                return
            rows.append(_look(context, warehouse, card))

        try:
            each_table(context, {card.name: card for card in cards}, look)
        finally:
            head = ["| table | its files | what it needs |", "|---|---|---|"]
            more = f"\n\nand {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
            listed = "\n".join([*head, *rows[:_SHOWN]]) + more if rows else "the warehouse holds no table yet"
            context.add_output_metadata({"tables": dg.MetadataValue.md(listed), "looked at": len(rows)})

    return look_at_warehouse


def _look(context: dg.OpExecutionContext, warehouse: WarehouseResource, card: TableCard) -> str:
    """Look at one table, tell Dagster, and return its line. Raises TableFailed where its files do not lie as they should."""
    store = warehouse.store(card.name)
    health = table_health(store)
    buckets, files, broken = inspect_tree(store, None)
    fine = f"{files} files in {buckets} buckets lie as they should"
    told = f"{count_text(len(broken), 'broken invariant')}: {broken[0]}" if broken else fine
    policy, layout = (
        policy_source(warehouse.policy_file).current().of(card.name),
        names.layout_key(warehouse.path, card.name),
    )
    for partition in _partitions(context, card, health):
        if not is_off(policy, names.TREE_CHECK):
            # A partition that is sound goes on being maintained, whatever lies beside it.
            here = [one for one in broken if partition is None or one.partition == partition]
            others = f"those of {partition} lie as they should" if broken else fine
            found = dg.AssetCheckResult(
                check_name=names.TREE_CHECK,
                passed=not here,
                description=f"{count_text(len(here), 'broken invariant')}: {here[0]}" if here else others,
                metadata={"found by": names.ADOPT_JOB},
            )
            evaluation = evaluation_of(layout, under_policy(found, policy), partition)
            context.log_event(evaluation)  # type: ignore[arg-type]  # stored at once; Dagster's type leaves evaluations out
    need = need_of(card.name, health.buckets)
    context.log.info("%s: %s; score %g: %s", card.name, told, need.score, need.costs_most)
    if broken:
        raise TableFailed(told)
    return f"| {plain_cell(card.name)} | {plain_cell(told)} | score {need.score:g}: {plain_cell(need.costs_most)} |"


def _partitions(context: dg.OpExecutionContext, card: TableCard, health: TableHealth) -> list[str | None]:
    """Return the table's partitions, which Dagster knows from here on, [None] for a table without any."""
    if not card.partitioned:
        return [None]
    keys = usable_keys(sorted({*health.waiting, *(state.text for state in health.partitions)}))[0]
    context.instance.add_dynamic_partitions(names.partitions_name(card.name), keys)
    return [*keys]


__all__ = ["adopt_op"]
