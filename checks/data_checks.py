"""Checks of a table's data, run at night and by hand: those that read rows or all snapshots, and great-expectations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg

from checks.definition import (
    CheckDeclaration,
    apply_severity,
    card_of_checks,
    declare_together,
    is_switched_off,
    limits_of,
    result_of,
    selected_checks,
    switched_off_result,
    unmaintained_result,
)
from checks.expectations import DESCRIPTION, suite_result
from lsm_core.maintenance import checks_of, run_check
from platform_core import names
from platform_core.policies import Policy, policy_source
from platform_core.resources.spark_resource import SparkResource
from platform_core.resources.warehouse import WarehouseResource
from platform_core.table_card import TableCard


def data_checks(card: TableCard, data: dg.AssetKey, policy: Policy) -> dg.AssetChecksDefinition:
    """Return the checks of a table's data asset, except those that the policy switches off.

    No data check is blocking, because no run of the platform materialises the data.
    """
    return declare_together(card, data, "checks", declarations_of(card, policy), _check)


def declarations_of(card: TableCard, policy: Policy) -> Sequence[CheckDeclaration]:
    """Return the checks of a table's data that the policy does not switch off, or `expectations` if all are off."""
    declarations = [
        CheckDeclaration(check.name, check.promise)
        for check in checks_of(card.primary_keys, card.options)
        if check.reads_rows
    ]
    declarations.append(CheckDeclaration(names.SUITE_CHECK, DESCRIPTION))
    return [
        declaration for declaration in declarations if not is_switched_off(policy, declaration.name)
    ] or declarations[-1:]


def _check(
    context: dg.AssetCheckExecutionContext, warehouse: WarehouseResource, spark: SparkResource
) -> Iterator[dg.AssetCheckResult]:
    card = card_of_checks(context, warehouse)
    policy = policy_source(warehouse.policy_file).current().of(card.name)
    for check in selected_checks(context)[1]:
        yield data_result(warehouse, spark, card, policy, check)


def data_result(
    warehouse: WarehouseResource, spark: SparkResource, card: TableCard, policy: Policy, check: str
) -> dg.AssetCheckResult:
    """Run one check of a table's data.

    Args:
        warehouse: warehouse of the table.
        spark: Spark resource, used if the policy checks expectations on Spark.
        card: description of the table.
        policy: policy of the table.
        check: name of the check.

    Raises:
        SuiteCrashed: an expectation could not be evaluated.
        DredgeError: the table cannot be opened.
    """
    if is_switched_off(policy, check):
        return switched_off_result(policy, check)
    if card.refusal is not None:
        return unmaintained_result(card, check)
    if check == names.SUITE_CHECK:
        session = spark if policy.expectations_on == "spark" and spark.uses_spark else None
        return apply_severity(suite_result(warehouse, card, policy.expectations, session), policy, check)
    return apply_severity(result_of(run_check(warehouse.store(card.name), check, limits_of(policy))), policy)
