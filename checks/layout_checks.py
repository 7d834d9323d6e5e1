"""Checks of a table's layout, evaluated by each run that materialises it: metadata checks and the V3 comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import dagster as dg

from dredge.checks.definition import (
    CheckDeclaration,
    apply_severity,
    card_of_checks,
    declare_together,
    failed_result,
    is_switched_off,
    next_step,
    problem_list,
    report_evaluation,
    selected_checks,
    switched_off_result,
    unmaintained_result,
)
from dredge.checks.layout_condition import (
    CONDITION_PROMISE,
    CONDITIONS,
    backlog_result,
    condition_result,
    conditions_of,
)
from dredge.checks.merged_view import VerifyVerdict, merged_view_result
from dredge.platform_core import names
from dredge.platform_core.health import TableHealth, table_health
from dredge.platform_core.metadata import Launchpad
from dredge.platform_core.obstacles import find_blocking_failure
from dredge.platform_core.partitions import partition_of, partitions_of
from dredge.platform_core.policies import Policy, policy_source
from dredge.platform_core.resources.spark_resource import SparkResource
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.table_card import TableCard
from lsm_core.maintenance import checks_of
from lsm_core.maintenance.checks.metadata_validity import inspect_tree, tree_remedies
from lsm_core.maintenance.checks.outcome import join_commands
from lsm_core.metadata.store import TableStore

VIOLATIONS: Final = "violations"
"""Label of the broken invariants in the result of `tree_is_valid`."""


def tree_result(store: TableStore, partition: str | None, launchpad: Launchpad | None = None) -> dg.AssetCheckResult:
    """Return the result of `tree_is_valid` for the newest snapshot.

    Files of a level above 0 must share no keys, and the ranges of every file must be consistent. A failure names the
    commit that broke the tree, and an action that repairs the table.

    Args:
        store: the table.
        partition: path of the only partition to check, None for all.
        launchpad: maker of links to the warehouse's jobs; None for no links.
    """
    buckets, files, broken = inspect_tree(store, partition)
    if broken:
        remedies, reason = tree_remedies(store)
        repair = f"; repair it: {join_commands(store.name, remedies)}" if remedies else ""
        metadata: dict[str, Any] = {VIOLATIONS: problem_list([str(line) for line in broken])}
        metadata |= next_step(store.name, remedies, launchpad, files=False)
        return failed_result(f"{len(broken)} broken invariants: {broken[0]}; {reason}{repair}", **metadata)
    return dg.AssetCheckResult(
        passed=True,
        description=f"{files} files in {buckets} buckets form a valid tree",
        metadata={"files": files, "buckets": buckets},
    )


MERGED_VIEW_PROMISE: Final = (
    "The merged rows of every bucket are the same before and after the compaction, according to an independent reader: "
    "Spark SQL over the raw files (V3). While it fails, the table is not maintained and nothing expires; "
    "a tag keeps the old files, and the result names the undo command."
)


def layout_checks(card: TableCard, warehouse_names: names.WarehouseNames, policy: Policy) -> dg.AssetChecksDefinition:
    """Return the checks of a table's layout asset, except those that the policy switches off."""
    layout, declarations = warehouse_names.layout_key(card.name), declarations_of(card, policy)
    return declare_together(
        card, warehouse_names, layout, "checks", declarations, _check, pool=warehouse_names.spark_pool
    )


def declarations_of(card: TableCard, policy: Policy) -> list[CheckDeclaration]:
    """Return the checks of a table's layout asset that the policy does not switch off.

    merged_view_unchanged, which needs Spark, is last, so that the results of the checks before it exist even if Spark
    fails. If the policy switches all checks off, merged_view_unchanged is kept.
    """
    declarations = [
        CheckDeclaration(check.name, check.promise, check.blocking, by_partition=check.name == names.TREE_CHECK)
        for check in checks_of(card.primary_keys, card.options)
        if not check.reads_rows and check.name not in CONDITIONS
    ]
    if conditions_of(card, policy):
        declarations.append(CheckDeclaration(names.CONDITION_CHECK, CONDITION_PROMISE))
    declarations.append(
        CheckDeclaration(names.MERGED_VIEW_CHECK, MERGED_VIEW_PROMISE, blocking=True, by_partition=True)
    )
    return [
        declaration
        for declaration in declarations
        if declaration.name == names.CONDITION_CHECK or not is_switched_off(policy, declaration.name)
    ] or declarations[-1:]


def _check(
    context: dg.AssetCheckExecutionContext, warehouse: WarehouseResource, spark: SparkResource
) -> Iterator[dg.AssetCheckResult]:
    card, launchpad = card_of_checks(context, warehouse), Launchpad(context.run, warehouse.names)
    policy = policy_source(*warehouse.policy_place).current().of(card.name)
    for check in selected_checks(context)[1]:
        if is_switched_off(policy, check) and check != names.CONDITION_CHECK:
            yield switched_off_result(policy, check)
        elif card.refusal is not None:
            yield unmaintained_result(card, check)
        elif check == names.MERGED_VIEW_CHECK:
            partition = partition_of(context)
            several = partitions_of(context) if partition is None else ()
            result = merged_view_result(context.instance, warehouse, spark, card.name, partition, several, launchpad)
            yield _report_partitions(context, apply_severity(result, policy, check))
        elif check == names.TREE_CHECK:
            result = tree_result(warehouse.store(card.name), partition_of(context), launchpad)
            yield _report_partitions(context, apply_severity(result, policy, check))
        else:
            store = warehouse.store(card.name)
            yield _result_from_health(card, store, table_health(store), policy, check)


def _result_from_health(
    card: TableCard, store: TableStore, health: TableHealth, policy: Policy, check: str
) -> dg.AssetCheckResult:
    if check == names.CONDITION_CHECK:
        return condition_result(store, health, policy, conditions_of(card, policy))
    return backlog_result(store, health, policy, check)


def _report_partitions(context: dg.AssetCheckExecutionContext, result: dg.AssetCheckResult) -> dg.AssetCheckResult:
    """Report the result of a run over several partitions for each partition, and return the result.

    Dagster plans one evaluation per partition, and would show the partitions without a report as skipped.

    Args:
        context: context of the check.
        result: result that holds for all partitions of the run.
    """
    for partition in partitions_of(context) if partition_of(context) is None else ():
        report_evaluation(context.op_execution_context, selected_checks(context)[0], result, partition)
    return result


def report_checks(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    store: TableStore,
    compared: VerifyVerdict,
    partitions: Sequence[str | None],
) -> None:
    """Report the layout checks of partitions that a job has materialised.

    In a job no check is an op, so Dagster would show older results as not evaluated. The result of
    merged_view_unchanged is the job's own comparison of rows before and after. It is not reported if the job compared
    nothing, or while a blocking check fails: only executing the failed check ends the block.

    Args:
        context: context of the op.
        warehouse: the warehouse.
        store: the table.
        compared: result of the comparison of rows by the job.
        partitions: materialised partitions; None for the whole table.
    """
    card, layout = warehouse.card(store.name), warehouse.names.layout_key(store.name)
    policy, health = policy_source(*warehouse.policy_place).current().of(card.name), table_health(store)
    launchpad = Launchpad(context.run, warehouse.names)
    for declaration in declarations_of(card, policy):
        for partition in partitions if declaration.by_partition else (None,):
            if declaration.name == names.TREE_CHECK:
                result = apply_severity(tree_result(store, partition, launchpad), policy, declaration.name)
            elif declaration.name != names.MERGED_VIEW_CHECK:
                result = _result_from_health(card, store, health, policy, declaration.name)
            elif (
                compared.level == "V1"
                and not is_switched_off(policy, declaration.name)
                and find_blocking_failure(context.instance, layout, partition) is None
            ):
                metadata = {"level": compared.level, "found by": "the run's own comparison"}
                result = dg.AssetCheckResult(
                    check_name=declaration.name, passed=compared.ok, description=compared.text, metadata=metadata
                )
            else:
                continue
            report_evaluation(context, layout, result, partition)
