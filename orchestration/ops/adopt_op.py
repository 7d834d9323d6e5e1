"""Op of the job `adopt_warehouse`: it opens every table of a new warehouse, checks the LSM tree and lists due work.

The op changes no table.
"""

from __future__ import annotations

from typing import Final

import dagster as dg

from dredge.checks.definition import apply_severity, is_switched_off, report_evaluation
from dredge.orchestration.ops.common import TableFailed, job_op, process_tables
from dredge.platform_core import names
from dredge.platform_core.health import TableHealth, table_health
from dredge.platform_core.metadata import plain_cell
from dredge.platform_core.partitions import usable_keys
from dredge.platform_core.policies import policy_source
from dredge.platform_core.resources.warehouse import WarehouseResource, describe_warehouse
from dredge.platform_core.table_card import TableCard, count_text
from lsm_core.maintenance.checks.metadata_validity import inspect_tree
from lsm_core.maintenance.table_ranking import need_of

_SHOWN: Final = 500


@job_op(
    "adopt_tables",
    "Open every table, add its partitions to Dagster, check its tree of files, and list what it needs. "
    "Nothing is changed.",
)
def adopt_op(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> None:
    """Read every maintained table, add its partitions to Dagster and evaluate the check `tree_is_valid`.

    Tables that maintenance does not touch are listed with the reason.

    Raises:
        dg.Failure: at the end, if a table could not be read or its tree is invalid.
    """
    troubles: list[str] = []
    cards = describe_warehouse(warehouse, troubles)
    for line in troubles:
        context.log.warning(line)
    rows: list[str] = []

    def adopt(card: TableCard) -> None:
        if card.refusal is not None:
            context.log.info("%s: left alone: %s", card.name, card.refusal)
            rows.append(f"| {plain_cell(card.name)} | left alone | {plain_cell(card.refusal)} |")
            return
        rows.append(_adopt_table(context, warehouse, card))

    try:
        process_tables(context, {card.name: card for card in cards}, adopt)
    finally:
        header = ["| table | files | needs |", "|---|---|---|"]
        more = f"\n\nand {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        listed = "\n".join([*header, *rows[:_SHOWN]]) + more if rows else "the warehouse has no tables yet"
        context.add_output_metadata({"tables": dg.MetadataValue.md(listed), "tables read": len(rows)})


def _adopt_table(context: dg.OpExecutionContext, warehouse: WarehouseResource, card: TableCard) -> str:
    """Check one table, report to Dagster, and return a Markdown row. Raises TableFailed for an invalid tree."""
    store = warehouse.store(card.name)
    health = table_health(store)
    buckets, files, broken = inspect_tree(store, None)
    valid_text = f"{files} files in {buckets} buckets form a valid tree"
    tree_text = f"{count_text(len(broken), 'broken invariant')}: {broken[0]}" if broken else valid_text
    policy, layout = (
        policy_source(*warehouse.policy_place).current().of(card.name),
        warehouse.names.layout_key(card.name),
    )
    for partition in _add_partitions(context, warehouse, card, health):
        if not is_switched_off(policy, names.TREE_CHECK):
            # A valid partition is maintained even if other partitions are not valid.
            violations = [violation for violation in broken if partition is None or violation.partition == partition]
            passing_text = f"those of {partition} form a valid tree" if broken else valid_text
            result = dg.AssetCheckResult(
                check_name=names.TREE_CHECK,
                passed=not violations,
                description=f"{count_text(len(violations), 'broken invariant')}: {violations[0]}"
                if violations
                else passing_text,
                metadata={"found by": names.ADOPT_JOB},
            )
            report_evaluation(context, layout, apply_severity(result, policy), partition)
    need = need_of(card.name, health.buckets)
    context.log.info("%s: %s; score %g: %s", card.name, tree_text, need.score, need.costs_most)
    if broken:
        raise TableFailed(tree_text)
    return (
        f"| {plain_cell(card.name)} | {plain_cell(tree_text)} | score {need.score:g}: {plain_cell(need.costs_most)} |"
    )


def _add_partitions(
    context: dg.OpExecutionContext, warehouse: WarehouseResource, card: TableCard, health: TableHealth
) -> list[str | None]:
    """Add the table's partitions to Dagster and return their keys; [None] for a table without partitions."""
    if not card.partitioned:
        return [None]
    keys = usable_keys(sorted({*health.waiting, *(state.text for state in health.partitions)}))[0]
    context.instance.add_dynamic_partitions(warehouse.names.partitions_name(card.name), keys)
    return [*keys]
