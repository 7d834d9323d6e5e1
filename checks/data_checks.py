"""The checks over a table's data, made at night and by hand: those of the engine that read rows or every snapshot, and great-expectations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg

from checks.definition import (
    Declaration,
    checked_table,
    declare_together,
    declined,
    evaluation_of,
    is_off,
    limits_of,
    named,
    result_of,
    switched_off,
    under_policy,
    wanted,
)
from checks.expectations import DESCRIPTION, suite_result
from lsm_core.maintenance import checks_of, run_check
from orchestration import names
from orchestration.ops.each_table import each_table
from orchestration.policies import Policy, policy_source
from orchestration.quirks import typed
from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import WarehouseResource, describe_warehouse
from orchestration.table_card import TableCard


def data_checks(card: TableCard, data: dg.AssetKey, policy: Policy) -> dg.AssetChecksDefinition:
    """Return the checks over ``card``'s data asset, but those that the policy switches off; none is blocking: no run of ours makes the data."""
    return declare_together(card, data, "checks", declarations_of(card, policy), _check)


def declarations_of(card: TableCard, policy: Policy) -> Sequence[Declaration]:
    """Return what a table's data are checked for."""
    made = [
        Declaration(check.name, check.promise)
        for check in checks_of(card.primary_keys, card.options)
        if check.reads_rows
    ]
    made.append(Declaration(names.SUITE_CHECK, DESCRIPTION))
    return [one for one in made if not is_off(policy, one.name)] or made[-1:]


def _check(
    context: dg.AssetCheckExecutionContext, warehouse: WarehouseResource, spark: SparkResource
) -> Iterator[dg.AssetCheckResult]:
    card = checked_table(context, warehouse)
    policy = policy_source(warehouse.policy_file).current().of(card.name)
    for check in wanted(context)[1]:
        yield data_result(warehouse, spark, card, policy, check)


def data_result(
    warehouse: WarehouseResource, spark: SparkResource, card: TableCard, policy: Policy, check: str
) -> dg.AssetCheckResult:
    """Make one check of a table's data. Raises SuiteCrashed, and what opening the table raises."""
    if is_off(policy, check):
        return switched_off(policy, check)
    if card.refusal is not None:
        return declined(card, check)
    if check == names.SUITE_CHECK:
        session = spark if policy.expectations_on == "spark" and spark.uses_spark else None
        return under_policy(named(check, suite_result(warehouse, card, policy.expectations, session)), policy)
    return under_policy(result_of(run_check(warehouse.store(card.name), check, limits_of(policy))), policy)


@dg.op(
    name="hold_to_rules",
    description="Make every check of every table's data that is not switched off, in bounded samples, and tell the outcomes as the checks of the data assets.",
    out=dg.Out(dg.Nothing),
    tags={"dagster/kind/dredge": ""},
)
@typed
def rules_op(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
    """Check the data of all tables that maintenance looks after; a table whose checks fail to run stops no other.

    At the end the op fails and names the tables whose checks could not be made. A check that finds something is no failure of the run.
    """
    policies = policy_source(warehouse.policy_file).current()

    def evaluate(card: TableCard) -> None:
        policy, asset = policies.of(card.name), names.data_key(warehouse.path, card.name)
        for declaration in declarations_of(card, policy):
            result = data_result(warehouse, spark, card, policy, declaration.name)
            context.log.info("%s: %s: %s", card.name, declaration.name, result.description)
            context.log_event(evaluation_of(asset, result))  # type: ignore[arg-type]  # stored at once; Dagster's type leaves evaluations out

    each_table(context, {card.name: card for card in describe_warehouse(warehouse) if card.refusal is None}, evaluate)


__all__ = ["data_checks", "data_result", "rules_op"]
