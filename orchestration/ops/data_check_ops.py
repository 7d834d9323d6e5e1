"""Ops of the jobs that check the data of tables: all checks of all tables, and every page of one table."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import dagster as dg
from pydantic import Field

from checks.data_checks import data_result, declarations_of
from checks.definition import apply_severity, evaluation_of, limits_of, report_result, result_of
from lsm_core.maintenance import PAGES_CHECK, DeepRead, run_check
from orchestration.ops.table_loop import process_tables
from orchestration.ops.table_ops import fail_in_one_line
from platform_core import names
from platform_core.dagster_internals import resolve_annotations
from platform_core.policies import policy_source
from platform_core.resources.spark_resource import SparkResource
from platform_core.resources.warehouse import WarehouseResource, describe_warehouse
from platform_core.table_card import TableCard


@dg.op(
    name="check_data",
    description=(
        "Run all checks of all tables' data that are not switched off, in bounded samples, "
        "and report the results to the data assets."
    ),
    out=dg.Out(dg.Nothing),
    tags={"dagster/kind/dredge": ""},
)
@resolve_annotations
def data_checks_op(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
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

    process_tables(
        context, {card.name: card for card in describe_warehouse(warehouse) if card.refusal is None}, evaluate
    )


class DeepCheckConfig(dg.Config):
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
        config_schema=DeepCheckConfig.to_fields_dict(),
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/dredge": ""},
        pool=names.SPARK_POOL,
    )
    @resolve_annotations
    def read_every_page(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
        config = DeepCheckConfig(**context.op_config)
        context.instance.add_run_tags(context.run_id, {names.TAG_ACTION: names.DEEP_CHECK_JOB})
        with fail_in_one_line(config.table):
            card = warehouse.card(config.table)
            policy = policy_source(warehouse.policy_file).current().of(config.table)
            limits = replace(limits_of(policy), deep=_deep_read(spark, config.bytes))
            report = run_check(warehouse.store(config.table), PAGES_CHECK, limits)
        result = apply_severity(result_of(report), policy)
        evaluation = evaluation_of(names.data_key(warehouse.path, card.name), result)
        context.log_event(evaluation)  # type: ignore[arg-type]  # Dagster's type omits evaluations
        report_result(context, config.table, result)

    return read_every_page


def _deep_read(spark: SparkResource, limit: int | None) -> DeepRead:
    """Return how a deep check reads files: with Spark tasks if the platform uses Spark, else in the run's process."""
    if not spark.uses_spark:
        return DeepRead(bytes=limit)
    from lsm_core.spark import deep_read

    return deep_read(spark.session(), limit)
