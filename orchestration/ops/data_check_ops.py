"""Ops of the jobs that check the data of tables: all checks of all tables, and every page of one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import dagster as dg
from pydantic import Field

from dredge.checks.data_checks import data_results, declarations_of, docs_folder, keys_folder
from dredge.checks.definition import apply_severity, limits_of, report_evaluation, report_result, result_of
from dredge.checks.expectations import SuitePlaces
from dredge.orchestration.ops.common import fail_in_one_line, job_op, process_tables
from dredge.platform_core import names
from dredge.platform_core.metadata import Launchpad
from dredge.platform_core.policies import policy_source
from dredge.platform_core.resources.settings import Settings
from dredge.platform_core.resources.spark_resource import SparkResource
from dredge.platform_core.resources.warehouse import WarehouseResource, describe_warehouse
from dredge.platform_core.table_card import TableCard, count_text
from lsm_core.maintenance import CHECKS, PAGES_CHECK, DeepRead, run_check


class DataChecksConfig(dg.Config):
    """Configuration of the job `expectations`."""

    tables: list[str] = Field(
        ["*"], description="full names or globs of the tables to check, like ['shop.orders', 'log.*'] (default: all)"
    )
    checks: list[str] = Field(
        [], description="names of the checks, like ['expectations'] (default: all that the policy does not switch off)"
    )
    data_docs: bool = Field(
        default=False,
        description="whether great-expectations writes its pages (Data Docs), to DAGSTER_HOME/dredge/data_docs",
    )


@job_op(
    "check_data",
    "Run the checks of tables' data that are not switched off, in bounded samples, "
    "and report the results to the data assets.",
    config=DataChecksConfig,
)
def data_checks_op(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
    """Check the data of the configured tables; if a table's checks cannot run, the op continues with the next table.

    A check that ran and failed does not fail the run. A table that cannot be opened fails its checks.

    Raises:
        dg.Failure: no table or check matches the configuration; or, at the end, checks could not run. The message names
            them.
    """
    config = DataChecksConfig(**context.op_config)
    policies = policy_source(*warehouse.policy_place).current()
    docs_url = Settings.from_environment(warehouse.environment()).data_docs_url
    places = SuitePlaces(
        keys=keys_folder(context.instance, warehouse.names),
        docs=docs_folder(context.instance, warehouse.names) if config.data_docs else None,
        docs_url="/".join(part for part in (docs_url, warehouse.names.name) if part) if docs_url else "",
    )
    launchpad = Launchpad(context.run, warehouse.names)
    chosen = _choose_tables(describe_warehouse(warehouse), config)

    def evaluate(card: TableCard) -> None:
        policy, asset = policies.of(card.name), warehouse.names.data_key(card.name)
        checks = [declaration.name for declaration in declarations_of(card, policy)]
        selected = [check for check in checks if not config.checks or check in config.checks]
        failed = []
        # The event of each result is a line of the log, too.
        for result in data_results(warehouse, spark, card, policy, selected, places, launchpad):
            report_evaluation(context, asset, result)
            failed += [] if result.passed else [str(result.check_name)]
        failed_text = f"; failed: {', '.join(failed)}" if failed else ""
        context.log.info("%s: %s evaluated%s", card.name, count_text(len(selected), "check"), failed_text)

    process_tables(context, chosen, evaluate)


def _choose_tables(cards: Sequence[TableCard], config: DataChecksConfig) -> dict[str, TableCard]:
    """Return the tables to check, by name: the tables that match a pattern of the configuration.

    Each of `config.tables` is a name or glob such as "db.*"; a table is chosen if any of them matches. Matching tables
    that maintenance does not support are left out; those with unreadable metadata stay.

    Args:
        cards: descriptions of all tables.
        config: configuration of the job.

    Raises:
        dg.Failure: a name, glob or check of the configuration matches nothing.
    """
    known = {names.SUITE_CHECK, *(check.name for check in CHECKS.values() if check.reads_rows)}
    for check in config.checks:
        if check not in known:
            text = f"check {check!r} of the configuration does not exist; the checks are {', '.join(sorted(known))}"
            raise dg.Failure(text, allow_retries=False)
    chosen: dict[str, TableCard] = {}
    for pattern in config.tables:
        matching = [card for card in cards if fnmatchcase(card.name, pattern)]
        if not matching and pattern != "*":
            size = count_text(len(cards), "table")
            text = f"no table matches {pattern!r} of the configuration; the warehouse has {size}"
            raise dg.Failure(text, allow_retries=False)
        chosen |= {card.name: card for card in matching if card.refusal is None or card.unreadable}
    return dict(sorted(chosen.items()))


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
        policy = policy_source(*warehouse.policy_place).current().of(config.table)
        limits = replace(limits_of(policy), deep=_deep_read(spark, config.bytes))
        report = run_check(warehouse.store(config.table), PAGES_CHECK, limits)
    result = apply_severity(result_of(report, Launchpad(context.run, warehouse.names)), policy)
    report_evaluation(context, warehouse.names.data_key(card.name), result)
    report_result(context, config.table, result)


def _deep_read(spark: SparkResource, limit: int | None) -> DeepRead:
    """Return the reader of a deep check, which uses Spark tasks if the platform uses Spark, else this process.

    Args:
        spark: Spark resource of the platform.
        limit: most bytes to read, or None for no limit.
    """
    if not spark.uses_spark:
        return DeepRead(bytes=limit)
    from lsm_core.spark import deep_read

    return deep_read(spark.session(), limit)
