"""The checks over a table's data, made at night and by hand: those of the engine that read rows or every snapshot, and great-expectations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import dagster as dg
from pydantic import Field

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
    show_verdict,
    switched_off,
    under_policy,
    wanted,
)
from checks.expectations import DESCRIPTION, suite_result
from lsm_core.maintenance import PAGES_CHECK, DeepRead, checks_of, run_check
from orchestration import names
from orchestration.ops.each_table import each_table
from orchestration.ops.table_ops import said_in_one_line
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


class DeepCheck(dg.Config):
    """Configuration of the job `deep_check`."""

    table: str = Field(description="the table: db.table")
    bytes: int | None = Field(
        None, description="stop after so many stored bytes; the next run resumes there. Without it: read all files"
    )


@cache
def deep_check_op() -> dg.OpDefinition:
    """Return the op that reads every page of a table's data files."""

    @dg.op(
        name="read_every_page",
        description="Read every page of a table's data files and compare its checksum; an interrupted run is resumed by the next one.",
        config_schema=DeepCheck.to_fields_dict(),
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/dredge": ""},
        pool=names.SPARK_POOL,
    )
    @typed
    def read_every_page(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
        config = DeepCheck(**context.op_config)
        context.instance.add_run_tags(context.run_id, {names.TAG_ACTION: names.DEEP_CHECK_JOB})
        with said_in_one_line(config.table):
            card = warehouse.card(config.table)
            policy = policy_source(warehouse.policy_file).current().of(config.table)
            limits = replace(limits_of(policy), deep=_deep_read(spark, config.bytes))
            report = run_check(warehouse.store(config.table), PAGES_CHECK, limits)
        result = under_policy(result_of(report), policy)
        evaluation = evaluation_of(names.data_key(warehouse.path, card.name), result)
        context.log_event(evaluation)  # type: ignore[arg-type]  # stored at once; Dagster's type leaves evaluations out
        show_verdict(context, config.table, result)

    return read_every_page


def _deep_read(spark: SparkResource, limit: int | None) -> DeepRead:
    """Return how a deep check reads files: by tasks of Spark where the platform runs on it, else in the run's process."""
    if not spark.uses_spark:
        return DeepRead(bytes=limit)
    from lsm_core.spark import deep_read

    return deep_read(spark.session(), limit)


__all__ = ["DeepCheck", "data_checks", "data_result", "deep_check_op", "rules_op"]
