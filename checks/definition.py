"""How checks are declared here: all of one asset as one op, which makes those that were asked for, each kept by partition or for the whole table.

One op a table and asset, whose function, inputs and resources Dagster looks at once for all tables: an op a check would take a third of the
time in which a warehouse of thousands of tables loads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import dagster as dg

from lsm_core.maintenance import CheckLimits, CheckReport
from orchestration import names
from orchestration.metadata import plain_cell
from orchestration.partitions import partitions_definition
from orchestration.policies import Policy
from orchestration.quirks import TableChecks, early_features, named_op, typed
from orchestration.resources.warehouse import WarehouseResource
from orchestration.table_card import TableCard

OFF: Final = "off"
_SHOWN: Final = 20
_WITHIN_HOURS: Final = 6
_WITHIN_A_DAY: Final = 30
"""Hours that something may be due where compactions start in a window of the day alone."""


@dataclass(frozen=True)
class Declaration:
    """One check of an asset: its name, what it promises, whether a failure is ``blocking``, and whether it is evaluated by partition."""

    name: str
    promise: str
    blocking: bool = False
    by_partition: bool = False


def declare_together(
    card: TableCard,
    asset: dg.AssetKey,
    name: str,
    declarations: Sequence[Declaration],
    function: Callable[..., Iterator[dg.AssetCheckResult]],
    *,
    pool: str | None = None,
) -> dg.AssetChecksDefinition:
    """Return the checks of ``asset`` as one op called ``name``, any of which can be executed alone.

    ``function`` asks `checked_table` for its table and `wanted` for what it shall evaluate. Checks are kept by partition where they say so
    (else their results would lose it).
    """
    partitions = partitions_definition(card)
    outs = tuple(declaration.name for declaration in declarations)
    with early_features():
        template = _template(function, name, outs, pool)
        specs = {
            out: dg.AssetCheckSpec(
                declaration.name,
                asset=asset,
                description=declaration.promise,
                blocking=declaration.blocking,
                metadata={names.TABLE_NAME: card.name},
                partitions_def=partitions if declaration.by_partition else None,
            )
            for out, declaration in zip(template.check_specs_by_output_name, declarations, strict=True)
        }
    (put,) = template.keys_by_input_name
    return TableChecks(
        keys_by_input_name={put: asset},
        keys_by_output_name={},
        node_def=named_op(template.op, f"{'__'.join(asset.path)}__{name}"),
        check_specs_by_output_name=specs,
        can_subset=True,
    )


@lru_cache(maxsize=256)
def _template(
    function: Callable[..., Any], name: str, checks: tuple[str, ...], pool: str | None
) -> dg.AssetChecksDefinition:
    """Return these checks over no asset in particular: what Dagster finds out about a function it finds out once for all tables."""
    specs = [dg.AssetCheckSpec(check, asset=dg.AssetKey("checked")) for check in checks]
    made: dg.AssetChecksDefinition = dg.multi_asset_check(name=name, specs=specs, can_subset=True, pool=pool)(
        typed(function)
    )
    return made


def checked_table(context: dg.AssetCheckExecutionContext, warehouse: WarehouseResource) -> TableCard:
    """Describe the table that the checks in ``context`` are about, as it is now."""
    spec = next(iter(context.check_specs))
    return warehouse.card(str((spec.metadata or {})[names.TABLE_NAME]))


def wanted(context: dg.AssetCheckExecutionContext) -> tuple[dg.AssetKey, list[str]]:
    """Return the asset, and the names of the checks that are to be evaluated, in the order in which they were declared."""
    chosen = {key.name for key in context.selected_asset_check_keys}
    specs = [spec for spec in context.check_specs if spec.name in chosen]
    return next(iter(context.check_specs)).asset_key, [spec.name for spec in specs]


def limits_of(policy: Policy) -> CheckLimits:
    """Return the limits of the engine's checks under a policy.

    Args:
        policy: policy of one table.

    Returns:
        Thresholds in files, bytes and milliseconds; a policy with off-peak hours lets work wait for a day.
    """
    hours = _WITHIN_A_DAY if policy.off_peak is not None else _WITHIN_HOURS
    return CheckLimits(
        level0_warn=policy.level0_warn,
        level0_critical=policy.level0_critical,
        pile_warn=policy.watch.small_files,
        pile_critical=max(policy.watch.small_files_critical, policy.watch.small_files),
        idle_ms=hours * 60 * 60 * 1000,
        paused=policy.paused,
        page_bytes=policy.page_sample_bytes,
    )


def result_of(report: CheckReport, **metadata: Any) -> dg.AssetCheckResult:
    """Return what the engine found as Dagster's result: numbers plot, what breaks the promise is listed."""
    return dg.AssetCheckResult(
        check_name=report.check,
        passed=report.passed,
        severity=dg.AssetCheckSeverity.WARN if report.warn else dg.AssetCheckSeverity.ERROR,
        description=report.text,
        metadata={**report_metadata(report), **metadata},
    )


def report_metadata(report: CheckReport) -> dict[str, dg.MetadataValue]:
    """Return the metadata of an evaluation: the snapshot, the numbers of the report, and a list of its problems.

    Args:
        report: result of one check of the engine.

    Returns:
        Values by their label; at most the first problems, as text without markup.
    """
    numbers: dict[str, Any] = {"snapshot": report.snapshot_id} if report.snapshot_id is not None else {}
    numbers |= report.numbers
    metadata: dict[str, dg.MetadataValue] = {name: _value(value) for name, value in numbers.items()}
    if report.problems:
        metadata["what breaks it"] = dg.MetadataValue.md(
            "\n".join(f"- {plain_cell(line)}" for line in report.problems[:_SHOWN])
        )
    return metadata


def _value(value: float | str) -> dg.MetadataValue:
    if isinstance(value, int):
        return dg.MetadataValue.int(value)
    return dg.MetadataValue.float(value) if isinstance(value, float) else dg.MetadataValue.text(value)


def under_policy(result: dg.AssetCheckResult, policy: Policy) -> dg.AssetCheckResult:
    """Return a result with the severity that the policy gives its check; what it does not say stays."""
    said = _SEVERITIES.get(policy.checks.get(str(result.check_name), ""))
    if result.passed or said is None or result.severity is said:
        return result
    return dg.AssetCheckResult(
        check_name=result.check_name,
        passed=False,
        severity=said,
        description=result.description,
        metadata={**result.metadata, "severity comes from": policy.origin(f"checks.{result.check_name}")},
    )


_SEVERITIES: Mapping[str, dg.AssetCheckSeverity] = {
    "error": dg.AssetCheckSeverity.ERROR,
    "warn": dg.AssetCheckSeverity.WARN,
}


def is_off(policy: Policy, check: str) -> bool:
    """Whether the policy says that the check does not look."""
    return policy.checks.get(check) == OFF


def switched_off(policy: Policy, check: str) -> dg.AssetCheckResult:
    """Return the result of a check that the policy switched off since definitions were loaded."""
    text = f"not evaluated: switched off by the policy ({policy.origin(f'checks.{check}')})"
    return dg.AssetCheckResult(check_name=check, passed=True, description=text)


def named(check: str, result: dg.AssetCheckResult) -> dg.AssetCheckResult:
    """Return a result as that of ``check``: one op evaluates several."""
    return dg.AssetCheckResult(
        check_name=check,
        passed=result.passed,
        severity=result.severity,
        description=result.description,
        metadata=result.metadata,
    )


def evaluation_of(
    asset: dg.AssetKey, result: dg.AssetCheckResult, partition: str | None = None
) -> dg.AssetCheckEvaluation:
    """Return the event that tells a result without an op of its own."""
    return dg.AssetCheckEvaluation(
        asset_key=asset,
        check_name=str(result.check_name),
        passed=result.passed,
        severity=result.severity,
        description=result.description,
        metadata=result.metadata,
        partition=partition,
    )


def declined(card: TableCard, check: str | None = None) -> dg.AssetCheckResult:
    """Return the result of a check over a table that maintenance leaves alone: nothing was done, so nothing can be wrong."""
    return dg.AssetCheckResult(check_name=check, passed=True, description=f"not maintained: {card.refusal}")


def show_verdict(context: dg.OpExecutionContext, table: str, result: dg.AssetCheckResult) -> None:
    """Log the result of a check that a job made of one table, and show it as metadata of the op.

    Args:
        context: context of the op.
        table: name of the table.
        result: result under the table's policy.

    Raises:
        dg.Failure: the check failed; the run is not retried.
    """
    context.log.info("%s: %s", table, result.description)
    context.add_output_metadata({**(result.metadata or {}), "verdict": str(result.description)})
    if not result.passed:
        raise dg.Failure(f"{table}: {result.description}", allow_retries=False)


def failed(text: str, *, warn: bool = False, **metadata: Any) -> dg.AssetCheckResult:
    """Return a failure that says why."""
    severity = dg.AssetCheckSeverity.WARN if warn else dg.AssetCheckSeverity.ERROR
    return dg.AssetCheckResult(passed=False, severity=severity, description=text, metadata=metadata)
