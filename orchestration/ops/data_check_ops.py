"""Ops of the jobs that check the data of tables: all checks of all tables, and every page of one table."""

from __future__ import annotations

from dataclasses import replace

import dagster as dg
from pydantic import Field

from checks.data_checks import data_result, declarations_of
from checks.definition import apply_severity, limits_of, report_evaluation, report_result, result_of
from lsm_core.maintenance import PAGES_CHECK, DeepRead, run_check
from orchestration.ops.common import fail_in_one_line, job_op, process_tables
from platform_core import names
from platform_core.policies import policy_source
from platform_core.resources.spark_resource import SparkResource
from platform_core.resources.warehouse import WarehouseResource, describe_warehouse
from platform_core.table_card import TableCard


@job_op(
    "check_data",
    "Run all checks of all tables' data that are not switched off, in bounded samples, "
    "and report the results to the data assets.",
)
def data_checks_op(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
    """Check the data of all maintained tables; if a table's checks cannot run, the op continues with the next table.

    A check that ran and failed does not fail the run.

    Raises:
        dg.Failure: at the end, if checks could not run; the message names the tables.
    """
    policies = policy_source(warehouse.policy_file).current()

    def evaluate(card: TableCard) -> None:
        policy, asset = policies.of(card.name), names.data_key(warehouse.path, card.name)
        for declaration in declarations_of(card, policy):
            result = data_result(warehouse, spark, card, policy, declaration.name)
            context.log.info("%s: %s: %s", card.name, declaration.name, result.description)
            report_evaluation(context, asset, result)

    process_tables(
        context, {card.name: card for card in describe_warehouse(warehouse) if card.refusal is None}, evaluate
    )


class DeepCheckConfig(dg.Config):
    """Configuration of the job `deep_check`."""

    table: str = Field(description="full name of the table: db.table")
    bytes: int | None = Field(
        None, description="stored bytes after which the run stops; the next run resumes there (default: all files)"
    )


@job_op(
    "read_every_page",
    "Read every page of a table's data files and verify checksums. The next run resumes an interrupted one.",
    config=DeepCheckConfig,
    pool=names.SPARK_POOL,
)
def deep_check_op(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
    """Read every page of a table's data files, up to the configured number of bytes."""
    config = DeepCheckConfig(**context.op_config)
    context.instance.add_run_tags(context.run_id, {names.TAG_ACTION: names.DEEP_CHECK_JOB})
    with fail_in_one_line(config.table):
        card = warehouse.card(config.table)
        policy = policy_source(warehouse.policy_file).current().of(config.table)
        limits = replace(limits_of(policy), deep=_deep_read(spark, config.bytes))
        report = run_check(warehouse.store(config.table), PAGES_CHECK, limits)
    result = apply_severity(result_of(report), policy)
    report_evaluation(context, names.data_key(warehouse.path, card.name), result)
    report_result(context, config.table, result)


def _deep_read(spark: SparkResource, limit: int | None) -> DeepRead:
    """Return the reader of a deep check: Spark tasks if the platform uses Spark, else the run's own process."""
    if not spark.uses_spark:
        return DeepRead(bytes=limit)
    from lsm_core.spark import deep_read

    return deep_read(spark.session(), limit)
