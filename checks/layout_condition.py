"""Checks of a layout that follow from the health of its buckets: the backlog, and the check `layout_condition`.

`layout_condition` combines four checks of the engine, because Dagster stores and reads each check of each table alone:
with 500 tables, four checks instead of one add 1,500 rows to every query for all results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import dagster as dg

from dredge.checks.backlog import backlog_evaluation, hides_level0
from dredge.checks.definition import OFF, apply_severity, evaluation_of, limits_of, problem_list, result_of
from dredge.platform_core import names
from dredge.platform_core.health import TableHealth
from dredge.platform_core.obstacles import read_newest_evaluations
from dredge.platform_core.policies import DecisionScope, Policy, Subject, TableFacts
from dredge.platform_core.policies.decisions import find_expiring
from dredge.platform_core.table_card import TableCard
from lsm_core.maintenance import CHECKS, BucketHealth, CheckReport, checks_of
from lsm_core.maintenance.checks.layout_condition import ALIVE, JUDGES, Condition, ConditionVerdict, condition_of
from lsm_core.maintenance.iceberg_lag import read_iceberg_lag
from lsm_core.metadata.store import TableStore

CONDITIONS: Final = tuple(name for name in JUDGES if name not in {names.BACKLOG_CHECK, names.SMALL_FILES_CHECK})
"""Checks of the engine that `layout_condition` combines; each is a row of its result."""
CONDITION_PROMISE: Final = (
    "The layout is in good condition, according to metadata. Each row of the result is one condition: "
    + " ".join(f"{name}: {CHECKS[name].promise}" for name in CONDITIONS)
)
_PASSED: Final = "passed"
_WARNING: Final = "warning"
_ERROR: Final = "error"
_MOST_TEXT: Final = 1_000
"""Most characters of the text of one condition."""


@dataclass(frozen=True)
class ConditionRow:
    """Result of one condition of `layout_condition`.

    Attributes:
        name: name of the engine's check.
        verdict: whether the condition holds, with the reason and the affected buckets.
        severity: severity of a failure.
        origin: file and line of the policy that sets the severity, or None if the policy sets no severity.
    """

    name: str
    verdict: ConditionVerdict
    severity: dg.AssetCheckSeverity
    origin: str | None = None

    @property
    def outcome(self) -> str:
        """First word of the row: passed, warning or error."""
        if self.verdict.passed:
            return _PASSED
        return _ERROR if self.severity is dg.AssetCheckSeverity.ERROR else _WARNING


def conditions_of(card: TableCard, policy: Policy) -> Sequence[str]:
    """Return the names of the engine's checks that `layout_condition` combines for a table.

    Checks that do not apply to the table, or that its policy switches off, are left out.

    Args:
        card: description of the table.
        policy: policy of the table.
    """
    return [
        check.name
        for check in checks_of(card.primary_keys, card.options)
        if check.name in CONDITIONS and _setting(policy, check.name) != OFF
    ]


def _setting(policy: Policy, condition: str) -> str | None:
    """Return the policy's setting of a condition; the setting of `layout_condition` applies to all without their own.

    Returns:
        ``error``, ``warn`` or ``off``; None for the default.
    """
    return policy.checks.get(condition, policy.checks.get(names.CONDITION_CHECK))


def backlog_result(store: TableStore, health: TableHealth, policy: Policy, check: str) -> dg.AssetCheckResult:
    """Return the result of the backlog check of a table from known health.

    Args:
        store: the table.
        health: health of the table.
        policy: policy of the table.
        check: name of the check, for keyed or for append tables.
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
    verdict = JUDGES[check](_condition(store, health), limits_of(policy))
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


def condition_result(
    store: TableStore, health: TableHealth, policy: Policy, conditions: Collection[str]
) -> dg.AssetCheckResult:
    """Return the result of `layout_condition` from known health.

    The record of maintenance runs is read only if a bucket is due for compaction.

    The check fails if a condition fails, with the highest severity of the failed conditions. Its metadata has one row
    per condition.

    Args:
        store: the table.
        health: health of the table.
        policy: policy of the table.
        conditions: names of the conditions to evaluate.
    """
    condition = _condition(store, health)
    # Partitions about to expire are not compacted, so that no work is due in them.
    compactable = replace(condition, buckets=_compactable_buckets(store, health, policy, condition.now_ms))
    rows = [
        _judge(compactable if name == ALIVE else condition, policy, name) for name in CONDITIONS if name in conditions
    ]
    failed = sorted((row for row in rows if not row.verdict.passed), key=lambda row: row.outcome != _ERROR)
    if failed:
        description = "; ".join(f"{row.name}: {row.verdict.text}" for row in failed)
    elif rows:
        description = f"all conditions hold: {', '.join(row.name for row in rows)}"
    else:
        description = "not evaluated: switched off by the policy"
    metadata: dict[str, dg.MetadataValue] = {
        row.name: dg.MetadataValue.text(f"{row.outcome}: {row.verdict.text}"[:_MOST_TEXT]) for row in rows
    }
    problems = [f"{row.name}: {problem}" for row in failed for problem in row.verdict.problems]
    if problems:
        metadata["problems"] = problem_list(problems)
    origins = [f"{row.name}: {row.origin}" for row in failed if row.origin is not None]
    if origins:
        metadata["severity comes from"] = dg.MetadataValue.text("; ".join(origins))
    if health.snapshot is not None:
        metadata["snapshot"] = dg.MetadataValue.int(health.snapshot)
    error = any(row.outcome == _ERROR for row in failed)
    return dg.AssetCheckResult(
        check_name=names.CONDITION_CHECK,
        passed=not failed,
        severity=dg.AssetCheckSeverity.ERROR if error else dg.AssetCheckSeverity.WARN,
        description=description[: len(CONDITIONS) * _MOST_TEXT],
        metadata=metadata,
    )


def _judge(condition: Condition, policy: Policy, name: str) -> ConditionRow:
    """Evaluate one condition, with the severity that the policy sets for it.

    Args:
        condition: facts about the table's layout from which all conditions are evaluated.
        policy: policy of the table.
        name: name of the condition.
    """
    verdict = JUDGES[name](condition, limits_of(policy))
    setting = _setting(policy, name)
    if setting is None:
        warns = CHECKS[name].warn and not verdict.critical
        return ConditionRow(name, verdict, dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR)
    key = name if name in policy.checks else names.CONDITION_CHECK
    severity = dg.AssetCheckSeverity.ERROR if setting == _ERROR else dg.AssetCheckSeverity.WARN
    return ConditionRow(name, verdict, severity, policy.origin(f"checks.{key}"))


def _condition(store: TableStore, health: TableHealth) -> Condition:
    now, iceberg = store.clock.now_ms(), health.iceberg
    if iceberg is not None:
        iceberg = read_iceberg_lag(store, health.buckets, checks_manifests=True)
    return condition_of(store, health.buckets, now, by_writers=health.writers_compact, iceberg=iceberg)


def _compactable_buckets(store: TableStore, health: TableHealth, policy: Policy, now_ms: int) -> Sequence[BucketHealth]:
    """Return the buckets of partitions that are not about to expire; expiring partitions are not compacted."""
    facts = TableFacts(store.name, health, store.options, partitioned=bool(store.schema.partition_keys))
    return [
        bucket
        for state in health.partitions
        if find_expiring(Subject(facts, DecisionScope.SORTED_RUNS, state.text, state), policy, now_ms) is None
        for bucket in state.buckets
    ]


def changed_conditions(
    instance: dg.DagsterInstance,
    warehouse_names: names.WarehouseNames,
    tables: Sequence[tuple[TableCard, Policy, TableStore, TableHealth]],
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield an evaluation of `layout_condition` for each table whose set of failed conditions has changed.

    The set is compared with the newest result in Dagster.

    Conditions change with time alone: due work and lags grow older without commits or runs. A table without a result in
    Dagster yields an evaluation only if a condition fails. Unchanged results yield nothing, so that the event log stays
    small. One query reads the results of all tables.

    Args:
        instance: Dagster instance with the earlier results.
        warehouse_names: names of the warehouse in Dagster.
        tables: (description, policy, opened table, current health) of each table.
    """
    tables_by_check = {
        dg.AssetCheckKey(warehouse_names.layout_key(table[0].name), names.CONDITION_CHECK): table
        for table in tables
        if conditions_of(table[0], table[1])
    }
    newest = read_newest_evaluations(instance, tables_by_check)
    for key, (card, policy, store, health) in tables_by_check.items():
        previous = newest.get(key)
        result = condition_result(store, health, policy, conditions_of(card, policy))
        if _failures(result.metadata) != _failures({} if previous is None else previous.metadata):
            yield evaluation_of(key.asset_key, result)


def _failures(metadata: Mapping[str, object] | None) -> Mapping[str, str]:
    """Return the outcome of each failed condition in the metadata of a result, by name of the condition."""
    texts = {name: getattr((metadata or {}).get(name), "text", "") for name in CONDITIONS}
    outcomes = {name: str(text).partition(":")[0] for name, text in texts.items()}
    return {name: outcome for name, outcome in outcomes.items() if outcome in {_WARNING, _ERROR}}
