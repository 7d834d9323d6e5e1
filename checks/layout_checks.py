"""The checks over a table's layout, which every run that materialises it evaluates: those of the engine that read metadata alone, and V3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import dagster as dg

from checks.backlog import backlog_evaluation, hides_level0
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
from checks.merged_view import merged_view_result
from checks.tree_invariants import tree_result
from lsm_core.maintenance import CHECKS, BucketHealth, CheckReport, checks_of
from lsm_core.maintenance.checks.layout_condition import JUDGES, condition_of
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.blocked import blocking_failure, newest_evaluations
from orchestration.health import TableHealth, table_health
from orchestration.ops.layout_ops import Verdict
from orchestration.partitions import partition_of, partitions_of
from orchestration.policies import Asked, Policy, Subject, TableFacts, policy_source
from orchestration.policies.decisions import expiring_of
from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import WarehouseResource
from orchestration.table_card import TableCard

MERGED_VIEW_PROMISE: Final = (
    "The merged rows of every bucket are the same before and after the compaction, found by a second path: Spark SQL over the "
    "raw files (V3). While it fails, no further maintenance touches the table and nothing expires; a tag keeps the old files."
)


def layout_checks(card: TableCard, layout: dg.AssetKey, policy: Policy) -> dg.AssetChecksDefinition:
    """Return the checks over ``card``'s layout asset, but those that the policy switches off."""
    return declare_together(card, layout, "checks", declarations_of(card, policy), _check, pool=names.SPARK_POOL)


def declarations_of(card: TableCard, policy: Policy) -> list[Declaration]:
    """Return what a table's layout is checked for: the cheap ones first, so that each has its result whatever becomes of Spark."""
    made = [
        Declaration(check.name, check.promise, check.blocking, by_partition=check.name == names.TREE_CHECK)
        for check in checks_of(card.primary_keys, card.options)
        if not check.reads_rows
    ]
    made.append(Declaration(names.MERGED_VIEW_CHECK, MERGED_VIEW_PROMISE, blocking=True, by_partition=True))
    return [one for one in made if not is_off(policy, one.name)] or made[-1:]


def _check(
    context: dg.AssetCheckExecutionContext, warehouse: WarehouseResource, spark: SparkResource
) -> Iterator[dg.AssetCheckResult]:
    card = checked_table(context, warehouse)
    policy = policy_source(warehouse.policy_file).current().of(card.name)
    for check in wanted(context)[1]:
        if is_off(policy, check):
            yield switched_off(policy, check)
        elif card.refusal is not None:
            yield declined(card, check)
        elif check == names.MERGED_VIEW_CHECK:
            one = partition_of(context)
            several = partitions_of(context) if one is None else ()
            found = merged_view_result(context.instance, warehouse, spark, card.name, one, several)
            yield _for_each_partition(context, under_policy(named(check, found), policy))
        elif check == names.TREE_CHECK:
            found = tree_result(warehouse.store(card.name), partition_of(context))
            yield _for_each_partition(context, under_policy(named(check, found), policy))
        else:
            store = warehouse.store(card.name)
            yield condition_result(store, table_health(store), policy, check)


def _for_each_partition(context: dg.AssetCheckExecutionContext, result: dg.AssetCheckResult) -> dg.AssetCheckResult:
    """Return the result of a run over several partitions, once it is told of each of them: Dagster planned one for each, and calls it skipped else."""
    for partition in partitions_of(context) if partition_of(context) is None else ():
        evaluation = evaluation_of(wanted(context)[0], result, partition)
        context.op_execution_context.log_event(evaluation)  # type: ignore[arg-type]  # Dagster's type leaves evaluations out
    return result


def tell_checks(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    store: TableStore,
    compared: Verdict,
    partitions: Sequence[str | None],
) -> None:
    """Tell what the checks of a layout say of ``partitions`` (None: all of it) that a job has materialised: in a job none of them is an op, and Dagster calls older results not evaluated.

    merged_view_unchanged is what the job itself ``compared``. It is not told where nothing was compared, nor where a blocking check fails: that block ends
    when somebody executes the check.
    """
    card, layout = warehouse.card(store.name), names.layout_key(warehouse.path, store.name)
    policy, health = policy_source(warehouse.policy_file).current().of(card.name), table_health(store)
    for one in declarations_of(card, policy):
        for partition in partitions if one.by_partition else (None,):
            if one.name == names.TREE_CHECK:
                result = under_policy(named(one.name, tree_result(store, partition)), policy)
            elif one.name != names.MERGED_VIEW_CHECK:
                result = condition_result(store, health, policy, one.name)
            elif (
                compared.level == "V1"
                and not is_off(policy, one.name)
                and blocking_failure(context.instance, layout, partition) is None
            ):
                told = {"level": compared.level, "found by": "the run's own comparison"}
                result = dg.AssetCheckResult(
                    check_name=one.name, passed=compared.ok, description=compared.text, metadata=told
                )
            else:
                continue
            context.log_event(evaluation_of(layout, result, partition))  # type: ignore[arg-type]  # Dagster's type leaves evaluations out


def condition_result(store: TableStore, health: TableHealth, policy: Policy, check: str) -> dg.AssetCheckResult:
    """Return what is found of a table whose health is known: nothing more is read, but the ledger where something is due."""
    if check == names.BACKLOG_CHECK:
        told = backlog_evaluation(
            dg.AssetKey(store.name), health.partitions, policy, hidden=hides_level0(store.options)
        )
        result = dg.AssetCheckResult(
            check_name=check,
            passed=told.passed,
            severity=told.severity,
            description=told.description,
            metadata=told.metadata,
        )
        return under_policy(result, policy)
    now = store.clock.now_ms()
    buckets: Sequence[BucketHealth] = health.buckets
    if check == ALIVE_CHECK:
        buckets = _to_be_compacted(store, health, policy, now)
    verdict = JUDGES[check](condition_of(store, buckets, now), limits_of(policy))
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
    return under_policy(result_of(report), policy)


def _to_be_compacted(store: TableStore, health: TableHealth, policy: Policy, now_ms: int) -> Sequence[BucketHealth]:
    """The buckets, without those of partitions about to expire: that nobody compacts them is as it should be."""
    facts = TableFacts(store.name, health, store.options, partitioned=bool(store.schema.partition_keys))
    return [
        bucket
        for state in health.partitions
        if expiring_of(Subject(facts, Asked.SORTED_RUNS, state.text, state), policy, now_ms) is None
        for bucket in state.buckets
    ]


ALIVE_CHECK: Final = "maintenance_alive"
TIMED: Final = (ALIVE_CHECK, "ro_is_fresh")
"""Checks whose answer time alone changes: what is due or lags grows older while nobody commits and nothing runs."""


def changed_conditions(
    instance: dg.DagsterInstance,
    warehouse_path: str,
    tables: Sequence[tuple[TableCard, Policy, TableStore, TableHealth]],
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the evaluations of `TIMED` checks that say otherwise than the newest one that Dagster holds; the first one where it fails.

    One question to Dagster for all ``tables``; nothing is yielded where nothing changed, so that the event log stays small.
    """
    asked = {
        dg.AssetCheckKey(names.layout_key(warehouse_path, table[0].name), check): table
        for table in tables
        for check in condition_checks(table[0], table[1])
        if check in TIMED
    }
    told = newest_evaluations(instance, asked)
    for key, (_, policy, store, health) in asked.items():
        before = told.get(key)
        result = condition_result(store, health, policy, key.name)
        if result.passed != (before is None or before.passed):
            yield evaluation_of(key.asset_key, result)


def condition_checks(card: TableCard, policy: Policy) -> Sequence[str]:
    """Return the checks of a layout that its health answers."""
    return [one.name for one in declarations_of(card, policy) if one.name in JUDGES]


__all__ = ["TIMED", "changed_conditions", "condition_checks", "condition_result", "declarations_of", "layout_checks"]
