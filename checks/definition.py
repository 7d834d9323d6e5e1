"""How a check is declared here: one wrapper that keeps the partition and silences what Dagster says about preview features."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import dagster as dg

from orchestration import names
from orchestration.partitions import partitions_definition
from orchestration.quirks import early_features, named_op, typed
from orchestration.resources.warehouse import WarehouseResource
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

    A function that is the same for all tables, and asks `checked_table` for its own, makes loading thousands of tables quick.

    ``whole_table``: one evaluation for all partitions together.
    """
    partitions = None if whole_table else partitions_definition(card)
    with early_features():
        template = _template(function, name, tuple(options.items()))
        spec = dg.AssetCheckSpec(
            name,
            asset=asset,
            description=description,
            blocking=options.get("blocking", False),
            metadata={names.TABLE_NAME: card.name},
            partitions_def=partitions,
        )
    (put,) = template.keys_by_input_name
    (out,) = template.check_specs_by_output_name
    made: dg.AssetChecksDefinition = dg.AssetChecksDefinition.create(
        keys_by_input_name={put: asset},
        node_def=named_op(template.op, f"{'__'.join(asset.path)}__{name}"),
        check_specs_by_output_name={out: spec},
        can_subset=False,
    )
    return made


@lru_cache(maxsize=16)
def _template(function: CheckFunction, name: str, options: tuple[tuple[str, Any], ...]) -> dg.AssetChecksDefinition:
    """Return the check over no asset in particular: what Dagster finds out about a function it finds out once for all tables."""
    decorate = dg.asset_check(asset=dg.AssetKey("checked"), name=name, **dict(options))
    return decorate(typed(function))


def checked_table(context: dg.AssetCheckExecutionContext, warehouse: WarehouseResource) -> TableCard:
    """Describe the table that the check in ``context`` is about, as it is now."""
    (spec,) = context.check_specs
    return warehouse.card(str((spec.metadata or {})[names.TABLE_NAME]))


def declined(card: TableCard) -> dg.AssetCheckResult:
    """Return the result of a check over a table that maintenance leaves alone: nothing was done, so nothing can be wrong."""
    return dg.AssetCheckResult(passed=True, description=f"not maintained: {card.refusal}")


def failed(text: str, *, warn: bool = False, **metadata: Any) -> dg.AssetCheckResult:
    """Return a failure that says why."""
    severity = dg.AssetCheckSeverity.WARN if warn else dg.AssetCheckSeverity.ERROR
    return dg.AssetCheckResult(passed=False, severity=severity, description=text, metadata=metadata)
