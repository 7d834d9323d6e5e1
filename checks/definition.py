"""How a check is declared here: one wrapper that keeps the partition and silences what Dagster says about preview features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg

from orchestration.partitions import partitions_definition
from orchestration.quirks import early_features, typed
from orchestration.table_card import TableCard

CheckFunction = Callable[..., dg.AssetCheckResult]


def declare(
    card: TableCard,
    asset: dg.AssetKey,
    name: str,
    description: str,
    function: CheckFunction,
    *,
    whole_table: bool = False,
    **options: Any,
) -> dg.AssetChecksDefinition:
    """Return ``function`` as an asset check, partitioned as its table is (else its result would lose the partition).

    ``whole_table``: one evaluation for all partitions together.
    """
    partitions = None if whole_table else partitions_definition(card)
    with early_features():
        decorate = dg.asset_check(asset=asset, name=name, description=description, partitions_def=partitions, **options)
        return decorate(typed(function))


def declined(card: TableCard) -> dg.AssetCheckResult:
    """Return the result of a check over a table that maintenance leaves alone: nothing was done, so nothing can be wrong."""
    return dg.AssetCheckResult(passed=True, description=f"not maintained: {card.refusal}")


def failed(text: str, *, warn: bool = False, **metadata: Any) -> dg.AssetCheckResult:
    """Return a failure that says why."""
    severity = dg.AssetCheckSeverity.WARN if warn else dg.AssetCheckSeverity.ERROR
    return dg.AssetCheckResult(passed=False, severity=severity, description=text, metadata=metadata)
