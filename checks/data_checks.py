"""Checks of a table's data, run at night and by hand: those that read rows or all snapshots, and great-expectations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import dagster as dg
from pydantic import Field

from checks.definition import (
    Declaration,
    card_of_checks,
    declare_together,
    evaluation_of,
    is_off,
    limits_of,
    rename_result,
    result_if_off,
    result_if_refused,
    result_of,
    selected_checks,
    show_verdict,
    under_policy,
)
from checks.expectations import DESCRIPTION, suite_result
from lsm_core.maintenance import PAGES_CHECK, DeepRead, checks_of, run_check
from orchestration import names
from orchestration.ops.each_table import each_table
from orchestration.ops.table_ops import fail_in_one_line
from orchestration.policies import Policy, policy_source
from orchestration.quirks import resolve_annotations
from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import WarehouseResource, describe_warehouse
from orchestration.table_card import TableCard


def data_checks(card: TableCard, data: dg.AssetKey, policy: Policy) -> dg.AssetChecksDefinition:
    """Return the checks of a table's data asset, except those that the policy switches off.

    None is blocking, because no run of the platform materialises the data.
    """
    return declare_together(card, data, "checks", declarations_of(card, policy), _check)


def declarations_of(card: TableCard, policy: Policy) -> Sequence[Declaration]:
    """Return the checks of a table's data."""
    declarations = [
        Declaration(check.name, check.promise)
        for check in checks_of(card.primary_keys, card.options)
        if check.reads_rows
    ]
    declarations.append(Declaration(names.SUITE_CHECK, DESCRIPTION))
    return [declaration for declaration in declarations if not is_off(policy, declaration.name)] or declarations[-1:]


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

    Raises:
        SuiteCrashed: an expectation could not be evaluated.
        DredgeError: the table cannot be opened.
    """
    if is_off(policy, check):
        return result_if_off(policy, check)
    if card.refusal is not None:
        return result_if_refused(card, check)
    if check == names.SUITE_CHECK:
        session = spark if policy.expectations_on == "spark" and spark.uses_spark else None
        return under_policy(rename_result(check, suite_result(warehouse, card, policy.expectations, session)), policy)
    return under_policy(result_of(run_check(warehouse.store(card.name), check, limits_of(policy))), policy)


@dg.op(
    name="hold_to_rules",
    description=(
        "Run all checks of all tables' data that are not switched off, in bounded samples, "
        "and report the results to the data assets."
    ),
    out=dg.Out(dg.Nothing),
    tags={"dagster/kind/dredge": ""},
)
@resolve_annotations
def rules_op(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
    """Check the data of all maintained tables; a table whose checks fail to run stops no other.

    At its end the op fails and names the tables whose checks could not run. A failed check does not fail the run.
    """
    policies = policy_source(warehouse.policy_file).current()

    def evaluate(card: TableCard) -> None:
        policy, asset = policies.of(card.name), names.data_key(warehouse.path, card.name)
        for declaration in declarations_of(card, policy):
            result = data_result(warehouse, spark, card, policy, declaration.name)
            context.log.info("%s: %s: %s", card.name, declaration.name, result.description)
            evaluation = evaluation_of(asset, result)
            context.log_event(evaluation)  # type: ignore[arg-type]  # Dagster's type omits evaluations

    each_table(context, {card.name: card for card in describe_warehouse(warehouse) if card.refusal is None}, evaluate)


class DeepCheck(dg.Config):
    """Configuration of the job `deep_check`."""

    table: str = Field(description="full name of the table: db.table")
    bytes: int | None = Field(
        None, description="stored bytes after which the run stops; the next run resumes there (default: all files)"
    )


@cache
def deep_check_op() -> dg.OpDefinition:
    """Return the op that reads every page of a table's data files."""

    @dg.op(
        name="read_every_page",
        description=(
            "Read every page of a table's data files and verify checksums. The next run resumes an interrupted one."
        ),
        config_schema=DeepCheck.to_fields_dict(),
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/dredge": ""},
        pool=names.SPARK_POOL,
    )
    @resolve_annotations
    def read_every_page(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
        config = DeepCheck(**context.op_config)
        context.instance.add_run_tags(context.run_id, {names.TAG_ACTION: names.DEEP_CHECK_JOB})
        with fail_in_one_line(config.table):
            card = warehouse.card(config.table)
            policy = policy_source(warehouse.policy_file).current().of(config.table)
            limits = replace(limits_of(policy), deep=_deep_read(spark, config.bytes))
            report = run_check(warehouse.store(config.table), PAGES_CHECK, limits)
        result = under_policy(result_of(report), policy)
        evaluation = evaluation_of(names.data_key(warehouse.path, card.name), result)
        context.log_event(evaluation)  # type: ignore[arg-type]  # Dagster's type omits evaluations
        show_verdict(context, config.table, result)

    return read_every_page


def _deep_read(spark: SparkResource, limit: int | None) -> DeepRead:
    """Return how a deep check reads files: with Spark tasks if the platform uses Spark, else in the run's process."""
    if not spark.uses_spark:
        return DeepRead(bytes=limit)
    from lsm_core.spark import deep_read

    return deep_read(spark.session(), limit)
