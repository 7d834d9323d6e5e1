"""Checks of a table's data, run at night and by hand: those that read rows or all snapshots, and great-expectations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import dagster as dg

from dredge.checks.definition import (
    CheckDeclaration,
    apply_severity,
    card_of_checks,
    declare_together,
    failed_result,
    is_switched_off,
    limits_of,
    result_of,
    selected_checks,
    switched_off_result,
    unmaintained_result,
)
from dredge.checks.expectations import DESCRIPTION, SuiteCrashed, SuitePlaces, suite_result
from dredge.platform_core import names
from dredge.platform_core.metadata import Launchpad
from dredge.platform_core.policies import Policy, policy_source
from dredge.platform_core.resources.spark_resource import SparkResource
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.table_card import TableCard
from lsm_core import Table
from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.maintenance import PAGES_CHECK, checks_of, run_check
from lsm_core.maintenance.checks.snapshot_chain import find_missing_file

_MOST_TEXT: Final = 1_000
"""Most characters of an error's text in the description of a result."""


def data_checks(card: TableCard, warehouse_names: names.WarehouseNames, policy: Policy) -> dg.AssetChecksDefinition:
    """Return the checks of a table's data asset, except those that the policy switches off.

    No data check is blocking, because no run of the platform materialises the data.
    """
    data = warehouse_names.data_key(card.name)
    return declare_together(card, warehouse_names, data, "checks", declarations_of(card, policy), _check)


def declarations_of(card: TableCard, policy: Policy) -> Sequence[CheckDeclaration]:
    """Return the checks of a table's data that the policy does not switch off.

    If the policy switches all checks off, `expectations` is returned, because an op needs at least one check.
    """
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
    policy = policy_source(*warehouse.policy_place).current().of(card.name)
    places, launchpad = (
        SuitePlaces(keys=keys_folder(context.instance, warehouse.names)),
        Launchpad(context.run, warehouse.names),
    )
    yield from data_results(warehouse, spark, card, policy, selected_checks(context)[1], places, launchpad)


def keys_folder(instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames) -> Path:
    """Return the folder below DAGSTER_HOME for the files with the keys that break expectations.

    A warehouse with a name of its own has its own folder, because tables of two warehouses may have the same name.
    """
    return Path(instance.root_directory) / "dredge" / "expectations" / warehouse_names.name


def docs_folder(instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames) -> Path:
    """Return the folder below DAGSTER_HOME for the pages of Data Docs, with one folder per table."""
    return Path(instance.root_directory) / "dredge" / "data_docs" / warehouse_names.name


def data_results(
    warehouse: WarehouseResource,
    spark: SparkResource,
    card: TableCard,
    policy: Policy,
    checks: Sequence[str],
    places: SuitePlaces | None = None,
    launchpad: Launchpad | None = None,
) -> Iterator[dg.AssetCheckResult]:
    """Run checks of a table's data over the table opened once.

    Args:
        warehouse: warehouse of the table.
        spark: Spark resource, used if the policy checks expectations on Spark.
        card: description of the table.
        policy: policy of the table.
        checks: names of the checks.
        places: folders of the files that the suites write (`SuitePlaces`), or None to write none.
        launchpad: maker of links to the warehouse's jobs; None for no links.

    Yields:
        The result of each check, in order. Expectations fail if a check before found a file that cannot be read,
            because the sample of rows may not contain the rows of that file.

    Raises:
        SuiteCrashed: an expectation could not be evaluated. It is raised after the last result, so that the run fails;
            the check of the expectations has a result that says so, instead of an older one.
    """
    table: Table | None = None
    crash: SuiteCrashed | None = None
    damage = ""
    for check in checks:
        if is_switched_off(policy, check):
            yield switched_off_result(policy, check)
        elif card.unreadable:
            yield failed_result(f"not evaluated: the table cannot be opened: {card.refusal}")._replace(check_name=check)
        elif card.refusal is not None:
            yield unmaintained_result(card, check)
        else:
            try:
                table = table or warehouse.table(card.name)
            except DredgeError as error:
                text = f"not evaluated: the table cannot be opened: {type(error).__name__}: {error}"
                yield failed_result(text)._replace(check_name=check)
                continue
            if check == names.SUITE_CHECK:
                damage = damage or _unreadable_file(table, policy, checks)
                try:
                    result = _suites(warehouse, spark, card, policy, table, places, damage)
                except SuiteCrashed as error:
                    crash = error
                    result = failed_result(f"not evaluated: {str(error)[:_MOST_TEXT]}", warn=True)
                yield apply_severity(result, policy, check)
                continue
            report = run_check(table.store, check, limits_of(policy))
            if check == PAGES_CHECK and not report.passed:
                damage = report.text
            yield apply_severity(result_of(report, launchpad), policy)
    if crash is not None:
        raise crash


def _unreadable_file(table: Table, policy: Policy, evaluated: Sequence[str]) -> str:
    """Return a text that names a file of the newest snapshot that cannot be read, or "" if none is found.

    The existence of every file is checked. The content of a sample of files is read, as by the check `pages_readable`.

    Args:
        table: the opened table.
        policy: policy of the table.
        evaluated: names of the checks that are evaluated together; `pages_readable` among them is not repeated.
    """
    try:
        missing = find_missing_file(table.store)
    except CorruptFile as error:
        return error.finding
    if missing is not None:
        return f"data file {missing} does not exist"
    if PAGES_CHECK in evaluated or is_switched_off(policy, PAGES_CHECK):
        return ""
    report = run_check(table.store, PAGES_CHECK, limits_of(policy))
    return "" if report.passed else report.text


def _suites(
    warehouse: WarehouseResource,
    spark: SparkResource,
    card: TableCard,
    policy: Policy,
    table: Table,
    places: SuitePlaces | None,
    damage: str,
) -> dg.AssetCheckResult:
    """Return the result of the suites, or a failure if files of the table cannot be read.

    Args:
        warehouse: warehouse of the table.
        spark: Spark resource, used if the policy checks expectations on Spark.
        card: description of the table.
        policy: policy of the table.
        table: the opened table.
        places: folders of the files that the suites write (`SuitePlaces`), or None to write none.
        damage: problem of an earlier check that could not read a file, or "".
    """
    if damage:
        return failed_result(f"no expectation was evaluated, because a file of the table cannot be read: {damage}")
    session = spark if policy.expectations_on == "spark" and spark.uses_spark else None
    return suite_result(warehouse, card, policy.expectations, session, table=table, places=places)
