"""Checks of a table's layout, evaluated by each run that materialises it: metadata checks and the V3 comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import dagster as dg

from checks.backlog import backlog_evaluation, hides_level0
from checks.definition import (
    CheckDeclaration,
    apply_severity,
    card_of_checks,
    declare_together,
    evaluation_of,
    failed_result,
    is_switched_off,
    limits_of,
    report_evaluation,
    result_of,
    selected_checks,
    switched_off_result,
    unmaintained_result,
)
from checks.merged_view import VerifyVerdict, merged_view_result
from lsm_core.maintenance import CHECKS, BucketHealth, CheckReport, checks_of
from lsm_core.maintenance.checks.layout_condition import ALIVE, JUDGES, condition_of
from lsm_core.maintenance.checks.metadata_validity import inspect_tree
from lsm_core.metadata.store import TableStore
from platform_core import names
from platform_core.health import TableHealth, table_health
from platform_core.metadata import plain_cell
from platform_core.obstacles import find_blocking_failure, read_newest_evaluations
from platform_core.partitions import partition_of, partitions_of
from platform_core.policies import DecisionScope, Policy, Subject, TableFacts, policy_source
from platform_core.policies.decisions import find_expiring
from platform_core.resources.spark_resource import SparkResource
from platform_core.resources.warehouse import WarehouseResource
from platform_core.table_card import TableCard

_SHOWN = 20


def tree_result(store: TableStore, partition: str | None) -> dg.AssetCheckResult:
    """Return the result of `tree_is_valid` for the newest snapshot, in one partition, or in all if it is None.

    Files of a level above 0 must share no keys, and the ranges of every file must be consistent.
    """
    buckets, files, broken = inspect_tree(store, partition)
    if broken:
        listed = "\n".join(f"- {plain_cell(str(line))}" for line in broken[:_SHOWN])
        return failed_result(f"{len(broken)} broken invariants: {broken[0]}", violations=dg.MetadataValue.md(listed))
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


def layout_checks(card: TableCard, layout: dg.AssetKey, policy: Policy) -> dg.AssetChecksDefinition:
    """Return the checks of a table's layout asset, except those that the policy switches off."""
    return declare_together(card, layout, "checks", declarations_of(card, policy), _check, pool=names.SPARK_POOL)


def declarations_of(card: TableCard, policy: Policy) -> list[CheckDeclaration]:
    """Return the checks of a table's layout asset that the policy does not switch off.

    merged_view_unchanged, which needs Spark, is last, so that the results of the checks before it exist even if Spark
    fails. If the policy switches all checks off, merged_view_unchanged is kept.
    """
    declarations = [
        CheckDeclaration(check.name, check.promise, check.blocking, by_partition=check.name == names.TREE_CHECK)
        for check in checks_of(card.primary_keys, card.options)
        if not check.reads_rows
    ]
    declarations.append(
        CheckDeclaration(names.MERGED_VIEW_CHECK, MERGED_VIEW_PROMISE, blocking=True, by_partition=True)
    )
    return [
        declaration for declaration in declarations if not is_switched_off(policy, declaration.name)
    ] or declarations[-1:]


def _check(
    context: dg.AssetCheckExecutionContext, warehouse: WarehouseResource, spark: SparkResource
) -> Iterator[dg.AssetCheckResult]:
    card = card_of_checks(context, warehouse)
    policy = policy_source(warehouse.policy_file).current().of(card.name)
    for check in selected_checks(context)[1]:
        if is_switched_off(policy, check):
            yield switched_off_result(policy, check)
        elif card.refusal is not None:
            yield unmaintained_result(card, check)
        elif check == names.MERGED_VIEW_CHECK:
            partition = partition_of(context)
            several = partitions_of(context) if partition is None else ()
            run = context.run
            result = merged_view_result(context.instance, warehouse, spark, card.name, partition, several, run)
            yield _report_partitions(context, apply_severity(result, policy, check))
        elif check == names.TREE_CHECK:
            result = tree_result(warehouse.store(card.name), partition_of(context))
            yield _report_partitions(context, apply_severity(result, policy, check))
        else:
            store = warehouse.store(card.name)
            yield condition_result(store, table_health(store), policy, check)


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

    In a job no check is an op, so Dagster would show older results as not evaluated. merged_view_unchanged gets the
    comparison of the job. It is not reported if nothing was compared, or while a blocking check fails: only executing
    the check ends the block.

    Args:
        context: context of the op.
        warehouse: the warehouse.
        store: the table.
        compared: comparison of the job.
        partitions: materialised partitions; None for the whole table.
    """
    card, layout = warehouse.card(store.name), names.layout_key(warehouse.path, store.name)
    policy, health = policy_source(warehouse.policy_file).current().of(card.name), table_health(store)
    for declaration in declarations_of(card, policy):
        for partition in partitions if declaration.by_partition else (None,):
            if declaration.name == names.TREE_CHECK:
                result = apply_severity(tree_result(store, partition), policy, declaration.name)
            elif declaration.name != names.MERGED_VIEW_CHECK:
                result = condition_result(store, health, policy, declaration.name)
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


def condition_result(store: TableStore, health: TableHealth, policy: Policy, check: str) -> dg.AssetCheckResult:
    """Return the result of a metadata check from known health; the ledger is read only if work is due.

    Args:
        store: the table.
        health: health of the table.
        policy: policy of the table.
        check: name of the check.
    """
    if check == names.BACKLOG_CHECK:
        evaluation = backlog_evaluation(
            dg.AssetKey(store.name), health.partitions, policy, hidden=hides_level0(store.options)
        )
        result = dg.AssetCheckResult(
            check_name=check,
            passed=evaluation.passed,
            severity=evaluation.severity,
            description=evaluation.description,
            metadata=evaluation.metadata,
        )
        return apply_severity(result, policy)
    now = store.clock.now_ms()
    buckets: Sequence[BucketHealth] = health.buckets
    if check == ALIVE:
        buckets = _compactable_buckets(store, health, policy, now)
    condition = condition_of(store, buckets, now, by_writers=health.writers_compact)
    verdict = JUDGES[check](condition, limits_of(policy))
    report = CheckReport(
        check,
        store.name,
        health.snapshot,
        passed=verdict.passed,
        text=verdict.text,
        numbers=verdict.numbers,
        problems=tuple(verdict.problems),
        warn=CHECKS[check].warn and not verdict.critical,
    )
    return apply_severity(result_of(report), policy)


def _compactable_buckets(store: TableStore, health: TableHealth, policy: Policy, now_ms: int) -> Sequence[BucketHealth]:
    """Return the buckets of partitions that are not about to expire.

    Expiring partitions are not compacted, so they must not raise alerts.
    """
    facts = TableFacts(store.name, health, store.options, partitioned=bool(store.schema.partition_keys))
    return [
        bucket
        for state in health.partitions
        if find_expiring(Subject(facts, DecisionScope.SORTED_RUNS, state.text, state), policy, now_ms) is None
        for bucket in state.buckets
    ]


TIMED: Final = (ALIVE, "ro_is_fresh")
"""Checks whose result changes with time alone: due work and lags grow older without commits or runs."""


def changed_conditions(
    instance: dg.DagsterInstance,
    warehouse_path: str,
    tables: Sequence[tuple[TableCard, Policy, TableStore, TableHealth]],
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield evaluations of `TIMED` checks whose result differs from the newest result in Dagster.

    A check without a result in Dagster yields an evaluation only if it fails. Unchanged results yield nothing, so that
    the event log stays small. One query reads the results of all tables.

    Args:
        instance: Dagster instance with the earlier results.
        warehouse_path: location of the warehouse.
        tables: card, policy, opened table and current health of each table.
    """
    tables_by_check = {
        dg.AssetCheckKey(names.layout_key(warehouse_path, table[0].name), check): table
        for table in tables
        for check in condition_checks(table[0], table[1])
        if check in TIMED
    }
    newest = read_newest_evaluations(instance, tables_by_check)
    for key, (_, policy, store, health) in tables_by_check.items():
        previous = newest.get(key)
        result = condition_result(store, health, policy, key.name)
        if result.passed != (previous is None or previous.passed):
            yield evaluation_of(key.asset_key, result)


def condition_checks(card: TableCard, policy: Policy) -> Sequence[str]:
    """Return the names of the layout checks whose result follows from the health of the buckets."""
    return [declaration.name for declaration in declarations_of(card, policy) if declaration.name in JUDGES]
