"""Declaration of checks: all checks of one asset as one op that runs the selected checks.

There is one op per table and asset, whose function, inputs and resources Dagster inspects once for all tables. One op
per check would take a third of the loading time of a warehouse with thousands of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import dagster as dg

from dredge.platform_core import names
from dredge.platform_core.dagster_internals import allow_early_features, resolve_annotations
from dredge.platform_core.metadata import Launchpad, plain_cell
from dredge.platform_core.op_templates import OpTemplate
from dredge.platform_core.partitions import partitions_definition
from dredge.platform_core.policies import Policy
from dredge.platform_core.resource_names import rename_resources
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.table_card import TableCard
from lsm_core.maintenance import CheckLimits, CheckReport
from lsm_core.maintenance.file_remedies import Remedy

OFF: Final = "off"
_SHOWN: Final = 20
_WITHIN_HOURS: Final = 6
_WITHIN_A_DAY: Final = 30
"""Hours that work may be due where compactions start only in a window of the day."""


@dataclass(frozen=True)
class CheckDeclaration:
    """One check of an asset.

    Attributes:
        name: name of the check.
        promise: invariant that the check verifies; shown as its description.
        blocking: whether a failure stops maintenance.
        by_partition: whether the check is evaluated by partition.
    """

    name: str
    promise: str
    blocking: bool = False
    by_partition: bool = False


def declare_together(
    card: TableCard,
    warehouse_names: names.WarehouseNames,
    asset: dg.AssetKey,
    name: str,
    declarations: Sequence[CheckDeclaration],
    function: Callable[..., Iterator[dg.AssetCheckResult]],
    *,
    pool: str | None = None,
) -> dg.AssetChecksDefinition:
    """Return the checks of an asset as one op, any of which can be executed alone.

    Args:
        card: description of the table.
        warehouse_names: names of the warehouse in Dagster.
        asset: key of the asset.
        name: name of the op.
        declarations: the checks.
        function: function that evaluates the selected checks and yields their results. It gets the table and the
            names of the selected checks from the context of the op.
        pool: Dagster pool of the op, or None.
    """
    partitions = partitions_definition(card, warehouse_names)
    outs = tuple(declaration.name for declaration in declarations)
    with allow_early_features():
        template, op = _template(function, warehouse_names.prefix, name, outs, pool)
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
    (input_name,) = template.keys_by_input_name
    checks: dg.AssetChecksDefinition = dg.AssetChecksDefinition.create(
        keys_by_input_name={input_name: asset},
        node_def=op.make_op(f"{'__'.join(asset.path)}__{name}"),
        check_specs_by_output_name=specs,
        can_subset=True,
    )
    return checks


@lru_cache(maxsize=256)
def _template(
    function: Callable[..., Any], prefix: str, name: str, checks: tuple[str, ...], pool: str | None
) -> tuple[dg.AssetChecksDefinition, OpTemplate]:
    """Return the checks for a placeholder asset and their op, so that Dagster inspects the function once.

    Args:
        function: function that evaluates the selected checks.
        prefix: prefix of the names of the warehouse's definitions, or "".
        name: name of the op.
        checks: names of the checks.
        pool: Dagster pool of the op, or None.
    """
    specs = [dg.AssetCheckSpec(check, asset=dg.AssetKey("checked")) for check in checks]
    renamed = rename_resources(resolve_annotations(function), names.WarehouseNames("", prefix=prefix))
    template: dg.AssetChecksDefinition = dg.multi_asset_check(name=name, specs=specs, can_subset=True, pool=pool)(
        renamed
    )
    return template, OpTemplate(template.op, renamed)


def card_of_checks(context: dg.AssetCheckExecutionContext, warehouse: WarehouseResource) -> TableCard:
    """Return the current description (`TableCard`) of the table that the checks in ``context`` belong to."""
    spec = next(iter(context.check_specs))
    return warehouse.card(str((spec.metadata or {})[names.TABLE_NAME]))


def selected_checks(context: dg.AssetCheckExecutionContext) -> tuple[dg.AssetKey, list[str]]:
    """Return the asset, and the names of its selected checks in the order of their declaration."""
    selected = {key.name for key in context.selected_asset_check_keys}
    specs = [spec for spec in context.check_specs if spec.name in selected]
    return next(iter(context.check_specs)).asset_key, [spec.name for spec in specs]


def limits_of(policy: Policy) -> CheckLimits:
    """Return the limits of the engine's checks under a policy.

    Args:
        policy: policy of one table.

    Returns:
        Thresholds in files, bytes and milliseconds. A check fails if maintenance work was due for more than 6 hours, or
        30 hours if the policy allows maintenance only in off-peak hours.
    """
    hours = _WITHIN_A_DAY if policy.off_peak is not None else _WITHIN_HOURS
    return CheckLimits(
        level0_warn=policy.level0_warn,
        level0_critical=policy.level0_critical,
        pile_warn=policy.watch.small_files,
        pile_critical=max(policy.watch.small_files_critical, policy.watch.small_files),
        iceberg_lag_ms=policy.iceberg_lag_ms or CheckLimits.iceberg_lag_ms,
        idle_ms=hours * 60 * 60 * 1000,
        paused=policy.paused,
        page_bytes=policy.page_sample_bytes,
    )


def result_of(report: CheckReport, launchpad: Launchpad | None = None) -> dg.AssetCheckResult:
    """Return a report of the engine as Dagster's result, with numbers to plot, a list of problems and the next step.

    Args:
        report: report of one check.
        launchpad: maker of links to the warehouse's jobs; None for no links.
    """
    steps = next_step(report.table, report.remedies, launchpad, files=bool(report.damaged))
    return dg.AssetCheckResult(
        check_name=report.check,
        passed=report.passed,
        severity=dg.AssetCheckSeverity.WARN if report.warn else dg.AssetCheckSeverity.ERROR,
        description=f"{report.text}{report.remedy_text}",
        metadata={**report_metadata(report), **steps},
    )


def next_step(
    table: str, remedies: Sequence[Remedy], launchpad: Launchpad | None, *, files: bool
) -> dict[str, dg.MetadataValue]:
    """Return metadata with the remedies of a failed check: for each, a link to its Dagster job, and its command.

    Args:
        table: full name of the table.
        remedies: actions that are possible now.
        launchpad: maker of links to the warehouse's jobs; None for no links.
        files: whether files are damaged or lost, so that a copy of the file is a remedy too.

    Returns:
        The entry *next step*; empty without a remedy.
    """
    if not remedies:
        return {}
    lines = ["Put the file back from a copy, or:", ""] if files else []
    for remedy in remedies:
        step = plain_cell(remedy.action)
        if launchpad is not None:
            address = launchpad.link(remedy.action, {"table": table, **remedy.arguments})
            step = f"[launch the job {launchpad.warehouse_names.definition(remedy.action)}]({address}), filled in"
        loss = f" ({plain_cell(remedy.loss)})" if remedy.loss else ""
        lines.append(f"- {step}{loss}: {plain_cell(remedy.command(table))}")
    section = "A file is damaged or lost" if files else "A check failed"
    last = f"Then execute this check again. More: docs/operations.md, *{section}*."
    return {"next step": dg.MetadataValue.md("\n".join([*lines, "", last]))}


def report_metadata(report: CheckReport) -> dict[str, dg.MetadataValue]:
    """Return the metadata of an evaluation: the snapshot, the numbers of the report, and its problems.

    Args:
        report: result of one check of the engine.

    Returns:
        Values by their label; at most the first 20 problems, as text without markup.
    """
    numbers: dict[str, Any] = {"snapshot": report.snapshot_id} if report.snapshot_id is not None else {}
    numbers |= report.numbers
    metadata: dict[str, dg.MetadataValue] = {name: _metadata_value(value) for name, value in numbers.items()}
    if report.problems:
        metadata["problems"] = problem_list(report.problems)
    return metadata


def problem_list(problems: Sequence[str]) -> dg.MetadataValue:
    """Return the first 20 problems as a list in Markdown, without markup of their own.

    Args:
        problems: one line per problem; untrusted.
    """
    return dg.MetadataValue.md("\n".join(f"- {plain_cell(line)}" for line in problems[:_SHOWN]))


def _metadata_value(value: float | str) -> dg.MetadataValue:
    if isinstance(value, int):
        return dg.MetadataValue.int(value)
    return dg.MetadataValue.float(value) if isinstance(value, float) else dg.MetadataValue.text(value)


def apply_severity(result: dg.AssetCheckResult, policy: Policy, check: str = "") -> dg.AssetCheckResult:
    """Apply the severity of the policy to a result.

    Args:
        result: result of a check.
        policy: policy of the table.
        check: name of the check if the result has no name, because one op evaluates several checks; else "".

    Returns:
        The result with the policy's severity; unchanged if the check passed or the policy sets no severity.
    """
    named_result = result._replace(check_name=check) if check else result
    severity = _SEVERITIES.get(policy.checks.get(str(named_result.check_name), ""))
    if result.passed or severity is None or result.severity is severity:
        return named_result
    origin = dg.MetadataValue.text(policy.origin(f"checks.{named_result.check_name}"))
    return named_result._replace(severity=severity, metadata={**result.metadata, "severity comes from": origin})


_SEVERITIES: Mapping[str, dg.AssetCheckSeverity] = {
    "error": dg.AssetCheckSeverity.ERROR,
    "warn": dg.AssetCheckSeverity.WARN,
}


def is_switched_off(policy: Policy, check: str) -> bool:
    """Return whether the policy switches the check off."""
    return policy.checks.get(check) == OFF


def switched_off_result(policy: Policy, check: str) -> dg.AssetCheckResult:
    """Return a passing result for a check that the policy switched off after definitions were loaded."""
    text = f"not evaluated: switched off by the policy ({policy.origin(f'checks.{check}')})"
    return dg.AssetCheckResult(check_name=check, passed=True, description=text)


def evaluation_of(
    asset: dg.AssetKey, result: dg.AssetCheckResult, partition: str | None = None
) -> dg.AssetCheckEvaluation:
    """Return the event that reports a result without an op of its own.

    Args:
        asset: key of the asset.
        result: result of a check, which names the check and its asset.
        partition: partition of the result, or None for the whole asset.
    """
    return dg.AssetCheckEvaluation(
        asset_key=asset,
        check_name=str(result.check_name),
        passed=result.passed,
        severity=result.severity,
        description=result.description,
        metadata=result.metadata,
        partition=partition,
    )


def report_evaluation(
    context: dg.OpExecutionContext, asset: dg.AssetKey, result: dg.AssetCheckResult, partition: str | None = None
) -> None:
    """Report a result as an event of the run.

    Args:
        context: context of the op.
        asset: key of the checked asset.
        result: result of a check that the run evaluated.
        partition: partition of the result, or None for the whole asset.
    """
    # Dagster's type omits evaluations.
    context.log_event(evaluation_of(asset, result, partition))  # type: ignore[arg-type]


def unmaintained_result(card: TableCard, check: str | None = None) -> dg.AssetCheckResult:
    """Return the result of a check on a table that is not maintained: it passes.

    Args:
        card: description of the table, with the reason why it is not maintained.
        check: name of the check, or None for a result without a name.
    """
    return dg.AssetCheckResult(check_name=check, passed=True, description=f"not maintained: {card.refusal}")


def report_result(context: dg.OpExecutionContext, table: str, result: dg.AssetCheckResult) -> None:
    """Log the result of a check of one table and add it to the metadata of the op.

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


def failed_result(text: str, *, warn: bool = False, **metadata: Any) -> dg.AssetCheckResult:
    """Return a failed result with its reason.

    Args:
        text: reason of the failure.
        warn: whether the severity is WARN instead of ERROR.
        metadata: metadata of the result.
    """
    severity = dg.AssetCheckSeverity.WARN if warn else dg.AssetCheckSeverity.ERROR
    return dg.AssetCheckResult(passed=False, severity=severity, description=text, metadata=metadata)
